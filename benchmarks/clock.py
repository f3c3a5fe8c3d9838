"""The clocks: how many calls make a sample long enough, one sample at a time, and on which CPUs they run."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from .cases import Prepared

LEAST_SAMPLE_SECONDS = 0.010
MOST_CALLS = 1 << 20
ALL_CPUS = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()  # by number

Call = Callable[[int], object]


class Clock(Protocol):
    """Something that is timed in samples, each the mean of ``calls_per_sample`` calls."""

    calls_per_sample: int

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""


class CallClock:
    """Times ``call(turn)``, a call a turn. The first calls, which compile and touch every page, find how many make a
    sample of at least N seconds. ``finish`` ends a sample: it waits for work that the calls have only begun."""

    def __init__(
        self,
        call: Call,
        least_sample_seconds: float = LEAST_SAMPLE_SECONDS,
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        self._call, self._finish, self._turn = call, finish, 0
        self.calls_per_sample = _calibrate(call, least_sample_seconds, finish)

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call."""
        call, first, count = self._call, self._turn, self.calls_per_sample
        begin = time.perf_counter()
        for turn in range(first, first + count):
            call(turn)
        self._finish()
        seconds = time.perf_counter() - begin
        self._turn += count
        return seconds / count


def clock_of(prepared: Prepared, least_sample_seconds: float = LEAST_SAMPLE_SECONDS) -> CallClock:
    """Return a clock whose samples end when the tree's device has finished."""
    return CallClock(prepared.call, least_sample_seconds, prepared.tree.synchronize)


class SharedClock:
    """Times ``call`` made by several Python threads at once: wall time over the calls that all of them finish."""

    def __init__(self, call: Call, callers: int, least_sample_seconds: float = LEAST_SAMPLE_SECONDS) -> None:
        self._call, self._callers, self._turn = call, callers, 0
        self.calls_per_sample = callers * _calibrate(call, least_sample_seconds)

    def sample(self) -> float:
        """Take one more sample; return the seconds of wall time a call. Raises what a call raises."""
        each, began = self.calls_per_sample // self._callers, []
        start = threading.Barrier(self._callers, action=lambda: began.append(time.perf_counter()))

        def work(first: int) -> float:
            start.wait()
            for turn in range(first, first + each):
                self._call(turn)
            return time.perf_counter()

        firsts = [self._turn + caller * each for caller in range(self._callers)]
        with ThreadPoolExecutor(self._callers) as threads:
            ended = max(threads.map(work, firsts))
        self._turn += self.calls_per_sample
        return (ended - began[0]) / self.calls_per_sample


class StretchClock:
    """Times ``call`` for a stretch of time: as many calls as fit, in whole periods of ``period``, and one at least.
    Processes that run for the same stretch run concurrently all the while.

    ``call_seconds`` is the least of several tries, for one that the machine disturbs is too long.
    """

    _LOOKS = 50  # readings of the clock in a stretch
    _LEAST_TRIES, _MOST_TRIES = 2, 5
    _TRIES_SECONDS = 2.0  # after which no try is begun beyond the least

    def __init__(self, call: Call, stretch_seconds: float, period: int = 1) -> None:
        self._call, self._turn, self.period = call, 0, period
        self._chunk = period * math.ceil(_calibrate(call, stretch_seconds / self._LOOKS) / period)
        self.calls_per_sample = 0
        self.stretch_seconds = stretch_seconds
        self.call_seconds = self._least_seconds(stretch_seconds / 20)

    def _least_seconds(self, stretch_seconds: float) -> float:
        least, end = math.inf, time.perf_counter() + self._TRIES_SECONDS
        for tried in range(self._MOST_TRIES):
            if tried >= self._LEAST_TRIES and time.perf_counter() > end:
                break
            least = min(least, self.sample(stretch_seconds=stretch_seconds))
        return least

    def sample(self, begin: float = 0.0, stretch_seconds: float | None = None) -> float:
        """Take one more sample from ``begin`` on (by ``perf_counter``, which processes share); return the seconds of a
        call."""
        call, turn, chunk = self._call, self._turn, self._chunk
        while (wait := begin - time.perf_counter()) > 0:
            time.sleep(wait)
        first = time.perf_counter()
        end = first + (stretch_seconds or self.stretch_seconds)
        # Invariant: the turns from ``self._turn`` to ``turn`` - 1 have been called, in whole chunks.
        while True:
            for this_turn in range(turn, turn + chunk):
                call(this_turn)
            turn += chunk
            if (last := time.perf_counter()) >= end:
                break
        self._turn, self.calls_per_sample = turn, turn - self._turn
        return (last - first) / self.calls_per_sample


def _calibrate(call: Call, least_sample_seconds: float, finish: Callable[[], object] = lambda: None) -> int:
    """Return how many calls make a sample of at least a given number of seconds, MOST_CALLS at most."""
    call(0)
    finish()
    count = 1
    # Invariant: a sample of every count tried before was too short; the next is at least twice as large.
    while True:
        begin = time.perf_counter()
        for turn in range(count):
            call(turn)
        finish()
        seconds = time.perf_counter() - begin
        if seconds >= least_sample_seconds or count >= MOST_CALLS:
            return count
        count = min(MOST_CALLS, max(2 * count, int(1.1 * count * least_sample_seconds / max(seconds, 1e-9))))


def pin_to(cpus: Iterable[int], threads: Iterable[int] = (0,)) -> list[int]:
    """Keep threads (0: the caller) on these CPUs, by their numbers; return the CPUs, [] without affinity."""
    chosen = list(cpus) if ALL_CPUS else []
    for thread in threads if chosen else ():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, chosen)
    return chosen


def pin(cpus: int, threads: Iterable[int] = (0,)) -> list[int]:
    """Keep threads (0: the caller) on the first ``cpus`` CPUs they may use; return those, [] without affinity."""
    return pin_to(ALL_CPUS[:cpus], threads)
