"""The parent of copies, which is copy 0: it starts the others and the shards, and offers what any loop does."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Replay
from ...replay.block import Handle
from .. import algorithms, clock, learners
from ..actor import Episode, Inserted, seed_of
from ..arrangement import Arrangement
from ..errors import TrainingError
from ..learner import Learner, Stepped
from ..loop import Loop, SerialLoop
from ..parallel import counter
from ..parallel.board import Board, Counter, Row
from ..parallel.children import Start
from ..parallel.node import Node, replay_of
from ..parallel.transports import Shared
from ..rollouts import Rollouts
from ..workload import Workload
from .syncs import BEGUN, OWN_DUE, OWN_STEPS, CopySync, SharedWeights, sync_class

_COPIES = 9  # sets these random numbers apart from the other uses of a seed


class Extra(NamedTuple):
    """The shared memory that a child of copies is started with besides."""

    handle: Handle

    def attach(self, start: Start) -> tuple[Learner, SharedWeights]:
        """A learner, and the memory that copies have in common."""
        learner = learners.make(start.workload, start.learner, seed=start.seed)
        return learner, SharedWeights(learner, start.arrangement, self.handle.attach())

    def join(self, start: Start) -> tuple[CopySync, SharedWeights, Replay]:
        """The sync of a process that has begun and is no copy, though its weights meet theirs; memory, and replay."""
        learner, shared = self.attach(start)
        board, replay = start.attached()
        assert replay is not None  # the parent shares it
        sync = sync_class(start.arrangement.sync)(learner, start.arrangement, board, start.row, shared)
        counter.add(shared.address(BEGUN), 1)
        return sync, shared, replay


def follow(start: Start) -> None:
    """Train a copy until the run is over, which raises Stopped. TrainingError when training has diverged."""
    learner, shared = start.extra.attach(start)
    learners.use_threads(start.arrangement.threads)
    board, replay = start.attached()
    seed = copy_seed(start.seed, start.epoch, start.number)
    learner.rng = np.random.default_rng(seed)
    copy = Copy(start.workload, start.arrangement, start.number, board, shared, learner, replay, start.policy, seed)
    try:
        while True:
            board.check(start.row)
            for episode in copy.turn() or ():
                board.report(start.number, episode, copy.step, start.row)
    finally:
        copy.close()


def copy_seed(seed: int, epoch: int, number: int) -> int:
    """The seed of a copy's random numbers; that of the first, until it is resumed, is the serial loop's."""
    return seed_of(seed, _COPIES, epoch, number) if number or epoch else seed


class Cached:
    """A replay into which records go n at a time: ``insert`` keeps them until it has as many."""

    def __init__(self, replay: Replay, least: int) -> None:
        self._replay, self._least, self._kept = replay, least, list[Inserted]()

    def insert(self, records: Mapping[str, NDArray[Any]], errors: Any = None, drawable: Any = None) -> None:
        """Keep records, and hand all over once there are n that may be sampled."""
        count = len(next(iter(records.values())))
        drawable = np.ones(count, np.bool_) if drawable is None else drawable.copy()
        self._kept.append(Inserted({name: rows.copy() for name, rows in records.items()}, errors, drawable))
        if sum(int(each.can_sample.sum()) for each in self._kept) >= self._least:
            self.flush()

    def flush(self) -> None:
        """Hand over what is kept."""
        if not self._kept:
            return
        names = self._kept[0].records
        records = {name: np.concatenate([each.records[name] for each in self._kept]) for name in names}
        errors = None if self._kept[0].errors is None else np.concatenate([each.errors for each in self._kept])
        drawable = np.concatenate([each.can_sample for each in self._kept])
        self._kept.clear()
        self._replay.insert(records, errors, drawable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)


class Copy(SerialLoop):
    """Copy ``number`` of a run, whose parent is number 0; without a replay it has rollouts, as of A3C.

    Its environment steps are counted with those of the others, and its weights meet theirs.
    """

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        number: int,
        board: Board,
        shared: SharedWeights,
        learner: Learner,
        replay: Replay | None,
        policy: str | None,
        seed: int,
    ) -> None:
        self.sync = sync_class(arrangement.sync)(learner, arrangement, board, number, shared)
        cached = arrangement.cached
        buffer: Any = Cached(replay, cached) if replay is not None and cached else replay
        super().__init__(workload, learner=learner, policy=policy, seed=seed, buffer=buffer)
        self._board, self._number, self._shared = board, number, shared
        self._least = -(-workload.learner.learning_starts // arrangement.processes)  # of its own steps, to learn from
        self._members = arrangement.members
        hook = algorithms.hook(workload, "make_sender") if arrangement.model_workers else None
        self._send = hook(workload, self.sync, shared) if hook else None
        board.before_rest = self.flush
        counter.add(shared.address(BEGUN), 1)

    def turn(self) -> tuple[Episode, ...] | None:
        """Take a turn; returns the episodes that ended, None where no step is left, or not all have begun.

        Raises what ``advance`` does.
        """
        board, count, row = self._board, self.workload.actors.environments, self._number
        if not self.turns:  # where a run is resumed, its last episode was cut off
            self.sync.end_episode()
        if not board.look_at(self._shared.address(BEGUN), self._members, row):
            return None
        before = board.claim(Counter.CLAIMED_STEPS, count, board.value(Counter.LAST_STEP) + count - 1)
        if before < 0:
            board.look(Counter.STOP, 1, row)
            return None
        began, self.step = clock.nanoseconds(), before
        me, waited = board.lines[row], board.lines[row][Row.WAITED]
        episodes = self.advance()
        me[Row.BUSY] += clock.nanoseconds() - began - (me[Row.WAITED] - waited)
        me[Row.TURNS] += 1
        if episodes:
            self.sync.end_episode()
        return episodes

    def _updates_due(self, before: int) -> int:
        """Count the steps of this turn; gradient steps due by them, once this copy has its part of the first records.

        Counted before any gradient step, in which this copy may rest.
        """
        own, taken, count = self._shared["steps"][self._number], self.step - before, self.workload.actors.environments
        own[OWN_STEPS] += taken
        if taken < count:  # environments that began an episode anew took no step
            self._board.add(Counter.CLAIMED_STEPS, taken - count)
        self._board.add(Counter.STEPS, taken)
        due = super()._updates_due(before) if own[OWN_STEPS] >= self._least else 0
        own[OWN_DUE] = due + (0 if isinstance(self.buffer, Rollouts) else own[OWN_DUE])  # those left at a resume
        return int(own[OWN_DUE])

    def _insert(self, inserted: Inserted) -> None:
        if self._send:
            self._send(inserted)
        super()._insert(inserted)

    def _stepped(self, batch: Batch) -> Stepped:
        stepped: Stepped = self.sync.step(batch)
        return stepped

    def flush(self) -> None:
        """Hand over the records that are cached, if any are."""
        if isinstance(self.buffer, Cached):
            self.buffer.flush()

    def rng_state(self) -> dict[str, Any]:
        """State of the generator of this copy's samples."""
        return dict(self._rng.bit_generator.state)

    def begin_anew(self, rng: Mapping[str, Any], epoch: int) -> None:
        """Continue with samples of a generator's state, by new episodes."""
        self._rng.bit_generator.state = rng
        self.close()
        self._act_by(copy_seed(self.seed, epoch, self._number))


