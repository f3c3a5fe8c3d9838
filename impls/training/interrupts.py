"""Ctrl-C, SIGTERM and SIGHUP that wait for a gradient step to end, so that what is saved then is whole."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, Self

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)  # by a terminal that is closed, where there are such
SIGNALS = {signal.SIGINT: "interrupted", HANGUP: "ended by SIGHUP", signal.SIGTERM: "ended by SIGTERM"}
"""What asks a run to end, and how that is told."""
_ENDS = {HANGUP, signal.SIGTERM}
_LOOK_SECONDS = 0.2


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, or a signal was sent: ``number`` of ``SIGNALS``; ``saved`` says what became of the run."""

    def __init__(self, number: int = signal.SIGINT, saved: str = "") -> None:
        self.number, self.saved = signal.Signals(number), saved
        super().__init__("; ".join(filter(None, (SIGNALS[self.number], saved))))

    @property
    def exit_code(self) -> int:
        """The exit code by which a shell tells that such a signal ended a process."""
        return 128 + self.number


class Interrupts(contextlib.ExitStack):
    """While the context lasts, the first signal is only noted; a second Ctrl-C is a KeyboardInterrupt, as elsewhere.

    ``told`` is called when the first comes; ``number`` is that signal, None before. Nothing changes in a thread that is
    not the main one.
    """

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._told = told
        self.number: int | None = None
        self._is_at_once = False

    def __enter__(self) -> Self:
        self.enter_context(catching(self._note, SIGNALS))
        return self

    def check(self) -> None:
        """Interrupted where a signal has come since the context began."""
        if self.number is not None:
            raise Interrupted(self.number)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Around what changes nothing of a loop: a signal raises Interrupted there, also one that was noted before."""
        self._is_at_once = True
        try:
            self.check()
            yield
        finally:
            self._is_at_once = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            self._told()
            if self._is_at_once:
                raise Interrupted(number)
        elif number == signal.SIGINT:  # others may come twice: to this process, and to its group
            raise KeyboardInterrupt


@contextlib.contextmanager
def catching(end: Callable[[int, FrameType | None], object], numbers: Iterable[int]) -> Iterator[None]:
    """While the context lasts, these signals call ``end``, in the main thread; SIGHUP does not where nohup ignores it.

    After the first of them SIGHUP is ignored, because a terminal that is closed sends more than one.
    """
    before: dict[int, Any] = {}

    def heed(number: int, frame: FrameType | None) -> None:
        if before.pop(HANGUP, None) is not None:
            signal.signal(HANGUP, signal.SIG_IGN)
        end(number, frame)

    if threading.current_thread() is threading.main_thread():
        heeded = [one for one in numbers if one != HANGUP or signal.getsignal(one) != signal.SIG_IGN]
        before |= {number: signal.signal(number, heed) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def terminable() -> contextlib.AbstractContextManager[None]:
    """While the context lasts, SIGTERM and SIGHUP raise Interrupted, as Ctrl-C raises KeyboardInterrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    return catching(end, _ENDS)


def exiting() -> contextlib.AbstractContextManager[None]:
    """While the context lasts, SIGTERM and SIGHUP end this process, after what its contexts have to do."""
    return catching(lambda number, _: sys.exit(128 + number), _ENDS)


def end_with(parent: int) -> None:
    """Let this process get SIGTERM as soon as ``parent``, which started it, has ended."""
    _watch(parent, lambda: os.kill(os.getpid(), signal.SIGTERM))


def _watch(parent: int, end: Callable[[], object]) -> None:
    """Call ``end`` once another process adopts this one, whatever it waits for, imports or computes then."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        end()

    threading.Thread(target=look, daemon=True).start()


def _end_at_once_after(parent: int) -> None:
    _watch(parent, lambda: os._exit(1))


class WatchedParent:
    """Unpickled in a child, it begins to watch the process that pickled it, which is its parent.

    Where it is the first argument that a child unpickles, the child ends with its parent from its first moment on:
    this module imports nothing heavy, and the watch begins before the modules of the other arguments are imported.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _end_at_once_after, (os.getpid(),)


def enter(_: None, program: Callable[..., None], *arguments: Any) -> None:
    """Run a child's program; ``_`` is what ``WatchedParent`` has become."""
    program(*arguments)
