"""Steps of an update: priorities from TD errors, and the leaves of records that are still there."""

import math
from typing import Any

from ..sumtree.kernels.header import CAPACITY, LEAVES
from ..sumtree.lanes import (
    array_at,
    bytes_of,
    load_i64,
    load_real,
    prefetch,
    prefetch_row,
    store_real,
    unsigned_divide,
    word_of,
)
from .block import BANK, LARGEST, WORDS
from .priorities import holds, set_priorities
from .steps import step
from .sync import byte_at, inner, set_byte

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
    row = bytes_of(form.like) * form.lanes * form.chunks
    for j in range(low, high):
        slot = abs(load_i64(sequence + _WORD * j)) % slots
        prefetch(words + _WORD * slot)
        prefetch_row(leaves + row * unsigned_divide(slot, form.fanout), form.like, form.lanes, form.chunks)
    return 0


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
