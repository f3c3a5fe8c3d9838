"""RLlib's segment tree: binary, pure Python, one element a call."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .peer import Peer


class Rllib(Peer):
    """``SumSegmentTree`` of RLlib, in a loop over the batch as its replay buffer does."""

    package = "ray"
    version = "2.60.0"
    source = ("ray", "rllib/execution/segment_tree.py", "SumSegmentTree")
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = ("no batches: a Python loop", "capacities are powers of two", "sums anew to check each prefix value")
    power_of_two = True

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return array.tolist()

    def update(self, indices: Any, priorities: Any) -> None:
        tree = self._tree
        for index, priority in zip(indices, priorities, strict=True):
            tree[index] = priority

    def get(self, indices: Any) -> Any:
        tree = self._tree
        return [tree[index] for index in indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        total = tree.sum()
        indices = [tree.find_prefixsum_idx(uniform * total) for uniform in uniforms]
        return indices, [tree[index] for index in indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return [self._tree.find_prefixsum_idx(value) for value in mass]

    def total(self) -> float:
        return float(self._tree.sum())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set every node at once, each to the sum of its children as an update leaves it."""
        nodes = np.zeros(2 * self.slots)
        nodes[self.slots : self.slots + self.capacity] = state["leaves"]
        first = self.slots // 2
        # Invariant: every inner node from index 2 * ``first`` on is the sum of its children.
        while first:
            nodes[first : 2 * first] = nodes[2 * first : 4 * first : 2] + nodes[2 * first + 1 : 4 * first : 2]
            first //= 2
        self._tree.set_state(nodes.tolist())
