"""The base of every learner: gradient steps on weighted batches, new priorities, target networks, actions.

A gradient step is a sequence of *phases*, such as critic, then policy. Each has a loss that is a mean over the rows of
the batch, and the network that follows its gradient. So the gradient of a batch is the mean of those of its equal
parts, which is all that learners in parallel need (``parallel.py``).
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .networks import state_of
from .workload import Workload

Rows = dict[str, Tensor]
"""Tensors ``[B, ...]``: a batch's parts, its importance weights, and the noise that its losses take."""


class Phase(NamedTuple):
    """A loss and the ``network`` it trains; ``loss`` of rows is (a scalar, the TD errors ``[B]`` or None)."""

    network: str
    loss: Callable[[Rows], tuple[Tensor, Tensor | None]]


class Stepped(NamedTuple):
    """Results of a gradient step: |TD error| of each row ``[B]`` float32 before the step, and the loss by phase."""

    priorities: NDArray[np.float32]
    losses: dict[str, float]


class Learner(ABC):
    """Networks, their targets and their optimizers, for one workload.

    ``device`` "cpu" or "cuda"; ``compiled`` passes the networks through torch.compile, which needs a C++ compiler.
    torch's threads are set for the whole process: ``torch.set_num_threads``.
    """

    def __init__(self, workload: Workload, *, seed: int = 0, device: str = "cpu", compiled: bool = False) -> None:
        self.workload, self.device, self.steps = workload, torch.device(device), 0
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.networks = nn.ModuleDict(self._networks()).to(self.device)
        targets = {name: copy.deepcopy(self.networks[name]) for name in self.TARGETS}
        self.targets = nn.ModuleDict(targets).requires_grad_(False)
        self.optimizers = {name: self._optimizer(name) for name in self.networks}
        if compiled:
            for network in (*self.networks.values(), *self.targets.values()):
                network.compile()

    # What an algorithm provides

    TARGETS: ClassVar[tuple[str, ...]]
    """The networks that have a target."""

    @abstractmethod
    def _networks(self) -> dict[str, nn.Module]:
        """The networks by name, freshly initialized."""

    @abstractmethod
    def _phases(self) -> tuple[Phase, ...]:
        """Phases of the next gradient step, in order."""

    @abstractmethod
    def _errors(self, rows: Rows) -> Tensor:
        """TD errors ``[B]``, or ``[2, B]`` of two critics; the targets carry no gradient."""

    @abstractmethod
    def _greedy(self, observations: Tensor) -> Tensor:
        """The policy's own actions for ``[A, *shape]``: choices ``[A]``, or numbers ``[A, size]`` in [-1, 1]."""

    @abstractmethod
    def _explored(self, actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
        """Actions ``[A, ..]`` that explore around ``actions`` as far as ``explore`` says."""

    def _noise(self, batch: int) -> Rows:
        """Random numbers ``[B, ...]`` that the losses of a step take; none here."""
        return {}

    # What a caller uses

    def td_errors(self, rows: Rows) -> Tensor:
        """Q(s, a) - (r + gamma * value of what follows) ``[B]``, the negative of [Zhang2021, Eq. 1].

        Of two critics, each row's error that is larger by size [Fujimoto2020].
        """
        return _larger(self._errors(rows))

    def act(self, observations: NDArray[Any], explore: float, rng: np.random.Generator | None) -> NDArray[Any]:
        """Actions for observations ``[A, *shape]``; ``explore`` 0 (or no ``rng``) asks for the policy alone."""
        with torch.no_grad():
            seen = torch.from_numpy(np.ascontiguousarray(observations)).to(self.device)
            actions: NDArray[Any] = self._greedy(seen).cpu().numpy()
        return actions if rng is None else self._explored(actions, explore, rng)

    def priorities(self, transitions: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """|TD error| ``[n]`` of transitions ``[n, ...]``, as an actor computes it before it inserts them."""
        with torch.no_grad():
            errors: NDArray[np.float32] = self.td_errors(self.rows(transitions, None)).abs().cpu().numpy()
        return errors

    def step(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Stepped:
        """Take one gradient step on a batch ``[B, ...]`` with importance weights ``[B]``."""
        rows, losses, errors = self.rows(transitions, weights), dict[str, float](), torch.empty(0)
        for phase in self._phases():
            gradients, loss, new_errors = self.gradients(phase, rows)
            self.apply(phase, gradients)
            losses[phase.network] = float(loss)
            errors = errors if new_errors is None else new_errors
        self.finish()
        return Stepped(errors.abs().cpu().numpy(), losses)

    # The parts of a gradient step, for learners in parallel

    def rows(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any] | None) -> Rows:
        """The batch on the device, with its weights (1 by default) and all random numbers that its losses take."""
        parts = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in transitions.items()}
        parts["weights"] = torch.ones(len(parts["reward"])) if weights is None else torch.from_numpy(weights)
        parts |= self._noise(len(parts["reward"]))
        kind = torch.int64 if self.workload.algorithm == "dqn" else torch.float32
        parts["action"] = parts["action"].to(kind)
        if self.workload.clip_rewards:
            parts["reward"] = parts["reward"].sign()
        return {name: part.to(self.device) for name, part in parts.items()}

    def phases(self) -> tuple[Phase, ...]:
        """Phases of the next gradient step, in order."""
        return self._phases()

    def gradients(self, phase: Phase, rows: Rows) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
        """(gradient of each parameter of the phase's network, loss, TD errors ``[B]`` or None); nothing changes."""
        loss, errors = phase.loss(rows)
        parameters = tuple(self.networks[phase.network].parameters())
        gradients = torch.autograd.grad(loss, parameters)
        return gradients, loss.detach(), None if errors is None else errors.detach()

    def apply(self, phase: Phase, gradients: tuple[Tensor, ...]) -> None:
        """Clip the gradients and let the phase's optimizer take a step along them."""
        parameters = list(self.networks[phase.network].parameters())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.workload.learner.gradient_clip:
            nn.utils.clip_grad_norm_(parameters, self.workload.learner.gradient_clip)
        self.optimizers[phase.network].step()

    def finish(self) -> None:
        """Count the step, and move the targets if ``target_interval`` says so."""
        self.steps += 1
        settings = self.workload.learner
        if self.steps % settings.target_interval == 0:
            self.move_targets(settings.tau)

    @torch.no_grad()
    def move_targets(self, tau: float) -> None:
        """target += tau * (trained - target), for every weight that has a target; 1 copies."""
        targets: list[Tensor] = list(self.targets.parameters())
        trained: list[Tensor] = [each for name in self.targets for each in self.networks[name].parameters()]
        if tau == 1.0:
            torch._foreach_copy_(targets, trained)
        else:
            torch._foreach_lerp_(targets, trained, tau)

    def weights(self) -> dict[str, Any]:
        """A copy of the trained networks' weights, which is what actors fetch."""
        return state_of(self.networks)

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Take fetched weights, as an actor does, for its networks and targets alike."""
        self.networks.load_state_dict(weights)
        self.move_targets(1.0)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, as copies."""
        return {
            "networks": state_of(self.networks),
            "targets": state_of(self.targets),
            "optimizers": copy.deepcopy({name: each.state_dict() for name, each in self.optimizers.items()}),
            "generator": self.generator.get_state(),
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a learner of the same workload."""
        self.networks.load_state_dict(state["networks"])
        self.targets.load_state_dict(state["targets"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.generator.set_state(state["generator"])
        self.steps = int(state["steps"])

    def _optimizer(self, name: str) -> torch.optim.Optimizer:
        settings = self.workload.learner
        rate = (settings.policy_learning_rate if name == "policy" else 0.0) or settings.learning_rate
        return torch.optim.Adam(self.networks[name].parameters(), rate, fused=True)

    def _critic_loss(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """(weighted loss of the TD errors, summed over critics, and the errors ``[B]`` that priorities come from)"""
        errors = self._errors(rows)
        return errors.dim() * self._weighted(errors, rows), _larger(errors)

    def _following(self, rows: Rows, value: Tensor) -> Tensor:
        """r + gamma * value ``[B]``; an episode that terminated has nothing to follow, a truncated one has."""
        return rows["reward"] + self.workload.learner.gamma * value * ~rows["terminated"]

    def _weighted(self, errors: Tensor, rows: Rows) -> Tensor:
        """Mean of w * loss(TD error) over errors ``[.., B]``, a scalar [Zhang2021, Eq. 3].

        Importance weights act nowhere else.
        """
        if self.workload.learner.loss == "huber":
            each = nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
        else:
            each = errors**2 / 2
        return (rows["weights"] * each).mean()


def _larger(errors: Tensor) -> Tensor:
    """TD errors ``[B]`` as they are; of ``[2, B]``, each row's larger one by size, ``[B]``."""
    if errors.dim() == 1:
        return errors
    first, second = errors
    return torch.where(first.abs() >= second.abs(), first, second)


def strayed(actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
    """Actions ``[A, size]`` with Gaussian noise of deviation ``explore``, clipped to [-1, 1]."""
    noise = rng.standard_normal(actions.shape) * explore
    return np.clip(actions + noise, -1, 1).astype(np.float32)
