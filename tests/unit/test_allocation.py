"""Tests of core allocation: brute force, the scaling law, and eq. 5 of [Zhang2021] as printed."""

import math

import numpy as np
import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.problem import ProblemError
from dse.tuning.cores import (
    RateCurve,
    Scaling,
    check_cores,
    choose_next_point,
    complete,
    fit_scaling,
    iterate_parted,
    iterate_turns,
    solve_eq_5,
    split_cores,
    take_fewest_cores,
)


def curve(name, rates, source="measured", low=0.95, high=1.05):
    """A curve of rates, each in an interval from ``low`` to ``high`` times itself."""
    evidence = Evidence(name, source)
    return RateCurve(name, {x: Estimate(hz, low * hz, high * hz, evidence) for x, hz in rates.items()})


def allocate(f_a, f_l, u, cores, within=0.0):
    return take_fewest_cores(list(iterate_parted(f_a, f_l, u, cores)), within)


def usl(name, law, cores, rng=None):
    noise = {x: 1.0 if rng is None else rng.uniform(0.9, 1.1) for x in range(1, cores + 1)}
    return curve(name, {x: law.hz(x) * noise[x] for x in range(1, cores + 1)}, "modeled")


def random_curves(rng, cores):
    laws = [Scaling(10 ** rng.uniform(1, 4), rng.uniform(0, 0.3), rng.choice([0, 1e-4, 1e-2]), 1.0) for _ in range(2)]
    return [usl(name, law, cores, rng) for name, law in zip(("f_a", "f_l"), laws, strict=True)]


def by_brute_force(f_a, f_l, u, cores, reserved):
    """Find the best split by the definition, in the order of its rules."""
    best = None
    for used in range(2, cores - reserved + 1):
        for x_a in range(1, used):
            hz = min(f_a.rates[x_a].value / u, f_l.rates[used - x_a].value)
            if best is None or hz > best[0]:
                best = (hz, x_a, used - x_a)
    return best


def test_the_choice_is_that_of_brute_force_on_56_cores():
    rng = np.random.default_rng(0)
    for _ in range(60):
        f_a, f_l = random_curves(rng, 56)
        u, reserved = rng.choice([1, 2, 4, 64]), int(rng.integers(0, 4))
        found = allocate(f_a, f_l, u, 56 - reserved)
        assert (found.hz, found.actors, found.learners) == by_brute_force(f_a, f_l, u, 56, reserved)
        assert found.idle == 56 - reserved - found.actors - found.learners >= 0
        assert found.ratio == f_a.rates[found.actors].value / f_l.rates[found.learners].value
        assert (found.bottleneck == "actors") == (found.ratio < u)
        assert found.low <= found.hz <= found.high


def test_each_end_of_an_interval_is_what_the_slower_side_allows_there():
    f_a = curve("f_a", {1: 100.0, 2: 100.0}, "measured", 0.9, 3.0)
    f_l = curve("f_l", {1: 150.0, 2: 150.0}, "measured", 0.8, 1.1)
    apart = allocate(f_a, f_l, 1, 2)
    assert (apart.low, apart.hz, apart.high) == pytest.approx((90, 100, 165))  # at the high end learners are slower
    (together,) = iterate_turns(f_a, f_l, 1, 1)
    ends = [1 / (1 / acting + 1 / learning) for acting, learning in ((90, 120), (100, 150), (300, 165))]
    assert (together.low, together.hz, together.high) == pytest.approx(ends)


def test_of_rates_within_a_part_the_fewest_cores_are_taken():
    f_a = curve("f_a", {1: 100.0, 2: 200.0, 3: 300.0, 4: 400.0})
    for rates, within in (({1: 150.0, 2: 150.0, 3: 150.0}, 0.0), ({1: 150.0, 2: 152.0}, 0.02)):
        found = allocate(f_a, curve("f_l", rates), 1, 8, within)
        assert (found.actors, found.learners, found.hz, found.idle, found.bottleneck) == (2, 1, 150.0, 5, "learners")


