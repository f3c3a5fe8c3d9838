"""SAC [Haarnoja2018]: the formulas of the torch learner's sac.py.

The policy's outputs are means and deviations' logarithms before their bounds, ``[2 * size, B]``.
"""

import math
from typing import Any

import numpy as np

from ....sumtree.compiling import kept_njit
from .losses import regress, smaller, smallest_value
from .memory import descend, move
from .perceptron import LOOSE, backward, copy, forward, load
from .product import inside

LOW, HIGH = np.float32(-5), np.float32(2)  # bounds of a deviation's logarithm
HALF_LOG_2PI = np.float32(math.log(2 * math.pi) / 2)
LOG_2 = np.float32(math.log(2))


@inside()
def _log_deviation(output: Any) -> Any:
    return LOW + (HIGH - LOW) * (np.tanh(output) + np.float32(1)) / np.float32(2)


@inside(fastmath=LOOSE)
def _sample(weights: Any, sizes: Any, layers: Any, noise: Any, actions: Any, log_density: Any) -> None:
    """Actions ``[size, B]`` and their log density ``[B]`` of the policy, for standard normal noise ``[B, size]``.

    log(1 - tanh(x)^2) is taken as 2 (log 2 - x - softplus(-2 x)), which does not round to -inf.
    """
    columns, size = len(noise), sizes[-1] // 2
    outputs = forward(weights, sizes, layers, columns)
    log_density[:columns] = 0
    for i in range(size):
        for b in range(columns):
            log_deviation = _log_deviation(outputs[size + i, b])
            raw = outputs[i, b] + np.exp(log_deviation) * noise[b, i]
            actions[i, b] = np.tanh(raw)
            softplus = np.log1p(np.exp(-np.float32(2) * abs(raw))) + (
                np.float32(-2) * raw if raw < 0 else np.float32(0)
            )
            squash = np.float32(2) * (LOG_2 - raw - softplus)
            log_density[b] += -np.float32(0.5) * noise[b, i] * noise[b, i] - log_deviation - HALF_LOG_2PI - squash


@kept_njit(nogil=True, fastmath=LOOSE)
def act(observations: Any, noise: Any, weights: Any, sizes: Any, settings: Any, scratch: Any, actions: Any) -> None:
    """Fill ``actions`` ``[A, size]`` with those sampled by ``noise`` ``[A, size]``, the means where it is 0."""
    size, layers = sizes.policy[-1] // 2, scratch.policy_layers
    load(observations, layers, 0)
    policy, sampled = weights[sizes.critic_stop : sizes.policy_stop], scratch.policy_slopes
    _sample(policy, sizes.policy, layers, noise, sampled, scratch.values[1])
    copy(sampled, size, actions.T)


@inside(fastmath=LOOSE)
def _follow(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any) -> None:
    """scratch.values[0] = min_j Q'_j(s', a') - temperature * log pi(a'|s'), a' sampled from the policy."""
    columns, seen, layers = len(rows.reward), sizes.policy[0], scratch.layers[0]
    values, log_density = scratch.values[0], scratch.values[1]
    load(rows.following, scratch.policy_layers, 0)
    copy(scratch.policy_layers, seen, layers)
    policy = state.weights[sizes.critic_stop : sizes.policy_stop]
    _sample(policy, sizes.policy, scratch.policy_layers, rows.noise[1], layers[seen:], log_density)
    smallest_value(state.targets, sizes.critic, settings.critics, layers, columns, values)
    temperature = np.exp(state.weights[sizes.policy_stop])
    for b in range(columns):
        values[b] -= temperature * log_density[b]


@inside(fastmath=LOOSE, error_model="numpy")
def _smaller_slopes(state: Any, sizes: Any, scratch: Any, columns: int) -> Any:
    """Derive -mean min_j Q_j by the actions, into the actions' rows of ``scratch.layers[1]``; returns it.

    Of equal values each critic has half, as torch's amin shares.
    """
    seen = sizes.policy[0]
    slopes, each, none = scratch.slopes, sizes.critic_stop // 2, state.gradient[:0]
    first_layers, second_layers = scratch.layers[0], scratch.layers[1]
    copy(first_layers, sizes.critic[0], second_layers)
    first = forward(state.weights[:each], sizes.critic, first_layers, columns)[0]
    second = forward(state.weights[each : 2 * each], sizes.critic, second_layers, columns)[0]
    total, share = 0.0, np.float32(-1 / columns)
    for critic in range(2):
        layers, mine, other = first_layers, first, second
        if critic:
            layers, mine, other = second_layers, second, first
        for b in range(columns):
            part = np.float32(0.5) if mine[b] == other[b] else np.float32(mine[b] < other[b])
            slopes[len(slopes) - 1, b] = share * part
        weights = state.weights[critic * each : (critic + 1) * each]
        backward(weights, sizes.critic, layers, slopes, columns, scratch.turned, none, seen)
        for i in range(seen, sizes.critic[0]):
            for b in range(columns):
                second_layers[i, b] = slopes[i, b] + (second_layers[i, b] if critic else np.float32(0))
    for b in range(columns):
        total -= smaller(first[b], second[b])
    return total / columns


