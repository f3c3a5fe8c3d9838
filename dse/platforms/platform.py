"""Describe a machine as the solver sees it: devices, their memories and slices, and the links between them.

Field names say SI units; every number is a ``Quantity``, which carries its origin. The fields are also the keys of a
platform file, where a unit of the writer's choice takes the place of the SI one (``files.py``).
"""

# ruff: noqa: RUF009  # number(), text() and tables() are dataclasses.field(), with what a file may say as metadata

import dataclasses
import functools
import math
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from typing import Any, NamedTuple

from impls.strict_toml import Field, key

from .quantities import Quantity, split

LARGEST_CACHE_BYTES = 1 << 30  # every cache is below it; one of half as much is the largest that is sold
LEAST_MEMORY_BYTES = 1 << 20  # no memory is smaller
LONGEST_SECONDS = 1.0  # every latency is below it
BOUNDS = {"least": 0, "zero": False, "below": math.inf}  # of a number, unless it states others
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class DeviceKind(NamedTuple):
    """The keys of a kind of device.

    ``needed``: fields without which nothing can be said of it. ``own``: fields that only the kinds have which name them
    here; all others are for every kind. ``has_laws``: times that nobody measured or stated are modeled.
    """

    needed: tuple[str, ...]
    own: tuple[str, ...]
    has_laws: bool = False


KINDS = {
    "cpu": DeviceKind(
        ("cores", "memory"), ("sockets", "cores", "threads", "peak_fp32_ops_per_s", "caches"), has_laws=True
    ),
    "gpu": DeviceKind(
        ("memory",), ("multiprocessors", "launch_seconds", "peak_fp32_ops_per_s", "caches"), has_laws=True
    ),
    "fpga": DeviceKind(("clock_hz", "slices"), ("shell", "slices"), has_laws=True),
}


def number(meaning: str, default: Any = MISSING, **rules: Any) -> Any:
    """Declare a number above 0 (``zero``: from 0 on), at ``least`` one bound and ``below`` another.

    ``documentation``: no estimate uses it.
    """
    return key("number", default, meaning=meaning, **{"documentation": False, **BOUNDS, **rules})


def seconds(meaning: str, default: Any = MISSING, zero: bool = False) -> Any:
    """Declare a number of seconds that something short takes."""
    return number(meaning, default, zero=zero, below=LONGEST_SECONDS)


def text(meaning: str, default: Any = MISSING, **rules: Any) -> Any:
    """Declare words; of ``choices``, or of a ``pattern``."""
    return key("text", default, meaning=meaning, **rules)


def identifier() -> Any:
    """Declare a name that others refer to."""
    return text("what others call it", documentation=True, pattern=_NAME, called="of letters, digits, _ and -")


def table(name: str, of: type) -> Any:
    """Declare a table of a file, ``[...name]``, which may be missing."""
    return key("table", None, key=name, of=of)


def tables(name: str, of: type, default: Any = ()) -> Any:
    """Declare any number of tables ``[[...name]]``; at least one where there is no default."""
    return key("tables", default, key=name, of=of)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A level of memory. Bandwidths count bytes read and bytes written, as the STREAM benchmark does.

    ``bandwidth``: what a datasheet or a paper states for all cores together. ``latency``: one read that waits for the
    one before. ``gather``: one of many independent reads of random lines. ``copy``: a = b; ``triad``: a = b + s c.
    Fields are of one core, or of all at once: there ``gather`` is the seconds between two reads that any core finishes.
    """

    size_bytes: Quantity = number("how much it holds", least=LEAST_MEMORY_BYTES)
    bandwidth_bytes_per_s: Quantity | None = number("of all cores together, as a data sheet has it", None)
    latency_seconds: Quantity | None = seconds("of a read that waits for the one before", None)
    gather_seconds: Quantity | None = seconds("of one core: a read of a random line among many", None)
    copy_bytes_per_s: Quantity | None = number("of one core: a = b, bytes read and written", None)
    triad_bytes_per_s: Quantity | None = number("of one core: a = b + s c, bytes read and written", None)
    gather_all_cores_seconds: Quantity | None = seconds("of all cores at once: between two random reads", None)
    copy_all_cores_bytes_per_s: Quantity | None = number("of all cores at once: a = b", None)
    triad_all_cores_bytes_per_s: Quantity | None = number("of all cores at once: a = b + s c", None)


@dataclass(frozen=True, kw_only=True)
class Cache(Memory):
    """A cache, as one core sees it; ``shared_by`` hardware threads of the processor."""

    name: str = identifier()
    size_bytes: Quantity = number("how much it holds", below=LARGEST_CACHE_BYTES)
    shared_by: Quantity | None = number("hardware threads, or multiprocessors, that share one", None)


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of an FPGA for designs: lookup tables, flip-flops, 36 Kbit and 288 Kbit memories, multipliers."""

    lut: Quantity = number("lookup tables", zero=True)
    ff: Quantity = number("flip-flops", zero=True)
    bram36: Quantity = number("memories of 36 Kbit", zero=True)
    uram: Quantity = number("memories of 288 Kbit", zero=True)
    dsp: Quantity = number("multipliers", zero=True)


