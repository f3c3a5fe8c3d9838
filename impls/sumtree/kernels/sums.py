"""Sums of ranges of leaves, and the root."""

from typing import Any

from ..arguments import Indices, Reals
from ..lanes import bytes_of, load_real, unsigned_divide, word_of
from .header import BUSY, CAPACITY, DONE, HEIGHT, LEAVES, PREFIX, REFUSED, SUMS, WORD, inlined, inner, kernel, offset_of
from .turns import KEPT_OUT, begin_attempt, end_attempt


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
