"""The figures and tables of training primitives, from made-up records."""

import dataclasses
import json
import re

import pytest

from benchmarks.timing import Timing
from benchmarks.topics.profile.cells import Cell, options_of
from dse.times.curves import flat_then_linear
from impls.training import load
from tests.made import alter
from tests.page_parts import page_material, uncovered
from tests.profiled import made_up, stamp

pytest.importorskip("pandas", reason="reports need pandas")
pytest.importorskip("seaborn", reason="reports need seaborn")

from reports import tidy
from reports.building import build
from reports.sections import training, training_figures
from reports.sections.training import product_bounds, share_table, shares

FIGURES = {
    "training_batch": "time of a call (ms)",
    "training_tree": "time of a call (us)",
    "training_average": "time (ms)",
    "training_beside": "time under load / time alone (ratio)",
}


@pytest.fixture(scope="module")
def profiled():
    return made_up()


def test_rows_are_in_the_unit_of_their_figure(profiled):
    frame = tidy.tidy(profiled)
    batch = training_figures.over_batch(frame)
    step = batch[(batch["workload"] == "cartpole_dqn") & (batch["part"] == "learner step") & (batch["threads"] == 1)]
    assert step.set_index("batch")["ns"][64] == pytest.approx(1.64)  # milliseconds
    ratios = training_figures.of_pairs(frame).groupby("placement")["ns"].unique()
    assert ratios["shared"] == pytest.approx([2.2])
    assert ratios["own"] == pytest.approx([1.1])
    averages = training_figures.over_models(frame)
    assert averages.set_index(["workload", "models"])["ns"]["pong_dqn", 8] == pytest.approx(0.8)


def test_the_section_has_the_knees(profiled):
    rows = re.findall(
        r"<td>(\w+)</td><td>(learner|forward)</td><td>torch</td><td[^>]*>1</td><td[^>]*>([\d,]+)</td>",
        training.section(profiled, "", []),
    )
    assert set(rows) == {(n, *k) for n in ("cartpole_dqn", "pong_dqn") for k in (("learner", "100"), ("forward", "50"))}


@pytest.fixture(scope="module")
def by_both():
    """Records of the same cells by torch, then by torch and dense a day later, twice as long."""
    old = made_up(("cartpole_dqn",), "quick")
    new = made_up(("cartpole_dqn",), "quick", learners=("torch", "dense"))
    later = {"utc": "2030-01-02T00:00:00+00:00", "commit": "beefbeef"}
    return old + [
        alter(one, **later, samples_seconds=tuple(2 * each for each in one.samples_seconds))
        for one in (dataclasses.replace(one, median_seconds=2 * one.seconds) for one in new)
    ]


def test_parts_by_both_learners_are_shown_each_by_its_newest_timing(by_both):
    frame = tidy.tidy(by_both)
    rows = training_figures.over_batch(frame)
    steps = rows[(rows["part"] == "learner step") & (rows["threads"] == 1) & (rows["batch"] == 64)]
    assert steps.set_index("by")["ns"].to_dict() == pytest.approx({"torch": 2 * 1.64, "dense": 2 * 0.292})  # ms
    assert set(steps["commit"]) == {"beefbeef"}
    assert set(training_figures.of_trees(frame)["by"]) == {""}
    assert set(training_figures.parts(frame, "learner step", "actor step")["by"]) == {"torch"}
    table = training.section(by_both, "", [])
    for name, times in (("gradient step", ("3,280.0", "584.0")), ("whole loop", ("4,178.2", "992.6"))):
        shown = re.findall(
            rf"<td>cartpole_dqn</td><td>{name}</td><td>(\w+)</td><td>B = 64</td><td[^>]*>([\d,.]+)<", table
        )
        assert shown == [*zip(("torch", "dense"), times, strict=True)]
    assert set(re.findall(r"<td>gradient step</td><td>\w+</td><td>(B = [\d,]+)</td>", table)) == {"B = 64"}


def test_the_share_of_products_in_a_step_is_by_the_newest_records(by_both):
    (bound,) = product_bounds(by_both)
    assert (bound.workload, bound.learner, bound.batch) == ("cartpole_dqn", "dense", 64)
    assert bound.products == pytest.approx(85_248 / 128**2)
    assert bound.share == pytest.approx(bound.products * 1.64e-5 / 2.92e-4)
    assert f"{bound.share:.0%} of it for 5.2 products of 32.8 us each" in training.section(by_both, "", [])


@pytest.mark.parametrize("name", FIGURES)
def test_axes_say_their_units_and_nothing_covers_them(profiled, name, tmp_path):
    (chart,) = (chart for chart in training.CHARTS if chart.name == name)
    figure = chart.draw(chart.rows(page_material(profiled, tmp_path)), tidy.about(profiled))
    assert figure.axes[0].get_ylabel() == FIGURES[name]
    told = uncovered(figure)
    assert all(part in told for part in ("measured on a made-up CPU, 4 cores", "c0ffee00", "2030-01-01"))


def test_a_knee_is_found_through_noise_and_may_be_none():
    batches = [2**k for k in range(12)]
    law = flat_then_linear(batches, [(1e-3 + 4e-6 * b) * (1.05 if b % 3 else 0.95) for b in batches])
    assert law.knee == pytest.approx(250, rel=0.15)
    assert flat_then_linear([1, 10, 100], [1.0, 1.0, 1.0]).knee is None
    assert flat_then_linear([1, 10, 100], [1.0, 10.0, 100.0]).knee is None
    assert flat_then_linear([1, 10, 100], [5.0, 1.0, 0.9]).each_seconds == 0
    assert flat_then_linear([1, 10, 100], [0.9, 10.0, 110.0]).fixed_seconds == 0
    with pytest.raises(ValueError, match="two batches"):
        flat_then_linear([8, 8], [1.0, 1.1])


