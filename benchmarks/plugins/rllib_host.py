"""RLlib: its prioritized buffer of episodes, and ours, which a configuration names by its dotted path."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from impls import training

from ..loops.rllib_trainer import Rllib as Trainers
from ..loops.trainer import Trainer
from ..replay import rows
from ..replay.buffers import ALPHA, BETA, Buffer
from .host import OURS, Host, Methods

THEIRS = "theirs"
NAME = "FanoutPrioritizedEpisodeReplayBuffer"
EPISODE = 1_000  # rows of an episode
ROOM = 1.1  # so much larger is the buffer than its rows, so that no episode is dropped while it is timed


class _Buffer(Buffer):
    """A buffer of episodes of 1,000 rows, to the last of which a step adds its row."""

    name, package = "rllib", "ray"

    def _allocate(self, seed: int, **options: Any) -> None:
        from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: PLC0415  # optional
        from ray.rllib.utils.replay_buffers import PrioritizedEpisodeReplayBuffer as kind  # noqa: PLC0415

        if options["kind"] == OURS:
            from impls.plugins import rllib  # noqa: PLC0415

            kind = getattr(rllib, NAME)
        self._episode = SingleAgentEpisode
        self._buffer: Any = kind(capacity=int(ROOM * self.capacity) + 2 * EPISODE, alpha=ALPHA)
        self._buffer.rng = np.random.default_rng(seed)

    def insert(self, placed: Any) -> None:
        for records in placed:
            self._buffer.add(self._of(records))

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, n_step=1, beta=BETA)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(errors)

    def records(self, sampled: Any) -> rows.Rows:
        """Return what an episode keeps of a record; the rest, which follows from the reward, goes unchecked: there the
        next observation is the next row's."""
        observation = np.stack([one.get_observations(0) for one in sampled])
        reward = np.array([one.get_rewards(0) for one in sampled], np.float32).reshape(-1)
        action = np.stack([one.get_actions(0) for one in sampled])
        rest = {"next_observation": observation + 1, "terminated": reward.astype(np.int64) % 2 == 1}
        return {"observation": observation, "action": action, "reward": reward, **rest}

    def weights(self, sampled: Any) -> Any:
        return np.array([one.get_extra_model_outputs("weights", 0) for one in sampled])

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


class Rllib(Host):
    """``PrioritizedEpisodeReplayBuffer``, DQN and SAC, in one process."""

    package, module, plugin = "ray", "ray", "rllib"
    buffers = _Buffer
    kinds = (THEIRS, OURS)
    tasks = ("buffer", "cartpole_dqn", "pendulum_sac")
    limits = ("dropping a whole episode, which reads all rows, once an episode, is omitted from the buffer's step",)

    def trainer(self, task: str, kind: str, seed: int) -> Trainer:
        made: Trainer = (_Ours if kind == OURS else Trainers)(training.load(task), 1, seed)
        return made

    def trees(self) -> Iterable[Methods]:
        from ray.rllib.execution.segment_tree import MinSegmentTree, SegmentTree, SumSegmentTree  # noqa: PLC0415

        return [
            (SegmentTree, ("__getitem__", "__setitem__", "reduce")),
            (SumSegmentTree, ("sum", "find_prefixsum_idx")),
            (MinSegmentTree, ("min",)),
        ]


class _Ours(Trainers):
    """On our buffer, which stands in for RLlib's while the algorithm is made: its SAC takes RLlib's names alone."""

    def _prepare(self) -> None:
        from impls.plugins import rllib  # noqa: PLC0415

        rllib.install()
        try:
            super()._prepare()
        finally:
            rllib.uninstall()
