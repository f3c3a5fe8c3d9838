"""What the kernels take: a batch, the vectors that a learner keeps, its settings, and scratch."""

from typing import Any, NamedTuple

import numpy as np


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
