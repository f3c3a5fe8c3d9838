"""Search the fastest learner within a budget, exactly: pipelines, units of each stage and of the weight update.

Letters as in ``learner.py``. For T cycles a stage, ceil(MACs / T) units are the fewest there can be, and a larger T
never takes more of anything, for every resource law rises with units. Hence for each DP: (1) bisection finds the
smallest T that fits; (2) from there T climbs through the values at which a unit is saved, which update units may take;
(3) it stops when even the most update units there can be would not make up for (PI + n - 1) T. Of all DP with the same
PI only the smallest is of use. So the answer is the best of all units, update units and pipelines, of these memories:

Of the buffers that fill an UltraRAM any number of the largest lie there. Weights are streamed only where not even the
smallest learner has all on the chip: then for each number of the largest layers, and for blocks of 1, 2, 4 ... samples,
until a block has all of a pipeline. Other sets of layers, other blocks, and streaming where all fits are not tried. A T
below what the reads take for a sample is of no use, so that (1) begins there.

Ties: fewest cycles, then the order of ``Point.cost``, then fewest pipelines, then fewest units from the first stage on,
then fewest update units, then fewest buffers in UltraRAM, then fewest streamed weights, then the smallest block.
"""

import functools
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from impls.fpga.learner import (
    FP32,
    ULTRA_WORDS,
    Learner,
    Mac,
    Memory,
    buffers,
    ledger,
    longest,
    resources,
    resources_of,
    stage_cycles,
    stream_cycles,
    streamable,
    units_for,
    update_cycles,
)
from impls.fpga.network import Network
from impls.fpga.passes import stages
from impls.fpga.resources import Budget, DoesNotFit, exceeded

from . import Point, front

LearnerPoint = Point[Learner]
Key = tuple[object, ...]


@dataclass(frozen=True)
class Problem:
    """The question: the fewest cycles of a gradient step on ``batch`` samples, ``pipelines`` fixed or free (None).

    ``bytes_per_s``: of the card's memory, 0 where it is not stated, so that no weights can be streamed.
    """

    network: Network
    batch: int
    budget: Budget
    fill: str = "ideal"
    mac: Mac = FP32
    clock_hz: float = 200e6
    pipelines: int | None = None
    bytes_per_s: float = 0.0

    def learner(
        self, pipelines: int, units: tuple[int, ...], update_units: int, uram: int, streamed: int = 0, block: int = 1
    ) -> Learner:
        """Build a design with these units."""
        more = self.fill, uram, self.mac, self.clock_hz, streamed, block, self.bytes_per_s
        return Learner(self.network, pipelines, units, update_units, *more)

    def find_lacking(
        self, pipelines: int, memory: Memory, units: tuple[int, ...] = (), update_units: int = 1
    ) -> dict[str, tuple[float, float]]:
        """Find what the budget has too little of, as (have, need); without ``units`` for the smallest learner."""
        units = units or self.smallest
        needed = resources_of(self.network, pipelines, units, update_units, memory, self.mac)
        return exceeded(needed, self.budget)

    def point(self, learner: Learner) -> LearnerPoint:
        """Price a learner: its cycles and resources."""
        return Point(learner, ledger(learner, self.batch).cycles, resources(learner))

    def units(self, cycles: int) -> tuple[int, ...] | None:
        """Find the fewest units with which each stage takes at most a given number of cycles; None if one cannot."""
        counts = [units_for(stage.gemm, cycles, self.fill) for stage in stages(self.network)]
        return None if None in counts else tuple(count for count in counts if count)

    @property
    def smallest(self) -> tuple[int, ...]:
        """Units of the smallest learner: one a stage."""
        return (1,) * len(stages(self.network))


def order(point: LearnerPoint) -> Key:
    """Return the tie rule as a key to sort by."""
    learner = point.design
    memory = learner.uram or 0, learner.streamed, learner.block
    return (point.cycles, *point.cost, learner.pipelines, learner.units, learner.update_units, *memory)


