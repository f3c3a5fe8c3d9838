"""What a machine would take, from the numbers of its platform alone: sums of memory reads, rooflines, cycle laws.

This is what there is to say of a machine nobody has measured on. It is rough: good for an order of magnitude and for
what bounds a step, no ground for a choice between two that are close. Each row names the origins of what it rests on;
what a file does not state is assumed here, by a constant with its reason.

Letters: N leaves, K fanout, B batch. Times are seconds of one call.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from impls.checks import integer_at_least
from impls.fpga.network import Network, parse
from impls.fpga.resources import Budget
from impls.levels import CACHE_LINE, level_sizes

from ..fpga import explore
from ..fpga.points import Slice
from ..fpga.rmm_search import Space
from ..platforms import Device, Memory, Platform, Quantity
from ..platforms.platform import RESOURCES

MOST = 1 << 48  # of anything that is asked
FLOAT_BYTES, SUM_BYTES = 4, 8
CHILDREN_PER_CYCLE = 8  # of a vector unit that compares children with a mass
LEVEL_CYCLES = 6  # besides, about what our compiled tree takes: a child chosen, its mass left over, its address
CPU_HZ = 3e9  # where no clock is stated
CACHE_CYCLES = (5, 14, 50)  # of a read that hits L1, L2, L3, where no latency is stated
MEMORY_SECONDS = 90e-9  # of a read that misses them all
OVERLAP = 8  # misses of one core under way at once, where no gather is stated
CORE_OPERATIONS = 16  # of fp32 a cycle, where no peak is stated
GPU_CYCLES = 500  # of a read on a GPU that waits for the one before
GPU_THREADS = 2048  # a multiprocessor keeps going
GPU_LANES = 128  # of fp32, a multiprocessor
PASSES = 3  # forward, backward, weight gradient: each as many MACs
GRADIENT_ARRAYS = 3  # a weight is read, its gradient is read, it is written


@dataclass(frozen=True)
class Asked:
    """A workload: N leaves of fanout K, batches of B records, a network that trains on them."""

    capacity: int = 1_000_000
    fanout: int = 16
    batch: int = 256
    record_bytes: int = 100
    network: str = "hopper"

    def __post_init__(self) -> None:
        for name, least in (("capacity", 1), ("fanout", 2), ("batch", 1), ("record_bytes", 1)):
            if integer_at_least(name, getattr(self, name), least) > MOST:
                raise ValueError(f"{name} must be at most {MOST}, not {getattr(self, name)}")


@dataclass(frozen=True)
class Row:
    """One estimate: ``value`` in ``unit`` ("s", "J"), or None where ``note`` says why there is none."""

    device: str
    what: str
    value: float | None
    unit: str = "s"
    origins: tuple[str, ...] = ()
    note: str = ""


class Used:
    """The origins of the quantities that an estimate uses; "assumed" where a constant takes their place."""

    def __init__(self) -> None:
        self.origins: set[str] = set()

    def __call__(self, quantity: Quantity) -> float:
        self.origins.add(quantity.origin)
        return quantity.value

    def assume(self, value: float) -> float:
        """A value of this module's own."""
        self.origins.add("assumed")
        return value

    def row(self, device: Device, what: str, value: float, unit: str = "s") -> Row:
        """The estimate they led to."""
        return Row(device.name, what, value, unit, tuple(sorted(self.origins)))


def rows(platform: Platform, asked: Asked) -> list[Row]:
    """Estimates for every device and link. ValueError for a network or workload outside any sense."""
    network, found = parse(asked.network), list[Row]()
    for device in platform.devices:
        found += _OF_KIND[device.kind](device, asked, network)
        found += _storage(device, asked)
    return found + list(_moves(platform, asked))


# Memory


