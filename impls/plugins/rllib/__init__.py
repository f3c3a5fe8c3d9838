"""RLlib's prioritized replay of episodes on our sum tree, for its API of EnvRunners, RLModules and Learners.

Name the class in the configuration of an algorithm that replays episodes, DQN or SAC::

    import impls.plugins.rllib

    config.training(
        replay_buffer_config={"type": "impls.plugins.rllib.FanoutPrioritizedEpisodeReplayBuffer", "capacity": 50_000}
    )

The import is there for its ImportError where ray is another version: RLlib says only that it does not know the name.
RLlib's buffers for several agents, and those of its older API of Policies and RolloutWorkers, have no counterpart here.
"""

from ..hosts import require

require("ray", "2.60", "2.61", package="ray[rllib]")

from .buffer import FanoutPrioritizedEpisodeReplayBuffer

__all__ = ["FanoutPrioritizedEpisodeReplayBuffer"]
