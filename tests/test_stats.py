"""Tests of intervals, floors, verdicts and choices, on samples whose truth is known."""

import math

import numpy as np
import pytest
import scipy.optimize

from dse import stats


def samples(median, spread, count, seed):
    return (median * np.exp(np.random.default_rng(seed).normal(0, spread, count))).tolist()


def test_the_interval_holds_the_truth_as_often_as_it_says():
    held = [
        interval.low <= 1.0 <= interval.high
        for seed in range(300)
        for interval in [stats.median_interval(samples(1.0, 0.1, 25, seed), seed)]
    ]
    assert 0.90 <= np.mean(held) <= 0.99


def test_intervals_of_few_and_equal_samples():
    assert stats.median_interval([2.0]) == stats.MedianInterval(2.0, 2.0, 2.0)
    assert stats.median_interval([2.0] * 9).relative_width == 0.0
    with pytest.raises(ValueError, match="no samples"):
        stats.median_interval([])


def test_the_noise_floor_is_what_equal_things_differ_by():
    assert stats.noise_floor([]) == 0.0
    assert stats.noise_floor([(1.0, 1.1), (1.1, 1.0)]) == pytest.approx(math.log(1.1))


def test_verdicts():
    base = samples(1.0, 0.02, 40, 0)
    assert stats.verdict(base, samples(1.3, 0.02, 40, 1), 0.05) == "slower"
    assert stats.verdict(base, samples(0.7, 0.02, 40, 2), 0.05) == "faster"
    assert stats.verdict(base, samples(1.01, 0.02, 40, 3), 0.05) == "same"
    assert stats.verdict(base, samples(1.05, 0.05, 12, 4), 0.05) == "ambiguous"


def test_equal_things_are_hardly_ever_told_apart():
    wrong = sum(
        stats.verdict(samples(1.0, 0.05, 15, seed), samples(1.0, 0.05, 15, seed + 1000), 0.05) in ("faster", "slower")
        for seed in range(200)
    )
    assert wrong <= 4


def test_a_clear_choice_has_no_ties_and_no_regret():
    choice = stats.choose([0.0, 1.0, 2.0], [0.01, 0.01, 0.01])
    assert (choice.best, choice.ties) == (0, ())
    assert choice.regret_95 == 0.0
    assert choice.probability_best == 1.0


def test_times_that_cannot_be_told_apart_tie_and_the_regret_is_their_spread():
    choice = stats.choose([0.01, 0.0, 3.0], [0.05, 0.05, 0.05])
    assert (choice.best, choice.ties) == (1, (0,))
    assert 0.4 < choice.probability_best < 0.6
    # ln(t1 / t0) is normal with mean -0.01 and deviation 0.05 * sqrt(2): its 95 % quantile.
    assert choice.regret_95 == pytest.approx(math.expm1(-0.01 + 1.645 * 0.05 * math.sqrt(2)), rel=0.1)
    with pytest.raises(ValueError, match="no candidates"):
        stats.choose([], [])


def test_a_field_adds_distances_up_over_its_axes_and_returns_to_the_offset_far_away():
    corner = stats.Field(np.zeros((1, 2)), np.ones(1), np.full(1, 1e-6), sigma=1.0)
    assert corner.at([1.0, 1.0])[0] == pytest.approx(math.exp(-2), rel=1e-3)
    shared = stats.Field(np.array([[0.0], [1.0]]), np.ones(2), np.full(2, 0.01), sigma=0.1, offset=2.0)
    assert shared.at([50.0])[0] == pytest.approx(1.0, abs=0.01)
    alone = stats.Field(np.zeros((1, 1)), np.ones(1), np.full(1, 0.01), sigma=0.1, offset=2.0)
    assert alone.at([50.0])[1] == pytest.approx(0.1 * math.sqrt(2), rel=0.05)


def test_a_field_believes_values_the_less_the_larger_their_errors():
    values = [
        stats.Field(np.zeros((1, 1)), np.ones(1), np.full(1, error), sigma=1.0).at([0.0]) for error in (0.01, 1.0)
    ]
    assert values[0] == pytest.approx((1.0, 0.01), abs=1e-3)
    assert values[1] == pytest.approx((0.5, math.sqrt(0.5)), abs=1e-3)


@pytest.mark.parametrize("seed", range(50))
def test_nonnegative_least_squares_are_scipys(seed):
    random = np.random.default_rng(seed)
    rows, columns = random.integers(2, 30), random.integers(1, 8)
    matrix, target = random.normal(size=(rows + columns, columns)), random.normal(size=rows + columns)
    found, (expected, _) = stats.nonnegative(matrix, target), scipy.optimize.nnls(matrix, target)
    assert found == pytest.approx(expected, abs=1e-9)
    assert (found >= 0).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_front_is_what_nothing_beats_and_the_first_of_equals(seed):
    random = np.random.default_rng(seed)
    points = [tuple(map(float, point)) for point in random.integers(0, 4, (random.integers(0, 30), 3))]
    expected = [
        here
        for here, one in enumerate(points)
        if not any(
            all(a >= b for a, b in zip(other, one, strict=True)) and (other != one or there < here)
            for there, other in enumerate(points)
        )
    ]
    assert stats.front_of(points) == expected
