"""What training runs reached, by the five metrics of [Zhang2022, 1.5], over seeds: numbers worked out by hand."""

import itertools
import math

import pytest

from dse import learning_runs
from dse.learning_runs import Value, metrics_of, summarize_seeds, write_metrics, write_over_seeds
from dse.stats import LEAST_SEEDS, interval_over_seeds
from tests.made import make_timed
from tests.unit.judging import judge_one

APART, TWO = ("w", "apart"), ("w", "apart, 2 learners, lock")


def run(key, seed, seconds, means, learners=1, test=490.0, interval=2000):
    """A run whose first 1,000 steps only collect, evaluated every ``interval`` steps."""
    kept = {"arrangement": key[1].partition(",")[0], "learners": learners, "presampled": 0, "seed": seed}
    points = [[interval * n, interval * n - 1000, seconds * n, mean] for n, mean in enumerate(means, 1)]
    metrics = {"points": points, "interval": interval, "solved_at": 475.0, "test_mean": test}
    return make_timed(
        seconds,
        primitive="training run",
        contestant="apart",
        op="gradient step",
        capacity=1,
        batch=1,
        options={"workload": key[0], "kind": key[1], **kept},
        metrics=metrics | {"report": {"stale_weights": {"mean": 1.5}}},
    )


def test_a_run_has_the_five_metrics_that_a_hand_computes():
    """Solved at the second of three evaluations; a step of two learners takes 4 ms where that of one takes 2 ms."""
    found = metrics_of(
        [
            run(APART, 7, 0.002, [20.0, 475.0, 9.0]),
            run(TWO, 7, 0.004, [480.0], learners=2, test=500.0),
            run(TWO, 8, 0.001, [480.0], learners=2, test=None),  # nobody ran by one learner and this seed
            run(("w", "serial"), 7, 0.005, [480.0]),
        ]
    )
    one = {name: by_seed[7].number for name, by_seed in found[APART].items() if by_seed}
    assert one.pop("computation_efficiency") == pytest.approx(1 / 0.002)
    assert one == {
        "policy_quality": 490,
        "sample_efficiency": 4000,
        "learning_efficiency": 3000,
        "speedup_over_serial": 2.5,
        "time_to_solve": 0.004,
        "stale_weights": 1.5,
    }
    two = found[TWO]
    assert two["scaling_factor"] == {7: Value(pytest.approx((1 / 0.004) / (1 / 0.002) / 2))}
    assert two["policy_quality"] == {7: Value(500.0)}
    written = write_metrics(two)
    assert written[:4] == ["2 of 2", "500", "2,000; 2,000", "1,000; 1,000"]
    assert written[4:] == ["250; 1,000", "0.25", "1.25", "0.0; 0.0"]


def copies(processes, sync, seed, seconds, mean):
    """A run of copies, evaluated once."""
    every = 1 if processes == 1 else 16
    made = run(("cartpole_dqn", f"copies, P = {processes}, {sync}, k = {every}"), seed, seconds, [mean])
    made.metrics.update(episodes=[100], report={"cores": {}})
    made.options.update(processes=processes, sync=sync, every=every)
    return made


@pytest.mark.parametrize(
    ("factors", "solved", "verdict"),
    [
        ([0.5, 0.6, 0.5, 0.4, 0.5], True, "confirmed"),
        ([0.5, 1.6, 0.5, 1.4, 2.5], True, "not testable here"),
        ([1.5, 1.6, 1.2, 1.4, 2.5], True, "refuted"),
        ([0.5] * 5, False, "refuted"),
        ([0.5] * 4, True, "not testable here"),
    ],
)
def test_copies_are_sooner_if_the_whole_interval_of_ratios_is(factors, solved, verdict, found):
    runs = []
    for seed, factor in enumerate(factors):
        seconds, mean = 60.0 * (seed + 1), 480.0 if solved else 9.0
        runs.append(copies(1, "lock", seed, seconds, 480.0))
        runs += [copies(2, sync, seed, seconds * factor, mean) for sync in ("lock", "hogwild", "server")]
    judged = judge_one("stonesachdev.any_number_is_faster", runs, found)
    assert (judged.high is not None and judged.high < 1) == (verdict == "confirmed")
    assert judged.verdict == ("refuted" if verdict == "refuted" else "not testable here")  # two are not any number
    fewer = [one for one in runs if one.options["sync"] != "hogwild"]
    assert judge_one("stonesachdev.any_number_is_faster", fewer, found).value is None  # a kind was not run


