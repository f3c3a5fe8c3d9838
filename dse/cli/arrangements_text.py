"""``python -m dse validate --loops``: questions about arrangements asked, or compared with what was measured."""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from impls.terminal import plural

from .. import machines
from ..platforms import code_commit
from ..records import RecordError, how_to_measure
from ..validation import arranged, asking
from ..validation.arranged import ASK, MEASURE, Headline, headline, read, read_all
from ..validation.predictor import ROOT, present
from .text import aligned, percent, share, wrapped

LACKS = {"without_prediction": "no prediction", "without_time": "no time", "unstable": "a wide interval"}
NO_COMMIT = "00000000"  # of practice outside of a checkout


def run(options: argparse.Namespace) -> int:
    """Ask, or compare; return the exit code 0. RecordError or ValueError where that cannot be."""
    if options.ask:
        return _ask(options)
    result, note = _headline(options)
    if options.json:
        print(json.dumps(result.to_dict() | {"machine_note": note}))
    else:
        print(*([note, ""] if note else []), *lines(result), sep="\n")
    return 0


def _ask(options: argparse.Namespace) -> int:
    if options.file:
        raise ValueError("--ask names its file itself; leave the file out")
    commit = asking.frozen_commit() if options.seed is None else code_commit(ROOT) or NO_COMMIT
    records, note = machines.read(options.results, options.machine, machines.SWEEP)
    if note:
        raise RecordError(
            f"this machine has no sweep of its own to answer from; {how_to_measure(machines.SWEEP.command)}"
        )
    folder = options.results / records[0].machine_key
    seed, path = asking.first_free(folder, asking.Seed(commit, by_hand=options.seed), arranged.SIDE)
    made = arranged.ask(records, path, seed, options.arrangement_count)
    made.create()
    candidates, known = made.rows, sum("told" in row for row in made.rows)
    if options.json:
        print(json.dumps({"file": str(path), "seed": seed.value, "candidates": len(candidates), "answers": known}))
        return 0
    asked = plural(len(made.questions(arranged.SIDE)), "question")
    print(f"{asked} about arrangements, {known} of {plural(len(candidates), 'candidate')} predicted: {path}")
    print(f"now {how_to_measure(f'{MEASURE} {path}')}")
    if seed.by_hand is not None:
        print("the seed is your own: this is practice, and does not count")
    return 0


def _headline(options: argparse.Namespace) -> tuple[Headline, str]:
    """Return (the headline of the files, or of the machine's; whose records they are judged by, if another's)."""
    if options.seed is not None:
        raise ValueError("--seed goes with --ask")
    if options.file:
        files = [read(path) for path in options.file]
        return headline(files, str(files[0].head.get("machine", "")), options.results), ""
    key, note = options.machine, ""
    if key is None:
        records, note = machines.read(options.results, None, answered(options.results, "arrangements-*.json"))
        key = records[0].machine_key
    if not (files := read_all(options.results / key)):
        raise RecordError(f"{options.results / key}: no file of answers about arrangements; write one with: {ASK}")
    return headline(files, key, options.results), note


def answered(results: Path, *files: str) -> machines.Wanted:
    """Return what is wanted of a machine: that its folder has such files, where any machine's has."""
    there = {path.parent.name for pattern in files for path in results.glob(f"*/{pattern}")}
    return dataclasses.replace(machines.ANYTHING, shows=lambda one: not there or one.machine_key in there)


def lines(result: Headline) -> Iterator[str]:
    """Write a headline: what counts, then what waits, then what was voided."""
    figures = result.figures
    if not figures:
        yield f"arrangements: no question was asked of the present predictor and measured; ask with: {ASK}"
    else:
        counts = f"{plural(figures['questions'], 'question')}, {plural(figures['candidates'], 'candidate')}"
        yield f"arrangements: {counts}, predictor {present(arranged.SIDE)}, {plural(len(result.counted), 'file')}"
        yield from _figures(figures)
    for file, count in result.waiting:
        remedy = how_to_measure(f"{MEASURE} {file.path}")
        yield f"{file.path.name}: {plural(count, 'question')} not measured to the end; {remedy}"
    if result.voided:
        yield "voided:"
    for file, reason in result.voided:
        yield from wrapped(f"{file.path.name}: {reason}; {summary(arranged.figures(file.checked))}")


def _figures(figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"  {errors(figures)}"
    yield from aligned([[name, errors(one)] for name, one in figures["by_arrangement"].items()], "    ")
    yield f"  {regret(figures)}"
    for key, what in LACKS.items():
        if figures[key]:
            yield f"  {plural(figures[key], 'candidate')} with {what}"
    yield f"  {figures['drift']}"


def errors(figures: Mapping[str, Any]) -> str:
    """Write how far off the predicted rates were, and how many intervals held the measured one."""
    if figures["median_error"] is None:
        return "no rate was both predicted and measured"
    off = f"{percent(figures['median_error'])} in the median, {percent(figures['worst_error'])} at worst"
    off += f", too high in {share(figures['too_high'])}"
    return f"the rate is off by {off}; 95 % intervals hold {share(figures['inside'])}"


def regret(figures: Mapping[str, Any]) -> str:
    """Write what the recommended configurations lost beside the best measured ones."""
    if figures["median_regret"] is None:
        return "no recommended configuration was measured"
    best = f"the best was the recommended one in {share(figures['best_is_recommended'])}"
    lost = f"{percent(figures['median_regret'])} in the median, {percent(figures['worst_regret'])} at worst"
    return f"regret of the recommended configuration {lost} over {plural(figures['regrets'], 'question')}; {best}"


def summary(figures: Mapping[str, Any]) -> str:
    """Write the figures of a voided file in a clause."""
    if not figures:
        return "nothing measured"
    return f"{plural(figures['questions'], 'question')}, {errors(figures)}; {regret(figures)}"
