"""Read files of times of one's own: TOML or CSV, strictly, with everything that is wrong named at once.

    source = "measured"                # holds, as note, factor and batch do, for all that say nothing else
    [[time]]
    part = "learner"                   # actors, sampling, updating, storage, learner or link
    device = "gpu"                     # as the platform names it
    batch = 256
    us = 690                           # or seconds, ms, ns, per_second
    factor = 1.2                       # or low and high, in the unit of the time

A CSV file has these keys as columns, a line a time. ``python -m dse times --help`` explains the keys.
"""

import csv
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import impls
from impls.checks import near, short
from impls.strict_toml import Faults, Files, KeyPath, Problem, Reader, UnreadableError, content, line_of, locate

from ..estimate import LEAST_FACTOR
from ..records import Source

UNITS = {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # of them per second
RATE = "per_second"
TIMES = (*UNITS, RATE)
SHORTEST, LONGEST = 1e-12, 1e6  # seconds
MOST_COUNT, MOST_FACTOR, MOST_ROWS = 1 << 40, 1e3, 10_000
SOURCES = ("measured", "quoted", "modeled")
COUNTS = {"batch": 1, "threads": 1, "processes": 1, "fanout": 2, "devices": 1, "bytes": 1}
"""Keys that are whole numbers, and the least of each."""
KEYS = {
    "actors": ("processes",),
    "sampling": ("batch", "threads", "contestant", "fanout"),
    "updating": ("batch", "threads", "contestant", "fanout"),
    "storage": ("batch",),
    "learner": ("batch", "threads", "devices"),
    "link": ("from", "to", "batch", "bytes", "gb_per_s"),
}
"""By part, the keys that only some parts have."""
ALONE = tuple(part for part in KEYS if part != "link")
ENDS = ("low", "high")
EVERY = ("source", "note", "factor")
CHOICES = {"source": SOURCES, "beside": ALONE, "contestant": impls.names()}
TOP = (*EVERY, "batch")
WORDS = ("part", "device", "from", "to", "beside", "contestant", "source", "note")  # columns of text
KNOWN = (
    "part",
    "device",
    "beside",
    *ENDS,
    *EVERY,
    *TIMES,
    *dict.fromkeys(key for keys in KEYS.values() for key in keys),
)


class TimesError(ValueError):
    """A file of times cannot be used; the message has a sentence for each reason, a line each."""


@dataclass(frozen=True)
class Entry:
    """A time that somebody states: seconds of a call, [low, high] where stated, else ``factor`` (0: none stated).

    ``counts``: batch, threads, processes, fanout, devices, bytes, as far as stated. ``beside``: the part that ran
    meanwhile. ``device``: of a link the end that sends; ``target`` the other. ``seconds`` is 0 for a link of which
    only a bandwidth is stated.
    """

    part: str
    device: str
    seconds: float
    source: Source
    counts: Mapping[str, int]
    low: float = 0.0
    high: float = 0.0
    factor: float = 0.0
    contestant: str = ""
    beside: str = ""
    target: str = ""
    bytes_per_s: float = 0.0
    note: str = ""
    row: int = 0
    line: int = 0

    @property
    def cell(self) -> tuple[Any, ...]:
        """The cell that it times: equal cells are stated twice."""
        return self.part, self.device, self.target, self.beside, self.contestant, tuple(sorted(self.counts.items()))

    def __str__(self) -> str:
        of = f"{self.part} {self.device} to {self.target}" if self.target else f"{self.part} on {self.device}"
        more = [f"{key} {value:,}" for key, value in self.counts.items()] + [self.contestant] * bool(self.contestant)
        beside = f", beside {self.beside}" if self.beside else ""
        return f"{of}{' (' + ', '.join(more) + ')' if more else ''}{beside}"


def read_entries(path: Path) -> tuple[Entry, ...]:
    """The times of a file. TimesError with everything that is wrong, by line."""
    try:
        text = content(path, "times")
        if path.suffix.lower() == ".csv":
            entries, problems = _of_csv(text, str(path))
        else:
            entries, problems = _FILES.parse(text, str(path))
            lines = locate(text) if entries else {}
            entries = entries and tuple(
                dataclasses.replace(one, line=line_of(("time", one.row), lines)) for one in entries
            )
    except UnreadableError as error:
        raise TimesError(str(Problem(str(path), error.line, str(error)))) from None
    if not entries:
        raise TimesError("\n".join(map(str, problems)))
    return entries


def _of_csv(text: str, where: str) -> tuple[tuple[Entry, ...] | None, list[Problem]]:
    """The times of a CSV file; lines that are empty or begin with # say nothing."""
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    numbered = [(number, line) for number, line in numbered if not line.lstrip().startswith("#")]
    lines: dict[KeyPath, int] = {(): numbered[0][0] if numbered else 1}
    rows: list[list[str]] = []
    for number, line in numbered:
        try:
            rows += csv.reader([line], skipinitialspace=True, strict=True)
        except csv.Error:
            said = 'a text in "" must end in its line, before a comma; write "" for a " inside of it'
            return None, [Problem(where, number, said)]
    if len(rows) <= 1:
        how = "name the columns in the first line (part, device, batch, us, ...), and write a line a time below it"
        return None, [Problem(where, lines[()], f"states no time; {how}")]
    header = [word.strip() for word in rows[0]]
    if other := next((sign for sign in ";\t" if len(header) == 1 and sign in header[0]), ""):
        said = f"columns are separated by {other!r}; write commas between them, and a point in numbers (28.5)"
        return None, [Problem(where, lines[()], said)]
    data, faults = [], Faults()
    for n, ((number, _), row) in enumerate(zip(numbered[1:], rows[1:], strict=True)):
        lines["time", n] = number
        if len(row) > len(header):
            faults.append((("time", n), f"{len(row)} values, but the first line names {len(header)} columns"))
        data.append({key: _typed(key, value) for key, value in zip(header, row, strict=False) if value.strip()})
    for twice in {word for word in header if header.count(word) > 1}:
        faults.append(((), f"the column {short(twice)} stands twice; leave one out"))
    entries, more = build({"time": data})
    problems = sorted({(line_of(path, lines), sentence) for path, sentence in [*faults, *more]})
    if problems:
        return None, [Problem(where, line, sentence) for line, sentence in problems]
    return entries and tuple(dataclasses.replace(one, line=lines["time", one.row]) for one in entries), []


def _typed(key: str, value: str) -> Any:
    """A CSV value of a column of numbers as a number where it is one; a note may be a year, and a device 0."""
    value = value.strip()
    for kind in () if key in WORDS else (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def build(data: Mapping[str, Any]) -> tuple[tuple[Entry, ...] | None, Faults]:
    """Return (times, no faults), or (None, the path and the sentence of everything that is wrong)."""
    reader = _Times()
    rows = data.get("time")
    for key in data.keys() - {"time", *TOP}:
        reader.fault((key,), f"unknown key {short(key)}{near(key, ['time', *TOP])}; a time is a table [[time]]")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        reader.fault(("time",), "states no time; write tables [[time]], each with part, device and us (or ms, ns ...)")
        return None, reader.faults
    if len(rows) > MOST_ROWS:
        reader.fault(("time",), f"{len(rows):,} times; at most {MOST_ROWS:,} are read")
    top = {key: value for key, value in data.items() if key in TOP}
    read = [reader.row(row, top, n) for n, row in enumerate(rows[:MOST_ROWS])]
    entries = [entry for entry in read if entry is not None]
    seen: dict[Any, Entry] = {}
    for one in entries:
        if one.cell in seen:
            reader.fault(("time", one.row), f"{one} is stated twice; leave one out, or state what differs (batch, ...)")
        seen.setdefault(one.cell, one)
    return (None if reader.faults else tuple(entries)), reader.faults


class _Times(Reader):
    """Reads rows, each a time."""

    def row(self, row: Mapping[str, Any], top: Mapping[str, Any], n: int) -> Entry | None:
        """The time of a row; None where it is wrong. ``top`` holds for what the row does not state."""
        path: KeyPath = ("time", n)
        for key in row:
            if key not in KNOWN:
                self.fault((*path, key), f"unknown key {short(key)}{near(key, KNOWN)}")
        part, row = row.get("part"), {key: row[key] for key in row if key in KNOWN}
        before = len(self.faults)
        if not isinstance(part, str) or part not in KEYS:
            wrong = "" if part is None else f", not {short(part)}{near(str(part), KEYS)}"
            self.fault((*path, "part"), f"part must be one of {', '.join(KEYS)}{wrong}")
            return None
        allowed = {"part", *KEYS[part], *EVERY, *TIMES, *ENDS, *(() if part == "link" else ("device", "beside"))}
        for key in row:
            if key not in allowed:
                of = ", ".join(other for other in KEYS if key in KEYS[other]) or ", ".join(ALONE)
                self.fault((*path, key), f"{key} says nothing of the part {part}, only of {of}; leave it out")
        stated = {"factor"} if any(end in row for end in ENDS) else set[str]()
        values = {**{key: value for key, value in top.items() if key in allowed - stated}, **row}
        ends = ("from", "to") if part == "link" else ("device",)
        names = {key: self._name(key, values.get(key), path) for key in ends}
        words = {key: self._word(key, values, path) for key in ("source", "note", "contestant", "beside")}
        counts = {
            key: int(self._number(key, values[key], COUNTS[key], MOST_COUNT, path, True))
            for key in COUNTS
            if key in values and key in allowed
        }
        seconds, unit = self._seconds(part, values, path)
        factor = self._number("factor", values["factor"], 1.0, MOST_FACTOR, path) if "factor" in values else 0.0
        low, high = self._ends(values, unit, seconds, path)
        bandwidth = self._number("gb_per_s", values["gb_per_s"], 1e-9, 1e9, path) if "gb_per_s" in values else 0.0
        if len(self.faults) > before:
            return None
        first, target = names[ends[0]], names.get("to", "")
        source: Any = words["source"] or "measured"
        return Entry(
            *(part, first, seconds, source, counts, low, high, factor, words["contestant"], words["beside"]),
            *(target, bandwidth * 1e9, words["note"], int(path[1])),
        )

    def _name(self, key: str, value: Any, path: KeyPath) -> str:
        if not isinstance(value, str) or not value.strip():
            said = f"lacks {key}" if value is None else f"{key} must be text, not {self.kind_of(value)}"
            self.fault((*path, key), f'{said}; name a device of the platform, such as {key} = "gpu"')
            return ""
        return value.strip()

    def _word(self, key: str, values: Mapping[str, Any], path: KeyPath) -> str:
        rules = {"choices": CHOICES[key]} if key in CHOICES else {}
        return (self.text(values[key], (*path, key), rules) or "") if key in values else ""

    def _number(self, key: str, value: Any, least: float, most: float, path: KeyPath, whole: bool = False) -> float:
        """A number within its bounds, or ``least`` with a fault."""
        kind = "a whole number" if whole else "a number"
        if type(value) not in (int, float) or not least <= value <= most or (whole and value != int(value)):
            self.fault((*path, key), f"{key} must be {kind} from {least:g} to {most:g}, not {short(value)}")
            return least
        return float(value)

    def _seconds(self, part: str, values: Mapping[str, Any], path: KeyPath) -> tuple[float, str]:
        """(seconds, the unit they are stated in); (0, "") for a link that states a bandwidth, or with a fault."""
        units = [unit for unit in TIMES if unit in values]
        if not units and "gb_per_s" in values:
            return 0.0, ""
        if len(units) != 1:
            said = f"states {' and '.join(units)}" if units else "lacks its time"
            or_rate = " (or gb_per_s)" if part == "link" else ""
            self.fault(path, f"{said}; state one of {', '.join(TIMES)}{or_rate}")
            return 0.0, ""
        (unit,) = units
        value = values[unit]
        least, most = (1 / LONGEST, 1 / SHORTEST) if unit == RATE else (SHORTEST * UNITS[unit], LONGEST * UNITS[unit])
        before = len(self.faults)
        amount = self._number(unit, value, least, most, path)
        return (0.0, "") if len(self.faults) > before else (_in_seconds(amount, unit), unit)

    def _ends(self, values: Mapping[str, Any], unit: str, seconds: float, path: KeyPath) -> tuple[float, float]:
        """(low, high) in seconds; zeros where none is stated."""
        stated = [key for key in ENDS if key in values]
        if not stated or not unit:
            return 0.0, 0.0
        if len(stated) == 1 or "factor" in values:
            self.fault((*path, stated[0]), "state low and high, or factor alone")
            return 0.0, 0.0
        before = len(self.faults)
        ends = sorted(_in_seconds(self._number(key, values[key], 1e-30, 1e30, path), unit) for key in ENDS)
        if len(self.faults) == before and not ends[0] <= seconds <= ends[1]:
            self.fault(
                (*path, "low"),
                f"{unit} = {values[unit]:g} must lie from low {values['low']:g} to high {values['high']:g}",
            )
        return ends[0], max(ends[1], seconds * LEAST_FACTOR)


def _in_seconds(amount: float, unit: str) -> float:
    return 1 / amount if unit == RATE else amount / UNITS[unit]


_FILES = Files("times", Path(__file__).parent, build, TimesError)
