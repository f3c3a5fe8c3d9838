"""Run time without the pauses in which a race let another candidate run, and the progress that the race reads.

Who races runs names a file in the environment variable ``TURNS`` of each, of the numbers below: the racer writes how
long the run was stopped and whether it is free, the run its steps. So no time limit of a run ends while it is stopped.
"""

import contextlib
import mmap
import os
import time
from pathlib import Path

TURNS = "FANOUT_TURNS"
PAUSED, FREE, LATEST = range(3)  # nanoseconds stopped, whether it races no more, which of two entries is the latest
ENTRIES, COUNT = 3, 9  # where entries of (steps, gradient steps, nanoseconds of training) begin; all numbers


def numbers_of(path: str | Path) -> "memoryview[int]":
    """The numbers of a file, shared with all who map it. OSError where it is none."""
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8 * COUNT)).cast("q")


_numbers = None
with contextlib.suppress(OSError, KeyError):
    _numbers = numbers_of(os.environ[TURNS])


def nanoseconds() -> int:
    """Nanoseconds of a clock that never goes back, without those for which this process was stopped by a race."""
    return time.perf_counter_ns() - (_numbers[PAUSED] if _numbers else 0)


def seconds() -> float:
    """Seconds of the same clock."""
    return time.perf_counter() - (_numbers[PAUSED] / 1e9 if _numbers else 0.0)


def is_raced() -> bool:
    """Whether this run races, so that neither its seconds nor its settled rate count yet."""
    return _numbers is not None and not _numbers[FREE]


def publish_progress(steps: int, updates: int, trained: float) -> None:
    """Publish to a race, if there is one, the steps so far and the seconds of training that they took."""
    if _numbers:  # Invariant: the latest entry is whole, wherever a stop falls.
        other = 1 - _numbers[LATEST]
        for place, number in enumerate((steps, updates, int(trained * 1e9)), ENTRIES + 3 * other):
            _numbers[place] = number
        _numbers[LATEST] = other


def read_progress(numbers: "memoryview[int]") -> tuple[int, int, int]:
    """The latest progress of a run: steps, gradient steps, nanoseconds of training."""
    start = ENTRIES + 3 * numbers[LATEST]
    return numbers[start], numbers[start + 1], numbers[start + 2]
