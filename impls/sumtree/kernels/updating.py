"""Setting leaves, and the sums and minima above them."""

import math
from typing import Any

import numpy as np

from ..arguments import Indices, Reals
from ..lanes import (
    add_delta,
    bytes_of,
    clear_mark,
    least_positive,
    load_real,
    prefetch,
    prefetch_row,
    rounded,
    scan_group,
    store_prefixes,
    store_real,
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
    inner,
    kernel,
    offset_of,
)
from .turns import begin_change, begin_writing, end_change, end_writing

_AHEAD = 64  # elements the update prefetches ahead, for the same reason
_SPARSE = 16  # leaf groups per element of the batch, from which marking those seen costs more than it saves


@inlined
def _take(
    tree: int, indices: Indices, priorities: Reals, like: Any, highest: float, scratch: Indices, values: int
) -> bool:
    """Copy a batch: indices into the scratch, priorities as leaves store them to the address ``values``.

    False if an index is outside [0, N) or a priority outside [0, highest] once rounded to a leaf.
    """
    capacity = np.uint64(word_of(tree, CAPACITY))
    bad = 0
    for j in range(indices.size):
        index, priority = indices[j], priorities[j]
        stored = np.float64(rounded(priority, like)) + 0.0  # which makes 0.0 of -0.0
        good = (np.uint64(index) < capacity) & (priority >= 0.0) & (stored <= highest)
        bad += not good
        scratch[j] = index
        store_real(values + WORD * j, stored)
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


@inner
def _refresh(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    level: int,
    children: int,
    groups: Indices,
    count: int,
) -> int:
    """Sum ``count`` groups of a level into their parents; ``groups`` then lists those parents' groups, each once.

    Returns how many those are.
    """
    width, size = lanes * chunks, bytes_of(like)
    above = level + 1
    is_root = above == word_of(tree, HEIGHT)
    parents = word_of(tree, SUMS + above)
    parent_prefixes = word_of(tree, PREFIX + above)
    marks = word_of(tree, MARKS + level)
    parent_marks = word_of(tree, MARKS + above)
    prefixes = word_of(tree, PREFIX + level)
    has_prefixes = (prefix & HAS_PREFIXES) != 0
    listed = 0
    for j in range(count):
        group = groups[j]
        clear_mark(marks + group)
        row = children + size * width * group
        total = 0.0
        for chunk in range(chunks):
            if has_prefixes and level > 0:
                target = prefixes + WORD * (width * group + lanes * chunk)
                total = store_prefixes(row + WORD * lanes * chunk, target, total, lanes)
            else:
                _, _, total = scan_group(row + size * lanes * chunk, total, 0.0, like, lanes)
        if has_prefixes and level > 0:
            store_real(prefixes + WORD * width * group, total)
        parent_group = unsigned_divide(group, fanout)
        store_real(parents + WORD * offset_of(group, fanout, width), total)
        if prefix & HAS_MINIMA:
            store_real(
                word_of(tree, MINIMA + above) + WORD * offset_of(group, fanout, width),
                _least(tree, like, lanes, chunks, level, group),
            )
        if not is_root:
            # Invariant: a parent group is marked just where it is listed; listed <= j: the entry overwritten was read.
            groups[listed] = parent_group
            listed += take_mark(parent_marks + parent_group)
            prefetch_row(parents + WORD * width * parent_group, 0.0, lanes, chunks)
            if has_prefixes:
                prefetch_row(parent_prefixes + WORD * width * parent_group, 0.0, lanes, chunks)
    return listed


