"""What a loop of several processes offers whatever they do: counts, pauses, the end."""

import contextlib
import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ...cores import allowed_cpus
from ...replay import Replay
from .. import clock, learners
from ..actor import Episode
from ..errors import TrainingError
from ..throughput import seconds_of
from ..workload import Workload
from . import board as words
from . import counter
from .arrangement import Arrangement
from .board import Board
from .crew import Crew, share_of_cores
from .handing import Handing
from .programs import Start

SPIN_MICROSECONDS = 200.0  # that a process looks before it sleeps, where each has a core


def behind(board: Board, rows: Iterable[int]) -> dict[str, float]:
    """Gradient steps by which processes' weights or batches were behind: the mean over their turns, and the most."""
    part = board.rows[list(rows)]
    turns = max(1, int(part[:, words.TURNS].sum()))
    return {"mean": float(part[:, words.STALE].sum()) / turns, "most": int(part[:, words.STALEST].max(initial=0))}


def busy(board: Board, rows: Iterable[int]) -> float:
    """Seconds at work for each turn of these processes; 0 before the first."""
    part = board.rows[list(rows)]
    return float(part[:, words.BUSY].sum()) / 1e9 / max(1, int(part[:, words.TURNS].sum()))


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of this process, of its children that have ended, and of those with these numbers."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(seconds_of, pids))


class Together:
    """The processes of a workload and an arrangement, of which this one is the first: their ``board`` and crew.

    ``rows`` are those of each kind of process on the board, ``actors`` how many have episodes, ``weights`` P.
    """

    contestant = "numba"
    is_parallel = True
    compiled = False
    model: Any = None  # of the environment

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        *,
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
        epoch: int = 0,
    ) -> None:
        arrangement.check(workload)
        self.workload, self.arrangement, self.seed, self.device = workload, arrangement, seed, device
        self.learner = learners.make(workload, learner, seed=seed, device=device)
        self.policy_name = learners.default(workload) if policy is None else policy
        if reason := learners.unsuited(self.policy_name, workload):  # before its processes would say so
            raise TrainingError(reason)
        self._rows, actors, weights = self._places()
        needs = [
            arrangement.threads if kind in ("learner", "copy", "model") else 1
            for kind, each in self._rows.items()
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

    def _places(self) -> tuple[dict[str, range], int, int]:
        """(rows of each kind of process on the board, how many processes have episodes, P weights that it holds)."""
        raise NotImplementedError

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

    def report(self) -> dict[str, Any]:
        """What the processes have done so far, from the rows of the board.

        ``waited`` are shares of the seconds since the run began, ``busy_seconds`` those at work for each turn.
        """
        seconds = clock.seconds() - self._began if self._is_begun else 0.0
        names = {f"{kind}-{number}": row for kind, each in self._rows.items() for number, row in enumerate(each)}
        waited = self.board.rows[:, words.WAITED] / 1e9 / max(seconds, 1e-9)
        return {
            "steps": self.step,
            "updates": self.updates,
            "waited": {name: min(1.0, float(waited[row])) for name, row in names.items()},
            "busy_seconds": {kind: busy(self.board, each) for kind, each in self._rows.items() if each},
            "turns": {name: int(self.board.rows[row, words.TURNS]) for name, row in names.items()},
            "restarts": self.restarts,
            "cores": {name: list(self._cores[row]) for name, row in names.items()},
        }

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        made = {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}
        return made | {"arrangement": self.arrangement.to_dict()}

    def _child(self, number: int, row: int, replay: Replay | None, handing: Handing, **more: Any) -> Start:
        """What a child is started with."""
        return Start(
            self.workload, self.arrangement, self.seed, self._epoch, number, row, self.board.handle(),
            None if replay is None else replay.handle(), self.board.looks, self._cores[row],
            self.learner.implementation, self.policy_name, self.device, handing, **more,
        )  # fmt: skip

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
