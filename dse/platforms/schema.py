"""From parsed TOML to a ``Platform``, or to everything that is wrong with it."""

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from impls.strict_toml import Faults, kind_of, near, short
from impls.toml_lines import Path

from .platform import NEEDED, Device, Platform, Slice
from .quantities import COUNT, ORIGINS, Quantity, Unit, split, to_si
from .relations import MOST_TABLES, between

LARGEST = 1e30  # no number of a machine is larger, in any unit
MOST_NEAR = 100  # unknown keys that are compared with all known ones
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ENDING = re.compile(r"(_[a-z]{1,6}(_per_s)?)?")
_QUANTITY = ("value", "origin", "note", "spread")
_SOURCE = ("origin", "note")


def build(data: Mapping[str, Any]) -> tuple[Platform | None, Faults]:
    """(platform, nothing), or (None, the path and the sentence of everything that is wrong)."""
    if not data:
        return None, [((), "is empty: a platform has a name and at least one [[device]]")]
    reader = _Reader()
    platform = reader.table(Platform, data, (), {})
    faults = reader.faults + list(between(data))
    return (None if faults else platform), faults


class _Key(NamedTuple):
    field: "dataclasses.Field[Any]"
    unit: Unit


@cache
def _keys(of: type) -> dict[str, _Key]:
    """Every key that a table may have, by its name in a file."""
    found = {}
    for field in dataclasses.fields(of):
        name, units = _name_and_units(field)
        for unit in units:
            found[name + unit.ending] = _Key(field, unit)
    return found


def _name_and_units(field: "dataclasses.Field[Any]") -> tuple[str, tuple[Unit, ...]]:
    """How a file calls a field, and the units its key may end in."""
    name, units = split(field.name)
    return field.metadata.get("key", name), units if field.metadata["shape"] == "number" else (COUNT,)


