"""Updates by adding each leaf's change to its ancestors, by one thread or by several [Zhang2023, Alg. 2]."""

import math
import os
from typing import Any

import numpy as np
from numba import types

from ..arguments import Indices, Reals
from ..lanes import (
    add_delta,
    atomic_add,
    atomic_add_real,
    bytes_of,
    clear_mark,
    load_acquire,
    load_real,
    prefetch,
    prefetch_row,
    rounded,
    store_i64,
    store_real,
    store_release,
    unsigned_divide,
    word_of,
)
from .header import (
    DONE,
    HAS_MINIMA,
    HAS_PREFIXES,
    HEIGHT,
    LEAVES,
    MARKS,
    PREFIX,
    SUMS,
    WORD,
    inlined,
    kernel,
    offset_of,
)
from .searching import CHUNK, ENDED
from .updating import AHEAD, begin_update, end_update, list_parent, parts_of, renew_minima, sum_row

_FINISHED = 2  # word behind the ticket: chunks whose changes are added
_OPENING_LOOKS, _LAST_LOOKS = 4000, 1000
_let_others_run = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", types.int32())


@inlined
def _set_leaves(tree: int, form: Any, slots: Indices, values: Reals, before: Reals) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]``, the last duplicate wins, with their sign bits set.

    Puts into ``before [B]`` what they were, and NaN for every duplicate but the first.
    """
    leaves, width, size, batch = word_of(tree, LEAVES), form.width, bytes_of(form.like), slots.size
    for j in range(batch):
        if j + AHEAD < batch:
            prefetch(leaves + size * offset_of(slots[j + AHEAD], form.fanout, width))
        before[j] = load_real(leaves + size * offset_of(slots[j], form.fanout, width), form.like)
    for j in range(batch):
        # Invariant: from here on a leaf with its sign bit set is one whose change its ancestors lack.
        leaf = leaves + size * offset_of(slots[j], form.fanout, width)
        if math.copysign(1.0, np.float64(load_real(leaf, form.like))) < 0.0:
            before[j] = math.nan
        store_real(leaf, -abs(rounded(values[j], form.like)))


@inlined
def _add(address: int, delta: float) -> None:
    store_real(address, load_real(address, 0.0) + delta)


def _adding(add: Any, keeps_prefixes: bool) -> Any:
    """Make the step that adds changes to sums by ``add``, and to prefix rows if it ``keeps_prefixes``."""

    @inlined
    def add_changes(tree: int, form: Any, slots: Indices, before: Reals, low: int, high: int) -> None:
        leaves, height = word_of(tree, LEAVES), word_of(tree, HEIGHT)
        width, size = form.width, bytes_of(form.like)
        for j in range(low, high):
            if j + AHEAD < high:
                ahead = unsigned_divide(slots[j + AHEAD], form.fanout)
                prefetch(word_of(tree, SUMS + 1) + WORD * offset_of(ahead, form.fanout, width))
                if keeps_prefixes and form.prefix & HAS_PREFIXES and height > 1:
                    row = word_of(tree, PREFIX + 1) + WORD * width * unsigned_divide(ahead, form.fanout)
                    prefetch_row(row, 0.0, form.lanes, form.chunks)
            if math.isnan(before[j]):
                continue
            leaf = leaves + size * offset_of(slots[j], form.fanout, width)
            stored = abs(load_real(leaf, form.like))
            store_real(leaf, stored)
            delta = np.float64(stored) - before[j]
            node = slots[j]
            for level in range(1, height + 1):
                node = unsigned_divide(node, form.fanout)
                add(word_of(tree, SUMS + level) + WORD * offset_of(node, form.fanout, width), delta)
                if keeps_prefixes and form.prefix & HAS_PREFIXES and level < height:
                    group = unsigned_divide(node, form.fanout)
                    row = word_of(tree, PREFIX + level) + WORD * width * group
                    for chunk in range(form.chunks):
                        first = form.lanes * chunk
                        add_delta(row + WORD * first, first, node - group * form.fanout, delta, form.lanes)

    return add_changes


_add_alone, _add_together = _adding(_add, True), _adding(atomic_add_real, False)


@kernel()
def update(
    tree: int, head: bool, form: Any, highest: float, indices: Indices, priorities: Reals, scratch: Indices
) -> int:
    """Set the leaves ``indices [B]`` to ``priorities [B]``, and add the changes to their ancestors."""
    status = begin_update(tree, head, form, highest, indices, priorities, scratch)
    if status == DONE:
        slots, values, before = parts_of(scratch, indices.size)
        _set_leaves(tree, form, slots, values, before)
        _add_alone(tree, form, slots, before, 0, slots.size)
        if form.prefix & HAS_MINIMA:
            renew_minima(tree, form, slots, slots.size)
        end_update(tree)
    return status


@inlined
def _add_chunks(tree: int, form: Any, room: int, slots: Indices, before: Reals) -> None:
    """Add the changes of chunks of a batch, until none is left that no thread has."""
    while True:
        low = CHUNK * atomic_add(room, 1)
        if low < 0 or low >= slots.size:
            break
        _add_together(tree, form, slots, before, low, min(slots.size, low + CHUNK))
        atomic_add(room + WORD * _FINISHED, 1)


@kernel()
def help_update(tree: int, head: bool, form: Any, room: int, batch: int, scratch: Indices) -> int:
    """Add changes of a batch of B in the ``scratch`` of an :func:`update_with_help`, until none is left."""
    looks = 0
    while load_acquire(room) < 0:  # leaves are being set; the caller opens the room whatever comes of its update
        looks += 1
        if looks > _OPENING_LOOKS:
            _let_others_run()
    slots, _, before = parts_of(scratch, batch)
    _add_chunks(tree, form, room, slots, before)
    atomic_add(room + WORD * ENDED, 1)
    return DONE


@inlined
def _renew_prefixes(tree: int, form: Any, slots: Indices) -> None:
    """Make the prefix rows above the leaves ``slots [B]`` those of the sums; ``slots`` are then of no use any more."""
    nodes = slots.size
    for j in range(nodes):
        slots[j] = unsigned_divide(slots[j], form.fanout)
    for level in range(1, word_of(tree, HEIGHT)):
        # Invariant: slots[:nodes] are the nodes of this level that changed.
        rows, marks, groups = word_of(tree, SUMS + level), word_of(tree, MARKS + level), 0
        for j in range(nodes):
            groups = list_parent(tree, form.fanout, level - 1, slots[j], slots, groups)
        for j in range(groups):
            clear_mark(marks + slots[j])
            sum_row(tree, form, 0.0, level, rows, slots[j])
        nodes = groups


@kernel()
def update_with_help(
    tree: int, head: bool, form: Any, highest: float, room: int, indices: Indices, priorities: Reals, scratch: Indices
) -> int:
    """Update a batch together with threads that call :func:`help_update` meanwhile; sums change by atomic additions.

    Leaves are set by this thread, in order. At ``room`` are the words of ``searching.room_of``, the first
    CLOSED_TICKET, so that helpers that are early wait. Who is late delays this thread by a chunk at most.
    """
    status = begin_update(tree, head, form, highest, indices, priorities, scratch)
    if status != DONE:
        return status
    slots, values, before = parts_of(scratch, indices.size)
    _set_leaves(tree, form, slots, values, before)
    store_i64(room + WORD * _FINISHED, 0)
    store_release(room, 0)
    _add_chunks(tree, form, room, slots, before)
    looks = 0
    while load_acquire(room + WORD * _FINISHED) * CHUNK < slots.size:
        looks += 1
        if looks > _LAST_LOOKS:  # a helper may have lost its core
            _let_others_run()
    if form.prefix & HAS_MINIMA:
        renew_minima(tree, form, slots, slots.size)
    if form.prefix & HAS_PREFIXES:
        _renew_prefixes(tree, form, slots)
    end_update(tree)
    return DONE
