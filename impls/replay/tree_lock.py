"""The mutex of a bank's tree, that of its leaves, and the repair of a bank whose owner died with the lock."""

from typing import Any

import numpy as np

from ..sumtree.kernels.auditing import largest_error
from ..sumtree.kernels.header import CAPACITY, LEAVES, offset_of
from ..sumtree.lanes import (
    array_at,
    bytes_of,
    load_i64,
    load_real,
    rounded,
    store_i64,
    store_real,
    store_release,
    word_of,
)
from .block import (
    BANK,
    CLOSED,
    COUNT,
    DAMAGED,
    LENT,
    LENT_LEAVES,
    LOST,
    MOST_RANGES,
    RANGE_BYTES,
    RANGES,
    READY,
    SCRATCH_ROW,
    TICKET,
    TREE_MUTEX,
    WORDS,
    WRITING,
    WRITTEN,
)
from .priorities import raise_bound
from .steps import step
from .sync import OWNER_DIED, acquire, inner, mutex_consistent, mutex_unlock

_WORD = 8


@step
def enter(view: int, form: Any) -> int:
    """Lock the bank's tree. If the last owner died with it, everything is repaired before this returns."""
    bank = word_of(view, BANK)
    if acquire(bank + TREE_MUTEX) == OWNER_DIED:
        mutex_consistent(bank + TREE_MUTEX)
        store_release(bank + DAMAGED, 1)
    if load_i64(bank + DAMAGED) != 0:
        repair(view)
        store_release(bank + DAMAGED, 0)
    return 0


@inner
def leave(view: int) -> None:
    """Unlock the bank's tree."""
    mutex_unlock(word_of(view, BANK) + TREE_MUTEX)


@step
def repair(view: int, form: Any) -> int:
    """Make the bank consistent after its owner died anywhere: records that are not whole are lost, and counted."""
    bank, words, slots = word_of(view, BANK), word_of(view, WORDS), word_of(view, CAPACITY)
    leaves, size, width = word_of(view, LEAVES), bytes_of(form.like), form.width
    for number in range(MOST_RANGES):
        entry = bank + RANGES + RANGE_BYTES * number
        first, held = load_i64(entry), load_i64(entry + _WORD)
        if held > 0 and load_i64(bank + WRITTEN) < first + held:
            store_i64(bank + WRITTEN, first + held)
        for ticket in range(first, first + held):  # older records there would lose their last frame to a later insert
            word = words + _WORD * (ticket % slots)
            if load_i64(word) < TICKET * (ticket + 1):
                store_i64(word, TICKET * (ticket + 1) + WRITING)
    lent = word_of(view, LENT_LEAVES)
    for j in range(load_i64(bank + LENT)):
        slot, priority = load_i64(lent + 2 * _WORD * j), load_real(lent + 2 * _WORD * j + _WORD, 0.0)
        store_real(leaves + size * offset_of(slot, form.fanout, width), rounded(priority, form.like))
    store_i64(bank + LENT, 0)
    count, lost = 0, 0
    for slot in range(slots):
        word = load_i64(words + _WORD * slot)
        leaf = leaves + size * offset_of(slot, form.fanout, width)
        if word & 3 == READY and load_real(leaf, form.like) > 0:
            count += 1
            raise_bound(view, form.fanout, slot, np.float64(load_real(leaf, form.like)))
            continue
        store_real(leaf, rounded(0.0, form.like))
        if word & 3 == READY:
            lost += 1
            store_i64(words + _WORD * slot, word - READY + CLOSED)
    store_i64(bank + COUNT, count)
    store_i64(bank + LOST, load_i64(bank + LOST) + lost)
    audit(view, 1)
    return 0


@step
def audit(view: int, form: Any, mend: int) -> float:
    """The largest error of a sum of the tree; ``mend`` makes them right. The caller has the lock."""
    fresh = array_at(word_of(view, SCRATCH_ROW), form.width, 0.0)
    return largest_error(view, form, mend != 0, fresh)
