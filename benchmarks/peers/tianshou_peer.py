"""tianshou's segment tree: binary, float64, recomputed, numba."""

from typing import Any

from . import file_of
from .peer import Peer


class Tianshou(Peer):
    """``SegmentTree`` of tianshou, by its vector calls."""

    package = "tianshou"
    version = "2.0.1"
    needs = ("numba",)
    rule = "smallest i with p_0 + .. + p_i >= mass"
    limits = ("overwrites the masses it is given", "memory doubles past a power of two")

    def _allocate(self) -> None:
        self._tree = file_of("tianshou", "data/utils/segtree.py").SegmentTree(self.slots)

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree[indices] = priorities

    def get(self, indices: Any) -> Any:
        return self._tree[indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.get_prefix_sum_idx(uniforms * tree.reduce())
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.get_prefix_sum_idx(mass.copy())

    def total(self) -> float:
        return float(self._tree.reduce())