def fastest(problem: Problem) -> list[LearnerPoint]:
    """Find the best, and after it the best with other pipelines. DoesNotFit says what even one unit a stage lacks."""
    best: list[LearnerPoint] = []
    # Invariant: best is the answer over the pipelines and memories tried so far.
    for pipelines in _data_parallel(problem):
        for memory in _memories(problem, pipelines):
            same = [point for point in best if point.design.pipelines == pipelines]
            rivals = same or best[1:]
            candidate = _fastest_with(problem, pipelines, memory, rivals[0].cycles if rivals else math.inf)
            if candidate:
                rest = [point for point in best if point not in same]
                best = sorted([*rest, min([*same, candidate], key=order)], key=order)[:2]
    if not best:
        least = problem.pipelines or 1
        streamed = len(streamable(problem.network)) if problem.bytes_per_s else 0
        memories = _place_buffers(problem, least, streamed, 1)
        raise DoesNotFit(min((problem.find_lacking(least, memory) for memory in memories), key=len))
    return best


def pareto(problem: Problem, steps: int = 8) -> list[LearnerPoint]:
    """Find the front over cycles, LUT, DSP and SRAM of the best learners for each DP in k / ``steps`` of the DSP."""
    points, dsp = list[LearnerPoint](), problem.budget.dsp
    for share in range(1, steps + 1):
        budget = replace(problem.budget, dsp=None if dsp is None else dsp * share // steps)
        part = replace(problem, budget=budget)
        for pipelines in _data_parallel(part):
            points += fastest(replace(part, pipelines=pipelines))[:1]
    return front(points)


def greedy(problem: Problem) -> LearnerPoint:
    """Search as [Zhang2023, VI-A2]: r_i f units, r_i a stage's MACs over the smallest layer's, f = 1, 2... until full.

    Of every f and DP that fit, the best by the same tie rule. r_WU is taken as the units of all FW stages at f = 1,
    each of which has a bank of weights. No weights are streamed. DoesNotFit where f = 1 is too large already.
    """
    problem = replace(problem, bytes_per_s=0.0)
    smallest = min(layer.forward.macs for layer in problem.network.layers)
    ratios = [-(-stage.gemm.macs // smallest) for stage in stages(problem.network)]
    banks = sum(ratio for ratio, stage in zip(ratios, stages(problem.network), strict=True) if stage.kind == "FW")
    points: list[LearnerPoint] = []
    # Invariant: points has the best of every smaller f, all of which fit. With f = smallest every stage takes a cycle.
    for factor in range(1, smallest + 1):
        units = tuple(ratio * factor for ratio in ratios)
        fitting = [
            problem.point(problem.learner(pipelines, units, banks * factor, *memory))
            for pipelines in _data_parallel(problem)
            for memory in _memories(problem, pipelines)
            if not problem.find_lacking(pipelines, memory, units, banks * factor)
        ]
        if not fitting:
            break
        points.append(min(fitting, key=order))
    if not points:
        raise DoesNotFit(problem.find_lacking(1, next(_memories(problem, 1)), tuple(ratios), banks))
    return min(points, key=order)


def _memories(problem: Problem, pipelines: int) -> Iterator[Memory]:
    """Yield (how many of the largest buffers lie in UltraRAM, streamed weights, block): the first fills the UltraRAM.

    Weights are streamed where the smallest learner of the fewest pipelines does not have all on the chip.
    """
    fewest = problem.pipelines or 1
    on_chip = _place_buffers(problem, fewest, 0, 1)
    if not problem.bytes_per_s or any(not problem.find_lacking(fewest, memory) for memory in on_chip):
        yield from _place_buffers(problem, pipelines, 0, 1)
        return
    powers = range((-(-problem.batch // pipelines) - 1).bit_length() + 1)
    for streamed, power in itertools.product(range(1, len(streamable(problem.network)) + 1), powers):
        yield from _place_buffers(problem, pipelines, streamed, 1 << power)


def _place_buffers(problem: Problem, pipelines: int, streamed: int, block: int) -> Iterator[Memory]:
    """Yield all buffers that fill an UltraRAM in such, and fewer where it is bounded."""
    held = buffers(problem.network, pipelines, problem.smallest, 1, streamed, block)
    most = sum(words >= ULTRA_WORDS for words, _, _ in held)
    for uram in range(most, most - 1 if problem.budget.uram is None else -1, -1):
        yield uram, streamed, block


def _data_parallel(problem: Problem) -> Iterator[int]:
    """Yield the given DP, or the smallest DP of each PI, as long as the smallest pipelines fit."""
    pipelines, batch = problem.pipelines or 1, problem.batch
    # Invariant: the smallest DP of every larger PI was yielded, and its smallest pipelines fit.
    while any(not problem.find_lacking(pipelines, memory) for memory in _memories(problem, pipelines)):
        yield pipelines
        samples = -(-batch // pipelines)
        if samples == 1 or problem.pipelines:
            return
        pipelines = -(-batch // (samples - 1))


@dataclass(frozen=True)
class _Branch:
    """The search at one DP and one choice of memories."""

    problem: Problem
    pipelines: int
    memory: Memory

    def learner(self, units: tuple[int, ...], update_units: int = 1) -> Learner:
        return self.problem.learner(self.pipelines, units, update_units, *self.memory)

    def fits(self, cycles: int) -> bool:
        """Tell whether stages of a given number of cycles do."""
        units = self.problem.units(cycles)
        return units is not None and self._fit(units, 1)

    def _fit(self, units: tuple[int, ...], update_units: int) -> bool:
        return not self.problem.find_lacking(self.pipelines, self.memory, units, update_units)

    def update_cycles(self, update_units: int) -> int:
        moved = update_cycles(self.problem.network, self.pipelines, update_units)
        return max(self.stream_cycles[1], moved)

    @functools.cached_property
    def stream_cycles(self) -> tuple[int, int]:
        """Cycles of the card's memory for the streamed weights: of reading them once, and of an update."""
        return stream_cycles(self.problem.network, self.memory[1], self.problem.clock_hz, self.problem.bytes_per_s)

    def find_most_updates(self, units: tuple[int, ...]) -> int:
        """Find the most update units next to these, at most one for a parameter of the largest layer and pipeline."""
        most = self.pipelines * max(layer.parameters for layer in self.problem.network.layers)
        least, mac, budget = resources(self.learner(units)), self.problem.mac, self.problem.budget
        for have, need, more in ((budget.dsp, least.dsp, mac.dsp), (budget.lut, least.lut, mac.lut)):
            if have is not None and more:
                most = min(most, 1 + (have - need) // more)  # what their MACs leave, buffers aside
        return bisect_left(range(1, most + 1), True, key=lambda count: not self._fit(units, count))

    @functools.cached_property
    def fewest_cycles(self) -> int:
        """The fewest cycles of a stage that fit."""
        longest = max(stage_cycles(stage.gemm, 1, self.problem.fill) for stage in stages(self.problem.network))
        return 1 + bisect_left(range(1, longest), True, key=self.fits)

    @functools.cached_property
    def shortest_update(self) -> int:
        """The fewest cycles of a weight update."""
        return self.update_cycles(self.find_most_updates(self.problem.smallest))

    @functools.cached_property
    def _learners(self) -> dict[tuple[int, ...], Learner]:
        return {}

    def with_updates(self, units: tuple[int, ...]) -> Learner:
        """Build a learner with as few update units as take no longer than the most there can be."""
        if units not in self._learners:
            most = self.find_most_updates(units)
            least = self.update_cycles(most)
            enough = 1 + bisect_left(range(1, most), True, key=lambda count: self.update_cycles(count) == least)
            self._learners[units] = self.learner(units, enough)
        return self._learners[units]


_branch = functools.lru_cache(maxsize=1024)(_Branch)
"""The same branch for searches that differ in the batch alone: what fits does not depend on it."""


def _fastest_with(problem: Problem, pipelines: int, memory: Memory, bound: float = math.inf) -> LearnerPoint | None:
    """Find the best with a given number of pipelines; None if none fits in at most ``bound`` cycles."""
    branch = _branch(replace(problem, batch=1), pipelines, memory)
    fill, block = problem.fill, memory[2]
    gemms = [stage.gemm for stage in stages(problem.network)]
    samples, read = -(-problem.batch // pipelines), branch.stream_cycles[0]
    passes = -(-samples // block) + longest(problem.network) - 1
    if passes * read > bound or problem.find_lacking(pipelines, memory):
        return None
    cycles, shortest_update = max(branch.fewest_cycles, read // block), branch.shortest_update
    best = None
    # Invariant: no T below is better than best, and those from here on take at least passes * T + shortest_update.
    while (units := problem.units(cycles)) and passes * max(block * cycles, read) + shortest_update <= bound:
        point = problem.point(branch.with_updates(units))
        if point.cycles <= bound and (best is None or order(point) < order(best)):
            best, bound = point, point.cycles
        pairs = zip(gemms, units, strict=True)
        cycles = min((stage_cycles(gemm, count - 1, fill) for gemm, count in pairs if count > 1), default=0)
        if not cycles:
            break
    return best
