"""A process of a host's environment, in which its own replay and ours take turns.

{"do": "has", "names": ["sb3"]}                                  -> {"names": ["sb3"]}
{"do": "measure", "name": "sb3", "task": "buffer", "kinds": ..}  -> {"timed": {..}, "absent": {..}, ..}
{"do": "train", "task": "cartpole_dqn", "kind": "ours", ..}      -> {"points": [[steps, seconds, mean], ..]}
"""

import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any, Self

import numpy as np

from impls import training

from ...clock import CallClock, pin
from ...libraries import rows
from ...libraries.base import Host, hosts
from ...timing import Timing, interleave
from ...worker import installed, sentence_of, serve, threads
from ..replay import CHECKED_ROWS, fault_of, spread
from . import BUFFER, TWIN

SPREAD_ROUNDS = 100  # of new priorities before a buffer is timed
PLACED = 256  # rows that the steps of a buffer take one after the other
TREE_SAMPLES = 11
EVALUATION_SEED = 10_000_019  # of the episodes that evaluate, which no run trains on
MOST_LETTERS = 200
PACKAGES = ("numpy", "numba", "torch", "gymnasium")
Call = Callable[[int], object]


class _Session:
    """The one thing that this process does."""

    def has(self, names: list[str]) -> dict[str, list[str]]:
        """Return those of the hosts that are installed here."""
        return {"names": [name for name in names if importlib.util.find_spec(hosts()[name].module)]}

    def measure(
        self, name: str, task: str, kinds: list[str], capacity: int, batch: int, seed: int, sample_seconds: float,
        budget_seconds: float, spare_steps: int,
    ) -> dict[str, Any]:  # fmt: skip
        """Time a task's step by each kind, and once more by the first that can be; then what the tree takes of it."""
        host, calls, absent = hosts()[name], dict[str, Call](), dict[str, list[str]]()
        for kind in [*kinds, TWIN]:
            made = next(iter(calls), kind) if kind == TWIN else kind
            try:
                if made != TWIN:
                    make = _buffer_step if task == BUFFER else _training_step
                    calls[kind] = make(host, task, made, capacity, batch, seed, spare_steps)
            except _WrongError as error:
                absent[kind] = ["failed", str(error)]
            except (ImportError, RuntimeError, MemoryError) as error:
                absent[kind] = ["skipped", _said(error)]
            except Exception as error:  # whatever a library raises
                absent[kind] = ["failed", f"{type(error).__name__}: {_said(error)}"]
        affinity = pin(1, threads())
        clocks = [CallClock(call, sample_seconds) for call in calls.values()]
        timings = interleave(clocks, budget_seconds * len(clocks), seed)
        timed = {}
        for (kind, call), timing in zip(calls.items(), timings, strict=True):
            tree = _time_tree(host, kind, call, timing)
            timed[kind] = {"samples": timing.samples, "calls": timing.calls_per_sample, "tree": tree}
        packages = installed((host.package, *PACKAGES))
        return {"timed": timed, "absent": absent, "affinity": affinity, "packages": packages}

    def train(self, task: str, kind: str, seed: int, steps: int) -> dict[str, Any]:
        """Train by one seed; a point is the mean of an evaluation, and the steps and seconds of training until it."""
        try:
            return {"points": _trained(task, kind, seed, steps)}
        except ImportError as error:
            return {"skipped": str(error).splitlines()[0]}
        except Exception as error:  # whatever a library raises
            return {"failed": sentence_of(error)}


class _WrongError(Exception):
    """A buffer answered wrongly; the message says how."""


def _buffer_step(host: Host, task: str, kind: str, capacity: int, batch: int, seed: int, spare_steps: int) -> Call:
    """Return the step of a full buffer whose priorities differ, once a small one has passed its check."""
    if kind not in host.uniform and (fault := fault_of(host.buffer(kind, CHECKED_ROWS, seed))):
        raise _WrongError(fault)
    buffer = host.buffer(kind, capacity, seed)
    buffer.fill()
    spread(buffer, seed, SPREAD_ROUNDS)
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, rows.MOST, (PLACED, 1))
    records = [buffer.place(rows.made(number)) for number in numbers]
    errors = [buffer.place_errors(values) for values in rng.random((PLACED, batch)).astype(np.float32)]

    def step(turn: int) -> None:
        buffer.insert(records[turn % PLACED])
        buffer.update(buffer.sample(batch), errors[turn % PLACED])

    return step


def _training_step(host: Host, task: str, kind: str, capacity: int, batch: int, seed: int, spare_steps: int) -> Call:
    """Return the step of a training loop that has begun to learn ``spare_steps`` ago."""
    loop = host.loop(task, kind, seed)
    while loop.steps < training.load(task).learner.learning_starts + spare_steps:
        loop.turn()
    return lambda turn: loop.turn()


