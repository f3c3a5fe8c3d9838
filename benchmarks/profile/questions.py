"""How fast is the serial loop at random batches and update intervals? Predictions of it are tested with the answers.

The loop trains as it always does, from a full buffer on, by one thread on one core, the questions of a workload in
turns with the unchanged workload, which shows how fast the machine was meanwhile. Before them an insertion into the
unchanged workload's buffer is timed, the one part of a step that neither a profile nor a share has. No prediction rests
on the questions. Interrupt it as you like: the same command goes on where it stopped. Records go to
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
from impls.training import Workload

from ..arguments import add_common, add_list, add_numbers, parser_of
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
    """Return the workload, and ``count`` variants with a random batch and update interval, both log-uniform."""
    rng = np.random.default_rng([seed, *workload.name.encode()])
    variants = [workload]
    for _ in range(count):
        batch, interval = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in (BATCHES, UPDATE_INTERVALS))
        learner = dataclasses.replace(workload.learner, batch=batch, update_interval=interval)
        variants.append(dataclasses.replace(workload, learner=learner))
    return variants


@dataclasses.dataclass(frozen=True)
class Run:
    """How samples are taken (seconds of a sample, and of sampling a cell) and records are stamped."""

    stamp: Stamp
    sample_seconds: float
    budget_seconds: float
    seed: int

    def cell(self, asked: Workload, contestant: str = "loop", op: str = "step") -> Cell:
        """Return the cell of a workload's loop, a call a gradient step, or of an insertion of its local storage."""
        replay, batch = asked.replay, asked.learner.batch if op == "step" else asked.actors.local_storage
        options = options_of(asked) | ({"seed": self.seed} if op == "step" else {})
        return Cell(contestant, op, options, batch, capacity=replay.capacity, fanout=replay.fanout)

    def insertions(self, asked: Sequence[Workload]) -> Iterator[Measurement]:
        """Yield the records of an insertion into each workload's buffer."""
        cells = [(self.cell(workload, "buffer", "insert"), STEP) for workload in asked]
        yield from self._timed(cells, (_insertion(_world(workload)) for workload in asked))

    def loops(self, asked: Sequence[Workload]) -> Iterator[Measurement]:
        """Yield the records of the workloads' loops, and of the first loop's A/A twin."""
        cells = [*((self.cell(workload), QUESTION) for workload in asked), (self.cell(asked[0]), AGAIN)]
        yield from self._timed(cells, (Loop(_world(workload), TREE).call for workload in (*asked, asked[0])))

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
    """Make the call that inserts a full local storage into a full buffer."""
    replay, size = world.workload.replay, world.workload.actors.local_storage
    tree = impls.make(TREE, replay.capacity, fanout=replay.fanout)
    buffer = PrioritizedBuffer(tree, world.layout, alpha=replay.alpha, epsilon=replay.epsilon)
    fill(buffer, world)
    rows, errors = world.records(size), world.rng.random(size).astype(np.float32)
    return lambda turn: buffer.insert(rows, errors if replay.initial_priority == "td_error" else None)


def main(arguments: list[str] | None = None) -> int:
    """Measure the questions; return the exit code 0. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    workloads = [workload_of(name)[0] for name in options.workloads]
    path = file_of(options.results, FILE)
    made = Run(Stamp.of_this_run(QUESTION), options.sample, options.budget, options.seed)
    named = {"name": lambda workload: made.stamp.cell(made.cell(workload, "buffer", "insert"), primitive=STEP)}
    asked = [questions(workload, options.count, options.seed) for workload in workloads]
    how = {"name": lambda workload: made.stamp.cell(made.cell(workload)), "unit": "question", "bar": not options.json}
    with _one_core():
        run([[workload] for workload in workloads], path, made.stamp, made.insertions, **named)
        tally = run(asked, path, made.stamp, made.loops, **how)
    return report(tally, path, options.json)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """Keep all threads on the first core meanwhile, and torch at one thread; torch has counted every core before."""
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
    parser = parser_of("loop-questions", __doc__, "--workloads cartpole_dqn --count 3")
    text = f"names or files of workloads (default: {','.join(WORKLOADS)})"
    add_list(parser, "workloads", str, default=WORKLOADS, help=text)
    seconds = {"sample": (0.5, "seconds of a sample"), "budget": (6.0, "seconds of sampling a loop")}
    add_numbers(parser, count=(3, "questions of a workload"), **seconds)
    return add_common(parser, seed_of="the questions", seed=QUESTION_SEED)
