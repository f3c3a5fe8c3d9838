"""The loss of a TD error, and the regression of critics on what follows."""

from typing import Any

import numpy as np

from .perceptron import LOOSE, backward, forward, load
from .product import inside


@inside()
def loss_of(error: Any, huber: bool) -> Any:
    """(loss, derivative) of a TD error: half its square, or Huber's with its bend at 1."""
    if huber and error > 1:
        return error - np.float32(0.5), np.float32(1)
    if huber and error < -1:
        return -error - np.float32(0.5), np.float32(-1)
    return np.float32(0.5) * error * error, error


@inside()
def smaller(first: Any, second: Any) -> Any:
    """The smaller number, or NaN if one is."""
    return first if first < second or first != first else second  # noqa: PLR0124  # NaN alone differs from itself


@inside()
def larger(first: Any, second: Any) -> Any:
    """The larger number, or NaN if one is."""
    return first if first > second or first != first else second  # noqa: PLR0124  # NaN alone differs from itself


@inside(fastmath=LOOSE)
def smallest_value(weights: Any, sizes: Any, critics: int, layers: Any, columns: int, values: Any) -> None:
    """values[b] = the smallest of the critics' values of the inputs that ``layers`` begin with."""
    each = len(weights) // critics
    for critic in range(critics):
        outputs = forward(weights[critic * each : (critic + 1) * each], sizes, layers, columns)[0]
        for b in range(columns):
            values[b] = smaller(values[b], outputs[b]) if critic else outputs[b]


@inside(fastmath=LOOSE, error_model="numpy")
def regress(rows: Any, state: Any, sizes: Any, settings: Any, scratch: Any, priorities: Any, training: bool) -> Any:
    """Set the priorities, and derive the critics' loss by their weights [Zhang2021, Eqs. 1 and 3]; returns the loss.

    ``scratch.values[0]`` holds the value of what follows each row. A row's priority is the larger of its |TD errors|
    [Fujimoto2020]. Importance weights act in this loss alone. The observations stay in ``scratch.layers[0]``.
    """
    columns, inputs, following, critics = len(rows.reward), sizes.critic[0], scratch.values[0], settings.critics
    layers, slopes, each = scratch.layers[0], scratch.slopes, sizes.critic_stop // critics
    load(rows.observation, layers, 0)
    load(rows.action, layers[inputs - rows.action.shape[1] :], 0)
    total, share = 0.0, np.float32(1 / columns)
    for critic in range(critics):
        weights = state.weights[critic * each : (critic + 1) * each]
        values, slope = forward(weights, sizes.critic, layers, columns)[0], slopes[len(slopes) - 1]
        for b in range(columns):
            rest = settings.gamma * following[b] * np.float32(not rows.terminated[b])
            error = values[b] - (rows.reward[b] + rest)
            loss, derivative = loss_of(error, settings.huber)
            total += rows.importance[b] * loss
            slope[b] = rows.importance[b] * derivative * share
            priorities[b] = larger(abs(error), priorities[b]) if critic else abs(error)
        if not training:
            continue
        gradient = state.gradient[critic * each : (critic + 1) * each]
        backward(weights, sizes.critic, layers, slopes, columns, scratch.turned, gradient, inputs)
    return total / columns
