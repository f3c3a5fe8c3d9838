"""flashbax's prioritised item buffer: binary, float32, JAX."""

from functools import cache
from typing import Any

import numpy as np

from . import rows
from .buffers import ALPHA, BETA, EPSILON, Buffer


class Flashbax(Buffer):
    """``make_prioritised_item_buffer``, jitted, with weights; the state is donated, so that nothing is copied."""

    name = "flashbax"
    package = "flashbax"
    limits = ("compiles anew for each number of rows and each batch", "has no weights: they are computed apart from it")
    dtype = "float32"

    def _allocate(self, seed: int) -> None:
        import jax  # noqa: PLC0415  # heavy, and optional
        from flashbax.buffers.prioritised_item_buffer import make_prioritised_item_buffer  # noqa: PLC0415

        self._jax, self._key = jax, jax.random.PRNGKey(seed)

        @cache
        def of(batch: int) -> Any:
            made = make_prioritised_item_buffer(self.capacity, 1, batch, add_sequences=True, priority_exponent=ALPHA)

            def sample(state: Any, key: Any) -> Any:
                key, own = jax.random.split(key)
                sampled = made.sample(state, own)
                weights = (self.capacity * sampled.probabilities) ** -BETA
                return sampled.experience, sampled.indices, weights / weights.max(), key

            def put(state: Any, indices: Any, errors: Any) -> Any:
                return made.set_priorities(state, indices, abs(errors) + EPSILON)

            return made, jax.jit(sample), jax.jit(put, donate_argnums=0)

        self._of = of
        made = of(1)[0]
        self._add = jax.jit(made.add, donate_argnums=0)
        one = {name: array[0] for name, array in rows.made(np.zeros(1, np.int64)).items()}
        self._state = made.init(jax.tree.map(jax.numpy.asarray, one))

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
