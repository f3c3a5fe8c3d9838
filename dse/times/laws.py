"""What nobody measured, from a platform's numbers and laws with a few measured constants. Every interval is wide.

The constants are rounded from one machine's profiles (d7dae63b89: one core of an EPYC server, PyTorch and NumPy). The
factors of processors' laws are so wide that they hold for nine in ten cells of a workload, or a machine, that the
constants are fitted without (``reports/laws.py``; a test recomputes them). Gradient steps and trees on a GPU were
timed on one machine, with an H200 (c948cac9ea). The factors of records on a GPU, and of learners on FPGAs, are
assumptions: nothing here was timed against them. A law is good for what bounds a step, not for a close call.

What a processor's table in a platform file does not state is assumed here, by a constant with its reason, and
``assumed_of`` says so; of a GPU or an FPGA nothing is, for there is no usual one: PlatformError names the key.

Letters: B batch, x cores, N capacity, K fanout. Times are seconds of one call.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from impls.fpga.network import Network, parse
from impls.fpga.passes import Step, make_step
from impls.levels import CACHE_LINE, level_sizes
from impls.training import Workload
from impls.training.weights import CONVOLUTIONS, layout_of, networks

from ..estimate import Assumption, Estimate, Evidence
from ..fpga.placement import Placed
from ..platforms import Device, Memory, PlatformError, Quantity
from ..platforms.platform import KINDS

FLOAT_BYTES, SUM_BYTES = 4, 8
CHILDREN_PER_CYCLE = 8  # of a vector unit that compares prefix sums with a prefix value
LEVEL_CYCLES = 6  # besides, about what our compiled tree takes: a child chosen, the value left over, its address
CPU_HZ = 3e9  # where no clock is stated
CACHE_CYCLES = (5, 14, 50)  # of a read that hits L1, L2, L3, where no latency is stated
MEMORY_SECONDS = 90e-9  # of a read that misses them all
OVERLAP = 8  # misses of one core under way at once, where no gather is stated
CORE_OPERATIONS = 16  # of fp32 a cycle, where no peak is stated
MISSES_BYTES_PER_S = OVERLAP * CACHE_LINE / MEMORY_SECONDS
GPU_CYCLES = 500  # of a read on a GPU that waits for the one before
GPU_THREADS = 2048  # a multiprocessor keeps going
GPU_LANES = 128  # of fp32, a multiprocessor
CLOCK, BANDWIDTH = "clock_ghz", "memory.bandwidth_gb_per_s"

LEARNER_FACTOR, TREE_FACTOR, ROWS_FACTOR, FETCH_FACTOR, ACTOR_FACTOR = 3.5, 3.1, 4.5, 3.5, 27.0
FIELDS, BURST_SECONDS = 5, 1e-6  # fields of a record; what a memory takes to begin a burst of rows
CACHED_BYTES, CACHED_FASTER = 1 << 17, 3.0  # of weights that a core has at hand: how many, and by how much faster
ELSEWHERE_FACTOR = 7.0  # an environment step on one core and another: three machines differ by up to 6.9x
COMPILED_SECONDS, COMPILED_MACS_PER_S, COMPILED_FACTOR = 20e-6, 55e9, 4.5  # of a compiled gradient step: its call
COMPILED_ACTING, COMPILED_ACTING_FACTOR = 0.52, 1.9  # of a framework's time between two environment steps: 0.28 to 0.92
TIMED_CORES = 2  # the most that the constants were timed on
THREADS_FACTOR, PROCESSES_FACTOR = 1.45, 1.6  # of what the law says of two cores, from one as timed
GPU_FACTOR = 3.0  # an assumption
GPU_LEARNER_FACTOR = 2.4  # a workload left out: 1.3; rates that [Zhang2023] prints of another GPU: up to 2.3
GPU_TREE_FACTOR = 3.0  # a capacity left out: 1.6; and the error of a launch that is assumed: 1.8 on the H200
FPGA_RMM_FACTOR, FPGA_LEARNER_FACTOR = 2.0, 2.0
"""Assumptions on clock and placement: the clocks of six trees that were placed on an ECP5, another FPGA, are up to 1.8
times apart (results/fpga/placed.json). An RMM's cycles are simulated."""
ADAM_ARRAYS = 7  # weights, gradients and two moments are read, all but gradients written
PASSES = {"dqn": (5, 0), "ddpg": (6, 4), "td3": (5, 3), "sac": (6, 4)}
"""By algorithm: how often a step's MACs of the value networks, and of the policy, are done: forward 1, backward 2."""
OPERATIONS = {"dqn": (64, 20, 41), "ddpg": (88, 42, 80), "td3": (98.5, 48, 97), "sac": (249, 70, 136)}
"""By algorithm: how many operations torch dispatches in a gradient step without hidden layers, with each hidden layer
more, and with convolutions more. Counted on a processor, on records as replay keeps them, actions and frames in bytes;
of TD3 the mean over its policy delay of 2."""
SHARED = 1.63
"""How many times longer a gradient step takes while the tree is on the same GPU, in a process of its own. Quoted: the
geometric mean of 1.67, 1.54 and 1.93 for Pong [Zhang2023, Table V] and 1 / 0.7 for Hopper (its text)."""
UNTESTED = "; no such device was timed, so its factor is an assumption"
HELD_OUT_GPU = "; on the H200 that it was fitted to, off by at most {}x for {} left out; its factor for others is {}"
HELD_OUT = "; its factor held for nine in ten cells of workloads and machines left out of the fit"
HELD_OUT_CORES = HELD_OUT + ", on one core and two"
SCALING = "the Universal Scalability Law, of an uncertainty that grows with the distance from what was timed"


