"""dopamine's sum tree: binary, float64, deltas, NumPy."""

from typing import Any

from ..cases import Leniency
from . import base


class Tree(base.Tree):
    """``SumTree`` of dopamine's JAX replay memory."""

    package = "dopamine-rl"
    source = ("dopamine", "jax/replay_memory/sum_tree.py", "SumTree")
    needs = ("etils", "flax", "msgpack", "orbax-checkpoint")
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = (
        "updates by deltas: the root drifts",
        "of equal indices the first wins",
        "a prefix value just below the total may raise",
    )
    leniency = Leniency(first_duplicate_wins=True)

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree.set(indices, priorities)

    def get(self, indices: Any) -> Any:
        return self._tree.get(indices)

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        indices = tree.query(uniforms * tree.root)
        return indices, tree.get(indices)

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._tree.query(mass)

    def total(self) -> float:
        return float(self._tree.root)
