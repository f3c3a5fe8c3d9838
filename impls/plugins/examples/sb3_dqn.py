"""Train DQN on CartPole by Stable-Baselines3 with Fanout's prioritized replay until the mean return is 475."""

from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.env_util import make_vec_env

from impls.plugins.sb3 import PrioritizedDQN

seed = 0
enough = StopTrainingOnRewardThreshold(475, verbose=1)
stop = EvalCallback(make_vec_env("CartPole-v1", seed=100 + seed), enough, eval_freq=2000, n_eval_episodes=20)
often = {"learning_starts": 1000, "train_freq": 256, "gradient_steps": 128, "target_update_interval": 10}
explore = {"exploration_fraction": 0.16, "exploration_final_eps": 0.04}
sizes = {"buffer_size": 100_000, "batch_size": 64, "policy_kwargs": {"net_arch": [256, 256]}}
model = PrioritizedDQN("MlpPolicy", "CartPole-v1", learning_rate=2.3e-3, **often, **explore, **sizes, seed=seed)
model.learn(50_000, callback=stop)
