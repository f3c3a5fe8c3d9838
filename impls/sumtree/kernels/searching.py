"""Leaves for prefix values, priorities of leaves, sums of ranges: kernels that read without a turn of theirs."""

from typing import Any

from ..arguments import Indices, Priorities, Reals
from ..lanes import (
    at_most,
    atomic_add,
    atomic_swap_if,
    bytes_of,
    count_after_first,
    count_at_most,
    just_below,
    load_acquire,
    load_i64,
    load_real,
    prefetch_row,
    scan_group,
    stack_words,
    store_i64,
    store_real,
    store_release,
    unsigned_divide,
    word_of,
)
from .header import (
    BUSY,
    CAPACITY,
    DONE,
    EMPTY,
    HAS_PREFIXES,
    HEIGHT,
    KEPT_OUT,
    LEAVES,
    MOST_LEVELS,
    PREFIX,
    REFUSED,
    SUMS,
    WORD,
    begin_attempt,
    end_attempt,
    inlined,
    inner,
    kernel,
    offset_of,
)

_BLOCK = 64  # elements that descend together: one phase outlasts an L3 miss


@inner
def _child_in_prefix_row(row: int, mass: float, lanes: int, chunks: int) -> tuple[int, float]:
    """(child that the prefix value falls on, its rest within the child), from a row of prefix sums."""
    total = load_real(row, 0.0)
    if mass >= total:  # rounding: just under the total lies the last child with a positive sum
        mass = just_below(total)
    child = count_after_first(row, mass, lanes)
    for chunk in range(1, chunks):
        # Invariant: child counts the lanes passed that are at most mass, lane 0, the total, aside.
        child += count_at_most(row + WORD * lanes * chunk, mass, lanes)
    left = load_real(row + WORD * child, 0.0)
    return child, mass - (left if child > 0 else 0.0)


@inner
def _scan_row(row: int, mass: float, like: Any, lanes: int, chunks: int) -> tuple[int, float, float]:
    """(how many prefix sums of a row of plain numbers are <= mass, the largest of those or 0, the sum of the row)"""
    size = bytes_of(like)
    count, left, total = 0, 0.0, 0.0
    for chunk in range(chunks):
        more, largest, total = scan_group(row + size * lanes * chunk, total, mass, like, lanes)
        count += more
        left = max(left, largest)
    return count, left, total


@inner
def _child_in_plain_row(row: int, mass: float, like: Any, lanes: int, chunks: int) -> tuple[int, float]:
    """(child that the prefix value falls on, its rest within the child), from a row of plain numbers."""
    child, left, total = _scan_row(row, mass, like, lanes, chunks)
    if mass >= total:  # rounding: just under the total lies the last child with a positive sum
        mass = just_below(total)
        child, left, total = _scan_row(row, mass, like, lanes, chunks)
    return child, mass - left


@inner
def _nearest_positive(tree: int, like: Any, fanout: int, width: int, leaf: int) -> int:
    """The nearest leaf to the left with a positive priority, else the first to the right, else -1."""
    leaves, size = word_of(tree, LEAVES), bytes_of(like)
    for candidate in range(leaf, -1, -1):
        if load_real(leaves + size * offset_of(candidate, fanout, width), like) > 0:
            return candidate
    for candidate in range(leaf + 1, word_of(tree, CAPACITY)):
        if load_real(leaves + size * offset_of(candidate, fanout, width), like) > 0:
            return candidate
    return -1


@inner
def _leaf_in_group(tree: int, form: Any, group: int, mass: float) -> tuple[int, Any]:
    """(leaf, its priority); leaf -1 if no leaf of the tree has a positive one"""
    leaves, size, width = word_of(tree, LEAVES), bytes_of(form.like), form.width
    row = leaves + size * width * group
    child, _ = _child_in_plain_row(row, mass, form.like, form.lanes, form.chunks)
    # There may be more prefix values than leaves while sums are being written.
    child = at_most(child, form.fanout - 1)
    leaf = at_most(group * form.fanout + child, word_of(tree, CAPACITY) - 1)  # what lies beyond is padding, hence 0
    priority = load_real(row + size * child, form.like)
    if not priority > 0:  # delta updates can leave a sum above a group of zeros
        leaf = _nearest_positive(tree, form.like, form.fanout, width, leaf)
        priority = load_real(leaves + size * offset_of(max(leaf, 0), form.fanout, width), form.like)
    return leaf, priority


