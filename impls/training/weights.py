"""The layers of a workload's networks: their sizes, and their weights as one flat vector, whatever computes with them.

Networks follow one another in the order of ``layers``, each with its parameters in torch's order: of every layer the
weight ``[outputs, inputs]`` (of a convolution ``[outputs, channels, kernel, kernel]``), then the bias ``[outputs]``.
The networks that have a target come first, so the targets are a vector of the same order, cut off after them.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..replay import Layout
from .workload import Workload

CONVOLUTIONS = ((32, 8, 4, 4), (64, 4, 2, 2), (64, 3, 1, 1))
"""(channels, kernel, stride, padding) of a layer: [Zhang2022, Table 5.1], padded so that 84x84 becomes 22, 12, 12."""
Shapes = tuple[tuple[int, ...], ...]
_INITIAL = 5  # sets these random numbers apart from the other uses of a seed


class Size(NamedTuple):
    """Multiply-accumulates (MACs) and parameters of a network."""

    macs: int
    parameters: int


class Layer(NamedTuple):
    """A layer with biases: the ``shape`` of its weight, and at how many ``places`` of an image it is applied."""

    shape: tuple[int, ...]
    places: int = 1


def dense(*sizes: int) -> tuple[Layer, ...]:
    """Dense layers of these numbers of units, inputs first.

    [Zhang2023, Table III] prints 137 and 70.1K as MACs of its two critics; those are parameters, with one input more
    than |S| + |A|:

    >>> size_of(dense(4 + 1 + 1, 8, 8, 1)), size_of(dense(11 + 3 + 1, 256, 256, 1))
    (Size(macs=120, parameters=137), Size(macs=69632, parameters=70145))
    """
    return tuple(Layer((outputs, inputs)) for inputs, outputs in itertools.pairwise(sizes))


def convolutions(channels: int, height: int, width: int) -> tuple[tuple[Layer, ...], int]:
    """(layers, outputs) of the convolutions for images ``[channels, height, width]``."""
    found: tuple[Layer, ...] = ()
    for out, kernel, stride, padding in CONVOLUTIONS:
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        found, channels = (*found, Layer((out, channels, kernel, kernel), height * width)), out
    return found, channels * height * width


def layers(workload: Workload) -> dict[str, tuple[Layer, ...]]:
    """Layers of each network that a learner trains, by its name there; two critics' one after the other's."""
    hidden, size = workload.network.hidden, workload.action_size
    first: tuple[Layer, ...] = ()
    inputs = math.prod(workload.observation.stacked)
    if workload.network.kind == "convolution":
        first, inputs = convolutions(*workload.observation.stacked)
    traits = workload.traits
    if not traits.has_policy:
        return {"action_values": first + dense(inputs, *hidden, size + workload.network.dueling)}
    critic = first + dense(inputs + (0 if workload.has_choices else size), *hidden, 1)
    policy = first + dense(inputs, *hidden, size * traits.outputs)
    return {"critic": critic * traits.critics, "policy": policy}


def list_value_layers(workload: Workload) -> tuple[Layer, ...]:
    """Layers of the value network of dqn; none where an algorithm trains a policy too."""
    return () if workload.traits.has_policy else layers(workload)["action_values"]


def size_of(network: Sequence[Layer]) -> Size:
    """Size of some layers together."""
    weights = sum(math.prod(layer.shape) for layer in network)
    macs = sum(math.prod(layer.shape) * layer.places for layer in network)
    return Size(macs, weights + sum(layer.shape[0] for layer in network))


def networks(workload: Workload) -> dict[str, Size]:
    """Size of each network that a learner trains, by its name there.

    >>> from impls.training import load
    >>> networks(load("pong_dqn"))["action_values"]                    # [Zhang2023, Table III] prints 18.8M MACs
    Size(macs=18713600, parameters=4800166)
    """
    return {name: size_of(network) for name, network in layers(workload).items()}


def shapes(workload: Workload) -> dict[str, Shapes]:
    """Shapes of the parameters of each network, in order; SAC's temperature is a number of its own.

    >>> from impls.training import load
    >>> shapes(load("cartpole_dqn"))
    {'action_values': ((128, 4), (128,), (128, 128), (128,), (2, 128), (2,))}
    """
    found: dict[str, Shapes] = {
        name: tuple(shape for layer in network for shape in (layer.shape, layer.shape[:1]))
        for name, network in layers(workload).items()
    }
    return found | ({"temperature": ((),)} if workload.traits.tunes else {})


def spans(workload: Workload) -> dict[str, slice]:
    """The part of the vector that each network has.

    >>> from impls.training import load
    >>> spans(load("cartpole_ddpg"))
    {'critic': slice(0, 129, None), 'policy': slice(129, 250, None)}
    """
    counts = {name: sum(map(math.prod, each)) for name, each in shapes(workload).items()}
    ends = [0, *itertools.accumulate(counts.values())]
    return {name: slice(*span) for name, span in zip(counts, itertools.pairwise(ends), strict=True)}


def target_count(workload: Workload) -> int:
    """How many weights have a target: the first ones of the vector."""
    return max((spans(workload)[name].stop for name in workload.traits.targets), default=0)


def initial(workload: Workload, seed: int) -> NDArray[np.float32]:
    """Initial weights ``[P]`` by a seed: uniform in +-1/sqrt(inputs of the layer), as torch's layers begin.

    The logarithm of SAC's temperature begins at that of the workload's, or of 1 where it is tuned.
    """
    rng, parts = np.random.default_rng([seed, _INITIAL]), list[NDArray[np.float32]]()
    for name, each in shapes(workload).items():
        bound = 1.0
        for shape in each:
            if name == "temperature":
                parts.append(np.full(1, math.log(workload.learner.temperature or 1.0), np.float32))
                continue
            if len(shape) > 1:  # a weight; its bias follows, and has the same bound
                bound = 1 / math.sqrt(math.prod(shape[1:]))
            parts.append(rng.uniform(-bound, bound, math.prod(shape)).astype(np.float32))
    return np.concatenate(parts)


def average(models: Sequence[NDArray[np.float32]], shares: Sequence[float] | None = None) -> NDArray[np.float32]:
    """The weighted mean ``[P]`` of k models' weights ``[P]`` [Zhang2022, section 5.2], by default in equal ``shares``.

    ValueError for no models, models of another number of weights, or another number of shares.
    """
    if not len(models) or any(len(model) != len(models[0]) for model in models):
        raise ValueError("models to be averaged must have the same weights, and there must be one at least")
    parts = np.full(len(models), 1.0) if shares is None else np.asarray(shares, np.float64)
    if len(parts) != len(models):
        raise ValueError(f"{len(parts)} shares for {len(models)} models")
    return np.average(np.stack(models), 0, parts).astype(np.float32)


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
    if not workload.traits.has_policy:
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
