"""The prioritized replay buffer on any sum tree.

A leaf holds (|TD error| + epsilon)^alpha. Slots are given first in, first out. No locks: one thread at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..sumtree.contract import SumTree, stratified_uniforms, to_numpy
from .layout import Arrays, Layout

Sequence = NDArray[np.int64]
Reals = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Batch:
    """B sampled transitions.

    ``rows``: observation, action, reward, next_observation and terminated, each ``[B, ...]``; ``weights [B]`` float32
    importance weights, the largest of the batch 1; ``sequence [B]`` how many records were inserted before each.
    """

    rows: Arrays
    weights: NDArray[np.float32]
    sequence: Sequence


class PrioritizedBuffer:
    """Records in preallocated arrays, priorities in ``tree``, whose capacity is the buffer's.

    ``alpha`` >= 0 (0 draws uniformly), ``epsilon`` > 0. Uniforms are stratified, one in each of B equal intervals.
    """

    def __init__(self, tree: SumTree, layout: Layout, *, alpha: float, epsilon: float) -> None:
        if alpha < 0 or epsilon <= 0:
            raise ValueError(f"alpha must be at least 0 and epsilon above 0, not {alpha} and {epsilon}")
        self.tree, self.layout = tree, layout
        self._alpha, self._epsilon = alpha, epsilon
        self._arrays = layout.allocate(tree.capacity)
        self._drawable = np.zeros(tree.capacity, np.bool_)
        self._count = 0  # of records that may be drawn
        self._written = 0
        self._largest = 1.0

    def __len__(self) -> int:
        """Records that may be drawn."""
        return self._count

    @property
    def written(self) -> int:
        """Records ever inserted, fillers included."""
        return self._written

    def insert(
        self, records: Mapping[str, NDArray[Any]], errors: ArrayLike | None = None, drawable: ArrayLike | None = None
    ) -> None:
        """Store records, ``[n, ...]`` of each field, over the oldest ones.

        Their priorities come from ``errors``, the |TD error| of each that is drawable, or are the largest ever given.
        ``drawable [n]`` tells fillers (see ``layout``) from records. Raises ValueError, before anything is written, for
        errors that are no priorities or more records than the capacity.
        """
        count = len(records["reward"])
        keep = np.ones(count, np.bool_) if drawable is None else np.asarray(drawable)
        if count > self.tree.capacity:
            raise ValueError(f"{count} records at once, the capacity is {self.tree.capacity}")
        leaves = np.zeros(count)
        leaves[keep] = self._largest if errors is None else self._leaves(errors)
        slots = (self._written + np.arange(count)) % self.tree.capacity
        stale = self._cut_stacks(count)
        self.tree.update(np.concatenate((slots, stale)), np.concatenate((leaves, np.zeros(stale.size))))
        for name, array in self._arrays.items():
            array[slots] = records[name]
        self._count -= int(self._drawable[slots].sum()) + int(self._drawable[stale].sum())
        self._drawable[slots], self._drawable[stale] = keep, False
        self._count += int(keep.sum())
        self._written += count
        self._largest = max(self._largest, float(leaves.max(initial=0.0)))

    def sample(self, batch: int, beta: float, rng: np.random.Generator) -> Batch:
        """B records drawn in proportion to their priorities. RuntimeError when there are none."""
        slots, priorities = self.tree.sample(stratified_uniforms(rng, batch))
        slots, priorities = to_numpy(slots), to_numpy(priorities)
        weights = importance_weights(priorities, self.tree.total(), self._count, beta)
        # The division by the largest keeps a gradient step from growing with a rare record; N and the total cancel.
        weights = (weights / weights.max()).astype(np.float32)
        return Batch(self.layout.gather(self._arrays, slots), weights, self._sequence(slots))

    def update_priorities(self, sequence: Sequence, errors: ArrayLike) -> NDArray[np.bool_]:
        """Give sampled records ``[B]`` the priorities of their new |TD errors| ``[B]``.

        Returns which of them were still there; the others have been overwritten since, and keep what they have.
        ValueError for errors that are no priorities, with nothing written.
        """
        leaves, slots = self._leaves(errors), sequence % self.tree.capacity
        present: NDArray[np.bool_] = (self._sequence(slots) == sequence) & self._drawable[slots]
        self.tree.update(slots[present], leaves[present])
        self._largest = max(self._largest, float(leaves.max(initial=0.0)))
        return present

    def _leaves(self, errors: ArrayLike) -> Reals:
        """(|TD error| + epsilon)^alpha, kept where the tree can draw it; float64."""
        found = np.abs(to_numpy(errors).astype(np.float64)) + self._epsilon
        if not np.isfinite(found).all():
            raise ValueError(f"a TD error is {found[~np.isfinite(found)][0]}; training has diverged")
        leaves: Reals = np.clip(found**self._alpha, self.tree.smallest_priority, self.tree.largest_priority)
        return leaves

    def _sequence(self, slots: NDArray[np.int64]) -> Sequence:
        """How many records were inserted before those at ``slots [B]``: the latest that share a slot are there."""
        newest = self._written - 1
        return newest - (newest - slots) % self.tree.capacity

    def _cut_stacks(self, count: int) -> NDArray[np.int64]:
        """Slots of the oldest records, whose stacks reach into the ``count`` that are about to be written."""
        end = self._written + count
        cut = min(self.layout.frames - 1, self.tree.capacity - count) if end >= self.tree.capacity else 0
        return (end + np.arange(cut)) % self.tree.capacity

    def state_dict(self) -> dict[str, Any]:
        """What is stored, as copies; what was never written is left out."""
        filled = min(self._written, self.tree.capacity)
        return {
            "arrays": {name: array[:filled].copy() for name, array in self._arrays.items()},
            "leaves": to_numpy(self.tree.get(np.arange(filled))),
            "drawable": self._drawable[:filled].copy(),
            "written": self._written,
            "largest": self._largest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a buffer of the same capacity and layout, on any tree."""
        filled = len(state["leaves"])
        if filled != min(int(state["written"]), self.tree.capacity):
            raise ValueError(f"the state holds {filled} records, which a buffer of {self.tree.capacity} does not")
        leaves = np.zeros(self.tree.capacity, self.tree.dtype)
        leaves[:filled] = state["leaves"]
        self.tree.load_state_dict({"leaves": leaves, "capacity": self.tree.capacity, "dtype": self.tree.dtype.name})
        for name, array in self._arrays.items():
            array[:filled] = state["arrays"][name]
        self._drawable[:filled], self._drawable[filled:] = state["drawable"], False
        self._count, self._written = int(self._drawable.sum()), int(state["written"])
        self._largest = float(state["largest"])


def importance_weights(priorities: ArrayLike, total: float, count: int, beta: float) -> Reals:
    """w(i) = (1 / (N P(i)))^beta with P(i) = p_i / total, ``[B]`` float64 (seed 0, section II-C; N is ``count``).

    >>> importance_weights([1.0, 3.0], 4.0, 2, 1.0)
    array([2.        , 0.66666667])
    """
    weights: Reals = (total / (count * np.asarray(priorities, np.float64))) ** beta
    return weights
