"""Maximum entropy model rollouts [Zhang2022, section 3.2, Alg. 2]: SAC on records that a model makes.

The model of the environment learns from real records, SAC from the model's. In an environment step M real states are
sampled by their priorities, the policy takes an action in each, the model says what follows, and the M records become a
segment with their importance weights. Then SAC takes G gradient steps, each on a batch of one segment. A priority says
how unlikely the state's last action is by the *density*, a policy that is fitted to each segment: thus the model's
records spread over states and actions.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Layout, SegmentedReplay
from ...sumtree.compiling import kept_njit
from ..actor import Inserted
from ..learners.dense_learner.memory import Descent, Scratch, State, descend, scratch_of
from ..learners.dense_learner.perceptron import LOOSE, backward, forward, initial, load
from ..learners.dense_learner.sac import HALF_LOG_2PI, HIGH
from ..model_loop import ModelLoop
from ..workload import Workload

LOW = np.float32(-3)
"""Bound of a deviation's logarithm, above SAC's: a density must not collapse onto the few actions of one segment."""
_HALF = np.float32((HIGH - LOW) / 2)
_INITIAL = 13  # sets these random numbers apart from the other uses of a seed


class Density:
    """The distribution of actions in a state that the model's records have: a diagonal Gaussian over actions as stored.

    A perceptron of [model]'s hidden layers and learning rate gives its means and its deviations' logarithms, from
    states that are ``scaled``. ``state`` are the weights, their last gradient, and Adam's moments.
    """

    def __init__(self, workload: Workload, seed: int = 0, scaled: Any = np.asarray) -> None:
        self._scaled = scaled
        sizes = (math.prod(workload.observation.shape), *workload.model.hidden, 2 * workload.action_size)
        weights = initial(sizes, np.random.default_rng([seed, _INITIAL]))
        gradient, mean, square = (np.zeros_like(weights) for _ in range(3))
        self.state = State(weights, gradient, mean, square, weights[:0], weights[:0])
        self.steps = 0
        self._sizes, self._rate = np.array(sizes), workload.model.learning_rate
        self._scratch: Scratch | None = None

    def priorities(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.float32]:
        """Sum over the numbers of an action of z^2 / 2, with z = (a - mean) / deviation, at least 0: ``[n]``.

        That is Eq. 3.7, -log(sqrt(2 pi) f(a) deviation), of a Gaussian f: so computed it holds where f underflows. For
        actions of several numbers Eq. 3.7 as printed has one sqrt(2 pi), and does not say which deviation; here each
        number has its own of both.
        """
        return self._run(observations, actions, 0)[1]

    def fit(self, observations: NDArray[Any], actions: NDArray[Any], epochs: int) -> float:
        """Take a step of maximum likelihood on all n actions in each epoch; returns their mean loss before the first.

        The loss is the negative logarithm of the density.
        """
        loss, _ = self._run(observations, actions, epochs)
        self.steps += epochs
        return loss

    def _run(self, observations: NDArray[Any], actions: NDArray[Any], epochs: int) -> tuple[float, NDArray[np.float32]]:
        count = len(observations)
        if self._scratch is None or self._scratch.values.shape[1] < count:
            self._scratch = scratch_of(self._sizes, self._sizes[:0], count)
        seen = np.ascontiguousarray(self._scaled(observations), np.float32).reshape(count, self._sizes[0])
        taken, priorities = np.ascontiguousarray(actions, np.float32), np.empty(count, np.float32)
        plain, sizes = Descent(clip=0.0), self._sizes
        loss = _fit(seen, taken, self.state, sizes, self._scratch, self.steps, epochs, self._rate, plain, priorities)
        return loss, priorities

    def state_dict(self) -> dict[str, Any]:
        """All that is learned, as copies."""
        weights, _, mean, square, *_ = self.state
        return {"weights": weights.copy(), "mean": mean.copy(), "square": square.copy(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a density of the same workload."""
        for name in ("weights", "mean", "square"):
            getattr(self.state, name)[:] = state[name]
        self.steps = int(state["steps"])


@kept_njit(nogil=True, fastmath=LOOSE, error_model="numpy")
def _fit(
    observations: Any, actions: Any, state: Any, sizes: Any, scratch: Any, steps: int, epochs: int, rate: float,
    settings: Any, priorities: Any,
) -> Any:  # fmt: skip
    """Take Adam's steps after the first ``steps``; returns the loss before them, ``priorities`` are those after."""
    columns, size = actions.shape
    layers, slopes, first = scratch.layers[0], scratch.slopes, 0.0
    load(observations, layers, 0)
    share, after = np.float32(1 / columns), slopes[len(slopes) - 2 * size :]
    for epoch in range(epochs + 1):
        outputs, loss = forward(state.weights, sizes, layers, columns), 0.0
        priorities[:] = 0
        for i in range(size):
            for b in range(columns):
                bent = np.tanh(outputs[size + i, b])
                log_deviation = LOW + _HALF * (bent + np.float32(1))
                deviation = np.exp(log_deviation)
                z = (actions[b, i] - outputs[i, b]) / deviation
                priorities[b] += z * z / np.float32(2)
                loss += z * z / np.float32(2) + log_deviation + HALF_LOG_2PI
                after[i, b] = -share * z / deviation
                after[size + i, b] = share * (np.float32(1) - z * z) * _HALF * (np.float32(1) - bent * bent)
        first = loss / columns if epoch == 0 else first
        if epoch < epochs:
            backward(state.weights, sizes, layers, slopes, columns, scratch.turned, state.gradient, sizes[0])
            descend(state, 0, len(state.weights), steps + epoch + 1, rate, settings)
    return first


class Loop(ModelLoop):
    """The loop whose rollouts begin where the density says, a step each, and are kept in segments."""

    def __init__(self, workload: Workload, **options: Any) -> None:
        super().__init__(workload, **options)
        self.density = Density(workload, self.seed, self.model.scaled)

    @property
    def rollouts(self) -> int:
        """Transitions that the model has made."""
        return self.segments.written

    def _allocate(self, rows: int, layout: Layout) -> None:
        self.segments = SegmentedReplay(self.workload.model.segments, rows, layout)

    def _insert(self, inserted: Inserted) -> None:
        """Store records with the priorities of their own actions [Zhang2022, Alg. 2, line 8]."""
        records = inserted.records
        errors = self.density.priorities(records["observation"], records["action"])
        super()._insert(inserted._replace(errors=errors))

    def _roll_out(self) -> dict[str, float]:
        """Make a segment of what follows actions of the policy in M states; returns the density's loss on them."""
        settings = self.workload.model
        drawn = self.buffer.sample(settings.rollouts, self.beta(), self._rng)
        rows = self._take_step(drawn.rows["observation"])
        # float32's smallest stands for a weight that rounded to 0
        self.segments.insert(rows, np.maximum(drawn.weights, np.finfo(np.float32).tiny))
        states, actions = rows["observation"], rows["action"]
        loss = self.density.fit(states, actions, settings.epochs)
        self.buffer.update_priorities(drawn.sequence, self.density.priorities(states, actions))
        return {"density": loss}

    def _sample_made(self, batch: int) -> Batch:
        return self.segments.sample(batch, self._rng)

    def state_dict(self) -> dict[str, Any]:
        """All that the next iteration depends on."""
        return super().state_dict() | {"density": self.density.state_dict(), "segments": self.segments.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity."""
        super().load_state_dict(state)
        for name in ("density", "segments"):
            getattr(self, name).load_state_dict(state[name])
