"""Recommendations held against measurement: every candidate of each question measured, and what the answer costs."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from . import stats
from .recommend import QUESTIONS_FILE, answer
from .records import RecordError, read_file, read_folder, twins
from .tables import Configuration, Question, Table

ASKED_FILE = "questions.json"


@dataclass(frozen=True)
class Checked:
    """One question: what was recommended, what measured best, the regret: time of the one over the other's, less 1."""

    question: Question
    recommended: Configuration
    best: Configuration
    regret: float


@dataclass(frozen=True)
class Validation:
    """All questions; ``noise_floor`` is that of the run that measured the candidates."""

    checked: tuple[Checked, ...]
    median_regret: float
    worst_regret: float
    noise_floor: float


def validate(results: Path, machine: str) -> Validation:
    """Answer the questions from the machine's sweeps, look the answers up among the measured candidates.

    RecordError where the sweeps or the measured candidates are missing.
    """
    folder = results / machine
    try:
        asked = [Question(**fields) for fields in json.loads((folder / ASKED_FILE).read_text())]
    except (OSError, ValueError, TypeError):
        raise RecordError(
            f"{folder / ASKED_FILE}: no questions here; measure them: python -m benchmarks questions"
        ) from None
    truth_records = read_file(folder / QUESTIONS_FILE)
    sweeps, truth = Table(read_folder(results, machine, skip=(QUESTIONS_FILE,))), Table(truth_records)
    checked = tuple(_check(sweeps, truth, question) for question in asked)
    regrets = [one.regret for one in checked]
    return Validation(checked, statistics.median(regrets), max(regrets), stats.noise_floor(twins(truth_records)))


def _check(sweeps: Table, truth: Table, question: Question) -> Checked:
    seconds = {}
    for configuration in truth.configurations(question):
        step = truth.step(configuration, question)
        if configuration.threads <= question.threads and step and step.basis == "measured":
            seconds[configuration] = step.seconds
    recommended = answer(sweeps, question).choice.configuration
    if recommended not in seconds:
        raise RecordError(
            f"{recommended} was recommended for {question} and not measured: python -m benchmarks questions"
        )
    best = min(seconds, key=seconds.__getitem__)
    return Checked(question, recommended, best, seconds[recommended] / seconds[best] - 1)
