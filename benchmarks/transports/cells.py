"""What is timed: single hand-overs, and the columns of a running system's row, in groups."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dse.platforms.evidence import CORES
from impls.terminal import plural

from ..profile.cells import Cell

PARTS = {
    "hand-over": "one hand-over of records, and of weights, by each transport, in one process",
    "system": "actors and a learner as processes, in the columns of [Hou2023, Table 3]",
}
MICRO, SYSTEM = "transport", "training transport"
COLUMNS = {
    "environment step": "wall seconds of an environment step: sampling Hz is 1 over it",
    "gradient step": "wall seconds of a gradient step: update Hz is 1 over it, update frame Hz the batch over it",
    "cycle": "mean age in seconds of the newest record that the learner can sample, when it samples",
    "transfer": "the learner's seconds in transfer for a gradient step: its loss is this over a gradient step",
    "cpu": "CPU seconds of all processes for a second of wall time",
    "interval": "seconds between two transfers that brought records, the transfer cycle; shared memory has none",
}
INTERVAL = "interval"
ROWS, BATCHES = (1, 64), (128, 1024)
SIZES = (500, 2_000, 5_000)  # records that a queue takes
WEIGHTS = ("shared", "file", "torch")
ADDED = "add to weights"  # 1, in one tensor of torch's, in memory of its own or in what torch shares


@dataclass(frozen=True)
class Preset:
    """Seconds of a running system before its first block, of a block, and how many blocks; of sampling a small cell."""

    warm_seconds: float
    block_seconds: float
    blocks: int
    budget_seconds: float


PRESETS = {"quick": Preset(1.0, 0.5, 11, 0.15), "full": Preset(5.0, 2.5, 11, 0.5)}


def hand_overs() -> Iterator[list[Cell]]:
    """Yield groups of hand-overs of as many rows, and of weights, that are timed in alternation."""
    for rows in ROWS:
        yield [Cell(name, op, batch=rows) for name in ("shared", "queue", "pipe") for op in ("send", "hand over")]
    for op in ("publish", "fetch"):
        yield [Cell(name, f"{op} weights") for name in WEIGHTS]
    yield [Cell(name, ADDED) for name in ("private", "torch")]


def systems(workload: str, capacity: int, fanout: int, axes: Mapping[str, Sequence[int]]) -> Iterator[list[Cell]]:
    """Yield the columns of each row of the table; a queue that is filled first is handed single rows, as there.

    ``axes``: values of ``cores``, ``samplers``, ``batches`` and ``queue_size``.
    """
    for used, count, batch, rows in itertools.product(axes["cores"], axes["samplers"], axes["batches"], ROWS):
        options = {"workload": workload, "rows": rows} | ({"samplers": count} if count > 1 else {})
        options |= {"cores": used} if used < CORES else {}
        queues = [
            f"{kind} {size}" for kind in ("queue", *(["fill"] if rows == 1 else [])) for size in axes["queue_size"]
        ]
        for name in ("shared", *queues, "pipe"):
            ops = [op for op in COLUMNS if (name, op) != ("shared", INTERVAL)]
            yield [Cell(name, op, options, batch, count + 1, capacity, fanout) for op in ops]


def oversubscribed(options: Mapping[str, Any]) -> str | None:
    """Say that a system with these options has more processes than cores; None where it has not."""
    processes, cores = options.get("samplers", 1) + 1, options.get("cores", CORES)
    return f"oversubscribed: {processes} processes on {plural(cores, 'core')}" if processes > cores else None
