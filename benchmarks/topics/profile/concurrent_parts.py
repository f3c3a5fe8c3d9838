"""The parts of a parallel run, concurrently: a loop of processes runs for a second or two, and its parts are read.

With the ratio free no side waits for the other, so each is timed while the other is busy all the time, then alone: what
they take from each other is the contention. With the ratio kept, as the workload has it, the period is
longer than the busiest side: the rest is hand-over.

    rate            a gradient step of the run, all in: its period
    learner step    the learner's own work a gradient step; in apart it samples and updates priorities too
    actor turn      an actor's own work a turn of E environments
    keeper step     the replay manager's own work a batch, in pipelined; with two units tree step and storage step
    actor period    a turn of an actor, all in
    learner alone   a gradient step, all in, while the actors rest
    actor alone     a turn of an actor, all in, while the learner rests

Letters: A actors, E environments an actor steps at once, D batches sampled ahead, B batch.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from impls.training import Workload
from impls.training.arrangement import SHARING, SYNCS, Arrangement
from impls.training.weights import layout_of

from .cells import PRESETS, REFERENCE, Cell, Preset, change_tables, options_of, options_of_run, shape_run
from .parts import World

PRIMITIVE = "training arrangement"
ARRANGEMENTS = ("apart", "pipelined")
KINDS = ("learner", "actor", "keeper", "tree", "storage")  # of processes
PARTS = {kind: f"{kind} {'turn' if kind == 'actor' else 'step'}" for kind in KINDS}
WINDOWS = 11
LEAST_STEPS = 2  # gradient steps of a window
WARM_STEPS = 20
START_SECONDS, PHASE_SECONDS = 120.0, 6.0


def groups(workload: Workload, preset: Preset, cores: int, learners: list[str]) -> list[list[Cell]]:
    """Return the cells, a group a run; none with a single core, or where a full buffer is more than may be stored."""
    if cores < 2 or workload.replay.capacity * layout_of(workload).record_bytes > preset.storage_bytes:
        return []
    best, is_brief = learners[-1], preset == PRESETS["brief"]
    counts = sorted({1, *preset.environments[:1], workload.actors.environments})
    shapes = [(name, best, 1, count) for name in ARRANGEMENTS for count in counts]
    shapes.append(("apart", best, cores, 1))  # more processes than cores
    if best != REFERENCE and not is_brief:
        shapes += [(name, REFERENCE, 1, 1) for name in ARRANGEMENTS]
    found = [list(_list_cells(workload, *shape, ratio)) for shape in shapes for ratio in ("free", "kept")]
    syncs = () if is_brief else SYNCS if workload.learner.batch % 2 == 0 else [s for s in SYNCS if s not in SHARING]
    period = Arrangement().period
    return found + [[_whole_run(workload, best, learners=2, period=period, sync=sync)] for sync in syncs]


def list_whole_runs(workload: Workload, preset: Preset, cores: int, learners: list[str]) -> list[list[Cell]]:
    """Return the cells of runs timed whole, a group each: of one actor apart, by the fastest learner, as it trains."""
    return [[_whole_run(workload, learners[-1])]] if groups(workload, preset, cores, learners) else []


def _whole_run(workload: Workload, learner: str, **how: Any) -> Cell:
    """Return the cell of a run timed whole, of one actor apart; ``how`` several learners combine."""
    rate = next(_list_cells(workload, "apart", learner, 1, workload.actors.environments, "kept"))
    return dataclasses.replace(rate, options={**rate.options, **how})


def _list_cells(
    workload: Workload, name: str, learner: str, actors: int, environments: int, ratio: str
) -> Iterator[Cell]:
    """Yield the cells of a run, that of its rate first: what is read of each of its parts."""
    shape = {"actors": actors, "environments": environments}
    shape["presampled"] = max(workload.replay.presampled, int(name == "pipelined"))
    options = options_of(workload) | options_of_run(workload, Arrangement(name=name, ratio=ratio), learner, **shape)
    ops = ["rate", "learner step", "actor turn", *(["keeper step"] if name == "pipelined" else [])]
    ops += ["actor period", "learner alone", "actor alone"] if ratio == "free" else []
    for op in ops:
        yield Cell(name, op, options, workload.learner.batch, 1, workload.replay.capacity, workload.replay.fanout)


def train_at_once(workload: Workload) -> Workload:
    """Return the workload as it trains from the first step on, and without an end."""
    start = {"random_steps": 0, "start": workload.exploration.end}
    tables = {"learner": {"learning_starts": 1}, "exploration": start}
    return dataclasses.replace(change_tables(workload, tables), steps=1 << 50)


def measure(world: World, options: Mapping[str, Any], window: float) -> dict[str, list[float]]:
    """Run the loop of these options shortly; return samples in seconds by op, a window of N seconds each.

    TrainingError, or TimeoutError with one sentence, where it does not run or is too slow.
    """
    from impls.training.parallel.loop import ParallelLoop  # noqa: PLC0415  # numba

    workload, arrangement = shape_run(world.workload, options)
    by = {"learner": options["learner"], "policy": options["policy"]}
    loop = ParallelLoop(train_at_once(workload), arrangement, **by)
    try:
        world.kept_state = world.kept_state or world.full_state()
        loop.buffer.load_state_dict(world.kept_state)
        return _Reading(loop, window).samples(options["ratio"] == "free")
    finally:
        loop.close()


class _Reading:
    """A loop that runs, read a window at a time."""

    def __init__(self, loop: Any, window: float) -> None:
        from impls.training.parallel.board import Counter, Row, processes_of  # noqa: PLC0415  # numba

        self._loop, self._board, self._window = loop, loop.board, window
        self._counter, self._row = Counter, Row
        self._rows = {kind: list(rows) for kind, rows in processes_of(loop.workload, loop.arrangement).items()}

    def samples(self, is_free: bool) -> dict[str, list[float]]:
        """Return samples by op: concurrently, and with a free ratio each side alone too."""
        turns = self._rows["actor"], self._row.TURNS
        self._train(lambda: min(self._loop.updates, self._board.rows[turns].sum()) >= WARM_STEPS, START_SECONDS)
        known = self._read(self._train_until)
        if not is_free:
            known.pop("actor period")
            return known
        resting = self._read(lambda end: time.sleep(max(0.0, end - time.perf_counter())), learns=False)
        # No step is left to claim, so that actors rest.
        self._board.set(self._counter.LAST_STEP, self._board.value(self._counter.CLAIMED_STEPS))
        return known | {"actor alone": resting["actor period"], "learner alone": self._read(self._train_until)["rate"]}

    def _train(self, is_over: Callable[[], bool], limit: float) -> None:
        """Train until a condition holds. TimeoutError after ``limit`` seconds without a gradient step."""
        last, updates = time.perf_counter(), self._loop.updates
        while not is_over():
            self._loop.advance()
            if self._loop.updates != updates:
                last, updates = time.perf_counter(), self._loop.updates
            elif time.perf_counter() > last + limit:
                raise TimeoutError(f"one call takes {limit:.2g} s, too long for the preset")

    def _train_until(self, end: float) -> None:
        self._train(lambda: time.perf_counter() >= end, PHASE_SECONDS)

    def _read(self, go_on: Callable[[float], None], learns: bool = True) -> dict[str, list[float]]:
        """Return a sample by op for each window; one in which a part did nothing has none of it."""
        known: dict[str, list[float]] = {}
        for _ in range(WINDOWS):
            before, updates, begin = self._board.rows.copy(), self._loop.updates, time.perf_counter()
            go_on(begin + self._window)
            while learns and self._loop.updates < updates + LEAST_STEPS:
                go_on(time.perf_counter() + self._window / 4)
            elapsed = time.perf_counter() - begin
            if steps := self._loop.updates - updates:
                known.setdefault("rate", []).append(elapsed / steps)
            change = self._board.rows - before
            for kind, op in PARTS.items():
                rows = self._rows.get(kind, [])
                turns, busy = (int(change[rows, word].sum()) for word in (self._row.TURNS, self._row.BUSY))
                if turns:
                    known.setdefault(op, []).append(busy * 1e-9 / turns)
                if turns and kind == "actor":
                    known.setdefault("actor period", []).append(len(rows) * elapsed / turns)
        return known
