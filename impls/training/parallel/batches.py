"""Where a learner has its batches from: it samples them itself, or a prefetcher does and hands them over by slots."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch, Layout, Outputs, Replay
from ...replay.batches import Plan
from ...replay.block import Handle, Memory
from ...replay.sampling import DRAWN
from ..arrangement import Arrangement
from ..weights import layout_of
from ..workload import Workload
from . import counter
from .board import Board, Counter, Shapes, SharedArrays, whole_lines
from .transports import RecordTransport

_STATES = 4
DRAWN_AHEAD, FILLED, _LEARNED = 1, 2, 3
"""States of a slot in a round, besides 0: records are drawn, the batch lies there, its |TD errors| do."""


class Batches(Protocol):
    """The source of a learner's batches."""

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
        transport: RecordTransport,
        board: Board,
        arrangement: Arrangement,
        number: int = 0,
    ) -> None:
        self._replay, self.rng, self._transport, self._board = replay, rng, transport, board
        is_kept = arrangement.sync == "local" and workload.traits.has_policy
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
        self._transport.receive(self._replay)

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Set the priorities of a batch that was learned from."""
        self._replay.update_priorities(batch.sequence, priorities)


def sample(
    replay: Replay, out: Outputs, beta: float, rng: np.random.Generator, board: Board, **bank: Any
) -> Batch | None:
    """A batch sampled into ``out``; None while nothing that may be sampled is stored, of which actors then know.

    ``bank``: which bank to sample from, and its weights, where there are several.
    """
    batch: Batch | None = unless_empty(lambda: replay.sample(out.batch, beta, rng, out=out, **bank), board)
    return batch


def unless_empty(take: Callable[[], Any], board: Board) -> Any:
    """Return what ``take`` returns, or None while no record may be sampled, of which actors then know."""
    try:
        taken = take()
    except RuntimeError:
        board.set(Counter.EMPTY, 1)
        return None
    if board.value(Counter.EMPTY):
        board.set(Counter.EMPTY, 0)
    return taken


class SlotsHandle(NamedTuple):
    """A small picklable reference to slots."""

    memory: Handle
    layout: Layout
    batch: int
    slots: int
    has_units: bool


class Slots(SharedArrays):
    """``count`` S slots, a ring in shared memory, for batches of ``batch`` B records that a prefetcher samples ahead.

    Ticket t (from 0) is the batch in slot t % S. The counter of a slot is 4 r + n in round r = t // S: n is 0 while it
    is free for ticket t, 2 once the batch lies in it, 3 once its |TD errors| do. Whoever adds to a counter has written
    before that all that its value stands for, and touches the slot no more.

        learner       claim -> take -> return_errors
        prefetcher    wait_claimed -> is_free -> release_batch -> read_errors -> free

    With two units (``has_units``) n is 1 once records are drawn and not yet copied, and 0 again where ``lost [S]`` of
    them were overwritten before they were (``ever_lost [S]``: in all rounds). ``drawn [S, 5 B]`` is what
    :meth:`Replay.draw_places` keeps.

        tree unit     wait_claimed -> is_free -> release_batch(.., DRAWN_AHEAD) -> read_errors -> free
        storage unit  wait_drawn -> state -> return_places
    """

    def __init__(
        self, layout: Layout, batch: int, count: int, memory: Memory | None = None, *, has_units: bool = False
    ) -> None:
        self.layout, self.batch, self.count, self.has_units = layout, batch, count, has_units
        plan = Plan(layout)
        outputs = plan.dtype(batch)
        # A slot's parts begin with a line of their own, so that processes at two slots write to no line of both.
        shapes: Shapes = {
            "sampled": ((count, counter.LINE_WORDS), np.int64),
            "errors": ((count, whole_lines(4 * batch) // 4), np.float32),
            "outputs": ((count, whole_lines(outputs.itemsize)), np.uint8),
            "lost": ((count, counter.LINE_WORDS), np.int64),
            "drawn": ((count * has_units, whole_lines(8 * DRAWN * batch) // 8), np.int64),
        }
        super().__init__(1 + count, shapes, memory)
        self._claimed, *self._states = (self.address(line) for line in range(1 + count))
        self._sampled, self._errors = self["sampled"][:, 0], self["errors"][:, :batch]
        self.outputs = [
            Outputs(plan, batch, row[: outputs.itemsize].view(outputs).reshape(())) for row in self["outputs"]
        ]
        self.lost, self.ever_lost = self["lost"][:, 0], self["lost"][:, 1]
        self.drawn = self["drawn"][:, : DRAWN * batch]

    # The prefetcher

    @property
    def claimed(self) -> int:
        """Tickets that learners have claimed."""
        return int(counter.value_of(self._claimed))

    def wait_claimed(self, tickets: int, board: Board, row: int) -> None:
        """Wait for at most 20 ms until a given number of tickets are claimed."""
        board.look_at(self._claimed, tickets, row)

    def is_free(self, ticket: int) -> bool:
        """Whether the batch of a ticket may be sampled into its slot."""
        return self.state(ticket) >= 0

    def release_batch(self, ticket: int, updates: int, state: int = FILLED) -> None:
        """Hand out the batch that lies in the slot of a ticket, sampled after a given number of gradient steps.

        In the state ``DRAWN_AHEAD`` its records are requested from the storage unit.
        """
        self._sampled[ticket % self.count] = updates
        self._advance(ticket, state)

    def read_errors(self, ticket: int) -> NDArray[np.float32] | None:
        """The |TD errors| ``[B]`` of a ticket's batch, None before they are there."""
        return self._errors[ticket % self.count] if self.state(ticket) >= _LEARNED else None

    def free(self, ticket: int) -> None:
        """Let the slot of a ticket be used again, after its |TD errors| were."""
        self._advance(ticket)

    # The storage unit

    def wait_drawn(self, ticket: int, board: Board, row: int) -> None:
        """Wait for at most 20 ms until the records of a ticket are drawn."""
        board.look_at(self._states[ticket % self.count], _STATES * (ticket // self.count) + DRAWN_AHEAD, row)

    def return_places(self, ticket: int, lost: int) -> None:
        """Hand out the batch of a ticket, whose records are copied, but for ``lost`` ones that were overwritten.

        With any lost the batch goes back to the tree unit, which draws others.
        """
        self.lost[ticket % self.count] = lost
        self.ever_lost[ticket % self.count] += lost
        self._advance(ticket, -DRAWN_AHEAD if lost else FILLED - DRAWN_AHEAD)

    # Learners

    def claim(self) -> int:
        """The next ticket, which is the caller's alone."""
        return int(counter.add(self._claimed, 1))

    def take(self, ticket: int, board: Board, row: int) -> tuple[Batch, int] | None:
        """(batch of a claimed ticket, gradient steps taken when it was sampled); None if it is not there in 20 ms."""
        slot = ticket % self.count
        if not board.look_at(self._states[slot], _STATES * (ticket // self.count) + FILLED, row):
            return None
        out = self.outputs[slot]
        return Batch(out.rows, out.weights, out.sequence), int(self._sampled[slot])

    def return_errors(self, ticket: int, errors: NDArray[np.float32]) -> None:
        """Hand the |TD errors| ``[B]`` of a ticket's batch to the prefetcher; the batch is the caller's no more."""
        self._errors[ticket % self.count][:] = errors
        self._advance(ticket)

    def state(self, ticket: int) -> int:
        """The state of a ticket's slot, negative while an earlier ticket has it."""
        return int(counter.value_of(self._states[ticket % self.count])) - _STATES * (ticket // self.count)

    def _advance(self, ticket: int, states: int = 1) -> None:
        counter.add(self._states[ticket % self.count], states)

    # Sharing

    def handle(self) -> SlotsHandle:
        """A small picklable reference for children."""
        return SlotsHandle(self.memory_handle(), self.layout, self.batch, self.count, self.has_units)

    @classmethod
    def attach(cls, handle: SlotsHandle) -> "Slots":
        """The slots of a handle, in a child of the process that made them."""
        memory = handle.memory.attach()
        return cls(handle.layout, handle.batch, handle.slots, memory, has_units=handle.has_units)


class SentBatches:
    """Batches that a prefetcher samples for the learner of a row of the board; what ``OwnBatches`` offers."""

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
        there = self._slots.take(self._claimed, self._board, self._row)
        if there is not None:
            self._learning, self._claimed = self._claimed, None
        return there

    def receive(self) -> None:
        """Nothing: the prefetcher does."""

    def learned(self, batch: Batch, priorities: NDArray[np.float32]) -> None:
        """Hand the |TD errors| ``[B]`` of the batch that was taken last to the prefetcher."""
        self._slots.return_errors(self._learning, priorities)


def depth_of(workload: Workload) -> int:
    """D, batches that lie ready for learners: as many as the workload says, 1 where it says none."""
    return max(1, workload.replay.presampled)


def slots_of(workload: Workload, arrangement: Arrangement) -> Slots:
    """Slots for D batches that lie ready, and for each learner one that it learns from and one that it gives back."""
    count, rows = depth_of(workload) + 2 * arrangement.learners, arrangement.rows(workload)
    return Slots(layout_of(workload), rows, count, has_units=arrangement.units == "two")
