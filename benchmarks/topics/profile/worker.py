"""A process that prepares parts of a workload and runs them for a stretch of time on request.

A line of JSON in, a line of JSON out, as ``benchmarks.worker`` does; ``command`` is its other end. Each request for a
sample states the CPUs and torch's threads, so that one process serves every placement.

    {"do": "open", "workload": {...}, "number": 0, ...}     -> {}, or {"error": why}
    {"do": "prepare", "cell": {...}, "stretch": 0.04}       -> {"number": 0, ..}, {"skipped": why}, {"failed": why}
    {"do": "learn", "contestant": "numba", ...}             -> {"number": 1, "seconds": 1e-3}, {"skipped": why}
    {"do": "sample", "number": 0, "cpus": [0], ...}         -> {"seconds": 1.1e-05, "calls": 3000}
    {"do": "arrange", "options": {...}, "window": 0.06}     -> {"samples": {..}}, {"skipped": why}, {"failed": why}
    {"do": "forget"}                                        -> {}
"""

import gc
import sys
from typing import Any

from impls.training import TrainingError, learners
from impls.training.settings import of_stated

from ...cases import WrongAnswerError
from ...clock import ALL_CPUS, StretchClock, pin_to
from ...worker import NOT_HERE, maker, serve, threads
from . import concurrent_parts
from .cells import REFERENCE
from .parts import Learning, Loop, World, make, note_on, period

REFUSALS = (WrongAnswerError, TrainingError, *NOT_HERE, OSError)  # a TimeoutError among them


def _refuse(error: Exception) -> dict[str, str]:
    """Say why something is not timed: it "failed", or is "skipped" for what is missing here."""
    is_fault = isinstance(error, WrongAnswerError | TrainingError)
    return {"failed" if is_fault else "skipped": str(error) or "not enough memory"}


class _Session:
    """A workload, and the clocks that have been prepared for it, by number."""

    _world: World  # opened by the first request

    def __init__(self) -> None:
        self._clocks: list[tuple[StretchClock, int]] = []
        self._learning: dict[int, Learning] = {}  # by a clock's number
        self._threads = 0

    def open(self, workload: dict[str, Any], number: int, storage_bytes: int, needs: str) -> dict[str, Any]:
        """Open a workload, and say whether its environment and torch are here."""
        # OpenMP counts CPUs when torch is loaded; where it counts one, two threads sleep at each other's every barrier.
        pin_to(ALL_CPUS, threads())
        try:
            import torch  # noqa: F401, PLC0415  # heavy

            described = of_stated(workload)
            assert described is not None  # whoever asks has read it
            self._world = World(described, number, storage_bytes)
            if needs == "environment":
                make(self._world, {"contestant": "env"})
        except ModuleNotFoundError as error:
            return {"error": f"the package {error.name} is not installed; install the extra: pip install '.[train]'"}
        except TrainingError as error:
            return {"error": str(error)}
        return {}

    def prepare(self, cell: dict[str, Any], stretch: float) -> dict[str, Any]:
        """Make a clock for a cell; return its number and the seconds of a call, or why there is none."""
        count = 1 if cell["contestant"] == "actor" else cell["threads"]
        self._use_threads(count)
        pin_to(ALL_CPUS[: cell["threads"]], threads())  # threads that wait for each other on one core take forever
        try:
            clock = StretchClock(make(self._world, cell), stretch, period(self._world.workload, cell["contestant"]))
        except REFUSALS as error:
            return _refuse(error)
        return self._keep(clock, count) | {"period": clock.period, "note": note_on(self._world, cell)}

    def learn(self, contestant: str, stretch: float, learner: str = REFERENCE, **shape: Any) -> dict[str, Any]:
        """Make a clock for learning's part of a step on a tree of this shape, or without one for the whole loop.

        A whole loop learns and acts by an implementation ``learner``.
        """
        try:
            tree = maker(contestant)(contestant, **shape) if shape else None
            work = Learning(self._world, tree) if shape else Loop(self._world, contestant, learner, learner)
            clock = StretchClock(work.call, stretch, period(self._world.workload, "learner"))
        except (TrainingError, *NOT_HERE) as error:
            return {"skipped": str(error) or "not enough memory"}
        if isinstance(work, Learning):
            self._learning[len(self._clocks)] = work
        return self._keep(clock)

    def _keep(self, clock: StretchClock, count: int = 1) -> dict[str, Any]:
        """Keep a clock whose call takes a number of threads; return its own number and the seconds of a call."""
        self._clocks.append((clock, count))
        return {"number": len(self._clocks) - 1, "seconds": clock.call_seconds}

    def sample(self, number: int, cpus: list[int], begin: float, stretch: float) -> dict[str, Any]:
        """Take one sample on these CPUs, from ``begin`` on."""
        clock, count = self._clocks[number]
        self._use_threads(count)
        pin_to(cpus, threads())
        learning = self._learning.get(number)
        before = learning.tree.seconds if learning else 0.0
        try:
            answer = {"seconds": clock.sample(begin, stretch), "calls": clock.calls_per_sample}
        except (TrainingError, *NOT_HERE) as error:
            return {"failed": str(error)}
        if learning:
            answer["tree"] = (learning.tree.seconds - before) / clock.calls_per_sample
        return answer

    def arrange(self, options: dict[str, Any], window: float) -> dict[str, Any]:
        """Run training by several processes shortly; return samples by op, or why there are none."""
        pin_to(ALL_CPUS, threads())
        self._use_threads(1)
        try:
            return {"samples": concurrent_parts.measure(self._world, options, window)}
        except REFUSALS as error:
            return _refuse(error)

    def _use_threads(self, count: int) -> None:
        """Let learners of every implementation compute by a given number of threads from here on."""
        if self._threads != count:
            learners.use_threads(count)
            self._threads = count

    def forget(self) -> dict[str, Any]:
        """Drop every prepared clock with its data."""
        self._clocks, self._learning = [], {}
        gc.collect()
        gc.freeze()  # what the next collection need not look through: all that was imported
        return {}


if __name__ == "__main__":
    sys.exit(serve(_Session()))