@dataclass(frozen=True)
class Constants:
    """What the laws take from profiles; ``reports/laws.py`` fits them without what it then predicts."""

    framework_seconds: float = 0.6e-3  # Python and PyTorch around a gradient step on a small network
    learner_contention: float = 0.3  # in the Universal Scalability Law, from one and two cores
    learner_sync: float = 0.08  # of the framework's own time, that a thread more costs a gradient step
    tree_call_seconds: float = 1e-6
    tree_update_share: float = 0.5  # an update works through a shared group once
    rows_call_seconds: float = 3e-6  # NumPy gathers rows or writes them
    row_seconds: float = 0.05e-6
    fetch_seconds: float = 3e-6  # weights into an actor's networks: a copy
    fetch_bytes_per_s: float = 11e9
    state_dict_seconds: float = 130e-6  # of a network's arrays by name in place of one vector
    actor_seconds: float = 0.15e-3  # an environment step with inference, where no profile has it
    actor_contention: float = 0.31  # as the learner's
    operation_launches: float = 3.4  # launches' time that torch takes to dispatch an operation of a gradient step
    draw_launches: float = 11.0  # the same of a whole draw by our tree: Python, checks and CuPy around its kernels
    update_launches: float = 17.5


AS_FITTED = Constants()


def law(seconds: float, factor: float, description: str, assumed: tuple[Assumption, ...] = ()) -> Estimate:
    """Return seconds with an error bound of ``factor``; ``Lookup.modeled`` says which part's evidence they are."""
    return Estimate.within(seconds, factor, Evidence("law", "modeled", description, assumed=assumed))


def speed_up(cores: int, contention: float) -> tuple[float, float]:
    """Return (the speedup of x cores, the factor of its error bound).

    x / (1 + a (x - 1)), the Universal Scalability Law [Gunther2007], on the cores that it was fitted to. Two points
    leave its coherence open; so beyond them, the middle of that law without any and of a speedup that keeps growing as
    it does on two cores, with an error bound that reaches both.
    """
    least = cores / (1 + contention * (cores - 1))
    most = max(least, cores / (1 + contention * (TIMED_CORES - 1)))
    return math.sqrt(least * most), math.sqrt(most / least)


def together(*factors: float) -> float:
    """Return the error bound of a product whose factors, each with one of these error bounds, err on their own."""
    return math.exp(math.hypot(*map(math.log, factors)))


# Numbers of a device


def _needed(quantity: Quantity | None, device: Device, key: str) -> float:
    """Return what a platform file must state. PlatformError, with the key to add, where it does not."""
    if quantity is None:
        raise PlatformError(
            f"{device.name}: its {key} is not stated, so that it cannot be modeled as a {device.kind}; "
            f"add {key} to its table in the platform file, or leave it out with --exclude {device.name}"
        )
    return quantity.value


