"""How trees are timed: every cell is checked, and takes turns with its rivals; and the memory's own speed."""

import argparse
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import impls
from dse.platforms import memory
from dse.platforms.checkout import CORES
from dse.records import Record
from impls.cores import check_free

from .cases import Case, Prepared, WrongAnswerError, prepare
from .clock import ALL_CPUS, Call, Clock, clock_of, pin
from .timing import LEAST_SAMPLES, Timing, interleave, interleave_calls
from .topic import Topic

FLOOR_MEGABYTES = (0.03, 0.25, 0.5, 1, 2, 4, 8, 16, 64, 256)
FLOOR_KINDS, FLOOR_READS = ("gather", "chase"), 1 << 15
LONGEST_FILL_SECONDS = 20.0
FILL_BYTES = 42  # of a leaf, of which a tree is filled and by which it is checked


class Sweep(Topic):
    """How groups of cells are checked and timed, each in alternation; a subclass says how by ``make``, ``time`` and
    ``check_device``."""

    primitive = "sum_tree"
    make: Callable[..., Any] | None = None
    """What makes a tree, by default ``impls.make``."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.asked = {"budget": options.budget, "seed": options.seed}

    def time(self, prepared: Prepared) -> Clock:
        """Return the clock of a case that is ready to be timed."""
        return clock_of(prepared)

    def check_device(self) -> None:
        """Raise RecordError if no cell can be timed any more; called after a cell that could not be."""

    def measure(self, cells: Sequence[Case]) -> Iterator[Record]:
        """Yield the records of one group: those that cannot be timed and why, then the timed ones and the A/A twin."""
        budget, seed = self.options.budget, self.options.seed
        affinity = pin(max((case.threads for case in cells), default=1))
        ready: list[tuple[Prepared, Clock]] = []
        for case in cells:
            outcome = self._prepare(case)
            if isinstance(outcome, Record):
                yield outcome
            else:
                ready.append(outcome)
        if ready:
            again = prepare(ready[0][0].case, seed, self.make)
            ready.append((again, self.time(again)))
        timings = interleave([clock for _, clock in ready], budget * len(ready), seed)
        pin(len(ALL_CPUS))
        for position, ((prepared, _), timing) in enumerate(zip(ready, timings, strict=True)):
            where = {"affinity": affinity} | _name_device(prepared)
            twin = {"primitive": f"{self.primitive}_again"} if position == len(ready) - 1 else {}
            reason = _oversubscribed(prepared.case.threads, timing)
            yield self.stamp.timed(prepared.case, timing, where, reason=reason, **twin)

    def _prepare(self, case: Case) -> tuple[Prepared, Clock] | Record:
        """Return the case ready to be timed, or the record that says why it is not timed."""
        fill_seconds = impls.traits(case.contestant).fill_seconds * case.capacity
        if fill_seconds > LONGEST_FILL_SECONDS:
            return self.stamp.record(case, "skipped", reason=f"filling it takes about {fill_seconds:.0f} s")
        try:
            check_free(FILL_BYTES * case.capacity)
            ready = prepare(case, self.options.seed, self.make)
            modeled = ready.tree.modeled_seconds(case.op, case.batch)
            if modeled is not None:
                return self.stamp.record(case, "ok", source="modeled", median_seconds=modeled)
            longest = 20 * self.options.budget / LEAST_SAMPLES
            seconds = _call_seconds(ready, longest)
            if seconds > longest:
                too_long = f"one call takes {seconds:.2g} s, too long for the sweep's budget"
                return self.stamp.record(case, "skipped", reason=too_long)
            return ready, self.time(ready)
        except (RuntimeError, ValueError, MemoryError) as error:  # by which an implementation refuses a configuration
            self.check_device()
            return self.stamp.record(case, "skipped", reason=str(error) or "not enough memory")
        except WrongAnswerError as error:
            return self.stamp.record(case, "failed", reason=str(error))
        except Exception as error:  # a fault of the code; the run's exit code says so
            self.check_device()
            return self.stamp.record(case, "failed", reason=f"{type(error).__name__}: {error}")


def _call_seconds(ready: Prepared, longest: float) -> float:
    """Return the seconds of a call: the least of three where the first, which the machine may disturb, is too long."""
    least = math.inf
    for turn in range(1, 4):
        start = time.perf_counter()
        ready.call(turn)
        ready.tree.synchronize()
        least = min(least, time.perf_counter() - start)
        if least <= longest:
            break
    return least


def _oversubscribed(threads: int, timing: Timing) -> str | None:
    if threads > CORES:
        return f"oversubscribed: {threads} threads on {CORES} cores"
    return f"interval of {timing.interval.relative_width:.0%} of the median" if timing.is_unstable else None


def _name_device(prepared: Prepared) -> dict[str, str]:
    """Return the tree's device, if it is no CPU."""
    device = getattr(prepared.tree, "device", "cpu")
    return {"device": device} if device != "cpu" else {}


def start_threads(cells: Iterable[Iterable[Case]]) -> None:
    """Start the trees' threads while this thread may still use every CPU: they inherit its affinity."""
    most = max((case.threads for group in cells for case in group), default=1)
    for name in sorted({case.contestant for group in cells for case in group}) if most > 1 else ():
        if impls.traits(name).threaded and impls.why_not(name) is None:
            tree = impls.make(name, 1, threads=most)
            tree.update(0, 1.0)
            tree.sample(np.full(1 << 14, 0.5))


class Floor(Topic):
    """Random reads of 64-byte lines, gathered and chased, by size of the buffer: what no tree can be faster than."""

    primitive, has_sentinels, is_counted = "memory", False, False

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.asked = {"budget": options.budget, "seed": options.seed}
        sizes = [int(megabytes * 2**20) // 64 for megabytes in FLOOR_MEGABYTES]
        self._cells = [
            Case(kind, "get", lines, FLOOR_READS, fanout=1, dtype="") for lines in sizes for kind in FLOOR_KINDS
        ]

    def cells(self) -> list[list[Case]]:
        """Return both ways to read each buffer, in one group."""
        return [self._cells]

    def key(self, cell: Case) -> str:
        """Return the key of a cell, whose operation is named for what it does."""
        return self.stamp.cell(cell, op="read")

    def measure(self, cells: Sequence[Case]) -> Iterator[Record]:
        """Yield the records of the reads, which take turns."""
        budget, seed = self.options.budget, self.options.seed
        reads = {lines: memory_reads(lines / 2**14, FLOOR_READS, seed) for lines in {case.capacity for case in cells}}
        calls = [reads[case.capacity][case.contestant] for case in cells]
        timings = interleave_calls(calls, budget * len(calls), seed)
        yield from (self.stamp.timed(case, timing, op="read") for case, timing in zip(cells, timings, strict=True))


def memory_reads(megabytes: float, reads: int, seed: int = 0) -> dict[str, Call]:
    """Return calls that read ``reads`` random 64-byte lines of a buffer of that size, by kind: gathered or chased."""
    works = memory.memory_reads(int(megabytes * 2**20), reads, seed)
    return {name: lambda turn, call=work.call: call(turn, 1) for name, work in works.items()}
