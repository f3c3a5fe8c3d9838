"""One machine's records as typed tables: what each part of a training system takes there, for one workload.

A profile belongs to the workload it was made for. Another batch, update interval, depth or capacity leaves most of it
as it is: gradient steps are interpolated between batches, actors know nothing of batches. What is carried over is said.

Letters: B batch, T threads, N capacity, u environment steps a gradient step. Times are seconds of one call.
"""

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from impls.files import list_files
from impls.terminal import plural
from impls.training import Workload, identity, load
from impls.training import names as shipped_names
from impls.training.settings import of_stated
from impls.training.workload import RESULTS_ALONE

from .. import stats
from ..answer import Note
from ..drift import Drift, drift
from ..estimate import Estimate, Evidence
from ..platforms import Platform
from ..platforms.fingerprint import where
from ..records import (
    LOAD,
    SENTINEL,
    Record,
    RecordError,
    how_to_measure,
    in_order,
    parse,
    read_folder,
    read_machine,
    select,
    twins,
)
from .curves import carried, over_batch
from .tree_times import Configuration, Question, Table
from .whole import (
    BESIDE,
    REFERENCE,
    Beyond,
    TimedRun,
    TimeOf,
    Whole,
    beyond,
    describe_origin,
    timed,
    what_of,
    whole_runs,
)

FREE = ("learner.batch", "learner.update_interval", "learner.learning_starts", "replay.", "exploration.", "actors.")
"""Keys of a workload that may differ from the profiled one: what depends on them is asked for, never looked up."""
Shape = Callable[[int], float]
TRAINING, TRAINING_AGAIN, LAYER = "training", "training_again", "layer"
"""The primitives of a part of a profile, of its A/A twin, and of a network's layer."""
LEARNED = ("training run", "learners step")
"""Primitives of gradient steps by one learner or several, while actors act and while they stand still."""
FLAT, STATE_DICT = "flat", "state dict"
"""What weights are handed off as: one vector that is copied, or a network's arrays by name."""


@dataclass(frozen=True)
class Row:
    """A measured cell: ``part`` is a contestant and an op, such as "learner step", ``what`` as ``what_of`` names it.

    ``beside``: what ran meanwhile on other cores, "" for nothing. The evidence of its time is its record. ``skipped``:
    a single call took so long that the cell was left out, so it takes that at least.
    """

    part: str
    what: str
    batch: int
    threads: int
    beside: str
    options: Mapping[str, Any]
    time: Estimate
    skipped: bool = False


