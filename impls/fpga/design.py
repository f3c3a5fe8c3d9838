"""The shape of a replay management module (RMM), the tree of the replay manager: banks, levels and widths of nodes.

Glossary: K fanout, N leaves, S *banks* (pipelines, each over a sub-tree of its own), L *levels* a pipeline reads: those
below the sub-tree's root. Levels are counted from the leaves, as everywhere: level 0 holds them, level L is the root.

A bank is a pipeline of L stages, one memory a level, so that as many samples are under way at once. Two ways to make a
stage (``micro``): ``scan`` looks at one sibling a cycle, as [Zhang2023]; ``wide`` reads all K as one memory row.

``ports`` of a memory: ``shared``: one to read and one to write, so that sampling and updating take turns. In the others
both run at once, each at its own rate, as [Zhang2023, section IV-C]. ``dual``: a block RAM or UltraRAM has two ports
that read or write in a cycle; one samples, on the other an update reads, and writes in the next cycle, so that it takes
two. ``copied``: two memories of a port to read and one to write have the same content, one for each pipeline, and an
update takes one cycle. UltraRAM has both ports at full width, a block RAM at half of it.
"""

import functools
from dataclasses import dataclass

from ..checks import integer_at_least, one_of
from ..levels import level_sizes

MICROS = ("scan", "wide")
MOST_LEAVES = 1 << 48
MOST_BITS = 64
MOST_HZ = 1e12
BANKINGS = ("contiguous", "interleaved")
PORTS = ("shared", "dual", "copied")


@dataclass(frozen=True)
class Design:
    """One RMM. Unsigned fixed-point leaves of ``leaf_bits``; S ``banks``; ``banking`` says which leaves a bank holds.

    ``contiguous``: bank j holds the j-th part of the leaves, as [Zhang2023]. ``interleaved``: leaf i lies in bank i mod
    S, so that new leaves, and those of a tree partly filled, are spread over all banks. TypeError and ValueError for a
    design that cannot be built.
    """

    capacity: int
    fanout: int = 16
    leaf_bits: int = 18
    micro: str = "wide"
    banks: int = 1
    banking: str = "contiguous"
    clock_hz: float = 200e6
    ports: str = "shared"

    def __post_init__(self) -> None:
        for name, least in (("capacity", 1), ("fanout", 2), ("leaf_bits", 1), ("banks", 1)):
            integer_at_least(name, getattr(self, name), least)
        one_of("micro", self.micro, MICROS)
        one_of("banking", self.banking, BANKINGS)
        one_of("ports", self.ports, PORTS)
        if self.banks > self.capacity:
            raise ValueError(f"{self.banks} banks cannot share {self.capacity} leaves: at most one bank a leaf")
        for name, most in (("capacity", MOST_LEAVES), ("leaf_bits", MOST_BITS)):
            if getattr(self, name) > most:
                raise ValueError(f"{name} must be at most {most}, not {getattr(self, name)}")
        if isinstance(self.clock_hz, bool) or not isinstance(self.clock_hz, (int, float)):
            raise TypeError(f"clock_hz must be a number, not {self.clock_hz!r}")
        if not 0 < self.clock_hz <= MOST_HZ:
            raise ValueError(f"clock_hz must be above 0 and at most {MOST_HZ:g}, not {self.clock_hz:g}")

    @property
    def bank_capacity(self) -> int:
        """Leaves of the largest bank."""
        return -(-self.capacity // self.banks)

    @property
    def overlaps(self) -> bool:
        """Whether samples and updates run at once."""
        return self.ports != "shared"

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level of a bank, leaves first."""
        return level_sizes(self.bank_capacity, self.fanout)

    @property
    def levels(self) -> int:
        """L: levels that a pipeline reads, which is also the number of sums that an update changes."""
        return len(self.sizes) - 1

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Bits of a node at each level of a bank, leaves first.

        The root holds the largest sum there can be; each level down drops floor(log2 K) integer bits [Zhang2023], which
        leaves the leaves as many bits as they have where K is a power of two, and some to spare elsewhere.
        """
        drop = self.fanout.bit_length() - 1
        root = (self.fanout**self.levels - 1).bit_length() + self.leaf_bits
        return tuple(root - drop * (self.levels - level) for level in range(self.levels + 1))

    def bank_of(self, leaf: int) -> tuple[int, int]:
        """(bank, leaf within it) of a leaf."""
        if self.banking == "contiguous":
            return divmod(leaf, self.bank_capacity)
        within, bank = divmod(leaf, self.banks)
        return bank, within
