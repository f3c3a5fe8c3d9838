"""``python -m dse validate``: how good are answers? Arguments in, text or JSON out."""

import argparse
import json
from pathlib import Path
from typing import Any

from impls.terminal import aligned

from .. import machines, platforms
from ..questions import Asked
from ..records import RecordError, how_to_measure
from ..validation import arranged, arrangements, asking, figures, runs
from ..validation.figures import Headline
from ..validation.predictor import ROOT, Side, present
from ..validation.runs import MEASURE
from .text import add_command, percent, share, wrapped

ABOUT = """How good are answers? Each file of answers on record, by what was measured after them.

Nobody chose the questions: their seed was the hash of a commit, whose code wrote the answers down before anything was
measured, but where the last column says otherwise. The code that answers has changed since; what can be run here is
raced instead: python -m dse recommend --help"""


def add_to(commands: Any) -> None:
    """Add ``validate`` to the commands of a parser."""
    summary = "how good answers were, when measured: coverage, regret, error"
    parser = add_command(commands, "validate", summary, ABOUT, "validate")
    add = parser.add_argument
    add("file", nargs="*", type=Path, help="of answers, as --ask wrote it (default: all of the machine)")
    add("--ask", action="store_true", help="sample questions, answer them and write the answers down")
    add("--count", type=count, default=asking.TREE_COUNT, help="questions about trees (default: %(default)s)")
    add("--arrangement-count", type=count, default=arrangements.COUNT, help="with --loops (default: %(default)s)")
    add("--loop-count", type=count, default=asking.LOOP_COUNT, help="questions about loops (default: %(default)s)")
    add("--loops", action="store_true", help="instead: arrangements of training loops, each candidate and the regret")
    add("--seed", type=int, help="of your own, to practice: such a file never counts")
    add("--machine", metavar="KEY", help="whose records answer (default: this machine's; to compare, or the nearest's)")
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Ask, or compare; returns the exit code 0. RecordError or ValueError where that cannot be."""
    if options.ask:
        return _ask(options)
    if options.seed is not None:
        raise ValueError("--seed goes with --ask")
    result, note = _headline(options)
    if options.json:
        print(json.dumps([to_dict(one) for one in known]))
    else:
        print(*aligned([ANSWERS, *map(answer_row, known)]), sep="\n")
    return 0


def to_dict(side: Side) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {"file": str(side.path), "side": side.name, "but": side.doubt, **side.figures}


ANSWERS = (
    *(
        "by code of",
        "about",
        "questions",
        "intervals hold",
        "of choices",
        "off",
        "worst",
        "too high",
        "regret",
        "worst",
    ),
    *("best chosen", "but"),
)
"""Heads of the table of answers on record; errors and regrets are in the median and at worst."""


def _asked(asked: Asked, answers: Mapping[Side, int]) -> Iterator[str]:
    yield (
        f"{plural(answers['trees'], 'answer')} about trees, {answers['loops']} about loops with their controls: "
        f"{asked.path}"
    )
    for side, command in MEASURE.items():
        for reason in sorted({row["reason"] for row in asked.rows if row["side"] == side and "reason" in row}):
            yield f"no answer: {reason}"
        yield f"now {how_to_measure(f'{command} {asked.path}')}"


def _headline(options: argparse.Namespace) -> tuple[Headline | arranged.Headline, str]:
    """Return (the headline of the files, or of the machine's; whose records they are judged by, if another's)."""
    sides: Any = arranged if options.loops else figures
    if options.file:
        files = [(arranged if options.loops else runs).read(path) for path in options.file]
        return sides.headline(files, str(files[0].head.get("machine", "")), options.results), ""
    key, note = options.machine, ""
    if key is None:
        pattern = f"{arranged.SIDE}-*.json" if options.loops else runs.PATTERN
        records, note = machines.read(options.results, None, answered(options.results, pattern))
        key = records[0].machine_key
    result = sides.headline(sides.read_all(options.results / key), key, options.results)
    if result.is_empty:
        about, ask = (" about arrangements", arranged.ASK) if options.loops else ("", asking.ASK)
        raise RecordError(f"{options.results / key}: no file of answers{about}; write one with: {ask}")
    return result, note


def answered(results: Path, pattern: str) -> machines.Wanted:
    """Return what is wanted of a machine: that its folder has such files, where any machine's has."""
    there = {path.parent.name for path in list_files(results, f"*/{pattern}")}
    return dataclasses.replace(machines.ANYTHING, shows=lambda one: not there or one.machine_key in there)


def lines(result: Headline | arranged.Headline) -> Iterator[str]:
    """Write a headline: what counts first, then what waits, then what was voided."""
    if isinstance(result, arranged.Headline):
        yield from _arrangements(result)
        return
    yield from _trees(result)
    yield from _loops(result)
    for run, side, left in result.waiting:
        remedy = how_to_measure(f"{MEASURE[side]} {run.path}")
        yield f"{run.path.name}: {plural(left, 'question')} about {side} not measured; {remedy}"
    for name, reason in dict.fromkeys((run.path.name, reason) for run, reason in result.refused):
        yield from wrapped(f"{name}: no answer, for {reason}", "")
    if result.voided:
        yield "voided:"
    for one in result.voided:
        yield from wrapped(f"{one.run.path.name}, {one.side}: {one.reason}; {summary(one.figures)}")


