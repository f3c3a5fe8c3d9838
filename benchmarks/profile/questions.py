"""How fast is the serial loop at the shapes of a file of questions, which holds the predictions already?

`python -m dse validate --ask` writes such a file; by default it is the newest of this machine with loops left. A loop
trains as it always does, from a full buffer on, by the learner, the policy and as many threads as the question says, on
as many cores, in alternation with the other questions of its workload and with the unchanged workload, the control. No
prediction rests on these records. Interrupt it as you like: the same command resumes where it stopped.
With --arrangements, or a file that `python -m dse validate --ask --loops` wrote, it measures arrangements of processes.
"""

import argparse
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from dse.platforms.evidence import CORES
from dse.questions import Row
from dse.records import Measurement
from impls.training import TrainingError, Workload, learners

from ..arguments import add_common, add_numbers, parser_of
from ..clock import ALL_CPUS, Clock, StretchClock, pin
from ..questions import add_file, asked_about, chosen, is_sentinel, keeping, left, with_done
from ..run import Stamp, report, run
from ..sentinels import Sentinels
from ..timing import interleave
from ..worker import NOT_HERE, threads
from .cells import TREE, Cell, options_of
from .command import workload_of
from .parts import World
from .serial import Loop
from .share import STORAGE_BYTES

QUESTION, AGAIN = "loop_question", "loop_question_again"


@dataclasses.dataclass(frozen=True)
class Question:
    """A workload at the shape asked for, and the implementations and threads that train it."""

    workload: Workload
    threads: int
    learner: str
    policy: str

    @property
    def cell(self) -> Cell:
        """The cell of the loop, a call a gradient step."""
        replay = self.workload.replay
        shape = {"threads": self.threads, "capacity": replay.capacity, "fanout": replay.fanout}
        options = {**options_of(self.workload), "learner": self.learner, "policy": self.policy}
        return Cell("loop", "step", options, self.workload.learner.batch, **shape)


def _question(row: Row) -> Question:
    workload = workload_of(row["workload"])[0]
    learner = dataclasses.replace(workload.learner, batch=row["batch"], update_interval=row["update_interval"])
    shaped = dataclasses.replace(workload, learner=learner)
    return Question(shaped, row["threads"], row["learner"], row["policy"])


@dataclasses.dataclass(frozen=True)
class Run:
    """How samples are taken (seconds of a sample, and of sampling a loop) and records are stamped."""

    stamp: Stamp
    sample_seconds: float
    budget_seconds: float

    def name(self, question: Question) -> str:
        """Return the ``cell`` of a question's record."""
        return self.stamp.cell(question.cell)

    def loops(self, asked: Sequence[Question]) -> Iterator[Measurement]:
        """Yield the records of loops of one number of threads, and of the A/A twin of the first that can be made."""
        cores = asked[0].threads
        with on_cores(cores):
            ready: list[tuple[Question, Clock, str]] = []
            for question in asked:
                outcome = self._clock(question)
                if isinstance(outcome, str):
                    yield self.stamp.record(question.cell, "skipped", reason=outcome)
                else:
                    ready.append((question, outcome, QUESTION))
            if ready and not isinstance(again := self._clock(ready[0][0]), str):
                ready.append((ready[0][0], again, AGAIN))
            timings = interleave([clock for _, clock, _ in ready], self.budget_seconds * len(ready))
        where = {"affinity": list(ALL_CPUS[:cores])}
        for (question, _, primitive), timing in zip(ready, timings, strict=True):
            yield self.stamp.timed(question.cell, timing, where, primitive=primitive)

    def _clock(self, question: Question) -> Clock | str:
        """Return a clock of a question's loop, or why there is none."""
        if question.threads > CORES:
            return f"{question.threads} threads, and {CORES} cores"
        try:
            loop = Loop(World(question.workload, 0, STORAGE_BYTES), TREE, question.learner, question.policy)
            return StretchClock(loop.call, self.sample_seconds)
        except (TrainingError, *NOT_HERE, OSError, ImportError) as error:
            return str(error) or "not enough memory"


@contextlib.contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Keep all threads on the first cores meanwhile, and learners at as many; torch has counted every core before."""
    import torch  # noqa: PLC0415  # heavy

    before = torch.get_num_threads()
    learners.use_threads(count)
    pin(count, threads())
    try:
        yield
    finally:
        pin(len(ALL_CPUS), threads())
        learners.use_threads(before)


def main(arguments: list[str] | None = None) -> int:
    """Measure the questions; return the exit code 0. RecordError with one sentence where that cannot be done."""
    options = _parser().parse_args(arguments)
    made = Run(Stamp.of_this_run(QUESTION), options.sample, options.budget)
    asked = chosen(options.file, options.results, "loops")
    todo = [(_question(row), row) for row in left(asked, "loops")]
    questions = sorted((one for one, _ in todo), key=_order)
    groups = [list(group) for _, group in itertools.groupby(questions, _order)]
    kept = keeping(asked, [(row, [made.name(one)]) for one, row in todo], made.loops, lambda row, seconds: 1 / seconds)
    how: dict[str, Any] = {"name": made.name, "unit": "question", "bar": not options.json, "sentinels": Sentinels()}
    tally = run(groups, asked.records, made.stamp, kept, **how, keeps=is_sentinel)
    return report(with_done(tally, len(asked_about(asked, "loops")) - len(todo)), asked.table, options.json)


def _order(one: Question) -> tuple[str, int]:
    """The workload and the number of threads, by which questions are grouped."""
    return one.workload.name, one.threads


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("loop-questions", __doc__, "")
    add_file(parser)
    seconds = {"sample": (0.5, "seconds of a sample"), "budget": (6.0, "seconds of sampling a loop")}
    add_numbers(parser, **seconds)
    return add_common(parser)
