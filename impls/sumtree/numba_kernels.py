"""The compiled kernels of ``numba_tree.py``; its docstring shows the memory they work on.

A kernel takes the address of the tree's header, whether the call is at the ``head`` of the line of those that wait for
their turn, then what it is compiled for (``like``: a number of the leaf's type; ``fanout`` K; ``lanes`` of one vector;
``chunks`` vectors to a row; ``prefix``: whether there are prefix rows, and in a second bit whether minima are kept;
``edition`` of the vector code; all but the first literals), then its arguments. Nodes are numbered as in ``levels.py``;
``mass`` is a prefix value.

Turns. The header's lock word counts the kernels that read the tree, and has a bit for one that writes, and a bit that
the head of the line sets to keep out all others. A kernel takes its turn when it begins and gives it back when it
ends, or else returns BUSY with nothing done.

A kernel that samples or gathers first goes without a turn: it counts only if the header's sequence word was even, hence
no kernel was changing the tree, and is the same afterwards. Meanwhile it may read anything, rows half written included,
and must stay inside the tree's memory whatever it reads. After a second such attempt it takes its turn.

Other threads may write to the arrays of a call meanwhile, so every element of an argument is read once an attempt: the
value that is used is the value that was checked.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

from .contract import Indices, Priorities, Reals
from .lanes import (
    acquire_fence,
    add_delta,
    at_most,
    atomic_add,
    atomic_and,
    atomic_or,
    atomic_swap_if,
    bytes_of,
    clear_mark,
    count_after_first,
    count_at_most,
    just_below,
    least_positive,
    load_acquire,
    load_i64,
    load_real,
    prefetch,
    prefetch_row,
    release_fence,
    rounded,
    scan_group,
    stack_words,
    store_i64,
    store_prefixes,
    store_real,
    store_release,
    take_mark,
    unsigned_divide,
)

_WORD = 8  # bytes of an address, an index, a float64
_BLOCK = 64  # elements that descend together: one phase outlasts an L3 miss
_AHEAD = 64  # elements the update prefetches ahead, for the same reason
_MOST_LEVELS = 64
_SPARSE = 16  # leaf groups per element of the batch, from which marking those seen costs more than it saves

# The header a kernel gets the address of: int64 words.
CAPACITY, HEIGHT, LEAVES = 0, 1, 2
SUMS = 8  # + level 1..height: address of the level's node sums
PREFIX = 72  # + level 1..height-1: address of its prefix rows
MARKS = 136  # + level 0..height-1: address of a byte for each of its groups
LOCK = 200  # on a cache line of their own, these two
SEQUENCE = 201  # odd while a kernel changes the tree, and 2 more after it
LENT, LENT_AT = 202, 203  # leaves that a kernel has set to 0 and sets again: how many, and the address of their list
MINIMA = 208  # + level 1..height: address of the smallest positive leaf below each node, infinity where there is none
HEADER_WORDS = 272

HAS_PREFIXES, HAS_MINIMA = 1, 2  # bits of a kernel's ``prefix``

CLOSED, WRITES, HELD = 1 << 40, 1 << 41, 1 << 42  # bits of the lock word above the number of readers

DONE, REFUSED, EMPTY, BUSY, CRAMPED = range(5)  # results of a kernel; CRAMPED: the scratch is too small
SCRATCH = 3  # words an update needs for each element of its batch
LENDING_SCRATCH = 4  # those that a draw needs for each leaf it sets to 0 and gives back

_inner = njit(nogil=True, error_model="numpy")
_inlined = njit(nogil=True, error_model="numpy", inline="always")  # a call with so many arguments would take 60 ns


def _kernel(parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a kernel, on disk if there is a folder for it; what it calls is compiled into it."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(nogil=True, cache=True, error_model="numpy", parallel=parallel)(function)
        except RuntimeError:  # neither this folder nor the user's cache can be written: every process compiles anew
            return njit(nogil=True, error_model="numpy", parallel=parallel)(function)

    return decorate


@_inner
def _word(tree: int, field: int) -> int:
    return load_i64(tree + _WORD * field)


@_inner
def _offset(node: int, fanout: int, width: int) -> int:
    """Number of a node's element in its level's rows."""
    group = unsigned_divide(node, fanout)
    return group * width + (node - group * fanout)


# Turns


@_inner
def _begin_reading(tree: int, head: bool) -> bool:
    word = tree + _WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    # Invariant: the count has every reader that is inside, and beside them only some that have yet to see they must go.
    if atomic_add(word, 1) < (WRITES if head else CLOSED):
        if head:
            atomic_and(word, ~CLOSED)
        return True
    atomic_add(word, -1)
    return False


@_inner
def _end_reading(tree: int) -> None:
    atomic_add(tree + _WORD * LOCK, -1)


@_inner
def _begin_writing(tree: int, head: bool) -> bool:
    word = tree + _WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    return atomic_swap_if(word, CLOSED if head else 0, WRITES)


@_inner
def _end_writing(tree: int) -> None:
    # Subtracted, because a reader may have counted itself and not yet seen that it must leave.
    atomic_add(tree + _WORD * LOCK, -WRITES)


@_inner
def _begin_change(tree: int) -> None:
    """Make the sequence odd, before anything is written by the kernel whose turn it is."""
    word = tree + _WORD * SEQUENCE
    store_release(word, load_i64(word) | 1)  # it is odd already where an update never ended, in a forked child
    release_fence()


@_inner
def _end_change(tree: int) -> None:
    """Make the sequence even, after everything that was written."""
    word = tree + _WORD * SEQUENCE
    store_release(word, load_i64(word) + 1)


_WITHOUT_TURN = 2  # attempts to read
_HAS_TURN, _KEPT_OUT = -1, -2


@_inner
def _begin_attempt(tree: int, head: bool, attempt: int) -> int:
    """The sequence to read beside, if it is even; else _HAS_TURN, or _KEPT_OUT where that could not be had."""
    if attempt <= _WITHOUT_TURN:
        sequence = load_acquire(tree + _WORD * SEQUENCE)
        if sequence & 1 == 0:
            return sequence
    return _HAS_TURN if _begin_reading(tree, head) else _KEPT_OUT


@_inner
def _end_attempt(tree: int, sequence: int) -> bool:
    """Whether all that was read since :func:`_begin_attempt`, which returned ``sequence``, is one state of the tree."""
    if sequence == _HAS_TURN:
        _end_reading(tree)
        return True
    acquire_fence()
    return load_i64(tree + _WORD * SEQUENCE) == sequence


OPEN, HOLD, LET_GO = range(3)


@_kernel()
def turn(tree: int, edition: int, action: int) -> bool:
    """Change the lock. OPEN: the head of the line has left it. HOLD: keep calls out, and hold the tree if none is
    inside. LET_GO: end that hold. Returns whether HOLD succeeded.
    """
    word = tree + _WORD * LOCK
    if action == HOLD:
        atomic_or(word, CLOSED)
        return atomic_swap_if(word, CLOSED, WRITES | HELD)
    if action == OPEN:
        atomic_and(word, ~CLOSED)
    elif load_i64(word) & HELD:
        atomic_and(word, ~(WRITES | HELD))
    return False


# Search


@_inner
def _child_in_prefix_row(row: int, mass: float, lanes: int, chunks: int) -> tuple[int, float]:
    """(child that the prefix value falls on, its rest within the child), from a row of prefix sums."""
    total = load_real(row, 0.0)
    if mass >= total:  # rounding: just under the total lies the last child with a positive sum
        mass = just_below(total)
    child = count_after_first(row, mass, lanes)
    for chunk in range(1, chunks):
        # Invariant: child counts the lanes passed that are at most mass, lane 0, the total, aside.
        child += count_at_most(row + _WORD * lanes * chunk, mass, lanes)
    left = load_real(row + _WORD * child, 0.0)
    return child, mass - (left if child > 0 else 0.0)


@_inner
def _scan_row(row: int, mass: float, like: Any, lanes: int, chunks: int) -> tuple[int, float, float]:
    """(how many prefix sums of a row of plain numbers are <= mass, the largest of those or 0, the sum of the row)"""
    size = bytes_of(like)
    count, left, total = 0, 0.0, 0.0
    for chunk in range(chunks):
        more, largest, total = scan_group(row + size * lanes * chunk, total, mass, like, lanes)
        count += more
        left = max(left, largest)
    return count, left, total


@_inner
def _child_in_plain_row(row: int, mass: float, like: Any, lanes: int, chunks: int) -> tuple[int, float]:
    """(child that the prefix value falls on, its rest within the child), from a row of plain numbers."""
    child, left, total = _scan_row(row, mass, like, lanes, chunks)
    if mass >= total:  # rounding: just under the total lies the last child with a positive sum
        mass = just_below(total)
        child, left, total = _scan_row(row, mass, like, lanes, chunks)
    return child, mass - left


@_inner
def _nearest_positive(tree: int, like: Any, fanout: int, width: int, leaf: int) -> int:
    """The nearest leaf to the left with a positive priority, else the first to the right, else -1."""
    leaves, size = _word(tree, LEAVES), bytes_of(like)
    for candidate in range(leaf, -1, -1):
        if load_real(leaves + size * _offset(candidate, fanout, width), like) > 0:
            return candidate
    for candidate in range(leaf + 1, _word(tree, CAPACITY)):
        if load_real(leaves + size * _offset(candidate, fanout, width), like) > 0:
            return candidate
    return -1


@_inner
def _leaf_in_group(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, group: int, mass: float
) -> tuple[int, Any]:
    """(leaf, its priority); leaf -1 if no leaf of the tree has a positive one"""
    leaves, size, width = _word(tree, LEAVES), bytes_of(like), lanes * chunks
    row = leaves + size * width * group
    child, _ = _child_in_plain_row(row, mass, like, lanes, chunks)
    child = at_most(child, fanout - 1)  # as there may be more prefix values than leaves while sums are being written
    leaf = at_most(group * fanout + child, _word(tree, CAPACITY) - 1)  # what lies beyond is padding, hence 0
    priority = load_real(row + size * child, like)
    if not priority > 0:  # delta updates can leave a sum above a group of zeros
        leaf = _nearest_positive(tree, like, fanout, width, leaf)
        priority = load_real(leaves + size * _offset(max(leaf, 0), fanout, width), like)
    return leaf, priority


@_inner
def _start_block(values: Reals, start: int, block: int, scale: float, bound: float, masses: int, nodes: int) -> bool:
    """Put the elements of a block at the root; False if a value is outside [0, bound)."""
    for j in range(block):
        value = values[start + j]
        if not (value >= 0.0 and value < bound):
            return False
        store_real(masses + _WORD * j, value * scale)
        store_i64(nodes + _WORD * j, 0)
    return True


@_inner
def _list_last_rows(tree: int, fanout: int, rows: int) -> None:
    """Write the number of the last row of level i to word i + 1 of ``rows``, for every level below the root."""
    row = _word(tree, CAPACITY) - 1
    for level in range(1, _word(tree, HEIGHT)):
        row = unsigned_divide(row, fanout)
        store_i64(rows + _WORD * level, row)


@_inlined
def _search(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    values: Reals,
    uniform: bool,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """Leaves and their priorities for ``values [B]``: uniforms in [0, 1) if ``uniform``, else in [0, total).

    Beside a kernel that writes, the leaves are arbitrary ones of the tree.
    """
    if values.size == 0:
        return DONE
    height = _word(tree, HEIGHT)
    leaves = _word(tree, LEAVES)
    width = lanes * chunks
    size = bytes_of(like)
    total = load_real(_word(tree, SUMS + height), 0.0)
    scale, bound = (total, 1.0) if uniform else (1.0, total)
    if total <= 0.0 and not uniform:
        return REFUSED
    masses = stack_words(_BLOCK)
    nodes = stack_words(_BLOCK)
    last_rows = stack_words(_MOST_LEVELS)
    _list_last_rows(tree, fanout, last_rows)
    for start in range(0, values.size, _BLOCK):
        block = min(_BLOCK, values.size - start)
        if not _start_block(values, start, block, scale, bound, masses, nodes):
            return REFUSED
        for level in range(height - 1, 0, -1):
            rows = _word(tree, PREFIX + level) if prefix else _word(tree, SUMS + level)
            below = _word(tree, PREFIX + level - 1) if prefix else _word(tree, SUMS + level - 1)
            last = load_i64(last_rows + _WORD * level)
            for j in range(block):
                node, mass = load_i64(nodes + _WORD * j), load_real(masses + _WORD * j, 0.0)
                row = rows + _WORD * width * node
                if prefix:
                    child, mass = _child_in_prefix_row(row, mass, lanes, chunks)
                else:
                    child, mass = _child_in_plain_row(row, mass, 0.0, lanes, chunks)
                # Invariant: 0 <= mass < sum of the child, but for rounding, which the next level guards. Beside a
                # kernel that writes, mass is arbitrary, and node still a row of the next level.
                node = at_most(node * fanout + child, last)
                store_real(masses + _WORD * j, mass)
                store_i64(nodes + _WORD * j, node)
                if level > 1:
                    prefetch_row(below + _WORD * width * node, 0.0, lanes, chunks)
                else:
                    prefetch_row(leaves + size * width * node, like, lanes, chunks)
        for j in range(block):
            node, mass = load_i64(nodes + _WORD * j), load_real(masses + _WORD * j, 0.0)
            leaf, priority = _leaf_in_group(tree, like, fanout, lanes, chunks, node, mass)
            if leaf < 0:
                return EMPTY
            indices[start + j] = leaf
            priorities[start + j] = priority
    return DONE


@_kernel()
def search(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    values: Reals,
    uniform: bool,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """Leaves and their priorities for ``values [B]``: uniforms in [0, 1) if ``uniform``, else in [0, total)."""
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        status = _search(tree, like, fanout, lanes, chunks, prefix, values, uniform, indices, priorities)
        if _end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY


@_inlined
def _search_left(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    values: Reals,
    room: Reals,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """Leaves for prefix values ``[B]`` in [0, total] by the rule >=; ``room [2 B]`` is for what is searched for."""
    batch, total, above = values.size, load_real(_word(tree, SUMS + _word(tree, HEIGHT)), 0.0), False
    for j in range(batch):
        value = values[j]
        if not (value >= 0.0 and value <= max(total, 0.0)):
            return REFUSED
        room[batch + j] = value
        # A prefix sum is >= the value just where it is > the next float below.
        room[j] = just_below(value) if value > 0.0 else 0.0
        above |= value > 0.0
    status = DONE
    if above:
        status = _search(tree, like, fanout, lanes, chunks, prefix, room[:batch], False, indices, priorities)
    for j in range(batch):
        if not room[batch + j] > 0.0:
            indices[j] = 0
    return status


@_kernel()
def search_left(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    values: Reals,
    room: Reals,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """The smallest i with p_0 + .. + p_i >= value, for ``values [B]`` in [0, total]; ``room`` is ``[2 B]``."""
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        status = _search_left(tree, like, fanout, lanes, chunks, prefix, values, room, indices, priorities)
        if _end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY


@_kernel(parallel=True)
def search_in_parts(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    parts: int,
    values: Reals,
    uniform: bool,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """:func:`search` over ``parts`` equal parts of the batch, each on a thread of its own."""
    batch = values.size
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        worst = 0
        for part in prange(parts):
            low, high = batch * part // parts, batch * (part + 1) // parts
            status = _search(
                tree,
                like,
                fanout,
                lanes,
                chunks,
                prefix,
                values[low:high],
                uniform,
                indices[low:high],
                priorities[low:high],
            )
            worst = max(worst, status)
        if _end_attempt(tree, sequence):
            return worst
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY


@_inlined
def _gather(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """Priorities ``[B]`` of the leaves at ``indices [B]``."""
    capacity, leaves = _word(tree, CAPACITY), _word(tree, LEAVES)
    size = bytes_of(like)
    for j in range(indices.size):
        leaf = indices[j]
        if not (leaf >= 0 and leaf < capacity):
            return REFUSED
        priorities[j] = load_real(leaves + size * _offset(leaf, fanout, lanes * chunks), like)
    return DONE


@_kernel()
def gather(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    indices: Indices,
    priorities: Priorities,
) -> int:
    """Priorities ``[B]`` of the leaves at ``indices [B]``."""
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        status = _gather(tree, like, fanout, lanes, chunks, prefix, indices, priorities)
        if _end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY


# Sums of ranges


@_inner
def _sum_of_slice(rows: int, like: Any, fanout: int, width: int, start: int, end: int) -> float:
    """The numbers of a level from node ``start`` to before ``end``, which are siblings, added from left to right."""
    if start >= end:
        return 0.0
    first, total = rows + bytes_of(like) * _offset(start, fanout, width), 0.0
    for child in range(end - start):
        total += load_real(first + bytes_of(like) * child, like)
    return total


@_inner
def _sum_of_range(tree: int, like: Any, fanout: int, width: int, prefix: int, left: int, right: int) -> float:
    """The leaves from ``left`` to before ``right``, added from the fewest nodes that cover them."""
    height = _word(tree, HEIGHT)
    if left == 0 and right == _word(tree, CAPACITY):
        return load_real(_word(tree, SUMS + height), 0.0)
    head, tail, level = 0.0, 0.0, 0
    while left < right:
        # Invariant: the answer is head, the nodes of this level from left to before right, and tail.
        first, last = unsigned_divide(left, fanout), unsigned_divide(right, fanout)
        rows = _word(tree, SUMS + level)
        if first == last:
            if level == 0:
                head += _sum_of_slice(_word(tree, LEAVES), like, fanout, width, left, right)
            else:
                head += _sum_of_slice(rows, 0.0, fanout, width, left, right)
            break
        end, start = (first + 1) * fanout, last * fanout
        if left == first * fanout:  # a whole group, which is a node of the next level
            end, first = left, first - 1
        if level == 0:
            head += _sum_of_slice(_word(tree, LEAVES), like, fanout, width, left, end)
            tail = _sum_of_slice(_word(tree, LEAVES), like, fanout, width, start, right)
        else:
            head += _sum_of_slice(rows, 0.0, fanout, width, left, end)
            if prefix and right > start:
                tail += load_real(_word(tree, PREFIX + level) + _WORD * (width * last + right - start), 0.0)
            else:
                tail += _sum_of_slice(rows, 0.0, fanout, width, start, right)
        left, right, level = first + 1, last, level + 1
    return head + tail


@_inlined
def _sum_ranges(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    left: Indices,
    right: Indices,
    sums: Reals,
) -> int:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``."""
    capacity = _word(tree, CAPACITY)
    for j in range(sums.size):
        start, end = left[j], right[j]
        if not (start >= 0 and start <= end <= capacity):
            return REFUSED
        sums[j] = _sum_of_range(tree, like, fanout, lanes * chunks, prefix, start, end)
    return DONE


