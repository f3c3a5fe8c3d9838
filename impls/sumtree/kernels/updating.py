"""Setting leaves, and the sums and minima above them."""

import math
from typing import Any

import numpy as np

from ..arguments import Indices, Reals
from ..lanes import (
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
    begin_change,
    begin_writing,
    end_change,
    end_writing,
    inlined,
    inlined_late,
    inner,
    kernel,
    offset_of,
)

AHEAD = 64  # elements the update prefetches ahead, for the same reason
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
def renew_minimum(tree: int, form: Any, level: int, group: int, store: bool = True) -> float:
    """How far the minimum above a group is from the right one, which ``store`` puts there."""
    if level == 0:
        smallest = _least(tree, form.like, form.lanes, form.chunks, 0, group)
    else:
        smallest = _least(tree, 0.0, form.lanes, form.chunks, level, group)
    address = word_of(tree, MINIMA + level + 1) + WORD * offset_of(group, form.fanout, form.width)
    kept = load_real(address, 0.0)
    if store:
        store_real(address, smallest)
    return abs(kept - smallest) if kept != smallest else 0.0  # both may be infinite


@inner
def renew_minima(tree: int, form: Any, leaves: Indices, count: int) -> None:
    """Make the minima above ``leaves[:count]`` right, one leaf's path after the other."""
    for j in range(count):
        node = leaves[j]
        for level in range(word_of(tree, HEIGHT)):
            # Invariant: the minima of this path up to this level are right.
            node = unsigned_divide(node, form.fanout)
            renew_minimum(tree, form, level, node)


@inlined_late
def sum_row(
    tree: int, form: Any, like: Any, level: int, children: int, group: int, child: int = -1, value: float = 0.0
) -> float:
    """Sum a group of a level, whose rows are at ``children``, and renew its prefix sums; with ``value`` for a child."""
    width, size, total = form.width, bytes_of(like), 0.0
    has_prefixes = (form.prefix & HAS_PREFIXES) != 0 and level > 0
    prefixes = word_of(tree, PREFIX + level) + WORD * width * group
    for chunk in range(form.chunks):
        first = form.lanes * chunk
        row = children + size * (width * group + first)
        if has_prefixes:
            total = store_prefixes(row, prefixes + WORD * first, total, child - first, value, form.lanes)
        else:
            total += sum_group(row, child - first, value, like, form.lanes)
    if has_prefixes:
        store_real(prefixes, total)
    return total


@inlined_late
def _renew(tree: int, form: Any, like: Any, level: int, children: int, group: int) -> None:
    """Sum a group of a level, whose rows are at ``children``, into its parent; its prefix sums and minimum as well."""
    parent = WORD * offset_of(group, form.fanout, form.width)
    store_real(word_of(tree, SUMS + level + 1) + parent, sum_row(tree, form, like, level, children, group))
    if form.prefix & HAS_MINIMA:
        store_real(
            word_of(tree, MINIMA + level + 1) + parent, _least(tree, like, form.lanes, form.chunks, level, group)
        )


@inner
def _set_one(tree: int, form: Any, slots: Indices, value: float) -> None:
    """Set the leaf ``slots [1]`` and renew the sums above it."""
    rows, node, like = word_of(tree, LEAVES), slots[0], form.like
    group = unsigned_divide(node, form.fanout)
    total = sum_row(tree, form, like, 0, rows, group, node - group * form.fanout, np.float64(rounded(value, like)))
    store_real(rows + bytes_of(like) * offset_of(node, form.fanout, form.width), rounded(value, like))
    for level in range(1, word_of(tree, HEIGHT)):
        # Invariant: ``total`` is the sum of the group. Its row is read before it is stored, as a load that takes more
        # than one store has written waits for it.
        above, rows = unsigned_divide(group, form.fanout), word_of(tree, SUMS + level)
        next_total = sum_row(tree, form, 0.0, level, rows, above, group - above * form.fanout, total)
        store_real(rows + WORD * offset_of(group, form.fanout, form.width), total)
        group, total = above, next_total
    store_real(word_of(tree, SUMS + word_of(tree, HEIGHT)) + WORD * offset_of(group, form.fanout, form.width), total)
    if form.prefix & HAS_MINIMA:
        renew_minima(tree, form, slots, 1)


@inlined
def list_parent(tree: int, fanout: int, level: int, group: int, listed: Indices, count: int) -> int:
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
def _climb(tree: int, form: Any, groups: int, is_dense: bool, listed: Indices, count: int) -> None:
    """Sum groups above the leaf level, which has ``groups``, level by level to the root.

    Those are each group of a level if ``is_dense``, else ``listed[:count]`` of level 1 and those above them.
    """
    height, row_bytes = word_of(tree, HEIGHT), WORD * form.width
    for level in range(1, height):
        # Invariant: sums up to this level are right, and listed[:count] are its groups that changed, each once.
        groups = unsigned_divide(groups + form.fanout - 1, form.fanout)
        children, prefixes = word_of(tree, SUMS + level), word_of(tree, PREFIX + level)
        marks = word_of(tree, MARKS + level)
        if not is_dense and _are_most(count, groups, row_bytes):
            is_dense = True
            for j in range(count):
                clear_mark(marks + listed[j])
        if is_dense:
            for group in range(groups):
                _renew(tree, form, 0.0, level, children, group)
            continue
        above = 0
        for j in range(count):
            # Invariant: above <= j, so that no entry is overwritten before it is read.
            if j + _GROUPS_AHEAD < count:
                row = row_bytes * listed[j + _GROUPS_AHEAD]
                prefetch_row(children + row, 0.0, form.lanes, form.chunks)
                if form.prefix & HAS_PREFIXES:
                    prefetch_row(prefixes + row, 0.0, form.lanes, form.chunks)
            group = listed[j]
            clear_mark(marks + group)
            _renew(tree, form, 0.0, level, children, group)
            if level + 1 < height:
                above = list_parent(tree, form.fanout, level, group, listed, above)
        count = above


