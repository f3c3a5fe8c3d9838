"""flashbax's sum tree: binary, float32, deltas, JAX."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from .peer import Peer, file_of

BULK_FROM, LEAST_BULK = 0.01, 512  # of the leaves in a batch: from there adding in bulk beats one after the other


class Flashbax(Peer):
    """``flashbax.buffers.sum_tree``, jitted; the state is donated to each update, so that nothing is copied."""

    package = "flashbax"
    version = "0.1.3"
    needs = ("chex", "flax", "jax")
    rule = "smallest i with p_0 + .. + p_i > mass"
    dtypes = ("float32",)
    limits = ("updates by deltas in float32: the root drifts", "no checks", "compiles anew for each batch size")

    def _allocate(self) -> None:
        self._module, self._draw, self._search, self._scan, self._bulk = _compiled()
        self._state = self._module.init(self.slots)

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        import jax  # noqa: PLC0415  # heavy, and loaded by now

        return jax.device_put(array.astype(np.float32 if array.dtype.kind == "f" else np.int32))

    def update(self, indices: Any, priorities: Any) -> None:
        put = self._bulk if len(indices) > max(LEAST_BULK, BULK_FROM * self.slots) else self._scan
        self._state = put(self._state, indices, priorities)
        self._state.nodes.block_until_ready()

    def get(self, indices: Any) -> Any:
        return self._module.get_batch(self._state, indices)

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        indices, priorities = self._draw(self._state, uniforms)
        indices.block_until_ready()
        return indices, priorities

    def prefix_sum_index(self, mass: Any) -> Any:
        return self._search(self._state, mass / self._state.nodes[0]).block_until_ready()

    def total(self) -> float:
        return float(self._state.nodes[0])


@cache
def _compiled() -> tuple[ModuleType, Any, Any, Any, Any]:
    import jax  # noqa: PLC0415  # heavy, and optional

    module = file_of("flashbax", "buffers/sum_tree.py")
    search = jax.vmap(module.sample, in_axes=(None, None, 0))

    def draw(state: Any, uniforms: Any) -> tuple[Any, Any]:
        indices = search(state, None, uniforms)
        return indices, module.get_batch(state, indices)

    def searched(state: Any, uniforms: Any) -> Any:
        return search(state, None, uniforms)

    put = (jax.jit(function, donate_argnums=0) for function in (module.set_batch_scan, module.set_batch_bincount))
    return (module, jax.jit(draw), jax.jit(searched), *put)
