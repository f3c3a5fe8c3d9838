"""Rings in which producers post inserts, and the steps of the owner that applies them; see ``owner_strategy.py``.

Arguments are those of ``steps.py``; ``ring`` is a ring's address. A place in a ring is counted on and on: a head is the
number of rows ever posted to it, a tail how many of them were applied.
"""

from typing import Any

import numpy as np

from ..sumtree.lanes import load_i64, load_real, store_i64, store_real
from ..sumtree.numba_kernels import CAPACITY
from . import steps
from .block import (
    BANK,
    BOUNDS,
    CLOSED,
    COUNT,
    FIRST_RING,
    FRAMES,
    HEAD,
    LARGEST,
    READY,
    RING_BYTES,
    RING_COUNT,
    RING_HEADER,
    RING_ROWS,
    RINGS,
    STATE,
    STRIDE,
    TAIL,
    TAKE,
    TAKEN_COUNT,
    TAKEN_FIRST,
    TAKEN_LARGEST,
    TICKET,
    WORDS,
    WRITING,
    WRITTEN,
)
from .sync import copy_bytes, fence, inner, load_acquire, store_release

_WORD = 8
_IDLE, _APPLYING, _APPLIED = 0, 1, 2
_DRAWABLE, _SIZED, _ROWS = 1, 2, 4  # of a row: may be sampled, has its own priority; rows of the insert it begins
_MOST = 4096  # rows applied at once, unless one insert has more


@inner
def _at(view: int, field: int) -> int:
    return load_i64(view + _WORD * field)


@inner
def ring_at(view: int, number: int) -> int:
    """The address of a ring."""
    return _at(view, RINGS) + FIRST_RING + _at(view, RING_BYTES) * number


@inner
def _row_of(view: int, ring: int, place: int) -> int:
    """The address of a row of a ring."""
    return ring + RING_HEADER + 2 * _WORD * _at(view, RING_ROWS) + _at(view, STRIDE) * (place % _at(view, RING_ROWS))


@inner
def _kind_of(view: int, ring: int, place: int) -> int:
    """The address of the word that says what a row is; its priority is as many words on as the ring has rows."""
    return ring + RING_HEADER + _WORD * (place % _at(view, RING_ROWS))


# Producers


@inner
def post(
    view: int, trial: int, ring: int, source: int, count: int, leaves: Any, keep: Any, done: int, used: int
) -> int:
    """Publish ``count`` rows that fit into the ring: rows ``done`` on of an insert, and its priorities ``used`` on.

    Returns how many priorities of the insert are used by then.
    """
    head, stride, room = load_i64(ring + HEAD), _at(view, STRIDE), _at(view, RING_ROWS)
    if steps.fault(view, trial, steps.HEAD_EARLY):
        store_release(ring + HEAD, head + count)
    steps.point(view, trial, steps.POST)
    before = min(count, room - head % room)
    copy_bytes(_row_of(view, ring, head), source + stride * done, stride * before)
    copy_bytes(_row_of(view, ring, 0), source + stride * (done + before), stride * (count - before))
    at, end = _kind_of(view, ring, head), _kind_of(view, ring, 0) + _WORD * room
    for j in range(count):
        # Invariant: ``at`` is the kind of row head + j.
        kind = _ROWS * count if j == 0 else 0
        if keep.size == 0 or keep[done + j]:
            kind += _DRAWABLE
            if leaves.size > 0:
                kind += _SIZED
                store_real(at + _WORD * room, leaves[used])
                used += 1
        store_i64(at, kind)
        at += _WORD if at + _WORD < end else _WORD - _WORD * room
    fence()
    steps.point(view, trial, steps.PUBLISH)
    store_release(ring + HEAD, head + count)
    return used


# The owner


