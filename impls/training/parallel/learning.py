"""The learner's turn in the process that samples for itself: D batches ahead, a gradient step, new priorities."""

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Outputs, Replay
from .. import clock
from ..actor import beta_at
from ..workload import Workload
from . import board as words
from .arrangement import Arrangement
from .board import Board
from .handing import Handing
from .pace import Pace
from .syncs import Sync


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
        me[words.STALE] += behind
        me[words.STALEST] = max(me[words.STALEST], behind)
        me[words.LEAD] = max(me[words.LEAD], -self._pace.lead(steps, before))
        me[words.TURNS] += 1
        me[words.BUSY] += clock.nanoseconds() - began - (me[words.WAITED] - waited)
        self.losses = stepped.losses
        return True
