"""Model of an operation on the RMM: a ledger of cycles, and of the link to the host. No stopwatch, pure arithmetic.

An element goes to the bank that holds its leaf, so a batch takes as long as its busiest bank. Where prefix values or
leaves are random, so is that load: the model takes the mean over random batches (seeded, so that the same question has
the same answer). Where sampling and updating share the memories' ports, operations never overlap: cycles add up. Else
a step takes the larger part of two: to sample a batch, or to update the batch before it. A sample comes with its leaf's
priority, so a step retrieves none.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least, one_of
from . import cycles
from .design import Design

OPS = ("sample", "draw", "update", "get", "insert", "step", "total", "upload", "download")
PARTS = {
    "sample": ("sample",),
    "draw": ("sample",),
    "get": ("get",),
    "update": ("update",),
    "insert": ("insert",),
    "step": ("sample", "update"),
}
"""Passes of the pipelines for each operation, one after the other, but for a step of a design that overlaps."""
UPDATE_AFTER = "update: after the last sample"
LAWS = ("rtl", "published", "pearl")
"""``rtl``: simulated hardware. ``published``: [Zhang2023], B/S K and B/S. ``pearl``: the open model of [Meng2024]."""
ELEMENT_BYTES = 8  # a uniform or an index on the link
ROOT_CYCLES = 1  # a register is read
DRAWN_ELEMENTS = 1 << 18  # random elements over which the load of the busiest bank is averaged
FEWEST_BATCHES, MOST_BATCHES = 8, 256

Shares = NDArray[np.float64]
Banks = NDArray[np.int64]


class Link(NamedTuple):
    """The link between host and device: functions from bytes to seconds, one for each direction."""

    to_device_seconds: Callable[[int], float]
    from_device_seconds: Callable[[int], float]


@dataclass(frozen=True)
class Ledger:
    """One call of ``op`` on ``batch`` elements: mean cycles by activity, and seconds on the link.

    ``busiest``: mean elements of the busiest bank; B / S would be an even load.
    """

    op: str
    batch: int
    law: str
    entries: tuple[tuple[str, float], ...]
    busiest: float
    clock_hz: float
    link_seconds: float = 0.0

    @property
    def cycles(self) -> float:
        """Mean cycles in all."""
        return math.fsum(spent for _, spent in self.entries)

    @property
    def seconds(self) -> float:
        """Mean seconds in all."""
        return self.cycles / self.clock_hz + self.link_seconds


def ledger(
    design: Design, op: str, batch: int, shares: Shares | None = None, law: str = "rtl", link: Link | None = None
) -> Ledger:
    """Cycles and seconds of ``op``. ``shares [S]`` weigh the banks, by default as if all leaves were equal.

    "draw", "sample": B random prefix values; "update", "get": the leaves these fall on; "insert": B leaves in a row;
    "step": draw and update, by "rtl" at once where a design can; "total": the root; "upload", "download": B elements of
    8 bytes over the link. ValueError for any other, and for a transfer without a link.
    """
    one_of("op", op, OPS)
    one_of("law", law, LAWS)
    batch = integer_at_least("batch", batch, 0)
    if op in ("upload", "download") and batch:
        if link is None:
            raise ValueError(f"{op} takes what the link to the host takes; give link=Link(...)")
        move = link.to_device_seconds if op == "upload" else link.from_device_seconds
        return Ledger(op, batch, law, (), 0.0, design.clock_hz, move(batch * ELEMENT_BYTES))
    if op == "total":
        return Ledger(op, batch, law, (("read the root", ROOT_CYCLES),), 0.0, design.clock_hz)
    parts = PARTS[op] if batch else ()
    if law != "rtl":
        printed = tuple(_PRINTED[law](design, part, batch) for part in parts)
        return Ledger(op, batch, law, printed, 0.0, design.clock_hz)
    sampled = list(batches(design, op, batch, shares))
    at_once = design.overlaps and len(parts) > 1
    entries = tuple(entry for part in parts[: 1 if at_once else None] for entry in _entries(design, part, sampled))
    if at_once:
        sides = ([cycles.count_queued_cycles(design, part, banks) for banks in sampled] for part in parts)
        entries += ((UPDATE_AFTER, step_cycles(design, *sides) - math.fsum(spent for _, spent in entries)),)
    busiest = float(np.mean([np.bincount(banks).max() for banks in sampled])) if batch else 0.0
    return Ledger(op, batch, law, entries, busiest, design.clock_hz)


def batches(design: Design, op: str, batch: int, shares: Shares | None) -> Iterator[Banks]:
    """Batches as the banks ``[B]`` of their elements, in the order they come: one for "insert", else random ones."""
    if op == "insert":
        yield np.array([design.bank_of(slot % design.capacity)[0] for slot in range(batch)], np.int64)
        return
    ends = np.cumsum(bank_sizes(design) if shares is None else shares, dtype=np.float64)
    rng = np.random.default_rng(batch)
    for _ in range(min(MOST_BATCHES, max(FEWEST_BATCHES, DRAWN_ELEMENTS // max(batch, 1)))):
        yield ends.searchsorted(rng.random(batch) * ends[-1], side="right").clip(max=ends.size - 1)


def bank_sizes(design: Design) -> NDArray[np.int64]:
    """Number of leaves in each bank, ``[S]``."""
    if design.banking == "contiguous":
        starts = np.arange(design.banks) * design.bank_capacity
        return (design.capacity - starts).clip(0, design.bank_capacity)
    return (design.capacity - np.arange(design.banks) + design.banks - 1) // design.banks


def bank_sums(design: Design, leaves: NDArray[Any]) -> Shares:
    """Sum of the leaves of each bank, ``[S]``; ``leaves [N]`` in their own order."""
    whole = np.zeros(design.banks * design.bank_capacity)
    whole[: design.capacity] = leaves
    axis = 1 if design.banking == "contiguous" else 0
    sums: Shares = whole.reshape((design.banks, -1) if axis else (-1, design.banks)).sum(axis=axis)
    return sums


def _entries(design: Design, part: str, sampled: list[Banks]) -> list[tuple[str, float]]:
    """Mean cycles of one pass over the batches: dispatch, fill, and the busiest bank's further elements."""
    if not sampled or not sampled[0].size:
        return []
    mean = float(np.mean([cycles.count_queued_cycles(design, part, banks) for banks in sampled]))
    dispatch, filled = cycles.dispatch(design), cycles.fill(design, part)
    return [
        (f"{part}: dispatch", dispatch),
        (f"{part}: fill", filled),
        (f"{part}: the busiest bank's other elements", mean - dispatch - filled),
    ]


def step_cycles(design: Design, sample: ArrayLike, update: ArrayLike) -> float:
    """Mean cycles of a step, by batch ``[D]`` those of its sample and of its update: both, or the longer at once.

    At once with a sample is the update of the batch before it.
    """
    sums = np.maximum(sample, np.roll(update, 1)) if design.overlaps else np.add(sample, update)
    return float(sums.mean())


def _published(design: Design, part: str, batch: int) -> tuple[str, float]:
    if part == "sample":
        return "sample: B / S K", cycles.published_sample_cycles(design, batch)
    return f"{part}: B / S", cycles.published_update_cycles(design, batch)


def _pearl(design: Design, part: str, batch: int) -> tuple[str, float]:
    """The open performance model of [Meng2024] (HeteroRL) without its host link. It has no banks.

    That an update takes as long whatever the batch is an oversight there.
    """
    if part == "sample":
        return "sample: 2 K (B + depth)", 2 * design.fanout * (batch + cycles.depth(design))
    return f"{part}: 2 depth", 2 * cycles.depth(design)


_PRINTED = {"published": _published, "pearl": _pearl}
