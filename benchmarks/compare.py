"""Is NEW slower than BASE? Two commits measured in alternation, or two files of records.

Each commit is installed in an environment of its own. A round starts fresh processes of BASE, of NEW and of BASE again,
which take turns sample by sample; rounds follow until every cell is decided or the budget is spent. The noise floor is
how much BASE differs from itself. Intervals hold at 95 % confidence for all cells together.

  regression, faster    the interval lies wholly beyond the noise floor and --threshold
  no regression         it ends before --detect
  inconclusive          neither; a larger --budget lowers the minimum detectable effect

exit code 0: no regression, 1: a regression, 2: a side is broken or lacks a cell of the other, 3: inconclusive.
"""

import argparse
import dataclasses
import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dse import records, stats
from dse.platforms import commit, fingerprint
from dse.platforms.checkout import GitError, files_at, git, is_shallow
from dse.records import Record, RecordError
from impls.files import lock
from impls.terminal import Progress, plural

from .arguments import AXES, add_axes, add_common, add_numbers, parser_of
from .cases import OPS, Case
from .presets import Block
from .run import SHAPE, Stamp, show_cells
from .workers import ROOT, Untimed, Worker, WorkerClock, WorkerError, install_into

FOLDER = ".compare"
CONSTRAINTS = "constraints.txt"


class BrokenCommitError(Exception):
    """A commit cannot be built, installed or run; the message says which, and why."""


@dataclass(frozen=True)
class Installed:
    """A commit and the interpreter of the environment that has it."""

    name: str
    sha: str
    python: Path


def resolve(name: str, root: Path = ROOT) -> str:
    """Return the hash of a commit. ValueError for a name git does not know, and where it knows none."""
    try:
        sha = git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        git(root, "rev-parse", "--verify", "--quiet", f"{sha}:./")  # has this folder, and is no commit around it
        return sha
    except GitError as error:
        if why := str(error):
            raise ValueError(f"{name!r} is no file of records, and git cannot look for a commit: {why}") from None
        why = "; this clone is shallow: git fetch --unshallow brings older ones" if is_shallow(root) else ""
        raise ValueError(f"{name!r} is neither a commit of this repository nor a file of records{why}") from None


def install(name: str, root: Path = ROOT) -> Installed:
    """Build a commit of the repository and install it with its dependencies, unless that was done before.

    ValueError for a name git does not know, BrokenCommitError for a commit that does not install. Every interpreter has
    an environment of its own.
    """
    sha = resolve(name, root)
    made_by = zlib.crc32(f"{sys.version} {sys.base_prefix} {sysconfig.get_platform()}".encode())
    folder = root / FOLDER / f"{sha[:12]}-{made_by:08x}"
    try:
        if not folder.exists():
            _make(name, sha, folder, root)
    except (OSError, GitError, subprocess.CalledProcessError) as error:
        raise BrokenCommitError(f"{name} cannot be installed: {error}") from None
    return Installed(name, sha, folder / "bin" / "python")


