"""Tests of claims about trees, on records whose truth is known: verdicts, what is left out, and the power stated."""

import dataclasses
import math
import random

import numpy as np
import pytest

from dse.records import read_folder
from reports.claims import fanout_curves, growth, tree_claims
from reports.claims.fanout_curves import best_at, chances, falling, valley
from reports.claims.growth import Series, growth_of, mistaken
from reports.claims.noise import Noise, noise_of, student, two_sided
from tests.committed import COMMITTED
from tests.made import alter
from tests.system.test_records import measurement

INSERTION, SAMPLING, SIXTEEN, ALIGNED, SUBLINEAR, BYTES = range(6)
FANOUTS = (2, 4, 8, 16, 32, 64, 128)
CAPACITIES = (10_000, 100_000, 1_000_000)
PAPERS_OWN = {"layout": "plain", "propagate": "delta"}
NOISE = Noise(0.06, 60)
FLAT = dict.fromkeys(FANOUTS, 1e-6)


def cell(op, seconds, **fields):
    ends = {"low_seconds": None, "high_seconds": None}
    return measurement(**{"op": op, "batch": 256, "median_seconds": seconds, **ends, **fields})


def over_fanouts(op, times, options=PAPERS_OWN, **fields):
    """Records of a curve, the same at each N; ``times`` by K."""
    return [
        cell(op, time, fanout=k, capacity=n, options=options, **fields) for n in CAPACITIES for k, time in times.items()
    ]


def twins(factor=1.02, count=20):
    """A/A pairs of a run whose noise floor is ln(factor)."""
    return [
        cell("get", time, capacity=n, primitive=primitive)
        for n in range(1, count + 1)
        for primitive, time in (("sum_tree", 1e-6), ("sum_tree_again", factor * 1e-6))
    ]


def judged(*found, noise=1.02):
    return tree_claims.verdicts([*(one for group in found for one in group), *twins(noise)])


def curve(*times):
    return dict(zip(FANOUTS, (1e-6 * time for time in times), strict=True))


FALLING = curve(11.5, 4.3, 3.7, 3.3, 3.2, 3.15, 3.0)
RISING = curve(11.5, 4.3, 3.7, 3.3, 3.6, 4.0, 4.4)
VALLEY = curve(9.6, 7.3, 7.1, 7.2, 9.5, 17.4, 33.8)
DROPPING = curve(9.6, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0)
SIXTEEN_AHEAD = curve(5, 4, 3.5, 3, 3.5, 4, 5)


@pytest.mark.parametrize(
    ("place", "times", "verdict"),
    [
        (INSERTION, FALLING, "confirmed"),
        (INSERTION, RISING, "refuted"),
        (INSERTION, FLAT, "not testable here"),
        (SAMPLING, VALLEY, "confirmed"),
        (SAMPLING, DROPPING, "refuted"),
        (SAMPLING, FLAT, "not testable here"),
        (SIXTEEN, SIXTEEN_AHEAD, "confirmed"),
        (SIXTEEN, VALLEY | {8: 5e-6}, "refuted"),
        (SIXTEEN, FLAT, "not testable here"),
    ],
)
def test_claims_about_k_can_go_each_way(place, times, verdict):
    claim = judged(over_fanouts("update", times), over_fanouts("draw", times))[place]
    assert claim.verdict == verdict, claim.evidence
    assert "simulated at the noise floor 2% of 20 A/A pairs, 3 series" in claim.power


def test_only_the_papers_own_tree_is_judged_and_ours_stands_beside_it():
    ours = over_fanouts("update", RISING, {})
    for options in ({}, {"layout": "plain"}, {"propagate": "delta"}):
        claim = judged(over_fanouts("update", RISING, options))[INSERTION]
        assert claim.verdict == "not testable here"
        assert "python -m benchmarks sweep --preset quick" in claim.evidence
    claim = judged(over_fanouts("update", FALLING), ours)[INSERTION]
    assert claim.verdict == "confirmed"
    assert (
        "For comparison ours, prefix sums recomputed: N=10,000, B=256 fastest at K=16 (K=2 +248%, K=128 +33%)"
        in claim.evidence
    )


