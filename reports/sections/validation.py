"""The page's sections that compare answers with later measurements."""

from collections.abc import Sequence
from pathlib import Path

from dse.platforms.reading import RESULTS
from dse.records import Measurement, twins
from dse.stats import noise_floor
from dse.validation import loops as prediction
from dse.validation.loops import Answered
from dse.validation.trees import validate

from ..chart import Material, Section
from ..markup import items, paragraph, table

COMMAND = "python -m benchmarks loop-questions"
TARGET = 0.15  # for the median error
RATES = ("predicted steps/s", "95 % interval", "measured steps/s", "95 % interval")
LOOP_HEAD = ("workload", "B", "u", *RATES, "error", "beside the control", "")


def loops(measurements: Sequence[Measurement], results: Path = RESULTS) -> str:
    """Return the solver's rates of serial loops beside the measured ones as HTML, or the command that measures them."""
    answered, faults = prediction.every_answer(measurements, results)
    faults = [f"Left out: {fault}." for fault in faults]
    asked = [answer for answer in answered if not answer.is_control]
    if not asked:
        nothing = f"Left out: no serial loop was measured at other shapes; this would: {COMMAND}."
        return items(faults) if faults else paragraph(nothing)
    floor = noise_floor(twins(measurements, prediction.QUESTION))
    seeds = ", ".join(sorted({str(answer.measured.options["seed"]) for answer in asked}))
    sentence = (
        f"Gradient steps a second of the serial loop, with random batch B and update interval u by seed {seeds}: what "
        "the command recommend answers from records made before, fixed to what was run (in turns on one core, one "
        f"thread of torch, the numba tree); then measured. {_typical(answered)} "
        f"{sum(answer.is_inside for answer in asked)} of {len(asked)} intervals overlap. The same loop measured twice "
        f"in the run differs by up to {floor:.1%}. The control is the workload as it is, in that run; beside it the "
        "error is that of predicted / control's predicted against measured / control's measured."
    )
    more = [*_drift(answered), *faults]
    return paragraph(sentence) + table(LOOP_HEAD, map(_loop_row, answered)) + (items(more) if more else "")


def _typical(answered: Sequence[Answered]) -> str:
    """Say the median errors in a sentence."""
    raw, beside = prediction.median_errors(answered)
    sentence = f"The median error is {raw:.1%}"
    if beside is not None:
        sentence += f", and {beside:.1%} with the drift of the control taken out"
    return (
        f"{sentence}; the target of {TARGET:.0%}, which is for the raw one, was {'' if raw <= TARGET else 'not '}met."
    )


def _loop_row(answer: Answered) -> tuple[object, ...]:
    predicted, measured = answer.predicted, answer.measured_hz
    notes = ["control: the workload as it is"] if answer.is_control else []
    notes += ["unstable"] if answer.measured.status == "unstable" else []
    beside = "" if answer.is_control or answer.beside_control is None else f"{answer.beside_control:+.1%}"
    shape = (predicted.workload, f"{predicted.batch:,}", predicted.update_interval)
    rates = (f"{predicted.hz:,.1f}", f"{predicted.low:,.1f} to {predicted.high:,.1f}")
    rates += (f"{measured.value:,.1f}", f"{measured.low:,.1f} to {measured.high:,.1f}")
    return *shape, *rates, f"{answer.error:+.1%}", beside, ", ".join(notes)


def _drift(answered: Sequence[Answered]) -> list[str]:
    """Say what the unchanged loops of the run show of the machine."""
    return [
        f"{answer.predicted.workload}: the control took {1 + answer.error:.2f} times as long as the solver predicts "
        "from earlier records. The machine has changed by so much, or the solver errs by it on the unchanged loop; it "
        "is part of each raw error."
        for answer in answered
        if answer.is_control
    ]


def _validation(material: Material) -> str:
    checked = validate(material.results, material.about.key)
    rows = []
    for check in checked.checked:
        asked = check.question
        shape = (f"{asked.capacity:,}", f"{asked.batch:,}", asked.threads, f"{asked.updates_per_sample:g}")
        rows.append((*shape, check.recommended, check.best, f"{check.regret:.1%}"))
    return paragraph(
        f"{len(rows)} questions, every candidate measured afterwards: the recommended one took "
        f"{checked.median_regret:.1%} longer than the best in the median and {checked.worst_regret:.1%} at worst, "
        f"where the same cell measured twice differs by up to {checked.noise_floor:.1%}."
    ) + table(("N", "B", "threads", "updates a sample", "recommended", "best measured", "regret"), rows)


SECTIONS = (
    Section(110, "Predicted loops held against measured ones", lambda asked: loops(asked.measurements, asked.results)),
    Section(130, "Recommendations held against measurement", _validation),
)
