"""Build a ``Platform`` from parsed TOML, or list everything that is wrong with it."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from impls.checks import near, short
from impls.strict_toml import MOST_TABLES, Faults, Field, KeyPath, Reader

from .platform import NEEDED, Device, Platform, Slice
from .quantities import COUNT, ORIGINS, UNITS, Quantity, Unit, readable, split, to_si

BLANK = "?"  # what a template has for each value that is left to fill in
LARGEST = 1e30  # no number of a machine is larger, in any unit
LONGEST_SECONDS = 1.0  # every latency is below it
LARGEST_CACHE_BYTES = 1 << 30  # every cache is below it; one of half as much is the largest that is sold
MOST_NEAR = 100  # unknown keys that are compared with all known ones
_ENDING = re.compile(r"(_[a-z]{1,6}(_per_s)?)?")
_SOURCE: Mapping[str, Mapping[str, Any]] = {
    "origin": {"choices": ORIGINS, "meaning": f"one of {', '.join(ORIGINS)}"},
    "note": {"meaning": "the source of the numbers, in words"},
}
_QUANTITY = ("value", *_SOURCE, "spread")


def build(data: Mapping[str, Any]) -> tuple[Platform | None, Faults]:
    """Return (platform, no faults), or (None, the path and the sentence of everything that is wrong)."""
    if not data:
        return None, [((), "is empty: a platform has a name and at least one [[device]]")]
    reader = _Reader()
    platform = reader.table(Platform, data, ())
    faults = reader.faults + between(data)
    return (None if faults else platform), faults


@cache
def _keys(of: type) -> dict[str, Field]:
    """Map every key that a table may have, as a file writes it, to its field."""
    named = ((field, *_name_and_units(field)) for field in dataclasses.fields(of))
    return {name + unit.ending: field for field, name, units in named for unit in units}


def _name_and_units(field: Field) -> tuple[str, tuple[Unit, ...]]:
    """Return how a file names a field, and the units its key may end in."""
    name, units = split(field.name)
    return field.metadata.get("key", name), units if field.metadata["shape"] == "number" else (COUNT,)


def _shown(nbytes: float) -> str:
    amount, unit = readable("size_bytes", nbytes)
    return f"{amount} {unit.sign}"


class _Reader(Reader):
    """A reader of numbers in units of the writer's choice, each with the origin and the note of its surroundings."""

    def __init__(self) -> None:
        super().__init__()
        self.source: Mapping[str, str] = {}

    def keys(self, of: type) -> Mapping[str, Field]:
        return _keys(of)

    def table(self, of: type, data: Mapping[str, Any], path: KeyPath) -> Any:
        around, before, keys = self.source, len(self.faults), _keys(of)
        self.source = self._source(data, path)
        for first, second in itertools.combinations([key for key in data if key in keys], 2):
            if keys[first] is keys[second]:
                self.fault((*path, second), f"{split(keys[first].name)[0]} is given twice, in two units")
        built = super().table(of, {key: value for key, value in data.items() if key not in _SOURCE}, path)
        self.source = around
        if isinstance(built, Slice) and len(self.faults) == before:
            for name, left in built.usable().items():
                if left < 0:
                    self.fault((*path, "shell"), f"the shell takes {-left} {name} more than the slice has")
        if isinstance(built, Device) and len(self.faults) == before:
            self._sizes(built, path)
        return built

    def _sizes(self, device: Device, path: KeyPath) -> None:
        """Check that caches are smaller than any memory, and than the device's own."""
        memory = device.memory.size_bytes.value if device.memory else math.inf
        most = min(memory, LARGEST_CACHE_BYTES)
        bound = f"{_shown(most)}{', the memory of its device' * (most == memory)}"
        for level, one in enumerate(device.caches):
            if one.size_bytes.value >= most:
                wrong = f"{one.name} must be below {bound}, not {_shown(one.size_bytes.value)}"
                self.fault((*path, "cache", level), f"{wrong}; state both in the units of their keys")

    def _source(self, data: Mapping[str, Any], path: KeyPath) -> dict[str, str]:
        """Find the origin and note of a table: its own, else those around it. An origin brings a note of its own."""
        own = {key: self.text(data[key], (*path, key), rules) for key, rules in _SOURCE.items() if key in data}
        if "origin" in own and "note" not in own:
            self.fault((*path, "origin"), 'states an origin without a note; name the source in note = "..."')
        return {**self.source, **{key: words for key, words in own.items() if words}}

    def value(self, field: Field, value: Any, path: KeyPath) -> Any:
        if field.metadata["shape"] != "number":
            return super().value(field, value, path)
        key, before = path[-1], len(self.faults)
        parts: Mapping[str, Any] = value if isinstance(value, dict) else {"value": value}
        source, spread, amount = self._source(parts, path), parts.get("spread", 0), parts.get("value", 1)
        for name in [name for name in parts if name not in _QUANTITY]:
            self.fault((*path, name), f"unknown key {short(name)} of {key}{near(name, _QUANTITY)}")
        if "value" not in parts:
            self.fault(path, f"{key} lacks its value")
        if self._is_finite(f"spread of {key}", spread, path) and spread < 0:
            self.fault(path, f"spread of {key} must be at least 0, not {spread:g}")
        for name in _SOURCE:
            if name not in source and len(self.faults) == before:
                self.fault(path, f"{key} has no {name}; state it next to the value, or once in its table")
        unit = next(unit for unit in split(field.name)[1] if str(key).endswith(unit.ending))
        if amount == BLANK:
            self._blank(
                key, path, f"{field.metadata['meaning']} (in {unit.sign})" if unit.sign else field.metadata["meaning"]
            )
        elif self._is_finite(key, amount, path):
            self._in_range(key, amount, path, unit, field.metadata.get("zero", False))
            if unit in UNITS["_seconds"] and to_si(amount, unit) >= LONGEST_SECONDS:
                most = f"below {LONGEST_SECONDS:g} s, not {amount:g} {unit.sign}"
                self.fault(path, f"{key} must be {most}; state it in the unit of its key")
        if len(self.faults) > before:
            return None
        origin: Any = source["origin"]
        return Quantity(value=to_si(amount, unit), origin=origin, note=source["note"], spread=parts.get("spread"))

    def text(self, value: Any, path: KeyPath, rules: Mapping[str, Any]) -> str | None:
        if value != BLANK:
            return super().text(value, path, rules)
        self._blank(path[-1], path, rules["meaning"])
        return BLANK

    def _blank(self, key: object, path: KeyPath, meaning: str) -> None:
        self.fault(path, f"{key} is left to fill in: {meaning}")

    def _is_finite(self, key: object, value: Any, path: KeyPath) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(path, f"{key} must be a number, not {self.kind_of(value)}")
        elif not abs(value) <= LARGEST:  # so said, NaN is refused too
            self.fault(path, f"{key} must be finite and at most {LARGEST:g}")
        else:
            return True
        return False

    def _in_range(self, key: object, value: float, path: KeyPath, unit: Unit, zero: bool) -> None:
        if unit is COUNT and value != int(value):
            self.fault(path, f"{key} is a count, a whole number, not {value:g}")
        elif value < 0 or (to_si(value, unit) == 0 and not (value == 0 and zero)):
            self.fault(path, f"{key} must be {'at least' if zero else 'above'} 0, not {value:g}")

    def complete(self, of: type, given: Mapping[str, Any], path: KeyPath) -> None:
        kind, what = str(given.get("kind")), of.__name__.lower()
        if lacking := self.lacking(of, given, path, ("devices",) if of is Platform else NEEDED.get(kind, ())):
            what = f"{what} {short(given['name'])}" if given.get("name") else f"this {what}"
            self.fault(path, f"{what} lacks {lacking}{f', which every {kind} has' if kind in NEEDED else ''}")
        for field in dataclasses.fields(of):
            kinds = field.metadata["kinds"]
            if kind in NEEDED and given.get(field.name) and kind not in kinds:
                name = _name_and_units(field)[0]
                self.fault(path, f"{name} is for kind {' or '.join(kinds)}, this device is of kind {kind}")

    def described(self, field: Field, path: KeyPath) -> str:
        name, units = _name_and_units(field)
        if units == (COUNT,):
            return super().described(field, path)
        return f"{name} ({', '.join(unit.ending for unit in units)})"

    def unknown(self, word: str, of: type) -> str:
        """Say what is wrong with an unknown key: its unit, or its name."""
        for field in sorted(dataclasses.fields(of), key=lambda field: -len(field.name)):
            name, units = _name_and_units(field)
            ending = word.removeprefix(name)
            if ending == word or field.metadata["shape"] == "text" or not _ENDING.fullmatch(ending):
                continue
            if "of" in field.metadata:
                inside = ", ".join(list(_keys(field.metadata["of"]))[:3])
                return f"unknown key {short(word)}; {name} is a table of its own, with keys such as {inside}"
            if units == (COUNT,):
                return f"unknown key {short(word)}; {name} is a count, without a unit"
            return f"unknown unit in {short(word)}; {name} may end in {', '.join(unit.ending for unit in units)}"
        look = len(self.faults) < MOST_NEAR
        return f"unknown key {short(word)}{near(word, [*_keys(of), *_SOURCE]) if look else ''}"


