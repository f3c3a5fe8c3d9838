"""The sections about learning by several processes and about adaptation, from made-up records."""

import dataclasses
import math
import re

import pytest

from dse.learning_runs import latest, metrics_of
from dse.mapping.question import ask
from dse.records import read_folder
from dse.solver.problem import ProblemError
from dse.times.several import data_parallel_factor
from dse.tuning.learners import learner_scaling
from reports.sections import adaptation, learning_runs, training
from tests.committed import COMMITTED
from tests.made import make_record
from tests.page_parts import first_cells, page_material

MACHINE = {"key": "made-up", "cpu": "Abacus 9000", "cores": 2, "packages": {}}
KINDS = {  # arrangement, learners, D: seconds of a gradient step
    "serial": ("serial", 1, 0, 4e-4),
    "apart": ("apart", 1, 0, 2e-4),
    "pipelined, D = 1": ("pipelined", 1, 1, 1.6e-4),
    "pipelined, D = 200": ("pipelined", 1, 200, 1e-4),
    "apart, 2 learners, lock": ("apart", 2, 0, 5e-4),
}


def record(primitive, op, seconds, options, metrics, **fields):
    samples = tuple(seconds * (1 + 0.01 * at) for at in (-1, 0, 1))
    usual = {
        "source": "measured", "status": "ok", "primitive": primitive, "contestant": options["arrangement"], "op": op,
        "capacity": 50_000, "batch": 64, "options": {"workload": "cartpole_dqn", **options},
        "samples_seconds": samples, "median_seconds": seconds, "low_seconds": samples[0], "high_seconds": samples[2],
        "machine": MACHINE, "metrics": metrics, "commit": "0123456789abcdef", "utc": "2026-02-02T00:00:00+00:00",
    }  # fmt: skip
    return make_record(**{**usual, **fields})


def run(kind, seed, means=(100.0, 300.0, 480.0), **fields):
    """A run evaluated a little after every 2,500 steps, whose gradient steps take 1 % longer for each seed."""
    arrangement, learners, ahead, seconds = KINDS[kind]
    seconds *= 1 + 0.01 * seed
    points = [(2500 * n + 3, 2500 * n - 996, (2500 * n - 1000) * seconds, mean) for n, mean in enumerate(means, 1)]
    metrics = {
        "points": points, "interval": 2500, "steps": points[-1][0], "solved_at": 475.0, "test_mean": max(means),
        "restarts": int((kind, seed) == ("apart", 11)),
        "report": {"stale_weights": {"mean": 1.5, "most": 3}, "stale_batches": {"mean": float(ahead), "most": ahead}},
    }  # fmt: skip
    options = {
        "kind": kind, "arrangement": arrangement, "learners": learners, "presampled": ahead, "seed": seed,
        "update_interval": 1,
    }  # fmt: skip
    return record("training run", "gradient step", seconds, options, metrics, **fields)


def look(search, place, samplers, batch, sampling, frames, when="1", over=""):
    metrics = {
        "sampling_hz": sampling, "update_hz": frames / batch, "frames_hz": frames, "cpu_percent": 90.0,
        "used_bytes": 3e8, "over": over,
    }  # fmt: skip
    options = {"arrangement": "apart", "actors": samplers, "batch": batch, "run": when, "look": place}
    return record("training adaptation", search, batch / frames, options, metrics, batch=batch)


def runs():
    for kind in reversed(KINDS):
        for seed in (11, 10):
            yield run(
                kind,
                seed,
                (90.0, 200.0, 210.0) if (kind, seed) == ("pipelined, D = 200", 11) else (100.0, 300.0, 480.0),
            )
    nothing = {"samples_seconds": (), "median_seconds": None, "low_seconds": None, "high_seconds": None}
    failed = run("apart, 2 learners, lock", 12, status="failed", reason="diverged < here", **nothing)
    yield failed


def looks():
    yield look("samplers", 1, 1, 32, 9e3, 9e4, when="0")  # of an earlier run
    path = [("samplers", 1, 32), ("samplers", 2, 32), ("samplers", 3, 32), ("batch", 2, 256), ("batch", 2, 1024)]
    for place, (search, samplers, batch) in enumerate(path, 1):
        yield look(
            search, place, samplers, batch, 1e4 * (3 - abs(2 - samplers)), 1e5 * (3 - abs(math.log2(batch) - 8) / 5)
        )
    for samplers in (1, 2, 3):
        for batch in (32, 256, 1024):
            sampling = 1e4 * (4 if samplers == 3 else 3 - abs(2 - samplers))
            yield look("grid", 5 + 3 * samplers + batch % 7, samplers, batch, sampling, 1e5 * samplers * batch)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return page_material([*runs(), *looks()], tmp_path_factory.mktemp("results"))


