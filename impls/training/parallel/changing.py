"""Change the number of actors and the batch of a loop while it trains, and measure its rates meanwhile.

Actors beyond a smaller number are ended in a pause, when they have taken all steps that they had claimed; those of a
larger number begin anew, with other random numbers. The loop is made for the most actors that there will be.
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
from ..actor import Episode
from ..arrangement import Arrangement
from ..errors import TrainingError
from ..interrupts import Interrupts
from ..workload import Workload
from .acting import act
from .board import Row
from .loop import ParallelLoop
from .node import cpu_seconds

READY_SECONDS = 180.0  # within which every actor takes a turn, and a first gradient step is taken
WINDOWS = 3
_LIFE = 1_009  # between the epochs of two lives of an actor that was ended and begun again


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
        """Memory of all processes."""
        return self.learner_bytes + self.actors * self.actor_bytes


class ChangingLoop(ParallelLoop):
    """A loop that begins with ``actors`` of its workload's, and trains with any number of them and any batch.

    TrainingError unless it is ``apart``, with one learner and the shared transport.
    """

    def __init__(self, workload: Workload, arrangement: Arrangement, actors: int = 1, **options: Any) -> None:
        if (arrangement.name, arrangement.learners, arrangement.transport) != ("apart", 1, "shared"):
            raise TrainingError(
                "actors and batch can be changed in the arrangement apart, with one learner and the shared transport; "
                "others fix them when they begin"
            )
        super().__init__(workload, arrangement, **options)
        self._every, self._life = self._rows["actor"], 0
        self.check: Callable[[], None] = lambda: None  # before each turn
        self._go_by(actors)

    @property
    def actors(self) -> int:
        """Actors that it trains with."""
        return len(self._rows["actor"])

    def _go_by(self, actors: int) -> None:
        if integer_at_least("actors", actors, 1) > len(self._every):
            raise ValueError(f"actors must be at most {len(self._every)}, those of the workload, not {actors}")
        self._rows = {**self._rows, "actor": self._every[:actors]}

    def set_actors(self, actors: int) -> None:
        """Continue with a given number of actors, from 1 to those of the workload; ValueError for others."""
        before = self.actors
        self._go_by(actors)
        if self._is_begun and actors < before:
            self._children.dismiss("actor", actors)
        elif self._is_begun and actors > before:
            self._life += 1
            for number in range(before, actors):
                start = self._start(number, self._every[number])
                self._children.begin("actor", act, replace(start, epoch=start.epoch + self._life * _LIFE))

    def set_batch(self, batch: int) -> None:
        """Continue with batches of N records, at least 1; batches that were sampled ahead are dropped."""
        learner = replace(self.workload.learner, batch=integer_at_least("batch", batch, 1))
        with self.paused():
            self.workload = replace(self.workload, learner=learner)
            self._learning = self._make_learning()

    def advance(self) -> tuple[Episode, ...]:
        """Take a turn as the loop that it is, unless ``check`` raises."""
        self.check()
        return super().advance()

    def measure(self, seconds: float, settle: float = 0.0) -> Rates:
        """Let the loop train until all its actors do, then for ``settle`` seconds, and measure the ``seconds`` after.

        TrainingError if that is not so within 3 minutes, or if training fails.
        """
        self.begin()
        self._get_ready()
        self._train(settle)
        steps, own, every, ends = self.step, cpu_seconds(()), self.cpu_seconds(), [(self.updates, clock.seconds())]
        for _ in range(WINDOWS):
            self._train(seconds / WINDOWS)
            ends.append((self.updates, clock.seconds()))
        spent, batch = ends[-1][1] - ends[0][1], self.workload.learner.batch
        steps_hz, updates_hz = (self.step - steps) / spent, (ends[-1][0] - ends[0][0]) / spent
        learner_cores, cores = (cpu_seconds(()) - own) / spent, (self.cpu_seconds() - every) / spent
        memory = [_bytes_of(pid) for pid in self.pids.values()]
        return Rates(
            self.actors, batch, steps_hz, updates_hz, updates_hz * batch,
            min(100.0, 100 * cores / count_allowed()), max(0.0, cores - learner_cores) / self.actors, learner_cores,
            sum(memory) / self.actors, _bytes_of(os.getpid()),
            tuple((b[1] - a[1]) / max(1, b[0] - a[0]) for a, b in itertools.pairwise(ends)),
        )  # fmt: skip

    def _get_ready(self) -> None:
        """Train until every actor has taken a turn from here on, and a gradient step was taken."""
        turns, updates, end = self._turns(), self.updates, clock.seconds() + READY_SECONDS
        while self.updates == updates or any(a == b for a, b in zip(turns, self._turns(), strict=True)):
            self.advance()
            if clock.seconds() > end:
                raise TrainingError(f"{self.actors} actors and a learner do not all work after {READY_SECONDS:.0f} s")

    def _turns(self) -> list[int]:
        return [int(self.board.rows[row, Row.TURNS]) for row in self._rows["actor"]]

    def _train(self, seconds: float) -> None:
        end = clock.seconds() + seconds
        while clock.seconds() < end:
            self.advance()


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

        with Interrupts(loop.shorten_shutdown) as interrupts:
            loop.check = interrupts.check
            yield measure


def _bytes_of(pid: int) -> float:
    """Memory of a process, its share of what several use (Pss); all that is resident where that is not known."""
    with contextlib.suppress(OSError):
        if share := re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE):
            return 1024.0 * int(share[1])
    with contextlib.suppress(OSError):
        return float(os.sysconf("SC_PAGE_SIZE")) * int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return 0.0
