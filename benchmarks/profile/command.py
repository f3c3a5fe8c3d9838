"""Time the primitives of a training system: environment, inference, gradient steps, tree, storage, weights.

Each alone, over batches and cores, and the ones that share cores in a loop beside each other on the same core. Every
process is kept on the cores its record names. Interrupt it as you like: the same command goes on where it stopped. The
records go to results/<machine>/profile-<workload>-<preset>.jsonl; `python -m reports` draws their curves.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse.records import Measurement, RecordError
from impls.training import TrainingError, Workload, load, path_of

from ..arguments import DEFAULT, add_common, parser_of
from ..clock import ALL_CPUS, Clock
from ..run import Stamp, file_of, report, run
from ..timing import LEAST_SAMPLES, Timing, interleave
from ..workers import Worker
from .cells import PARTS, PRESETS, Cell, Preset, groups

PACKAGES = ("torch", "gymnasium")
TRAINING, AGAIN = "training", "training_again"
MODULE = "benchmarks.profile.worker"
LEAD_SECONDS = 0.002  # from telling processes to begin until they do
TOO_LONG = "too long for the preset"
CALLS_OF_THE_SLOWEST = 2  # that fit a stretch in which several things run


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload; returns the exit code. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    workload, where = workload_of(options.workload)
    preset = PRESETS[options.preset]
    path = file_of(options.results, f"profile-{workload.name}-{options.preset}.jsonl")
    cells, stamp = groups(workload, preset, len(ALL_CPUS) or 1), Stamp.of_this_run(TRAINING)
    how: dict[str, Any] = {"most_seconds": preset.most_seconds, "unit": "cell", "bar": not options.json}
    with ExitStack() as stack:
        measure = functools.partial(_measure, Team(stack, where, preset), stamp, options.seed)
        tally = run(cells, path, stamp, measure, is_final=_is_final, **how)
    return report(tally, path, options.json)


def _is_final(record: Measurement) -> bool:
    """Not that of a cell that took too long: it is tried again, for that may have been the machine's doing."""
    return record.status != "skipped" or not (record.reason or "").endswith(TOO_LONG)


def workload_of(name: str) -> tuple[Workload, Path]:
    """A workload and its file. RecordError if there is none, and for a package that none can do without."""
    try:
        workload, where = load(name), path_of(name).resolve()
    except TrainingError as error:
        raise RecordError(str(error)) from None
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise RecordError(f"this needs the package {package}; install the extra with: pip install '.[train]'")
    return workload, where


@dataclasses.dataclass(frozen=True)
class Member:
    """A part prepared in a process, and the CPUs it is to run on."""

    worker: Worker
    number: int
    cpus: tuple[int, ...]


@dataclasses.dataclass
class Together:
    """A clock of parts that run for the same stretch of time: the first one's, or ``all`` doing one work together.

    ``other`` reads the other one of a pair: what it read in a stretch of this clock's is its next sample. ``trees`` are
    the seconds of each sample that the first one spent in its tree, if it has one.
    """

    members: Sequence[Member]
    stretch_seconds: float
    is_all: bool
    calls_per_sample: int = 0
    other: "Together | None" = None
    read: dict[str, Any] | None = None
    trees: list[float] = dataclasses.field(default_factory=list)

    def sample(self) -> float:
        """Seconds a call takes, by one more stretch."""
        if self.read:
            answer, self.read = self.read, None
            self.calls_per_sample = answer["calls"]
            return float(answer["seconds"])
        begin = time.perf_counter() + (LEAD_SECONDS if len(self.members) > 1 else 0)
        how = {"begin": begin, "stretch": self.stretch_seconds}
        for member in self.members:
            member.worker.send("sample", number=member.number, cpus=member.cpus, **how)
        answers = [member.worker.receive() for member in self.members]
        for answer in answers:
            if "failed" in answer:
                raise RecordError(f"{answer['failed']}; what is measured is kept, the same command goes on from there")
        self.calls_per_sample = sum(answer["calls"] for answer in answers) if self.is_all else answers[0]["calls"]
        self.trees.append(answers[0].get("tree", 0.0))
        if self.other:
            self.other.read = answers[1]
        if not self.is_all:
            return float(answers[0]["seconds"])
        return float(1 / sum(1 / answer["seconds"] for answer in answers))


def opened(stack: ExitStack, python: Path, needs: str, **world: Any) -> Worker:
    """A process of a Python that has opened a workload: its file, the ``number`` of the process, the bytes of storage.

    ``needs`` an "environment", or a "learner" alone. RecordError if the workload cannot run there.
    """
    worker = stack.enter_context(Worker(python, module=MODULE))
    answer = worker.ask("open", needs=needs, **world)
    if "error" in answer:
        raise RecordError(answer["error"])
    return worker