@dataclass(frozen=True)
class PerformanceTable:
    """Rows of one machine for one workload. ``differs``: keys in which the profiled workload is another one.

    ``whole``: runs that were timed whole, ``several`` those of several learners; ``beyond``: what serial loops of other
    workloads take beyond their parts, by implementation. ``concurrent``: runs of several processes whose parts were
    timed in the run. ``learned``: gradient steps in runs, and of learners alone, of any workload. ``made``: the records
    of the profile.
    """

    machine_key: str
    workload: str
    differs: tuple[str, ...]
    rows: tuple[Row, ...]
    trees: Table | None
    whole: tuple[Whole, ...] = ()
    beyond: Mapping[str, Beyond] = dataclasses.field(default_factory=dict)
    concurrent: tuple[TimedRun, ...] = ()
    learned: tuple[Record, ...] = ()
    several: tuple[Whole, ...] = ()
    made: tuple[Record, ...] = ()

    def alone(self, what: str, threads: int | None = None, is_timed: bool = True) -> dict[tuple[int, int], list[Row]]:
        """Return rows of a part alone, by (threads, batch); without ``is_timed`` those too that were skipped."""
        cells: dict[tuple[int, int], list[Row]] = {}
        for row in self._rows_alone.get(what, ()):
            if threads in (None, row.threads) and not (is_timed and row.skipped):
                cells.setdefault((row.threads, row.batch), []).append(row)
        return cells

    @functools.cached_property
    def _rows_alone(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.beside in ("", "nothing"):
                found.setdefault(row.what, []).append(row)
        return found

    def time(
        self, what: str, batch: int, threads: int = 1, evidence_id: str = "", shape: Shape | None = None, **options: Any
    ) -> Estimate | None:
        """Seconds of a call: measured, interpolated over batches, or carried on by a fit ("extrapolated"), or None.

        ``shape``: a law in B, up to a factor, for what was measured at one B alone; without it another B has no time.
        """
        cells, skipped = dict[int, Estimate](), set[int]()
        for (_, size), every in self.alone(what, threads, is_timed=False).items():
            rows = [row for row in every if all(row.options.get(key) == value for key, value in options.items())]
            if rows:
                cells[size] = _merged([row.time for row in rows])
                skipped |= {size} if rows[0].skipped else set()
        near = {max((size for size in cells if size <= batch), default=0), min(filter(batch.__le__, cells), default=0)}
        # Of those that were skipped for their length only the nearest to B on either side say something; where the
        # nearest was skipped, nothing is carried on across it from those that were timed.
        cells = {size: cell for size, cell in cells.items() if size not in skipped or size in near}
        end = min(cells, key=lambda size: abs(math.log(size / batch)), default=0)
        if end in skipped and not min(cells) <= batch <= max(cells):  # a fit would lie far below what it took
            return carried(cells[end], math.sqrt(batch / end), evidence_id or what)
        if len(cells) == 1 and batch not in cells:
            return carried(cells[end], shape(batch) / shape(end), evidence_id or what) if shape else None
        return over_batch(cells, batch, evidence_id or what) if cells else None

    def notes(self, command: str) -> Iterator[Note]:
        """Say that cells of the profile are left, or that others disturbed them; ``command`` measures the profile."""
        last = {
            record.cell: record
            for record in in_order(record for record in self.made if record.primitive in (TRAINING, BESIDE))
        }
        profile = [record for record in last.values() if record.primitive == TRAINING or "profile" in record.facts]
        # A cell counts whichever preset measured it last; an older record tells none, so its profile counts as whole.
        presets = [record.facts.get("profile") or {"cells": 0} for record in profile]
        least = min(presets, key=lambda preset: preset["cells"], default={"cells": 0})
        if len(profile) < least["cells"]:
            how = f"{command} --preset {least['preset']}"
            yield Note(
                "profile_is_unfinished", {"measured": len(profile), "cells": least["cells"], "how": how}, "warning"
            )
        if loads := [record.machine[LOAD] for record in last.values() if LOAD in record.machine]:
            disturbed = {"disturbed": len(loads), "records": len(last), "load": max(loads), "how": command}
            yield Note("profile_was_disturbed", disturbed, "warning")

    def weights(self, op: str) -> Estimate | None:
        """Seconds of publishing or fetching weights in shared memory, as one vector if that was timed."""
        return next(
            (known for kind in (FLAT, STATE_DICT) if (known := self.time(f"weights {op}", 1, via="shared", kind=kind))),
            None,
        )

    def threads(self, what: str) -> list[int]:
        """Numbers of threads, or of processes, that were measured."""
        return sorted({threads for threads, _ in self.alone(what)})

    def implementations(self, part: str) -> tuple[str, ...]:
        """The implementations of the learner, or of the policy, that a part was timed with, the reference first."""
        names = {str(row.options["learner"]) for row in self.rows if row.part == part and not row.skipped}
        return tuple(sorted(names, key=lambda name: (name != REFERENCE, name)))

    def environments(self, part: str, implementation: str = REFERENCE) -> tuple[int, ...]:
        """The numbers of environments at once that a part was timed with by an implementation."""
        counts = {int(row.options["environments"]) for row in self.rows if row.part == part}
        return tuple(sorted(count for count in counts if self.alone(what_of(part, implementation, count))))

    def slowdown(self, what: str, beside: str) -> float | None:
        """Factor on a time while something else runs on cores of its own; None where nothing was measured."""
        own = [row for row in self.rows if row.what == what and row.beside == beside and row.options["cores"] == "own"]
        base = [row for row in self.rows if row.what == what and row.beside == "nothing"]
        return own[0].time.value / base[0].time.value if own and base else None

    def tree(
        self, configuration: Configuration, op: str, capacity: int, batch: int, evidence_id: str
    ) -> Estimate | None:
        """Return seconds of a tree's draw or update: from this workload's own rows, else the sweep's for any (N, B)."""
        what, threads, own = f"{configuration.contestant} {op}", configuration.threads, None
        if not configuration.options:
            own = self.time(what, batch, threads, evidence_id, fanout=configuration.fanout, capacity=capacity)
        if self.trees is None or (own and own.source != "extrapolated"):
            return own
        swept = self.trees.call(configuration, op, Question(capacity, batch, 0.0, threads))
        return swept.time.resting_on(id=evidence_id) if swept else own


def tables(
    platform: Platform, workload: Workload, results: Path, called: str = ""
) -> tuple[PerformanceTable | None, PerformanceTable | None]:
    """Return (records of this very machine, a profile made elsewhere).

    Of several machines elsewhere, the one that timed the environment step most surely. RecordError where a probed
    machine has no records; where it has no profile of the workload, rows are empty.
    """

    def error_bound(table: PerformanceTable) -> float:
        step = table.time("actor step", 1, 1)
        return step.factor if step else math.inf

    key = platform.machine_key
    if not key:
        try:
            elsewhere = [known.profile(workload) for known in evidence(results, PROFILES).values()]
        except RecordError:
            return None, None
        return None, min((table for table in elsewhere if table.rows), key=error_bound, default=None)
    known = evidence(results, key)
    if key not in known:
        profile = how_to_measure(f"profile --workload {shlex.quote(called or workload.name)}")
        raise RecordError(
            f"{results}: no records of machine {key}, only of {', '.join(evidence(results))}; {where(key)}{profile}; "
            "or take the line machine_key out of the platform file, then models answer"
        )
    return known[key].table(workload), None


@dataclass(frozen=True, eq=False)
class MachineRecords:
    """The evidence of one machine; what tables of several workloads share is worked out once."""

    machine_key: str
    records: Sequence[Record]

    def table(self, workload: Workload) -> PerformanceTable:
        """The tables for a workload."""
        profiled, differs = _profiled(self._workloads, workload)
        made = self._of(profiled)
        if any(row.options["environments"] == workload.actors.environments for row in made.rows):
            differs = tuple(key for key in differs if key != "actors.environments")  # an axis of every profile
        return dataclasses.replace(made, workload=workload.name if profiled else "", differs=differs)

    def profile(self, workload: Workload) -> PerformanceTable:
        """Return the table of a workload's parts alone: what another machine's records are asked for."""
        profiled, differs = _profiled(self._workloads, workload)
        rows = self._rows(profiled) if profiled else ()
        return PerformanceTable(self.machine_key, workload.name, differs, rows, None)

    @functools.cached_property
    def _workloads(self) -> dict[tuple[str, str], Workload | None]:
        """By (name, identity) each profiled workload, as far as records tell."""
        return workloads(record for record in self.records if record.primitive == TRAINING)

    @functools.cached_property
    def _changes(self) -> Drift:
        return drift(self.records)

    @functools.cached_property
    def _shared(self) -> tuple[dict[str, tuple[Whole, ...]], Table | None, tuple[Record, ...], float]:
        """What all tables share: runs timed whole by workload, trees, gradient steps in runs, and the noise floor."""
        try:
            trees = Table(self.records)
        except RecordError:
            trees = None
        learned = tuple(record for record in self.records if record.primitive in LEARNED and record.median_seconds)
        floor = stats.noise_floor(twins(self.records, TRAINING))
        return whole_runs(self.records, self._changes), trees, learned, floor

    @functools.cached_property
    def _of(self) -> Callable[[str], PerformanceTable]:
        return functools.cache(self._made)  # workloads that differ in what a profile leaves free share one

    def _made(self, profiled: str) -> PerformanceTable:
        """Make the tables of a profile; without rows where ``profiled`` is ""."""
        runs, trees, learned, floor = self._shared
        others = {key: known for key, known in runs.items() if key != profiled}

        def alone(key: str) -> TimeOf:
            return PerformanceTable("", "", (), self._rows(key), None).time

        names = sorted({run.learner for known in others.values() for run in known})
        own = runs.get(profiled, ())
        return PerformanceTable(
            self.machine_key,
            "",
            (),
            self._rows(profiled) if profiled else (),
            trees,
            tuple(run for run in own if not run.how),
            {name: known for name in names if (known := beyond(others, alone, name, math.exp(floor)))},
            timed(self.records, profiled),
            learned,
            tuple(run for run in own if run.how),
            tuple(record for record in self.records if record.options.get("identity") == profiled),
        )

    def _rows(self, profiled: str) -> tuple[Row, ...]:
        """Make the rows of a profile. A cell that was skipped for its length has its call's, unless timed too."""
        own = [record for record in self.records if record.options.get("identity") == profiled]
        timed, rows = {_cell(record) for record in own if record.median_seconds}, []
        for record in own:
            cell, at_least = _cell(record), record.seconds_at_least
            seconds = record.median_seconds or (0.0 if cell in timed else at_least)
            if not seconds or record.primitive not in (TRAINING, TRAINING_AGAIN, LAYER):
                continue
            options = {"learner": REFERENCE, "environments": 1, **record.options}
            if record.contestant == "weights":
                options["kind"] = record.facts.get("weights", FLAT)
            options |= {"capacity": record.capacity, "fanout": record.fanout}
            low, high = record.low_seconds or seconds, record.high_seconds or seconds
            factor = math.exp(self._changes.half_width(stats.log_sigma(low, high, 0.0)))
            said = describe_origin(record) + (f"; {record.reason}: it takes that at least" if at_least else "")
            time = Estimate.within(seconds, factor, Evidence(cell[0], "measured", said))
            part = f"{record.contestant} {record.op}"
            rows.append(Row(part, *cell[:4], options, time, bool(at_least)))
        return tuple(rows)


def evidence(results: Path, machine_key: str = "") -> Mapping[str, MachineRecords]:
    """Return the evidence in a folder by machine, read anew only where a file has changed.

    Of one machine alone where its key is given and no more was asked for before; of all machines their profiles
    alone where ``PROFILES`` is. RecordError where there is none of any.
    """
    files = [(path, path.stat()) for path in list_files(results, "**/*.jsonl")]
    state = tuple((path, stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in files)
    for key in (machine_key,) if machine_key == PROFILES else ("", machine_key):
        if (results, state, key) in _READ:
            return _READ[results, state, key]
    if machine_key == PROFILES:
        read = [record for path, _ in files for record in _read_profiles(path)]
        sentinels = [record for record in read if record.primitive == SENTINEL and LOAD not in record.machine]
        found = [*select(record for record in read if record.primitive != SENTINEL), *sentinels]
    else:
        found = read_machine(results, machine_key) if machine_key else read_folder(results)
    own: dict[str, list[Record]] = {}
    for record in found:
        own.setdefault(record.machine_key, []).append(record)
    while len(_READ) >= MOST_READ:
        _READ.pop(next(iter(_READ)))
    return _READ.setdefault((results, state, machine_key), {key: MachineRecords(key, own[key]) for key in sorted(own)})


def _read_profiles(path: Path) -> Iterator[Record]:
    """Read the records of a file that are of a profile or of a sentinel, with their run; no other line is parsed."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line for line in file if line[-1] == "\n"]  # not a torn last one
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read ({error})") from None
    run, record = 1, None
    for number, line in enumerate(lines, 1):
        if '"run"' in line:
            run, record = number, None
        if '"training"' in line or '"sentinel"' in line or '"training_again"' in line:
            before = record or (parse(lines[run - 1], f"{path}:{run}") if run < number else None)
            record = parse(line, f"{path}:{number}", before)
            yield record


_READ: dict[tuple[Path, tuple[Any, ...], str], Mapping[str, MachineRecords]] = {}
MOST_READ = 2  # folders, or machines of them, of which the evidence is kept
PROFILES = "profiles"
"""In place of a machine's key: the profiles of all machines, and by how much these change."""


def of_records(records: Sequence[Record], machine_key: str, workload: Workload) -> PerformanceTable:
    """The tables that records in memory make for a workload."""
    return MachineRecords(machine_key, records).table(workload)


def _profiled(there: Mapping[tuple[str, str], Workload | None], workload: Workload) -> tuple[str, tuple[str, ...]]:
    """(identity of the profile to use, keys that differ from its workload); ("", ()) where none fits.

    ``there``: by (name, identity) each workload that was profiled, None where nothing tells it.
    """
    own = identity(workload)
    if own in {key for _, key in there}:
        return own, ()
    for (_, recorded), other in there.items():
        differs = tuple(_differences(workload, other)) if other else ("",)
        if all(key.startswith(FREE) for key in differs):
            return recorded, differs
    return "", ()


def _differences(one: Any, other: Any, path: str = "") -> Iterable[str]:
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(mine):
            yield from _differences(mine, theirs, f"{path}{field.name}.")
        elif mine != theirs and path + field.name not in RESULTS_ALONE:
            yield path + field.name


def _cell(record: Record) -> tuple[str, int, int, str, str]:
    """Return what was timed, whatever came of it and in whichever of a run's twins: the last two, what ran beside."""
    options = record.options
    by = str(options.get("learner", REFERENCE)), int(options.get("environments", 1))
    what = what_of(f"{record.contestant} {record.op}", *by)
    return what, record.batch, record.threads, str(options.get("beside", "")), str(options.get("cores", ""))


def _merged(times: Sequence[Estimate]) -> Estimate:
    """The same thing measured several times: the geometric mean, as uncertain as any one and as they lie apart."""
    seconds = stats.geometric_mean([time.value for time in times])
    low, high = min(seconds, *(time.low for time in times)), max(seconds, *(time.high for time in times))
    told = times[-1].rests_on.description
    if len(times) > 1:
        told += f", pooled with {plural(len(times) - 1, 'earlier record')} of that cell"
    return dataclasses.replace(times[0].resting_on(description=told), value=seconds, low=low, high=high)


def workloads(records: Iterable[Record]) -> dict[tuple[str, str], Workload | None]:
    """By (name, identity) each workload of records that name its identity.

    Where no record holds what its file stated, the one that ships under its name; None where that is another.
    """
    held: dict[tuple[str, str], Workload | None] = {}
    for record in records:
        key = str(record.options.get("workload")), str(record.options.get("identity"))
        if "identity" in record.options and not held.get(key):
            held[key] = of_stated(record.machine.get("workload"))
    shipped = {name: load(name) for name in {name for name, _ in held}.intersection(shipped_names())}
    known = {key: workload or shipped.get(key[0]) for key, workload in held.items()}
    return {key: workload if workload and identity(workload) == key[1] else None for key, workload in known.items()}
