"""Build what an FPGA could hold: sum trees in a slice each, and learners next to them, spread over all slices.

A tree is in one slice. A learner's units are spread over the slices, and each has with them its share of everything the
learner needs; so what a slice has least of decides how many units it takes, and one that a tree fills takes none. That
parts of a learner in several slices run at the clock of the whole is not checked.

A learner is designed once for a device of its own, and once next to each tree that it would leave no room for, in what
that leaves, with as many pipelines: others were never faster in what was tried, and take 8 times longer to find.

Letters: B batch, N capacity, K fanout, S banks.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from impls.fpga import cycles
from impls.fpga.resources import Budget, DoesNotFit, Resources, exceeded

from ..platforms import Device
from . import BOUNDED, Slice, front, learner_search, rmm_search
from .learner_search import LearnerPoint, Problem
from .rmm_search import RmmPoint, Space

Left = tuple[tuple[float, ...], ...]
"""What is left by slice, in the order of ``BOUNDED``."""


def slices_of(device: Device) -> tuple[Slice, ...]:
    """List what designs may use, slice by slice."""
    return tuple(Slice(part.name, Budget(**part.usable())) for part in device.slices)


def amounts(budget: Budget | Resources) -> tuple[float, ...]:
    """Return the amounts of a budget or of resources in the order of ``BOUNDED``."""
    return tuple(float(getattr(budget, kind)) for kind in BOUNDED)


@dataclass(frozen=True)
class Rmm:
    """A design with its cycles to sample a batch and to update one."""

    point: RmmPoint
    draw_cycles: float
    update_cycles: float

    @property
    def name(self) -> str:
        """The micro-architecture, K and S in words."""
        design = self.point.design.design
        memory = "" if self.point.design.uram else ", no UltraRAM"
        return f"{design.micro} K={design.fanout} S={design.banks} {design.banking}{memory}"

    def insert_cycles(self, leaves: float) -> float:
        """Count the cycles to insert a given number of leaves at once, in banks that share them evenly."""
        design = self.point.design.design
        return float(cycles.count_cycles(design, "update", math.ceil(leaves / design.banks)))


@functools.lru_cache(maxsize=64)
def rmms(slices: tuple[Slice, ...], capacity: int, batch: int, clock_hz: float, fanout: int | None) -> tuple[Rmm, ...]:
    """Find the designs that fit a slice and that no other beats, fastest first; cycles are split as for even banks."""
    fanouts = rmm_search.FANOUTS if fanout is None else (fanout,)
    points = rmm_search.priced(Space(capacity, batch, fanouts, clock_hz=clock_hz))
    fitting = [point for point in points if any(not exceeded(point.needed, part.budget) for part in slices)]
    designs = []
    for point in front(fitting):
        design = point.design.design
        even = math.ceil(batch / design.banks)
        draw, update = cycles.count_cycles(design, "sample", even), cycles.count_cycles(design, "update", even)
        share = draw / (draw + update)
        designs.append(Rmm(point, point.cycles * share, point.cycles * (1 - share)))
    return tuple(designs)


@dataclass(frozen=True)
class Placed:
    """A learner, and its share of each slice."""

    point: LearnerPoint
    taken: Left

    def fits(self, left: Left) -> bool:
        """Tell whether the slices have that left."""
        return all(
            need <= have
            for needs, haves in zip(self.taken, left, strict=True)
            for need, have in zip(needs, haves, strict=True)
        )


def bytes_per_s(device: Device) -> float:
    """Return the bandwidth of a card's memory, 0 where none is stated, so that no weights can be streamed."""
    stated = device.memory and device.memory.bandwidth_bytes_per_s
    return stated.value if stated else 0.0


@functools.lru_cache(maxsize=64)
def learners(slices: tuple[Slice, ...], posed: Problem, trees: tuple[Rmm, ...]) -> tuple[Placed, ...]:
    """Find the fastest learner that has the device to itself, as posed for all slices, and those next to trees.

    DoesNotFit where not even one unit a stage fits.
    """
    whole = tuple(amounts(part.budget) for part in slices)
    alone = learner_search.fastest(posed)[0]
    first = _spread(alone, whole, posed)
    placed = [first] if first else []
    # Invariant: each of the trees so far that fits leaves room for placed[0], or a learner next to it was sought.
    for tree in trees:
        beside = _lefts(whole, amounts(tree.point.needed))
        if beside and not any(placed and placed[0].fits(left) for left in beside):
            roomiest = max(beside, key=lambda left: sum(_room(left, alone)))
            learner = _spread(alone, roomiest, posed)
            if learner and learner not in placed:
                placed.append(learner)
    return tuple(placed)


def _lefts(whole: Left, needs: Sequence[float]) -> list[Left]:
    """List what is left of the slices with a tree in any one that it fits."""
    lefts = []
    for position, have in enumerate(whole):
        left = tuple(have_one - need for have_one, need in zip(have, needs, strict=True))
        if min(left) >= 0:
            lefts.append((*whole[:position], left, *whole[position + 1 :]))
    return lefts


def _room(left: Left, point: LearnerPoint) -> list[float]:
    """Compute how much of a learner each slice could hold."""
    needs = amounts(point.needed)
    return [min(have / need for have, need in zip(haves, needs, strict=True) if need) for haves in left]


def _spread(alone: LearnerPoint, left: Left, posed: Problem) -> Placed | None:
    """Find the fastest in what is left, spread as the one that has the device to itself; None if none fits.

    With the shares given, a slice bounds the whole learner by its resources over its share: so there is one budget.
    """
    room = _room(left, alone)
    if not sum(room):
        return None
    shares, point = [share / sum(room) for share in room], alone
    if sum(room) < 1:
        asked = replace(posed, budget=_budget(left, shares), pipelines=alone.design.pipelines)
        fewer = _find_fastest(asked) or _find_fastest(replace(asked, pipelines=None))
        if fewer is None:
            return None
        point = fewer
    needs = amounts(point.needed)
    taken = tuple(
        tuple(min(share * need, have) for need, have in zip(needs, haves, strict=True))
        for share, haves in zip(shares, left, strict=True)
    )
    return Placed(point, taken)


def _budget(left: Left, shares: Sequence[float]) -> Budget:
    """Bound a learner that has these shares of itself in the slices."""
    pairs = [(haves, share) for haves, share in zip(left, shares, strict=True) if share]
    return Budget(**{
        name: int(min(haves[kind] / share for haves, share in pairs)) for kind, name in enumerate(BOUNDED)
    })  # fmt: skip


def _find_fastest(problem: Problem) -> LearnerPoint | None:
    try:
        return learner_search.fastest(problem)[0]
    except DoesNotFit:
        return None