@inner
def _start_block(values: Reals, start: int, block: int, scale: float, bound: float, masses: int, nodes: int) -> bool:
    """Put the elements of a block at the root; False if a value is outside [0, bound)."""
    for j in range(block):
        value = values[start + j]
        if not (value >= 0.0 and value < bound):
            return False
        store_real(masses + WORD * j, value * scale)
        store_i64(nodes + WORD * j, 0)
    return True


@inner
def _list_last_rows(tree: int, fanout: int, rows: int) -> None:
    """Write the number of the last row of level i to word i + 1 of ``rows``, for every level below the root."""
    row = word_of(tree, CAPACITY) - 1
    for level in range(1, word_of(tree, HEIGHT)):
        row = unsigned_divide(row, fanout)
        store_i64(rows + WORD * level, row)


@inlined
def descend(tree: int, form: Any, values: Reals, uniform: bool, indices: Indices, priorities: Priorities) -> int:
    """Leaves and their priorities for ``values [B]``: uniforms in [0, 1) if ``uniform``, else in [0, total).

    While a kernel writes, the leaves are arbitrary ones of the tree.
    """
    if values.size == 0:
        return DONE
    height = word_of(tree, HEIGHT)
    leaves = word_of(tree, LEAVES)
    width, size, has_prefixes = form.width, bytes_of(form.like), form.prefix & HAS_PREFIXES
    total = load_real(word_of(tree, SUMS + height), 0.0)
    scale, bound = (total, 1.0) if uniform else (1.0, total)
    if total <= 0.0 and not uniform:
        return REFUSED
    masses = stack_words(_BLOCK)
    nodes = stack_words(_BLOCK)
    last_rows = stack_words(MOST_LEVELS)
    _list_last_rows(tree, form.fanout, last_rows)
    for start in range(0, values.size, _BLOCK):
        block = min(_BLOCK, values.size - start)
        if not _start_block(values, start, block, scale, bound, masses, nodes):
            return REFUSED
        for level in range(height - 1, 0, -1):
            rows = word_of(tree, PREFIX + level) if has_prefixes else word_of(tree, SUMS + level)
            below = word_of(tree, PREFIX + level - 1) if has_prefixes else word_of(tree, SUMS + level - 1)
            last = load_i64(last_rows + WORD * level)
            for j in range(block):
                node, mass = load_i64(nodes + WORD * j), load_real(masses + WORD * j, 0.0)
                row = rows + WORD * width * node
                if has_prefixes:
                    child, mass = _child_in_prefix_row(row, mass, form.lanes, form.chunks)
                else:
                    child, mass = _child_in_plain_row(row, mass, 0.0, form.lanes, form.chunks)
                # Invariant: 0 <= mass < sum of the child, but for rounding, which the next level guards. Beside a
                # kernel that writes, mass is arbitrary, and node still a row of the next level.
                node = at_most(node * form.fanout + child, last)
                store_real(masses + WORD * j, mass)
                store_i64(nodes + WORD * j, node)
                if level > 1:
                    prefetch_row(below + WORD * width * node, 0.0, form.lanes, form.chunks)
                else:
                    prefetch_row(leaves + size * width * node, form.like, form.lanes, form.chunks)
        for j in range(block):
            node, mass = load_i64(nodes + WORD * j), load_real(masses + WORD * j, 0.0)
            leaf, priority = _leaf_in_group(tree, form, node, mass)
            if leaf < 0:
                return EMPTY
            indices[start + j] = leaf
            priorities[start + j] = priority
    return DONE


@kernel()
def search(
    tree: int, head: bool, form: Any, values: Reals, uniform: bool, indices: Indices, priorities: Priorities
) -> int:
    """Leaves and their priorities for ``values [B]``: uniforms in [0, 1) if ``uniform``, else in [0, total)."""
    attempt, sequence = 1, begin_attempt(tree, head, 1)
    while sequence != KEPT_OUT:
        status = descend(tree, form, values, uniform, indices, priorities)
        if end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, begin_attempt(tree, head, attempt + 1)
    return BUSY


@inlined
def _search_left(tree: int, form: Any, values: Reals, room: Reals, indices: Indices, priorities: Priorities) -> int:
    """Leaves for prefix values ``[B]`` in [0, total] by the rule >=; ``room [2 B]`` is for what is searched for."""
    batch, total, above = values.size, load_real(word_of(tree, SUMS + word_of(tree, HEIGHT)), 0.0), False
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
        status = descend(tree, form, room[:batch], False, indices, priorities)
    for j in range(batch):
        if not room[batch + j] > 0.0:
            indices[j] = 0
    return status


