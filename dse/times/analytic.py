"""What nobody measured, from a platform's numbers and laws with a few measured constants. Every interval is wide.

The constants are rounded from one machine's profiles (d7dae63b89: one core of an EPYC server, PyTorch and NumPy), and
so are the factors: each law lies within its factor of nine in ten of that machine's own cells, which a test recomputes.
On another machine nothing tells how far off they are: a law is good for what bounds a step, not for a close call.

Letters: B batch, x cores, N capacity, K fanout. Times are seconds of one call.
"""

import math
from collections.abc import Iterator

from impls.fpga.network import Network, parse
from impls.training import Workload
from impls.training.sizes import CONVOLUTIONS, layout_of, networks

from ..estimate import Estimate, Evidence
from ..fpga.placement import Placed
from ..platforms import Device
from . import hardware
from .hardware import FLOAT_BYTES, Known, Work, assumed, bandwidth

FRAMEWORK_SECONDS = 0.6e-3  # Python and PyTorch around a gradient step on a small network
LEARNER_FACTOR = 2.5
TREE_CALL_SECONDS, TREE_UPDATE_SHARE, TREE_FACTOR = 1e-6, 0.5, 3.0  # an update works through a shared group once
ROWS_CALL_SECONDS, ROW_SECONDS, ROWS_FACTOR = 3e-6, 0.05e-6, 2.0  # NumPy gathers rows or writes them
FIELDS, BURST_SECONDS = 5, 1e-6  # fields of a record; what a memory takes to begin a burst of rows
FETCH_SECONDS, FETCH_BYTES_PER_S, FETCH_FACTOR = 120e-6, 10e9, 2.5  # weights into an actor's networks
ACTOR_SECONDS, ACTOR_FACTOR = 0.15e-3, 5.0  # an environment step with inference, where no profile has it
ELSEWHERE_FACTOR = 2.5  # between one core and another, for what was measured on another machine
ACTOR_CONTENTION, LEARNER_CONTENTION = 0.11, 0.33  # in the law of Amdahl, from one and two cores
GPU_FACTOR = 3.0
FPGA_RMM_FACTOR, FPGA_LEARNER_FACTOR = 1.25, 2.0  # equals simulated hardware; clock and placement are not checked
ADAM_ARRAYS = 7  # weights, gradients and two moments are read, all but gradients written
PASSES = {"dqn": (5, 0), "ddpg": (6, 4), "td3": (5, 3), "sac": (6, 4)}
"""By algorithm: how often a step's MACs of the value networks, and of the policy, are done: forward 1, backward 2."""


def law(seconds: float, factor: float, description: str) -> Estimate:
    """Seconds that are right within ``factor``; ``Parts.modeled`` says which part's evidence they are."""
    return Estimate.within(seconds, factor, Evidence("law", "modeled", description))


def scaled(one: float, cores: int, contention: float) -> tuple[float, float]:
    """(how many times as fast x cores are, its factor): between Amdahl's law with the contention, and linear."""
    amdahl = cores / (1 + contention * (cores - 1))
    return one * math.sqrt(amdahl * cores), math.sqrt(cores / amdahl)


def doubled(most: int) -> list[int]:
    """Powers of two up to a number."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def pace(host: Device) -> float:
    """How many times as long Python takes on a processor as where the constants are from, by its clock."""
    return hardware.CPU_HZ / hardware.clock(host).value


# Gradient steps


def work_of(workload: Workload) -> Work:
    """A whole gradient step of an algorithm: all its networks, with the moments of Adam."""
    sizes, often = networks(workload), PASSES[workload.algorithm]
    macs = sum(size.macs * often[name == "policy"] for name, size in sizes.items())
    weights = sum(size.parameters for size in sizes.values()) * FLOAT_BYTES * ADAM_ARRAYS
    return Work(macs, weights, hardware.PASSES * (len(workload.network.hidden) + 1))


def learner(host: Device, device: Device, workload: Workload, batch: int, cores: int = 1) -> Estimate:
    """A gradient step in a framework on a host: its own time and the roofline of x cores, or of a GPU."""
    framework, peak, factor = FRAMEWORK_SECONDS * pace(host), hardware.peak(device), GPU_FACTOR
    scope = f"whole gradient step of {workload.algorithm.upper()} in a framework:"
    description = f"{scope} the larger of its own {framework * 1e3:.2g} ms and the launches, and a roofline on top"
    if device.kind == "cpu":
        speedup, more = scaled(1.0, cores, LEARNER_CONTENTION)
        there = hardware.stated(device.cores, 1)
        peak, factor = peak / there * assumed(speedup), LEARNER_FACTOR * more
        description = f"{scope} {framework * 1e3:.2g} ms of its own and a roofline on {cores} of {there.value:g} cores"
    step = hardware.roofline(device, work_of(workload), batch, peak, bandwidth(device), assumed(framework))
    return law(step.value, factor, description)


def fpga_step(device: Device, design: Placed, factor: float) -> Known:
    """Seconds of a gradient step by the cycle law of [Zhang2023, VI-A2], times a factor for networks beside it."""
    return design.point.cycles * factor / hardware.clock(device)


def fpga_learner(device: Device, design: Placed, factor: float, workload: Workload) -> Estimate:
    """A gradient step of a whole algorithm by a design on an FPGA."""
    description = (
        f"whole gradient step of {workload.algorithm.upper()} without a framework: cycle law of [Zhang2023, VI-A2] at "
        f"{clock_of(device) / 1e6:g} MHz (not simulated)"
    )
    if factor > 1:
        description += f", times {factor:.2f} for the other networks"
    return law(fpga_step(device, design, factor).value, FPGA_LEARNER_FACTOR, description)


def training_bytes(device: Device, workload: Workload, batch: int) -> float:
    """What a gradient step keeps in a device's memory beside its records, an estimate.

    In a framework: 16 bytes a parameter (weights, gradients, two moments), and for each sample of the batch every
    layer's outputs with their gradients. An FPGA has both in its slices, counted there.
    """
    if device.kind == "fpga":
        return 0.0
    network, factor = network_of(workload)
    outputs = factor * sum(layer.outputs for layer in network.layers)
    parameters = sum(size.parameters for size in networks(workload).values())
    return FLOAT_BYTES * (4 * parameters + 2 * batch * outputs)


def network_of(workload: Workload) -> tuple[Network, float]:
    """(the value network that an FPGA trains, factor on its cycles for the networks beside it).

    A convolution's padding is that of [Zhang2022, Table 5.1]. Other networks are charged by their MACs, in turns on the
    same units.
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


