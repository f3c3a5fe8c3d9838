"""The leaves of a bank's tree: setting priorities, those of scattered slots or of neighbors, and the largest one.

``leaf_lock`` says whether the leaves have a mutex of their own [Zhang2021, Alg. 3].
"""

from typing import Any

import numpy as np

from ..sumtree.kernels.header import CAPACITY, LEAVES, offset_of
from ..sumtree.kernels.updating import recompute, set_leaves
from ..sumtree.lanes import array_at, bytes_of, load_real, rounded, stack_words, store_real, unsigned_divide, word_of
from .block import BANK, BLOCK_SHIFT, BOUNDS, LEAF_MUTEX
from .steps import LEAF_LOCK, LEAF_UNLOCK, SET_LEAVES, SUM_UP, point, step
from .sync import OWNER_DIED, acquire, inner, mutex_consistent, mutex_unlock

_WORD = 8
_GROUPS = 256  # of neighbors whose sums are renewed at once; a portion of them touches at most two more than it fills


@inner
def lock_leaves(trial: int, view: int) -> None:
    """Lock the leaves of the bank's tree; whoever has both locks took the tree's first."""
    point(trial, view, LEAF_LOCK)
    if acquire(word_of(view, BANK) + LEAF_MUTEX) == OWNER_DIED:
        mutex_consistent(word_of(view, BANK) + LEAF_MUTEX)


@inner
def unlock_leaves(trial: int, view: int) -> None:
    """Unlock the leaves of the bank's tree."""
    point(trial, view, LEAF_UNLOCK)
    mutex_unlock(word_of(view, BANK) + LEAF_MUTEX)


@inner
def _recompute(view: int, form: Any, slots: Any, values: Any) -> None:
    point(form.trial, view, SUM_UP)
    recompute(view, form, slots, values)


@step
def set_priorities(view: int, form: Any, leaf_lock: int, scratch: int, batch: int) -> int:
    """Store ``batch`` leaves and renew the sums; at ``scratch`` are the slots, and float64 priorities behind them."""
    slots, values = array_at(scratch, batch, scratch), array_at(scratch + _WORD * batch, batch, 0.0)
    if leaf_lock:
        lock_leaves(form.trial, view)
    if word_of(view, BOUNDS) != 0:
        for j in range(batch):
            raise_bound(view, form.fanout, slots[j], np.float64(rounded(values[j], form.like)))
    point(form.trial, view, SET_LEAVES)
    if leaf_lock:
        set_leaves(view, form, slots, values)
        values = values[:0]
        unlock_leaves(form.trial, view)
    _recompute(view, form, slots, values)
    return 0


@step
def set_range(view: int, form: Any, leaf_lock: int, slot: int, count: int, values: int, priority: float) -> int:
    """Store ``values [count]`` as the leaves from a slot on, around the ring, and renew the sums.

    ``priority`` stands for values below 0; without values (0) all are 0. The slots are neighbors, so that their groups
    need no marks, and no leaf costs more than its store.
    """
    slots = word_of(view, CAPACITY)
    touched, portion = array_at(stack_words(_GROUPS), _GROUPS, slot), (_GROUPS - 2) * form.fanout
    for low in range(0, count, portion):
        # Invariant: ``low`` leaves are stored and summed, up to ``slot``.
        high, at, listed = min(count, low + portion), low, 0
        if leaf_lock:
            lock_leaves(form.trial, view)
        point(form.trial, view, SET_LEAVES)
        while at < high:
            # Invariant: ``at`` leaves are stored; touched[:listed] is a leaf of each group of this portion.
            some = min(high - at, slots - slot)
            _store_neighbors(view, form, slot, some, values + _WORD * at if values != 0 else 0, priority)
            for group in range(unsigned_divide(slot, form.fanout), unsigned_divide(slot + some - 1, form.fanout) + 1):
                touched[listed] = group * form.fanout
                listed += 1
            at, slot = at + some, slot + some if slot + some < slots else 0
        if leaf_lock:
            unlock_leaves(form.trial, view)
        _recompute(view, form, touched[:listed], array_at(values, 0, 0.0))
    return 0


@inner
def _store_neighbors(view: int, form: Any, slot: int, count: int, values: int, priority: float) -> None:
    leaves, size, width = word_of(view, LEAVES), bytes_of(form.like), form.width
    given = array_at(values, count if values != 0 else 0, 0.0)
    if form.fanout == width and word_of(view, BOUNDS) == 0:
        theirs = array_at(leaves + size * slot, count, form.like)
        for j in range(given.size):
            theirs[j] = rounded(given[j] if given[j] >= 0.0 else priority, form.like)
        for j in range(given.size, count):
            theirs[j] = rounded(0.0, form.like)
        return
    for j in range(count):
        value = 0.0
        if values != 0:
            value = given[j] if given[j] >= 0.0 else priority
        raise_bound(view, form.fanout, slot + j, np.float64(rounded(value, form.like)))
        store_real(leaves + size * offset_of(slot + j, form.fanout, width), rounded(value, form.like))


@inner
def raise_bound(view: int, fanout: int, slot: int, priority: float) -> None:
    """Make the bound of a slot's block at least a priority, before the slot gets it."""
    bounds = word_of(view, BOUNDS)
    if bounds != 0:
        bound = bounds + _WORD * (unsigned_divide(slot, fanout) >> word_of(view, BLOCK_SHIFT))
        if load_real(bound, 0.0) < priority:
            store_real(bound, priority)


@step
def largest_now(view: int, form: Any) -> float:
    """The largest priority that a record has; 1.0 if there is none.

    Reads about 2 sqrt(N) numbers, and as many again for each block whose largest has fallen since the last call.
    """
    bounds, shift, leaves = word_of(view, BOUNDS), word_of(view, BLOCK_SHIFT), word_of(view, LEAVES)
    size, width = bytes_of(form.like), form.width
    groups = unsigned_divide(word_of(view, CAPACITY) + form.fanout - 1, form.fanout)
    while True:
        # Invariant: no leaf is above the bound of its block; hence the largest bound is the answer if a leaf has it.
        block, bound = 0, 0.0
        for other in range((groups + (1 << shift) - 1) >> shift):
            theirs = load_real(bounds + _WORD * other, 0.0)
            block = other if theirs > bound else block
            bound = max(bound, theirs)
        if bound == 0.0:
            return 1.0
        first = block << shift
        largest = 0.0
        for leaf in range(first * width, min(first + (1 << shift), groups) * width):
            largest = max(largest, np.float64(load_real(leaves + size * leaf, form.like)))
        if largest >= bound:
            return bound
        store_real(bounds + _WORD * block, largest)
