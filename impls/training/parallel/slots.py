"""Batches that a keeper samples ahead and learners take: a ring of slots in shared memory.

    header    a counter of the tickets that learners have claimed
    slots     of each a counter, one word, the |TD errors| ``[B]``, and a batch as ``Outputs`` has it

Ticket t (from 0) is the batch in slot t % S. The counter of a slot is 3 r + n in round r = t // S: n is 0 while it is
free for ticket t, 1 once the batch lies in it, 2 once its |TD errors| do. Whoever adds to a counter has written before
that all that its value stands for, and touches the slot no more.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Layout, Outputs
from ...replay.batches import Plan
from ...replay.memory import Handle, Memory, allocate
from . import counter
from .board import LINE, Board

_STATES = 3
_FILLED, _LEARNED = 1, 2


class SlotsHandle(NamedTuple):
    """A small picklable reference to slots."""

    memory: Handle
    layout: Layout
    batch: int
    slots: int


class Slots:
    """``count`` S slots for batches of ``batch`` B records of a layout."""

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
