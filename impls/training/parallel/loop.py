"""Training by several processes: what the serial loop offers; further learners and the keeper of the replay besides."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ... import replay as replays
from ...replay import Batch, Layout, Outputs, Replay
from ...replay.batches import Plan
from ...replay.block import Handle, Memory, allocate
from .. import clock, learners
from ..actor import TRAINING, Episode, beta_at, seed_of
from ..errors import TrainingError
from ..sizes import layout_of
from ..throughput import seconds_of
from ..workload import Workload
from . import board as words
from . import counter, syncs, transports
from .acting import act
from .arrangement import Arrangement
from .board import LINE, Board, processes_of
from .handing import Handing, settle
from .pace import Pace
from .programs import Start
from .syncs import Common, Sync
from .syncs import make as make_sync
from .together import Together, behind
from .transports.shared_transport import Shared

_STATES = 3
_FILLED, _LEARNED = 1, 2


class SlotsHandle(NamedTuple):
    """A small picklable reference to slots."""

    memory: Handle
    layout: Layout
    batch: int
    slots: int


class Slots:
    """``count`` S slots, a ring in shared memory, for batches of ``batch`` B records that a keeper samples ahead.

        header    a counter of the tickets that learners have claimed
        slots     of each a counter, one word, the |TD errors| ``[B]``, and a batch as ``Outputs`` has it

    Ticket t (from 0) is the batch in slot t % S. The counter of a slot is 3 r + n in round r = t // S: n is 0 while it
    is free for ticket t, 1 once the batch lies in it, 2 once its |TD errors| do. Whoever adds to a counter has written
    before that all that its value stands for, and touches the slot no more.
    """

    def __init__(self, layout: Layout, batch: int, count: int, memory: Memory | None = None) -> None:
        self.layout, self.batch, self.count = layout, batch, count
        plan = Plan(layout)
        start = 2 * LINE + _lines(4 * batch)
        each = start + _lines(plan.dtype(batch).itemsize)
        self._memory = allocate(LINE + count * each, True) if memory is None else memory
        places = [LINE + number * each for number in range(count)]
        base = self._memory.address
        self._taken = base
        self._states = [base + place for place in places]
        self._sampled = [self._memory.view(place + LINE, (1,), np.int64) for place in places]
        self._errors = [self._memory.view(place + 2 * LINE, (batch,), np.float32) for place in places]
        self.outputs = [
            Outputs(plan, batch, self._memory.view(place + start, (), plan.dtype(batch))) for place in places
        ]

    # The keeper

    @property
    def taken(self) -> int:
        """Tickets that learners have claimed."""
        return int(counter.value_of(self._taken))

    def wait(self, taken: int, board: Board, row: int) -> None:
        """Wait for at most 20 ms until a given number of tickets are claimed."""
        board.look_at(self._taken, taken, row)

    def is_free(self, ticket: int) -> bool:
        """Whether the batch of a ticket may be sampled into its slot."""
        return self._state(ticket) >= 0

    def fill(self, ticket: int, updates: int) -> None:
        """Hand out the batch that lies in the slot of a ticket, sampled after a given number of gradient steps."""
        self._sampled[ticket % self.count][0] = updates
        self._advance(ticket)

    def learned(self, ticket: int) -> NDArray[np.float32] | None:
        """The |TD errors| ``[B]`` of a ticket's batch, None before they are there."""
        return self._errors[ticket % self.count] if self._state(ticket) >= _LEARNED else None

    def free(self, ticket: int) -> None:
        """Let the slot of a ticket be used again, after its |TD errors| were."""
        self._advance(ticket)

    # Learners

    def claim(self) -> int:
        """The next ticket, which is the caller's alone."""
        return int(counter.add(self._taken, 1))

    def taken_by(self, ticket: int, board: Board, row: int) -> tuple[Batch, int] | None:
        """(batch of a claimed ticket, gradient steps taken when it was sampled); None if it is not there in 20 ms."""
        slot = ticket % self.count
        if not board.look_at(self._states[slot], _STATES * (ticket // self.count) + _FILLED, row):
            return None
        out = self.outputs[slot]
        return Batch(out.rows, out.weights, out.sequence), int(self._sampled[slot][0])

    def give_back(self, ticket: int, errors: NDArray[np.float32]) -> None:
        """Hand the |TD errors| ``[B]`` of a ticket's batch to the keeper; the batch is not the caller's any more."""
        self._errors[ticket % self.count][:] = errors
        self._advance(ticket)

    def _state(self, ticket: int) -> int:
        """The state of a ticket's slot, negative while an earlier ticket has it."""
        return int(counter.value_of(self._states[ticket % self.count])) - _STATES * (ticket // self.count)

    def _advance(self, ticket: int) -> None:
        counter.add(self._states[ticket % self.count], 1)

    # Sharing

    def handle(self) -> SlotsHandle:
        """A small picklable reference for children."""
        return SlotsHandle(self._memory.handle(), self.layout, self.batch, self.count)

    @classmethod
    def attach(cls, handle: SlotsHandle) -> "Slots":
        """The slots of a handle, in a child of the process that made them."""
        return cls(handle.layout, handle.batch, handle.slots, handle.memory.attach())


class SentBatches:
    """Batches that a keeper samples for the learner of a row of the board; what ``OwnBatches`` offers."""

    def __init__(self, slots: Slots, board: Board, row: int) -> None:
        self._slots, self._board, self._row = slots, board, row
        self._claimed: int | None = None
        self._learning = 0

    def take(self, beta: float, updates: int) -> tuple[Batch, int] | None:
        """(the next batch, gradient steps taken when it was sampled); None if there is none within 20 ms.

        The batch is the caller's until ``learned``.
        """
        if self._claimed is None:
            self._claimed = self._slots.claim()
        there = self._slots.taken_by(self._claimed, self._board, self._row)
        if there is not None:
            self._learning, self._claimed = self._claimed, None
        return there

    def receive(self) -> None:
        """Nothing: the keeper does."""

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Hand the |TD errors| ``[B]`` of the batch that was taken last to the keeper."""
        self._slots.give_back(self._learning, priorities)


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE


class Batches(Protocol):
    """Where a learner has its batches from."""

    def take(self, beta: float, updates: int) -> tuple[Batch, int] | None:
        """(a batch, gradient steps taken when it was sampled); None while there is none, or none within 20 ms."""

    def receive(self) -> None:
        """Insert the records that have come, where the learner samples for itself; else nothing."""

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Set the priorities of the batch that was taken last, from its |TD errors| ``[B]``."""


class OwnBatches:
    """Batches that learner ``number`` samples for itself, from its bank if it has one, D of them before they are used.

    The last H stay as they are where a policy may still learn from them.
    """

    def __init__(
        self,
        replay: Replay,
        workload: Workload,
        rng: np.random.Generator,
        handing: Handing,
        board: Board,
        arrangement: Arrangement,
        number: int = 0,
    ) -> None:
        self._replay, self.rng, self._handing, self._board = replay, rng, handing, board
        is_kept = arrangement.sync == "local" and workload.family != "dqn"
        self._depth, kept = workload.replay.presampled + 1, arrangement.period if is_kept else 1
        self._outputs = [replay.outputs(arrangement.rows(workload)) for _ in range(self._depth + kept - 1)]
        own = {"bank": number, "weights": arrangement.weights_of_banks}
        self._bank: Mapping[str, Any] = own if arrangement.banks > 1 else {}
        # Invariant: the batches that lie ready, the oldest first, are in outputs that no other of them is in.
        self._ready: deque[tuple[Batch, int]] = deque()
        self._next = 0

    def take(self, beta: float, updates: int) -> tuple[Batch, int] | None:
        """(the oldest batch, gradient steps taken when it was sampled); None while there is nothing to sample."""
        self.receive()
        while len(self._ready) < self._depth:
            out = self._outputs[self._next]
            batch = sample(self._replay, out, beta, self.rng, self._board, **self._bank)
            if batch is None:
                return None
            self._ready.append((batch, updates))
            self._next = (self._next + 1) % len(self._outputs)
        return self._ready.popleft()

    def receive(self) -> None:
        """Insert the records that have come."""
        self._handing.receive(self._replay)

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Set the priorities of a batch that was learned from."""
        self._replay.update_priorities(batch.sequence, priorities)


def sample(
    replay: Replay, out: Outputs, beta: float, rng: np.random.Generator, board: Board, **bank: Any
) -> Batch | None:
    """A batch sampled into ``out``; None while nothing that may be sampled is stored, of which actors then know.

    ``bank``: which bank to sample from, and its weights, where there are several.
    """
    try:
        batch = replay.sample(out.batch, beta, rng, out=out, **bank)
    except RuntimeError:
        board.set(words.EMPTY, 1)
        return None
    if board.value(words.EMPTY):
        board.set(words.EMPTY, 0)
    return batch


class Learning:
    """The gradient steps of one learner, each as soon as it is due."""

    def __init__(self, workload: Workload, batches: Batches, board: Board, pace: Pace, sync: Sync) -> None:
        self._workload, self._batches, self._board, self._pace, self._sync = workload, batches, board, pace, sync
        self._claimed: int | None = None  # gradient steps before the one that is claimed and waits for a batch
        self.losses: dict[str, float] = {}

    def advance(self) -> bool:
        """Take the next gradient step if it is due within 20 ms; returns whether one was taken."""
        board, row = self._board, self._sync.number
        if self._claimed is None:
            self._claimed = self._sync.claim(self._pace)
            if self._claimed is None:
                self._batches.receive()  # so that no actor waits for room
                return False
        me, began = board.lines[row], clock.nanoseconds()
        steps, waited = board.value(words.STEPS), me[words.WAITED]
        taken = self._batches.take(beta_at(self._workload, steps), board.value(words.UPDATES))
        if taken is None:
            board.look(words.STEPS, steps + 1, row)
            return False
        (batch, sampled), before, self._claimed = taken, self._claimed, None
        behind = board.value(words.UPDATES) - sampled
        stepped = self._sync.step(batch, before)
        self._batches.learned(batch, stepped.priorities)
        stepped.check()
        me[words.STALE] += behind
        me[words.STALEST] = max(me[words.STALEST], behind)
        me[words.LEAD] = max(me[words.LEAD], -self._pace.lead(steps, before))
        me[words.TURNS] += 1
        me[words.BUSY] += clock.nanoseconds() - began - (me[words.WAITED] - waited)
        self.losses = stepped.losses
        return True


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
        self, workload: Workload, arrangement: Arrangement, *, handing: Handing | None = None, **options: Any
    ) -> None:
        super().__init__(workload, arrangement, **options)
        self._common = Common(self.learner, arrangement) if arrangement.learners > 1 else None
        self.buffer = replay_of(workload, arrangement)
        self.board.route = transports.route(arrangement, len(self.learner.parameters))
        self.board.each = arrangement.period if arrangement.sync == "local" else 1
        self.board.begin_at(self.learner.parameters, 0, 0)
        self._pace = Pace.of(workload, arrangement)
        self._rng = np.random.default_rng([self.seed, TRAINING])
        self._handing = handing or transports.make(workload, arrangement)
        is_kept = arrangement.name == "pipelined"
        self._slots = slots_of(workload, arrangement) if is_kept else None
        self._learning = self._learning_of()
        if not is_kept:
            self._crew.is_settled = lambda: self._handing.is_settled(self.buffer)

    def _places(self) -> tuple[dict[str, range], int, int]:
        rows = processes_of(self.workload, self.arrangement)
        return rows, self.workload.actors.count, len(self.learner.parameters)

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
        return self._child(number, row, self.buffer, self._handing, extra=slots)

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
        actors, learners = (list(self._rows[kind]) for kind in ("actor", "learner"))
        return super().report() | {
            "lead": int(np.max(self.board.rows[actors, words.LEAD], initial=0)),
            "lag": int(np.max(self.board.rows[learners, words.LEAD], initial=0)),
            "stale_weights": behind(self.board, actors),
            "stale_batches": behind(self.board, learners),
            "stale_gradients": self._common.stale_gradients(self.board) if self._common else {"mean": 0.0, "most": 0},
        }

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

    def state_dict(self) -> dict[str, Any]:
        """Learner, records, counters and generator; taken while the others rest. Actors begin new episodes from it."""
        with self.paused():
            self._sync.settle()
            own = self._common.state_dict() if self._common else {}
            return ({"learners": own, "kept": self._common.kept.copy()} if self._common and own else {}) | {
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
            self._common.kept[:] = state.get("kept", 0)
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        kept = int(self._common.kept[0]) if self._common else 0
        self.board.begin_at(self.learner.weights(), int(state["step"]), int(state["updates"]), kept)
        self._epoch = int(state["epoch"]) + 1
        self._learning = self._learning_of()  # by the schedule, the period and the weights of the state


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
