"""Build a ``Platform`` from parsed TOML, or list everything that is wrong with it."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Any

from impls.checks import near, short
from impls.strict_toml import Faults, Field, KeyPath, Reader

from .platform import BOUNDS, KINDS, RESOURCES, Platform, Slice, keys_of, name_of
from .quantities import COUNT, ORIGINS, RATIO, Quantity, Unit, readable, split, to_si

BLANK = "?"  # what a template has for each value that is left to fill in
LARGEST = 1e30  # no number of a machine is larger, in any unit
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
    reader.check_names()
    return (None if reader.faults else platform), reader.faults


class _Reader(Reader):
    """A reader of numbers in units of the writer's choice, each with the origin and the note of its surroundings.

    ``path``: of the table that is read. ``words``: each text that was read, right or wrong, by its path: names, which
    others refer to, are among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source: Mapping[str, str] = {}
        self.path: KeyPath = ()
        self.words: dict[KeyPath, str] = {}

    def keys(self, of: type) -> Mapping[str, Field]:
        return keys_of(of)

    def table(self, of: type, data: Mapping[str, Any], path: KeyPath) -> Any:
        around, keys = (self.source, self.path), keys_of(of)
        self.source, self.path = self._source(data, path), path
        for first, second in itertools.combinations([key for key in data if key in keys], 2):
            if keys[first] is keys[second]:
                self.fault((*path, second), f"{name_of(keys[first])} is given twice, in two units")
        built = super().table(of, {key: value for key, value in data.items() if key not in _SOURCE}, path)
        self.source, self.path = around
        return built

    def _source(self, data: Mapping[str, Any], path: KeyPath) -> dict[str, str]:
        """Find the origin and note of a table: its own, else those around it. An origin brings a note of its own."""
        own = {key: self.text(data[key], (*path, key), rules) for key, rules in _SOURCE.items() if key in data}
        if "origin" in own and "note" not in own:
            self.fault((*path, "origin"), 'states an origin without a note; name the source in note = "..."')
        return {**self.source, **{key: words for key, words in own.items() if words}}

    def text(self, value: Any, path: KeyPath, rules: Mapping[str, Any]) -> str | None:
        if isinstance(value, str):
            self.words[path] = value
        if value != BLANK:
            return super().text(value, path, rules)
        self.fault(path, f"{path[-1]} is left to fill in: {rules['meaning']}")
        return BLANK

    def value(self, field: Field, value: Any, path: KeyPath) -> Any:
        if field.metadata["shape"] != "number":
            return super().value(field, value, path)
        key, before, rules = str(path[-1]), len(self.faults), field.metadata
        parts: Mapping[str, Any] = value if isinstance(value, dict) else {"value": value}
        source: Mapping[str, Any] = self._source(parts, path)
        for name in [name for name in parts if name not in _QUANTITY]:
            self.fault((*path, name), f"unknown key {short(name)} of {key}{near(name, _QUANTITY)}")
        if "spread" in parts:
            self._check(parts["spread"], f"spread of {key}", path, "spread", RATIO, {**BOUNDS, "zero": True})
        for name in _SOURCE:
            if name not in source and len(self.faults) == before:
                self.fault(path, f"{key} has no {name}; state it next to the value, or once in its table")
        unit = next(unit for unit in split(field.name)[1] if key.endswith(unit.ending))
        if "value" not in parts:
            self.fault(path, f"{key} lacks its value")
        elif parts["value"] == BLANK:
            inside = f" (in {unit.sign})" if unit.sign else ""
            self.fault(path, f"{key} is left to fill in: {rules['meaning']}{inside}")
        else:
            self._check(parts["value"], key, path, field.name, unit, rules)
        if len(self.faults) > before:
            return None
        return Quantity(value=to_si(parts["value"], unit), spread=parts.get("spread"), **source)

    def _check(self, value: Any, key: str, path: KeyPath, field: str, unit: Unit, rules: Mapping[str, Any]) -> None:
        """Check that a value is a number, whole where it is a count, and within the bounds of its field."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.fault(path, f"{key} must be a number, not {self.kind_of(value)}")
        if not abs(value) <= LARGEST:  # so said, NaN is refused too
            return self.fault(path, f"{key} must be finite and at most {LARGEST:g}")
        amount, wrong, remedy = to_si(value, unit), "", ""
        if unit is COUNT and value != int(value):
            wrong = "a count, a whole number"
        elif amount <= 0 and not (value == 0 and rules["zero"]):
            wrong = f"{'at least' if rules['zero'] else 'above'} 0"
        elif not rules["least"] <= amount < rules["below"]:
            bound = ("at least", rules["least"]) if amount < rules["least"] else ("below", rules["below"])
            digits, shown = readable(field, bound[1])
            wrong, remedy = f"{bound[0]} {digits} {shown.sign}", f" {unit.sign}; state it in the unit of its key"
        if wrong:
            self.fault(path, f"{key} must be {wrong}, not {value:g}{remedy}")

    def complete(self, of: type, given: Mapping[str, Any], path: KeyPath) -> None:
        kind, what = str(given.get("kind")), of.__name__.lower()
        if lacking := self.lacking(of, given, path, KINDS[kind].needed if kind in KINDS else ()):
            what = f"{what} {short(given['name'])}" if given.get("name") else f"this {what}"
            self.fault(path, f"{what} lacks {lacking}{f', which every {kind} has' if kind in KINDS else ''}")
        for field in dataclasses.fields(of) if kind in KINDS else ():
            kinds = [name for name, its in KINDS.items() if field.name in its.own]
            if kinds and kind not in kinds and given.get(field.name):
                wrong = f"is for kind {' or '.join(kinds)}, this device is of kind {kind}"
                self.fault(path, f"{name_of(field)} {wrong}")
        if of is Platform and not self.faults and bool(given.get("nodes")) != bool(given.get("network")):
            there, lacks = ("[[node]]", "[network]") if given.get("nodes") else ("[network]", "[[node]]")
            self.fault(path, f"{there} goes with {lacks}; add that, or: python -m dse platform probe --cluster auto")
        if of is Slice and given.get("shell"):
            for name in RESOURCES:
                have, taken = given.get(name), getattr(given["shell"], name)
                if have and taken.value > have.value:
                    more = f"{taken.value - have.value:g} {name} more than the slice has"
                    self.fault((*path, "shell"), f"the shell takes {more}")

    def described(self, field: Field, path: KeyPath) -> str:
        name, units = name_of(field), split(field.name)[1]
        if units == (COUNT,):
            return super().described(field, path)
        return f"{name} ({', '.join(unit.ending for unit in units)})"

    def unknown(self, word: str, of: type) -> str:
        """Say what is wrong with an unknown key: its unit, or its name."""
        for field in sorted(dataclasses.fields(of), key=lambda field: -len(field.name)):
            name = name_of(field)
            if word.startswith(name) and field.metadata["shape"] != "text" and _ENDING.fullmatch(word[len(name) :]):
                return f"unknown key {short(word)}; there is {self.described(field, self.path)}"
        look = len(self.faults) < MOST_NEAR
        return f"unknown key {short(word)}{near(word, [*keys_of(of), *_SOURCE]) if look else ''}"

    def check_names(self) -> None:
        """Check that names are unique, and that links join all devices; what is wrong within a table is no matter."""
        before, named, pairs = len(self.faults), dict[tuple[KeyPath, str], KeyPath](), list[set[str]]()
        links: dict[KeyPath, dict[str, str]] = {}
        for path, word in self.words.items():
            if path[0] == "link":
                links.setdefault(path[:-1], {})[str(path[-1])] = word
            elif path[-1] == "name" and named.setdefault((path[:-2], word), path) != path:
                self.fault(path, f"a second {path[-3]} {short(word)}; give each a name of its own")
        devices = {name: path[:-1] for (around, name), path in named.items() if around == ("device",)}
        for path, link in links.items():
            ends = {key: link[key] for key in ("from", "to") if key in link}
            for key, name in ends.items():
                if name not in devices:
                    there = ", ".join(map(short, devices)) or "none"
                    wrong = f"a link to {short(name)}, which is no device; there are {there}{near(name, list(devices))}"
                    self.fault((*path, key), wrong)
            if len(ends) == 2 and len(set(ends.values())) == 1:
                self.fault((*path, "to"), f"a link from {short(ends['from'])} to itself")
            elif len(ends) == 2 and set(ends.values()) in pairs:
                self.fault(path, f"a second link between {' and '.join(map(short, ends.values()))}")
            pairs.append(set(ends.values()))
        if len(self.faults) > before or not devices:
            return
        first, *_ = devices
        reached = {first}
        # Invariant: after r rounds reached has every device that a chain of at most r links joins to the first.
        for _ in pairs:
            reached = reached.union(*(pair for pair in pairs if pair & reached))
        for name in devices.keys() - reached:  # whatever is placed there could never be fed
            self.fault(devices[name], f"no chain of links joins {short(name)} to {short(first)}; add a [[link]]")
