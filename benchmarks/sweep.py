"""The sweep: every cell checked, timed in turns with its rivals, and written before the next; it can be resumed."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import impls
from dse import records, stats
from dse.records import Measurement

from .cases import Case, Prepared, WrongAnswerError, prepare
from .clock import ALL_CPUS, Clock, pin
from .floor import memory_reads
from .stamp import Stamp
from .timing import LEAST_SAMPLES, Timing, interleave, interleave_calls

FLOOR_MEGABYTES = (0.03, 0.25, 0.5, 1, 2, 4, 8, 16, 64, 256)
FLOOR_READS = 1 << 15
LONGEST_FILL_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class Way:
    """How a sweep's cells are named, made (by default ``impls.make``) and timed, and what is asked after one that
    cannot be: RecordError where nothing more can."""

    primitive: str = "sum_tree"
    make: Callable[..., Any] | None = None
    clock: Callable[[Prepared], Clock] = Prepared.clock
    after_failure: Callable[[], object] = lambda: None

    @property
    def again(self) -> str:
        """The A/A twin's primitive."""
        return f"{self.primitive}_again"


@dataclasses.dataclass
class Tally:
    """What a sweep did: cells by status, those found done, those left for lack of time, and both medians of each A/A
    pair."""

    by_status: dict[str, int] = dataclasses.field(default_factory=dict)
    resumed: int = 0
    left: int = 0
    pairs: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def add(self, status: str) -> None:
        """Count a cell."""
        self.by_status[status] = self.by_status.get(status, 0) + 1


def sweep(
    cells: Sequence[Sequence[Case]],
    path: Path,
    budget_seconds: float,
    seed: int = 0,
    on_cell: Callable[[int], object] = lambda count: None,
    with_floor: bool = True,
    way: Way = Way(),
    most_seconds: float = math.inf,
) -> Tally:
    """Measure groups of cells (each group in turns) into a results file; cells of this commit already in it are kept.

    ``on_cell(count)`` is told of every few cells that are done with; no group is begun after ``most_seconds``.
    RecordError if the file cannot be read or written.
    """
    end = time.monotonic() + most_seconds
    stamp = Stamp.of_this_run(way.primitive)
    done = {record.cell for record in there(path) if is_of(stamp, record)}
    tally = Tally()
    _start_threads(cells)
    with records.Writer(path) as writer:
        for record in _memory_floor(stamp, done, budget_seconds, seed) if with_floor else ():
            writer.append(record)
        for group in cells:
            todo = [case for case in group if stamp.record(case, "skipped").cell not in done]
            tally.resumed += len(group) - len(todo)
            if tally.by_status and time.monotonic() > end:
                tally.left += len(todo)
                continue
            on_cell(len(group) - len(todo))
            for record in _measure(todo, stamp, budget_seconds, seed, way):
                writer.append(record)
                if record.primitive == way.again:
                    continue
                tally.add(record.status)
                on_cell(1)
    tally.pairs = records.twins((one for one in there(path) if is_of(stamp, one)), way.primitive)
    return tally


def is_of(stamp: Stamp, record: Measurement) -> bool:
    """Whether a record was made of this commit, on the GPUs of this machine (its key tells of the rest)."""
    return (record.commit, record.machine.get("gpus", [])) == (stamp.commit, stamp.machine["gpus"])


def there(path: Path) -> list[Measurement]:
    return records.read_file(path) if path.exists() else []


def _measure(cases: Sequence[Case], stamp: Stamp, budget_seconds: float, seed: int, way: Way) -> Iterator[Measurement]:
    """Records of one group: first those that cannot be timed and why, then the timed ones, and the A/A twin."""
    affinity = pin(max((case.threads for case in cases), default=1))
    ready: list[tuple[Prepared, Clock]] = []
    for case in cases:
        outcome = _prepare(case, stamp, budget_seconds, seed, way)
        if isinstance(outcome, Measurement):
            yield outcome
        else:
            ready.append(outcome)
    if ready:
        again = prepare(ready[0][0].case, seed, way.make)
        ready.append((again, way.clock(again)))
    timings = interleave([clock for _, clock in ready], budget_seconds * len(ready), seed) if ready else []
    pin(len(ALL_CPUS))
    for position, ((one, _), timing) in enumerate(zip(ready, timings, strict=True)):
        machine = {**stamp.machine, "affinity": affinity} | _threading_layer(one) | _device(one)
        fields: dict[str, Any] = {"machine": machine, "reason": _oversubscribed(one.case.threads, timing)}
        if position == len(ready) - 1:
            fields["primitive"] = way.again
        yield stamp.timed(one.case, timing, **fields)


