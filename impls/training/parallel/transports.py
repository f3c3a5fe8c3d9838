"""Transports of a run: records from actors to the process that samples, weights from the learner back to actors.

    shared    an actor inserts records into the shared replay itself
    pipe      a ``multiprocessing.Pipe`` of all actors, written part by part
    queue     a ``multiprocessing.Queue`` of all actors, as [Hou2023] and others hand experience over
    fill      a queue that is moved whole each time it is full: the partial asynchrony of [Hou2023, Fig. 4a]

Weights go by the board's own vector ("shared"), by a file, or by a tensor that torch shares. The parent makes a
transport, which is pickled into every child. A new one for records is a class of this file with a ``name``; one for
weights is a class, its place in ``make_weight_transport``, and its name in ``WEIGHTS`` of ``arrangement``.
"""

import functools
import math
import multiprocessing
import os
import pickle
import queue
import select
import struct
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...files import make_private
from ...replay import Replay
from .. import clock
from ..actor import Inserted
from ..arrangement import Arrangement, named_classes
from ..errors import TrainingError
from ..folder import alone
from ..workload import Workload
from .board import Board, Counter, Row

Send = Callable[[Inserted], None]
LIMIT_SECONDS = 0.02  # of one wait, after which a sender looks whether the run continues
_ARRIVAL_SECONDS = 20.0


class RecordTransport(ABC):
    """A transport of records, picklable while a child is started; one process receives, the one that samples.

    ``is_polled`` is whether ``receive`` may have anything to do. ``after_kill`` is empty, or says why an actor that was
    killed while it handed records over cannot begin anew.
    """

    name: ClassVar[str]
    is_polled = True
    after_kill = ""

    @classmethod
    def make(cls, workload: Workload, arrangement: Arrangement) -> "RecordTransport":
        """The transport of a run."""
        return cls()

    @abstractmethod
    def make_sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """The function by which actor ``number`` hands its records over; called once, in its process.

        The actor uses the arrays again, so the function copies or writes them before it returns.

        ``row`` is the process's on the board, where its waits are counted. The function raises Stopped
        when the run ends before the records are handed off.
        """

    @abstractmethod
    def receive(self, replay: Replay) -> int:
        """Insert the records that have come, in the process that samples, without waiting; returns how many rows."""

    def is_drained(self, replay: Replay) -> bool:
        """Receive; say whether no record that was handed off before is still under way."""
        self.receive(replay)
        return True

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Let go of what the system keeps for it; in the parent, after the children have ended."""


def make_record_transport(workload: Workload, arrangement: Arrangement) -> RecordTransport:
    """The transport of records that an arrangement names; the parent makes it before it starts any child."""
    return RECORD_TRANSPORTS[arrangement.transport].make(workload, arrangement)


def wait_until(is_done: Callable[[], bool], board: Board, row: int) -> None:
    """Try again and again, in a pause too, for the receiver continues until all rest; Stopped when the run ends.

    ``is_done`` tries for 20 ms at most.
    """
    began = clock.nanoseconds()
    while not is_done():
        board.raise_if_stopped()
    board.rows[row, Row.WAITED] += clock.nanoseconds() - began


def drain(transport: RecordTransport, replay: Replay, board: Board, rows: range) -> bool:
    """Receive, in a pause, until the actors of these rows rest and no record is under way; Stopped when the run ends.

    Returns whether that is so in a pause: the receiver may rest only then.
    TrainingError if a record does not arrive in 20 s.
    """
    end = math.inf
    while board.value(Counter.PAUSE) & 1:
        rests = all(board.rests(row) for row in rows)
        if transport.is_drained(replay) and rests:
            return True
        end = min(end, clock.seconds() + _ARRIVAL_SECONDS) if rests else math.inf
        if clock.seconds() > end:
            raise TrainingError(f"records that actors handed off do not arrive in {_ARRIVAL_SECONDS:.0f} s")
        board.raise_if_stopped()
        time.sleep(1e-3)
    return False


class Shared(RecordTransport):
    """Records go into the shared replay by the actor's own insert."""

    name = "shared"
    is_polled = False

    def make_sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """The replay's own insert, which waits for nothing but other inserts."""
        assert replay is not None  # the parent shares it
        return lambda inserted: replay.insert(*inserted)

    def receive(self, replay: Replay) -> int:
        """Insert nothing: records come only by the actors' own inserts."""
        return 0


_CHUNK, _CHUNKS = 1 << 16, 16  # bytes of a read, as many as a pipe holds; reads of a call, whatever senders add
_HEAD = struct.Struct("=HHII")  # the actor, the part's bytes, where it begins in the message, the message's bytes
_ROOM = select.PIPE_BUF - _HEAD.size