@inlined
def set_leaves(tree: int, form: Any, slots: Indices, values: Reals) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]``, the last duplicate wins, and no sum: recompute renews those."""
    leaves, width, size = word_of(tree, LEAVES), form.width, bytes_of(form.like)
    for j in range(values.size):
        if j + AHEAD < values.size:
            prefetch(leaves + size * offset_of(slots[j + AHEAD], form.fanout, width))
        store_real(leaves + size * offset_of(slots[j], form.fanout, width), rounded(values[j], form.like))


@inlined
def recompute(tree: int, form: Any, slots: Indices, values: Reals) -> None:
    """Set the leaves ``slots [B]`` to ``values [B]``, the last duplicate wins, and renew all sums above them.

    Without values the leaves are set already. ``slots`` are then of no use any more.
    """
    leaves, parents, batch = word_of(tree, LEAVES), word_of(tree, SUMS + 1), slots.size
    if batch == 1 and values.size == 1:
        _set_one(tree, form, slots, values[0])
        return
    width, size, has_more = form.width, bytes_of(form.like), word_of(tree, HEIGHT) > 1
    groups = unsigned_divide(word_of(tree, CAPACITY) + form.fanout - 1, form.fanout)
    is_dense = _are_most(batch, groups, size * width)
    count, lag = 0, 0 if is_dense else min(_LAG, batch)
    for j in range(min(AHEAD, batch)):
        prefetch_row(leaves + size * width * unsigned_divide(slots[j], form.fanout), form.like, form.lanes, form.chunks)
    for j in range(batch + lag):
        if j + AHEAD < batch:
            ahead = unsigned_divide(slots[j + AHEAD], form.fanout)
            prefetch_row(leaves + size * width * ahead, form.like, form.lanes, form.chunks)
            prefetch(parents + WORD * offset_of(ahead, form.fanout, width))
        if j < values.size:
            store_real(leaves + size * offset_of(slots[j], form.fanout, width), rounded(values[j], form.like))
        if j >= lag and not is_dense:
            # Invariant: count <= j - lag, so that no slot is overwritten before it is read. A group that is summed
            # before all of its leaves are set is summed again; of neighbors in the batch only the last one sums it.
            group = unsigned_divide(slots[j - lag], form.fanout)
            if j - lag + 1 == batch or group != unsigned_divide(slots[j - lag + 1], form.fanout):
                _renew(tree, form, form.like, 0, leaves, group)
                if has_more:
                    count = list_parent(tree, form.fanout, 0, group, slots, count)
    if is_dense:
        for group in range(groups):
            _renew(tree, form, form.like, 0, leaves, group)
    _climb(tree, form, groups, is_dense, slots, count)


@inlined
def begin_update(
    tree: int, head: bool, form: Any, highest: float, indices: Indices, priorities: Reals, scratch: Indices
) -> int:
    """Take the turn of an update and copy its batch to ``scratch``; DONE if the change may begin, else why not."""
    if priorities.size != indices.size:
        return REFUSED
    if scratch.size < SCRATCH * indices.size:
        return CRAMPED
    if not begin_writing(tree, head):
        return BUSY
    slots, values, _ = parts_of(scratch, indices.size)
    if not _take(tree, indices, priorities, form.like, highest, slots, values):
        end_writing(tree)
        return REFUSED
    begin_change(tree)
    return DONE


@inlined
def end_update(tree: int) -> None:
    """Give back the turn of an update."""
    end_change(tree)
    end_writing(tree)


@inlined
def parts_of(scratch: Indices, batch: int) -> tuple[Indices, Reals, Reals]:
    """(leaves' numbers, their new values, room for those before), each ``[B]``, in the scratch of an update."""
    room = scratch.ctypes.data
    slots, values = array_at(room, batch, room), array_at(room + WORD * batch, batch, 0.0)
    return slots, values, array_at(room + 2 * WORD * batch, batch, 0.0)


@kernel()
def update(
    tree: int, head: bool, form: Any, highest: float, indices: Indices, priorities: Reals, scratch: Indices
) -> int:
    """Set the leaves ``indices [B]`` to ``priorities [B]``, and renew the sums above them."""
    status = begin_update(tree, head, form, highest, indices, priorities, scratch)
    if status == DONE:
        slots, values, _ = parts_of(scratch, indices.size)
        recompute(tree, form, slots, values)
        end_update(tree)
    return status
