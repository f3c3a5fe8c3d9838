"""What every learner does, whatever computes it: acts, gives priorities, takes gradient steps, hands its weights on.

Its weights are one flat vector (``weights.py``), which is what is copied, shared, averaged and saved. All random
numbers are drawn here, by NumPy, so that learners of two implementations see the same ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .weights import initial, spans, target_count
from .workload import Workload


def explored(workload: Workload, actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
    """Actions ``[A, ..]`` around ``actions``: with chance ``explore`` another choice at random, or on numbers
    Gaussian noise of deviation ``explore``, clipped to [-1, 1]."""
    if workload.has_choices:
        random = rng.integers(workload.action.choices, size=actions.shape)
        return np.where(rng.random(actions.shape) < explore, random, actions)
    noise = rng.standard_normal(actions.shape) * explore
    return np.clip(actions + noise, -1, 1).astype(np.float32)


Weights = NDArray[np.float32]
_NOISE = 4  # sets these random numbers apart from the other uses of a seed


class Stepped(NamedTuple):
    """Results of a gradient step: |TD error| of each row ``[B]`` float32 before the step, and the loss by network."""

    priorities: NDArray[np.float32]
    losses: dict[str, float]

    def check(self) -> None:
        """ValueError for losses that are not finite: A3C's policy may diverge where its critic does not."""
        if not np.isfinite(sum(self.losses.values())):
            raise ValueError(f"losses are {self.losses}; training has diverged, try a smaller learning_rate")


class Phase(NamedTuple):
    """A part of a gradient step: the ``network`` that it trains, and the ``loss`` where an implementation needs it."""

    network: str
    loss: Any = None


class Derived(NamedTuple):
    """Results of a phase: the gradient of the network's weights, a vector, its loss, and |TD errors| ``[B]`` or None.

    One phase of a step has the errors.
    """

    gradient: Weights
    loss: float
    priorities: NDArray[np.float32] | None


class Vectors(NamedTuple):
    """All numbers that gradient steps change: weights ``[P]``, targets ``[T]``, Adam's mean and mean square ``[P]``."""

    parameters: Weights
    targets: Weights
    mean: Weights
    square: Weights


