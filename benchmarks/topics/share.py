"""Which share of a serial training step is spent in the sum tree, on our trees and on other libraries'?

Timed once are environment and inference, and the whole loop; on each tree insertion, sampling, gathering, gradient step
and new priorities, with the tree's own calls timed inside the step. All on one core, interleaved sample by sample; a
library in a process of its own, of the environment that make peers makes. Records go to
results/<machine>/share-<workload>.jsonl.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import impls
from dse.records import Record, RecordError
from impls.training import Workload
from impls.training.settings import stated

from ..arguments import add_common, add_list, add_numbers, add_python, add_workload, among, parser_of
from ..clock import ALL_CPUS
from ..libraries.base import Tree, roles, tree_names
from ..presets import MODELED, NO_FANOUT, ON_DEVICE
from ..run import Stamp, file_of, run, show
from ..sentinels import Sentinels
from ..timing import Timing, interleave
from ..workers import Worker, WorkerError, has_libraries
from .profile.cells import TREE, Cell, facts_of, implementations, options_of
from .profile.command import Member, Together, opened, workload_of

STEP, AGAIN = "serial_step", "serial_step_again"
STORAGE_BYTES = 1 << 30
Ready = tuple[Cell, Together, str]  # a part that can be timed, its clock, and its record's primitive


class Shares:
    """The parts of one workload's step, each in a process."""

    def __init__(self, stack: ExitStack, workload: Workload, options: argparse.Namespace) -> None:
        self._workload, self._options = workload, options
        asked = {"sample": options.sample, "budget": options.budget}
        self.stamp = Stamp.of_this_run(__name__, STEP, [options.python], asked, **facts_of(workload))
        self._opened = functools.partial(
            opened, stack, workload=stated(workload), number=0, storage_bytes=STORAGE_BYTES
        )
        if not options.dry_run:
            self._ours = self._opened(Path(sys.executable), "environment")

    def _clock(self, worker: Worker, what: str, **asked: Any) -> Together | str:
        """Return a clock, or why there is none."""
        stretch = self._options.sample
        answer = worker.ask(what, stretch=stretch, **asked)
        if "seconds" not in answer:
            return str(answer.get("skipped") or answer.get("failed"))
        return Together([Member(worker, answer["number"], ALL_CPUS[:1])], max(stretch, 2 * answer["seconds"]), False)

    def actor(self, learner: str) -> Cell:
        """Return the cell of an actor's step by an implementation of the policy."""
        return Cell("actor", "step", {**options_of(self._workload), "learner": learner})

    def tree(self, contestant: str) -> Cell:
        """Return the cell of a step's learning on a tree, in the tree's default format."""
        replay, kind = self._workload.replay, roles(Tree).get(contestant)
        fanout = kind.fanout if kind else 16 if contestant in NO_FANOUT else replay.fanout
        shape = {"capacity": replay.capacity, "fanout": fanout, "dtype": kind.dtypes[0] if kind else "float32"}
        return Cell(contestant, "learning", options_of(self._workload), self._workload.learner.batch, **shape)

    def measure(self, trees: Sequence[Cell]) -> Iterator[Record]:
        """Yield the records of the actor and of learning on every tree, interleaved, and of the first tree's twin."""
        ready, untimed = self._ready(trees)
        yield from untimed
        timings = interleave([clock for _, clock, _ in ready], self._options.budget * len(ready))
        where = {"affinity": list(ALL_CPUS[:1])}
        for (cell, clock, primitive), timing in zip(ready, timings, strict=True):
            if cell.op == "learning":
                in_tree = Timing(tuple(clock.trees), timing.calls_per_sample)
                yield self.stamp.timed(dataclasses.replace(cell, op="tree"), in_tree, where, primitive=primitive)
            yield self.stamp.timed(cell, timing, where, primitive=primitive)

    def _whole(self, learner: str) -> Iterator[Ready]:
        """Yield an actor's step and the whole loop, both by an implementation of learner and policy."""
        actor = self.actor(learner)
        fields = {name: getattr(actor, name) for name in ("contestant", "op", "batch", "threads")}
        clock = self._clock(self._ours, "prepare", cell={**fields, "options": {"learner": learner}})
        if isinstance(clock, str):
            raise RecordError(f"an actor's step cannot be timed: {clock}")
        yield actor, clock, STEP
        whole = self._clock(self._ours, "learn", contestant=TREE, learner=learner)
        if isinstance(whole, Together):
            shape = {"capacity": self._workload.replay.capacity, "fanout": self._workload.replay.fanout}
            yield dataclasses.replace(actor, contestant="loop", **shape), whole, STEP

    def _ready(self, trees: Sequence[Cell]) -> tuple[list[Ready], list[Record]]:
        ready, untimed = list[Ready](), list[Record]()
        for learner in implementations(self._workload):
            ready += self._whole(learner)
        for cell in trees:
            is_ours = cell.contestant in impls.names()
            asked = {name: getattr(cell, name) for name in ("contestant", "capacity", "fanout", "dtype")}
            try:
                worker = self._ours if is_ours else self._opened(self._options.python, "learner")
                clock = self._clock(worker, "learn", **asked)
            except (RecordError, WorkerError) as error:
                clock = str(error)
            if isinstance(clock, str):
                parts = (dataclasses.replace(cell, op=op) for op in ("tree", "learning"))
                untimed += [self.stamp.record(part, "skipped", reason=clock) for part in parts]
                continue
            ready.append((cell, clock, STEP))
            if is_ours and AGAIN not in {primitive for _, _, primitive in ready}:
                again = self._clock(worker, "learn", **asked)
                ready += [(cell, again, AGAIN)] if isinstance(again, Together) else []
        return ready, untimed


def main(arguments: list[str] | None = None) -> int:
    """Measure a workload's step; return the exit code 0. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    workload = workload_of(options.workload)
    implementations = _implementations(options)
    path = file_of(options, f"share-{workload.name}.jsonl")
    with ExitStack() as stack:
        made = Shares(stack, workload, options)
        cells = [[made.tree(name) for name in implementations]]
        tally = run(cells, path, made.stamp, made.measure, options, unit="cell", sentinels=Sentinels())
    return show(tally, path, options)


def _trees() -> list[str]:
    """Return the trees of ours that are timed in a step, numba first."""
    return sorted(set(impls.names()) - {*ON_DEVICE, *MODELED}, key=lambda name: (name != "numba", name))


def _implementations(options: argparse.Namespace) -> list[str]:
    """Return the chosen trees, or all of ours that are timed here and, if their environment exists, every library."""
    theirs = has_libraries(options, is_needed=not set(options.contestants or ()) <= set(_trees()))
    return list(options.contestants or (*_trees(), *(tree_names() if theirs else ())))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("share", __doc__, "--workload cartpole_dqn --contestants numba,numpy")
    add_workload(parser)
    add_list(
        parser, "contestants", among("implementation", *_trees(), *tree_names()), help="trees of ours, or libraries"
    )
    add_python(parser)
    add_numbers(parser, sample=(0.1, "seconds of a sample"), budget=(2.0, "seconds of sampling a tree"))
    return add_common(parser)
