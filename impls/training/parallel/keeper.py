"""The keeper as a process: it owns sampling, samples batches ahead of the learners, and updates priorities."""

import time

import numpy as np

from ...replay import Replay
from ..actor import TRAINING, beta_at
from ..errors import TrainingError
from ..sizes import layout_of
from ..workload import Workload
from . import board as words
from .arrangement import Arrangement
from .board import Board, processes_of
from .handing import settle
from .learning import sample
from .pace import Pace
from .programs import Start
from .slots import Slots

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
        began = time.perf_counter_ns()
        received = self._handing.receive(self._replay)
        updated, sampled = self._update(), self._sample()
        if sampled:
            me = self._board.lines[self._row]
            me[words.TURNS] += 1
            me[words.BUSY] += time.perf_counter_ns() - began
        return bool(received) or updated or sampled

    def wait(self, taken: int) -> None:
        """Wait until learners have claimed so many tickets, or it is time to look for what they learned or actors sent.

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
