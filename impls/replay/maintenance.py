"""Kernels that look after a bank of a replay: its mutex for calls that Python makes, audits, and what the dead left."""

from typing import Any

import numpy as np

from ..sumtree.kernels.header import CAPACITY, kernel
from ..sumtree.lanes import load_acquire, load_i64, store_i64, store_release, word_of
from . import sampling, tree_lock
from .block import BANK, CLOSED, LOST, RANGE_BYTES, RANGES, READY, TICKET, WORDS, WRITING
from .priorities import lock_leaves, unlock_leaves
from .steps import DONE

_WORD = 8


@kernel()
def hold(trial: int, view: int) -> int:
    """Lock the bank's tree, repaired if need be, and its leaves, against those who read priorities."""
    tree_lock.enter(view)
    lock_leaves(trial, view)
    return DONE


@kernel()
def let_go(trial: int, view: int) -> int:
    """Unlock the bank's leaves and its tree."""
    unlock_leaves(trial, view)
    tree_lock.leave(view)
    return DONE


@kernel()
def audit(trial: int, view: int, mend: bool, largest: Any) -> int:
    """Put the largest error of a sum into ``largest [1]``; ``mend`` repairs the bank. The caller has the lock."""
    largest[0] = tree_lock.audit(view, 0)
    if mend:
        tree_lock.repair(view)
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
