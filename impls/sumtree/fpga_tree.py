"""The sum tree of an FPGA: a functional twin, bit for bit, of fixed-point hardware, and a model of the time it takes.

Leaves are unsigned integers of ``leaf_bits`` bits, in quanta of 2^-``fraction_bits``. A sum is never rounded, because
each level up has log2 K bits more ([Zhang2023]: W_level = W_parent - log2 K), so every sum is exact and ``check()`` is
0. Times come from the cycle laws of ``impls/fpga``, which equal those of simulated hardware; no stopwatch is involved.

The twin keeps the contract's order of leaves whatever ``banking`` says: banking moves leaves between banks, hence
changes times, and in hardware also which leaf a prefix value falls on, but no leaf's probability.
"""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, one_of
from ..fpga.design import Design
from ..fpga.model import LAWS, Ledger, Link, bank_sums, ledger
from ..levels import group_size
from .arguments import Indices, Priorities, Reals, in_parts, nothing_to_sample, sums_of_ranges
from .contract import READS, SumTree

Quanta = NDArray[np.uint64]

WORD_BITS = 64  # the root must fit one word of the twin
EXACT_BITS = 53  # a priority must fit a float64
MOST_FRACTION_BITS = 126  # a quantum must be a normal float32
INTEGER_BITS = 20  # of a leaf by default: priorities up to a million
MOST_BANKS = 32  # by default, as [Zhang2023]
ROUNDINGS = {"nearest": np.rint, "down": np.floor, "up": np.ceil}