Found = Iterator[tuple[KeyPath, str]]
Tables = list[tuple[KeyPath, Mapping[str, Any]]]


def between(data: Mapping[str, Any]) -> Faults:
    """List (path, sentence) of each fault. Takes tables of any content, and is silent on faults within one."""
    devices, links = _tables(data, ("device",)), _tables(data, ("link",))
    faults = [*_twice("device", devices), *_link_faults(links, [name for _, name in _named(devices)])]
    for path, device in devices:
        for key in ("cache", "slice"):
            faults += _twice(key, _tables(device, (*path, key)))
    return faults or list(_alone(devices, links))


def _tables(data: Mapping[str, Any], path: KeyPath) -> Tables:
    parts = data.get(str(path[-1]), ())
    listed = parts if isinstance(parts, list) else ()
    return [((*path, position), part) for position, part in enumerate(listed[:MOST_TABLES]) if isinstance(part, dict)]


def _named(tables: Tables) -> list[tuple[KeyPath, str]]:
    return [(path, part["name"]) for path, part in tables if isinstance(part.get("name"), str)]


def _twice(what: str, tables: Tables) -> Found:
    seen = set()
    for path, name in _named(tables):
        if name in seen:
            yield (*path, "name"), f"a second {what} {short(name)}; give each a name of its own"
        seen.add(name)


