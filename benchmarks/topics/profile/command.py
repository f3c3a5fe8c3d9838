"""How long do a training workload's primitives take: environment, inference, gradient steps, tree, storage, weights?

Each is timed alone, over batches and cores, and those that share cores in a loop concurrently on the same core.
Every process is kept on the cores that its record names. Interrupt it as you like: the same command resumes where it
stopped. It begins no cell after the preset's time; where cells are left its last line says so, and answers that rest on
the profile do (the exit code is 0: what was measured is kept and counts). Records go to
results/<machine>/profile-<workload>-<preset>.jsonl; `python -m reports` draws their curves.
"""

import dataclasses
import importlib.util
import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse.platforms.checkout import CORES
from dse.platforms.files import find_own_file
from dse.records import Record, RecordError
from impls.files import refusing
from impls.terminal import print_to_stderr
from impls.training import TrainingError, Workload, load_timed
from impls.training.environments import Environment, warn_of_code
from impls.training.options import with_values
from impls.training.settings import stated

from ...arguments import DEFAULT, add_list, add_workload, among, at_least, list_of, listed
from ...clock import ALL_CPUS, Clock
from ...timing import LEAST_SAMPLES, Timing
from ...topic import Topic
from ...workers import Untimed, Worker, refusal
from . import concurrent_parts
from .cells import PARTS, PRESETS, REFERENCE, Cell, facts_of, groups, implementations, list_layer_cells

PACKAGES = ("torch", "gymnasium")
MODULE = "benchmarks.topics.profile.worker"
LEAD_SECONDS = 0.002  # from asking processes to begin until they do
CALLS_OF_THE_SLOWEST = 2  # that fit a stretch in which several parts run


def probe_once(results: Path) -> None:
    """Describe this machine, where nobody has: answers for `--platform this` need it and its records."""
    from dse.platforms.probe import write_probe  # noqa: PLC0415  # with its kernels

    if not (path := find_own_file(results)).is_file():
        with refusing(path, RecordError, "choose another folder"):
            write_probe(path)


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
    note: str | None = None

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
        if refused := next(filter(None, map(refusal, answers)), None):
            raise RecordError(f"{refused.reason}; what is measured is kept, the same command continues")
        self.trees.append(answers[0].get("tree", 0.0))
        if self.other:
            self.other.read = answers[1]
        if not self.is_all:
            self.calls_per_sample = answers[0]["calls"]
            return float(answers[0]["seconds"])
        self.calls_per_sample = sum(answer["calls"] for answer in answers)
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


