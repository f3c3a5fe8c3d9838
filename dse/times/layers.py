"""A gradient step of DQN layer by layer: the seconds of each layer on a device, and the fastest split over devices.

[Zhang2022, section 6.2.2] names it as future work: convolutions on a GPU, dense layers on the processor. A layer's
forward and backward passes and its update lie on one device, where its weights are; activations, and their gradients
on the way back, are sent where the next layer lies on another. Whole batches and passes follow one another, as torch
runs them: what could overlap (the forward passes, parts of a batch) does not, so that the gain may be larger. Links are
not busy for what layers send each other, and each device of a split takes all that its whole step takes beyond layers.

Letters: L layers of the network, B batch.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from impls.training import Workload
from impls.training.weights import CONVOLUTIONS, Layer, list_value_layers, size_of

from ..estimate import Estimate
from ..platforms import Device
from ..records import benchmark
from . import laws
from .learners import NOT_RUN, Learner
from .lookup import Lookup

ALGORITHM = "dqn"
FORWARD, BACKWARD, UPDATE = "layer forward", "layer backward", "layer update"
Paths = dict[tuple[str, frozenset[str]], tuple[float, tuple[str, ...]]]
"""(seconds, a device for each layer so far) by the last layer's device and the devices used."""


@dataclass(frozen=True)
class DeviceTimes:
    """A whole gradient step on a device: seconds of each layer ``[L]`` and of the ``rest``, and how they are known."""

    layers: tuple[float, ...]
    rest: float
    step: Estimate
    source: str


@dataclass(frozen=True)
class Split:
    """A network's layers on several devices: a device's name for each layer ``[L]``, and seconds of a gradient step."""

    devices: tuple[str, ...]
    seconds: float

    @property
    def used(self) -> tuple[str, ...]:
        """The devices, the first layer's first."""
        return tuple(dict.fromkeys(self.devices))


def split_step(asked: Lookup, device: Device, learner: Learner, step: Estimate) -> DeviceTimes:
    """Divide a whole gradient ``step`` on a device: the seconds of each layer, and of the rest.

    A layer's are its passes and its update as they were timed alone there, else by the roofline of its work and the
    operations that it dispatches. The rest is the loss, and what is dispatched for no layer.
    """
    threads = learner.details.get("threads", 1)
    recorded = _list_recorded(asked, device, threads)
    known = recorded or _list_by_law(asked, device, step, threads)
    fits = min(1.0, step.value / sum(known))  # timed alone, all may take a little more than in a step
    layers = tuple(fits * seconds for seconds in known)
    return DeviceTimes(layers, step.value - sum(layers), step, "timed" if recorded else "modeled")


def _list_recorded(asked: Lookup, device: Device, threads: int) -> list[float]:
    """List the seconds of each layer as recorded on a device; none where a pass or an update was not timed."""
    table, passes = asked.table_of(device), ((FORWARD, count_forward(asked.workload)), (BACKWARD, 1), (UPDATE, 1))
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
        size, operations = size_of((layer,)), dense if len(layer.shape) == 2 else convolutions / len(CONVOLUTIONS)
        nbytes = size.parameters * laws.FLOAT_BYTES * laws.ADAM_ARRAYS
        work = laws.Work(laws.PASSES[ALGORITHM][0] * size.macs, nbytes, operations)
        dispatch = laws.AS_FITTED.operation_launches * operations * laws.launch(device)
        found.append(laws.roofline(work, batch, peak, laws.bandwidth(device), dispatch) * step.value / whole)
    return found


def list_splits(asked: Lookup, times: Mapping[str, DeviceTimes]) -> Iterator[Split]:
    """Yield for each first device the fastest split over all devices of ``times``; none where no link joins them.

    Exact: of all paths through the chain that end in a layer on one device and have used the same devices, no longer
    one is part of a shorter whole.
    """
    network, rests = list_value_layers(asked.workload), math.fsum(known.rest for known in times.values())
    for first in times:
        # Invariant: ``paths`` has, by (device of the layer, devices used), the shortest way up to the layer.
        paths: Paths = {(first, frozenset((first,))): (times[first].layers[0], (first,))}
        for number in range(1, len(network)):
            longer: Paths = {}
            for ((before, used), (seconds, path)), device in itertools.product(paths.items(), times):
                spent = seconds + times[device].layers[number]
                spent += send_between(asked, network[number - 1], before, device)
                key = device, used | {device}
                longer[key] = min(longer.get(key, (spent, (*path, device))), (spent, (*path, device)))
            paths = longer
        whole = list[tuple[float, tuple[str, ...]]]()
        for (last, used), (seconds, path) in paths.items():
            errors = asked.transfer_seconds(last, first, laws.FLOAT_BYTES * asked.batch) if last != first else 0.0
            if used == times.keys() and seconds + errors < math.inf:
                whole.append((seconds + errors + rests, path))
        yield from (Split(path, seconds) for seconds, path in sorted(whole)[:1])


def send_between(asked: Lookup, layer: Layer, source: str, target: str) -> float:
    """Return the seconds of a layer's outputs to the next one's device in each forward pass, and gradients back."""
    if source == target:
        return 0.0
    nbytes = laws.FLOAT_BYTES * asked.batch * layer.shape[0] * layer.places
    return count_forward(asked.workload) * asked.transfer_seconds(source, target, nbytes) + asked.transfer_seconds(
        target, source, nbytes
    )


def estimate_split(asked: Lookup, split: Split, times: Mapping[str, DeviceTimes], evidence_id: str) -> Estimate:
    """Return the time of a split: each device's share of it is as unsure as the whole step there."""
    spent = {name: times[name].rest for name in split.used}
    for layer, name in enumerate(split.devices):
        spent[name] += times[name].layers[layer]
    factors = {name: max(laws.GPU_FACTOR, times[name].step.factor) for name in spent}
    factor = sum(spent[name] * factors[name] for name in spent) / sum(spent.values())
    told = [": ".join((name, times[name].source, times[name].step.rests_on.description)) for name in spent]
    description = "; ".join(("/".join(split.devices), *told, NOT_RUN))
    assumed = tuple(dict.fromkeys(itertools.chain(*(times[name].step.rests_on.assumed for name in spent))))
    known = laws.law(split.seconds, factor, description, assumed).resting_on(id=evidence_id, source="modeled")
    command = benchmark(f"profile --workload {asked.workload_word} --layers")
    return known.resting_on(command=command, topic="profile")


def count_bytes(workload: Workload, batch: int, split: Split, device: str) -> float:
    """Count the bytes that layers keep on a device: 16 a parameter, and for each sample outputs with gradients."""
    own = [layer for layer, name in zip(list_value_layers(workload), split.devices, strict=True) if name == device]
    outputs = sum(layer.shape[0] * layer.places for layer in own)
    return float(laws.FLOAT_BYTES * (4 * size_of(own).parameters + 2 * batch * outputs))
