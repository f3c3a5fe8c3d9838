"""Two locks and lazy writing [Zhang2021, Alg. 3], with a word a slot that says which record is there, and if whole.

The word turns odd before a record's priority becomes 0, and even after its copy. A late update is refused unless the
record that was drawn is still there. A sampler looks at the words again after it has copied the records, and draws anew
those that were taken away; after a few draws in vain it copies the rest under the lock. A batch has the lock for a
portion of it at a time, and copies or computes in between: nobody waits for much longer than a microsecond.
"""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.lanes import load_i64
from ...sumtree.numba_kernels import _kernel
from .. import steps
from ..block import BOUNDS, FRAMES, STRIDE
from ..compiled import Kernels
from ..replay import Replay
from ..sync import inner


@inner
def put(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    source: int,
    count: int,
    errors: Any,
    keep: Any,
    exponent: Any,
) -> int:
    """Insert ``count`` packed rows from an address into a bank, a portion at a time; a status.

    Rows of stacked frames stay together, and so do those that get the largest current priority.
    """
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    values = steps.priorities_of(errors, keep, count, exponent)
    portion = count if load_i64(view + 8 * FRAMES) > 1 or load_i64(view + 8 * BOUNDS) != 0 else steps.NEIGHBORS
    for low in range(0, count, portion):
        part = values[low : min(low + portion, count)]
        rows = source + load_i64(view + 8 * STRIDE) * low
        entry = _put_portion(view, like, fanout, lanes, chunks, prefix, trial, rows, part)
        if entry < 0:
            return steps.blocked(entry, low)
    return steps.DONE


@inner
def _put_portion(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    source: int,
    values: Any,
) -> int:
    """Insert rows with these priorities in one go; returns what :func:`steps.reserve` does."""
    count = values.size
    steps.point(view, trial, steps.RESERVE)
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    entry, first = steps.reserve(view, like, fanout, lanes, chunks, prefix, trial, 1, count)
    steps.point(view, trial, steps.RESERVED)
    steps.leave(view)
    if entry < 0:
        return entry
    is_early = steps.fault(view, trial, steps.EVEN_EARLY)
    if not is_early:
        steps.write_rows(view, trial, source, first, count)
    steps.point(view, trial, steps.COMMIT)
    is_locked = not steps.fault(view, trial, steps.NO_LOCK_IN_COMMIT)
    if is_locked:
        steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    steps.commit(view, like, fanout, lanes, chunks, prefix, trial, 1, entry, first, values)
    steps.point(view, trial, steps.COMMITTED)
    if is_locked:
        steps.leave(view)
    if is_early:
        steps.write_rows(view, trial, source, first, count)
    return entry


@inner
def take(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    uniforms: Any,
    stratified: bool,
    out: int,
    drawn: Any,
    count: int,
    parts: int,
    part: int,
) -> int:
    """Sample and copy the records of the first ``count`` places from a bank, which is one of ``parts``; a status."""
    attempt = 0
    is_locked = not steps.fault(view, trial, steps.NO_LOCK_IN_SEARCH)
    while count > 0:
        # Invariant: every place but the first ``count`` listed has a whole record, that of its word.
        for low in range(0, count, steps.PORTION):
            high = min(low + steps.PORTION, count)
            steps.point(view, trial, steps.SEARCH)
            if is_locked:
                steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
            status = steps.search(view, like, fanout, lanes, chunks, prefix, trial, drawn, low, high)
            is_patient = attempt < steps.PATIENCE or status != steps.DONE
            steps.point(view, trial, steps.SEARCHED)
            if is_locked and is_patient:
                steps.leave(view)
            if status != steps.DONE:
                return status
            steps.gather(view, trial, drawn, low, high, out)
            if is_locked and not is_patient:
                steps.leave(view)
        steps.point(view, trial, steps.RECHECK)
        count = (
            0
            if steps.fault(view, trial, steps.NO_RECHECK) or attempt >= steps.PATIENCE
            else steps.changed(view, drawn, count)
        )
        attempt += 1
        steps.redraw(drawn, uniforms, count, attempt, stratified, parts, part)
    return steps.DONE


@inner
def renew(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    sequence: Any,
    errors: Any,
    exponent: Any,
    present: Any,
) -> None:
    """Set the leaves of a bank's tickets ``sequence [B]`` whose records are still there."""
    leaves = np.empty(errors.size)
    is_locked = not steps.fault(view, trial, steps.NO_LOCK_IN_UPDATE)
    for low in range(0, sequence.size, steps.PORTION):
        high = min(low + steps.PORTION, sequence.size)
        steps.ask_for(view, like, fanout, lanes, chunks, sequence[low:high])
        steps.leaves_of(errors[low:high], exponent, leaves[low:high])
        steps.point(view, trial, steps.UPDATE)
        if is_locked:
            steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
        steps.update(
            view, like, fanout, lanes, chunks, prefix, trial, 1, sequence[low:high], leaves[low:high], present[low:high]
        )
        steps.point(view, trial, steps.UPDATED)
        if is_locked:
            steps.leave(view)


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
    return put(view, like, fanout, lanes, chunks, prefix, trial, source, count, errors, keep, exponent)


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
    drawn = steps.drawing(uniforms, stratified, like, steps.PORTION)
    status = take(
        view, like, fanout, lanes, chunks, prefix, trial, uniforms, stratified, out, drawn, uniforms.size, 1, 0
    )
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
    renew(view, like, fanout, lanes, chunks, prefix, trial, sequence, errors, exponent, present)
    return steps.DONE


class TwoLockCheckedReplay(Replay):
    """Copies of records run beside everything, and no torn record is ever returned."""

    kernels: ClassVar = Kernels(insert, sample, update)