@_kernel()
def sum_ranges(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    left: Indices,
    right: Indices,
    sums: Reals,
) -> int:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``."""
    if left.size != right.size or left.size != sums.size:
        return REFUSED
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        status = _sum_ranges(tree, like, fanout, lanes, chunks, prefix, left, right, sums)
        if _end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY


# Update


@_inlined
def _take(
    tree: int, indices: Indices, priorities: Reals, like: Any, highest: float, scratch: Indices, values: int
) -> bool:
    """Copy a batch: indices into the scratch, priorities as leaves store them to the address ``values``.

    False if an index is outside [0, N) or a priority outside [0, highest] once rounded to a leaf.
    """
    capacity = np.uint64(_word(tree, CAPACITY))
    bad = 0
    for j in range(indices.size):
        index, priority = indices[j], priorities[j]
        stored = np.float64(rounded(priority, like))
        good = (np.uint64(index) < capacity) & (priority >= 0.0) & (stored <= highest)
        bad += not good
        scratch[j] = index
        store_real(values + _WORD * j, stored)
    return bad == 0


@_inner
def _least(tree: int, like: Any, lanes: int, chunks: int, level: int, group: int) -> float:
    """The smallest positive leaf below a group of a level whose own minima are right; ``like`` is of its rows' type."""
    smallest, size, width = math.inf, bytes_of(like), lanes * chunks
    rows = _word(tree, LEAVES) if level == 0 else _word(tree, MINIMA + level)
    for chunk in range(chunks):
        smallest = min(smallest, least_positive(rows + size * (width * group + lanes * chunk), like, lanes))
    return smallest


