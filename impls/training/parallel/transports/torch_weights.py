"""Weights by a tensor that torch shares between processes, as its own examples of HogWild do.

Nothing keeps an actor from reading while the learner writes: it may act by weights of which some are newer.
"""

import numpy as np
import torch
import torch.multiprocessing  # teaches pickle to share tensors
from numpy.typing import NDArray

from ..route import Route


class TorchWeights(Route):
    """A shared tensor ``[P]``, and its version in another."""

    def __init__(self, count: int) -> None:
        self._weights = torch.zeros(count).share_memory_()  # type: ignore[no-untyped-call]
        self._version = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Copy weights ``[P]`` into the tensor."""
        self._weights.copy_(torch.from_numpy(weights))
        self._version.fill_(version)

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the tensor to ``target [P]`` unless its version is ``known``; returns the version."""
        version = int(self._version)
        if version != known:
            target[:] = self._weights.numpy()
        return version
