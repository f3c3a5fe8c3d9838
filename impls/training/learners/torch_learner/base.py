"""What torch's learners have in common: gradient steps on weighted batches, new priorities, targets, actions.

A phase of a gradient step, such as critic, then policy, has a loss that is a mean over the rows of the batch, and the
network that follows its gradient.
"""

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...errors import TrainingError
from ...learner import Derived, Learner, Phase, Stepped, Vectors, Weights, rates
from ...workload import Workload

Rows = dict[str, Tensor]
"""Tensors ``[B, ...]``: a batch's parts, its importance weights, and the noise that its losses take."""


def device_of(name: str) -> torch.device:
    """The device of a name."""
    return torch.device(name)


class TorchLearner(Learner):
    """Networks, their targets and their optimizers, for one workload.

    ``device`` "cpu" or "cuda"; ``compiled`` passes the networks through torch.compile, which needs a C++ compiler.
    torch's threads are set for the whole process: ``torch.set_num_threads``.
    """

    implementation = "torch"

    def __init__(
        self,
        workload: Workload,
        *,
        seed: int = 0,
        device: str = "cpu",
        compiled: bool = False,
        share: Learner | None = None,
    ) -> None:
        super().__init__(workload, seed=seed, share=share)
        self.device, self._is_on_host = device_of(device), device == "cpu"
        with torch.random.fork_rng(devices=[]):
            self.networks = nn.ModuleDict(self._networks()).to(self.device)
        targets = {name: copy.deepcopy(self.networks[name]) for name in workload.traits.targets}
        self.targets = nn.ModuleDict(targets).requires_grad_(False)
        # Invariant: on the CPU, these are the memory of ``parameters`` and ``target_parameters``.
        self._flat = _views(self.networks, self._placed(self.parameters))
        self._flat_targets = _views(self.targets, self._placed(self.target_parameters))
        self._rates = rates(workload)
        self.optimizers = {name: self._optimizer(name) for name in self.networks}
        mean, square = (torch.zeros_like(self._flat) for _ in range(2))
        self._use_moments(mean, square, dict.fromkeys(self.networks, 0))
        self.acting_networks: nn.ModuleDict = self.networks
        if compiled:
            for network in (*self.networks.values(), *self.targets.values()):
                network.compile()

    # What an algorithm provides

    @abstractmethod
    def _networks(self) -> dict[str, nn.Module]:
        """The networks by name, freshly initialized."""

    @abstractmethod
    def _phases(self) -> tuple[Phase, ...]:
        """Phases of the next gradient step; ``loss`` of rows is (a scalar, the TD errors ``[B]`` or None)."""

    @abstractmethod
    def _errors(self, rows: Rows) -> Tensor:
        """TD errors ``[B]``, or ``[2, B]`` of two critics; the targets carry no gradient."""

    @abstractmethod
    def _policy(self, observations: Tensor) -> Tensor:
        """The policy's own actions for ``[A, *shape]``: choices ``[A]``, or numbers ``[A, size]`` in [-1, 1]."""

    # What a caller uses

    def td_errors(self, rows: Rows) -> Tensor:
        """Q(s, a) - (r + gamma * value of what follows) ``[B]``, the negative of [Zhang2021, Eq. 1].

        Of two critics, each row's error that is larger by size [Fujimoto2020].
        """
        return _larger(self._errors(rows))

    def _greedy(self, observations: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            actions: NDArray[Any] = self._policy(self._on_device(observations)).cpu().numpy()
        return actions

    def _sampled(self, observations: NDArray[Any], noise: NDArray[np.float32]) -> NDArray[Any]:
        with torch.no_grad():
            actions = self.acting_networks["policy"](self._on_device(observations), self._on_device(noise))[0]
        return cast(NDArray[Any], actions.cpu().numpy())

    def _placed(self, weights: Weights) -> Tensor:
        return torch.from_numpy(weights).to(self.device, copy=not self._is_on_host)

    def _on_device(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

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
            self.follow(phase, gradients)
            losses[phase.network] = float(loss)
            errors = errors if new_errors is None else new_errors
        self.finish()
        return Stepped(errors.abs().cpu().numpy(), losses)

    def rows(self, transitions: Mapping[str, NDArray[Any]], weights: NDArray[Any] | None) -> Rows:
        """The batch on the device, with its weights (1 by default) and all random numbers of the step."""
        parts = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in transitions.items()}
        parts["weights"] = torch.ones(len(parts["reward"])) if weights is None else torch.from_numpy(weights)
        noise = self._noise(len(parts["reward"]))
        parts |= dict(zip(("noise", "next_noise"), map(torch.from_numpy, noise), strict=False))
        kind = torch.int64 if self.workload.has_choices else torch.float32
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

    def gradient(self, phase: Phase, rows: Rows) -> Derived:
        """The gradient of a phase's loss by the weights of its network, which do not change."""
        gradients, loss, errors = self.gradients(phase, rows)
        flat: Weights = torch.cat([each.ravel() for each in gradients]).cpu().numpy()
        return Derived(flat, float(loss), None if errors is None else errors.abs().cpu().numpy())

    def apply(self, phase: Phase, gradient: Weights) -> None:
        """Clip the gradient of a phase's network, and let the optimizer take a step along it."""
        parameters = list(self.networks[phase.network].parameters())
        parts = torch.tensor(gradient, device=self.device).split_with_sizes([each.numel() for each in parameters])
        self.follow(phase, tuple(part.view_as(each) for part, each in zip(parts, parameters, strict=True)))

    def follow(self, phase: Phase, gradients: tuple[Tensor, ...]) -> None:
        """Clip the gradients of each parameter, and let the phase's optimizer take a step along them."""
        parameters = list(self.networks[phase.network].parameters())
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.workload.learner.gradient_clip:
            nn.utils.clip_grad_norm_(parameters, self.workload.learner.gradient_clip)
        optimizer = self.optimizers[phase.network]
        optimizer.step()
        if isinstance(optimizer, torch.optim.SGD):  # which counts no steps
            for state in optimizer.state.values():
                state["step"] += 1

    def move_targets(self, tau: float) -> None:
        """target += tau * (trained - target), for every weight that has a target; 1 copies."""
        trained = self._flat[: len(self._flat_targets)]
        if tau == 1.0:
            self._flat_targets.copy_(trained)
        else:
            self._flat_targets.lerp_(trained, tau)

    def vectors(self) -> Vectors:
        """The memory that this learner computes with. TrainingError for one on another device than the CPU."""
        self._check_memory()
        return Vectors(self.parameters, self.target_parameters, self._mean.numpy(), self._square.numpy())

    def place(self, vectors: Vectors) -> None:
        """Compute with this memory and its numbers from now on. TrainingError for a learner on another device."""
        self._check_memory()
        updates = self._moments()[2]
        self.parameters, self.target_parameters = vectors.parameters, vectors.targets
        self._flat = _views(self.networks, torch.from_numpy(vectors.parameters))
        self._flat_targets = _views(self.targets, torch.from_numpy(vectors.targets))
        self._use_moments(torch.from_numpy(vectors.mean), torch.from_numpy(vectors.square), updates)

    def _check_memory(self) -> None:
        if not self._is_on_host:
            raise TrainingError(
                f"learners share their weights in memory of the cpu, not on {self.device.type}; leave out --device, or "
                "choose --learners 1"
            )

    def act_by(self, weights: Weights) -> None:
        """Act, and choose the next action of double DQN, by other weights ``[P]`` in memory of the CPU from now on."""
        super().act_by(weights)
        self.acting_networks = copy.deepcopy(self.networks).requires_grad_(False)
        _views(self.acting_networks, torch.from_numpy(weights))

    def weights(self) -> Weights:
        """A copy ``[P]`` of the weights that act, which is what actors fetch."""
        return self._trained_weights() if self._averaged is None else self._averaged.copy()

    def latest(self) -> Weights:
        """The trained weights ``[P]`` in memory of the CPU, fetched where the device is another."""
        if not self._is_on_host:
            torch.from_numpy(self.parameters).copy_(self._flat)
        return self.parameters

    def _trained_weights(self) -> Weights:
        return self._flat.cpu().numpy().copy()

    def _targets(self) -> Weights:
        return self._flat_targets.cpu().numpy().copy()

    def _set_weights(self, trained: Weights, targets: Weights) -> None:
        self._flat.copy_(torch.from_numpy(np.asarray(trained)))
        self._flat_targets.copy_(torch.from_numpy(np.asarray(targets)))

    def _moments(self) -> tuple[Weights, Weights, dict[str, int]]:
        steps = (next(iter(self.optimizers[name].state.values()))["step"] for name in self.networks)
        updates = dict(zip(self.networks, map(int, steps), strict=True))
        return self._mean.cpu().numpy(), self._square.cpu().numpy(), updates

    def _set_moments(self, mean: Weights, square: Weights, updates: Mapping[str, int]) -> None:
        self._mean.copy_(torch.from_numpy(np.asarray(mean)))
        self._square.copy_(torch.from_numpy(np.asarray(square)))
        self._set_updates(updates)

    def _set_updates(self, updates: Mapping[str, int]) -> None:
        for name, optimizer in self.optimizers.items():
            for state in optimizer.state.values():
                state["step"].fill_(float(updates[name]))

    def _use_moments(self, mean: Tensor, square: Tensor, updates: Mapping[str, int]) -> None:
        """Let the optimizers keep their moments in these vectors ``[P]``, on the device."""
        self._mean, self._square, at = mean, square, 0
        for name, network in self.networks.items():
            # Invariant: moments before ``at`` belong to the parameters already seen.
            for parameter in network.parameters():
                end = at + parameter.numel()
                first, second = (each[at:end].view(parameter.shape) for each in (mean, square))
                step = torch.tensor(float(updates[name]), device=self.device)
                moments = {"step": step, "exp_avg": first, "exp_avg_sq": second}
                self.optimizers[name].state[parameter] = moments
                at = end

    def _optimizer(self, name: str) -> torch.optim.Optimizer:
        kind = torch.optim.SGD if self.workload.learner.optimizer == "sgd" else torch.optim.Adam
        return kind(self.networks[name].parameters(), self._rates[name], fused=True)

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


def _views(module: nn.Module, flat: Tensor) -> Tensor:
    """Make every parameter a view of its part of ``flat``, which is returned."""
    at = 0
    for parameter in module.parameters():
        parameter.data = flat[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
    return flat
