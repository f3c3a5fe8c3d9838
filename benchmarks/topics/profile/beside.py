"""The parts of a parallel run, concurrently: a loop of processes runs for a second or two, and its parts are read.

With the ratio free no side waits for the other, so each is timed while the other is busy all the time, then alone: what
they take from each other is the contention. With the ratio kept, as the workload has it, the period is
longer than the busiest side: the rest is hand-over.

Letters: A actors, E environments an actor steps at once, D batches sampled ahead, B batch.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from impls.training import Workload
from impls.training.arrangement import SEVERAL, SHARING, SYNCS, Arrangement
from impls.training.weights import layout_of

from .cells import PRESETS, REFERENCE, Cell, Preset, options_of
from .parts import World

PRIMITIVE = "training arrangement"
ARRANGEMENTS = ("apart", "pipelined")
PARTS = {
    "rate": "a gradient step of the run, all in: its period",
    "learner step": "the learner's own work a gradient step; in apart it samples and updates priorities too",
    "actor turn": "an actor's own work a turn of E environments",
    "keeper step": "the replay manager's own work a batch, in pipelined",
    "actor period": "a turn of an actor, all in",
    "learner alone": "a gradient step, all in, while the actors rest",
    "actor alone": "a turn of an actor, all in, while the learner rests",
}
WINDOWS = 11
LEAST_STEPS = 2  # gradient steps of a window
WARM_STEPS = 20
START_SECONDS, PHASE_SECONDS = 120.0, 6.0


def groups(workload: Workload, preset: Preset, cores: int, learners: list[str]) -> list[list[Cell]]:
    """Return the cells, a group a run; none with a single core, or where a full buffer is more than may be stored."""
    fits = workload.replay.capacity * layout_of(workload).record_bytes <= preset.storage_bytes
    if cores < 2 or not fits:
        return []
    best = learners[-1]
    counts = sorted({1, *preset.environments[:1], workload.actors.environments})
    shapes = [(name, best, 1, count) for name in ARRANGEMENTS for count in counts]
    shapes.append(("apart", best, cores, 1))  # more processes than cores
    if best != REFERENCE and preset != PRESETS["brief"]:
        shapes += [(name, REFERENCE, 1, 1) for name in ARRANGEMENTS]
    found = [list(_group(workload, *shape, ratio)) for shape in shapes for ratio in ("free", "kept")]
    how = {"learners": 2, "period": Arrangement().period}
    is_even = workload.learner.batch % 2 == 0
    tried = SYNCS if preset != PRESETS["brief"] else ()
    syncs = [sync for sync in tried if is_even or sync not in SHARING]
    return found + [_whole(workload, best, **how, sync=sync) for sync in syncs]


def _whole(workload: Workload, learner: str, **how: Any) -> list[Cell]:
    """The cell of a run timed whole, of one actor apart; ``how`` several learners combine."""
    count = workload.actors.environments
    cells = _group(workload, "apart", learner, 1, count, "kept")
    rates = [cell for cell in cells if cell.op == "rate"]
    return [dataclasses.replace(cell, options={**cell.options, **how}) for cell in rates]


def whole(workload: Workload, preset: Preset, cores: int, learners: list[str]) -> list[list[Cell]]:
    """Return the cells of runs timed whole, a group each: of one actor apart, by the fastest learner, as it trains."""
    if not groups(workload, preset, cores, learners):
        return []
    return [_whole(workload, learners[-1])]


def _group(workload: Workload, name: str, learner: str, actors: int, count: int, ratio: str) -> Iterator[Cell]:
    """The cells of one run: what it reads of each of its parts."""
    options = options_of(workload) | {
        "arrangement": name,
        "actors": actors,
        "learners": 1,
        "environments": count,
        "presampled": max(workload.replay.presampled, int(name == "pipelined")),
        "update_interval": workload.learner.update_interval,
        "batch": workload.learner.batch,
        "learner": learner,
        "policy": learner,
        "strategy": Arrangement(name=name).strategy,
        "sync": "synchronous",
        "transport": "shared",
        "weights": "shared",
        "ratio": ratio,
    }
    ops = ["rate", "learner step", "actor turn", *(["keeper step"] if name == "pipelined" else [])]
    ops += ["actor period", "learner alone", "actor alone"] if ratio == "free" else []
    replay = workload.replay
    for op in ops:
        yield Cell(name, op, options, workload.learner.batch, 1, replay.capacity, replay.fanout)


def shaped(workload: Workload, options: Mapping[str, Any]) -> Workload:
    """Return the workload as a run of these options trains it: from the first step on, and without an end."""
    actors = dataclasses.replace(workload.actors, count=options["actors"], environments=options["environments"])
    learner = dataclasses.replace(
        workload.learner, update_interval=options["update_interval"], batch=options["batch"], learning_starts=1
    )
    exploration = dataclasses.replace(workload.exploration, random_steps=0, start=workload.exploration.end)
    replay = dataclasses.replace(workload.replay, presampled=options["presampled"])
    parts = {"actors": actors, "learner": learner, "exploration": exploration, "replay": replay}
    return dataclasses.replace(workload, **parts, steps=1 << 50)


def measure(world: World, options: Mapping[str, Any], window: float) -> dict[str, list[float]]:
    """Run the loop of these options shortly; return samples in seconds by op, a window of N seconds each.

    TrainingError, or TimeoutError with one sentence, where it does not run or is too slow.
    """
    from impls.training.parallel.loop import ParallelLoop  # noqa: PLC0415  # numba

    names = (*SEVERAL, "strategy", "transport", "weights", "ratio")
    given = {
        name: options[name]
        for name in names
        if name in options
    }  # fmt: skip
    arrangement = Arrangement(name=options["arrangement"], **given)
    workload = shaped(world.workload, options)
    loop = ParallelLoop(workload, arrangement, learner=options["learner"], policy=options["policy"])
    try:
        loop.buffer.load_state_dict(_full(world))
        return _Reading(loop, window).samples(options["ratio"] == "free")
    finally:
        loop.close()


def _full(world: World) -> dict[str, Any]:
    """The state of a full replay of random records, made once a process."""
    if world.full is None:
        capacity = world.workload.replay.capacity
        leaves = world.rng.random(capacity) + 1e-3
        state = {"arrays": world.records(capacity), "leaves": leaves, "largest": 1.0, "written": capacity}
        world.full = {**state, "drawable": np.ones(capacity, np.bool_)}
    return world.full


class _Reading:
    """A loop that runs, read a window at a time."""

    def __init__(self, loop: Any, window: float) -> None:
        from impls.training.parallel.board import Counter, Row, processes_of  # noqa: PLC0415  # numba

        self._loop, self._window, self._counter, self._row = loop, window, Counter, Row
        self._rows = processes_of(loop.workload, loop.arrangement)

    def samples(self, is_free: bool) -> dict[str, list[float]]:
        """Samples by op: concurrently, and with a free ratio each side alone too."""
        self._until(lambda: self._loop.updates >= WARM_STEPS and self._turns() >= WARM_STEPS, START_SECONDS)
        known: dict[str, list[float]] = {}
        self._phase(known, lambda end: self._until(lambda: time.perf_counter() >= end, PHASE_SECONDS), True)
        if not is_free:
            known.pop("actor period")
            return known
        alone: dict[str, list[float]] = {}
        self._phase(alone, lambda end: time.sleep(max(0.0, end - time.perf_counter())), False)
        known["actor alone"] = alone["actor period"]
        board = self._loop.board
        board.set(
            self._counter.LAST_STEP, board.value(self._counter.CLAIMED_STEPS)
        )  # actors rest: no step is left to claim
        alone.clear()
        self._phase(alone, lambda end: self._until(lambda: time.perf_counter() >= end, PHASE_SECONDS), True)
        known["learner alone"] = alone["rate"]
        return known

    def _turns(self) -> int:
        return sum(int(self._loop.board.rows[row, self._row.TURNS]) for row in self._rows["actor"])

    def _until(self, is_so: Callable[[], bool], limit: float) -> None:
        """Train until a condition holds. TimeoutError after ``limit`` seconds without a gradient step."""
        last, updates = time.perf_counter(), self._loop.updates
        while not is_so():
            self._loop.advance()
            if self._loop.updates != updates:
                last, updates = time.perf_counter(), self._loop.updates
            elif time.perf_counter() > last + limit:
                raise TimeoutError(f"one call takes {limit:.2g} s, too long for the preset")

    def _phase(self, known: dict[str, list[float]], go_on: Callable[[float], None], learns: bool) -> None:
        """Append a sample by op for each window; one in which a part did nothing has none of it."""
        for _ in range(WINDOWS):
            before, updates, begin = self._loop.board.rows.copy(), self._loop.updates, time.perf_counter()
            end = begin + self._window
            go_on(end)
            while learns and self._loop.updates < updates + LEAST_STEPS:
                go_on(time.perf_counter() + self._window / 4)
            elapsed = time.perf_counter() - begin
            if steps := self._loop.updates - updates:
                known.setdefault("rate", []).append(elapsed / steps)
            change = self._loop.board.rows - before
            for kind, op in (("learner", "learner step"), ("actor", "actor turn"), ("keeper", "keeper step")):
                rows = list(self._rows[kind])
                turns, busy = (int(change[rows, word].sum()) for word in (self._row.TURNS, self._row.BUSY))
                if turns:
                    known.setdefault(op, []).append(busy * 1e-9 / turns)
                if turns and kind == "actor":
                    known.setdefault("actor period", []).append(len(rows) * elapsed / turns)
