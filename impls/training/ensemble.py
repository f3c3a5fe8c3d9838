"""A probabilistic model of the environment [Zhang2022, 1.2.5.1]: an ensemble of networks that predict Gaussians.

From state and action each network predicts the mean and the logarithm of the deviation of every number of the change of
the state and of the reward, and the logit of the end, scaled as ``world_model`` does. Each is trained by maximum
likelihood on rows of its own: its deviations say how far chance and what it cannot learn spread, and how far the
networks differ says how little the records tell [Janner2019, section 4.1].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sumtree.compiling import kept_njit
from .learners.dense_learner.memory import Descent, descend
from .learners.dense_learner.perceptron import LOOSE, backward, forward, load
from .learners.dense_learner.sac import HALF_LOG_2PI
from .workload import Workload
from .world_model import CLIP, ModelVectors, Prediction, WorldModel

LOW, HIGH = np.float32(-7), np.float32(1)
"""Bounds of a deviation's logarithm, where the root mean square of the change is 1."""
_HALF = np.float32((HIGH - LOW) / 2)


class Ensemble(WorldModel):
    """E = [model] members Gaussian networks; ``vectors`` hold their weights one after the other, ``[E P]``.

    ``loss``: the mean negative log likelihood of the last rows that it was trained on, in units of the changes.
    """

    loss = 0.0

    def __init__(self, workload: Workload, seed: int = 0, vectors: ModelVectors | None = None) -> None:
        self.members = workload.model.members
        super().__init__(workload, seed, vectors)

    def predict(
        self, observations: NDArray[Any], actions: NDArray[Any], rng: np.random.Generator | None = None
    ) -> Prediction:
        """Sample what follows actions ``[B]`` or ``[B, size]``, in each row from the Gaussian of a random member.

        ValueError without an ``rng``.
        """
        if rng is None:
            raise ValueError("an ensemble samples its predictions: give rng, such as numpy.random.default_rng(0)")
        member = rng.integers(self.members, size=len(observations))
        noise = rng.standard_normal((len(observations), self._states + 1), np.float32)
        order = np.argsort(member, kind="stable")
        counts = np.bincount(member, minlength=self.members)
        mean, deviation, logits = self._gaussians(self._inputs(observations, actions)[order], counts)
        changes, ended = np.empty_like(noise), np.empty(len(noise), np.bool_)
        changes[order], ended[order] = (mean + deviation * noise[order]) * self._units(), logits > 0
        return Prediction(self._flat(observations) + changes[:, :-1], changes[:, -1], ended)

    def calibration(self, rows: Mapping[str, NDArray[Any]]) -> tuple[float, float]:
        """Shares of true changes within 1 and 2 deviations of the mean, of records ``[B, ...]`` and by all members.

        Each number of the change of the state, and the reward, counts. Of true Gaussians the shares are 0.683 and
        0.954.
        """
        changes = self._changes(rows) / self._units()
        inputs = np.tile(self._inputs(rows["observation"], rows["action"]), (self.members, 1))
        mean, deviation, _ = self._gaussians(inputs, np.full(self.members, len(changes)))
        distances = np.abs(np.tile(changes, (self.members, 1)) - mean) / deviation
        return float(np.mean(distances <= 1)), float(np.mean(distances <= 2))

    def _count_outputs(self) -> int:
        return 2 * (self._states + 1) + 1

    def _gaussians(self, inputs: Any, counts: Any) -> tuple[NDArray[np.float32], NDArray[np.float32], Any]:
        """Means and deviations ``[B, n + 1]`` in units, and logits ``[B]``, each member's of its count of rows."""
        outputs, last = np.empty((len(inputs), self._sizes[-1]), np.float32), self._states + 1
        scratch = self._scratch_for(max(counts))
        _predict(inputs, np.cumsum(counts), self._state.weights, self._sizes, scratch, outputs)
        deviation = np.exp(LOW + _HALF * (np.tanh(outputs[:, last:-1]) + np.float32(1)))
        return outputs[:, :last], deviation, outputs[:, -1]

    def _descend(self, inputs: Any, targets: Any, ended: Any, count: int) -> Any:
        """Take a gradient step by each member on its part of the rows, which is one in E of them."""
        scratch, settings = self._scratch_for(len(inputs) // self.members), Descent(CLIP)
        given = inputs, targets, ended, self._state, self._sizes, scratch, self.members
        *found, self.loss = _train(*given, count, self._rate, settings)
        return found


@kept_njit(nogil=True, fastmath=LOOSE)
def _predict(inputs: Any, ends: Any, weights: Any, sizes: Any, scratch: Any, outputs: Any) -> None:
    size, start = len(weights) // len(ends), 0
    for member, end in enumerate(ends):
        load(inputs[start:end], scratch.layers[0], 0)
        own = weights[member * size : (member + 1) * size]
        values = forward(own, sizes, scratch.layers[0], end - start)
        for b in range(start, end):
            for i in range(sizes[-1]):
                outputs[b, i] = values[i, b - start]
        start = end


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def _train(
    inputs: Any, targets: Any, ended: Any, state: Any, sizes: Any, scratch: Any, members: int, count: int, rate: float,
    settings: Any,
) -> Any:  # fmt: skip
    """Take each member's step number ``count`` on the negative log likelihood of its rows, the mean over them.

    Returns the sums over all states of their squared errors and of their squared changes, and the mean loss.
    """
    columns, last = len(targets) // members, targets.shape[1]
    layers, slopes, wrong, moved, total = scratch.layers[0], scratch.slopes, 0.0, 0.0, 0.0
    share, after = np.float32(1 / columns), slopes[len(slopes) - sizes[-1] :]
    size = len(state.weights) // members
    for member in range(members):
        first, start, stop = member * columns, member * size, (member + 1) * size
        weights, gradient = state.weights[start:stop], state.gradient[start:stop]
        load(inputs[first : first + columns], layers, 0)
        outputs = forward(weights, sizes, layers, columns)
        for b in range(columns):
            for i in range(last):
                bent = np.tanh(outputs[last + i, b])
                log_deviation = LOW + _HALF * (bent + np.float32(1))
                error, target = outputs[i, b] - targets[first + b, i], targets[first + b, i]
                z = error / np.exp(log_deviation)
                total += z * z / np.float32(2) + log_deviation + HALF_LOG_2PI
                if i < last - 1:  # the last one is the reward
                    wrong += error * error
                    moved += target * target
                after[i, b] = share * z / np.exp(log_deviation)
                after[last + i, b] = share * (np.float32(1) - z * z) * _HALF * (np.float32(1) - bent * bent)
            logit, end = outputs[2 * last, b], np.float32(ended[first + b])
            total += max(logit, np.float32(0)) + np.log1p(np.exp(-abs(logit))) - end * logit
            after[2 * last, b] = share * (1 / (1 + np.exp(-logit)) - end)
        backward(weights, sizes, layers, slopes, columns, scratch.turned, gradient, sizes[0])
        descend(state, start, stop, count, rate, settings)
    return wrong, moved, total / len(targets)


KINDS = {"mlp": WorldModel, "parted": WorldModel, "ensemble": Ensemble}


def make_model(workload: Workload, seed: int = 0) -> WorldModel:
    """Make the model of the environment that [model] asks for."""
    return KINDS[workload.model.kind](workload, seed)
