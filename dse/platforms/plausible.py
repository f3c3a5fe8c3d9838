"""Warn where numbers of a platform that are possible alone do not go together, as after a change of some of them.

Bounds are those of the platforms that ship, and of what makers sell besides, with room; each says what it rests on.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from impls.strict_toml import KeyPath, line_of

from .platform import Device, Link, Memory, Platform, leaves
from .quantities import Quantity, digits, in_unit, readable, split

Warned = Iterator[tuple[KeyPath, str, str]]
"""Path of a table, a field of it, and the sentence about it."""


class Range(NamedTuple):
    """What an amount may be, in ``unit``s of ``si`` SI units each, and what that rests on."""

    low: float
    high: float
    unit: str
    si: float
    why: str


FAST_HZ = 2e9  # a core of so high a clock has wide vector units
FAST_CORE = Range(16, 64, "operations a core and cycle", 1, "u200 and h200 have 32, two 16-wide fused units 64")
SLOW_CORE = Range(2, 64, "operations a core and cycle", 1, "edge has 8, one fused unit 2")
LANES = Range(60, 280, "operations a multiprocessor and cycle", 1, "u200 and h200 have 256, others 64 lanes and 128")
CORE_BYTES = Range(3, 60, "GB/s a core", 1e9, "u200 has 3.2, edge 4.8 and h200 9.4; one core takes in some 60 at most")
UNIT_BYTES = Range(3, 100, "GB/s a multiprocessor", 1e9, "u200 has 18, h200 36")
SOCKET_BYTES = Range(1, 850, "GB/s a socket", 1e9, "twelve channels of DDR5-8800 have 845")
CORE_WATTS = Range(0.3, 40, "W a core", 1, "edge has 0.6, u200 and h200 7.5")
FPGA_CLOCK = Range(50, 900, "MHz", 1e6, "u200 has 200, edge 300; no multiplier is faster than some 900")
SOCKETS = 2  # where they are not stated
MOST_THREADS = 8  # of a core
NOTED = re.compile(r"\b(?P<cpu>\d+) cores(?! (?:a|per|each)\b)|\b(?P<gpu>\d+) x \d+ lanes")


def warnings(platform: Platform, lines: Mapping[KeyPath, int]) -> list[tuple[int, str]]:
    """List (line, sentence) of each number that does not go with the others; ``lines`` as ``locate`` has them."""
    warned: list[tuple[KeyPath, str, str]] = []
    for position, device in enumerate(platform.devices):
        at = ("device", position)
        warned += {"cpu": _processor, "gpu": _gpu, "fpga": _fpga}[device.kind](device, at)
        warned += [*_notes(device, at), *_caches(device, at), *_copies(device, at)]
    for position, link in enumerate(platform.links):
        warned += _link(link, ("link", position))
    return sorted((_line(path, field, lines), sentence) for path, field, sentence in warned)


def _line(path: KeyPath, field: str, lines: Mapping[KeyPath, int]) -> int:
    name, units = split(field)
    keys = [(*path, f"{name}{unit.ending}") for unit in units]
    return line_of(next((key for key in keys if key in lines), path), lines)


def _shown(field: str, value: float) -> str:
    unit = readable(field, value)[1]
    return f"{digits(float(f'{in_unit(value, unit):.3g}'))} {unit.sign}".strip()


def _share(part: Device | Memory | None, field: str, at: KeyPath, of: str, among: float, bounds: Range) -> Warned:
    """Yield the number of a part where it is outside of its bounds, shared out ``among`` a number ``of``."""
    value: Quantity | None = getattr(part, field, None)
    each = value.value / among / bounds.si if value else bounds.low
    if value is None or bounds.low <= each <= bounds.high:
        return
    few = each < bounds.low
    end, words = (bounds.low, "at least") if few else (bounds.high, "at most")
    yield (
        at,
        field,
        f"{split(field)[0]} of {_shown(field, value.value)} is {each:.3g} {bounds.unit}, {words} {end:g} are usual "
        f"({bounds.why}); state that of all {of}, {words} {_shown(field, end * bounds.si * among)}, or "
        f"{'fewer' if few else 'more'} {of.rsplit(maxsplit=1)[-1]}",
    )


def _processor(device: Device, at: KeyPath) -> Warned:
    cores = device.cores.value if device.cores else 1
    sockets = device.sockets.value if device.sockets else SOCKETS
    hz = device.clock_hz.value if device.clock_hz else FAST_HZ
    if device.threads and not 1 <= (ratio := device.threads.value / cores) == ratio // 1 <= MOST_THREADS:
        wanted = f"a multiple of its {cores:g} cores, {MOST_THREADS} a core at most"
        wrong = f"{device.threads.value:g} threads are not {wanted}"
        yield at, "threads", f"{wrong}; state those of all cores, or other cores"
    if device.sockets and cores % sockets:
        wrong = f"{cores:g} cores are not shared out evenly by {sockets:g} sockets"
        yield at, "sockets", f"{wrong}; state those of all sockets"
    of, operations = f"{cores:g} cores", FAST_CORE if hz >= FAST_HZ else SLOW_CORE
    yield from _share(device, "peak_fp32_ops_per_s", at, of, cores * hz, operations)
    yield from _share(device, "power_watts", at, of, cores, CORE_WATTS)
    yield from _bandwidth(device, at, of, cores, CORE_BYTES)
    yield from _bandwidth(device, at, f"{sockets:g} sockets", sockets, SOCKET_BYTES)


def _bandwidth(device: Device, at: KeyPath, of: str, among: float, bounds: Range) -> Warned:
    """Yield the rate of all cores together, stated or else measured, where it is outside of its bounds."""
    is_stated = device.memory and device.memory.bandwidth_bytes_per_s
    field = "bandwidth_bytes_per_s" if is_stated else "copy_all_cores_bytes_per_s"
    yield from _share(device.memory, field, (*at, "memory"), of, among, bounds)


def _gpu(device: Device, at: KeyPath) -> Warned:
    if not device.multiprocessors:
        return
    units = device.multiprocessors.value
    of = f"{units:g} multiprocessors"
    if device.clock_hz:
        yield from _share(device, "peak_fp32_ops_per_s", at, of, units * device.clock_hz.value, LANES)
    yield from _bandwidth(device, at, of, units, UNIT_BYTES)


def _fpga(device: Device, at: KeyPath) -> Warned:
    hz = device.clock_hz.value if device.clock_hz else 0
    low, high, unit, si, why = FPGA_CLOCK
    if not low * si <= hz <= high * si:
        sentence = f"a clock of {_shown('clock_hz', hz)}; designs run at {low:g} to {high:g} {unit} ({why})"
        yield at, "clock_hz", f"{sentence}; state that of the designs, not of a processor or a memory"


def _notes(device: Device, at: KeyPath) -> Warned:
    """Yield numbers whose note counts other cores than the device has: they were left as they are."""
    has, unit = (device.cores, "cores") if device.kind == "cpu" else (device.multiprocessors, "multiprocessors")
    sockets = device.sockets.value if device.sockets else 1
    for leaf in leaves(device):
        if has is None or isinstance(leaf.value, str):
            continue
        for match in NOTED.finditer(leaf.value.note):
            counted = match[device.kind]
            if counted and float(counted) not in (has.value, has.value / sockets):
                wrong = f"{leaf.path} is stated for {counted} {unit} by its note, the device has {has.value:g}"
                table = tuple(leaf.path.split(".")[:-1]) if leaf.path.startswith("memory") else ()
                yield (*at, *table), leaf.field, f"{wrong}; state it, and its note, for {has.value:g}"


def _caches(device: Device, at: KeyPath) -> Warned:
    """Yield caches that are not shared out evenly, or out of order."""
    every = device.threads or device.cores if device.kind == "cpu" else device.multiprocessors
    of = "multiprocessors" if device.kind == "gpu" else "hardware threads" if device.threads else "cores"
    for level, cache in enumerate(device.caches):
        path = (*at, "cache", level)
        yield from _outermost(device, path) if cache is device.caches[-1] and device.kind == "cpu" else ()
        if cache.shared_by and every and every.value % cache.shared_by.value:
            wrong = (
                f"{cache.name} is shared by {cache.shared_by.value:g}, which does not divide the {every.value:g} {of}"
            )
            yield path, "shared_by", f"{wrong} of the device; state by how many of them each {cache.name} is shared"
        if level and cache.size_bytes.value < (before := device.caches[level - 1]).size_bytes.value:
            sizes = [f"{each.name} has {_shown('size_bytes', each.size_bytes.value)}" for each in (cache, before)]
            yield path, "size_bytes", f"{', '.join(sizes)}; state caches from the nearest to a core, the smallest, on"


def _outermost(device: Device, path: KeyPath) -> Warned:
    """Yield the last cache of a processor where a socket has several, unless shared_by was measured or has its note."""
    cache, cores, every = device.caches[-1], device.cores, device.threads or device.cores
    if not (cache.shared_by and cores and every) or cache.shared_by.origin == "measured":
        return
    shared, socket = cache.shared_by.value, every.value / (device.sockets.value if device.sockets else 1)
    if every.value / cores.value < shared < socket and cache.shared_by.note == cores.note:
        several = (
            f"{cache.name} is shared by {shared:g} of {socket:g} hardware threads, so there are {socket / shared:.3g}"
        )
        say = f'shared_by = {{ value = {shared:g}, note = "one for each chiplet" }}'
        remedy = f"if there are, say so: {say}; else state all that share it"
        yield path, "shared_by", f"{several} a socket; u200, h200 and edge have one; {remedy}"


def _copies(device: Device, at: KeyPath) -> Warned:
    """Yield measured rates above what the memory is stated to have."""
    memory = device.memory
    if memory is None or memory.bandwidth_bytes_per_s is None:
        return
    most = memory.bandwidth_bytes_per_s.value
    for field in [f"{kernel}{of}_bytes_per_s" for kernel in ("copy", "triad") for of in ("", "_all_cores")]:
        rate: Quantity | None = getattr(memory, field)
        if rate and rate.value * (1 - (rate.spread or 0)) > most:
            wrong = f"{split(field)[0]} of {_shown(field, rate.value)} is above the memory's bandwidth of"
            yield (*at, "memory"), field, f"{wrong} {_shown(field, most)}; state the bandwidth of all channels"


def _link(link: Link, at: KeyPath) -> Warned:
    nominal = link.nominal_bytes_per_s
    for field in ("beta_bytes_per_s", "back_beta_bytes_per_s"):
        rate: Quantity = getattr(link, field)
        if nominal and rate.value > nominal.value:
            raw = f"is above the raw rate, nominal, of {_shown(field, nominal.value)}"
            wrong = f"{split(field)[0]} of {_shown(field, rate.value)} {raw}"
            yield at, field, f"{wrong}; state what transfers reach, about six sevenths of it, or another raw rate"
