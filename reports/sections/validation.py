"""The page's section that compares answers with later measurements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.cli.text import percent, share
from dse.cli.validate import summary
from dse.records import RecordError, how_to_measure
from dse.validation.asking import ASK
from dse.validation.figures import Headline, of_machine
from dse.validation.predictor import Side
from dse.validation.runs import MEASURE

from ..chart import Material, Section
from ..markup import items, paragraph, table

COVERAGE, MEDIAN_REGRET, WORST_REGRET, LOOP_ERROR = (0.88, 0.99), 0.02, 0.10, 0.15
TARGETS = (
    f"Targets: {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%} of the intervals hold what was measured; worst slowdown at most "
    f"{MEDIAN_REGRET:.0%} in the median and {WORST_REGRET:.0%} at worst; a rate off by at most {LOOP_ERROR:.0%} in the "
    "median; each count of the best ones within its 95 %."
)
VOID_HEAD = ("file", "of", "why it does not count", "its figures")
LOOP_HEAD = ("workload", "threads", "B", "u", "predicted steps/s", "95 % interval", "measured steps/s", "error", "")


def answers(results: Path, machine: str) -> str:
    """Return the figures of the files that count and those of the voided ones as HTML. RecordError without files."""
    result = of_machine(results, machine)
    if not (any(result.runs.values()) or result.voided or result.waiting):
        raise RecordError(f"no question was asked of machine {machine}; ask with: {ASK}")
    texts = [
        paragraph(
            "The seed of the questions is the hash of the last commit that changed code, and the answers are written "
            "before anything is measured. A file counts as long as the code that answers is the same; every other one "
            f"is listed with its figures. {TARGETS}"
        ),
        paragraph(_side(result, "trees", result.trees)),
        paragraph(_side(result, "loops", result.loops)),
        *([table(LOOP_HEAD, _loop_rows(result))] if result.loops else []),
        *([items(_waiting(result))] if result.waiting else []),
        *([table(VOID_HEAD, _voided(result))] if result.voided else []),
    ]
    return "".join(texts)


def _side(result: Headline, side: Side, figures: Mapping[str, Any]) -> str:
    """Say how good the answers of a side were, in a paragraph."""
    known = result.predictors[side]
    if not figures:
        return f"About {side}: no question was asked of the present predictor and measured."
    if side == "loops":
        return (
            f"About loops: {figures['questions']} questions to predictor {known}. The rate is off by "
            f"{percent(figures['median_error'])} in the median and {percent(figures['worst_error'])} at worst; "
            f"{share(figures['inside'])} measured rates lie in their 95 % interval; {figures['drift']}. A control is "
            "the workload as it is, which does not count."
        )
    groups = {**figures["inside_by_basis"], **figures["inside_by_implementation"]}
    parts = ", ".join(f"{name} {share(pair)}" for name, pair in groups.items())
    said = (
        f"About trees: {figures['questions']} questions to predictor {known}, {figures['candidates']:,} candidates "
        f"measured. {share(figures['inside'])} candidates lie in their 95 % interval ({parts}), and "
        f"{share(figures['inside_of_choices'])} chosen ones."
    )
    if "median_regret" not in figures:
        return said
    return (
        f"{said} Regret of the choice: {percent(figures['median_regret'])} in the median, "
        f"{percent(figures['worst_regret'])} at worst. The best was the choice or a tie in "
        f"{share(figures['best_is_choice_or_tie'])}."
    )


def _loop_rows(result: Headline) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for check in (check for run in result.runs["loops"] for check in run.loops):
        asked, note = check.question, "control" if check.question.is_control else ""
        shape = (asked.workload, asked.threads, f"{asked.batch:,}", asked.update_interval)
        rates = (f"{check.hz:,.1f}", f"{check.low:,.1f} to {check.high:,.1f}", f"{check.measured_hz:,.1f}")
        notes = [note] if note else []
        rows.append((*shape, *rates, f"{check.error:+.1%}", ", ".join([*notes, *["unstable"] * check.is_unstable])))
    return rows


def _waiting(result: Headline) -> list[str]:
    return [
        f"{run.path.name}: {left} of the questions about {side} are not measured; "
        f"{how_to_measure(f'{MEASURE[side]} {run.path.name}')}"
        for run, side, left in result.waiting
    ]


def _voided(result: Headline) -> list[tuple[object, ...]]:
    return [(one.run.path.name, one.side, one.reason, summary(one.figures)) for one in result.voided]


def _section(material: Material) -> str:
    return answers(material.results, material.about.key)


SECTIONS = (
    Section(
        110,
        "Answers validated against measurement",
        _section,
        ("sentinel",),
        ("KEY/questions-*.csv", "KEY/questions-*.json"),
    ),
)
