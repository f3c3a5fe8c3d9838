"""Train DQN on CartPole by RLlib with Fanout's prioritized replay until the mean return is 475."""

from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

import impls.plugins.rllib

seed = 0
name = "impls.plugins.rllib.FanoutPrioritizedEpisodeReplayBuffer"
replay = {"type": name, "capacity": 50_000, "alpha": 0.6, "beta": 0.1}
explore = {"epsilon": [(0, 1.0), (8_000, 0.04)]}
learn = {"lr": 1e-3, "n_step": 3, "target_network_update_freq": 256, "training_intensity": 16.0}
config = DQNConfig().environment("CartPole-v1").debugging(seed=seed)
config.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=16)
config.training(replay_buffer_config=replay, train_batch_size_per_learner=32, **explore, **learn)
network = DefaultModelConfig(fcnet_hiddens=[256], head_fcnet_hiddens=[256], head_fcnet_activation="tanh")
config.rl_module(model_config=network)
config.reporting(metrics_num_episodes_for_smoothing=20)
greedy = {"explore": False, "num_envs_per_env_runner": 20}
config.evaluation(evaluation_interval=1, evaluation_duration=20, evaluation_config=greedy)

algorithm = config.build_algo()
for _ in range(50):  # of a thousand steps
    result = algorithm.train()
    mean = result["evaluation"]["env_runners"]["episode_return_mean"]
    print(f"{result['env_runners']['num_env_steps_sampled_lifetime']:.0f} steps, mean return {mean}")
    if mean >= 475:
        break
algorithm.stop()
