"""The ``sumtree`` extension: binary, Rust."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import base


class Tree(base.Tree):
    """``sumtree.SumTree``: prefix values one by one, faster than its batch call; updates by its batch call."""

    package = "sumtree"
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = (
        "no batch of prefix values: a Python loop",
        "samples a batch by random numbers of its own only, and slower",
    )

    def _allocate(self) -> None:
        from sumtree import SumTree  # noqa: PLC0415  # optional

        self._tree = SumTree(self.slots)
        for _ in range(self.slots):
            self._tree.add(0.0)

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return array.tolist()

    def update(self, indices: Any, priorities: Any) -> None:
        if len(indices) == 1:
            self._tree.update(indices[0], priorities[0])
        else:
            self._tree.update_batched(indices, priorities)

    def get(self, indices: Any) -> Any:
        tree = self._tree
        return [tree[index] for index in indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        if len(uniforms) == 1:
            leaf, priority = tree.get(uniforms[0] * tree.total)
            return [leaf], [priority]
        get, total = tree.get, tree.total
        indices, priorities = zip(*[get(uniform * total) for uniform in uniforms], strict=True)
        return indices, priorities

    def prefix_sum_index(self, mass: Any) -> Any:
        get = self._tree.get
        return [get(value)[0] for value in mass]

    def total(self) -> float:
        return float(self._tree.total)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Add every priority anew, first in first out."""
        for priority in state["leaves"].astype(np.float64).tolist():
            self._tree.add(priority)
