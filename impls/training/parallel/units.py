"""The two units of a replay [Zhang2023, Table II and Fig. 7]: one has the tree of priorities, one stores the records.

    tree unit      draws sequence numbers and weights of batches ahead, sets the priorities that learners return
    storage unit   inserts the records that actors send, copies those that were drawn, hands batches to learners

Requests go from unit to unit, to learners and back in the order of their tickets, by the slots of a ring: at most 1,024
for records, and as many for priorities, which the arrangement checks. Of batches at most 200 lie ready, as printed for
Pong. A record that was overwritten before it was copied is never learned from: the storage unit returns its place, the
tree unit draws another record of the same interval, and after ``PATIENCE`` attempts it samples the batch itself. A new
record's first priority is set by whoever inserts it, with the record, so that nobody draws what is not stored.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay import Outputs
from ...replay.steps import PATIENCE
from ..arrangement import DATA_QUEUE
from .batches import DRAWN_AHEAD, FILLED, unless_empty
from .board import Counter
from .prefetcher import Prefetcher


class TreeUnit(Prefetcher):
    """The unit that draws and sets priorities; it copies no record."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun = dict[int, tuple[NDArray[np.float64], float]]()  # uniforms [B] and beta of a slot's batch
        # Invariant: the batches of all tickets below ``released`` were, and that one was drawn again so often.
        self._released, self._attempts = 0, 0

    def _is_awaited(self) -> bool:
        """Whether records are being copied, some of which may be lost."""
        return self._released < self._sampled

    def _update(self) -> bool:
        """Draw again what was lost, and update the priorities of every batch that was learned from."""
        while self._released < self._sampled and self.slots.state(self._released) >= FILLED:
            self._released, self._attempts = self._released + 1, 0
        ticket = self._released
        is_drawn = ticket < self._sampled and self.slots.state(ticket) == 0 and self._draw_again(ticket)
        return super()._update() or is_drawn

    def _fill(self, ticket: int, out: Outputs, beta: float, updates: int) -> bool:
        """Draw the batch of a ticket, and request its records; False without records."""
        self._begun[ticket % self.slots.count] = self._rng.random(out.batch), beta
        return self._draw(ticket, out.batch, updates, 0)

    def _draw_again(self, ticket: int) -> bool:
        slot, updates = ticket % self.slots.count, self._board.value(Counter.UPDATES)
        self._attempts += 1
        if self._attempts > PATIENCE:
            self.slots.lost[slot] = 0
            return super()._fill(ticket, self.slots.outputs[slot], self._begun[slot][1], updates)
        return self._draw(ticket, int(self.slots.lost[slot]), updates, self._attempts)

    def _draw(self, ticket: int, count: int, updates: int, again: int) -> bool:
        """Draw records for the first ``count`` places that are listed in a ticket's slot; False without records."""
        slot = ticket % self.slots.count
        words, out, (uniforms, beta) = self.slots.drawn[slot], self.slots.outputs[slot], self._begun[slot]
        draw = partial(self._replay.draw_places, words, uniforms, beta, out, count, again)
        if unless_empty(draw, self._board) is None:
            return False
        self.slots.release_batch(ticket, updates, DRAWN_AHEAD)
        return True


class StorageUnit(Prefetcher):
    """The unit that stores records and copies those that were drawn; it sets no priority of a batch."""

    def wait(self, taken: int) -> None:
        """Wait until records of the next ticket are drawn, or while ``DATA_QUEUE`` batches lie ready for a claim."""
        if self._transport.is_polled or self._is_full():
            super().wait(taken)
        else:
            self.slots.wait_drawn(self._sampled, self._board, self._row)

    def _update(self) -> bool:
        """Set nothing: the tree unit does."""
        return False

    def _sample(self) -> bool:
        """Copy the records of the next ticket, if they are drawn and there is room; returns whether it did."""
        while self.slots.state(self._sampled) >= FILLED:  # by the tree unit itself
            self._sampled += 1
        ticket = self._sampled
        if self._is_full() or self.slots.state(ticket) != DRAWN_AHEAD:
            return False
        slot = ticket % self.slots.count
        count = int(self.slots.lost[slot]) or self.slots.batch
        lost = self._replay.gather_places(self.slots.drawn[slot], self.slots.outputs[slot], count)
        self.slots.return_places(ticket, lost)
        return True

    def _is_full(self) -> bool:
        return self._sampled >= self.slots.claimed + DATA_QUEUE
