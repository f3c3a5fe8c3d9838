"""Times of one's own: what a user measured, or read in a paper, of any part on any device. They are looked up first.

A time is that of a gradient step (``learner``: the step; ``sampling``, ``updating``: B priorities, insertions counted
in; ``storage``: B records gathered and the new ones written), for ``actors`` that from one environment step to the
next, of all processes together, fetching of weights counted in. A time without a batch is of the question's batch.

They are read from TOML or CSV, strictly, with everything that is wrong named at once:

    source = "measured"                # holds, as note, factor and batch do, for all that say nothing else
    [[time]]
    part = "learner"                   # actors, sampling, updating, storage, learner or link
    device = "gpu"                     # as the platform names it
    batch = 256
    us = 690                           # or seconds, ms, ns, per_second
    factor = 1.2                       # or low and high, in the unit of the time

A CSV file has these keys as columns, a line a time. ``python -m dse times --help`` explains the keys.

Letters: B batch. Times are seconds.
"""

import csv
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import impls
from impls import strict_toml
from impls.checks import near, short
from impls.strict_toml import MOST_TOLD, Faults, KeyPath, Problem, Reader, UnreadableError

from ..answer import Note
from ..estimate import LEAST_FACTOR, Estimate, Evidence, weakest
from ..platforms import Device, Platform
from ..records import Source
from ..solver.problem import TREE, Hop, Part
from .curves import flat_then_linear, over_batch, over_count
from .laws import cores_of

