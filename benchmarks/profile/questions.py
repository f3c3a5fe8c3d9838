"""Time the serial loop at batches and update intervals that a seed draws: what predictions of it are tested with.

The loop trains as it always does, from a full buffer on, by one thread on one core, the questions of a workload in
turns, and the unchanged workload with them: it tells how fast the machine was meanwhile. Before them, an insertion into
the unchanged workload's buffer, the one part of a step that neither a profile nor a share has. No prediction rests on
the questions. Interrupt it as you like: the same command goes on where it stopped. The records go to
results/<machine>/loop-questions.jsonl.
"""

import argparse
import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import impls
from dse import platforms, records
from dse.records import Measurement, RecordError
from impls.replay import PrioritizedBuffer
from impls.terminal import Progress, count
from impls.training import TrainingError, Workload, load

from ..arguments import list_of
from ..clock import ALL_CPUS, Call, Clock, StretchClock, pin
from ..stamp import Stamp
from ..sweep import Tally, is_of, there
from ..timing import interleave
from ..worker import threads
from .cells import TREE, Cell, options_of
from .command import need_packages, report
from .parts import World
from .serial import Loop, fill
from .share import STEP, STORAGE_BYTES

QUESTION_SEED = 20_261_122
WORKLOADS = ("cartpole_dqn", "hopper_ddpg")
BATCHES = (32, 1_024)
UPDATE_INTERVALS = (1, 16)
QUESTION, AGAIN = "loop_question", "loop_question_again"
FILE = "loop-questions.jsonl"


def questions(workload: Workload, count: int, seed: int = QUESTION_SEED) -> list[Workload]:
    """The workload, and ``count`` times with a batch and an update interval of its own, both log-uniform."""
    rng = np.random.default_rng([seed, *workload.name.encode()])
    drawn = [workload]
    for _ in range(count):
        batch, interval = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in (BATCHES, UPDATE_INTERVALS))
        learner = dataclasses.replace(workload.learner, batch=batch, update_interval=interval)
        drawn.append(dataclasses.replace(workload, learner=learner))
    return drawn


@dataclasses.dataclass(frozen=True)
class Run:
    """How samples are taken and records are stamped; seconds of a sample, and of sampling a cell."""

    stamp: Stamp
    sample_seconds: float
    budget_seconds: float
    seed: int

    def cell(self, asked: Workload, contestant: str = "loop", op: str = "step") -> Cell:
        """The loop's on a workload, a call a gradient step; or that of an insertion of the local storage."""
        replay, batch = asked.replay, asked.learner.batch if op == "step" else asked.actors.local_storage
        options = options_of(asked) | ({"seed": self.seed} if op == "step" else {})
        return Cell(contestant, op, options, batch, capacity=replay.capacity, fanout=replay.fanout)

    def measure(self, workload: Workload, asked: Sequence[Workload], done: set[str]) -> Iterator[Measurement]:
        """Records of what is not done: of the insertion first, then of all loops and of the first one's twin."""
        insertion = self.cell(workload, "buffer", "insert")
        if self.stamp.record(insertion, "skipped", primitive=STEP).cell not in done:
            yield from self._timed([(insertion, _insertion(World(workload, 0, STORAGE_BYTES)), STEP)])
        cells = [(one, self.cell(one)) for one in asked]
        todo = [pair for pair in cells if self.stamp.record(pair[1], "skipped", primitive=QUESTION).cell not in done]
        kinds = [*((pair, QUESTION) for pair in todo), *((pair, AGAIN) for pair in todo[:1])]
        yield from self._timed(
            [(cell, Loop(World(one, 0, STORAGE_BYTES), TREE).call, kind) for (one, cell), kind in kinds]
        )

    def _timed(self, calls: Sequence[tuple[Cell, Call, str]]) -> Iterator[Measurement]:
        clocks: list[Clock] = [StretchClock(call, self.sample_seconds) for _, call, _ in calls]
        timings = interleave(clocks, self.budget_seconds * len(clocks), self.seed) if clocks else []
        machine = {**self.stamp.machine, "affinity": list(ALL_CPUS[:1])}
        for (cell, _, primitive), timing in zip(calls, timings, strict=True):
            yield self.stamp.timed(cell, timing, machine=machine, primitive=primitive)


def _insertion(world: World) -> Call:
    """A full local storage into a full buffer."""
    replay, size = world.workload.replay, world.workload.actors.local_storage
    tree = impls.make(TREE, replay.capacity, fanout=replay.fanout)
    buffer = PrioritizedBuffer(tree, world.layout, alpha=replay.alpha, epsilon=replay.epsilon)
    fill(buffer, world)
    rows, errors = world.records(size), world.rng.random(size).astype(np.float32)
    return lambda turn: buffer.insert(rows, errors if replay.initial_priority == "td_error" else None)


def main(arguments: list[str] | None = None) -> int:
    """Measure the questions; returns the exit code. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    need_packages()
    path = options.results / str(platforms.fingerprint()["key"]) / FILE
    run, tally = Run(Stamp.of_this_run(QUESTION), options.sample, options.budget, options.seed), Tally()
    total = (options.count + 1) * len(options.workloads)
    progress = Progress(total, "question", bar=not options.json)
    with _one_core(), records.Writer(path) as writer, progress:
        done = {record.cell for record in there(path) if is_of(run.stamp, record)}
        for name in options.workloads:
            try:
                workload = load(name)
                for record in run.measure(workload, questions(workload, options.count, options.seed), done):
                    writer.append(record)
                    if record.primitive == QUESTION:
                        tally.add(record.status)
                        progress.update(1)
            except (TrainingError, MemoryError) as error:
                raise RecordError(f"{name}: {error}") from None
    tally.resumed = total - sum(tally.by_status.values())
    tally.pairs = records.twins((one for one in there(path) if is_of(run.stamp, one)), QUESTION)
    return report(tally, total, path, options.json)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """All threads on the first core meanwhile, from when torch has counted every one; torch with one thread."""
    import torch  # noqa: PLC0415  # heavy

    count = torch.get_num_threads()
    torch.set_num_threads(1)
    pin(1, threads())
    try:
        yield
    finally:
        pin(len(ALL_CPUS), threads())
        torch.set_num_threads(count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks loop-questions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    named = {"type": list_of(str), "metavar": "A,B,.."}
    parser.add_argument("--workloads", **named, default=WORKLOADS, help=f"default: {','.join(WORKLOADS)}")
    parser.add_argument("--count", type=count, default=3, help="of questions a workload (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=QUESTION_SEED, help="of the questions (default: %(default)s)")
    parser.add_argument("--sample", type=float, default=0.5, help="seconds of a sample (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of sampling a loop (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