@pytest.mark.parametrize(
    ("model", "sac", "verdict"),
    [(1, 2, "confirmed"), (2, 1, "refuted"), (2, 2, "not testable here"), (None, 1, "refuted")],
)
def test_model_rollouts_are_judged_by_steps_beside_sac(model, sac, verdict, found):
    """Solved at the n-th evaluation, None: never."""

    def curve(solved):
        return [480.0 if solved and at >= solved else 9.0 for at in (1, 2, 3)]

    runs = [
        run((f"pendulum_{name}", "serial"), seed, 0.001, curve(solved))
        for seed in range(5)
        for name, solved in (("memr", model), ("sac", sac))
    ]
    assert judge_one("zhang2022.memr_steps", runs, found).verdict == verdict
    uniform = [run(("pendulum_memr", "serial, alpha = 1"), seed, 0.001, curve(sac)) for seed in range(5)]
    assert judge_one("zhang2022.exponent_of_0_6", [*runs, *uniform], found).value is None  # none with alpha = 0.2 ran
    counted = run(("pendulum_memr", "serial"), 0, 0.001, curve(2))
    counted.metrics.update(rollouts=[64, 128, 192], report={"rollouts": 192})
    assert metrics_of([counted])["pendulum_memr", "serial"]["rollouts"] == {0: Value(128)}  # until solved
    finer = [run(("pendulum_memr", "serial"), seed, 0.001, curve(3), interval=500) for seed in range(5)]
    latest = [kept for kept in learning_runs.latest([*finer, *runs]) if "memr" in str(kept)]
    assert [kept.metrics["interval"] for kept in latest] == [500] * 5
    assert judge_one("zhang2022.memr_steps", [*finer, *runs], found).value is None  # on two grids


def test_batches_ahead_are_judged_by_both_algorithms(found):
    """Twice the steps by a single algorithm are no verdict; where none solves a task there is no ratio of it."""

    def judge_depths(*factors):
        runs = []
        tasks = zip(("cartpole_dqn", "cartpole_ddpg"), factors, strict=True)
        for (task, factor), depth in itertools.product(tasks, (1, 50, 200)):
            means = [9.0] * (round(factor) - 1 if depth > 1 else 0) + [480.0 if factor else 9.0]
            runs += [run((task, f"pipelined, D = {depth}"), seed, 0.001, means) for seed in range(5)]
        return [judge_one(f"zhang2023.{name}", runs, found).verdict for name in ("d200_hurts", "d50_is_harmless")]

    assert judge_depths(2, 2) == ["confirmed", "refuted"]
    assert judge_depths(1, 1) == ["not testable here", "confirmed"]
    assert judge_depths(2, 1) == ["not testable here", "refuted"]
    assert judge_depths(1, 0) == ["not testable here"] * 2  # what holds for a single algorithm is not confirmed


def test_an_unsolved_seed_counts_as_beyond_its_last_evaluation():
    runs = [run(APART, seed, 0.002, [480.0] if seed < 2 else [9.0, 8.0, 7.0]) for seed in range(LEAST_SEEDS)]
    metrics = metrics_of(runs)[APART]
    assert metrics["learning_efficiency"][4] == (5000, True)
    solved, _, steps, updates, *_ = write_metrics(metrics)
    assert (solved, steps, updates) == ("2 of 5", "> 6,000 [2,000, > 6,000]", "> 5,000 [1,000, > 5,000]")
    even = [Value(10), Value(20), Value(30), Value(40, True), Value(40, True), Value(40, True)]
    assert summarize_seeds(even)[0] == (35, True)  # 30 and more than 40 lie around it


