"""RLlib's DQN and SAC, by its training step, with environment, replay and learner in one process."""

import logging
import os
from typing import Any

from .trainer import TorchTrainer, size_of


class Rllib(TorchTrainer):
    """``DQN`` or ``SAC`` on ``PrioritizedEpisodeReplayBuffer``, without remote environment runners or learners."""

    packages = ("ray", "torch", "numpy", "gymnasium")
    needs = (
        *(
            "click",
            "cloudpickle",
            "dm-tree",
            "filelock",
            "fsspec",
            "gymnasium",
            "jsonschema",
            "lz4",
            "msgpack",
            "ormsgpack",
        ),
        *("packaging", "pandas", "protobuf", "pyarrow", "pydantic", "pyyaml", "requests", "scipy"),
        *("tensorboardX",),
    )
    alone = ("ray",)
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
    def weights(self) -> int:
        return size_of(self.policy.parameters())

    @property
    def policy(self) -> Any:
        return self._algorithm.get_module()

    def _means(self, observations: Any) -> Any:
        return self.policy.forward_inference({"obs": observations})["action_dist_inputs"].chunk(2, -1)[0]

    def close(self) -> None:
        self._ray.shutdown()
