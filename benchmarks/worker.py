"""A process that prepares cases and takes samples of them on request: a line of JSON in, a line of JSON out.

It runs on as many CPUs as a request says, one unless threads share a tree, with the ``impls`` and the libraries of its
own environment; ``workers.py`` is its other end. Besides ``cases`` and ``clock`` it needs nothing of the suite, so that
it also times commits whose suite is older.

    {"do": "prepare", "case": {...}, "seed": 0, ...}             -> {"number": 0, ..}, {"skipped": why}, {"failed": why}
    {"do": "sample", "number": 0}                                -> {"seconds": 1.2e-05}
    {"do": "forget"}                                             -> {}
    {"do": "accuracy", "contestant": "tianshou", "dtype": ...}   -> {"checks": [...]}
    {"do": "versions", "packages": ["ray"]}                      -> {"ray": "2.60.0"}
"""

import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import impls

from .cases import Case, WrongAnswerError, prepare
from .clock import LEAST_SAMPLE_SECONDS, Clock, SharedClock, clock_of, pin

NOT_HERE = (RuntimeError, ValueError, MemoryError)
"""What is raised where something cannot be had here, which is no fault."""


def serve(session: Any) -> int:
    """Answer requests by the methods of a session until standard input ends; return the exit code 0."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to standard error
    pin(1)
    # Invariant: every request read so far has its one line of answer, in order.
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(session, request.pop("do"))(**request)) + "\n")
        answers.flush()
    return 0


class Session:
    """The clocks that have been prepared, by number."""

    def __init__(self) -> None:
        self.clocks: list[Clock] = []

    def keep(self, clock: Clock, **answer: Any) -> dict[str, Any]:
        """Keep a clock; return the answer with its number."""
        self.clocks.append(clock)
        return {"number": len(self.clocks) - 1, **answer}

    def forget(self) -> dict[str, Any]:
        """Drop every clock with what it alone holds."""
        self.clocks.clear()
        return {}

    def versions(self, packages: list[str]) -> dict[str, str]:
        """Return the versions of those packages that are installed."""
        return installed(packages)


class _Trees(Session):
    """Prepares trees and takes samples of their calls."""

    def prepare(
        self,
        case: dict[str, Any],
        seed: int,
        least_seconds: float = LEAST_SAMPLE_SECONDS,
        callers: int = 0,
        cpus: int = 1,
    ) -> dict[str, Any]:
        """Make a clock for a case, on some CPUs; ``callers`` threads call its tree at once (0: this thread alone)."""
        affinity = pin(cpus, threads())
        try:
            prepared = prepare(Case(**case), seed, maker(case["contestant"]))
            clock = SharedClock(prepared.call, callers, least_seconds) if callers else clock_of(prepared, least_seconds)
        except WrongAnswerError as error:
            return {"failed": str(error)}
        except NOT_HERE as error:
            return {"skipped": str(error) or "not enough memory"}
        return self.keep(clock, calls=clock.calls_per_sample, affinity=affinity)

    def sample(self, number: int) -> dict[str, float]:
        """Take one sample of a clock, in seconds of a call."""
        return {"seconds": self.clocks[number].sample()}

    def accuracy(self, contestant: str, dtype: str, seed: int) -> dict[str, Any]:
        """Return every check of a tree, or why there is none."""
        from . import accuracy  # noqa: PLC0415  # a commit that is compared has no libraries

        try:
            return {"checks": accuracy.checks(maker(contestant), contestant, dtype, seed)}
        except NOT_HERE as error:
            return {"skipped": str(error)}


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed here."""
    found = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def sentence_of(error: Exception) -> str:
    """Say in a line what a library raised."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def threads() -> list[int]:
    """Return every thread of the process: libraries keep pools of them, made while it had one CPU."""
    tasks = Path("/proc/self/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]


def maker(contestant: str) -> Any:
    """Return the function that makes a tree: ours, or an adapter of another library."""
    if contestant in impls.names():
        return impls.make
    from .libraries import base  # noqa: PLC0415  # see accuracy

    return base.make_tree


if __name__ == "__main__":
    sys.exit(serve(_Trees()))
