"""What a loop of several processes offers whatever they do: counts, pauses, the end."""

import contextlib
import os

from ...cores import allowed_cpus
from .. import clock
from ..actor import Episode
from ..workload import Workload
from . import board as words
from . import counter
from .arrangement import Arrangement
from .board import Board
from .crew import Crew, share_of_cores
from .report import cpu_seconds

SPIN_MICROSECONDS = 200.0  # that a process looks before it sleeps, where each has a core


class Together:
    """The processes of a workload and an arrangement, of which this one is the first: their ``board`` and crew.

    ``rows`` are those of each kind of process on the board, ``actors`` how many have episodes, ``weights`` P.
    """

    contestant = "numba"
    is_parallel = True
    compiled = False

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        rows: dict[str, range],
        actors: int,
        weights: int,
        epoch: int,
    ) -> None:
        self.workload, self.arrangement, self._rows = workload, arrangement, rows
        needs = [
            arrangement.threads if kind in ("learner", "copy", "model") else 1
            for kind, each in rows.items()
            for _ in each
        ]
        cores = arrangement.cores or allowed_cpus()
        looks = counter.looks_of(SPIN_MICROSECONDS if len(cores) >= sum(needs) else 0.0)
        self.board, self._cores = (
            Board(len(needs), actors, weights, looks=looks),
            share_of_cores(len(needs), cores, needs),
        )
        self.board.set(words.LAST_STEP, workload.steps)
        self._crew, self._epoch, self._began, self._is_begun = Crew(self.board), epoch, 0.0, False
        self._cores_before: set[int] = set()

    def _pin(self) -> None:
        """Before any child is started: the clock begins, and this process has its own cores."""
        self._is_begun, self._began = True, clock.seconds()
        counter.prepare()
        if hasattr(os, "sched_setaffinity"):
            self._cores_before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._cores[0])

    @property
    def step(self) -> int:
        """Number of environment steps taken."""
        return self.board.value(words.STEPS)

    @property
    def updates(self) -> int:
        """Number of gradient steps taken."""
        return self.board.value(words.UPDATES)

    @property
    def restarts(self) -> int:
        """Actors that ended from outside and were begun anew."""
        return self._crew.restarts

    @property
    def pids(self) -> dict[str, int]:
        """The process number of each child, by its name."""
        return self._crew.pids

    def cpu_seconds(self) -> float:
        """CPU time of all processes since each was started, those that have ended included; take differences."""
        return cpu_seconds(self.pids.values())

    def until(self, end: int) -> None:
        """Let actors take no step from environment step ``end`` on; by default that of the workload."""
        self.board.set(words.LAST_STEP, end)

    def hurry(self) -> None:
        """Let the run end soon: a process that does not rest in 4 s is killed. A signal's handler may call it."""
        self._crew.hurry()

    @property
    def lost(self) -> str:
        """The sentence of the first process that was lost, "" while none is."""
        return self._crew.failure

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """All other processes rest while the context lasts; contexts may lie in one another."""
        return self._crew.paused()

    def ended(self) -> tuple[Episode, ...]:
        """Episodes that ended since ``advance`` last returned; all of them, while the others rest."""
        return tuple(episode for _, episode in self.board.episodes())

    def end(self) -> None:
        """End the other processes, within 10 s; what was learned and stored stays, and ``state_dict`` has it.

        This process may use all its cores again.
        """
        self._crew.end()
        if self._cores_before:
            os.sched_setaffinity(0, self._cores_before)
            self._cores_before = set()
