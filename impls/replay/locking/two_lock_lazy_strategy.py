"""The two locks and the lazy writing of [Zhang2021, Alg. 3], as printed.

One mutex guards the tree, a second one its leaves, and a record is copied under neither: its priority is 0 meanwhile,
so that no search finds it. Two holes remain, which ``two_lock_checked`` closes: a sampler that found the slot just
before reads the record while it is overwritten, and a late update of the old record makes the priority positive in the
middle of the copy.
"""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.kernels.header import CAPACITY, kernel
from ...sumtree.lanes import array_at, load_real, store_real, word_of
from ..block import BANK, LARGEST
from ..blocks import Kernels
from ..priorities import set_priorities
from ..replay import Replay
from ..sampling import DRAWN, begin, gather, search, weigh
from ..steps import DONE, NOT_FINITE, SEARCH, SEARCHED, UPDATE, UPDATED, point
from ..sync import inner
from ..tree_lock import enter, leave
from ..updating import are_finite, leaves_of, rank, read_priorities
from .two_lock_checked_strategy import put_portion

_WORD = 8


@kernel()
def insert(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    values = np.empty(count)
    if rank(view, errors, errors.size, keep, keep.size, exponent, values, count) != DONE:
        return NOT_FINITE
    entry = put_portion(trial, view, source, values.ctypes.data, count)
    return DONE if entry >= 0 else entry


@kernel()
def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
    batch = uniforms.size
    drawn = np.empty(DRAWN * batch, np.int64)
    begin(view, drawn, batch, uniforms, stratified)
    point(trial, view, SEARCH)
    enter(view)
    status = search(view, drawn, batch, 0, batch)
    point(trial, view, SEARCHED)
    leave(view)
    if status == DONE:
        gather(view, drawn, batch, 0, batch, out)
        weigh(view, drawn, batch, beta, out)
    return status


@inner
def _update_by_slot(view: int, sequence: Any, leaves: Any, present: Any, scratch: Any) -> None:
    """Set the leaves of the tickets' slots, whatever record is there by now."""
    largest_at, slots, batch = word_of(view, BANK) + LARGEST, word_of(view, CAPACITY), sequence.size
    largest, values = load_real(largest_at, 0.0), array_at(scratch.ctypes.data + _WORD * batch, batch, 0.0)
    for j in range(batch):
        scratch[j] = abs(sequence[j]) % slots
        values[j] = leaves[j]
        present[j] = True
        largest = max(largest, leaves[j])
    store_real(largest_at, largest)
    set_priorities(view, 1, scratch, batch)


@kernel()
def update_priorities(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> int:
    batch = errors.size
    if not are_finite(view, errors, batch, exponent):
        return NOT_FINITE
    leaves, scratch = np.empty(batch), np.empty(2 * batch, np.int64)
    leaves_of(view, errors, 0, batch, exponent, leaves)
    point(trial, view, UPDATE)
    enter(view)
    _update_by_slot(view, sequence, leaves, present, scratch)
    point(trial, view, UPDATED)
    leave(view)
    return DONE


@kernel()
def retrieve_priorities(trial: int, view: int, sequence: Any, priorities: Any) -> int:
    read_priorities(view, 1, 1, sequence, 0, sequence.size, priorities)  # as updates: whatever record is there
    return DONE


class TwoLockLazyReplay(Replay):
    """Copies of records run concurrently with everything; records can be torn, as its two holes allow."""

    valid = False
    kernels: ClassVar = Kernels(insert, sample, update_priorities, retrieve_priorities)
