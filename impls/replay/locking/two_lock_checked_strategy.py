"""Two locks and lazy writing [Zhang2021, Alg. 3], with a word a slot that says which record is there, and if whole.

The word turns odd before a record's priority becomes 0, and even after its copy. A late update is refused unless the
record that was drawn is still there. A sampler looks at the words again after it has copied the records, and draws anew
those that were taken away; after a few draws in vain it copies the rest under the lock. A batch has the lock for a
portion of it at a time, and copies or computes in between: nobody waits for much longer than a microsecond.
"""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.kernels.header import kernel
from ...sumtree.lanes import word_of
from ..block import BOUNDS, FRAMES, STRIDE
from ..blocks import Kernels
from ..replay import Replay
from ..sampling import DRAWN, begin, changed, gather, redraw, search, weigh
from ..steps import (
    COMMIT,
    COMMITTED,
    DONE,
    NEIGHBORS,
    NOT_FINITE,
    PATIENCE,
    PORTION,
    RECHECK,
    RESERVE,
    RESERVED,
    SEARCH,
    SEARCHED,
    UPDATE,
    UPDATED,
    point,
)
from ..sync import inner
from ..tree_lock import enter, leave
from ..updating import (
    are_finite,
    ask_for,
    blocked,
    commit,
    first_of,
    leaves_of,
    rank,
    read_priorities,
    reserve,
    update,
    write_rows,
)

_WORD = 8
_PORTIONS = 32  # the fewest that a large update is done in


@inner
def put(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    """Insert ``count`` packed rows from an address into a bank, a portion at a time; a status.

    Rows of stacked frames stay together, and so do those that get the largest current priority.
    """
    values = np.empty(count)
    if rank(view, errors, errors.size, keep, keep.size, exponent, values, count) != DONE:
        return NOT_FINITE
    portion = count if word_of(view, FRAMES) > 1 or word_of(view, BOUNDS) != 0 else NEIGHBORS
    for low in range(0, count, portion):
        rows = source + word_of(view, STRIDE) * low
        entry = put_portion(trial, view, rows, values.ctypes.data + _WORD * low, min(portion, count - low))
        if entry < 0:
            return blocked(entry, low)
    return DONE


@inner
def put_portion(trial: int, view: int, source: int, values: int, count: int) -> int:
    """Insert rows with these priorities in one go; returns what :func:`reserve` does."""
    point(trial, view, RESERVE)
    enter(view)
    entry = reserve(view, 1, count)
    point(trial, view, RESERVED)
    leave(view)
    if entry < 0:
        return entry
    first = first_of(view, entry)
    write_rows(view, source, first, count)
    point(trial, view, COMMIT)
    enter(view)
    commit(view, 1, entry, values, count)
    point(trial, view, COMMITTED)
    leave(view)
    return entry


@inner
def take(
    trial: int, view: int, drawn: Any, uniforms: Any, stratified: bool, out: int, count: int, parts: int, part: int
) -> int:
    """Sample and copy the records of the first ``count`` places from a bank, which is one of ``parts``; a status."""
    batch, attempt = uniforms.size, 0
    while count > 0:
        # Invariant: every place but the first ``count`` listed has a whole record, that of its word.
        for low in range(0, count, PORTION):
            high = min(low + PORTION, count)
            point(trial, view, SEARCH)
            enter(view)
            status = search(view, drawn, batch, low, high)
            is_patient = attempt < PATIENCE or status != DONE
            point(trial, view, SEARCHED)
            if is_patient:
                leave(view)
            if status != DONE:
                return status
            if not is_patient:
                gather(view, drawn, batch, low, high, out)
                leave(view)
        if attempt < PATIENCE:
            gather(view, drawn, batch, 0, count, out)
        point(trial, view, RECHECK)
        count = changed(view, drawn, batch, count) if attempt < PATIENCE else 0
        attempt += 1
        redraw(view, drawn, batch, uniforms, count, attempt, stratified, parts, part)
    return DONE


@inner
def renew(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> None:
    """Set the leaves of a bank's tickets ``sequence [B]`` whose records are still there.

    Sums high up are renewed once a portion, so that large batches have larger ones: an update keeps the lock for no
    more than a part of its own time.
    """
    batch = sequence.size
    portion = max(PORTION, batch // _PORTIONS)
    leaves, scratch = np.empty(batch), np.empty(2 * portion, np.int64)
    for low in range(0, batch, portion):
        high = min(low + portion, batch)
        ask_for(view, sequence, low, high)
        leaves_of(view, errors, low, high, exponent, leaves)
        point(trial, view, UPDATE)
        enter(view)
        update(view, 1, sequence, leaves, present, low, high, scratch)
        point(trial, view, UPDATED)
        leave(view)


@kernel()
def insert(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    return put(trial, view, source, count, errors, keep, exponent)


@kernel()
def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
    batch = uniforms.size
    drawn = np.empty(DRAWN * batch, np.int64)
    begin(view, drawn, batch, uniforms, stratified)
    status = take(trial, view, drawn, uniforms, stratified, out, batch, 1, 0)
    if status == DONE:
        weigh(view, drawn, batch, beta, out)
    return status


@kernel()
def update_priorities(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> int:
    if not are_finite(view, errors, errors.size, exponent):
        return NOT_FINITE
    renew(trial, view, sequence, errors, exponent, present)
    return DONE


@kernel()
def retrieve_priorities(trial: int, view: int, sequence: Any, priorities: Any) -> int:
    for low in range(0, sequence.size, PORTION):
        high = min(low + PORTION, sequence.size)
        ask_for(view, sequence, low, high)
        if read_priorities(view, 1, 0, sequence, low, high, priorities) > 0:
            # Leaves about to be raised, or lent by a caller who died: the lock of the tree waits for them, or repairs.
            enter(view)
            read_priorities(view, 0, 0, sequence, low, high, priorities)
            leave(view)
    return DONE


class TwoLockCheckedReplay(Replay):
    """Copies of records run concurrently with everything, and no torn record is ever returned."""

    kernels: ClassVar = Kernels(insert, sample, update_priorities, retrieve_priorities)