def shares_of(trees, actor=1e-4, run="python -m benchmarks run share"):
    """Records of a step: seconds in the tree and of learning, three samples each, by implementation."""
    made = dataclasses.replace(stamp("serial_step"), command=run)
    options = {**options_of(load("cartpole_dqn")), "update_interval": 2}
    found = [made.timed(Cell("actor", "step", options), Timing((actor,) * 3, 5))]
    found.append(made.timed(Cell("loop", "step", options), Timing((8e-4,) * 3, 5)))
    for name, times in trees.items():
        for op, samples in zip(("tree", "learning"), times, strict=True):
            found.append(made.timed(Cell(name, op, options, 64), Timing(samples, 5)))
    return found


def test_a_share_is_the_trees_time_over_the_whole_step():
    trees = {"numba": ((1e-5,) * 3, (8e-4,) * 3), "rllib": ((8e-4, 1e-3, 1.2e-3), (1.6e-3, 1.8e-3, 2e-3))}
    numba, rllib = shares(shares_of(trees))
    assert (numba.contestant, rllib.contestant) == ("numba", "rllib")
    assert numba.share == pytest.approx(0.01)  # 10 us of 800 us and two steps of an actor
    assert (numba.low, numba.high) == pytest.approx((0.01, 0.01))
    assert rllib.share == pytest.approx(0.5)
    assert rllib.low == pytest.approx(8e-4 / 1.8e-3)  # each sample's tree with its own step
    assert rllib.high == pytest.approx(1.2e-3 / 2.2e-3)
    assert rllib.is_unstable
    assert not numba.is_unstable
    html = share_table(shares_of(trees))
    assert "1.00%" in html
    assert "44.44% to 54.55%" in html
    assert "add up to 1,000 us; the whole loop, measured in the same run, takes 800 us, +25%" in html
    assert "With learner and policy by dense" not in html
    assert share_table([]) == ""


def test_a_whole_loop_by_another_learner_is_told_beside_the_shares():
    records = shares_of({"numba": ((1e-5,) * 3, (8e-4,) * 3)})
    dense = [
        dataclasses.replace(one, options=one.options | {"learner": "dense"}, median_seconds=one.seconds / 4)
        for one in records
        if one.contestant in ("actor", "loop")
    ]
    (share,) = shares([*records, *dense])
    assert share == dataclasses.replace(shares(records)[0], other_us=200.0)
    assert "With learner and policy by dense it takes 200 us." in share_table([*records, *dense])


def test_shares_mix_no_two_runs():
    whole = shares_of({"numba": ((1e-5,) * 3, (8e-4,) * 3)})
    lone = shares_of({"numpy": ((1e-5,) * 3, (8e-4,) * 3)}, run="another")[2:]
    assert [one.contestant for one in shares([*whole, *lone])] == ["numba"]


def summarized(machine, alpha, seed, **more):
    """A folder with the summary of a made-up run."""
    folder = machine / "training" / "cartpole_dqn" / f"alpha{alpha:g}-seed{seed}"
    folder.mkdir(parents=True)
    usual = {"workload": "cartpole_dqn", "alpha": alpha, "seed": seed, "steps": 5000, "seconds": 50}
    (folder / "summary.json").write_text(json.dumps(usual | more))
    return folder


@pytest.mark.usefixtures("without_laws")
def test_runs_are_drawn_and_listed_with_their_rates(profiled, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "CHARTS", training.CHARTS[-1:])  # the others are drawn above
    machine = tmp_path / profiled[0].machine["key"]
    for alpha, seed, mean, gpu in ((0.6, 0, 498.0, None), (0.6, 1, 500.0, None), (0.0, 0, 250.5, None)):
        rates = {"sampling_hz": 1000 + seed, "update_hz": 990, "update_frame_hz": 63_360, "cpu_percent": 99}
        more = {"solved_at": 475, "sample_efficiency": 5000 if alpha else None, "test_mean": mean, "test_episodes": 100}
        folder = summarized(machine, alpha, seed, throughput=rates | {"gpu_percent": gpu}, **more)
        (folder / "curve.csv").write_text("step,mean_score\n2500,100\n5000,480\n")
    assert training.curves(machine).groupby("alpha")["seed"].nunique().to_dict() == {0.0: 1, 0.6: 2}
    built = build(profiled, tmp_path, tmp_path / "out")
    assert any(path.endswith("training_curves.svg") for path in built["figures"])
    page = (tmp_path / "out" / "index.html").read_text()
    assert "498, 500" in page
    assert "63,360" in page
    assert ">never<" in page  # solved, by uniform sampling


@pytest.mark.parametrize(("rates", "words"), [((None, 900.0), "<td>900 %</td>"), ((None, None), "<td>none</td>")])
def test_runs_without_rates_are_left_out_of_the_medians(tmp_path, rates, words):
    for seed, rate in enumerate(rates):
        names = ("sampling_hz", "update_hz", "update_frame_hz", "cpu_percent", "gpu_percent")
        summarized(tmp_path, 0.6, seed, throughput=dict.fromkeys(names, rate) if rate else None)
    found = training.table_of_runs(tmp_path)
    assert words in found
    assert "none %" not in found