def check_laws(device: Device, part: str) -> None:
    """Raise PlatformError where no law has the time of a part on a device of that kind."""
    if not KINDS[device.kind].has_laws:
        raise PlatformError(
            f"{device.name}: no law has the time of {part} on a device of kind {device.kind}; state it, and those "
            f"of its other parts, in a file for --times, or leave it out with --exclude {device.name}"
        )


def cores_of(device: Device) -> int:
    """Return how many cores a device has, 1 where its table does not state any."""
    return int(device.cores.value) if device.cores else 1


def clock_of(device: Device) -> float:
    """Return the clock in Hz, 0 where none is stated."""
    return device.clock_hz.value if device.clock_hz else 0.0


def assumed_of(device: Device, host: Device, *keys: str) -> tuple[Assumption, ...]:
    """Return what stands for keys of a processor that its table does not state, and for the host's clock: its pace."""
    found: dict[Assumption, None] = {}
    for processor, wanted in ((host, (CLOCK,)), (device, keys)):
        memory = processor.memory
        stands = {} if processor.clock_hz else {CLOCK: (CPU_HZ / 1e9, "GHz")}
        if not processor.peak_fp32_ops_per_s:
            stands["peak_fp32_tops"] = CORE_OPERATIONS, "operations per cycle and core"
        if not (memory and (memory.bandwidth_bytes_per_s or memory.copy_bytes_per_s)):
            stands[BANDWIDTH] = MISSES_BYTES_PER_S / 1e9, "GB/s"
        for key in wanted if processor.kind == "cpu" else ():
            if key in stands:
                found[Assumption(processor.name, key, *stands[key])] = None
    return tuple(found)


def clock(device: Device) -> float:
    """Return the clock in Hz, for a processor else ``CPU_HZ``. PlatformError where a GPU's is not stated."""
    return CPU_HZ if device.kind == "cpu" and not device.clock_hz else _needed(device.clock_hz, device, CLOCK)


def pace(host: Device) -> float:
    """Return the slowdown of Python on a processor over the one the constants are from, by its clock."""
    return CPU_HZ / clock(host)


def peak(device: Device) -> float:
    """Return operations of fp32 per second, of all cores. PlatformError where a GPU's numbers do not tell."""
    if device.peak_fp32_ops_per_s:
        return device.peak_fp32_ops_per_s.value
    if device.kind == "gpu":
        if not (device.multiprocessors and device.clock_hz):
            _needed(None, device, "peak_fp32_tops (or multiprocessors and clock_ghz)")
        return 2 * GPU_LANES * _needed(device.multiprocessors, device, "multiprocessors") * clock(device)
    return CORE_OPERATIONS * cores_of(device) * clock(device)


def bandwidth(device: Device) -> float:
    """Return bytes per second of the memory, for a processor else those of overlapping misses.

    PlatformError as ``clock``.
    """
    for kind in ("bandwidth", "copy", "copy_all_cores"):
        quantity: Quantity | None = getattr(device.memory, f"{kind}_bytes_per_s", None)
        if quantity:
            return quantity.value
    if device.kind != "cpu":
        _needed(None, device, BANDWIDTH)
    return MISSES_BYTES_PER_S


def launch(device: Device) -> float:
    """Return seconds of a kernel's launch on a GPU, 0 on a processor. PlatformError where a GPU does not state it."""
    return _needed(device.launch_seconds, device, "launch_us") if device.kind == "gpu" else 0.0


def budgets(device: Device) -> Iterator[tuple[str, float]]:
    """Yield (name, amount) of all that options take of a device, slice by slice of an FPGA."""
    if device.kind == "cpu":
        yield f"{device.name}.cores", float(cores_of(device))
    if device.memory:
        yield f"{device.name}.memory_bytes", device.memory.size_bytes.value
    for part in device.slices:
        for name, amount in part.usable().items():
            yield f"{device.name}.{part.name}.{name}", float(amount)


# Actors


def actor(host: Device, processes: int, constants: Constants = AS_FITTED) -> Estimate:
    """Return seconds between two environment steps of each of x processes, with inference."""
    speedup, more = speed_up(processes, constants.actor_contention)
    seconds = constants.actor_seconds * pace(host)
    description = f"{seconds * 1e3:.2g} ms with inference, whatever the environment{HELD_OUT_CORES}"
    return law(seconds / speedup, ACTOR_FACTOR * more, description, assumed_of(host, host))


