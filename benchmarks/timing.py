"""How cells are timed: warmed, calibrated, in turns with their rivals and shuffled, until intervals are narrow."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dse.stats import Interval, median_interval

LEAST_SAMPLE_SECONDS = 0.010
LEAST_SAMPLES = 11
NARROW = 0.02  # width of the interval, as a fraction of the median, at which sampling may stop
UNSTABLE = 0.25  # width above which a median is not worth much
MOST_CALLS = 1 << 20


@dataclass(frozen=True)
class Timing:
    """Samples of one call: seconds each, means of ``calls_per_sample`` calls."""

    samples: tuple[float, ...]
    calls_per_sample: int

    @property
    def interval(self) -> Interval:
        """Median and its 95 % interval."""
        return median_interval(self.samples)

    @property
    def is_unstable(self) -> bool:
        """Whether the interval is too wide to trust the median."""
        return self.interval.relative_width > UNSTABLE


def time_interleaved(
    calls: Sequence[Callable[[int], object]],
    budget_seconds: float,
    seed: int = 0,
    least_sample_seconds: float = LEAST_SAMPLE_SECONDS,
) -> list[Timing]:
    """Time calls against each other: every round takes one sample of each, in a new order.

    A call is given the number of its turn. Rounds go on until every interval is narrower than 2 % of its median or the
    budget is spent, but never fewer than 11.
    """
    rng = np.random.default_rng(seed)
    per_sample = [_calibrate(call, least_sample_seconds) for call in calls]
    turns = [0] * len(calls)
    samples: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    while True:
        for which in rng.permutation(len(calls)):
            call, first, count = calls[which], turns[which], per_sample[which]
            begin = time.perf_counter()
            for turn in range(first, first + count):
                call(turn)
            samples[which].append((time.perf_counter() - begin) / count)
            turns[which] += count
        rounds = len(samples[0])
        if rounds >= LEAST_SAMPLES:
            spent = time.perf_counter() - start
            if spent + spent / rounds > budget_seconds or all(
                median_interval(s).relative_width < NARROW for s in samples
            ):
                return [Timing(tuple(s), count) for s, count in zip(samples, per_sample, strict=True)]


def _calibrate(call: Callable[[int], object], least_sample_seconds: float) -> int:
    """Calls that make a sample of at least so many seconds; the first calls compile and touch every page."""
    call(0)
    count = 1
    while True:
        begin = time.perf_counter()
        for turn in range(count):
            call(turn)
        seconds = time.perf_counter() - begin
        if seconds >= least_sample_seconds or count >= MOST_CALLS:
            return count
        count = min(MOST_CALLS, max(2 * count, int(1.1 * count * least_sample_seconds / max(seconds, 1e-9))))


ALL_CPUS: tuple[int, ...] = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def pin(threads: int) -> list[int]:
    """Keep this thread on the first ``threads`` CPUs it may use; returns them, [] where the system has no affinity."""
    if not ALL_CPUS:
        return []
    chosen = ALL_CPUS[:threads]
    os.sched_setaffinity(0, chosen)
    return list(chosen)
