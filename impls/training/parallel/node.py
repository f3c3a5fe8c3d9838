"""A machine's part of a run by several processes: counters, child processes, and the replay that actors fill.

A node needs no learner: the loop of the process that learns is a node with one (``loop``).
"""

import contextlib
import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ... import replay as replays
from ...cores import allowed_cpus
from ...replay import Replay
from .. import clock, learners
from ..actor import Episode
from ..arrangement import Arrangement
from ..clock import seconds_of
from ..errors import TrainingError
from ..weights import layout_of
from ..workload import Workload
from . import counter, transports
from .acting import act
from .batches import Slots, slots_of
from .board import Board, Counter, Row, processes_of
from .children import Children, Start, share_of_cores
from .prefetcher import Prefetcher, run_prefetcher
from .transports import RecordTransport, Shared
from .units import StorageUnit, TreeUnit

SPIN_MICROSECONDS = 200.0  # that a process looks before it sleeps, where each has a core
_BY_THREADS = ("learner", "copy", "model")
"""Kinds of processes that compute by the arrangement's threads; the others by one."""


def measure_lag(board: Board, rows: Iterable[int]) -> dict[str, float]:
    """Gradient steps by which processes' weights or batches were behind: the mean over their turns, and the most."""
    part = board.rows[list(rows)]
    turns = max(1, int(part[:, Row.TURNS].sum()))
    return {"mean": float(part[:, Row.LAG_SUM].sum()) / turns, "most": int(part[:, Row.LAG_MAX].max(initial=0))}


def measure_turn(board: Board, rows: Iterable[int]) -> float:
    """Seconds at work for each turn of these processes; 0 before the first."""
    part = board.rows[list(rows)]
    return float(part[:, Row.BUSY].sum()) / 1e9 / max(1, int(part[:, Row.TURNS].sum()))


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of this process, of its children that have ended, and of those with these numbers."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + sum(map(seconds_of, pids))


class Node:
    """The processes of a workload and an arrangement, of which this one is the parent: their ``board`` and children.

    ``rows`` are those of each kind of process on the board, ``actors`` how many have episodes, ``weights`` P numbers
    that it hands out. ``learner`` and ``policy`` are the implementations by which children learn and act.
    """

    contestant = "numba"

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        rows: dict[str, range],
        actors: int,
        weights: int,
        *,
        learner: str,
        policy: str,
        seed: int = 0,
        device: str = "cpu",
        epoch: int = 0,
    ) -> None:
        if reason := learners.unsuited(policy, workload):  # before its processes would say so
            raise TrainingError(reason)
        self.workload, self.arrangement, self.seed, self.device = workload, arrangement, seed, device
        self._learner_name, self.policy_name = learner, policy
        self._rows = rows
        needs = [arrangement.threads if kind in _BY_THREADS else 1 for kind, own in rows.items() for _ in own]
        cores = arrangement.cores or allowed_cpus()
        looks = counter.looks_of(SPIN_MICROSECONDS if len(cores) >= sum(needs) else 0.0)
        self.board = Board(len(needs), actors, weights, looks=looks)
        self._cores = share_of_cores(len(needs), cores, needs)
        self.board.set(Counter.LAST_STEP, workload.steps)
        self._children, self._epoch, self._began, self._is_begun = Children(self.board), epoch, 0.0, False
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
        return self.board.value(Counter.STEPS)

    @property
    def updates(self) -> int:
        """Number of gradient steps taken."""
        return self.board.value(Counter.UPDATES)

    @property
    def restarts(self) -> int:
        """Actors that ended from outside and were begun anew."""
        return self._children.restarts

    @property
    def pids(self) -> dict[str, int]:
        """The process number of each child, by its name."""
        return self._children.pids

    def cpu_seconds(self) -> float:
        """CPU time of all processes since each was started, those that have ended included; take differences."""
        return cpu_seconds(self.pids.values())

    def report(self) -> dict[str, Any]:
        """Counts and shares of the processes so far, from the rows of the board.

        ``waited`` are shares of the seconds since the run began, ``busy_seconds`` those at work for each turn.
        """
        seconds = clock.seconds() - self._began if self._is_begun else 0.0
        names = {f"{kind}-{number}": row for kind, own in self._rows.items() for number, row in enumerate(own)}
        waited = self.board.rows[:, Row.WAITED] / 1e9 / max(seconds, 1e-9)
        return {
            "steps": self.step,
            "updates": self.updates,
            "waited": {name: min(1.0, float(waited[row])) for name, row in names.items()},
            "busy_seconds": {kind: measure_turn(self.board, own) for kind, own in self._rows.items() if own},
            "turns": {name: int(self.board.rows[row, Row.TURNS]) for name, row in names.items()},
            "restarts": self.restarts,
            "cores": {name: list(self._cores[row]) for name, row in names.items()},
        }

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        made = {"workload": asdict(self.workload), "contestant": self.contestant, "seed": self.seed}
        return made | {"arrangement": self.arrangement.to_dict()}

    def _child(self, number: int, row: int, replay: Replay | None, transport: RecordTransport, **more: Any) -> Start:
        """The arguments that a child is started with."""
        return Start(
            self.workload, self.arrangement, self.seed, self._epoch, number, row, self.board.handle(),
            None if replay is None else replay.handle(), self.board.looks, self._cores[row],
            self._learner_name, self.policy_name, self.device, transport, **more,
        )  # fmt: skip

    def until(self, end: int) -> None:
        """Let actors take no step from environment step ``end`` on; by default that of the workload."""
        self.board.set(Counter.LAST_STEP, end)

    def shorten_shutdown(self) -> None:
        """Let the run end soon: a process that does not rest in 4 s is killed. A signal's handler may call it."""
        self._children.shorten_shutdown()

    @property
    def failure(self) -> str:
        """Why the first failed child ended; "" while none has."""
        return self._children.failure

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """All other processes rest while the context lasts; contexts may lie in one another."""
        return self._children.paused()

    def ended(self) -> tuple[Episode, ...]:
        """Episodes that ended since ``advance`` last returned; all of them, while the others rest."""
        return tuple(episode for _, episode in self.board.episodes())

    def end(self) -> None:
        """End the other processes, within 10 s; what was learned and stored stays, and ``state_dict`` has it.

        This process may use all its cores again.
        """
        self._children.end()
        if self._cores_before:
            os.sched_setaffinity(0, self._cores_before)
            self._cores_before = set()