# Gradient steps


class Work(NamedTuple):
    """The work of a gradient step: MACs a sample, bytes of weights and their like moved, operations dispatched."""

    macs: int
    nbytes: int
    operations: float


@functools.cache
def work_of(workload: Workload) -> Work:
    """Return the work of a whole gradient step of an algorithm: all its networks, with the moments of Adam."""
    sizes, often = networks(workload), PASSES[workload.algorithm]
    macs = sum(size.macs * often[name == "policy"] for name, size in sizes.items())
    weights = sum(size.parameters for size in sizes.values()) * FLOAT_BYTES * ADAM_ARRAYS
    least, layer, convolutions = OPERATIONS[workload.algorithm]
    operations = least + layer * len(workload.network.hidden)
    return Work(macs, weights, operations + convolutions * (workload.network.kind == "convolution"))


def roofline(work: Work, batch: int, peak: float, bytes_per_s: float, framework: float) -> float:
    """Return seconds of a gradient step of B samples on a CPU or a GPU: the only such law.

    framework + max(operations / peak, bytes / bandwidth), of which ``framework`` is the seconds of its own.
    """
    return framework + max(2 * work.macs * batch / peak, work.nbytes / bytes_per_s)


def learner(
    host: Device, device: Device, workload: Workload, batch: int, cores: int = 1, constants: Constants = AS_FITTED
) -> Estimate:
    """Return a gradient step in a framework on a host: its own time and the roofline of x cores, or of a GPU.

    For a GPU its own time is that of dispatching each operation. PlatformError where the numbers of a GPU do not tell.
    """
    check_laws(device, "learner")
    work, operations, needed = work_of(workload), peak(device), tuple[Assumption, ...]()
    if device.kind == "gpu":
        framework, factor = constants.operation_launches * work.operations * launch(device), GPU_LEARNER_FACTOR
        told = f"{framework * 1e3:.2g} ms to dispatch {work.operations:g} operations, and a roofline on top"
        told += HELD_OUT_GPU.format(1.3, "a workload", "from printed rates")
    else:
        speedup, more = speed_up(cores, constants.learner_contention)
        framework = constants.framework_seconds * pace(host) * (1 + constants.learner_sync * (cores - 1))
        there, factor = cores_of(device), LEARNER_FACTOR * more
        operations, needed = operations / there * speedup, assumed_of(device, host, CLOCK, "peak_fp32_tops", BANDWIDTH)
        told = f"{framework * 1e3:.2g} ms of its own and a roofline on {cores} of {there} cores{HELD_OUT_CORES}"
    seconds = roofline(work, batch, operations, bandwidth(device), framework)
    scope = f"whole gradient step of {workload.algorithm.upper()} in a framework:"
    return law(seconds, factor, f"{scope} {told}", needed)


def compiled(host: Device, workload: Workload, batch: int) -> Estimate:
    """Return a step by a compiled learner on one core of a host: a call, and MACs at a rate that two machines had."""
    macs = work_of(workload).macs * batch
    seconds = pace(host) * (COMPILED_SECONDS + macs / COMPILED_MACS_PER_S)
    if host.peak_fp32_ops_per_s:  # of a core no more than its share
        most = host.peak_fp32_ops_per_s.value
        seconds = max(seconds, pace(host) * COMPILED_SECONDS + 2 * macs * cores_of(host) / most)
    return law(seconds, COMPILED_FACTOR, f"a compiled call and its MACs{HELD_OUT}", assumed_of(host, host))


def fpga_learner(device: Device, design: Placed, workload: Workload) -> Estimate:
    """Return a gradient step of a whole algorithm by a design on an FPGA."""
    description = (
        f"whole gradient step of {workload.algorithm.upper()} without a framework, by plain SGD, targets copied in no "
        f"time: cycle law of [Zhang2023, VI-A2] at {clock_of(device) / 1e6:g} MHz (not simulated)"
    )
    if design.point.design.streamed:
        description += f", the largest weights read from the card's memory at {bandwidth(device) / 1e9:g} GB/s"
    return law(design.point.cycles / clock(device), FPGA_LEARNER_FACTOR, description + UNTESTED)


