"""Cycle laws of an RMM: what the simulated hardware of ``rtl/`` takes, cycle for cycle, and what others have printed.

Letters as in ``design.py``; b: elements of the busiest bank. A batch starts in cycle 0; what is told is how many cycles
pass until the last result is registered (a sample, a retrieval) or the last sum is written (an update).
"""

import math
from collections.abc import Iterable

import numpy as np

from .design import Design


def initiation_interval(design: Design) -> int:
    """Cycles between two samples of one bank."""
    return design.fanout if design.micro == "scan" else 1


def sample_fill(design: Design) -> int:
    """Cycles one sample takes through a bank: per level, K + 1 (scan: address, then K siblings) or 2 (wide)."""
    return design.levels * (design.fanout + 1 if design.micro == "scan" else 2)


def update_fill(design: Design) -> int:
    """Cycles one update takes through a bank: read the leaf, write it, then a level a cycle up to the root."""
    return 2 + design.levels


def get_fill(design: Design) -> int:
    """Cycles one retrieval takes through a bank: read the leaf, hand on its priority."""
    return 2


def dispatch(design: Design) -> int:
    """Cycles from the input to a bank: none where there is one bank, else one."""
    return 0 if design.banks == 1 else 1


def sample_cycles(design: Design, busiest: int) -> int:
    """(b - 1) II + fill: a batch of which b samples fall on the busiest bank, all of them there from the start."""
    return _cycles(design, busiest, initiation_interval(design), sample_fill(design))


def update_cycles(design: Design, busiest: int) -> int:
    """(b - 1) + fill; an index may repeat from one cycle to the next, for sums are forwarded."""
    return _cycles(design, busiest, 1, update_fill(design))


def get_cycles(design: Design, busiest: int) -> int:
    """(b - 1) + fill."""
    return _cycles(design, busiest, 1, get_fill(design))


def _cycles(design: Design, busiest: int, interval: int, fill: int) -> int:
    return dispatch(design) + (busiest - 1) * interval + fill if busiest else 0


def sample_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """The same for samples that come in this order, each given by its bank, S of them a cycle."""
    return _queued(design, banks, initiation_interval(design), sample_fill(design))


def update_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """The same for updates."""
    return _queued(design, banks, 1, update_fill(design))


def get_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """The same for retrievals."""
    return _queued(design, banks, 1, get_fill(design))


def _queued(design: Design, banks: Iterable[int], interval: int, fill: int) -> int:
    """A bank begins an element when it has come and the one before has gone on.

    So it begins its last one ``interval`` cycles later than another came for each that is behind that other.
    """
    bank = np.asarray(banks if isinstance(banks, np.ndarray) else list(banks), np.int64)
    if not bank.size:
        return 0
    order = np.argsort(bank, kind="stable")
    ends = np.cumsum(np.bincount(bank))
    behind = ends[bank[order]] - 1 - np.arange(bank.size)
    arrived = dispatch(design) + order // design.banks
    return int((arrived + behind * interval).max()) + fill


# What others have printed


def published_sample_cycles(design: Design, batch: int) -> float:
    """Seed 3: B / S * K. Neither fill nor the load of the busiest bank."""
    return batch / design.banks * design.fanout


def published_update_cycles(design: Design, batch: int) -> float:
    """Seed 3: B / S."""
    return batch / design.banks


def pearl_sample_cycles(design: Design, batch: int) -> int:
    """The authors' later open model (HeteroRL): 2 K (B + depth), no banks; its host link is a matter of its own."""
    return 2 * design.fanout * (batch + _depth(design))


def pearl_update_cycles(design: Design) -> int:
    """The same: 2 depth, whatever the batch (an oversight of theirs)."""
    return 2 * _depth(design)


def _depth(design: Design) -> int:
    return max(1, math.ceil(math.log(design.capacity, design.fanout) - 1e-9))
