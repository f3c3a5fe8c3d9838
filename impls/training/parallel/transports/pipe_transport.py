"""Records by a ``multiprocessing.Pipe`` of all actors: an actor pickles what it hands off and writes it itself.

Each write is one that the system does at once or not at all (at most PIPE_BUF bytes), and says whose part of what it
is. So actors need no lock, and one that is killed leaves whole parts alone, which are dropped with the rest missing.
"""

import functools
import multiprocessing
import os
import pickle
import select
import struct

from ....replay import Replay
from ...actor import Inserted
from ..board import Board
from ..handing import LIMIT_SECONDS, Handing, Send, wait_until
from .frames import available

_HEAD = struct.Struct("=HHII")  # the actor, the part's bytes, where it begins in the message, the message's bytes
_ROOM = select.PIPE_BUF - _HEAD.size


class Pipe(Handing):
    """A pipe that holds 64 KiB; an actor waits while it is full."""

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._bytes, self._begun = bytearray(), dict[int, bytearray]()

    def sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """Write a pickled hand-over part by part; BrokenPipeError if nobody can read it any more."""
        descriptor, poll = self._writer.fileno(), select.poll()
        os.set_blocking(descriptor, False)
        poll.register(descriptor, select.POLLOUT)

        def send(inserted: Inserted) -> None:
            message = pickle.dumps(inserted, pickle.HIGHEST_PROTOCOL)
            for start in range(0, len(message), _ROOM):
                part = message[start : start + _ROOM]
                whole = _HEAD.pack(number, len(part), start, len(message)) + part
                if not _is_written(descriptor, whole):
                    wait_until(functools.partial(_is_written, descriptor, whole, poll), board, row)

        return send

    def receive(self, replay: Replay) -> int:
        """Insert every hand-over all of whose parts have come."""
        descriptor, count = self._reader.fileno(), 0
        os.set_blocking(descriptor, False)
        for chunk in available(descriptor):
            self._bytes += chunk
            # Invariant: what was read and not taken begins with the head of a part.
            while (message := self._part()) is not None:
                if message:
                    inserted: Inserted = pickle.loads(message)
                    replay.insert(*inserted)
                    count += len(inserted.drawable)
        return count

    def _part(self) -> bytes | None:
        """Take the next part: the message that it ends, b"" if it ends none, None if it is not whole yet."""
        if len(self._bytes) < _HEAD.size:
            return None
        number, size, start, total = _HEAD.unpack_from(self._bytes)
        end = _HEAD.size + size
        if len(self._bytes) < end:
            return None
        message = self._begun[number] if start else bytearray()  # what came of an actor's life before is dropped
        message += self._bytes[_HEAD.size : end]
        del self._bytes[:end]
        self._begun[number] = message
        return bytes(message) if len(message) == total else b""

    def close(self) -> None:
        """Close both ends, in the parent."""
        self._reader.close()
        self._writer.close()


def _is_written(descriptor: int, whole: bytes, poll: "select.poll | None" = None) -> bool:
    """Write a part, with ``poll`` once there is room within the limit of a wait; say whether it was written."""
    if poll is not None and not poll.poll(1e3 * LIMIT_SECONDS):
        return False
    try:
        return os.write(descriptor, whole) > 0
    except BlockingIOError:
        return False