def training_bytes(device: Device, workload: Workload, batch: int) -> float:
    """Return what a gradient step keeps in a device's memory besides its records, an estimate.

    In a framework: 16 bytes a parameter (weights, gradients, two moments), and for each sample of the batch every
    trained layer's outputs with their gradients. An FPGA has both in its slices, counted there.
    """
    if device.kind == "fpga":
        return 0.0
    outputs = sum(layer.outputs for layer in step_of(workload).layers)
    parameters = sum(size.parameters for size in networks(workload).values())
    return FLOAT_BYTES * (4 * parameters + 2 * batch * outputs)


def step_of(workload: Workload) -> Step:
    """Return the networks of a workload's gradient step and its passes, as an FPGA has them.

    A convolution's padding is that of [Zhang2022, Table 5.1].
    """
    traits, hidden, actions = workload.traits, [*map(str, workload.network.hidden)], workload.action_size
    shape = workload.observation.stacked

    def build(outputs: int, more: int = 0) -> Network:
        first = [f"mlp:{math.prod(shape) + more}"]
        if workload.network.kind == "convolution":
            filters = (f"{out}k{kernel}s{stride}p{padding}" for out, kernel, stride, padding in CONVOLUTIONS)
            first = ["conv:" + "x".join(map(str, shape)), *filters]
        return parse("-".join([*first, *hidden, str(outputs)]))

    if not traits.has_policy:
        value = build(actions + workload.network.dueling)
        return make_step(workload.name, {"value": value}, double=workload.learner.double)
    built = {"critic": build(1, actions), "policy": build(actions * traits.outputs)}
    return make_step(workload.name, built, traits.critics, traits.critics if workload.family == "sac" else 1)


# Trees, by the memories that their levels lie in


