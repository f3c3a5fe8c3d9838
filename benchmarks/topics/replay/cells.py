"""What is timed: the cells of each part, in groups that take turns."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dse.platforms.evidence import CORES

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

    def _compiled(self, part: str, op: str, batch: int, strategy: str, threads: int = 1, **options: Any) -> Cell:
        return Cell(part, COMPILED, op, batch, self.capacity, {"strategy": strategy, **options}, threads)

    def _operations(self) -> Iterator[list[Cell]]:
        for op, batch in (*OPERATIONS, (RETRIEVE, 256)):
            others = [name for name in self._list_local() if op != RETRIEVE or kind_of(name).retrieves]
            ours = [self._compiled("operations", op, batch, strategy) for strategy in self.strategies]
            reused = [dataclasses.replace(cell, contestant=REUSED) for cell in ours[:1]]
            yield ours + reused + [Cell("operations", name, op, batch, self.capacity) for name in others]

    def _list_local(self) -> list[str]:
        return [name for name in self.others if not kind_of(name).clustered]

    def _sharded(self) -> Iterator[list[Cell]]:
        clustered = [name for name in self.others if kind_of(name).clustered]
        yield [Cell("sharded", name, "step", LEARNED, self.capacity) for name in clustered]

    def _parts(self) -> Iterator[list[Cell]]:
        for op, batch in OPERATIONS:
            steps = UNTIL.get(op, ()) if self.strategies and (op, batch) != ("insert", 64) else ()
            yield [self._compiled("parts", op, batch, self.default, until=step) for step in steps]

    def _batches(self) -> Iterator[list[Cell]]:
        for op in ("sample", "update"):
            for batch in BATCHES:
                ours = [self._compiled("batches", op, batch, self.default)] if self.strategies else []
                python = [Cell("batches", IN_PYTHON, op, batch, self.capacity)] if IN_PYTHON in self.others else []
                yield ours + python

    def _memr(self) -> Iterator[list[Cell]]:
        for rollouts in ROLLOUTS:
            ours = [self._compiled("memr", "rollouts", rollouts, self.default)] if self.strategies else []
            others = [Cell("memr", name, "rollouts", rollouts, self.capacity) for name in self._list_local()]
            options = {"workload": TRAINED, "learner": "dense", "rollouts": rollouts}
            rest = [
                Cell("memr", *part, batch or rollouts, self.capacity, options) for part, batch in STEP_PARTS.items()
            ]
            yield ours + others + rest

    def _pairs(self) -> Iterator[list[Cell]]:
        for work in WORKS:
            options = {"work": work, "work_seconds": 0.0 if work == "none" else WORK_SECONDS}
            cells = []
            for op in ARRANGEMENTS:
                threads = 2 if op in ("two", "apart") else 1
                cells += [
                    self._compiled("pairs", op, self.batch, strategy, threads, **options)
                    for strategy in self.strategies
                ]
                if SHARED_PEER in self.others:
                    cells.append(Cell("pairs", SHARED_PEER, op, self.batch, self.capacity, options, threads))
            yield cells

    def _parallel(self, mode: str) -> Iterator[list[Cell]]:
        for work_seconds in (0.0, WORK_SECONDS):
            share = WORKED_SHARE if work_seconds else 1
            quota = {"iterations": max(1, self.iterations // share), "starts_after": max(1, self.starts // share)}
            for total in TOTALS:
                learners = max(1, total // 3)  # half as many as actors, rounded down
                options = {"actors": total - learners, "learners": learners, "work_seconds": work_seconds, **quota}
                yield [
                    self._compiled(mode, op, 100, strategy, total, **options)
                    for op in ("run", RETRIEVE)
                    for strategy in self.strategies
                ]

    def _threads(self) -> Iterator[list[Cell]]:
        return self._parallel("threads")

    def _processes(self) -> Iterator[list[Cell]]:
        return self._parallel("processes")

    def _flush(self) -> Iterator[list[Cell]]:
        for rows in FLUSHES:
            yield [
                self._compiled("flush", op, rows, strategy, 2 if beside == "learner" else 1, beside=beside)
                for strategy in self.strategies
                for beside in ("nothing", "learner")
                for op in ("insert", "cache")
            ]
