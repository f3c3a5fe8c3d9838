"""Ctrl-C that waits for a gradient step to end, so that what is saved then is whole."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, and the run is between two gradient steps."""


class Interrupts:
    """While the context lasts, the first Ctrl-C is only noted; the second is a KeyboardInterrupt, as elsewhere.

    Nothing changes unless ``are_noted``, or in a thread that is not the main one.
    """

    def __init__(self, are_noted: bool = True) -> None:
        self._are_noted = are_noted and threading.current_thread() is threading.main_thread()
        self._is_noted = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._are_noted:
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._are_noted:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Interrupted where Ctrl-C was pressed since the context began."""
        if self._is_noted:
            raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_noted:
            raise KeyboardInterrupt
        self._is_noted = True