def _make(name: str, sha: str, folder: Path, root: Path) -> None:
    """Make an environment next to its folder, which exists when it is whole, unless another command does."""
    part = folder.with_suffix(".part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file, tempfile.TemporaryDirectory() as source:
        lock(file, f"{name} is being installed by another command; this one waits for its end")
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            _unpack(root, sha, Path(source))
            venv.create(part, with_pip=True)
            _install(name, part / "bin" / "python", Path(source))
            part.rename(folder)


def suite(root: Path = ROOT) -> Path:
    """Return a folder where workers find this checkout's ``benchmarks`` and none of its other packages."""
    folder, ours = root / FOLDER / "suite", Path(__file__).resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    link, made = folder / "benchmarks", folder.with_suffix(f".{os.getpid()}")
    if not (link.exists() and link.samefile(ours)):  # it was made in the checkout that this is a copy of
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        made.unlink(missing_ok=True)
        made.symlink_to(os.path.relpath(ours, folder.resolve()), target_is_directory=True)
        made.replace(link)
    return folder


def _unpack(root: Path, sha: str, folder: Path) -> None:
    with files_at(root, sha) as files:
        files.extractall(folder)


def _install(name: str, python: Path, source: Path) -> None:
    """Install a commit, and start a worker there. BrokenCommitError."""
    pinned = {"PIP_CONSTRAINT": str(source / CONSTRAINTS)} if (source / CONSTRAINTS).exists() else {}
    done = install_into(python, f"{source}[numba]", **pinned)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        print("\n".join(lines[-20:]), file=sys.stderr)
        raise BrokenCommitError(f"{name} does not install; pip said what is above")
    try:
        with Worker(python, [suite()]) as worker:
            worker.ask("forget")
    except WorkerError as error:
        raise BrokenCommitError(f"{name} installs, but cannot be timed: {error}") from None


OK, REGRESSION, BROKEN, INCONCLUSIVE = range(4)
OUTCOMES = ("ok", "regression", "broken", "inconclusive")


@dataclasses.dataclass
class Cell:
    """A case, and its seconds in each round: in the process of BASE, of NEW and of BASE again."""

    case: Case
    base: list[float] = dataclasses.field(default_factory=list)
    new: list[float] = dataclasses.field(default_factory=list)
    again: list[float] = dataclasses.field(default_factory=list)
    untimed: str | None = None
    machine: str = ""  # that it was timed on, where there are several
    difference: stats.Difference | None = None

    def __str__(self) -> str:
        return label(self.case) + f", machine {self.machine}" * bool(self.machine)

    @property
    def changes(self) -> list[float]:
        """``ln(new / base)`` of each round; their mean is the change that is judged and shown.

        What a machine does in a round is in both times and cancels, and the geometric means of both times over the
        rounds have that very ratio, which their medians need not have.
        """
        return [math.log(new / base) for base, new in zip(self.base, self.new, strict=True)]

    @property
    def twins(self) -> list[float]:
        """``ln(base again / base)`` of each round."""
        return [math.log(again / base) for base, again in zip(self.base, self.again, strict=True)]


@dataclasses.dataclass
class Comparison:
    """All cells, the noise floor, and what the verdicts are validated against; ``broken`` says what went wrong."""

    base: str
    new: str
    cells: list[Cell]
    threshold: float
    detect: float
    floor: float = 0.0
    rounds: int = 0
    broken: str | None = None
    machine: str = ""  # that all of it was timed on

    def judge(self, cells: Sequence[Cell], estimates: Sequence[float], errors: Sequence[float]) -> None:
        """Give cells their verdicts, by estimates of ln(new / base) and their standard errors."""
        floor = max(self.floor, math.log1p(self.threshold))
        differences = stats.differences(estimates, errors, floor, math.log1p(self.detect))
        for cell, difference in zip(cells, differences, strict=True):
            cell.difference = difference

    @property
    def code(self) -> int:
        """The exit code: OK, REGRESSION, BROKEN or INCONCLUSIVE."""
        verdicts = [cell.difference.verdict for cell in self.cells if cell.difference]
        if self.broken:
            return BROKEN
        if "regression" in verdicts:
            return REGRESSION
        return INCONCLUSIVE if "inconclusive" in verdicts or not verdicts else OK


def label(case: Case) -> str:
    """Describe a case in one line."""
    options = "".join(f", {key}={value}" for key, value in sorted(case.options.items()))
    more = f", {case.threads} threads" if case.threads > 1 else ""
    kind = "" if case.workload == "uniform" else f", {case.workload}"
    shape = f"N={case.capacity:,} K={case.fanout} B={case.batch:,}"
    return f"{case.contestant} {case.op}, {shape}, {case.dtype}{more}{kind}{options}"


def as_markdown(comparison: Comparison) -> str:
    """Return a table of the cells for a pull request, and the summary below it."""
    rows = [("cell", comparison.base, comparison.new, "change", "interval", "verdict")]
    for cell in comparison.cells:
        if cell.untimed or not cell.difference:
            rows.append((str(cell), "", "", "", "", f"not timed, {cell.untimed or 'the run ended before'}"))
            continue
        base, new = (f"{1e6 * stats.geometric_mean(values):,.2f} us" for values in (cell.base, cell.new))
        change, low, high = (math.expm1(getattr(cell.difference, name)) for name in ("log_ratio", "low", "high"))
        interval = f"{low:+.0%} to {high:+.0%}" if math.isfinite(high) else "unknown"
        rows.append((str(cell), base, new, f"{change:+.1%}", interval, _verdict(cell.difference, comparison)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows] if comparison.cells else []
    timed_on = [f"timed on machine {comparison.machine}:"] if comparison.machine else []
    return "\n".join([*lines, "", *timed_on, _summary(comparison)])


def _verdict(difference: stats.Difference, comparison: Comparison) -> str:
    """Write a verdict with the size that it is about."""
    if difference.verdict == "no regression":
        return f"no regression of {comparison.detect:.0%} or more"
    if difference.verdict == "inconclusive":
        # What would be called a regression in 95 % of such comparisons: its interval lies beyond the noise floor.
        least = math.expm1(max(comparison.floor, math.log1p(comparison.threshold)) + difference.high - difference.low)
        return f"inconclusive: minimum detectable effect {least:.0%}" if math.isfinite(least) else "inconclusive"
    return f"**{difference.verdict}**" if difference.verdict == "regression" else difference.verdict


def _summary(comparison: Comparison) -> str:
    counts = dict.fromkeys(("regression", "faster", "no regression", "inconclusive"), 0)
    for cell in comparison.cells:
        if cell.difference:
            counts[cell.difference.verdict] += 1
    counts["not timed"] = len(comparison.cells) - sum(counts.values())
    verdicts = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing was timed"
    if comparison.code == BROKEN:
        return f"broken: {comparison.broken}" + f" ({verdicts})" * bool(comparison.cells)
    how = "records as they are"
    if comparison.rounds:
        how = f"times are geometric means over {plural(comparison.rounds, 'round')}, the change is their ratio"
    floor = f"A/A noise floor {math.expm1(comparison.floor):.1%}"
    remedy = {
        OK: f"no regression of {comparison.detect:.0%} or more in any cell timed",
        REGRESSION: f"a regression is slower by more than the noise floor and {comparison.threshold:.0%}",
        INCONCLUSIVE: f"a regression of {comparison.detect:.0%} cannot be excluded; try a larger --budget",
    }[comparison.code]
    return f"{OUTCOMES[comparison.code]}: {verdicts} ({how}; {floor}, 95 % confidence for all cells together); {remedy}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything, with ln ratios and the seconds of each round; None for what is not finite."""
    cells = []
    for cell in comparison.cells:
        fields: dict[str, Any] = {"case": dataclasses.asdict(cell.case), "source": "measured", "reason": cell.untimed}
        fields |= {"machine": cell.machine} if cell.machine else {}
        if cell.difference:
            names = ("log_ratio", "low", "high")
            shown = {name: value if math.isfinite(value := getattr(cell.difference, name)) else None for name in names}
            fields |= {"verdict": cell.difference.verdict, **shown}
        cells.append(fields | {"base_seconds": cell.base, "new_seconds": cell.new, "base_again_seconds": cell.again})
    same = {
        name: getattr(comparison, name)
        for name in ("base", "new", "machine", "broken", "rounds", "threshold", "detect")
    }
    outcome = {"outcome": OUTCOMES[comparison.code], "exit_code": comparison.code, "noise_floor": comparison.floor}
    return {**same, **outcome, "cells": cells}


BLOCKS = (
    Block(("numba",), capacities=(10_000, 1_000_000), batches=(32, 1_024)),
    Block(("numpy", "python"), capacities=(100_000,), batches=(256,)),
)
MEASURED = ("contestants", "ops", "capacities", "batches", "fanouts")  # axes that may be chosen
SAMPLES = 5  # that one process takes of a cell


def main(arguments: list[str] | None = None) -> int:
    """Compare, print the comparison, and return its exit code."""
    options = _parser().parse_args(arguments)
    is_read = Path(options.base).is_file() and Path(options.new).is_file()
    if options.dry_run:
        stamp = Stamp(None, None, "", machine={})
        return show_cells([stamp.cell(case) for case in (() if is_read else _cases(options))], 0, options)
    try:
        if is_read:
            comparison = compare_files(Path(options.base), Path(options.new), options)
        else:
            comparison = compare_commits(options.base, options.new, options)
    except BrokenCommitError as error:
        comparison = Comparison(options.base, options.new, [], options.threshold, options.detect, broken=str(error))
    print(json.dumps(as_json(comparison)) if options.json else as_markdown(comparison))
    return comparison.code


def compare_commits(base: str, new: str, options: argparse.Namespace) -> Comparison:
    """Measure two commits. ValueError for a name that git does not know, BrokenCommitError."""
    for name in (base, new):
        resolve(name)  # before anything is installed for the other
    if commit(ROOT)[1]:
        print("note: files here differ from their commit: what is not committed is not compared", file=sys.stderr)
    sides = install(base), install(new)
    cells = [Cell(case) for case in _cases(options)]
    names = [f"{side.name} ({side.sha[:8]})" for side in sides]
    comparison = Comparison(*names, cells, options.threshold, options.detect, machine=_machine(fingerprint()))
    try:
        gone = _warm(sides, cells, options.seed)
        end = time.perf_counter() + options.budget
        progress = Progress(None, "round", bar=False)
        # Invariant: a cell that is timed has a value of BASE, NEW and BASE again for each round it was undecided in.
        while (undecided := _undecided(comparison)) and (not comparison.rounds or time.perf_counter() < end):
            _round(sides, undecided, options.seed + comparison.rounds)
            comparison.rounds += 1
            progress.update(1, functools.partial(plural, len(undecided), "undecided cell"))
    except WorkerError as error:
        raise BrokenCommitError(str(error)) from None
    if all(cell.untimed for cell in cells):
        comparison.broken = f"nothing can be timed; {cells[0].untimed}"
    elif gone:
        comparison.broken = (
            f"{len(gone)} cells that {base} can do, {new} cannot, {label(gone[0].case)}: {gone[0].untimed}"
        )
    return comparison


def _warm(sides: Sequence[Installed], cells: Sequence[Cell], seed: int) -> list[Cell]:
    """Compile, find the cells that cannot be timed, and why; return those that only NEW cannot time."""
    gone = []
    for side in sides:
        try:
            with _worker(side) as worker:
                for cell in cells:
                    clock = worker.prepare(case=cell.case, seed=seed)
                    if isinstance(clock, Untimed) and not cell.untimed:
                        cell.untimed = f"{side.name}: {clock.reason}"
                        gone += [cell] if side is sides[1] else []
                    worker.ask("forget")
        except WorkerError as error:
            raise BrokenCommitError(f"{side.name} installs, but cannot be timed: {error}") from None
    return gone


def _round(sides: Sequence[Installed], cells: Sequence[Cell], seed: int) -> None:
    """Take one more value of each cell for BASE, NEW and BASE again, in processes of their own."""
    rng = np.random.default_rng(seed)
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(side)) for side in (*sides, sides[0])]
        for which in rng.permutation(len(cells)):
            cell = cells[which]
            clocks = [worker.prepare(case=cell.case, seed=seed) for worker in workers]
            timed = [clock for clock in clocks if isinstance(clock, WorkerClock)]
            if len(timed) < len(workers):
                raise BrokenCommitError(f"{label(cell.case)} could be timed once, and then not again")
            samples: list[list[float]] = [[] for _ in timed]
            for _ in range(SAMPLES):
                for turn in rng.permutation(len(timed)):
                    samples[turn].append(timed[turn].sample())
            for values, sample in zip((cell.base, cell.new, cell.again), samples, strict=True):
                values.append(statistics.median(sample))
            for worker in workers:
                worker.ask("forget")


