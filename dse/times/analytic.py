"""What nobody measured, from a platform's numbers and laws with a few measured constants. Every interval is wide.

The constants are rounded from one machine's profiles (d7dae63b89: one core of an EPYC server, PyTorch and NumPy), and
so are the factors: each law lies within its factor of nine in ten of that machine's own cells, which a test recomputes.
On another machine nothing tells how far off they are: a law is good for what bounds a step, not for a close call.

Letters: B batch, x cores, N capacity, K fanout. Times are seconds of one call.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from impls.fpga.network import Network, parse
from impls.training import Workload
from impls.training.sizes import CONVOLUTIONS, networks

from ..platforms import Device, Platform
from . import estimates

FRAMEWORK_SECONDS = 0.6e-3  # Python and PyTorch around a gradient step on a small network
LEARNER_FACTOR = 2.5
TREE_CALL_SECONDS, TREE_UPDATE_SHARE, TREE_FACTOR = 1e-6, 0.5, 3.0  # an update works through a shared group once
ROWS_CALL_SECONDS, ROW_SECONDS, ROWS_FACTOR = 3e-6, 0.05e-6, 2.0  # of NumPy, to gather rows or to write them
FIELDS, BURST_SECONDS = 5, 1e-6  # of a record; of a memory that is asked for rows
FETCH_SECONDS, FETCH_BYTES_PER_S, FETCH_FACTOR = 120e-6, 10e9, 2.5  # weights into an actor's networks
ACTOR_SECONDS, ACTOR_FACTOR = 0.15e-3, 5.0  # of an environment step with inference, where no profile has it
ELSEWHERE_FACTOR = 2.5  # between one core and another, of what was measured on another machine
ACTOR_CONTENTION, LEARNER_CONTENTION = 0.11, 0.33  # of the law of Amdahl, from one and two cores
GPU_FACTOR = 3.0
FPGA_RMM_FACTOR, FPGA_LEARNER_FACTOR = 1.25, 2.0  # equals simulated hardware; clock and placement are not checked
ADAM_ARRAYS = 7  # weights, gradients and two moments are read, all but gradients written
PASSES = {"dqn": (5, 0), "ddpg": (6, 4), "td3": (5, 3), "sac": (6, 4)}
"""By algorithm: how often a step's MACs of the value networks, and of the policy, are done: forward 1, backward 2."""


@dataclass(frozen=True)
class Law:
    """Seconds that are right within ``factor``, and what they come from."""

    seconds: float
    factor: float
    told: str


def scaled(one: float, cores: int, contention: float) -> tuple[float, float]:
    """(how many times as fast x cores are, its factor): between Amdahl's law with the contention, and linear."""
    amdahl = cores / (1 + contention * (cores - 1))
    return one * math.sqrt(amdahl * cores), math.sqrt(cores / amdahl)


