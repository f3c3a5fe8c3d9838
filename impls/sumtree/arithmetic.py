"""Arithmetic that implementations share: uniforms, prefix values, sums of ranges, the nearest positive leaf."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .arguments import BELOW_ONE, Indices, Priorities, Reals

_MOST_GATHERED = 1 << 20  # nodes of groups at once


def uniforms(rng: np.random.Generator, batch: int) -> Reals:
    """``[B]`` independent float64 in [0, 1)."""
    return rng.random(batch)


def stratified_uniforms(rng: np.random.Generator, batch: int) -> Reals:
    """``[B]`` float64 in [0, 1), one in each of B equal intervals, in order."""
    return stratified(rng.random(batch))


def stratified(uniforms: Reals) -> Reals:
    """Uniforms ``[B]``, each moved into one of B equal intervals, in order."""
    batch = uniforms.size
    return np.minimum((np.arange(batch) + uniforms) / max(batch, 1), BELOW_ONE)


@np.errstate(under="ignore")
def prefix_values(uniforms: Reals, total: float) -> Reals:
    """u * total ``[B]``, kept in [0, total); 0 where delta updates have left a total below 0."""
    return np.maximum(np.minimum(uniforms * total, math.nextafter(total, -math.inf)), 0.0)


def in_parts(answer: Callable[[Any], NDArray[Any]], values: NDArray[Any], width: int) -> Any:
    """Answers ``[B]`` for values ``[B]``, in parts that gather at most 2**20 nodes of groups at once."""
    rows = max(1, _MOST_GATHERED // width)
    return np.concatenate([answer(values[first : first + rows]) for first in range(0, values.size, rows)])


def sums_of_ranges(levels: Sequence[Any], fanout: int, left: Any, right: Any, dtype: DTypeLike = np.float64) -> Any:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``, from the fewest nodes that cover them.

    ``levels``: every level as its sibling groups ``[G, width]``, leaves first.
    """
    head, tail = np.zeros(left.size, dtype), np.zeros(left.size, dtype)
    for groups in levels:
        # Invariant: each answer is head, the nodes of this level from left to before right, and tail.
        first, last, open_ = left // fanout, right // fanout, left < right
        together, whole = first == last, left == first * fanout  # a whole group is a node of the next level
        end = np.where(together, right, np.where(whole, left, (first + 1) * fanout))
        start = np.where(together, right, last * fanout)
        head = head + _sums_of_slices(groups, fanout, left, np.where(open_, end, left), dtype)
        tail = _sums_of_slices(groups, fanout, np.where(open_, start, right), right, dtype) + tail
        left, right = np.where(whole, first, first + 1), last
        left = np.where(together | ~open_, right, left)
    return head + tail


def _sums_of_slices(groups: Any, fanout: int, start: Any, end: Any, dtype: DTypeLike) -> Any:
    """Sums ``[B]`` of nodes from ``start [B]`` to before ``end [B]``, each within one group, from left to right."""
    group = start // fanout
    rows = groups[np.minimum(group, len(groups) - 1)]  # behind the last one there is nothing to add
    column = np.arange(rows.shape[1])
    inside = (column >= (start - group * fanout)[:, None]) & (column < (end - group * fanout)[:, None])
    return np.where(inside, rows, rows.dtype.type(0)).cumsum(axis=1, dtype=dtype)[:, -1]


def nearest_positive(leaves: Priorities, indices: Indices) -> Indices:
    """The leaves ``[B]`` with priority > 0 nearest to ``indices [B]``, to the left (itself included) if there is one.

    ``leaves [N]`` are all priorities. RuntimeError if none is above 0.
    """
    positive = np.flatnonzero(leaves > 0)
    if positive.size == 0:
        raise RuntimeError("nothing to sample: no leaf has a priority above 0")
    return positive[np.maximum(np.searchsorted(positive, indices, side="right") - 1, 0)]
