"""Model L learners side by side, their weights averaged every H steps ([Zhang2022, eqs. 5.1 to 5.3, 5.5 and 5.6]).

A step always works through B records. In **data parallel** training (eq. 5.1) one learner samples all of them, sends
each other one B / L, and gathers gradients each step. In **SPO** (eq. 5.5) each learner samples B / L from a bank of
its own, and only weights meet, every H steps. The scaling factor is speed-up / L: the text's own points (1.25 times as
fast with two learners is "0.63", 1.34 times with four "0.34") are so, although eqs. 5.3 and 5.6 are written without
1 / L.

The printed formulas differ from what follows from 5.1, 5.2 and 5.5:

* 5.3 drops T_replay / L from above the line: the time that a single learner too spends on its replay, in L parts.
* 5.6 neglects T_update, which no learner shares, and takes the passes to be L times faster on B / L records.
* T_trans is to one learner; L of them share a link, one after the other, unless each has its own.

Letters: B batch, L learners, H steps between averages. Times are seconds.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from impls.training.clock import scaling_factor

from ..solver.problem import ProblemError
from .curves import FlatThenLinear


@dataclass(frozen=True)
class Terms:
    """The terms of a gradient step, in seconds or as laws of a number of records or learners.

    ``replay_seconds``: sampling and updating of all B priorities by one learner. ``passes``: forward and backward, by
    records (proportional in [Zhang2022]). ``update_seconds``: updating the weights. ``records``: a transfer of so many
    records to one learner; ``weights_seconds``: one of weights, or gradients, to or from one. ``average``: averaging,
    by learners. ``shared_link``: whether transfers of several learners take turns. ProblemError for times outside any
    sense.
    """

    batch: int
    replay_seconds: float
    passes: FlatThenLinear
    update_seconds: float
    records: FlatThenLinear
    weights_seconds: float
    average: FlatThenLinear
    shared_link: bool

    def __post_init__(self) -> None:
        laws = (self.passes, self.records, self.average)
        times = [self.replay_seconds, self.update_seconds, self.weights_seconds]
        times += [part for law in laws for part in (law.fixed_seconds, law.each_seconds)]
        if self.batch < 1 or not all(0 <= time < math.inf for time in times) or self.passes.seconds(self.batch) <= 0:
            raise ProblemError(
                f"a batch of 1 or more and finite times from 0 on, some of passes, are wanted, not {self}"
            )

    def links(self, learners: int) -> int:
        """Return the slowdown of the transfers of all learners over one transfer."""
        return learners if self.shared_link else 1


def single_seconds(terms: Terms) -> float:
    """Compute T_single, seconds of a step by one learner (5.2)."""
    return terms.replay_seconds + terms.passes.seconds(terms.batch) + terms.update_seconds


def data_parallel_seconds(terms: Terms, learners: int) -> float:
    """Compute T of data parallel learners (5.1), transfers serially on a shared link; one learner sends nothing."""
    _check(learners, 1)
    if learners == 1:
        return single_seconds(terms)
    part = terms.batch / learners
    transfers = terms.links(learners) * (terms.records.seconds(part) + 2 * terms.weights_seconds)
    work = terms.replay_seconds + terms.passes.seconds(part) + terms.update_seconds
    return work + transfers + terms.average.seconds(learners)


def spo_seconds(terms: Terms, learners: int, horizon: int) -> float:
    """Compute T of SPO (5.5), weights averaged every H steps, transfers serially on a shared link."""
    _check(learners, horizon)
    if learners == 1:
        return single_seconds(terms)
    part = terms.passes.seconds(terms.batch / learners)
    meeting = 2 * terms.links(learners) * terms.weights_seconds + terms.average.seconds(learners)
    return terms.replay_seconds / learners + part + terms.update_seconds + meeting / horizon


def data_parallel_factor(terms: Terms, learners: int) -> float:
    """Compute the scaling factor that follows from 5.1 and 5.2."""
    return scaling_factor(1 / data_parallel_seconds(terms, learners), learners, 1 / single_seconds(terms))


def spo_factor(terms: Terms, learners: int, horizon: int) -> float:
    """Compute the scaling factor that follows from 5.2 and 5.5."""
    return scaling_factor(1 / spo_seconds(terms, learners, horizon), learners, 1 / single_seconds(terms))


def printed_data_parallel_factor(terms: Terms, learners: int) -> float:
    """Compute 5.3 as printed: 1 - 1 / (1 + 2 T_b / (T_replay + T_trans + T_avg)), T_trans that of one learner."""
    _check(learners, 1)
    part = terms.batch / learners
    passes = terms.passes.seconds(part)
    rest = terms.replay_seconds + terms.records.seconds(part) + 2 * terms.weights_seconds
    return passes / (passes + rest + terms.average.seconds(learners))  # the same without a division by 0


def printed_spo_factor(terms: Terms, learners: int, horizon: int) -> float:
    """Compute 5.6 as printed: 1 / (1 + L (2 T_W + T_avg) / (T_single H)), T_W that of one learner."""
    _check(learners, horizon)
    meeting = 2 * terms.weights_seconds + terms.average.seconds(learners)
    return 1 / (1 + learners * meeting / (single_seconds(terms) * horizon))


@dataclass(frozen=True)
class FactorPoint:
    """Scaling factors of L learners, exact and as printed; ``horizon`` None is data parallel training."""

    learners: int
    horizon: int | None
    exact: float
    printed: float

    @property
    def difference(self) -> float:
        """The printed factor less the exact one."""
        return self.printed - self.exact


def factors(terms: Terms, learners: Sequence[int], horizons: Sequence[int]) -> tuple[FactorPoint, ...]:
    """Compute the factors of data parallel training, then of SPO with each H, for each number of learners."""
    points = [
        FactorPoint(count, None, data_parallel_factor(terms, count), printed_data_parallel_factor(terms, count))
        for count in learners
    ]
    points += [
        FactorPoint(count, horizon, spo_factor(terms, count, horizon), printed_spo_factor(terms, count, horizon))
        for horizon, count in itertools.product(horizons, learners)
    ]
    return tuple(points)


def choose(
    learners: Sequence[int], horizons: Sequence[int], step: Callable[[int, int], float], within: float = 0.0
) -> tuple[int, int]:
    """Choose (L, H) with the fewest learners, then the smallest H, of those within a part of the shortest ``step``.

    A step never gets longer with H, so H is bounded by how stale weights may be: leave out those that are too high.
    ProblemError without learners or horizons, or for ``within`` below 0.
    """
    if not learners or not horizons or not within >= 0:
        raise ProblemError(f"numbers of learners, horizons and a part from 0 on are wanted, not {within}")
    shortest = {count: step(count, max(horizons)) for count in learners}
    most = min(shortest.values()) * (1 + within)
    fewest = min(count for count, time in shortest.items() if time <= most)
    return fewest, min(horizon for horizon in horizons if step(fewest, horizon) <= most)


def _check(learners: int, horizon: int) -> None:
    if learners < 1 or horizon < 1:
        raise ProblemError(f"learners and H are at least 1, not {learners} and {horizon}")
