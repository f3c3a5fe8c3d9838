"""What is timed: the cells of each part, in groups that take turns."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dse.platforms.checkout import CORES

from . import kind_of

PARTS = {
    "operations": "insert, sample, update, all three; retrieval; one thread on one core, with other libraries' buffers",
    "sharded": "insert, sample and update on a replay over a Ray cluster, that of RAY_ADDRESS or this machine alone",
    "parts": "where the time of the compiled replay's operations goes",
    "batches": "sample and update over the batch [Zhang2023, Fig. 12]",
    "memr": "an environment step of model rollouts [Zhang2022, Alg. 2], and the step's other parts",
    "pairs": "one process inserts and one learns, and one that does both",
    "threads": "actors and learners as threads [Zhang2021, Fig. 10], also with priority retrieval",
    "processes": "the same as processes",
    "flush": "a local cache flushed every n rows, alone and under load from a learner [StoneSachdev]",
}
COMPILED, REUSED, IN_PYTHON, SHARED_PEER = "replay", "replay_reused", "prioritized_buffer", "cpprb_mp"
SHARDED = "sharded"  # ours over a Ray cluster
ALONE = ("operations", "sharded", "parts", "batches", "memr")  # parts in which each buffer has a process of its own
OPERATIONS = (("insert", 1), ("insert", 64), ("sample", 256), ("update", 256), ("step", 256))
RETRIEVE, SUPERSEDED = "retrieve", "superseded"  # the op, and the key of a record's machine for the share of samples
BATCHES = (1, 32, 128, 512, 2_048, 8_192, 32_768)
ROLLOUTS = (64, 256, 1_024)  # M, records that a model makes after each environment step
TRAINED = "hopper_sac"  # the workload of the step's other parts, which has the records of ``rows``
STEP_PARTS = {("env", "step"): 1, ("forward", "act"): None, ("learner", "step"): 256}
"""The other parts of an environment step as ``benchmarks profile`` times them, and their B; None for M."""
ARRANGEMENTS = {
    "one": "one process inserts, works, learns and works",
    "two": "two processes share the buffer",
    "apart": "two processes, each with a buffer of its own: the bound that cores set",
    "insert": "the inserting process alone",
    "learn": "the learning process alone",
}
WORKS = ("none", "computing", "sleeping")
WORK_SECONDS = 200e-6
TOTALS = tuple(total for total in (2, 3, 4, 6, 8, 12, 16, 24, 32) if total <= max(6, CORES))  # actors and learners
FLUSHES = (1, 4, 16, 64, 256)
LEARNED = 256  # records that the learner during a flush samples
WORKED_SHARE = 5  # a run with work after each operation has a fifth of the iterations


UNTIL = {
    "sample": ("call", "tree", "gather", "whole"),
    "update": ("call", "priorities", "whole"),
    "insert": ("call", "whole"),
}
"""The steps of each operation, in order; "whole" ends with the last: weights, the tree, or the row and the tree."""


@dataclass(frozen=True)
class Cell:
    """What is timed, under the names of a record; ``threads`` counts threads or processes, as ``options`` say."""

    part: str
    contestant: str
    op: str
    batch: int
    capacity: int
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1

    @property
    def fanout(self) -> int:
        """Children of a node of the buffer's tree."""
        return kind_of(self.contestant).fanout

    @property
    def dtype(self) -> str:
        """Format of the buffer's priorities."""
        return kind_of(self.contestant).dtype

    @property
    def member(self) -> tuple[str, str]:
        """The contestant and its strategy, which share a buffer and a process, as a workload's parts do."""
        return self.options.get("workload", self.contestant), str(self.options.get("strategy", ""))