def test_unstable_cells_are_left_out():
    torn = [
        dataclasses.replace(one, status="unstable", median_seconds=9e-6) if one.fanout == 64 else one
        for one in over_fanouts("update", FALLING | {256: 2.9e-6})
    ]
    claim = judged(torn)[INSERTION]
    assert claim.verdict == "confirmed"
    assert "3 unstable cells left out" in claim.evidence
    assert (
        judged([one for one in torn if one.fanout != 256])[INSERTION].verdict == "not testable here"
    )  # six K are left


def test_six_fanouts_or_another_batch_are_no_curve():
    few = {k: time for k, time in RISING.items() if k != 128}
    assert judged(over_fanouts("update", few))[INSERTION].verdict == "not testable here"
    assert judged(over_fanouts("update", RISING, batch=1))[INSERTION].verdict == "not testable here"


def test_a_curve_is_of_one_run():
    """Half of the fanouts were measured in another hour, when the machine was slower."""
    halves = [over_fanouts("update", {k: FALLING[k] for k in FANOUTS[:4]}, command="first")]
    halves.append(over_fanouts("update", {k: 2 * FALLING[k] for k in FANOUTS[4:]}, command="second"))
    assert judged(*halves)[INSERTION].verdict == "not testable here"


def test_what_the_noise_may_have_done_refutes_nothing():
    slightly = curve(5, 4.5, 4, 3.5, 3.6, 3.6, 3.6)
    for noise, verdict in ((1.005, "refuted"), (1.1, "confirmed")):
        assert judged(over_fanouts("update", slightly), noise=noise)[INSERTION].verdict == verdict
    assert tree_claims.verdicts(over_fanouts("update", RISING))[INSERTION].verdict == "not testable here"  # no twins


def test_the_noise_is_that_of_the_run_that_measured_the_curve():
    found = over_fanouts("update", RISING, command="quiet")
    loud, quiet = twins(2.0, 60), [alter(one, command="quiet") for one in twins(1.02)]
    assert tree_claims.verdicts([*found, *loud])[INSERTION].verdict == "confirmed"  # 30 % are no clear rise there
    assert tree_claims.verdicts([*found, *loud, *quiet])[INSERTION].verdict == "refuted"
    assert noise_of([*loud, *quiet], runs={(None, "quiet")}).pairs == 20
    assert noise_of([*loud, *quiet[:6]], runs={(None, "quiet")}).pairs == 63  # three pairs are too few


@pytest.mark.parametrize("series", [1, 4])
def test_a_flat_curve_is_refuted_in_at_most_five_percent(series):
    flat = np.zeros((series, len(FANOUTS)))
    missing = np.zeros(flat.shape, dtype=bool)
    for test in (falling, valley, best_at(3)):
        refuted, confirmed = chances(test, flat, missing, NOISE)
        assert refuted <= 0.05
        assert confirmed <= 0.05


def test_chances_are_what_an_independent_simulation_counts():
    """The power that is printed, counted again with other random numbers, one curve after the other."""
    truth = np.array([[math.log(time) for time in RISING.values()]])
    truth = truth.min() + (truth - truth.min()) / 8
    rng, codes = random.Random(5), []
    for _ in range(1_500):
        logs = np.array([[log + rng.gauss(0, NOISE.single) for log in truth[0]]])
        codes.append(int(falling(logs, NOISE)))
    refuted, confirmed = chances(falling, truth, np.zeros(truth.shape, dtype=bool), NOISE)
    assert codes.count(-1) / len(codes) == pytest.approx(refuted, abs=0.04)
    assert codes.count(1) / len(codes) == pytest.approx(confirmed, abs=0.04)


def test_a_rise_that_is_ten_times_the_noise_is_found_and_a_fall_confirmed():
    missing = np.zeros((3, len(FANOUTS)), dtype=bool)
    for times, sure in ((RISING, 0), (FALLING, 1)):
        truth = np.tile(np.log(list(times.values())), (3, 1))
        assert chances(falling, truth, missing, Noise(0.03, 60))[sure] > 0.99


