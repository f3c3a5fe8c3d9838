"""Time a serial training step and the sum tree in it, on our trees and on other libraries'.

Environment and inference once, the whole loop once, and on each tree: insertion, draw, gather, gradient step, new
priorities, with the tree's own calls timed where they stand. All on one core, in turns, sample by sample; a library in
a process of its own, of the environment that make peers makes. The records go to
results/<machine>/share-<workload>.jsonl.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import impls
from dse import platforms, records
from dse.records import Measurement, RecordError
from impls.terminal import Progress
from impls.training import TrainingError, Workload, load, path_of

from .. import peers
from ..arguments import list_of
from ..clock import ALL_CPUS
from ..peers.command import ENVIRONMENT
from ..presets import MODELED, NO_FANOUT, ON_DEVICE
from ..stamp import Stamp
from ..sweep import Tally, is_of, there
from ..timing import Timing, interleave
from ..workers import Worker, WorkerError
from .cells import TREE, Cell, options_of
from .command import need_packages, report
from .measure import MODULE, ROOT

STEP, AGAIN = "serial_step", "serial_step_again"
STORAGE_BYTES = 1 << 30


@dataclasses.dataclass
class StepClock:
    """Samples of a part of a step in its process; ``trees`` are the seconds of each that were spent in the tree."""

    worker: Worker
    number: int
    stretch_seconds: float
    calls_per_sample: int = 0
    trees: list[float] = dataclasses.field(default_factory=list)

    def sample(self) -> float:
        """Seconds a call takes, by one more stretch. RecordError if the environment fails."""
        how = {"cpus": ALL_CPUS[:1], "begin": 0.0, "stretch": self.stretch_seconds}
        answer = self.worker.ask("sample", number=self.number, **how)
        if "failed" in answer:
            raise RecordError(answer["failed"])
        self.calls_per_sample = answer["calls"]
        self.trees.append(answer.get("tree", 0.0))
        return float(answer["seconds"])


@dataclasses.dataclass(frozen=True)
class Ready:
    """A part that can be timed: its cell, its clock, and its record's primitive."""

    cell: Cell
    clock: StepClock
    primitive: str = STEP


