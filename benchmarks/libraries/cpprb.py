"""cpprb: binary trees in C++, which cannot be reached but by its buffers; one of them processes can share."""

import multiprocessing
from typing import Any

import numpy as np

from ..cases import Leniency
from . import base, rows

FIELDS = {
    "observation": {"shape": 11, "dtype": np.float32},
    "next_observation": {"shape": 11, "dtype": np.float32},
    "action": {"shape": 3, "dtype": np.float32},
    "reward": {"dtype": np.float32},
    "terminated": {"dtype": np.bool_},
}


class Tree(base.Tree):
    """``PrioritizedReplayBuffer`` of cpprb with alpha 1, epsilon 0 and rows of one number."""

    package = "cpprb"
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = (
        "takes no prefix values: samples with its own random numbers, inside the clock",
        "a sample also gathers a row and computes weights",
        "the next sample overwrites the indices of the last",
        "priorities cannot be read back",
    )
    leniency = Leniency(own_random_numbers=True, blind=True)

    def _allocate(self) -> None:
        from cpprb import PrioritizedReplayBuffer  # noqa: PLC0415  # optional

        self._tree = PrioritizedReplayBuffer(self.slots, {"row": {}}, alpha=1.0, eps=0.0)
        self._tree.add(row=np.zeros(self.slots), priorities=np.zeros(self.slots))

    def update(self, indices: Any, priorities: Any) -> None:
        self._tree.update_priorities(indices, priorities)

    def get(self, indices: Any) -> Any:
        raise NotImplementedError("cpprb cannot read priorities back")

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        sampled = self._tree.sample(len(uniforms))
        return sampled["indexes"], sampled["weights"]

    def prefix_sum_index(self, mass: Any) -> Any:
        raise NotImplementedError("cpprb takes no prefix values")

    def total(self) -> float:
        raise NotImplementedError("cpprb does not show its root")


class Buffer(base.Buffer):
    """``PrioritizedReplayBuffer``, in memory of this process."""

    package = "cpprb"
    limits = ("samples with its own random numbers",)

    def _allocate(self, seed: int) -> None:
        import cpprb  # noqa: PLC0415  # optional

        self._buffer = cpprb.PrioritizedReplayBuffer(self.capacity, FIELDS, alpha=base.ALPHA, eps=base.EPSILON)

    def insert(self, placed: Any) -> None:
        self._buffer.add(**placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, base.BETA)

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


class SharedBuffer(Buffer):
    """``MPPrioritizedReplayBuffer``: any processes insert, one samples and updates."""

    name = "cpprb_mp"
    inherited = True

    def _allocate(self, seed: int, shared: bool = True) -> None:
        import cpprb  # noqa: PLC0415  # optional

        how = {"ctx": multiprocessing.get_context("spawn"), "backend": "SharedMemory"}
        self._buffer = cpprb.MPPrioritizedReplayBuffer(self.capacity, FIELDS, alpha=base.ALPHA, eps=base.EPSILON, **how)

    @classmethod
    def attached(cls, handle: Any, capacity: int, seed: int) -> "SharedBuffer":
        """Return the buffer of another process, which is its own handle."""
        self = cls.__new__(cls)
        self.capacity, self._buffer = capacity, handle
        return self

    def handle(self) -> Any:
        """Return what other processes attach to it by."""
        return self._buffer
