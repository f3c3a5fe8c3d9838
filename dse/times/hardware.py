"""What hardware takes, from the numbers of a platform alone: sums of memory reads, and the one roofline.

The laws are rough: good for an order of magnitude and for what bounds a step, no ground for a choice between two that
are close. What a processor's table in a platform file does not state is assumed here, by a constant with its reason,
and ``assumed_of`` says so; of a GPU or an FPGA nothing is, for there is no usual one: PlatformError names the key.

Letters: N leaves, K fanout, B batch. Times are seconds of one call.
"""

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from impls.levels import CACHE_LINE, level_sizes

from ..estimate import Assumption
from ..platforms import Device, Memory, PlatformError, Quantity

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
PASSES = 3  # of a network alone: forward, backward, weight gradient: each as many MACs
GRADIENT_ARRAYS = 3  # a weight is read, its gradient is read, it is written
CLOCK, BANDWIDTH = "clock_ghz", "memory.bandwidth_gb_per_s"
PEAK = "peak_fp32_tops (or multiprocessors and clock_ghz)"
LAUNCH = "launch_us"


@dataclass(frozen=True)
class Known:
    """A value with the origins of all that it rests on; arithmetic keeps both."""

    value: float
    origins: frozenset[str] = frozenset()

    def __add__(self, other: "Known") -> "Known":
        return Known(self.value + other.value, self.origins | other.origins)

    def __mul__(self, other: "Known") -> "Known":
        return Known(self.value * other.value, self.origins | other.origins)

    def __truediv__(self, other: "Known") -> "Known":
        return Known(self.value / other.value, self.origins | other.origins)

    def __rmul__(self, factor: float) -> "Known":
        return Known(factor * self.value, self.origins)

    def __rtruediv__(self, amount: float) -> "Known":
        return Known(amount / self.value, self.origins)


def stated(quantity: Quantity | None, otherwise: float = 0.0) -> Known:
    """A number of a platform file; ``otherwise``, which rests on nothing, where the file does not state it."""
    return Known(quantity.value, frozenset([quantity.origin])) if quantity else Known(otherwise)


def assumed(value: float) -> Known:
    """A constant of our own."""
    return Known(value, frozenset(["assumed"]))


def longer(one: Known, other: Known) -> Known:
    """The larger value, which rests on both."""
    return Known(max(one.value, other.value), one.origins | other.origins)


# Numbers of a device


def _needed(quantity: Quantity | None, device: Device, key: str) -> Known:
    """What a platform file must state; PlatformError, with the key to add, where it does not."""
    if quantity is None:
        raise PlatformError(
            f"{device.name}: a {device.kind.upper()} whose {key} is not stated cannot be modeled; add {key} to its "
            f"table in the platform file, or leave it out with --exclude {device.name}"
        )
    return stated(quantity)


def assumed_of(device: Device, *keys: str) -> tuple[Assumption, ...]:
    """Return what stands for those of a processor's keys that its table does not state."""
    if device.kind != "cpu":
        return ()
    stands = {} if device.clock_hz else {"clock_ghz": (CPU_HZ / 1e9, "GHz")}
    if not device.peak_fp32_ops_per_s:
        stands["peak_fp32_tops"] = CORE_OPERATIONS, "operations per cycle and core"
    if not (device.memory and (device.memory.bandwidth_bytes_per_s or device.memory.copy_bytes_per_s)):
        stands["memory.bandwidth_gb_per_s"] = MISSES_BYTES_PER_S / 1e9, "GB/s"
    return tuple(Assumption(device.name, key, *stands[key]) for key in keys if key in stands)


def clock(device: Device) -> Known:
    """Its clock in Hz, for a processor else ``CPU_HZ``. PlatformError where a GPU's is not stated."""
    return assumed(CPU_HZ) if device.kind == "cpu" and not device.clock_hz else _needed(device.clock_hz, device, CLOCK)


def multiprocessors(device: Device) -> Known:
    """How many a GPU has. PlatformError where that is not stated."""
    return _needed(device.multiprocessors, device, "multiprocessors")


def peak(device: Device) -> Known:
    """Operations of fp32 per second, of all cores. PlatformError where a GPU's cannot be told."""
    if device.peak_fp32_ops_per_s:
        return stated(device.peak_fp32_ops_per_s)
    if device.kind == "gpu":
        if not (device.multiprocessors and device.clock_hz):
            _needed(None, device, PEAK)
        return 2 * assumed(GPU_LANES) * multiprocessors(device) * clock(device)
    return assumed(CORE_OPERATIONS) * stated(device.cores, 1) * clock(device)


