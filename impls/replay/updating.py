"""Steps of an insert, an update or a retrieval: priorities from TD errors, and the leaves of records still there.

Those of an insert are the records' priorities, their tickets, their rows, and making them available.
"""

import math
from typing import Any

import numpy as np

from ..sumtree.kernels.header import CAPACITY, LEAVES, offset_of
from ..sumtree.lanes import (
    array_at,
    bytes_of,
    load_acquire,
    load_i64,
    load_real,
    prefetch,
    prefetch_row,
    store_i64,
    store_real,
    store_release,
    unsigned_divide,
    word_of,
)
from .block import (
    BANK,
    BEGAN,
    BOUNDS,
    CLOSED,
    COUNT,
    FRAMES,
    LARGEST,
    MOST_RANGES,
    PID,
    RANGE_BYTES,
    RANGES,
    READY,
    ROWS,
    STRIDE,
    TICKET,
    WORDS,
    WRITING,
    WRITTEN,
)
from .priorities import largest_now, lock_leaves, set_priorities, set_range, unlock_leaves
from .steps import DONE, EVEN, FIRST_HALF, LOOK, NOT_FINITE, ODD, RAISE, READ_LEAF, SECOND_HALF, ZERO, point, step
from .sync import byte_at, copy_bytes, fence, inner, is_on, set_byte

_WORD = 8


@inner
def limits_at(exponent: int) -> tuple[float, float, float, float]:
    """Alpha, epsilon, and the smallest and the largest priority that the tree can sample."""
    four = array_at(exponent, 4, 0.0)
    return four[0], four[1], four[2], four[3]


@inner
def power_of(error: float, limits: tuple[float, float, float, float]) -> float:
    """(|TD error| + epsilon)^alpha, within the limits."""
    return min(max((abs(error) + limits[1]) ** limits[0], limits[2]), limits[3])


@step
def are_finite(view: int, form: Any, errors: int, count: int, exponent: int) -> int:
    """Whether every |TD error| + epsilon of ``errors [count]`` is a number below infinity."""
    epsilon, sizes = limits_at(exponent)[1], array_at(errors, count, 0.0)
    bad = 0
    for j in range(count):
        bad += not abs(sizes[j]) + epsilon < math.inf
    return bad == 0


@step
def leaves_of(view: int, form: Any, errors: int, low: int, high: int, exponent: int, leaves: int) -> int:
    """Put the priorities of ``errors[low:high]`` into those places of ``leaves``."""
    limits, sizes, priorities = limits_at(exponent), array_at(errors, high, 0.0), array_at(leaves, high, 0.0)
    for j in range(low, high):
        priorities[j] = power_of(sizes[j], limits)
    return 0


@step
def ask_for(view: int, form: Any, sequence: int, low: int, high: int) -> int:
    """Ask memory for the words and leaves of the tickets ``sequence[low:high]``, before the lock is taken."""
    words, slots, leaves = word_of(view, WORDS), word_of(view, CAPACITY), word_of(view, LEAVES)
    row = bytes_of(form.like) * form.width
    for j in range(low, high):
        slot = abs(load_i64(sequence + _WORD * j)) % slots
        prefetch(words + _WORD * slot)
        prefetch_row(leaves + row * unsigned_divide(slot, form.fanout), form.like, form.lanes, form.chunks)
    return 0


@inner
def holds(word: int, ticket: int) -> bool:
    """Whether a slot's word says that the record of a ticket is there."""
    return word & 3 == READY and word // TICKET - 1 == ticket  # no product, which a huge ticket would overflow


@step
def read_priorities(
    view: int, form: Any, leaf_lock: int, any_record: int, sequence: int, low: int, high: int, priorities: int
) -> int:
    """Put the priorities of the tickets ``sequence[low:high]`` into those places of ``priorities``.

    It is 0 of a record that is not there any more; with ``any_record`` that of whatever lies in its slot by now.
    Returns how many leaves are 0 though their record is there.
    """
    words, slots, leaves = word_of(view, WORDS), word_of(view, CAPACITY), word_of(view, LEAVES)
    bank, size, width, zeros = word_of(view, BANK), bytes_of(form.like), form.width, 0
    if leaf_lock:
        lock_leaves(form.trial, view)
    for at in range(_WORD * low, _WORD * high, _WORD):
        point(form.trial, view, LOOK)
        ticket, value = load_i64(sequence + at), 0.0
        slot = abs(ticket) % slots
        # An insert counts its records before it takes their slots' words; whoever has seen the count is told the same.
        is_counted = ticket >= load_acquire(bank + WRITTEN) - slots
        if any_record or (is_counted and holds(load_acquire(words + _WORD * slot), ticket)):
            point(form.trial, view, READ_LEAF)
            value = np.float64(load_real(leaves + size * offset_of(slot, form.fanout, width), form.like))
            zeros += value == 0.0
        store_real(priorities + at, value)
    if leaf_lock:
        unlock_leaves(form.trial, view)
    return zeros


