"""What follows a gradient: clipping, Adam or plain descent, and the targets' move, as torch does them."""

from typing import Any

import numpy as np

from ....sumtree.compiling import kept_njit
from .perceptron import LOOSE
from .product import inside


@inside(fastmath=LOOSE, error_model="numpy")
def descend(state: Any, start: int, stop: int, count: int, rate: float, settings: Any) -> None:
    """Clip a network's gradient to the norm ``settings.clip`` (0: leave it), and take the step number ``count``.

    The network's weights are those from ``start`` to ``stop``. A count below 1 leaves them.
    """
    if count < 1:
        return
    weights, gradient = state.weights[start:stop], state.gradient[start:stop]
    mean, square = state.mean[start:stop], state.square[start:stop]
    scale = np.float32(1)
    if settings.clip > 0:
        total = np.float32(0)
        for i in range(len(gradient)):
            total += gradient[i] * gradient[i]
        scale = np.float32(settings.clip) / (np.sqrt(total) + np.float32(1e-6))
        scale = np.float32(1) if scale > 1 else scale
    if settings.sgd:
        for i in range(len(weights)):
            weights[i] -= np.float32(rate) * (gradient[i] * scale)
        return
    step = np.float32(rate / (1 - 0.9**count))
    root = np.float32(np.sqrt(1 - 0.999**count))
    old, new = np.float32(0.999), np.float32(1 - 0.999)
    for i in range(len(weights)):
        slope = gradient[i] * scale
        mean[i] += np.float32(1 - 0.9) * (slope - mean[i])
        square[i] = old * square[i] + new * slope * slope
        weights[i] -= step * mean[i] / (np.sqrt(square[i]) / root + np.float32(1e-8))


@inside(fastmath=LOOSE)
def move(targets: Any, weights: Any, tau: float) -> None:
    """targets += tau * (weights - targets) over the targets' length; a tau of 1 copies, and of 0 does nothing."""
    if tau == 1:
        for i in range(len(targets)):  # see ``copy``
            targets[i] = weights[i]
    elif tau > 0:
        share = np.float32(tau)
        for i in range(len(targets)):
            targets[i] += share * (weights[i] - targets[i])


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def update(state: Any, start: int, stop: int, count: int, rate: float, settings: Any, tau: float) -> None:
    """Take the optimizer's step alone, or move the targets alone, where other learners share the gradient."""
    descend(state, start, stop, count, rate, settings)
    move(state.targets, state.weights, tau)
