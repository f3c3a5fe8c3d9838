"""Training by several processes: what the serial loop offers; further learners and the keeper of the replay besides."""

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from ... import replay as replays
from ...replay import Replay
from ...replay.memory import Handle
from .. import clock, learners
from ..actor import TRAINING, Episode, beta_at, seed_of
from ..errors import TrainingError
from ..sizes import layout_of
from ..throughput import seconds_of
from ..workload import Workload
from . import board as words
from . import syncs, transports
from .acting import act
from .arrangement import Arrangement
from .board import Board, processes_of
from .handing import Handing, settle
from .learning import Batches, Learning, OwnBatches, sample
from .pace import Pace
from .programs import Start
from .report import report
from .slots import SentBatches, Slots, SlotsHandle
from .syncs import Common
from .syncs import make as make_sync
from .together import Together
from .transports.shared_transport import Shared

_POLL_NANOSECONDS = 100_000  # between looks for records that come by messages


def depth_of(workload: Workload) -> int:
    """D, batches that lie ready for learners: as many as the workload says, 1 where it says none."""
    return max(1, workload.replay.presampled)


def slots_of(workload: Workload, arrangement: Arrangement) -> Slots:
    """Slots for D batches that lie ready, and for each learner one that it learns from and one that it gives back."""
    count = depth_of(workload) + 2 * arrangement.learners
    return Slots(layout_of(workload), arrangement.rows(workload), count)


def keep(start: Start) -> None:
    """Keep the replay until the run is over, which raises Stopped. TrainingError when training has diverged."""
    board, replay = start.attached()
    assert replay is not None  # the parent shares it
    keeper = Keeper(start, board, replay)
    actors = processes_of(start.workload, start.arrangement)["actor"]
    while True:
        if settle(start.handing, replay, board, actors):
            board.check(start.row)
        board.go_on()  # not check: a pause that began after the look of settle is to be settled first
        taken = keeper.slots.taken
        try:
            is_busy = keeper.turn()
        except ValueError as error:
            steps, updates = board.value(words.STEPS), board.value(words.UPDATES)
            raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None
        if not is_busy:
            keeper.wait(taken + 1)


class Keeper:
    """The replay of a run as its keeper sees it: batches sampled, and those whose |TD errors| are still awaited."""

    def __init__(self, start: Start, board: Board, replay: Replay) -> None:
        self._workload, self._row, self._board, self._replay = start.workload, start.row, board, replay
        self.slots = Slots.attach(start.extra)
        self._handing, self._depth = start.handing, depth_of(start.workload)
        self._due = Pace.of(start.workload, start.arrangement).due(1)
        self._rng = np.random.default_rng([start.seed, TRAINING, start.epoch])
        # Invariant: tickets below ``oldest`` were learned from, those from ``sampled`` on have no batch.
        self._oldest, self._sampled = 0, 0
        self._done = set[int]()  # of those in between, which were learned from

    def turn(self) -> bool:
        """Receive records, update the priorities that have come, sample a batch if one is wanted.

        Returns whether there was anything to do.
        """
        began = clock.nanoseconds()
        received = self._handing.receive(self._replay)
        updated, sampled = self._update(), self._sample()
        if sampled:
            me = self._board.lines[self._row]
            me[words.TURNS] += 1
            me[words.BUSY] += clock.nanoseconds() - began
        return bool(received) or updated or sampled

    def wait(self, taken: int) -> None:
        """Wait until learners have claimed N tickets, or it is time to look for what they learned or actors sent.

        A batch that was learned from wakes nobody: its priorities count when the next is sampled, after a claim.
        """
        if self._handing.is_polled:
            self._board.rows[self._row, words.WAITED] += _POLL_NANOSECONDS
            time.sleep(_POLL_NANOSECONDS / 1e9)
        else:
            self.slots.wait(taken, self._board, self._row)

    def _update(self) -> bool:
        """Update the priorities of every batch that was learned from."""
        before = self._oldest, len(self._done)
        for ticket in range(self._oldest, min(self._sampled, self.slots.taken)):
            errors = None if ticket in self._done else self.slots.learned(ticket)
            if errors is not None:
                self._replay.update_priorities(self.slots.outputs[ticket % self.slots.count].sequence, errors)
                self.slots.free(ticket)
                self._done.add(ticket)
        while self._oldest in self._done:
            self._done.remove(self._oldest)
            self._oldest += 1
        return before != (self._oldest, len(self._done))

    def _sample(self) -> bool:
        """Sample a batch unless D lie ready, or gradient steps are not due yet; returns whether one was."""
        ticket, steps = self._sampled, self._board.value(words.STEPS)
        if steps < self._due or ticket >= self.slots.taken + self._depth or not self.slots.is_free(ticket):
            return False
        out = self.slots.outputs[ticket % self.slots.count]
        updates = self._board.value(words.UPDATES)
        if sample(self._replay, out, beta_at(self._workload, steps), self._rng, self._board) is None:
            return False
        self.slots.fill(ticket, updates)
        self._sampled += 1
        return True


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
    common = syncs.Common.attach(extra.common, learner, arrangement, start.number)
    seed = seed_of(start.seed, _LEARNERS, start.epoch, start.number)
    learner.rng, rng = (np.random.default_rng([seed, use]) for use in range(2))
    board, replay = start.attached()
    batches: Batches
    if extra.slots is None:
        assert replay is not None  # the parent shares it
        batches = OwnBatches(replay, workload, rng, Shared(), board, arrangement, start.number)
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


