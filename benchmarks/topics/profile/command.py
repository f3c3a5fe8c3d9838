"""How long do a training workload's primitives take: environment, inference, gradient steps, tree, storage, weights?

Each is timed alone, over batches and cores, and those that share cores in a loop concurrently on the same core.
Every process is kept on the cores that its record names. Interrupt it as you like: the same command resumes where it
stopped. It begins no cell after the preset's time; where cells are left its last line says so, and answers that rest on
the profile do (the exit code is 0: what was measured is kept and counts). Records go to
results/<machine>/profile-<workload>-<preset>.jsonl; `python -m reports` draws their curves.
"""

import argparse
import dataclasses
import functools
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse.platforms.evidence import CORES
from dse.platforms.reading import here
from dse.records import Record, RecordError, in_order
from impls.files import refusing
from impls.terminal import print_to_stderr
from impls.training import TrainingError, Workload, load_timed
from impls.training.environments import Environment, warn_of_code
from impls.training.options import with_values
from impls.training.settings import stated

from ...arguments import DEFAULT, add_common, add_list, add_workload, among, at_least, list_of, listed, parser_of
from ...clock import ALL_CPUS, Clock
from ...run import Stamp, file_of, run, show
from ...sentinels import Sentinels
from ...timing import LEAST_SAMPLES, Timing, interleave
from ...workers import Worker
from . import beside
from .cells import PARTS, PRESETS, REFERENCE, Cell, Preset, facts_of, groups, implementations

PACKAGES = ("torch", "gymnasium")
TRAINING, AGAIN = "training", "training_again"
MODULE = "benchmarks.topics.profile.worker"
LEAD_SECONDS = 0.002  # from asking processes to begin until they do
TOO_LONG, AT_LEAST = "too long for the preset", "at least"
CALLS_OF_THE_SLOWEST = 2  # that fit a stretch in which several parts run


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload; return the exit code 0. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    workload = with_hidden(workload_of(options.workload), options.hidden)
    preset = PRESETS[options.preset]
    path = file_of(options, f"profile-{workload.name}-{options.preset}.jsonl")
    if options.arrangements:
        if options.only:
            raise ValueError("--arrangements measures none of the parts that --only names; leave one of the two out")
        return _arrangements(options, workload, preset)
    cells = _cells(workload, preset)
    stamp = Stamp.of_this_run(__name__, TRAINING, **facts_of(workload, options.preset, cells))
    if options.only:
        cells = [[cell for cell in group if f"{cell.contestant} {cell.op}" in options.only] for group in cells]
    how: dict[str, Any] = {"most_seconds": preset.most_seconds, "unit": "cell", "sentinels": Sentinels()}
    with ExitStack() as stack:
        team = Team(stack, workload, preset, is_idle=options.dry_run)
        measure = functools.partial(_measure, team, stamp, options.seed)
        how["name"] = lambda cell: _stamp_of(stamp, cell).cell(cell)
        tally = run([group for group in cells if group], path, stamp, measure, options, **how)
    if not options.only and not options.dry_run:
        probe_once(options.results)
    rates = loop_rates(stamp.known(path))
    said = [f"serial loop of {workload.name}, gradient steps/s: {rates}"] if rates else []
    return show(tally, path, options, lines=said)


def probe_once(results: Path) -> None:
    """Describe this machine, where nobody has: answers for `--platform this` need it and its records."""
    from dse.platforms.probe import write_probe  # noqa: PLC0415  # with its kernels

    if not (path := here(results)).is_file():
        with refusing(path, RecordError, "choose another folder"):
            write_probe(path)


def _arrangements(options: argparse.Namespace, workload: Workload, preset: Preset) -> int:
    """Measure the parts of parallel runs concurrently; return the exit code."""
    path = file_of(options, f"beside-{workload.name}-{options.preset}.jsonl")
    cells = beside.groups(workload, preset, CORES, implementations(workload))
    stamp = Stamp.of_this_run(__name__, beside.PRIMITIVE, **facts_of(workload))
    own = stamps_beside(stamp, workload, options.preset, _cells(workload, preset))
    with ExitStack() as stack:
        measure = functools.partial(_run_beside, Team(stack, workload, preset, is_idle=options.dry_run), own)
        tally = run(cells, path, stamp, measure, options, unit="cell", sentinels=Sentinels())
    return show(tally, path, options)


