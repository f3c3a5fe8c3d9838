"""tianshou's prioritized buffers: binary, float64, numba under Python; one transition an environment and call."""

from typing import Any

import numpy as np

from ..loops.tianshou_trainer import Tianshou as Trainer
from . import rows
from .buffers import ALPHA, BETA, Buffer

NAMES = {
    "observation": "obs",
    "next_observation": "obs_next",
    "action": "act",
    "reward": "rew",
    "terminated": "terminated",
}
ENVIRONMENTS = 64


class Tianshou(Buffer):
    """``PrioritizedReplayBuffer``, which takes one transition a call."""

    name = "tianshou"
    package = "tianshou"
    needs = Trainer.needs
    limits = ("several rows are as many calls", "epsilon is float32's smallest difference from 1")

    def _allocate(self, seed: int) -> None:
        from tianshou.data import Batch, PrioritizedReplayBuffer  # noqa: PLC0415  # optional

        np.random.seed(seed)  # noqa: NPY002  # its source of random numbers
        self._batch = Batch
        self._buffer: Any = PrioritizedReplayBuffer(self.capacity, alpha=ALPHA, beta=BETA)

    def insert(self, placed: Any) -> None:
        for one in placed:
            self._buffer.add(one)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_weight(sampled[1], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {ours: np.asarray(getattr(sampled[0], theirs)) for ours, theirs in NAMES.items()}

    def weights(self, sampled: Any) -> Any:
        return sampled[0].weight

    def place(self, records: rows.Rows) -> Any:
        return [
            self._renamed({name: array[at] for name, array in records.items()}) for at in range(len(records["reward"]))
        ]

    def _renamed(self, records: rows.Rows) -> Any:
        fields = {NAMES[name]: value for name, value in records.items()}
        return self._batch(**fields, truncated=np.zeros_like(fields["terminated"]))

    def fill(self) -> None:
        """Add what makes it allocate, then write every record in place: a call each would take a minute."""
        count = getattr(self._buffer, "buffer_num", 1)
        self.insert(self.place(rows.made(np.arange(count))))
        records = rows.made(np.arange(self.capacity))
        for name, array in records.items():
            getattr(self._buffer._meta, NAMES[name])[:] = array
        self._buffer._meta.done[:] = records["terminated"]
        for part in getattr(self._buffer, "buffers", [self._buffer]):
            part._size, part._insertion_idx = part.maxsize, 0
        if count > 1:
            self._buffer._lengths[:] = self.capacity // count
        self._buffer.init_weight(np.arange(self.capacity))


class TianshouVector(Tianshou):
    """``PrioritizedVectorReplayBuffer`` of 64 environments, which takes a transition of each by one call."""

    name = "tianshou_vector"
    limits = (f"a ring of its own for each of {ENVIRONMENTS} environments", *Tianshou.limits[1:])

    def _allocate(self, seed: int) -> None:
        from tianshou.data import Batch, PrioritizedVectorReplayBuffer  # noqa: PLC0415  # optional

        np.random.seed(seed)  # noqa: NPY002  # its source of random numbers
        self._batch = Batch
        self.capacity -= self.capacity % ENVIRONMENTS
        self._buffer = PrioritizedVectorReplayBuffer(self.capacity, ENVIRONMENTS, alpha=ALPHA, beta=BETA)

    def insert(self, placed: Any) -> None:
        for records, environments in placed:
            self._buffer.add(records, environments)

    def place(self, records: rows.Rows) -> Any:
        count = len(records["reward"])
        parts = [slice(first, first + ENVIRONMENTS) for first in range(0, count, ENVIRONMENTS)]
        chunks = [{name: array[part] for name, array in records.items()} for part in parts]
        return [(self._renamed(chunk), np.arange(len(chunk["reward"]))) for chunk in chunks]
