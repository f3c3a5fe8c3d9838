"""torchrl's prioritized buffer: a C++ tree, storage and samples as tensors."""

import sys
from typing import Any

import numpy as np

from ..peers import torchrl_peer
from . import rows
from .buffers import ALPHA, BETA, EPSILON, Buffer

ERROR = "td_error"


def load_extension() -> None:
    """Give torchrl its tree as it was compiled here, in a process that has not imported torchrl yet."""
    sys.modules.setdefault("torchrl._torchrl", torchrl_peer.extension())


class Torchrl(Buffer):
    """``TensorDictPrioritizedReplayBuffer`` on a ``LazyTensorStorage``, its tree compiled for the installed torch."""

    name = "torchrl"
    package = "torchrl"
    needs = ("tensordict", "pyvers", "cloudpickle", "packaging", "hoptorch", "importlib_metadata", "orjson")
    limits = ("a sample fetches its records as tensors",)
    dtype = "float32"

    def _allocate(self, seed: int) -> None:
        load_extension()
        sys.modules.setdefault("ray", None)  # type: ignore[arg-type]  # it imports what is there of Ray's services
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer  # noqa: PLC0415

        self._use_torch(seed)
        kind = {"alpha": ALPHA, "beta": BETA, "eps": EPSILON, "priority_key": ERROR}
        storage = LazyTensorStorage(self.capacity)
        self._buffer = TensorDictPrioritizedReplayBuffer(storage=storage, batch_size=1, **kind)

    def _use_torch(self, seed: int) -> None:
        import torch  # noqa: PLC0415  # heavy, and optional
        from tensordict import TensorDict  # noqa: PLC0415

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self._torch, self._dict = torch, TensorDict

    def insert(self, placed: Any) -> None:
        self._buffer.extend(placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priority(sampled["index"], errors)

    def records(self, sampled: Any) -> rows.Rows:
        return {name: sampled[name].numpy() for name in rows.LAYOUT.fields}

    def weights(self, sampled: Any) -> Any:
        key = "priority_weight" if "priority_weight" in sampled.keys() else "_weight"  # no mapping
        return sampled[key].numpy()

    def place(self, records: rows.Rows) -> Any:
        tensors = {name: self._torch.from_numpy(np.ascontiguousarray(array)) for name, array in records.items()}
        return self._dict(tensors, batch_size=[len(records["reward"])])

    def place_errors(self, errors: Any) -> Any:
        return self._torch.from_numpy(errors)