class _Reader:
    """Reads tables into dataclasses, and collects what is wrong with them."""

    def __init__(self) -> None:
        self.faults: Faults = []

    def table(self, of: type, data: Mapping[str, Any], path: Path, around: Mapping[str, str]) -> Any:
        """The table as an ``of``, or None with faults. ``around``: origin and note that hold where it stands."""
        before, given, source = len(self.faults), dict[str, Any](), self._source(data, path, around)
        for key, value in data.items():
            if key in _SOURCE:
                continue
            if key not in _keys(of):
                self._fault((*path, key), _unknown(key, of, look=len(self.faults) < MOST_NEAR))
                continue
            known = _keys(of)[key]
            if known.field.name in given:
                self._fault((*path, key), f"{split(known.field.name)[0]} is given twice, in two units")
            given[known.field.name] = self._value(known, value, (*path, key), source)
        self._lacking(of, given, path)
        self._out_of_place(given, path)
        if len(self.faults) > before:
            return None
        built = of(**given)
        if isinstance(built, Slice):
            self._shell_fits(built, path)
        return built

    def _fault(self, path: Path, sentence: str) -> None:
        self.faults.append((path, sentence))

    def _source(self, data: Mapping[str, Any], path: Path, around: Mapping[str, str]) -> dict[str, str]:
        """Origin and note that hold in a table: its own, else those around it. An origin brings a note of its own."""
        found = dict(around)
        for key in _SOURCE:
            if key in data and self._is_text(key, data[key], (*path, key), ORIGINS if key == "origin" else ()):
                found[key] = " ".join(data[key].split())
        if "origin" in data and "note" not in data:
            self._fault((*path, "origin"), 'states an origin without a note; name the source in note = "..."')
        return found

    def _value(self, known: _Key, value: Any, path: Path, source: dict[str, str]) -> Any:
        key, meta = str(path[-1]), known.field.metadata
        match meta["shape"]:
            case "number":
                return self._quantity(known, value, path, source)
            case "text":
                valid = self._is_text(key, value, path, meta.get("choices", ()), meta.get("name", False))
                return " ".join(value.split()) if valid else None
            case "table" if isinstance(value, dict):
                return self.table(meta["of"], value, path, source)
            case "tables" if isinstance(value, list) and all(isinstance(part, dict) for part in value):
                if len(value) > MOST_TABLES:
                    self._fault(path, f"{len(value)} tables {key}; at most {MOST_TABLES} are read")
                return tuple(
                    self.table(meta["of"], part, (*path, n), source) for n, part in enumerate(value[:MOST_TABLES])
                )
        self._fault(path, f"{key} must be {_header(path, known.field)}, not {kind_of(value)}")
        return None

    def _is_text(self, key: str, value: Any, path: Path, choices: tuple[str, ...] = (), name: bool = False) -> bool:
        if not isinstance(value, str):
            self._fault(path, f"{key} must be text in quotes, not {kind_of(value)}")
        elif choices and value not in choices:
            self._fault(path, f"{key} must be one of {', '.join(choices)}, not {short(value)}{near(value, choices)}")
        elif name and not _NAME.fullmatch(value):
            self._fault(path, f"{key} must be of letters, digits, _ and -, not {short(value)}")
        elif not value.strip() or not " ".join(value.split()).isprintable():
            self._fault(path, f"{key} must be printable text, not {short(value)}")
        else:
            return True
        return False

    def _quantity(self, known: _Key, value: Any, path: Path, around: dict[str, str]) -> Quantity | None:
        key, before, spread = str(path[-1]), len(self.faults), None
        if isinstance(value, dict):
            around, spread = self._source(value, path, around), value.get("spread")
            self._parts(key, value, path)
            value = value.get("value", 1)
        for name in _SOURCE:
            if name not in around and len(self.faults) == before:
                self._fault(path, f"{key} has no {name}; state it beside the value, or once in its table")
        if self._is_finite(key, value, path):
            self._is_in_range(key, value, path, known)
        if len(self.faults) > before:
            return None
        origin: Any = around["origin"]
        return Quantity(value=to_si(value, known.unit), origin=origin, note=around["note"], spread=spread)

    def _parts(self, key: str, parts: Mapping[str, Any], path: Path) -> None:
        """What is wrong with a number's table, but for its value and its source."""
        for name in parts:
            if name not in _QUANTITY:
                self._fault((*path, name), f"unknown key {short(name)} of {key}{near(name, _QUANTITY)}")
        if "value" not in parts:
            self._fault(path, f"{key} lacks its value")
        spread = parts.get("spread", 0)
        if self._is_finite(f"spread of {key}", spread, path) and spread < 0:
            self._fault(path, f"spread of {key} must be at least 0, not {spread:g}")

    def _is_finite(self, key: str, value: Any, path: Path) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fault(path, f"{key} must be a number, not {kind_of(value)}")
        elif not abs(value) <= LARGEST:  # so said, NaN is refused too
            self._fault(path, f"{key} must be finite and at most {LARGEST:g}")
        else:
            return True
        return False

    def _is_in_range(self, key: str, value: float, path: Path, known: _Key) -> None:
        zero = known.field.metadata["zero"]
        if known.unit is COUNT and value != int(value):
            self._fault(path, f"{key} is a count, a whole number, not {value:g}")
        elif value < 0 or (to_si(value, known.unit) == 0 and not (value == 0 and zero)):
            self._fault(path, f"{key} must be {'at least' if zero else 'above'} 0, not {value:g}")

    def _lacking(self, of: type, given: Mapping[str, Any], path: Path) -> None:
        kind = str(given.get("kind")) if of is Device else ""
        needed = ("devices",) if of is Platform else NEEDED.get(kind, ())
        lacking = [
            _described(field, path)
            for field in dataclasses.fields(of)
            if field.name not in given and (field.default is dataclasses.MISSING or field.name in needed)
        ]
        if lacking:
            what = of.__name__.lower()
            what = f"{what} {short(given['name'])}" if given.get("name") else f"this {what}"
            rule = f", which every {kind} has" if kind in NEEDED else ""
            self._fault(path, f"{what} lacks {', '.join(lacking)}{rule}")

    def _out_of_place(self, given: Mapping[str, Any], path: Path) -> None:
        """What the kind of a device has not."""
        for field in dataclasses.fields(Device):
            if given.get("kind") in NEEDED and given.get(field.name) and given["kind"] not in field.metadata["kinds"]:
                kinds = " or ".join(field.metadata["kinds"])
                self._fault(
                    path, f"{_name_and_units(field)[0]} is for kind {kinds}, this device is of kind {given['kind']}"
                )

    def _shell_fits(self, found: Slice, path: Path) -> None:
        for name, left in found.usable().items():
            if left < 0:
                self._fault((*path, "shell"), f"the shell takes {-left} {name} more than the slice has")


def _unknown(key: str, of: type, look: bool) -> str:
    """What to say of a key that a table has not: its unit is wrong, or its name. ``look`` for a name like it."""
    for field in sorted(dataclasses.fields(of), key=lambda field: -len(field.name)):
        name, units = _name_and_units(field)
        ending = key.removeprefix(name)
        if ending == key or field.metadata["shape"] == "text" or not _ENDING.fullmatch(ending):
            continue
        if "of" in field.metadata:
            inside = ", ".join(list(_keys(field.metadata["of"]))[:3])
            return f"unknown key {short(key)}; {name} is a table of its own, with keys such as {inside}"
        if units == (COUNT,):
            return f"unknown key {short(key)}; {name} is a count, without a unit"
        return f"unknown unit in {short(key)}; {name} may end in {', '.join(unit.ending for unit in units)}"
    return f"unknown key {short(key)}{near(key, [*_keys(of), *_SOURCE]) if look else ''}"


def _described(field: "dataclasses.Field[Any]", path: Path) -> str:
    """A key that the table at a path lacks, with the units it may end in; or the header of a table."""
    name, units = _name_and_units(field)
    if field.metadata["shape"] in ("table", "tables"):
        return _header((*path, name), field)
    return name if units == (COUNT,) else f"{name} ({', '.join(unit.ending for unit in units)})"


def _header(path: Path, field: "dataclasses.Field[Any]") -> str:
    """What a file writes above a table."""
    names = ".".join(step for step in path if isinstance(step, str))
    return f"[{names}]" if field.metadata["shape"] == "table" else f"[[{names}]]"
