"""A model of the environment [StoneSachdev, IV-E]: from state and action to the next state, the reward and the end.

One perceptron, whose inputs are the state and the action (of choices one-hot), and whose outputs are the change of the
state, the reward and the logit of the end. States are in standard deviations from their mean, changes and rewards in
units of their own root mean square, which are learned meanwhile. All of its numbers lie in flat vectors, so processes
that are given the same ones train it together.

[model] kind "parted" has the layers as printed: an input layer of the state and one of the action, of hidden[0] units
together, then the hidden layers, then three output layers (next state, reward, end). Two input layers are one whose
weights from the action to the state's units, and the reverse, are 0 and have no gradient; three output layers on the
same units are one. The printed text does not say how many units there are, nor the loss. Here every layer but the last
ends in ReLU; the loss is half the squared errors, and the logistic loss of the end, with equal weights; the first
output is the change of the state, which is small compared with the state, in its place, in the units above.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sumtree.compiling import kept_njit
from .learners.dense_learner.memory import Descent, Scratch, State, descend, scratch_of
from .learners.dense_learner.perceptron import LOOSE, backward, forward, initial, load
from .workload import Workload

_INITIAL = 11  # sets these random numbers apart from the other uses of a seed
_SHARE = 1e-3  # of a batch in the means and mean squares, at least; after 1 / share batches a model may be judged
_LEAST_UNIT = 1e-15  # of what has never changed
_FARTHEST = 30.0  # standard deviations that a state is told to be from its mean, such as one that had never changed
CLIP = 10.0
"""Norm of a gradient, which the first change of what had never changed would exceed."""


class ModelVectors(NamedTuple):
    """All that a model learns, float32: weights ``[P]``, Adam's mean and mean square ``[P]``, ``scales``, ``inputs``.

    ``scales [n + 2]`` are the number of gradient steps, and the mean squares of the changes and of the reward;
    ``inputs [2 n + 1]`` the means of the states, their mean squared deviations, and the mean of the latest errors.
    """

    weights: NDArray[np.float32]
    mean: NDArray[np.float32]
    square: NDArray[np.float32]
    scales: NDArray[np.float32]
    inputs: NDArray[np.float32]


class Prediction(NamedTuple):
    """States ``[B, n]`` that follow, rewards ``[B]``, and whether the episode ends ``[B]``."""

    following: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]


class WorldModel:
    """The model of a workload's [model]; ``vectors`` are the memory that it learns in, by default its own.

    Several models, in any processes, may learn in the same memory without a lock (HogWild).
    """

    members = 1
    """Networks, each of which learns from rows of its own."""

    def __init__(self, workload: Workload, seed: int = 0, vectors: ModelVectors | None = None) -> None:
        self._workload, self._states = workload, math.prod(workload.observation.stacked)
        hidden, is_parted = workload.model.hidden, workload.model.kind == "parted"
        sizes = (self._states + workload.action_size, *hidden[:is_parted], *hidden, self._count_outputs())
        self._mask = _mask_of(self._states, sizes[0], hidden[0] * is_parted)
        if vectors is None:
            vectors = _initial(sizes, seed, self._states, self.members)
            vectors.weights[: len(self._mask)] *= self._mask
        self.vectors = vectors
        weights, mean, square, *_ = self.vectors
        self._centers, self._spreads = self.vectors.inputs[:-1].reshape(2, self._states)
        self._state = State(weights, np.zeros_like(weights), mean, square, weights[:0], weights[:0])
        self._sizes, self._rate = np.array(sizes), workload.model.learning_rate
        self._scratch: Scratch | None = None

    def predict(
        self, observations: NDArray[Any], actions: NDArray[Any], rng: np.random.Generator | None = None
    ) -> Prediction:
        """Predict what follows actions ``[B]`` or ``[B, size]``; ``rng`` is for models that sample."""
        inputs = self._inputs(observations, actions)
        outputs = np.empty((len(inputs), self._states + 2), np.float32)
        _predict(inputs, self._state.weights, self._sizes, self._scratch_for(len(inputs)), outputs)
        changes = outputs[:, :-1] * self._units()
        return Prediction(self._flat(observations) + changes[:, :-1], changes[:, -1], outputs[:, -1] > 0)

    def train(self, rows: Mapping[str, NDArray[Any]]) -> float:
        """Take a gradient step on records ``[B, ...]``; returns the error of the next state before it.

        That is its root mean square in units of the root mean square of the true change, each number of the state in
        units of its own: 1 is as bad as to predict no change.
        """
        seen, changes, scales = self._flat(rows["observation"]), self._changes(rows), self.vectors.scales
        scales[0] += 1
        share = max(1 / scales[0], np.float32(_SHARE))
        scales[1:] += (np.mean(changes * changes, 0) - scales[1:]) * share
        self._centers += (np.mean(seen, 0, np.float64) - self._centers) * share
        self._spreads += (np.mean((seen - self._centers) ** 2, 0) - self._spreads) * share
        inputs = self._inputs(seen, rows["action"])
        wrong, moved = self._descend(
            inputs, changes / self._units(), np.ascontiguousarray(rows["terminated"], np.bool_), int(scales[0])
        )
        error, mean = math.sqrt(wrong / moved) if moved else 0.0, self.vectors.inputs[-1:]
        mean += (error - mean) * share
        return error

    def scaled(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """States ``[B, n]`` in standard deviations from their mean."""
        units = np.maximum(np.sqrt(self._spreads), np.float32(_LEAST_UNIT))
        return np.clip((self._flat(observations) - self._centers) / units, -_FARTHEST, _FARTHEST)

    def complaint(self) -> str:
        """A sentence where predictions have lately been worse than to predict no change, "" where they have not."""
        error = self.vectors.inputs[-1]
        if self.vectors.scales[0] < 1 / _SHARE or error <= 1:
            return ""
        return (
            f"the model of the environment is worse than to predict no change (its error is {error:.2g}, that of no "
            "change 1), so what is learned from it may mislead; give [model] more hidden units or another learning_rate"
        )

    def state_dict(self) -> dict[str, NDArray[np.float32]]:
        """All that is learned, as copies."""
        return {name: each.copy() for name, each in self.vectors._asdict().items()}

    def load_state_dict(self, state: Mapping[str, NDArray[np.float32]]) -> None:
        """Take the state of a model of the same workload."""
        for name, each in self.vectors._asdict().items():
            each[:] = state.get(name, each)  # an older state has no ``inputs``, and states as they were

    def _count_outputs(self) -> int:
        return self._states + 2

    def _descend(self, inputs: Any, targets: Any, ended: Any, count: int) -> Any:
        """Take gradient step number ``count``; returns the sums of squared errors and of squared changes of states."""
        scratch, settings = self._scratch_for(len(inputs)), Descent(CLIP)
        given = inputs, targets, ended, self._state, self._sizes, scratch
        return _train(*given, count, self._rate, settings, self._mask)

    def _inputs(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.float32]:
        inputs = np.zeros((len(observations), self._sizes[0]), np.float32)
        inputs[:, : self._states] = self.scaled(observations)
        if self._workload.has_choices:
            inputs[np.arange(len(inputs)), self._states + np.reshape(actions, len(inputs))] = 1
        else:
            inputs[:, self._states :] = actions
        return inputs

    def _changes(self, rows: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Changes of the state and rewards ``[B, n + 1]``."""
        seen, following = self._flat(rows["observation"]), self._flat(rows["next_observation"])
        return np.column_stack((following - seen, rows["reward"])).astype(np.float32)

    def _flat(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(observations, np.float32).reshape(len(observations), self._states)

    def _units(self) -> NDArray[np.float32]:
        """Root mean squares ``[n + 1]`` of the changes and of the reward."""
        units: NDArray[np.float32] = np.maximum(np.sqrt(self.vectors.scales[1:]), np.float32(_LEAST_UNIT))
        return units

    def _scratch_for(self, rows: int) -> Scratch:
        if self._scratch is None or self._scratch.values.shape[1] < rows:
            self._scratch = scratch_of(self._sizes, self._sizes[:0], rows)
        return self._scratch


def _initial(sizes: tuple[int, ...], seed: int, states: int, members: int) -> ModelVectors:
    """Weights of each member uniform in +-1/sqrt(inputs of the layer), nothing learned."""
    rng = np.random.default_rng([seed, _INITIAL])
    weights = np.concatenate([initial(sizes, rng) for _ in range(members)])
    inputs = np.repeat(np.array([0, 1, 0], np.float32), (states, states, 1))
    mean, square, scales = (np.zeros(count, np.float32) for count in (len(weights), len(weights), states + 2))
    return ModelVectors(weights, mean, square, scales, inputs)


def _mask_of(states: int, inputs: int, units: int) -> NDArray[np.float32]:
    """Factors ``[units * inputs]``, 1 or 0, of the first weights: half of the units see the state, half the action."""
    sees_state, is_state = np.arange(units) < (units + 1) // 2, np.arange(inputs) < states
    mask: NDArray[np.float32] = (sees_state[:, None] == is_state).astype(np.float32).ravel()
    return mask


@kept_njit(nogil=True, fastmath=LOOSE)
def _predict(inputs: Any, weights: Any, sizes: Any, scratch: Any, outputs: Any) -> None:
    load(inputs, scratch.layers[0], 0)
    values = forward(weights, sizes, scratch.layers[0], len(inputs))
    for b in range(len(inputs)):
        for i in range(sizes[-1]):
            outputs[b, i] = values[i, b]


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def _train(
    inputs: Any, targets: Any, ended: Any, state: Any, sizes: Any, scratch: Any, count: int, rate: float, settings: Any,
    mask: Any,
) -> Any:  # fmt: skip
    """Take Adam's step number ``count`` on half the squared errors and the logistic loss, the mean over rows.

    The gradient of the first weights is multiplied by the ``mask``, so that Adam leaves at 0 what is 0.
    Returns the sums over all states of their squared errors, and of their squared changes.
    """
    columns, last = targets.shape
    layers, slopes, wrong, moved = scratch.layers[0], scratch.slopes, 0.0, 0.0
    load(inputs, layers, 0)
    outputs = forward(state.weights, sizes, layers, columns)
    share, after = np.float32(1 / columns), slopes[len(slopes) - sizes[-1] :]
    for b in range(columns):
        for i in range(last):
            error, target = outputs[i, b] - targets[b, i], targets[b, i]
            after[i, b] = share * error
            if i < last - 1:  # the last one is the reward
                wrong += error * error
                moved += target * target
        after[last, b] = share * (1 / (1 + np.exp(-outputs[last, b])) - np.float32(ended[b]))
    backward(state.weights, sizes, layers, slopes, columns, scratch.turned, state.gradient, sizes[0])
    for i in range(len(mask)):
        state.gradient[i] *= mask[i]
    descend(state, 0, len(state.weights), count, rate, settings)
    return wrong, moved