def test_an_interval_holds_what_spreads_and_few_seeds_have_none():
    assert interval_over_seeds([3.0] * 5) == (3.0, 3.0, 3.0)
    narrow, wide = (interval_over_seeds([100 + spread * at for at in range(-4, 5)]) for spread in (1, 2))
    assert narrow[0] == wide[0] == 100
    assert 100 - wide[1] == 2 * (100 - narrow[1]) > 0 < 2 * (narrow[2] - 100) == wide[2] - 100
    assert interval_over_seeds([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 1.0, 5.0)  # every 17th draw has thrice the least
    assert interval_over_seeds([math.inf] * 5) == (math.inf,) * 3
    few = [Value(1.0), Value(5.0, True)]
    assert (summarize_seeds(few), write_over_seeds(few, ".1f")) == ([], "1.0; > 5.0")
    assert write_over_seeds([], ".1f") == ""


def step(seconds, batch, learners=1, period=None, width=0.01, average=10e-6):
    """The record of a gradient step by learners alone, whose samples spread by a share."""
    own = {} if period is None else {"sync": "local", "period": period}
    return make_timed(
        seconds,
        primitive=learning_runs.STEP_PRIMITIVE,
        contestant="dense",
        op="gradient step",
        capacity=1,
        batch=batch,
        options={"workload": "w", "hidden": [8, 8], "learners": learners, **own},
        low_seconds=seconds * (1 - width),
        high_seconds=seconds * (1 + width),
        machine={"cores": 2},
        metrics={"average_seconds": average},
    )


def test_a_scaling_factor_stands_by_those_of_the_formulas():
    """Two learners take 80 us where one takes 100; one takes 60 for half a batch, and an average takes 10."""
    found = [step(100e-6, 64), step(60e-6, 32), step(80e-6, 64, 2, 1), step(75e-6, 64, 2, 5), step(9e-6, 16, 2, 1)]
    first, five = learning_runs.step_rows(found)  # the last has nothing to be compared with
    assert (first["batch"], first["learners"], first["period"], first["network"]) == (64, 2, 1, "2 x 8")
    assert first["factor"] == pytest.approx(100 / 80 / 2)
    assert first["factor_range"] == pytest.approx([0.625, 0.625])  # as all rounds have it
    assert first["exact"] == pytest.approx(100 / (60 + 10) / 2)
    assert first["printed"] == pytest.approx(1 / (1 + 2 * 10 / 100))
    assert (five["exact"], five["printed"]) == pytest.approx((100 / (60 + 2) / 2, 1 / (1 + 2 * 10 / 500)))


def steps_of(factors):
    """Records with these factors by (B, H); half a batch takes half the time, and an average none."""
    batches = {batch for batch, _ in factors}
    found = [step(batch * 1e-6, batch, average=0.0) for batch in batches]
    found += [step(batch * 0.5e-6, batch // 2, average=0.0) for batch in batches]
    pairs = factors.items()
    return found + [step(batch * 1e-6 / 2 / factor, batch, 2, period, average=0.0) for (batch, period), factor in pairs]


def test_factors_of_learners_alone_judge_the_dissertation(found):
    def judged(factors):
        names = ("factor_near_one", "factor_rises", "eq_5_6_is_met")
        return [judge_one(f"zhang2022.{name}", steps_of(factors), found).verdict for name in names]

    rising = {(64, 1): 0.5, (64, 25): 0.7, (8192, 1): 0.9, (8192, 25): 0.97}
    assert judged({}) == ["not testable here"] * 3
    assert judged(rising) == ["confirmed", "confirmed", "refuted"]  # an average takes no time by the formula
    met = judge_one("zhang2022.eq_5_6_is_met", steps_of(rising), found)
    assert "cells 4; median error 0.4286; largest 1" in met.evidence  # 1 / 0.7 - 1, and 1 / 0.5 - 1
    assert judged({**rising, (64, 25): 0.4, (8192, 25): 0.8}) == ["refuted", "refuted", "refuted"]
    assert judged(dict.fromkeys(rising, 0.99)) == ["confirmed", "not testable here", "confirmed"]
