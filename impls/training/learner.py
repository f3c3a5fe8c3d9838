"""What every learner does: gradient steps on weighted batches, new priorities, target networks, actions.

A gradient step is a row of *phases*, such as critic, then policy. Each has a loss that is a mean over the rows of the
batch, and the networks that follow its gradient. So the gradient of a batch is the mean of those of its equal parts,
which is all that learners in parallel need (``parallel.py``).
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
    """``loss`` of rows is (a scalar, the TD errors ``[B]`` or None); ``network`` is trained by it."""

    network: str
    loss: Callable[[Rows], tuple[Tensor, Tensor | None]]


class Stepped(NamedTuple):
    """What a gradient step found: |TD error| of each row ``[B]`` float32 before the step, and the loss by phase."""

    priorities: NDArray[np.float32]
    losses: dict[str, float]


class Learner(ABC):
    """Networks, their targets and their optimizers, for one workload.

    ``device`` "cpu" or "cuda"; ``compiled`` passes the networks through torch.compile, which needs a C++ compiler. How
    many threads torch takes is set for the whole process: ``torch.set_num_threads``.
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
        """Of the next gradient step, in order."""

    @abstractmethod
    def td_errors(self, rows: Rows) -> Tensor:
        """r + gamma * (value of what follows) - Q(s, a), with the other sign: Q - target, ``[B]`` (seed 0, Eq. 1)."""

    @abstractmethod
    def _greedy(self, observations: Tensor) -> Tensor:
        """The policy's own actions for ``[A, *shape]``: choices ``[A]``, or numbers ``[A, size]`` in [-1, 1]."""

    @abstractmethod
    def _explored(self, actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
        """Those actions, strayed from by ``explore``."""

    def _noise(self, batch: int) -> Rows:
        """Random numbers ``[B, ...]`` that the losses of a step take; none here."""
        return {}

    # What a caller uses

    def act(self, observations: NDArray[Any], explore: float, rng: np.random.Generator | None) -> NDArray[Any]:
        """Actions for observations ``[A, *shape]``; ``explore`` 0 (or no ``rng``) asks for the policy alone."""
        with torch.no_grad():
            seen = torch.from_numpy(np.ascontiguousarray(observations)).to(self.device)
            actions: NDArray[Any] = self._greedy(seen).cpu().numpy()
        return actions if rng is None else self._explored(actions, explore, rng)

    def priorities(self, transitions: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """|TD error| of transitions ``[n, ...]``, as an actor computes it before it inserts them."""
        with torch.no_grad():
            errors = self.td_errors(self.rows(transitions, None))
        found: NDArray[np.float32] = errors.abs().cpu().numpy()
        return found

    def step(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any]) -> Stepped:
        """One gradient step on a batch ``[B, ...]`` with importance weights ``[B]``."""
        rows, losses, errors = self.rows(transitions, weights), dict[str, float](), torch.empty(0)
        for phase in self._phases():
            gradients, loss, found = self.gradients(phase, rows)
            self.apply(phase, gradients)
            losses[phase.network] = float(loss)
            errors = errors if found is None else found
        self.finish()
        return Stepped(errors.abs().cpu().numpy(), losses)

    # The parts of a gradient step, for learners in parallel

    def rows(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any] | None) -> Rows:
        """A batch on the device, with its weights (1 where there are none) and all noise its losses take."""
        parts = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in transitions.items()}
        parts["weights"] = torch.ones(len(parts["reward"])) if weights is None else torch.from_numpy(weights)
        parts |= self._noise(len(parts["reward"]))
        kind = torch.int64 if self.workload.algorithm == "dqn" else torch.float32
        parts["action"] = parts["action"].to(kind)
        if self.workload.clip_rewards:
            parts["reward"] = parts["reward"].sign()
        return {name: part.to(self.device) for name, part in parts.items()}

    def phases(self) -> tuple[Phase, ...]:
        """Of the next gradient step, in order."""
        return self._phases()

    def gradients(self, phase: Phase, rows: Rows) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
        """(gradient of each parameter of the phase's network, loss, TD errors ``[B]`` or None); nothing changes."""
        loss, errors = phase.loss(rows)
        parameters = tuple(self.networks[phase.network].parameters())
        found = torch.autograd.grad(loss, parameters)
        return found, loss.detach(), None if errors is None else errors.detach()

    def apply(self, phase: Phase, gradients: tuple[Tensor, ...]) -> None:
        """Clip the gradients and let the phase's optimizer take a step along them."""
        parameters = list(self.networks[phase.network].parameters())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.workload.learner.gradient_clip:
            nn.utils.clip_grad_norm_(parameters, self.workload.learner.gradient_clip)
        self.optimizers[phase.network].step()

    def finish(self) -> None:
        """Count the step, and move the targets where it is their turn."""
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
        """Take fetched weights, as an actor does: its targets are what it acts by."""
        self.networks.load_state_dict(weights)
        self.move_targets(1.0)

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, as copies."""
        return {
            "networks": state_of(self.networks),
            "targets": state_of(self.targets),
            "optimizers": copy.deepcopy({name: found.state_dict() for name, found in self.optimizers.items()}),
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

    def _following(self, rows: Rows, value: Tensor) -> Tensor:
        """r + gamma * value ``[B]``; an episode that terminated has nothing to follow, a truncated one has."""
        return rows["reward"] + self.workload.learner.gamma * value * ~rows["terminated"]

    def _weighted(self, errors: Tensor, rows: Rows) -> Tensor:
        """mean of w * loss(TD error) over errors ``[.., B]``, a scalar (seed 0, Eq. 3).

        The one place where importance weights act.
        """
        if self.workload.learner.loss == "huber":
            each = nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none")
        else:
            each = errors**2 / 2
        return (rows["weights"] * each).mean()


def larger(errors: Tensor) -> Tensor:
    """Of the TD errors ``[2, B]`` of two critics, each row's larger one by size, ``[B]`` (Fujimoto et al. 2020)."""
    first, second = errors
    return torch.where(first.abs() >= second.abs(), first, second)


def strayed(actions: NDArray[Any], explore: float, rng: np.random.Generator) -> NDArray[Any]:
    """Numbers ``[A, size]`` with Gaussian noise of that deviation, kept in [-1, 1]."""
    noise = rng.standard_normal(actions.shape) * explore
    return np.clip(actions + noise, -1, 1).astype(np.float32)