# Trees, records and weights


def tree(
    device: Device, capacity: int, fanout: int, batch: int, threads: int = 1, insertions: float = 0.0, leaves: int = 1
) -> tuple[Estimate, Estimate]:
    """(draw, update with so many insertions of ``leaves``) of a compiled tree on a CPU or a GPU.

    Its time is that of reading its levels in the memories they lie in, and a call. An insertion of a GPU is charged as
    an update of a batch: both are a launch.
    """
    if device.kind == "gpu":
        seconds = hardware.gpu_descent(device, capacity, fanout, batch).value
        description = "a launch and what its levels read from the GPU's memory"
        return law(seconds, GPU_FACTOR, description), law(seconds * (1 + insertions), GPU_FACTOR, description)
    each, call = hardware.descent(device, capacity, fanout).value, TREE_CALL_SECONDS * pace(device)
    speedup, more = scaled(1.0, threads, ACTOR_CONTENTION)
    description = f"{call * 1e6:.2g} us of a call and what its levels read from caches and memory"
    insert = call + TREE_UPDATE_SHARE * (leaves * each)
    update = call + TREE_UPDATE_SHARE * (batch * each) / speedup + insert * insertions
    draw = call + batch * each / speedup
    return law(draw, TREE_FACTOR * more, description), law(update, TREE_FACTOR * more, description)


def records_read(workload: Workload) -> int:
    """Records that a learner reads for one of its batch: stacked frames are gathered out of several."""
    frames = layout_of(workload).frames
    return frames + 1 if frames > 1 else 1


def rows_moved(device: Device, count: float, nbytes: float, more_seconds: float = 0.0) -> Estimate:
    """Records gathered from, or written to, random places of a device's memory; ``more_seconds`` for others."""
    through, factor = 2 * nbytes / bandwidth(device).value, GPU_FACTOR
    if device.kind == "cpu":
        call, each = ROWS_CALL_SECONDS * pace(device), ROW_SECONDS * pace(device)
        seconds, factor = call + each * count + through, ROWS_FACTOR
        description = f"{call * 1e6:.2g} us of NumPy, {each * 1e9:.2g} ns a record, and memory bandwidth"
    elif device.kind == "fpga":
        seconds, description = BURST_SECONDS + through, "one burst through the card's memory, by its bandwidth"
    else:
        launch = hardware.stated(device.launch_seconds, BURST_SECONDS).value
        seconds = FIELDS * launch + through
        description = f"a launch for each of {FIELDS} fields, and memory bandwidth"
    return law(seconds + more_seconds, factor, description)


def fetch(nbytes: float) -> Estimate:
    """A network's weights out of shared memory."""
    return law(FETCH_SECONDS + nbytes / FETCH_BYTES_PER_S, FETCH_FACTOR, "weights through shared memory")


# Budgets


def clock_of(device: Device) -> float:
    """The clock in Hz, 0 where none is stated."""
    return hardware.stated(device.clock_hz).value


def budgets(device: Device) -> Iterator[tuple[str, float]]:
    """(name, amount) of all that options take of a device, slice by slice of an FPGA."""
    if device.kind == "cpu":
        yield f"{device.name}.cores", hardware.stated(device.cores, 1).value
    if device.memory:
        yield f"{device.name}.memory_bytes", device.memory.size_bytes.value
    for part in device.slices:
        for name, amount in part.usable().items():
            yield f"{device.name}.{part.name}.{name}", float(amount)
