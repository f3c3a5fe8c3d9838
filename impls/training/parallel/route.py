"""How weights come from a learner to actors where it is not by the board's own vector: kinds are in ``transports/``."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Fetch = Callable[[NDArray[np.float32], int], int]
"""Takes an array ``[P]`` to fill and the version that it has; returns the version then, as ``Board.fetch``."""


class Route(ABC):
    """A transport of weights other than the board's own vector, picklable while a child is started."""

    @abstractmethod
    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Hand weights ``[P]`` out as those of a version; one process does."""

    @abstractmethod
    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the newest weights to ``target [P]`` unless their version is ``known``; returns their version."""

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Let go of what the system keeps for it; in the parent, after the children have ended."""
