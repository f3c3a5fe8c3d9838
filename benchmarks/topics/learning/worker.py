"""A process that trains once on request, evaluates meanwhile, and answers with the run's curve.

{"do": "train", "run": {...}} -> {"points": [[steps, updates, seconds, mean], ..], ...}, {"failed": why}
{"do": "step", "run": [{...}, ..]} -> {"answers": [{"samples": [seconds of a gradient step, ..], ...}, ..]}
"""

import contextlib
import math
import sys
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from impls.training import TrainingError, algorithms, learners
from impls.training.actor import TEST, VALIDATION, evaluate
from impls.training.arrangement import Arrangement
from impls.training.copies.loop import CopiesLoop
from impls.training.environments import Environment
from impls.training.loop import SerialLoop
from impls.training.model_loop import ModelLoop
from impls.training.parallel.loop import ParallelLoop
from impls.training.run import loop_of
from impls.training.weights import layout_of
from impls.training.workload import Workload

from ...clock import ALL_CPUS, pin
from ...worker import installed, serve, threads
from .. import loops
from . import RECORDS, Stepped, Trained


class Library:
    """Another library's loop and policy, as a run takes ours."""

    def __init__(self, name: str, workload: Workload, seed: int) -> None:
        self._trainer: Any = loops.make(name, seed=seed, task=workload)
        self.seed, self.learner = seed, self
        self.about = {
            "packages": installed(self._trainer.distributions()),
            "limits": "; ".join(self._trainer.sac_limits or ()),
        }

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self._trainer.steps

    @property
    def updates(self) -> int:
        """Gradient steps so far."""
        return self._trainer.updates

    # Between two turns a library's loop stands still, and it tells of no episodes.
    paused, ended = staticmethod(contextlib.nullcontext), staticmethod(tuple)

    def advance(self) -> tuple[()]:
        """Take a step of the environment and a gradient step; return no episodes."""
        self._trainer.turn()
        return ()

    def act(self, observations: NDArray[Any], *_: object) -> NDArray[Any]:
        """Choose actions without exploration."""
        return self._trainer.act(observations)

    def weights(self) -> Any:
        """A copy of the policy's weights."""
        return self._trainer.copy_policy()

    def load_weights(self, weights: Any) -> None:
        """Let the policy act by other weights."""
        self._trainer.load_policy(weights)

    def close(self) -> None:
        """End what the library has started."""
        self._trainer.close()


Loop = SerialLoop | ParallelLoop | CopiesLoop | Library


class _Session:
    """The one thing that this process does."""

    def train(self, run: dict[str, Any]) -> dict[str, Any]:
        """Train by one seed to the end; return the curve, the rates and the test."""
        changes = tuple(map(tuple, run["changes"]))
        asked = Trained(**run | {"arrangement": Arrangement.of(run["arrangement"]), "changes": changes})
        return _done(lambda: train(asked))

    def step(self, run: list[dict[str, Any]]) -> dict[str, Any]:
        """Take gradient steps from full replays, while actors stand still; return the times of each of the cells."""
        cells = [Stepped(**cell | {"hidden": tuple(cell["hidden"])}) for cell in run]
        return _done(lambda: {"answers": stepped(cells)})


