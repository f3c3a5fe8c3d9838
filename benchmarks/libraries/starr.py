"""STArr: binary sums as a NumPy array, in Cython."""

from typing import Any

import numpy as np

from . import base


class Tree(base.Tree):
    """``starr.SumTreeArray``: it adds differences in the dtype of its leaves."""

    package = "starr"
    needs = ("numpy",)
    rule = "smallest i with p_0 + .. + p_i > mass"
    dtypes = ("float32", "float64")
    power_of_two = True

    def _allocate(self) -> None:
        from starr import SumTreeArray  # noqa: PLC0415  # optional

        self._tree = SumTreeArray(max(2, self.slots), dtype=self.dtype.name)

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        """Convert a batch into the dtype of leaves, or of indices."""
        return array.astype(self.dtype if array.dtype.kind == "f" else np.intp)

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.get_prefix_sum_id(uniforms * tree.sum())
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.get_prefix_sum_id(mass)

    def total(self) -> float:
        return float(self._tree.sum())