class ParallelLoop(Together):
    """A workload's actors, learners and replay in processes of their own; this one is the first learner.

    It offers what ``SerialLoop`` does: ``advance``, ``step``, ``updates``, ``state_dict``. ``seed`` decides the first
    weights and the random numbers of each process, but not the order of their turns.
    """

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
        self.seed, self.device = seed, device
        self.learner = learners.make(workload, learner, seed=seed, device=device)
        self._common = Common(self.learner, arrangement) if arrangement.learners > 1 else None
        self.policy_name = policy or learners.default(workload)
        self.buffer = replay_of(workload, arrangement)
        weights, rows = len(self.learner.parameters), processes_of(workload, arrangement)
        super().__init__(workload, arrangement, rows, workload.actors.count, weights, epoch)
        self.board.route = transports.route(arrangement, weights)
        self.board.each = arrangement.period if arrangement.sync == "local" else 1
        self.board.begin_at(self.learner.parameters, 0, 0)
        self._pace = Pace.of(workload, arrangement)
        self._rng = np.random.default_rng([seed, TRAINING])
        self._handing = handing or transports.make(workload, arrangement)
        is_kept = arrangement.name == "pipelined"
        self._slots = slots_of(workload, arrangement) if is_kept else None
        self._learning = self._learning_of()
        if not is_kept:
            self._crew.is_settled = lambda: self._handing.is_settled(self.buffer)

    def _learning_of(self) -> Learning:
        batches: OwnBatches | SentBatches
        if self._slots is None:
            batches = OwnBatches(self.buffer, self.workload, self._rng, self._handing, self.board, self.arrangement)
        else:
            batches = SentBatches(self._slots, self.board, 0)
        self._sync = make_sync(self.arrangement, self.learner, self.board, 0, self._common)
        return Learning(self.workload, batches, self.board, self._pace, self._sync)

    def begin(self) -> None:
        """Start the other processes; ``advance`` does so too."""
        if self._is_begun:
            return
        self._pin()
        others = [self.learner.implementation] * (self.arrangement.learners > 1 and self.device == "cpu")
        for name in {self.policy_name, *others}:  # else every child would compile the same, all at once
            learners.prepare(self.workload, name)
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
    def losses(self) -> dict[str, float]:
        """The losses of this process's last gradient step."""
        return self._learning.losses

    def cpu_seconds(self) -> float:
        """CPU time of all processes since each was started; take differences."""
        return super().cpu_seconds() + sum(map(seconds_of, self.learner.pids))

    def report(self) -> dict[str, Any]:
        """What the run has done since it was begun.

        ``steps``, ``updates``; ``lead`` and ``lag``, the most environment steps ahead of the ratio and behind it;
        ``stale_weights`` and ``stale_batches``, gradient steps by which actors' weights and learners' batches were
        behind, and ``stale_gradients``, those of other learners that ended during a step, {mean, most}; by process
        ``waited`` (share of the seconds), ``turns`` (of actors turns, of learners gradient steps, of keepers batches)
        and ``cores``; ``busy_seconds`` of a turn by kind of process, and ``restarts``.
        """
        seconds = clock.seconds() - self._began if self._is_begun else 0.0
        made = report(self.board, self._rows, seconds, self.restarts, self._cores)
        own = self._common.stale_gradients(self.board) if self._common else {"mean": 0.0, "most": 0}
        return made | {"stale_gradients": own}

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, no actor is about to take one, and no gradient step is due."""
        steps = self.step
        is_all = steps >= end and self.board.value(words.CLAIMED_STEPS) == steps
        return is_all and (self._pace.is_free or self.updates >= self._pace.updates_at(steps))

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

    def close(self) -> None:
        """End the other processes, and let go of the replay."""
        self.end()
        self.learner.close()
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
            own = self._common.state_dict() if self._common else {}
            return ({"learners": own} if own else {}) | {
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
        if self._common:
            self._common.load_state_dict(state.get("learners", {}))
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        self.board.begin_at(self.learner.weights(), int(state["step"]), int(state["updates"]))
        self._epoch = int(state["epoch"]) + 1


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