def test_critical_values_are_students_and_shared_by_all_tests():
    assert NOISE.critical() == pytest.approx(1.671, abs=1e-3)  # tables of t: 95 %, 59 degrees of freedom
    assert NOISE.critical(10) == pytest.approx(student(0.005, 59))
    assert Noise(0.06, 6).critical() == pytest.approx(2.015, abs=1e-3)
    assert NOISE.sigma == pytest.approx(0.06 / 1.96)
    assert NOISE.single == pytest.approx(NOISE.sigma / math.sqrt(2))


# Two-sided


@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.0, "confirmed"), (0.18, "not testable here"), (0.5, "refuted"), (-0.5, "refuted")]
)
def test_a_number_is_judged_on_both_sides(mean, verdict):
    quiet = Noise(0.1, 40)
    assert two_sided([mean] * 4, [quiet.sigma] * 4, quiet, -0.2, 0.2).verdict == verdict


def test_the_interval_is_from_the_noise_or_the_spread_whichever_is_larger():
    same = two_sided([0.1] * 4, [0.05] * 4, NOISE, -1, 1)
    assert same.high - same.mean == pytest.approx(student(0.05, 59) * 0.05 / 2)
    apart = two_sided([-0.3, 0.5, -0.3, 0.5], [0.05] * 4, NOISE, -1, 1)
    assert apart.high - apart.mean == pytest.approx(student(0.05, 3) * 0.4 * math.sqrt(4 / 3) / 2)


def test_the_miss_of_a_two_sided_test_is_what_a_simulation_counts():
    noise, rng = Noise(0.2, 400), random.Random(3)
    judged_here = [
        two_sided([rng.gauss(0.4, noise.sigma) for _ in range(2)], [noise.sigma] * 2, noise, -0.2, 0.2)
        for _ in range(2_000)
    ]
    by_noise = [one for one in judged_here if one.high - one.mean < 0.13]  # whose spread is not the larger
    missed = sum(one.verdict != "refuted" for one in by_noise) / len(by_noise)
    assert missed == pytest.approx(by_noise[0].missed, abs=0.03)


@pytest.mark.parametrize(
    ("factor", "noise", "verdict"),
    [
        (1.01, 1.005, "confirmed"),
        (1.5, 1.005, "refuted"),
        (0.9, 1.005, "refuted"),
        (1.01, 1.2, "not testable here"),
    ],
)
def test_alignment_is_judged_on_both_sides(factor, noise, verdict):
    aligned = [cell("draw", 1e-6, capacity=n) for n in CAPACITIES]
    apart = [
        dataclasses.replace(one, options={"aligned": False}, median_seconds=factor * one.seconds) for one in aligned
    ]
    assert judged(aligned, apart, noise=noise)[ALIGNED].verdict == verdict


# Growth


def over_capacities(op, law, contestant="numba", batches=(256, 2_048), wiggle=0.0):
    rng = random.Random(1)
    return [
        cell(op, law(n) * math.exp(rng.gauss(0, wiggle)), capacity=n, batch=batch, contestant=contestant)
        for batch in batches
        for n in (1_000, 10_000, 100_000, 1_000_000)
    ]


def linear(n):
    return 14e-6 + 3.8e-9 * n


def logarithmic(n):
    return 1e-6 * math.log2(n)


@pytest.mark.parametrize(
    ("draw", "update", "verdict"),
    [
        (logarithmic, logarithmic, "confirmed"),
        (lambda n: 1e-6, lambda n: 1e-6, "confirmed"),
        (lambda n: 1e-8 * n**0.5, logarithmic, "confirmed"),
        (linear, logarithmic, "refuted"),
        (logarithmic, linear, "refuted"),
    ],
)
@pytest.mark.parametrize("wiggle", [0.0, 0.05])
def test_growth_over_n_is_judged_by_sampling_and_by_updating(draw, update, verdict, wiggle):
    found = over_capacities("draw", draw, wiggle=wiggle), over_capacities("update", update, wiggle=wiggle)
    claim = judged(*found, noise=1.1)[SUBLINEAR]
    assert claim.verdict == verdict, claim.evidence


