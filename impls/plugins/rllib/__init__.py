"""RLlib's prioritized replay of episodes on our sum tree, for its API of EnvRunners, RLModules and Learners.

:func:`install` puts the class where RLlib looks for its own, which is the default of DQN and of SAC::

    import impls.plugins.rllib

    impls.plugins.rllib.install()
    config.training(replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer", "capacity": 50_000})

DQN takes the name of the class as that type, too, "impls.plugins.rllib.FanoutPrioritizedEpisodeReplayBuffer"; SAC takes
RLlib's names alone. The import is there for its ImportError where ray is another version: RLlib says only that it does
not know the name. RLlib's buffers for several agents, and those of its older API of Policies and RolloutWorkers, have
no counterpart here.
"""

from ..hosts import require

require("ray", "2.60", "2.61", package="ray[rllib]")

from ray.rllib.utils import replay_buffers
from ray.rllib.utils.replay_buffers import prioritized_episode_buffer

from .buffer import FanoutPrioritizedEpisodeReplayBuffer

__all__ = ["FanoutPrioritizedEpisodeReplayBuffer", "install", "uninstall"]

(_THEIRS,) = FanoutPrioritizedEpisodeReplayBuffer.__bases__


def install() -> None:
    """Let RLlib make our buffer wherever ``PrioritizedEpisodeReplayBuffer`` is asked for, until :func:`uninstall`.

    ``replay_buffer_config`` takes ``implementation`` and ``fanout`` of the tree, too. Only this process is changed:
    where the algorithm is built in another one, as by Tune, call this there.
    """
    _put(FanoutPrioritizedEpisodeReplayBuffer)


def uninstall() -> None:
    """Give RLlib its own buffer back; algorithms and buffers made meanwhile keep ours."""
    _put(_THEIRS)


def _put(kind: type) -> None:
    for module in (replay_buffers, prioritized_episode_buffer):
        vars(module)["PrioritizedEpisodeReplayBuffer"] = kind
