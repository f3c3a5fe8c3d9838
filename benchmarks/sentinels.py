"""Sentinels: a few calls, always the same, that measuring commands time first and again while they run.

Their records show by how much the machine itself changes, minutes and hours apart: ``dse.drift`` makes intervals as
wide as that. Within a run they show which cells were timed while the machine was disturbed.
"""

import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

import impls
from dse.platforms import memory
from dse.records import Record

from .cases import Case, prepare
from .clock import ALL_CPUS, Call, CallClock, pin
from .timing import Timing

SENTINEL = "sentinel"  # the primitive of their records
TREES = (
    Case("numba", "draw", 10_000, 256),
    Case("numba", "update", 1_000_000, 2_048),
    Case("python", "draw", 1_000, 32),
)
MEMORY_BYTES, READS = 64 << 20, 1 << 15  # more bytes than a cache holds
MATRIX = 256
WATCHED = 2  # sentinels that a look times: the first tree, and reads of memory or the next tree
SAMPLES, LOOK_SAMPLES, SAMPLE_SECONDS = 7, 3, 0.004
EVERY_SECONDS = 45.0  # from one visit in a run to the next
DISTURBED = 1.25  # times a sentinel's quiet level in the run
LEAST_LOOKS = 10  # of fewer nobody knows what is quiet


class Sentinels:
    """The sentinels of a run; nothing is made before the first visit or look."""

    def __init__(self) -> None:
        self._visited = -math.inf
        self._looks: list[list[float]] = []

    @functools.cached_property
    def _clocks(self) -> list[tuple[Case, str, CallClock]]:
        """Each sentinel's case, op and clock, the watched ones first."""
        made = [(case, case.op, prepare(case).call) for case in TREES if impls.why_not(case.contestant) is None]
        reads = [(Case(kind, "get", MEMORY_BYTES // 64, READS, 1), "read", call) for kind, call in _reads()]
        made[1:1] = sorted(reads, key=lambda read: read[0].contestant)  # chased reads vary least
        made.append((Case("matmul", "get", MATRIX, MATRIX, 1), "product", _product()))
        return [(case, op, CallClock(call, SAMPLE_SECONDS)) for case, op, call in made]

    def visit(self, timed: Callable[..., Record]) -> Iterator[Record]:
        """Yield a record of each sentinel, made by ``Stamp.timed``; nothing where the last visit was moments ago."""
        if time.monotonic() - self._visited < EVERY_SECONDS:
            return
        affinity = pin(1)
        timings = [
            Timing(tuple(clock.sample() for _ in range(SAMPLES)), clock.calls_per_sample)
            for _, _, clock in self._clocks
        ]
        pin(len(ALL_CPUS))
        self._visited = time.monotonic()
        for (case, op, _), timing in zip(self._clocks, timings, strict=True):
            yield timed(case, timing, {"affinity": affinity}, primitive=SENTINEL, op=op)

    def look(self) -> None:
        """Time the watched sentinels briefly."""
        pin(1)
        watched = [clock for _, _, clock in self._clocks[:WATCHED]]
        self._looks.append([statistics.median(clock.sample() for _ in range(LOOK_SAMPLES)) for clock in watched])
        pin(len(ALL_CPUS))

    def disturbed(self) -> list[int]:
        """List the looks at which the machine was disturbed since the look before, by position; [] of too few looks.

        It was where a sentinel took longer than its quiet level in the run, the median of the faster half of its looks.
        """
        if len(self._looks) < LEAST_LOOKS:
            return []
        levels = np.array(self._looks)
        quiet = np.median(np.sort(levels, axis=0)[: (len(levels) + 1) // 2], axis=0)
        loud = (levels > DISTURBED * quiet).any(axis=1)
        return [here for here in range(len(loud)) if loud[max(0, here - 1) : here + 1].any()]


def _reads() -> list[tuple[str, Call]]:
    """Return random reads of a buffer in memory: gathered, and chased where numba can compile that."""
    works = memory.memory_reads(MEMORY_BYTES, READS)
    return [(kind, lambda turn, call=work.call: call(turn, 1)) for kind, work in works.items()]


def _product() -> Call:
    """Return a product of two float32 matrices, what gradient steps are made of."""
    one = np.random.default_rng(0).random((MATRIX, MATRIX)).astype(np.float32)
    out = np.empty_like(one)
    return lambda turn: np.matmul(one, one, out=out)
