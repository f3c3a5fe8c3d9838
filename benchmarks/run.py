"""The one loop of every command that measures: it keeps a file's records, and measures and appends those it lacks.

Each record is on disk before the next is measured. So a command may be interrupted or killed at any moment: the same
command continues from there, measures nothing twice, and counts the cells it finds done.
"""

import collections
import dataclasses
import functools
import itertools
import json
import math
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from dse import platforms, records, stats
from dse.platforms import checkout
from dse.platforms.checkout import evidence_here, is_done, is_evidence
from dse.records import Record, Run, Status
from impls.terminal import Progress, plural

from .cases import Case
from .sentinels import Sentinels
from .tables import compare_fastest, write_fastest
from .timing import Timing

SHAPE = ("contestant", "op", "capacity", "batch", "fanout", "threads", "dtype")  # fields of a case and of its record
USUAL = {"threads": 1, "dtype": "float32"}  # of cases that are not of trees, and do not say
MOST_REPEATS = 0.15  # of a run's groups, measured again because the machine was disturbed
Cell = TypeVar("Cell")


def _machine() -> dict[str, Any]:
    """Describe the machine, and the load on it where others disturb."""
    return {**platforms.fingerprint(), **({records.LOAD: checkout.read_load()} if checkout.read_load() else {})}


@dataclasses.dataclass(frozen=True)
class Stamp:
    """The fields that all records of a run share: commit, command, primitive and machine, with facts of each record."""

    commit: str | None
    dirty: bool | None
    command: str
    primitive: str = "sum_tree"
    machine: dict[str, Any] = dataclasses.field(default_factory=_machine)

    @classmethod
    def of_this_run(
        cls,
        clock: str,
        primitive: str = "sum_tree",
        libraries: Iterable[Path] = (),
        asked: Mapping[str, Any] = {},
        **facts: Any,
    ) -> Self:
        """Return the stamp of the checkout's commit and the command line; its machine has these ``facts`` too, and the
        evidence of what the module ``clock`` times by ``libraries`` and is ``asked`` for (``evidence_here``)."""
        machine = {**_machine(), "evidence": evidence_here(clock, libraries, **asked), **facts}
        return cls(*platforms.commit(Path(__file__).parent), platforms.command_line(), primitive, machine)

    @functools.cached_property
    def run(self) -> Run:
        """The run of the records."""
        machine = {name: fact for name, fact in self.machine.items() if name in records.OF_MACHINES}
        return Run(commit=self.commit, dirty=self.dirty, command=self.command, machine=machine)

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Facts that each record of the run has."""
        return {name: fact for name, fact in self.machine.items() if name not in records.OF_MACHINES}

    def for_packages(self, packages: Mapping[str, str]) -> Self:
        """Return the stamp of what another interpreter times, which has these packages."""
        return dataclasses.replace(self, machine={**self.machine, "packages": packages})

    def record(self, case: Case, status: Status, **fields: Any) -> Record:
        """Make a record of a case, measured unless ``fields`` say otherwise."""
        named: dict[str, Any] = {name: getattr(case, name, USUAL.get(name)) for name in SHAPE}
        named |= {"options": dict(case.options), "distribution": getattr(case, "workload", "uniform")}
        named |= {"primitive": self.primitive, "run": self.run, "facts": self.facts}
        return Record(**({"source": "measured", "status": status, "utc": platforms.now()} | named | fields))

    def timed(
        self,
        case: Case,
        timing: Timing,
        facts: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Record:
        """Make a record of a timed case; ``facts`` say how: the CPUs it was kept on, a device; ``metrics`` are what
        else was found."""
        interval = timing.interval
        return self.record(
            case,
            "unstable" if timing.is_unstable else "ok",
            samples_seconds=timing.samples,
            calls_per_sample=timing.calls_per_sample,
            median_seconds=interval.median,
            low_seconds=interval.low,
            high_seconds=interval.high,
            facts={**self.facts, **(facts or {})},
            metrics={**(metrics or {})},
            **fields,
        )

    def cell(self, case: Case, **fields: Any) -> str:
        """Return the ``cell`` by which the case's record is found again."""
        return self.record(case, "skipped", **fields).cell

    def known(self, path: Path) -> list[Record]:
        """Read the records of a file that answer what this run asks for; none where there is no file."""
        kept = records.read_file(path) if path.exists() else []
        return [record for record in kept if is_evidence(record.machine, self.machine)]


