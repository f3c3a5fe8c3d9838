"""A machine with some of its numbers changed: what if it had them."""

import dataclasses
import tomllib
from collections.abc import Mapping
from typing import Any

from impls.checks import closest, near, short

from ..platforms import Device, Platform, PlatformError, schema
from ..platforms.files import to_toml
from ..platforms.quantities import UNITS

CORES = ("cores", "multiprocessors")
TOTALS = ("threads", "peak_fp32_ops_per_s", "peak_int32_ops_per_s", "power_watts")
"""Of a device: how many cores there are, and what is stated of all of them together; watts are its limit."""
MEMORY = tuple(f"memory{unit.ending}" for unit in UNITS["_bytes"])
ENDINGS_OF_CORES = tuple(f".{name}" for name in CORES)


def with_changes(platform: Platform, changes: Mapping[str, float]) -> Platform:
    """The platform with numbers replaced: keys as DEVICE.KEY, with units as platform files have them.

    DEVICE.memory_gb is short for DEVICE.memory.size_gb; a slice is DEVICE.SLICE.lut, a link CPU-GPU.beta_gb_per_s.
    What is stated of all cores together grows with their number, unless it is set too: threads, peaks, and watts, which
    are the limit of the whole device, however much of it is used. Memory's bandwidth stays.
    PlatformError for a key that is not there.
    """
    for path, value in sorted(changes.items(), key=lambda change: not change[0].endswith(ENDINGS_OF_CORES)):
        data = tomllib.loads(to_toml(platform))
        _set(data, path, value)
        made, faults = schema.build(data)
        if made is None:
            raise PlatformError("\n".join(f"{path}: {sentence}" for _, sentence in faults))
        platform = dataclasses.replace(made, devices=tuple(map(_grown, platform.devices, made.devices)))
    return platform


def _grown(before: Device, after: Device) -> Device:
    """With the totals that belong to its number of cores."""
    for cores in CORES:
        old, new = getattr(before, cores), getattr(after, cores)
        if old and new and old.value != new.value:
            stated, ratio = {name: getattr(after, name) for name in TOTALS}, new.value / old.value
            totals = {name: dataclasses.replace(one, value=one.value * ratio) for name, one in stated.items() if one}
            after = dataclasses.replace(after, **totals)
    return after


def _set(data: dict[str, Any], path: str, value: float) -> None:
    """One number of a platform's tables."""
    first, _, rest = path.partition(".")
    tables = {one["name"]: one for one in data["device"]}
    tables |= {f"{one['from']}-{one['to']}": one for one in data.get("link", ())}
    if first in tables and not rest:
        raise PlatformError(
            f"{first} alone names no number; write {first}.KEY=VALUE, such as cpu.cores or gpu.memory_gb"
        )
    if first not in tables:
        known = ", ".join(tables)
        raise PlatformError(f"no device or link {short(first)} to set; there are {known}{near(first, tables)}")
    table, *between = tables[first], *rest.split(".")[:-1]
    key = rest.split(".")[-1]
    if not between and key.startswith("memory_"):
        between, key = ["memory"], f"size_{key.removeprefix('memory_')}"
    if not between and set(closest(key, [*MEMORY, *table])) & set(MEMORY):
        raise PlatformError(f"{path}: unknown key {short(key)}{near(key, MEMORY)}")
    for name in between:
        inner = {one["name"]: one for kind in ("slice", "cache") for one in table.get(kind, ())}
        inner |= {part: table[part] for part in ("memory", "shell") if part in table}
        if name not in inner:
            raise PlatformError(
                f"{path}: no part {short(name)}; there are {', '.join(inner) or 'none'}{near(name, inner)}"
            )
        table = inner[name]
    if isinstance(table.get(key), str):
        raise PlatformError(f"{path}: {key} is a word; only numbers can be set")
    for old in [one for one in table if _stem(one) == _stem(key)]:
        del table[old]
    table[key] = {"value": value, "origin": "assumed", "note": "as asked: what if"}


def _stem(key: str) -> str:
    """A key without its unit."""
    endings = sorted((unit.ending for units in UNITS.values() for unit in units), key=len, reverse=True)
    return next((key.removesuffix(ending) for ending in endings if key.endswith(ending)), key)
