"""A process that makes buffers and takes samples of a cell on request, as ``benchmarks.worker`` does for trees.

{"do": "prepare", "cell": {...}, ...}     -> {"number": 0, ..}, {"skipped": why}, {"failed": why}
{"do": "sample", "number": 0}             -> {"seconds": 1.2e-05, "beside": null, "calls": 800}, {"failed": why}
{"do": "balance", "contestant": ..}       -> {"rows": 37, "insert": [..], "learn": [..]}, {"skipped": why}
{"do": "strategies"}                      -> {"strategies": [..], "default": ".."}
{"do": "forget"}                          -> {}
{"do": "versions", "packages": ["cpprb"]} -> {"cpprb": "11.0.0"}
"""

import functools
import math
import statistics
import sys
import time
from typing import Any

from ..clock import ALL_CPUS, pin, pin_to
from ..worker import NOT_HERE, installed, sentence_of, serve, threads
from . import buffers, jobs, partial
from .buffers import Buffer
from .cells import ALONE, LEARNED
from .clocks import Operation, Together, cpus_of, quota, stretch
from .crew import Crew, Processes, Threads
from .jobs import CrewError, Job, Quota

MOST_ROWS = 65_536  # that balance tries
BALANCE_SAMPLES = 11


class _Session:
    """The buffers and crews of this process, and the clocks that have been prepared, by number."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}
        self._clocks: list[Operation | Together] = []
        self._crews: dict[str, Crew] = {"threads": Threads(self._buffers), "processes": Processes(self._buffers)}
        self._faults: dict[str, str | None] = {}

    def prepare(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> dict[str, Any]:
        """Make the clock of a cell; ``rows`` go into each insertion of a pair."""
        part = cell["part"]
        try:
            if part in ALONE:
                cpus, note = pin(1, threads()), None
                clock: Operation | Together = self._operation(cell, seed, sample_seconds)
            else:
                cpus, note = pin_to(ALL_CPUS, threads()), self._note(cell)
                make = {"pairs": self._pair, "flush": self._flush}.get(part, self._parallel)
                clock = make(cell, seed, sample_seconds, rows)
                clock.sample()  # compiles, attaches and touches every page
        except (CrewError, _WrongError) as error:
            return {"failed": str(error)}
        except NOT_HERE as error:
            return {"skipped": str(error) or "not enough memory"}
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}
        self._clocks.append(clock)
        return {"number": len(self._clocks) - 1, "affinity": cpus, "note": note}

    def sample(self, number: int) -> dict[str, Any]:
        """Take one sample of a clock, in seconds of a call."""
        clock = self._clocks[number]
        try:
            seconds = clock.sample()
        except (CrewError, *NOT_HERE) as error:
            return {"failed": str(error)}
        beside = getattr(clock, "beside_seconds", math.nan)
        return {"seconds": seconds, "beside": None if math.isnan(beside) else beside, "calls": clock.calls_per_sample}

    def balance(self, contestant: str, strategy: str, capacity: int, batch: int, seed: int) -> dict[str, Any]:
        """Return how many rows an insertion must have to take as long as a sample and an update of ``batch``."""
        cell = {"contestant": contestant, "capacity": capacity, "options": {"strategy": strategy} if strategy else {}}
        pin_to(ALL_CPUS, threads())
        try:
            key = self._shared(cell, seed)
            learn = self._alone(Job(key, "learner", 0, 1, batch, cpus_of(0, 1)))
            few, more = 1, max(2, min(1_024, buffers.part_of(capacity)))
            one, many = (
                statistics.median(self._alone(Job(key, "actor", 0, rows, batch, cpus_of(0, 1)))) for rows in (few, more)
            )
            a_row = max((many - one) / (more - few), 1e-12)
            rows = min(
                MOST_ROWS, buffers.part_of(capacity), max(1, round(1 + (statistics.median(learn) - one) / a_row))
            )
            insert = self._alone(Job(key, "actor", 0, rows, batch, cpus_of(0, 1)))
        except CrewError as error:
            return {"failed": str(error)}
        except NOT_HERE as error:
            return {"skipped": str(error) or "not enough memory"}
        return {"rows": rows, "insert": insert, "learn": learn}

    def _alone(self, job: Job) -> list[float]:
        clock = stretch(self._crews["processes"], [job], 0.02)
        clock.sample()
        return [clock.sample() for _ in range(BALANCE_SAMPLES)]

    def forget(self) -> dict[str, Any]:
        """Drop every clock; the buffers stay."""
        self._clocks.clear()
        return {}

    def versions(self, packages: list[str]) -> dict[str, str]:
        """Return the versions of those packages that are installed."""
        return installed(packages)

    def _made(self, key: str, cell: dict[str, Any], seed: int, is_full: bool = True, **more: Any) -> str:
        """Make a buffer, once, after the check that its kind has passed; return its key."""
        name, options = cell["contestant"], {**more}
        if "strategy" in cell["options"]:
            options["strategy"] = cell["options"]["strategy"]
        checked = f"{name} {options}"
        key = f"{key} {checked} {cell['capacity']}"
        if checked not in self._faults:
            self._faults[checked] = buffers.fault(name, seed, **options)
        if fault := self._faults[checked]:
            raise _WrongError(fault)
        if key not in self._buffers:
            make = buffers.filled if is_full else buffers.make
            self._buffers[key] = make(name, cell["capacity"], seed, **options)
        return key

    def _operation(self, cell: dict[str, Any], seed: int, sample_seconds: float) -> Operation:
        buffer = self._buffers[self._made("alone", cell, seed)]
        buffer = partial.cut(buffer, cell["op"], cell["options"].get("until", "whole"))
        return Operation(buffer, cell["op"], cell["batch"], sample_seconds)

    def _shared(self, cell: dict[str, Any], seed: int, key: str = "first") -> str:
        return self._made(key, cell, seed, shared=True)

    def _pair(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> Together:
        options, op = cell["options"], cell["op"]
        first = self._shared(cell, seed)
        second = self._shared(cell, seed, "second") if op == "apart" else first
        seconds = options["work_seconds"]
        amount = rounds_of(seconds) if options["work"] == "computing" else seconds
        job = functools.partial(Job, rows=rows, batch=cell["batch"], work=options["work"], amount=amount)
        two = [("actor", first), ("learner", second)]
        roles = {"one": [("both", first)], "insert": two[:1], "learn": two[1:]}.get(op, two)
        jobs = [job(key, role, index, cpus=cpus_of(index, len(roles))) for index, (role, key) in enumerate(roles)]
        return stretch(self._crews["processes"], jobs, sample_seconds)

    def _flush(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> Together:
        key = self._shared(cell, seed)
        role = "actor" if cell["op"] == "insert" else "cache"
        roles = [role, "learner"] if cell["options"]["beside"] == "learner" else [role]
        jobs = [
            Job(key, role, index, cell["batch"], LEARNED, cpus_of(index, len(roles)))
            for index, role in enumerate(roles)
        ]
        return stretch(self._crews["processes"], jobs, sample_seconds, is_slowest=False)

    def _parallel(self, cell: dict[str, Any], seed: int, sample_seconds: float, rows: int) -> Together:
        mode, options = cell["part"], cell["options"]
        more = {"shared": True} if mode == "processes" else {}
        key = self._made(mode, cell, seed, is_full=False, **more)
        seconds = options["work_seconds"]
        job = Job(key, "", 0, 1, cell["batch"], (), "sleeping" if seconds else "none", seconds)
        shares = Quota(options["actors"], options["learners"], options["iterations"], options["starts_after"])
        buffer: Any = self._buffers[key]
        return quota(self._crews[mode], job, shares, buffer.clear)

    def _note(self, cell: dict[str, Any]) -> str | None:
        """Return what to know of a cell's work."""
        options = cell["options"]
        seconds, work = options.get("work_seconds", 0.0), options.get("work", "sleeping")
        if not seconds or work != "sleeping":
            return None
        return f"a sleep of {1e6 * seconds:.0f} us takes {1e6 * _slept(seconds):.0f} us here"


class _WrongError(Exception):
    """A buffer answered wrongly; the message says how."""


@functools.cache
def rounds_of(seconds: float) -> int:
    """Return the rounds of arithmetic that take so long, the same for every cell of this process."""
    return jobs.rounds_of(seconds)


@functools.cache
def _slept(seconds: float) -> float:
    begin = time.perf_counter()
    for _ in range(100):
        time.sleep(seconds)
    return (time.perf_counter() - begin) / 100


if __name__ == "__main__":
    sys.exit(serve(_Session()))