@dataclasses.dataclass
class Tally:
    """The outcome of a run: its cells, those found done, those measured by status, those measured again because the
    machine was disturbed, those left for lack of time, how many were skipped for which reason, both medians of each A/A
    pair, and what failed: a sentence for each cell whose latest record says so; the keys of the cells in order, and
    the latest record of each."""

    cells: int
    resumed: int = 0
    by_status: Counter[str] = dataclasses.field(default_factory=Counter)
    repeated: int = 0
    left: int = 0
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)
    pairs: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    keys: list[str] = dataclasses.field(default_factory=list)
    found: list[Record] = dataclasses.field(default_factory=list)

    @property
    def noise_floor(self) -> float:
        """The 95 % quantile of |ln ratio| between two measurements of the same cell."""
        return stats.noise_floor(self.pairs)

    def __add__(self, other: Self) -> Self:
        names = [field.name for field in dataclasses.fields(self)]
        return dataclasses.replace(self, **{name: getattr(self, name) + getattr(other, name) for name in names})

    def as_json(self) -> dict[str, Any]:
        """Return the fields that commands print."""
        return {
            "cells": self.cells,
            "found_done": self.resumed,
            "measured_by_status": self.by_status,
            "measured_again": self.repeated,
            "left": self.left,
            "skipped_by_reason": self.reasons,
            "noise_floor": self.noise_floor,
            "aa_pairs": len(self.pairs),
        }

    def lines(self) -> list[str]:
        """Say the outcome, and for what most cells were skipped."""
        reasons = self.reasons.most_common(3)
        return [str(self), *(f"skipped {plural(count, 'cell')}: {reason}" for reason, count in reasons)]

    def __str__(self) -> str:
        statuses = ", ".join(f"{count} {status}" for status, count in sorted(self.by_status.items())) or "none"
        again = f"; {self.repeated:,} of them again, for the machine was disturbed" if self.repeated else ""
        return f"{plural(self.cells, 'cell')}: {self.resumed:,} cached, measured now: {statuses}{again}"

    @property
    def unfinished(self) -> list[str]:
        """Say in a line that cells are left; no line where none are."""
        done = f"{self.cells - self.left:,} of {plural(self.cells, 'cell')} measured."
        return [f"{done} NOT complete: run the same command again to finish."] * bool(self.left)


def run(
    groups: Sequence[Sequence[Cell]],
    path: Path,
    stamp: Stamp,
    measure: Callable[[list[Cell]], Iterable[Record]],
    options: Namespace,
    *,
    name: Callable[[Cell], str] | None = None,
    most_seconds: float = math.inf,
    unit: str = "",
    describe: Callable[[Cell], str | None] | None = None,
    sentinels: Sentinels | None = None,
    resumes: bool = True,
) -> Tally:
    """Measure the cells that are not in a results file yet, group by group, and append their records to it.

    ``measure`` yields the records of a group's cells, and others that are kept with them, such as A/A twins. ``name``
    returns the ``cell`` of a cell's record, by default ``stamp.cell``. A cell is done if the file has a time of it that
    answers what ``stamp`` asks for; one that was skipped or failed is tried again. No group but the first that is
    measured is begun after ``most_seconds``. Progress is shown in ``unit``, if there is one, and ``describe`` describes
    a cell, where it has something else than its key. With ``sentinels`` their records are kept too, and groups that
    were timed while the machine was disturbed are measured once more at the end; the latest record of a cell counts. No
    record goes to the file that refuses a cell as one there does. Unless it ``resumes``, a run measures every cell
    and looks at no record of another. With the option ``dry_run`` nothing is measured or written: the tally has the
    cells' keys. RecordError if the file cannot be read or written.
    """
    end, tally, key_of = time.monotonic() + most_seconds, Tally(sum(map(len, groups))), name or stamp.cell
    tally.keys = [key_of(cell) for group in groups for cell in group]
    if options.dry_run:
        done = {record.cell for record in stamp.known(path) if resumes and is_done(record)}
        tally.resumed = len(done.intersection(tally.keys))
        return tally
    looked: list[list[Cell]] = []

    def say(cell: Cell) -> str:
        return (describe(cell) if describe else None) or _describe(key_of(cell))

    with records.Writer(path) as writer, Progress(tally.cells, unit, bar=not options.json, shown=bool(unit)) as bar:
        known = stamp.known(path) if resumes else []
        done = {record.cell for record in known if is_done(record)}
        refusals = {(record.cell, record.reason) for record in known if not is_done(record)}

        def kept(group: list[Cell]) -> Iterator[Record]:
            visit = sentinels.visit(stamp.timed) if sentinels else ()
            for record in itertools.chain(visit, measure(group)):
                if is_done(record) or (record.cell, record.reason) not in refusals:
                    writer.append(record)
                known.append(record)
                yield record
            if sentinels:
                sentinels.look()
                looked.append(group)

        # Invariant: every cell of the groups before has a record in the file or is counted as left.
        for group in groups:
            todo = {key: cell for cell in group if (key := key_of(cell)) not in done}
            tally.resumed += len(group) - len(todo)
            bar.update(len(group) - len(todo))
            if tally.by_status and time.monotonic() > end:
                tally.left += len(todo)
                continue
            for record in kept(list(todo.values())) if todo else ():
                if record.cell in todo:
                    tally.by_status[record.status] += 1
                    tally.reasons.update([record.reason or ""] if record.status == "skipped" else ())
                    bar.update(1, functools.partial(say, todo[record.cell]))
        disturbed = [looked[place] for place in (sentinels.disturbed() if sentinels else ())]
        for group in disturbed[: math.ceil(MOST_REPEATS * len(groups))]:
            tally.repeated += len(group)
            collections.deque(kept(group), maxlen=0)
    tally.pairs = records.twins(known, stamp.primitive)
    asked = {*tally.keys}
    tally.found = latest(record for record in known if record.cell in asked)
    tally.failures = [f"{one.contestant} {one.op}, {one.reason}" for one in tally.found if one.status == "failed"]
    return tally


