"""Turns of compiled trees among threads and forks, and the one pool of numba's threads."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types
from numpy.typing import NDArray

from . import kernels
from .compiling import compiler
from .turns import survive_forks, waits, within

# numba's workqueue layer aborts the process when two Python threads enter parallel kernels at once: one lock for all.
_parallel_entry = threading.RLock()
_parallel_pid: int | None = None


class KernelTurns:
    """Turns of a tree whose kernels take them by themselves; a call whose kernel was BUSY waits here."""

    def __init__(self, header: NDArray[Any]) -> None:
        self._header = header  # may outlive the tree while a fork holds it
        self._line = threading.RLock()  # reentrant, because a signal handler may take it again
        self._fork: int | None = None  # the thread that forks and holds the line
        self.orphaned = False
        self._turn = functools.partial(_turn(), int(header.ctypes.data), kernels.EDITION)
        survive_forks(self)

    def wait(self, kernel: Any, *arguments: Any) -> int:
        """Call the kernel from the head of the line until it is not BUSY; returns its status."""
        address, _, *constants = kernel.args
        with self._line:
            try:
                # Invariant: a kernel that was BUSY has left the lock CLOSED to all but the head, which is this call.
                for seconds in waits():
                    status: int = kernel.func(address, True, *constants, *arguments)
                    if status != kernels.BUSY:
                        break
                    time.sleep(seconds)
            finally:
                self._turn(kernels.OPEN)
        return status

    def try_to_hold(self, seconds: float) -> bool:
        """Wait until no call is inside and let none in; False if that takes longer. An orphan needs no hold."""
        if self.orphaned:
            return True
        if not self._line.acquire(timeout=seconds):
            return False
        self._fork = threading.get_ident()
        if within(seconds, lambda: self._turn(kernels.HOLD)):
            return True
        self.let_go()
        return False

    def let_go(self) -> None:
        """Let calls in again, if this thread holds it."""
        if self._fork == threading.get_ident():
            self._turn(kernels.LET_GO)
            self._turn(kernels.OPEN)
            self._fork = None
            self._line.release()

    def be_alone(self) -> None:
        """Forget every other thread, in a forked child that has none: an update by another thread is an orphan now."""
        self.orphaned = bool(self._header[kernels.LOCK] & kernels.WRITES)
        self._header[kernels.LOCK] = kernels.WRITES if self.orphaned else 0
        self._header[kernels.SEQUENCE] |= self.orphaned
        self._line, self._fork = threading.RLock(), None

    def adopt(self, mend: Callable[[], object], rebuild: Callable[[], object]) -> None:
        """End an orphaned update: ``mend`` what kernels rely on, then ``rebuild`` the sums, before any other call."""
        with self._line:
            if self.orphaned:
                mend()
                self._header[kernels.LOCK] = kernels.CLOSED
                self.orphaned = False
                rebuild()  # as the head of the line, for whom alone it is open


@functools.cache
def _turn() -> Callable[..., bool]:
    """The compiled entry of :func:`kernels.turn`."""
    signature = (types.int64, types.literal(kernels.EDITION), types.int64)
    compiler.run(kernels.turn.compile, signature)
    entry: Callable[..., bool] = kernels.turn.overloads[signature].entry_point
    return entry


@contextlib.contextmanager
def numba_threads(count: int) -> Iterator[None]:
    """Sole use of numba's thread pool, ``count`` threads of it at most."""
    global _parallel_pid  # noqa: PLW0603  # the pool, too, is one for the process
    pid = os.getpid()
    if _parallel_pid not in (None, pid):  # asked before the lock, which a fork may have copied locked
        raise RuntimeError(
            "numba's threads do not survive a fork: start this process by 'spawn' or 'forkserver', or make "
            "the tree with threads=1"
        )
    _parallel_pid = pid
    with _parallel_entry:
        before = numba.get_num_threads()
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        try:
            yield
        finally:
            numba.set_num_threads(before)
