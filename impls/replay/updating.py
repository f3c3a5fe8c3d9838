"""Steps of an update or a retrieval: priorities from TD errors, and the leaves of records that are still there."""

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
    store_real,
    unsigned_divide,
    word_of,
)
from .block import BANK, LARGEST, READY, TICKET, WORDS, WRITTEN
from .priorities import lock_leaves, set_priorities, unlock_leaves
from .steps import step
from .sync import byte_at, inner, set_byte
from .trials import LOOK, READ_LEAF, point

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
    view: int,
    form: Any,
    leaf_lock: int,
    sequence: int,
    leaves: int,
    present: int,
    low: int,
    high: int,
    scratch: int,
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