def read_available(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes that lie in a pipe whose descriptor does not block, at most a megabyte of them."""
    for _ in range(_CHUNKS):
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:  # every writer has ended
            return
        yield chunk


class Pipe(RecordTransport):
    """A pipe that holds 64 KiB; an actor pickles its records and writes them itself, and waits while the pipe is full.

    Each write is one that the system does at once or not at all (at most PIPE_BUF bytes), and says whose part of what
    it is. So actors need no lock, and one that is killed leaves whole parts alone, which are dropped with the rest
    missing.
    """

    name = "pipe"

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._bytes, self._begun = bytearray(), dict[int, bytearray]()

    def make_sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """Write pickled records part by part; BrokenPipeError if no process can read them any more."""
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
        """Insert the records of every message all of whose parts have come."""
        descriptor, count = self._reader.fileno(), 0
        os.set_blocking(descriptor, False)
        for chunk in read_available(descriptor):
            self._bytes += chunk
            # Invariant: what was read and not taken begins with the head of a part.
            while (message := self._part()) is not None:
                if message:
                    count += _insert(replay, message)
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


def _insert(replay: Replay, message: bytes) -> int:
    """Insert the records of a pickled message; returns how many rows."""
    inserted: Inserted = pickle.loads(message)
    replay.insert(*inserted)
    return len(inserted.can_sample)


def _is_written(descriptor: int, whole: bytes, poll: "select.poll | None" = None) -> bool:
    """Write a part, with ``poll`` once there is room within the limit of a wait; say whether it was written."""
    if poll is not None and not poll.poll(1e3 * LIMIT_SECONDS):
        return False
    try:
        return os.write(descriptor, whole) > 0
    except BlockingIOError:
        return False


class Frames:
    """The whole messages that have arrived on the reading end of a pipe; this process alone reads it.

    ``Connection.recv_bytes`` waits until a message that has begun is whole, for good if its writer was killed; this
    never waits for the rest of a message.
    """

    _short, _long = struct.Struct("!i"), struct.Struct("!Q")

    def __init__(self, reader: Connection) -> None:
        self._descriptor, self._bytes = reader.fileno(), bytearray()
        os.set_blocking(self._descriptor, False)

    def read(self) -> Iterator[bytes]:
        """Yield each message that is whole by now."""
        for chunk in read_available(self._descriptor):
            self._bytes += chunk
            # Invariant: what was read and not yielded begins with the length of a message.
            while (message := self._whole()) is not None:
                yield message

    def _whole(self) -> bytes | None:
        """Cut the first message off what was read, if it is whole."""
        start = self._short.size
        if len(self._bytes) < start:
            return None
        (length,) = self._short.unpack_from(self._bytes)
        if length < 0:  # a long message, whose length follows
            start += self._long.size
            if len(self._bytes) < start:
                return None
            (length,) = self._long.unpack_from(self._bytes, self._short.size)
        if len(self._bytes) < start + length:
            return None
        message = bytes(self._bytes[start : start + length])
        del self._bytes[: start + length]
        return message


class Queue(RecordTransport):
    """A queue of at most ``size`` messages; an actor waits while it is full.

    An actor puts arrays; a thread of the queue pickles them and writes them to a pipe under a lock that actors share.
    An actor killed meanwhile may leave that lock taken and half a record in the pipe, so it cannot begin anew.
    """

    name = "queue"
    after_kill = (
        "the queue that it put records into may be locked by it for good, or hold half a record, so that others cannot "
        "use it; choose transport shared or pipe to have killed actors begin anew"
    )

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: Any = multiprocessing.get_context("spawn").Queue(size)
        self._frames: Frames | None = None

    @classmethod
    def make(cls, workload: Workload, arrangement: Arrangement) -> "Queue":
        """A queue of as many messages as hold the records that the arrangement says."""
        records = workload.actors.local_storage * workload.actors.environments
        return cls(max(1, arrangement.queue_size // records))

    def make_sender(self, replay: Replay | None, board: Board, row: int, number: int) -> Send:
        """Put a copy into the queue, for an actor's arrays are used again before the queue's thread pickles them."""
        waiting = self._queue
        waiting.cancel_join_thread()  # at the run's end no process reads what the thread has not written yet

        def send(inserted: Inserted) -> None:
            records = {name: array.copy() for name, array in inserted.records.items()}
            wait_until(lambda: _is_put(waiting, inserted._replace(records=records)), board, row)

        return send

    def receive(self, replay: Replay) -> int:
        """Insert every message that is whole; an actor that waits may put its next for each."""
        count = 0
        for rows in self._insert_whole_messages(replay):
            self._queue._sem.release()
            count += rows
        return count

    def _insert_whole_messages(self, replay: Replay) -> Iterator[int]:
        """Insert each message that is whole by now, and yield how many rows it had."""
        if self._frames is None:
            self._frames = Frames(self._queue._reader)
        for message in self._frames.read():
            yield _insert(replay, message)

    def is_drained(self, replay: Replay) -> bool:
        """Receive; say whether every message that was put has been received."""
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


_LATE_SECONDS = 1.0  # without a byte, after which the receiver looks after its run before it continues to move


class Fill(Queue):
    """A queue whose messages are moved together once it is full.

    Actors wait from then until all of it has been inserted, and the receiver does nothing else meanwhile.
    """

    name = "fill"
    _moved = 0  # messages inserted for which no actor has room yet

    def receive(self, replay: Replay) -> int:
        """Insert every message of a full queue, and nothing before it is full."""
        return self._move(replay) if self._queue.qsize() >= self._size else 0

    def is_drained(self, replay: Replay) -> bool:
        """Insert what was put, full or not; say whether nothing is left."""
        self._move(replay)
        return int(self._queue.qsize()) == 0

    def _move(self, replay: Replay) -> int:
        """Insert all messages that were put, then give their room back; returns how many rows."""
        count = 0
        # Invariant: ``moved`` messages are in the replay, and still take room in the queue.
        while self._moved < self._queue.qsize():
            before = self._moved
            for rows in self._insert_whole_messages(replay):
                self._moved += 1
                count += rows
            if self._moved == before and not self._queue._reader.poll(_LATE_SECONDS):
                return count
        for _ in range(self._moved):
            self._queue._sem.release()
        self._moved = 0
        return count


RECORD_TRANSPORTS: dict[str, type[RecordTransport]] = named_classes(RecordTransport)


class WeightTransport(ABC):
    """A transport of weights other than the board's own vector, picklable while a child is started."""

    @abstractmethod
    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Hand weights ``[P]`` out as those of a version; one process does."""

    @abstractmethod
    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the newest weights to ``target [P]`` unless their version is ``known``; returns their version."""

    def close(self) -> None:  # noqa: B027  # most have nothing to close
        """Let go of what the system keeps for it; in the parent, after the children have ended."""


def make_weight_transport(arrangement: Arrangement, weights: int) -> WeightTransport | None:
    """The transport of ``weights`` P numbers that an arrangement names; None is the board's own vector.

    TrainingError without torch, where it is asked for.
    """
    if arrangement.weights == "torch":
        return TorchWeights(weights)
    return FileWeights.make() if arrangement.weights == "file" else None


_PREFIX = "fanout-weights-"
_OLD_SECONDS = 60.0
_VERSION = 2  # numbers of float32 that a version takes, before the weights


class FileWeights(WeightTransport):
    """A file, in a folder that the parent removes; each publication takes the old file's name in one step.

    So a reader sees all of one publication.
    """

    def __init__(self, path: Path, folder: Any = None) -> None:
        self._path, self._folder = path, folder

    @classmethod
    def make(cls) -> "FileWeights":
        """Make the folder, in the parent; those that killed parents have left are removed."""
        _remove_abandoned()
        folder, resources = tempfile.TemporaryDirectory(prefix=_PREFIX), ExitStack()
        resources.callback(folder.cleanup)
        resources.enter_context(alone(Path(folder.name)))
        return cls(Path(folder.name) / "weights.npy", resources)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_folder": None}  # which the parent alone removes

    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Save weights ``[P]`` under another name, then rename."""
        numbers = np.concatenate((np.array([version], np.int64).view(np.float32), weights))
        fresh = self._path.with_suffix(".new.npy")
        np.save(fresh, numbers)
        fresh.replace(self._path)

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Read the file, and copy it to ``target [P]`` unless its version is ``known``; returns the version."""
        numbers = np.load(self._path)
        version = int(numbers[:_VERSION].view(np.int64)[0])
        if version != known:
            target[:] = numbers[_VERSION:]
        return version

    def close(self) -> None:
        """Remove the folder, in the parent."""
        if self._folder is not None:
            self._folder.close()


def _remove_abandoned() -> None:
    """Remove old folders of weights that no process has locked."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError, TrainingError):  # another user's, or held by a run
            if time.time() - folder.lstat().st_mtime > _OLD_SECONDS:  # a younger one may not be locked yet
                with alone(make_private(folder)):
                    for name in ("weights.npy", "weights.new.npy", ".lock"):
                        (folder / name).unlink(missing_ok=True)
                    folder.rmdir()  # which it is not if it holds anything else


class TorchWeights(WeightTransport):
    """A tensor ``[P]`` that torch shares between processes, as its own examples of HogWild do, and its version.

    Nothing keeps an actor from reading while the learner writes: it may act by weights of which some are newer.
    """

    def __init__(self, count: int) -> None:
        try:
            import torch.multiprocessing  # noqa: PLC0415  # heavy; teaches pickle to share tensors
        except ModuleNotFoundError as error:
            raise TrainingError(f"weights by torch need the module {error.name!r}; choose shared or file") from None
        self._weights: Any = torch.zeros(count).share_memory_()  # type: ignore[no-untyped-call]
        self._version: Any = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def publish(self, weights: NDArray[np.float32], version: int) -> None:
        """Copy weights ``[P]`` into the tensor."""
        self._weights.numpy()[:] = weights
        self._version.fill_(version)

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the tensor to ``target [P]`` unless its version is ``known``; returns the version."""
        version = int(self._version)
        if version != known:
            target[:] = self._weights.numpy()
        return version
