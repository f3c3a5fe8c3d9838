"""Exploration around a policy's own actions, by the algorithm."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .workload import Workload


def explored(workload: Workload, actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
    """Actions ``[A, ..]`` around ``actions``: with chance ``explore`` a random choice (dqn), else Gaussian noise of
    deviation ``explore`` on numbers, clipped to [-1, 1]."""
    if workload.algorithm == "dqn":
        random = rng.integers(workload.action.choices, size=actions.shape)
        return np.where(rng.random(actions.shape) < explore, random, actions)
    noise = rng.standard_normal(actions.shape) * explore
    return np.clip(actions + noise, -1, 1).astype(np.float32)
