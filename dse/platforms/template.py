"""Write platform files to begin with: a template to fill in, and copies of those that are there."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from impls.strict_toml import UnreadableError, content

from .platform import Cache, Device, Link, Memory, Platform, Resources, Slice
from .quantities import Quantity, Unit, readable, split
from .reading import RESULTS, PlatformError, load, names, path_of
from .schema import BLANK

WIDTH = 120
COMMENTS = 34  # the column that they begin in
UNSEEN = {"_seconds": "_ns", "_bytes": "_gib", "_bytes_per_s": "_gb_per_s", "_ops_per_s": "_gops"}
"""Units of keys that no shipped file has, by the ending of their fields."""
ANSWERS = {
    "cpu": ("cores",),
    "gpu": ("multiprocessors", "clock_hz", "launch_seconds"),
    "fpga": ("clock_hz",),
    "cpu memory": ("size_bytes",),
    "gpu memory": ("size_bytes", "bandwidth_bytes_per_s"),
}
"""Fields without a default of their own that an answer needs besides, by the kind of device."""
ELSEWHERE = ("name", "shared_by", "size_bytes", "bandwidth_bytes_per_s", "latency_seconds")
"""Fields of a memory or a cache that is not a processor's; the others are of one core, or of all at once."""
HEAD = f"""\
# A platform: a machine to ask about. Fill in every {BLANK}, then: python -m dse platform check FILE
#
# A line #key is omitted; take its # away to state that key. An answer needs the keys that say so. What else a
# processor's table leaves out is assumed, and the answer tells. A GPU and an FPGA are blocks below: take one # away
# from each line of the block of yours.
#
# Keys end in their unit, and may end in another one: _seconds _ms _us _ns, _bytes _kib _mib _gib _gb,
# _bytes_per_s _mb_per_s _gb_per_s _tb_per_s, _hz _mhz _ghz, _ops_per_s _gops _tops, _watts. Counts have none.
# A number from another source than the file's: cores = {{ value = 28, origin = "datasheet", note = "14 a socket" }}
# In parentheses stands what a key is on the platforms that ship.
"""
Samples = Sequence[tuple[str, Any]]
"""What ships of a kind of table, with the name of its platform."""


def template(name: str = "mine") -> str:
    """Write a file with every key, its unit and its meaning; those that an answer needs are not commented out."""
    return HEAD + "".join(f"{line}\n" for line in _blocks(name))


def text_of(name: str | Path, results: Path = RESULTS) -> str:
    """Read the file of a platform as it is, with its comments. PlatformError for a name that nothing has."""
    path = path_of(name, results)
    try:
        return content(path, "platform")
    except UnreadableError as error:
        raise PlatformError(f"{path}: {error}") from None


def copied(name: str | Path, new: str, results: Path = RESULTS) -> str:
    """Copy a platform's file under a ``new`` name, without the key of the machine whose records it would be taken for.

    PlatformError where the platform is not right.
    """
    load(name, results)
    text = re.sub(r'(?m)^name = ".*"', lambda _: f'name = "{new}"', text_of(name, results), count=1)
    text = re.sub(r"(?m)^machine_key = ", "# machine_key = ", text)
    return (
        f"# A copy of {name}, to be changed where the machine differs; then: python -m dse platform check FILE\n{text}"
    )


def _blocks(name: str) -> Iterator[str]:
    shipped = [(each, load(each)) for each in names()]
    yield ""
    yield from _keys(Platform, {"name": name}, shipped)
    yield _line(f'origin = "{BLANK}"', 'needed; of every number below: "measured", "datasheet", "paper" or "assumed"')
    yield _line(f'note = "{BLANK}"', "needed; their source in words, such as a data sheet's title")
    for kind, about, mark in (
        ("cpu", "The processor, the first device.", ""),
        ("gpu", "A GPU, if there is one, and its link.", "#"),
        ("fpga", "An FPGA, if there is one, and its link.", "#"),
    ):
        yield from ("", f"# {about}")
        yield from (f"{mark}{line}" for line in _device(kind, shipped))


def _device(kind: str, shipped: Sequence[tuple[str, Platform]]) -> Iterator[str]:
    """Write a device's tables and its link."""
    devices = [(name, device) for name, platform in shipped for device in platform.devices if device.kind == kind]
    parts: list[tuple[str, type, Mapping[str, str], Samples, str]] = [
        ("[[device]]", Device, {"name": kind, "kind": kind}, devices, kind)
    ]
    if kind != "fpga":
        caches = [(name, cache) for name, device in devices for cache in device.caches[:1]]
        parts.append(("#[[device.cache]]", Cache, {}, caches, ""))
    memory: Samples = [(name, device.memory) for name, device in devices if device.memory]
    parts.append(("#" * (kind == "fpga") + "[device.memory]", Memory, {}, memory, f"{kind} memory"))
    if kind == "fpga":
        slices = [(name, device.slices[0]) for name, device in devices]
        shells = [(name, part.shell) for name, part in slices if part.shell]
        parts.append(("[[device.slice]]", Slice, {}, slices, ""))
        parts.append(("#[device.slice.shell]", Resources, {}, shells, ""))
    if kind != "cpu":
        links = [(name, link) for name, platform in shipped for link in platform.links if link.target == kind]
        parts.append(("[[link]]", Link, {"from": "cpu", "to": kind}, links, ""))
    for header, of, given, samples, needed in parts:
        mark = "#" if header.startswith("#") else ""
        yield _line(header, "one for each level, that nearest to a core first") if of is Cache else header
        yield from (f"{mark}{line}" for line in _keys(of, given, samples, kind, ANSWERS.get(needed, ())))


def _keys(
    of: type, given: Mapping[str, str], samples: Samples, kind: str = "", answers: Sequence[str] = ()
) -> Iterator[str]:
    """Write a line for each key of a table but the tables in it; ``given`` are the texts that are known already."""
    for field in sorted(dataclasses.fields(of), key=lambda field: field.metadata["shape"] == "number"):
        rules = field.metadata
        if rules["shape"] not in ("number", "text") or (kind and kind not in rules["kinds"]):
            continue
        if issubclass(of, Memory) and kind != "cpu" and field.name not in ELSEWHERE:
            continue
        unit, examples = _examples(field.name, samples)
        name = rules.get("key", split(field.name)[0] + (unit.ending if unit else ""))
        needed = field.default is dataclasses.MISSING or field.name in answers
        comment = f"needed; {rules['meaning']}" if needed else rules["meaning"]
        mark = "" if needed else "#"
        yield _line(f'{mark}{name} = "{given.get(name, BLANK)}"', comment, examples)


def _examples(field: str, samples: Samples) -> tuple[Unit | None, list[str]]:
    """Choose the unit of a number, and write its value on each platform that ships with one."""
    there = [(name, value) for name, part in samples if isinstance(value := getattr(part, field, None), Quantity)]
    base, units = split(field)
    if not there:
        ending = UNSEEN.get(field.removeprefix(base))
        return next((unit for unit in units if unit.ending == ending), units[0]), []
    shown = [(name, *readable(field, value.value)) for name, value in there]
    return shown[0][2], [f"{name} {digits} {unit.sign}".strip() for name, digits, unit in shown]


def _line(statement: str, comment: str, examples: Sequence[str] = ()) -> str:
    """Write a key with its comment and as many of the examples, the last ones, as the line has room for."""
    line = f"{statement.ljust(COMMENTS)}# {comment}"
    longest = [f"{line} ({', '.join(examples[first:])})" for first in range(len(examples))]
    return next((shown for shown in longest if len(shown) + 2 <= WIDTH), line)
