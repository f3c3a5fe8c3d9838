"""Train DQN on CartPole by tianshou with Fanout's prioritized replay until the mean return is 475."""

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from impls.plugins.tianshou import PrioritizedVectorReplayBuffer

seed = 0
np.random.seed(seed), torch.manual_seed(seed)
carts, tests = (DummyVectorEnv([lambda: gym.make("CartPole-v1")] * count) for count in (8, 10))
carts.seed(seed), tests.seed(100 + seed)
net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[128, 128])
policy = DiscreteQLearningPolicy(model=net, action_space=gym.spaces.Discrete(2))
adam = AdamOptimizerFactory(lr=1e-3)
dqn = DQN(policy=policy, optim=adam, n_step_return_horizon=3, target_update_freq=128)
replay = PrioritizedVectorReplayBuffer(20_000, 8, alpha=0.6, beta=0.4)
parameters = OffPolicyTrainerParams(
    training_collector=Collector(dqn, carts, replay, exploration_noise=True),
    test_collector=Collector(dqn, tests),
    training_fn=lambda epoch, step: policy.set_eps_training(max(0.05, 1 - step / 8000)),
    max_epochs=25,
    epoch_num_steps=2000,
    collection_step_num_env_steps=8,
    update_step_num_gradient_steps_per_sample=0.5,
    test_step_num_episodes=10,
    stop_fn=lambda reward: reward >= 475,
)
result = dqn.run_training(parameters)
print(result.train_step, "steps, mean return", result.best_reward)
