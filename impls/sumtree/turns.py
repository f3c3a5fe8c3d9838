"""Turns at a tree: any number of calls that share it may be inside, or a single one that does not.

A call first tries to enter at once. If a call that it must not meet is inside, it stands in line: the one at the head
keeps out whoever comes later, so that nobody starves, and looks again and again until the tree is free. Those behind it
sleep in the operating system. Ctrl-C ends any wait.

A fork takes its turn at every tree for a moment, so that a child inherits no tree in the middle of an update. Where
that takes more than a second, because a call is long or waits for another tree itself, the fork goes ahead: the child
frees the tree of the threads that it does not have, and recomputes the sums of an update that was cut short.
"""

import functools
import itertools
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

_LOOKS = 50  # at a tree that is not free, with no wait between them but to let other threads run
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 50e-6, 1e-3


def waits() -> Iterator[float]:
    """Seconds to sleep after each look in vain: nothing at first, a millisecond in the end."""
    yield from itertools.repeat(0.0, _LOOKS)
    seconds = _SHORTEST_WAIT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)


def within(seconds: float, succeed: Callable[[], bool]) -> bool:
    """Call ``succeed`` until it returns true; False if that takes longer than a given number of seconds."""
    end = time.monotonic() + seconds
    for pause in waits():
        if succeed():
            return True
        if time.monotonic() > end:
            break
        time.sleep(pause)
    return False


class Holdable(Protocol):
    """Turns that a fork holds while it copies the process."""

    def try_to_hold(self, seconds: float) -> bool:
        """Wait until no call is inside and let none in; False if that takes longer."""

    def let_go(self) -> None:
        """Let calls in again, if this thread holds it."""

    def be_alone(self) -> None:
        """Forget every other thread, in a forked child that has none."""


class Turns:
    """Turns of trees whose code Python runs."""

    def __init__(self) -> None:
        # Invariant: a call is listed before it looks at the others, so of two that must not meet at least one sees the
        # other. Whatever interrupts a call, it is listed no longer. By thread: whether it is inside, or looks.
        self._together: dict[int, bool] = {}  # calls that share
        self._alone: dict[int, bool] = {}  # calls that do not
        self._line = threading.RLock()  # reentrant, because a signal handler may take it again
        self._head_waits = False
        self._fork: int | None = None  # the thread that forks and holds the line
        survive_forks(self)

    def run(self, shared: bool, hook: Callable[..., Result], *arguments: Any) -> Result:
        """Run the hook once no call is inside that it must not meet; returns its result.

        RuntimeError for a call from within another one of the same thread: it would wait for itself.
        """
        me = threading.get_ident()
        if self._is_inside(me):
            raise RuntimeError(
                "this thread is inside another call of the same tree, which a signal handler or a finalizer has "
                "interrupted: let the handler set a flag, and call the tree where the flag is read (a tree's own "
                "methods call its underscored ones)"
            )
        mine = self._together if shared else self._alone
        try:
            if self._head_waits or not self._enter(me, shared):
                self._stand_in_line(me, shared)
            return hook(*arguments)
        finally:
            mine.pop(me, None)

    def _is_inside(self, me: int) -> bool:
        """Whether this thread is inside a call; one that it interrupts while that looks is to look again."""
        if me not in self._alone and me not in self._together:
            return False
        if self._alone.get(me) or self._together.get(me):
            return True
        self._alone.pop(me, None)
        self._together.pop(me, None)
        return False

    def _enter(self, me: int, shared: bool) -> bool:
        """Enter if no call is inside that this one must not meet; whether it did."""
        mine = self._together if shared else self._alone
        mine[me] = False
        if not self._alone if shared else not self._together and len(self._alone) == 1:
            if me in mine:  # else a signal handler's call had its turn meanwhile
                mine[me] = True
                return True
        mine.pop(me, None)
        return False

    def _stand_in_line(self, me: int, shared: bool) -> None:
        with self._line:
            try:
                # Invariant: this thread is at the head, so that calls that come later queue behind it.
                for seconds in waits():
                    self._head_waits = True  # each time, for a signal handler's call may have been the head meanwhile
                    if self._enter(me, shared):
                        return
                    time.sleep(seconds)
            finally:
                self._head_waits = False

    def try_to_hold(self, seconds: float) -> bool:
        """Wait until no call is inside and let none in; False if that takes longer."""
        me = threading.get_ident()
        if self._is_inside(me):  # a signal handler forks: the child continues with the call
            return True
        if not self._line.acquire(timeout=seconds):
            return False
        self._fork, self._head_waits = me, True
        if within(seconds, lambda: self._enter(me, False)):
            return True
        self.let_go()
        return False

    def let_go(self) -> None:
        """Let calls in again, if this thread holds it."""
        if self._fork == threading.get_ident():
            self._alone.pop(self._fork, None)
            self._fork, self._head_waits = None, False
            self._line.release()

    def be_alone(self) -> None:
        """Forget every other thread, in a forked child that has none."""
        me = threading.get_ident()
        for listed in (self._alone, self._together):
            for thread in listed.keys() - {me}:
                del listed[thread]
        self._line, self._head_waits, self._fork = threading.RLock(), False, None