def test_the_slope_of_the_logarithms_would_have_called_the_control_sublinear():
    """What was wrong with a slope of 0.9: work that is O(N) by construction has 0.79 here."""
    n = np.array([1e3, 1e4, 1e5, 1e6])
    assert np.polyfit(np.log(n), np.log(linear(n)), 1)[0] == pytest.approx(0.79, abs=0.01)
    grown = growth_of([Series.of([(int(each), linear(each), 0.05) for each in n])])
    assert grown.is_linear
    assert not grown.is_sublinear


@pytest.mark.parametrize("machine", ["d7dae63b89", "8fb834d50a"])
def test_measured_controls_are_told_as_linear_and_our_tree_is_not(machine):
    timed = [one for one in read_folder(COMMITTED, machine) if one.median_seconds is not None]
    trees, noise = [one for one in timed if one.primitive == "sum_tree"], noise_of(timed)
    for name, op in tree_claims.CONTROLS:
        control = growth_of(tree_claims._series(trees, name, op, noise))
        assert control.is_linear, (name, control)
        assert not control.is_sublinear
        assert control.low <= 1 <= control.high
    for op in ("draw", "update"):
        assert not growth_of(tree_claims._series(trees, "numba", op, noise)).is_linear


def test_mistakes_of_the_growth_test_are_few_and_counted_at_the_noise():
    def at(sigma):
        return [Series.of([(10**power, 1e-6, sigma) for power in range(3, 7)]) for _ in range(3)]

    false, missed = mistaken(at(0.05))
    assert false <= 0.05
    assert missed <= 0.05
    assert mistaken(at(0.8))[1] > missed  # more noise, more doubt


def test_fits_take_no_negative_parts():
    for law in (lambda n: 1e-9 * n**1.4, lambda n: 1e-3 / n):
        series = Series.of([(n, law(n), 0.05) for n in (1_000, 10_000, 100_000)])
        misfit, share = growth._fit(series.seconds[None, :], series)
        weighted = 1 / series.sigmas
        assert (misfit >= -1e-9).all()
        assert misfit.max() <= (weighted**2).sum() + 1e-9
        assert 0 <= share[0] <= 1


def test_a_million_leaves_are_no_ten_kilobytes():
    claim = tree_claims.verdicts([])[BYTES]
    assert (claim.verdict, claim.power) == ("refuted", "exact: arithmetic")


def test_every_claim_of_nothing_says_how_to_measure_it():
    claims = tree_claims.verdicts([])
    assert {claim.verdict for claim in claims[:BYTES]} == {"not testable here"}
    assert all("measure with: python -m benchmarks sweep" in claim.evidence for claim in claims[:BYTES])
    assert fanout_curves.curves([], "draw", {}) is None


def test_every_series_must_show_what_is_claimed():
    """At one N the times fall, at the others they stay."""
    fall, flat = over_fanouts("update", FALLING), over_fanouts("update", FLAT)
    mixed = [one for one in fall if one.capacity == 10_000] + [one for one in flat if one.capacity != 10_000]
    assert judged(mixed)[INSERTION].verdict == "not testable here"


def test_a_valley_is_below_both_ends():
    """A curve that falls and then stays has none: its last K is as fast as those inside."""
    assert judged(over_fanouts("draw", curve(9, 6, 4, 4, 4, 4, 4)))[SAMPLING].verdict == "not testable here"


def test_mistakes_are_judged_by_the_interval_of_p():
    """Three times that a p of 0.9 fits best, and 1 fits too: neither linear nor slower is shown."""
    law = [(n, 1e-6 + 1e-9 * n**0.9, 0.2) for n in (1_000, 30_000, 1_000_000)]
    grown = growth_of([Series.of(law)])
    assert grown.power < 1 <= grown.high
    assert not grown.is_sublinear


def test_growth_that_is_undecided_for_one_operation_confirms_nothing():
    few = [one for one in over_capacities("update", lambda n: 1e-8 * n**0.9, batches=(256,)) if one.capacity != 10_000]
    wide = [dataclasses.replace(one, low_seconds=one.seconds / 3, high_seconds=one.seconds * 3) for one in few]
    claim = judged(over_capacities("draw", logarithmic), wide, noise=1.1)[SUBLINEAR]
    assert claim.verdict == "not testable here", claim.evidence