@inlined
def set_leaves(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    batch: int,
    scratch: Indices,
    values: int,
) -> int:
    """Set the leaves at ``scratch[:batch]`` to the float64 at the address ``values``; the last duplicate wins.

    Puts the touched groups in the place of the indices, for :func:`sum_up`; returns how many it lists.
    """
    leaves = word_of(tree, LEAVES)
    parents = word_of(tree, SUMS + 1)
    marks = word_of(tree, MARKS)
    width, size = lanes * chunks, bytes_of(like)
    sparse = _SPARSE * batch * fanout < word_of(tree, CAPACITY)
    for j in range(min(_AHEAD, batch)):
        prefetch_row(leaves + size * width * unsigned_divide(scratch[j], fanout), like, lanes, chunks)
    count = 0
    for j in range(batch):
        if j + _AHEAD < batch:
            prefetch_row(leaves + size * width * unsigned_divide(scratch[j + _AHEAD], fanout), like, lanes, chunks)
        store_real(
            leaves + size * offset_of(scratch[j], fanout, width), rounded(load_real(values + WORD * j, 0.0), like)
        )
        group = unsigned_divide(scratch[j], fanout)
        # Invariant: scratch[:count] lists the groups touched so far, count <= j, and scratch[j:] are still indices.
        # A group listed twice is only summed twice; where that is rare, marks would be the greater waste.
        is_new = (count == 0 or scratch[count - 1] != group) if sparse else take_mark(marks + group)
        scratch[count] = group
        count += is_new
        prefetch(parents + WORD * offset_of(group, fanout, width))
    return count


@inlined
def sum_up(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, scratch: Indices, count: int
) -> None:
    """Sum the leaf groups ``scratch[:count]`` again, then each group above them once, level by level to the root."""
    leaves = word_of(tree, LEAVES)
    count = _refresh(tree, like, fanout, lanes, chunks, prefix, 0, leaves, scratch, count)
    for level in range(1, word_of(tree, HEIGHT)):
        # Invariant: sums up to this level are right, and scratch[:count] lists its groups that changed, each once.
        children = word_of(tree, SUMS + level)
        count = _refresh(tree, 0.0, fanout, lanes, chunks, prefix, level, children, scratch, count)


@inlined
def recompute(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    batch: int,
    scratch: Indices,
    values: int,
) -> None:
    """Set a batch of leaves, then sum each touched group once, level by level."""
    count = set_leaves(tree, like, fanout, lanes, chunks, prefix, batch, scratch, values)
    sum_up(tree, like, fanout, lanes, chunks, prefix, scratch, count)


@inlined
def _add_deltas(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    batch: int,
    scratch: Indices,
    values: int,
) -> None:
    """Set a batch of leaves and add the change of each to its ancestors."""
    leaves = word_of(tree, LEAVES)
    height = word_of(tree, HEIGHT)
    width, size = lanes * chunks, bytes_of(like)
    before = values + WORD * batch  # the leaves as they were
    for j in range(batch):
        if j + _AHEAD < batch:
            prefetch(leaves + size * offset_of(scratch[j + _AHEAD], fanout, width))
        leaf = leaves + size * offset_of(scratch[j], fanout, width)
        store_real(before + WORD * j, np.float64(load_real(leaf, like)))
    for j in range(batch):  # the last duplicate wins
        # Invariant: from here on a leaf with its sign bit set is one whose change its ancestors lack.
        store_real(
            leaves + size * offset_of(scratch[j], fanout, width), -abs(rounded(load_real(values + WORD * j, 0.0), like))
        )
    for j in range(batch):
        if j + _AHEAD < batch:
            ahead = unsigned_divide(scratch[j + _AHEAD], fanout)
            prefetch(word_of(tree, SUMS + 1) + WORD * offset_of(ahead, fanout, width))
            if prefix & HAS_PREFIXES and height > 1:
                row = word_of(tree, PREFIX + 1) + WORD * width * unsigned_divide(ahead, fanout)
                prefetch_row(row, 0.0, lanes, chunks)
        leaf = leaves + size * offset_of(scratch[j], fanout, width)
        stored = load_real(leaf, like)
        if math.copysign(1.0, np.float64(stored)) > 0.0:
            continue
        stored = abs(stored)
        store_real(leaf, stored)
        delta = np.float64(stored) - load_real(before + WORD * j, 0.0)
        node = scratch[j]
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
        _renew_minima(tree, like, fanout, lanes, chunks, scratch, batch)


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
    values = scratch.ctypes.data + WORD * indices.size
    if _take(tree, indices, priorities, like, highest, scratch, values):
        begin_change(tree)
        recompute(tree, like, fanout, lanes, chunks, prefix, indices.size, scratch, values)
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
    values = scratch.ctypes.data + WORD * indices.size
    if _take(tree, indices, priorities, like, highest, scratch, values):
        begin_change(tree)
        _add_deltas(tree, like, fanout, lanes, chunks, prefix, indices.size, scratch, values)
        end_change(tree)
        status = DONE
    end_writing(tree)
    return status