@inside(fastmath=LOOSE, error_model="numpy")
def _ascend(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any) -> Any:
    """Derive mean(temperature * log pi(a|s) - min_j Q_j(s, a)) by the policy's weights; returns it.

    With a = tanh(x), x = mean + deviation * noise: d a / d x = 1 - a^2, and d log pi / d x = 2 a.
    """
    columns, seen, size = len(rows.reward), sizes.policy[0], sizes.policy[-1] // 2
    weights, layers = state.weights[sizes.critic_stop : sizes.policy_stop], scratch.policy_layers
    actions, log_density = scratch.layers[0][seen:], scratch.values[1]
    temperature = np.exp(state.weights[sizes.policy_stop])
    load(rows.observation, layers, 0)
    load(rows.observation, scratch.layers[0], 0)
    _sample(weights, sizes.policy, layers, rows.noise[0], actions, log_density)
    total, share = _smaller_slopes(state, sizes, scratch, columns), temperature / np.float32(columns)
    given, slopes, raw = scratch.layers[1][seen:], scratch.policy_slopes, layers[len(layers) - 2 * size :]
    outputs = slopes[len(slopes) - 2 * size :]
    for b in range(columns):
        total += temperature * log_density[b] / columns
    for i in range(size):
        for b in range(columns):
            action, bounded = actions[i, b], np.tanh(raw[size + i, b])
            slope = given[i, b] * (np.float32(1) - action * action) + share * np.float32(2) * action
            by_log = slope * np.exp(_log_deviation(raw[size + i, b])) * rows.noise[0][b, i] - share
            outputs[i, b] = slope
            outputs[size + i, b] = by_log * (HIGH - LOW) / np.float32(2) * (np.float32(1) - bounded * bounded)
    gradient = state.gradient[sizes.critic_stop : sizes.policy_stop]
    backward(weights, sizes.policy, layers, slopes, columns, scratch.turned, gradient, seen)
    return total


@inside(fastmath=LOOSE, error_model="numpy")
def _tune(rows: Any, state: Any, sizes: Any, scratch: Any) -> Any:
    """Derive -mean(log temperature * (log pi(a|s) - size)) by the logarithm; returns it.

    The policy is the one after its own step.
    """
    columns, size, log_density = len(rows.reward), sizes.policy[-1] // 2, scratch.values[1]
    load(rows.observation, scratch.policy_layers, 0)
    weights, sampled = state.weights[sizes.critic_stop : sizes.policy_stop], scratch.policy_slopes
    _sample(weights, sizes.policy, scratch.policy_layers, rows.noise[0], sampled, log_density)
    total = 0.0
    for b in range(columns):
        total += log_density[b] - np.float32(size)
    state.gradient[sizes.policy_stop] = -total / columns
    return -total / columns * state.weights[sizes.policy_stop]


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def step(
    rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any, priorities: Any, losses: Any, counts: Any, tau: Any,
) -> None:  # fmt: skip
    """Set the priorities and take the gradient steps that ``counts`` names: critics, policy, temperature.

    A count of -1 derives that gradient alone; one that is not the critics' sets no priorities.
    """
    if counts[0] or not (counts[1] or counts[2]):
        _follow(rows, state, sizes, settings, scratch)
        losses[0] = regress(rows, state, sizes, settings, scratch, priorities, counts[0] != 0)
        descend(state, 0, sizes.critic_stop, counts[0], settings.rate, settings)
    if counts[1]:
        losses[1] = _ascend(rows, state, sizes, settings, scratch)
        descend(state, sizes.critic_stop, sizes.policy_stop, counts[1], settings.policy_rate, settings)
    if counts[2]:
        losses[2] = _tune(rows, state, sizes, scratch)
        descend(state, sizes.policy_stop, sizes.policy_stop + 1, counts[2], settings.rate, settings)
    move(state.targets, state.weights, tau)