def _cpus_of(cell: Cell, cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the CPUs of each part of a cell, reused where there are fewer CPUs than parts."""
    if cell.beside:
        return [(cpus[0],), (cpus[0] if cell.options["cores"] == "shared" else cpus[1],)]
    if cell.processes > 1:
        return [(cpus[index % len(cpus)],) for index in range(cell.processes)]
    return [tuple(cpus[: cell.threads])]


class Profile(Topic):
    """The parts of a workload, each alone, and those that share cores in a loop, two at once."""

    primitive = "training"
    example, epilog = "--workload cartpole_dqn", f"parts that are timed:\n{listed(PARTS)}\n"
    seed_of = "the order of samples"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the workload and its layers, the parts, and how much is measured."""
        add_workload(parser)
        alone = "measure the parts of training by several processes, run concurrently, in place of the others"
        parser.add_argument("--arrangements", action="store_true", help=alone)
        layers = "measure each layer of a value network, forward, backward and its update, in place of the others"
        parser.add_argument("--layers", action="store_true", help=layers)
        add_list(parser, "only", among("part", *PARTS), default=(), help="of the parts below, quoted (default: all)")
        hidden = "units of each hidden layer (default: the workload's)"
        parser.add_argument("--hidden", type=list_of(at_least(1, "units"), repeats=True), metavar="A,B,..", help=hidden)
        parser.add_argument("--preset", choices=PRESETS, default="quick", help=f"how much to measure ({DEFAULT})")

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        own = [f"--{name}" for name in ("arrangements", "layers") if getattr(options, name)]
        if len([*own, *["--only"] * bool(options.only)]) > 1:
            raise ValueError(f"{own[0]} measures parts of its own, and no others; leave out {[*own, '--only'][1]}")
        self.workload = with_hidden(workload_of(options.workload), options.hidden)
        self.preset = PRESETS[options.preset]
        self.most_seconds = self.preset.most_seconds
        how = self.workload, self.preset, CORES, implementations(self.workload)
        serial, *parts = groups(*how)
        self.groups = [serial, *concurrent_parts.list_whole_runs(*how), *parts]
        self.facts = facts_of(self.workload, options.preset, self.groups)
        if options.layers:
            self.primitive, self.facts = "layer", facts_of(self.workload)
            if not (groups_of_layers := list_layer_cells(self.workload, self.preset, CORES)):
                raise ValueError(
                    f"--layers times the layers of a value network, and {self.workload.algorithm} trains a policy too; "
                    "name a workload of dqn"
                )
            self.groups = groups_of_layers
        self._runs = _Runs(self)
        self._workers: list[Worker] = []
        self._prepared: dict[tuple[int, str], dict[str, Any]] = {}
        self._pairs: dict[tuple[Any, ...], Together] = {}
        self._too_long: dict[str, float] = {}  # seconds of a call, by the key of a cell that is skipped for it

    @property
    def file(self) -> str:
        """Name of the file of records: each workload and preset has its own."""
        kind = "beside" if self.options.arrangements else "layers" if self.options.layers else "profile"
        return f"{kind}-{self.workload.name}-{self.options.preset}.jsonl"

    def parts(self) -> Sequence[Topic]:
        """Return what is asked for: the parts of parallel runs, or all others."""
        return [self._runs if self.options.arrangements else self]

    def cells(self) -> list[list[Cell]]:
        """Return a group each of the serial loop, of a run timed whole, and of their parts, all or those named."""
        if not (only := self.options.only):
            return [group for group in self.groups if group]
        named = ([cell for cell in group if f"{cell.contestant} {cell.op}" in only] for group in self.groups)
        return [group for group in named if group]

    def key(self, cell: Cell) -> str:
        """Return the key of a cell, which is of another primitive where several processes run."""
        return self._runs.key(cell) if cell.contestant in concurrent_parts.ARRANGEMENTS else super().key(cell)

    def open(self, stack: ExitStack) -> None:
        """Start the first process; a machine of which a whole profile was measured is described in the end."""
        if not (self.options.only or self.options.arrangements or self.options.layers):
            stack.push(lambda error, *_: None if error else probe_once(self.options.results))
        self._stack = stack
        self.worker(0)

    def worker(self, index: int) -> Worker:
        """Return the process of this index, started if need be. RecordError if the workload cannot run there."""
        while (number := len(self._workers)) <= index:
            world = {"workload": stated(self.workload), "number": number, "storage_bytes": self.preset.storage_bytes}
            self._workers.append(opened(self._stack, Path(sys.executable), "environment", **world))
        return self._workers[index]

    def clock(self, cell: Cell, stack: ExitStack) -> "Together | Untimed":
        """Return the clock of a cell's parts, each prepared in a process; both cells of a pair read one stretch."""
        parts = [cell, cell.beside] if cell.beside else [cell] * cell.processes
        places = list(enumerate(_cpus_of(cell, ALL_CPUS or (0,))))
        if cell.beside and cell.contestant > cell.beside.contestant:
            places.reverse()  # a pair stays in the same two processes, whichever of its parts is read
        answers = [self._prepare(index, part) for (index, _), part in zip(places, parts, strict=True)]
        if refused := next(filter(None, map(refusal, answers)), None):
            return refused
        slowest = max(answer["seconds"] for answer in answers)
        least = max(CALLS_OF_THE_SLOWEST if len(parts) > 1 else 1, *(answer["period"] for answer in answers))
        stretch = max(self.preset.sample_seconds, least * slowest)
        if LEAST_SAMPLES * stretch > self.preset.longest_cell_seconds:
            self._too_long[self.key(cell)] = slowest
            return Untimed("skipped", f"one call takes {slowest:.2g} s, too long for the preset")
        at = zip(places, answers, strict=True)
        members = [Member(self.worker(index), answer["number"], cpus) for (index, cpus), answer in at]
        clock = Together(members, stretch, cell.processes > 1, note=answers[0].get("note"))
        if cell.beside:
            pair = frozenset((cell.contestant, cell.beside.contestant)), cell.options["cores"]
            if (other := self._pairs.setdefault(pair, clock)) is not clock:
                clock.other, other.other = other, clock
        return clock

    def twin(self, cell: Cell, stack: ExitStack) -> "Together | Untimed":
        """Return a second clock of a cell, which reads stretches of its own."""
        self._pairs.clear()
        return self.clock(cell, stack)

    def _prepare(self, index: int, cell: Cell) -> dict[str, Any]:
        """Prepare a part in a process, once for all cells of a group that need it there; return the answer."""
        part = {name: getattr(cell, name) for name in ("contestant", "op", "batch", "capacity", "fanout")}
        part["threads"] = 1 if cell.processes > 1 else cell.threads
        part["options"] = {key: value for key, value in cell.options.items() if key not in ("beside", "cores")}
        key = index, json.dumps(part, sort_keys=True)
        if key not in self._prepared:
            self._prepared[key] = self.worker(index).ask("prepare", cell=part, stretch=self.preset.sample_seconds)
        return self._prepared[key]

    def explain(self, cell: Cell, clock: Clock | None, timing: Timing) -> str | None:
        """Return remarks on a cell's time, if there are any."""
        reasons = [getattr(clock, "note", None)]
        if cell.threads > CORES:
            reasons.append(f"oversubscribed: {cell.threads} on {CORES} cores")
        if timing.is_unstable:
            reasons.append(f"interval of {timing.interval.relative_width:.0%} of the median")
        return "; ".join(filter(None, reasons)) or None

    def locate(self, cell: Cell, clock: Clock | None) -> dict[str, Any]:
        """Return the CPUs of the part that is read, or of all where they do one work together."""
        assert isinstance(clock, Together)
        own = clock.members if clock.is_all else clock.members[:1]
        return {"affinity": sorted({cpu for member in own for cpu in member.cpus}) if ALL_CPUS else []}

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of a group; a cell that is skipped for its length has the seconds of a call."""
        if cells[0].contestant in concurrent_parts.ARRANGEMENTS:
            yield from self._runs.measure(cells)
            return
        for record in super().measure(cells):
            least = record.low_seconds or self._too_long.get(record.cell)
            yield dataclasses.replace(record, low_seconds=least)
        for worker in self._workers:
            worker.ask("forget")
        self._prepared.clear()

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Say how fast the serial loop is by each implementation of its learner and policy, the reference first."""
        loops = (record for record in found if record.contestant == "loop" and record.median_seconds)
        rates = {record.options["learner"]: 1 / record.seconds for record in loops}
        first, *others = sorted(rates, key=lambda name: (name != REFERENCE, name)) or [""]
        faster = "".join(f"; {rates[name]:,.0f} by {name}, {rates[name] / rates[first]:.1f}x" for name in others)
        said = f"serial loop of {self.workload.name}, gradient steps/s: {rates.get(first, 0):,.0f} by {first}{faster}"
        return {}, [said] if others else []


class _Runs(Topic):
    """The parts of parallel runs, concurrently: a group of cells is read from one run."""

    primitive = concurrent_parts.PRIMITIVE

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile.options)
        self._profile, self.facts = profile, facts_of(profile.workload)

    def open(self, stack: ExitStack) -> None:
        """Start the first process, which starts those of the runs."""
        self._profile.open(stack)

    def cells(self) -> list[list[Cell]]:
        """Return the cells, a group a run."""
        workload, preset = self._profile.workload, self._profile.preset
        return concurrent_parts.groups(workload, preset, CORES, implementations(workload))

    def run(self, cells: Sequence[Cell]) -> dict[str, list[float]] | Untimed:
        """Run training shortly; return the samples of each part that has enough of them."""
        window = 2 * self._profile.preset.sample_seconds
        answer = self._profile.worker(0).ask("arrange", options=dict(cells[0].options), window=window)
        samples, least = answer.get("samples", {}), concurrent_parts.WINDOWS // 2
        return refusal(answer) or {op: taken for op, taken in samples.items() if len(taken) >= least}

    def locate(self, cell: Cell, clock: Clock | None) -> dict[str, Any]:
        """Return all CPUs, for the processes of a run share them."""
        return {"affinity": list(ALL_CPUS)}

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of a run: a cell that the profile has too stays one of the profile's."""
        shared = {self.key(cell) for group in self._profile.groups for cell in group}
        for record in super().measure(cells):
            own = {"profile": self._profile.facts["profile"]} if record.cell in shared else {}
            yield dataclasses.replace(record, facts={**record.facts, **own})
