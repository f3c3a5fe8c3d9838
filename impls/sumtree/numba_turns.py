"""Turns of compiled trees among threads and forks, and the threads that help to search and to update."""

import contextlib
import functools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from .compiling import compiler
from .kernels import header, searching
from .turns import survive_forks, waits, within


class KernelTurns:
    """Turns of a tree whose kernels take them by themselves; a call whose kernel was BUSY waits here."""

    def __init__(self, words: NDArray[Any]) -> None:
        self._header = words  # may outlive the tree while a fork holds it
        self._line = threading.RLock()  # reentrant, because a signal handler may take it again
        self._fork: int | None = None  # the thread that forks and holds the line
        self.orphaned = False
        self._turn = functools.partial(_turn(), int(words.ctypes.data))
        survive_forks(self)

    def wait(self, kernel: Any, *arguments: Any) -> int:
        """Call the kernel from the head of the line until it is not BUSY; returns its status."""
        address, _, *constants = kernel.args
        with self._line:
            try:
                # Invariant: a kernel that was BUSY has left the lock CLOSED to all but the head, which is this call.
                for seconds in waits():
                    status: int = kernel.func(address, True, *constants, *arguments)
                    if status != header.BUSY:
                        break
                    time.sleep(seconds)
            finally:
                self._turn(header.OPEN)
        return status

    def try_to_hold(self, seconds: float) -> bool:
        """Wait until no call is inside and let none in; False if that takes longer. An orphan needs no hold."""
        if self.orphaned:
            return True
        if not self._line.acquire(timeout=seconds):
            return False
        self._fork = threading.get_ident()
        if within(seconds, lambda: self._turn(header.HOLD)):
            return True
        self.let_go()
        return False

    def let_go(self) -> None:
        """Let calls in again, if this thread holds it."""
        if self._fork == threading.get_ident():
            self._turn(header.LET_GO)
            self._turn(header.OPEN)
            self._fork = None
            self._line.release()

    def be_alone(self) -> None:
        """Forget every other thread, in a forked child that has none: an update by another thread is an orphan now."""
        self.orphaned = bool(self._header[header.LOCK] & header.WRITES)
        self._header[header.LOCK] = header.WRITES if self.orphaned else 0
        self._header[header.SEQUENCE] |= self.orphaned
        self._line, self._fork = threading.RLock(), None

    def adopt(self, mend: Callable[[], object], rebuild: Callable[[], object]) -> None:
        """End an orphaned update: ``mend`` what kernels rely on, then ``rebuild`` the sums, before any other call."""
        with self._line:
            if self.orphaned:
                mend()
                self._header[header.LOCK] = header.CLOSED
                self.orphaned = False
                rebuild()  # as the head of the line, for whom alone it is open


@functools.cache
def _turn() -> Callable[..., bool]:
    """The compiled entry of :func:`kernels.header.turn`."""
    signature = (types.int64, types.int64)
    compiler.run(header.turn.compile, signature)
    entry: Callable[..., bool] = header.turn.overloads[signature].entry_point
    return entry