# Forks. There is one set for the process, because it forks as a whole.

_LONGEST_FORK_WAIT_SECONDS = 1.0
_MOMENT_SECONDS = 0.01
_PATIENCE_SECONDS = 0.05  # with one tree that is busy, while others are held

_all: weakref.WeakSet[Holdable] = weakref.WeakSet()
_listing = threading.RLock()
_held: dict[int, list[Holdable]] = {}  # by the thread that forks
_interrupted: set[int] = set()


def survive_forks(turns: Holdable) -> None:
    """Register the turns of a tree, so that forks wait for them."""
    with _listing:
        _all.add(turns)


def _before_fork() -> None:
    me = threading.get_ident()
    taken = _held[me] = []
    try:
        _hold_all(taken)
    except KeyboardInterrupt:  # an exception in here is lost, so it is raised again after the fork
        _interrupted.add(me)


def _hold_all(taken: list[Holdable]) -> None:
    """Hold every tree, or, after a while, those that are free; ``taken`` lists them."""
    with _listing:
        every = list(_all)
    end = time.monotonic() + _LONGEST_FORK_WAIT_SECONDS
    while not all(_is_held(turns, taken, _PATIENCE_SECONDS) for turns in every):
        if time.monotonic() > end:
            for turns in every:
                _is_held(turns, taken, 0.0)
            return
        _let_go(taken)  # the call inside the tree that is missing may wait for one of these
        time.sleep(_MOMENT_SECONDS)


def _is_held(turns: Holdable, taken: list[Holdable], seconds: float) -> bool:
    """Hold the turns, if they are not held already; whether they are."""
    if turns in taken:
        return True
    # Invariant: whatever this fork holds is listed, so that it lets go of it even where it is interrupted here.
    taken.append(turns)
    if turns.try_to_hold(seconds):
        return True
    taken.pop()
    return False


def _let_go(taken: list[Holdable]) -> None:
    while taken:
        taken[-1].let_go()
        taken.pop()


def _after_fork(in_child: bool) -> None:
    global _listing  # noqa: PLW0603  # another thread may have had it
    me = threading.get_ident()
    _let_go(_held.pop(me, []))
    if in_child:
        _listing = threading.RLock()
        _held.clear()
        for turns in list(_all):
            turns.be_alone()
    if me in _interrupted:
        _interrupted.discard(me)
        if not in_child:  # a moment later, for an exception in here is lost as well
            threading.Timer(_MOMENT_SECONDS, signal.raise_signal, [signal.SIGINT]).start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=functools.partial(_after_fork, False),
        after_in_child=functools.partial(_after_fork, True),
    )
