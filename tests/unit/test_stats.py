"""Tests of intervals, floors, verdicts and choices, on samples whose truth is known."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.signal
import scipy.stats

from dse import stats
from dse.estimate import LEAST_FACTOR, Estimate, Evidence


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


def test_the_noise_floor_is_the_95_percent_quantile():
    pairs = [(math.exp(0.01 * rank), 1.0) if rank % 2 else (1.0, math.exp(0.01 * rank)) for rank in range(1, 11)]
    assert stats.noise_floor(pairs) == pytest.approx(0.0955)  # 0.55 of the way from the ninth to the largest
    assert stats.noise_floor([]) == 0.0
    drawn = np.random.default_rng(0).normal(0, 0.1, (2000, 2))
    assert stats.noise_floor(np.exp(drawn)) == pytest.approx(1.96 * 0.1 * math.sqrt(2), rel=0.05)


def test_constants_are_what_they_are_called():
    assert stats.Z == pytest.approx(scipy.stats.norm.ppf(0.975), abs=1e-4)
    assert stats.STUDENT == pytest.approx(scipy.stats.t.ppf(0.975, stats.STRETCHES - 1), abs=5e-4)


def test_the_middle_95_percent():
    assert stats.percentile_interval(np.arange(1001.0)) == (25.0, 975.0)


def test_resamples_are_with_replacement_and_differ_by_seed():
    first, second = (stats.bootstrap_medians(samples(1.0, 0.1, 25, 0), seed) for seed in (0, 1))
    assert len(first) == stats.RESAMPLES
    assert not np.array_equal(first, second)
    assert np.array_equal(first, stats.bootstrap_medians(samples(1.0, 0.1, 25, 0), 0))
    assert len(np.unique(first)) > 5


def test_resamples_are_of_medians_which_no_spike_moves():
    assert stats.bootstrap_medians([*np.linspace(1.0, 1.1, 40), 1e6]).max() < 1.2


def test_two_samples_are_resampled_apart():
    """The very same numbers twice are two independent samples: their ratio is not known exactly."""
    noisy = samples(1.0, 0.1, 25, 0)
    low, high = stats.ratio_interval(noisy, noisy)
    alone = stats.median_interval(noisy)
    assert low < 1 < high
    assert math.log(high / low) == pytest.approx(math.sqrt(2) * math.log(alone.high / alone.low), rel=0.35)


def test_the_interval_of_a_ratio_holds_new_over_base():
    held = [
        low <= 1.5 <= high
        for seed in range(200)
        for low, high in [stats.ratio_interval(samples(1, 0.1, 25, seed), samples(1.5, 0.1, 25, seed + 1000))]
    ]
    assert 0.90 <= np.mean(held) <= 0.995
    assert all(map(math.isnan, stats.ratio_interval([], [1.0])))


def test_batch_means_hold_the_mean_of_dependent_steps():
    """Steps with a memory of ten: their own spread over sqrt(steps) would be far too narrow."""
    held, widths = [], []
    for seed in range(200):
        noise = np.random.default_rng(seed).normal(0, 0.02, 4000)
        steps = 1.0 + scipy.signal.lfilter([1.0], [1.0, -0.9], noise)
        mean, half = stats.batch_means(np.concatenate([[5.0], 5.0 + np.cumsum(steps)]))
        assert mean == pytest.approx(steps.mean())
        held.append(abs(mean - 1.0) <= half)
        widths.append(half)
    assert 0.88 <= np.mean(held) <= 0.99
    assert np.mean(widths) == pytest.approx(1.96 * 0.02 / (1 - 0.9) / math.sqrt(4000), rel=0.2)


def test_a_times_deviation_is_of_its_interval_and_the_floors():
    low, high = math.exp(-1.96 * 0.03), math.exp(1.96 * 0.03)
    assert stats.log_sigma(low, high, 0.0) == pytest.approx(0.03)
    assert stats.log_sigma(1.0, 1.0, 1.96 * 0.04) == pytest.approx(0.04)
    assert stats.log_sigma(low, high, 1.96 * 0.04) == pytest.approx(0.05)


def test_the_geometric_mean():
    assert stats.geometric_mean([1.0, 4.0, 16.0]) == pytest.approx(4.0)


def test_of_many_equal_cells_hardly_any_is_called_slower():
    """The family's error, not the cell's: 30 cells at 5 % each would be wrong in 78 % of the runs."""
    runs, cells, error = 400, 30, 0.02
    estimates = np.random.default_rng(0).normal(0, error, (runs, cells))
    wrong = [
        any(one.verdict in ("regression", "faster") for one in stats.differences(row, [error] * cells, 0.0, 0.2))
        for row in estimates
    ]
    assert np.mean(wrong) <= 0.08
    assert stats.differences([0.05], [0.02], 0.0, 0.2)[0].verdict == "regression"
    assert {one.verdict for one in stats.differences([0.05] * cells, [0.02] * cells, 0.0, 0.2)} == {"no regression"}


def test_a_difference_is_judged_by_its_whole_interval():
    verdicts = [one.verdict for one in stats.differences([0.3, -0.3, 0.0, 0.11, 0.3], [0.01] * 4 + [0.2], 0.1, 0.2)]
    assert verdicts == ["regression", "faster", "no regression", "no regression", "inconclusive"]
    inside = stats.differences([0.12], [0.02], 0.1, 0.2)[0]
    assert (inside.verdict, inside.low < 0.1 < inside.high) == ("no regression", True)
    assert stats.differences([-0.1], [0.1], 0.05, 0.2)[0].verdict == "no regression"
    assert (inside.low, inside.high) == pytest.approx((0.12 - 1.96 * 0.02, 0.12 + 1.96 * 0.02), abs=1e-4)


def test_errors_of_cells_are_the_larger_of_own_and_pooled():
    lucky, unlucky = [[0.1, 0.1, 0.1], [0.0, 0.0, 0.0]], [[-0.3, 0.0, 0.3], [-0.3, 0.0, 0.3]]
    alone, worst = stats.standard_errors([lucky, unlucky])
    assert worst == pytest.approx(0.3 / math.sqrt(3))  # its own spread: squares of 0.36 over 4 degrees of freedom
    assert alone == pytest.approx(math.sqrt(0.36 / 8 / 3))  # all spreads pooled
    assert stats.standard_errors([lucky]) == pytest.approx([0.0], abs=1e-12)
    assert stats.standard_errors([[[0.1, 0.1], [0.0, 0.0]]]) == [math.inf]


def test_ties_are_what_a_95_percent_test_cannot_tell_apart():
    for sigmas, ties in ((1.5, [1]), (1.8, [1]), (2.2, []), (2.5, [])):
        assert stats.ties([0.0, sigmas * math.hypot(0.03, 0.04)], [0.03, 0.04], 0.0, 0) == ties
    assert stats.ties([0.0, 1.0, 2.0], [0.01, 0.01, 0.01], 0.0, 0) == []
    assert stats.ties([0.01, 0.0, 3.0, -1.0], [0.05, 0.05, 0.05, 0.05], 0.0, 1) == [0, 3]


def test_a_field_adds_distances_up_and_returns_to_its_offset():
    def of_ones(*places, error=0.01, sigma=0.1, **more):
        count = len(places)
        return stats.Field(np.array(places), np.ones(count), np.full(count, error), sigma=sigma, **more)

    corner = of_ones([0.0, 0.0], error=1e-6, sigma=1.0)
    assert corner.at([1.0, 1.0])[0] == pytest.approx(math.exp(-2), rel=1e-3)
    shared = of_ones([0.0], [1.0], offset=2.0)
    assert shared.at([50.0])[0] == pytest.approx(1.0, abs=0.01)
    alone = of_ones([0.0], offset=2.0)
    assert alone.at([50.0])[1] == pytest.approx(0.1 * math.sqrt(2), rel=0.05)


def test_a_field_believes_values_by_their_errors():
    values = [
        stats.Field(np.zeros((1, 1)), np.ones(1), np.full(1, error), sigma=1.0).at([0.0]) for error in (0.01, 1.0)
    ]
    assert values[0] == pytest.approx((1.0, 0.01), abs=1e-3)
    assert values[1] == pytest.approx((0.5, math.sqrt(0.5)), abs=1e-3)


def test_nonnegative_least_squares_are_scipys():
    """Also where columns are alike and are taken out again where they would be negative."""
    for seed, alike in itertools.product(range(60), (0, 3)):
        random = np.random.default_rng(seed)
        rows, columns = random.integers(2, 30), random.integers(3 if alike else 1, 8)
        matrix = random.normal(size=(rows + columns, columns)) + alike * random.normal(size=(rows + columns, 1))
        target = random.normal(size=rows + columns)
        found, (expected, _) = stats.nonnegative(matrix, target), scipy.optimize.nnls(matrix, target)
        assert found == pytest.approx(expected, abs=1e-9)
        assert (found >= 0).all()


def test_a_front_is_what_nothing_beats_and_the_first_of_equals():
    for seed in range(20):
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


def timed(samples):
    return SimpleNamespace(samples_seconds=samples, seconds=float(np.median(samples)) if samples else 7.0)


def test_readings_of_the_same_calls_are_resampled_together():
    calls = [timed([1.0, 2.0, 3.0] * 5), timed([10.0, 20.0, 30.0] * 5)]
    together, apart = (stats.interval_of(lambda one, other: other / one, calls, seeds) for seeds in ((0, 0), ()))
    assert together == (10.0, 10.0, 10.0)
    assert apart[1] < apart[0] == 10 < apart[2]
    middle, low, high = stats.interval_of(lambda one, other: other / one, [calls[0], timed([])])
    assert middle == 3.5
    assert math.isnan(low)
    assert math.isnan(high)


GUESS, CLOCK = Evidence("guess", "modeled", "a guess"), Evidence("clock", "measured")


def test_a_factor_is_that_of_the_wider_side_and_a_clocks_least():
    half = Estimate.within(4.0, 2.0, GUESS)
    assert (half.value, half.low, half.high, half.factor, half.source) == (4.0, 2.0, 8.0, 2.0, "modeled")
    assert Estimate.within(4.0, 1.0, CLOCK).factor == pytest.approx(LEAST_FACTOR)
    assert (Estimate(4.0, 1.0, 5.0, GUESS).factor, Estimate(4.0, 3.0, 12.0, GUESS).factor) == (4.0, 3.0)


def test_sums_and_products_carry_their_ends():
    one, other = Estimate(4.0, 3.0, 6.0, GUESS), Estimate(1.0, 0.5, 2.0, CLOCK)
    assert one + other == Estimate(5.0, 3.5, 8.0, GUESS)
    assert one.plus(10.0, 2.0) == Estimate(14.0, 8.0, 26.0, GUESS)
    assert one.plus(10.0) == Estimate(14.0, 13.0, 16.0, GUESS)
    assert one.scaled(3.0) == Estimate(12.0, 9.0, 18.0, GUESS)


WRONG = (
    *((1.0, 2.0, 3.0), (4.0, 2.0, 3.0), (0.0, 0.0, 1.0), (-1.0, -2.0, 1.0), (math.nan, 1.0, 2.0), (1.0, 1.0, math.inf)),
    *((value,) * 3 for value in ("1", None, 1j)),
)


def test_what_is_no_estimate_is_refused_by_name():
    for numbers in WRONG:
        with pytest.raises(ValueError, match="guess: "):
            Estimate(*numbers, GUESS)
    with pytest.raises(ValueError, match="not 'guessed'"):
        Evidence("x", "guessed")
    with pytest.raises(ValueError, match="not 'x'"):
        Estimate(1.0, 1.0, 1.0, "x")
    with pytest.raises(ValueError, match="not 0"):
        Estimate.within(1.0, 0, GUESS)
