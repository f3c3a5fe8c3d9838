"""Explore architectures: a replay management module (RMM) and a learner that share the slices of one FPGA.

A training step samples a batch, learns from it and updates its priorities; batches are sampled ahead ([Zhang2023,
V-A]), so that both work at once and a step takes as long as the slower of the two. The RMM lies in one slice, for its
banks meet in one dispatcher. ``kept``: that slice is the RMM's alone, as published, and the learner has the others.
``free``: the learner has whatever the RMM leaves. The learner's slices are taken as one budget; what crossing them
costs in clock is not modeled.

Ties: fewest cycles of a step, then fewest of the RMM and the learner together, then the order of ``Point.cost`` of both
together, then the first slice, then the tie rules of ``rmm_search.py`` and ``learner_search.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from impls.checks import one_of
from impls.fpga.learner import FP32, Mac
from impls.fpga.network import Network
from impls.fpga.resources import Budget, DoesNotFit, exceeded

from ..stats import frugal
from . import learner_search, rmm_search
from .learner_search import LearnerPoint, Problem
from .points import Slice, less, pooled, shortage
from .rmm_search import RmmPoint, Space

SHARINGS = ("kept", "free")


@dataclass(frozen=True)
class Choice:
    """An RMM in a slice, and a learner in ``learner_slices``."""

    rmm: RmmPoint
    rmm_slice: str
    learner: LearnerPoint
    learner_slices: tuple[str, ...]

    @property
    def cycles(self) -> float:
        """Cycles of a training step."""
        return max(self.rmm.cycles, self.learner.cycles)

    @property
    def bottleneck(self) -> str:
        """The module that a step waits for: the RMM or the learner."""
        return "RMM" if self.rmm.cycles > self.learner.cycles else "learner"

    @property
    def order(self) -> tuple[float, ...]:
        """The tie rule up to the slice, as a key to sort by."""
        costs = zip(self.rmm.cost, self.learner.cost, strict=True)
        return (self.cycles, self.rmm.cycles + self.learner.cycles, *map(sum, costs))


def explore(
    network: Network, space: Space, slices: Sequence[Slice], sharing: str = "kept", fill: str = "ideal", mac: Mac = FP32
) -> list[Choice]:
    """Find the best choice, and after it the best with another number of learner pipelines where there is one.

    DoesNotFit says what there is too little of, where least is missing.
    """
    if one_of("sharing", sharing, SHARINGS) == "kept" and len(slices) == 1:
        raise ValueError(
            "a device of one slice has none to keep for the RMM; let the learner have the rest of it, by --slice free"
        )
    problem = Problem(network, space.batch, pooled([one.budget for one in slices]), fill, mac, space.clock_hz)
    points = rmm_search.priced(space)
    return _ranked((_kept if sharing == "kept" else _free)(problem, points, slices))


def _ranked(choices: Sequence[Choice]) -> list[Choice]:
    """Rank choices: the best, then the best with other pipelines. Sorting is stable: the first slice wins."""
    ranked = sorted(choices, key=lambda choice: choice.order)
    others = [one for one in ranked if one.learner.design.pipelines != ranked[0].learner.design.pipelines]
    return [*ranked[:1], *others[:1]]


def _kept(problem: Problem, points: Sequence[RmmPoint], slices: Sequence[Slice]) -> list[Choice]:
    """Try each slice for the RMM: nothing else is shared, so the best of both modules is the best choice."""
    choices: list[Choice] = []
    failures: list[DoesNotFit] = []
    # Invariant: choices has the best of every slice before this one that an RMM and a learner fit.
    for own in slices:
        others = [one for one in slices if one is not own]
        try:
            rmm = _rmms(points, [own])[0]
            learners = _learners(problem, pooled([one.budget for one in others]), others)
        except DoesNotFit as error:
            failures.append(error)
        else:
            choices += [Choice(rmm, own.name, learner, _names(others)) for learner in learners]
    if not choices:
        raise min(failures, key=lambda error: shortage(error.exceeded))
    return choices


def _free(problem: Problem, points: Sequence[RmmPoint], slices: Sequence[Slice]) -> list[Choice]:
    """Try every RMM that no faster one undercuts, until a slower one is no use even beside a learner that has all."""
    alone = _learners(problem, problem.budget, slices)
    choices: list[Choice] = []
    failures: list[DoesNotFit] = []
    fitting = _rmms(points, slices)
    # Invariant: choices has the best learners beside every faster RMM of the front that leaves room for one.
    for rmm in (fitting[position] for position in frugal([point.cost for point in fitting])):
        if _hopeless(rmm, alone, _ranked(choices)):
            break
        own = next(one for one in slices if not exceeded(rmm.needed, one.budget))
        try:
            learners = _learners(problem, less(problem.budget, rmm.needed), slices)
        except DoesNotFit as error:
            failures.append(error)
        else:
            choices += [Choice(rmm, own.name, learner, _names(slices)) for learner in learners]
    if not choices:
        raise min(failures, key=lambda error: shortage(error.exceeded))
    return choices


def _hopeless(rmm: RmmPoint, alone: Sequence[LearnerPoint], ranked: Sequence[Choice]) -> bool:
    """Tell whether neither this RMM nor a slower one can be in the best choice, or in that with other pipelines."""
    if len(ranked) < len(alone):
        return False
    first = ranked[0].learner.design.pipelines
    bounds = [alone[0], next((one for one in alone if one.design.pipelines != first), alone[0])]
    return all(
        (max(rmm.cycles, least.cycles), rmm.cycles + least.cycles) > choice.order[:2]
        for least, choice in zip(bounds, ranked, strict=False)
    )


def _rmms(points: Sequence[RmmPoint], slices: Sequence[Slice]) -> list[RmmPoint]:
    """Select the points that fit one of the slices, in their order. DoesNotFit if none does."""
    lacking = [[exceeded(point.needed, one.budget) for one in slices] for point in points]
    fitting = [point for point, each in zip(points, lacking, strict=True) if not all(each)]
    if not fitting:
        nearest = min((one for each in lacking for one in each), key=shortage)
        raise DoesNotFit(nearest, f"even the RMM that comes nearest, in {' or '.join(_names(slices))},")
    return fitting


def _learners(problem: Problem, budget: Budget, slices: Sequence[Slice]) -> list[LearnerPoint]:
    try:
        return learner_search.fastest(replace(problem, budget=budget))
    except DoesNotFit as error:
        rest = "" if budget == pooled([one.budget for one in slices]) else "what an RMM leaves of "
        what = f"even a learner of a unit a stage, in {rest}{' + '.join(_names(slices))},"
        raise DoesNotFit(error.exceeded, what) from None


def _names(slices: Sequence[Slice]) -> tuple[str, ...]:
    return tuple(one.name for one in slices)