@_inner
def _renew_minimum(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, level: int, group: int, store: bool = True
) -> float:
    """How far the minimum above a group is from the right one, which ``store`` puts there."""
    if level == 0:
        smallest = _least(tree, like, lanes, chunks, 0, group)
    else:
        smallest = _least(tree, 0.0, lanes, chunks, level, group)
    address = _word(tree, MINIMA + level + 1) + _WORD * _offset(group, fanout, lanes * chunks)
    kept = load_real(address, 0.0)
    if store:
        store_real(address, smallest)
    return abs(kept - smallest) if kept != smallest else 0.0  # both may be infinite


@_inner
def _renew_minima(tree: int, like: Any, fanout: int, lanes: int, chunks: int, leaves: Indices, count: int) -> None:
    """Make the minima above ``leaves[:count]`` right, one leaf's path after the other."""
    for j in range(count):
        node = leaves[j]
        for level in range(_word(tree, HEIGHT)):
            # Invariant: the minima of this path up to this level are right.
            node = unsigned_divide(node, fanout)
            _renew_minimum(tree, like, fanout, lanes, chunks, level, node)


@_inner
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
    is_root = above == _word(tree, HEIGHT)
    parents = _word(tree, SUMS + above)
    parent_prefixes = _word(tree, PREFIX + above)
    marks = _word(tree, MARKS + level)
    parent_marks = _word(tree, MARKS + above)
    prefixes = _word(tree, PREFIX + level)
    has_prefixes = (prefix & HAS_PREFIXES) != 0
    listed = 0
    for j in range(count):
        group = groups[j]
        clear_mark(marks + group)
        row = children + size * width * group
        total = 0.0
        for chunk in range(chunks):
            if has_prefixes and level > 0:
                target = prefixes + _WORD * (width * group + lanes * chunk)
                total = store_prefixes(row + _WORD * lanes * chunk, target, total, lanes)
            else:
                _, _, total = scan_group(row + size * lanes * chunk, total, 0.0, like, lanes)
        if has_prefixes and level > 0:
            store_real(prefixes + _WORD * width * group, total)
        parent_group = unsigned_divide(group, fanout)
        store_real(parents + _WORD * _offset(group, fanout, width), total)
        if prefix & HAS_MINIMA:
            store_real(
                _word(tree, MINIMA + above) + _WORD * _offset(group, fanout, width),
                _least(tree, like, lanes, chunks, level, group),
            )
        if not is_root:
            # Invariant: a parent group is marked just where it is listed; listed <= j: the entry overwritten was read.
            groups[listed] = parent_group
            listed += take_mark(parent_marks + parent_group)
            prefetch_row(parents + _WORD * width * parent_group, 0.0, lanes, chunks)
            if has_prefixes:
                prefetch_row(parent_prefixes + _WORD * width * parent_group, 0.0, lanes, chunks)
    return listed


