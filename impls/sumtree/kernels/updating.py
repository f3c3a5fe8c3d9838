"""Setting leaves, and the sums and minima above them."""

import math
from typing import Any

import numpy as np

from ..arguments import Indices, Reals
from ..lanes import (
    add_delta,
    array_at,
    bytes_of,
    clear_mark,
    least_positive,
    load_real,
    prefetch,
    prefetch_row,
    rounded,
    store_prefixes,
    store_real,
    sum_group,
    take_mark,
    unsigned_divide,
    word_of,
)
from .header import (
    BUSY,
    CAPACITY,
    CRAMPED,
    DONE,
    HAS_MINIMA,
    HAS_PREFIXES,
    HEIGHT,
    LEAVES,
    MARKS,
    MINIMA,
    PREFIX,
    REFUSED,
    SCRATCH,
    SUMS,
    WORD,
    inlined,
    inlined_late,
    inner,
    kernel,
    offset_of,
)
from .turns import begin_change, begin_writing, end_change, end_writing

_AHEAD = 64  # elements the update prefetches ahead, for the same reason
_LAG = 32  # elements after which a leaf's group is summed: its store has left the store buffer, its row is still in L1
_GROUPS_AHEAD = 12  # groups of an inner level that are asked for ahead: two rows each
_LINE = 64  # bytes


@inlined
def _take(
    tree: int, indices: Indices, priorities: Reals, like: Any, highest: float, slots: Indices, values: Reals
) -> bool:
    """Copy a batch: indices to ``slots [B]``, priorities as leaves store them to ``values [B]``.

    False if an index is outside [0, N) or a priority outside [0, highest] once rounded to a leaf.
    """
    capacity = np.uint64(word_of(tree, CAPACITY))
    bad = 0
    for j in range(indices.size):
        index, priority = indices[j], priorities[j]
        stored = np.float64(rounded(priority, like)) + 0.0  # which makes 0.0 of -0.0
        good = (np.uint64(index) < capacity) & (priority >= 0.0) & (stored <= highest)
        bad += not good
        slots[j] = index
        values[j] = stored
    return bad == 0


@inner
def _least(tree: int, like: Any, lanes: int, chunks: int, level: int, group: int) -> float:
    """The smallest positive leaf below a group of a level whose own minima are right; ``like`` is of its rows' type."""
    smallest, size, width = math.inf, bytes_of(like), lanes * chunks
    rows = word_of(tree, LEAVES) if level == 0 else word_of(tree, MINIMA + level)
    for chunk in range(chunks):
        smallest = min(smallest, least_positive(rows + size * (width * group + lanes * chunk), like, lanes))
    return smallest


@inner
def renew_minimum(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, level: int, group: int, store: bool = True
) -> float:
    """How far the minimum above a group is from the right one, which ``store`` puts there."""
    if level == 0:
        smallest = _least(tree, like, lanes, chunks, 0, group)
    else:
        smallest = _least(tree, 0.0, lanes, chunks, level, group)
    address = word_of(tree, MINIMA + level + 1) + WORD * offset_of(group, fanout, lanes * chunks)
    kept = load_real(address, 0.0)
    if store:
        store_real(address, smallest)
    return abs(kept - smallest) if kept != smallest else 0.0  # both may be infinite


@inner
def _renew_minima(tree: int, like: Any, fanout: int, lanes: int, chunks: int, leaves: Indices, count: int) -> None:
    """Make the minima above ``leaves[:count]`` right, one leaf's path after the other."""
    for j in range(count):
        node = leaves[j]
        for level in range(word_of(tree, HEIGHT)):
            # Invariant: the minima of this path up to this level are right.
            node = unsigned_divide(node, fanout)
            renew_minimum(tree, like, fanout, lanes, chunks, level, node)


@inlined_late
def _renew(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, level: int, children: int, group: int
) -> None:
    """Sum a group of a level, whose rows are at ``children``, into its parent; its prefix sums and minimum as well."""
    width, size, total = lanes * chunks, bytes_of(like), 0.0
    has_prefixes = (prefix & HAS_PREFIXES) != 0 and level > 0
    prefixes = word_of(tree, PREFIX + level) + WORD * width * group
    for chunk in range(chunks):
        row = children + size * (width * group + lanes * chunk)
        if has_prefixes:
            total = store_prefixes(row, prefixes + WORD * lanes * chunk, total, lanes)
        else:
            total += sum_group(row, like, lanes)
    if has_prefixes:
        store_real(prefixes, total)
    parent = WORD * offset_of(group, fanout, width)
    store_real(word_of(tree, SUMS + level + 1) + parent, total)
    if prefix & HAS_MINIMA:
        store_real(word_of(tree, MINIMA + level + 1) + parent, _least(tree, like, lanes, chunks, level, group))


