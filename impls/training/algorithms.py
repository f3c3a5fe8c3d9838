"""The learners by the name of their algorithm."""

from .ddpg import DDPG
from .dqn import DQN
from .learner import Learner
from .sac import SAC
from .td3 import TD3
from .workload import Workload

ALGORITHMS: dict[str, type[Learner]] = {"dqn": DQN, "ddpg": DDPG, "td3": TD3, "sac": SAC}


def make(workload: Workload, *, seed: int = 0, device: str = "cpu", compiled: bool = False) -> Learner:
    """A fresh learner of the workload's algorithm; see :class:`~impls.training.learner.Learner` for the options."""
    return ALGORITHMS[workload.algorithm](workload, seed=seed, device=device, compiled=compiled)
