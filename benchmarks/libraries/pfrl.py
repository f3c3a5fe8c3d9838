"""pfrl's DQN, by its agent's ``act`` and ``observe``."""

from . import base


class Loop(base.TorchLoop):
    """``DoubleDQN`` on ``PrioritizedReplayBuffer``, a tree in Python that samples without replacement."""

    package = "pfrl"
    needs = ("filelock", "gym", "gymnasium", "packaging", "pillow", "torch")

    def _prepare(self) -> None:
        import numpy as np  # noqa: PLC0415
        import torch  # noqa: PLC0415  # optional
        from pfrl.agents import DQN, DoubleDQN  # noqa: PLC0415
        from pfrl.explorers import ConstantEpsilonGreedy  # noqa: PLC0415
        from pfrl.q_functions import FCStateQFunctionWithDiscreteAction  # noqa: PLC0415
        from pfrl.replay_buffers import PrioritizedReplayBuffer  # noqa: PLC0415

        learner, replay, hidden = self.workload.learner, self.workload.replay, self.workload.network.hidden
        if len(set(hidden)) > 1:
            raise NotImplementedError(f"hidden layers of one size alone, not {hidden}")
        (inputs,), choices = self.workload.observation.shape, self.workload.action.choices
        self.policy = FCStateQFunctionWithDiscreteAction(inputs, choices, hidden[0], len(hidden))
        rng = np.random.default_rng(self.seed)
        self._agent = (DoubleDQN if learner.double else DQN)(
            self.policy,
            torch.optim.Adam(self.policy.parameters(), lr=learner.learning_rate),
            PrioritizedReplayBuffer(replay.capacity, replay.alpha, replay.beta, self.workload.steps, replay.epsilon),
            learner.gamma,
            ConstantEpsilonGreedy(self.workload.exploration.end, lambda: int(rng.integers(choices))),
            replay_start_size=learner.learning_starts,
            minibatch_size=learner.batch,
            update_interval=1,
            target_update_interval=learner.target_interval,
            target_update_method="soft",
            soft_update_tau=learner.tau,
            clip_delta=learner.loss == "huber",
            max_grad_norm=learner.gradient_clip or None,
        )
        self._stepped = self.environment()
        self._observation = self._stepped.reset(seed=self.seed)[0]

    def turn(self) -> None:
        action = self._agent.act(self._observation)
        self._observation, reward, terminated, truncated, _ = self._stepped.step(action)
        self._agent.observe(self._observation, reward, terminated, truncated)
        self.steps += 1
        if terminated or truncated:
            self._observation = self._stepped.reset()[0]
