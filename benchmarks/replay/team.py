"""The processes in which buffers are timed: started when they are needed, never waited for without a limit."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dse.records import Measurement

from ..clock import ALL_CPUS
from ..run import Stamp
from ..timing import Timing, interleave
from ..workers import Bounded, Untimed, WorkerError
from .buffers import kind_of
from .cells import ALONE, Cell

MODULE = "benchmarks.replay.worker"


class FailedError(Exception):
    """A sample of a cell failed; ``args`` are the clock and the reason."""


@dataclasses.dataclass(eq=False)
class Remote:
    """A cell prepared in a worker, which takes its samples; ``beside`` are those of the cell that it times besides."""

    cell: Cell
    worker: Bounded
    number: int
    affinity: list[int]
    note: str | None
    calls_per_sample: int = 0
    beside: list[float] = dataclasses.field(default_factory=list)

    def sample(self) -> float:
        """Take one more sample; return the seconds of a call. FailedError where that failed."""
        try:
            answer = self.worker.ask("sample", number=self.number)
        except WorkerError as error:
            answer = {"failed": str(error)}
        if "failed" in answer:
            raise FailedError(self, answer["failed"])
        self.calls_per_sample = answer["calls"]
        if answer["beside"] is not None:
            self.beside.append(answer["beside"])
        return float(answer["seconds"])


class Pool:
    """Processes that may serve several parts: those of our buffers run by this Python, others by ``python``."""

    def __init__(self, stack: ExitStack, python: Path) -> None:
        self._stack, self._python = stack, python
        self._workers: dict[tuple[str, ...], Bounded] = {}
        self.packages: dict[str, dict[str, str]] = {}  # versions, by contestant

    def worker(self, cell: Cell, is_twin: bool = False) -> Bounded:
        """Return the process of a cell's buffer. WorkerError if it cannot be started."""
        name = cell.contestant
        key = (*cell.member, str(is_twin)) if cell.part in ALONE else (name,)
        if key not in self._workers:
            python = Path(sys.executable) if kind_of(name).package == "numba" else self._python
            worker = self._stack.enter_context(Bounded(python, module=MODULE))
            self.packages[name] = worker.ask("versions", packages=["numpy", "numba", kind_of(name).package])
            self._workers[key] = worker
        return self._workers[key]

    def drop(self, cell: Cell) -> None:
        """End the process of a cell, for it may hang; the next cell starts another."""
        for key, worker in list(self._workers.items()):
            if key[0] == cell.contestant and (len(key) == 1 or key[:2] == cell.member):
                worker.close()
                del self._workers[key]

    def forget(self) -> None:
        """Let every process drop its clocks."""
        for worker in self._workers.values():
            worker.ask("forget")


class Team:
    """The measuring of one part, by the processes of a pool."""

    def __init__(self, pool: Pool, stamp: Stamp, seed: int) -> None:
        self.pool, self._stamp, self._seed = pool, stamp, seed
        self.rows: dict[str, int] = {}  # of an insertion in pairs, by contestant

    def clock(self, cell: Cell, sample_seconds: float, is_twin: bool = False) -> Remote | Untimed:
        """Return a cell ready to be timed, or why it cannot be."""
        try:
            worker = self.pool.worker(cell, is_twin)
            how = {"seed": self._seed, "sample_seconds": sample_seconds, "rows": self.rows.get(cell.contestant, 1)}
            answer = worker.ask("prepare", cell=dataclasses.asdict(cell), **how)
        except WorkerError as error:
            self.pool.drop(cell)
            return Untimed("failed", str(error))
        for status in ("skipped", "failed"):
            if status in answer:
                return Untimed(status, answer[status])
        return Remote(cell, worker, answer["number"], answer["affinity"], answer["note"])

    def stamp(self, cell: Cell) -> Stamp:
        """Return the stamp of a cell's records: its part, and the versions of what it was made with."""
        machine = {**self._stamp.machine, "packages": self.pool.packages.get(cell.contestant, {})}
        return dataclasses.replace(self._stamp, machine=machine)

    def measure(
        self, cells: Sequence[Cell], sample_seconds: float, budget_seconds: float, also: Callable[..., Any]
    ) -> Iterator[Measurement]:
        """Yield the records of cells that take turns: those that cannot be timed and why, the timed ones, the A/A twin
        of the first, and what ``also`` makes of the samples that were taken beside."""
        left = list(cells)
        # Invariant: cells that are not in ``left`` have a record.
        while left:
            ready: list[Remote] = []
            for cell in list(left):
                clock = self.clock(cell, sample_seconds)
                if isinstance(clock, Remote):
                    ready.append(clock)
                    continue
                left.remove(cell)
                yield self.stamp(cell).record(cell, clock.status, reason=clock.reason)
            twin = self.clock(ready[0].cell, sample_seconds, is_twin=True) if ready else None
            clocks = [*ready, twin] if isinstance(twin, Remote) else ready
            try:
                timings = interleave(clocks, budget_seconds * len(clocks), self._seed)
            except FailedError as error:
                failed, reason = error.args
                self.pool.drop(failed.cell)
                left.remove(failed.cell)
                yield self.stamp(failed.cell).record(failed.cell, "failed", reason=reason)
                continue
            self.pool.forget()
            for clock, timing in zip(clocks, timings, strict=True):
                yield from self._timed(clock, timing, clock is twin)
                if clock is not twin:
                    yield from also(self.stamp(clock.cell), clock, timing)
            return

    def _timed(self, clock: Remote, timing: Timing, is_twin: bool) -> Iterator[Measurement]:
        stamp, cell = self.stamp(clock.cell), clock.cell
        again = {"primitive": f"{stamp.primitive}_again"} if is_twin else {}
        yield stamp.timed(cell, timing, {"affinity": clock.affinity}, reason=reason_of(clock, self.rows), **again)


def reason_of(clock: Remote, rows: dict[str, int]) -> str | None:
    """Return what to know of a cell's time, if anything."""
    cell = clock.cell
    reasons = [*kind_of(cell.contestant).limits]
    if ALL_CPUS and cell.threads > len(ALL_CPUS):
        reasons.append(f"oversubscribed: {cell.threads} on {len(ALL_CPUS)} cores")
    if cell.part == "pairs":
        reasons.append(f"{rows[cell.contestant]} rows an insertion")
    return "; ".join([*reasons, *([clock.note] if clock.note else [])]) or None
