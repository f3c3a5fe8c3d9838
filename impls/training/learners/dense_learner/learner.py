"""The learner that hands flat vectors and a batch to the kernels of its algorithm."""

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, cast

import numpy as np
from numba import typeof
from numpy.typing import NDArray

from ....sumtree.compiling import compiler
from ...learner import Derived, Learner, Phase, Stepped, Vectors, Weights, rates
from ...weights import shapes, spans
from ...workload import Workload
from . import memory
from .memory import Rows, Scratch, Settings, Sizes, State, scratch_of


class DenseLearner(Learner):
    """Weights, gradients and Adam's moments as flat vectors, and the scratch that the ``kernels`` compute in.

    ``kernels`` is the module of the algorithm's ``act`` and ``step``.
    """

    implementation = "dense"

    def __init__(self, workload: Workload, kernels: ModuleType, *, seed: int = 0, share: Learner | None = None) -> None:
        super().__init__(workload, seed=seed, share=share)
        gradient, mean, square = (np.zeros_like(self.parameters) for _ in range(3))
        self._state = State(self.parameters, gradient, mean, square, self.target_parameters, self.parameters[:0])
        self._updates = dict.fromkeys(spans(workload), 0)
        self._sizes, self._settings = _sizes(workload), _settings(workload)
        self._inputs = math.prod(workload.observation.stacked)
        self._scratch: dict[str, Scratch] = {}
        self._act, self._step = _Kernel(kernels.act), _Kernel(kernels.step)
        self._update, self._rates = _Kernel(memory.update), rates(workload)

    def step(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Stepped:
        """Take one gradient step on a batch ``[B, ...]`` with importance weights ``[B]``."""
        rows, trained = self.rows(transitions, weights), self._trained()
        for name in trained:
            self._updates[name] += 1
        self.steps += 1
        counts = tuple(self._updates[name] if name in trained else 0 for name in self._updates)
        tau = self.workload.learner.tau if self._moves_targets() else 0.0
        priorities, losses = self._run(rows, (*counts, 0, 0)[:3], tau)
        return Stepped(priorities, {name: float(losses[list(self._updates).index(name)]) for name in trained})

    def phases(self) -> tuple[Phase, ...]:
        """Phases of the next gradient step, in order."""
        return tuple(map(Phase, self._trained()))

    def gradient(self, phase: Phase, rows: Rows) -> Derived:
        """The gradient of a phase's loss by the weights of its network, which do not change; valid until the next."""
        at = list(self._updates).index(phase.network)
        counts = tuple(-int(each == at) for each in range(3))
        priorities, losses = self._run(rows, counts, 0.0)
        gradient = self._state.gradient[spans(self.workload)[phase.network]]
        return Derived(gradient, float(losses[at]), None if at else priorities)

    def apply(self, phase: Phase, gradient: Weights) -> None:
        """Clip the gradient of a phase's network, and let the optimizer take a step along it."""
        name, span = phase.network, spans(self.workload)[phase.network]
        self._updates[name] += 1
        self._state.gradient[span] = gradient
        rate = float(self._rates[name])
        self._update(self._state, span.start, span.stop, self._updates[name], rate, self._settings, 0.0)

    def move_targets(self, tau: float) -> None:
        """target += tau * (trained - target), for every weight that has a target; 1 copies."""
        self._update(self._state, 0, 0, 0, 0.0, self._settings, float(tau))

    def vectors(self) -> Vectors:
        """The memory that this learner computes with."""
        return Vectors(self.parameters, self.target_parameters, self._state.mean, self._state.square)

    def place(self, vectors: Vectors) -> None:
        """Compute with this memory and its numbers from now on."""
        self.parameters, self.target_parameters = vectors.parameters, vectors.targets
        weights, targets, mean, square = vectors
        self._state = State(weights, self._state.gradient, mean, square, targets, self._state.choosing)

    def act_by(self, weights: Weights) -> None:
        """Act, and choose the next action of double DQN, by other weights ``[P]`` from now on."""
        super().act_by(weights)
        self._state = self._state._replace(choosing=weights)

    def priorities(self, transitions: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """|TD error| ``[n]`` of transitions ``[n, ...]``, as an actor computes it before it inserts them."""
        rows = self.rows(transitions, np.ones(len(transitions["reward"]), np.float32))
        return self._run(rows, (0, 0, 0), 0.0)[0]

    def _run(self, rows: Rows, counts: tuple[int, ...], tau: float) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        """(priorities ``[B]``, losses in the order of the networks).

        ``counts`` are Adam's of each network: 0 leaves it as it is, -1 derives its gradient alone.
        """
        count = len(rows.reward)
        scratch = self._scratch_for("step", count * (2 if self.workload.has_choices else 1))
        priorities, losses = np.empty(count, np.float32), np.zeros(3)
        self._step(rows, self._state, self._sizes, self._settings, scratch, priorities, losses, counts, tau)
        return priorities, losses

    def _trained(self) -> tuple[str, ...]:
        """The networks that the next step trains, in order."""
        if self.workload.family == "a3c":
            return ("policy", "critic")
        if self.workload.traits.delays_policy and not self._trains_policy():
            return ("critic",)
        return tuple(name for name in self._updates if name != "temperature" or self._settings.tuned)

    def rows(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Rows:
        """A batch as the kernels take it, with all random numbers of the step."""
        reward = np.ascontiguousarray(transitions["reward"], np.float32)
        count, size = len(reward), self.workload.action_size
        kind, shape = (np.int64, (count,)) if self.workload.has_choices else (np.float32, (count, size))
        return Rows(
            self._observations(transitions["observation"], count),
            np.ascontiguousarray(transitions["action"], kind).reshape(shape),
            np.sign(reward) if self.workload.clip_rewards else reward,
            self._observations(transitions["next_observation"], count),
            np.ascontiguousarray(transitions["terminated"], np.bool_).reshape(count),
            np.ascontiguousarray(weights, np.float32).reshape(count),
            np.ascontiguousarray(transitions.get("over", np.ones(count, np.bool_)), np.bool_),
            self._noise(count),
        )

    def _observations(self, observations: NDArray[Any], count: int) -> NDArray[Any]:
        """Float32 ``[count, inputs]`` of ``[count, *shape]``; bytes are divided by 255. ValueError for another shape:
        what a kernel takes it does not check."""
        flat = np.ascontiguousarray(observations).reshape(count, self._inputs)
        if self.workload.observation.dtype == "uint8":
            return np.multiply(flat, np.float32(1 / 255), dtype=np.float32)
        return flat.astype(np.float32, copy=False)

    def _greedy(self, observations: NDArray[Any]) -> NDArray[Any]:
        return self._sampled(observations, np.zeros((len(observations), self.workload.action_size), np.float32))

    def _sampled(self, observations: NDArray[Any], noise: NDArray[np.float32]) -> NDArray[Any]:
        actions = np.empty(len(noise), np.int64) if self.workload.has_choices else np.empty(noise.shape, np.float32)
        scratch, seen = self._scratch_for("act", len(noise)), self._observations(observations, len(noise))
        self._act(seen, noise, self.acting, self._sizes, self._settings, scratch, actions)
        return actions

    def _scratch_for(self, use: str, columns: int) -> Scratch:
        """Scratch of at least a given number of columns, which is kept."""
        scratch = self._scratch.get(use)
        if scratch is None or scratch.values.shape[1] < columns:
            scratch = self._scratch[use] = scratch_of(self._sizes.critic, self._sizes.policy, columns)
        return scratch

    def _moments(self) -> tuple[Weights, Weights, dict[str, int]]:
        return self._state.mean, self._state.square, self._updates

    def _set_moments(self, mean: Weights, square: Weights, updates: Mapping[str, int]) -> None:
        self._state.mean[:], self._state.square[:] = mean, square
        self._set_updates(updates)

    def _set_updates(self, updates: Mapping[str, int]) -> None:
        self._updates = {name: int(updates[name]) for name in self._updates}


class _Kernel:
    """A kernel, compiled for the types of its first arguments, and called without the compiler's dispatch."""

    def __init__(self, kernel: Any) -> None:
        self._kernel, self._entry = kernel, cast("Callable[..., Any] | None", None)

    def __call__(self, *arguments: Any) -> None:
        if self._entry is None:
            signature = tuple(map(typeof, arguments))
            compiler.run(self._kernel.compile, signature)
            self._entry = self._kernel.overloads[signature].entry_point
        self._entry(*arguments)


def _sizes(workload: Workload) -> Sizes:
    hidden, size = workload.network.hidden, workload.action_size
    inputs, ends = math.prod(workload.observation.stacked), [span.stop for span in spans(workload).values()]
    if not workload.traits.has_policy:
        critic = (inputs, *hidden, shapes(workload)["action_values"][-1][0])
        return Sizes(np.array(critic), np.zeros(0, np.int64), ends[0], ends[0])
    policy = (inputs, *hidden, size * workload.traits.outputs)
    critic = (inputs + (0 if workload.has_choices else size), *hidden, 1)
    return Sizes(np.array(critic), np.array(policy), ends[0], ends[1])


def _settings(workload: Workload) -> Settings:
    settings, learning_rates = workload.learner, rates(workload)
    return Settings(
        gamma=np.float32(settings.gamma),
        huber=settings.loss == "huber",
        double=settings.double,
        dueling=workload.network.dueling,
        critics=workload.traits.critics,
        tuned=settings.temperature == 0,
        entropy=np.float32(settings.entropy),
        gae_lambda=np.float32(settings.gae_lambda),
        sgd=settings.optimizer == "sgd",
        clip=float(settings.gradient_clip),
        rate=float(settings.learning_rate),
        policy_rate=float(learning_rates.get("policy", 0.0)),
    )