class Helper:
    """A thread of this process that helps with large batches, and sleeps between two of them."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="fanout-helper", daemon=True).start()

    def ask(self, *job: Any) -> None:
        """Let the thread call a kernel; ``job`` is who owns its memory, the kernel and its arguments; none ends it."""
        self._jobs.put(job)

    def _work(self) -> None:
        with contextlib.suppress(AttributeError, OSError):  # of Linux: else it may take the caller's core as it wakes
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        while job := self._jobs.get():
            _, kernel, *arguments = job
            kernel(*arguments)
            del kernel, arguments, job  # no tree lives on for its helpers' sake


class Helpers:
    """The helpers of a process, which one call at a time has, and what they share with it."""

    def __init__(self) -> None:
        self._all: list[Helper] = []
        self._turn, self._asked = threading.Lock(), 0
        self._room = np.zeros(searching.room_of(1), np.int64)
        self._found: dict[np.dtype[Any], tuple[NDArray[Any], ...]] = {}

    def search(
        self,
        count: int,
        owner: object,
        search: Any,
        help_search: Any,
        values: NDArray[Any],
        uniform: bool,
        *answer: Any,
    ) -> int:
        """Search a batch of an ``owner`` of kernels together with ``count`` helpers, into arrays for the answer.

        Returns the status: BUSY where the caller is to search by itself, also since the tree was changed meanwhile.
        """

        def prepare() -> tuple[Any, Any]:
            found = self._make_room(values.size, answer[1].dtype)
            return (values, uniform, *answer, *found), (values, uniform, *found)

        return self._share(count, owner, values.size, search, help_search, prepare)

    def update(
        self, count: int, owner: object, update: Any, help_update: Any, indices: Any, priorities: Any, scratch: Any
    ) -> int:
        """Update a batch of an ``owner`` of kernels together with ``count`` helpers; returns the status, as above."""
        arguments = (indices, priorities, scratch), (indices.size, scratch)
        return self._share(count, owner, indices.size, update, help_update, lambda: arguments)

    def _share(
        self, count: int, owner: object, batch: int, kernel: Any, help_kernel: Any, prepare: Callable[[], Any]
    ) -> int:
        """Call a kernel while ``count`` helpers call another; ``prepare`` returns the arguments of both.

        Returns the status: BUSY where the caller is to go alone, since others have the helpers, one of them is late
        from the batch before, no thread can be started, or the kernel was.
        """
        if not count or not self._turn.acquire(blocking=False):
            return header.BUSY
        try:
            if self._room[searching.ENDED] < self._asked or not self._has(count):
                return header.BUSY
            # Invariant: no helper uses the room or the arrays, and so they may be written or replaced.
            own, theirs = prepare()
            if len(self._room) < (words := searching.room_of(batch)):
                self._room = np.zeros(words, np.int64)
            self._room[0], self._room[searching.ENDED], self._asked = searching.CLOSED_TICKET, 0, count
            address = int(self._room.ctypes.data)
            for helper in self._all[:count]:
                helper.ask((owner, self._room), help_kernel, address, *theirs)
            status: int = kernel(address, *own)
            return status
        except BaseException:  # such as Ctrl-C before all were asked, for whom the next call would wait
            _forget_helpers()
            raise
        finally:
            self._room[0] = abs(searching.CLOSED_TICKET)  # a helper that still waits for its chunks waits no longer
            self._turn.release()

    def _has(self, count: int) -> bool:
        """Whether there are that number of helpers, or can be."""
        with contextlib.suppress(RuntimeError):  # no thread can be started
            while len(self._all) < count:
                self._all.append(Helper())
        return len(self._all) >= count

    def end(self) -> None:
        """Let each helper end once it has no job."""
        for helper in self._all:
            helper.ask()

    def _make_room(self, batch: int, dtype: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
        """Return the helpers' arrays, for at least so large a batch."""
        found = self._found.get(dtype)
        if found is None or len(found[0]) < batch:
            found = self._found[dtype] = np.empty(batch, np.int64), np.empty(batch, dtype)
        return found


class Sharing:
    """Whether a tree shares its batches with helpers: as the last calls of either kind were faster.

    Where no core is free, a helper costs more than it gives.
    """

    _WORTH = 0.95  # the part of the time alone from which on it pays: what differs by less is luck on busy cores
    _LAST, _EVERY = 15, 50  # calls of each kind that are judged; one in 50 is of the other kind, to see if it pays

    def __init__(self) -> None:
        self._seconds = deque[float](maxlen=self._LAST), deque[float](maxlen=self._LAST)  # alone, shared
        self._calls = 0

    def is_worth_it(self) -> bool:
        """Whether the next batch is shared."""
        alone, shared = self._seconds
        if len(shared) < self._LAST or len(alone) < self._LAST:
            return len(shared) <= len(alone)
        self._calls += 1
        middle = self._LAST // 2
        return (sorted(shared)[middle] < self._WORTH * sorted(alone)[middle]) != (self._calls % self._EVERY == 0)

    def add(self, shared: bool, seconds: float) -> None:
        """Note the time an element of a batch that was shared, or not."""
        self._seconds[shared].append(seconds)


helpers = Helpers()


def _forget_helpers() -> None:
    """Begin with none, as in a forked child, which has no such threads."""
    global helpers  # noqa: PLW0603  # they are one for the process
    helpers.end()
    helpers = Helpers()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_helpers)
