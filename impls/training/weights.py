"""The weights of a workload's networks as one flat vector, whatever implementation computes with them.

Networks follow one another in the order of ``shapes``, each with its parameters in torch's order: of every layer the
weight ``[outputs, inputs]`` (of a convolution ``[outputs, channels, kernel, kernel]``), then the bias ``[outputs]``.
The networks that have a target come first, so the targets are a vector of the same order, cut off after them.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .algorithm import CONVOLUTIONS, convolutions
from .workload import Workload

Shapes = tuple[tuple[int, ...], ...]
TARGETS = {
    "dqn": ("action_values",),
    "ddpg": ("critic", "policy"),
    "td3": ("critic", "policy"),
    "sac": ("critic",),
    "a3c": (),
}
"""The networks of an algorithm that have a target."""
_INITIAL = 5  # sets these random numbers apart from the other uses of a seed


def shapes(workload: Workload) -> dict[str, Shapes]:
    """Shapes of the parameters of each network, in order.

    >>> from impls.training import load
    >>> shapes(load("cartpole_dqn"))
    {'action_values': ((128, 4), (128,), (128, 128), (128,), (2, 128), (2,))}
    """
    hidden, size = workload.network.hidden, workload.action_size
    first, inputs = _features(workload)
    if workload.family == "dqn":
        return {"action_values": first + _dense((inputs, *hidden, size + workload.network.dueling))}
    critic = first + _dense((inputs + (0 if workload.has_choices else size), *hidden, 1))
    if workload.family in ("ddpg", "a3c"):
        return {"critic": critic, "policy": first + _dense((inputs, *hidden, size))}
    if workload.family == "td3":
        return {"critic": critic * 2, "policy": first + _dense((inputs, *hidden, size))}
    return {"critic": critic * 2, "policy": first + _dense((inputs, *hidden, 2 * size)), "temperature": ((),)}


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
    return max((spans(workload)[name].stop for name in TARGETS[workload.family]), default=0)


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


def _features(workload: Workload) -> tuple[Shapes, int]:
    """(shapes of the convolutions, outputs that go into the dense layers)"""
    if workload.network.kind != "convolution":
        return (), math.prod(workload.observation.stacked)
    channels, height, width = workload.observation.stacked
    found: Shapes = ()
    inputs = channels
    for out, kernel, _, _ in CONVOLUTIONS:
        found, inputs = (*found, (out, inputs, kernel, kernel), (out,)), out
    return found, convolutions(channels, height, width)[1]


def _dense(sizes: tuple[int, ...]) -> Shapes:
    return tuple(shape for inputs, outputs in itertools.pairwise(sizes) for shape in ((outputs, inputs), (outputs,)))