def _done(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what comes of it on all cores, or why it failed."""
    pin(len(ALL_CPUS), threads())
    try:
        return work()
    except (TrainingError, RuntimeError, MemoryError) as error:
        return {"failed": (str(error).splitlines() or ["not enough memory"])[0]}


SAMPLE_SECONDS, ROUNDS, MOST_SECONDS, WARM_STEPS = 0.3, (3, 15), 45.0, 4


def stepped(cells: Sequence[Stepped]) -> list[dict[str, Any]]:
    """Time gradient steps of learners alone, whole periods a sample, the cells in alternation.

    Return of each the seconds of a step, in the order of rounds, the steps of a sample, and the seconds of an average.
    """
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(contextlib.closing(_filled(cell))) for cell in cells]
        rests = [stack.enter_context(contextlib.ExitStack()) for _ in loops]  # each loop rests but in its turn
        counts = []
        for loop, cell, rest in zip(loops, cells, rests, strict=True):
            counts.append(_steps_of_turn(loop, cell.period))
            rest.enter_context(loop.paused())
        samples, rng = np.empty((0, len(cells))), np.random.default_rng(0)
        end = time.perf_counter() + MOST_SECONDS
        while len(samples) < ROUNDS[0] or (len(samples) < ROUNDS[1] and time.perf_counter() < end):
            # Invariant: a row has a time of every cell, taken within one round.
            taken = np.empty(len(cells))
            for at in rng.permutation(len(cells)):
                rests[at].close()
                before, timed = counts[at]
                _advance(loops[at], before)
                taken[at] = _advance(loops[at], timed)
                rests[at].enter_context(loops[at].paused())
            samples = np.vstack([samples, taken])
        sizes = [len(loop.learner.parameters) for loop in loops]
    answers = []
    for at, cell in enumerate(cells):
        average = _average_seconds(sizes[at], cell.learners)
        answers.append({"samples": samples[:, at].tolist(), "steps": counts[at][1], "average_seconds": average})
    return answers


def _filled(cell: Stepped) -> ParallelLoop:
    """A loop with a full replay, whose actors take no step."""
    workload, rng = cell.settings, np.random.default_rng(0)
    loop = ParallelLoop(workload, cell.arrangement)
    for _ in range(RECORDS // 1_000):
        loop.buffer.insert(_random_records(workload, 1_000, rng))
    loop.board.begin_at(loop.learner.parameters, workload.learner.learning_starts, 0)
    loop.until(workload.learner.learning_starts)
    return loop


def _steps_of_turn(loop: ParallelLoop, period: int) -> tuple[int, int]:
    """How many steps of a turn come before its sample, for what has rested is slow at first, and how many it has.

    A sample has whole periods, of some tenths of a second if that is more.
    """
    _advance(loop, WARM_STEPS)  # which load code
    seconds = _advance(loop, WARM_STEPS)
    return math.ceil(SAMPLE_SECONDS / seconds), period * max(1, round(SAMPLE_SECONDS / (period * seconds)))


def _advance(loop: ParallelLoop, count: int) -> float:
    """Take N gradient steps; return the seconds of one."""
    began, end = time.perf_counter(), loop.updates + count
    while loop.updates < end:
        loop.advance()
    return (time.perf_counter() - began) / count


def _average_seconds(weights: int, count: int) -> float:
    """Median seconds in which each of L learners averages its part of L vectors of P weights."""
    vectors, mean, taken = np.zeros((count, weights // count), np.float32), np.zeros(weights // count, np.float32), []
    for _ in range(9):
        began = time.perf_counter()
        np.mean(vectors, 0, out=mean)
        vectors[:] = mean
        taken.append(time.perf_counter() - began)
    return median(taken)


def _random_records(workload: Workload, count: int, rng: np.random.Generator) -> dict[str, Any]:
    fields = layout_of(workload).fields
    records = {name: rng.random((count, *shape)).astype(dtype) for name, (shape, dtype) in fields.items()}
    return records | {"action": rng.integers(workload.action.choices, size=count)}


def train(asked: Trained) -> dict[str, Any]:
    """Train until solved, though at least ``least`` environment steps, or until ``most``; return what came of it."""
    workload = asked.settings
    with contextlib.ExitStack() as stack:
        environment = Environment(workload)
        stack.callback(environment.close)
        other = Library(asked.library, workload, asked.seed) if asked.library else None
        loop = other or _loop_of(workload, asked.arrangement, asked.seed)
        stack.callback(loop.close)
        run = _Run(workload, loop, environment)
        most = min(asked.most, workload.steps)
        run.train(min(asked.least, most), most)
        return run.answer(asked.test_episodes) | (other.about if other else {})


def _loop_of(workload: Workload, arrangement: Arrangement, seed: int) -> Loop:
    if arrangement.is_parallel:
        return loop_of(arrangement)(workload, arrangement, seed=seed)
    serial: type[SerialLoop] = algorithms.hook(workload, "Loop", SerialLoop)
    return serial(workload, seed=seed)


class _Run:
    """A run's clock, from the first gradient step on and not while it is evaluated, and its points so far."""

    def __init__(self, workload: Workload, loop: Loop, environment: Environment) -> None:
        self._workload, self._loop, self._environment = workload, loop, environment
        self.points: list[tuple[int, int, float, float]] = []
        self._episodes = 0  # that have ended
        self.episodes: list[int] = []  # by each point
        self.rollouts: list[int] = []  # transitions that a model had made by each point
        self._seconds, self._best, self._mean = 0.0, loop.learner.weights(), float("-inf")

    def train(self, least: int, most: int) -> None:
        """Train, and evaluate whenever the workload's interval has passed."""
        loop, settings, began = self._loop, self._workload.evaluation, time.perf_counter()
        while loop.updates < 1 and loop.step < most:
            self._episodes += len(loop.advance())
        self.start_seconds, began = time.perf_counter() - began, time.perf_counter()
        due, is_solved = (loop.step // settings.interval + 1) * settings.interval, False
        # Invariant: every evaluation due by the steps taken so far has its point.
        while loop.step < (least if is_solved else most):
            self._episodes += len(loop.advance())
            if loop.step >= due:
                self._seconds += time.perf_counter() - began
                is_solved = self._evaluate() >= settings.solved or is_solved
                due, began = (loop.step // settings.interval + 1) * settings.interval, time.perf_counter()

    def _evaluate(self) -> float:
        loop, settings = self._loop, self._workload.evaluation
        with loop.paused():
            self._episodes += len(loop.ended())
            seed = loop.seed, VALIDATION, loop.step
            scores = evaluate(self._workload, loop.learner, self._environment, settings.episodes, *seed)
            mean = fmean(scores) + 0.0
            self.episodes.append(self._episodes)
            if isinstance(loop, ModelLoop):
                self.rollouts.append(loop.rollouts)
            self.points.append((loop.step, loop.updates, round(self._seconds, 4), mean))
            if mean >= self._mean:
                self._mean, self._best = mean, loop.learner.weights()
        return mean

    def answer(self, test_episodes: int) -> dict[str, Any]:
        """Test the best weights on fresh episodes, while nobody learns; return the run's results."""
        loop, workload = self._loop, self._workload
        steps, updates = loop.step, loop.updates
        report = loop.report() if hasattr(loop, "report") else {}
        is_own = not isinstance(loop, Library)
        judge = learners.make(workload, None, seed=loop.seed) if is_own else loop.learner
        judge.load_weights(self._best)
        scores = evaluate(workload, judge, self._environment, test_episodes, loop.seed, TEST, 0)
        return {
            "points": self.points, "episodes": self.episodes, "interval": workload.evaluation.interval, "steps": steps,
            "gradient_steps": updates, "start_seconds": self.start_seconds,
            "test_episodes": test_episodes, "test_mean": fmean(scores) + 0.0 if scores else None,
            "restarts": getattr(loop, "restarts", 0), "report": report,
        } | ({"rollouts": self.rollouts} if self.rollouts else {})  # fmt: skip


if __name__ == "__main__":
    sys.exit(serve(_Session()))