def _prepare(
    case: Case, stamp: Stamp, budget_seconds: float, seed: int, way: Way
) -> tuple[Prepared, Clock] | Measurement:
    """The case ready to be timed, or the record that says why it is not timed."""
    fill_seconds = impls.traits(case.contestant).fill_seconds * case.capacity
    if fill_seconds > LONGEST_FILL_SECONDS:
        return stamp.record(case, "skipped", reason=f"filling it takes about {fill_seconds:.0f} s")
    try:
        ready = prepare(case, seed, way.make)
        modeled = ready.tree.modeled_seconds(case.op, case.batch)
        if modeled is not None:
            return stamp.record(case, "ok", source="modeled", median_seconds=modeled)
        longest = 20 * budget_seconds / LEAST_SAMPLES
        seconds = _call_seconds(ready, longest)
        if seconds > longest:
            reason = f"one call takes {seconds:.2g} s, too long for the sweep's budget"
            return stamp.record(case, "skipped", reason=reason)
        return ready, way.clock(ready)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, MemoryError) as error:
        way.after_failure()
        return stamp.record(case, "skipped", reason=str(error) or "not enough memory")
    except WrongAnswerError as error:
        return stamp.record(case, "failed", reason=str(error))


def _call_seconds(ready: Prepared, longest: float) -> float:
    """Of one call; the least of three where the first takes too long, for that may have been the machine's doing."""
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
    if ALL_CPUS and threads > len(ALL_CPUS):
        return f"oversubscribed: {threads} threads on {len(ALL_CPUS)} cores"
    return f"interval of {timing.interval.relative_width:.0%} of the median" if timing.is_unstable else None


def _threading_layer(one: Prepared) -> dict[str, str]:
    """Name of the tree's threading layer if the case uses its threads and it tells."""
    layer = getattr(one.tree, "threading_layer", None) if one.case.threads > 1 else None
    return {"threading_layer": layer} if layer else {}


def _device(one: Prepared) -> dict[str, str]:
    """Where the tree is, unless that is the CPU."""
    device = getattr(one.tree, "device", "cpu")
    return {} if device == "cpu" else {"device": device}


def _start_threads(cells: Iterable[Iterable[Case]]) -> None:
    """Start the trees' threads while this thread may still use every CPU: they inherit where they may run."""
    most = max((case.threads for group in cells for case in group), default=1)
    for name in sorted({case.contestant for group in cells for case in group}) if most > 1 else ():
        if impls.traits(name).threaded and impls.why_not(name) is None:
            tree = impls.make(name, 1, threads=most)
            tree.update(0, 1.0)
            tree.sample(np.full(1 << 14, 0.5))


def _memory_floor(stamp: Stamp, done: set[str], budget_seconds: float, seed: int) -> Iterator[Measurement]:
    """Random reads of 64-byte lines: gathered and chased, by size of the buffer."""
    if impls.why_not("numba"):
        return
    calls: list[tuple[Case, Callable[[int], object]]] = []
    for megabytes in FLOOR_MEGABYTES:
        for kind, call in memory_reads(megabytes, FLOOR_READS, seed).items():
            lines = int(megabytes * 2**20) // 64
            calls.append((_memory_case(kind, lines), call))
    calls = [(case, call) for case, call in calls if _memory_record(stamp, case).cell not in done]
    if not calls:
        return
    timings = interleave_calls([call for _, call in calls], budget_seconds * len(calls), seed)
    for (case, _), timing in zip(calls, timings, strict=True):
        yield stamp.timed(case, timing, primitive="memory", op="read", dtype="", distribution="uniform")


def _memory_case(kind: str, lines: int) -> Case:
    return Case(kind, "get", capacity=lines, batch=FLOOR_READS, fanout=1, dtype="")


def _memory_record(stamp: Stamp, case: Case) -> Measurement:
    return stamp.record(case, "skipped", primitive="memory", op="read", dtype="", distribution="uniform")


def noise_floor(tally: Tally) -> float:
    """The run's A/A noise floor: what the same cell measured twice differs by, as |ln ratio|, 95 % quantile."""
    return stats.noise_floor(tally.pairs)
