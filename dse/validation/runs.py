"""Read files of answers with what was measured of them, and say which count: a run is one file.

A run counts where its seed is its commit's, its answers existed before anything was measured, and its predictor is
the present one. Every other one is voided, and keeps its figures.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from impls.writing import list_files

from ..questions import Asked, Row, is_measured
from ..records import RecordError, in_order
from ..times.tree_times import Question
from ..times.tree_variants import Configuration
from .asking import ASK, LoopQuestion, seed_of
from .predictor import Side, changed_at, present

MEASURE: Mapping[Side, str] = {"trees": "questions", "loops": "loop-questions"}
"""The command of benchmarks that measures each side of a file."""
PATTERN = "questions-*.json"


@dataclass(frozen=True)
class Candidate:
    """A configuration with its answer and the seconds that a step then took; None where it was not timed."""

    configuration: Configuration
    seconds: float
    low: float
    high: float
    basis: str
    measured: float | None

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured time. ValueError where there is none."""
        if self.measured is None:
            raise ValueError(f"{self.configuration} was not timed")
        return self.low <= self.measured <= self.high


@dataclass(frozen=True)
class TreeCheck:
    """A question with its candidates, of which the first was the choice and those at ``ties`` tied with it.

    ``is_alone``: the choice alone was asked about, so that no regret is known.
    """

    question: Question
    candidates: tuple[Candidate, ...]
    ties: tuple[int, ...]
    is_alone: bool

    @cached_property
    def best(self) -> int:
        """The position of the candidate that was measured to be the fastest."""
        timed = {at: one.measured for at, one in enumerate(self.candidates) if one.measured is not None}
        return min(timed, key=timed.__getitem__)

    @property
    def regret(self) -> float:
        """By which fraction the choice took longer than the best one. ValueError where the choice was not timed."""
        chosen, best = self.candidates[0].measured, self.candidates[self.best].measured
        if chosen is None or best is None:
            raise ValueError(f"the choice for {self.question} was not timed")
        return chosen / best - 1


@dataclass(frozen=True)
class LoopCheck:
    """A question about a loop with its answer, steps/s, and the ``measured_hz``."""

    question: LoopQuestion
    hz: float
    low: float
    high: float
    measured_hz: float
    is_unstable: bool = False

    @property
    def error(self) -> float:
        """The relative error of the answer: -0.1 is a tenth too few steps/s."""
        return self.hz / self.measured_hz - 1

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured rate."""
        return self.low <= self.measured_hz <= self.high


@dataclass(frozen=True)
class Run(Asked):
    """A file of questions with its answers and what was measured of them."""

    @property
    def utc(self) -> str:
        """When the answers were written."""
        return str(self.head.get("utc", ""))

    def refused(self, side: Side) -> list[str]:
        """List the reasons why questions of a side have no answer."""
        return [str(rows[0]["reason"]) for rows in self.questions(side) if all("reason" in row for row in rows)]

    @cached_property
    def trees(self) -> list[TreeCheck]:
        """The questions about trees whose candidates were all measured, and whose choice has a time."""
        groups = self.answered("trees")
        return [_tree(rows) for rows in groups if all(map(is_measured, rows)) and "measured" in rows[0]]

    @cached_property
    def loops(self) -> list[LoopCheck]:
        """The questions about loops that were timed, controls among them."""
        return [_loop(row) for (row,) in self.answered("loops") if "measured" in row]

    def unmeasured(self, side: Side) -> int:
        """Count the questions with an answer that have no time, or not of all candidates; controls left out."""
        asked = [rows for rows in self.answered(side) if not rows[0].get("is_control")]
        return len(asked) - len(self.trees if side == "trees" else counted(self.loops))

    def void(self, side: Side) -> str:
        """Say why a side of the run does not count; "" where it does."""
        head = self.head
        if by := head.get("answered_afterwards_by"):
            return f"answers not written before measuring, but afterwards by the code of {by[:8]}"
        if head.get("seed_from") != "commit":
            return "seed chosen by hand"
        if head["seed"] != seed_of(head["commit"], head["number"]):
            return "the seed is not its commit's"
        if any(row["utc"] < self.utc for row in self.rows if is_measured(row)):
            return "measured before the answers were written"
        known = head["predictors"][side]
        if known == present(side):
            return ""
        at = changed_at(side, head["commit"], known)
        return f"predictor changed at {at}" if at else "predictor changed since"


def _tree(rows: Sequence[Row]) -> TreeCheck:
    shape = {name: rows[0][name] for name in ("capacity", "batch", "updates_per_sample", "dtype", "distribution")}
    candidates = tuple(map(_candidate, rows))
    ties = tuple(at for at, row in enumerate(rows) if row.get("is_tie"))
    return TreeCheck(Question(threads=rows[0]["cores"], **shape), candidates, ties, len(rows) == 1)


def _candidate(row: Row) -> Candidate:
    shape = {name: row[name] for name in ("contestant", "fanout", "threads")}
    chosen = Configuration(options=tuple(row["options"].items()), **shape)
    ends = row["low"], row["high"]
    return Candidate(chosen, row["told"], *ends, row["basis"], row.get("measured"))


def _loop(row: Row) -> LoopCheck:
    question = LoopQuestion(**{field.name: row[field.name] for field in dataclasses.fields(LoopQuestion)})
    return LoopCheck(question, row["told"], row["low"], row["high"], row["measured"], row["status"] == "unstable")


def counted(checks: Iterable[LoopCheck]) -> list[LoopCheck]:
    """Leave the controls out."""
    return [one for one in checks if not one.question.is_control]


def read(path: Path) -> Run:
    """Read a file of answers. RecordError for a file that holds no answers."""
    try:
        run = Run.read(path)
        for side in MEASURE:
            run.unmeasured(side)  # reads every answer
        return run
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: no file of answers ({error}); one is written by: {ASK}") from None


def read_all(folder: Path) -> list[Run]:
    """Read every file of answers of a machine's folder, the oldest first."""
    return in_order(map(read, sorted(list_files(folder, PATTERN), key=lambda path: path.stem)))