RESOURCES = tuple(field.name for field in dataclasses.fields(Resources))


@dataclass(frozen=True, kw_only=True)
class Slice(Resources):
    """A part of an FPGA that a design should not cross: a die (SLR), or the whole of a small device.

    ``shell``: what of it the vendor's shell, or any fixed part of the design, takes away.
    """

    name: str = identifier()
    shell: Resources | None = table("shell", Resources)

    def usable(self) -> dict[str, int]:
        """Compute what is left for a design, by resource."""
        taken = {name: getattr(self.shell, name).value if self.shell else 0 for name in RESOURCES}
        return {name: int(getattr(self, name).value - taken[name]) for name in RESOURCES}


@dataclass(frozen=True, kw_only=True)
class Device:
    """A processor, GPU or FPGA with its memory.

    ``threads``: hardware threads of all cores. ``peak_fp32``, ``peak_int32``: multiplications and additions, each an
    operation. ``launch``: what a kernel costs before it does anything. ``power``: drawn under load, or the thermal
    limit where the note says so.
    """

    name: str = identifier()
    kind: str = text("kind of device, which decides its keys", choices=KINDS)
    model: str | None = text("the maker's name of it", None, documentation=True)
    process_nm: Quantity | None = number("of the chip, in nm", None, documentation=True)
    sockets: Quantity | None = number("processors", None, documentation=True)
    cores: Quantity | None = number("cores of all sockets, without hyper-threads", None)
    threads: Quantity | None = number("hardware threads of all cores", None)
    multiprocessors: Quantity | None = number("streaming multiprocessors, compute units", None)
    clock_hz: Quantity | None = number("under load; of an FPGA that of its designs", None)
    peak_fp32_ops_per_s: Quantity | None = number("of all cores; a multiplication and an addition are two", None)
    peak_int32_ops_per_s: Quantity | None = number("the same, of integers", None, documentation=True)
    launch_seconds: Quantity | None = seconds("of a kernel, before it does anything", None)
    power_watts: Quantity | None = number("drawn under load, or the thermal limit where the note says so", None)
    shell: str | None = text("the vendor's shell that its slices lost resources to", None, documentation=True)
    caches: tuple[Cache, ...] = tables("cache", Cache)
    memory: Memory | None = table("memory", Memory)
    slices: tuple[Slice, ...] = tables("slice", Slice)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A route for data between two devices, by direction: ``source`` to ``target``, and ``back``.

    n bytes take hops x (alpha + n / beta): each of the ``hops`` stores all of them before it sends them on.
    ``nominal``: the raw rate of the link, which no transfer reaches.
    """

    source: str = text("the device at one end", key="from")
    target: str = text("the device at the other end", key="to")
    hops: Quantity = number("times that all bytes are stored and sent on: 1 for a bus")
    alpha_seconds: Quantity = seconds("to start a transfer from the one to the other", zero=True)
    beta_bytes_per_s: Quantity = number("rate of one under way, often six sevenths of the raw rate")
    back_alpha_seconds: Quantity = seconds("to start a transfer back", zero=True)
    back_beta_bytes_per_s: Quantity = number("rate of a transfer back under way")
    nominal_bytes_per_s: Quantity | None = number("raw rate, which no transfer reaches", None, documentation=True)

    @property
    def name(self) -> str:
        """The names of both ends, with a hyphen."""
        return f"{self.source}-{self.target}"

    @property
    def origins(self) -> set[str]:
        """Origins of the numbers that a transfer rests on."""
        quantities = (self.alpha_seconds, self.beta_bytes_per_s, self.back_alpha_seconds, self.back_beta_bytes_per_s)
        return {quantity.origin for quantity in quantities}

    def seconds(self, nbytes: float, back: bool = False) -> float:
        """Compute the seconds of a transfer of a given number of bytes."""
        alpha = self.back_alpha_seconds if back else self.alpha_seconds
        beta = self.back_beta_bytes_per_s if back else self.beta_bytes_per_s
        return self.hops.value * (alpha.value + nbytes / beta.value)


@dataclass(frozen=True, kw_only=True)
class Node:
    """Machines of a kind in a cluster. ``platform``: a name or a file, as commands take it, of their devices."""

    name: str = identifier()
    platform: str = text("name or file of the platform of their devices; this: the machine that asks")
    count: Quantity = number("how many of them the cluster has")
    cores: Quantity | None = number("that the cluster gives each; without it all of its platform's", None)
    price_per_hour: Quantity | None = number("of one of them, in any currency", None)


@dataclass(frozen=True, kw_only=True)
class Network:
    """The costs of training over nodes besides those of its parts: calls, and bytes between machines."""

    call_seconds: Quantity = seconds("of the learner's processor, for a call to a node and its answer")
    batch_seconds: Quantity = seconds("of the learner's processor, to put a batch together and send its priorities")
    record_seconds: Quantity = seconds("of the learner's processor, for each record of a batch")
    answer_seconds: Quantity = seconds("of a node, to answer a call")
    rate_bytes_per_s: Quantity = number("of records and weights between the learner and all nodes")


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A machine, and the nodes of a cluster if it is the learner's.

    ``machine_key``: the key of its fingerprint, where the machine was probed. ``nodes``, which may be the machine
    itself, and ``network`` are there together.
    """

    name: str = identifier()
    title: str | None = text("one line on the machine", None, documentation=True)
    machine_key: str | None = text(
        "of its fingerprint, as `probe` writes it: whose records are read", None, documentation=True
    )
    devices: tuple[Device, ...] = tables("device", Device, MISSING)
    links: tuple[Link, ...] = tables("link", Link)
    nodes: tuple[Node, ...] = tables("node", Node)
    network: Network | None = table("network", Network)

    def device(self, name: str) -> Device:
        """Return the device of that name. KeyError where there is none."""
        return {device.name: device for device in self.devices}[name]

    def transfer_seconds(self, source: str, target: str, nbytes: float) -> float:
        """Compute the seconds of n bytes from a device to another, by the fastest route. KeyError for no device."""
        return self.way(source, target, nbytes)[0]

    def way(self, source: str, target: str, nbytes: float) -> tuple[float, tuple[Link, ...]]:
        """Find the fastest route for n bytes: (seconds, its links); (inf, ()) where no chain of links leads there."""
        best: dict[str, tuple[float, tuple[Link, ...]]] = {device.name: (math.inf, ()) for device in self.devices}
        best[self.device(source).name] = (0.0, ())
        # Invariant: after r rounds no chain of at most r links is faster than best [Bellman1958].
        for _ in self.devices:
            for link in self.links:
                for start, end, back in ((link.source, link.target, False), (link.target, link.source, True)):
                    spent, links = best[start]
                    seconds = spent + link.seconds(nbytes, back)
                    if seconds < best[end][0]:
                        best[end] = (seconds, (*links, link))
        return best[self.device(target).name]


def name_of(field: Field) -> str:
    """Return how a file names a field, without its unit."""
    name: str = field.metadata.get("key", split(field.name)[0])
    return name


@functools.cache
def keys_of(of: type) -> dict[str, Field]:
    """Map every key that a table of a file may have, each with its unit, to its field."""
    return {name_of(field) + unit.ending: field for field in dataclasses.fields(of) for unit in split(field.name)[1]}


@dataclass(frozen=True)
class Leaf:
    """A key of a platform: its path, its field's name (with its SI unit), and its value.

    ``documentation``: no estimate may rest on it; every other key must move some estimate.
    """

    path: str
    field: str
    value: Quantity | str
    documentation: bool


def leaves(thing: Any, path: str = "") -> Iterator[Leaf]:
    """Yield every key that is set in a platform, or in a part of one, in the order of its fields."""
    for field in dataclasses.fields(thing):
        value, here = getattr(thing, field.name), path + name_of(field)
        if isinstance(value, tuple):
            for part in value:
                yield from leaves(part, f"{here}.{part.name}.")
        elif isinstance(value, Quantity | str):
            yield Leaf(here, field.name, value, field.metadata.get("documentation", False))
        elif value is not None:
            yield from leaves(value, f"{here}.")
