"""RLlib: binary trees in Python, one element a call; buffers of episodes, which a configuration names by their path."""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import base, rows
from .base import OURS, Methods

THEIRS = "theirs"
NAME = "FanoutPrioritizedEpisodeReplayBuffer"
EPISODE = 1_000  # rows of an episode
ROOM = 1.1  # so much larger is the buffer than its rows, so that no episode is dropped while it is timed


class _Rllib:
    package = "ray"
    needs = (
        *("click", "cloudpickle", "dm-tree", "filelock", "fsspec", "gymnasium", "jsonschema", "lz4", "msgpack"),
        *("ormsgpack", "packaging", "pandas", "protobuf", "pyarrow", "pydantic", "pyyaml", "requests", "scipy"),
        *("tensorboardX", "torch"),
    )


class Tree(_Rllib, base.Tree):
    """``SumSegmentTree`` of RLlib, in a loop over the batch as its replay buffer does."""

    source = ("ray", "rllib/execution/segment_tree.py", "SumSegmentTree")
    rule = "smallest i with p_0 + .. + p_i > mass"
    limits = ("no batches: a Python loop", "capacities are powers of two", "sums anew to check each prefix value")
    power_of_two = True

    def place(self, array: np.ndarray[Any, Any]) -> Any:
        return array.tolist()

    def update(self, indices: Any, priorities: Any) -> None:
        tree = self._tree
        for index, priority in zip(indices, priorities, strict=True):
            tree[index] = priority

    def get(self, indices: Any) -> Any:
        tree = self._tree
        return [tree[index] for index in indices]

    def sample(self, uniforms: Any) -> tuple[Any, Any]:
        tree = self._tree
        total = tree.sum()
        indices = [tree.find_prefixsum_idx(uniform * total) for uniform in uniforms]
        return indices, [tree[index] for index in indices]

    def prefix_sum_index(self, mass: Any) -> Any:
        return [self._tree.find_prefixsum_idx(value) for value in mass]

    def total(self) -> float:
        return float(self._tree.sum())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set every node at once, each to the sum of its children as an update leaves it."""
        nodes = np.zeros(2 * self.slots)
        nodes[self.slots : self.slots + self.capacity] = state["leaves"]
        first = self.slots // 2
        # Invariant: every inner node from index 2 * ``first`` on is the sum of its children.
        while first:
            nodes[first : 2 * first] = nodes[2 * first : 4 * first : 2] + nodes[2 * first + 1 : 4 * first : 2]
            first //= 2
        self._tree.set_state(nodes.tolist())


class Loop(_Rllib, base.TorchLoop):
    """``DQN`` or ``SAC`` on ``PrioritizedEpisodeReplayBuffer``, without remote environment runners or learners."""

    limits = ("CPU time leaves out Ray's own processes",)
    sac_limits = ("beta stays as it begins", "acts by its policy from the first step on")

    def _prepare(self) -> None:
        os.environ.update(RAY_DEDUP_LOGS="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0", RAY_USAGE_STATS_ENABLED="0")
        import ray  # noqa: PLC0415  # optional
        from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: PLC0415
        from ray.tune.registry import register_env  # noqa: PLC0415

        learner, replay, hidden = self.workload.learner, self.workload.replay, self.workload.network.hidden
        if not ray.is_initialized():  # by another one of this process
            ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        self._ray = ray
        register_env("timed", lambda _: self.environment())
        buffer = {
            "type": "PrioritizedEpisodeReplayBuffer",
            "capacity": replay.capacity,
            "alpha": replay.alpha,
            "beta": replay.beta,
        }
        config, settings = self._dqn() if self.workload.algorithm == "dqn" else self._sac()
        self._algorithm = (
            config.environment("timed")
            .env_runners(num_env_runners=0, num_envs_per_env_runner=1, rollout_fragment_length=1)
            .learners(num_learners=0)
            .rl_module(
                model_config=DefaultModelConfig(
                    fcnet_hiddens=list(hidden[:-1]),
                    fcnet_activation="relu",
                    head_fcnet_hiddens=list(hidden[-1:]),
                    head_fcnet_activation="relu",
                )
            )
            .training(
                gamma=learner.gamma,
                train_batch_size_per_learner=learner.batch,
                num_steps_sampled_before_learning_starts=learner.learning_starts,
                replay_buffer_config=buffer,
                n_step=1,
                target_network_update_freq=learner.target_interval,
                tau=learner.tau,
                grad_clip=learner.gradient_clip or None,
                grad_clip_by="global_norm",
                **settings,
            )
            .debugging(seed=self.seed, log_level="ERROR")
            .build_algo()
        )

    def _dqn(self) -> tuple[Any, dict[str, Any]]:
        from ray.rllib.algorithms.dqn import DQNConfig  # noqa: PLC0415

        learner = self.workload.learner
        return DQNConfig(), {
            "lr": learner.learning_rate,
            "double_q": learner.double,
            "dueling": False,
            "num_atoms": 1,
            "epsilon": self.workload.exploration.end,
            "td_error_loss_fn": "huber" if learner.loss == "huber" else "mse",
        }

    def _sac(self) -> tuple[Any, dict[str, Any]]:
        from ray.rllib.algorithms.sac import SACConfig  # noqa: PLC0415

        return SACConfig(), dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), self.workload.learner.learning_rate)

    def turn(self) -> None:
        self._algorithm.training_step()
        self.steps += 1

    @property
    def policy(self) -> Any:
        return self._algorithm.get_module()

    def _means(self, observations: Any) -> Any:
        return self.policy.forward_inference({"obs": observations})["action_dist_inputs"].chunk(2, -1)[0]

    def close(self) -> None:
        self._ray.shutdown()


class _Buffer(_Rllib, base.Buffer):
    """A buffer of episodes of 1,000 rows, to the last of which a step adds its row."""

    def _allocate(self, seed: int, **options: Any) -> None:
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: PLC0415  # optional
        from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer as kind  # noqa: PLC0415

        if options["kind"] == OURS:
            from impls.plugins import rllib  # noqa: PLC0415

            kind = getattr(rllib, NAME)
        self._episode = SingleAgentEpisode
        self._buffer: Any = kind(capacity=int(ROOM * self.capacity) + 2 * EPISODE, alpha=base.ALPHA)
        self._buffer.rng = np.random.default_rng(seed)

    def insert(self, placed: Any) -> None:
        for records in placed:
            self._buffer.add(self._of(records))

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, n_step=1, beta=base.BETA)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(errors)

    def records(self, sampled: Any) -> rows.Rows:
        """Return what an episode keeps of a record; the rest, which follows from the reward, goes unchecked: there the
        next observation is the next row's."""
        observation = np.stack([episode.get_observations(0) for episode in sampled])
        reward = np.array([episode.get_rewards(0) for episode in sampled], np.float32).reshape(-1)
        action = np.stack([episode.get_actions(0) for episode in sampled])
        rest = {"next_observation": observation + 1, "terminated": reward.astype(np.int64) % 2 == 1}
        return {"observation": observation, "action": action, "reward": reward, **rest}

    def weights(self, sampled: Any) -> Any:
        return np.array([episode.get_extra_model_outputs("weights", 0) for episode in sampled])

    def place_errors(self, errors: Any) -> Any:
        return np.abs(errors) + 1e-6

    def place(self, records: rows.Rows) -> Any:
        return [{name: array[at : at + 1] for name, array in records.items()} for at in range(len(records["reward"]))]

    def _of(self, records: rows.Rows) -> Any:
        """Return records as an episode of theirs."""
        observations = [*records["observation"], records["next_observation"][-1]]
        return self._episode(
            observations=observations,
            actions=list(records["action"]),
            rewards=list(records["reward"]),
            terminated=bool(records["terminated"][-1]),
            len_lookback_buffer=0,
        )

    def fill(self) -> None:
        """Add every record, in episodes."""
        for first in range(0, self.capacity, EPISODE):
            numbers = np.arange(first, min(first + EPISODE, self.capacity))
            self._buffer.add(self._of(rows.made(numbers)))


class _Ours(Loop):
    """On our buffer, which stands in for RLlib's while the algorithm is made: its SAC takes RLlib's names alone."""

    def _prepare(self) -> None:
        from impls.plugins import rllib  # noqa: PLC0415

        rllib.install()
        try:
            super()._prepare()
        finally:
            rllib.uninstall()


class Host(_Rllib, base.Host):
    """``PrioritizedEpisodeReplayBuffer``, DQN and SAC, in one process."""

    module = "ray"
    buffers = _Buffer
    kinds = (THEIRS, OURS)
    loops = (Loop, _Ours)
    tasks = ("buffer", "cartpole_dqn", "pendulum_sac")
    limits = ("dropping a whole episode, which reads all rows, once an episode, is omitted from the buffer's step",)

    def trees(self) -> Iterable[Methods]:
        from ray.rllib.execution.segment_tree import MinSegmentTree, SegmentTree, SumSegmentTree  # noqa: PLC0415

        return [
            (SegmentTree, ("__getitem__", "__setitem__", "reduce")),
            (SumSegmentTree, ("sum", "find_prefixsum_idx")),
            (MinSegmentTree, ("min",)),
        ]