@inlined
def _list_parent(tree: int, fanout: int, level: int, group: int, listed: Indices, count: int) -> int:
    """Add the group above a group of a level to ``listed[:count]``, unless it is there; returns the new count."""
    parent = unsigned_divide(group, fanout)
    listed[count] = parent
    # Invariant: a group is marked just where it is listed.
    return count + take_mark(word_of(tree, MARKS + level + 1) + parent)


@inner
def _are_most(count: int, groups: int, row_bytes: int) -> bool:
    """Whether ``count`` groups lie on most cache lines of a level, so that all in order take no longer."""
    return 8 * count * max(1, _LINE // row_bytes) > 7 * groups


@inner
def _climb(
    tree: int,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    groups: int,
    is_dense: bool,
    listed: Indices,
    count: int,
) -> None:
    """Sum groups above the leaf level, which has ``groups``, level by level to the root.

    Those are each group of a level if ``is_dense``, else ``listed[:count]`` of level 1 and those above them.
    """
    height, row_bytes = word_of(tree, HEIGHT), WORD * lanes * chunks
    for level in range(1, height):
        # Invariant: sums up to this level are right, and listed[:count] are its groups that changed, each once.
        groups = unsigned_divide(groups + fanout - 1, fanout)
        children, prefixes = word_of(tree, SUMS + level), word_of(tree, PREFIX + level)
        marks = word_of(tree, MARKS + level)
        if not is_dense and _are_most(count, groups, row_bytes):
            is_dense = True
            for j in range(count):
                clear_mark(marks + listed[j])
        if is_dense:
            for group in range(groups):
                _renew(tree, 0.0, fanout, lanes, chunks, prefix, level, children, group)
            continue
        above = 0
        for j in range(count):
            # Invariant: above <= j, so that no entry is overwritten before it is read.
            if j + _GROUPS_AHEAD < count:
                row = row_bytes * listed[j + _GROUPS_AHEAD]
                prefetch_row(children + row, 0.0, lanes, chunks)
                if prefix & HAS_PREFIXES:
                    prefetch_row(prefixes + row, 0.0, lanes, chunks)
            group = listed[j]
            clear_mark(marks + group)
            _renew(tree, 0.0, fanout, lanes, chunks, prefix, level, children, group)
            if level + 1 < height:
                above = _list_parent(tree, fanout, level, group, listed, above)
        count = above


@inlined
def set_leaves(tree: int, like: Any, fanout: int, lanes: int, chunks: int, slots: Indices, values: Reals) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]``, the last duplicate wins, and no sum: recompute renews those."""
    leaves, width, size = word_of(tree, LEAVES), lanes * chunks, bytes_of(like)
    for j in range(values.size):
        if j + _AHEAD < values.size:
            prefetch(leaves + size * offset_of(slots[j + _AHEAD], fanout, width))
        store_real(leaves + size * offset_of(slots[j], fanout, width), rounded(values[j], like))


@inlined
def recompute(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, slots: Indices, values: Reals
) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]``, the last duplicate wins, and renew all sums above them.

    Without values the leaves are set already. ``slots`` are then of no use any more.
    """
    leaves, parents, batch = word_of(tree, LEAVES), word_of(tree, SUMS + 1), slots.size
    width, size, has_more = lanes * chunks, bytes_of(like), word_of(tree, HEIGHT) > 1
    groups = unsigned_divide(word_of(tree, CAPACITY) + fanout - 1, fanout)
    is_dense = _are_most(batch, groups, size * width)
    count, lag = 0, 0 if is_dense else min(_LAG, batch)
    for j in range(min(_AHEAD, batch)):
        prefetch_row(leaves + size * width * unsigned_divide(slots[j], fanout), like, lanes, chunks)
    for j in range(batch + lag):
        if j + _AHEAD < batch:
            ahead = unsigned_divide(slots[j + _AHEAD], fanout)
            prefetch_row(leaves + size * width * ahead, like, lanes, chunks)
            prefetch(parents + WORD * offset_of(ahead, fanout, width))
        if j < values.size:
            store_real(leaves + size * offset_of(slots[j], fanout, width), rounded(values[j], like))
        if j >= lag and not is_dense:
            # Invariant: count <= j - lag, so that no slot is overwritten before it is read. A group that is summed
            # before all of its leaves are set is summed again; of neighbors in the batch only the last one sums it.
            group = unsigned_divide(slots[j - lag], fanout)
            if j - lag + 1 == batch or group != unsigned_divide(slots[j - lag + 1], fanout):
                _renew(tree, like, fanout, lanes, chunks, prefix, 0, leaves, group)
                if has_more:
                    count = _list_parent(tree, fanout, 0, group, slots, count)
    if is_dense:
        for group in range(groups):
            _renew(tree, like, fanout, lanes, chunks, prefix, 0, leaves, group)
    _climb(tree, fanout, lanes, chunks, prefix, groups, is_dense, slots, count)


