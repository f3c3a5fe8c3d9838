"""AgileRL's segment tree: binary, float64, recomputed, NumPy."""

from typing import Any

from . import base


class Tree(base.Tree):
    """``SumSegmentTree`` of AgileRL, by its vector calls."""

    package = "agilerl"
    source = ("agilerl", "components/segment_tree.py", "SumSegmentTree")
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = ("capacities are powers of two", "answers prefix values above the total")
    power_of_two = True

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree.update_batch(indices, priorities)

    def get(self, indices: Any) -> Any:
        return self._tree.get_batch(indices)

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.retrieve_batch(uniforms * tree.sum())
        return indices, tree.get_batch(indices)

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.retrieve_batch(mass)

    def total(self) -> float:
        return float(self._tree.sum())
