"""The cache-aligned implicit array of [Zhang2021, Fig. 6]; whole batches descend level by level in array operations.

A sibling group is K neighbors in memory and starts on a cache line where its size allows; the root is padded to a group
of its own. Padding holds zeros, and a sum of zeros is never entered.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..checks import one_of
from ..levels import allocate, check_lines, full_level_sizes, group_size, level_bytes, level_sizes
from .arguments import Indices, Priorities, Reals, in_parts, nearest_positive, sums_of_ranges
from .contract import READS, SumTree


class NumpyTree(SumTree):
    """One buffer, root first; float64 inner levels, leaves in their own dtype.

    Options:

    * ``aligned=None`` puts groups on 64-byte lines where K * itemsize divides or is a multiple of 64, ``True`` insists,
      ``False`` shifts every level by one element, so that groups straddle lines.
    * ``padding="ragged"`` rounds each level up to whole groups; ``"full"`` fills up to K**height leaves, as
      [Zhang2021].
    * ``propagate="recompute"`` (default, because it is exact and a batch shares its upper levels) sums touched groups
      again; ``"delta"`` adds the leaf's change to every ancestor and drifts by rounding.

    Calls that only read run side by side, as far as NumPy lets go of the GIL: from batches of 1,000 or so. An update
    runs alone.
    """

    concurrent = READS
    variants = ({"aligned": False}, {"padding": "full"})

    def __init__(
        self,
        capacity: int,
        *,
        aligned: bool | None = None,
        padding: str = "ragged",
        propagate: str = "recompute",
        **common: Any,
    ) -> None:
        self._aligned = one_of("aligned", aligned, (None, True, False))
        self._padding = one_of("padding", padding, ("ragged", "full"))
        self._propagate = one_of("propagate", propagate, ("recompute", "delta"))
        super().__init__(capacity, **common)

    def _allocate(self) -> None:
        self._width = group_size(self._capacity, self._fanout)
        check_lines(self._aligned, self._width * self._dtype.itemsize)
        sizes = self._sizes if self._padding == "ragged" else full_level_sizes(self._capacity, self._width)
        shapes = [
            (-(-size // self._width) * self._width, self._dtype if level == 0 else np.float64)
            for level, size in enumerate(sizes)
        ]
        buffers = allocate(shapes[::-1], aligned=self._aligned is not False)[::-1]
        # Invariant: row g of a level is the sibling group under node g of the level above.
        self._groups: list[NDArray[Any]] = [level.reshape(-1, self._width) for level in buffers]
        self._nodes: list[NDArray[Any]] = [group.reshape(-1) for group in self._groups]
        # Next to the inner levels, for each node the smallest positive leaf below it.
        self._minima: list[Reals] = [np.full(nodes.size, math.inf) for nodes in self._nodes[1:] if self._minimum]

    @classmethod
    def nbytes_of(cls, capacity: int, fanout: int, dtype: DTypeLike, options: Mapping[str, Any]) -> int:
        sizes = full_level_sizes if options.get("padding") == "full" else level_sizes
        return level_bytes(sizes(capacity, fanout), fanout, dtype)

    @property
    def _leaves(self) -> Priorities:
        return self._nodes[0][: self._capacity]

    def _set(self, indices: Indices, priorities: Reals) -> None:
        if self._propagate == "recompute":
            self._leaves[indices] = priorities  # NumPy assigns in order: the last duplicate wins
            self._refresh(np.unique(indices // self._fanout))
        else:
            self._add_deltas(indices, priorities)

    def _refresh(self, parents: Indices, sums: bool = True) -> None:
        """Sum the groups under ``parents`` (sorted, distinct nodes of level 1) again, then those above them.

        Minima, where they are kept, as well, and without ``sums`` alone.
        """
        for level in range(self.height):
            # Invariant: parents are the nodes of level + 1 above a change, sorted, each once; all else so far is right.
            if sums:
                self._nodes[level + 1][parents] = _sums(self._groups[level][parents])
            if self._minimum:
                self._minima[level][parents] = self._least(level, parents)
            above = parents // self._fanout
            parents = above[np.diff(above, prepend=-1) > 0]

    def _least(self, level: int, parents: Indices) -> Reals:
        """The smallest positive leaf ``[G]`` below nodes ``parents [G]`` of the level above; infinity for none."""
        if level > 0:
            rows = self._minima[level - 1].reshape(-1, self._width)[parents]
        else:
            rows = self._groups[0][parents]
        least: Reals = rows.min(axis=1, where=rows > 0, initial=math.inf).astype(np.float64)
        return least

    def _add_deltas(self, indices: Indices, priorities: Reals) -> None:
        nodes, last = np.unique(indices[::-1], return_index=True)
        values = priorities[::-1][last].astype(self._dtype)
        deltas = values.astype(np.float64) - self._leaves[nodes]
        self._leaves[nodes] = values
        for level in self._nodes[1:]:
            nodes = nodes // self._fanout
            # Invariant: nodes[j] is the ancestor, on this level, of the leaf that changed by deltas[j]; it may repeat.
            np.add.at(level, nodes, deltas)
        if self._minimum:
            self._refresh(np.unique(indices // self._fanout), sums=False)

    def _get(self, indices: Indices) -> Priorities:
        return self._leaves[indices]

    def _find(self, mass: Reals) -> Indices:
        return in_parts(self._descend, mass, self._width)

    def _descend(self, mass: Reals) -> Indices:
        mass, nodes = mass.copy(), np.zeros(mass.size, np.int64)
        rows = np.arange(mass.size)
        for level in range(self.height - 1, -1, -1):
            ends = self._groups[level][nodes].cumsum(axis=1, dtype=np.float64)  # [B, K]
            over = mass >= ends[:, -1]
            if over.any():  # rounding pushed it past the group: just under the group's sum is its last positive child
                mass[over] = np.nextafter(ends[over, -1], -np.inf)
            child = (ends > mass[:, None]).argmax(axis=1)
            # Invariant: ends[child - 1] <= mass < ends[child], so that what is left of mass falls within the child.
            mass -= np.where(child > 0, ends[rows, child - 1], 0.0)
            nodes = nodes * self._fanout + child
        empty = self._leaves[nodes] <= 0
        if empty.any():
            nodes[empty] = nearest_positive(self._leaves, nodes[empty])
        return nodes

    def _range_sum(self, left: Indices, right: Indices) -> Reals:
        sums = in_parts(
            lambda part: sums_of_ranges(self._groups, self._fanout, left[part], right[part]),
            np.arange(left.size),
            self._width,
        )
        sums[(left == 0) & (right == self._capacity)] = self._total()
        return sums

    def _total(self) -> float:
        return float(self._nodes[-1][0])

    def _min(self) -> float:
        return float(self._minima[-1][0]) if self._minimum else super()._min()

    def _check(self) -> float:
        pairs = ((self._nodes[level + 1], _sums(self._groups[level])) for level in range(self.height))
        wrong = any(
            (self._least(level, np.arange(self._sizes[level + 1])) != minima[: self._sizes[level + 1]]).any()
            for level, minima in enumerate(self._minima)
        )
        largest = max(float(np.abs(node[: sums.size] - sums).max()) for node, sums in pairs)
        return math.inf if wrong else largest

    def _rebuild(self) -> None:
        self._refresh(np.arange(self._sizes[1]))

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in (*self._nodes, *self._minima))


def _sums(groups: NDArray[Any]) -> Reals:
    """Sums ``[G]`` of groups ``[G, K]`` from left to right, as the descent adds, so that both read the same total."""
    return groups.cumsum(axis=1, dtype=np.float64)[:, -1]