class CopiesLoop(Node, Loop):
    """P serial loops in processes of their own, whose weights meet; what it evaluates and saves as best is copy 0's.

    ``seed`` decides the first weights and each copy's random numbers, but not the order of their turns. With one copy
    under ``lock`` every step is the serial loop's. Records are each copy's own, a P-th of the capacity, or all share
    them; A3C's are each copy's, and no state has them. Gradient steps are due as in the serial loop, each in the copy
    that took the environment step.
    """

    def __init__(
        self,
        workload: Workload,
        arrangement: Arrangement,
        *,
        learner: str | None = None,
        policy: str | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        if device != "cpu":
            raise TrainingError(f"copies learn on the cpu, not on {device}; leave out --device, or choose apart")
        arrangement.check(workload)
        self.learner = learners.make(workload, learner, seed=seed)
        copies, members = arrangement.processes, arrangement.members
        shards = range(members, members + sync_class(arrangement.sync).count_helpers(arrangement))
        rows = {"copy": range(copies), "model": range(copies, members), "shard": shards}
        name, policy = self.learner.implementation, learners.default(workload) if policy is None else policy
        super().__init__(workload, arrangement, rows, copies, 1, learner=name, policy=policy, seed=seed)
        count = arrangement.processes if arrangement.replay == "local" else 1
        parts = range(count if workload.traits.has_replay else 0)
        self.buffers = [replay_of(workload, arrangement, count) for _ in parts]
        self.shared = SharedWeights(self.learner, arrangement, seed=seed)
        if rows["model"]:
            self.model = algorithms.hook(workload, "model_of")(workload, self.shared)
        self._copy = Copy(
            workload, arrangement, 0, self.board, self.shared, self.learner, self._buffer(0), self.policy_name, seed
        )
        self.losses = {}

    def begin(self) -> None:
        """Start the other processes; ``advance`` does so too."""
        if self._is_begun:
            return
        self._pin()
        if self._rows["model"]:
            algorithms.hook(self.workload, "prepare")(self.workload)
        if self.arrangement.members > 1:
            for name in {self.policy_name, self.learner.implementation}:
                learners.prepare(self.workload, name)
        program, model = sync_class(self.arrangement.sync).program, algorithms.hook(self.workload, "follow")
        for kind, own in (("copy", follow), ("model", model), ("shard", program)):
            for number, row in enumerate(self._rows[kind]):
                if row and own is not None:
                    self._children.begin(kind, own, self._start(number, row))

    def _buffer(self, number: int) -> Replay | None:
        """The replay of a copy, or of all; None where each has rollouts, which no other process sees."""
        return self.buffers[min(number, len(self.buffers) - 1)] if self.buffers else None

    def _start(self, number: int, row: int) -> Start:
        own = {"extra": Extra(self.shared.memory_handle()), "threads": self.arrangement.threads}
        return self._child(number, row, self._buffer(number), Shared(), **own)

    def report(self) -> dict[str, Any]:
        """Counts of the run since it was begun: those of every node, and how weights met."""
        met = sync_class(self.arrangement.sync).report(self.shared)
        if self._rows["model"]:
            met |= algorithms.hook(self.workload, "report")(self.shared, self.updates, self.arrangement.cap)
        return super().report() | {"copies": met}

    def done(self, end: int) -> bool:
        """Whether environment step ``end`` is reached, and no copy is about to take one."""
        steps = self.step
        return steps >= end and self.board.value(Counter.CLAIMED_STEPS) == steps

    def advance(self) -> tuple[Episode, ...]:
        """Take a turn of copy 0, or wait for 20 ms; returns the episodes of all that ended meanwhile.

        TrainingError when training has diverged, or a process failed; ProcessLost where an environment fails.
        """
        self.begin()
        episodes = self._copy.turn() or ()
        self.turns, self.losses = self._copy.turns, self._copy.losses
        self._children.watch()
        return episodes + self.ended()

    def close(self) -> None:
        """End the other processes, and let go of environments and replays."""
        self.end()
        self._copy.close()
        for buffer in self.buffers:
            buffer.close()

    def state_dict(self) -> dict[str, Any]:
        """Weights, counts and records of all copies, counters, generators of copy 0; taken while the others rest.

        All begin new episodes from it.
        """
        with self.paused():
            self._copy.flush()
            return {
                "numbers": self.shared.state_dict(),
                "learner": self.learner.state_dict(),
                "buffers": [buffer.state_dict() for buffer in self.buffers],
                "rng": self._copy.rng_state(),
                "step": self.step,
                "updates": self.updates,
                "epoch": self._epoch,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of a loop of the same identity, before any process is begun."""
        self.learner.load_state_dict(state["learner"])
        self.shared.load_state_dict(state["numbers"])
        for buffer, saved in zip(self.buffers, state["buffers"], strict=True):
            buffer.load_state_dict(saved)
        self.board.begin_at(np.zeros(1, np.float32), int(state["step"]), int(state["updates"]))
        self._epoch = int(state["epoch"]) + 1
        self._copy.workload = self.workload  # by whose schedules it goes on
        self._copy.begin_anew(state["rng"], self._epoch)
