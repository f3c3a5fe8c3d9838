"""Stable-Baselines3, which has no prioritized replay: its uniform one, ours, and ours on a binary tree in Python."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from impls import training

from ..loops.sb3_trainer import Sb3 as Uniform
from ..loops.trainer import Trainer
from ..replay import rows
from ..replay.buffers import ALPHA, BETA, EPSILON, Buffer
from .host import OURS, PYTHON, Host, Methods

UNIFORM = "uniform"
OPTIONS: dict[str, dict[str, Any]] = {OURS: {}, PYTHON: {"implementation": "python", "fanout": 2}}


class _Buffer(Buffer):
    """A buffer of one environment; the uniform one has no weights and takes no priorities."""

    name, package, dtype = "sb3", "stable-baselines3", "float32"

    def _allocate(self, seed: int, **options: Any) -> None:
        from gymnasium import spaces  # noqa: PLC0415  # optional
        from stable_baselines3.common.buffers import ReplayBuffer  # noqa: PLC0415

        np.random.seed(seed)  # noqa: NPY002  # its source of random numbers
        self._kind = options["kind"]
        observation, action = (spaces.Box(-1e9, 1e9, (size,), np.float32) for size in (11, 3))
        if self._kind == UNIFORM:
            self._buffer: Any = ReplayBuffer(self.capacity, observation, action, "cpu")
            return
        from impls.plugins.sb3 import PrioritizedReplayBuffer  # noqa: PLC0415

        how = {"alpha": ALPHA, "beta": BETA, "epsilon": EPSILON, **OPTIONS[self._kind]}
        self._buffer = PrioritizedReplayBuffer(self.capacity, observation, action, "cpu", **how)

    def insert(self, placed: Any) -> None:
        for one in placed:
            self._buffer.add(*one, [{}])

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch)

    def update(self, sampled: Any, errors: Any) -> None:
        if self._kind != UNIFORM:
            self._buffer.update_priorities(sampled.sequence, errors)

    def records(self, sampled: Any) -> rows.Rows:
        fields = {
            "observation": sampled.observations,
            "next_observation": sampled.next_observations,
            "action": sampled.actions,
            "reward": sampled.rewards,
            "terminated": sampled.dones,
        }
        return {name: tensor.numpy() for name, tensor in fields.items()}

    def weights(self, sampled: Any) -> Any:
        return sampled.weights.numpy().reshape(-1)

    def place(self, records: rows.Rows) -> Any:
        names = ("observation", "next_observation", "action", "reward", "terminated")
        return [tuple(records[name][at : at + 1] for name in names) for at in range(len(records["reward"]))]

    def fill(self) -> None:
        """Write every record in place, for a call each takes a minute, and add the last as ever."""
        buffer, records = self._buffer, rows.made(np.arange(self.capacity))
        arrays = (buffer.observations, buffer.next_observations, buffer.actions, buffer.rewards, buffer.dones)
        names = ("observation", "next_observation", "action", "reward", "terminated")
        for array, name in zip(arrays, names, strict=True):
            array[:, 0] = records[name]
        buffer.pos, buffer.full = self.capacity - 1, False
        if self._kind != UNIFORM:
            buffer.priorities.write(np.arange(self.capacity - 1))
        self.insert(self.place(rows.made(np.array([self.capacity - 1]))))


class Sb3(Host):
    """``ReplayBuffer``, DQN and SAC."""

    package, module, plugin = "stable-baselines3", "stable_baselines3", "sb3"
    buffers = _Buffer
    kinds = (UNIFORM, OURS, PYTHON)
    tasks = ("buffer", "cartpole_dqn", "hopper_sac")
    uniform = (UNIFORM,)

    def trainer(self, task: str, kind: str, seed: int) -> Trainer:
        trainer: Trainer = _TRAINERS[kind](training.load(task), 1, seed)
        return trainer

    def trees(self) -> Iterable[Methods]:
        return ()


class _Prioritized(Uniform):
    """DQN or SAC on our buffer."""

    kind = OURS
    replay = "prioritized"

    def _learner(self) -> tuple[Any, dict[str, Any]]:
        from impls.plugins import sb3  # noqa: PLC0415

        replay, kind = self.workload.replay, f"Prioritized{self.workload.algorithm.upper()}"
        return getattr(sb3, kind), {
            "replay_buffer_kwargs": {"alpha": replay.alpha, "beta": replay.beta, **OPTIONS[self.kind]}
        }


class _OnPython(_Prioritized):
    kind = PYTHON


_TRAINERS = {UNIFORM: Uniform, OURS: _Prioritized, PYTHON: _OnPython}
