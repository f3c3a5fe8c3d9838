"""``python -m dse validate``: how good are answers? Arguments in, text or JSON out."""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from impls.terminal import count, plural

from .. import machines
from ..platforms import code_commit
from ..records import RecordError, how_to_measure
from ..validation import arrangements, asking
from ..validation.figures import Headline, headline, of_machine
from ..validation.predictor import ROOT, Side
from ..validation.runs import MEASURE, PATTERN, read
from . import arrangements_text
from .arrangements_text import answered
from .fanouts_text import fanouts_text
from .text import add_command, aligned, percent, share, wrapped

ABOUT = """How good are answers? Ask, measure, compare:

  python -m dse validate --ask          sample questions by the commit's hash, and write their answers down
  python -m benchmarks questions        measure the candidates of the questions about trees (half an hour)
  python -m benchmarks loop-questions   measure the questions about training loops (minutes)
  python -m dse validate                compare: all files of the machine that the present code answered

With --loops the questions are about arrangements of processes: which of the candidates trains fastest, and how fast is
each? --ask --loops writes such a file, python -m benchmarks loop-questions --arrangements measures it.

Nobody chooses the questions: their seed is the hash of the last commit that changed more than results. Answers are
written before anything is measured, and never again. A file counts as long as the code that answers is the same;
what no longer counts is listed with its figures."""
NO_COMMIT = "00000000"  # of practice outside of a checkout


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
    add("--fanouts", action="store_true", help="instead: what the choice of K cost, judged on what it had not seen")
    add("--seed", type=int, help="of your own, to practice: such a file never counts")
    add("--machine", metavar="KEY", help="whose records answer (default: this machine's; to compare, or the nearest's)")
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Ask, or compare; returns the exit code 0. RecordError or ValueError where that cannot be."""
    if options.loops:
        return arrangements_text.run(options)
    if options.ask:
        return _ask(options)
    if options.fanouts:
        print(fanouts_text(options.results))
        return 0
    if options.seed is not None:
        raise ValueError("--seed goes with --ask")
    result, note = _headline(options)
    if options.json:
        print(json.dumps(result.to_dict() | {"machine_note": note}))
    else:
        print(*([note, ""] if note else []), *lines(result), sep="\n")
    return 0


def _ask(options: argparse.Namespace) -> int:
    if options.file:
        raise ValueError("--ask names its file itself; leave the file out")
    if options.seed is None:
        commit = asking.frozen_commit()
    else:
        commit = code_commit(ROOT) or NO_COMMIT
    records, note = machines.read(options.results, options.machine, machines.SWEEP)
    if note:
        raise RecordError(
            f"this machine has no sweep of its own to answer from; {how_to_measure(machines.SWEEP.command)}"
        )
    folder = options.results / records[0].machine_key
    seed, path = asking.first_free(folder, asking.Seed(commit, by_hand=options.seed))
    asked = asking.ask(records, path, seed, (options.count, options.loop_count))
    asked.create()
    counts = {side: len(asked.answered(side)) for side in MEASURE}
    if options.json:
        print(json.dumps({"file": str(path), "seed": seed.value, "answers": counts}))
        return 0
    print(f"{plural(counts['trees'], 'answer')} about trees, {counts['loops']} about loops with their controls: {path}")
    for side, command in MEASURE.items():
        for reason in sorted({row["reason"] for row in asked.rows if row["side"] == side and "reason" in row}):
            print(f"no answer: {reason}")
        print(f"now {how_to_measure(f'{command} {path}')}")
    if seed.by_hand is not None:
        print("the seed is your own: this is practice, and does not count")
    return 0


def _headline(options: argparse.Namespace) -> tuple[Headline, str]:
    """Return (the headline of the files, or of the machine's; whose records they are judged by, if another's)."""
    if options.file:
        runs = [read(path) for path in options.file]
        machine = str(runs[0].head.get("machine", ""))
        return headline(runs, machine, options.results), ""
    key, note = options.machine, ""
    if key is None:
        records, note = machines.read(options.results, None, answered(options.results, PATTERN))
        key = records[0].machine_key
    result = of_machine(options.results, key)
    if not (any(result.runs.values()) or result.voided or result.waiting):
        raise RecordError(f"{options.results / key}: no file of answers; write one with: {asking.ASK}")
    return result, note


def lines(result: Headline) -> Iterator[str]:
    """Write a headline: what counts first, then what waits, then what was voided."""
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
    figures = result.trees
    yield _first(result, "trees", figures)
    if not figures:
        return
    yield f"  95 % intervals hold the measured time of {share(figures['inside'])} candidates"
    yield f"    and of {share(figures['inside_of_choices'])} chosen ones"
    groups = figures["inside_by_basis"], figures["inside_by_implementation"]
    yield from aligned([[name, share(pair)] for group in groups for name, pair in group.items()], "    ")
    if figures["without_time"]:
        yield f"    {plural(figures['without_time'], 'candidate')} without a time, and in none of these counts"
    if "bins" not in figures:
        return
    yield f"  regret {percent(figures['median_regret'])} in the median, {percent(figures['worst_regret'])} at worst"
    yield f"    within what the answer bounds at 95 % in {share(figures['regret_95_holds'])}"
    yield f"  the best was the choice or a tie in {share(figures['best_is_choice_or_tie'])}"
    yield "  candidates that were the best, by the probability that the answer gave them:"
    yield from aligned([BIN_HEAD, *map(bin_row, figures["bins"])], "    ")


def _loops(result: Headline) -> Iterator[str]:
    figures = result.loops
    yield _first(result, "loops", figures)
    if not figures:
        return
    median, worst = percent(figures["median_error"]), percent(figures["worst_error"])
    yield f"  the rate is off by {median} in the median, {worst} at worst"
    yield f"  95 % intervals hold {share(figures['inside'])} measured rates"
    if figures["unstable"]:
        yield f"  {figures['unstable']} of the measured rates are unstable"
    yield f"  {figures['drift']}"


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
    if "bins" not in figures:
        return words
    return (
        f"{words}, {share(figures['inside'])} candidates; regret {percent(figures['median_regret'])} in the median and "
        f"{percent(figures['worst_regret'])} at worst; the best was the choice in {share(figures['best_is_choice'])}"
    )


BIN_HEAD = ("probability", "candidates", "expected", "were the best", "95 % interval")


def bin_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Write one bin of probabilities as a row of ``BIN_HEAD``."""
    ends = f"{one['from']:g} to {one['to']:g}"
    counts = f"{one['candidates']:,}", f"{one['expected']:.1f}", f"{one['observed']}", f"{one['low']} to {one['high']}"
    return ends, *counts
