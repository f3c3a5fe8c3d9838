"""Training by several processes: what the serial loop offers, of which this process is the first learner."""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from ... import replay as replays
from ...replay import Replay
from ...replay.memory import Handle
from .. import learners
from ..actor import TRAINING, Episode, seed_of
from ..errors import TrainingError
from ..sizes import layout_of
from ..workload import Workload
from . import board as words
from . import counter, syncs, transports
from .acting import act
from .arrangement import Arrangement
from .board import Board, processes_of
from .crew import Crew, cores_here, share_of_cores
from .handing import Handing
from .keeper import keep, slots_of
from .learning import Batches, Learning, OwnBatches
from .pace import Pace
from .programs import Start
from .report import cpu_seconds, report
from .slots import SentBatches, Slots, SlotsHandle
from .syncs import Common
from .syncs import make as make_sync
from .transports.shared_transport import Shared

_LEARNERS = 7  # sets these random numbers apart from the other uses of a seed


class Extra(NamedTuple):
    """What a learner is started with besides: the keeper's slots, if there is one, and what learners share."""

    slots: SlotsHandle | None
    common: Handle


def learn(start: Start) -> None:
    """Take gradient steps until the run is over, which raises Stopped. TrainingError when training has diverged."""
    workload, arrangement, extra = start.workload, start.arrangement, start.extra
    learner = learners.make(workload, start.learner, seed=start.seed, device=start.device)
    learners.use_threads(arrangement.threads)
    common = syncs.Common.attach(extra.common, learner, arrangement)
    seed = seed_of(start.seed, _LEARNERS, start.epoch, start.number)
    learner.rng, rng = (np.random.default_rng([seed, use]) for use in range(2))
    board, replay = start.attached()
    batches: Batches
    if extra.slots is None:
        assert replay is not None  # the parent shares it
        batches = OwnBatches(replay, workload, rng, Shared(), board, arrangement.rows(workload))
    else:
        batches = SentBatches(Slots.attach(extra.slots), board, start.row)
    sync = syncs.make(arrangement, learner, board, start.number, common)
    learning = Learning(workload, batches, board, Pace.of(workload, arrangement), sync)
    while True:
        board.check(start.row)
        try:
            learning.advance()
        except ValueError as error:
            steps, updates = board.value(words.STEPS), board.value(words.UPDATES)
            raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None


SPIN_MICROSECONDS = 200.0  # that a process looks before it sleeps, where each has a core