class Team:
    """The processes of one workload, started when they are needed."""

    def __init__(self, stack: ExitStack, workload: Path, preset: Preset) -> None:
        self._stack, self._workload, self.preset = stack, workload, preset
        self._workers: list[Worker] = []
        self._made: dict[tuple[int, str], dict[str, Any]] = {}
        self.worker(0)

    def worker(self, number: int) -> Worker:
        """The process of that number. RecordError if the workload cannot run there."""
        for new in range(len(self._workers), number + 1):
            world = {"workload": str(self._workload), "number": new, "storage_bytes": self.preset.storage_bytes}
            self._workers.append(opened(self._stack, Path(sys.executable), "environment", **world))
        return self._workers[number]

    def prepare(self, number: int, cell: Cell) -> dict[str, Any]:
        """A part in a process, once for all cells of a group that need it there: what it answers."""
        part = {name: getattr(cell, name) for name in ("contestant", "op", "batch", "threads", "capacity", "fanout")}
        part["options"] = {key: value for key, value in cell.options.items() if key not in ("beside", "cores")}
        if cell.processes > 1:
            part["threads"] = 1
        key = (number, json.dumps(part, sort_keys=True))
        if key not in self._made:
            self._made[key] = self.worker(number).ask("prepare", cell=part, stretch=self.preset.sample_seconds)
        return self._made[key]

    def forget(self) -> None:
        """Have every process let go of what it holds."""
        for worker in self._workers:
            worker.ask("forget")
        self._made.clear()

    def clock(self, cell: Cell) -> tuple[Together | dict[str, Any], str | None]:
        """A cell's clock, or why there is none: {"skipped": ..} or {"failed": ..}; and what to know of it."""
        where = _places(cell, ALL_CPUS or (0,))
        parts = [cell, cell.beside] if cell.beside else [cell] * cell.processes
        # A pair is in the same two processes, whichever of both is read.
        numbers = list(range(len(parts)))
        if cell.beside and cell.contestant > cell.beside.contestant:
            numbers.reverse()
            where.reverse()
        answers = [self.prepare(number, part) for number, part in zip(numbers, parts, strict=True)]
        for answer in answers:
            if "seconds" not in answer:
                return {key: answer[key] for key in ("skipped", "failed") if key in answer}, None
        slowest = max(answer["seconds"] for answer in answers)
        least = max(CALLS_OF_THE_SLOWEST if len(parts) > 1 else 1, *(answer["period"] for answer in answers))
        stretch = max(self.preset.sample_seconds, least * slowest)
        if LEAST_SAMPLES * stretch > self.preset.longest_cell_seconds:
            return {"skipped": f"one call takes {slowest:.2g} s, {TOO_LONG}"}, None
        members = [
            Member(self.worker(number), answer["number"], place)
            for number, answer, place in zip(numbers, answers, where, strict=True)
        ]
        return Together(members, stretch, cell.processes > 1), answers[0].get("note")


def _places(cell: Cell, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """The CPUs of each part of a cell, in turns where there are fewer than parts."""
    if cell.beside:
        return [(cpus[0],), (cpus[0] if cell.options["cores"] == "shared" else cpus[1],)]
    if cell.processes > 1:
        return [(cpus[number % len(cpus)],) for number in range(cell.processes)]
    return [tuple(cpus[: cell.threads])]


def _link(ready: Sequence[tuple[Cell, Together, str | None]]) -> None:
    """Let both cells of a pair read the same stretches."""
    pairs: dict[tuple[Any, ...], Together] = {}
    for cell, clock, _ in ready:
        if cell.beside:
            key = (frozenset((cell.contestant, cell.beside.contestant)), cell.options["cores"])
            clock.other = pairs.setdefault(key, clock)
            if clock.other is clock:
                clock.other = None
            else:
                clock.other.other = clock


def _measure(team: Team, stamp: Stamp, seed: int, cells: Sequence[Cell]) -> Iterator[Measurement]:
    """Records of one group: those that cannot be timed and why, the timed ones, the A/A twin of the first."""
    ready: list[tuple[Cell, Together, str | None]] = []
    for cell in cells:
        clock, note = team.clock(cell)
        if isinstance(clock, Together):
            ready.append((cell, clock, note))
            continue
        for status, reason in clock.items():
            yield stamp.record(cell, status, reason=reason)
    _link(ready)
    ready += [(cell, dataclasses.replace(clock, other=None), note) for cell, clock, note in ready[:1]]
    clocks: list[Clock] = [clock for _, clock, _ in ready]
    timings = interleave(clocks, 0.0, seed) if clocks else []
    team.forget()
    for position, ((cell, clock, note), timing) in enumerate(zip(ready, timings, strict=True)):
        own = clock.members if clock.is_all else clock.members[:1]
        where = {"affinity": sorted({cpu for member in own for cpu in member.cpus}) if ALL_CPUS else []}
        again = {"primitive": AGAIN} if position == len(ready) - 1 else {}
        yield stamp.timed(cell, timing, where, reason=_reason(cell, timing, note), **again)


def _reason(cell: Cell, timing: Timing, note: str | None) -> str | None:
    """What to know of a cell's time, if anything."""
    found = [note] if note else []
    if ALL_CPUS and cell.threads > len(ALL_CPUS):
        found.append(f"oversubscribed: {cell.threads} on {len(ALL_CPUS)} cores")
    if timing.is_unstable:
        found.append(f"interval of {timing.interval.relative_width:.0%} of the median")
    return "; ".join(found) or None


def _parser() -> argparse.ArgumentParser:
    told = "what is timed:\n" + "".join(f"  {name:23}{text}\n" for name, text in PARTS.items())
    parser = parser_of("profile", __doc__, epilog=told)
    parser.add_argument("--workload", required=True, metavar="NAME|FILE", help="see: python -m impls.training list")
    parser.add_argument("--preset", choices=PRESETS, default="quick", help=DEFAULT)
    return add_common(parser, seed_of="the order of samples")
