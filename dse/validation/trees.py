"""Hold recommendations against measurement, in two ways.

The cost of an answer: every candidate of each question is measured, and the recommended one compared with the best. The
error of an answer: questions are sampled by a seed, their answers written down, and then the recommended configurations
measured. Neither kind of measurement is ever evidence of an answer.
"""

import dataclasses
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import stats
from ..recommend import QUESTIONS_FILE, answer
from ..records import RecordError, how_to_measure, read_file, read_folder, twins
from ..times.tree_times import Question, Table
from ..times.tree_variants import Configuration, TreeTime

ASKED_FILE = "questions.json"
ANSWER = "answer"  # the primitive of records that hold answers' configurations
RANGE = ((1e3, 5e7), (1, 1e4))  # of N and of B that questions are sampled from, log-uniformly
SMALL_BATCHES = (1, 3, 31)  # among every set of questions
RATES = (0.0, 0.25, 0.5, 1.0, 1.0, 1.0, 2.0, 4.0)
WITHIN = {True: 1.5, False: 2.5}
"""Factor within which nine of ten answers shall lie, inside and outside of the measured N and B."""


@dataclass(frozen=True)
class Checked:
    """A question with what was recommended and what measured best.

    ``regret``: time of the one over the other's, less 1.
    """

    question: Question
    recommended: Configuration
    best: Configuration
    regret: float


@dataclass(frozen=True)
class Validation:
    """The validation of all questions; ``noise_floor`` is that of the run that measured the candidates."""

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
        raise RecordError(f"{folder / ASKED_FILE}: no questions here; {how_to_measure('questions')}") from None
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
            f"{recommended} was recommended for {question} and not measured; {how_to_measure('questions')}"
        )
    best = min(seconds, key=seconds.__getitem__)
    return Checked(question, recommended, best, seconds[recommended] / seconds[best] - 1)


@dataclass(frozen=True)
class Held:
    """An answer and the measured time of its configuration, seconds a step; ``inside`` the measured N and B or not."""

    question: Question
    choice: TreeTime
    measured_seconds: float

    @property
    def inside(self) -> bool:
        """Whether the question lies inside the measured N and B."""
        return self.choice.distance == 0

    @property
    def factor(self) -> float:
        """The factor by which the answer was off: measured over predicted, or the inverse, whichever is above 1."""
        return math.exp(abs(math.log(self.measured_seconds / self.choice.seconds)))

    @property
    def covered(self) -> bool:
        """True where the interval holds the measured time."""
        return self.choice.low_seconds <= self.measured_seconds <= self.choice.high_seconds


def questions(count: int, seed: int, threads: int) -> list[Question]:
    """Sample questions: N and B log-uniform over ``RANGE``, the first few at a small B, on up to ``threads``."""
    rng = np.random.default_rng(seed)
    sampled = []
    for position in range(count):
        capacity, batch = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in RANGE)
        rate, most = float(rng.choice(RATES)), int(rng.integers(1, threads + 1))
        sampled.append(
            Question(capacity, batch if position >= len(SMALL_BATCHES) else SMALL_BATCHES[position], rate, most)
        )
    return sampled


def write_answers(table: Table, asked: Sequence[Question], seed: int, path: Path) -> None:
    """Answer the questions and write the answers down before anything is measured. RecordError if the file exists."""
    if path.exists():
        raise RecordError(f"{path}: these questions were answered before; draw others with another --seed")
    answers = []
    for question in asked:
        choice = answer(table, question).choice
        answers.append({"question": dataclasses.asdict(question), "choice": choice.to_dict()})
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(one) for one in answers)
    path.write_text(f'{{"seed": {seed}, "machine": "{table.machine_key}", "answers": [\n{lines}\n]}}\n')


def held(path: Path) -> list[Held]:
    """Read a file's answers beside what ``python -m benchmarks answers`` measured of them. RecordError without that."""
    try:
        answers = json.loads(path.read_text())["answers"]
        timed = read_file(path.with_suffix(".jsonl"))
    except (OSError, ValueError, KeyError, RecordError):
        raise RecordError(f"{path}: no answers that were measured; {how_to_measure(f'answers {path}')}") from None
    cells = {record.cell: record.seconds for record in timed if record.primitive == ANSWER and record.median_seconds}
    checked = (_held(one["question"], one["choice"], timed, cells) for one in answers)
    return [one for one in checked if one]


def unmeasured(path: Path) -> int:
    """Count the answers of a file without a measured time: cells that failed, were skipped, or still wait."""
    return len(json.loads(path.read_text())["answers"]) - len(held(path))


def _held(asked: dict[str, Any], plain: dict[str, Any], timed: Sequence[Any], cells: dict[str, float]) -> Held | None:
    """Read one answer beside its measured step; None where that has no time."""
    question, choice = Question(**asked), TreeTime.from_dict(plain)
    chosen = dataclasses.asdict(choice.configuration) | {"options": dict(choice.configuration.options)}
    shape = {name: getattr(question, name) for name in ("capacity", "batch", "dtype", "distribution")}
    like = dataclasses.replace(timed[0], primitive=ANSWER, **chosen, **shape)
    draw, update = (cells.get(dataclasses.replace(like, op=op).cell) for op in ("draw", "update"))
    if draw is None or update is None:
        return None
    return Held(question, choice, draw + question.updates_per_sample * update)
