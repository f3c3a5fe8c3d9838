"""The mutex of a bank's tree, that of its leaves, audits, and the repair of what the dead left."""

from typing import Any

import numpy as np

from ..sumtree.kernels.auditing import largest_error
from ..sumtree.kernels.header import CAPACITY, LEAVES, kernel, offset_of
from ..sumtree.lanes import (
    array_at,
    bytes_of,
    load_acquire,
    load_i64,
    load_real,
    rounded,
    store_i64,
    store_real,
    store_release,
    word_of,
)
from . import sampling
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
from .priorities import lock_leaves, raise_bound, unlock_leaves
from .steps import DONE, PORTION, step
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


@kernel()
def hold(trial: int, view: int) -> int:
    """Lock the bank's tree, repaired if need be, and its leaves, against those who read priorities."""
    enter(view)
    lock_leaves(trial, view)
    return DONE


@kernel()
def let_go(trial: int, view: int) -> int:
    """Unlock the bank's leaves and its tree."""
    unlock_leaves(trial, view)
    leave(view)
    return DONE


@kernel()
def audit_bank(trial: int, view: int, mend: bool, largest: Any) -> int:
    """Put the largest error of a sum into ``largest [1]``; ``mend`` repairs the bank. The caller has the lock."""
    largest[0] = audit(view, 0)
    if mend:
        repair(view)
    return DONE


@kernel()
def sample_distinct(trial: int, view: int, uniforms: Any, beta: float, out: int) -> int:
    """Sample without replacement; returns the number of records drawn, and fewer than B leave no batch."""
    batch = uniforms.size
    drawn, scratch = np.empty(sampling.DRAWN * batch, np.int64), np.empty(2 * batch, np.int64)
    sampling.begin(view, drawn, batch, uniforms, 0)
    count = sampling.search_distinct(view, drawn, batch, uniforms, scratch)
    if count == batch:
        sampling.gather(view, drawn, batch, 0, count, out)
        sampling.weigh(view, drawn, batch, beta, out)
    return count


@kernel()
def draw(trial: int, view: int, drawn: Any, uniforms: Any, count: int, attempt: int, beta: float, out: int) -> int:
    """Draw slots for the first ``count`` places that ``drawn`` lists, and weigh all B; nothing is copied. A status."""
    batch = uniforms.size
    if attempt == 0:
        sampling.begin(view, drawn, batch, uniforms, 1)
    else:
        sampling.redraw(view, drawn, batch, uniforms, count, attempt, 1, 1, 0)
    for low in range(0, count, PORTION):
        enter(view)
        status = sampling.search(view, drawn, batch, low, min(low + PORTION, count))
        leave(view)
        if status != DONE:
            return status
    sampling.weigh(view, drawn, batch, beta, out)
    return DONE


@kernel()
def gather(trial: int, view: int, drawn: Any, count: int, out: int) -> int:
    """Copy the records of the first ``count`` places; list first, and count, those whose record was gone by then."""
    batch = drawn.size // sampling.DRAWN
    sampling.gather(view, drawn, batch, 0, count, out)
    return sampling.changed(view, drawn, batch, count)


@kernel()
def reclaim(trial: int, view: int, number: int, pid: int, began: int) -> int:
    """Free entry ``number`` of the table of ranges if that process, which has ended, still has it.

    Its records that are not complete are closed and counted as lost. The caller has the lock.
    """
    bank = word_of(view, BANK)
    entry = bank + RANGES + RANGE_BYTES * number
    first, count = load_i64(entry), load_acquire(entry + _WORD)
    if count == 0 or load_i64(entry + 2 * _WORD) != pid or load_i64(entry + 3 * _WORD) != began:
        return DONE
    words, slots = word_of(view, WORDS), word_of(view, CAPACITY)
    lost = 0
    for ticket in range(first, first + count):
        at = words + _WORD * (ticket % slots)
        word = load_i64(at)
        complete = word == TICKET * (ticket + 1) + READY or word == TICKET * (ticket + 1) + CLOSED
        lost += not complete
        if word == TICKET * (ticket + 1) + WRITING:
            store_i64(at, TICKET * (ticket + 1) + CLOSED)
    store_i64(bank + LOST, load_i64(bank + LOST) + lost)
    store_release(entry + _WORD, 0)
    return DONE
