"""Read files of answers beside what was measured of them, and say which count: a run is one file with its records.

A run counts where its seed is its commit's, its answers were there before anything was measured, and its predictor is
the present one. Every other one is voided, and keeps its figures. Older forms are read too: ``answers-*.json`` holds
the chosen configuration alone.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..records import Measurement, RecordError, read_file
from ..times.tree_times import Question
from ..times.tree_variants import Configuration
from ..times.whole_runs import REFERENCE
from .asking import ASK, LoopQuestion, seed_of
from .predictor import Side, changed_at, present

MEASURE: Mapping[Side, str] = {"trees": "questions", "loops": "loop-questions"}
"""The command of benchmarks that measures each side of a file."""
BY = ("learner", "policy")
"""The implementations of a loop, which older files and records do not name."""
PATTERNS = ("questions-*.json", "answers-*.json")


@dataclass(frozen=True)
class Candidate:
    """A configuration with its answer and the seconds that a step then took; None where it was not timed.

    ``probability_best`` is None in older files.
    """

    configuration: Configuration
    seconds: float
    low: float
    high: float
    basis: str
    probability_best: float | None
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

    ``regret_95`` is None in older files, which hold the choice alone.
    """

    question: Question
    candidates: tuple[Candidate, ...]
    ties: tuple[int, ...]
    regret_95: float | None

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
    """A question about a loop with its answer, steps a second, and the ``measured_hz``."""

    question: LoopQuestion
    hz: float
    low: float
    high: float
    measured_hz: float
    is_unstable: bool = False

    @property
    def error(self) -> float:
        """The relative error of the answer: -0.1 is a tenth too few steps a second."""
        return self.hz / self.measured_hz - 1

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured rate."""
        return self.low <= self.measured_hz <= self.high


@dataclass(frozen=True)
class Run:
    """A file of answers as plain values, and the records of what was measured of it."""

    path: Path
    plain: Mapping[str, Any]
    records: tuple[Measurement, ...]

    @property
    def utc(self) -> str:
        """When the answers were written."""
        return str(self.plain.get("utc", ""))

    def asked(self, side: Side) -> list[Mapping[str, Any]]:
        """List the questions that have an answer."""
        return [one for one in self.plain.get(side, ()) if "reason" not in one]

    def refused(self, side: Side) -> list[Mapping[str, Any]]:
        """List the questions without an answer, each with its reason."""
        return [one for one in self.plain.get(side, ()) if "reason" in one]

    @cached_property
    def _first(self) -> dict[str, Measurement]:
        """The record of each cell by the run that measured it first: measuring again changes nothing.

        A run itself measures cells again that the machine disturbed, and then its last record counts.
        """
        first: dict[str, Measurement] = {}
        for record in self.records:
            if cell := _cell_of(record):
                known = first.setdefault(cell, record)
                if (known.commit, known.command) == (record.commit, record.command):
                    first[cell] = record
        return first

    @cached_property
    def trees(self) -> list[TreeCheck]:
        """The questions about trees whose candidates all have records, and whose choice has a time."""
        checks = (self._tree(one) for one in self.asked("trees"))
        return [one for one in checks if one]

    @cached_property
    def loops(self) -> list[LoopCheck]:
        """The questions about loops that were timed, controls among them."""
        checks = (self._loop(one) for one in self.asked("loops"))
        return [one for one in checks if one]

    def unmeasured(self, side: Side) -> int:
        """Count the questions with an answer that have no time, or not of all candidates; controls left out."""
        asked = [one for one in self.asked(side) if not one.get("is_control")]
        return len(asked) - len(self.trees if side == "trees" else counted(self.loops))

    def _tree(self, plain: Mapping[str, Any]) -> TreeCheck | None:
        question = Question(**plain["question"])
        candidates = [self._candidate(question, one) for one in plain["candidates"]]
        done = [one for one in candidates if one]
        if len(done) < len(candidates) or done[0].measured is None:
            return None
        return TreeCheck(question, tuple(done), tuple(plain.get("ties", ())), plain.get("regret_95"))

    def _candidate(self, question: Question, plain: Mapping[str, Any]) -> Candidate | None:
        """Read one candidate; None where its draw or its update has no record yet."""
        fields = plain["configuration"]
        chosen = Configuration(**fields | {"options": tuple((key, value) for key, value in fields["options"])})
        shape = dataclasses.asdict(question) | {"options": dict(chosen.options)}
        shape |= {name: getattr(chosen, name) for name in ("contestant", "fanout", "threads")}
        draw, update = (self._first.get(_cell({**shape, "op": op}, _TREE)) for op in ("draw", "update"))
        if draw is None or update is None:
            return None
        measured = None
        if draw.median_seconds is not None and update.median_seconds is not None:
            measured = draw.median_seconds + question.updates_per_sample * update.median_seconds
        ends, probability = (plain["low_seconds"], plain["high_seconds"]), plain.get("probability_best")
        return Candidate(chosen, plain["seconds"], *ends, plain["basis"], probability, measured)

    def _loop(self, plain: Mapping[str, Any]) -> LoopCheck | None:
        names = (field.name for field in dataclasses.fields(LoopQuestion))
        question = LoopQuestion(**{name: plain[name] for name in names if name in plain or name not in BY})
        record = self._first.get(_cell(dataclasses.asdict(question), _LOOP))
        if record is None or record.median_seconds is None:
            return None
        rate = 1 / record.median_seconds
        return LoopCheck(question, plain["hz"], plain["low"], plain["high"], rate, record.status == "unstable")

    def void(self, side: Side) -> str:
        """Say why a side of the run does not count; "" where it does."""
        plain = self.plain
        if by := plain.get("answered_afterwards_by"):
            return f"answers not written before measuring, but afterwards by the code of {by[:8]}"
        if plain.get("seed_from") != "commit":
            return "seed chosen by hand"
        if plain["seed"] != seed_of(plain["commit"], plain["number"]):
            return "the seed is not its commit's"
        if any(one.utc < self.utc for one in self._first.values()):
            return "measured before the answers were written"
        known = plain["predictors"][side]
        if known == present(side):
            return ""
        at = changed_at(side, plain["commit"], known)
        return f"predictor changed at {at}" if at else "predictor changed since"


def counted(checks: Iterable[LoopCheck]) -> list[LoopCheck]:
    """Leave the controls out."""
    return [one for one in checks if not one.question.is_control]


def read(path: Path) -> Run:
    """Read a file of answers and its records, if there are any. RecordError for a file that holds no answers."""
    try:
        plain = json.loads(path.read_text())
        measured = path.with_name(plain.get("measured_in", f"{path.stem}.jsonl"))
        records = tuple(read_file(measured)) if measured.exists() else ()
        run = Run(path, _as_now(plain), records)
        for side in MEASURE:
            list(run.plain[side])
            run.unmeasured(side)  # reads every answer
        return run
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: no file of answers ({error}); one is written by: {ASK}") from None


def read_all(folder: Path) -> list[Run]:
    """Read every file of answers of a machine's folder, the oldest first."""
    paths = [path for pattern in PATTERNS for path in sorted(folder.glob(pattern))]
    return sorted((read(path) for path in paths), key=lambda run: (run.utc, run.path.stem))


def _as_now(plain: dict[str, Any]) -> dict[str, Any]:
    """Read the older form, which holds the choice of each question alone, as the present one."""
    if "answers" not in plain:
        return plain
    trees = [{"question": one["question"], "candidates": [one["choice"]]} for one in plain["answers"]]
    return {"seed": plain["seed"], "seed_from": "hand", "machine": plain["machine"], "trees": trees, "loops": []}


_TREE = ("op", "contestant", "capacity", "batch", "fanout", "threads", "dtype", "options", "distribution")
_TIMED_TREES = ("question", "answer", "sum_tree")  # the latter two in older files
_LOOP = ("workload", "threads", "batch", "update_interval", *BY)


def _cell(fields: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return json.dumps([fields.get(name) for name in names], sort_keys=True)


def _cell_of(record: Measurement) -> str:
    """Name the cell of a tree or a loop; "" for whatever else lies in a file, such as twins."""
    if record.primitive in _TIMED_TREES:
        return _cell({name: getattr(record, name) for name in _TREE}, _TREE)
    if record.primitive == "loop_question":
        by = dict.fromkeys(BY, REFERENCE)  # in older records
        return _cell({**by, **record.options, "threads": record.threads, "batch": record.batch}, _LOOP)
    return ""
