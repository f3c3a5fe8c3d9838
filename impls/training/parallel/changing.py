"""Change the number of actors and the batch of a loop while it trains, and measure its rates meanwhile.

Actors beyond a smaller number keep their process, their episode and what they stored, and take no turn until there are
to be more again; so no step is lost, and no record that was inserted. What an actor keeps in a local storage, less
than it inserts at once, waits with it. The loop is made for the most actors that there will be, each of which begins
when it is first needed.

A rate is measured while nobody waits for the others [Hou2023, 3.4]. In a loop whose ratio is kept, that is so for the
seconds of a look alone: always for the learner, for actors where their rate is asked for. A look ends early after a
given number of environment steps, taken or due, and actors then wait until the gradient steps due by then are taken, so
that the loop learns from each step as from any other. Where the learner was the faster one, it waits instead.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...checks import integer_at_least
from ...cores import count_allowed
from .. import clock
from ..arrangement import Arrangement
from ..errors import ProcessLost, TrainingError
from ..interrupts import Interrupts
from ..workload import Workload
from .acting import act
from .board import FREE, Counter, Row
from .loop import ParallelLoop
from .node import cpu_seconds

READY_SECONDS = 180.0  # without a step or gradient step, after which a loop is given up
WINDOWS = 3


@dataclass(frozen=True)
class Rates:
    """Rates of a loop in some seconds, with a given number of ``actors`` and records of a batch B.

    ``sampling_hz`` environment steps, ``update_hz`` gradient steps, ``frames_hz`` records trained on, per second;
    ``cpu_percent`` of all cores. ``actor_cores``, ``actor_bytes`` of an actor, ``learner_cores``, ``learner_bytes`` of
    this process: cores kept busy, and memory, of which each takes its share of what several use. ``seconds``: of a
    gradient step, in each window.
    """

    actors: int
    batch: int
    sampling_hz: float
    update_hz: float
    frames_hz: float
    cpu_percent: float
    actor_cores: float
    learner_cores: float
    actor_bytes: float
    learner_bytes: float
    seconds: tuple[float, ...]

    @property
    def memory_bytes(self) -> float:
        """Memory of the learner and of these actors."""
        return self.learner_bytes + self.actors * self.actor_bytes


class ChangingLoop(ParallelLoop):
    """A loop that begins with ``actors`` of its workload's, and trains with any number of them and any batch.

    ``turn`` is what it does again and again while it is measured: ``advance``, unless a run puts its own in place.
    TrainingError unless it is ``apart``, with one learner and the shared transport.
    """

    def __init__(self, workload: Workload, arrangement: Arrangement, actors: int = 1, **options: Any) -> None:
        if (arrangement.name, arrangement.learners, arrangement.transport) != ("apart", 1, "shared"):
            raise TrainingError(
                "actors and batch can be changed in the arrangement apart, with one learner and the shared transport; "
                "others fix them when they begin"
            )
        super().__init__(workload, arrangement, **options)
        self._every = self._rows["actor"]
        self.turn: Callable[[], object] = self.advance
        self.set_actors(actors)

    @property
    def actors(self) -> int:
        """Actors that it trains with."""
        return len(self._rows["actor"])

    def set_actors(self, actors: int) -> None:
        """Continue with a given number of actors, from 1 to those of the workload; ValueError for others.

        Nobody takes a step while a process starts, so that the loop takes as many whether that is slow or not.
        """
        if integer_at_least("actors", actors, 1) > len(self._every):
            raise ValueError(f"actors must be at most {len(self._every)}, those of the workload, not {actors}")
        self._rows = {**self._rows, "actor": self._every[:actors]}
        if self._is_begun and actors > len(self.pids):
            self.board.set(Counter.FIRST_IDLE, self._every[0])
            for number in range(len(self.pids), actors):
                self._children.begin("actor", act, self._start(number, self._every[number]))
            while not all(self.board.rows[row, Row.LIVE] for row in self._rows["actor"]):
                self.turn()
        self.board.set(Counter.FIRST_IDLE, self._every[actors - 1] + 1)

    def set_batch(self, batch: int) -> None:
        """Continue with batches of N records, at least 1; batches that were sampled ahead are dropped."""
        learner = replace(self.workload.learner, batch=integer_at_least("batch", batch, 1))
        with self.paused():
            self.workload, losses = replace(self.workload, learner=learner), self._learning.losses
            self._learning = self._make_learning()
            self._learning.losses = losses  # until there are others

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state, without what changes."""
        made = super().identity()
        made["workload"]["actors"]["count"] = made["workload"]["learner"]["batch"] = None
        return made

    def measure(self, seconds: float, settle: float = 0.0, steps: int = FREE, are_actors_free: bool = True) -> Rates:
        """Let the loop train until all its actors do, then for ``settle`` seconds, and measure the ``seconds`` after.

        It measures for less where ``steps`` environment steps are taken sooner, or due by the gradient steps. Without
        ``are_actors_free`` actors take no more steps than the ratio allows, so that gradient steps alone are as fast as
        they can be. TrainingError if training fails, or nothing is done for 3 minutes.
        """
        self.begin()
        self._get_ready()
        with self._unpaced(are_actors_free):
            self._train(settle, steps // 10)
            step, own, every, ends = self.step, cpu_seconds(()), self.cpu_seconds(), [(self.updates, clock.seconds())]
            for _ in range(WINDOWS):
                self._train(seconds / WINDOWS, steps // WINDOWS)
                ends.append((self.updates, clock.seconds()))
            steps, own, every = self.step - step, cpu_seconds(()) - own, self.cpu_seconds() - every
        spent, batch = ends[-1][1] - ends[0][1], self.workload.learner.batch
        updates_hz, learner_cores, cores = (ends[-1][0] - ends[0][0]) / spent, own / spent, every / spent
        memory = [measure_bytes(pid) for pid in self.pids.values()]
        return Rates(
            self.actors, batch, steps / spent, updates_hz, updates_hz * batch,
            min(100.0, 100 * cores / count_allowed()), max(0.0, cores - learner_cores) / self.actors, learner_cores,
            sum(memory) / len(memory), measure_bytes(os.getpid()),
            tuple((b[1] - a[1]) / max(1, b[0] - a[0]) for a, b in itertools.pairwise(ends)),
        )  # fmt: skip

    @contextlib.contextmanager
    def _unpaced(self, are_actors_free: bool) -> Iterator[None]:
        """The learner does not follow the pace while the context lasts, nor do actors where they are free."""
        self._learning.pace, self.is_measured = replace(self._pace, is_free=True), True
        self.board.set(Counter.UNPACED, int(are_actors_free))
        try:
            yield
        finally:
            self.board.set(Counter.UNPACED, 0)
            self._learning.pace, self.is_measured = self._pace, False

    def _get_ready(self) -> None:
        """Train until every actor has taken a turn from here on, and a gradient step was taken."""
        turns, updates, seen, end = self._turns(), self.updates, (-1, -1), 0.0
        while self.updates == updates or any(a == b for a, b in zip(turns, self._turns(), strict=True)):
            if (now := (self.step, self.updates)) != seen:
                seen, end = now, clock.seconds() + READY_SECONDS
            self.turn()
            if clock.seconds() > end:
                raise ProcessLost(f"{self.actors} actors and a learner have done nothing for {READY_SECONDS:.0f} s")

    def _turns(self) -> list[int]:
        return [int(self.board.rows[row, Row.TURNS]) for row in self._rows["actor"]]

    def _train(self, seconds: float, steps: int) -> None:
        """Train for some seconds, or until this number of environment steps is taken, or due by the ratio."""
        end, last = clock.seconds() + seconds, self._find_step() + steps
        while clock.seconds() < end and self._find_step() < last:
            self.turn()

    def _find_step(self) -> int:
        """The environment step that this loop is at, or will be when actors have caught up with the learner."""
        return max(self.step, self._pace.due(self.updates))


@contextlib.contextmanager
def measuring(
    workload: Workload, arrangement: Arrangement, actors: int, seconds: float, settle: float, **options: Any
) -> Iterator[Callable[[int, int], Rates]]:
    """Begin a loop with a free ratio and these ``actors``; yield what measures it by (actors, batch).

    Ctrl-C and SIGTERM raise Interrupted between two turns; in the end no process is left.
    """
    with contextlib.closing(ChangingLoop(workload, replace(arrangement, ratio="free"), actors, **options)) as loop:

        def measure(count: int, batch: int) -> Rates:
            loop.set_actors(count)
            loop.set_batch(batch)
            return loop.measure(seconds, settle)

        def turn() -> None:
            interrupts.check()
            loop.advance()

        with Interrupts(loop.shorten_shutdown) as interrupts:
            loop.turn = turn
            yield measure


def measure_bytes(pid: int) -> float:
    """Measure the memory of a process: its share of what several use (Pss), or where that is not known all it has."""
    with contextlib.suppress(OSError):
        if share := re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE):
            return 1024.0 * int(share[1])
    with contextlib.suppress(OSError):
        return float(os.sysconf("SC_PAGE_SIZE")) * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0.0
