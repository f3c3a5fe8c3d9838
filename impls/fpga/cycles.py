"""Cycle laws of an RMM: those of the simulated hardware of ``rtl/``, cycle for cycle, and those that others printed.

Letters as in ``design.py``; b: elements of the busiest bank. A batch starts in cycle 0; laws count the cycles until the
last result is registered (a sample, a retrieval) or the last sum is written (an update).
"""

import math
from collections.abc import Iterable

import numpy as np

from .design import Design


def interval(design: Design, op: str) -> int:
    """Cycles between two elements of one bank: K for a "sample" by scan; 2 for others by a dual port; else one.

    An index may repeat from one cycle to the next also in an "update", because sums are forwarded.
    """
    if op == "sample":
        return design.fanout if design.micro == "scan" else 1
    return 2 if design.ports == "dual" else 1


def fill(design: Design, op: str) -> int:
    """Cycles that one element takes through a bank.

    A "sample" takes K + 1 a level (scan: address, then K siblings) or 2 (wide); an "update" or "insert" reads the leaf,
    writes it, then a level a cycle up to the root; a "get" reads the leaf and registers its priority.
    """
    match op:
        case "sample":
            return design.levels * (design.fanout + 1 if design.micro == "scan" else 2)
        case "get":
            return 2
    return 2 + design.levels


def dispatch(design: Design) -> int:
    """Cycles from the input to a bank: none where there is one bank, else one."""
    return 0 if design.banks == 1 else 1


def count_cycles(design: Design, op: str, busiest: int) -> int:
    """(b - 1) intervals + fill, for b elements on the busiest bank, all of them there from the start."""
    return dispatch(design) + (busiest - 1) * interval(design, op) + fill(design, op) if busiest else 0


def count_queued_cycles(design: Design, op: str, banks: Iterable[int]) -> int:
    """Cycles of elements that come in this order, each given by its bank ``[B]``, S of them a cycle.

    They end when the last bank is done, where a bank begins an element once it has come and the last has gone on. So a
    bank begins its last element no sooner than an interval for each element behind any other came.
    """
    bank = np.asarray(banks if isinstance(banks, np.ndarray) else list(banks), np.int64)
    if not bank.size:
        return 0
    order = np.argsort(bank, kind="stable")
    ends = np.cumsum(np.bincount(bank))
    behind = ends[bank[order]] - 1 - np.arange(bank.size)
    arrived = dispatch(design) + order // design.banks
    return int((arrived + behind * interval(design, op)).max()) + fill(design, op)


# Laws that others printed


def published_sample_cycles(design: Design, batch: int) -> float:
    """B / S * K [Zhang2023], without fill and without the load of the busiest bank."""
    return batch / design.banks * design.fanout


def published_update_cycles(design: Design, batch: int) -> float:
    """B / S [Zhang2023], for updates."""
    return batch / design.banks


def depth(design: Design) -> int:
    """Levels of a tree without banks."""
    return max(1, math.ceil(math.log(design.capacity, design.fanout) - 1e-9))
