"""tianshou's DQN and SAC, by its collector and its algorithm's update."""

from typing import Any

from .trainer import TorchTrainer, size_of


class Tianshou(TorchTrainer):
    """``DQN`` or ``SAC`` on ``PrioritizedVectorReplayBuffer``; environments are stepped in turn by one process."""

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
    sac_limits = ("beta stays as it begins",)

    def _prepare(self) -> None:
        from tianshou.data import Collector  # noqa: PLC0415  # optional
        from tianshou.env import DummyVectorEnv  # noqa: PLC0415
        from tianshou.utils.torch_utils import policy_within_training_step  # noqa: PLC0415

        replay = self.workload.replay
        environments = DummyVectorEnv([self.environment] * self.count)
        made = self._dqn if self.workload.algorithm == "dqn" else self._sac
        self._algorithm = made(environments.action_space[0])
        self._buffer = self._buffer_kind()(replay.capacity, self.count, alpha=replay.alpha, beta=replay.beta)
        self._collector = Collector(self._algorithm.policy, environments, self._buffer)
        self._collector.reset()
        self._algorithm.train()
        self._training = policy_within_training_step

    def _dqn(self, space: Any) -> Any:
        from tianshou.algorithm import DQN  # noqa: PLC0415
        from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy  # noqa: PLC0415
        from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: PLC0415
        from tianshou.utils.net.common import Net  # noqa: PLC0415

        learner = self.workload.learner
        self._network = Net(
            state_shape=self.workload.observation.shape,
            action_shape=self.workload.action.choices,
            hidden_sizes=self.workload.network.hidden,
        )
        policy = DiscreteQLearningPolicy(
            model=self._network, action_space=space, eps_training=self.workload.exploration.end
        )
        return DQN(
            policy=policy,
            optim=AdamOptimizerFactory(lr=learner.learning_rate),
            gamma=learner.gamma,
            target_update_freq=round(1 / learner.tau),
            is_double=learner.double,
            huber_loss_delta=1.0 if learner.loss == "huber" else None,
        )

    def _sac(self, space: Any) -> Any:
        from tianshou.algorithm import SAC  # noqa: PLC0415
        from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy  # noqa: PLC0415
        from tianshou.algorithm.optim import AdamOptimizerFactory  # noqa: PLC0415
        from tianshou.utils.net.common import Net  # noqa: PLC0415
        from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic  # noqa: PLC0415

        learner, size = self.workload.learner, self.workload.action_size
        sizes = {"state_shape": self.workload.observation.shape, "hidden_sizes": self.workload.network.hidden}
        self._network = ContinuousActorProbabilistic(
            preprocess_net=Net(**sizes), action_shape=size, unbounded=True, conditioned_sigma=True
        )
        critics = [ContinuousCritic(preprocess_net=Net(**sizes, action_shape=size, concat=True)) for _ in range(2)]
        adam = AdamOptimizerFactory(lr=learner.learning_rate)
        return SAC(
            policy=SACPolicy(actor=self._network, action_space=space),
            policy_optim=adam,
            critic=critics[0],
            critic_optim=adam,
            critic2=critics[1],
            tau=learner.tau,
            gamma=learner.gamma,
            alpha=AutoAlpha(-float(size), 0.0, adam),
        )

    def _buffer_kind(self) -> Any:
        from tianshou.data import PrioritizedVectorReplayBuffer  # noqa: PLC0415

        return PrioritizedVectorReplayBuffer

    def turn(self) -> None:
        with self._training(self._algorithm.policy):
            at_random = self.steps < self.workload.exploration.random_steps
            self.steps += self._collector.collect(n_step=self.count, random=at_random).n_collected_steps
            if self.steps >= self.workload.learner.learning_starts:
                for _ in range(self.count):
                    self._algorithm.update(self._buffer, self.workload.learner.batch)

    @property
    def weights(self) -> int:
        return size_of(self._network.parameters())

    @property
    def policy(self) -> Any:
        return self._network

    def _means(self, observations: Any) -> Any:
        return self._network(observations)[0][0]
