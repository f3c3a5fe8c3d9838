"""Price every replay management module: banks S, fanout K, micro-architecture, banking, ports, width of leaves.

The objective is the mean number of cycles to sample a batch and to update one, in turn or at once by its ports, by the
laws of ``cycles.py`` and the batches of ``model.py``, as if every leaf weighed the same. There are few enough designs
to price them all.

Ties: fewest cycles, then interleaved banks, which alone stay as fast where a buffer is part full, then the widest
leaves, then the order of ``Point.cost``, then fewest banks, smallest fanout, ``MICROS``,
``PORTS``, smallest queue, with UltraRAM. With a slower learner, ``design.py`` takes the cheapest of the faster RMMs.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from impls.checks import integer_at_least
from impls.fpga import cycles
from impls.fpga.design import BANKINGS, MICROS, PORTS, Design
from impls.fpga.model import batches, step_cycles
from impls.fpga.resources import Resources, resources

from . import Point

FANOUTS = (2, 4, 8, 16)
BANKS = (1, 2, 4, 8, 16, 32, 64)
LEAF_BITS = (18,)
QUEUES = (256, 1024, 4096)


@dataclass(frozen=True)
class Rmm:
    """A design whose queues are deep enough for ``queue`` elements: a larger batch is handed off in parts of these."""

    design: Design
    queue: int
    uram: bool

    def cycles(self, batch: int) -> float:
        """Compute the mean cycles of sampling a batch and updating it, part after part."""
        whole, rest = divmod(batch, self.queue)
        spent = whole * mean_cycles(self.design, self.queue)
        return spent + mean_cycles(self.design, rest) if rest else spent

    @property
    def needed(self) -> Resources:
        """Resources that the design takes of a device."""
        return resources(self.design, batch=self.queue, uram=self.uram)


RmmPoint = Point[Rmm]


@dataclass(frozen=True)
class Space:
    """The designs in question, for batches of ``batch``; ``queues`` deeper than that are as deep as that.

    By default all sample and update in turn.
    """

    capacity: int
    batch: int
    fanouts: Sequence[int] = FANOUTS
    banks: Sequence[int] = BANKS
    leaf_bits: Sequence[int] = LEAF_BITS
    queues: Sequence[int] = QUEUES
    clock_hz: float = 200e6
    ports: Sequence[str] = PORTS[:1]

    def __post_init__(self) -> None:
        integer_at_least("capacity", self.capacity, 1)
        integer_at_least("batch", self.batch, 1)

    def designs(self) -> Iterator[Rmm]:
        """Yield all that can be built; one bank is interleaved and contiguous alike, and has no queue."""
        queues = sorted({min(queue, self.batch) for queue in self.queues}) or [self.batch]
        for banks in self.banks:
            if banks > self.capacity:
                continue
            for queue in queues if banks > 1 else [self.batch]:
                axes = (BANKINGS if banks > 1 else BANKINGS[:1], self.fanouts, MICROS, self.leaf_bits, self.ports)
                for banking, fanout, micro, bits, ports in itertools.product(*axes):
                    design = Design(self.capacity, fanout, bits, micro, banks, banking, self.clock_hz, ports)
                    yield from (Rmm(design, queue, uram) for uram in (True, False))


def priced(space: Space) -> list[RmmPoint]:
    """Price every design, in order of preference."""
    points = [Point(rmm, rmm.cycles(space.batch), rmm.needed) for rmm in space.designs()]
    return sorted(points, key=_order)


def _order(point: RmmPoint) -> tuple[object, ...]:
    rmm, design = point.design, point.design.design
    spread = design.banking == "contiguous"
    kinds = (MICROS.index(design.micro), PORTS.index(design.ports))
    shape = (design.banks, design.fanout, *kinds, rmm.queue, not rmm.uram)
    return (point.cycles, spread, -design.leaf_bits, *point.cost, *shape)


@functools.lru_cache(maxsize=4096)
def mean_cycles(design: Design, batch: int) -> float:
    """Compute the mean cycles of sampling a batch and then updating it, or the batch before it at the same time.

    As ``model.ledger``, for a whole space at once.
    """
    if design.banks == 1:
        sample, update = (np.array([cycles.count_cycles(design, op, batch)]) for op in ("sample", "update"))
    else:
        arrived, behind = _queues(design.capacity, design.banks, design.banking, batch)
        # Each element waits for those of its bank before it.
        sample, update = (
            (arrived + behind * cycles.interval(design, op)).max(axis=1)
            + cycles.fill(design, op)
            + cycles.dispatch(design)
            for op in ("sample", "update")
        )
    return step_cycles(design, sample, update)


@functools.lru_cache(maxsize=8)
def _queues(capacity: int, banks: int, banking: str, batch: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return, by batch and element, the cycle in which it comes, S a cycle, and how many of its bank come behind."""
    sampled = np.stack(list(batches(Design(capacity, banks=banks, banking=banking), "sample", batch, None)))
    last_first = sampled[:, ::-1]
    order = np.argsort(last_first, axis=1, kind="stable")
    grouped = np.take_along_axis(last_first, order, axis=1)
    positions = np.arange(batch)
    begins = np.where(np.diff(grouped, axis=1, prepend=-1) != 0, positions, 0)
    behind = np.empty(sampled.shape, np.int32)
    np.put_along_axis(behind, order, (positions - np.maximum.accumulate(begins, axis=1)).astype(np.int32), axis=1)
    return (positions // banks).astype(np.int32)[None, :], behind[:, ::-1]
