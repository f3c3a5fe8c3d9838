"""The section on learning: the numbers that its curves and its sentence show, from made-up runs."""

import json

import pytest

from reports.frame import Data
from reports.sections import learning
from tests.made import make_record

MACHINE = {"key": "made-up", "cpu": "Abacus 9000", "cores": 2, "packages": {}}
RETURNS = (100.0, 300.0, 200.0)


def write_run(folder, alpha, seed, solved, learner="torch"):
    run = folder / "made-up" / "training" / "cartpole_dqn" / f"{learner}-{alpha}-{seed}"
    run.mkdir(parents=True)
    summary = {"workload": "cartpole_dqn", "alpha": alpha, "seed": seed, "utc": "2026-02-02", "solved_at": 250.0,
               "test_mean": 300.0, "sample_efficiency": solved, "learner": learner}  # fmt: skip
    (run / "summary.json").write_text(json.dumps(summary))
    points = [f"{1000 * at},{value + seed}" for at, value in enumerate(RETURNS, 1)]
    (run / "curve.csv").write_text("\n".join(["step,mean_score", *points]))


def make_run(arrangement, ahead, seed, seconds, **options):
    metrics = {"points": [(2500, 1500, 1.0, 480.0)], "interval": 2500, "solved_at": 475.0, "test_mean": 490.0 + seed,
               "report": {"cores": {}}, "episodes": [40 + seed]}  # fmt: skip
    kind = arrangement if arrangement == "apart" else f"{arrangement}, {options}, D = {ahead}"
    known = {"workload": "cartpole_dqn", "kind": kind, "arrangement": arrangement}
    known |= {"learners": 1, "presampled": ahead, "seed": seed, "transport": "shared", **options}
    times = {"median_seconds": seconds, "low_seconds": seconds, "high_seconds": seconds, "samples_seconds": (seconds,)}
    return make_record(source="measured", status="ok", primitive="training run", contestant=arrangement,
                       op="gradient step", capacity=50_000, batch=64, options=known, metrics=metrics, machine=MACHINE,
                       commit="0123456789", utc="2026-02-02T00:00:00+00:00", **times)  # fmt: skip


def test_curves_show_the_best_return_so_far_of_both_replays(tmp_path):
    for seed in range(3):
        write_run(tmp_path, 0.0, seed, 3000)
        write_run(tmp_path, 0.6, seed, (None, 1000, 5000)[seed])
    write_run(tmp_path, 0.6, 0, 1000, learner="dense")  # which has no uniform run
    data = Data(tmp_path, "made-up", [])
    rows = data.select(learning.CURVES)
    assert rows.groupby("replay")["seed"].nunique().to_dict() == {"prioritized": 3, "uniform": 3}
    assert list(rows[(rows["replay"] == "uniform") & (rows["seed"] == 1)]["best"]) == [101.0, 301.0, 301.0]
    said = learning.say_which_learns_faster(data)
    assert "3 prioritized runs took a median of 5,000" in said
    assert "3 uniform runs 3,000" in said
    assert "may be chance" in said


def test_depths_show_rate_and_return_of_runs_with_one_unchanged_learner(tmp_path):
    records = [make_run("apart", 0, seed, 1e-3) for seed in (1, 2)] + [make_run("pipelined", 10, 1, 5e-4)]
    records += [make_run("apart", 0, 3, 9.0, count=4), make_run("apart", 0, 4, 9.0, transport="queue")]
    records += [make_run("apart", 0, 5, 9.0, kind="apart, batch = 256")]
    rows = learning.list_depths(Data(tmp_path, "made-up", records))
    rates = rows[rows["panel"] == "gradient steps/s"].groupby("x")["value"].agg(list).to_dict()
    assert rates == {0: pytest.approx([1000, 1000]), 10: pytest.approx([2000])}
    assert sorted(rows[rows["panel"] == "return of the trained policy"]["value"]) == [491, 491, 492]


def test_runs_by_libraries_are_listed_with_plain_runs_of_their_workloads(tmp_path):
    runs = [make_run("apart", 0, 1, 1e-3, kind="apart"), make_run("apart", 0, 1, 1e-3, kind="sb3", library="sb3")]
    runs += [make_run("pipelined", 4, 1, 1e-3), make_run("apart", 0, 1, 1e-3, kind="apart", workload="other")]
    data = Data(tmp_path, "made-up", runs)
    rows = learning.list_kinds(data, column="o_library")
    assert sorted(zip(rows["workload"], rows["kind"], strict=True)) == [
        ("cartpole_dqn", "apart"), ("cartpole_dqn", "sb3"),
    ]  # fmt: skip
    assert len(learning.list_kinds(data)) == 4


def test_copies_begin_each_line_with_the_single_copy(tmp_path):
    copies = {"processes": 1, "sync": "lock", "every": 1}
    records = [make_run("copies", 0, 1, 1e-3, **copies)]
    records += [
        make_run("copies", 0, 1, 1e-3, **copies | {"processes": 2, "sync": sync}) for sync in ("lock", "server")
    ]
    rows = learning.list_depths_and_copies(Data(tmp_path, "made-up", records))
    episodes = rows[rows["panel"] == "episodes until solved"]
    assert sorted(zip(episodes["kind"], episodes["x"], episodes["value"], strict=True)) == [
        ("lock", 1, 41), ("lock", 2, 41), ("server", 1, 41), ("server", 2, 41),
    ]  # fmt: skip


def test_models_are_drawn_over_what_each_counts_and_by_gradient_steps(tmp_path):
    def make_curve(name, updates, changed=None, **more):
        changed = changed or {}
        record = make_run("serial", 0, 1, 1e-3, workload=f"pendulum_{name}", kind=f"serial {changed}", **changed)
        points = [(500 * n, 500 * updates * n, 1.0, -300 / n) for n in (1, 2)]
        record.metrics.update(points=points, interval=500, **more)
        return record

    counted = {"rollouts": [640, 1280]}
    changes = {}, {"updates": 20}, {"model_kind": "ensemble"}, {"alpha": 1}
    records = [make_curve("memr", changed.get("updates", 5), changed, **counted) for changed in changes]
    longer = make_run("serial", 0, 2, 1e-3, workload="pendulum_sac")
    longer.metrics.update(points=[(500 * n, 500 * n, 1.0, -900.0) for n in (1, 2, 3)], interval=500)  # was not solved
    records = [make_curve("sac", 1), longer, *records]
    rows = learning.list_models(Data(tmp_path, "made-up", records))
    by_steps, by_updates, by_rollouts = (f"return over {label}" for label in learning.COUNTED.values())
    assert rows.groupby(["panel", "kind"], observed=True)["x"].max().to_dict() == {
        (by_steps, "MEMR"): 1000, (by_steps, "MEMR with ensemble"): 1000, (by_steps, "SAC"): 1000,
        (by_updates, "MEMR"): 5000, (by_updates, "MEMR with ensemble"): 5000, (by_updates, "SAC"): 1000,
        (by_rollouts, "MEMR"): 1280, (by_rollouts, "MEMR with ensemble"): 1280,
        ("MEMR by gradient steps G a step", "G = 5"): 1000, ("MEMR by gradient steps G a step", "G = 20"): 1000,
        ("MEMR: return by priorities", "alpha = 1"): 1000, ("MEMR: return by priorities", "as shipped"): 1000,
        ("MEMR: return by segments", "as shipped"): 1000,
    }  # fmt: skip