def _cells(workload: Workload, preset: Preset) -> list[list[Cell]]:
    """Return the cells of a profile, a group each: of the serial loop, of a run timed whole, of their parts."""
    serial, *parts = groups(workload, preset, CORES)
    return [serial, *beside.whole(workload, preset, CORES, implementations(workload)), *parts]


def stamps_beside(stamp: Stamp, workload: Workload, preset: str, profile: list[list[Cell]]) -> Callable[[Cell], Stamp]:
    """Return what stamps the cells of parallel runs: a cell that the profile has too stays one of the profile's."""
    shared = [cell for group in profile for cell in group]
    marked = dataclasses.replace(stamp, machine=stamp.machine | facts_of(workload, preset, profile))
    return lambda cell: marked if cell in shared else stamp


def loop_rates(found: Iterable[Record]) -> str:
    """Say how fast the serial loop is by each implementation of its learner and policy, the reference first."""
    loops = (one for one in found if one.contestant == "loop" and one.median_seconds)
    newest = {one.options["learner"]: one for one in in_order(loops)}
    first, *others = sorted(newest, key=lambda name: (name != REFERENCE, name)) or [""]
    if not others:
        return ""
    rates = {name: 1 / newest[name].seconds for name in newest}
    faster = (f"{rates[name]:,.0f} by {name}, {rates[name] / rates[first]:.1f}x" for name in others)
    return "; ".join((f"{rates[first]:,.0f} by {first}", *faster))


def workload_of(name: str) -> Workload:
    """Return a workload. RecordError if there is none, or if a package is missing that all need."""
    try:
        workload = load_timed(name)
    except TrainingError as error:
        raise RecordError(str(error)) from None
    warn_of_code(workload)
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise RecordError(f"this needs the package {package}; install the extra with: pip install '.[train]'")
    return workload


def try_environments(workloads: Iterable[Workload]) -> None:
    """Make the environment of each workload, so that what it lacks is said before anything is recorded."""
    for workload in workloads:
        with print_to_stderr():
            Environment(workload).close()


def with_hidden(workload: Workload, hidden: tuple[int, ...] | None) -> Workload:
    """Return the workload; with other hidden layers if some are given, and a name that has them: hopper_td3_4x1024.

    RecordError for layers that no network may have.
    """
    if not hidden:
        return workload
    units = f"{len(hidden)}x{hidden[0]}" if len(set(hidden)) == 1 else "-".join(map(str, hidden))
    named = dataclasses.replace(workload, name=f"{workload.name}_{units}")
    try:
        return with_values(named, {("network", "hidden"): hidden})
    except TrainingError as error:
        raise RecordError(str(error)) from None


@dataclasses.dataclass(frozen=True)
class Member:
    """A part prepared in a process, and the CPUs on which it runs."""

    worker: Worker
    number: int
    cpus: tuple[int, ...]


@dataclasses.dataclass
class Together:
    """A clock of parts that run for the same stretch of time: of the first, or of all where they do one work together.

    ``other`` is the clock of a pair's other part: what that part read in this clock's stretch is its next sample.
    ``trees`` are the seconds of each sample that the first part spent in its tree, if it has one.
    """

    members: Sequence[Member]
    stretch_seconds: float
    is_all: bool
    calls_per_sample: int = 0
    other: "Together | None" = None
    read: dict[str, Any] | None = None
    trees: list[float] = dataclasses.field(default_factory=list)

    def sample(self) -> float:
        """Take one more sample, a stretch of time; return the seconds of a call."""
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
                raise RecordError(f"{answer['failed']}; what is measured is kept, the same command continues")
        self.calls_per_sample = sum(answer["calls"] for answer in answers) if self.is_all else answers[0]["calls"]
        self.trees.append(answers[0].get("tree", 0.0))
        if self.other:
            self.other.read = answers[1]
        if not self.is_all:
            return float(answers[0]["seconds"])
        return float(1 / sum(1 / answer["seconds"] for answer in answers))


