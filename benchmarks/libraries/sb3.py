"""Stable-Baselines3, which has no prioritized replay: its uniform one, ours, and ours on a binary tree in Python."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from . import base, rows
from .base import OURS, PYTHON, Methods

UNIFORM = "uniform"
OPTIONS: dict[str, dict[str, Any]] = {OURS: {}, PYTHON: {"implementation": "python", "fanout": 2}}


class _Sb3:
    package = "stable-baselines3"
    needs = ("cloudpickle", "gymnasium", "matplotlib", "numpy", "pandas", "torch")


class Learned:
    """The turns of Stable-Baselines3 and of what is built on it."""

    steps: int
    workload: Any
    _model: Any

    def _start(self, kind: Any, **settings: Any) -> None:
        """Make the model, ready for a first turn."""
        learner, explore = self.workload.learner, self.workload.exploration.end
        if self.workload.algorithm == "dqn":
            settings |= {"target_update_interval": learner.target_interval}
            settings |= {"exploration_initial_eps": explore, "exploration_final_eps": explore}
        self._model = kind(
            "MlpPolicy",
            self.environment(),  # type: ignore[attr-defined]
            learning_rate=learner.learning_rate,
            buffer_size=self.workload.replay.capacity,
            learning_starts=learner.learning_starts,
            batch_size=learner.batch,
            tau=learner.tau,
            gamma=learner.gamma,
            train_freq=1,
            gradient_steps=1,
            seed=self.seed,  # type: ignore[attr-defined]
            device="cpu",
            **settings,
        )
        self._callback = self._model._setup_learn(self.workload.steps, None)[1]

    def turn(self) -> None:
        """Do what an iteration of ``OffPolicyAlgorithm.learn`` does."""
        model = self._model
        model.collect_rollouts(
            model.env,
            self._callback,
            model.train_freq,
            model.replay_buffer,
            model.action_noise,
            model.learning_starts,
            log_interval=4,
        )
        self.steps = model.num_timesteps
        if self.steps > model.learning_starts:
            model.train(gradient_steps=1, batch_size=model.batch_size)


class Loop(_Sb3, Learned, base.TorchLoop):
    """``DQN`` or ``SAC`` of Stable-Baselines3, which sample uniformly."""

    replay = "uniform"
    limits = ("not double: one pass of the network less",)
    sac_limits = ("samples uniformly",)

    def _prepare(self) -> None:
        policy = {"net_arch": list(self.workload.network.hidden)}
        kind, settings = self._learner()
        if self.workload.algorithm == "dqn":
            settings["max_grad_norm"] = self.workload.learner.gradient_clip or float("inf")
        self._start(kind, policy_kwargs=policy, **settings)

    def _learner(self) -> tuple[Any, dict[str, Any]]:
        """Import the algorithm; return it and its further settings."""
        import stable_baselines3  # noqa: PLC0415  # optional

        return getattr(stable_baselines3, self.workload.algorithm.upper()), {}

    @property
    def policy(self) -> Any:
        return self._model.q_net if self.workload.algorithm == "dqn" else self._model.actor

    def _means(self, observations: Any) -> Any:
        return self.policy.get_action_dist_params(observations)[0]


class _Prioritized(Loop):
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


class _Buffer(_Sb3, base.Buffer):
    """A buffer of one environment; the uniform one has no weights and takes no priorities."""

    dtype = "float32"

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

        how = {"alpha": base.ALPHA, "beta": base.BETA, "epsilon": base.EPSILON, **OPTIONS[self._kind]}
        self._buffer = PrioritizedReplayBuffer(self.capacity, observation, action, "cpu", **how)

    def insert(self, placed: Any) -> None:
        for record in placed:
            self._buffer.add(*record, [{}])

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


class Host(_Sb3, base.Host):
    """``ReplayBuffer``, DQN and SAC."""

    module = "stable_baselines3"
    alone = ("sb3-contrib",)
    needs = (*_Sb3.needs, "gymnasium[classic-control,box2d,mujoco]")
    buffers = _Buffer
    kinds = (UNIFORM, OURS, PYTHON)
    loops = (Loop, _Prioritized, _OnPython)
    tasks = ("buffer", "cartpole_dqn", "hopper_sac")
    uniform = (UNIFORM,)

    def trees(self) -> Iterable[Methods]:
        return ()
