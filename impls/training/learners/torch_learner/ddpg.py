"""DDPG: a policy mu and its critic Q, each with a target [Lillicrap2016].

TD error: Q(s, a) - (r + gamma * Q'(s', mu'(s'))). The policy follows the gradient of the mean of Q(s, mu(s)).
Importance weights correct what the critic regresses on, and so stand in its loss alone.
"""

import torch
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows, TorchLearner
from .networks import Critic, Policy


class DDPG(TorchLearner):
    """Act by numbers in [-1, 1]; explore with Gaussian noise of deviation ``explore``."""

    def _networks(self) -> dict[str, nn.Module]:
        return {"critic": Critic(self.workload), "policy": Policy(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        return Phase("critic", self._critic_loss), Phase("policy", self._policy_loss)

    def _policy_loss(self, rows: Rows) -> tuple[Tensor, None]:
        actions = self.networks["policy"](rows["observation"])
        return -self.networks["critic"](rows["observation"], actions).mean(), None

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions = self.targets["policy"](rows["next_observation"])
            following = self.targets["critic"](rows["next_observation"], actions)
        errors: Tensor = values - self._following(rows, following)
        return errors

    def _policy(self, observations: Tensor) -> Tensor:
        actions: Tensor = self.acting_networks["policy"](observations)
        return actions