UNITS = {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # of them per second
RATE = "per_second"
TIMES = (*UNITS, RATE)
SHORTEST, LONGEST = 1e-12, 1e6  # seconds
MOST_ROWS = 10_000
SOURCES = ("measured", "quoted", "modeled")
COUNTS = {"batch": 1, "threads": 1, "processes": 1, "fanout": 2, "devices": 1, "bytes": 1}
"""Keys that are whole numbers, and the least of each."""
BOUNDS = {
    **{key: (float(least), float(1 << 40)) for key, least in COUNTS.items()},
    **{unit: (SHORTEST * per_second, LONGEST * per_second) for unit, per_second in UNITS.items()},
    RATE: (1 / LONGEST, 1 / SHORTEST),
    "low": (1e-30, 1e30),
    "high": (1e-30, 1e30),
    "factor": (1.0, 1e3),
    "gb_per_s": (1e-9, 1e9),
}
"""Keys that are numbers, and the bounds of each."""
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
EVERY = ("source", "note", "factor")
CHOICES = {"source": SOURCES, "beside": ALONE, "contestant": impls.names()}
TOP = (*EVERY, "batch")
WORDS = ("part", "device", "from", "to", "beside", "contestant", "source", "note")  # columns of text
KNOWN = (*WORDS, *BOUNDS)


class TimesError(ValueError):
    """A file of times cannot be used; the message has a sentence for each reason, a line each."""


@dataclass(frozen=True)
class Entry:
    """A time that somebody states: seconds of a call, [low, high] where stated, else ``factor`` (0: none stated).

    ``counts``: batch, threads, processes, fanout, devices, bytes, as far as stated. ``beside``: the part that ran
    meanwhile. ``device``: of a link the end that sends; ``target`` the other. ``seconds`` is 0 for a link of which
    only a bandwidth is stated. ``line``: of the file.
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
    line: int = 0

    @property
    def tree(self) -> tuple[str, int]:
        """The implementation and K of the tree that it is a time of; "" and 0 where they are not stated."""
        return self.contestant, self.counts.get("fanout", 0)

    def __str__(self) -> str:
        of = (
            " to ".join((f"{self.part} {self.device}", self.target)) if self.target else f"{self.part} on {self.device}"
        )
        more = [f"{key} {value:,}" for key, value in self.counts.items()] + [self.contestant] * bool(self.contestant)
        beside = f", beside {self.beside}" if self.beside else ""
        return f"{of}{' (' + ', '.join(more) + ')' if more else ''}{beside}"


def _read_csv(text: str) -> tuple[dict[str, Any], dict[KeyPath, int], Faults]:
    """Return (the tables of a CSV text, the line of each, faults). UnreadableError where it has no rows of columns.

    Lines that are empty or begin with # say nothing.
    """
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    numbered = [(number, line) for number, line in numbered if not line.lstrip().startswith("#")]
    first = numbered[0][0] if numbered else 1
    rows: list[list[str]] = []
    for number, line in numbered:
        try:
            rows += csv.reader([line], skipinitialspace=True, strict=True)
        except csv.Error:
            how = 'a text in "" must end in its line, before a comma; write "" for a " inside of it'
            raise UnreadableError(how, number) from None
    if len(rows) <= 1:
        how = "name the columns in the first line (part, device, batch, us, ...), and write a line a time below it"
        raise UnreadableError(f"states no time; {how}", first)
    header = [word.strip() for word in rows[0]]
    if other := next((sign for sign in ";\t" if len(header) == 1 and sign in header[0]), ""):
        how = "write commas between them, and a point in numbers (28.5)"
        raise UnreadableError(f"columns are separated by {other!r}; {how}", first)
    lines: dict[KeyPath, int] = {(): first} | {("time", n): number for n, (number, _) in enumerate(numbered[1:])}
    faults: Faults = [
        (("time", n), f"{len(row)} values, but the first line names {len(header)} columns")
        for n, row in enumerate(rows[1:])
        if len(row) > len(header)
    ]
    for twice in {word for word in header if header.count(word) > 1}:
        faults.append(((), f"the column {short(twice)} stands twice; leave one out"))
    cells = [[(key, cell.strip()) for key, cell in zip(header, row, strict=False) if cell.strip()] for row in rows[1:]]
    return {"time": [{key: _typed(key, cell) for key, cell in row} for row in cells]}, lines, faults


def _typed(key: str, value: str) -> Any:
    """Return a CSV value as a number where its column has numbers and it is one; a note may be a year, a device 0."""
    for kind in () if key in WORDS else (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


class _TimesReader(Reader):
    """Reads the tables of a file whose ``lines`` are known, each a time."""

    def __init__(self, lines: Mapping[KeyPath, int]) -> None:
        super().__init__()
        self.lines = lines

    def read(self, data: Mapping[str, Any]) -> tuple[Entry, ...]:
        """Return the times; without sense where there are faults."""
        rows = data.get("time")
        for key in data.keys() - {"time", *TOP}:
            self.fault((key,), f"unknown key {short(key)}{near(key, ['time', *TOP])}; a time is a table [[time]]")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            how = "write tables [[time]], each with part, device and us (or ms, ns ...)"
            self.fault(("time",), f"states no time; {how}")
            return ()
        if len(rows) > MOST_ROWS:
            self.fault(("time",), f"{len(rows):,} times; at most {MOST_ROWS:,} are read")
        top = {key: value for key, value in data.items() if key in TOP}
        seen: dict[Any, Entry] = {}
        for n, row in enumerate(rows[:MOST_ROWS]):
            if entry := self._entry(row, top, ("time", n)):
                counts = tuple(sorted(entry.counts.items()))
                cell = entry.part, entry.device, entry.target, entry.beside, entry.contestant, counts
                if cell in seen:
                    how = "leave one out, or state what differs (batch, ...)"
                    self.fault(("time", n), f"{entry} is stated twice; {how}")
                seen.setdefault(cell, entry)
        return tuple(seen.values())

    def _entry(self, row: Mapping[str, Any], top: Mapping[str, Any], path: KeyPath) -> Entry | None:
        """Return the time of a row, None where it is wrong. ``top`` holds for what the row does not state."""
        before, part = len(self.faults), row.get("part")
        is_part = isinstance(part, str) and part in KEYS
        ends = ("from", "to") if part == "link" else ("device", "beside")
        allowed = {"part", *KEYS[str(part)], *EVERY, *TIMES, "low", "high", *ends} if is_part else {*KNOWN}
        for key in row:
            if key not in KNOWN:
                self.fault((*path, key), f"unknown key {short(key)}{near(key, KNOWN)}")
            elif key not in allowed:
                of = ", ".join(other for other in KEYS if key in KEYS[other]) or ", ".join(ALONE)
                self.fault((*path, key), f"{key} says nothing of the part {part}, only of {of}; leave it out")
        if not is_part:
            wrong = "" if part is None else f", not {short(part)}{near(str(part), KEYS)}"
            self.fault((*path, "part"), f"part must be one of {', '.join(KEYS)}{wrong}")
            return None
        if "low" in row or "high" in row:
            allowed.remove("factor")
        values = {**{key: value for key, value in top.items() if key in allowed}, **row}
        device, target = (self._device(key, values, path) if key != "beside" else "" for key in ends)
        words = {key: self._word(key, values, path) for key in ("source", "note", "contestant", "beside")}
        numbers = {key: self._number(key, values[key], path) for key in BOUNDS if key in values}
        seconds, low, high = self._seconds(numbers, values, path)
        if len(self.faults) > before:
            return None
        source: Any = words["source"] or "measured"
        counts = {key: int(numbers[key]) for key in COUNTS if key in numbers}
        shape = str(part), device, seconds, source, counts, low, high, numbers.get("factor", 0.0)
        bandwidth = numbers.get("gb_per_s", 0.0)
        more = words["contestant"], words["beside"], target, bandwidth * 1e9, words["note"]
        return Entry(*shape, *more, strict_toml.line_of(path, self.lines))

    def _device(self, key: str, values: Mapping[str, Any], path: KeyPath) -> str:
        value = values.get(key)
        if not isinstance(value, str) or not value.strip():
            wrong = f"lacks {key}" if value is None else f"{key} must be text, not {self.kind_of(value)}"
            self.fault((*path, key), f'{wrong}; name a device of the platform, such as {key} = "gpu"')
            return ""
        return value.strip()

    def _word(self, key: str, values: Mapping[str, Any], path: KeyPath) -> str:
        rules = {"choices": CHOICES[key]} if key in CHOICES else {}
        return (self.text(values[key], (*path, key), rules) or "") if key in values else ""

    def _number(self, key: str, value: Any, path: KeyPath) -> float:
        """Return a number within its bounds, or NaN with a fault."""
        (least, most), is_whole = BOUNDS[key], key in COUNTS
        if type(value) not in (int, float) or not least <= value <= most or (is_whole and value != int(value)):
            kind = "a whole number" if is_whole else "a number"
            self.fault((*path, key), f"{key} must be {kind} from {least:g} to {most:g}, not {short(value)}")
            return math.nan
        return float(value)

    def _seconds(
        self, numbers: Mapping[str, float], values: Mapping[str, Any], path: KeyPath
    ) -> tuple[float, float, float]:
        """Return seconds, low and high; zeros for a link that states a bandwidth alone, or with a fault."""
        units, ends = [unit for unit in TIMES if unit in numbers], [end for end in ("low", "high") if end in numbers]
        if len(units) != 1:
            if units or "gb_per_s" not in numbers:
                wrong = f"states {' and '.join(units)}" if units else "lacks its time"
                or_rate = " (or gb_per_s)" if values["part"] == "link" else ""
                self.fault(path, f"{wrong}; state one of {', '.join(TIMES)}{or_rate}")
            return 0.0, 0.0, 0.0
        (unit,) = units
        seconds, *limits = (1 / numbers[key] if unit == RATE else numbers[key] / UNITS[unit] for key in (unit, *ends))
        if not ends:
            return seconds, 0.0, 0.0
        if len(ends) == 1 or "factor" in values:
            self.fault((*path, ends[0]), "state low and high, or factor alone")
            return 0.0, 0.0, 0.0
        low, high = sorted(limits)
        if low > seconds or seconds > high:
            wrong = f"must lie from low {numbers['low']:g} to high {numbers['high']:g}"
            self.fault((*path, "low"), f"{unit} = {numbers[unit]:g} {wrong}")
        return seconds, low, max(high, seconds * LEAST_FACTOR)


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
        """Read the times of a TOML or CSV file. TimesError with everything that is wrong, by line."""
        try:
            text = strict_toml.content(Path(path), "times")
            if Path(path).suffix.lower() == ".csv":
                data, lines, faults = _read_csv(text)
            else:
                data, lines, faults = strict_toml.tables(text, "times"), strict_toml.locate(text), []
        except UnreadableError as error:
            raise TimesError(str(Problem(str(path), error.line, str(error)))) from None
        reader = _TimesReader(lines)
        entries = reader.read(data)
        wrong = sorted({(strict_toml.line_of(key, lines), sentence) for key, sentence in [*faults, *reader.faults]})
        if wrong:
            more = [(0, f"and {len(wrong) - MOST_TOLD} more")] if len(wrong) > MOST_TOLD else []
            raise TimesError("\n".join(str(Problem(str(path), *fault)) for fault in [*wrong[:MOST_TOLD], *more]))
        return cls(str(path), entries)

    def at(self, batch: int) -> "StatedTimes":
        """The same for a question whose batch is B, which is that of times that state none."""
        return dataclasses.replace(self, batch=batch)

    def known(self, part: str, devices: Sequence[str]) -> tuple[Entry, ...]:
        """Return the times of a part alone on the first of the devices that has any."""
        alone = [entry for entry in self.entries if entry.part == part and not entry.beside]
        of = next((device for device in devices if any(entry.device == device for entry in alone)), "")
        return tuple(entry for entry in alone if entry.device == of)

    def time(self, entries: Iterable[Entry], evidence_id: str, batch: int, count: int = 1) -> Estimate | None:
        """Return the time of a part at B with a given number of threads or processes, from its times alone.

        Interpolated between batches and between counts, carried on over batches with a wider factor; None beyond the
        counts that are stated, and without any time.
        """
        cells: dict[int, dict[int, Estimate]] = {}
        for entry in entries:
            size = batch if entry.part == "actors" else entry.counts.get("batch", self.batch)
            cells.setdefault(counted(entry), {}).setdefault(size, self._estimate(entry, evidence_id))
        by_count = {known: self._over_batch(sizes, batch, evidence_id) for known, sizes in cells.items()}
        return over_count(by_count, count, evidence_id)

    def _over_batch(self, cells: Mapping[int, Estimate], batch: int, evidence_id: str) -> Estimate:
        """Return the time at B: from several batches as profiles do it, from one between flat and linear."""
        source = weakest(cell.source for cell in cells.values())
        if batch in cells or len(cells) > 1:
            known = over_batch(cells, batch, evidence_id)
            return known.resting_on(source=weakest([source, known.source]))
        ((size, cell),) = cells.items()
        ratio = math.sqrt(batch / size)
        said = f"{cell.rests_on.description}, of B = {size:,}, carried on to B = {batch:,} between flat and linear"
        evidence = Evidence(evidence_id, weakest([source, "extrapolated"]), said)
        return Estimate.within(cell.value * ratio, cell.factor * max(ratio, 1 / ratio), evidence)

    def _estimate(self, entry: Entry, evidence_id: str) -> Estimate:
        """Return a stated time with its ends, or the error bound that its source is taken to have."""
        said, factor = self._place(entry), entry.factor or FACTORS[entry.source]
        if entry.high:
            return Estimate(entry.seconds, entry.low, entry.high, Evidence(evidence_id, entry.source, said))
        if not entry.factor:
            said += f"; no ends are stated, so an error bound of {factor:g}x is assumed, as {entry.source}"
        return Estimate.within(entry.seconds, factor, Evidence(evidence_id, entry.source, said))

    def _place(self, entry: Entry) -> str:
        return f"{self.file}:{entry.line}{f', {entry.note}' if entry.note else ''}"

    def hop(
        self, source: str, target: str, nbytes: float, engine: str, usual: tuple[float, ...] | None = None
    ) -> Hop | None:
        """Return the link between two devices as stated, for either direction where only one is; None where neither is.

        A time that states no bytes is of ``nbytes``, a batch of records. Times of two sizes make alpha and beta. A
        single one is split as the link that is there ``usual`` (alpha, seconds a byte), and is all alpha where none is.
        """
        for ends in ((source, target), (target, source)):
            known = [entry for entry in self.entries if (entry.part, entry.device, entry.target) == ("link", *ends)]
            if known:
                back = "" if ends == (source, target) else f"; stated from {ends[0]} to {ends[1]}, taken both ways"
                link, said = f"{ends[0]} to {ends[1]}", ", ".join(map(self._place, known))
                evidence = Evidence(f"link {link}", weakest(entry.source for entry in known), f"{said}{back}")
                return Hop(engine, *self._alpha_beta(known, nbytes, usual), evidence, link)
        return None

    def _alpha_beta(
        self, known: Sequence[Entry], nbytes: float, usual: tuple[float, ...] | None
    ) -> tuple[float, float]:
        points: dict[float, float] = {}
        for entry in known:
            if entry.bytes_per_s:
                return entry.seconds, 1 / entry.bytes_per_s
            size = entry.counts.get("bytes") or nbytes / self.batch * entry.counts.get("batch", self.batch)
            points[size] = entry.seconds
        if len(points) > 1:
            law = flat_then_linear(list(points), list(points.values()))
            return law.fixed_seconds, law.each_seconds
        ((size, seconds),) = points.items()
        ratio = seconds / (usual[0] + size * usual[1]) if usual else 0.0
        return (usual[0] * ratio, usual[1] * ratio) if usual else (seconds, 0.0)

    def slowdowns(self, alone: Callable[[Entry], Estimate | None]) -> dict[tuple[Part, Part, str], float]:
        """Return the slowdown of a part concurrent with another, by (part, other, device), from times ``beside``.

        ``alone`` gives the time of an entry's part with nothing else running.
        """
        known: dict[tuple[Part, Part, str], float] = {}
        for entry in self.entries:
            if entry.beside and (base := alone(entry)):
                known.setdefault((entry.part, entry.beside, entry.device), entry.seconds / base.value)
        return known

    def unused(self, platform: Platform, excluded: Iterable[str] = ()) -> Iterator[Note]:
        """Yield a note on each time that no question about a platform uses, with the reason."""
        known = [device.name for device in platform.devices if device.name not in excluded]
        away: dict[str, list[str]] = {}
        for entry in self.entries:
            if missing := [name for name in (entry.device, entry.target) if name and name not in known]:
                away.setdefault(missing[0], []).append(str(entry.line))
            elif why := self._why_useless(entry, platform):
                place = {"place": f"{self.file}:{entry.line}", "time": str(entry), "part": entry.part}
                yield Note(why[0], {**place, **why[1]})
        for name, lines in away.items():
            place = {"place": f"{self.file}:{', '.join(dict.fromkeys(lines))}", "device": name}
            kind = "time_of_excluded" if name in excluded else "time_of_no_device"
            values = {**place, "times": len(lines), "platform": platform.name, "near": near(name, known)}
            yield Note(kind, values, "warning" if kind == "time_of_no_device" else "detail")

    def _why_useless(self, entry: Entry, platform: Platform) -> tuple[str, dict[str, Any]] | None:
        """Return (the kind of note, its values) of why a time of a device says nothing; None where it does."""
        if entry.part == "link":
            return ("link_to_itself", {}) if entry.device == entry.target else None
        device, count, cores = platform.device(entry.device), counted(entry), cores_of(platform.device(entry.device))
        first = next((other.name for other in platform.devices if other.kind == "cpu"), "")
        equal, is_cpu = group_equal_devices(platform)[device.name], device.kind == "cpu"
        on: dict[str, Any] = {"device": device.name}
        is_tree_beside = entry.beside and entry.part in TREE
        reasons: tuple[tuple[Any, str, dict[str, Any]], ...] = (
            (entry.part == "actors" and device.name != first, "actors_elsewhere", {"device": first}),
            (is_cpu and count > cores, "more_than_cores", on | {"cores": cores}),
            (not is_cpu and count > 1, "threads_elsewhere", on | {"kind_of_device": device.kind}),
            (entry.counts.get("devices", 1) > len(equal), "too_few_devices", on | {"devices": len(equal)}),
            (entry.beside == entry.part, "beside_itself", {}),
            (is_tree_beside and not self.known(entry.part, equal), "not_alone", on | {"beside": entry.beside}),
        )
        return next(((kind, values) for is_so, kind, values in reasons if is_so), None)


def counted(entry: Entry) -> int:
    """Return the threads or processes of a time; 1 where none are stated."""
    return entry.counts.get(COUNTED.get(entry.part, ""), 1)


def group_equal_devices(platform: Platform) -> dict[str, tuple[str, ...]]:
    """Return by name the names of a device and of those equal to it in all else: the device first, then as listed."""
    groups: dict[Device, list[str]] = {}
    for device in platform.devices:
        groups.setdefault(dataclasses.replace(device, name=""), []).append(device.name)
    return {name: (name, *(other for other in names if other != name)) for names in groups.values() for name in names}