class Learner(ABC):
    """Networks, their targets and Adam's moments, for one workload.

    ``parameters`` ``[P]`` and ``target_parameters`` ``[T]`` are the memory that an implementation on the CPU computes
    with. ``acting`` ``[P]`` are the weights that act, that actors fetch, and by which double DQN chooses: its
    parameters, but for ``act_by``. ``share``: another learner, by whose weights and random numbers this one then acts,
    without a copy.

    A gradient step is a sequence of phases: ``rows`` once, ``gradient`` and ``apply`` for each phase in order, then
    ``finish``. Every loss is a mean over rows, so the gradient of a batch is the mean of those of its equal parts, up
    to rounding: that is how learners in parallel share a step.
    """

    implementation: ClassVar[str]
    """Its name in the registry."""

    def __init__(self, workload: Workload, *, seed: int = 0, share: "Learner | None" = None) -> None:
        self.workload, self.steps = workload, 0
        self.rng: np.random.Generator = np.random.default_rng([seed, _NOISE]) if share is None else share.rng
        if share is None:
            self.parameters: Weights = initial(workload, seed)
            self.target_parameters: Weights = self.parameters[: target_count(workload)].copy()
        else:
            self.parameters, self.target_parameters = share.parameters, share.target_parameters
        self._averaged: Weights | None = None

    @abstractmethod
    def step(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Stepped:
        """Take one gradient step on a batch ``[B, ...]`` with importance weights ``[B]``."""

    @abstractmethod
    def rows(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Any:
        """A batch as ``gradient`` takes it, with all random numbers of the step."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """Phases of the next gradient step, in order."""

    @abstractmethod
    def gradient(self, phase: Phase, rows: Any) -> Derived:
        """The gradient of a phase's loss by the weights of its network, which do not change; valid until the next."""

    @abstractmethod
    def apply(self, phase: Phase, gradient: Weights) -> None:
        """Clip the gradient of a phase's network, and let the optimizer take a step along it."""

    @abstractmethod
    def move_targets(self, tau: float) -> None:
        """target += tau * (trained - target), for every weight that has a target; 1 copies."""

    @abstractmethod
    def vectors(self) -> Vectors:
        """The memory that this learner computes with."""

    @abstractmethod
    def place(self, vectors: Vectors) -> None:
        """Compute with this memory and its numbers from now on. TrainingError for a learner on another device."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The numbers of processes that compute for it."""
        return ()

    def close(self) -> None:
        """End the processes that compute for it."""
        return

    @property
    def acting(self) -> Weights:
        """The weights ``[P]`` that act."""
        return self.parameters if self._averaged is None else self._averaged

    def act_by(self, weights: Weights) -> None:
        """Act, and choose the next action of double DQN, by other weights ``[P]`` in memory of the CPU from now on."""
        self._averaged = weights

    @abstractmethod
    def priorities(self, transitions: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """|TD error| ``[n]`` of transitions ``[n, ...]``, as an actor computes it before it inserts them."""

    @abstractmethod
    def _greedy(self, observations: NDArray[Any]) -> NDArray[Any]:
        """The policy's own actions for ``[A, *shape]``: choices ``[A]``, or numbers ``[A, size]`` in [-1, 1]."""

    @abstractmethod
    def _sampled(self, observations: NDArray[Any], noise: NDArray[np.float32]) -> NDArray[Any]:
        """Actions by noise ``[A, size]``: SAC's ``[A, size]`` by standard normal, A3C's ``[A]`` by Gumbel's."""

    @abstractmethod
    def _moments(self) -> tuple[Weights, Weights, dict[str, int]]:
        """Adam's mean ``[P]`` and mean square ``[P]`` of gradients, and its number of updates of each network."""

    @abstractmethod
    def _set_moments(self, mean: Weights, square: Weights, updates: Mapping[str, int]) -> None:
        """Take the moments of ``_moments``."""

    def finish(self) -> None:
        """Count the step, and move the targets if ``target_interval`` says so."""
        self.steps += 1
        if self._moves_targets():
            self.move_targets(self.workload.learner.tau)

    def count(self, steps: int, kept: int = 0) -> None:
        """Continue as after N gradient steps, which learners that share this one's vectors have taken with it.

        From the last ``kept`` of them only the first network has learned.
        """
        self.steps, trained = steps, dict.fromkeys(spans(self.workload), steps - kept)
        if self.workload.traits.delays_policy:
            trained["policy"] = (steps - kept) // self.workload.learner.policy_delay
        if self.workload.traits.tunes and self.workload.learner.temperature:
            trained["temperature"] = 0
        trained[next(iter(trained))] = steps
        self._set_updates(trained)

    @abstractmethod
    def _set_updates(self, updates: Mapping[str, int]) -> None:
        """Set Adam's number of updates of each network."""

    def act(self, observations: NDArray[Any], explore: float, rng: np.random.Generator | None) -> NDArray[Any]:
        """Actions ``[A, ..]`` for observations ``[A, *shape]``; without an ``rng``, those of the policy alone.

        ``explore`` is the chance of a random action (dqn) or the noise's deviation (ddpg, td3). SAC and A3C sample from
        their policy, whatever ``explore`` is.
        """
        if rng is None:
            return self._greedy(observations)
        if by := self.workload.traits.samples_by:
            shape = len(observations), self.workload.action_size
            noise = rng.standard_normal(shape) if by == "normal" else rng.gumbel(size=shape)
            return self._sampled(observations, noise.astype(np.float32))
        return explored(self.workload, self._greedy(observations), explore, rng)

    def weights(self) -> Weights:
        """A copy ``[P]`` of the weights that act, which is what actors fetch."""
        return self.acting.copy()

    def latest(self) -> Weights:
        """The trained weights ``[P]`` in memory of the CPU, which the next gradient step may overwrite."""
        return self.parameters

    def load_weights(self, weights: Weights) -> None:
        """Take weights ``[P]``, as an actor fetches them, for networks and targets alike. ValueError for another P."""
        if np.shape(weights) != self.parameters.shape:
            raise ValueError(f"weights of {self.workload.name} are {len(self.parameters):,}, not {np.size(weights):,}")
        self._set_weights(weights, weights[: len(self.target_parameters)])
        if self._averaged is not None:
            self._averaged[:] = weights

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, as copies; learners of every implementation take each other's."""
        mean, square, updates = self._moments()
        return {
            "weights": self._trained_weights(),
            "targets": self._targets(),
            "mean": mean.copy(),
            "square": square.copy(),
            "updates": dict(updates),
            "rng": self.rng.bit_generator.state,
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a learner of the same workload."""
        self._set_weights(state["weights"], state["targets"])
        self._set_moments(state["mean"], state["square"], state["updates"])
        self.rng.bit_generator.state = state["rng"]
        self.steps = int(state["steps"])

    def _trained_weights(self) -> Weights:
        return self.parameters.copy()

    def _targets(self) -> Weights:
        return self.target_parameters.copy()

    def _set_weights(self, trained: Weights, targets: Weights) -> None:
        self.parameters[:] = trained
        self.target_parameters[:] = targets

    def _noise(self, batch: int) -> NDArray[np.float32]:
        """Random numbers ``[n, B, size]`` of a step: td3, the noise on the target's actions; sac, that of the policy's
        actions in the state and in the next; otherwise none."""
        settings, traits = self.workload.learner, self.workload.traits
        noise = self.rng.standard_normal((traits.noise, batch, self.workload.action_size), np.float32)
        if traits.smooths:
            noise = (noise * np.float32(settings.target_noise)).clip(-settings.noise_clip, settings.noise_clip)
        return noise

    def _trains_policy(self) -> bool:
        """Whether the next gradient step trains TD3's policy too."""
        return (self.steps + 1) % self.workload.learner.policy_delay == 0

    def _moves_targets(self) -> bool:
        """Whether targets move with the step that has just been counted."""
        return self.steps % self.workload.learner.target_interval == 0


def rates(workload: Workload) -> dict[str, float]:
    """The learning rate of each network."""
    settings = workload.learner
    own = settings.policy_learning_rate or settings.learning_rate
    return {name: own if name == "policy" else settings.learning_rate for name in spans(workload)}
