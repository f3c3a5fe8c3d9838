"""The timing of cells: warmed, calibrated, interleaved with their rivals and shuffled, until intervals are narrow."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dse.stats import MedianInterval, median_interval

from .clock import LEAST_SAMPLE_SECONDS, Call, CallClock, Clock

LEAST_SAMPLES = 11
NARROW = 0.02  # width of the interval, as a fraction of the median, below which sampling may stop
UNSTABLE = 0.25  # width above which a timing is called unstable


@dataclass(frozen=True)
class Timing:
    """The samples of one cell: seconds of a call, each the mean of ``calls_per_sample`` calls."""

    samples: tuple[float, ...]
    calls_per_sample: int

    @property
    def interval(self) -> MedianInterval:
        """The median and its 95 % interval."""
        return median_interval(self.samples)

    @property
    def is_unstable(self) -> bool:
        """Whether the interval is too wide to trust the median."""
        return self.interval.relative_width > UNSTABLE


def interleave_calls(
    calls: Sequence[Call], budget_seconds: float, seed: int = 0, least_sample_seconds: float = LEAST_SAMPLE_SECONDS
) -> list[Timing]:
    """Time calls of this process against each other; a call takes the number of its turn."""
    return interleave([CallClock(call, least_sample_seconds) for call in calls], budget_seconds, seed)


def interleave(clocks: Sequence[Clock], budget_seconds: float, seed: int = 0) -> list[Timing]:
    """Take samples of every clock in alternation: a round takes one of each, in a new order.

    Rounds continue until every interval is narrower than 2 % of its median or the budget is spent, but there are 11 at
    least. Without clocks there are no timings.
    """
    rng = np.random.default_rng(seed)
    samples: list[list[float]] = [[] for _ in clocks]
    start = time.perf_counter()
    # Invariant: every clock has as many samples, one of each round.
    while clocks:
        for which in rng.permutation(len(clocks)):
            samples[which].append(clocks[which].sample())
        rounds = len(samples[0])
        if rounds >= LEAST_SAMPLES:
            spent = time.perf_counter() - start
            if spent + spent / rounds > budget_seconds or all(
                median_interval(s).relative_width < NARROW for s in samples
            ):
                break
    return [Timing(tuple(s), clock.calls_per_sample) for s, clock in zip(samples, clocks, strict=True)]
