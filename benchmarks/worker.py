"""A process that prepares cases and takes samples of them when it is told to: a line of JSON in, a line of JSON out.

It runs on as many CPUs as it is told, one unless threads share a tree, and answers from whatever ``impls`` and
libraries its own environment holds; ``workers.py`` is its other end. Besides ``cases`` and ``clock`` it needs nothing
of the suite, so that it also times commits whose suite is older.

    {"do": "prepare", "case": {...}, "seed": 0, ...}             -> {"number": 0, ..}, {"skipped": why}, {"failed": why}
    {"do": "sample", "number": 0}                                -> {"seconds": 1.2e-05}
    {"do": "forget"}                                             -> {}
    {"do": "accuracy", "contestant": "tianshou", "dtype": ...}   -> {"checks": [...]}
    {"do": "versions", "packages": ["ray"]}                      -> {"ray": "2.60.0"}
"""

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import Any

import impls

from .cases import Case, WrongAnswerError, prepare
from .clock import Clock, SharedClock, pin

NOT_HERE = (RuntimeError, ValueError, NotImplementedError, MemoryError)


def main() -> int:
    """Answer until standard input ends."""
    return serve(_Session())


def serve(session: Any) -> int:
    """Answer by the methods of a session until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    pin(1)
    for line in sys.stdin:
        request = json.loads(line)
        answers.write(json.dumps(getattr(session, request.pop("do"))(**request)) + "\n")
        answers.flush()
    return 0


class _Session:
    """What has been prepared, by number."""

    def __init__(self) -> None:
        self._clocks: list[Clock] = []

    def prepare(self, case: dict[str, Any], seed: int, least_seconds: float, callers: int, cpus: int) -> dict[str, Any]:
        """Make a clock for a case, its tree called by so many threads at once (0: by this one alone)."""
        affinity = pin(cpus, threads())
        try:
            prepared = prepare(Case(**case), seed, maker(case["contestant"]))
            clock = SharedClock(prepared.call, callers, least_seconds) if callers else prepared.clock(least_seconds)
        except WrongAnswerError as error:
            return {"failed": str(error)}
        except NOT_HERE as error:
            return {"skipped": str(error) or "not enough memory"}
        self._clocks.append(clock)
        return {"number": len(self._clocks) - 1, "calls": clock.calls_per_sample, "affinity": affinity}

    def sample(self, number: int) -> dict[str, float]:
        """Take one sample."""
        return {"seconds": self._clocks[number].sample()}

    def forget(self) -> dict[str, Any]:
        """Let go of every tree."""
        self._clocks.clear()
        return {}

    def accuracy(self, contestant: str, dtype: str, seed: int) -> dict[str, Any]:
        """Every check of a tree, or why there is none."""
        from .peers import accuracy  # noqa: PLC0415  # a commit that is compared has no peers

        try:
            return {"checks": accuracy.checks(maker(contestant), contestant, dtype, seed)}
        except NOT_HERE as error:
            return {"skipped": str(error)}

    def versions(self, packages: list[str]) -> dict[str, str]:
        """Versions of those packages that are installed."""
        found = {}
        for package in packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        return found


def threads() -> list[int]:
    """Every thread of the process: libraries keep pools of them, made while it had one CPU."""
    tasks = Path("/proc/self/task")
    return [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [0]


def maker(contestant: str) -> Any:
    """What makes a tree: ours, or an adapter of another library."""
    if contestant in impls.names():
        return impls.make
    from . import peers  # noqa: PLC0415  # see accuracy

    return peers.make


if __name__ == "__main__":
    sys.exit(main())
