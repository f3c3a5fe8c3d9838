"""Records by a queue that is moved whole each time it is full: the partial asynchrony of [Hou2023, Fig. 4a].

Actors wait from then until all of it has been inserted, and whoever samples does nothing else meanwhile.
"""

from ....replay import Replay
from .queue_transport import Queue

_LATE_SECONDS = 1.0  # without a byte, after which whoever samples looks after its run before it continues to move


class Fill(Queue):
    """A queue of at most ``size`` hand-overs that are moved together."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._size = size
        self._moved = 0  # hand-overs inserted for which no actor has room yet

    def receive(self, replay: Replay) -> int:
        """Insert every hand-over of a full queue, and nothing before it is full."""
        return self._move(replay) if self._queue.qsize() >= self._size else 0

    def is_settled(self, replay: Replay) -> bool:
        """Insert what was put, full or not; say whether nothing is left."""
        self._move(replay)
        return int(self._queue.qsize()) == 0

    def _move(self, replay: Replay) -> int:
        """Insert all hand-overs that were put, then give their room back; returns how many rows."""
        count = 0
        # Invariant: ``moved`` hand-overs are in the replay, and still take room in the queue.
        while self._moved < self._queue.qsize():
            before = self._moved
            for rows in self._taken(replay):
                self._moved += 1
                count += rows
            if self._moved == before and not self._queue._reader.poll(_LATE_SECONDS):
                return count
        for _ in range(self._moved):
            self._queue._sem.release()
        self._moved = 0
        return count
