"""What is timed: single hand-overs, and the columns of a running system's row, in groups."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..profile.cells import Cell

PARTS = {
    "hand-over": "one hand-over of records, and of weights, by each transport, in one process",
    "system": "an actor and a learner as processes, in the columns of [Hou2023, Table 3]",
}
MICRO, SYSTEM = "transport", "training transport"
COLUMNS = {
    "environment step": "wall seconds of an environment step: sampling Hz is 1 over it",
    "gradient step": "wall seconds of a gradient step: update Hz is 1 over it, update frame Hz the batch over it",
    "cycle": "mean age in seconds of the newest record that the learner can sample, when it samples",
    "transfer": "the learner's seconds in transfer for a gradient step: its loss is this over a gradient step",
    "cpu": "CPU seconds of both processes for a second of wall time",
}
ROWS, BATCHES = (1, 64), (128, 1024)
SIZES = (500, 2_000, 5_000)  # records that a queue takes
TRANSPORTS = ("shared", "queue 500", "queue 2000", "queue 5000", "pipe")
PROCESSES = 2  # of a system: an actor and a learner
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


def systems(workload: str, capacity: int, fanout: int) -> Iterator[list[Cell]]:
    """Yield the columns of each row of the table."""
    for batch in BATCHES:
        for rows in ROWS:
            for name in TRANSPORTS:
                options = {"workload": workload, "rows": rows}
                yield [Cell(name, op, options, batch, 2, capacity, fanout) for op in COLUMNS]
