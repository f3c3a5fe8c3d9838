"""Our buffers: the compiled replay by any of its strategies, and the buffer in Python on the numba tree."""

from typing import Any

import numpy as np

import impls
from impls import replay

from . import rows
from .buffers import ALPHA, BETA, EPSILON, Buffer


class _Ours(Buffer):
    """What our buffers share: a batch has rows, weights and a sequence."""

    fanout = 16
    dtype = "float32"

    def insert(self, placed: Any) -> None:
        self._buffer.insert(placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, BETA, self._rng)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(sampled.sequence, errors)

    def records(self, sampled: Any) -> rows.Rows:
        return dict(sampled.rows)

    def weights(self, sampled: Any) -> Any:
        return sampled.weights


class Compiled(_Ours):
    """``impls.replay.make``, one compiled call an operation; ``shared`` lies in memory that other processes map."""

    name = "replay"

    def _allocate(self, seed: int, strategy: str = "two_lock_checked", shared: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        made = replay.make(self.capacity, rows.LAYOUT, strategy=strategy, alpha=ALPHA, epsilon=EPSILON, shared=shared)
        self._buffer: Any = made
        self._empty: Any = None

    @classmethod
    def attached(cls, handle: Any, capacity: int, seed: int) -> "Compiled":
        """Return the buffer of another process, by its handle."""
        self = cls.__new__(cls)
        self.capacity, self._rng, self._buffer = capacity, np.random.default_rng(seed), replay.attach(handle)
        return self

    def handle(self) -> Any:
        """Return what other processes attach to it by."""
        return self._buffer.handle()

    def clear(self) -> None:
        """Empty it; the first call must come while it is empty."""
        if self._empty is None:
            self._empty = self._buffer.state_dict()
        self._buffer.load_state_dict(self._empty)


class InPython(_Ours):
    """``PrioritizedBuffer`` on the numba tree: a tree call, a gather and NumPy between them."""

    name = "prioritized_buffer"

    def _allocate(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        tree = impls.make("numba", self.capacity, fanout=self.fanout)
        self._buffer = replay.PrioritizedBuffer(tree, rows.LAYOUT, alpha=ALPHA, epsilon=EPSILON)
