"""Many samplers or one writer at a time: a readers-writer lock around every operation.

The C library has no such lock that survives the death of its owner, hence it is for threads alone.
"""

from typing import Any, ClassVar

import numpy as np
from numba import types

from ...sumtree.lanes import load_i64, store_i64
from ...sumtree.numba_kernels import _kernel
from .. import steps
from ..block import BANK, READ_WRITE
from ..compiled import Kernels
from ..replay import Replay
from ..sync import inner, read_lock, read_write_unlock, write_lock

_HOLDER = READ_WRITE + 56  # bytes of the lock itself
_this_thread = types.ExternalFunction("pthread_self", types.int64())


@inner
def _lock_of(view: int) -> int:
    return load_i64(view + 8 * BANK) + READ_WRITE


@_kernel()
def insert(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    source: int,
    count: int,
    errors: Any,
    keep: Any,
    exponent: Any,
) -> int:
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    values = steps.priorities_of(errors, keep, count, exponent)
    steps.point(view, trial, steps.RESERVE)
    write_lock(_lock_of(view))
    entry, first = steps.reserve(view, like, fanout, lanes, chunks, prefix, trial, 0, count)
    if entry >= 0:
        steps.write_rows(view, trial, source, first, count)
        steps.commit(view, like, fanout, lanes, chunks, prefix, trial, 0, entry, first, values)
    steps.point(view, trial, steps.COMMITTED)
    read_write_unlock(_lock_of(view))
    return steps.DONE if entry >= 0 else entry


@_kernel()
def sample(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    uniforms: Any,
    stratified: bool,
    beta: float,
    out: int,
) -> int:
    drawn = steps.drawing(uniforms, stratified, like, uniforms.size)
    steps.point(view, trial, steps.SEARCH)
    read_lock(_lock_of(view))
    status = steps.search(view, like, fanout, lanes, chunks, prefix, trial, drawn, 0, uniforms.size)
    if status == steps.DONE:
        steps.gather(view, trial, drawn, 0, uniforms.size, out)
    steps.point(view, trial, steps.SEARCHED)
    read_write_unlock(_lock_of(view))
    if status == steps.DONE:
        steps.weigh(drawn, beta, out)
    return status


@_kernel()
def update(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    sequence: Any,
    errors: Any,
    exponent: Any,
    present: Any,
) -> int:
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    leaves = np.empty(errors.size)
    steps.leaves_of(errors, exponent, leaves)
    steps.point(view, trial, steps.UPDATE)
    write_lock(_lock_of(view))
    steps.update(view, like, fanout, lanes, chunks, prefix, trial, 0, sequence, leaves, present)
    steps.point(view, trial, steps.UPDATED)
    read_write_unlock(_lock_of(view))
    return steps.DONE


@_kernel()
def hold(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, edition: int) -> int:
    """Lock out readers and writers, and note who does."""
    write_lock(_lock_of(view))
    store_i64(load_i64(view + 8 * BANK) + _HOLDER, _this_thread())
    return steps.DONE


@_kernel()
def let_go(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, edition: int) -> int:
    """Let readers and writers in again, if it is this thread that keeps them out."""
    holder = load_i64(view + 8 * BANK) + _HOLDER
    if load_i64(holder) == _this_thread():
        store_i64(holder, 0)
        read_write_unlock(_lock_of(view))
    return steps.DONE


class RwlockReplay(Replay):
    """Samples run side by side; inserts and updates run alone."""

    processes = False
    kernels: ClassVar = Kernels(insert, sample, update, hold, let_go)
