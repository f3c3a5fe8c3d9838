"""What ``--adapt`` does before a run: actors and a batch are searched by measured rates, on a loop that is let go.

The ratio of environment steps to gradient steps is free in the search, so that each rate is measured by itself
[Hou2023, 3.4]. Within seconds such a loop takes more environment steps than many a run has, few of them learned from;
so none counts, and the run begins anew, by the pair found, at its workload's update_interval.
"""

import argparse
import csv
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cores import count_allowed, free_bytes
from ..terminal import plural
from .adapting import BATCHES, MEMORY, Step, adapt_running
from .errors import TrainingError
from .folder import PAIRS, Log, alone
from .options import RunSetup, command_of, with_options, with_pair
from .workload import MOST, Workload

KEPT = "kept"
_WHOLE = ("actors", "batch", "sampling_hz", "update_hz", "frames_hz", "cpu_percent", "memory_bytes")
COLUMNS = ("search", *_WHOLE, "over")
LOOK_SECONDS, SETTLE_SECONDS = 1.5, 0.5


def adapted(
    setup: RunSetup, options: argparse.Namespace, folder: Path, made: Mapping[str, Any]
) -> tuple[Workload, dict[str, Any]]:
    """The workload by the pair that a search finds, or that of a run to resume had found; and what its summary tells.

    ``made``: options of the loop. TrainingError where no pair can be measured, or a folder lacks what was found.
    """
    if not options.resume:
        _search(setup, options, folder, {**made, "seed": options.seed})
    *looks, kept = _rows(folder / PAIRS)
    actors, batch = kept["actors"], kept["batch"]
    pair = with_pair(options, actors, batch)
    found = {"actors": actors, "batch": batch, "looks": looks, "command": command_of(pair)}
    return with_options(setup.workload, pair), found


def _search(setup: RunSetup, options: argparse.Namespace, folder: Path, made: Mapping[str, Any]) -> None:
    """Search, and write each look into the folder as it ends."""
    from .parallel.changing import measuring  # noqa: PLC0415  # compiled code and shared memory

    cores = count_allowed()
    samplers = range(1, 2 * cores + 1)
    batches = _batches(setup.workload, options, samplers[-1])
    actors = replace(setup.workload.actors, count=samplers[-1])
    trial = replace(setup.workload, actors=actors, steps=MOST)
    with ExitStack() as stack:
        measure = stack.enter_context(
            measuring(trial, setup.arrangement, samplers[0], LOOK_SECONDS, SETTLE_SECONDS, **made)
        )
        stack.enter_context(alone(folder))  # once all that can be refused was
        log = stack.enter_context(closing(Log(folder / PAIRS, COLUMNS)))

        def tell(step: Step, search: str = "") -> None:
            row = {name: round(getattr(step.rates, name)) for name in _WHOLE}
            log.add({"search": search or step.search, **row, "over": step.over})
            rates = f"{row['sampling_hz']:,} steps/s, {row['frames_hz']:,} records/s"
            _say(f"{search or 'tried'} {plural(row['actors'], 'actor')}, B = {row['batch']:,}: {rates}")

        _say(f"trying 1 to {plural(len(samplers), 'actor')} and B = {batches[0]:,} to {batches[-1]:,}")
        run = adapt_running(measure, samplers, batches, {MEMORY: free_bytes()}, cores, tell=tell)
        tell(next(step for step in run.path if step.pair == run.pair), KEPT)


def _batches(workload: Workload, options: argparse.Namespace, actors: int) -> list[int]:
    """The batches by which this number of actors can train the workload. TrainingError where there is none."""
    batches = list[int]()
    for batch in BATCHES:
        try:
            with_options(workload, with_pair(options, actors, batch))
        except TrainingError:  # as is a larger one
            if not batches:
                raise
            break
        batches.append(batch)
    return batches


def _say(sentence: str) -> None:
    print(f"adapt: {sentence}", file=sys.stderr, flush=True)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The looks in a file, and the one that was kept. TrainingError where it does not have them."""
    try:
        with path.open(newline="") as file:
            rows = [{**row, **{name: int(row[name]) for name in _WHOLE}} for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        rows = []
    if not rows or rows[-1]["search"] != KEPT:
        raise TrainingError(
            f"{path}: does not say which pair the run was begun with; continue with --arrangement apart, --actors and "
            "--batch in place of --adapt, or begin again in another folder with --out"
        )
    return rows
