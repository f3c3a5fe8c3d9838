"""Messages of a multiprocessing connection, taken from its descriptor without ever waiting for the rest of one.

``Connection.recv_bytes`` waits until a message that has begun is whole, for good if its writer was killed.
"""

import os
import struct
from collections.abc import Iterator
from multiprocessing.connection import Connection

CHUNK, CHUNKS = 1 << 16, 16  # bytes of a read, as many as a pipe holds; reads of a call, whatever senders add meanwhile
_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!Q")


def available(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes that lie in a pipe whose descriptor does not block, at most a megabyte of them."""
    for _ in range(CHUNKS):
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return
        if not chunk:  # every writer has ended
            return
        yield chunk


class Frames:
    """The whole messages that have arrived on the reading end of a pipe; this process alone reads it."""

    def __init__(self, reader: Connection) -> None:
        self._descriptor, self._bytes = reader.fileno(), bytearray()
        os.set_blocking(self._descriptor, False)

    def read(self) -> Iterator[bytes]:
        """Yield each message that is whole by now."""
        for chunk in available(self._descriptor):
            self._bytes += chunk
            # Invariant: what was read and not yielded begins with the length of a message.
            while (message := self._whole()) is not None:
                yield message

    def _whole(self) -> bytes | None:
        """Cut the first message off what was read, if it is whole."""
        start = _SHORT.size
        if len(self._bytes) < start:
            return None
        (length,) = _SHORT.unpack_from(self._bytes)
        if length < 0:  # a long message, whose length follows
            start += _LONG.size
            if len(self._bytes) < start:
                return None
            (length,) = _LONG.unpack_from(self._bytes, _SHORT.size)
        if len(self._bytes) < start + length:
            return None
        message = bytes(self._bytes[start : start + length])
        del self._bytes[: start + length]
        return message