def _trees(result: Headline) -> Iterator[str]:
    found = result.trees
    yield _first(result, "trees", found)
    if not found:
        return
    yield f"  95 % intervals hold the measured time of {share(found['inside'])} candidates"
    yield f"    and of {share(found['inside_of_choices'])} chosen ones"
    groups = found["inside_by_basis"], found["inside_by_implementation"]
    yield from aligned([[name, share(pair)] for group in groups for name, pair in group.items()], "    ")
    if found["without_time"]:
        yield f"    {plural(found['without_time'], 'candidate')} without a time, and in none of these counts"
    if "median_regret" not in found:
        return
    yield f"  regret {percent(found['median_regret'])} in the median, {percent(found['worst_regret'])} at worst"
    yield f"  the best was the choice or a tie in {share(found['best_is_choice_or_tie'])}"


def _loops(result: Headline) -> Iterator[str]:
    found = result.loops
    yield _first(result, "loops", found)
    if not found:
        return
    median, worst = percent(found["median_error"]), percent(found["worst_error"])
    yield f"  the rate is off by {median} in the median, {worst} at worst"
    yield f"  95 % intervals hold {share(found['inside'])} measured rates"
    if found["unstable"]:
        yield f"  {found['unstable']} of the measured rates are unstable"
    yield f"  {found['drift']}"


def _first(result: Headline, side: Side, figures: Mapping[str, Any]) -> str:
    """Write the first line of a side: how many questions and candidates, and who answered."""
    known = result.predictors[side]
    if not figures:
        return f"{side}: no question was asked of the present predictor and measured; ask with: {asking.ASK}"
    counts = plural(figures["questions"], "question")
    counts += f", {plural(figures['candidates'], 'candidate')}" if "candidates" in figures else ""
    return f"{side}: {counts}, predictor {known}, {plural(len(result.runs[side]), 'file')}"


def summary(figures: Mapping[str, Any]) -> str:
    """Write the figures of a voided run in a clause."""
    if not figures:
        return "nothing measured"
    if "median_error" in figures:
        return (
            f"{plural(figures['questions'], 'loop')} off by {percent(figures['median_error'])} in the median and "
            f"{percent(figures['worst_error'])} at worst, {share(figures['inside'])} inside"
        )
    words = f"{plural(figures['questions'], 'question')}, {share(figures['inside_of_choices'])} choices inside"
    if "median_regret" not in figures:
        return words
    return (
        f"{words}, {share(figures['inside'])} candidates; regret {percent(figures['median_regret'])} in the median and "
        f"{percent(figures['worst_regret'])} at worst; the best was the choice in {share(figures['best_is_choice'])}"
    )


def _arrangements(result: arranged.Headline) -> Iterator[str]:
    found = result.figures
    if not found:
        yield f"arrangements: no question was asked of the present predictor and measured; ask with: {arranged.ASK}"
    else:
        counts = f"{plural(found['questions'], 'question')}, {plural(found['candidates'], 'candidate')}"
        yield f"arrangements: {counts}, predictor {present(arranged.SIDE)}, {plural(len(result.counted), 'file')}"
        yield from _arrangement_figures(found)
    for file, left in result.waiting:
        remedy = how_to_measure(f"{MEASURE} {file.path}")
        yield f"{file.path.name}: {plural(left, 'question')} not measured to the end; {remedy}"
    if result.voided:
        yield "voided:"
    for file, reason in result.voided:
        yield from wrapped(f"{file.path.name}: {reason}; {arrangements_summary(arranged.figures(file.checked))}")


def _arrangement_figures(figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {errors(figures)}"
    yield from aligned([[name, errors(one)] for name, one in figures["by_arrangement"].items()], "    ")
    yield f"  {regret(figures)}"
    for key, what in LACKS.items():
        if figures[key]:
            yield f"  {plural(figures[key], 'candidate')} with {what}"
    yield f"  {figures['drift']}"


def errors(figures: Mapping[str, Any]) -> str:
    """Write the errors of the predicted rates, and how many intervals held the measured one."""
    if figures["median_error"] is None:
        return "no rate was both predicted and measured"
    off = f"{percent(figures['median_error'])} in the median, {percent(figures['worst_error'])} at worst"
    off += f", too high in {share(figures['too_high'])}"
    return f"the rate is off by {off}; 95 % intervals hold {share(figures['inside'])}"


def regret(figures: Mapping[str, Any]) -> str:
    """Write what the recommended configurations lost against the best measured ones."""
    if figures["median_regret"] is None:
        return "no recommended configuration was measured"
    best = f"the best was the recommended one in {share(figures['best_is_recommended'])}"
    lost = f"{percent(figures['median_regret'])} in the median, {percent(figures['worst_regret'])} at worst"
    return f"regret of the recommended configuration {lost} over {plural(figures['regrets'], 'question')}; {best}"


def arrangements_summary(figures: Mapping[str, Any]) -> str:
    """Write the figures of a voided file in a clause."""
    if not figures:
        return "nothing measured"
    return f"{plural(figures['questions'], 'question')}, {errors(figures)}; {regret(figures)}"
