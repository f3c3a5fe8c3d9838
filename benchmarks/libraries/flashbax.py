"""flashbax: binary trees in JAX, float32, updated by deltas."""

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from . import base, rows

BULK_FROM, LEAST_BULK = 0.01, 512  # of the leaves in a batch: from there adding in bulk beats one after the other


class _Flashbax:
    package = "flashbax"
    needs = ("chex", "flax", "jax")


class Tree(_Flashbax, base.Tree):
    """``flashbax.buffers.sum_tree``, jitted; the state is donated to each update, so that nothing is copied."""

    rule = "smallest i with p_0 + .. + p_i > mass"
    dtypes = ("float32",)
    limits = ("updates by deltas in float32: the root drifts", "no checks", "compiles anew for each batch size")

    def _allocate(self) -> None:
        self._module, self._draw, self._search, self._scan, self._bulk = _compile()
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
def _compile() -> tuple[ModuleType, Any, Any, Any, Any]:
    import jax  # noqa: PLC0415  # heavy, and optional

    module = base.file_of("flashbax", "buffers/sum_tree.py")
    search = jax.vmap(module.sample, in_axes=(None, None, 0))

    def draw(state: Any, uniforms: Any) -> tuple[Any, Any]:
        indices = search(state, None, uniforms)
        return indices, module.get_batch(state, indices)

    def searched(state: Any, uniforms: Any) -> Any:
        return search(state, None, uniforms)

    put = (jax.jit(function, donate_argnums=0) for function in (module.set_batch_scan, module.set_batch_bincount))
    return (module, jax.jit(draw), jax.jit(searched), *put)


class Buffer(_Flashbax, base.Buffer):
    """``make_prioritised_item_buffer``, jitted, with weights; the state is donated, so that nothing is copied."""

    limits = ("compiles anew for each number of rows and each batch", "has no weights: they are computed apart from it")
    dtype = "float32"

    def _allocate(self, seed: int) -> None:
        import jax  # noqa: PLC0415  # heavy, and optional
        from flashbax.buffers.prioritised_item_buffer import make_prioritised_item_buffer  # noqa: PLC0415

        self._jax, self._key = jax, jax.random.PRNGKey(seed)

        @cache
        def of(batch: int) -> Any:
            made = make_prioritised_item_buffer(
                self.capacity, 1, batch, add_sequences=True, priority_exponent=base.ALPHA
            )

            def sample(state: Any, key: Any) -> Any:
                key, own = jax.random.split(key)
                sampled = made.sample(state, own)
                weights = (self.capacity * sampled.probabilities) ** -base.BETA
                return sampled.experience, sampled.indices, weights / weights.max(), key

            def put(state: Any, indices: Any, errors: Any) -> Any:
                return made.set_priorities(state, indices, abs(errors) + base.EPSILON)

            return made, jax.jit(sample), jax.jit(put, donate_argnums=0)

        self._of = of
        made = of(1)[0]
        self._add = jax.jit(made.add, donate_argnums=0)
        record = {name: array[0] for name, array in rows.made(np.zeros(1, np.int64)).items()}
        self._state = made.init(jax.tree.map(jax.numpy.asarray, record))

    def insert(self, placed: Any) -> None:
        self._state = self._add(self._state, placed)

    def sample(self, batch: int) -> Any:
        *sampled, self._key = self._of(batch)[1](self._state, self._key)
        sampled[1].block_until_ready()
        return sampled

    def update(self, sampled: Any, errors: Any) -> None:
        self._state = self._of(len(errors))[2](self._state, sampled[1], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {name: np.asarray(array) for name, array in sampled[0].items()}

    def weights(self, sampled: Any) -> Any:
        return np.asarray(sampled[2])

    def place(self, records: rows.Rows) -> Any:
        return self._jax.device_put(records)

    def place_errors(self, errors: Any) -> Any:
        return self._jax.device_put(errors)

    def wait(self) -> None:
        self._jax.block_until_ready(self._state)
