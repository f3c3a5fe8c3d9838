"""Measure the configurations that answers recommended; `python -m dse validate` then says how far off they were."""

import argparse
import json
from pathlib import Path
from typing import Any

from dse.records import RecordError
from impls.terminal import Progress

from .cases import Case
from .presets import PRESETS, groups
from .sweep import Tally, Way, sweep

PRIMITIVE = "answer"


def main(arguments: list[str] | None = None) -> int:
    """Measure; returns the exit code 0. RecordError for a file that holds no answers."""
    options = _parser().parse_args(arguments)
    cells = groups(cases(options.file))
    path = options.file.with_suffix(".jsonl")
    tally = _swept(cells, path, options.budget, options.json)
    done = {"file": str(path), "cells": sum(map(len, cells)), "found_done": tally.resumed, "by_status": tally.by_status}
    if options.json:
        print(json.dumps(done))
    else:
        print(f"{done['cells']} cells, {tally.resumed} of them were there; records: {path}")
        print(f"compare with: python -m dse validate {options.file}")
    return 0


def cases(path: Path) -> list[Case]:
    """A sample and an update of every answer's configuration. RecordError where the file is no file of answers."""
    try:
        answers = json.loads(path.read_text())["answers"]
        return [
            _case(one["question"], one["choice"]["configuration"], op) for one in answers for op in ("draw", "update")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: no file of answers ({error}); write one with: python -m dse validate --draw 40 --seed 1"
        ) from None


def _case(question: dict[str, Any], configuration: dict[str, Any], op: str) -> Case:
    return Case(
        contestant=configuration["contestant"],
        op=op,
        capacity=question["capacity"],
        batch=question["batch"],
        fanout=configuration["fanout"],
        threads=configuration["threads"],
        dtype=question["dtype"],
        options=dict(configuration["options"]),
        distribution=question["distribution"],
    )


def _swept(cells: list[list[Case]], path: Path, budget: float, as_json: bool) -> Tally:
    with Progress(sum(map(len, cells)), "cell", bar=not as_json) as progress:
        return sweep(cells, path, budget, on_cell=progress.update, with_floor=False, way=Way(PRIMITIVE))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks answers", description=__doc__)
    parser.add_argument("file", type=Path, help="of answers, as `python -m dse validate --draw` wrote it")
    parser.add_argument(
        "--budget",
        type=float,
        default=PRESETS["quick"].budget_seconds,
        metavar="SECONDS",
        help="of sampling for one cell (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser
