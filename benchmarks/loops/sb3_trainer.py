"""Stable-Baselines3's DQN and SAC, by the two calls that its ``learn`` repeats."""

from typing import Any

from .trainer import TorchTrainer, size_of


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


class Sb3(Learned, TorchTrainer):
    """``DQN`` or ``SAC`` of Stable-Baselines3, which sample uniformly."""

    packages = ("stable-baselines3", "torch", "numpy", "gymnasium")
    needs = ("cloudpickle", "gymnasium", "matplotlib", "numpy", "pandas")
    alone = ("stable-baselines3",)
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
    def weights(self) -> int:
        return size_of((self._model.q_net if self.workload.algorithm == "dqn" else self.policy).parameters())

    @property
    def policy(self) -> Any:
        return self._model.actor

    def _means(self, observations: Any) -> Any:
        return self.policy.get_action_dist_params(observations)[0]
