"""coax's sum tree: binary, float64, recomputed, NumPy."""

from typing import Any

from . import base


class Tree(base.Tree):
    """``SumTree`` of coax, by its vector calls."""

    package = "coax"
    source = ("coax", "utils/_segment_tree.py", "SumTree")
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = ("takes uniforms, no prefix values", "refuses a uniform of 1 only")

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree.set_values(indices, priorities)

    def get(self, indices: Any) -> Any:
        return self._tree.values[indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        indices = self._tree.inverse_cdf(uniforms)
        return indices, self._tree.values[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.inverse_cdf(mass / self._tree.root_value)

    def total(self) -> float:
        return float(self._tree.root_value)
