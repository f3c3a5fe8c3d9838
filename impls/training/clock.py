"""Run time without the pauses in which a race let another candidate run, the progress that it reads, and rates.

Who races runs names a file in the environment variable ``TURNS`` of each, of the numbers below: the racer writes how
long the run was stopped and whether it is free, the run its steps. So no time limit of a run ends while it is stopped.

Rates are in the columns of published tables; five metrics are those of [Zhang2022, section 1.5].
"""

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TURNS = "FANOUT_TURNS"
PAUSED, FREE, LATEST = range(3)  # nanoseconds stopped, whether it races no more, which of two entries is the latest
ENTRIES, COUNT = 3, 9  # where entries of (steps, gradient steps, nanoseconds of training) begin; all numbers


def numbers_of(path: str | Path) -> "memoryview[int]":
    """The numbers of a file, shared with all who map it. OSError where it is none."""
    with Path(path).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8 * COUNT)).cast("q")


_numbers = None
with suppress(OSError, KeyError):
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


Count = TypeVar("Count", int, float)


@dataclass(frozen=True)
class Throughput:
    """Rates of one run, or of a stretch of it.

    ``cpu_percent`` is processor time over wall time, 100 for each core that is kept busy; ``gpu_percent`` is None where
    there is no GPU, or its load was not read.
    """

    sampling_hz: float
    update_hz: float
    batch: int
    cpu_percent: float
    gpu_percent: float | None = None

    @property
    def update_frame_hz(self) -> float:
        """Records that gradient steps take per second: update frequency times batch, by definition.

        >>> Throughput(sampling_hz=4000, update_hz=20, batch=256, cpu_percent=99).update_frame_hz
        5120
        """
        return self.update_hz * self.batch

    def row(self) -> dict[str, float | None]:
        """The columns by name, for a table or a record."""
        names = "sampling_hz", "update_hz", "update_frame_hz", "cpu_percent", "gpu_percent"
        return {name: getattr(self, name) for name in names}


def cpu_seconds() -> float:
    """Processor time of this process so far, in seconds."""
    times = os.times()
    return times.user + times.system


def seconds_of(pid: int) -> float:
    """Processor time of a living process so far, in seconds; 0 of one that has ended."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return 0.0


class Stopwatch:
    """Wall and processor time since it was made; ``cpu`` is the processor time so far, of this process by default."""

    def __init__(self, cpu: Callable[[], float] = cpu_seconds) -> None:
        self._of_processor = cpu
        self._wall, self._cpu = seconds(), cpu()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time spent inside this context."""
        wall, cpu = seconds(), self._of_processor()
        yield
        self._wall += seconds() - wall
        self._cpu += self._of_processor() - cpu

    def seconds(self) -> float:
        """Wall time since the watch was made, without what is omitted."""
        return seconds() - self._wall

    def read(self, steps: int, updates: int, batch: int) -> Throughput:
        """Rates of N environment steps and gradient steps on ``batch`` records since the watch was made."""
        seconds = max(self.seconds(), 1e-9)
        cpu = self._of_processor() - self._cpu
        return Throughput(steps / seconds, computation_efficiency(updates, seconds), batch, 100 * cpu / seconds)


def policy_quality(rewards: Sequence[float], gamma: float = 1.0) -> float:
    """Accumulated reward of an episode, sum of gamma^t r_t [Zhang2022, Eq. 1.1]; evaluations here take gamma = 1.

    >>> policy_quality([1, 2, 4], gamma=0.5)
    3.0
    """
    return float(sum(gamma**t * reward for t, reward in enumerate(rewards)))


def _first_at_least(counts: Sequence[Count], returns: Sequence[float], threshold: float) -> Count | None:
    """The count at which the returns first reach the threshold; None if they never do."""
    return next((count for count, mean in zip(counts, returns, strict=True) if mean >= threshold), None)


def sample_efficiency(steps: Sequence[int], returns: Sequence[float], threshold: float) -> int | None:
    """Environment steps until the returns converge, that is, reach a threshold set beforehand; fewer is better.

    >>> sample_efficiency([1000, 2000, 3000], [20, 480, 500], 475)
    2000
    """
    return _first_at_least(steps, returns, threshold)


def learning_efficiency(updates: Sequence[int], returns: Sequence[float], threshold: float) -> int | None:
    """Gradient steps until the returns converge; fewer is better."""
    return _first_at_least(updates, returns, threshold)


def time_to_solve(seconds: Sequence[float], returns: Sequence[float], threshold: float) -> float | None:
    """Seconds until the returns converge, as [Hou2023, Table 1] compares frameworks; fewer is better."""
    return _first_at_least(seconds, returns, threshold)


def computation_efficiency(updates: int, seconds: float) -> float:
    """Gradient steps per second."""
    return updates / seconds


def scaling_factor(efficiency: float, units: int, one: float) -> float:
    """Speed-up for each unit of computation: (efficiency of ``units``) / (units * efficiency of one); 1 is perfect.

    >>> scaling_factor(300.0, 4, 100.0)
    0.75
    """
    return efficiency / (units * one)
