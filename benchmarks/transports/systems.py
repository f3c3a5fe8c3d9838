"""A training system of one actor process and one learner process, run in blocks of time: the columns of its row."""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from impls.training import Workload
from impls.training.parallel.arrangement import Arrangement

from .cells import Preset
from .watched import Ledger, Watched

if TYPE_CHECKING:  # numba
    from impls.training.parallel.loop import ParallelLoop

STARTS, CAPACITY = 1_000, 100_000
LEAST_SECONDS = 1e-12  # a record's time is above 0


class Counts(NamedTuple):
    """What a system has done so far: seconds by its clocks, steps, and what its transport noted."""

    wall: float
    cpu: float
    steps: int
    updates: int
    transfer: float
    age: float
    looks: int


def system_of(workload: Workload, name: str, rows: int, batch: int) -> tuple[Workload, Arrangement]:
    """Return a workload with one actor that hands so many rows over at once, and its arrangement with a free ratio."""
    replace = dataclasses.replace
    changed = replace(
        workload,
        steps=1 << 40,
        learner=replace(workload.learner, batch=batch, learning_starts=STARTS),
        replay=replace(workload.replay, capacity=CAPACITY, presampled=0),
        exploration=replace(workload.exploration, random_steps=0),
        actors=replace(workload.actors, count=1, environments=1, local_storage=rows),
    )
    kind, _, size = name.partition(" ")
    arrangement = Arrangement(
        name="apart",
        ratio="free",
        transport="shared" if kind == "ring" else kind,
        strategy="owner" if kind == "ring" else "two_lock_checked",
        queue_size=int(size or 2_000),
    )
    return changed, arrangement


def measured(
    workload: Workload,
    name: str,
    rows: int,
    batch: int,
    preset: Preset,
    make_loop: Callable[..., Any] | None = None,
) -> dict[str, list[float]]:
    """Run a system; return the samples of each column, one a block. TrainingError if a process of it fails."""
    from impls.training.parallel import loop as parallel  # noqa: PLC0415  # numba
    from impls.training.parallel.transports import make  # noqa: PLC0415

    changed, arrangement = system_of(workload, name, rows, batch)
    watched = Watched(make(changed, arrangement), Ledger(), arrangement.transport == "shared")
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    loop = (make_loop or parallel.ParallelLoop)(changed, arrangement, handing=watched)
    try:
        while loop.updates == 0:
            loop.advance()
        _run(loop, preset.warm_seconds)
        counts = [_counts(loop, watched)]
        for _ in range(preset.blocks):
            _run(loop, preset.block_seconds)
            counts.append(_counts(loop, watched))
    finally:
        loop.close()
        if mine is not None:
            os.sched_setaffinity(0, mine)
    return columns(counts)


def columns(counts: list[Counts]) -> dict[str, list[float]]:
    """Return the samples of each column from the counts before, between and after blocks."""
    samples: dict[str, list[float]] = {}
    for before, after in itertools.pairwise(counts):
        done = Counts(*(last - first for first, last in zip(before, after, strict=True)))  # type: ignore[arg-type]
        values = {
            "environment step": done.wall / max(1, done.steps),
            "gradient step": done.wall / max(1, done.updates),
            "cycle": done.age / max(1, done.looks),
            "transfer": done.transfer / max(1, done.updates),
            "cpu": done.cpu / done.wall,
        }
        for column, value in values.items():
            samples.setdefault(column, []).append(max(LEAST_SECONDS, value))
    return samples


def _run(loop: "ParallelLoop", seconds: float) -> None:
    """Train for so long, and a gradient step at least."""
    end = time.perf_counter() + seconds
    updates = loop.updates
    while time.perf_counter() < end or loop.updates == updates:
        loop.advance()


def _counts(loop: "ParallelLoop", watched: Watched) -> Counts:
    times = loop.cpu_seconds(), loop.step, loop.updates
    return Counts(time.perf_counter(), *times, 1e-9 * watched.transfer_ns, 1e-9 * watched.age_ns, watched.looks)