def test_the_table_has_every_kind_beside_the_serial_loop_of_its_seed(asked):
    rows = first_cells(learning_runs.section(asked))
    assert next(iter(rows)) == "cartpole_dqn, serial"
    apart = rows["cartpole_dqn, apart"]
    assert apart[:4] == ["2 of 2", "480; 480", "7,503; 7,503", "6,504; 6,504"]
    assert apart[4:] == ["4,545; 4,505", "", "2.00; 2.00", "1.4; 1.4", "1.5; 1.5", "0.0; 0.0"]
    deep = rows["cartpole_dqn, pipelined, D = 200"]
    assert (deep[0], deep[2], deep[9]) == ("1 of 2", "7,503; &gt; 7,503", "200.0; 200.0")
    assert rows["cartpole_dqn, serial"][6] == ""
    assert "Restarted, apart, seed 11: 1 process<" in learning_runs.section(asked)


def test_runs_of_other_libraries_are_in_no_figure_of_ours():
    sac, memr = (run("serial", seed) for seed in (10, 11))
    for one, workload in ((sac, "pendulum_sac"), (memr, "pendulum_memr")):
        one.options["workload"] = workload
    other = dataclasses.replace(sac, options=sac.options | {"kind": "sb3", "library": "sb3"})
    for figure in (learning_runs.of_rollouts, learning_runs.of_arrangements, learning_runs.of_depths):
        assert figure([sac, memr, other]).equals(figure([sac, memr]))
    assert len(learning_runs.of_rollouts([sac, memr]))


def test_two_learners_have_the_scaling_factor_of_their_seeds_beside_that_of_the_formulas(asked):
    """Their step takes 500 us, that of one apart 200, of the same seed: 200 / 500 / 2."""
    key = ("cartpole_dqn", "apart, 2 learners, lock")
    factors = {key: metrics["scaling_factor"] for key, metrics in metrics_of(latest(asked.measurements)).items()}
    assert [at for at, by_seed in factors.items() if by_seed] == [key]
    assert [value.number for value in factors[key].values()] == pytest.approx([0.2, 0.2])
    html = learning_runs.section(asked)
    assert first_cells(html)["cartpole_dqn, apart, 2 learners, lock"][5] == "0.20; 0.20"
    assert "python -m dse learners gives no scaling factor of cartpole_dqn here" in html  # of no known machine
    one = [run for run in asked.measurements if run.options.get("seed") != 11 or run.options["learners"] == 2]
    assert metrics_of(latest(one))[key]["scaling_factor"].keys() == {10}  # seed 11 has no twin


def test_the_formulas_stand_beside_what_ran_on_a_machine_that_is_known():
    shipped = [one for one in read_folder(COMMITTED, "8fb834d50a") if one.primitive == "training run"]
    html = learning_runs.section(page_material(shipped, COMMITTED))
    said = re.search(r"a scaling factor of ([\d.]+) where they gather gradients.* give ([\d.]+), and", html)
    scaled = learner_scaling(ask(COMMITTED / "8fb834d50a" / "platform.toml", "cartpole_dqn", results=COMMITTED))
    exact = data_parallel_factor(scaled.terms, 2)
    assert said.groups() == (f"{scaled.factor(2, None):.2f}", f"{exact:.2f}")
    assert scaled.factor(2, None) == pytest.approx(0.17, abs=0.01)  # as measured
    assert first_cells(html)["cartpole_dqn, apart, 2 learners, synchronous"][5].startswith("0.17 [")


def test_the_depth_figure_has_one_learner_only_and_gains_by_seed(asked):
    rows = learning_runs.of_depths(latest(asked.measurements))
    assert set(rows["kind"]) == {"apart", "pipelined, D = 1", "pipelined, D = 200"}
    assert set(rows["step"]) == {2500, 5000, 7500}
    gains = learning_runs.gains_of(rows).groupby("presampled")["gain"]
    assert gains.median()[[0, 1, 200]].tolist() == pytest.approx([1, 1.25, 2])
    assert gains.count().tolist() == [2, 2, 2]
    figure = learning_runs.depths(rows, asked.about)
    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["0", "1", "200"]


