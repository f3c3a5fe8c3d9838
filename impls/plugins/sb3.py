"""Prioritized replay [Schaul2016] for stable-baselines3: a replay buffer, and SB3's algorithms that learn from it.

SB3 stores R rows of E environments in arrays ``[R, E, ...]``; row ``pos`` is written next. Here leaf r * E + e of one
tree over all of them is the priority of the transition of environment e in row r, so that the arrays, flattened, are
indexed by leaves. Priorities are this file's only state besides SB3's: options of the buffer, VecNormalize, pickles and
what SB3 itself writes into the arrays continue working.

SB3 averages a loss over the batch inside ``train``, where no weight can reach it any more. So each algorithm here runs
the very ``train`` of its host with other loss functions: a copy of the function in whose globals ``F`` and
``quantile_huber_loss`` are those of one batch's weights. Everything else (targets, optimizers, target networks, logs)
is the host's own code, and with all weights 1 so is every bit of its result.

``PrioritizedQRDQN`` is there where sb3-contrib is; asking for it elsewhere is an ImportError.
"""

from .hosts import require

require("stable_baselines3", "2.9", "3")

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3 import DDPG, DQN, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch.nn import functional

from ..checks import integer_at_least, one_of
from ..replay.batches import check_beta, not_finite, reals, tickets_of
from ..replay.values import number
from ..sumtree.arguments import stratified_uniforms, to_numpy
from ..sumtree.contract import SumTree
from ..sumtree.registry import make
from .priorities import GONE, NumberedPriorities

__all__ = [
    "PrioritizedAlgorithm",
    "PrioritizedDDPG",
    "PrioritizedDQN",
    "PrioritizedDictReplayBuffer",
    "PrioritizedReplayBuffer",
    "PrioritizedSAC",
    "PrioritizedSamples",
    "PrioritizedTD3",
]
with suppress(ImportError):  # whoever imports all of it has what there is
    require("sb3_contrib", "2.9", "3")
    __all__ += ["PrioritizedQRDQN"]  # noqa: F822  # see __getattr__

Leaves = NDArray[np.int64]

UNHEEDED = (
    "two batches were sampled and no priority was updated in between: an algorithm that knows no priorities leaves all "
    "of them as they are, and the weights unused; take the class of impls.plugins.sb3 in its place (PrioritizedDQN, "
    "PrioritizedQRDQN, PrioritizedSAC, PrioritizedTD3, PrioritizedDDPG), or call update_priorities after each sample"
)


class PrioritizedSamples(NamedTuple):
    """B transitions: SB3's ``ReplayBufferSamples`` and, behind them, what prioritized replay adds.

    ``discounts [B, 1]``: gamma^k where the return is over k steps, None where all are of one. ``weights [B, 1]``:
    importance weights. ``sequence [B]``: the number of transitions added before each, for
    ``update_priorities``.
    """

    observations: Any
    actions: torch.Tensor
    next_observations: Any
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    weights: torch.Tensor
    sequence: Leaves