def _worker(side: Installed) -> Worker:
    return Worker(side.python, [suite()])


def _undecided(comparison: Comparison) -> list[Cell]:
    """Bring the verdicts up to date; return the cells that need another round."""
    timed = [cell for cell in comparison.cells if not cell.untimed]
    if not comparison.rounds:
        return timed
    comparison.floor = stats.noise_floor((math.exp(statistics.fmean(cell.twins)), 1.0) for cell in timed)
    estimates = [statistics.fmean(cell.changes) for cell in timed]
    comparison.judge(timed, estimates, stats.standard_errors([[cell.changes, cell.twins] for cell in timed]))
    return [cell for cell in timed if cell.difference and cell.difference.verdict == "inconclusive"]


def compare_files(base: Path, new: Path, options: argparse.Namespace) -> Comparison:
    """Compare the cells that two files of records share, each machine's with its own; the noise floor is the larger.

    What one file alone has timed is no part of any verdict, and breaks the comparison. RecordError for files of
    different machines, or without a common cell.
    """
    sides = [_latest(path) for path in (base, new)]
    machines = [{record.machine_key for record in side.values()} for side in sides]
    if machines[0] != machines[1]:
        keys = " and ".join(", ".join(sorted(keys)) or "no machine" for keys in machines)
        raise RecordError(f"{base} and {new} are of different machines ({keys}): nothing can be said of the code")
    timed = [{which for which, record in side.items() if record.median_seconds is not None} for side in sides]
    pairs = [(record, sides[1][which]) for which, record in sides[0].items() if which in timed[0] & timed[1]]
    if not pairs:
        raise RecordError(f"{base} and {new} have no measured cell in common")
    where = (lambda record: record.machine_key) if len(machines[0]) > 1 else lambda record: ""
    shared = [Cell(_case(one), [one.seconds], [other.seconds], machine=where(one)) for one, other in pairs]
    lost = [
        Cell(_case(record), untimed=f"{path.name}: {_why_not(other.get(which))}", machine=where(record))
        for own, other, path in ((sides[0], sides[1], new), (sides[1], sides[0], base))
        for which, record in own.items()
        if which in timed[0] ^ timed[1] and record.median_seconds is not None
    ]
    machine = ", ".join(dict.fromkeys(_machine(earlier.machine) for earlier, _ in pairs))
    names = base.name, new.name
    comparison = Comparison(*names, shared + lost, options.threshold, options.detect, machine=machine)
    comparison.floor = max(stats.noise_floor(records.twins(records.read_file(path))) for path in (base, new))
    errors = [math.hypot(_error(earlier), _error(later)) for earlier, later in pairs]
    comparison.judge(shared, [cell.changes[0] for cell in shared], errors)
    if lost:
        comparison.broken = f"{plural(len(lost), 'cell')} timed in one file only, such as {lost[0]}: {lost[0].untimed}"
    return comparison


