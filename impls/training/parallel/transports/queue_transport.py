"""Records by a ``multiprocessing.Queue`` of all actors, as [Hou2023] and others hand experience over.

An actor puts arrays; a thread of the queue pickles them and writes them to a pipe under a lock that actors share. An
actor killed meanwhile may leave that lock taken and half a record in the pipe, so it cannot begin anew.
"""

import multiprocessing
import pickle
import queue
from collections.abc import Iterator
from typing import Any

from ....replay import Replay
from ...actor import Inserted
from ...workload import Workload
from ..arrangement import Arrangement
from ..board import Board
from ..handing import LIMIT_SECONDS, Handing, Send, wait_until
from .frames import Frames


class Queue(Handing):
    """A queue of at most ``size`` hand-overs; an actor waits while it is full."""

    after_kill = (
        "the queue that it put records into may be locked by it for good, or hold half a record, so that others cannot "
        "use it; choose transport shared or pipe to have killed actors begin anew"
    )

    def __init__(self, size: int) -> None:
        self._queue: Any = multiprocessing.get_context("spawn").Queue(size)
        self._frames: Frames | None = None

    @classmethod
    def make(cls, workload: Workload, arrangement: Arrangement) -> "Queue":
        """A queue of as many hand-overs as hold the records that the arrangement says."""
        records = workload.actors.local_storage * workload.actors.environments
        return cls(max(1, arrangement.queue_size // records))

    def sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """Put a copy into the queue, for an actor's arrays are used again before the queue's thread pickles them."""
        waiting = self._queue
        waiting.cancel_join_thread()  # at the run's end nobody reads what the thread has not written yet

        def send(inserted: Inserted) -> None:
            records = {name: array.copy() for name, array in inserted.records.items()}
            copied = Inserted(records, inserted.errors, inserted.drawable)
            wait_until(lambda: _is_put(waiting, copied), board, row)

        return send

    def receive(self, replay: Replay) -> int:
        """Insert every hand-over that is whole; an actor that waits may put its next for each."""
        count = 0
        for rows in self._taken(replay):
            self._queue._sem.release()
            count += rows
        return count

    def _taken(self, replay: Replay) -> Iterator[int]:
        """Insert each hand-over that is whole by now, and yield how many rows it had."""
        if self._frames is None:
            self._frames = Frames(self._queue._reader)
        for message in self._frames.read():
            inserted: Inserted = pickle.loads(message)
            replay.insert(*inserted)
            yield len(inserted.drawable)

    def is_settled(self, replay: Replay) -> bool:
        """Receive; say whether every hand-over that was put has been received."""
        self.receive(replay)
        return int(self._queue.qsize()) == 0

    def close(self) -> None:
        """Close the queue, in the parent; its pipe is closed with the last reference to it."""
        self._queue.close()


def _is_put(waiting: Any, inserted: Inserted) -> bool:
    """Put within the limit of a wait; say whether there was room."""
    try:
        waiting.put(inserted, timeout=LIMIT_SECONDS)
    except queue.Full:
        return False
    return True
