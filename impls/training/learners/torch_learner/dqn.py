"""DQN [Mnih2015], double by default [vanHasselt2016], dueling by its network [Wang2016]: one network of action values.

TD error: Q(s, a) - (r + gamma * Q'(s', argmax_a' Q(s', a'))), where Q' is the target network; without ``double`` the
target network chooses too [Zhang2021, Eqs. 1 to 3].
"""

import torch
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows, TorchLearner
from .networks import ActionValues


class DQN(TorchLearner):
    """Choose among actions; explore by a random action with probability ``explore``."""

    def _networks(self) -> dict[str, nn.Module]:
        return {"action_values": ActionValues(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        return (Phase("action_values", self._critic_loss),)

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["action_values"](rows["observation"])
        taken = values.gather(1, rows["action"][:, None]).squeeze(1)
        with torch.no_grad():
            following = self.targets["action_values"](rows["next_observation"])
            chooser = (
                self.acting_networks["action_values"](rows["next_observation"])
                if self.workload.learner.double
                else following
            )
            best = following.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        errors: Tensor = taken - self._following(rows, best)
        return errors

    def _policy(self, observations: Tensor) -> Tensor:
        choices: Tensor = self.acting_networks["action_values"](observations).argmax(1)
        return choices