@pytest.mark.parametrize("changed", [{"count": 2}, {"transport": "queue"}, {"arrangement": "serial"}])
def test_figures_of_arrangements_and_depths_leave_ablations_out(asked, changed):
    runs = latest(asked.measurements)
    apart = next(run for run in runs if run.options["kind"] == "apart")
    other = dataclasses.replace(apart, options=apart.options | changed | {"kind": "an ablation"})
    for select in (learning_runs.of_arrangements, learning_runs.of_depths):
        assert "an ablation" not in {*select([*runs, other])["kind"]}


def test_the_figure_of_arrangements_has_each_at_its_least_depth(asked):
    rows = learning_runs.of_arrangements(latest(asked.measurements))
    assert set(rows["kind"]) == {"serial", "apart", "pipelined, D = 1", "apart, 2 learners, lock"}
    figure = learning_runs.arrangements(rows, asked.about)
    shown = {line.get_label(): line for line in figure.axes[1].get_lines()}
    assert shown["apart"].get_ydata().tolist() == [100, 300, 480]
    assert "2 seeds each" in figure.subfigs[1].texts[0].get_text()


def test_copies_have_a_table_and_a_figure_of_their_own(tmp_path):
    found = read_folder(COMMITTED, "635af1acbb")
    asked = page_material([one for one in found if one.primitive == "training run"], tmp_path)
    runs = latest(asked.measurements)
    assert not {"copies, P = 2, lock, k = 16"} & {*learning_runs.of_arrangements(runs)["kind"]}
    assert "copies" not in " ".join(learning_runs.of_depths(runs)["kind"])
    rows = learning_runs.of_copies(runs)
    assert set(rows["processes"]) == {1, 2, 4}
    assert set(rows["every"]) == {1, 16}
    figure = learning_runs.copies(rows, asked.about)
    assert [axes.get_title() for axes in figure.axes] == ["episodes", "seconds an episode", "minutes", "speed-up"]
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["1", "2", "4"]
    unsolved = [line for line in figure.axes[0].get_lines() if line.get_marker() == "^" and line.get_label()[0] == "_"]
    beyond = rows[rows["is_beyond"] & (rows["figure"] == "episodes")]
    assert sum(len(line.get_ydata()) for line in unsolved) == len(beyond) > 0
    html = learning_runs.section(asked)
    assert "copies, P = 4, server, k = 16 (oversubscribed)" in html
    assert learning_runs.of_copies([one for one in runs if one.options["arrangement"] != "copies"]).empty


def test_the_latest_run_of_a_seed_counts(asked):
    newer = run("apart", 10, (1.0, 2.0, 3.0), utc="2026-03-03T00:00:00+00:00")
    kept = latest([newer, *asked.measurements])
    (one,) = (one for one in kept if one.options["kind"] == "apart" and one.options["seed"] == 10)
    assert one is newer


def test_the_predicted_gain_stands_beside_the_measured_one_or_why_there_is_none(asked, monkeypatch):
    monkeypatch.setattr(learning_runs, "predicted", lambda material, workload: {0: 100.0, 1: 130.0, 32: 150.0})
    sentence = learning_runs._predicted(asked, latest(asked.measurements))
    assert "D = 1: 1.30 predicted, 1.25 measured; D = 200: 1.50 predicted, 2.00 measured" in sentence

    def none(material, workload):
        raise ProblemError("have 2, need 3")

    monkeypatch.setattr(learning_runs, "predicted", none)
    assert "predicts no gain by D for cartpole_dqn here: have 2, need 3." in learning_runs.section(asked)


def test_a_search_shows_its_path_and_what_it_lost(asked):
    rows = adaptation.latest(asked.measurements)
    assert set(rows["search"]) == {"samplers", "batch", "grid"}
    assert len(rows) == 5 + 9
    assert adaptation.pair_of(rows) == (2, 256)
    html = adaptation.section(asked)
    assert re.findall(r"the search loses ([\d.]+%)", html) == ["25.0%", "75.0%"]
    assert "3 samplers and B = 1,024 train on the most records per second, 307,200,000, but" in html
    assert list(first_cells(html)) == ["1", "2", "3", "4", "5"]
    figure = adaptation.draw(rows, asked.about)
    assert {text.get_text() for axes in figure.axes for text in axes.texts} == {"1", "2", "3", "4", "5"}
    assert [len(list(axes.texts)) for axes in figure.axes] == [3, 3]


def test_these_records_are_no_primitives_of_training(asked):
    assert "no training system was profiled" in training.section(asked.measurements, "", ())
    (section,) = training.SECTIONS
    assert section._is_of("training")
    assert section._is_of("training_again")
    assert not section._is_of("training run")
