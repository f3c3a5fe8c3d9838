"""What nobody measured, from a platform's numbers and laws with a few measured constants. Every interval is wide.

The constants are rounded from one machine's profiles (d7dae63b89: one core of an EPYC server, PyTorch and NumPy). The
factors of processors' laws are so wide that they hold for nine in ten cells of a workload, or a machine, that the
constants are fitted without (``reports/laws.py``; a test recomputes them). Those of GPUs, and of learners on
FPGAs, are assumptions: nothing here was timed against them. A law is good for what bounds a step, not for a close call.

Letters: B batch, x cores, N capacity, K fanout. Times are seconds of one call.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from impls.fpga.network import Network, parse
from impls.training import Workload
from impls.training.weights import CONVOLUTIONS, layout_of, networks

from ..estimate import Assumption, Estimate, Evidence
from ..fpga.placement import Placed
from ..platforms import Device
from . import hardware
from .hardware import FLOAT_BYTES, Work, assumed, bandwidth

FRAMEWORK_SECONDS = 0.6e-3  # Python and PyTorch around a gradient step on a small network
LEARNER_FACTOR = 3.5
TREE_CALL_SECONDS, TREE_UPDATE_SHARE, TREE_FACTOR = 1e-6, 0.5, 3.1  # an update works through a shared group once
ROWS_CALL_SECONDS, ROW_SECONDS, ROWS_FACTOR = 3e-6, 0.05e-6, 4.5  # NumPy gathers rows or writes them
FIELDS, BURST_SECONDS = 5, 1e-6  # fields of a record; what a memory takes to begin a burst of rows
FETCH_SECONDS, FETCH_BYTES_PER_S, FETCH_FACTOR = 3e-6, 11e9, 3.5  # weights into an actor's networks: a copy
CACHED_BYTES, CACHED_FASTER = 1 << 17, 3.0  # of weights that a core has at hand: how many, and by how much faster
STATE_DICT_SECONDS = 130e-6  # of a network's arrays by name in place of one vector
ACTOR_SECONDS, ACTOR_FACTOR = 0.15e-3, 27.0  # an environment step with inference, where no profile has it
ELSEWHERE_FACTOR = 7.0  # an environment step on one core and another: three machines differ by up to 6.9x
ACTOR_CONTENTION, LEARNER_CONTENTION = 0.31, 0.3  # in the Universal Scalability Law, from one and two cores
LEARNER_SYNC = 0.08  # of the framework's own time, that a thread more costs a gradient step
COMPILED_SECONDS, COMPILED_MACS_PER_S, COMPILED_FACTOR = 20e-6, 55e9, 4.5  # of a compiled gradient step: its call
COMPILED_ACTING, COMPILED_ACTING_FACTOR = 0.52, 1.9  # of a framework's time between two environment steps: 0.28 to 0.92
TIMED_CORES = 2  # the most that the constants above were timed on
THREADS_FACTOR, PROCESSES_FACTOR = 1.45, 1.6  # of what the law says of two cores, from one as timed
GPU_FACTOR = 3.0  # an assumption
FPGA_RMM_FACTOR, FPGA_LEARNER_FACTOR = 1.25, 2.0  # assumptions on clock and placement; the RMM's cycles are simulated
ADAM_ARRAYS = 7  # weights, gradients and two moments are read, all but gradients written
PASSES = {"dqn": (5, 0), "ddpg": (6, 4), "td3": (5, 3), "sac": (6, 4)}
"""By algorithm: how often a step's MACs of the value networks, and of the policy, are done: forward 1, backward 2."""
UNTESTED = "; no such device was timed, so its factor is an assumption"
SLOWER_ON_ONE = "; its factor is an assumption: a virtual machine with an H200 was 4 to 16 times slower, so time yours"
HELD_OUT = "; its factor held for nine in ten cells of workloads and machines left out of the fit"
HELD_OUT_CORES = HELD_OUT + ", on one core and two"


@dataclass(frozen=True)
class Constants:
    """What the laws take from profiles; ``reports/laws.py`` fits them without what it then predicts."""

    framework_seconds: float = FRAMEWORK_SECONDS
    learner_contention: float = LEARNER_CONTENTION
    learner_sync: float = LEARNER_SYNC
    tree_call_seconds: float = TREE_CALL_SECONDS
    tree_update_share: float = TREE_UPDATE_SHARE
    rows_call_seconds: float = ROWS_CALL_SECONDS
    row_seconds: float = ROW_SECONDS
    fetch_seconds: float = FETCH_SECONDS
    fetch_bytes_per_s: float = FETCH_BYTES_PER_S
    state_dict_seconds: float = STATE_DICT_SECONDS
    actor_seconds: float = ACTOR_SECONDS
    actor_contention: float = ACTOR_CONTENTION


AS_FITTED = Constants()


def law(seconds: float, factor: float, description: str, assumed: tuple[Assumption, ...] = ()) -> Estimate:
    """Seconds with an error bound of ``factor``; ``Lookup.modeled`` says which part's evidence they are."""
    return Estimate.within(seconds, factor, Evidence("law", "modeled", description, assumed=assumed))


def scaled(one: float, cores: int, contention: float) -> tuple[float, float]:
    """(the speedup of x cores, the factor of its error bound).

    x / (1 + a (x - 1)), the Universal Scalability Law [Gunther2007], on the cores that it was fitted to. Two points
    leave its coherence open; so beyond them, the middle of that law without any and of a speedup that keeps growing as
    it does on two cores, with an error bound that reaches both.
    """
    least = cores / (1 + contention * (cores - 1))
    most = max(least, cores / (1 + contention * (TIMED_CORES - 1)))
    return one * math.sqrt(least * most), math.sqrt(most / least)


def together(*factors: float) -> float:
    """The error bound of a product whose factors, each with one of these error bounds, err on their own."""
    return math.exp(math.hypot(*map(math.log, factors)))


def pace(host: Device) -> float:
    """The slowdown of Python on a processor over the one the constants are from, by its clock."""
    return hardware.CPU_HZ / hardware.clock(host).value


def unstated(device: Device, host: Device, *keys: str) -> tuple[Assumption, ...]:
    """What a law assumes of a device for the keys that it needs, and of the host for Python's pace."""
    return tuple(dict.fromkeys([*hardware.assumed_of(host, hardware.CLOCK), *hardware.assumed_of(device, *keys)]))


# Actors


def actor(host: Device, processes: int, constants: Constants = AS_FITTED) -> Estimate:
    """Seconds between two environment steps of each of x processes, with inference."""
    speedup, more = scaled(1.0, processes, constants.actor_contention)
    seconds = constants.actor_seconds * pace(host)
    description = f"{seconds * 1e3:.2g} ms with inference, whatever the environment{HELD_OUT_CORES}"
    return law(seconds / speedup, ACTOR_FACTOR * more, description, unstated(host, host))


# Gradient steps


@functools.cache
def work_of(workload: Workload) -> Work:
    """A whole gradient step of an algorithm: all its networks, with the moments of Adam."""
    sizes, often = networks(workload), PASSES[workload.algorithm]
    macs = sum(size.macs * often[name == "policy"] for name, size in sizes.items())
    weights = sum(size.parameters for size in sizes.values()) * FLOAT_BYTES * ADAM_ARRAYS
    return Work(macs, weights, hardware.PASSES * (len(workload.network.hidden) + 1))


def learner(
    host: Device, device: Device, workload: Workload, batch: int, cores: int = 1, constants: Constants = AS_FITTED
) -> Estimate:
    """A gradient step in a framework on a host: its own time and the roofline of x cores, or of a GPU.

    PlatformError where the numbers of a GPU do not tell.
    """
    framework, peak, factor = constants.framework_seconds * pace(host), hardware.peak(device), GPU_FACTOR
    scope = f"whole gradient step of {workload.algorithm.upper()} in a framework:"
    description = f"{scope} the larger of its own {framework * 1e3:.2g} ms and the launches, and a roofline on top"
    basis = SLOWER_ON_ONE
    if device.kind == "cpu":
        speedup, more = scaled(1.0, cores, constants.learner_contention)
        framework *= 1 + constants.learner_sync * (cores - 1)
        there = hardware.stated(device.cores, 1)
        peak, factor, basis = peak / there * assumed(speedup), LEARNER_FACTOR * more, HELD_OUT_CORES
        description = f"{scope} {framework * 1e3:.2g} ms of its own and a roofline on {cores} of {there.value:g} cores"
    step = hardware.roofline(device, work_of(workload), batch, peak, bandwidth(device), assumed(framework))
    needed = unstated(device, host, hardware.CLOCK, "peak_fp32_tops", hardware.BANDWIDTH)
    return law(step.value, factor, description + basis, needed)


def compiled(host: Device, workload: Workload, batch: int) -> Estimate:
    """A gradient step by a compiled learner on one core of a host: a call, and MACs at a rate that two machines had."""
    macs = work_of(workload).macs * batch
    seconds = pace(host) * (COMPILED_SECONDS + macs / COMPILED_MACS_PER_S)
    if host.peak_fp32_ops_per_s:  # of a core no more than its share
        cores = hardware.stated(host.cores, 1).value
        seconds = max(seconds, pace(host) * COMPILED_SECONDS + 2 * macs * cores / host.peak_fp32_ops_per_s.value)
    return law(seconds, COMPILED_FACTOR, f"a compiled call and its MACs{HELD_OUT}", unstated(host, host))


