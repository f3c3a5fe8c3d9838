"""Files of questions about arrangements: ask, read them with what was measured, and compare.

The protocol is that of ``asking``: the seed is the hash of the last commit that changed code, answers are written
before anything is measured and never again, and a file counts as long as the code that answers is the same.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from impls.writing import list_files

from .. import platforms
from ..platforms.reading import FILE
from ..questions import Asked, Row, is_measured, numbered
from ..records import Measurement, RecordError, in_order
from . import arrangements
from .arrangements import ArrangementQuestion, Candidate, Predictor
from .asking import UNPROBED, Seed, head
from .figures import drift
from .predictor import Side, present
from .runs import Run

SIDE: Side = "arrangements"
ASK = "python -m dse validate --ask --loops"
MEASURE = "loop-questions"
"""The command of benchmarks that measures a file."""
_KEYS = tuple(field.name for field in dataclasses.fields(Candidate))


@dataclass(frozen=True)
class Check:
    """A candidate with its prediction, if there is one, and its measured gradient steps/s, if it could run."""

    candidate: Candidate
    hz: float | None
    low: float
    high: float
    measured_hz: float | None
    is_unstable: bool = False
    reason: str = ""

    @property
    def error(self) -> float | None:
        """The relative error of the prediction: -0.1 is a tenth too few; None where one of the two lacks."""
        return self.hz / self.measured_hz - 1 if self.hz and self.measured_hz else None

    @property
    def is_inside(self) -> bool:
        """Whether the interval holds the measured rate."""
        return self.measured_hz is not None and self.low <= self.measured_hz <= self.high


@dataclass(frozen=True)
class Checked:
    """A question whose candidates were all measured; ``recommended``: the position of one, None without predictions."""

    question: ArrangementQuestion
    checks: tuple[Check, ...]
    recommended: int | None

    @cached_property
    def best(self) -> int | None:
        """The position of the fastest measured candidate, None where none could run."""
        timed = {at: one.measured_hz for at, one in enumerate(self.checks) if one.measured_hz}
        return max(timed, key=lambda at: timed[at] or 0.0, default=None)

    @property
    def regret(self) -> float | None:
        """By which fraction the recommended candidate's steps took longer than the best one's; None without either."""
        if self.recommended is None or self.best is None:
            return None
        chosen, best = self.checks[self.recommended].measured_hz, self.checks[self.best].measured_hz
        return best / chosen - 1 if chosen and best else None


@dataclass(frozen=True)
class File(Run):
    """A file of questions with what was measured of it."""

    @cached_property
    def checked(self) -> list[Checked]:
        """The questions whose candidates were all measured."""
        return [_checked(rows) for rows in self.questions(SIDE) if all(map(is_measured, rows))]

    @property
    def waiting(self) -> int:
        """Count the questions that have candidates that were not measured."""
        return len(self.questions(SIDE)) - len(self.checked)


def _checked(rows: Sequence[Row]) -> Checked:
    checks = tuple(map(_check, rows))
    shape = {name: rows[0][name] for name in ("workload", "batch", "update_interval")}
    question = ArrangementQuestion(**shape, candidates=tuple(check.candidate for check in checks))
    return Checked(question, checks, next((at for at, row in enumerate(rows) if row.get("is_recommended")), None))


def _check(row: Row) -> Check:
    candidate, ends = Candidate(**{name: row[name] for name in _KEYS}), (row.get("low", 0.0), row.get("high", 0.0))
    reason = str(row.get("reason") or row.get("failure", ""))
    return Check(candidate, row.get("told"), *ends, row.get("measured"), row["status"] == "unstable", reason)


def ask(records: Sequence[Measurement], path: Path, seed: Seed, count: int) -> Asked:
    """Answer N questions from one machine's evidence, for a file in its folder. RecordError if not probed."""
    if not (file := path.with_name(FILE)).is_file():
        raise RecordError(UNPROBED)
    predictor = Predictor(records, platforms.load(file))
    answers = map(predictor.answer, arrangements.questions(count, seed.value))
    return Asked(path, head(records, seed, (SIDE,)), numbered(SIDE, answers))


