"""Baseline of [Zhang2021, section IV-B]: an array of priorities. Sampling is O(N) a batch, an update O(1)."""

import numpy as np

from .arguments import Indices, Priorities, Reals, nothing_to_sample, prefix_values
from .contract import READS, SumTree


class FlatTree(SumTree):
    """Priorities alone; every call of ``sample`` sums them again. Ignores ``fanout`` and ``minimum``.

    Calls that only read run side by side; an update runs alone.
    """

    concurrent = READS
    uses_fanout = False

    def _allocate(self) -> None:
        self._leaves: Priorities = np.zeros(self._capacity, self._dtype)

    def _set(self, indices: Indices, priorities: Reals) -> None:
        self._leaves[indices] = priorities  # NumPy assigns in order: the last duplicate wins

    def _get(self, indices: Indices) -> Priorities:
        return self._leaves[indices]

    def _prefix_sums(self) -> Reals:
        return np.cumsum(self._leaves, dtype=np.float64)

    def _find(self, mass: Reals) -> Indices:
        return _search(self._prefix_sums(), mass)

    def _prefix_sum(self, indices: Indices) -> Reals:
        return np.append(0.0, self._prefix_sums())[indices]

    def _sample(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        prefix_sums = self._prefix_sums()
        indices = _search(prefix_sums, prefix_values(uniforms, float(prefix_sums[-1])))
        return indices, self._leaves[indices]

    def _total(self) -> float:
        return float(self._prefix_sums()[-1])

    def _check(self) -> float:
        return 0.0

    def _rebuild(self) -> None:
        """Nothing to do, as no sums are kept."""

    @property
    def num_nodes(self) -> int:
        return self._capacity

    @property
    def nbytes(self) -> int:
        return self._leaves.nbytes


def _search(prefix_sums: Reals, mass: Reals) -> Indices:
    """The first leaf ``[B]`` whose prefix sum ``[N]`` is above the prefix value ``[B]``. RuntimeError at total 0."""
    if prefix_sums[-1] <= 0.0:
        raise RuntimeError(nothing_to_sample(0.0))
    # Invariant: every prefix value is below the last sum, so a sum is above it, and the first such leaf is positive.
    return prefix_sums.searchsorted(mass, side="right")
