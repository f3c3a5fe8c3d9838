"""Networks and losses of the algorithms, each a class by the name of its family in capitals."""

from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...learner import Phase
from .base import Rows, TorchLearner
from .networks import ActionValues, Critic, GaussianPolicy, Policy, Temperature, TwinCritic


class DQN(TorchLearner):
    """DQN [Mnih2015], double by default [vanHasselt2016], dueling by its network [Wang2016].

    TD error: Q(s, a) - (r + gamma * Q'(s', argmax_a' Q(s', a'))), where Q is the network of action values and Q' its
    target; without ``double`` the target network chooses too [Zhang2021, Eqs. 1 to 3].

    Choose among actions; explore by a random action with probability ``explore``.
    """

    def _networks(self) -> dict[str, nn.Module]:
        return {"action_values": ActionValues(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        return (Phase("action_values", self._critic_loss),)

    def _errors(self, rows: Rows) -> Tensor:
        values = self.networks["action_values"](rows["observation"])
        taken: Tensor = values.gather(1, rows["action"][:, None]).squeeze(1)
        with torch.no_grad():
            following = self.targets["action_values"](rows["next_observation"])
            chooser = following
            if self.workload.learner.double:
                chooser = self.acting_networks["action_values"](rows["next_observation"])
            best = following.gather(1, chooser.argmax(1, keepdim=True)).squeeze(1)
        return taken - self._following(rows, best)

    def _policy(self, observations: Tensor) -> Tensor:
        return cast(Tensor, self.acting_networks["action_values"](observations).argmax(1))


class DDPG(TorchLearner):
    """DDPG: a policy mu and its critic Q, each with a target [Lillicrap2016].

    TD error: Q(s, a) - (r + gamma * Q'(s', mu'(s'))). The policy follows the gradient of the mean of Q(s, mu(s)).
    Importance weights correct what the critic regresses on, and so stand in its loss alone.

    Act by numbers in [-1, 1]; explore with Gaussian noise of deviation ``explore``.
    """

    def _networks(self) -> dict[str, nn.Module]:
        return {"critic": Critic(self.workload), "policy": Policy(self.workload)}

    def _phases(self) -> tuple[Phase, ...]:
        return Phase("critic", self._critic_loss), Phase("policy", self._policy_loss)

    def _policy_loss(self, rows: Rows) -> tuple[Tensor, None]:
        actions = self.networks["policy"](rows["observation"])
        return -self.networks["critic"](rows["observation"], actions).mean(), None

    def _errors(self, rows: Rows) -> Tensor:
        values: Tensor = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions = self.targets["policy"](rows["next_observation"])
            following = self.targets["critic"](rows["next_observation"], actions)
        return values - self._following(rows, following)

    def _policy(self, observations: Tensor) -> Tensor:
        return cast(Tensor, self.acting_networks["policy"](observations))


class TD3(DDPG):
    """TD3: DDPG with two critics, noise on the target's action and a policy that learns less often [Fujimoto2018].

    TD errors: Q_i(s, a) - (r + gamma * min_j Q'_j(s', mu'(s') + clipped noise)), i = 1, 2. The critics' losses are
    added; a record's priority comes from the larger error.

    Act and explore as DDPG does.
    """

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
        values: Tensor = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions = (self.targets["policy"](rows["next_observation"]) + rows["noise"]).clamp(-1, 1)
            following = self.targets["critic"](rows["next_observation"], actions).amin(0)
        return values - self._following(rows, following)


class SAC(TorchLearner):
    """SAC: two critics, and a Gaussian policy also rewarded for its entropy by a tuned temperature [Haarnoja2018].

    TD errors: Q_i(s, a) - (r + gamma * (min_j Q'_j(s', a') - temperature * log pi(a'|s'))) with a' sampled from the
    policy, i = 1, 2. The critics' losses are added; a record's priority comes from the larger error. The temperature is
    driven to where the entropy is -|A|.

    Act by numbers in [-1, 1]; explore by sampling from the policy.
    """

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
        values: Tensor = self.networks["critic"](rows["observation"], rows["action"])
        with torch.no_grad():
            actions, log_density = self.networks["policy"](rows["next_observation"], rows["next_noise"])
            following = self.targets["critic"](rows["next_observation"], actions).amin(0)
            following = following - self.networks["temperature"]() * log_density
        return values - self._following(rows, following)

    def _policy(self, observations: Tensor) -> Tensor:
        silence = torch.zeros(len(observations), self.workload.action_size, device=self.device)
        return cast(Tensor, self.acting_networks["policy"](observations, silence)[0])


class A3C(TorchLearner):
    """A3C: a policy pi over choices and the value V of a state, learnt from n steps in their order [Mnih2016].

    Advantage: A_t = r_t + gamma * V(s_t+1) - V(s_t) + gamma * lambda * A_t+1, the last term where the same episode goes
    on in the next row [Schulman2016]: where ``over`` of rows in time says that it does not, or where there is no
    ``over``, each row is the last of its episode; V(s_t+1) is left out where it terminated. TD error:
    V(s_t) - (V(s_t) + A_t), the sum a constant. The policy learns first, by V as it was, from the gradient of the mean
    of log pi(a|s) * A and its entropy.

    Choose among actions; explore by sampling from the policy.
    """

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
        values: Tensor = self.networks["critic"](rows["observation"])
        return values - (values.detach() + self._advantages(rows))

    @torch.no_grad()
    def _advantages(self, rows: Rows) -> Tensor:
        seen, led, settings = rows["observation"], rows["next_observation"], self.workload.learner
        found: Tensor = self._following(rows, self.networks["critic"](led)) - self.networks["critic"](seen)
        goes_on = ~rows.get("over", torch.ones_like(rows["terminated"]))
        for at in range(len(found) - 2, -1, -1):
            found[at] += settings.gamma * settings.gae_lambda * found[at + 1] * goes_on[at]
        return found

    def _policy(self, observations: Tensor) -> Tensor:
        return cast(Tensor, self.acting_networks["policy"](observations).argmax(1))

    @torch.no_grad()
    def _sampled(self, observations: NDArray[np.float32], noise: NDArray[np.float32]) -> NDArray[np.int64]:
        logits = self.acting_networks["policy"](self._on_device(observations)) + self._on_device(noise)
        return cast(NDArray[np.int64], logits.argmax(1).cpu().numpy())