def _time_tree(host: Host, kind: str, call: Call, timing: Timing) -> list[float]:
    """Return samples of the seconds of a step that the tree's calls take; none without a tree.

    Each is the share of a stretch of steps, of the median step: what disturbs a stretch disturbs both of its times.
    """
    methods, samples = [] if kind == TWIN else host.methods(kind), []
    for _ in range(TREE_SAMPLES if methods else 0):
        with Inside(methods) as inside:
            begin = time.perf_counter()
            for turn in range(timing.calls_per_sample):
                call(turn)
            seconds = time.perf_counter() - begin
        samples.append(inside.seconds / (seconds - inside.overhead_seconds) * timing.interval.median)
    return samples


_TRIES = 20_000


class Inside:
    """Within it, ``seconds`` counts the time inside these methods; calls from one to another count once.

    What the counting itself takes is subtracted, as an empty method has it.
    """

    def __init__(self, methods: Iterable[tuple[type, Sequence[str]]]) -> None:
        self._methods = [(kind, name) for kind, names in methods for name in names]
        self._spent, self._calls, self._is_inside = 0.0, 0, False
        self._originals: list[tuple[type, str, Any, bool]] = []

    def __enter__(self) -> Self:
        for kind, name in self._methods:
            is_own = name in vars(kind)
            self._originals.append((kind, name, getattr(kind, name), is_own))
            setattr(kind, name, self._count_calls(getattr(kind, name)))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, method, is_own in reversed(self._originals):
            if is_own:
                setattr(owner, name, method)
            else:
                delattr(owner, name)
        self._originals = []

    @property
    def seconds(self) -> float:
        """The time inside so far."""
        return max(0.0, self._spent - self._calls * _cost()[0])

    @property
    def overhead_seconds(self) -> float:
        """The seconds that counting has added to the time of its callers."""
        return self._calls * _cost()[1]

    def _count_calls(self, method: Callable[..., Any]) -> Callable[..., Any]:
        clock = time.perf_counter

        def count_call(*arguments: Any, **options: Any) -> Any:
            if self._is_inside:
                return method(*arguments, **options)
            self._is_inside, begin = True, clock()
            try:
                return method(*arguments, **options)
            finally:
                self._spent += clock() - begin
                self._calls += 1
                self._is_inside = False

        return count_call


class _Empty:
    def call(self) -> None:
        return


@functools.cache
def _cost() -> tuple[float, float]:
    """Seconds that a counted call of an empty method seems to take, and that it takes: the least of five tries."""
    inner, outer = [], []
    for _ in range(5):
        with Inside([(_Empty, ["call"])]) as inside:
            empty, begin = _Empty(), time.perf_counter()
            for _ in range(_TRIES):
                empty.call()
            outer.append((time.perf_counter() - begin) / _TRIES)
        inner.append(inside._spent / _TRIES)
    return min(inner), min(outer)


def _said(error: BaseException) -> str:
    """Return the first line of an error's message, cut where it is long."""
    line = (str(error).splitlines() or ["not enough memory"])[0]
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}.."


def _trained(task: str, kind: str, seed: int, steps: int) -> list[tuple[int, float, float]]:
    loop: Any = hosts()["sb3"].loop(task, kind, seed)
    workload = loop.workload
    from stable_baselines3.common.callbacks import BaseCallback  # noqa: PLC0415  # optional, and here by then

    model, explore, points = loop._model, workload.exploration, list[tuple[int, float, float]]()
    environment = loop.environment()

    class Evaluating(BaseCallback):  # type: ignore[misc]
        spent, began = 0.0, 0.0

        def _on_training_start(self) -> None:
            self.began = time.perf_counter()

        def _on_step(self) -> bool:
            if self.num_timesteps % workload.evaluation.interval == 0:
                self.spent += time.perf_counter() - self.began
                mean = _mean(model, environment, workload.evaluation.episodes)
                points.append((self.num_timesteps, round(self.spent, 4), mean))
                self.began = time.perf_counter()
            return True

    def exploration(left: float) -> float:
        """The chance of a random action where this share of the run is left."""
        passed = min(1.0, (1 - left) * steps / explore.steps)
        return explore.start + (explore.end - explore.start) * passed

    model.exploration_schedule = exploration
    model.learn(steps, callback=Evaluating(), log_interval=None)
    return points


def _mean(model: Any, environment: Any, episodes: int) -> float:
    """Return the mean return of episodes without exploration, the same ones each time."""
    returns = []
    for episode in range(episodes):
        observation, is_over, total = environment.reset(seed=EVALUATION_SEED + episode)[0], False, 0.0
        while not is_over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = environment.step(action)
            is_over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    return fmean(returns)


if __name__ == "__main__":
    sys.exit(serve(_Session()))