def doubled(most: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def pace(host: Device) -> float:
    """How many times as long Python takes on a processor as where the constants are from, by its clock."""
    return estimates.CPU_HZ / host.clock_hz.value if host.clock_hz else 1.0


def learner(host: Device, device: Device, workload: Workload, batch: int, cores: int = 1) -> Law:
    """A gradient step in a framework on a host: its own time, then arithmetic or memory, whichever takes longer."""
    framework = FRAMEWORK_SECONDS * pace(host)
    sizes = networks(workload)
    often = PASSES[workload.algorithm]
    macs = sum(size.macs * often[name == "policy"] for name, size in sizes.items())
    weights = sum(size.parameters for size in sizes.values()) * estimates.FLOAT_BYTES * ADAM_ARRAYS
    peak = estimates.peak(estimates.Used(), device)
    factor = LEARNER_FACTOR
    if device.kind == "cpu":
        speedup, more = scaled(1.0, cores, LEARNER_CONTENTION)
        peak, factor = peak / _cores(device) * speedup, factor * more
    worked = max(2 * macs * batch / peak, weights / _bandwidth(device))
    if device.kind == "gpu":
        launch = device.launch_seconds.value if device.launch_seconds else 0.0
        calls = 3 * (len(workload.network.hidden) + 1) * launch
        told = f"the larger of {framework * 1e3:.2g} ms of a framework and launches, and a roofline on top"
        return Law(max(framework, calls) + worked, GPU_FACTOR, told)
    told = f"{framework * 1e3:.2g} ms of a framework and a roofline on {cores} of {_cores(device):g} cores"
    return Law(framework + worked, factor, told)


def training_bytes(device: Device, workload: Workload, batch: int) -> float:
    """What a gradient step holds in a device's memory beside its records, an estimate.

    In a framework: 16 bytes a parameter (weights, gradients, two moments), and for each sample of the batch every
    layer's outputs with their gradients. An FPGA has both in its slices, counted there.
    """
    if device.kind == "fpga":
        return 0.0
    network, factor = network_of(workload)
    outputs = factor * sum(layer.outputs for layer in network.layers)
    parameters = sum(size.parameters for size in networks(workload).values())
    return estimates.FLOAT_BYTES * (4 * parameters + 2 * batch * outputs)


def tree(
    platform: Platform, device: Device, capacity: int, fanout: int, batch: int, threads: int = 1
) -> tuple[Law, Law]:
    """(draw, update) of a compiled tree on a CPU or a GPU, by the memory its levels lie in."""
    alone = replace(platform, devices=(device,), links=())
    rows = estimates.rows(alone, estimates.Asked(capacity, fanout, batch))
    what = "sample a batch, one core" if device.kind == "cpu" else "sample a batch"
    spent = next(row.value for row in rows if row.what == what) or 0.0
    if device.kind == "gpu":
        law = Law(spent, GPU_FACTOR, "a launch and what its levels read from the GPU's memory")
        return law, law
    speedup, more = scaled(1.0, threads, ACTOR_CONTENTION)
    call = TREE_CALL_SECONDS * pace(device)
    told = f"{call * 1e6:.2g} us of a call and what its levels read from caches and memory"
    draw = Law(call + spent / speedup, TREE_FACTOR * more, told)
    return draw, replace(draw, seconds=call + TREE_UPDATE_SHARE * spent / speedup)


def rows_moved(device: Device, count: float, nbytes: float) -> Law:
    """Records gathered from, or written to, random places of a device's memory."""
    through = 2 * nbytes / _bandwidth(device)
    if device.kind == "cpu":
        call, each = ROWS_CALL_SECONDS * pace(device), ROW_SECONDS * pace(device)
        told = f"{call * 1e6:.2g} us of NumPy, {each * 1e9:.2g} ns a record, and memory bandwidth"
        return Law(call + each * count + through, ROWS_FACTOR, told)
    if device.kind == "fpga":
        return Law(BURST_SECONDS + through, GPU_FACTOR, "one burst through the card's memory, by its bandwidth")
    launch = device.launch_seconds.value if device.launch_seconds else BURST_SECONDS
    return Law(FIELDS * launch + through, GPU_FACTOR, f"a launch for each of {FIELDS} fields, and memory bandwidth")


def fetch(nbytes: float) -> Law:
    """A network's weights out of shared memory."""
    return Law(FETCH_SECONDS + nbytes / FETCH_BYTES_PER_S, FETCH_FACTOR, "weights through shared memory")


def network_of(workload: Workload) -> tuple[Network, float]:
    """(the value network that an FPGA trains, factor on its cycles for a policy beside it).

    A convolution's padding is that of seed 4's Table 5.1. A policy is charged by its MACs, in turns on the same units.
    """
    sizes = networks(workload)
    hidden, actions = workload.network.hidden, workload.action_size
    layers = [*map(str, hidden), str(actions if workload.algorithm == "dqn" else 1)]
    stacked = workload.observation.stacked
    if workload.network.kind == "convolution":
        shape = "x".join(map(str, stacked))
        filters = [f"{out}k{kernel}s{stride}p{padding}" for out, kernel, stride, padding in CONVOLUTIONS]
        text = "-".join([f"conv:{shape}", *filters, *layers])
    else:
        inputs = math.prod(stacked) + (0 if workload.algorithm == "dqn" else actions)
        text = "-".join([f"mlp:{inputs}", *layers])
    network = parse(text)
    return network, max(1.0, sum(size.macs for size in sizes.values()) / network.macs)


# Numbers of a device


def clock_of(device: Device) -> float:
    """Hz, 0 where none is stated."""
    return device.clock_hz.value if device.clock_hz else 0.0


def _cores(device: Device) -> float:
    return device.cores.value if device.cores else 1


def _bandwidth(device: Device) -> float:
    """Bytes a second of its memory; of a miss after the other where nothing is stated."""
    memory = device.memory
    for stated in (memory.bandwidth_bytes_per_s, memory.copy_bytes_per_s) if memory else ():
        if stated:
            return stated.value
    return estimates.OVERLAP * 64 / estimates.MEMORY_SECONDS


def budgets(device: Device) -> Iterator[tuple[str, float]]:
    """(name, amount) of all that options take of a device, slice by slice of an FPGA."""
    if device.kind == "cpu":
        yield f"{device.name}.cores", _cores(device)
    if device.memory:
        yield f"{device.name}.memory_bytes", device.memory.size_bytes.value
    for part in device.slices:
        for name, amount in part.usable().items():
            yield f"{device.name}.{part.name}.{name}", float(amount)
