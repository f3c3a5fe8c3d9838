"""Our buffers: the compiled replay by any of its strategies, and the buffer in Python on the numba tree."""

from typing import Any

import numpy as np

import impls
from impls import replay
from impls.replay.registry import strategy_class

from . import rows
from .buffers import ALPHA, BETA, EPSILON, Buffer

BANKS = 2  # of a strategy that has banks


class _Ours(Buffer):
    """What our buffers share: a batch has rows, weights and a sequence."""

    fanout = 16
    dtype = "float32"
    retrieves = True
    _buffer: Any
    _rng: np.random.Generator

    def insert(self, placed: Any) -> None:
        self._buffer.insert(placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, BETA, self._rng)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(sampled.sequence, errors)

    def retrieve(self, sampled: Any) -> Any:
        return self._buffer.retrieve_priorities(sampled.sequence)

    def records(self, sampled: Any) -> rows.Rows:
        return dict(sampled.rows)

    def weights(self, sampled: Any) -> Any:
        return sampled.weights


class Compiled(_Ours):
    """``impls.replay.make``, one compiled call an operation; ``shared`` lies in memory that other processes map."""

    name = "replay"

    def _allocate(self, seed: int, strategy: str, shared: bool = False) -> None:
        how: dict[str, Any] = {"alpha": ALPHA, "epsilon": EPSILON, "shared": shared}
        if strategy_class(strategy).banked:
            how["banks"] = BANKS
        self.take(replay.make(self.capacity, rows.LAYOUT, strategy=strategy, **how), self.capacity, seed)

    def take(self, made: Any, capacity: int, seed: int) -> None:
        """Use a replay that is there."""
        self.compiled = self._buffer = made
        self.capacity, self._rng = capacity, np.random.default_rng(seed)
        self._empty: Any = None

    @classmethod
    def attached(cls, handle: Any, capacity: int, seed: int) -> "Compiled":
        """Return the buffer of another process, by its handle."""
        self = cls.__new__(cls)
        self.take(replay.attach(handle), capacity, seed)
        return self

    def handle(self) -> Any:
        """Return what other processes attach to it by."""
        return self._buffer.handle()

    def clear(self) -> None:
        """Remove every record; the first call must come while there is none."""
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


class Reused(Compiled):
    """The compiled replay for callers that pack their rows themselves and sample into the same arrays."""

    name = "replay_reused"

    def _allocate(self, seed: int, strategy: str, shared: bool = False) -> None:
        super()._allocate(seed, strategy, shared)
        self._outputs: dict[int, Any] = {}

    def place(self, records: rows.Rows) -> Any:
        packed = np.zeros(len(records["reward"]), self.compiled.row)
        for name, array in records.items():
            packed[name] = array
        return packed

    def sample(self, batch: int) -> Any:
        if batch not in self._outputs:
            self._outputs[batch] = self.compiled.outputs(batch)
        return self.compiled.sample(batch, BETA, self._rng, out=self._outputs[batch])

    def keep(self, sampled: Any) -> Any:
        return replay.Batch({}, sampled.weights[:0], sampled.sequence.copy())
