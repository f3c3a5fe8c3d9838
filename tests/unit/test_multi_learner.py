"""Tests of several learners: the printed formulas beside what follows from their own premises."""

import dataclasses
import functools
import itertools
import math
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest

from dse.solver.problem import ProblemError
from dse.times.curves import FlatThenLinear
from dse.times.several import (
    Terms,
    choose,
    data_parallel_factor,
    data_parallel_seconds,
    factors,
    printed_data_parallel_factor,
    printed_spo_factor,
    single_seconds,
    spo_factor,
    spo_seconds,
)

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
        assert single_seconds(terms) / data_parallel_seconds(terms, learners) == pytest.approx(speedup)
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
    assert data_parallel_factor(NOTE, 2) == pytest.approx(0.5 * 5 / 3)  # (1 / 2 + 2) / (2 + 1)
    assert printed_data_parallel_factor(NOTE, 2) == pytest.approx(2 / 3)
    rng = np.random.default_rng(0)
    for learners in (2, 3, 8):
        terms = dataclasses.replace(
            random_terms(rng), update_seconds=0.0, passes=FlatThenLinear(0.0, 0.01), shared_link=False
        )
        whole = terms.passes.seconds(terms.batch)
        synchronized = (
            terms.records.seconds(64 / learners) + 2 * terms.weights_seconds + terms.average.seconds(learners)
        )
        by_hand = (terms.replay_seconds + whole) / learners / (terms.replay_seconds + whole / learners + synchronized)
        assert data_parallel_factor(terms, learners) == pytest.approx(by_hand)
        dropped = terms.replay_seconds / learners / data_parallel_seconds(terms, learners)
        assert data_parallel_factor(terms, learners) - printed_data_parallel_factor(terms, learners) == pytest.approx(
            dropped
        )


def test_5_6_is_exact_where_its_premises_hold_and_optimistic_elsewhere():
    rng = np.random.default_rng(1)
    for learners, horizon in itertools.product((2, 4, 8), (1, 5, 25)):
        terms = random_terms(rng)
        premises = dataclasses.replace(
            terms, update_seconds=0.0, passes=FlatThenLinear(0.0, terms.passes.each_seconds), shared_link=False
        )
        assert spo_factor(premises, learners, horizon) == pytest.approx(printed_spo_factor(premises, learners, horizon))
        for change in (
            {"update_seconds": 0.1},
            {"passes": FlatThenLinear(0.1, terms.passes.each_seconds)},
            {"shared_link": True},
        ):
            changed = dataclasses.replace(premises, **change)
            assert spo_factor(changed, learners, horizon) < printed_spo_factor(changed, learners, horizon)


def test_one_learner_scales_perfectly_and_sends_nothing():
    terms = random_terms(np.random.default_rng(2))
    assert data_parallel_factor(terms, 1) == spo_factor(terms, 1, 1) == 1.0
    assert spo_seconds(terms, 1, 7) == single_seconds(terms)


def test_a_step_never_gets_longer_with_h_nor_is_its_factor_above_one():
    rng = np.random.default_rng(3)
    for _ in range(200):
        terms, learners = random_terms(rng), int(rng.integers(1, 17))
        times = [spo_seconds(terms, learners, horizon) for horizon in (1, 2, 5, 10, 25, 100)]
        assert times == sorted(times, reverse=True)
        assert 0 < spo_factor(terms, learners, 100) <= 1
        shared = dataclasses.replace(terms, shared_link=True)
        assert spo_seconds(shared, learners, 1) >= spo_seconds(terms, learners, 1)


def test_points_are_in_the_order_of_the_figure_and_know_their_difference():
    points = factors(NOTE, (1, 2), (5, 25))
    assert [(one.horizon, one.learners) for one in points] == [
        (horizon, learners) for horizon in (None, 5, 25) for learners in (1, 2)
    ]
    assert points[1].difference == pytest.approx(2 / 3 - 5 / 6)


def test_the_choice_is_the_shortest_step_with_few_learners_and_a_small_h():
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
    for wrong in ({"replay_seconds": -1.0}, {"weights_seconds": math.nan}):
        with pytest.raises(ProblemError, match="finite times"):
            dataclasses.replace(NOTE, **wrong)
    with pytest.raises(ProblemError, match="learners and H are at least 1, not 0 and 1"):
        spo_seconds(NOTE, 0, 1)
    with pytest.raises(ProblemError, match="numbers of learners"):
        choose((), (1,), functools.partial(spo_seconds, NOTE))