@inner
def drain(
    view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, everything: bool
) -> None:
    """Apply what an owner was applying when it died, and then ``everything`` that was posted before this call."""
    bank, rings = _at(view, BANK), _at(view, RINGS)
    is_left = load_i64(rings + STATE) == _APPLYING
    if load_i64(rings + STATE) == _APPLIED:
        _settle(view)
    heads, waiting = np.empty(_at(view, RING_COUNT) if everything else 0, np.int64), 0
    for number in range(heads.size):
        heads[number] = load_acquire(ring_at(view, number) + HEAD)
        waiting += heads[number] - load_i64(ring_at(view, number) + TAIL)
    while is_left or waiting > 0:
        # Invariant: ``waiting`` rows are between tails and ``heads``; nothing is half applied unless it was left so.
        if not is_left:
            steps.point(view, trial, steps.DRAIN)
            _choose(view, heads)
            store_i64(rings + TAKEN_FIRST, load_i64(bank + WRITTEN))
            store_real(rings + TAKEN_LARGEST, load_real(bank + LARGEST, 0.0))
            if not steps.fault(view, trial, steps.NO_JOURNAL):
                store_release(rings + STATE, _APPLYING)
        is_left = False
        waiting -= load_i64(rings + TAKEN_COUNT)
        _apply(view, like, fanout, lanes, chunks, prefix, trial)
        steps.point(view, trial, steps.TAKEN)
        store_release(rings + STATE, _APPLIED)
        steps.point(view, trial, steps.COMMITTED)
        _settle(view)


@inner
def _choose(view: int, heads: Any) -> None:
    """Note the tails that the rings will have once whole inserts, up to ``heads``, are applied, and their rows."""
    # Records whose stacks reach into the newest are never among these, unless one insert fills the replay. Where the
    # largest current priority matters, which each insert may change, it is one insert at a time.
    count, most = 0, min(_MOST, _at(view, CAPACITY) - _at(view, FRAMES) + 1) if _at(view, BOUNDS) == 0 else 0
    for number in range(heads.size):
        ring = ring_at(view, number)
        take = load_i64(ring + TAIL)
        while take < heads[number]:
            rows = load_i64(_kind_of(view, ring, take)) // _ROWS
            rows = min(max(rows, 1), heads[number] - take)
            if count > 0 and count + rows > most:
                break
            count += rows
            take += rows
        store_i64(ring + TAKE, take)
    store_i64(_at(view, RINGS) + TAKEN_COUNT, count)


@inner
def _settle(view: int) -> None:
    """Give the rows that were applied back to their producers."""
    for number in range(_at(view, RING_COUNT)):
        ring = ring_at(view, number)
        store_release(ring + TAIL, load_i64(ring + TAKE))
    store_release(_at(view, RINGS) + STATE, _IDLE)


@inner
def _apply(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int) -> None:
    """Move the rows that were chosen into the bank; done over again, it comes to the same.

    A record's word is odd from before its slot is written until its priority is set, so that a repair in between leaves
    its priority 0.
    """
    bank, first = _at(view, BANK), load_i64(_at(view, RINGS) + TAKEN_FIRST)
    count, slots = load_i64(_at(view, RINGS) + TAKEN_COUNT), _at(view, CAPACITY)
    tails = np.empty(_at(view, RING_COUNT), np.int64)
    for number in range(tails.size):
        tails[number] = load_i64(ring_at(view, number) + TAIL)
    if steps.fault(view, trial, steps.TAIL_EARLY):
        for number in range(tails.size):
            store_release(ring_at(view, number) + TAIL, load_i64(ring_at(view, number) + TAKE))
    store_release(bank + WRITTEN, first + count)
    cut = min(_at(view, FRAMES) - 1, slots - count) if first + count >= slots else 0
    scratch = np.empty(2 * (count + cut), np.int64)
    steps.point(view, trial, steps.ODD)
    listed, removed = _close(view, first, count, cut, scratch)
    _copy(view, trial, tails, first)
    current = 0.0
    if _at(view, BOUNDS) != 0:
        gone = np.zeros(2 * listed, np.int64)  # slots, and the bits of 0.0
        gone[:listed] = scratch[:listed]
        steps.set_priorities(view, like, fanout, lanes, chunks, prefix, trial, 0, gone, listed)
        current = steps.largest_now(view, like, fanout, lanes, chunks)
    drawable = _rank(view, tails, scratch, listed, current)
    steps.set_priorities(view, like, fanout, lanes, chunks, prefix, trial, 0, scratch, listed)
    steps.point(view, trial, steps.EVEN)
    store_i64(bank + COUNT, load_i64(bank + COUNT) + drawable - removed)
    _reopen(view, tails, first)


