"""The serial loop's rate at another batch and update interval, foretold from records of the workload as it is.

Nothing is fitted to a loop of another shape. A gradient step of the loop takes what it takes at the workload's own
batch and interval, measured whole, plus what differs:

    T(B, u) = T(B0, u0) + (u - u0) (actor + insertion / n) + sum over parts of part(B) - part(B0)

The parts are the gradient step, the tree's draw and its update, and the gather, each timed alone. What the loop adds to
them (Python in between, caches that the others leave cold) is in T(B0, u0), and taken to be the same at any B and u.

Letters: B batch, u environment steps a gradient step, B0 and u0 the workload's own, n records of a local storage.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from impls.training import Workload, WorkloadError, load

from .. import stats
from ..records import Measurement, RecordError, twins
from . import primitives
from .primitives import PerformanceTable, timed
from .problem import Timed

QUESTION = "loop_question"
STEP = "serial_step"
PARTS = ("learner step", "numba draw", "numba update")
LEAST = 0.01  # of T(B0, u0), that anything takes at least


@dataclass(frozen=True)
class Term:
    """``times`` so often a number: what a prediction is the sum of. Times may be below 0."""

    times: float
    number: Timed


@dataclass(frozen=True)
class Prediction:
    """Seconds of a gradient step with the 95 % interval, and the terms it is the sum of."""

    seconds: float
    low: float
    high: float
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Answered:
    """A question with both: seconds of a gradient step, predicted and measured.

    ``is_control``: the workload as it is, in the questions' run. Its error is what the machine changed by since.
    """

    workload: str
    batch: int
    update_interval: int
    predicted: Prediction
    measured: Measurement
    is_control: bool

    @property
    def error(self) -> float:
        """Of the predicted steps a second against the measured ones: -0.1 is a tenth too few."""
        return self.measured.seconds / self.predicted.seconds - 1

    @property
    def is_inside(self) -> bool:
        """Whether the intervals of both overlap."""
        low, high = self.measured.low_seconds or 0.0, self.measured.high_seconds or math.inf
        return self.predicted.low <= high and low <= self.predicted.high


@dataclass(frozen=True)
class Loop:
    """What is known of a workload's loop as it is: the whole, an environment step, an insertion, the parts' table."""

    workload: Workload
    whole: Timed
    actor: Timed
    insertion: Timed
    table: PerformanceTable

    @classmethod
    def of(cls, found: Sequence[Measurement], workload: Workload) -> "Loop":
        """From one machine's records. RecordError for a number that nothing has."""
        identity = primitives.identity(workload)
        floor = stats.noise_floor(twins(found, STEP))
        steps = {
            f"{one.contestant} {one.op}": _timed(one, floor)
            for one in found
            if one.primitive == STEP and one.options.get("identity") == identity and one.median_seconds
        }
        table = primitives.of_records(list(found), "", workload)
        actor = table.time("actor step", 1)
        for number, command in (("loop step", "share"), ("buffer insert", "loop-questions")):
            if number not in steps:
                raise _missing(workload, number, command)
        if actor is None:
            raise _missing(workload, "actor step", "profile")
        return cls(workload, steps["loop step"], actor, steps["buffer insert"], table)

    def predict(self, batch: int, update_interval: int) -> Prediction:
        """Of a gradient step; the terms' errors are taken as independent. RecordError for a part without a time."""
        terms = tuple(self._terms(batch, update_interval))
        seconds = sum(term.times * term.number.seconds for term in terms)
        below = math.hypot(*(_error(term, term.times < 0) for term in terms))
        above = math.hypot(*(_error(term, term.times > 0) for term in terms))
        least = LEAST * self.whole.seconds
        seconds = max(seconds, least)
        return Prediction(seconds, max(seconds - below, least), seconds + above, terms)

    def _terms(self, batch: int, interval: int) -> Iterator[Term]:
        own = self.workload.learner
        more = interval - own.update_interval
        yield Term(1, self.whole)
        if more:
            yield Term(more, self.actor)
            yield Term(more / self.workload.actors.local_storage, self.insertion)
        if batch == own.batch:
            return
        for part in PARTS:
            yield Term(1, self._part(part, batch))
            yield Term(-1, self._part(part, own.batch))
        gather = self._part("storage gather", own.batch)
        yield Term(batch / own.batch - 1, replace(gather, source="extrapolated"))  # each record is read by itself

    def _part(self, what: str, batch: int) -> Timed:
        known = self.table.time(what, batch)
        if known is None:
            raise _missing(self.workload, what, "profile")
        return known


def _missing(workload: Workload, what: str, command: str) -> RecordError:
    told = "" if command == "loop-questions" else f" --workload {workload.name}"
    return RecordError(
        f"{workload.name}: no {what} from before the questions; measure it, then them: "
        f"python -m benchmarks {command}{told}"
    )


def _timed(one: Measurement, floor: float) -> Timed:
    low, high = one.low_seconds or one.seconds, one.high_seconds or one.seconds
    sigma = stats.log_sigma(stats.Interval(one.seconds, low, high), floor)
    return timed(one.seconds, math.exp(primitives.Z * sigma), "measured", f"{one.contestant} {one.op}")


def _error(term: Term, upwards: bool) -> float:
    """Seconds from a term to the end of its interval."""
    number = term.number
    return abs(term.times) * (number.high - number.seconds if upwards else number.seconds - number.low)


def answers(found: Sequence[Measurement], workload: Workload) -> list[Answered]:
    """Every question about a workload that one machine's records hold, by batch, the control first.

    Only records from before the first question count. RecordError where they do not suffice; empty without questions.
    """
    asked = [
        one
        for one in found
        if one.primitive == QUESTION and one.options.get("workload") == workload.name and one.median_seconds
    ]
    if not asked:
        return []
    first = min(one.utc for one in asked)
    loop = Loop.of([one for one in found if one.utc <= first], workload)
    own = (workload.learner.batch, workload.learner.update_interval)
    answered = []
    for one in asked:
        shape = (one.batch, int(one.options["update_interval"]))
        answered.append(Answered(workload.name, *shape, loop.predict(*shape), one, shape == own))
    return sorted(answered, key=lambda one: (not one.is_control, one.batch, one.update_interval))


def every_answer(found: Sequence[Measurement]) -> tuple[list[Answered], list[str]]:
    """Of all workloads that questions were measured of, and a sentence for each that nothing can be said of."""
    answered, faults = list[Answered](), list[str]()
    for name in sorted({str(one.options["workload"]) for one in found if one.primitive == QUESTION}):
        try:
            answered += answers(found, load(name))
        except (RecordError, WorkloadError) as error:
            faults.append(str(error))
    return answered, faults


def median_error(answered: Sequence[Answered]) -> float:
    """Of the errors' sizes, controls left out. ValueError without any."""
    return median(abs(one.error) for one in answered if not one.is_control)
