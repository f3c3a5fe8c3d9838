"""Baseline of [Zhang2021, section IV-B]: an array of prefix sums. Sampling is O(log N), an update O(N) a batch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .arguments import Indices, Priorities, Reals, nothing_to_sample
from .contract import READS, SumTree


class CumsumTree(SumTree):
    """Priorities and their prefix sums; an update sums again from the first leaf it changed.

    Ignores ``fanout`` and ``minimum``. The sum of a range adds its leaves: a difference of prefix sums loses digits.

    Calls that only read run side by side, the search itself without the GIL; an update runs alone.
    """

    concurrent = READS
    uses_fanout = False

    def _allocate(self) -> None:
        self._leaves: Priorities = np.zeros(self._capacity, self._dtype)
        # Invariant: entry i is p_0 + .. + p_(i-1), summed from left to right; summing from any point gives these bits.
        self._prefix_sums: Reals = np.zeros(self._capacity + 1)

    @classmethod
    def nbytes_of(cls, capacity: int, fanout: int, dtype: DTypeLike, options: Mapping[str, Any]) -> int:
        return (np.dtype(dtype).itemsize + 8) * capacity

    def _set(self, indices: Indices, priorities: Reals) -> None:
        self._leaves[indices] = priorities  # NumPy assigns in order: the last duplicate wins
        self._sum_from(int(indices.min()))

    def _load(self, leaves: Reals) -> None:
        self._leaves[:] = leaves
        self._rebuild()

    def _sum_from(self, start: int) -> None:
        sums = self._prefix_sums[start:]  # its first entry lies left of the leaves that changed, and stays
        sums[1:] = self._leaves[start:]
        np.cumsum(sums, out=sums)

    def _get(self, indices: Indices) -> Priorities:
        return self._leaves[indices]

    def _find(self, mass: Reals) -> Indices:
        if self._total() <= 0.0:
            raise RuntimeError(nothing_to_sample(0.0))
        return self._prefix_sums[1:].searchsorted(mass, side="right")

    def _prefix_sum(self, indices: Indices) -> Reals:
        return self._prefix_sums[indices]

    def _total(self) -> float:
        return float(self._prefix_sums[-1])

    def _check(self) -> float:
        return 0.0

    def _rebuild(self) -> None:
        self._sum_from(0)

    @property
    def num_nodes(self) -> int:
        return self._capacity

    @property
    def nbytes(self) -> int:
        return self._leaves.nbytes + self._prefix_sums.nbytes
