"""Rings in which producers post inserts, and the steps of the owner that applies them; see ``owner_strategy.py``.

``ring`` is a ring's address. A place in a ring is counted on and on: a head is the
number of rows ever posted to it, a tail how many of them were applied.
"""

from typing import Any

from ..sumtree.kernels.header import CAPACITY
from ..sumtree.lanes import array_at, load_i64, load_real, store_i64, store_real, word_of
from .block import (
    BANK,
    BOUNDS,
    CLOSED,
    COUNT,
    FIRST_RING,
    FRAMES,
    HEAD,
    LARGEST,
    MOST_APPLIED,
    READY,
    RING_BYTES,
    RING_COUNT,
    RING_HEADER,
    RING_ROWS,
    RING_SCRATCH,
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
from .insertion import write_rows
from .priorities import largest_now, set_priorities
from .steps import step
from .sync import copy_bytes, fence, inner, load_acquire, store_release
from .trials import COMMITTED, DRAIN, EVEN, ODD, POST, PUBLISH, TAKEN, point

_WORD = 8
_IDLE, _APPLYING, _APPLIED = 0, 1, 2
_DRAWABLE, _SIZED, _ROWS = 1, 2, 4  # of a row: may be sampled, has its own priority; rows of the insert it begins


@inner
def ring_at(view: int, number: int) -> int:
    """The address of a ring."""
    return word_of(view, RINGS) + FIRST_RING + word_of(view, RING_BYTES) * number


@inner
def _row_of(view: int, ring: int, place: int) -> int:
    """The address of a row of a ring."""
    return (
        ring
        + RING_HEADER
        + 2 * _WORD * word_of(view, RING_ROWS)
        + word_of(view, STRIDE) * (place % word_of(view, RING_ROWS))
    )


@inner
def _kind_of(view: int, ring: int, place: int) -> int:
    """The address of the word that says what a row is; its priority is as many words on as the ring has rows."""
    return ring + RING_HEADER + _WORD * (place % word_of(view, RING_ROWS))


# Producers


@inner
def post(
    trial: int, view: int, ring: int, source: int, count: int, leaves: Any, keep: Any, done: int, used: int
) -> int:
    """Publish ``count`` rows that fit into the ring: rows ``done`` on of an insert, and its priorities ``used`` on.

    Returns how many priorities of the insert are used by then.
    """
    head, stride, room = load_i64(ring + HEAD), word_of(view, STRIDE), word_of(view, RING_ROWS)
    point(trial, view, POST)
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
    point(trial, view, PUBLISH)
    store_release(ring + HEAD, head + count)
    return used


# The owner


@step
def drain(view: int, form: Any, everything: int) -> int:
    """Apply what an owner was applying when it died, and then ``everything`` that was posted before this call."""
    bank, rings = word_of(view, BANK), word_of(view, RINGS)
    is_left = load_i64(rings + STATE) == _APPLYING
    if load_i64(rings + STATE) == _APPLIED:
        _settle(view)
    heads, waiting = _heads_of(view, word_of(view, RING_COUNT) if everything else 0), 0
    for number in range(heads.size):
        heads[number] = load_acquire(ring_at(view, number) + HEAD)
        waiting += heads[number] - load_i64(ring_at(view, number) + TAIL)
    while is_left or waiting > 0:
        # Invariant: ``waiting`` rows are between tails and ``heads``; nothing is half applied unless it was left so.
        if not is_left:
            point(form.trial, view, DRAIN)
            _choose(view, heads)
            store_i64(rings + TAKEN_FIRST, load_i64(bank + WRITTEN))
            store_real(rings + TAKEN_LARGEST, load_real(bank + LARGEST, 0.0))
            store_release(rings + STATE, _APPLYING)
        is_left = False
        waiting -= load_i64(rings + TAKEN_COUNT)
        _apply(form.trial, view)
        point(form.trial, view, TAKEN)
        store_release(rings + STATE, _APPLIED)
        point(form.trial, view, COMMITTED)
        _settle(view)
    return 0


@inner
def _heads_of(view: int, count: int) -> Any:
    """Room for the heads of the rings, in the scratch of the process, which the owner alone uses."""
    return array_at(word_of(view, RING_SCRATCH), count, view)


@inner
def _tails_of(view: int) -> Any:
    """The tails of the rings, in the scratch."""
    count = word_of(view, RING_COUNT)
    tails = array_at(word_of(view, RING_SCRATCH) + _WORD * count, count, view)
    for number in range(count):
        tails[number] = load_i64(ring_at(view, number) + TAIL)
    return tails


@inner
def _choose(view: int, heads: Any) -> None:
    """Note the tails that the rings will have once whole inserts, up to ``heads``, are applied, and their rows."""
    # Records whose stacks reach into the newest are never among these, unless one insert fills the replay. Where the
    # largest current priority matters, which each insert may change, it is one insert at a time.
    count, most = (
        0,
        min(MOST_APPLIED, word_of(view, CAPACITY) - word_of(view, FRAMES) + 1) if word_of(view, BOUNDS) == 0 else 0,
    )
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
    store_i64(word_of(view, RINGS) + TAKEN_COUNT, count)


@inner
def _settle(view: int) -> None:
    """Give the rows that were applied back to their producers."""
    for number in range(word_of(view, RING_COUNT)):
        ring = ring_at(view, number)
        store_release(ring + TAIL, load_i64(ring + TAKE))
    store_release(word_of(view, RINGS) + STATE, _IDLE)


@inner
def _apply(trial: int, view: int) -> None:
    """Move the rows that were chosen into the bank; done over again, it comes to the same.

    A record's word is odd from before its slot is written until its priority is set, so that a repair in between leaves
    its priority 0.
    """
    bank, first = word_of(view, BANK), load_i64(word_of(view, RINGS) + TAKEN_FIRST)
    count, slots = load_i64(word_of(view, RINGS) + TAKEN_COUNT), word_of(view, CAPACITY)
    tails = _tails_of(view)
    store_release(bank + WRITTEN, first + count)
    cut = min(word_of(view, FRAMES) - 1, slots - count) if first + count >= slots else 0
    most = 2 * (count + cut)
    scratch = array_at(word_of(view, RING_SCRATCH) + 2 * _WORD * tails.size, 2 * most, first)
    point(trial, view, ODD)
    listed, removed = _close(view, first, count, cut, scratch)
    _copy(view, tails, first)
    current = 0.0
    if word_of(view, BOUNDS) != 0:
        gone = scratch[most:]  # slots, and the bits of 0.0
        gone[:listed] = scratch[:listed]
        gone[listed : 2 * listed] = 0
        set_priorities(view, 0, gone, listed)
        current = largest_now(view)
    drawable = _rank(view, tails, scratch, listed, current)
    set_priorities(view, 0, scratch, listed)
    point(trial, view, EVEN)
    store_i64(bank + COUNT, load_i64(bank + COUNT) + drawable - removed)
    _reopen(view, tails, first)


@inner
def _close(view: int, first: int, count: int, cut: int, scratch: Any) -> tuple[int, int]:
    """Close the slots of the tickets from ``first`` on, and the ``cut`` records after them, whose stacks reach there.

    Puts the slots whose priority changes into ``scratch``, the new records' first; returns (slots, records closed).
    """
    words, slots = word_of(view, WORDS), word_of(view, CAPACITY)
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
def _copy(view: int, tails: Any, first: int) -> None:
    """Copy the rows from each ring's tail to where it will be to the slots of the tickets from ``first`` on."""
    room = word_of(view, RING_ROWS)
    for number in range(tails.size):
        ring, tail = ring_at(view, number), tails[number]
        count = load_i64(ring + TAKE) - tail
        before = min(count, room - tail % room)
        if count > 0:
            write_rows(view, _row_of(view, ring, tail), first, before)
        if count > before:
            write_rows(view, _row_of(view, ring, 0), first + before, count - before)
        first += count


@inner
def _rank(view: int, tails: Any, scratch: Any, listed: int, current: float) -> int:
    """Put the priorities of the ``listed`` slots behind them; returns how many of the new records may be sampled.

    ``current`` is the priority of rows without an own one, or 0 for the largest ever.
    """
    bank, room = word_of(view, BANK), word_of(view, RING_ROWS)
    largest = load_real(word_of(view, RINGS) + TAKEN_LARGEST, 0.0)
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
    words, slots, room = word_of(view, WORDS), word_of(view, CAPACITY), word_of(view, RING_ROWS)
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