def _ends(link: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List (key, device) of the ends that are named."""
    return [(key, link[key]) for key in ("from", "to") if isinstance(link.get(key), str)]


def _link_faults(links: Tables, known: list[str]) -> Found:
    seen = set()
    for path, link in links:
        ends = _ends(link)
        for key, name in ends:
            if name not in known:
                there = ", ".join(map(short, known)) or "none"
                yield (*path, key), f"a link to {short(name)}, which is no device; there are {there}{near(name, known)}"
        pair = frozenset(name for _, name in ends)
        if len(ends) == 2 and len(pair) == 1:
            yield (*path, "to"), f"a link from {short(ends[0][1])} to itself"
        elif len(ends) == 2 and pair in seen:
            yield path, f"a second link between {' and '.join(short(name) for _, name in ends)}"
        seen.add(pair)


def _alone(devices: Tables, links: Tables) -> Found:
    """Yield devices no chain of links joins to the first: whatever is placed there could never be fed."""
    named, pairs = _named(devices), [{name for _, name in _ends(link)} for _, link in links]
    reached = {name for _, name in named[:1]}
    # Invariant: after r rounds reached has every device that a chain of at most r links joins to the first.
    for _ in pairs:
        reached = reached.union(*(pair for pair in pairs if pair & reached))
    for path, name in named:
        if name not in reached:
            yield path, f"no chain of links joins {short(name)} to {short(named[0][1])}; add a [[link]]"