@dataclass(frozen=True)
class Plan:
    """What is asked for: strategies, other buffers that are timed with them, and sizes."""

    strategies: Sequence[str]
    default: str
    others: Sequence[str]
    capacity: int
    batch: int
    iterations: int
    starts: int

    def groups(self, part: str) -> list[list[Cell]]:
        """Return the cells of a part."""
        return [group for group in getattr(self, f"_{part}")() if group]

    def _cells(
        self, part: str, names: Sequence[str], op: str, batch: int, threads: int = 1, **options: Any
    ) -> list[Cell]:
        return [Cell(part, name, op, batch, self.capacity, options, threads) for name in names]

    def _ours(self, strategies: Sequence[str], part: str, *shape: Any, **options: Any) -> list[Cell]:
        return [self._cells(part, [COMPILED], *shape, strategy=strategy, **options)[0] for strategy in strategies]

    @property
    def _first(self) -> Sequence[str]:
        """Return the default strategy, if any is asked for."""
        return self.strategies[:1]

    @property
    def _local(self) -> list[str]:
        """Return the other buffers that lie on this machine."""
        return [name for name in self.others if not kind_of(name).clustered]

    def _operations(self) -> Iterator[list[Cell]]:
        for op, batch in (*OPERATIONS, (RETRIEVE, 256)):
            others = [name for name in self._local if op != RETRIEVE or kind_of(name).retrieves]
            ours = self._ours(self.strategies, "operations", op, batch)
            reused = [dataclasses.replace(cell, contestant=REUSED) for cell in ours[:1]]
            yield ours + reused + self._cells("operations", others, op, batch)

    def _sharded(self) -> Iterator[list[Cell]]:
        clustered = [name for name in self.others if kind_of(name).clustered]
        yield self._cells("sharded", clustered, "step", LEARNED)

    def _parts(self) -> Iterator[list[Cell]]:
        for op, batch in OPERATIONS:
            steps = UNTIL.get(op, ()) if (op, batch) != ("insert", 64) else ()
            yield [cell for step in steps for cell in self._ours(self._first, "parts", op, batch, until=step)]

    def _batches(self) -> Iterator[list[Cell]]:
        python = [name for name in self.others if name == IN_PYTHON]
        for op, batch in itertools.product(("sample", "update"), BATCHES):
            yield self._ours(self._first, "batches", op, batch) + self._cells("batches", python, op, batch)

    def _memr(self) -> Iterator[list[Cell]]:
        for rollouts in ROLLOUTS:
            ours = self._ours(self._first, "memr", "rollouts", rollouts)
            options = {"workload": TRAINED, "learner": "dense", "rollouts": rollouts}
            rest = [
                Cell("memr", *part, batch or rollouts, self.capacity, options) for part, batch in STEP_PARTS.items()
            ]
            yield ours + self._cells("memr", self._local, "rollouts", rollouts) + rest

    def _pairs(self) -> Iterator[list[Cell]]:
        peers = [name for name in self.others if name == SHARED_PEER]
        for work in WORKS:
            options = {"work": work, "work_seconds": 0.0 if work == "none" else WORK_SECONDS}
            cells = []
            for op in ARRANGEMENTS:
                shape = op, self.batch, 2 if op in ("two", "apart") else 1
                cells += self._ours(self.strategies, "pairs", *shape, **options)
                cells += self._cells("pairs", peers, *shape, **options)
            yield cells

    def _parallel(self, mode: str) -> Iterator[list[Cell]]:
        for work_seconds, total in itertools.product((0.0, WORK_SECONDS), TOTALS):
            share = WORKED_SHARE if work_seconds else 1
            learners = max(1, total // 3)  # half as many as actors, rounded down
            options = {"actors": total - learners, "learners": learners, "work_seconds": work_seconds}
            options |= {"iterations": max(1, self.iterations // share), "starts_after": max(1, self.starts // share)}
            ops = ("run", RETRIEVE)
            yield [cell for op in ops for cell in self._ours(self.strategies, mode, op, 100, total, **options)]

    _threads = functools.partialmethod(_parallel, "threads")
    _processes = functools.partialmethod(_parallel, "processes")

    def _flush(self) -> Iterator[list[Cell]]:
        for rows in FLUSHES:
            group = list[Cell]()
            for strategy, beside, op in itertools.product(self.strategies, ("nothing", "learner"), ("insert", "cache")):
                threads = 2 if beside == "learner" else 1
                group += self._ours([strategy], "flush", op, rows, threads, beside=beside)
            yield group
