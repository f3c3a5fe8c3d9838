"""A3C: a policy pi over choices and the value V of a state, learnt from n steps in their order [Mnih2016].

Advantage: A_t = r_t + gamma * V(s_t+1) - V(s_t) + gamma * lambda * A_t+1, the last term where the same episode goes on
in the next row [Schulman2016]: where ``over`` of rows in time says that it is not, or where there is no ``over``, each
row is the last of its episode; V(s_t+1) is left out where it terminated. TD error: V(s_t) - (V(s_t) + A_t), the sum a
constant. The policy learns first, by V as it was, from the gradient of the mean of log pi(a|s) * A and its entropy.
"""

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows, TorchLearner
from .networks import ActionValues, Critic


class A3C(TorchLearner):
    """Choose among actions; explore by sampling from the policy."""

    def _networks(self) -> dict[str, nn.Module]:
        return {"critic": Critic(self.workload), "policy": ActionValues(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        return Phase("policy", self._policy_loss), Phase("critic", self._critic_loss)

    def _policy_loss(self, rows: Rows) -> tuple[Tensor, None]:
        logs = self.networks["policy"](rows["observation"]).log_softmax(1)
        taken = logs.gather(1, rows["action"][:, None]).squeeze(1)
        entropy = -(logs.exp() * logs).sum(1)
        return -(taken * self._advantages(rows) + self.workload.learner.entropy * entropy).mean(), None

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["critic"](rows["observation"])
        errors: Tensor = values - (values.detach() + self._advantages(rows))
        return errors

    @torch.no_grad()
    def _advantages(self, rows: Rows) -> Tensor:
        seen, led, settings = rows["observation"], rows["next_observation"], self.workload.learner
        found: Tensor = self._following(rows, self.networks["critic"](led)) - self.networks["critic"](seen)
        goes_on = ~rows.get("over", torch.ones_like(rows["terminated"]))
        for at in range(len(found) - 2, -1, -1):
            found[at] += settings.gamma * settings.gae_lambda * found[at + 1] * goes_on[at]
        return found

    def _policy(self, observations: Tensor) -> Tensor:
        choices: Tensor = self.acting_networks["policy"](observations).argmax(1)
        return choices

    @torch.no_grad()
    def _sampled(self, observations: NDArray[np.float32], noise: NDArray[np.float32]) -> NDArray[np.int64]:
        logits = self.acting_networks["policy"](self._on_device(observations)) + self._on_device(noise)
        return cast(NDArray[np.int64], logits.argmax(1).cpu().numpy())