@step
def update(
    view: int, form: Any, leaf_lock: int, sequence: int, leaves: int, present: int, low: int, high: int, scratch: int
) -> int:
    """Set the ``leaves[low:high]`` of the tickets ``sequence[low:high]`` whose records are still there.

    ``present [B]`` tells which are. ``scratch`` has two words for each ticket.
    """
    bank, words, slots = word_of(view, BANK), word_of(view, WORDS), word_of(view, CAPACITY)
    listed = 0
    largest = load_real(bank + LARGEST, 0.0)
    slots_there = array_at(scratch, high - low, slots)
    for j in range(low, high):
        # Invariant: slots_there[:listed] are the slots so far of records that are there.
        ticket = load_i64(sequence + _WORD * j)
        slot = abs(ticket) % slots
        there = holds(load_i64(words + _WORD * slot), ticket)
        set_byte(present + j, there)
        slots_there[listed] = slot
        listed += there
        largest = max(largest, load_real(leaves + _WORD * j, 0.0) if there else 0.0)
    store_real(bank + LARGEST, largest)
    if listed == 0:
        return 0
    at = scratch + _WORD * listed
    for j in range(low, high):
        if byte_at(present + j) != 0:
            store_real(at, load_real(leaves + _WORD * j, 0.0))
            at += _WORD
    set_priorities(view, leaf_lock, scratch, listed)
    return 0


@step
def rank(
    view: int, form: Any, errors: int, sizes: int, keep: int, kept: int, exponent: int, values: int, n: int
) -> int:
    """Put into ``values [n]`` what the leaves of n records will be: 0 for fillers, below 0 for the largest priority.

    ``errors [sizes]`` has one for each record that may be sampled, or is empty; ``keep [kept]`` is 0 for fillers, or
    empty. Returns NOT_FINITE for errors that are no priorities.
    """
    if not are_finite(view, errors, sizes, exponent):
        return NOT_FINITE
    given, flags, leaves = array_at(errors, sizes, 0.0), array_at(keep, kept, np.uint8(0)), array_at(values, n, 0.0)
    limits = limits_at(exponent)
    used = 0
    for j in range(n):
        # Invariant: the first ``used`` errors are of the records before j.
        leaves[j] = 0.0
        if kept == 0 or flags[j] != 0:
            leaves[j] = -1.0
            if sizes > 0:
                leaves[j] = power_of(given[used], limits)
                used += 1
    return DONE


@inner
def blocked(entry: int, done: int) -> int:
    """The status of an insert that :func:`reserve` refused by ``entry``, with ``done`` rows inserted before."""
    return entry - (MOST_RANGES + 1) * done


@inner
def first_of(view: int, entry: int) -> int:
    """The first ticket of an entry of the table of ranges."""
    return load_i64(word_of(view, BANK) + RANGES + RANGE_BYTES * entry)


@step
def reserve(view: int, form: Any, leaf_lock: int, count: int) -> int:
    """Take ``count`` tickets and make their slots' records unavailable, and those whose stacks reach into them.

    Returns their entry of the table of ranges. It is below 0 if records that are still being written are in the way:
    those of entry -1 - it, or the whole table.
    """
    bank, slots = word_of(view, BANK), word_of(view, CAPACITY)
    first = load_i64(bank + WRITTEN)
    end = first + count
    cut = min(word_of(view, FRAMES) - 1, slots - count) if end >= slots else 0
    entry = _free_entry(view, end + cut)
    if entry < 0:
        return entry
    at = bank + RANGES + RANGE_BYTES * entry
    store_i64(at, first)
    store_i64(at + 2 * _WORD, word_of(view, PID))
    store_i64(at + 3 * _WORD, word_of(view, BEGAN))
    store_release(at + _WORD, count)
    fence()
    store_release(bank + WRITTEN, end)
    point(form.trial, view, ODD)
    taken = _close(view, first, count, cut)
    store_i64(bank + COUNT, load_i64(bank + COUNT) - taken)
    fence()
    point(form.trial, view, ZERO)
    if taken > 0:
        set_range(view, leaf_lock, first % slots, count + cut, 0, 0.0)
    return entry


