"""What a sampler and its shards say to each other, and how a shard answers.

A shard is a compiled replay in a process of its own. Processes of its node insert through shared memory; a sampler on
any node sends it requests, each of which updates priorities and then draws records.
"""

import contextlib
import secrets
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..replay import Replay, ReplayHandle


class ClusterError(RuntimeError):
    """The cluster cannot be used as asked for, with what to do about it."""


class EmptyError(RuntimeError):
    """No shard has a record that may be sampled."""


class LostError(Exception):
    """A shard ended, or its node did, before it answered."""


_REQUEST, _REPLY = struct.Struct("<qqqd"), struct.Struct("<qdqdqqqq?")
"""Heads of messages: all of a message is one string of bytes, which Ray sends in half the time of several arrays."""


class Request(NamedTuple):
    """A sampler's request to a shard.

    ``run`` identifies the shard's process that the tickets belong to; ``tickets [n]`` and ``errors [n]`` are updates of
    priorities, to be made first; ``uniforms [m]`` draw records afterwards; ``largest`` is the largest priority that the
    sampler knows.
    """

    run: int
    tickets: NDArray[np.int64] | None
    errors: NDArray[np.float64] | None
    uniforms: NDArray[np.float64] | None
    largest: float

    def pack(self) -> bytes:
        """Return the request as bytes."""
        arrays = [() if part is None else part for part in (self.tickets, self.errors, self.uniforms)]
        head = _REQUEST.pack(
            self.run, len(arrays[0]), len(arrays[2]) if self.uniforms is not None else -1, self.largest
        )
        return b"".join([head, *(part.tobytes() for part in arrays if not isinstance(part, tuple))])

    @classmethod
    def unpack(cls, message: bytes) -> "Request":
        """Return the request that was packed."""
        run, updates, draws, largest = _REQUEST.unpack_from(message)
        tickets = np.frombuffer(message, np.int64, updates, _REQUEST.size) if updates else None
        errors = np.frombuffer(message, np.float64, updates, _REQUEST.size + 8 * updates) if updates else None
        uniforms = np.frombuffer(message, np.float64, draws, _REQUEST.size + 16 * updates) if draws >= 0 else None
        return cls(run, tickets, errors, uniforms, largest)


class Reply(NamedTuple):
    """A shard's answer to a request.

    ``run`` identifies its process; ``total``, ``records`` and ``largest`` describe its replay at the end of the
    request; of the updates some were ``applied``, some came for records ``overwritten`` since, and some had
    ``expired``: they were for records of an earlier process. ``drawn`` has the bytes of what
    :meth:`impls.replay.Replay.draw` returns.
    """

    run: int
    total: float
    records: int
    largest: float
    written: int
    applied: int
    overwritten: int
    expired: int
    drawn: bytes | None

    def pack(self) -> bytes:
        """Return the reply as bytes."""
        *counts, drawn = self
        return _REPLY.pack(*counts, drawn is not None) + (drawn or b"")

    @classmethod
    def unpack(cls, message: bytes) -> "Reply":
        """Return the reply that was packed."""
        *counts, has_drawn = _REPLY.unpack_from(message)
        return cls._make([*counts, message[_REPLY.size :] if has_drawn else None])


class Calls(Protocol):
    """How a sampler reaches its shards, numbered from 0. Nothing else of a sampler knows a network."""

    count: int

    def ask(self, shard: int, request: Request) -> Any:
        """Send a request, and return at once a reference to its answer."""

    def answer(self, reference: Any, seconds: float) -> Reply:
        """Return the answer. TimeoutError where there is none within ``seconds``, LostError where none will be."""

    def list_ready(self, references: Sequence[Any]) -> Sequence[Any]:
        """Return those references whose answer, or loss, is known by now."""


class Shard:
    """A shard's process: a replay, which ``make`` makes, and its answers to requests."""

    def __init__(self, make: Callable[[], Replay]) -> None:
        self._replay = make()
        self._run = secrets.randbits(62) + 1  # 0 stands for a process that no sampler has heard of

    def handle(self) -> ReplayHandle:
        """A reference by which processes of the shard's node attach to its replay."""
        return self._replay.handle()

    def answer(self, request: Request) -> Reply:
        """Update priorities, then draw; ValueError for errors that are no priorities."""
        replay, applied, expired = self._replay, 0, 0
        sent = 0 if request.tickets is None else request.tickets.size
        if sent and request.run != self._run:
            expired = sent
        elif request.tickets is not None and request.errors is not None:
            applied = int(replay.update_priorities(request.tickets, request.errors).sum())
        if request.largest > replay.largest:
            replay.raise_largest(request.largest)
        drawn = None
        if request.uniforms is not None and replay.total > 0.0:
            with contextlib.suppress(RuntimeError):  # all records are being overwritten since the total was read
                drawn = replay.draw(request.uniforms).tobytes()
        counts = len(replay), replay.largest, replay.written
        return Reply(self._run, replay.total, *counts, applied, sent - applied - expired, expired, drawn)