class ParallelLoop:
    """A workload's actors, learners and replay in processes of their own; this one is the first learner.

    It offers what ``SerialLoop`` does: ``advance``, ``step``, ``updates``, ``state_dict``. ``seed`` decides the first
    weights and the random numbers of each process, but not the order of their turns.
    """

    contestant = "numba"
    is_parallel = True
    turns = 0  # of the first actor: no moment of it suits a checkpoint better than another

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
        handing: Handing | None = None,
    ) -> None:
        arrangement.check(workload)
        self.workload, self.arrangement, self.seed, self.device = workload, arrangement, seed, device
        self.compiled = False
        self.learner = learners.make(workload, learner, seed=seed, device=device)
        self._common = Common(self.learner, arrangement) if arrangement.learners > 1 else None
        self.policy_name = policy or learners.default(workload)
        self.buffer = _replay(workload, arrangement)
        self._rows, self._pace, self._began = processes_of(workload, arrangement), Pace.of(workload, arrangement), 0.0
        self.board, self._cores = self._shared_out()
        self._rng = np.random.default_rng([seed, TRAINING])
        self._handing = handing or transports.make(workload, arrangement)
        is_kept = arrangement.name == "pipelined"
        self._slots = slots_of(workload, arrangement) if is_kept else None
        self._learning = self._learning_of()
        self._crew, self._epoch, self._is_begun = Crew(self.board), epoch, False
        self._cores_before: set[int] = set()
        if not is_kept:
            self._crew.is_settled = lambda: self._handing.is_settled(self.buffer)

    def _shared_out(self) -> tuple[Board, list[tuple[int, ...]]]:
        """The board of this run, and the cores of each of its processes."""
        needs = [
            self.arrangement.threads if kind == "learner" else 1 for kind, rows in self._rows.items() for _ in rows
        ]
        cores = self.arrangement.cores or cores_here()
        looks = counter.looks_of(SPIN_MICROSECONDS if len(cores) >= sum(needs) else 0.0)
        board = Board(len(needs), self.workload.actors.count, len(self.learner.parameters), looks=looks)
        board.set(words.LAST_STEP, self.workload.steps)
        board.route = transports.route(self.arrangement, len(self.learner.parameters))
        board.begin_at(self.learner.parameters, 0, 0)
        return board, share_of_cores(len(needs), cores, needs)

    def _learning_of(self) -> Learning:
        batches: OwnBatches | SentBatches
        if self._slots is None:
            rows = self.arrangement.rows(self.workload)
            batches = OwnBatches(self.buffer, self.workload, self._rng, self._handing, self.board, rows)
        else:
            batches = SentBatches(self._slots, self.board, 0)
        self._sync = make_sync(self.arrangement, self.learner, self.board, 0, self._common)
        return Learning(self.workload, batches, self.board, self._pace, self._sync)

    def begin(self) -> None:
        """Start the other processes; ``advance`` does so too."""
        if self._is_begun:
            return
        self._is_begun, self._began = True, time.perf_counter()
        counter.prepare()
        others = [self.learner.implementation] * (self.arrangement.learners > 1 and self.device == "cpu")
        for name in {self.policy_name, *others}:  # else every child would compile the same, all at once
            learners.prepare(self.workload, name)
        if hasattr(os, "sched_setaffinity"):
            self._cores_before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._cores[0])
        for number, row in enumerate(self._rows["keeper"]):
            self._crew.begin("keeper", keep, self._start(number, row))
        for number in self._rows["learner"][1:]:
            assert self._common is not None  # there is more than one learner
            start = replace(self._start(number, number), threads=self.arrangement.threads)
            self._crew.begin("learner", learn, replace(start, extra=Extra(start.extra, self._common.handle())))
        for number, row in enumerate(self._rows["actor"]):
            self._crew.begin("actor", act, self._start(number, row))

    def _start(self, number: int, row: int) -> Start:
        slots = None if self._slots is None else self._slots.handle()
        return Start(
            self.workload, self.arrangement, self.seed, self._epoch, number, row, self.board.handle(),
            self.buffer.handle(), self.board.looks, self._cores[row], self.learner.implementation, self.policy_name,
            self.device, self._handing, slots,
        )  # fmt: skip

    @property
    def step(self) -> int:
        """Number of environment steps taken."""
        return self.board.value(words.STEPS)

    @property
    def updates(self) -> int:
        """Number of gradient steps taken."""
        return self.board.value(words.UPDATES)

    @property
    def losses(self) -> dict[str, float]:
        """The losses of this process's last gradient step."""
        return self._learning.losses

    @property
    def restarts(self) -> int:
        """Actors that ended from outside and were begun anew."""
        return self._crew.restarts

    @property
    def pids(self) -> dict[str, int]:
        """The process number of each child, by its name."""
        return self._crew.pids

    def report(self) -> dict[str, Any]:
        """What the run has done since it was begun.

        ``steps``, ``updates``; ``lead`` and ``lag``, the most environment steps ahead of the ratio and behind it;
        ``stale_weights`` and ``stale_batches``, gradient steps by which actors' weights and learners' batches were
        behind, and ``stale_gradients``, those of other learners that ended during a step, {mean, most}; by process
        ``waited`` (share of the seconds), ``turns`` (of actors turns, of learners gradient steps, of keepers batches)
        and ``cores``; ``busy_seconds`` of a turn by kind of process, and ``restarts``.
        """
        seconds = time.perf_counter() - self._began if self._is_begun else 0.0
        made = report(self.board, self._rows, seconds, self.restarts, self._cores)
        own = self._common.stale_gradients(self.board) if self._common else {"mean": 0.0, "most": 0}
        return made | {"stale_gradients": own}

    def cpu_seconds(self) -> float:
        """CPU time of all processes since each was started, those that have ended included; take differences."""
        return cpu_seconds(self.pids.values())

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, no actor is about to take one, and no gradient step is due."""
        steps = self.step
        is_all = steps >= end and self.board.value(words.CLAIMED_STEPS) == steps
        return is_all and (self._pace.is_free or self.updates >= self._pace.updates_at(steps))

    def until(self, end: int) -> None:
        """Let actors take no step from environment step ``end`` on; by default that of the workload."""
        self.board.set(words.LAST_STEP, end)

    def advance(self) -> tuple[Episode, ...]:
        """Take a gradient step, or wait for one for 20 ms; returns the episodes that ended meanwhile.

        TrainingError when training has diverged, or a process failed.
        """
        self.begin()
        try:
            self._learning.advance()
        except ValueError as error:
            raise TrainingError(f"after {self.step:,} steps and {self.updates:,} gradient steps: {error}") from None
        self._crew.watch()
        return self.ended()

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

    def close(self) -> None:
        """End the other processes, and let go of the replay."""
        self.end()
        self._crew.is_settled = lambda: True
        self._handing.close()
        if self.board.route is not None:
            self.board.route.close()
        self.buffer.close()

    def identity(self) -> dict[str, Any]:
        """The settings that a run must share with a state in order to resume from it."""
        return {
            "workload": asdict(self.workload),
            "contestant": self.contestant,
            "seed": self.seed,
            "arrangement": self.arrangement.to_dict(),
        }

    def state_dict(self) -> dict[str, Any]:
        """Learner, records, counters and generator; taken while the others rest. Actors begin new episodes from it."""
        with self.paused():
            self._sync.settle()
            return {
                "learner": self.learner.state_dict(),
                "buffer": self.buffer.state_dict(),
                "rng": self._rng.bit_generator.state,
                "step": self.step,
                "updates": self.updates,
                "epoch": self._epoch,
                "restarts": self.restarts,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before any process is begun."""
        self.learner.load_state_dict(state["learner"])
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        self.board.begin_at(self.learner.parameters, int(state["step"]), int(state["updates"]))
        self._epoch = int(state["epoch"]) + 1


def _replay(workload: Workload, arrangement: Arrangement) -> Replay:
    """The shared replay of a workload. TrainingError where it cannot be had."""
    settings, layout = workload.replay, layout_of(workload)
    rings = workload.actors.count + 2 if arrangement.strategy == "owner" else None  # one of each process that inserts
    try:
        return replays.make(
            settings.capacity, layout, alpha=settings.alpha, epsilon=settings.epsilon, fanout=settings.fanout,
            strategy=arrangement.strategy, shared=True, rings=rings,
        )  # fmt: skip
    except (ValueError, RuntimeError, ImportError, MemoryError) as error:
        raise TrainingError(f"the replay of {workload.name} cannot be shared: {error}") from None
