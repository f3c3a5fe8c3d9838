"""A transport of a running system with a clock beside it: the receiver's time, and how old its newest record is."""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from impls.replay import Replay
from impls.replay.memory import Handle, Memory, allocate
from impls.training.actor import Inserted

if TYPE_CHECKING:  # numba
    from impls.training.parallel.board import Board
    from impls.training.parallel.handing import Handing, Send

ENTRIES = 1 << 14  # more hand-overs than are ever under way
_COUNT, _FIRST = 0, 8  # words of the ledger: hand-overs begun; then (records so far, nanoseconds) of each


class Ledger:
    """When each hand-over of one actor was begun, in shared memory: the actor writes, the receiver reads."""

    def __init__(self, memory: "Memory | None" = None) -> None:
        self._memory = allocate(8 * (_FIRST + 2 * ENTRIES), True) if memory is None else memory
        self._words = self._memory.view(0, (_FIRST,), np.int64)
        self._entries = self._memory.view(8 * _FIRST, (ENTRIES, 2), np.int64)
        self._records, self._at = 0, 0

    def begin(self, records: int) -> None:
        """Note that the actor hands so many records over."""
        count = int(self._words[_COUNT])
        self._records += records
        self._entries[count % ENTRIES] = self._records, time.perf_counter_ns()
        self._words[_COUNT] = count + 1

    def newest(self, received: int | None) -> int | None:
        """Nanoseconds at which the newest of ``received`` records was handed over, of all by default; None before."""
        count = int(self._words[_COUNT])
        if received is None:
            self._at = count
        while self._at < count and received is not None and self._entries[self._at % ENTRIES, 0] <= received:
            # Invariant: the hand-overs before ``at`` have been received.
            self._at += 1
        return int(self._entries[(self._at - 1) % ENTRIES, 1]) if self._at else None

    def handle(self) -> "Handle":
        """What the actor's process attaches by."""
        return self._memory.handle()


class Watched:
    """A transport, timed where it receives: ``transfer_ns`` of the learner, and the ages of its newest record.

    With the replay's strategy "owner" what actors posted is applied here, before each sample, and counts as transfer.
    """

    def __init__(self, inner: "Handing", ledger: "Ledger | Handle", is_direct: bool) -> None:
        self._inner, self._ledger, self._is_direct = inner, ledger, is_direct
        self.is_polled, self.after_kill = True, inner.after_kill
        self.transfer_ns, self.received, self.age_ns, self.looks = 0, 0, 0, 0

    def __reduce__(self) -> tuple[Any, ...]:
        assert isinstance(self._ledger, Ledger)
        return Watched, (self._inner, self._ledger.handle(), self._is_direct)

    def sender(self, replay: "Replay | None", board: "Board", row: int, number: int) -> "Send":
        """The transport's own, noted in the ledger."""
        send = self._inner.sender(replay, board, row, number)
        assert not isinstance(self._ledger, Ledger)  # in a child it is a handle
        ledger = Ledger(self._ledger.attach())

        def noted(inserted: "Inserted") -> None:
            ledger.begin(len(inserted.drawable))
            send(inserted)

        return noted

    def receive(self, replay: "Replay") -> int:
        """Receive by the transport and apply what was posted, timed; then look how old the newest record is."""
        assert isinstance(self._ledger, Ledger)
        began = time.perf_counter_ns()
        count = self._inner.receive(replay)
        if hasattr(replay, "posted"):
            len(replay)
        ended = time.perf_counter_ns()
        self.transfer_ns += ended - began
        self.received += count
        newest = self._ledger.newest(None if self._is_direct else self.received)
        if newest is not None:
            self.age_ns += max(0, ended - newest)
            self.looks += 1
        return count

    def is_settled(self, replay: "Replay") -> bool:
        """What the transport says."""
        return self._inner.is_settled(replay)

    def close(self) -> None:
        """Close the transport that is watched."""
        self._inner.close()