def _place(device: Device, nbytes: float, all_cores: bool = False) -> tuple[Memory | None, int]:
    """The smallest memory that holds so many bytes, all cores' caches together if all work; and how far it is."""
    for level, cache in enumerate(device.caches):
        sharers = cache.shared_by.value if cache.shared_by else 1
        workers = device.threads or device.cores or device.multiprocessors
        copies = max(1, (workers.value if workers else 1) // sharers) if all_cores else 1
        if nbytes <= copies * cache.size_bytes.value:
            return cache, level
    return device.memory, len(device.caches)


def _latency(used: Used, device: Device, place: Memory | None, level: int) -> float:
    if place and place.latency_seconds:
        return used(place.latency_seconds)
    if level < min(len(device.caches), len(CACHE_CYCLES)):
        return used.assume(CACHE_CYCLES[level]) / _clock(used, device)
    return used.assume(MEMORY_SECONDS)


def _clock(used: Used, device: Device) -> float:
    return used(device.clock_hz) if device.clock_hz else used.assume(CPU_HZ)


def _gather(used: Used, device: Device, place: Memory | None, level: int, all_cores: bool) -> float:
    """Seconds between two reads of random lines."""
    cores = used(device.cores) if all_cores and device.cores else 1
    if all_cores and place and place.gather_all_cores_seconds:
        return used(place.gather_all_cores_seconds)
    if place and place.gather_seconds:
        return used(place.gather_seconds) / cores
    alone = _latency(used, device, place, level) / used.assume(OVERLAP) / cores
    return max(alone, CACHE_LINE / used(place.bandwidth_bytes_per_s) if place and place.bandwidth_bytes_per_s else 0.0)


def _rate(used: Used, device: Device, place: Memory | None, kernel: str, all_cores: bool) -> float:
    """Bytes a second of "copy" or "triad"."""
    cores = used(device.cores) if all_cores and device.cores else 1
    together, alone = (getattr(place, f"{kernel}{of}_bytes_per_s", None) for of in ("_all_cores", ""))
    if all_cores and together:
        return used(together)
    if alone:
        return used(alone) * cores
    if place and place.bandwidth_bytes_per_s:
        share = 1 if all_cores or not device.cores else used(device.cores)
        return used(place.bandwidth_bytes_per_s) / share
    level = next((n for n, cache in enumerate(device.caches) if cache is place), len(device.caches))
    return CACHE_LINE / _gather(used, device, place, level, all_cores)


# The tree


def _levels(asked: Asked) -> Iterator[tuple[int, float]]:
    """(lines of a group, bytes of all levels down to it) from the root's children to the leaves: upper ones stay."""
    sizes, held = level_sizes(asked.capacity, asked.fanout), 0.0
    for level in range(len(sizes) - 2, -1, -1):
        itemsize = SUM_BYTES if level else FLOAT_BYTES
        held += sizes[level] * itemsize
        yield math.ceil(min(asked.fanout, sizes[level]) * itemsize / CACHE_LINE), held


def _descent(
    used: Used, device: Device, asked: Asked, read: Callable[[Memory | None, int], float], all_cores: bool
) -> float:
    """Seconds of one element on its way from the root to a leaf."""
    cores = used(device.cores) if all_cores and device.cores else 1
    spent = 0.0
    for lines, held in _levels(asked):
        spent += lines * read(*_place(device, held, all_cores))
        spent += used.assume(LEVEL_CYCLES + asked.fanout / CHILDREN_PER_CYCLE) / _clock(used, device) / cores
    return spent


def _cpu(device: Device, asked: Asked, network: Network) -> Iterator[Row]:
    used = Used()
    alone = _descent(used, device, asked, functools.partial(_latency, used, device), False)
    yield used.row(device, "sample one leaf", alone)
    for all_cores, who in ((False, "one core"), (True, "all cores")):
        used = Used()
        read = functools.partial(_gather, used, device, all_cores=all_cores)
        each = _descent(used, device, asked, read, all_cores)
        yield used.row(device, f"sample a batch, {who}", asked.batch * each)
        used = Used()
        moved = 2 * asked.batch * asked.record_bytes
        place, _ = _place(device, moved, all_cores)
        yield used.row(device, f"copy a batch, {who}", moved / _rate(used, device, place, "copy", all_cores))
        used = Used()
        weights = GRADIENT_ARRAYS * FLOAT_BYTES * network.parameters
        place, _ = _place(device, weights, all_cores)
        yield used.row(device, f"apply a gradient, {who}", weights / _rate(used, device, place, "triad", all_cores))
    yield from _learner(device, asked, network)


def _gpu(device: Device, asked: Asked, network: Network) -> Iterator[Row]:
    used = Used()
    at_once = used.assume(GPU_THREADS) * (used(device.multiprocessors) if device.multiprocessors else 1)
    waves = math.ceil(asked.batch / at_once)
    spent = used(device.launch_seconds) if device.launch_seconds else 0.0
    for lines, held in _levels(asked):
        place, level = _place(device, held, True)
        if place and place.latency_seconds:
            waits = used(place.latency_seconds)
        else:
            near = 0.5 if level < len(device.caches) else 1.0
            waits = near * used.assume(GPU_CYCLES) / _clock(used, device)
        fed = asked.batch * lines * CACHE_LINE / _rate(used, device, device.memory, "copy", True)
        spent += max(waves * waits, fed)
    yield used.row(device, "sample a batch", spent)
    yield from _learner(device, asked, network)


def _learner(device: Device, asked: Asked, network: Network) -> Iterator[Row]:
    """A roofline: arithmetic at its peak, or weights and their gradients through memory, and launches on top."""
    used = Used()
    operations = peak(used, device)
    arithmetic = 2 * PASSES * network.macs * asked.batch / operations
    weights = GRADIENT_ARRAYS * FLOAT_BYTES * network.parameters
    place, _ = _place(device, weights, True)
    stated = place.bandwidth_bytes_per_s if place else None
    fed = weights / (used(stated) if stated else _rate(used, device, place, "copy", True))
    launches = PASSES * len(network.layers) * used(device.launch_seconds) if device.launch_seconds else 0.0
    seconds = max(arithmetic, fed) + launches
    yield used.row(device, "gradient step", seconds)
    if device.power_watts:
        yield used.row(device, "energy of a gradient step", used(device.power_watts) * seconds, "J")


def peak(used: Used, device: Device) -> float:
    """Operations of fp32 a second, of all cores."""
    if device.peak_fp32_ops_per_s:
        return used(device.peak_fp32_ops_per_s)
    clock = _clock(used, device)
    if device.kind == "gpu":
        return 2 * used.assume(GPU_LANES) * (used(device.multiprocessors) if device.multiprocessors else 1) * clock
    return used.assume(CORE_OPERATIONS) * (used(device.cores) if device.cores else 1) * clock


def _fpga(device: Device, asked: Asked, network: Network) -> Iterator[Row]:
    """The best design of ``dse.fpga.explore``, one slice kept for the tree where there are several."""
    used = Used()
    clock = _clock(used, device)
    slices = tuple(Slice(part.name, Budget(**part.usable())) for part in device.slices)
    for part in device.slices:
        sizes = (getattr(held, name) for held in (part, part.shell) if held for name in RESOURCES)
        used.origins |= {size.origin for size in sizes}
    space = Space(asked.capacity, asked.batch, clock_hz=clock)
    try:
        best = _explored(network, space, slices)
    except ValueError as error:
        yield Row(device.name, "gradient step", None, note=str(error))
        return
    yield used.row(device, "sample a batch and update it", best.rmm.cycles / clock)
    yield used.row(device, "gradient step", best.learner.cycles / clock)
    if device.power_watts:
        energy = used(device.power_watts) * max(best.rmm.cycles, best.learner.cycles) / clock
        yield used.row(device, "energy of a gradient step", energy, "J")


@functools.lru_cache(maxsize=256)
def _explored(network: Network, space: Space, slices: tuple[Slice, ...]) -> explore.Choice:
    return explore.explore(network, space, slices, "kept" if len(slices) > 1 else "free")[0]


_OF_KIND = {"cpu": _cpu, "gpu": _gpu, "fpga": _fpga}


# Storage and links


def _storage(device: Device, asked: Asked) -> Iterator[Row]:
    """Whether N records fit the device's memory; if so, the seconds to gather a batch out of it."""
    if device.memory is None:
        return
    need, have = asked.capacity * asked.record_bytes, device.memory.size_bytes.value
    if need > have:
        note = f"{need / 1e9:,.3g} GB of records do not fit {have / 1e9:,.3g} GB"
        yield Row(device.name, "gather a batch of records", None, note=note)
        return
    used = Used()
    used(device.memory.size_bytes)
    moved = asked.batch * asked.record_bytes / _rate(used, device, device.memory, "copy", True)
    yield used.row(device, "gather a batch of records", moved)


def _moves(platform: Platform, asked: Asked) -> Iterator[Row]:
    """A batch of records from each device to each other, by the fastest chain of links."""
    for source in platform.devices:
        for target in platform.devices:
            if source is not target:
                nbytes = asked.batch * asked.record_bytes
                seconds, links = platform.way(source.name, target.name, nbytes)
                origins = {origin for link in links for origin in link.origins}
                yield Row(source.name, f"send a batch to {target.name}", seconds, "s", tuple(sorted(origins)))