class ActorNode(Node):
    """A node whose actors fill one replay, from which learners, or a prefetcher, sample."""

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        weights: int,
        *,
        transport: RecordTransport | None = None,
        **options: Any,
    ) -> None:
        rows = processes_of(workload, arrangement)
        super().__init__(workload, arrangement, rows, workload.actors.count, weights, **options)
        self.buffer = replay_of(workload, arrangement)
        self.board.transport = transports.make_weight_transport(arrangement, weights)
        self.board.each = arrangement.period if arrangement.sync == "local" else 1
        self._transport = transport or transports.make_record_transport(workload, arrangement)
        self._slots: Slots | None = None
        if arrangement.name == "pipelined":
            self._slots = slots_of(workload, arrangement)
        else:
            self._children.is_drained = lambda: self._transport.is_drained(self.buffer)

    def _begin_prefetcher(self) -> None:
        """Start the process that samples batches ahead, or the two units that do, in a pipelined run."""
        for name, kind in {"keeper": Prefetcher, "tree": TreeUnit, "storage": StorageUnit}.items():
            for number, row in enumerate(self._rows.get(name, ())):
                start = self._start(number, row)
                start = replace(start, transport=Shared()) if name == "tree" else start
                self._children.begin(name, partial(run_prefetcher, kind=kind), start)

    def begin_actors(self) -> None:
        """Start one process for each actor of the workload."""
        for number, row in enumerate(self._rows["actor"]):
            self._children.begin("actor", act, self._start(number, row))

    def _start(self, number: int, row: int) -> Start:
        slots = None if self._slots is None else self._slots.handle()
        return self._child(number, row, self.buffer, self._transport, extra=slots)

    def close(self) -> None:
        """End the other processes, and let go of the replay."""
        self.end()
        self._children.is_drained = lambda: True
        self._transport.close()
        if self.board.transport is not None:
            self.board.transport.close()
        self.buffer.close()


def replay_of(workload: Workload, arrangement: Arrangement, parts: int = 1) -> Replay:
    """The replay of a workload in shared memory, or one of ``parts`` equal ones. TrainingError where it cannot be."""
    settings, layout = workload.replay, layout_of(workload)
    try:
        return replays.make(
            settings.capacity // parts, layout, alpha=settings.alpha, epsilon=settings.epsilon, fanout=settings.fanout,
            strategy=arrangement.strategy, shared=True, banks=arrangement.banks,
        )  # fmt: skip
    except (ValueError, RuntimeError, ImportError, MemoryError) as error:
        raise TrainingError(f"the replay of {workload.name} cannot be shared: {error}") from None
