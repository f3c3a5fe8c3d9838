"""The reference to learn from: plain lists and loops, [Zhang2021, Alg. 2] with its errors corrected.

As printed, Algorithm 2 leaves its update loop before the root, so the root sum is never updated, and its search
compares with >=, which returns a leaf of priority 0 at prefix value 0. Here both go through to the root and the
inequality is strict.
"""

import itertools
import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..checks import one_of
from .arguments import Indices, Priorities, Reals, nothing_to_sample
from .contract import SumTree


class PythonTree(SumTree):
    """Lists of levels, leaves first.

    Options: ``propagate="recompute"`` (default, because it is exact) sums each group on the way up again;
    ``"delta"``, the method of [Zhang2021] and [Zhang2023], adds the change of the leaf to every ancestor, which is
    shorter and drifts by rounding. ``minimum`` is ignored: :meth:`min` reads every leaf.

    Calls from several threads take turns; the GIL would not let two of them run at once.
    """

    shares_groups = False
    fill_seconds = 1.2e-6

    def __init__(self, capacity: int, *, propagate: str = "recompute", **common: Any) -> None:
        self._propagate = one_of("propagate", propagate, ("recompute", "delta"))
        super().__init__(capacity, **common)

    def _allocate(self) -> None:
        self._levels = [[0.0] * size for size in self._sizes]

    @classmethod
    def nbytes_of(cls, capacity: int, fanout: int, dtype: DTypeLike, options: Mapping[str, Any]) -> int | None:
        return None  # lists of objects, some of which are shared

    def _set(self, indices: Indices, priorities: Reals) -> None:
        pairs = dict(zip(indices.tolist(), priorities.astype(self._dtype).tolist(), strict=True))  # the last one wins
        set_leaf = self._set_by_recompute if self._propagate == "recompute" else self._set_by_delta
        for leaf, priority in pairs.items():
            set_leaf(leaf, priority)

    def _load(self, leaves: Reals) -> None:
        self._levels[0] = leaves.astype(self._dtype).tolist()
        self._rebuild()

    def _set_by_recompute(self, leaf: int, priority: float) -> None:
        self._levels[0][leaf] = priority
        node = leaf
        for level in range(self.height):
            # Invariant: node is the leaf's ancestor on this level; it and those between it and the leaf are right.
            node //= self._fanout
            self._levels[level + 1][node] = self._sum_of_children(level, node)

    def _set_by_delta(self, leaf: int, priority: float) -> None:
        delta = priority - self._levels[0][leaf]
        self._levels[0][leaf] = priority
        node = leaf
        for level in self._levels[1:]:
            node //= self._fanout
            level[node] += delta

    def _children(self, level: int, parent: int) -> list[float]:
        """The sibling group at ``level`` under node ``parent`` one level up; the last one of a level may be short."""
        return self._levels[level][parent * self._fanout : (parent + 1) * self._fanout]

    def _sum_of_children(self, level: int, parent: int) -> float:
        return _added(self._children(level, parent))

    def _get(self, indices: Indices) -> Priorities:
        return np.array([self._levels[0][leaf] for leaf in indices.tolist()], self._dtype)

    def _find(self, mass: Reals) -> Indices:
        return np.array([self._cutoff_path(m)[-1] for m in mass.tolist()], np.int64)

    def cutoff_path(self, mass: float) -> list[int]:
        """The cut-off node of every level from the root (node 0) down to the leaf: ``[height + 1]`` node numbers.

        The cut-off node of a level is its smallest j with P_0 + .. + P_j > mass; there is one [Zhang2021, Lemma 1], and
        each is the parent of the next [Zhang2021, Theorem 2], so only its children need be searched. RuntimeError when
        every leaf is 0.
        """
        return self._read("cutoff_path", self._cutoff_path, mass)

    def _cutoff_path(self, mass: float) -> list[int]:
        node, path = 0, [0]
        for level in range(self.height - 1, -1, -1):
            # Invariant: 0 <= mass < sum of node, but for rounding.
            left_of_child, last_positive, last_left = 0.0, 0, 0.0
            for child, value in enumerate(self._children(level, node)):
                # Invariant: left_of_child <= mass is the sum of the siblings left of child.
                if left_of_child + value > mass:
                    break
                if value > 0.0:
                    last_positive, last_left = child, left_of_child
                left_of_child += value
            else:  # rounding pushed the prefix value past the group: its last positive child is as close as any
                child, left_of_child = last_positive, last_left
            mass -= left_of_child
            node = node * self._fanout + child
            path.append(node)
        if self._levels[0][node] <= 0.0:  # delta updates can leave a sum above a group of zeros
            leaf = self._nearest_positive(node)
            path = [leaf // self._fanout**level for level in range(self.height, -1, -1)]
        return path

    def _range_sum(self, left: Indices, right: Indices) -> Reals:
        return np.array(list(map(self._sum_between, left.tolist(), right.tolist())))

    def _sum_between(self, left: int, right: int) -> float:
        """The leaves from ``left`` to before ``right``, added from the fewest nodes that cover them."""
        if left == 0 and right == self._capacity:
            return self._total()
        head = tail = 0.0
        for level in self._levels:
            # Invariant: the answer is head, the nodes of this level from left to before right, and tail.
            first, last = left // self._fanout, right // self._fanout
            if first == last:
                return head + _added(level[left:right]) + tail
            if left > first * self._fanout:  # else the whole group is a node of the next level
                first += 1
                head += _added(level[left : first * self._fanout])
            tail += _added(level[last * self._fanout : right])
            left, right = first, last
        return head + tail

    def _nearest_positive(self, leaf: int) -> int:
        leaves = self._levels[0]
        for candidate in itertools.chain(range(leaf, -1, -1), range(leaf + 1, self._capacity)):
            if leaves[candidate] > 0.0:
                return candidate
        raise RuntimeError(nothing_to_sample(self._total()))

    def _total(self) -> float:
        return self._levels[-1][0]

    def _check(self) -> float:
        return max(
            math.fabs(value - self._sum_of_children(level, parent))
            for level in range(self.height)
            for parent, value in enumerate(self._levels[level + 1])
        )

    def _rebuild(self) -> None:
        for level in range(self.height):
            for parent in range(self._sizes[level + 1]):
                self._levels[level + 1][parent] = self._sum_of_children(level, parent)

    @property
    def nbytes(self) -> int:
        """Bytes of the lists and the float objects they hold, as CPython counts them."""
        return sum(sys.getsizeof(level) + len(level) * sys.getsizeof(0.0) for level in self._levels)


def _added(values: list[float]) -> float:
    total = 0.0
    for value in values:  # not sum(): since Python 3.12 it rounds otherwise than the descent
        total += value
    return total