@inner
def _close(view: int, first: int, count: int, cut: int, scratch: Any) -> tuple[int, int]:
    """Close the slots of the tickets from ``first`` on, and the ``cut`` records after them, whose stacks reach there.

    Puts the slots whose priority changes into ``scratch``, the new records' first; returns (slots, records closed).
    """
    words, slots = _at(view, WORDS), _at(view, CAPACITY)
    listed, removed, slot = count, 0, first % slots
    for j in range(count + cut):
        # Invariant: slot = (first + j) % slots.
        word = load_i64(words + _WORD * slot)
        removed += word & 3 == READY
        if j < count:
            store_i64(words + _WORD * slot, TICKET * (first + j + 1) + WRITING)
            scratch[j] = slot
        elif word & 3 == READY:
            store_i64(words + _WORD * slot, word - READY + CLOSED)
            scratch[listed] = slot
            listed += 1
        slot = slot + 1 if slot + 1 < slots else 0
    fence()
    return listed, removed


@inner
def _copy(view: int, trial: int, tails: Any, first: int) -> None:
    """Copy the rows from each ring's tail to where it will be to the slots of the tickets from ``first`` on."""
    room = _at(view, RING_ROWS)
    for number in range(tails.size):
        ring, tail = ring_at(view, number), tails[number]
        count = load_i64(ring + TAKE) - tail
        before = min(count, room - tail % room)
        if count > 0:
            steps.write_rows(view, trial, _row_of(view, ring, tail), first, before)
        if count > before:
            steps.write_rows(view, trial, _row_of(view, ring, 0), first + before, count - before)
        first += count


@inner
def _rank(view: int, tails: Any, scratch: Any, listed: int, current: float) -> int:
    """Put the priorities of the ``listed`` slots behind them; returns how many of the new records may be sampled.

    ``current`` is the priority of rows without an own one, or 0 for the largest ever.
    """
    bank, room = _at(view, BANK), _at(view, RING_ROWS)
    largest = load_real(_at(view, RINGS) + TAKEN_LARGEST, 0.0)
    values = scratch.ctypes.data + _WORD * listed
    scratch[listed : 2 * listed] = 0  # the bits of 0.0
    drawable = 0
    for number in range(tails.size):
        ring = ring_at(view, number)
        at, end = _kind_of(view, ring, tails[number]), _kind_of(view, ring, 0) + _WORD * room
        for _ in range(tails[number], load_i64(ring + TAKE)):
            # Invariant: ``largest`` is what it would be for this row, were each insert applied alone.
            kind = load_i64(at)
            if kind & _SIZED:
                largest = max(largest, load_real(at + _WORD * room, 0.0))
            if kind & _DRAWABLE:
                usual = current if current > 0.0 else largest
                store_real(values, load_real(at + _WORD * room, 0.0) if kind & _SIZED else usual)
                drawable += 1
            values += _WORD
            at += _WORD if at + _WORD < end else _WORD - _WORD * room
    store_real(bank + LARGEST, largest)
    return drawable


@inner
def _reopen(view: int, tails: Any, first: int) -> None:
    """Let the records of the tickets from ``first`` on be sampled, but for fillers."""
    words, slots, room = _at(view, WORDS), _at(view, CAPACITY), _at(view, RING_ROWS)
    slot = first % slots
    for number in range(tails.size):
        ring = ring_at(view, number)
        at, end = _kind_of(view, ring, tails[number]), _kind_of(view, ring, 0) + _WORD * room
        for _ in range(tails[number], load_i64(ring + TAKE)):
            # Invariant: slot = first % slots, and ``at`` is the kind of the row of the ticket ``first``.
            state = READY if load_i64(at) & _DRAWABLE else CLOSED
            store_release(words + _WORD * slot, TICKET * (first + 1) + state)
            first += 1
            slot = slot + 1 if slot + 1 < slots else 0
            at += _WORD if at + _WORD < end else _WORD - _WORD * room
