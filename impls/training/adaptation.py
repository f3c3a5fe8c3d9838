"""What ``--adapt`` does in a run: actors and a batch are searched by measured rates, while it trains [Hou2023, 3.4].

Every environment step and gradient step of the search is one of the run. In [Hou2023] the ratio of both is free; here
that would take all steps of a short run within seconds, few of them learned from. So the ratio is free in the looks for
samplers alone, which end after 1.5 s or, if that is sooner, when all of them together might take a quarter of the run's
steps; the gradient steps due are caught up with before the next look (``parallel.changing``). In the looks for a batch
actors follow the learner, which never waits for them; the smallest batch is seen among samplers alone. The shorter a
run, the rougher are the rates of its samplers.

Each look is a line of adaptation.csv as soon as it is taken. A resumed run takes the pair that was kept, or the looks
that are there, without measuring any of them again, and continues the search.
"""

import argparse
import csv
import os
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cores import count_allowed, free_bytes
from ..terminal import plural
from .adapting import BATCHES, MEMORY, Step, adapt_running
from .errors import TrainingError
from .folder import PAIRS, Log
from .options import RunSetup, command_of, with_options, with_pair
from .workload import Workload

if TYPE_CHECKING:
    from .parallel.changing import ChangingLoop, Rates  # which loads what trains

KEPT = "kept"
_WHOLE = (
    "actors", "batch", "sampling_hz", "update_hz", "frames_hz", "cpu_percent", "memory_bytes", "actor_bytes",
    "learner_bytes",
)  # fmt: skip
COLUMNS = ("search", *_WHOLE, "over")
LOOK_SECONDS, SETTLE_SECONDS, SHARE = 1.5, 0.05, 4

Search = Callable[["ChangingLoop", Callable[[], None]], dict[str, Any]]
"""Searches in a loop, of which the run takes turns by a function; returns what the run's summary tells of it."""


def adapted(setup: RunSetup, options: argparse.Namespace, folder: Path) -> tuple[Workload, Search]:
    """The workload of a run, with actors enough for a search, and the search.

    TrainingError where no pair can be tried, or the looks of a run to resume cannot be read.
    """
    rows = _rows(folder / PAIRS) if options.resume else []
    most = max([2 * count_allowed(), *(row["actors"] for row in rows)])
    batches = _batches(setup.workload, options, most)
    workload = with_options(setup.workload, with_pair(options, most, batches[0]))

    def search(loop: "ChangingLoop", turn: Callable[[], None]) -> dict[str, Any]:
        loop.turn = turn
        looks = rows
        if not rows or rows[-1]["search"] != KEPT:
            _search(loop, range(1, most + 1), batches, folder / PAIRS, rows)
            looks = _rows(folder / PAIRS)
        actors, batch = looks[-1]["actors"], looks[-1]["batch"]
        loop.set_actors(actors)
        loop.set_batch(batch)
        command = command_of(with_pair(options, actors, batch))
        return {"actors": actors, "batch": batch, "looks": looks[:-1], "command": command}

    return workload, search


def _search(loop: "ChangingLoop", samplers: range, batches: list[int], path: Path, rows: list[dict[str, Any]]) -> None:
    """Search, and write each look that is not among these rows as it ends, then the pair to keep."""
    from .parallel.changing import measure_bytes  # noqa: PLC0415  # compiled code and shared memory

    taken = {(row["actors"], row["batch"]): _rates(row) for row in rows}
    looks = len(samplers).bit_length() + 1  # or so, by Fibonacci numbers
    steps = max(100, loop.workload.steps // (SHARE * looks))

    def measure(*pair: int) -> "Rates":
        if pair in taken:
            return taken[pair]
        loop.set_actors(pair[0])
        loop.set_batch(pair[1])
        return loop.measure(LOOK_SECONDS, SETTLE_SECONDS, steps, are_actors_free=pair[1] == batches[0])

    def tell(step: Step, search: str = "") -> None:
        if step.pair in taken and not search:
            return
        row = {name: round(getattr(step.rates, name)) for name in _WHOLE}
        log.add({"search": search or step.search, **row, "over": step.over})
        rates = f"{row['sampling_hz']:,} steps/s, {row['frames_hz']:,} records/s"
        _say(f"{search or 'tried'} {plural(row['actors'], 'actor')}, B = {row['batch']:,}: {rates}")

    memory = free_bytes() + measure_bytes(os.getpid())  # of which a look counts this process's too
    with closing(Log(path, COLUMNS, path.stat().st_size if rows else None)) as log:
        _say(f"trying 1 to {plural(len(samplers), 'actor')} and B = {batches[0]:,} to {batches[-1]:,}")
        run = adapt_running(measure, samplers, batches, {MEMORY: memory}, count_allowed(), tell=tell)
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


def _rates(row: dict[str, Any]) -> "Rates":
    """The rates of a row, as far as a search asks for them."""
    from .parallel.changing import Rates  # noqa: PLC0415  # compiled code and shared memory

    own = {name: row[name] for name in _WHOLE if name != "memory_bytes"}
    return Rates(**own, actor_cores=0.0, learner_cores=0.0, seconds=())


def _rows(path: Path) -> list[dict[str, Any]]:
    """The looks in a file, and the pair that was kept, if any. TrainingError where it cannot be read."""
    try:
        with path.open(newline="") as file:
            return [{**row, **{name: int(row[name]) for name in _WHOLE}} for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError):
        raise TrainingError(
            f"{path}: does not say which pairs were tried; put the file back, or continue without a search, with "
            "--arrangement apart and the --actors and --batch that the run had"
        ) from None
