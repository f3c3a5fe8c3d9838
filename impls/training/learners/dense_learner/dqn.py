"""DQN [Mnih2015], double [vanHasselt2016] and dueling [Wang2016]: the formulas of the torch learner's dqn.py."""

from typing import Any

import numpy as np

from ....sumtree.compiling import kept_njit
from .losses import loss_of
from .memory import descend, move
from .perceptron import LOOSE, backward, forward, load
from .product import inside


@inside(fastmath=LOOSE)
def _values(outputs: Any, actions: int, dueling: bool, columns: int) -> Any:
    """Action values ``[actions, columns]``: the outputs, or V + advantage - mean advantage [Wang2016, Eq. 9]."""
    if not dueling:
        return outputs
    for b in range(columns):
        mean = np.float32(0)
        for action in range(actions):
            mean += outputs[1 + action, b]
        mean /= np.float32(actions)
        for action in range(actions):
            outputs[1 + action, b] += outputs[0, b] - mean
    return outputs[1:]


@inside()
def best_of(values: Any, actions: int, b: int) -> int:
    """The action of the largest value in a column, the first of equal ones; NaN counts as the largest."""
    best = 0
    for action in range(1, actions):
        value, most = values[action, b], values[best, b]
        if value > most or (value != value and most == most):  # noqa: PLR0124  # NaN alone differs from itself
            best = action
    return best


@kept_njit(nogil=True, fastmath=LOOSE)
def act(observations: Any, noise: Any, weights: Any, sizes: Any, settings: Any, scratch: Any, actions: Any) -> None:
    """Fill ``actions`` ``[A]`` with those of the largest value for observations ``[A, inputs]``."""
    columns, count = len(observations), sizes.critic[-1] - settings.dueling
    load(observations, scratch.layers[0], 0)
    values = _values(forward(weights, sizes.critic, scratch.layers[0], columns), count, settings.dueling, columns)
    for b in range(columns):
        actions[b] = best_of(values, count, b)


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def step(
    rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any, priorities: Any, losses: Any, counts: Any, tau: Any,
) -> None:  # fmt: skip
    """Set the priorities and, if ``counts`` says so, take a gradient step; both networks see a batch in one pass.

    ``scratch.values[0]`` are the next actions, where other weights than the trained ones choose them.

    A count of -1 derives the gradient alone.
    """
    columns, actions = len(rows.reward), sizes.critic[-1] - settings.dueling
    layers, target_layers, slopes = scratch.layers[0], scratch.layers[1], scratch.slopes
    load(rows.observation, layers, 0)
    load(rows.following, target_layers, 0)
    has_chosen = settings.double and len(state.choosing) > 0
    if has_chosen:  # in the scratch of slopes, which nothing else needs yet
        load(rows.following, slopes, 0)
        chosen = _values(forward(state.choosing, sizes.critic, slopes, columns), actions, settings.dueling, columns)
        for b in range(columns):
            scratch.values[0, b] = np.float32(best_of(chosen, actions, b))
    is_one_pass = settings.double and not has_chosen
    both = 2 * columns if is_one_pass else columns
    if is_one_pass:
        load(rows.following, layers, columns)
    values = _values(forward(state.weights, sizes.critic, layers, both), actions, settings.dueling, both)
    targets = forward(state.targets, sizes.critic, target_layers, columns)
    next_values = _values(targets, actions, settings.dueling, columns)
    total, share, outputs = 0.0, np.float32(1 / columns), slopes[len(slopes) - sizes.critic[-1] :]
    outputs[:, :columns] = 0
    for b in range(columns):
        if not 0 <= rows.action[b] < actions:
            raise IndexError("an action of the batch is none of the choices")
        if has_chosen:
            best = int(scratch.values[0, b])
        else:
            best = best_of(values, actions, columns + b) if is_one_pass else best_of(next_values, actions, b)
        rest = settings.gamma * next_values[best, b] * np.float32(not rows.terminated[b])
        error = values[rows.action[b], b] - (rows.reward[b] + rest)
        loss, derivative = loss_of(error, settings.huber)
        total += rows.importance[b] * loss
        priorities[b] = abs(error)
        slope = rows.importance[b] * derivative * share
        if settings.dueling:
            outputs[0, b] = slope
            for action in range(actions):
                outputs[1 + action, b] = -slope / np.float32(actions)
        outputs[settings.dueling + rows.action[b], b] += slope
    if counts[0] == 0:
        return
    losses[0] = total / columns
    inputs = sizes.critic[0]
    backward(state.weights, sizes.critic, layers, slopes, columns, scratch.turned, state.gradient, inputs)
    descend(state, 0, sizes.critic_stop, counts[0], settings.rate, settings)
    move(state.targets, state.weights, tau)
