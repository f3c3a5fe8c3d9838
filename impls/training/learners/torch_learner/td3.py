"""TD3: DDPG with two critics, noise on the target's action and a policy that learns less often [Fujimoto2018].

TD errors: Q_i(s, a) - (r + gamma * min_j Q'_j(s', mu'(s') + clipped noise)), i = 1, 2. The critics' losses are added;
a record's priority comes from the larger error.
"""

from typing import cast

import torch
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows
from .ddpg import DDPG
from .networks import Policy, TwinCritic


class TD3(DDPG):
    """Act and explore as DDPG does."""

    def _networks(self) -> dict[str, nn.Module]:
        return {"critic": TwinCritic(self.workload), "policy": Policy(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        critic, policy = super()._phases()
        return (critic, policy) if self._trains_policy() else (critic,)

    def _policy_loss(self, rows: Rows) -> tuple[Tensor, None]:
        actions = self.networks["policy"](rows["observation"])
        first = cast(TwinCritic, self.networks["critic"]).first
        return -first(rows["observation"], actions).mean(), None

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions = (self.targets["policy"](rows["next_observation"]) + rows["noise"]).clamp(-1, 1)
            following = self.targets["critic"](rows["next_observation"], actions).amin(0)
        errors: Tensor = values - self._following(rows, following)
        return errors
