"""Prioritized replay for stable-baselines3: a replay buffer, and SB3's algorithms that learn from it.

``PrioritizedQRDQN`` is there where sb3-contrib is; asking for it elsewhere is an ImportError.
"""

from contextlib import suppress
from typing import Any

from ..hosts import require

require("stable_baselines3", "2.9", "3")

from .algorithms import (  # once it is there
    PrioritizedAlgorithm,
    PrioritizedDDPG,
    PrioritizedDQN,
    PrioritizedSAC,
    PrioritizedTD3,
)
from .buffer import PrioritizedDictReplayBuffer, PrioritizedReplayBuffer, PrioritizedSamples

__all__ = [
    "PrioritizedAlgorithm",
    "PrioritizedDDPG",
    "PrioritizedDQN",
    "PrioritizedDictReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedSAC",
    "PrioritizedSamples",
    "PrioritizedTD3",
]
with suppress(ImportError):  # whoever imports all of it has what there is
    require("sb3_contrib", "2.9", "3")
    __all__ += ["PrioritizedQRDQN"]


def __getattr__(name: str) -> Any:
    """PrioritizedQRDQN, imported with sb3-contrib when it is asked for."""
    if name != "PrioritizedQRDQN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("sb3_contrib", "2.9", "3")
    from .qrdqn import PrioritizedQRDQN  # noqa: PLC0415

    return PrioritizedQRDQN
