"""A gradient step of DQN layer by layer: the seconds of each layer on a device, and the fastest split over devices.

[Zhang2022, section 6.2.2] names it as future work: convolutions on a GPU, dense layers on the processor. A layer's
forward and backward passes and its update lie on one device, where its weights are; activations, and their gradients
on the way back, are sent where the next layer lies on another. A gradient step is one chain, which waits for each of
its layers, because the next step needs the weights that this one makes.

Letters: L layers of the network, B batch.
"""

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from impls.training import Workload
from impls.training.weights import CONVOLUTIONS, Layer, list_value_layers, size_of

from ..estimate import Estimate
from ..platforms import Device
from . import laws
from .learners import NOT_RUN, Learner
from .lookup import Lookup

ALGORITHM = "dqn"
FORWARD, BACKWARD = "layer forward", "layer backward"
Paths = dict[tuple[str, frozenset[str]], tuple[float, tuple[str, ...]]]
"""(seconds, a device for each layer so far) by the last layer's device and the devices used."""


@dataclass(frozen=True)
class Split:
    """A network's layers on several devices: a device's name for each layer ``[L]``, and seconds of a gradient step."""

    devices: tuple[str, ...]
    seconds: float

    @property
    def used(self) -> tuple[str, ...]:
        """The devices, the first layer's first."""
        return tuple(dict.fromkeys(self.devices))


def split_step(asked: Lookup, device: Device, learner: Learner, step: Estimate) -> list[float]:
    """Return the seconds of each layer ``[L]`` on a device, which add up to those of the whole ``step`` there.

    A layer's are its passes as they were timed alone there, else by the roofline of its work and the operations that it
    dispatches. The last layer has the rest of the step too: the loss, and what is dispatched for no layer.
    """
    threads = learner.details.get("threads", 1)
    known = _list_recorded(asked, device, threads) or _list_by_law(asked, device, step, threads)
    fits = min(1.0, step.value / sum(known))  # timed alone, all may take a little more than in a step
    *others, last = (fits * seconds for seconds in known)
    return [*others, last + step.value - fits * sum(known)]


def _list_recorded(asked: Lookup, device: Device, threads: int) -> list[float]:
    """List the seconds of all passes of each layer as recorded on a device; none where a pass was not timed."""
    table, passes = asked.table_of(device), ((FORWARD, count_forward(asked.workload)), (BACKWARD, 1))
    where, found = "cuda" if device.kind == "gpu" else "cpu", list[float]()
    for layer in range(1, len(list_value_layers(asked.workload)) + 1):
        known = [
            (table.time(what, asked.batch, threads, layer=layer, device=where) if table else None, times)
            for what, times in passes
        ]
        found.append(sum(times * time.value if time else math.inf for time, times in known))
    return found if sum(found) < math.inf else []


def count_forward(workload: Workload) -> int:
    """Count the forward passes of a gradient step: both networks, and the trained one on next states if double."""
    return 3 if workload.learner.double else 2


def _list_by_law(asked: Lookup, device: Device, step: Estimate, threads: int) -> list[float]:
    """List the seconds of each layer by a roofline and its operations, as many times slower as the step is than its."""
    host, workload, batch = asked.cpu, asked.workload, asked.batch
    whole = laws.learner(host, device, workload, batch, threads).value
    _, dense, convolutions = laws.OPERATIONS[ALGORITHM]
    peak = laws.peak(device)
    if device.kind == "cpu":
        peak *= laws.speed_up(threads, laws.AS_FITTED.learner_contention)[0] / laws.cores_of(device)
    found = list[float]()
    for layer in list_value_layers(workload):
        size, operations = size_of((layer,)), dense if layer.places == 1 else convolutions / len(CONVOLUTIONS)
        nbytes = size.parameters * laws.FLOAT_BYTES * laws.ADAM_ARRAYS
        work = laws.Work(laws.PASSES[ALGORITHM][0] * size.macs, nbytes, operations)
        dispatch = laws.AS_FITTED.operation_launches * operations * laws.launch(device)
        found.append(laws.roofline(work, batch, peak, laws.bandwidth(device), dispatch) * step.value / whole)
    return found


def list_splits(asked: Lookup, times: Mapping[str, Sequence[float]]) -> Iterator[Split]:
    """Yield the fastest split for each first device and each set of two devices or more that it is in.

    ``times``: seconds of each layer ``[L]`` by the device's name. Exact: of all paths through the chain that end in a
    layer on one device and have used the same devices, no longer one is part of a shorter whole.
    """
    network = list_value_layers(asked.workload)
    for first in times:
        # Invariant: ``paths`` has, by (device of the layer, devices used), the shortest way up to the layer.
        paths: Paths = {(first, frozenset((first,))): (times[first][0], (first,))}
        for number in range(1, len(network)):
            longer: Paths = {}
            for ((before, used), (seconds, path)), device in itertools.product(paths.items(), times):
                spent = seconds + times[device][number] + send_between(asked, network[number - 1], before, device)
                key = device, used | {device}
                longer[key] = min(longer.get(key, (spent, (*path, device))), (spent, (*path, device)))
            paths = longer
        best: dict[frozenset[str], Split] = {}
        for (last, used), (seconds, path) in paths.items():
            errors = asked.transfer_seconds(last, first, laws.FLOAT_BYTES * asked.batch) if last != first else 0.0
            split = Split(path, seconds + errors)
            best[used] = min(best.get(used, split), split, key=lambda known: (known.seconds, known.devices))
        yield from (split for used, split in best.items() if len(used) > 1)


def send_between(asked: Lookup, layer: Layer, source: str, target: str) -> float:
    """Return the seconds of a layer's outputs to the next one's device in each forward pass, and gradients back."""
    if source == target:
        return 0.0
    nbytes = laws.FLOAT_BYTES * asked.batch * layer.shape[0] * layer.places
    return count_forward(asked.workload) * asked.transfer_seconds(source, target, nbytes) + asked.transfer_seconds(
        target, source, nbytes
    )


def estimate_split(
    asked: Lookup, split: Split, times: Mapping[str, Sequence[float]], steps: Mapping[str, Estimate], evidence_id: str
) -> Estimate:
    """Return the time of a split: each device's share of it is as unsure as the whole ``steps`` there."""
    spent = [times[name][layer] for layer, name in enumerate(split.devices)]
    factors = [max(laws.GPU_FACTOR, steps[name].factor) for name in split.devices]
    factor = sum(map(operator.mul, spent, factors)) / sum(spent)
    told = "; ".join(dict.fromkeys(steps[name].rests_on.description for name in split.used))
    description = "; ".join(("/".join(split.devices), told, NOT_RUN))
    assumed = tuple(dict.fromkeys(itertools.chain(*(steps[name].rests_on.assumed for name in split.used))))
    return asked.modeled(laws.law(split.seconds, factor, description, assumed), evidence_id)


def count_bytes(workload: Workload, batch: int, split: Split, device: str) -> float:
    """Count the bytes that layers keep on a device: 16 a parameter, and for each sample outputs with gradients."""
    own = [layer for layer, name in zip(list_value_layers(workload), split.devices, strict=True) if name == device]
    outputs = sum(layer.shape[0] * layer.places for layer in own)
    return float(laws.FLOAT_BYTES * (4 * size_of(own).parameters + 2 * batch * outputs))
