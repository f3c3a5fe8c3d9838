"""Ctrl-C and SIGTERM that wait for a gradient step to end, so that what is saved then is whole."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}
"""What asks a run to end, and how that is told."""
_LOOK_SECONDS = 0.2


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, or SIGTERM was sent: ``number`` of ``SIGNALS``; ``saved`` says what became of the run."""

    def __init__(self, number: int = signal.SIGINT, saved: str = "") -> None:
        self.number, self.saved = signal.Signals(number), saved
        super().__init__("; ".join(filter(None, (SIGNALS[self.number], saved))))

    @property
    def exit_code(self) -> int:
        """What a shell says of a process that such a signal ended."""
        return 128 + self.number


class Interrupts:
    """While the context lasts, the first signal is only noted; a second Ctrl-C is a KeyboardInterrupt, as elsewhere.

    ``told`` is called when the first comes; ``number`` is that signal, None before. Nothing changes in a thread that is
    not the main one.
    """

    def __init__(self, told: Callable[[], None] = lambda: None) -> None:
        self._told = told
        self.number: int | None = None
        self._is_at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

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
        elif number == signal.SIGINT:  # SIGTERM may come twice: to this process, and to its group
            raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """While the context lasts, SIGTERM raises Interrupted, as Ctrl-C raises KeyboardInterrupt."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def end_with(parent: int) -> None:
    """From now on this process gets SIGTERM as soon as ``parent``, which started it, has ended."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, daemon=True).start()