class FpgaTree(SumTree):
    """Fixed-point sums in 64-bit words, and ``modeled_seconds`` in place of a stopwatch.

    Options of the format; ``dtype`` is that of the priorities returned, and priorities are rounded to it first:

    * ``leaf_bits``: by default the widest the twin holds, 64 - log2 N up to 53. Hardware wants fewer: 18 fill a memory.
    * ``fraction_bits``: by default all but 20, at least half. A priority above ``largest_priority`` is refused, one
      below ``smallest_priority`` is stored as 0 and never sampled.
    * ``rounding="nearest"`` (ties to even), ``"down"``, or ``"up"``, which never loses a priority.

    Options of the hardware, which change the twin's times alone: ``micro="wide"|"scan"``, ``banks`` (by default 32, as
    [Zhang2023], or as many as there are leaves), ``banking="interleaved"|"contiguous"``, ``clock_hz``,
    ``ports="shared"|"dual"|"copied"``, of which the last two sample and update at once, in a "step", and the ``law`` to
    count cycles by: ``"rtl"``, ``"published"`` or ``"pearl"``. See :class:`impls.fpga.design.Design` and
    :mod:`impls.fpga.model`. ``link``, the connection to the host, gives the seconds of ``upload`` and ``download``;
    without it they are a ValueError.

    ``minimum`` is ignored: :meth:`min` reads every leaf of the twin.

    Calls of the twin that only read run side by side; an update and a model's question run alone.
    """

    concurrent = READS
    runs_on = "fpga"
    modeled = True
    variants = (
        {"leaf_bits": 18},  # what hardware would have; by default the twin's leaves are as wide as they can be
        {"micro": "scan", "banking": "contiguous", "leaf_bits": 17},  # [Zhang2023]
    )

    def __init__(
        self,
        capacity: int,
        *,
        fanout: int = 16,
        leaf_bits: int | None = None,
        fraction_bits: int | None = None,
        rounding: str = "nearest",
        micro: str = "wide",
        banks: int | None = None,
        banking: str = "interleaved",
        clock_hz: float = 200e6,
        ports: str = "shared",
        law: str = "rtl",
        link: Link | None = None,
        **common: Any,
    ) -> None:
        capacity = integer_at_least("capacity", capacity, 1)
        most = min(EXACT_BITS, WORD_BITS - (capacity - 1).bit_length())
        leaf_bits = most if leaf_bits is None else integer_at_least("leaf_bits", leaf_bits, 1)
        if leaf_bits > most:
            raise ValueError(f"leaf_bits must be at most {most} at {capacity} leaves, not {leaf_bits}")
        if fraction_bits is None:
            fraction_bits = max(leaf_bits - INTEGER_BITS, leaf_bits // 2)
        self._fraction_bits = integer_at_least("fraction_bits", fraction_bits, 0)
        if fraction_bits > MOST_FRACTION_BITS:
            raise ValueError(f"fraction_bits must be at most {MOST_FRACTION_BITS}, not {fraction_bits}")
        self._rounding = one_of("rounding", rounding, tuple(ROUNDINGS))
        self._law, self._link = one_of("law", law, LAWS), link
        banks = min(MOST_BANKS, capacity) if banks is None else banks
        self._design = Design(capacity, fanout, leaf_bits, micro, banks, banking, clock_hz, ports)
        super().__init__(capacity, fanout=fanout, **common)

    def _allocate(self) -> None:
        self._quantum = math.ldexp(1.0, -self._fraction_bits)
        highest = ((1 << self._design.leaf_bits) - 1) * self._quantum
        rounded = self._dtype.type(highest)
        fits = float(rounded) <= highest
        self._max_priority = float(rounded if fits else np.nextafter(rounded, self._dtype.type(0)))
        self._width = group_size(self._capacity, self._fanout)
        self._children = min(self._fanout, self._width)  # of a node that has any; a wider fanout is no int64
        self._levels: list[Quanta] = [
            np.zeros(-(-size // self._width) * self._width, np.uint64) for size in self._sizes
        ]

    def _option(self, name: str) -> Any:
        return getattr(self._design, name) if hasattr(self._design, name) else super()._option(name)

    # The twin: integers, so that neither order nor grouping matters

    def _set(self, indices: Indices, priorities: Reals) -> None:
        self._levels[0][indices] = self._quanta(priorities)  # NumPy assigns in order: the last duplicate wins
        self._refresh(indices)

    def _quanta(self, priorities: ArrayLike) -> Quanta:
        """Leaves ``[B]`` that hold the priorities ``[B]``."""
        return ROUNDINGS[self._rounding](super().rounded(priorities) / self._quantum).astype(np.uint64)

    def _refresh(self, nodes: Indices) -> None:
        """Sum the groups above these leaves again, level by level: what the hardware does by adding the changes."""
        for below, level in itertools.pairwise(self._levels):
            # Invariant: nodes are the nodes of ``below`` above a change; that level is right.
            nodes = np.unique(nodes // self._children)
            level[nodes] = self._groups(below)[nodes].sum(axis=1)

    def _groups(self, level: Quanta) -> Quanta:
        return level.reshape(-1, self._width)

    def _get(self, indices: Indices) -> Priorities:
        priorities: Priorities = (self._levels[0][indices] * self._quantum).astype(self._dtype)
        return priorities

    def _find(self, mass: Reals) -> Indices:
        root = self._levels[-1][0]
        if not root:
            raise RuntimeError(nothing_to_sample(0.0))
        # A sum is above a prefix value if it is above its whole quanta. The total as a float64 may be above the root.
        rests = np.minimum(np.floor(mass / self._quantum).astype(np.uint64), root - np.uint64(1))
        return in_parts(self._descend, rests, self._width)

    def _descend(self, rests: Quanta) -> Indices:
        rows, nodes = np.arange(rests.size), np.zeros(rests.size, np.int64)
        for level in self._levels[-2::-1]:
            groups = self._groups(level)[nodes]
            ends = groups.cumsum(axis=1)
            child = (ends > rests[:, None]).argmax(axis=1)
            rests = rests - (ends[rows, child] - groups[rows, child])
            # Invariant: 0 <= rests < sum of the child.
            nodes = nodes * self._children + child
        return nodes

    def _range_sum(self, left: Indices, right: Indices) -> Reals:
        levels = [self._groups(level) for level in self._levels]
        sums: Reals = sums_of_ranges(levels, self._children, left, right, np.uint64) * self._quantum
        return sums

    def _total(self) -> float:
        return int(self._levels[-1][0]) * self._quantum

    def _check(self) -> float:
        wrong = 0
        for below, level in itertools.pairwise(self._levels):
            sums = self._groups(below).sum(axis=1)
            stored = level[: sums.size]
            wrong = max(wrong, int((np.maximum(stored, sums) - np.minimum(stored, sums)).max()))
        return wrong * self._quantum

    def _rebuild(self) -> None:
        for below, level in itertools.pairwise(self._levels):
            sums = self._groups(below).sum(axis=1)
            level[: sums.size] = sums

    def _load(self, leaves: Reals) -> None:
        self._levels[0][: self._capacity] = self._quanta(leaves)
        self._rebuild()

    @property
    def nbytes(self) -> int:
        """Bytes of the twin in host memory."""
        return sum(level.nbytes for level in self._levels)

    # The format

    def rounded(self, priorities: ArrayLike) -> Reals:
        return np.multiply(self._quanta(priorities), self._quantum, dtype=np.float64)

    @property
    def smallest_priority(self) -> float:
        match self._rounding:
            case "down":
                return self._quantum
            case "nearest":  # half a quantum itself goes to the even 0
                return float(np.nextafter(self._dtype.type(self._quantum / 2), self._dtype.type(1)))
        return super().smallest_priority

    # The hardware

    @property
    def design(self) -> Design:
        """The hardware whose times are modeled."""
        return self._design

    def ledger(self, op: str, batch: int) -> Ledger:
        """Cycles and seconds of one call of ``op`` on ``batch`` elements, by the load of the leaves on the banks."""
        return self._read("ledger", self._ledger, op, batch)

    def _ledger(self, op: str, batch: int) -> Ledger:
        leaves = self._levels[0][: self._capacity]
        shares = bank_sums(self._design, leaves) if self._total() else None
        return ledger(self._design, op, batch, shares, self._law, self._link)

    def modeled_seconds(self, op: str, batch: int) -> float:
        return self.ledger(op, batch).seconds
