"""Train DQN on CartPole by torchrl with Fanout's prioritized replay until the mean return is 475."""

import numpy as np
import torch
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import MLP, EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from impls.plugins.torchrl import FanoutSampler

seed = 0
torch.manual_seed(seed), np.random.seed(seed)
cart, test = GymEnv("CartPole-v1"), GymEnv("CartPole-v1")
cart.set_seed(seed), test.set_seed(100 + seed)
network = MLP(in_features=4, out_features=2, num_cells=[128, 128], activation_class=torch.nn.ReLU)
value = QValueActor(network, in_keys=["observation"], spec=cart.action_spec)
explore = EGreedyModule(cart.action_spec, annealing_num_steps=5_000, eps_end=0.05)
loss = DQNLoss(value, action_space=cart.action_spec, double_dqn=True)
loss.make_value_estimator(gamma=0.99)
adam, target = torch.optim.Adam(loss.parameters(), lr=1e-3), SoftUpdate(loss, tau=0.01)
storage, sampler = LazyTensorStorage(50_000), FanoutSampler(50_000, alpha=0.4, beta=0.4)
replay = TensorDictReplayBuffer(storage=storage, sampler=sampler, priority_key="td_error", batch_size=64)
collector = Collector(cart, TensorDictSequential(value, explore), frames_per_batch=100, total_frames=50_000)
for turn, steps in enumerate(collector, 1):
    replay.extend(steps)
    explore.step(100)
    for _ in range(50):
        batch = replay.sample()
        loss(batch)["loss"].backward()
        adam.step(), adam.zero_grad(), target.step()
        replay.update_tensordict_priority(batch)
    if turn % 20 == 0:
        with torch.no_grad():
            mean = sum(test.rollout(500, value)["next", "reward"].sum().item() for _ in range(10)) / 10
        print(100 * turn, "steps, mean return", mean)
        if mean >= 475:
            break
