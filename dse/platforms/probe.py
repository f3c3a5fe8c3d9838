"""Probe this machine, what its memory does, and its CUDA devices, in about half a minute, without privileges.

Times are each thread's own processor time, so what other programs take of a core is not counted; what they take of
shared caches, of memory and of the other half of a core is. Samples of all cells take turns, in *rounds*; rounds are
taken in *blocks*, each on memory of its own, for where the buffers happen to lie changes their speed.
"""

import dataclasses
import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impls.cores import count_allowed, count_cores, read_text
from impls.files import try_to_write

from .checkout import command_line, now
from .files import PlatformError, read, to_toml
from .fingerprint import data_caches, fingerprint, query_gpus
from .memory import Work, compiled, memory_reads, memory_streams
from .platform import Cache, Device, Link, Memory, Platform
from .quantities import Quantity

SECONDS = 27.0
BLOCKS = 6
LEAST_SAMPLE_SECONDS = 0.002
READS = 1 << 14  # of a time
LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 64 << 20, 512 << 20
DIGITS = 4
FIELDS: Mapping[str, tuple[str, str]] = {  # by kernel: the fields of Memory for one core and for all
    "chase": ("latency_seconds", ""),
    "gather": ("gather_seconds", "gather_all_cores_seconds"),
    "copy": ("copy_bytes_per_s", "copy_all_cores_bytes_per_s"),
    "triad": ("triad_bytes_per_s", "triad_all_cores_bytes_per_s"),
}

GPU_SECONDS = 0.5  # of sampling in a block, of which there are as many
SIDE, COPIED_BYTES, SENT_BYTES, LAUNCHES = 8_192, 1 << 30, 64 << 20, 1_000  # of a GPU's samples

WIDENED, LEAST_SPREAD = 1.5, 0.02  # see spread_of

Tell = Callable[[str], object]
Samples = Mapping[tuple[str, str], Sequence[Sequence[float]]]
"""Rates in reads or bytes per second: by level and field, by block, by round."""


@dataclass
class Cell:
    """A number to be measured, by threads that each do one of the ``works`` on its own buffers.

    ``key``: the level and its field. ``times``: how often the work is done in a sample.
    """

    key: tuple[str, str]
    works: Sequence[Work]
    times: int = 1
    turn: int = 0

    def sample(self, pool: ThreadPoolExecutor) -> float:
        """Take one more sample: the amount per second of all threads together, each by its own time."""
        start = threading.Barrier(len(self.works))

        def run(work: Work) -> float:
            start.wait()
            begin = time.thread_time()
            work.call(self.turn, self.times)
            return self.times * work.amount / max(time.thread_time() - begin, 1e-9)

        rates = list(pool.map(run, self.works))
        self.turn += self.times
        return sum(rates)

    def calibrate(self, pool: ThreadPoolExecutor) -> None:
        """Find how often the work is done in a sample of at least ``LEAST_SAMPLE_SECONDS``. The first call compiles."""
        self.sample(pool)
        while True:
            amount = sum(work.amount for work in self.works)
            seconds = self.times * amount / self.sample(pool)
            if seconds >= LEAST_SAMPLE_SECONDS:
                return
            self.times = max(2 * self.times, int(self.times * LEAST_SAMPLE_SECONDS / seconds))


@dataclass(frozen=True)
class Level:
    """A cache or memory: its bytes, how many hardware threads share it, and the bytes one works on alone or with all
    others."""

    name: str
    nbytes: int
    shared_by: int
    single_thread_bytes: int
    bytes_per_thread: int