@inlined
def _add_deltas(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    slots: Indices,
    values: Reals,
    before: Reals,
) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]`` and add the changes to their ancestors; ``before [B]`` is room."""
    leaves = word_of(tree, LEAVES)
    height = word_of(tree, HEIGHT)
    width, size, batch = lanes * chunks, bytes_of(like), slots.size
    for j in range(batch):
        if j + _AHEAD < batch:
            prefetch(leaves + size * offset_of(slots[j + _AHEAD], fanout, width))
        leaf = leaves + size * offset_of(slots[j], fanout, width)
        before[j] = load_real(leaf, like)
    for j in range(batch):  # the last duplicate wins
        # Invariant: from here on a leaf with its sign bit set is one whose change its ancestors lack.
        store_real(leaves + size * offset_of(slots[j], fanout, width), -abs(rounded(values[j], like)))
    for j in range(batch):
        if j + _AHEAD < batch:
            ahead = unsigned_divide(slots[j + _AHEAD], fanout)
            prefetch(word_of(tree, SUMS + 1) + WORD * offset_of(ahead, fanout, width))
            if prefix & HAS_PREFIXES and height > 1:
                row = word_of(tree, PREFIX + 1) + WORD * width * unsigned_divide(ahead, fanout)
                prefetch_row(row, 0.0, lanes, chunks)
        leaf = leaves + size * offset_of(slots[j], fanout, width)
        stored = load_real(leaf, like)
        if math.copysign(1.0, np.float64(stored)) > 0.0:
            continue
        stored = abs(stored)
        store_real(leaf, stored)
        delta = np.float64(stored) - before[j]
        node = slots[j]
        for level in range(1, height + 1):
            node = unsigned_divide(node, fanout)
            total = word_of(tree, SUMS + level) + WORD * offset_of(node, fanout, width)
            store_real(total, load_real(total, 0.0) + delta)
            if prefix & HAS_PREFIXES and level < height:
                group = unsigned_divide(node, fanout)
                row = word_of(tree, PREFIX + level) + WORD * width * group
                for chunk in range(chunks):
                    add_delta(row + WORD * lanes * chunk, lanes * chunk, node - group * fanout, delta, lanes)
    if prefix & HAS_MINIMA:
        _renew_minima(tree, like, fanout, lanes, chunks, slots, batch)


@kernel()
def update_by_recompute(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    highest: float,
    indices: Indices,
    priorities: Reals,
    scratch: Indices,
) -> int:
    if priorities.size != indices.size:
        return REFUSED
    if scratch.size < SCRATCH * indices.size:
        return CRAMPED
    if not begin_writing(tree, head):
        return BUSY
    status = REFUSED
    batch, room = indices.size, scratch.ctypes.data
    slots, values = array_at(room, batch, room), array_at(room + WORD * batch, batch, 0.0)
    if _take(tree, indices, priorities, like, highest, slots, values):
        begin_change(tree)
        recompute(tree, like, fanout, lanes, chunks, prefix, slots, values)
        end_change(tree)
        status = DONE
    end_writing(tree)
    return status


@kernel()
def update_by_delta(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    highest: float,
    indices: Indices,
    priorities: Reals,
    scratch: Indices,
) -> int:
    if priorities.size != indices.size:
        return REFUSED
    if scratch.size < SCRATCH * indices.size:
        return CRAMPED
    if not begin_writing(tree, head):
        return BUSY
    status = REFUSED
    batch, room = indices.size, scratch.ctypes.data
    slots, values = array_at(room, batch, room), array_at(room + WORD * batch, batch, 0.0)
    if _take(tree, indices, priorities, like, highest, slots, values):
        begin_change(tree)
        _add_deltas(
            tree, like, fanout, lanes, chunks, prefix, slots, values, array_at(room + 2 * WORD * batch, batch, 0.0)
        )
        end_change(tree)
        status = DONE
    end_writing(tree)
    return status
