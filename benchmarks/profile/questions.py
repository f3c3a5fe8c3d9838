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
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import impls
from dse.records import Measurement, RecordError
from impls.replay import PrioritizedBuffer
from impls.terminal import count
from impls.training import Workload

from ..arguments import add_common, list_of, parser_of
from ..clock import ALL_CPUS, Call, Clock, StretchClock, pin
from ..run import Stamp, file_of, report, run
from ..timing import interleave
from ..worker import threads
from .cells import TREE, Cell, options_of
from .command import workload_of
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

    def insertions(self, asked: Sequence[Workload]) -> Iterator[Measurement]:
        """Records of an insertion into the buffers of workloads."""
        cells = [(self.cell(one, "buffer", "insert"), STEP) for one in asked]
        yield from self._timed(cells, (_insertion(_world(one)) for one in asked))

    def loops(self, asked: Sequence[Workload]) -> Iterator[Measurement]:
        """Records of the loops of workloads, and of the first one's twin."""
        cells = [*((self.cell(one), QUESTION) for one in asked), (self.cell(asked[0]), AGAIN)]
        yield from self._timed(cells, (Loop(_world(one), TREE).call for one in (*asked, asked[0])))

    def _timed(self, cells: Sequence[tuple[Cell, str]], calls: Iterable[Call]) -> Iterator[Measurement]:
        try:
            made = list(calls)
        except MemoryError as error:
            raise RecordError(f"{cells[0][0].options['workload']}: {error}") from None
        clocks: list[Clock] = [StretchClock(call, self.sample_seconds) for call in made]
        timings = interleave(clocks, self.budget_seconds * len(clocks), self.seed)
        for (cell, primitive), timing in zip(cells, timings, strict=True):
            yield self.stamp.timed(cell, timing, {"affinity": list(ALL_CPUS[:1])}, primitive=primitive)


def _world(workload: Workload) -> World:
    return World(workload, 0, STORAGE_BYTES)


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
    workloads = [workload_of(name)[0] for name in options.workloads]
    path = file_of(options.results, FILE)
    made = Run(Stamp.of_this_run(QUESTION), options.sample, options.budget, options.seed)
    named = {"name": lambda one: made.stamp.cell(made.cell(one, "buffer", "insert"), primitive=STEP)}
    asked = [questions(workload, options.count, options.seed) for workload in workloads]
    how = {"name": lambda one: made.stamp.cell(made.cell(one)), "unit": "question", "bar": not options.json}
    with _one_core():
        run([[workload] for workload in workloads], path, made.stamp, made.insertions, **named)
        tally = run(asked, path, made.stamp, made.loops, **how)
    return report(tally, path, options.json)


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
    parser = parser_of("loop-questions", __doc__)
    named = {"type": list_of(str), "metavar": "A,B,.."}
    parser.add_argument("--workloads", **named, default=WORKLOADS, help=f"default: {','.join(WORKLOADS)}")
    parser.add_argument("--count", type=count, default=3, help="of questions a workload (default: %(default)s)")
    parser.add_argument("--sample", type=float, default=0.5, help="seconds of a sample (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of sampling a loop (default: %(default)s)")
    return add_common(parser, seed_of="the questions", seed=QUESTION_SEED)