def test_the_same_cores_may_serve_both_sides_in_turns():
    f_a, f_l = curve("f_a", {1: 1000.0, 2: 1900.0}), curve("f_l", {1: 100.0, 2: 190.0})
    one, two = sorted(iterate_turns(f_a, f_l, 1, 2), key=lambda split: split.cores)
    assert (one.cores, two.cores, two.in_turns, two.bottleneck, two.ratio) == (1, 2, True, "both serially", 1)
    assert two.hz == pytest.approx(1 / (1 / 1900 + 1 / 190))
    (alone,) = iterate_turns(f_a, f_l, 4, 1)
    assert (alone.cores, alone.hz) == (1, pytest.approx(1 / (4 / 1000 + 1 / 100)))
    assert list(iterate_parted(f_a, f_l, 1, 1)) == []


def test_eq_5_as_printed_may_have_no_solution_or_a_slow_one():
    line = {x: 100.0 * x for x in range(1, 56)}
    f_a, f_l = curve("f_a", line), curve("f_l", line)
    solutions = solve_eq_5(iterate_parted(f_a, f_l, 1, 56), 1, 0.0)
    assert [(split.actors, split.learners) for split in solutions] == [(x, x) for x in range(28, 0, -1)]
    assert solutions[0] == allocate(f_a, f_l, 1, 56)
    assert solutions[0].hz == 28 * solutions[-1].hz
    assert solutions[0].bottleneck == "neither"
    f_a, f_l = random_curves(np.random.default_rng(1), 56)
    assert solve_eq_5(iterate_parted(f_a, f_l, 1, 56), 1, 0.0) == []
    for split in solve_eq_5(iterate_parted(f_a, f_l, 1, 56), 1, 0.05):
        assert abs(split.ratio - 1) <= 0.05
        assert split.hz <= allocate(f_a, f_l, 1, 56).hz


def test_the_scaling_law_is_found_again_and_fills_gaps():
    law = Scaling(850.0, 0.04, 0.0007, 1.0)
    some = curve("f_a", {x: law.hz(x) for x in (1, 2, 4, 8, 32)})
    found = fit_scaling(some)
    assert (found.rate_hz, found.contention, found.coherence) == pytest.approx((850.0, 0.04, 0.0007))
    assert found.off == pytest.approx(1 / 0.95)  # the intervals of the points
    full = complete(some, 56)
    assert full.cores == tuple(range(1, 57))
    assert all(rate.value == pytest.approx(law.hz(x)) for x, rate in full.rates.items())
    sources = {x: rate.source for x, rate in full.rates.items()}
    assert (sources[8], sources[16], sources[33]) == ("measured", "modeled", "extrapolated")
    assert full.rates[16].low < full.rates[16].value < full.rates[16].high
    assert complete(full, 56) is full


def test_two_points_make_amdahls_law_and_one_makes_none():
    found = fit_scaling(curve("f_l", {1: 100.0, 2: 160.0}))
    assert (found.contention, found.coherence) == pytest.approx((0.25, 0.0))
    assert fit_scaling(curve("f_l", {1: 100.0, 2: 250.0})).contention == 0  # faster than in proportion: a line
    with pytest.raises(ProblemError, match="f_l: one point says nothing of scaling"):
        complete(curve("f_l", {1: 100.0}), 2)


def test_two_points_leave_room_for_every_law_through_them():
    """S17: the truth at 56 cores is within the interval, whatever contention and coherence there are."""
    rng = np.random.default_rng(17)
    for _ in range(200):
        law = Scaling(10 ** rng.uniform(1, 4), rng.uniform(0, 0.3), 10 ** rng.uniform(-5, -1.5), 1.0)
        points = sorted(rng.choice([1, 2, 3, 4, 8, 16], 2, replace=False).tolist())
        full = complete(RateCurve.of("f", {x: law.hz(x) for x in points}), 56)
        for x, rate in full.rates.items():
            assert rate.low * (1 - 1e-9) <= law.hz(x) <= rate.high * (1 + 1e-9), (law, points, x)