def opened(stack: ExitStack, python: Path, needs: str, **world: Any) -> Worker:
    """Start a process of a Python and open a workload there: as stated, the process's ``number``, bytes of storage.

    It ``needs`` an "environment", or a "learner" alone. RecordError if the workload cannot run there.
    """
    worker = stack.enter_context(Worker(python, module=MODULE))
    answer = worker.ask("open", needs=needs, **world)
    if "error" in answer:
        raise RecordError(answer["error"])
    return worker


class Team:
    """The processes of one workload, started when they are needed: the first at once, unless the team ``is_idle``."""

    def __init__(self, stack: ExitStack, workload: Workload, preset: Preset, is_idle: bool = False) -> None:
        self._stack, self._workload, self.preset = stack, workload, preset
        self._workers: list[Worker] = []
        self._made: dict[tuple[int, str], dict[str, Any]] = {}
        if not is_idle:
            self.worker(0)

    def worker(self, index: int) -> Worker:
        """Return the process of this index. RecordError if the workload cannot run there."""
        # Invariant: processes 0 to ``new`` - 1 are there and have opened the workload.
        for new in range(len(self._workers), index + 1):
            world = {"workload": stated(self._workload), "number": new, "storage_bytes": self.preset.storage_bytes}
            self._workers.append(opened(self._stack, Path(sys.executable), "environment", **world))
        return self._workers[index]

    def prepare(self, index: int, cell: Cell) -> dict[str, Any]:
        """Prepare a part in a process, once for all cells of a group that need it there; return the answer."""
        part = {name: getattr(cell, name) for name in ("contestant", "op", "batch", "threads", "capacity", "fanout")}
        part["options"] = {key: value for key, value in cell.options.items() if key not in ("beside", "cores")}
        if cell.processes > 1:
            part["threads"] = 1
        key = (index, json.dumps(part, sort_keys=True))
        if key not in self._made:
            self._made[key] = self.worker(index).ask("prepare", cell=part, stretch=self.preset.sample_seconds)
        return self._made[key]

    def forget(self) -> None:
        """Let every process drop its prepared parts."""
        for worker in self._workers:
            worker.ask("forget")
        self._made.clear()

    def clock(self, cell: Cell) -> tuple[Together | dict[str, Any], str | None]:
        """Return a cell's clock, or why there is none ({"skipped": ..} or {"failed": ..}), and a remark on its time."""
        where = _cpus_of(cell, ALL_CPUS or (0,))
        parts = [cell, cell.beside] if cell.beside else [cell] * cell.processes
        # A pair stays in the same two processes, whichever of its parts is read.
        numbers = list(range(len(parts)))
        if cell.beside and cell.contestant > cell.beside.contestant:
            numbers.reverse()
            where.reverse()
        answers = [self.prepare(index, part) for index, part in zip(numbers, parts, strict=True)]
        for answer in answers:
            if "seconds" not in answer:
                return {key: answer[key] for key in ("skipped", "failed") if key in answer}, None
        slowest = max(answer["seconds"] for answer in answers)
        least = max(CALLS_OF_THE_SLOWEST if len(parts) > 1 else 1, *(answer["period"] for answer in answers))
        stretch = max(self.preset.sample_seconds, least * slowest)
        if LEAST_SAMPLES * stretch > self.preset.longest_cell_seconds:
            return {"skipped": f"one call takes {slowest:.2g} s, {TOO_LONG}", AT_LEAST: slowest}, None
        members = [
            Member(self.worker(index), answer["number"], cpus)
            for index, answer, cpus in zip(numbers, answers, where, strict=True)
        ]
        return Together(members, stretch, cell.processes > 1), answers[0].get("note")


