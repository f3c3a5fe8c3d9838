"""The best designs for an FPGA, by the laws of ``impls.fpga``: priced designs, their order, and sums of budgets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

from impls.fpga.resources import Budget, Resources

from ..stats import frugal

D = TypeVar("D")
BOUNDED = tuple(field.name for field in fields(Budget))


@dataclass(frozen=True)
class Slice:
    """A part of a device that a signal leaves only by a slow crossing (an SLR), and what there is in it."""

    name: str
    budget: Budget


@dataclass(frozen=True)
class Point(Generic[D]):
    """A design, its (mean) cycles for the question, and the resources that it needs."""

    design: D
    cycles: float
    needed: Resources

    @property
    def cost(self) -> tuple[float, ...]:
        """The order of ties in cycles: fewest DSP, then LUT, flip-flops, block RAMs, UltraRAMs."""
        needed = self.needed
        return needed.dsp, needed.lut, needed.ff, needed.bram36, needed.uram

    @property
    def objectives(self) -> tuple[float, ...]:
        """The objectives of a front: cycles, LUT, DSP, bits of SRAM."""
        return self.cycles, self.needed.lut, self.needed.dsp, self.needed.sram_bits


def front(points: Iterable[Point[D]]) -> list[Point[D]]:
    """Select points that no other equals or beats in cycles, LUT, DSP and SRAM; fastest first, one of equal ones."""
    ordered = sorted(points, key=lambda point: point.objectives)
    return [ordered[position] for position in frugal([point.objectives for point in ordered])]


def pool(slices: Sequence[Slice]) -> Budget:
    """Add the budgets of slices up; no bound where one has none."""
    columns = {name: [getattr(part.budget, name) for part in slices] for name in BOUNDED}
    return Budget(**{name: None if None in column else sum(column) for name, column in columns.items()})


def subtract(budget: Budget, needed: Resources) -> Budget:
    """Subtract what is needed from a budget, never below 0."""
    left = {name: (getattr(budget, name), getattr(needed, name)) for name in BOUNDED}
    return Budget(**{name: None if have is None else max(0, have - need) for name, (have, need) in left.items()})


def rate_shortage(lacking: Mapping[str, tuple[float, float]]) -> float:
    """Return the most times over that something lacking is needed, of its (have, need) by name."""
    return max(need / have if have else math.inf for have, need in lacking.values())
