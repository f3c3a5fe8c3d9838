"""A question that is answered by measuring: what a file of ``benchmarks/topics`` says, and how all are measured."""

import inspect
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from dse.platforms import checkout
from dse.records import Record

from .arguments import add_common, parser_of
from .clock import Clock
from .run import Stamp, Tally, file_of, latest, run, show
from .sentinels import Sentinels
from .timing import Timing, interleave
from .workers import FailedError, Pool, Untimed, WorkerClock, WorkerError, explain_death

DIRECT = ("sweep", "peers", "profile")
"""Topics that are commands themselves; all others follow the command ``run``."""
CLUSTER = "auto (that of this machine), local (this machine alone) or HOST:PORT of a head"
"""What the option --cluster names."""


class Topic:
    """A question, its cells, and how a cell is timed; the first line of its module is the question, all of it the help.

    A subclass states ``cells`` and ``clock`` where the runner takes the samples, or ``cells`` and ``run`` where a group
    of cells is one whole run. ``file`` is where its records go. A topic of several primitives has ``parts``, each a
    topic, measured one after the other into one file.
    """

    primitive: str = ""
    module: ClassVar[str] = ""
    """Module of the processes that measure, if any do: ``pool`` has them."""
    unit: str = "cell"
    example: ClassVar[str] = ""
    """Words that may follow the command, for its help."""
    epilog: ClassVar[str] = ""
    seed_of: ClassVar[str] = ""
    """What is drawn by the option ``--seed``; "" for a topic that draws nothing."""
    most_seconds = math.inf
    """Seconds after which no group is begun."""
    has_sentinels = True
    is_counted = True
    """Whether the command says how many of its cells are measured; if not, they come with those of another part."""
    resumes = True
    """Whether cells that the file has are done; if not, each run measures all of them."""

    def __init__(self, options: Namespace) -> None:
        """Read the options. ValueError or RecordError with one sentence for what cannot be measured."""
        self.options = options
        self.asked: Mapping[str, Any] = {}  # what changes a time and is in no cell, such as the seconds of sampling
        self.facts: Mapping[str, Any] = {}  # what all records say of their machine besides
        self.libraries: Sequence[Path] = ()  # interpreters whose packages are timed
        self.budget = 0.0  # seconds of sampling a cell
        self.pool: Pool | None = None
        self.packages: dict[str, dict[str, str]] = {}  # versions in the processes of a contestant, where they are known
        self.path = Path()  # the file of records, once it is measured into

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the options of the topic's own to its parser."""

    @property
    def file(self) -> str:
        """Name of the file of records, in the folder of this machine."""
        return f"{name_of(type(self))}.jsonl"

    @cached_property
    def stamp(self) -> Stamp:
        """What all records of the topic share."""
        clock = type(self).__module__
        return Stamp.of_this_run(clock, self.primitive, self.libraries, self.asked, **self.facts)

    def parts(self) -> Sequence["Topic"]:
        """Return the topics that are measured in this one's place; by default itself."""
        return [self]

    def cells(self) -> Sequence[Sequence[Any]]:
        """Return the cells in groups: those of a group take turns, or are read from one run."""
        raise NotImplementedError

    def stamp_of(self, cell: Any) -> Stamp:
        """Return the stamp of a cell's records, which has the versions of what the cell is made with."""
        packages = self.packages.get(cell.contestant)
        return self.stamp.for_packages(packages) if packages else self.stamp

    def key(self, cell: Any) -> str:
        """Return the key by which a cell's record is found again."""
        return self.stamp_of(cell).cell(cell)

    def describe(self, cell: Any) -> str | None:
        """Describe a cell for the progress, by its ``label`` if it has one; None: by its key."""
        return getattr(cell, "label", None)

    def print_only(self) -> bool:
        """Print what the options ask for in place of measuring, if they do; return whether they did."""
        return False

    def open(self, stack: ExitStack) -> None:
        """Start what the cells are measured by; what is opened is closed with the stack. Not called by a dry run."""
        if self.module:
            self.pool = Pool(self.module)
            stack.callback(self.pool.close)

    def finish(self) -> None:
        """Do what is left once the cells are measured and their records kept. Not called by a dry run."""

    def clock(self, cell: Any, stack: ExitStack) -> Clock | Untimed:
        """Return the clock of a cell that is ready to be timed, or why there is none; the stack ends with the group."""
        raise NotImplementedError

    def twin(self, cell: Any, stack: ExitStack) -> Clock | Untimed | None:
        """Return a second clock of a cell, for the A/A pair that gives a run its noise floor; None for no pair."""
        return self.clock(cell, stack)

    def run(self, cells: Sequence[Any]) -> Mapping[str, Sequence[float]] | Untimed:
        """Run what the cells of a group describe; return the samples in seconds by operation, or why there are none."""
        raise NotImplementedError

    def explain(self, cell: Any, clock: Clock | None, timing: Timing) -> str | None:
        """Return what to know of a cell's time, if anything."""
        return None

    def locate(self, cell: Any, clock: Clock | None) -> dict[str, Any]:
        """Return the facts of a cell's record: the CPUs that it was kept on, its device."""
        return {"affinity": clock.prepared["affinity"]} if isinstance(clock, WorkerClock) else {}

    def refused(self, cell: Any, why: Untimed) -> Iterator[Record]:
        """Yield the records of a cell that has no time."""
        yield self.stamp_of(cell).record(cell, why.status, reason=why.reason)

    def timed(self, cell: Any, clock: Clock | None, timing: Timing, **twin: Any) -> Iterator[Record]:
        """Yield the records of a cell's time; ``twin`` is what the record of an A/A twin has of its own."""
        reason = self.explain(cell, clock, timing)
        yield self.stamp_of(cell).timed(cell, timing, self.locate(cell, clock), reason=reason, **twin)

    def measure(self, cells: Sequence[Any]) -> Iterator[Record]:
        """Yield the records of a group: what has no time and why, the times, and the A/A twin of the first clock.

        Where a sample fails, its cell has no time and the others are measured again.
        """
        if type(self).run is not Topic.run:
            yield from self._read(cells)
            return
        left = list(cells)
        # Invariant: each cell that is not in ``left`` has a record.
        while left:
            with ExitStack() as stack:
                if self.pool:
                    stack.callback(self.pool.forget)
                ready: list[tuple[Any, Clock]] = []
                for cell in [*left]:
                    clock = self._try(self.clock, cell, stack)
                    if isinstance(clock, Untimed):
                        left.remove(cell)
                        yield from self.refused(cell, clock)
                    else:
                        ready.append((cell, clock))
                twin = self._try(self.twin, ready[0][0], stack) if ready else None
                if twin is not None and not isinstance(twin, Untimed):
                    ready.append((ready[0][0], twin))
                try:
                    seed = getattr(self.options, "seed", 0)
                    timings = interleave([clock for _, clock in ready], self.budget * len(ready), seed)
                except FailedError as error:
                    failed = next(
                        cell for cell, clock in ready if error.clock in (clock, *getattr(clock, "members", ()))
                    )
                    left.remove(failed)
                    if self.pool:
                        self.pool.drop(error.clock.worker)
                    yield from self.refused(failed, Untimed("failed", str(error)))
                    continue
            for (cell, clock), timing in zip(ready, timings, strict=True):
                again = {"primitive": f"{self.stamp_of(cell).primitive}_again"} if clock is twin else {}
                yield from self.timed(cell, clock, timing, **again)
            return

    @staticmethod
    def _try(make: Callable[..., Clock | Untimed | None], cell: Any, stack: ExitStack) -> Any:
        """Return a clock, or that it failed where a process has died or its first sample failed."""
        try:
            return make(cell, stack)
        except WorkerError as error:
            return Untimed("failed", explain_death(error))

    def _read(self, cells: Sequence[Any]) -> Iterator[Record]:
        done = self.run(cells)
        for cell in cells:
            if isinstance(done, Untimed):
                yield from self.refused(cell, done)
            elif samples := done.get(cell.op):
                yield from self.timed(cell, None, Timing(tuple(samples), 1))
            else:
                yield from self.refused(cell, Untimed("skipped", "the run was too short to read it"))

    def summarize(self, found: Sequence[Record]) -> tuple[dict[str, Any], Sequence[str]]:
        """Return what JSON has besides the times, and lines to print; without lines the fastest of each operation."""
        return {}, ()


