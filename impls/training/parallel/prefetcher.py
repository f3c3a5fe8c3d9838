"""The prefetcher of a pipelined run, in records its "keeper": it samples batches ahead and keeps their priorities."""

import time

import numpy as np

from ...replay import Outputs, Replay
from .. import clock
from ..actor import TRAINING, beta_at
from ..errors import TrainingError
from .batches import Slots, depth_of, sample
from .board import Board, Counter, Row, processes_of
from .children import Start
from .pace import Pace
from .transports import drain

_POLL_NANOSECONDS = 100_000  # between looks for records that come by messages


def run_prefetcher(start: Start, kind: "type[Prefetcher] | None" = None) -> None:
    """Keep the replay until the run is over, which raises Stopped; ``kind`` keeps a part of it.

    TrainingError when training has diverged.
    """
    board, replay = start.attached()
    assert replay is not None  # the parent shares it
    prefetcher = (kind or Prefetcher)(start, board, replay)
    actors = processes_of(start.workload, start.arrangement)["actor"]
    while True:
        if drain(start.transport, replay, board, actors):
            board.check(start.row)
        board.raise_if_stopped()  # not check: a pause that began after the look of drain is to be settled first
        taken = prefetcher.slots.claimed
        try:
            is_busy = prefetcher.turn()
        except ValueError as error:
            steps, updates = board.value(Counter.STEPS), board.value(Counter.UPDATES)
            raise TrainingError(f"after {steps:,} steps and {updates:,} gradient steps: {error}") from None
        if not is_busy:
            prefetcher.wait(taken + 1)


class Prefetcher:
    """The replay of a run as the prefetcher sees it: batches sampled, and those whose |TD errors| are still awaited."""

    def __init__(self, start: Start, board: Board, replay: Replay) -> None:
        self._workload, self._row, self._board, self._replay = start.workload, start.row, board, replay
        self.slots = Slots.attach(start.extra)
        self._transport, self._depth = start.transport, depth_of(start.workload)
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
        received = self._transport.receive(self._replay)
        updated, sampled = self._update(), self._sample()
        if sampled:
            me = self._board.lines[self._row]
            me[Row.TURNS] += 1
            me[Row.BUSY] += clock.nanoseconds() - began
        return bool(received) or updated or sampled

    def wait(self, taken: int) -> None:
        """Wait until learners have claimed N tickets, or it is time to look for what they learned or actors sent.

        A batch that was learned from wakes nobody: its priorities count when the next is sampled, after a claim.
        """
        if self._transport.is_polled or self._is_awaited():
            self._board.rows[self._row, Row.WAITED] += _POLL_NANOSECONDS
            time.sleep(_POLL_NANOSECONDS / 1e9)
        else:
            self.slots.wait_claimed(taken, self._board, self._row)

    def _is_awaited(self) -> bool:
        """Whether something is awaited whose coming wakes nobody."""
        return False

    def _update(self) -> bool:
        """Update the priorities of every batch that was learned from."""
        before = self._oldest, len(self._done)
        for ticket in range(self._oldest, min(self._sampled, self.slots.claimed)):
            errors = None if ticket in self._done else self.slots.read_errors(ticket)
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
        ticket, steps = self._sampled, self._board.value(Counter.STEPS)
        if steps < self._due or ticket >= self.slots.claimed + self._depth or not self.slots.is_free(ticket):
            return False
        out = self.slots.outputs[ticket % self.slots.count]
        updates = self._board.value(Counter.UPDATES)
        if not self._fill(ticket, out, beta_at(self._workload, steps), updates):
            return False
        self._sampled += 1
        return True

    def _fill(self, ticket: int, out: Outputs, beta: float, updates: int) -> bool:
        """Sample the batch of a ticket, and hand it out; False without records."""
        if sample(self._replay, out, beta, self._rng, self._board) is None:
            return False
        self.slots.release_batch(ticket, updates)
        return True