@_inlined
def _set_leaves(
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

    Puts the touched groups in the place of the indices, for :func:`_sum_up`; returns how many it lists.
    """
    leaves = _word(tree, LEAVES)
    parents = _word(tree, SUMS + 1)
    marks = _word(tree, MARKS)
    width, size = lanes * chunks, bytes_of(like)
    sparse = _SPARSE * batch * fanout < _word(tree, CAPACITY)
    for j in range(min(_AHEAD, batch)):
        prefetch_row(leaves + size * width * unsigned_divide(scratch[j], fanout), like, lanes, chunks)
    count = 0
    for j in range(batch):
        if j + _AHEAD < batch:
            prefetch_row(leaves + size * width * unsigned_divide(scratch[j + _AHEAD], fanout), like, lanes, chunks)
        store_real(
            leaves + size * _offset(scratch[j], fanout, width), rounded(load_real(values + _WORD * j, 0.0), like)
        )
        group = unsigned_divide(scratch[j], fanout)
        # Invariant: scratch[:count] lists the groups touched so far, count <= j, and scratch[j:] are still indices.
        # A group listed twice is only summed twice; where that is rare, marks would be the greater waste.
        is_new = (count == 0 or scratch[count - 1] != group) if sparse else take_mark(marks + group)
        scratch[count] = group
        count += is_new
        prefetch(parents + _WORD * _offset(group, fanout, width))
    return count


@_inlined
def _sum_up(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, scratch: Indices, count: int
) -> None:
    """Sum the leaf groups ``scratch[:count]`` again, then each group above them once, level by level to the root."""
    leaves = _word(tree, LEAVES)
    count = _refresh(tree, like, fanout, lanes, chunks, prefix, 0, leaves, scratch, count)
    for level in range(1, _word(tree, HEIGHT)):
        # Invariant: sums up to this level are right, and scratch[:count] lists its groups that changed, each once.
        children = _word(tree, SUMS + level)
        count = _refresh(tree, 0.0, fanout, lanes, chunks, prefix, level, children, scratch, count)


@_inlined
def _recompute(
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
    count = _set_leaves(tree, like, fanout, lanes, chunks, prefix, batch, scratch, values)
    _sum_up(tree, like, fanout, lanes, chunks, prefix, scratch, count)


@_inlined
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
    leaves = _word(tree, LEAVES)
    height = _word(tree, HEIGHT)
    width, size = lanes * chunks, bytes_of(like)
    before = values + _WORD * batch  # the leaves as they were
    for j in range(batch):
        if j + _AHEAD < batch:
            prefetch(leaves + size * _offset(scratch[j + _AHEAD], fanout, width))
        leaf = leaves + size * _offset(scratch[j], fanout, width)
        store_real(before + _WORD * j, np.float64(load_real(leaf, like)))
    for j in range(batch):  # the last duplicate wins
        # Invariant: from here on a leaf with its sign bit set is one whose change its ancestors lack.
        store_real(
            leaves + size * _offset(scratch[j], fanout, width), -abs(rounded(load_real(values + _WORD * j, 0.0), like))
        )
    for j in range(batch):
        if j + _AHEAD < batch:
            ahead = unsigned_divide(scratch[j + _AHEAD], fanout)
            prefetch(_word(tree, SUMS + 1) + _WORD * _offset(ahead, fanout, width))
            if prefix & HAS_PREFIXES and height > 1:
                row = _word(tree, PREFIX + 1) + _WORD * width * unsigned_divide(ahead, fanout)
                prefetch_row(row, 0.0, lanes, chunks)
        leaf = leaves + size * _offset(scratch[j], fanout, width)
        stored = load_real(leaf, like)
        if math.copysign(1.0, np.float64(stored)) > 0.0:
            continue
        stored = abs(stored)
        store_real(leaf, stored)
        delta = np.float64(stored) - load_real(before + _WORD * j, 0.0)
        node = scratch[j]
        for level in range(1, height + 1):
            node = unsigned_divide(node, fanout)
            total = _word(tree, SUMS + level) + _WORD * _offset(node, fanout, width)
            store_real(total, load_real(total, 0.0) + delta)
            if prefix & HAS_PREFIXES and level < height:
                group = unsigned_divide(node, fanout)
                row = _word(tree, PREFIX + level) + _WORD * width * group
                for chunk in range(chunks):
                    add_delta(row + _WORD * lanes * chunk, lanes * chunk, node - group * fanout, delta, lanes)
    if prefix & HAS_MINIMA:
        _renew_minima(tree, like, fanout, lanes, chunks, scratch, batch)


@_kernel()
def update_by_recompute(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    highest: float,
    indices: Indices,
    priorities: Reals,
    scratch: Indices,
) -> int:
    if priorities.size != indices.size:
        return REFUSED
    if scratch.size < SCRATCH * indices.size:
        return CRAMPED
    if not _begin_writing(tree, head):
        return BUSY
    status = REFUSED
    values = scratch.ctypes.data + _WORD * indices.size
    if _take(tree, indices, priorities, like, highest, scratch, values):
        _begin_change(tree)
        _recompute(tree, like, fanout, lanes, chunks, prefix, indices.size, scratch, values)
        _end_change(tree)
        status = DONE
    _end_writing(tree)
    return status


@_kernel()
def update_by_delta(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    highest: float,
    indices: Indices,
    priorities: Reals,
    scratch: Indices,
) -> int:
    if priorities.size != indices.size:
        return REFUSED
    if scratch.size < SCRATCH * indices.size:
        return CRAMPED
    if not _begin_writing(tree, head):
        return BUSY
    status = REFUSED
    values = scratch.ctypes.data + _WORD * indices.size
    if _take(tree, indices, priorities, like, highest, scratch, values):
        _begin_change(tree)
        _add_deltas(tree, like, fanout, lanes, chunks, prefix, indices.size, scratch, values)
        _end_change(tree)
        status = DONE
    _end_writing(tree)
    return status


@_inner
def _return_lent(tree: int, like: Any, fanout: int, width: int) -> None:
    """Set the leaves that a kernel had set to 0, and that never ended, to what they were; their sums are left wrong."""
    leaves, lent = _word(tree, LEAVES), _word(tree, LENT_AT)
    for j in range(_word(tree, LENT)):
        leaf, priority = load_i64(lent + 2 * _WORD * j), load_real(lent + 2 * _WORD * j + _WORD, 0.0)
        store_real(leaves + bytes_of(like) * _offset(leaf, fanout, width), rounded(priority, like))
    store_i64(tree + _WORD * LENT, 0)


@_inlined
def _search_distinct(
    tree: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    uniforms: Reals,
    indices: Indices,
    priorities: Priorities,
    room: Indices,
    drawn: Indices,
) -> int:
    """Put leaves and their priorities, drawn one after the other, into ``[B]``, and their number into ``drawn [1]``."""
    batch = uniforms.size
    lent, scratch, values = room.ctypes.data, room[2 * batch : 3 * batch], room.ctypes.data + 3 * _WORD * batch
    store_i64(tree + _WORD * LENT_AT, lent)
    status, count = DONE, 0
    while count < batch:
        # Invariant: the leaves drawn so far, indices[:count], are 0, and listed as lent since before they were.
        end = count + 1
        status = _search(
            tree,
            like,
            fanout,
            lanes,
            chunks,
            prefix & HAS_PREFIXES,
            uniforms[count:end],
            True,
            indices[count:end],
            priorities[count:end],
        )
        if status != DONE:
            break
        store_i64(lent + 2 * _WORD * count, indices[count])
        store_real(lent + 2 * _WORD * count + _WORD, np.float64(priorities[count]))
        store_release(tree + _WORD * LENT, end)
        release_fence()
        scratch[0] = indices[count]
        store_real(values, 0.0)
        _recompute(tree, like, fanout, lanes, chunks, prefix, 1, scratch, values)
        count = end
    for j in range(count):
        scratch[j] = indices[j]
        store_real(values + _WORD * j, np.float64(priorities[j]))
    _recompute(tree, like, fanout, lanes, chunks, prefix, count, scratch, values)
    store_release(tree + _WORD * LENT, 0)
    drawn[0] = count
    return status


@_kernel()
def search_distinct(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    uniforms: Reals,
    indices: Indices,
    priorities: Priorities,
    room: Indices,
    drawn: Indices,
) -> int:
    """Distinct leaves ``[B]`` and priorities for ``uniforms [B]``, each among those left; EMPTY if there are fewer.

    ``room`` has ``LENDING_SCRATCH * B`` words; ``drawn [1]`` becomes the number of leaves drawn.
    """
    if not _begin_writing(tree, head):
        return BUSY
    _begin_change(tree)
    status = _search_distinct(tree, like, fanout, lanes, chunks, prefix, uniforms, indices, priorities, room, drawn)
    _end_change(tree)
    _end_writing(tree)
    return status


@_inner
def _list_excluded(tree: int, like: Any, fanout: int, width: int, excluded: Indices, room: Indices) -> bool:
    """List leaves and their priorities, two words for each of ``excluded [E]``; False if one is outside [0, N)."""
    capacity, leaves, lent = _word(tree, CAPACITY), _word(tree, LEAVES), room.ctypes.data
    for j in range(excluded.size):
        leaf = excluded[j]
        if not (leaf >= 0 and leaf < capacity):
            return False
        priority = load_real(leaves + bytes_of(like) * _offset(leaf, fanout, width), like)
        store_i64(lent + 2 * _WORD * j, leaf)
        store_real(lent + 2 * _WORD * j + _WORD, np.float64(priority))
    return True


@_kernel()
def search_without(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    uniforms: Reals,
    excluded: Indices,
    indices: Indices,
    priorities: Priorities,
    room: Indices,
) -> int:
    """Leaves ``[B]`` and priorities for ``uniforms [B]`` in a tree whose leaves ``excluded [E]`` are 0 for the while.

    ``room`` has ``LENDING_SCRATCH * E`` words. EMPTY where no other leaf is positive.
    """
    if not _begin_writing(tree, head):
        return BUSY
    status = REFUSED
    if _list_excluded(tree, like, fanout, lanes * chunks, excluded, room):
        count = excluded.size
        lent, scratch, values = room.ctypes.data, room[2 * count : 3 * count], room.ctypes.data + 3 * _WORD * count
        _begin_change(tree)
        store_i64(tree + _WORD * LENT_AT, lent)
        store_release(tree + _WORD * LENT, count)
        release_fence()
        for j in range(count):
            # Invariant: whatever of these is 0 by now is listed as lent.
            scratch[j] = load_i64(lent + 2 * _WORD * j)
            store_real(values + _WORD * j, 0.0)
        _recompute(tree, like, fanout, lanes, chunks, prefix, count, scratch, values)
        prefixes = prefix & HAS_PREFIXES
        status = _search(tree, like, fanout, lanes, chunks, prefixes, uniforms, True, indices, priorities)
        for j in range(count):
            scratch[j] = load_i64(lent + 2 * _WORD * j)
            store_real(values + _WORD * j, load_real(lent + 2 * _WORD * j + _WORD, 0.0))
        _recompute(tree, like, fanout, lanes, chunks, prefix, count, scratch, values)
        store_release(tree + _WORD * LENT, 0)
        _end_change(tree)
    _end_writing(tree)
    return status


@_inner
def _audit(
    tree: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, repair: bool, fresh_row: Reals
) -> float:
    """Largest difference between a stored sum and its children's, or between minima, from the leaves up.

    ``repair`` stores the right ones.
    """
    width, size = lanes * chunks, bytes_of(like)
    nodes = _word(tree, CAPACITY)
    fresh = fresh_row.ctypes.data
    largest = 0.0
    for level in range(_word(tree, HEIGHT)):
        groups = unsigned_divide(nodes + fanout - 1, fanout)
        for group in range(groups):
            total = 0.0
            if level == 0:
                row = _word(tree, LEAVES) + size * width * group
                for chunk in range(chunks):
                    _, _, total = scan_group(row + size * lanes * chunk, total, 0.0, like, lanes)
            else:
                row = _word(tree, SUMS + level) + _WORD * width * group
                for chunk in range(chunks):
                    total = store_prefixes(row + _WORD * lanes * chunk, fresh + _WORD * lanes * chunk, total, lanes)
                if prefix & HAS_PREFIXES:
                    fresh_row[0] = total
                    stored_row = _word(tree, PREFIX + level) + _WORD * width * group
                    for lane in range(width):
                        largest = max(largest, abs(load_real(stored_row + _WORD * lane, 0.0) - fresh_row[lane]))
                        if repair:
                            store_real(stored_row + _WORD * lane, fresh_row[lane])
            stored = _word(tree, SUMS + level + 1) + _WORD * _offset(group, fanout, width)
            largest = max(largest, abs(load_real(stored, 0.0) - total))
            if repair:
                store_real(stored, total)
            if prefix & HAS_MINIMA:
                largest = max(largest, _renew_minimum(tree, like, fanout, lanes, chunks, level, group, repair))
        nodes = groups
    return largest


@_kernel()
def audit(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    repair: bool,
    largest: Reals,
) -> int:
    """Put into ``largest [1]`` the largest error of a stored sum; ``repair`` stores the right sums."""
    fresh_row = np.empty(lanes * chunks)  # before the turn, which a failure must not keep
    if not (_begin_writing(tree, head) if repair else _begin_reading(tree, head)):
        return BUSY
    if repair:
        _begin_change(tree)
        _return_lent(tree, like, fanout, lanes * chunks)
    largest[0] = _audit(tree, like, fanout, lanes, chunks, prefix, repair, fresh_row)
    if repair:
        _end_change(tree)
        _end_writing(tree)
    else:
        _end_reading(tree)
    return DONE


@_kernel()
def root(
    tree: int,
    head: bool,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    edition: int,
    levels: int,
    number: Reals,
) -> int:
    """Put the root of ``levels``, SUMS or MINIMA, into ``number [1]``."""
    attempt, sequence = 1, _begin_attempt(tree, head, 1)
    while sequence != _KEPT_OUT:
        number[0] = load_real(_word(tree, levels + _word(tree, HEIGHT)), 0.0)
        if _end_attempt(tree, sequence):
            return DONE
        attempt, sequence = attempt + 1, _begin_attempt(tree, head, attempt + 1)
    return BUSY
