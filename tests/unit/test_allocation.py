"""Tests of core allocation: brute force, the scaling law, and eq. 5 of [Zhang2021] as printed."""

import dataclasses
import functools
import itertools
import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.problem import ProblemError
from dse.times import several
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms, choose, data_parallel_factor, data_parallel_seconds, spo_factor, spo_seconds
from dse.tuning import cores as splits
from dse.tuning.cores import RateCurve, Scaling, complete, fit_scaling, iterate_parted, iterate_turns, split_cores
from impls.training import TrainingError
from impls.training.adapting import Cap, adapt, joint, search


def curve(name, rates, source="measured", low=0.95, high=1.05):
    """A curve of rates, each in an interval from ``low`` to ``high`` times itself."""
    evidence = Evidence(name, source)
    return RateCurve(name, {x: Estimate(hz, low * hz, high * hz, evidence) for x, hz in rates.items()})


def allocate(f_a, f_l, u, cores, within=0.0):
    return splits.take_fewest_cores(list(iterate_parted(f_a, f_l, u, cores)), within)


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


def test_each_end_of_an_interval_is_the_slower_sides():
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


@pytest.mark.parametrize("points", [(1, 2), (1, 2, 4, 8, 16)], ids=len)
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


def test_the_next_point_is_between_the_last_and_what_is_asked():
    one = RateCurve.of("f", {1: 400.0, 2: 700.0})
    assert [splits.choose_next_point(one, x) for x in (3, 4, 8, 48, 512)] == [3, 3, 4, 8, 32]


BAD = (
    *((rates, None, "1e-09") for rates in ({1: 0.0}, {2: math.nan})),
    *(
        (rates, high, r"1e\+15")
        for rates, high in (({1: math.inf}, None), ({1: 1e300, 2: 1e300}, 1), ({1: 4e14, 2: 4e14}, 1e6))
    ),
    ({1: 5e-324, 2: 5e-324}, 1, "1e-09"),
    ({}, None, "without a point"),
    ({0: 1.0}, None, "0 cores"),
    ({1: 100.0}, None, "one point"),
)


def test_a_bad_curve_or_question_is_refused_with_its_bound():
    fine = RateCurve.of("f_l", {1: 400.0, 2: 700.0})
    for rates, high, facts in BAD:
        with pytest.raises(ProblemError, match=facts):
            split_cores(curve("f_a", rates, "quoted", 1, high) if high else RateCurve.of("f_a", rates), fine, 1, 56)
    for asked in ((0, 2, 0), (math.nan, 2, 0), (1, 0, 0), (1, 2, -1)):
        with pytest.raises(ProblemError, match="must be"):
            splits.check_cores(*asked)


NOTHING = FlatThenLinear(0.0, 0.0)
NOTE = Terms(2, 1.0, FlatThenLinear(0.0, 2.0), 0.0, NOTHING, 0.0, NOTHING, shared_link=True)  # 2 T_b = 2 with L = 2


def random_terms(rng):
    a, b, c, d, e, f, g, h = rng.uniform(0.01, 1, 8).tolist()
    laws = FlatThenLinear(a, b / 64), FlatThenLinear(c / 10, d / 640), FlatThenLinear(e / 10, f / 10)
    return Terms(64, g, laws[0], 0.05 * h, laws[1], 0.1 * h, laws[2], bool(rng.integers(2)))


def test_the_worked_points_are_speed_up_over_learners():
    """The text of [Zhang2022]: two learners are 1.25 times as fast, "0.63"; four 1.34 times, "0.34" (halves are up)."""
    for speedup, learners, printed in ((1.25, 2, "0.63"), (1.34, 4, "0.34")):
        # A system of so many learners that is so many times as fast: averaging takes what is missing.
        average = FlatThenLinear(1 / speedup - 1 / learners, 0.0)
        terms = Terms(1, 0.0, FlatThenLinear(0.0, 1.0), 0.0, NOTHING, 0.0, average, shared_link=False)
        assert several.single_seconds(terms) / data_parallel_seconds(terms, learners) == pytest.approx(speedup)
        factor = Decimal(data_parallel_factor(terms, learners)).quantize(Decimal("1e-9"))
        assert str(factor.quantize(Decimal("0.01"), ROUND_HALF_UP)) == printed


@pytest.mark.parametrize(("shared", "in_turn"), [(True, 4), (False, 1)])
def test_transfers_of_all_learners_take_turns_on_a_shared_link(shared, in_turn):
    laws = FlatThenLinear(0.0, 1.0), FlatThenLinear(0.1, 0.01), FlatThenLinear(0.0, 0.05)
    terms = Terms(8, 1.0, laws[0], 0.5, laws[1], 0.2, laws[2], shared_link=shared)
    transfers = 0.1 + 2 * 0.01 + 2 * 0.2  # two records a learner, weights there and back
    assert data_parallel_seconds(terms, 4) == pytest.approx(1.0 + 2.0 + 0.5 + in_turn * transfers + 4 * 0.05)
    averaging = (in_turn * 2 * 0.2 + 4 * 0.05) / 5
    assert spo_seconds(terms, 4, 5) == pytest.approx(1.0 / 4 + 2.0 + 0.5 + averaging)


