"""Read and write platform files: TOML, read strictly, with everything that is wrong named at once.

    name = "mine"

    [[device]]
    name = "cpu"
    kind = "cpu"                       # cpu, gpu or fpga
    origin = "datasheet"               # of every number below that does not say otherwise
    note = "the maker's data sheet"    # and the source
    cores = 8
    [device.memory]
    size_gib = 32
    bandwidth_gb_per_s = { value = 51.2, origin = "assumed", note = "two channels of DDR4-3200" }

Keys of numbers end in a unit; the fields of ``Platform``, ``Device``, ``Cache``, ``Memory``, ``Slice`` and ``Link`` say
which keys there are. ``origin`` and ``note`` hold for the table they stand in and the tables below it; a number that
states an origin of its own states its note too.
"""

import collections
import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impls.cores import count_allowed, count_cores
from impls.strict_toml import Files

from . import schema
from .fingerprint import fingerprint
from .platform import Platform, leaves, name_of
from .quantities import Quantity, from_si, readable, split

HERE = "this"  # the name of the machine that asks
RESULTS = Path("results")
FILE = "platform.toml"  # in a machine's folder of the results
TEMPLATE = Path(__file__).with_name("template.txt")
NAMED = 'name = "mine"'
COMMENTS = 34  # the column that they begin in
Source = tuple[str, str]


class PlatformError(Exception):
    """A platform cannot be used; the message has a sentence for each reason, a line each."""


_FILES = Files("platform", Path(__file__).parent, schema.build, PlatformError)
names, read, parse, text_of = _FILES.names, _FILES.read, _FILES.parse, _FILES.text_of


def load(name: str | Path, results: Path = RESULTS) -> Platform:
    """Load the shipped platform of that name, ``this`` machine as it was probed, or that of a file.

    Of ``this`` machine's processor no more than this process may use.

    PlatformError with everything that is wrong, if anything is.
    """
    where = path_of(name, results)
    platform, key = _FILES.load(where), fingerprint()["key"]
    if str(name) == HERE and platform.machine_key != key:
        raise PlatformError(
            f"{where}: was probed on machine {platform.machine_key}, this one is {key}; probe it with: "
            "python -m dse platform probe"
        )
    return keep_to_allowed(platform) if str(name) == HERE else platform


def keep_to_allowed(platform: Platform) -> Platform:
    """Leave this machine's processor the cores and threads that this process may use."""
    most, devices = {"cores": count_cores(), "threads": count_allowed()}, []
    for device in platform.devices:
        fewer = {
            name: dataclasses.replace(stated, value=limit, note=f"of {stated.value:g}: those this process may use")
            for name, limit in most.items()
            if (stated := getattr(device, name)) and stated.value > limit
        }
        devices.append(dataclasses.replace(device, **fewer))
    return dataclasses.replace(platform, devices=tuple(devices))


def remove_gpus(platform: Platform) -> Platform:
    """Return a platform without its GPUs and their links, for a machine that has none."""
    devices = tuple(device for device in platform.devices if device.kind != "gpu")
    kept = {device.name for device in devices}
    links = tuple(link for link in platform.links if {link.source, link.target} <= kept)
    return dataclasses.replace(platform, devices=devices, links=links)


def path_of(name: str | Path, results: Path = RESULTS) -> Path:
    """Return the file of a platform by its name, or the path itself. PlatformError for a name that nothing has."""
    if str(name) == HERE:
        path = find_own_file(results)
        if not path.is_file():
            raise PlatformError(
                f"this machine has not been probed, {path} is not there; do it with: python -m dse platform probe"
            )
        return path
    is_file = str(name) not in names() and os.path.exists(name)  # noqa: PTH110  # Path's raises for too long a name
    return Path(name) if is_file else _FILES.path_of(name, HERE)


def find_own_file(results: Path = RESULTS) -> Path:
    """Return the path of this machine's file, once it is probed."""
    return results / str(fingerprint()["key"]) / FILE


def template(name: str = "mine") -> str:
    """Write a file with every key, its unit and its meaning; those that an answer needs are not commented out."""
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace(NAMED.ljust(COMMENTS), f'name = "{name}"'.ljust(COMMENTS), 1)


def copied(name: str | Path, new: str, results: Path = RESULTS) -> str:
    """Copy a platform's file under a ``new`` name, without the key of the machine whose records it would be taken for.

    PlatformError where the platform is not right.
    """
    load(name, results)
    text = re.sub(r'(?m)^name = ".*"', lambda _: f'name = "{new}"', text_of(path_of(name, results)), count=1)
    text = re.sub(r"(?m)^machine_key = ", "# machine_key = ", text)
    return (
        f"# A copy of {name}, to be changed where the machine differs; then: python -m dse platform check FILE\n{text}"
    )


def to_toml(platform: Platform, comment: str = "") -> str:
    """Write the text. The source that most numbers share stands once, at the top, below ``comment`` with its "#"."""
    sources = (leaf.value for leaf in leaves(platform) if isinstance(leaf.value, Quantity))
    ((common, _),) = collections.Counter((quantity.origin, quantity.note) for quantity in sources).most_common(1)
    return comment + "\n".join(_table(platform, "", common)) + "\n"


def _table(thing: Any, header: str, common: Source) -> Iterator[str]:
    tables = list[tuple[str, str, Any]]()
    for field in sorted(dataclasses.fields(thing), key=lambda field: field.metadata["shape"] == "number"):
        value, name = getattr(thing, field.name), name_of(field)
        path = f"{header}.{name}" if header else name
        if isinstance(value, Quantity):
            yield _number(field.name, value, common)
        elif isinstance(value, str):
            yield f"{name} = {_text(value)}"
        elif isinstance(value, tuple):
            tables += [(f"[[{path}]]", path, part) for part in value]
        elif value is not None:
            tables.append((f"[{path}]", path, value))
    if not header:
        yield f"origin = {_text(common[0])}"
        yield f"note = {_text(common[1])}"
    for brackets, path, part in tables:
        yield from ("", brackets)
        yield from _table(part, path, common)


def _number(field: str, quantity: Quantity, common: Source) -> str:
    name, unit = split(field)[0], readable(field, quantity.value)[1]
    value = from_si(quantity.value, unit)
    parts = {"value": f"{int(value)}" if value == int(value) else repr(value)}
    if (quantity.origin, quantity.note) != common:
        parts |= {"origin": _text(quantity.origin), "note": _text(quantity.note)}
    if quantity.spread is not None:
        parts["spread"] = repr(quantity.spread)
    inside = ", ".join(f"{key} = {part}" for key, part in parts.items())
    return f"{name}{unit.ending} = {parts['value'] if len(parts) == 1 else f'{{ {inside} }}'}"


def _text(words: str) -> str:
    """Quote printable text as TOML does, which is as JSON does."""
    return json.dumps(words, ensure_ascii=False)