class PrioritizedReplayBuffer(ReplayBuffer):
    """SB3's ``ReplayBuffer``, sampled in proportion to (|TD error| + epsilon)^alpha.

    A new transition gets the largest priority given so far, at first 1. Uniforms are stratified, one in each of B equal
    intervals, from NumPy's global generator as in SB3, which ``seed`` of a model sets. The importance weight of i is
    (N p_i / total)^-beta over its maximum in the batch or, with ``normalize_by`` "buffer", over that of all of them.
    ``anneal`` moves beta from ``beta`` to ``final_beta``.

    ``n_steps`` > 1 returns sums of up to n rewards, discounted by ``gamma``, each of which ends where its episode does
    or with the newest row; also where another observation follows than was told, as in a second ``learn``, which begins
    with a reset. ``optimize_memory_usage`` stores each observation once, as in SB3, whose oldest row then has
    lost its observation: it has priority 0. ``implementation`` and ``fanout`` are those of ``impls.make``.

    Draws do not depend on what an algorithm does with them: SB3's own classes take this buffer too, but leave every
    priority as it is and every weight unused. A UserWarning says so, once, when a second batch is sampled and no
    priority was updated since the first. TypeError or ValueError for options outside their bounds and for dict
    observations, which ``PrioritizedDictReplayBuffer`` takes.
    """

    is_waiting = False  # for the priorities of the batch sampled last
    is_warning = True  # if another batch is sampled meanwhile; once, and never where an algorithm of ours trains

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        epsilon: float = 1e-6,
        normalize_by: str = "batch",
        n_steps: int = 1,
        gamma: float = 0.99,
        implementation: str = "numba",
        fanout: int = 16,
    ) -> None:
        if not number("epsilon", epsilon) > 0:
            raise ValueError(f"epsilon must be above 0, not {epsilon}")
        if not 0 <= number("gamma", gamma) <= 1:
            raise ValueError(f"gamma must be within [0, 1], not {gamma}")
        for each in (beta, final_beta):
            check_beta(each)
        integer_at_least("buffer_size", buffer_size, integer_at_least("n_envs", n_envs, 1))
        if optimize_memory_usage and buffer_size < 2 * n_envs:
            raise ValueError(
                f"optimize_memory_usage leaves out one row: buffer_size must be at least {2 * n_envs}, two rows of "
                f"{n_envs}, not {buffer_size}"
            )
        self._check_space(observation_space, optimize_memory_usage)
        self.n_steps = integer_at_least("n_steps", n_steps, 1)
        options = {"n_envs": n_envs, "optimize_memory_usage": optimize_memory_usage}
        options["handle_timeout_termination"] = handle_timeout_termination
        super().__init__(buffer_size, observation_space, action_space, device, **options)
        self.gamma, self.beta = gamma, beta
        self.last: Any = None  # what sample() returned last
        self._by_buffer = one_of("normalize_by", normalize_by, ("batch", "buffer")) == "buffer"
        tree = make(implementation, self.buffer_size * n_envs, fanout=fanout, minimum=self._by_buffer)
        # Invariant: the number of a transition, modulo leaves, is its leaf.
        self.priorities = NumberedPriorities(tree, alpha, epsilon, is_clipped=True)
        self._betas = beta, final_beta

    @property
    def tree(self) -> SumTree:
        """The tree, a leaf for each transition."""
        return self.priorities.tree

    def _check_space(self, space: Any, optimize_memory_usage: bool) -> None:
        if isinstance(space, spaces.Dict):
            raise TypeError("dict observations need PrioritizedDictReplayBuffer in place of PrioritizedReplayBuffer")

    def anneal(self, progress_remaining: float) -> None:
        """Set beta for when this share of the training, from 1 down to 0, is still to come."""
        left = min(max(progress_remaining, 0.0), 1.0)
        self.beta = self._betas[1] + (self._betas[0] - self._betas[1]) * left

    def add(
        self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Sequence[Mapping[str, Any]]
    ) -> None:
        """Add a row: one step of each environment. ValueError, with nothing written, for shapes that are not E's."""
        self._check_row(obs, next_obs, action, reward, done, infos)
        self._end_what_was_cut(obs)
        row = self.pos
        self.timeouts[row] = 0  # SB3 writes there only where it handles time limits
        super().add(obs, next_obs, action, reward, done, infos)
        self.priorities.write(self._leaves_of(row))
        if self.optimize_memory_usage:  # SB3 has put next_obs where the oldest row had its observation
            self.priorities.forget(self._leaves_of(self.pos))

    def _end_what_was_cut(self, obs: Any) -> None:
        """Mark the newest row's episodes that do not continue with ``obs``: somebody reset their environments."""
        is_single = self.optimize_memory_usage
        if not self.size() or not (is_single or self.n_steps > 1):
            return
        newest = (self.pos - 1) % self.buffer_size
        told, at = (self.observations, self.pos) if is_single else (self.next_observations, newest)
        parts = [(told[name][at], obs[name]) for name in told] if isinstance(told, dict) else [(told[at], obs)]
        shape = self.n_envs, -1
        same = [kept == np.asarray(given).reshape(kept.shape).astype(kept.dtype) for kept, given in parts]
        goes_on = np.all([each.reshape(shape).all(axis=1) for each in same], axis=0)
        # What followed is still there to value, but for the observation that is stored once and is overwritten next.
        ended = self.dones if is_single else self.timeouts
        ended[newest] = np.where(goes_on | (self.dones[newest] > 0), ended[newest], 1)

    def sample(self, batch_size: int, env: Any = None) -> PrioritizedSamples:
        """``batch_size`` transitions, normalized by ``env`` if it is given. RuntimeError while the buffer is empty."""
        integer_at_least("batch_size", batch_size, 1)
        if not self.size():
            raise RuntimeError("there is nothing to sample: add transitions first")
        if self.is_waiting and self.is_warning:
            self.is_warning = False
            warnings.warn(UNHEEDED, stacklevel=2)
        self.is_waiting = True
        generator: Any = np.random  # its functions are the methods of a generator: the global one
        leaves, priorities = map(to_numpy, self.tree.sample(stratified_uniforms(generator, batch_size)))
        weights = self.priorities.weights(priorities, self.beta, None if self._by_buffer else priorities.min())
        weights = self.to_torch(weights.astype(np.float32).reshape(-1, 1), copy=False)
        rows, sequence = self._get_samples(leaves, env), self.priorities.numbers[leaves]
        samples = PrioritizedSamples._make((*rows, weights, sequence))
        self.last = samples
        return samples

    def update_priorities(self, sequence: ArrayLike, errors: Any) -> NDArray[np.bool_]:
        """Set the priorities of sampled transitions ``sequence [B]`` from their new |TD errors| ``[B]`` or ``[B, 1]``.

        Returns ``[B]`` which of them were still there; those overwritten since stay as they are. ValueError for errors
        that are no priorities, TypeError for numbers that are no integers, with nothing written.
        """
        tickets, sizes = tickets_of(sequence), np.abs(reals(errors))
        if not np.isfinite(sizes).all():  # of transitions that are gone, too: training has diverged
            raise not_finite(sizes)
        leaves = tickets % self.tree.capacity
        present: NDArray[np.bool_] = (self.priorities.numbers[leaves] == tickets) & (tickets < GONE)
        self.priorities.update(leaves, sizes, present)
        self.is_waiting = False
        return present

    def reset(self) -> None:
        """Forget every transition; updates for those sampled before are refused."""
        super().reset()
        leaves = self.tree.capacity
        self.priorities.forget(np.arange(leaves))
        self.priorities.written = -(-self.priorities.written // leaves) * leaves  # the next one is at leaf 0
        self.priorities.largest, self.last = 1.0, None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the batch sampled last, whose tensors are on a device that a reader may lack."""
        return self.__dict__ | {"last": None, "is_waiting": False, "is_warning": True}

    def _leaves_of(self, row: int) -> Leaves:
        return np.arange(row * self.n_envs, (row + 1) * self.n_envs)

    def _get_samples(self, batch_inds: Leaves, env: Any = None) -> ReplayBufferSamples:
        """The transitions at leaves ``batch_inds [B]``: SB3's hook, to which rows have no other environment to add."""
        leaves = last = batch_inds
        discounts = None
        if self.n_steps == 1:
            rewards = self._normalize_reward(self._take(self.rewards, leaves).reshape(-1, 1), env)
        else:
            last, rewards, discounts = self._returns(leaves, env)
        # An episode that a time limit has cut off continues for the learner.
        dones = self._take(self.dones, last) * (1 - self._take(self.timeouts, last))
        following, after = self.next_observations if not self.optimize_memory_usage else self.observations, last
        if self.optimize_memory_usage:
            after = (last + self.n_envs) % self.tree.capacity
        return ReplayBufferSamples(
            self._seen(self.observations, leaves, env),
            self.to_torch(self._take(self.actions, leaves), copy=False),
            self._seen(following, after, env),
            self.to_torch(dones.reshape(-1, 1), copy=False),
            self.to_torch(rewards, copy=False),
            None if discounts is None else self.to_torch(discounts, copy=False),
        )

    def _returns(self, leaves: Leaves, env: Any) -> tuple[Leaves, NDArray[np.float32], NDArray[np.float32]]:
        """(leaf of the last transition of each, return ``[B, 1]``, gamma^k ``[B, 1]``) over k <= n steps from leaves.

        Rewards are normalized one by one, by the statistics of today: sums kept from then would not do.
        """
        powers = (self.gamma ** np.arange(self.n_steps + 1)).astype(np.float32)
        steps = np.arange(self.n_steps)
        window = (leaves[:, None] + steps * self.n_envs) % self.tree.capacity
        newer = (self.pos - 1 - leaves // self.n_envs) % self.buffer_size  # rows after each one's own
        is_last = (self._take(self.dones, window) + self._take(self.timeouts, window) > 0) | (steps >= newer[:, None])
        is_last[:, -1] = True
        length = is_last.argmax(axis=1) + 1
        rewards = self._normalize_reward(self._take(self.rewards, window), env)
        total = (rewards * powers[:-1] * (steps < length[:, None])).sum(axis=1, keepdims=True)
        return window[np.arange(len(leaves)), length - 1], total, powers[length].reshape(-1, 1)

    def _seen(self, observations: Any, leaves: Leaves, env: Any) -> Any:
        """Observations ``[B, ...]``, normalized, as a tensor; a dict of them where they are one."""
        if not isinstance(observations, dict):
            return self.to_torch(self._normalize_obs(self._take(observations, leaves), env), copy=False)
        taken = {name: self._take(array, leaves) for name, array in observations.items()}
        return {name: self.to_torch(array, copy=False) for name, array in self._normalize_obs(taken, env).items()}

    def _take(self, array: NDArray[Any], leaves: Leaves) -> NDArray[Any]:
        """Elements of ``array [R, E, ...]``, copied: faster than by rows and environments."""
        return array.reshape(self.tree.capacity, *array.shape[2:]).take(leaves, axis=0)

    def _check_row(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        for name, given in (("obs", obs), ("next_obs", next_obs)):
            self._check_seen(name, given, self.observation_space, self.obs_shape)
        for name, given, count in (("action", action, self.action_dim), ("reward", reward, 1), ("done", done, 1)):
            values = np.asarray(given)
            if values.size != self.n_envs * count or values.dtype.kind not in "biuf":
                raise ValueError(
                    f"{name} must be numbers, {count} of each of {self.n_envs} environments, not {given!r}"
                )
        if len(infos) != self.n_envs:
            raise ValueError(f"infos must be a dict for each of {self.n_envs} environments, not {len(infos)} of them")

    def _check_seen(self, name: str, given: Any, space: Any, shape: tuple[int, ...]) -> None:
        found, wanted = np.shape(given), (self.n_envs, *shape)
        if found != wanted and not (isinstance(space, spaces.Discrete) and found == wanted[:1]):
            raise ValueError(f"{name} must be {list(wanted)}, one of each environment, not {list(found)}")


class PrioritizedDictReplayBuffer(PrioritizedReplayBuffer, DictReplayBuffer):
    """The same for dict observations, each name of which is an array of its own; n-step returns are possible too."""

    def _check_space(self, space: Any, optimize_memory_usage: bool) -> None:
        if not isinstance(space, spaces.Dict):
            raise TypeError(f"PrioritizedDictReplayBuffer is for dict observations, not {type(space).__name__}")
        if optimize_memory_usage:
            raise ValueError("dict observations are stored twice: optimize_memory_usage must be False, as in SB3")

    def _check_seen(self, name: str, given: Any, space: Any, shape: Any) -> None:
        if not isinstance(given, dict) or given.keys() != shape.keys():
            raise ValueError(f"{name} must be a dict of {', '.join(shape)}")
        for key in shape:
            super()._check_seen(f"{name}[{key!r}]", given[key], space[key], shape[key])


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


def __getattr__(name: str) -> Any:
    """Return PrioritizedQRDQN, for which sb3-contrib must be there."""
    if name != "PrioritizedQRDQN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("sb3_contrib", "2.9", "3")
    return _make_qrdqn()


@cache
def _make_qrdqn() -> Any:
    from sb3_contrib import QRDQN  # noqa: PLC0415

    about = "sb3-contrib's QR-DQN; |TD error| is that of the mean over the quantiles."
    return type("PrioritizedQRDQN", (PrioritizedAlgorithm, QRDQN), {"__doc__": about, "__module__": __name__})
