"""How far off were recommendations? Measure what they recommended; `python -m dse validate FILE` then compares."""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

from dse.records import RecordError

from .arguments import add_common, add_numbers, parser_of
from .cases import Case
from .presets import PRESETS, groups
from .sweep import SweepMethod, sweep

PRIMITIVE = "answer"
QUESTION_SEED = 20_261_121  # `questions` asks by it; committed before the sweep that the answers rest on
UPDATES_PER_SAMPLE = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclasses.dataclass(frozen=True)
class Question:
    """Which tree, which K, how many of ``threads`` threads, for N leaves, batches of B and so many updates a sample?"""

    capacity: int
    batch: int
    threads: int
    updates_per_sample: float


def questions(count: int, threads: int, seed: int = QUESTION_SEED) -> list[Question]:
    """Return ``count`` random questions: N log-uniform in [1e4, 1e6], B in [32, 16384], threads in 1..``threads``."""
    rng = np.random.default_rng(seed)
    return [
        Question(
            capacity=round(10 ** rng.uniform(4, 6)),
            batch=round(2 ** rng.uniform(5, 14)),
            threads=int(rng.integers(1, threads + 1)),
            updates_per_sample=float(rng.choice(UPDATES_PER_SAMPLE)),
        )
        for _ in range(count)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure; return the exit code 0. RecordError for a file that holds no answers."""
    options = _parser().parse_args(arguments)
    path = options.file.with_suffix(".jsonl")
    method, bar = SweepMethod(PRIMITIVE), not options.json
    tally = sweep(groups(cases(options.file)), path, options.budget, with_floor=False, method=method, bar=bar)
    done = {"file": str(path), "cells": tally.cells, "found_done": tally.resumed, "by_status": tally.by_status}
    if options.json:
        print(json.dumps(done))
    else:
        print(f"{tally.cells} cells, {tally.resumed} of them were there; records: {path}")
        print(f"compare with: python -m dse validate {options.file}")
    return 0


def cases(path: Path) -> list[Case]:
    """Return a draw and an update of every recommended configuration. RecordError for a file without answers."""
    try:
        pairs = [
            (answer["question"], answer["choice"]["configuration"])
            for answer in json.loads(path.read_text())["answers"]
        ]
        return [
            Case(
                op=op,
                options=dict(chosen["options"]),
                **{name: asked[name] for name in ("capacity", "batch", "dtype", "distribution")},
                **{name: chosen[name] for name in ("contestant", "fanout", "threads")},
            )
            for asked, chosen in pairs
            for op in ("draw", "update")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: no file of answers ({error}); write one with: python -m dse validate --draw 40 --seed 1"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("answers", __doc__, "answers.json")
    parser.add_argument("file", type=Path, help="file of answers, as `python -m dse validate --draw` wrote it")
    add_numbers(parser, budget=(PRESETS["quick"].budget_seconds, "seconds of sampling a cell"))
    return add_common(parser, results=False)