def fpga_learner(device: Device, design: Placed, factor: float, workload: Workload) -> Estimate:
    """A gradient step of a whole algorithm by a design on an FPGA."""
    description = (
        f"whole gradient step of {workload.algorithm.upper()} without a framework: cycle law of [Zhang2023, VI-A2] at "
        f"{clock_of(device) / 1e6:g} MHz (not simulated)"
    )
    if factor > 1:
        description += f", times {factor:.2f} for the other networks"
    description += UNTESTED
    return law((design.point.cycles * factor / hardware.clock(device)).value, FPGA_LEARNER_FACTOR, description)


def training_bytes(device: Device, workload: Workload, batch: int) -> float:
    """What a gradient step keeps in a device's memory besides its records, an estimate.

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
    """(the value network that an FPGA trains, factor on its cycles for the other networks).

    A convolution's padding is that of [Zhang2022, Table 5.1]. Other networks are charged by their MACs, serially on the
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
    device: Device,
    capacity: int,
    fanout: int,
    batch: int,
    threads: int = 1,
    insertions: float = 0.0,
    leaves: int = 1,
    constants: Constants = AS_FITTED,
) -> tuple[Estimate, Estimate]:
    """(draw, update with a given number of insertions of ``leaves``) of a compiled tree on a CPU or a GPU.

    Its time is that of reading its levels in the memories they lie in, and a call. An insertion of a GPU is charged as
    an update of a batch: both are a launch.
    """
    if device.kind == "gpu":
        seconds = hardware.gpu_descent(device, capacity, fanout, batch).value
        description = f"a launch and what its levels read from the GPU's memory{UNTESTED}"
        return law(seconds, GPU_FACTOR, description), law(seconds * (1 + insertions), GPU_FACTOR, description)
    each, call = hardware.descent(device, capacity, fanout).value, constants.tree_call_seconds * pace(device)
    speedup, more = scaled(1.0, threads, constants.actor_contention)
    share, needed = constants.tree_update_share, unstated(device, device)
    timed = all(cache.latency_seconds for cache in (*device.caches, device.memory) if cache)
    latencies = "" if timed else ", whose latencies are usual ones"
    description = f"{call * 1e6:.2g} us of a call and what its levels read from caches and memory{latencies}{HELD_OUT}"
    insert = call + share * (leaves * each)
    update = call + share * (batch * each) / speedup + insert * insertions
    draw = call + batch * each / speedup
    factor = TREE_FACTOR * more
    return law(draw, factor, description, needed), law(update, factor, description, needed)


def records_read(workload: Workload) -> int:
    """Records that a learner reads for one of its batch: stacked frames are gathered out of several."""
    frames = layout_of(workload).frames
    return frames + 1 if frames > 1 else 1


def rows_moved(
    device: Device, count: float, nbytes: float, more_seconds: float = 0.0, constants: Constants = AS_FITTED
) -> Estimate:
    """Records gathered from, or written to, random places of a device's memory; ``more_seconds`` for others."""
    through, factor, basis = 2 * nbytes / bandwidth(device).value, GPU_FACTOR, UNTESTED
    if device.kind == "cpu":
        call, each = constants.rows_call_seconds * pace(device), constants.row_seconds * pace(device)
        seconds, factor, basis = call + each * count + through, ROWS_FACTOR, HELD_OUT
        description = f"{call * 1e6:.2g} us of NumPy, {each * 1e9:.0f} ns a record, and memory bandwidth"
    elif device.kind == "fpga":
        seconds, description = BURST_SECONDS + through, "one burst through the card's memory, by its bandwidth"
    else:
        seconds = FIELDS * hardware.launch(device).value + through
        description = f"a launch for each of {FIELDS} fields, and memory bandwidth"
    needed = unstated(device, device, hardware.CLOCK, hardware.BANDWIDTH)
    return law(seconds + more_seconds, factor, description + basis, needed)


def fetch(nbytes: float, constants: Constants = AS_FITTED, is_flat: bool = True) -> Estimate:
    """A network's weights out of shared memory: one vector that is copied, or else arrays by name."""
    cached = min(nbytes, CACHED_BYTES)
    seconds = constants.fetch_seconds + (nbytes - cached + cached / CACHED_FASTER) / constants.fetch_bytes_per_s
    seconds += 0.0 if is_flat else constants.state_dict_seconds
    return law(seconds, FETCH_FACTOR, f"weights through shared memory{HELD_OUT}")


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
