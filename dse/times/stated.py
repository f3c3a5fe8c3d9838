"""Times of one's own: what a user measured, or read in a paper, of any part on any device. They are looked up first.

A time is that of a gradient step (``learner``: the step; ``sampling``, ``updating``: B priorities, insertions counted
in; ``storage``: B records gathered and the new ones written), for ``actors`` that from one environment step to the
next, of all processes together, fetching of weights counted in. A time without a batch is of the question's batch.

Letters: B batch. Times are seconds.

Read files of times of one's own: TOML or CSV, strictly, with everything that is wrong named at once.

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
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import impls
from impls.checks import near, short
from impls.strict_toml import Faults, Files, KeyPath, Problem, Reader, UnreadableError, content, line_of, locate

from ..answer import Note
from ..estimate import LEAST_FACTOR, Estimate, Evidence, weakest
from ..platforms import Device, Platform
from ..records import Source
from ..solver.problem import TREE, Hop, Part
from .curves import flat_then_linear, over_batch, over_count

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


FACTORS = {"measured": 1.25, "quoted": 2.0, "modeled": 3.0}
"""Error bound of a time that states neither low and high nor factor, by its source.

Measured: by how much the machines on record change from one run to another (``drift.USUAL``: exp(hypot(0.16, 0.15)) is
1.25). Quoted and modeled: assumptions; a paper's device has another host and other software, and a model of a device
that nobody timed has the error bound of our own (``laws.GPU_FACTOR``).
"""
COUNTED = {"actors": "processes", "learner": "threads", "sampling": "threads", "updating": "threads"}
"""By part, the key of which each value is an option of its own; 1 where it is not stated."""


@dataclass(frozen=True)
class StatedTimes:
    """The times of a file, of a question whose batch is ``batch``."""

    file: str
    entries: tuple[Entry, ...]
    batch: int = 1

    @classmethod
    def read(cls, path: str | Path) -> "StatedTimes":
        """The times of a TOML or CSV file. TimesError with everything that is wrong, by line."""
        return cls(str(path), read_entries(Path(path)))

    def at(self, batch: int) -> "StatedTimes":
        """The same for a question whose batch is B, which is that of times that state none."""
        return dataclasses.replace(self, batch=batch)

    def known(self, part: str, devices: Sequence[str]) -> tuple[Entry, ...]:
        """The times of a part alone on the first of the devices that has any."""
        for device in devices:
            if known := tuple(one for one in self.entries if (one.part, one.device, one.beside) == (part, device, "")):
                return known
        return ()

    def time(self, entries: Iterable[Entry], evidence_id: str, batch: int, count: int = 1) -> Estimate | None:
        """The time of a part at B with a given number of threads or processes, from its times alone.

        Interpolated between batches and between counts, carried on over batches with a wider factor; None beyond the
        counts that are stated, and without any time.
        """
        cells: dict[int, dict[int, list[Entry]]] = {}
        for one in entries:
            size = batch if one.part == "actors" else one.counts.get("batch", self.batch)
            cells.setdefault(counted(one), {}).setdefault(size, []).append(one)
        by_count = {
            known: self._over_batch(
                {size: self._estimate(ones[0], evidence_id) for size, ones in sizes.items()}, batch, evidence_id
            )
            for known, sizes in cells.items()
        }
        return over_count(by_count, count, evidence_id)

    def _over_batch(self, cells: Mapping[int, Estimate], batch: int, evidence_id: str) -> Estimate:
        """The time at B: from two batches and more by the laws of profiles, from one between flat and linear."""
        source = weakest(one.source for one in cells.values())
        if batch not in cells and len(cells) == 1:
            ((size, cell),) = cells.items()
            ratio = math.sqrt(batch / size)
            told = f"{cell.rests_on.description}, of B = {size:,}, carried on to B = {batch:,} between flat and linear"
            evidence = Evidence(evidence_id, weakest([source, "extrapolated"]), told)
            return Estimate.within(cell.value * ratio, cell.factor * max(ratio, 1 / ratio), evidence)
        known = over_batch(cells, batch, evidence_id)
        return known.resting_on(source=weakest([source, known.source]))

    def _estimate(self, one: Entry, evidence_id: str) -> Estimate:
        """A stated time with its ends, or the error bound that its source is taken to have."""
        told = f"{self.file}:{one.line}{f', {one.note}' if one.note else ''}"
        if not one.high and not one.factor:
            told += f"; no ends are stated, so an error bound of {FACTORS[one.source]:g}x is assumed, as {one.source}"
        evidence = Evidence(evidence_id, one.source, told)
        if one.high:
            return Estimate(one.seconds, one.low, one.high, evidence)
        return Estimate.within(one.seconds, one.factor or FACTORS[one.source], evidence)

    def hop(
        self, source: str, target: str, nbytes: float, engine: str, usual: tuple[float, ...] | None = None
    ) -> Hop | None:
        """The link between two devices as stated, for either direction where only one is; None where neither is.

        A time that states no bytes is of ``nbytes``, a batch of records. Times of two sizes make alpha and beta. A
        single one is split as the link that is there ``usual`` (alpha, seconds a byte), and is all alpha where none is.
        """
        for ends in ((source, target), (target, source)):
            known = [one for one in self.entries if (one.part, one.device, one.target) == ("link", *ends)]
            if known:
                alpha, each = self._alpha_beta(known, nbytes, usual)
                lines = ", ".join(f"{self.file}:{one.line}{f', {one.note}' if one.note else ''}" for one in known)
                back = "" if ends == (source, target) else f"; stated from {ends[0]} to {ends[1]}, taken both ways"
                weakest_source = weakest(one.source for one in known)
                link = f"{ends[0]} to {ends[1]}"
                return Hop(engine, alpha, each, Evidence(f"link {link}", weakest_source, f"{lines}{back}"), link)
        return None

    def _alpha_beta(
        self, known: Sequence[Entry], nbytes: float, usual: tuple[float, ...] | None
    ) -> tuple[float, float]:
        for one in known:
            if one.bytes_per_s:
                return one.seconds, 1 / one.bytes_per_s
        record = nbytes / self.batch
        points = {one.counts.get("bytes") or record * one.counts.get("batch", self.batch): one.seconds for one in known}
        if len(points) > 1:
            law = flat_then_linear(list(points), list(points.values()))
            return law.fixed_seconds, law.each_seconds
        ((size, seconds),) = points.items()
        if usual is None:
            return seconds, 0.0
        ratio = seconds / (usual[0] + size * usual[1])
        return usual[0] * ratio, usual[1] * ratio

    def slowdowns(self, alone: Callable[[Entry], Estimate | None]) -> dict[tuple[Part, Part, str], float]:
        """The slowdown of a part concurrent with another, by (part, other, device), from times ``beside``.

        ``alone`` gives the time of an entry's part with nothing else running.
        """
        known: dict[tuple[Part, Part, str], float] = {}
        for one in self.entries:
            if one.beside and (base := alone(one)):
                known.setdefault((one.part, one.beside, one.device), one.seconds / base.value)
        return known

    def unused(self, platform: Platform, excluded: Iterable[str] = ()) -> Iterator[Note]:
        """Yield a note on each time that no question about a platform uses, with the reason."""
        out = set(excluded)
        known = [device.name for device in platform.devices if device.name not in out]
        first = next((device.name for device in platform.devices if device.kind == "cpu"), "")
        away: dict[str, list[Entry]] = {}
        for one in self.entries:
            if missing := [name for name in (one.device, one.target) if name and name not in known]:
                away.setdefault(missing[0], []).append(one)
            elif why := self._useless(one, platform, first):
                kind, values = why
                yield Note(kind, {"place": f"{self.file}:{one.line}", "time": str(one), "part": one.part, **values})
        for name, entries in away.items():
            lines = ", ".join(dict.fromkeys(str(one.line) for one in entries))
            values = {"place": f"{self.file}:{lines}", "times": len(entries), "device": name, "platform": platform.name}
            kind = "time_of_excluded" if name in out else "time_of_no_device"
            yield Note(kind, {**values, "near": near(name, known)})

    def _useless(self, one: Entry, platform: Platform, first: str) -> tuple[str, dict[str, Any]] | None:
        """Return (the kind of the sentence, its values) of why a time of a device says nothing; None where it does."""
        if one.part == "link":
            return ("link_to_itself", {}) if one.device == one.target else None
        device, count = platform.device(one.device), counted(one)
        cores = int(device.cores.value) if device.cores else 1
        alike = group_equal_devices(platform)[one.device]
        if one.part == "actors" and one.device != first:
            return "actors_elsewhere", {"device": first}
        if device.kind == "cpu" and count > cores:
            return "more_than_cores", {"device": one.device, "cores": cores}
        if device.kind != "cpu" and count > 1:
            return "threads_elsewhere", {"device": one.device, "kind_of_device": device.kind}
        if one.counts.get("devices", 1) > len(alike):
            return "too_few_devices", {"device": one.device, "devices": len(alike)}
        if one.beside == one.part:
            return "beside_itself", {}
        if one.beside and one.part in TREE and not self.known(one.part, alike):
            return "not_alone", {"device": one.device, "beside": one.beside}
        return None


def counted(one: Entry) -> int:
    """Threads or processes of a time; 1 where none are stated."""
    return one.counts.get(COUNTED.get(one.part, ""), 1)


def group_equal_devices(platform: Platform) -> dict[str, tuple[str, ...]]:
    """Return by name the names of a device and of those equal to it in all else: the device first, then as listed."""
    groups: dict[Device, list[str]] = {}
    for device in platform.devices:
        groups.setdefault(dataclasses.replace(device, name=""), []).append(device.name)
    return {name: (name, *(other for other in names if other != name)) for names in groups.values() for name in names}
