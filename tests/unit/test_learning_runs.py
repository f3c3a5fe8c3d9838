"""What training runs reached, by the five metrics of [Zhang2022, 1.5], over seeds: numbers worked out by hand."""

import math

import pytest

from dse.learning_runs import Value, metrics_of, over_seeds, write_metrics, write_over_seeds
from dse.stats import LEAST_SEEDS, interval_over_seeds
from tests.page_parts import made_up

APART, TWO = ("w", "apart"), ("w", "apart, 2 learners, lock")


def run(key, seed, seconds, means, learners=1, test=490.0):
    """A run whose first 1,000 steps only collect, evaluated every 2,000 steps."""
    kept = {"arrangement": key[1].partition(",")[0], "learners": learners, "presampled": 0, "seed": seed}
    points = [[2000 * n, 2000 * n - 1000, seconds * n, mean] for n, mean in enumerate(means, 1)]
    return made_up(
        seconds, primitive="training run", contestant="apart", op="gradient step", capacity=1, batch=1,
        options={"workload": key[0], "kind": key[1], **kept},
        machine={"points": points, "solved_at": 475.0, "test_mean": test, "report": {"stale_weights": {"mean": 1.5}}},
    )  # fmt: skip


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
        "policy_quality": 490, "sample_efficiency": 4000, "learning_efficiency": 3000, "speedup_over_serial": 2.5,
        "stale_weights": 1.5,
    }  # fmt: skip
    two = found[TWO]
    assert two["scaling_factor"] == {7: Value(pytest.approx((1 / 0.004) / (1 / 0.002) / 2))}
    assert two["policy_quality"] == {7: Value(500.0)}
    assert write_metrics(two) == ["2 of 2", "500", "2,000; 2,000", "1,000; 1,000", "250; 1,000", "0.25", "1.25"]


def test_a_seed_that_is_not_solved_counts_as_beyond_its_last_evaluation():
    runs = [run(APART, seed, 0.002, [480.0] if seed < 2 else [9.0, 8.0, 7.0]) for seed in range(LEAST_SEEDS)]
    metrics = metrics_of(runs)[APART]
    assert metrics["learning_efficiency"][4] == (5000, True)
    solved, _, steps, updates, *_ = write_metrics(metrics)
    assert (solved, steps, updates) == ("2 of 5", "> 6,000 [2,000, > 6,000]", "> 5,000 [1,000, > 5,000]")
    even = [Value(10), Value(20), Value(30), Value(40, True), Value(40, True), Value(40, True)]
    assert over_seeds(even)[0] == (35, True)  # 30 and more than 40 lie around it


def test_an_interval_holds_what_spreads_and_few_seeds_have_none():
    assert interval_over_seeds([3.0] * 5) == (3.0, 3.0, 3.0)
    narrow, wide = (interval_over_seeds([100 + spread * at for at in range(-4, 5)]) for spread in (1, 2))
    assert narrow[0] == wide[0] == 100
    assert 100 - wide[1] == 2 * (100 - narrow[1]) > 0 < 2 * (narrow[2] - 100) == wide[2] - 100
    assert interval_over_seeds([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, 1.0, 5.0)  # every 17th draw has thrice the least
    assert interval_over_seeds([math.inf] * 5) == (math.inf,) * 3
    few = [Value(1.0), Value(5.0, True)]
    assert (over_seeds(few), write_over_seeds(few, ".1f")) == ([], "1.0; > 5.0")
    assert write_over_seeds([], ".1f") == ""
