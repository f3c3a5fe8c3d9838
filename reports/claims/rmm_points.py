"""Price design points of the RMM, the published one and better ones, and measure how evenly their banks are loaded.

Every time is modeled, by laws that equal simulated hardware cycle for cycle; the host's link is fitted to a quoted log.
"""

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse import platforms
from impls.fpga.design import BANKINGS, Design
from impls.fpga.model import ELEMENT_BYTES, Ledger, Link, bank_sums, ledger
from impls.fpga.resources import BATCH, Resources, resources

from .quoted import Quoted

CAPACITY = 1 << 20
BATCHES = (32, 1_024, 65_536)  # in the table of designs
CURVE = (32, 64, 128, 256, 1_024, 4_096, 16_384, 65_536)  # in the figure
BANKED = (256, 1_024, 16_384)  # for the imbalance of banks
UNIFORM = "uniform priorities"
PART_FULL = "buffer 10 % full"
NEWEST = "newest 5 % at the maximum, rest rank^-0.6"
INSERTED = "B new leaves inserted"


@dataclass(frozen=True)
class Point:
    """A design, its slice of the device, and the laws of its cycles."""

    name: str
    design: Design
    slr: str
    laws: tuple[str, ...] = ("rtl",)


PUBLISHED = Point("published", Design(CAPACITY, 2, 17, "scan", 32, "contiguous"), "slr1", ("rtl", "published"))
NARROW = Point("ours, K = 4", Design(CAPACITY, 4, 18, "wide", 32, "interleaved"), "slr1")
WIDE = Point("ours, K = 16", Design(CAPACITY, 16, 18, "wide", 32, "interleaved"), "slr0")
DOUBLE = Point("ours, S = 64", Design(CAPACITY, 16, 18, "wide", 64, "interleaved"), "slr0")
BUILDABLE = (PUBLISHED, NARROW, WIDE)
"""Points that fit their slice, for batches of up to ``BATCH``."""
POINTS = (*BUILDABLE, DOUBLE)
"""All points. The published one has the 17-bit leaves that its 4.5 MB allow; shares say whether one of ours fits."""


def said(design: Design) -> str:
    """Write a design in a few words."""
    return (
        f"{design.micro}, K = {design.fanout}, S = {design.banks} {design.banking}, {design.leaf_bits}-bit leaves, "
        f"N = {design.capacity:,}"
    )


@functools.cache
def call(design: Design, op: str, batch: int, law: str = "rtl") -> Ledger:
    """Compute what one call takes, as if every leaf weighed the same."""
    return ledger(design, op, batch, law=law)


@functools.cache
def link() -> Link:
    """Load the link between the host and the device, as the file of [Zhang2023]'s platform fits it to a quoted log."""
    move = platforms.load("u200").transfer_seconds
    return Link(functools.partial(move, "cpu", "fpga"), functools.partial(move, "fpga", "cpu"))


def link_seconds(batch: int) -> float:
    """Compute what the host adds to one call: B elements of 8 bytes sent, and as many fetched."""
    return sum(seconds(batch * ELEMENT_BYTES) for seconds in link())


SHELL = "alveo_u200.shell_202110"
"""The shell that leaves these slices: the later of the two quoted, and the only one with its UltraRAMs."""
SHARED = ("lut", "ff", "dsp", "bram36", "uram")


@dataclass(frozen=True)
class Taken:
    """Resources of one pipeline and of the whole, for batches of up to ``batch``, and shares of the slice it is in.

    ``dispatch_lut``: of the whole, what is in no pipeline.
    """

    pipeline: Resources
    whole: Resources
    shares: dict[str, float]
    batch: int
    dispatch_lut: int


def taken(point: Point, quoted: Quoted, batch: int = BATCH) -> Taken:
    """Compute what a design point takes by the fitted law."""
    one = dataclasses.replace(point.design, capacity=point.design.bank_capacity, banks=1)
    whole = resources(point.design, batch=batch)
    have = quoted.table(f"{SHELL}.{point.slr}")
    shares = {kind: getattr(whole, kind) / have[kind] for kind in SHARED}
    pipeline = resources(one, batch=batch)
    return Taken(pipeline, whole, shares, batch, whole.lut - point.design.banks * pipeline.lut)


@dataclass(frozen=True)
class Load:
    """Mean elements of the busiest bank in batches of ``batch``, by how leaves are dealt and what the buffer holds."""

    banking: str
    filling: str
    batch: int
    busiest: float
    banks: int

    @property
    def over_even(self) -> float:
        """The busiest bank's load over an even share; at least 1."""
        return self.busiest * self.banks / self.batch


def _fillings(capacity: int) -> dict[str, NDArray[np.float64]]:
    """Make the leaves ``[N]`` of each filling, in the order of their insertion."""
    rng = np.random.default_rng(capacity)
    uniform = rng.random(capacity)
    skewed = rng.permutation(np.arange(1.0, capacity + 1) ** -0.6)
    newest = np.arange(capacity) < capacity // 20
    return {
        UNIFORM: uniform,
        PART_FULL: np.where(np.arange(capacity) < capacity // 10, uniform, 0),
        "newest 5 % at the maximum, rest uniform": np.where(newest, 1, uniform),
        NEWEST: np.where(newest, 1, skewed),
    }


@functools.cache
def loads() -> tuple[Load, ...]:
    """Compute the loads of both bankings, all fillings and batches, with the published number of banks."""
    banks, results = PUBLISHED.design.banks, []
    fillings = _fillings(CAPACITY)
    for banking in BANKINGS:
        design = Design(CAPACITY, banks=banks, banking=banking)
        for batch in BANKED:
            for filling, leaves in fillings.items():
                busiest = ledger(design, "sample", batch, bank_sums(design, leaves)).busiest
                results.append(Load(banking, filling, batch, busiest, banks))
            busiest = ledger(design, "insert", batch).busiest
            results.append(Load(banking, INSERTED, batch, busiest, banks))
    return tuple(results)


def load_of(banking: str, filling: str, batch: int) -> Load:
    """Return the load of one banking, filling and batch."""
    return next(load for load in loads() if (load.banking, load.filling, load.batch) == (banking, filling, batch))
