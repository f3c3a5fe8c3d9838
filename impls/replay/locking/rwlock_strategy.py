"""Many samplers or one writer at a time: a readers-writer lock around every operation.

The C library has no such lock that survives the death of its owner, hence it is for threads alone.
"""

from typing import Any, ClassVar

import numpy as np
from numba import types

from ...sumtree.kernels.header import kernel
from ...sumtree.lanes import load_i64, store_i64, word_of
from ..block import BANK, READ_WRITE
from ..compiled import Kernels
from ..insertion import commit, first_of, rank, reserve, write_rows
from ..replay import Replay
from ..sampling import DRAWN, begin, gather, search, weigh
from ..steps import DONE, NOT_FINITE
from ..sync import inner, read_lock, read_write_unlock, write_lock
from ..trials import COMMITTED, RESERVE, RETRIEVE, RETRIEVED, SEARCH, SEARCHED, UPDATE, UPDATED, point
from ..updating import are_finite, leaves_of, read_priorities, update

_HOLDER = READ_WRITE + 56  # bytes of the lock itself
_this_thread = types.ExternalFunction("pthread_self", types.int64())


@inner
def _lock_of(view: int) -> int:
    return word_of(view, BANK) + READ_WRITE


@kernel()
def insert(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    values = np.empty(count)
    if rank(view, errors, errors.size, keep, keep.size, exponent, values, count) != DONE:
        return NOT_FINITE
    point(trial, view, RESERVE)
    write_lock(_lock_of(view))
    entry = reserve(view, 0, count)
    if entry >= 0:
        write_rows(view, source, first_of(view, entry), count)
        commit(view, 0, entry, values, count)
    point(trial, view, COMMITTED)
    read_write_unlock(_lock_of(view))
    return DONE if entry >= 0 else entry


@kernel()
def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
    batch = uniforms.size
    drawn = np.empty(DRAWN * batch, np.int64)
    begin(view, drawn, batch, uniforms, stratified)
    point(trial, view, SEARCH)
    read_lock(_lock_of(view))
    status = search(view, drawn, batch, 0, batch)
    if status == DONE:
        gather(view, drawn, batch, 0, batch, out)
    point(trial, view, SEARCHED)
    read_write_unlock(_lock_of(view))
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
    write_lock(_lock_of(view))
    update(view, 0, sequence, leaves, present, 0, batch, scratch)
    point(trial, view, UPDATED)
    read_write_unlock(_lock_of(view))
    return DONE


@kernel()
def hold(trial: int, view: int) -> int:
    """Lock out readers and writers, and note who does."""
    write_lock(_lock_of(view))
    store_i64(word_of(view, BANK) + _HOLDER, _this_thread())
    return DONE


@kernel()
def let_go(trial: int, view: int) -> int:
    """Let readers and writers in again, if it is this thread that keeps them out."""
    holder = word_of(view, BANK) + _HOLDER
    if load_i64(holder) == _this_thread():
        store_i64(holder, 0)
        read_write_unlock(_lock_of(view))
    return DONE


@kernel()
def retrieve_priorities(trial: int, view: int, sequence: Any, priorities: Any) -> int:
    point(trial, view, RETRIEVE)
    read_lock(_lock_of(view))
    read_priorities(view, 0, 0, sequence, 0, sequence.size, priorities)
    point(trial, view, RETRIEVED)
    read_write_unlock(_lock_of(view))
    return DONE


class RwlockReplay(Replay):
    """Samples run side by side; inserts and updates run alone."""

    processes = False
    kernels: ClassVar = Kernels(insert, sample, update_priorities, retrieve_priorities, hold, let_go)
