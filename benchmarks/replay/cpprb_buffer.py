"""cpprb's prioritized buffers: binary, C++; the second lies in memory that processes share."""

import multiprocessing
from typing import Any

import numpy as np

from . import rows
from .buffers import ALPHA, BETA, EPSILON, Buffer

FIELDS = {
    "observation": {"shape": 11, "dtype": np.float32},
    "next_observation": {"shape": 11, "dtype": np.float32},
    "action": {"shape": 3, "dtype": np.float32},
    "reward": {"dtype": np.float32},
    "terminated": {"dtype": np.bool_},
}


class Cpprb(Buffer):
    """``PrioritizedReplayBuffer``, in memory of this process."""

    name = "cpprb"
    package = "cpprb"
    limits = ("samples with its own random numbers",)

    def _allocate(self, seed: int) -> None:
        import cpprb  # noqa: PLC0415  # optional

        self._buffer = cpprb.PrioritizedReplayBuffer(self.capacity, FIELDS, alpha=ALPHA, eps=EPSILON)

    def insert(self, placed: Any) -> None:
        self._buffer.add(**placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, BETA)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(sampled["indexes"], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {
            name: sampled[name].squeeze(-1) if sampled[name].shape[1:] == (1,) else sampled[name] for name in FIELDS
        }

    def weights(self, sampled: Any) -> Any:
        return sampled["weights"]

    def keep(self, sampled: Any) -> Any:
        return {"indexes": sampled["indexes"].copy()}

    def clear(self) -> None:
        """Remove every record from it."""
        self._buffer.clear()


class CpprbShared(Cpprb):
    """``MPPrioritizedReplayBuffer``: any processes insert, one samples and updates."""

    name = "cpprb_mp"
    inherited = True

    def _allocate(self, seed: int, shared: bool = True) -> None:
        import cpprb  # noqa: PLC0415  # optional

        how = {"ctx": multiprocessing.get_context("spawn"), "backend": "SharedMemory"}
        self._buffer = cpprb.MPPrioritizedReplayBuffer(self.capacity, FIELDS, alpha=ALPHA, eps=EPSILON, **how)

    @classmethod
    def attached(cls, handle: Any, capacity: int, seed: int) -> "CpprbShared":
        """Return the buffer of another process, which is its own handle."""
        self = cls.__new__(cls)
        self.capacity, self._buffer = capacity, handle
        return self

    def handle(self) -> Any:
        """Return what other processes attach to it by."""
        return self._buffer
