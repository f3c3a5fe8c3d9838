"""DDPG [Lillicrap2016] and TD3 [Fujimoto2018]: the formulas of the torch learner's ddpg.py and td3.py.

They differ in the number of critics, in the noise (none in DDPG) and in how often the policy learns.
"""

from typing import Any

import numpy as np

from ....sumtree.compiling import kept_njit
from .losses import regress, smallest_value
from .memory import descend, move
from .perceptron import LOOSE, backward, copy, forward, load
from .product import inside


@inside(fastmath=LOOSE)
def _aim(weights: Any, sizes: Any, layers: Any, columns: int, actions: Any) -> None:
    """actions[:, b] = tanh of the policy's outputs for the inputs that ``layers`` begin with."""
    outputs = forward(weights, sizes, layers, columns)
    for i in range(sizes[-1]):
        for b in range(columns):
            actions[i, b] = np.tanh(outputs[i, b])


@kept_njit(nogil=True, fastmath=LOOSE)
def act(observations: Any, noise: Any, weights: Any, sizes: Any, settings: Any, scratch: Any, actions: Any) -> None:
    """Fill ``actions`` ``[A, size]`` with the policy's for observations ``[A, inputs]``."""
    columns, layers = len(observations), scratch.policy_layers
    load(observations, layers, 0)
    _aim(weights[sizes.critic_stop : sizes.policy_stop], sizes.policy, layers, columns, scratch.policy_slopes)
    copy(scratch.policy_slopes, sizes.policy[-1], actions.T)


@inside(fastmath=LOOSE)
def _follow(rows: Any, targets: Any, sizes: Any, settings: Any, scratch: Any) -> None:
    """scratch.values[0] = the smallest target value of the next state and the target policy's action there."""
    columns, seen, layers = len(rows.reward), sizes.policy[0], scratch.layers[0]
    load(rows.following, scratch.policy_layers, 0)
    copy(scratch.policy_layers, seen, layers)
    actions = layers[seen:]
    _aim(targets[sizes.critic_stop : sizes.policy_stop], sizes.policy, scratch.policy_layers, columns, actions)
    for noise in rows.noise:
        for b in range(columns):
            for i in range(sizes.policy[-1]):
                moved = actions[i, b] + noise[b, i]
                actions[i, b] = np.float32(1) if moved > 1 else np.float32(-1) if moved < -1 else moved
    critics = targets[: sizes.critic_stop]
    smallest_value(critics, sizes.critic, settings.critics, layers, columns, scratch.values[0])


@inside(fastmath=LOOSE, error_model="numpy")
def _ascend(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any) -> Any:
    """Derive -mean Q(s, policy(s)) by the policy's weights, Q the first critic; returns it."""
    columns, seen = len(rows.reward), sizes.policy[0]
    layers, slopes, policy_slopes = scratch.layers[0], scratch.slopes, scratch.policy_slopes
    weights = state.weights[sizes.critic_stop : sizes.policy_stop]
    critic, none = state.weights[: sizes.critic_stop // settings.critics], state.gradient[:0]
    load(rows.observation, scratch.policy_layers, 0)
    load(rows.observation, layers, 0)
    actions, total = layers[seen:], 0.0
    _aim(weights, sizes.policy, scratch.policy_layers, columns, actions)
    values = forward(critic, sizes.critic, layers, columns)[0]
    for b in range(columns):
        total -= values[b]
    slopes[len(slopes) - 1, :columns] = np.float32(-1 / columns)
    backward(critic, sizes.critic, layers, slopes, columns, scratch.turned, none, seen)
    outputs = policy_slopes[len(policy_slopes) - sizes.policy[-1] :]
    for i in range(sizes.policy[-1]):
        for b in range(columns):
            outputs[i, b] = slopes[seen + i, b] * (np.float32(1) - actions[i, b] * actions[i, b])
    gradient = state.gradient[sizes.critic_stop : sizes.policy_stop]
    backward(weights, sizes.policy, scratch.policy_layers, policy_slopes, columns, scratch.turned, gradient, seen)
    return total / columns


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def step(
    rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any, priorities: Any, losses: Any, counts: Any, tau: Any,
) -> None:  # fmt: skip
    """Set the priorities and take the gradient steps that ``counts`` names: of the critics, of the policy.

    A count of -1 derives that gradient alone; the policy's alone sets no priorities.
    """
    if counts[0] or not counts[1]:
        _follow(rows, state.targets, sizes, settings, scratch)
        losses[0] = regress(rows, state, sizes, settings, scratch, priorities, counts[0] != 0)
        descend(state, 0, sizes.critic_stop, counts[0], settings.rate, settings)
    if counts[1]:
        losses[1] = _ascend(rows, state, sizes, settings, scratch)
        descend(state, sizes.critic_stop, sizes.policy_stop, counts[1], settings.policy_rate, settings)
    move(state.targets, state.weights, tau)