def memory_level(device: Device, nbytes: float, all_cores: bool = False) -> tuple[Memory | None, int]:
    """Return the smallest memory that holds N bytes, all cores' caches together if all work; and how far it is."""
    for level, cache in enumerate(device.caches):
        sharers = cache.shared_by.value if cache.shared_by else 1
        workers = device.threads or device.cores or device.multiprocessors
        copies = max(1, (workers.value if workers else 1) // sharers) if all_cores else 1
        if nbytes <= copies * cache.size_bytes.value:
            return cache, level
    return device.memory, len(device.caches)


def gather(device: Device, memory: Memory | None, level: int) -> float:
    """Return seconds between two reads of random lines by a core."""
    if memory and memory.gather_seconds:
        return memory.gather_seconds.value
    if memory and memory.latency_seconds:
        latency = memory.latency_seconds.value
    elif level < min(len(device.caches), len(CACHE_CYCLES)):
        latency = CACHE_CYCLES[level] / clock(device)
    else:
        latency = MEMORY_SECONDS
    if memory and memory.bandwidth_bytes_per_s:
        return max(latency / OVERLAP, CACHE_LINE / memory.bandwidth_bytes_per_s.value)
    return latency / OVERLAP


def _levels(capacity: int, fanout: int) -> Iterator[tuple[int, float]]:
    """(lines of a group, bytes of all levels down to it) from the root's children to the leaves: upper ones stay."""
    sizes, nbytes = level_sizes(capacity, fanout), 0.0
    for level in range(len(sizes) - 2, -1, -1):
        itemsize = SUM_BYTES if level else FLOAT_BYTES
        nbytes += sizes[level] * itemsize
        yield math.ceil(min(fanout, sizes[level]) * itemsize / CACHE_LINE), nbytes


@functools.lru_cache(maxsize=1 << 12)
def descent(device: Device, capacity: int, fanout: int) -> float:
    """Return seconds of an element of a batch from the root to a leaf, on a core of a CPU; its reads overlap others."""
    seconds = 0.0
    for lines, nbytes in _levels(capacity, fanout):
        seconds += lines * gather(device, *memory_level(device, nbytes))
        seconds += (LEVEL_CYCLES + fanout / CHILDREN_PER_CYCLE) / clock(device)
    return seconds


def gpu_descent(device: Device, capacity: int, fanout: int, batch: int) -> float:
    """Return seconds in which B elements go from the root to a leaf each, on a GPU.

    PlatformError where the numbers of the GPU do not tell.
    """
    waves = math.ceil(batch / (GPU_THREADS * _needed(device.multiprocessors, device, "multiprocessors")))
    seconds, own = 0.0, device.memory
    copied = (own.copy_all_cores_bytes_per_s or own.copy_bytes_per_s or own.bandwidth_bytes_per_s) if own else None
    for lines, nbytes in _levels(capacity, fanout):
        memory, level = memory_level(device, nbytes, True)
        if memory and memory.latency_seconds:
            wait = memory.latency_seconds.value
        else:
            near = 0.5 if level < len(device.caches) else 1.0
            wait = near * GPU_CYCLES / clock(device)
        seconds += max(waves * wait, batch * lines * CACHE_LINE / _needed(copied, device, BANDWIDTH))
    return seconds


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
    """Return (draw, update with a given number of insertions of ``leaves``) of a compiled tree on a CPU or a GPU.

    Its time is that of reading its levels in the memories they lie in, and a call, which checks its arguments. An
    insertion of a GPU is charged as an update of a batch: both are a call.
    """
    if device.kind == "gpu":
        reads = gpu_descent(device, capacity, fanout, batch)
        draw, update = (count * launch(device) for count in (constants.draw_launches, constants.update_launches))
        said = f"{draw * 1e6:.2g} us of a draw's call, {update * 1e6:.3g} us of an update's, and what levels read"
        said += HELD_OUT_GPU.format(1.6, "a capacity", "an assumption")
        update = (update + reads) * (1 + insertions)
        return law(draw + reads, GPU_TREE_FACTOR, said), law(update, GPU_TREE_FACTOR, said)
    each, call = descent(device, capacity, fanout), constants.tree_call_seconds * pace(device)
    speedup, more = speed_up(threads, constants.actor_contention)
    share, needed = constants.tree_update_share, assumed_of(device, device)
    timed = all(cache.latency_seconds for cache in (*device.caches, device.memory) if cache)
    latencies = "" if timed else ", whose latencies are usual ones"
    description = f"{call * 1e6:.2g} us of a call and what its levels read from caches and memory{latencies}{HELD_OUT}"
    insert = call + share * (leaves * each)
    update = call + share * (batch * each) / speedup + insert * insertions
    draw = call + batch * each / speedup
    factor = TREE_FACTOR * more
    return law(draw, factor, description, needed), law(update, factor, description, needed)


# Records and weights


def records_read(workload: Workload) -> int:
    """Return how many records a learner reads for one of its batch: stacked frames are gathered out of several."""
    frames = layout_of(workload).frames
    return frames + 1 if frames > 1 else 1


def rows_moved(
    device: Device, count: float, nbytes: float, more_seconds: float = 0.0, constants: Constants = AS_FITTED
) -> Estimate:
    """Return the time of records gathered from, or written to, random places of a device's memory.

    ``more_seconds``: of other records. PlatformError where the numbers of a GPU do not tell.
    """
    check_laws(device, "storage")
    through, factor, basis = 2 * nbytes / bandwidth(device), GPU_FACTOR, UNTESTED
    if device.kind == "cpu":
        call, each = constants.rows_call_seconds * pace(device), constants.row_seconds * pace(device)
        seconds, factor, basis = call + each * count + through, ROWS_FACTOR, HELD_OUT
        description = f"{call * 1e6:.2g} us of NumPy, {each * 1e9:.0f} ns a record, and memory bandwidth"
    elif device.kind == "fpga":
        seconds, description = BURST_SECONDS + through, "one burst through the card's memory, by its bandwidth"
    else:
        seconds = FIELDS * launch(device) + through
        description = f"a launch for each of {FIELDS} fields, and memory bandwidth"
    needed = assumed_of(device, device, CLOCK, BANDWIDTH)
    return law(seconds + more_seconds, factor, description + basis, needed)


def fetch(nbytes: float, constants: Constants = AS_FITTED, is_flat: bool = True) -> Estimate:
    """Return the time of a network's weights out of shared memory: one vector that is copied, or arrays by name."""
    cached = min(nbytes, CACHED_BYTES)
    seconds = constants.fetch_seconds + (nbytes - cached + cached / CACHED_FASTER) / constants.fetch_bytes_per_s
    seconds += 0.0 if is_flat else constants.state_dict_seconds
    return law(seconds, FETCH_FACTOR, f"weights through shared memory{HELD_OUT}")
