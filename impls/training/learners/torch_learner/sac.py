"""SAC: two critics, and a Gaussian policy also rewarded for its entropy by a tuned temperature [Haarnoja2018].

TD errors: Q_i(s, a) - (r + gamma * (min_j Q'_j(s', a') - temperature * log pi(a'|s'))) with a' sampled from the policy,
i = 1, 2. The critics' losses are added; a record's priority comes from the larger error. The temperature is driven to
where the entropy is -|A|.
"""

from typing import cast

import torch
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows, TorchLearner
from .networks import GaussianPolicy, Temperature, TwinCritic


class SAC(TorchLearner):
    """Act by numbers in [-1, 1]; explore by sampling from the policy."""

    def _networks(self) -> dict[str, nn.Module]:
        return {
            "critic": TwinCritic(self.workload),
            "policy": GaussianPolicy(self.workload),
            "temperature": Temperature(self.workload.learner.temperature or 1.0),
        }

    def _phases(self) -> tuple[Phase, ...]:
        phases = Phase("critic", self._critic_loss), Phase("policy", self._policy_loss)
        tuned = self.workload.learner.temperature == 0
        return (*phases, Phase("temperature", self._temperature_loss)) if tuned else phases

    def _policy_loss(self, rows: Rows) -> tuple[Tensor, None]:
        actions, log_density = self.networks["policy"](rows["observation"], rows["noise"])
        values = self.networks["critic"](rows["observation"], actions).amin(0)
        return (self.networks["temperature"]().detach() * log_density - values).mean(), None

    def _temperature_loss(self, rows: Rows) -> tuple[Tensor, None]:
        with torch.no_grad():
            log_density = self.networks["policy"](rows["observation"], rows["noise"])[1]
        return -(
            cast(Temperature, self.networks["temperature"]).log * (log_density - self.workload.action_size)
        ).mean(), None

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions, log_density = self.networks["policy"](rows["next_observation"], rows["next_noise"])
            following = self.targets["critic"](rows["next_observation"], actions).amin(0)
            following = following - self.networks["temperature"]() * log_density
        errors: Tensor = values - self._following(rows, following)
        return errors

    def _policy(self, observations: Tensor) -> Tensor:
        silence = torch.zeros(len(observations), self.workload.action_size, device=self.device)
        mean: Tensor = self.acting_networks["policy"](observations, silence)[0]
        return mean
