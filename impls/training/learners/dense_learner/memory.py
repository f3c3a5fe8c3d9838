"""Memory of the kernels (a batch, a learner's vectors, settings, scratch), and the optimizer's step."""

from typing import Any, NamedTuple

import numpy as np

from ....sumtree.compiling import kept_njit
from .perceptron import LOOSE
from .product import inside


class Rows(NamedTuple):
    """A batch: ``[B, inputs]`` of observations, ``[B]`` of the rest, ``[n, B, size]`` of noise.

    ``over``: of A3C's rows in time, whether the next one is of another episode.
    """

    observation: Any
    action: Any
    reward: Any
    following: Any
    terminated: Any
    importance: Any
    over: Any
    noise: Any


class State(NamedTuple):
    """The trained weights, their gradient, its mean and its mean square by Adam, all ``[P]``; the targets ``[T]``.

    ``choosing`` ``[P]`` are the weights by which double DQN chooses, empty where those are the trained ones.
    """

    weights: Any
    gradient: Any
    mean: Any
    square: Any
    targets: Any
    choosing: Any


class Sizes(NamedTuple):
    """Units of each layer of the critic (or of the action values) and of the policy; where the policy's weights end."""

    critic: Any
    policy: Any
    critic_stop: int
    policy_stop: int


class Settings(NamedTuple):
    """Numbers of a workload, as its file has them."""

    gamma: np.float32
    huber: bool
    double: bool
    dueling: bool
    critics: int
    tuned: bool
    entropy: np.float32
    gae_lambda: np.float32
    sgd: bool
    clip: float
    rate: float
    policy_rate: float


class Descent(NamedTuple):
    """The settings that ``descend`` needs, of a learner that has no others."""

    clip: float
    sgd: bool = False


class Scratch(NamedTuple):
    """Memory of a batch size: layers ``[2, units, B]`` of two passes, their slopes ``[units, B]``, the policy's own,
    ``[B, units]`` of the largest layer, and of each row ``[2, B]`` the value of what follows and the log density."""

    layers: Any
    slopes: Any
    policy_layers: Any
    policy_slopes: Any
    turned: Any
    values: Any


def scratch_of(critic: Any, policy: Any, batch: int) -> Scratch:
    """Scratch for ``batch`` columns of networks of these sizes."""
    units, policy_units, widest = int(critic.sum()), int(policy.sum()), int(max(*critic, *policy))
    columns = _spread(batch)
    return Scratch(
        np.zeros((2, units, columns), np.float32),
        np.zeros((units, columns), np.float32),
        np.zeros((policy_units, columns), np.float32),
        np.zeros((policy_units, columns), np.float32),
        np.zeros((batch, _spread(widest)), np.float32),
        np.zeros((2, batch), np.float32),
    )


def _spread(count: int) -> int:
    """Length of a row of ``count`` numbers: an odd number of cache lines, so that a column's lines differ in set."""
    return (-(-count // 16) | 1) * 16


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