@kernel()
def search_left(
    tree: int, head: bool, form: Any, values: Reals, room: Reals, indices: Indices, priorities: Priorities
) -> int:
    """The smallest i with p_0 + .. + p_i >= value, for ``values [B]`` in [0, total]; ``room`` is ``[2 B]``."""
    attempt, sequence = 1, begin_attempt(tree, head, 1)
    while sequence != KEPT_OUT:
        status = _search_left(tree, form, values, room, indices, priorities)
        if end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, begin_attempt(tree, head, attempt + 1)
    return BUSY


CHUNK = 512  # elements that a thread searches before it looks for more: some microseconds
ENDED = 1  # word behind the ticket: helpers that have ended
_STATES = 8  # first word of the chunks' states, which lie behind the ticket's cache line
CLOSED_TICKET = -(1 << 40)
_FREE, _MINE, _FOUND = 0, 1, 2  # states of a chunk: neither, the caller searched it, a helper did (+ status)
_OPENING_LOOKS, _LAST_LOOKS = 4000, 100


def room_of(batch: int) -> int:
    """Words that the ticket and the states of a batch's chunks take."""
    return _STATES + -(-batch // CHUNK)


@kernel()
def help_search(
    tree: int, head: bool, form: Any, room: int, values: Reals, uniform: bool, indices: Indices, priorities: Priorities
) -> int:
    """Search chunks of the batch of a :func:`search_with_help` into this thread's arrays, until none is left.

    A chunk counts only where the caller has not taken it back, so a helper that loses its core delays nobody, and what
    it reads after that call has ended is of no effect. Once it is counted as ended, it touches nothing.
    """
    batch, looks = values.size, 0
    while load_acquire(room) < 0 and looks < _OPENING_LOOKS:  # the caller is about to begin
        looks += 1
    while True:
        chunk = atomic_add(room, 1)
        low = chunk * CHUNK
        if chunk < 0 or low >= batch:
            break
        high = min(batch, low + CHUNK)
        status = descend(tree, form, values[low:high], uniform, indices[low:high], priorities[low:high])
        atomic_swap_if(room + WORD * (_STATES + chunk), _FREE, _FOUND + status)
    atomic_add(room + WORD * ENDED, 1)
    return DONE


@inlined
def _share(
    tree: int,
    form: Any,
    room: int,
    values: Reals,
    uniform: bool,
    indices: Indices,
    priorities: Priorities,
    their_indices: Indices,
    their_priorities: Priorities,
) -> int:
    """:func:`descend` over a batch whose chunks helpers take, too."""
    batch, worst = values.size, DONE
    count = (batch + CHUNK - 1) // CHUNK
    for chunk in range(count):
        store_i64(room + WORD * (_STATES + chunk), _FREE)
    store_release(room, 0)
    while True:
        # Invariant: each chunk below the ticket is the caller's, and searched, or a helper's.
        chunk = atomic_add(room, 1)
        low = chunk * CHUNK
        if low >= batch:
            break
        high = min(batch, low + CHUNK)
        status = descend(tree, form, values[low:high], uniform, indices[low:high], priorities[low:high])
        worst = max(worst, status)
        store_i64(room + WORD * (_STATES + chunk), _MINE)
    for chunk in range(count):
        state, looks = room + WORD * (_STATES + chunk), 0
        while load_acquire(state) == _FREE and looks < _LAST_LOOKS:
            looks += 1
        low = chunk * CHUNK
        high = min(batch, low + CHUNK)
        if atomic_swap_if(state, _FREE, _MINE):  # its helper is late: it may have lost its core
            status = descend(tree, form, values[low:high], uniform, indices[low:high], priorities[low:high])
            worst = max(worst, status)
        elif load_acquire(state) != _MINE:
            worst = max(worst, load_i64(state) - _FOUND)
            for j in range(low, high):
                indices[j], priorities[j] = their_indices[j], their_priorities[j]
    return worst


@kernel()
def search_with_help(
    tree: int,
    head: bool,
    form: Any,
    room: int,
    values: Reals,
    uniform: bool,
    indices: Indices,
    priorities: Priorities,
    their_indices: Indices,
    their_priorities: Priorities,
) -> int:
    """:func:`search` of a batch together with threads that call :func:`help_search` meanwhile.

    At ``room`` are the words of :func:`room_of`, the first CLOSED_TICKET, so that helpers that are early wait;
    ``their_*`` are the helpers' arrays.
    """
    sequence = begin_attempt(tree, head, 1)
    if sequence == KEPT_OUT:
        return BUSY
    status = _share(tree, form, room, values, uniform, indices, priorities, their_indices, their_priorities)
    return status if end_attempt(tree, sequence) else BUSY  # then the caller searches by itself


@inlined
def _gather(tree: int, form: Any, indices: Indices, priorities: Priorities) -> int:
    """Priorities ``[B]`` of the leaves at ``indices [B]``."""
    capacity, leaves = word_of(tree, CAPACITY), word_of(tree, LEAVES)
    size = bytes_of(form.like)
    for j in range(indices.size):
        leaf = indices[j]
        if not (leaf >= 0 and leaf < capacity):
            return REFUSED
        priorities[j] = load_real(leaves + size * offset_of(leaf, form.fanout, form.width), form.like)
    return DONE


@kernel()
def gather(tree: int, head: bool, form: Any, indices: Indices, priorities: Priorities) -> int:
    """Priorities ``[B]`` of the leaves at ``indices [B]``."""
    attempt, sequence = 1, begin_attempt(tree, head, 1)
    while sequence != KEPT_OUT:
        status = _gather(tree, form, indices, priorities)
        if end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, begin_attempt(tree, head, attempt + 1)
    return BUSY


# Sums of ranges of leaves, and the root


@inner
def _sum_of_slice(rows: int, like: Any, fanout: int, width: int, start: int, end: int) -> float:
    """The numbers of a level from node ``start`` to before ``end``, which are siblings, added from left to right."""
    if start >= end:
        return 0.0
    first, total = rows + bytes_of(like) * offset_of(start, fanout, width), 0.0
    for child in range(end - start):
        total += load_real(first + bytes_of(like) * child, like)
    return total


@inner
def _sum_of_range(tree: int, like: Any, fanout: int, width: int, prefix: int, left: int, right: int) -> float:
    """The leaves from ``left`` to before ``right``, added from the fewest nodes that cover them."""
    height = word_of(tree, HEIGHT)
    if left == 0 and right == word_of(tree, CAPACITY):
        return load_real(word_of(tree, SUMS + height), 0.0)
    head, tail, level = 0.0, 0.0, 0
    while left < right:
        # Invariant: the answer is head, the nodes of this level from left to before right, and tail.
        first, last = unsigned_divide(left, fanout), unsigned_divide(right, fanout)
        rows = word_of(tree, SUMS + level)
        if first == last:
            if level == 0:
                head += _sum_of_slice(word_of(tree, LEAVES), like, fanout, width, left, right)
            else:
                head += _sum_of_slice(rows, 0.0, fanout, width, left, right)
            break
        end, start = (first + 1) * fanout, last * fanout
        if left == first * fanout:  # a whole group, which is a node of the next level
            end, first = left, first - 1
        if level == 0:
            head += _sum_of_slice(word_of(tree, LEAVES), like, fanout, width, left, end)
            tail = _sum_of_slice(word_of(tree, LEAVES), like, fanout, width, start, right)
        else:
            head += _sum_of_slice(rows, 0.0, fanout, width, left, end)
            if prefix and right > start:
                tail += load_real(word_of(tree, PREFIX + level) + WORD * (width * last + right - start), 0.0)
            else:
                tail += _sum_of_slice(rows, 0.0, fanout, width, start, right)
        left, right, level = first + 1, last, level + 1
    return head + tail


@inlined
def _sum_ranges(tree: int, form: Any, left: Indices, right: Indices, sums: Reals) -> int:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``."""
    capacity = word_of(tree, CAPACITY)
    for j in range(sums.size):
        start, end = left[j], right[j]
        if not (start >= 0 and start <= end <= capacity):
            return REFUSED
        sums[j] = _sum_of_range(tree, form.like, form.fanout, form.width, form.prefix, start, end)
    return DONE


@kernel()
def sum_ranges(tree: int, head: bool, form: Any, left: Indices, right: Indices, sums: Reals) -> int:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``."""
    if left.size != right.size or left.size != sums.size:
        return REFUSED
    attempt, sequence = 1, begin_attempt(tree, head, 1)
    while sequence != KEPT_OUT:
        status = _sum_ranges(tree, form, left, right, sums)
        if end_attempt(tree, sequence):
            return status
        attempt, sequence = attempt + 1, begin_attempt(tree, head, attempt + 1)
    return BUSY


@kernel()
def root(tree: int, head: bool, form: Any, levels: int, number: Reals) -> int:
    """Put the root of ``levels``, SUMS or MINIMA, into ``number [1]``."""
    attempt, sequence = 1, begin_attempt(tree, head, 1)
    while sequence != KEPT_OUT:
        number[0] = load_real(word_of(tree, levels + word_of(tree, HEIGHT)), 0.0)
        if end_attempt(tree, sequence):
            return DONE
        attempt, sequence = attempt + 1, begin_attempt(tree, head, attempt + 1)
    return BUSY