def levels(caches: Mapping[str, int], memory_bytes: int, threads: int) -> list[Level]:
    """Size the work of each level: caches are half filled; memory is worked on in four times the largest cache."""
    sized = []
    for name, nbytes in caches.items():
        shared = min(_shared_by(name, threads), threads)
        sized.append(Level(name, nbytes, shared, nbytes // 2, nbytes // 2 // shared))
    room = min(MOST_MEMORY_BYTES, memory_bytes // 32)
    large = min(room, max(LEAST_MEMORY_BYTES, 4 * max(caches.values(), default=0)))
    return [*sized, Level("memory", memory_bytes, threads, large, large // threads)]


def measure(found: Sequence[Level], threads: int, seconds: float = SECONDS, tell: Tell = lambda share: None) -> Samples:
    """Sample every cell that can be measured here. Takes a few seconds more than ``seconds``, to compile."""
    blocks: dict[tuple[str, str], list[list[float]]] = {}
    times: dict[tuple[str, str], int] = {}
    *caches, memory = found
    with ThreadPoolExecutor(threads) as pool:
        lasting = list(_make_cells(memory, threads, seed=0))  # its pages are many, and slow to get anew
        begin = time.perf_counter()
        for block in range(BLOCKS):
            cells = [cell for level in caches for cell in _make_cells(level, threads, seed=block)] + lasting
            for cell in cells:
                cell.times = times.get(cell.key, 1)
                cell.calibrate(pool)
                times[cell.key] = cell.times
                blocks.setdefault(cell.key, []).append([])
            # Invariant: every cell has as many rounds in this block as every other.
            while len(blocks[cells[0].key][-1]) < 2 or time.perf_counter() < begin + seconds * (block + 1) / BLOCKS:
                for cell in cells:
                    blocks[cell.key][-1].append(cell.sample(pool))
                tell(f"{min(1.0, (time.perf_counter() - begin) / seconds):4.0%}")
    return blocks


def _make_cells(level: Level, threads: int, seed: int) -> Iterator[Cell]:
    """Yield the cells of a level: by one thread, and by all where there are several."""

    def make_works(nbytes: int, seed: int) -> dict[str, Work]:
        return memory_reads(nbytes, READS, seed) | memory_streams(nbytes)

    for kind, work in make_works(level.single_thread_bytes, seed).items():
        yield Cell((level.name, FIELDS[kind][0]), [work])
    every = [make_works(level.bytes_per_thread, seed + 1 + n) for n in range(threads)] if threads > 1 else []
    for kind in every[0] if every else ():
        if name := FIELDS[kind][1]:
            yield Cell((level.name, name), [works[kind] for works in every])


def quantity(name: str, blocks: Sequence[Sequence[float]], note: str) -> Quantity:
    """Take the median of all rounds, as seconds for a ``name`` that ends so; with its spread."""
    rate = float(np.median(np.concatenate(blocks)))
    value = 1 / rate if name.endswith("_seconds") else rate
    return Quantity(value=_rounded(value, DIGITS), origin="measured", note=note, spread=spread_of(blocks))


def _quantities(samples: Samples, note: str) -> dict[str, dict[str, Any]]:
    """Take the numbers of each part by field; ``{}`` in the note is the number of its samples."""
    parts = defaultdict[str, dict[str, Any]](dict)
    for (part, field), blocks in samples.items():
        parts[part][field] = quantity(field, blocks, note.format(sum(map(len, blocks))))
    return parts


def spread_of(blocks: Sequence[Sequence[float]]) -> float:
    """Estimate the relative half-width of the interval in which another probe of this machine should find its median.

    It is half as much again as the larger of two differences: between rounds (half the range from the 5th to the 95th
    percentile) and between blocks (the median of one from that of all). Rounds of one probe differ less than those of
    two: seven probes of a busy shared machine, over ten minutes, agreed in all of 588 pairs with this, in 584 without
    the half, and in 510 by the difference of blocks alone.
    """
    rates = np.concatenate(blocks)
    low, middle, high = np.percentile(rates, (5, 50, 95))
    far = max(abs(float(np.median(block)) - middle) for block in blocks)
    return _rounded(max(LEAST_SPREAD, WIDENED * max(high - low, 2 * far) / (2 * middle)), 2)


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def probe(seconds: float = SECONDS, tell: Tell = lambda share: None) -> Platform:
    """Describe this machine's processor. ``tell`` gets the progress several times per second."""
    here = fingerprint()
    threads = count_allowed()
    found = levels(here["caches"], here["memory_bytes"], threads)
    return describe(here, found, threads, measure(found, threads, seconds, tell))


def write_probe(path: Path) -> Platform:
    """Probe this machine, its progress on standard error, and write its file. OSError where it cannot be written.

    PlatformError where the file there is of more of the machine than this process may use.
    """
    try_to_write(path.parent)
    if path.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    _check_allowed(path)
    print("probing this machine takes half a minute", file=sys.stderr, flush=True)
    platform = probe(tell=functools.partial(print, end="\r", file=sys.stderr) if sys.stderr.isatty() else str)
    for device, link in gpus() if fingerprint()["gpus"] else ():
        platform = dataclasses.replace(platform, devices=(*platform.devices, device), links=(*platform.links, link))
    platform = keep_nodes(platform, path)
    write_file(path, platform)
    return platform


def keep_nodes(platform: Platform, path: Path) -> Platform:
    """Return a platform with the nodes and the network of the file that it takes the place of, if there is one."""
    before = read(path)[0] if path.is_file() else None
    return dataclasses.replace(platform, nodes=before.nodes, network=before.network) if before else platform


def write_file(path: Path, platform: Platform) -> None:
    """Write the file of a platform that was probed. OSError where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(platform, f"# What `{command_line()}` found at {now()}.\n"), encoding="utf-8")


def _check_allowed(path: Path) -> None:
    """Warn where this process may use a part of the machine, and keep a file of more. PlatformError for such a file."""
    allowed, there = count_allowed(), fingerprint()["cores"]
    if allowed >= there:
        return
    limit = f"this process may use {allowed} of the machine's {there} hardware threads"
    platform = read(path)[0] if path.is_file() else None
    devices = platform.devices if platform else ()
    known = max((device.threads.value for device in devices if device.threads), default=0)
    if known > allowed:
        where = "probe without that limit (of taskset, a container or a batch system), or into another file: --out FILE"
        raise PlatformError(f"{path}: was probed with {known:g} hardware threads, and {limit}; {where}")
    print(f"warning: {limit}; the file describes those alone", file=sys.stderr)


def describe(here: Mapping[str, Any], found: Sequence[Level], threads: int, samples: Samples) -> Platform:
    """Build the platform from samples of the machine whose fingerprint is ``here``."""
    by = f"numba {here['packages'].get('numba')}" if compiled() else "NumPy, a call each time"
    note = f"median of {{}} rounds, {by}; all cores: {threads} threads added up"
    parts = _quantities(samples, note)
    for level in found:
        parts[level.name]["size_bytes"] = _quote(level.nbytes)
    shared = {level.name: level.shared_by for level in found[:-1]}
    part = f", of {here['cores']} hardware threads those that the probe might use" * (threads < here["cores"])
    model = " ".join(here["cpu"].split()) or "a processor"
    processor = Device(
        name="cpu",
        kind="cpu",
        model=model,
        cores=_quote(count_cores(), part),
        threads=_quote(threads, part),
        caches=tuple(Cache(name=name, shared_by=_quote(count, part), **parts[name]) for name, count in shared.items()),
        memory=Memory(**parts[found[-1].name]),
    )
    return Platform(name="this", title=f"{model}, as probed", machine_key=here["key"], devices=(processor,))


def gpus() -> Iterator[tuple[Device, Link]]:
    """Yield each CUDA device as torch finds and times it, with its link from the memory of the "cpu"."""
    try:
        import torch  # noqa: PLC0415  # heavy

        count = torch.cuda.device_count()
    except ImportError:
        count = 0
    if not count:
        print("warning: no torch here can use the GPU; the file describes the processor alone", file=sys.stderr)
    clocks_and_limits = query_gpus("clocks.max.sm,power.limit", "csv,noheader,nounits")
    for index in range(count):
        facts = torch.cuda.get_device_properties(index)
        listed = zip(("clock_hz", "power_watts"), clocks_and_limits[index].split(","), (1e6, 1), strict=True)
        driver = functools.partial(_quote, part=", at most", by="its driver")
        limits = {name: driver(unit * float(word)) for name, word, unit in listed if word.strip()[:1].isdigit()}
        wait, nbytes = functools.partial(torch.cuda.synchronize, index), min(COPIED_BYTES, facts.total_memory // 8)
        try:
            samples = sample_gpu(torch.device("cuda", index), wait, nbytes=nbytes)
        except RuntimeError as error:  # of torch: its memory is full, or the driver is another
            print(f"warning: GPU {index} is left out; probe again when it is free: {error}", file=sys.stderr)
            continue
        yield describe_gpu(f"gpu{index if count > 1 else ''}", facts, samples, limits)


def sample_gpu(device: Any, wait: Callable[[], object], side: int = SIDE, nbytes: int = COPIED_BYTES) -> Samples:
    """Sample amounts per second on a torch device: operations, bytes, launches, transfers; ``wait`` ends a sample."""
    import torch  # noqa: PLC0415  # heavy

    left, right = (torch.rand(side, side, device=device) for _ in range(2))
    source, target = (torch.zeros(nbytes, dtype=torch.uint8, device=device) for _ in range(2))
    few, many = (np.zeros(size, np.uint8) for size in (4, min(nbytes, SENT_BYTES)))
    away = {size.nbytes: torch.from_numpy(size).to(device) for size in (few, many)}
    single = torch.zeros(1, device=device)
    calls: dict[tuple[str, str], tuple[float, Callable[[], object]]] = {
        ("device", "peak_fp32_ops_per_s"): (2 * side**3, lambda: torch.mm(left, right)),
        ("device", "launch_seconds"): (LAUNCHES, lambda: [single.add_(1) for _ in range(LAUNCHES)]),
        ("memory", "copy_all_cores_bytes_per_s"): (2 * nbytes, lambda: target.copy_(source)),
        ("link", "alpha_seconds"): (1, lambda: torch.from_numpy(few).to(device)),
        ("link", "beta_bytes_per_s"): (many.nbytes, lambda: torch.from_numpy(many).to(device)),
        ("link", "back_alpha_seconds"): (1, away[few.nbytes].cpu),
        ("link", "back_beta_bytes_per_s"): (many.nbytes, away[many.nbytes].cpu),
    }
    blocks: dict[tuple[str, str], list[list[float]]] = {key: [] for key in calls}
    for _ in range(BLOCKS):
        for key, (amount, call) in calls.items():
            call()
            wait()
            begin, rates = time.perf_counter(), list[float]()
            while len(rates) < 2 or time.perf_counter() < begin + GPU_SECONDS / len(calls):
                start = time.perf_counter()
                call()
                wait()
                rates.append(amount / (time.perf_counter() - start))
            blocks[key].append(rates)
    return blocks


def describe_gpu(name: str, facts: Any, samples: Samples, limits: Mapping[str, Any]) -> tuple[Device, Link]:
    """Build a GPU and its link from torch's properties of it and samples; ``limits`` are further numbers of it."""
    parts = _quantities(samples, "median of {} samples by torch, arrays in memory that is not pinned")
    driver = functools.partial(_quote, by="its driver")
    units = driver(facts.multi_processor_count)
    device = Device(
        name=name,
        kind="gpu",
        model=facts.name,
        multiprocessors=units,
        caches=(Cache(name="L2", size_bytes=driver(facts.L2_cache_size), shared_by=units),),
        memory=Memory(size_bytes=driver(facts.total_memory), **parts["memory"]),
        **parts["device"],
        **limits,
    )
    return device, Link(source="cpu", target=name, hops=driver(1), **parts["link"])


def _quote(value: float, part: str = "", by: str = "the operating system") -> Quantity:
    return Quantity(value=value, origin="measured", note=f"as {by} tells{part}")


def _shared_by(level: str, threads: int) -> int:
    """Count hardware threads that share a cache with the first; where the system says nothing, all do from L3 on."""
    for name, index in data_caches():
        if name == level and (listed := read_text(index / "shared_cpu_list")):
            return len(_cpus(listed))
    return 1 if level in ("L1", "L2") else threads


def _cpus(listed: str) -> list[int]:
    """List the CPUs of a range as Linux writes it.

    >>> _cpus("0-2,8")
    [0, 1, 2, 8]
    """
    ranges = (part.partition("-") for part in listed.split(","))
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]
