"""RLtools' SAC: C++ that is compiled for each workload, on an environment in Python."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import base

UNENDING = 1 << 40  # steps: a run ends when its owner says


class Loop(base.Loop):
    """``SAC`` of RLtools, which samples uniformly. Compiling takes a minute, once for each workload."""

    package = "rltools"
    beside = ("gymnasium", "numpy")
    needs = ("gymnasium", "mkl", "mkl-include", "numpy", "pybind11")
    replay = "uniform"
    has_dqn = False
    sac_limits = ("samples uniformly", "tested with its last policy, not with the best: it loads no weights")

    def _prepare(self) -> None:
        from rltools import SAC  # noqa: PLC0415  # optional

        network, learner, replay = self.workload.network, self.workload.learner, self.workload.replay
        if len(set(network.hidden)) != 1:
            raise RuntimeError(f"rltools has hidden layers of one size alone, not {network.hidden}")
        sizes = {"HIDDEN_DIM": network.hidden[0], "NUM_LAYERS": len(network.hidden) + 1, "BATCH_SIZE": learner.batch}
        settings = {f"{who}_{name}": value for who in ("ACTOR", "CRITIC") for name, value in sizes.items()}
        self._module = SAC(
            self._rescaled,
            interface_name=f"fanout_{self.workload.name}",
            enable_evaluation=False,
            GAMMA=learner.gamma,
            ACTOR_POLYAK=1 - learner.tau,
            CRITIC_POLYAK=1 - learner.tau,
            N_WARMUP_STEPS=learner.learning_starts,
            STEP_LIMIT=UNENDING,
            REPLAY_BUFFER_CAP=replay.capacity,
            OPTIMIZER_ALPHA=learner.learning_rate,
            **settings,
        )
        self._state = self._module.State(self.seed)

    def _rescaled(self) -> Any:
        """Make an environment that takes actions in [-1, 1]."""
        from gymnasium.wrappers import RescaleAction  # noqa: PLC0415  # optional

        environment = RescaleAction(self.environment(), -1, 1)
        environment.reset(seed=self.seed)
        return environment

    def turn(self) -> None:
        """Take a step of the environment, and from ``learning_starts`` on a gradient step."""
        self._state.step()
        self.steps += 1

    @property
    def updates(self) -> int:
        return max(0, self.steps - self.workload.learner.learning_starts)

    @property
    def weights(self) -> int:
        raise NotImplementedError("rltools does not show its weights")

    def act(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Choose actions ``[A, n]`` in [-1, 1] without exploration, for observations ``[A, ..]``."""
        return np.stack([self._state.action(one) for one in np.asarray(observations, np.float32)])

    @classmethod
    def check(cls) -> None:
        import rltools  # noqa: F401, PLC0415  # optional; compiling takes a minute
