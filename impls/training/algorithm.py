"""Sizes that a workload alone decides: a record, and a network's multiply-accumulates (MACs) and parameters."""

import itertools
import math
from typing import NamedTuple

from ..replay import Layout
from .workload import Workload

CONVOLUTIONS = ((32, 8, 4, 4), (64, 4, 2, 2), (64, 3, 1, 1))
"""(channels, kernel, stride, padding) of a layer: [Zhang2022, Table 5.1], padded so that 84x84 becomes 22, 12, 12."""


class Size(NamedTuple):
    """MACs and parameters of a network, or of a part of one."""

    macs: int
    parameters: int

    def plus(self, other: "Size") -> "Size":
        """Size of both together."""
        return Size(self.macs + other.macs, self.parameters + other.parameters)


def dense(inputs: int, hidden: tuple[int, ...], outputs: int) -> Size:
    """Size of dense layers with biases.

    [Zhang2023, Table III] prints 137 and 70.1K as MACs of its two critics; those are parameters, with one input more
    than |S| + |A|:

    >>> dense(4 + 1 + 1, (8, 8), 1), dense(11 + 3 + 1, (256, 256), 1)
    (Size(macs=120, parameters=137), Size(macs=69632, parameters=70145))
    """
    sizes = (inputs, *hidden, outputs)
    macs = sum(a * b for a, b in itertools.pairwise(sizes))
    return Size(macs, macs + sum(sizes[1:]))


def convolutions(channels: int, height: int, width: int) -> tuple[Size, int]:
    """(size, outputs) of the convolutions for images ``[channels, height, width]``."""
    total = Size(0, 0)
    for out, kernel, stride, padding in CONVOLUTIONS:
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        weights = channels * kernel * kernel * out
        total, channels = total.plus(Size(weights * height * width, weights + out)), out
    return total, channels * height * width


def networks(workload: Workload) -> dict[str, Size]:
    """Size of each network that a learner trains, by its name there.

    >>> from impls.training import load
    >>> networks(load("pong_dqn"))["action_values"]                    # [Zhang2023, Table III] prints 18.8M MACs
    Size(macs=18713600, parameters=4800166)
    """
    inputs, first = math.prod(workload.observation.stacked), Size(0, 0)
    if workload.network.kind == "convolution":
        channels, height, width = workload.observation.stacked
        first, inputs = convolutions(channels, height, width)
    hidden, actions = workload.network.hidden, workload.action_size
    if workload.family == "dqn":
        last = dense(inputs, hidden, actions)
        if workload.network.dueling:
            last = dense(inputs, hidden[:-1], hidden[-1]).plus(dense(hidden[-1], (), 1 + actions))
        return {"action_values": first.plus(last)}
    critic = dense(inputs + (0 if workload.has_choices else actions), hidden, 1)
    policy = dense(inputs, hidden, actions * (2 if workload.family == "sac" else 1))
    return {"critic": critic.plus(critic) if workload.family in ("td3", "sac") else critic, "policy": policy}


def step_macs(workload: Workload) -> float:
    """Multiply-adds per record in the matrix products of a gradient step; ValueError for convolutions.

    A forward pass takes as many as a network has; so do the gradients of its weights, and those of its inputs but for
    the first layer, of which actor-critic algorithms need the actions' columns alone.

    >>> from impls.training import load
    >>> step_macs(load("cartpole_dqn"))                     # three forward passes and two backward, less a first layer
    85248.0
    """
    if workload.network.kind == "convolution":
        raise ValueError(f"{workload.name} has convolutions, whose steps are not counted")
    hidden, inputs = workload.network.hidden, math.prod(workload.observation.stacked)
    if workload.family == "dqn":
        each = networks(workload)["action_values"].macs
        return 5.0 * each - inputs * hidden[0]  # of states and next states, and by the targets of these; gradients
    if workload.family == "a3c":  # of both networks: forward, and the gradients of weights and of a layer's inputs
        sizes = networks(workload)
        return 4.0 * sizes["critic"].macs + 3.0 * sizes["policy"].macs - 2.0 * inputs * hidden[0]
    return sum(split_macs(workload))


def split_macs(workload: Workload) -> tuple[float, float]:
    """The part of ``step_macs`` that an actor-critic algorithm's policy takes, and that of its critics.

    >>> from impls.training import load
    >>> split_macs(load("hopper_sac"))
    (276736.0, 819712.0)
    """
    hidden, actions, inputs = workload.network.hidden, workload.action_size, math.prod(workload.observation.stacked)
    critics, is_sac = 1 if workload.family == "ddpg" else 2, workload.family == "sac"
    policy, critic = networks(workload)["policy"].macs, networks(workload)["critic"].macs // critics
    seen = critics if is_sac else 1  # critics through which the policy learns
    every = workload.learner.policy_delay if workload.family == "td3" else 1
    judging = critics * (4 * critic - (inputs + actions) * hidden[0])
    aiming = seen * (2 * critic - inputs * hidden[0])
    return policy + (3 * policy - inputs * hidden[0]) / every, judging + aiming / every


def layout_of(workload: Workload) -> Layout:
    """Layout of a record of the workload."""
    seen = workload.observation
    choices = workload.action.choices if workload.has_choices else 0
    return Layout(seen.shape, seen.dtype, seen.frames, choices, 0 if choices else workload.action_size)
