"""SB3's algorithms on a prioritized buffer: importance weights in the loss of the critics, |TD errors| written back.

SB3 averages a loss over the batch inside ``train``, where no weight can reach it any more. So each class here runs the
very ``train`` of its host with other loss functions: a copy of the function in whose globals ``F`` and
``quantile_huber_loss`` are those of one batch's weights. Everything else (targets, optimizers, target networks, logs)
is the host's own code, and with all weights 1 so is every bit of its result.
"""

from types import FunctionType
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from torch.nn import functional

from .buffer import PrioritizedDictReplayBuffer, PrioritizedReplayBuffer


class PrioritizedAlgorithm(OffPolicyAlgorithm):
    """What the classes below share; to be named before the SB3 algorithm that it changes.

    The buffer is a ``PrioritizedReplayBuffer``, or its twin for dict observations. Its options, such as ``alpha``, go
    into ``replay_buffer_kwargs``; n-step returns are asked for by ``n_steps`` as ever. Beta follows the progress of
    ``learn``. TypeError for a ``replay_buffer_class`` that has no priorities; to continue with a model that SB3's own
    class saved, load it with ``replay_buffer_class=None``.
    """

    replay_buffer: Any
    replay_buffer_class: Any
    replay_buffer_kwargs: dict[str, Any]
    n_steps: int

    def _setup_model(self) -> None:
        kind, options, steps = self.replay_buffer_class, self.replay_buffer_kwargs, self.n_steps
        if kind is None:
            is_dict = isinstance(self.observation_space, spaces.Dict)
            kind = PrioritizedDictReplayBuffer if is_dict else PrioritizedReplayBuffer
        _check_kind(kind)
        self.replay_buffer_class = kind
        self.replay_buffer_kwargs = {"n_steps": steps, "gamma": self.gamma} | options
        self.n_steps = 1  # SB3 warns that it does not tell n to a buffer of another class; it has just been told
        try:
            super()._setup_model()
        finally:
            self.replay_buffer_kwargs, self.n_steps = options, steps
        self.replay_buffer.is_warning = False  # whoever samples besides, such as a callback, need not answer it

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """As SB3's. TypeError, with the buffer as it was, for the pickle of one that has no priorities."""
        before = self.replay_buffer
        super().load_replay_buffer(path, truncate_last_traj)
        loaded, self.replay_buffer = self.replay_buffer, before
        _check_kind(type(loaded))
        self.replay_buffer = loaded

    def train(self, gradient_steps: int, batch_size: int | None = None) -> None:
        """Take gradient steps on batches of ``batch_size``, by default that of the model.

        ValueError for a |TD error| that is not finite; RuntimeError if the host's ``train`` does not use the losses
        given to it, so that nothing would be weighted.
        """
        buffer = self.replay_buffer
        _check_kind(type(buffer))
        buffer.is_warning = False
        buffer.anneal(self._current_progress_remaining)
        losses = _WeightedLosses(buffer, critics=getattr(getattr(self, "critic", None), "n_critics", 1))
        host = super().train.__func__
        names = host.__globals__ | {"F": losses, "quantile_huber_loss": losses.quantile_huber_loss}
        train = FunctionType(host.__code__, names, host.__name__, host.__defaults__, host.__closure__)
        train(self, gradient_steps, self.batch_size if batch_size is None else batch_size)
        if losses.batches != gradient_steps:
            raise RuntimeError(
                f"{host.__qualname__} took {gradient_steps} gradient steps and weighted {losses.batches} of their "
                f"batches: it computes its loss in a way that {type(self).__name__} does not know"
            )
        self.logger.record("train/beta", buffer.beta)


class _WeightedLosses:
    """Stands in for ``torch.nn.functional``: its losses are means of weight * loss over the batch sampled last.

    Each batch has ``critics`` losses; with the last of them the mean over critics of |TD error| becomes the priority.
    """

    def __init__(self, buffer: PrioritizedReplayBuffer, critics: int) -> None:
        self._buffer, self._critics = buffer, critics
        self._errors: list[torch.Tensor] = []
        self.batches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)

    def smooth_l1_loss(self, current: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self._mean(functional.smooth_l1_loss(current, target, reduction="none"), target - current)

    def mse_loss(self, current: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self._mean(functional.mse_loss(current, target, reduction="none"), target - current)

    def quantile_huber_loss(
        self, current: torch.Tensor, target: torch.Tensor, sum_over_quantiles: bool = True
    ) -> torch.Tensor:
        """Quantile regression of ``current [B, n]`` to ``target [B, m]`` by Huber's loss [Dabney2018, Eq. 10]."""
        count = current.shape[1]
        levels = (torch.arange(count, device=current.device, dtype=torch.float) + 0.5) / count
        error = target[:, None, :] - current[:, :, None]
        size = error.abs()
        huber = torch.where(size > 1, size - 0.5, error**2 * 0.5)
        loss = (levels[None, :, None] - (error.detach() < 0).float()).abs() * huber
        loss = loss.sum(1) if sum_over_quantiles else loss.mean(1)
        return self._mean(loss, target.mean(1) - current.mean(1))

    def _mean(self, losses: torch.Tensor, errors: torch.Tensor) -> torch.Tensor:
        batch = self._buffer.last
        self._errors.append(errors.detach().abs().reshape(-1))
        if len(self._errors) == self._critics:
            self._buffer.update_priorities(batch.sequence, sum(self._errors) / self._critics)
            self._errors = []
            self.batches += 1
        return (losses * batch.weights).mean()


def _check_kind(kind: Any) -> None:
    if isinstance(kind, type) and issubclass(kind, PrioritizedReplayBuffer):
        return
    name = getattr(kind, "__name__", repr(kind))
    if isinstance(kind, type) and issubclass(kind, HerReplayBuffer):
        raise TypeError(
            f"{name} relabels goals after it has drawn rows by itself, so that it cannot be prioritized here: use it "
            "with SB3's own class, or take prioritized replay without relabeling by replay_buffer_class=None"
        )
    raise TypeError(
        f"{name} keeps no priorities: replay_buffer_class must be PrioritizedReplayBuffer, a subclass, or None, which "
        "takes it"
    )


class PrioritizedDQN(PrioritizedAlgorithm, DQN):
    """SB3's DQN with its smooth L1 loss as a weighted mean."""


class PrioritizedSAC(PrioritizedAlgorithm, SAC):
    """SB3's SAC; the losses of the critics are weighted, those of the actor and of the entropy are not."""


class PrioritizedTD3(PrioritizedAlgorithm, TD3):
    """SB3's TD3; the losses of the critics are weighted, that of the actor is not."""


class PrioritizedDDPG(PrioritizedAlgorithm, DDPG):
    """SB3's DDPG; the loss of the critic is weighted, that of the actor is not."""
