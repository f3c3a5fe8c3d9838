"""tianshou's segment tree: binary, float64, recomputed, numba."""

from typing import Any

from .peer import Peer


class Tianshou(Peer):
    """``SegmentTree`` of tianshou, by its vector calls."""

    package = "tianshou"
    version = "2.0.1"
    source = ("tianshou", "data/utils/segtree.py", "SegmentTree")
    needs = ("numba",)
    rule = "smallest i with p_0 + .. + p_i >= mass"
    limits = ("overwrites the prefix values of a call", "memory doubles past a power of two")

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.get_prefix_sum_idx(uniforms * tree.reduce())
        return indices, tree[indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.get_prefix_sum_idx(mass.copy())

    def total(self) -> float:
        return float(self._tree.reduce())