@inner
def _free_entry(view: int, end: int) -> int:
    """A free entry of the table of ranges for tickets below ``end``, or what is in their way, as :func:`reserve` has
    it."""
    ranges, slots = word_of(view, BANK) + RANGES, word_of(view, CAPACITY)
    entry = -1 - MOST_RANGES
    for number in range(MOST_RANGES):
        at = ranges + RANGE_BYTES * number
        if load_i64(at + _WORD) == 0:
            entry = number if entry < 0 else entry
        elif end > load_i64(at) + slots:
            return -1 - number
    return entry


@inner
def _close(view: int, first: int, count: int, cut: int) -> int:
    """Make the words of ``count`` tickets odd, and close the ``cut`` records after them; returns how many were open."""
    words, slots = word_of(view, WORDS), word_of(view, CAPACITY)
    taken, low, slot = 0, 0, first % slots
    while low < count:
        # Invariant: ``low`` words are written, up to ``slot``; ``taken`` of their records could be sampled before.
        high = min(count, low + slots - slot)
        theirs = array_at(words + _WORD * slot, high - low, first)
        for j in range(theirs.size):
            taken += theirs[j] & 3 == READY
        _write_words(theirs, first + low, np.int64(WRITING))
        low, slot = high, (slot + high - low) % slots
    for j in range(cut):
        at = words + _WORD * ((first + count + j) % slots)
        word = load_i64(at)
        if word & 3 == READY:
            taken += 1
            store_i64(at, word - READY + CLOSED)
    return taken


@inner
def _write_words(words: Any, ticket: int, state: int) -> None:
    """Write the words of as many tickets, from one on."""
    for j in range(words.size):
        words[j] = TICKET * (ticket + j + 1) + state


@step
def write_rows(view: int, form: Any, source: int, first: int, count: int) -> int:
    """Copy ``count`` packed rows from an address to the slots of the tickets from ``first`` on."""
    rows, stride, slots = word_of(view, ROWS), word_of(view, STRIDE), word_of(view, CAPACITY)
    slot = first % slots
    if is_on(form.trial):
        half = stride // 16 * 8
        point(form.trial, view, FIRST_HALF)
        for j in range(count):
            copy_bytes(rows + stride * ((first + j) % slots), source + stride * j, half)
        point(form.trial, view, SECOND_HALF)
        for j in range(count):
            at = rows + stride * ((first + j) % slots) + half
            copy_bytes(at, source + stride * j + half, stride - half)
    else:
        before = min(count, slots - slot)
        copy_bytes(rows + stride * slot, source, stride * before)
        copy_bytes(rows, source + stride * before, stride * (count - before))
    fence()
    return 0


@step
def commit(view: int, form: Any, leaf_lock: int, entry: int, values: int, count: int) -> int:
    """Make the records of an entry available, with the priorities ``values [count]`` of :func:`rank`."""
    bank, words, slots = word_of(view, BANK), word_of(view, WORDS), word_of(view, CAPACITY)
    leaves, first = array_at(values, count, 0.0), first_of(view, entry)
    largest = load_real(bank + LARGEST, 0.0)
    priority = largest
    drawable, low, slot, least = 0, 0, first % slots, 0.0
    for j in range(count):
        drawable += leaves[j] != 0.0
        largest, least = max(largest, leaves[j]), min(least, leaves[j])
    if word_of(view, BOUNDS) != 0 and least < 0.0:
        priority = largest_now(view)
    point(form.trial, view, EVEN)
    while low < count:
        # Invariant: ``low`` words are written, up to ``slot``.
        high = min(count, low + slots - slot)
        theirs = array_at(words + _WORD * slot, high - low, first)
        _write_words(theirs, first + low, np.int64(READY))
        for j in range(theirs.size if drawable < count else 0):
            theirs[j] += CLOSED - READY if leaves[low + j] == 0.0 else 0
        low, slot = high, (slot + high - low) % slots
    fence()
    store_real(bank + LARGEST, largest)
    store_i64(bank + COUNT, load_i64(bank + COUNT) + drawable)
    point(form.trial, view, RAISE)
    if drawable > 0:
        set_range(view, leaf_lock, first % slots, count, values, priority)
    fence()
    store_release(bank + RANGES + RANGE_BYTES * entry + _WORD, 0)
    return 0
