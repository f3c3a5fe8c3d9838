"""Which share of a serial training step is spent in the sum tree, on our trees and on other libraries'?

Timed once are environment and inference, and the whole loop; on each tree insertion, sampling, gathering, gradient step
and new priorities, with the tree's own calls timed inside the step. All on one core, interleaved sample by sample; a
library in a process of its own, of the environment that make peers makes. Records go to
results/<machine>/share-<workload>.jsonl.
"""

import dataclasses
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import impls
from dse.records import Record, RecordError
from impls.training.settings import stated

from ..arguments import add_list, add_numbers, add_python, add_workload, among
from ..clock import ALL_CPUS, Clock
from ..libraries.base import Tree, roles, tree_names
from ..presets import MODELED, NO_FANOUT, ON_DEVICE
from ..timing import Timing
from ..topic import Topic
from ..workers import Untimed, WorkerClock, has_libraries
from .profile.cells import TREE, Cell, facts_of, implementations, options_of
from .profile.command import workload_of

STORAGE_BYTES = 1 << 30
OURS = ""  # the key of the process that has our trees, the actor and the whole loop


class Share(Topic):
    """Learning's part of a step on every tree, and with them an actor's step and the whole loop."""

    primitive, module = "serial_step", "benchmarks.topics.profile.worker"
    example = "--workload cartpole_dqn --contestants numba,numpy"

    @classmethod
    def add_options(cls, parser: ArgumentParser) -> None:
        """Add the workload, the trees and the seconds."""
        add_workload(parser)
        known = among("implementation", *_list_ours(), *tree_names())
        add_list(parser, "contestants", known, help="trees of ours, or libraries")
        add_python(parser)
        add_numbers(parser, sample=(0.1, "seconds of a sample"), budget=(2.0, "seconds of sampling a tree"))

    def __init__(self, options: Namespace) -> None:
        super().__init__(options)
        self._workload = workload_of(options.workload)
        self.facts, self.libraries = facts_of(self._workload), [options.python]
        self.asked, self.budget = {"sample": options.sample, "budget": options.budget}, options.budget
        chosen = options.contestants or ()
        theirs = has_libraries(options, is_needed=not {*chosen} <= {*_list_ours()})
        self._trees = chosen or (*_list_ours(), *(tree_names() if theirs else ()))

    @property
    def file(self) -> str:
        """Name of the file of records: each workload has its own."""
        return f"share-{self._workload.name}.jsonl"

    def cells(self) -> list[list[Cell]]:
        """Return the cells of learning on each tree."""
        return [[self.tree(name) for name in self._trees]]

    def tree(self, contestant: str) -> Cell:
        """Return the cell of a step's learning on a tree, in the tree's default format."""
        replay, kind = self._workload.replay, roles(Tree).get(contestant)
        fanout = kind.fanout if kind else 16 if contestant in NO_FANOUT else replay.fanout
        shape = {"capacity": replay.capacity, "fanout": fanout, "dtype": kind.dtypes[0] if kind else "float32"}
        return Cell(contestant, "learning", options_of(self._workload), self._workload.learner.batch, **shape)

    def _whole(self) -> Iterator[Cell]:
        """Yield an actor's step and the whole loop, both by each implementation of learner and policy."""
        replay = self._workload.replay
        for learner in implementations(self._workload):
            actor = Cell("actor", "step", {**options_of(self._workload), "learner": learner})
            yield actor
            yield dataclasses.replace(actor, contestant="loop", capacity=replay.capacity, fanout=replay.fanout)

    def open(self, stack: ExitStack) -> None:
        """Start the process of ours. RecordError if the workload cannot run there."""
        super().open(stack)
        if refused := self._open(OURS):
            raise RecordError(refused)

    def _open(self, key: str) -> str | None:
        """Open the workload in the process of ours or of a library; return why it cannot run there."""
        assert self.pool is not None
        world = {"workload": stated(self._workload), "number": 0, "storage_bytes": STORAGE_BYTES}
        python, needs = (self.options.python, "learner") if key else (Path(sys.executable), "environment")
        return self.pool.open(key, python, "open", needs=needs, **world).get("error")

    def clock(self, cell: Cell, stack: ExitStack) -> Clock | Untimed:
        """Return the clock of a tree's learning in the process of its library, of the others in that of ours."""
        assert self.pool is not None
        key = cell.contestant if cell.contestant in tree_names() else OURS
        if refused := self._open(key):
            return Untimed("skipped", refused)
        asked: dict[str, Any] = {"contestant": TREE, "learner": cell.options.get("learner")}
        if cell.op == "learning":
            asked = {name: getattr(cell, name) for name in ("contestant", "capacity", "fanout", "dtype")}
        elif cell.contestant == "actor":
            fields = {name: getattr(cell, name) for name in ("contestant", "op", "batch", "threads")}
            asked = {"cell": {**fields, "options": {"learner": cell.options["learner"]}}}
        stretch = self.options.sample
        clock = self.pool.prepare(key, "prepare" if "cell" in asked else "learn", stretch=stretch, **asked)
        if isinstance(clock, WorkerClock):
            stretch = max(stretch, 2 * clock.prepared["seconds"])
            clock.arguments = {"cpus": ALL_CPUS[:1], "begin": 0.0, "stretch": stretch}
        return clock

    def twin(self, cell: Cell, stack: ExitStack) -> Clock | Untimed | None:
        """Return a second clock of the first tree."""
        return self.clock(cell, stack) if cell.op == "learning" else None

    def measure(self, cells: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of learning on every tree, and of an actor and the whole loop."""
        return super().measure([*cells, *self._whole()])

    def refused(self, cell: Cell, why: Untimed) -> Iterator[Record]:
        """Yield the records of a tree that has no time. RecordError where an actor has none."""
        if cell.contestant == "actor":
            raise RecordError(f"an actor's step cannot be timed: {why.reason}")
        for op in ("tree", "learning") if cell.op == "learning" else ():
            yield from super().refused(dataclasses.replace(cell, op=op), why)

    def timed(self, cell: Cell, clock: Any, timing: Timing, **twin: Any) -> Iterator[Record]:
        """Yield the records of a cell's time and, of learning, of the time that its tree took."""
        if cell.op == "learning":
            in_tree = tuple(answer["tree"] for answer in clock.answers)
            part = Timing(in_tree, timing.calls_per_sample)
            yield from super().timed(dataclasses.replace(cell, op="tree"), clock, part, **twin)
        yield from super().timed(cell, clock, timing, **twin)

    def locate(self, cell: Cell, clock: Clock | None) -> dict[str, Any]:
        """Return the core that every process kept to."""
        return {"affinity": list(ALL_CPUS[:1])}


def _list_ours() -> list[str]:
    """Return the trees of ours that are timed in a step, numba first."""
    return sorted(set(impls.names()) - {*ON_DEVICE, *MODELED}, key=lambda name: (name != "numba", name))