def name_of(kind: type[Topic]) -> str:
    """Return the name of a topic: that of its file, or of the folder of its ``command.py``."""
    *_, folder, file = kind.__module__.split(".")
    return folder if file == "command" else file


def measure_topic(kind: type[Topic], words: Sequence[str]) -> int:
    """Measure a topic as the words of its command ask, and show what was found; return the exit code: 0 done, 1 cells
    failed, 2 nothing has a time, 75 the machine is busy. RecordError or ValueError where it cannot be measured."""
    options = parser_for(kind).parse_args(words)
    topic = kind(options)
    if topic.print_only():
        return 0
    if not options.dry_run and checkout.is_too_loaded(options.anyway):
        return checkout.BUSY_EXIT_CODE
    path, tally = file_of(options, topic.file), Tally(0)
    parts = topic.parts()
    for part in parts:
        with ExitStack() as stack:
            part.path = path
            if not options.dry_run:
                part.open(stack)
            sentinels = Sentinels() if part.has_sentinels else None
            how: dict[str, Any] = {"name": part.key, "unit": part.unit, "describe": part.describe}
            how |= {"most_seconds": part.most_seconds, "sentinels": sentinels, "resumes": part.resumes}
            measured = run(part.cells(), path, part.stamp, part.measure, options, **how)
            tally += measured if part.is_counted or options.dry_run else Tally(0)
            if not options.dry_run:
                part.finish()
    stamps = {repr(part.stamp.machine): part.stamp for part in parts}.values()
    found, lines = topic.summarize(latest(record for stamp in stamps for record in stamp.known(path)))
    return show(tally, path, options, found, lines)


def parser_for(kind: type[Topic]) -> ArgumentParser:
    """Return the parser of a topic's command."""
    name = name_of(kind)
    command = name if name in DIRECT else f"run {name}"
    parser = parser_of(command, inspect.getdoc(sys.modules[kind.__module__]), kind.example, kind.epilog)
    kind.add_options(parser)
    parser.add_argument("--cluster", metavar="WHERE", help=f"measure on all nodes of a Ray cluster: {CLUSTER}")
    return add_common(parser, seed_of=kind.seed_of)
