"""Who may be inside a tree: any number of calls that share it, or a single one that does not.

A call first tries to enter at once. If a call that it must not meet is inside, it stands in line: the one at the head
keeps out whoever comes later, so that nobody starves, and looks again and again until the tree is free. Those behind it
sleep in the operating system. Ctrl-C ends any wait.

A fork takes its turn at every tree, so that no child inherits one in the middle of an update, or a lock whose owner is
a thread that the child does not have.
"""

import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

_LOOKS = 50  # at a tree that is not free, before the wait between two of them is more than letting others run
_SHORTEST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 50e-6, 1e-3


def waits() -> Iterator[float]:
    """Seconds to sleep after each look in vain: nothing at first, a millisecond in the end."""
    yield from itertools.repeat(0.0, _LOOKS)
    seconds = _SHORTEST_WAIT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)


class Held(Protocol):
    """What a fork holds while it copies the process."""

    def hold(self) -> None:
        """Wait until no call is inside, and let none in."""

    def let_go(self, in_child: bool) -> None:
        """Let calls in again; ``in_child`` of a fork the threads that other calls belong to do not exist."""


class Turns:
    """Turns of trees whose code Python runs.

    Invariant: a call is in its set before it looks at the other one, so of two that must not meet one at least sees the
    other. Whatever interrupts a call, it leaves its set.
    """

    def __init__(self) -> None:
        self._together: set[int] = set()  # threads whose calls share
        self._alone: set[int] = set()  # threads whose calls do not
        self._line = threading.RLock()  # that a signal handler may take again
        self._head_waits = False
        self._forks_within = False  # whether the thread that forks is inside a call
        survive_forks(self)

    def run(self, shared: bool, hook: Callable[..., Result], *arguments: Any) -> Result:
        """What the hook returns, once no call is inside that it must not meet.

        RuntimeError for a call from within another one of the same thread: it would wait for itself.
        """
        me = threading.get_ident()
        if me in self._alone or me in self._together:
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
            mine.discard(me)

    def _enter(self, me: int, shared: bool) -> bool:
        """Whether the call is inside."""
        mine = self._together if shared else self._alone
        mine.add(me)
        if not self._alone if shared else not self._together and len(self._alone) == 1:
            return True
        mine.discard(me)
        return False

    def _stand_in_line(self, me: int, shared: bool) -> None:
        with self._line:
            try:
                for seconds in waits():
                    self._head_waits = True  # each time, for a signal handler's call may have been the head meanwhile
                    if self._enter(me, shared):
                        return
                    time.sleep(seconds)
            finally:
                self._head_waits = False

    def hold(self) -> None:
        """Wait until no call is inside, and let none in."""
        self._line.acquire()
        me = threading.get_ident()
        self._forks_within = me in self._alone or me in self._together
        if not self._forks_within:
            self._stand_in_line(me, False)

    def let_go(self, in_child: bool) -> None:
        """Let calls in again; ``in_child`` of a fork the threads that other calls belong to do not exist."""
        me = threading.get_ident()
        if not self._forks_within:
            self._alone.discard(me)
        if in_child:
            self._alone &= {me}
            self._together &= {me}
        self._line.release()


# Forks. There is one set for the process, because it forks as a whole.

_all: weakref.WeakSet[Held] = weakref.WeakSet()
_one_fork = threading.RLock()
_held: list[Held] = []


def survive_forks(turns: Held) -> None:
    """Have forks wait for the turns of a tree that is about to be used."""
    with _one_fork:  # a fork has seen every tree, or this one is not in use yet
        _all.add(turns)


def _before_fork() -> None:
    _one_fork.acquire()
    _held.extend(_all)
    for turns in _held:
        turns.hold()


def _after_fork(in_child: bool) -> None:
    while _held:
        _held.pop().let_go(in_child)
    _one_fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=functools.partial(_after_fork, False),
        after_in_child=functools.partial(_after_fork, True),
    )