def _machine(facts: Mapping[str, Any]) -> str:
    """Name a machine by its key, its processor and its cores."""
    return f"{facts.get('key')} ({facts.get('cpu', 'unknown processor')}, {plural(facts.get('cores', 1), 'core')})"


def _latest(path: Path) -> dict[tuple[str, str], Record]:
    """Return the latest record of each cell of a tree on each machine, timed or not."""
    found = [one for one in records.read_file(path) if (one.source, one.primitive) == ("measured", "sum_tree")]
    return {records.identity_of(one): one for one in found}


def _why_not(record: Record | None) -> str:
    return f"{record.status}, {record.reason}" if record else "no record of it"


def _error(record: Record) -> float:
    """Return the standard error of ln(median), by the record's interval."""
    return stats.log_sigma(record.low_seconds or 0.0, record.high_seconds or 0.0, 0.0)


def _case(record: Record) -> Case:
    workload, _, duplicates = record.distribution.partition("+dup")
    shape = {name: getattr(record, name) for name in (*SHAPE, "options")}
    return Case(**shape, distribution=workload, duplicates=float(duplicates or 0))


def _cases(options: argparse.Namespace) -> list[Case]:
    """Return the cells to measure: the usual ones, or those of the chosen axes."""
    chosen = {name: value for name in MEASURED if (value := getattr(options, name))}
    blocks = BLOCKS[:1] if "contestants" in chosen else BLOCKS
    cases = {repr(case): case for block in blocks for case in dataclasses.replace(block, **chosen).cases()}
    return list(cases.values())


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("compare", __doc__, "HEAD~1 HEAD")
    parser.add_argument("base", metavar="BASE", help="a commit (HEAD~1, v1.2, a hash), or a file of records")
    parser.add_argument("new", metavar="NEW", help="another commit, or file of records")
    of_trees = f"{AXES['contestants'][1]} (default: numba, numpy, python)"
    add_axes(parser, *MEASURED, contestants=of_trees, ops=f"any of {', '.join(OPS)} (default: draw,update)")
    add_numbers(
        parser,
        budget=(180.0, "seconds of measuring"),
        threshold=(0.05, "smaller differences do not matter"),
        detect=(0.20, "slow-down that must not be missed"),
    )
    return add_common(parser, results=False, seed_of="inputs and order", json="print JSON instead of Markdown")
