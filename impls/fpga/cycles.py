"""Cycle laws of an RMM: those of the simulated hardware of ``rtl/``, cycle for cycle, and those that others printed.

Letters as in ``design.py``; b: elements of the busiest bank. A batch starts in cycle 0; laws count the cycles until the
last result is registered (a sample, a retrieval) or the last sum is written (an update).
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
    """Cycles one retrieval takes through a bank: read the leaf, register its priority."""
    return 2


def dispatch(design: Design) -> int:
    """Cycles from the input to a bank: none where there is one bank, else one."""
    return 0 if design.banks == 1 else 1


def sample_cycles(design: Design, busiest: int) -> int:
    """(b - 1) II + fill, for b samples on the busiest bank, all of them there from the start."""
    return _cycles(design, busiest, initiation_interval(design), sample_fill(design))


def update_cycles(design: Design, busiest: int) -> int:
    """(b - 1) + fill, for updates; an index may repeat from one cycle to the next, because sums are forwarded."""
    return _cycles(design, busiest, 1, update_fill(design))


def get_cycles(design: Design, busiest: int) -> int:
    """(b - 1) + fill, for retrievals."""
    return _cycles(design, busiest, 1, get_fill(design))


def _cycles(design: Design, busiest: int, interval: int, fill: int) -> int:
    return dispatch(design) + (busiest - 1) * interval + fill if busiest else 0


def sample_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """Cycles of samples that come in this order, each given by its bank ``[B]``, S of them a cycle."""
    return _queued(design, banks, initiation_interval(design), sample_fill(design))


def update_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """Cycles of updates that come in this order, as :func:`sample_cycles_of`."""
    return _queued(design, banks, 1, update_fill(design))


def get_cycles_of(design: Design, banks: Iterable[int]) -> int:
    """Cycles of retrievals that come in this order, as :func:`sample_cycles_of`."""
    return _queued(design, banks, 1, get_fill(design))


def _queued(design: Design, banks: Iterable[int], interval: int, fill: int) -> int:
    """Cycles until the last bank is done, where a bank begins an element once it has come and the last has gone on.

    So a bank begins its last element no sooner than ``interval`` cycles for each element behind any other came.
    """
    bank = np.asarray(banks if isinstance(banks, np.ndarray) else list(banks), np.int64)
    if not bank.size:
        return 0
    order = np.argsort(bank, kind="stable")
    ends = np.cumsum(np.bincount(bank))
    behind = ends[bank[order]] - 1 - np.arange(bank.size)
    arrived = dispatch(design) + order // design.banks
    return int((arrived + behind * interval).max()) + fill


# Laws that others printed


def published_sample_cycles(design: Design, batch: int) -> float:
    """B / S * K [Zhang2023], without fill and without the load of the busiest bank."""
    return batch / design.banks * design.fanout


def published_update_cycles(design: Design, batch: int) -> float:
    """B / S [Zhang2023], for updates."""
    return batch / design.banks


def pearl_sample_cycles(design: Design, batch: int) -> int:
    """2 K (B + depth), no banks: the open performance model of [Meng2024] (HeteroRL), without its host link."""
    return 2 * design.fanout * (batch + _depth(design))


def pearl_update_cycles(design: Design) -> int:
    """2 depth, whatever the batch (an oversight): the open performance model of [Meng2024], for updates."""
    return 2 * _depth(design)


def _depth(design: Design) -> int:
    return max(1, math.ceil(math.log(design.capacity, design.fanout) - 1e-9))
