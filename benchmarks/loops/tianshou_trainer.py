"""tianshou's DQN, by its collector and its algorithm's update."""

from typing import Any

from .trainer import TorchTrainer, size_of


class Tianshou(TorchTrainer):
    """``DQN`` on ``PrioritizedVectorReplayBuffer``; environments are stepped in turn by one process."""

    packages = ("tianshou", "torch", "numba", "numpy", "gymnasium")
    needs = (
        *("deepdiff", "gymnasium", "h5py", "matplotlib", "numba", "overrides", "pandas", "pettingzoo"),
        *("sensai-utils", "tensorboard", "tqdm"),
    )
    alone = ("tianshou",)
    environments = (1, 8)
    limits = (
        "copies its target network every 1 / tau gradient steps",
        "does not clip gradients",
        "its Huber loss leaves importance weights out",
    )

    def _prepare(self) -> None:
        from tianshou.algorithm import DQN  # noqa: PLC0415  # optional
        from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: PLC0415
        from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: PLC0415
        from tianshou.data import Collector  # noqa: PLC0415
        from tianshou.env import DummyVectorEnv  # noqa: PLC0415
        from tianshou.utils.net.common import Net  # noqa: PLC0415
        from tianshou.utils.torch_utils import policy_within_training_step  # noqa: PLC0415

        learner, replay = self.workload.learner, self.workload.replay
        environments = DummyVectorEnv([self.environment] * self.count)
        space = environments.action_space[0]
        self._network = Net(
            state_shape=self.workload.observation.shape,
            action_shape=self.workload.action.choices,
            hidden_sizes=self.workload.network.hidden,
        )
        policy = DiscreteQLearningPolicy(
            model=self._network, action_space=space, eps_training=self.workload.exploration.end
        )
        self._algorithm = DQN(
            policy=policy,
            optim=AdamOptimizerFactory(lr=learner.learning_rate),
            gamma=learner.gamma,
            target_update_freq=round(1 / learner.tau),
            is_double=learner.double,
            huber_loss_delta=1.0 if learner.loss == "huber" else None,
        )
        self._buffer = self._buffer_kind()(replay.capacity, self.count, alpha=replay.alpha, beta=replay.beta)
        self._collector = Collector(policy, environments, self._buffer)
        self._collector.reset()
        self._algorithm.train()
        self._training, self._policy = policy_within_training_step, policy

    def _buffer_kind(self) -> Any:
        from tianshou.data import PrioritizedVectorReplayBuffer  # noqa: PLC0415

        return PrioritizedVectorReplayBuffer

    def turn(self) -> None:
        with self._training(self._policy):
            self.steps += self._collector.collect(n_step=self.count).n_collected_steps
            if self.steps >= self.workload.learner.learning_starts:
                for _ in range(self.count):
                    self._algorithm.update(self._buffer, self.workload.learner.batch)

    @property
    def weights(self) -> int:
        return size_of(self._network.parameters())
