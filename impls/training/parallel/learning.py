"""A learner of several processes: it takes each gradient step as soon as it is due."""

from typing import NamedTuple

import numpy as np

from ...replay.block import Handle
from .. import clock, learners
from ..actor import beta_at, seed_of
from ..errors import TrainingError
from ..workload import Workload
from . import syncs
from .batches import Batches, OwnBatches, SentBatches, Slots, SlotsHandle
from .board import Board, Counter, Row
from .children import Start
from .pace import Pace
from .syncs import LearnerSync, SharedGradients
from .transports import Shared


class Learning:
    """The gradient steps of one learner, each as soon as it is due."""

    def __init__(self, workload: Workload, batches: Batches, board: Board, pace: Pace, sync: LearnerSync) -> None:
        self._workload, self._batches, self._board, self.pace, self._sync = workload, batches, board, pace, sync
        self._claimed: int | None = None  # gradient steps before the one that is claimed and waits for a batch
        self.losses: dict[str, float] = {}

    def advance(self) -> bool:
        """Take the next gradient step if it is due within 20 ms; returns whether one was taken."""
        board, row = self._board, self._sync.number
        if self._claimed is None:
            self._claimed = self._sync.claim(self.pace)
            if self._claimed is None:
                self._batches.receive()  # so that no actor waits for room
                return False
        me, began = board.lines[row], clock.nanoseconds()
        steps, waited = board.value(Counter.STEPS), me[Row.WAITED]
        taken = self._batches.take(beta_at(self._workload, steps), board.value(Counter.UPDATES))
        if taken is None:
            if board.value(Counter.EMPTY):  # else a batch is under way; actors may wait for this step
                board.look(Counter.STEPS, steps + 1, row)
            return False
        (batch, sampled), before, self._claimed = taken, self._claimed, None
        behind = board.value(Counter.UPDATES) - sampled
        stepped = self._sync.step(batch, before)
        self._batches.learned(batch, stepped.priorities)
        stepped.check()
        me[Row.LAG_SUM] += behind
        me[Row.LAG_MAX] = max(me[Row.LAG_MAX], behind)
        me[Row.LEAD] = max(me[Row.LEAD], -self.pace.lead(steps, before))
        me[Row.TURNS] += 1
        me[Row.BUSY] += clock.nanoseconds() - began - (me[Row.WAITED] - waited)
        self.losses = stepped.losses
        return True


_LEARNERS = 7  # sets these random numbers apart from the other uses of a seed


class Extra(NamedTuple):
    """Memory that a learner is started with: the prefetcher's slots, if there is one, and what learners share."""

    slots: SlotsHandle | None
    common: Handle


def learn(start: Start) -> None:
    """Take gradient steps until the run is over, which raises Stopped. TrainingError when training has diverged."""
    workload, arrangement, extra = start.workload, start.arrangement, start.extra
    learner = learners.make(workload, start.learner, seed=start.seed, device=start.device)
    learners.use_threads(arrangement.threads)
    common = SharedGradients.attach(extra.common, learner, arrangement, start.number)
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
            steps, updates = board.value(Counter.STEPS), board.value(Counter.UPDATES)
            raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None
