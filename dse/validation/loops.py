"""Hold the solver's rate of the serial loop at other batches and update intervals against measured loops.

Each question is put to the solver as a user would put it to ``dse.recommend_mapping``, fixed to what was run:
everything in turns on one core, one thread of torch, the numba tree with the workload's fanout. The solver is given the
records from before the questions alone.

The control is the workload as it is, in the questions' run. Its error is what the machine itself changed by since the
profile, and what the solver misses there: without it, errors show how well rates at different shapes compare.

Letters: B batch, u environment steps a gradient step.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from impls.training import Workload, WorkloadError, load

from .. import platforms
from ..estimate import Estimate, Evidence
from ..mapping.answer import MappingAnswer, build_answer
from ..mapping.build import build
from ..platforms import Platform, PlatformError
from ..platforms.reading import FILE
from ..records import Measurement, RecordError, benchmark
from ..solver.problem import ProblemError
from ..times import profile
from ..times.parts import Parts

QUESTION = "loop_question"


@dataclass(frozen=True)
class Answered:
    """A question with the solver's answer and the measured seconds of a gradient step.

    ``control``: the error of the workload as it is, measured in the same run; None where it was not.
    """

    predicted: MappingAnswer
    measured: Measurement
    is_control: bool
    control: float | None

    @property
    def error(self) -> float:
        """The relative error of the predicted steps a second: -0.1 is a tenth too few."""
        return _error(self.predicted, self.measured)

    @property
    def beside_control(self) -> float | None:
        """The error of (predicted / control's predicted) against (measured / control's measured)."""
        return None if self.control is None else (1 + self.error) / (1 + self.control) - 1

    @property
    def measured_hz(self) -> Estimate:
        """Steps a second as measured."""
        one = self.measured
        ends = 1 / (one.high_seconds or one.seconds), 1 / (one.low_seconds or one.seconds)
        return Estimate(1 / one.seconds, *ends, Evidence(QUESTION, "measured"))

    @property
    def is_inside(self) -> bool:
        """True where the intervals of both overlap."""
        return self.predicted.low <= self.measured_hz.high and self.measured_hz.low <= self.predicted.high


def as_run(workload: Workload) -> dict[str, Any]:
    """Fix what the questions' run fixes: keys and values as ``dse.recommend_mapping`` takes them."""
    return {
        "arrangement": "serial",
        "learner_threads": 1,
        "contestant": "numba",
        "fanout": workload.replay.fanout,
        "threads": 1,
    }


def predicted(records: Sequence[Measurement], platform: Platform, workload: Workload) -> MappingAnswer:
    """Predict from records of the platform, which is a machine's own; ``hz`` in [``low``, ``high``].

    RecordError where a part was never timed, for a model of it is not what questions are to judge.
    """
    table = profile.of_records(records, platform.machine_key or "", workload)
    if not table.rows:
        raise _missing(workload, "a profile", "profile")
    answer = build_answer(build(Parts(platform, workload, table, None, as_run(workload))), "ratio")
    if not isinstance(answer, MappingAnswer):
        raise RecordError(f"{workload.name}: the serial loop does not fit platform {platform.name!r}")
    for part in answer.parts:
        if part.source == "modeled":
            raise _missing(workload, f"the part {part.part!r}", "profile")
    if table.overheads is None:
        raise _missing(workload, "a whole serial loop", "share")
    return answer


def answers(records: Sequence[Measurement], platform: Platform, workload: Workload) -> list[Answered]:
    """Answer every question about a workload that one machine's records hold, by batch, the control first.

    Only records from before the first question count. RecordError or ProblemError where they do not suffice; empty
    without questions.
    """
    asked = [one for one in _questions(records) if one.options["workload"] == workload.name]
    if not asked:
        return []
    first = min(one.utc for one in asked)
    before = [one for one in records if one.utc < first]
    shaped = [_shaped(workload, one) for one in asked]
    pairs = [(predicted(before, platform, shape), one) for shape, one in zip(shaped, asked, strict=True)]
    control = next((_error(*pair) for shape, pair in zip(shaped, pairs, strict=True) if shape == workload), None)
    answered = [Answered(*pair, shape == workload, control) for shape, pair in zip(shaped, pairs, strict=True)]
    return sorted(answered, key=lambda one: (not one.is_control, one.predicted.batch, one.predicted.update_interval))


def every_answer(records: Sequence[Measurement], results: Path) -> tuple[list[Answered], list[str]]:
    """Answer for all workloads that one machine was asked about; (answers, a sentence for each workload without one).

    ``results``: where the machine's folder lies, with the platform as it was probed.
    """
    answered, faults = list[Answered](), list[str]()
    asked = {str(one.options["workload"]): one.machine_key for one in _questions(records)}
    for name, key in sorted(asked.items()):
        try:
            answered += answers(records, _probed(results, key), load(name))
        except (RecordError, WorkloadError) as error:
            faults.append(str(error))
        except (PlatformError, ProblemError) as error:
            faults.append(f"{name}: {error}")
    return answered, faults


def median_errors(answered: Sequence[Answered]) -> tuple[float, float | None]:
    """Return the medians of the errors' sizes, raw and beside the control (None where one has none); controls left out.

    ValueError without any.
    """
    asked = [one for one in answered if not one.is_control]
    beside = [abs(one.beside_control) for one in asked if one.beside_control is not None]
    return median(abs(one.error) for one in asked), median(beside) if len(beside) == len(asked) else None


def _questions(records: Sequence[Measurement]) -> list[Measurement]:
    return [one for one in records if one.primitive == QUESTION and one.median_seconds]


def _probed(results: Path, key: str) -> Platform:
    path = results / key / FILE
    if not path.is_file():
        raise PlatformError(f"machine {key} was not probed, {path} is not there; on it: python -m dse platform probe")
    return platforms.load(path)


def _shaped(workload: Workload, question: Measurement) -> Workload:
    """Change the workload to the question's B and u."""
    interval = int(question.options["update_interval"])
    learner = dataclasses.replace(workload.learner, batch=question.batch, update_interval=interval)
    return dataclasses.replace(workload, learner=learner)


def _error(answer: MappingAnswer, measured: Measurement) -> float:
    return answer.hz * measured.seconds - 1


def _missing(workload: Workload, what: str, command: str) -> RecordError:
    return RecordError(
        f"{workload.name}: nothing from before the questions tells {what}; measure it, then them: "
        f"{benchmark(f'{command} --workload {workload.name}')}"
    )
