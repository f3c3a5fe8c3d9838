"""The clocks of cells: an operation of one thread, or actors and learners on one buffer at once."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..clock import ALL_CPUS, Call, CallClock
from . import rows
from .buffers import Buffer
from .crew import Crew
from .jobs import ROTATING, Job, Outcome, Quota

SAMPLED = 16  # samples that updates take turns in
LEAD_SECONDS = 0.003  # from asking a crew to begin until it does


class Operation:
    """An operation of one buffer by this thread: insert, sample or update of ``batch`` records, or a step: one record
    inserted, then ``batch`` sampled and updated. Updates are of records sampled since the sample before."""

    def __init__(self, buffer: Buffer, op: str, batch: int, sample_seconds: float) -> None:
        rng = np.random.default_rng(0)
        self._buffer, self._op, self._batch = buffer, op, batch
        count = batch if op == "insert" else 1
        numbers = rng.integers(0, rows.MOST, (ROTATING, count))
        self._placed = [buffer.place(rows.made(numbers[turn])) for turn in range(ROTATING)]
        errors = rng.random((ROTATING, batch)).astype(np.float32)
        self._errors = [buffer.place_errors(errors[turn]) for turn in range(ROTATING)]
        self._sampled: list[Any] = []
        self._renew()
        self._clock = CallClock(self._call(), sample_seconds, buffer.wait)
        self.calls_per_sample = self._clock.calls_per_sample

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        self._renew()
        return self._clock.sample()

    def _renew(self) -> None:
        if self._op == "update":
            self._sampled[:] = [self._buffer.keep(self._buffer.sample(self._batch)) for _ in range(SAMPLED)]

    def _call(self) -> Call:
        buffer, batch, placed, errors, sampled = self._buffer, self._batch, self._placed, self._errors, self._sampled

        def step(turn: int) -> None:
            buffer.insert(placed[turn % ROTATING])
            buffer.update(buffer.sample(batch), errors[turn % ROTATING])

        calls: dict[str, Call] = {
            "insert": lambda turn: buffer.insert(placed[turn % ROTATING]),
            "sample": lambda turn: buffer.sample(batch),
            "update": lambda turn: buffer.update(sampled[turn % SAMPLED], errors[turn % ROTATING]),
            "step": step,
        }
        return calls[self._op]


@dataclass
class Together:
    """A clock of jobs that a crew does at once.

    ``read`` makes the seconds of a sample, and those of another cell that the same run times, from the moment at which
    all began and the outcomes; ``before`` comes before every run.
    """

    crew: Crew
    jobs: Callable[[float], list[Job]]
    read: Callable[[float, Sequence[Outcome]], tuple[float, float]]
    before: Callable[[], object] = lambda: None
    calls_per_sample: int = 0
    beside_seconds: float = math.nan

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call. CrewError where a member failed."""
        self.before()
        begin = time.perf_counter() + LEAD_SECONDS
        outcomes = self.crew.run(self.jobs(begin))
        self.calls_per_sample = max(1, min(outcome.iterations for outcome in outcomes))
        seconds, self.beside_seconds = self.read(begin, outcomes)
        return seconds


def cpus_of(member: int, members: int) -> tuple[int, ...]:
    """Return the CPUs of a member: one of its own where there are enough, or any."""
    return ALL_CPUS if members > len(ALL_CPUS) else ALL_CPUS[member : member + 1]


def stretch(crew: Crew, jobs: Sequence[Job], seconds: float, is_slowest: bool = True) -> Together:
    """Return the clock of jobs that run for so many seconds: of the slowest's iteration, or of the first's.

    The cell beside it is of the last's iteration.
    """

    def begun(begin: float) -> list[Job]:
        return [dataclasses.replace(job, begin=begin, end=begin + seconds) for job in jobs]

    def read(begin: float, outcomes: Sequence[Outcome]) -> tuple[float, float]:
        each = [outcome.seconds for outcome in outcomes]
        return max(each) if is_slowest else each[0], each[-1]

    return Together(crew, begun, read)


def quota(crew: Crew, job: Job, shares: Quota, before: Callable[[], object]) -> Together:
    """Return the clock of a quota: seconds of wall time, until the last member is done, for each gradient step."""
    members = shares.actors + shares.learners
    roles = ["actor"] * shares.actors + ["learner"] * shares.learners

    def begun(begin: float) -> list[Job]:
        job_of = functools.partial(dataclasses.replace, job, begin=begin, quota=shares)
        return [job_of(role=role, index=index, cpus=cpus_of(index, members)) for index, role in enumerate(roles)]

    def read(begin: float, outcomes: Sequence[Outcome]) -> tuple[float, float]:
        return (max(outcome.ended for outcome in outcomes) - begin) / shares.total, math.nan

    return Together(crew, begun, read, before)
