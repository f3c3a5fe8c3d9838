"""The networks of every algorithm, in torch. Observations of bytes are divided by 255."""

import itertools
import math
from typing import cast

import torch
from torch import Tensor, nn

from ...weights import CONVOLUTIONS, convolutions
from ...workload import Workload

_LOG_DEVIATION = (-5.0, 2.0)  # bounds of a Gaussian policy's, outside of which its gradients vanish or explode


def dense(sizes: tuple[int, ...]) -> nn.Sequential:
    """Dense layers with ReLU between them; ``sizes`` from the inputs to the outputs."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Features(nn.Module):
    """Features ``[B, outputs]`` of observations ``[B, *shape]``: flattened, or through the convolutions."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        shape = workload.observation.stacked
        self._scale = 1 / 255 if workload.observation.dtype == "uint8" else 1.0
        self.outputs, layers = math.prod(shape), list[nn.Module]()
        if workload.network.kind == "convolution":
            channels, height, width = shape
            self.outputs = convolutions(channels, height, width)[1]
            for out, kernel, stride, padding in CONVOLUTIONS:
                layers += [nn.Conv2d(channels, out, kernel, stride, padding), nn.ReLU()]
                channels = out
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, observations: Tensor) -> Tensor:
        """Features ``[B, outputs]`` of observations ``[B, *shape]``."""
        if self._scale != 1.0:
            observations = observations.float() * self._scale
        return cast(Tensor, self.layers(observations))


class ActionValues(nn.Module):
    """Values ``[B, A]`` of all actions, or A3C's logits, for observations ``[B, *shape]``.

    Dueling: V + advantage - mean advantage, of two heads on the last hidden layer [Wang2016, Eq. 9].
    """

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.features, actions = Features(workload), workload.action.choices
        hidden, self._dueling = workload.network.hidden, workload.network.dueling
        self.dense = dense((self.features.outputs, *hidden, actions + (1 if self._dueling else 0)))

    def forward(self, observations: Tensor) -> Tensor:
        """Values ``[B, A]`` for observations ``[B, *shape]``."""
        outputs = cast(Tensor, self.dense(self.features(observations)))
        if not self._dueling:
            return outputs
        value, advantages = outputs[:, :1], outputs[:, 1:]
        return value + advantages - advantages.mean(1, keepdim=True)


class Critic(nn.Module):
    """The value ``[B]`` of observations ``[B, *shape]`` and actions ``[B, A]``, or for choices of observations."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.features, numbers = Features(workload), 0 if workload.has_choices else workload.action_size
        self.dense = dense((self.features.outputs + numbers, *workload.network.hidden, 1))

    def forward(self, observations: Tensor, *actions: Tensor) -> Tensor:
        """Values ``[B]`` of observations ``[B, *shape]``, and of actions ``[B, A]`` where they are numbers."""
        both = torch.cat((self.features(observations), *actions), 1)
        return cast(Tensor, self.dense(both)).squeeze(1)


class TwinCritic(nn.Module):
    """Two critics of the same shape, each with weights of its own: values ``[2, B]``."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.first, self.second = Critic(workload), Critic(workload)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Values ``[2, B]`` of observations ``[B, *shape]`` and actions ``[B, A]``."""
        return torch.stack((self.first(observations, actions), self.second(observations, actions)))


class Policy(nn.Module):
    """Actions ``[B, A]`` in (-1, 1) for observations ``[B, *shape]``."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.features = Features(workload)
        self.dense = dense((self.features.outputs, *workload.network.hidden, workload.action_size))

    def forward(self, observations: Tensor) -> Tensor:
        """Actions ``[B, A]`` for observations ``[B, *shape]``."""
        return cast(Tensor, self.dense(self.features(observations))).tanh()


class GaussianPolicy(nn.Module):
    """A Gaussian squashed by tanh, whose mean and deviation depend on the observation."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.features = Features(workload)
        self.dense = dense((self.features.outputs, *workload.network.hidden, 2 * workload.action_size))

    def forward(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(actions ``[B, A]`` in (-1, 1), their log density ``[B]``) for standard normal noise ``[B, A]``.

        log(1 - tanh(x)^2) is taken as 2 (log 2 - x - softplus(-2 x)), which does not round to -inf.
        """
        mean, log_deviation = cast(Tensor, self.dense(self.features(observations))).chunk(2, 1)
        low, high = _LOG_DEVIATION
        log_deviation = low + (high - low) * (log_deviation.tanh() + 1) / 2
        raw = mean + log_deviation.exp() * noise
        log_density = -(noise**2) / 2 - log_deviation - math.log(2 * math.pi) / 2
        squash: Tensor = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))
        return raw.tanh(), (log_density - squash).sum(1)


class Temperature(nn.Module):
    """The weight of the entropy in SAC's objective, kept positive by its logarithm."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(start)))

    def forward(self) -> Tensor:
        """The temperature, a scalar above 0."""
        return self.log.exp()