def test_what_5_3_drops():
    """The replay's time, which each learner spends: eq. 5.3 leaves it out of what it divides."""
    assert data_parallel_factor(NOTE, 2) == pytest.approx(0.5 * 5 / 3)  # (1 / 2 + 2) / (2 + 1)
    assert several.printed_data_parallel_factor(NOTE, 2) == pytest.approx(2 / 3)
    terms = random_terms(np.random.default_rng(0))
    exact = dataclasses.replace(
        terms, update_seconds=0.0, passes=FlatThenLinear(0.0, terms.passes.each_seconds), shared_link=False
    )
    assert spo_factor(exact, 4, 5) == pytest.approx(several.printed_spo_factor(exact, 4, 5))  # whose premises hold
    for change in ({"update_seconds": 0.1}, {"passes": FlatThenLinear(0.1, 0.1)}, {"shared_link": True}):
        changed = dataclasses.replace(exact, **change)
        assert spo_factor(changed, 4, 5) < several.printed_spo_factor(changed, 4, 5)


def test_the_choice_is_the_shortest_step_of_few_learners():
    rng = np.random.default_rng(4)
    for _ in range(300):
        terms = random_terms(rng)
        step, learners, horizons = functools.partial(spo_seconds, terms), (1, 2, 4, 8), (1, 5, 10, 25)
        best = min(itertools.product(learners, horizons), key=lambda pair: step(*pair))
        assert choose(learners, horizons, step) == best
        few = choose(learners, horizons, step, within=0.1)
        assert few <= best and step(*few) <= 1.1 * step(*best)
    free = dataclasses.replace(NOTE, replay_seconds=0.0, passes=FlatThenLinear(1.0, 0.0))
    # More learners bring nothing, nor does H.
    assert choose((4, 2, 1), (25, 5), functools.partial(spo_seconds, free)) == (1, 5)


def test_senseless_terms_and_questions_are_refused():
    for ask in (
        lambda: dataclasses.replace(NOTE, replay_seconds=-1.0),
        lambda: dataclasses.replace(NOTE, weights_seconds=math.nan),
        lambda: spo_seconds(NOTE, 0, 1),
        lambda: choose((), (1,), functools.partial(spo_seconds, NOTE)),
    ):
        with pytest.raises(ProblemError, match=r"finite times|not 0 and 1|numbers of learners"):
            ask()


SMALLEST = 18  # points from which on a third of the looks is always enough


def best_of(table):
    return min(table, key=lambda value: (-table[value], value))


def test_a_third_of_the_looks_finds_every_peak_from_18_points_on():
    most = {}
    for count in range(1, 150):
        for peak in range(count):
            found = search(range(count), lambda value, peak=peak: 1000.0 - abs(value - peak))
            assert found.best == peak
            most[count] = max(most.get(count, 0), len(found.seen))
    assert [count for count in most if 3 * most[count] > count] == list(range(1, SMALLEST))
    assert (most[20], most[33], most[54], most[88]) == (6, 7, 8, 9)


def test_every_answer_is_brute_forces_or_of_points_with_one_peak():
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(2000):
        table = dict(enumerate(rng.permutation(24).astype(float).tolist()))
        found = search(list(table), table.__getitem__)
        if found.not_unimodal:
            assert found.best == best_of(table)
            assert len(found.seen) == 24
        else:
            rates = [rate for _, rate in sorted(found.seen.items())]
            peak = rates.index(max(rates))
            assert rates == sorted(rates[:peak]) + sorted(rates[peak:], reverse=True)
            assert all(table.get(found.best + step, -1.0) < found.hz for step in (-1, 1))  # a peak, if not the highest
            missed += found.best != best_of(table)
    assert missed == 233  # of tables without any order, as the module says


def test_a_point_exactly_at_a_cap_is_under_it():
    cap = Cap("cores", 4, lambda samplers, batch: samplers)
    found = adapt(range(1, 9), (16,), lambda samplers, batch: samplers, lambda samplers, batch: batch, (cap,))
    assert (found.samplers.best, found.samplers.stopped_by) == (4, "cores")
    assert joint(range(1, 9), (16,), lambda samplers, batch: samplers, (cap,)) == (4, 16)


SAMPLERS, BATCHES = range(1, 33), tuple(2**k for k in range(4, 16))
CAPS = (
    Cap("cores", 24, lambda samplers, batch: samplers),
    Cap("memory", 8000, lambda samplers, batch: 100 * samplers + batch / 2),
)


def sampling_hz(samplers, batch):
    return 400 * samplers / (1 + 0.002 * samplers**2)


SENSELESS = (
    (lambda: search([2, 2], float), "[2, 2]"),
    (lambda: search([], float), "[]"),
    (lambda: search([1], lambda value: math.nan), "1 nan"),
    (lambda: search([1, 2], float, [("cores", lambda value: value > 0)]), "1 cores"),
    (lambda: joint([30], [16], sampling_hz, CAPS), "cores memory"),
)


def test_senseless_searches_are_refused_with_a_sentence():
    for ask, facts in SENSELESS:
        with pytest.raises(TrainingError) as caught:
            ask()
        assert all(fact in str(caught.value) for fact in facts.split())