def read(path: Path) -> File:
    """Read a file of answers. RecordError for a file that holds no such answers."""
    try:
        file = File.read(path)
        assert file.waiting >= 0 and isinstance(file.void(SIDE), str)  # reads every answer
        return file
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path}: no file of answers about arrangements ({error}); one is written by: {ASK}"
        ) from None


def read_all(folder: Path) -> list[File]:
    """Read every file of a machine's folder, the oldest first."""
    return in_order(map(read, sorted(list_files(folder, f"{SIDE}-*.json"), key=lambda path: path.stem)))


def figures(checked: Sequence[Checked]) -> dict[str, Any]:
    """Compute errors, coverage and regret; {} without questions. Shares are (how many, of how many)."""
    if not checked:
        return {}
    pairs = [(one, abs(one.error)) for question in checked for one in question.checks if one.error is not None]
    regrets = [one.regret for one in checked if one.regret is not None]
    every = [one for question in checked for one in question.checks]
    return {
        "questions": len(checked),
        "candidates": len(every),
        "without_time": sum(one.measured_hz is None for one in every),
        "without_prediction": sum(one.hz is None for one in every),
        "unstable": sum(one.is_unstable for one in every),
        **_errors(pairs),
        "by_arrangement": {
            name: _errors([pair for pair in pairs if pair[0].candidate.arrangement == name])
            for name in dict.fromkeys(one.candidate.arrangement for one, _ in pairs)
        },
        "median_regret": median(regrets) if regrets else None,
        "worst_regret": max(regrets, default=None),
        "regrets": len(regrets),
        "best_is_recommended": (
            sum(one.best == one.recommended for one in checked if one.best is not None),
            len(checked),
        ),
    }


def _errors(pairs: Sequence[tuple[Check, float]]) -> dict[str, Any]:
    errors = [error for _, error in pairs]
    return {
        "median_error": median(errors) if errors else None,
        "worst_error": max(errors, default=None),
        "too_high": (sum((one.error or 0.0) > 0 for one, _ in pairs), len(pairs)),
        "inside": (sum(one.is_inside for one, _ in pairs), len(pairs)),
    }


@dataclass(frozen=True)
class Headline:
    """The figures of the files that count, pooled; the voided files, and those that wait to be measured."""

    machine: str
    counted: tuple[File, ...]
    figures: Mapping[str, Any]
    voided: tuple[tuple[File, str], ...]
    waiting: tuple[tuple[File, int], ...]

    @property
    def checked(self) -> list[Checked]:
        """The questions of the files that count."""
        return [one for file in self.counted for one in file.checked]

    @property
    def is_empty(self) -> bool:
        """Whether there is no file with an answer."""
        return not (self.counted or self.voided or self.waiting)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "machine": self.machine,
            "predictor": present(SIDE),
            "files": [str(file.path) for file in self.counted],
            "arrangements": self.figures or None,
            "voided": [{"file": str(file.path), "reason": why, **figures(file.checked)} for file, why in self.voided],
            "not_measured": [{"file": str(file.path), "questions": count} for file, count in self.waiting],
        }


def headline(files: Sequence[File], machine: str, results: Path | None = None) -> Headline:
    """Pool the files that count; ``results``: the folder whose sentinels tell of drift."""
    reasons = [(file, file.void(SIDE)) for file in files]
    counted = tuple(file for file, why in reasons if not why and file.checked)
    pooled = figures([one for file in counted for one in file.checked])
    return Headline(
        machine,
        counted,
        pooled | {"drift": drift(counted, results)} if pooled else {},
        tuple((file, why) for file, why in reasons if why),
        tuple((file, file.waiting) for file in files if file.waiting),
    )
