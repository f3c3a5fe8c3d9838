"""One mutex around every operation, copies of rows included: what [Zhang2021, Fig. 10] compares with.

And the kernels of all strategies under which an operation has the whole replay, whatever they enter and leave by.
"""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.kernels.header import kernel
from ...sumtree.lanes import word_of
from .. import tree_lock
from ..block import BANK, READ_WRITE
from ..blocks import Kernels
from ..replay import Replay
from ..sampling import DRAWN, begin, gather, search, weigh
from ..steps import COMMITTED, DONE, NOT_FINITE, RESERVE, RETRIEVE, RETRIEVED, SEARCH, SEARCHED, UPDATE, UPDATED, point
from ..sync import inner, read_lock, read_write_unlock, write_lock
from ..updating import are_finite, commit, first_of, leaves_of, rank, read_priorities, reserve, update, write_rows


@inner
def write_alone(view: int) -> None:
    """Wait until no other reads or writes."""
    write_lock(word_of(view, BANK) + READ_WRITE)


@inner
def read_beside(view: int) -> None:
    """Wait until no other writes."""
    read_lock(word_of(view, BANK) + READ_WRITE)


@inner
def leave_lock(view: int) -> None:
    """Let others in that read or write."""
    read_write_unlock(word_of(view, BANK) + READ_WRITE)


@inner
def nothing(view: int) -> None:
    """Neither wait nor let anybody in."""


# By what an operation that writes enters, what one that reads enters, and what both leave by.
MUTEX = tree_lock.enter, tree_lock.enter, tree_lock.leave
READERS_WRITER = write_alone, read_beside, leave_lock
NO_LOCK = nothing, nothing, nothing


def kernels_of(write: Any, read: Any, leave: Any, **more: Any) -> Kernels:
    """The operations between ``write(view)``, or ``read(view)``, and ``leave(view)``; ``more`` as of ``Kernels``.

    These are functions of this module or of one that it imports from, whose texts are part of a kernel's key on disk.
    """

    @kernel()
    def insert(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
        values = np.empty(count)
        if rank(view, errors, errors.size, keep, keep.size, exponent, values, count) != DONE:
            return NOT_FINITE
        point(trial, view, RESERVE)
        write(view)
        entry = reserve(view, 0, count)
        if entry >= 0:
            write_rows(view, source, first_of(view, entry), count)
            commit(view, 0, entry, values, count)
        point(trial, view, COMMITTED)
        leave(view)
        return DONE if entry >= 0 else entry

    @kernel()
    def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
        batch = uniforms.size
        drawn = np.empty(DRAWN * batch, np.int64)
        begin(view, drawn, batch, uniforms, stratified)
        point(trial, view, SEARCH)
        read(view)
        status = search(view, drawn, batch, 0, batch)
        if status == DONE:
            gather(view, drawn, batch, 0, batch, out)
        point(trial, view, SEARCHED)
        leave(view)
        if status == DONE:
            weigh(view, drawn, batch, beta, out)
        return status

    @kernel()
    def update_priorities(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> int:
        batch = errors.size
        if not are_finite(view, errors, batch, exponent):
            return NOT_FINITE
        leaves, scratch = np.empty(batch), np.empty(2 * batch, np.int64)
        leaves_of(view, errors, 0, batch, exponent, leaves)
        point(trial, view, UPDATE)
        write(view)
        update(view, 0, sequence, leaves, present, 0, batch, scratch)
        point(trial, view, UPDATED)
        leave(view)
        return DONE

    @kernel()
    def retrieve_priorities(trial: int, view: int, sequence: Any, priorities: Any) -> int:
        point(trial, view, RETRIEVE)
        read(view)
        read_priorities(view, 0, 0, sequence, 0, sequence.size, priorities)
        point(trial, view, RETRIEVED)
        leave(view)
        return DONE

    return Kernels(insert, sample, update_priorities, retrieve_priorities, **more)


class GlobalReplay(Replay):
    """Every operation has the whole replay to itself, from its first step to its last."""

    kernels: ClassVar = kernels_of(*MUTEX)