def _cpus_of(cell: Cell, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the CPUs of each part of a cell, reused where there are fewer CPUs than parts."""
    if cell.beside:
        return [(cpus[0],), (cpus[0] if cell.options["cores"] == "shared" else cpus[1],)]
    if cell.processes > 1:
        return [(cpus[index % len(cpus)],) for index in range(cell.processes)]
    return [tuple(cpus[: cell.threads])]


def _link(ready: Sequence[tuple[Cell, Together, str | None]]) -> None:
    """Let both cells of a pair read the same stretches."""
    pairs: dict[tuple[Any, ...], Together] = {}
    # Invariant: a pair's first clock waits in ``pairs``, linked to nothing until the second comes.
    for cell, clock, _ in ready:
        if cell.beside:
            key = (frozenset((cell.contestant, cell.beside.contestant)), cell.options["cores"])
            clock.other = pairs.setdefault(key, clock)
            if clock.other is clock:
                clock.other = None
            else:
                clock.other.other = clock


def _measure(team: Team, stamp: Stamp, seed: int, cells: Sequence[Cell]) -> Iterator[Record]:
    """Yield the records of one group: those that cannot be timed and why, the timed ones, the A/A twin of the first."""
    if cells[0].contestant in beside.ARRANGEMENTS:
        yield from _run_beside(team, functools.partial(_stamp_of, stamp), cells)
        return
    ready: list[tuple[Cell, Together, str | None]] = []
    for cell in cells:
        clock, note = team.clock(cell)
        if isinstance(clock, Together):
            ready.append((cell, clock, note))
            continue
        at_least = clock.pop(AT_LEAST, None)
        for status, reason in clock.items():
            yield stamp.record(cell, status, reason=reason, low_seconds=at_least)
    _link(ready)
    ready += [(cell, dataclasses.replace(clock, other=None), note) for cell, clock, note in ready[:1]]
    clocks: list[Clock] = [clock for _, clock, _ in ready]
    timings = interleave(clocks, 0.0, seed)
    team.forget()
    for position, ((cell, clock, note), timing) in enumerate(zip(ready, timings, strict=True)):
        own = clock.members if clock.is_all else clock.members[:1]
        where = {"affinity": sorted({cpu for member in own for cpu in member.cpus}) if ALL_CPUS else []}
        again = {"primitive": AGAIN} if position == len(ready) - 1 else {}
        yield stamp.timed(cell, timing, where, reason=_reason(cell, timing, note), **again)


def _stamp_of(stamp: Stamp, cell: Cell) -> Stamp:
    """Return the stamp of a cell's record, which is of another primitive where several processes run."""
    return dataclasses.replace(stamp, primitive=beside.PRIMITIVE) if cell.contestant in beside.ARRANGEMENTS else stamp


def _run_beside(team: Team, stamp_of: Callable[[Cell], Stamp], cells: Sequence[Cell]) -> Iterator[Record]:
    """Yield the records of one run: a part with too few samples is skipped."""
    answer = team.worker(0).ask("arrange", options=dict(cells[0].options), window=2 * team.preset.sample_seconds)
    where = {"affinity": list(ALL_CPUS)}
    for cell in cells:
        samples = answer.get("samples", {}).get(cell.op, ())
        if len(samples) >= beside.WINDOWS // 2:
            yield stamp_of(cell).timed(cell, Timing(tuple(samples), 1), where)
        elif "failed" in answer:
            yield stamp_of(cell).record(cell, "failed", reason=answer["failed"])
        else:
            yield stamp_of(cell).record(cell, "skipped", reason=answer.get("skipped", f"too few samples, {TOO_LONG}"))


def _reason(cell: Cell, timing: Timing, note: str | None) -> str | None:
    """Return remarks on a cell's time, if there are any."""
    reasons = [note] if note else []
    if cell.threads > CORES:
        reasons.append(f"oversubscribed: {cell.threads} on {CORES} cores")
    if timing.is_unstable:
        reasons.append(f"interval of {timing.interval.relative_width:.0%} of the median")
    return "; ".join(reasons) or None


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("profile", __doc__, "--workload cartpole_dqn", f"parts that are timed:\n{listed(PARTS)}\n")
    add_workload(parser)
    alone = "measure the parts of training by several processes, run concurrently, in place of the others"
    parser.add_argument("--arrangements", action="store_true", help=alone)
    add_list(parser, "only", among("part", *PARTS), default=(), help="of the parts below, quoted (default: all)")
    hidden = "units of each hidden layer (default: the workload's)"
    parser.add_argument("--hidden", type=list_of(at_least(1, "units"), repeats=True), metavar="A,B,..", help=hidden)
    parser.add_argument("--preset", choices=PRESETS, default="quick", help=f"how much to measure ({DEFAULT})")
    return add_common(parser, seed_of="the order of samples")
