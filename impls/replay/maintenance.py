"""Kernels that look after a bank of a replay: its mutex for calls that Python makes, audits, and what the dead left."""

from typing import Any

import numpy as np

from ..sumtree.lanes import load_i64, store_i64
from ..sumtree.numba_kernels import CAPACITY, _audit, _kernel
from . import steps
from .block import BANK, CLOSED, LOST, RANGE_BYTES, RANGES, READY, TICKET, WORDS, WRITING
from .sync import load_acquire, store_release

_WORD = 8


@_kernel()
def hold(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, edition: int) -> int:
    """Lock the bank's tree, repaired if need be."""
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    return steps.DONE


@_kernel()
def let_go(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, edition: int) -> int:
    """Unlock the bank's tree."""
    steps.leave(view)
    return steps.DONE


@_kernel()
def audit(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    mend: bool,
    largest: Any,
) -> int:
    """Put the largest error of a sum into ``largest [1]``; ``mend`` repairs the bank. The caller has the lock."""
    largest[0] = _audit(view, like, fanout, lanes, chunks, prefix, False, np.empty(lanes * chunks))
    if mend:
        steps.repair(view, like, fanout, lanes, chunks, prefix)
    return steps.DONE


@_kernel()
def sample_distinct(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    uniforms: Any,
    beta: float,
    out: int,
) -> int:
    """Sample without replacement; returns the number of records drawn, and fewer than B leave no batch."""
    drawn = steps.drawing(uniforms, False, like, uniforms.size)
    count = steps.search_distinct(view, like, fanout, lanes, chunks, prefix, trial, uniforms, drawn)
    if count == uniforms.size:
        steps.gather(view, trial, drawn, 0, count, out)
        steps.weigh(drawn, beta, out)
    return count


@_kernel()
def reclaim(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    number: int,
    pid: int,
    began: int,
) -> int:
    """Free entry ``number`` of the table of ranges if that process, which has ended, still has it.

    Its records that are not complete are closed and counted as lost. The caller has the lock.
    """
    bank = load_i64(view + _WORD * BANK)
    entry = bank + RANGES + RANGE_BYTES * number
    first, count = load_i64(entry), load_acquire(entry + _WORD)
    if count == 0 or load_i64(entry + 2 * _WORD) != pid or load_i64(entry + 3 * _WORD) != began:
        return steps.DONE
    words, slots = load_i64(view + _WORD * WORDS), load_i64(view + _WORD * CAPACITY)
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
    return steps.DONE
