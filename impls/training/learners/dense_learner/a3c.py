"""A3C [Mnih2016], its advantages by [Schulman2016]: the formulas of the torch learner's a3c.py.

The critic is the value of a state, the policy's outputs are logits ``[actions, B]``. Rows follow one another in time.
"""

from typing import Any

import numpy as np

from ....sumtree.compiling import kept_njit
from .dqn import best_of
from .losses import larger, loss_of
from .memory import descend
from .perceptron import LOOSE, backward, forward, load
from .product import inside


@kept_njit(nogil=True, fastmath=LOOSE)
def act(observations: Any, noise: Any, weights: Any, sizes: Any, settings: Any, scratch: Any, actions: Any) -> None:
    """Fill ``actions`` ``[A]`` with those of the largest logit + noise ``[A, n]``, which samples if it is Gumbel's."""
    columns, count, layers = len(observations), sizes.policy[-1], scratch.policy_layers
    load(observations, layers, 0)
    logits = forward(weights[sizes.critic_stop : sizes.policy_stop], sizes.policy, layers, columns)
    for b in range(columns):
        for i in range(count):
            logits[i, b] += noise[b, i]
        actions[b] = best_of(logits, count, b)


@inside(fastmath=LOOSE, error_model="numpy")
def _judge(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any) -> None:
    """scratch.values[0] = the advantages; ``scratch.layers[0]`` keeps the critic's pass over the observations."""
    columns, layers, advantages = len(rows.reward), scratch.layers[0], scratch.values[0]
    load(rows.observation, layers, 0)
    load(rows.following, layers, columns)
    values, later = forward(state.weights[: sizes.critic_stop], sizes.critic, layers, 2 * columns)[0], np.float32(0)
    for b in range(columns - 1, -1, -1):
        if rows.over[b]:
            later = np.float32(0)
        rest = settings.gamma * values[columns + b] * np.float32(not rows.terminated[b])
        later = rows.reward[b] + rest - values[b] + settings.gamma * settings.gae_lambda * later
        advantages[b] = later


@inside(fastmath=LOOSE, error_model="numpy")
def _improve(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any) -> Any:
    """Derive -mean(log pi(a|s) * advantage + entropy's weight * H) by the policy's weights; returns it.

    With p the softmax of the logits z: d log p_a / d z_i = (i is a) - p_i, and d H / d z_i = -p_i (log p_i + H).
    """
    columns, count, layers = len(rows.reward), sizes.policy[-1], scratch.policy_layers
    weights = state.weights[sizes.critic_stop : sizes.policy_stop]
    slopes, advantages = scratch.policy_slopes, scratch.values[0]
    load(rows.observation, layers, 0)
    logits, outputs = forward(weights, sizes.policy, layers, columns), slopes[len(slopes) - count :]
    total, share = 0.0, np.float32(1 / columns)
    for b in range(columns):
        if not 0 <= rows.action[b] < count:
            raise IndexError("an action of the batch is none of the choices")
        most, mass, entropy = logits[0, b], np.float32(0), np.float32(0)
        for i in range(1, count):
            most = larger(most, logits[i, b])
        for i in range(count):
            mass += np.exp(logits[i, b] - most)
        shift = most + np.log(mass)
        for i in range(count):
            logits[i, b] -= shift
            entropy -= np.exp(logits[i, b]) * logits[i, b]
        total -= logits[rows.action[b], b] * advantages[b] + settings.entropy * entropy
        for i in range(count):
            chance = np.exp(logits[i, b])
            slope = advantages[b] * (chance - np.float32(i == rows.action[b]))
            outputs[i, b] = share * (slope + settings.entropy * chance * (logits[i, b] + entropy))
    gradient = state.gradient[sizes.critic_stop : sizes.policy_stop]
    backward(weights, sizes.policy, layers, slopes, columns, scratch.turned, gradient, sizes.policy[0])
    return total / columns


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def step(
    rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any, priorities: Any, losses: Any, counts: Any, tau: Any,
) -> None:  # fmt: skip
    """Set the priorities and take the gradient steps that ``counts`` names: of the critic, of the policy.

    The policy goes first, so that both learn from advantages by the critic as it was. A count of -1 derives that
    gradient alone.
    """
    columns, slope, total = len(rows.reward), scratch.slopes[len(scratch.slopes) - 1], 0.0
    _judge(rows, state, sizes, settings, scratch)
    if counts[1]:
        losses[1] = _improve(rows, state, sizes, settings, scratch)
        descend(state, sizes.critic_stop, sizes.policy_stop, counts[1], settings.policy_rate, settings)
    for b in range(columns):  # V - return = -advantage, for the return is a constant
        loss, derivative = loss_of(-scratch.values[0, b], settings.huber)
        priorities[b] = abs(scratch.values[0, b])
        total += rows.importance[b] * loss
        slope[b] = rows.importance[b] * derivative * np.float32(1 / columns)
    if counts[0]:
        losses[0], layers, slopes = total / columns, scratch.layers[0], scratch.slopes
        weights, gradient = state.weights[: sizes.critic_stop], state.gradient[: sizes.critic_stop]
        backward(weights, sizes.critic, layers, slopes, columns, scratch.turned, gradient, sizes.critic[0])
        descend(state, 0, sizes.critic_stop, counts[0], settings.rate, settings)