def bandwidth(device: Device) -> Known:
    """Bytes per second of its memory, for a processor else those of overlapping misses. PlatformError as ``clock``."""
    memory = device.memory
    for kind in ("bandwidth", "copy", "copy_all_cores"):
        if known := getattr(memory, f"{kind}_bytes_per_s", None):
            return stated(known)
    if device.kind != "cpu":
        _needed(None, device, BANDWIDTH)
    return assumed(MISSES_BYTES_PER_S)


def launch(device: Device) -> Known:
    """Seconds that a kernel's launch takes on a GPU, none on a processor. PlatformError where it is not stated."""
    return _needed(device.launch_seconds, device, LAUNCH) if device.kind == "gpu" else Known(0.0)


# Memory


def place(device: Device, nbytes: float, all_cores: bool = False) -> tuple[Memory | None, int]:
    """The smallest memory that holds N bytes, all cores' caches together if all work; and how far it is."""
    for level, cache in enumerate(device.caches):
        sharers = cache.shared_by.value if cache.shared_by else 1
        workers = device.threads or device.cores or device.multiprocessors
        copies = max(1, (workers.value if workers else 1) // sharers) if all_cores else 1
        if nbytes <= copies * cache.size_bytes.value:
            return cache, level
    return device.memory, len(device.caches)


def latency(device: Device, memory: Memory | None, level: int) -> Known:
    """Seconds of a read that waits for the one before."""
    if memory and memory.latency_seconds:
        return stated(memory.latency_seconds)
    if level < min(len(device.caches), len(CACHE_CYCLES)):
        return assumed(CACHE_CYCLES[level]) / clock(device)
    return assumed(MEMORY_SECONDS)


def gather(device: Device, memory: Memory | None, level: int) -> Known:
    """Seconds between two reads of random lines by a core."""
    if memory and memory.gather_seconds:
        return stated(memory.gather_seconds)
    overlapped = latency(device, memory, level) / assumed(OVERLAP)
    if memory and memory.bandwidth_bytes_per_s:
        return longer(overlapped, CACHE_LINE / stated(memory.bandwidth_bytes_per_s))
    return overlapped


def copy_rate(device: Device) -> Known:
    """Bytes per second that a GPU copies in its memory. PlatformError where no number of it tells."""
    memory = device.memory
    if memory and (copied := memory.copy_all_cores_bytes_per_s or memory.copy_bytes_per_s):
        return stated(copied)
    return _needed(memory.bandwidth_bytes_per_s if memory else None, device, BANDWIDTH)


# The tree


def _levels(capacity: int, fanout: int) -> Iterator[tuple[int, float]]:
    """(lines of a group, bytes of all levels down to it) from the root's children to the leaves: upper ones stay."""
    sizes, nbytes = level_sizes(capacity, fanout), 0.0
    for level in range(len(sizes) - 2, -1, -1):
        itemsize = SUM_BYTES if level else FLOAT_BYTES
        nbytes += sizes[level] * itemsize
        yield math.ceil(min(fanout, sizes[level]) * itemsize / CACHE_LINE), nbytes


@functools.lru_cache(maxsize=1 << 12)
def descent(device: Device, capacity: int, fanout: int) -> Known:
    """Seconds of an element of a batch from the root to a leaf, on a core of a CPU; its reads overlap with others'."""
    seconds = Known(0.0)
    for lines, nbytes in _levels(capacity, fanout):
        seconds += lines * gather(device, *place(device, nbytes))
        seconds += assumed(LEVEL_CYCLES + fanout / CHILDREN_PER_CYCLE) / clock(device)
    return seconds


def gpu_descent(device: Device, capacity: int, fanout: int, batch: int) -> Known:
    """Seconds of a launch in which B elements go from the root to a leaf each, on a GPU."""
    at_once = assumed(GPU_THREADS) * multiprocessors(device)
    waves, seconds = math.ceil(batch / at_once.value), launch(device)
    for lines, nbytes in _levels(capacity, fanout):
        memory, level = place(device, nbytes, True)
        if memory and memory.latency_seconds:
            wait = stated(memory.latency_seconds)
        else:
            near = 0.5 if level < len(device.caches) else 1.0
            wait = near * assumed(GPU_CYCLES) / clock(device)
        fed = batch * lines * CACHE_LINE / copy_rate(device)
        seconds += longer(waves * wait, fed)
    return Known(seconds.value, seconds.origins | at_once.origins)


# Gradient steps


class Work(NamedTuple):
    """What a gradient step does: MACs a sample, bytes of weights and their like moved, kernels launched."""

    macs: int
    nbytes: int
    launches: int


def roofline(device: Device, work: Work, batch: int, peak: Known, through: Known, framework: Known) -> Known:
    """Seconds of a gradient step of B samples on a CPU or a GPU: the only such law.

    max(framework, launches) + max(operations / peak, bytes / through), for a GPU works while a framework launches.
    """
    launches = work.launches * launch(device)
    return longer(framework, launches) + longer(2 * work.macs * batch / peak, work.nbytes / through)