def latest(found: Iterable[Record]) -> list[Record]:
    """Return the last record of each cell."""
    return list({record.cell: record for record in records.in_order(found)}.values())


def _describe(key: str) -> str:
    """Describe the cell of a key in one line."""
    primitive, contestant, op, capacity, fanout, batch, threads, dtype, options, distribution = json.loads(key)
    shape = f"N={capacity} B={batch} K={fanout} threads={threads}"
    own = [f"{name}={value}" for name, value in {**options, "primitive": primitive}.items()]
    return " ".join(filter(None, [contestant, op, shape, dtype, distribution, *own]))


def file_of(options: Namespace, name: str) -> Path:
    """Return the path of this machine's file in the folder of results. RecordError unless it can be written now, where
    anything is to be measured."""
    path = Path(options.results) / str(platforms.fingerprint()["key"]) / name
    if not options.dry_run:
        records.check_writable(path)
    return path


def exit_code(tally: Tally, path: Path) -> int:
    """Return 0, 1 where cells failed, or 2 where none has a time; one sentence on standard error says which."""
    if tally.failures:
        count, first = plural(len(tally.failures), "cell"), tally.failures[0]
        print(f"error: {count} failed, such as {first}; see {path}", file=sys.stderr)
        return 1
    if tally.reasons.total() and tally.reasons.total() == tally.cells:
        print(f"error: nothing was measured: {tally.reasons.most_common(1)[0][0]}; see {path}", file=sys.stderr)
        return 2
    return 0


def show_cells(keys: Sequence[str], done: int, options: Namespace) -> int:
    """Print the cells of these keys, and how many there are of which so many are ``done``; return the exit code 0."""
    cells = [dict(zip(records.CELL, json.loads(key), strict=True)) for key in keys]
    for line in [json.dumps(cells)] if options.json else map(_describe, keys):
        print(line)
    print(f"{plural(len(keys), 'cell')}, {done:,} of them cached; nothing was measured", file=sys.stderr)
    return 0


def show(tally: Tally, path: Path, options: Namespace, found: Mapping[str, Any] = {}, lines: Sequence[str] = ()) -> int:
    """Print what a run's records say, as JSON or as lines, its outcome, and what a noisy run is worth; return its
    ``exit_code``. Without ``lines`` of its own a run shows the fastest of each operation. With the option ``dry_run``
    print the cells instead."""
    if options.dry_run:
        return show_cells(tally.keys, tally.resumed, options)
    code, rows = exit_code(tally, path), compare_fastest(tally.found)
    if options.json:
        print(json.dumps({"file": str(path), **tally.as_json(), "times": rows, **found}))
        return code
    print("\n".join([*(lines or write_fastest(rows)), *tally.lines()]))
    if tally.pairs:
        print(f"the same cell measured twice differs by up to {tally.noise_floor:.1%} ({len(tally.pairs)} A/A pairs)")
    if records.LOAD in _machine() or tally.noise_floor > records.NOISY:
        print("disturbed run: its records replace none of a quiet run")
    print("\n".join([f"records: {path}", *tally.unfinished]))
    return code