@pytest.mark.parametrize("points", [(1, 2), (1, 2, 4), (1, 2, 4, 8, 16)])
def test_noise_of_the_points_is_carried_on_with_the_law(points):
    rng = np.random.default_rng(18)
    within = tried = 0
    for _ in range(200):
        law = Scaling(10 ** rng.uniform(1, 4), rng.uniform(0, 0.3), rng.choice([0, 1e-4, 1e-3, 1e-2]), 1.0)
        noisy = curve("f", {x: law.hz(x) * rng.uniform(0.95, 1 / 0.95) for x in points})
        for x, rate in complete(noisy, 56).rates.items():
            within += rate.low <= law.hz(x) <= rate.high
            tried += 1
    assert within >= 0.95 * tried


def test_the_interval_widens_with_the_distance_and_shrinks_with_a_third_point():
    two = complete(RateCurve.of("f", {1: 400.0, 2: 700.0}), 56)
    wide = [two.rates[x].high / two.rates[x].low for x in (3, 4, 8, 16, 32, 56)]
    assert wide == sorted(wide)
    assert wide[-1] > 100
    assert two.rates[56].low <= 700 <= 700 * 28 <= two.rates[56].high  # more cores may gain nothing, or all they could
    three = complete(RateCurve.of("f", {1: 400.0, 2: 700.0, 8: 1750.0}), 56)
    assert three.rates[56].high / three.rates[56].low < wide[-1] / 5
    between = complete(RateCurve.of("f", {1: 400.0, 56: 5000.0}), 56).rates[8]
    assert between.low < between.value < between.high  # two points say nothing certain of what is between them


def test_the_next_point_is_between_the_last_and_what_is_asked():
    one = RateCurve.of("f", {1: 400.0, 2: 700.0})
    assert [choose_next_point(one, x) for x in (3, 4, 8, 48, 512)] == [3, 3, 4, 8, 32]


def test_absurd_curves_are_refused_and_extreme_ones_answered():
    fine = RateCurve.of("f_l", {1: 400.0, 2: 700.0})
    for rates, high in (({1: 1e300, 2: 1e300}, 1), ({1: 5e-324, 2: 5e-324}, 1), ({1: 4e14, 2: 4e14}, 1e6)):
        with pytest.raises(ProblemError, match=r"f_a 1:.*from 1e-09 to 1e\+15"):
            split_cores(curve("f_a", rates, "quoted", 1, high), fine, 1, 56)
    for rates in ({1: 1e-9, 2: 1e15}, {1: 1e15, 2: 1e-9}, {500: 1e-9, 512: 1e15}, {1: 1e14, 3: 1e14, 7: 1e-9}):
        assert split_cores(RateCurve.of("f_a", rates), fine, 1, 56).choice.estimate.value > 0


@pytest.mark.parametrize(
    ("rates", "facts"),
    [
        ({}, "without a point"),
        ({0: 1.0}, "0 cores"),
        ({1: 0.0}, "f_a 1:0: .* from 1e-09"),
        ({2: math.nan}, "f_a 2:nan: .* from 1e-09"),
        ({1: math.inf}, r"f_a 1:inf: .* to 1e\+15"),
    ],
)
def test_a_bad_curve_is_refused_with_value_and_bound(rates, facts):
    with pytest.raises(ProblemError, match=facts):
        RateCurve.of("f_a", rates)


@pytest.mark.parametrize("asked", [(0, 2, 0), (math.nan, 2, 0), (1, 0, 0), (1, 2, -1)])
def test_a_question_about_cores_must_make_sense(asked):
    with pytest.raises(ProblemError, match="must be"):
        check_cores(*asked)