class Shares:
    """The parts of one workload's step, each in its process."""

    def __init__(self, stack: ExitStack, workload: Workload, where: Path, options: argparse.Namespace) -> None:
        self._stack, self._workload, self._where, self._options = stack, workload, where, options
        self.stamp = Stamp.of_this_run(STEP)
        self._counts: dict[Worker, int] = {}
        self._ours = self._open(Path(sys.executable), "environment")

    def _open(self, python: Path, needs: str) -> Worker:
        worker = self._stack.enter_context(Worker(python, [ROOT], MODULE))
        place = {"number": 0, "storage_bytes": STORAGE_BYTES, "needs": needs}
        answer = worker.ask("open", workload=str(self._where), **place)
        if "error" in answer:
            raise RecordError(answer["error"])
        self._counts[worker] = 0
        return worker

    def _clock(self, worker: Worker, what: str, **asked: Any) -> StepClock | str:
        """A clock, or why there is none."""
        stretch = self._options.sample
        answer = worker.ask(what, stretch=stretch, **asked)
        if "seconds" not in answer:
            return str(answer.get("skipped") or answer.get("failed"))
        number = self._counts[worker]
        self._counts[worker] += 1
        return StepClock(worker, number, max(stretch, 2 * answer["seconds"]))

    def actor(self) -> Cell:
        """The cell of an actor's step."""
        return Cell("actor", "step", options_of(self._workload))

    def tree(self, contestant: str) -> Cell:
        """The cell of a step's learning on a tree, in the format the tree comes with."""
        replay, kind = self._workload.replay, None if contestant in impls.names() else peers.adapter(contestant)
        fanout = kind.fanout if kind else 16 if contestant in NO_FANOUT else replay.fanout
        shape = {"capacity": replay.capacity, "fanout": fanout, "dtype": kind.dtypes[0] if kind else "float32"}
        return Cell(contestant, "learning", options_of(self._workload), self._workload.learner.batch, **shape)

    def measure(self, contestants: Sequence[str]) -> Iterator[Measurement]:
        """Records of the actor and of every tree, all in turns, and of the first tree's twin."""
        ready, untimed = self._ready(contestants)
        yield from untimed
        timings = interleave([one.clock for one in ready], self._options.budget * len(ready))
        for one, timing in zip(ready, timings, strict=True):
            machine = {**self.stamp.machine, "affinity": list(ALL_CPUS[:1])}
            how: dict[str, Any] = {"machine": machine, "primitive": one.primitive}
            if one.cell.op == "learning":
                in_tree = Timing(tuple(one.clock.trees), timing.calls_per_sample)
                yield self.stamp.timed(dataclasses.replace(one.cell, op="tree"), in_tree, **how)
            yield self.stamp.timed(one.cell, timing, **how)

    def _ready(self, contestants: Sequence[str]) -> tuple[list[Ready], list[Measurement]]:
        actor = self.actor()
        told = {name: getattr(actor, name) for name in ("contestant", "op", "batch", "threads")}
        clock = self._clock(self._ours, "prepare", cell=told)
        if isinstance(clock, str):
            raise RecordError(f"an actor's step cannot be timed: {clock}")
        ready, untimed = [Ready(actor, clock)], list[Measurement]()
        whole = self._clock(self._ours, "learn", contestant=TREE)
        if isinstance(whole, StepClock):
            shape = {"capacity": self._workload.replay.capacity, "fanout": self._workload.replay.fanout}
            ready.append(Ready(dataclasses.replace(actor, contestant="loop", **shape), whole))
        for name in contestants:
            cell, worker = self.tree(name), self._ours
            try:
                if name not in impls.names():
                    worker = self._open(self._options.python, "learner")
                shape = {"capacity": cell.capacity, "fanout": cell.fanout, "dtype": cell.dtype}
                clock = self._clock(worker, "learn", contestant=name, **shape)
            except (RecordError, WorkerError) as error:
                clock = str(error)
            if isinstance(clock, str):
                untimed += [
                    self.stamp.record(dataclasses.replace(cell, op=op), "skipped", reason=clock)
                    for op in ("tree", "learning")
                ]
                continue
            ready.append(Ready(cell, clock))
            if not any(one.primitive == AGAIN for one in ready) and worker is self._ours:
                again = self._clock(worker, "learn", contestant=name, **shape)
                ready += [Ready(cell, again, AGAIN)] if isinstance(again, StepClock) else []
        return ready, untimed


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload's step; returns the exit code. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    try:
        workload, where = load(options.workload), path_of(options.workload).resolve()
    except TrainingError as error:
        raise RecordError(str(error)) from None
    need_packages()
    contestants = _contestants(options)
    path = options.results / str(platforms.fingerprint()["key"]) / f"share-{workload.name}.jsonl"
    with ExitStack() as stack, records.Writer(path) as writer:
        made, tally = Shares(stack, workload, where, options), Tally()
        done = {record.cell for record in there(path) if is_of(made.stamp, record)}
        todo = [name for name in contestants if made.stamp.record(made.tree(name), "skipped").cell not in done]
        tally.resumed = len(contestants) - len(todo)
        progress = stack.enter_context(Progress(2 * len(todo), "cell", bar=not options.json))
        for record in made.measure(todo) if todo else ():
            writer.append(record)
            if record.primitive == STEP and record.op != "step":
                tally.add(record.status)
                progress.update(1)
        tally.pairs = records.twins((one for one in there(path) if is_of(made.stamp, one)), STEP)
    return report(tally, 2 * len(contestants), path, options.json)


def _contestants(options: argparse.Namespace) -> list[str]:
    """Chosen trees, or all of ours that are timed here and every library if there is an environment of them."""
    ours = [name for name in impls.names() if name not in (*ON_DEVICE, *MODELED)]
    known = [*sorted(ours, key=lambda name: name != "numba"), *peers.names()]
    for name in options.contestants or ():
        if name not in known:
            raise RecordError(f"{name!r} is none of {', '.join(known)}")
    has_libraries = options.python.exists()
    if options.contestants:
        theirs = [name for name in options.contestants if name not in ours]
        if theirs and not has_libraries:
            raise RecordError(f"{options.python}: no such interpreter; install the libraries first: make peers")
        return list(options.contestants)
    return known if has_libraries else known[: len(ours)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks share",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--workload", required=True, metavar="NAME|FILE", help="see: python -m impls.training list")
    parser.add_argument("--contestants", type=list_of(str), metavar="A,B,..", help="trees of ours, or libraries")
    parser.add_argument(
        "--python", type=Path, default=ENVIRONMENT, help="that has the libraries and torch (default: %(default)s)"
    )
    parser.add_argument("--sample", type=float, default=0.1, help="seconds of a sample (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds of sampling a tree (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
