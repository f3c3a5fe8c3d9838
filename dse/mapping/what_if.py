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
    """Return the platform with numbers replaced: keys as DEVICE.KEY, with units as platform files have them.

    DEVICE.memory_gb is short for DEVICE.memory.size_gb; a slice is DEVICE.SLICE.lut, a link CPU-GPU.beta_gb_per_s.
    What is stated of all cores together grows with their number, unless it is set too: threads, peaks, and watts, which
    are the limit of the whole device, however much of it is used. Memory's bandwidth stays.
    PlatformError for a key that is not there.
    """
    for path, value in sorted(changes.items(), key=lambda change: not change[0].endswith(ENDINGS_OF_CORES)):
        data = tomllib.loads(to_toml(platform))
        _set_number(data, path, value)
        made, faults = schema.build(data)
        if made is None:
            raise PlatformError("\n".join(f"{path}: {sentence}" for _, sentence in faults))
        platform = dataclasses.replace(made, devices=tuple(map(_grow_totals, platform.devices, made.devices)))
    return platform


def _grow_totals(before: Device, after: Device) -> Device:
    """Return the device with totals that grew as its number of cores did."""
    for cores in CORES:
        old, new = getattr(before, cores), getattr(after, cores)
        if old and new and old.value != new.value:
            stated, ratio = {name: getattr(after, name) for name in TOTALS}, new.value / old.value
            totals = {name: dataclasses.replace(q, value=q.value * ratio) for name, q in stated.items() if q}
            after = dataclasses.replace(after, **totals)
    return after


def _set_number(data: dict[str, Any], path: str, value: float) -> None:
    """Replace a number in the tables of a platform's file. PlatformError for a table that is not there."""
    table, (*names, key) = data, path.split(".")
    if not names and key in _parts(data):
        raise PlatformError(f"{key} alone names no number; write {key}.KEY=VALUE, such as cpu.cores or gpu.memory_gb")
    if len(names) == 1 and key.startswith("memory_"):
        names, key = [*names, "memory"], f"size_{key.removeprefix('memory_')}"
    for name in names or [key]:
        if name not in (parts := _parts(table)):
            what = "device or link" if table is data else "part"
            there = f"there are {', '.join(parts) or 'none'}{near(name, parts)}"
            raise PlatformError(f"no {what} {short(name)} to set; {there}")
        table = parts[name]
    if len(names) == 1 and set(closest(key, [*MEMORY, *table])) & set(MEMORY):
        raise PlatformError(f"{path}: unknown key {short(key)}{near(key, MEMORY)}")
    if isinstance(table.get(key), str):
        raise PlatformError(f"{path}: {key} is a word; only numbers can be set")
    for same in [stated for stated in table if _strip_unit(stated) == _strip_unit(key)]:
        del table[same]
    table[key] = {"value": value, "origin": "assumed", "note": "as asked: what if"}


def _parts(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Map the names of the tables inside a table of a platform's file to them; a link is named after its ends."""
    listed = [part for inner in table.values() if isinstance(inner, list) for part in inner]
    parts = {part["name"] if "name" in part else f"{part['from']}-{part['to']}": part for part in listed}
    return parts | {
        key: inner for key, inner in table.items() if key in ("memory", "shell") and isinstance(inner, dict)
    }


def _strip_unit(key: str) -> str:
    endings = sorted((unit.ending for units in UNITS.values() for unit in units), key=len, reverse=True)
    return next((key.removesuffix(ending) for ending in endings if key.endswith(ending)), key)
