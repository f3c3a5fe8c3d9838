"""What the processes of a run share besides the replay: counters, the weights, what each process reports.

    header     one counter a line: see the constants
    rows       one line of words a process: its counts, and whether it rests
    episodes   of each actor a ring of those that ended, and how many of them were read
    weights    a sequence word, then the numbers

Nothing in it is an address. The parent makes it; children attach by its handle.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...replay.block import Handle, Memory, allocate
from .. import clock
from ..actor import Episode
from ..workload import Workload
from . import counter
from .arrangement import Arrangement
from .route import Fetch, Route

STEPS, CLAIMED_STEPS, UPDATES, CLAIMED_UPDATES, PAUSE, STOP, EMPTY, LAST_STEP, ENDED, HEADER = range(10)
"""Counters: environment steps taken and begun, gradient steps taken and begun, pauses begun and ended (odd: one goes
on), whether the run ends, whether who samples lacks records, the step after which no other begins, and episodes that
ended."""
LINE = 8 * counter.LINE_WORDS
RESTING, TURNS, WAITED, STALE, STALEST, LEAD, BUSY, LIVE = range(8)
"""Words of a process: the pause in which it rests; its turns (actors), gradient steps (learners) or batches (keepers);
nanoseconds that it waited; gradient steps by which its weights or batches were behind, sum and most; most environment
steps ahead of the ratio (actors) or behind it (learners); nanoseconds at work in its turns; whether it is started."""
EPISODES = 1024
_EPISODE_WORDS = 3
_MOST_LUCK, _TRY_AGAIN = 8, 32  # waits without luck after which looking is omitted, but for one wait in ``_TRY_AGAIN``
FREE = 1 << 60  # a limit that nobody reaches


class Stopped(Exception):
    """The run ends, or its parent has."""


class BoardHandle(NamedTuple):
    """A small picklable reference to a board."""

    memory: Handle
    processes: int
    actors: int
    weights: int
    parent: int
    base: int
    each: int
    route: Route | None


class Board:
    """Shared words of a run of ``processes`` processes, of which ``actors`` act; ``weights`` P numbers.

    ``looks`` is how often a waiting process looks before it sleeps; where that was of no use lately, it rarely does.
    """

    def __init__(self, processes: int, actors: int, weights: int, memory: Memory | None = None, looks: int = 1) -> None:
        self._sizes = processes, actors, weights
        self.looks, self._luck, self._waits = looks, _MOST_LUCK, 0
        starts = np.cumsum(
            [0, HEADER * LINE, processes * LINE, actors * (LINE * 2 + 8 * EPISODES * _EPISODE_WORDS), LINE]
        )
        rows, episodes, sequence, numbers = (int(start) for start in starts[1:])
        self._memory = allocate(numbers + 4 * weights, True) if memory is None else memory
        base = self._memory.address
        self._counters = [base + number * LINE for number in range(HEADER)]
        self._values = [ctypes.c_int64.from_address(address) for address in self._counters]  # quicker than a kernel
        self._pause, self._stop = self._values[PAUSE], self._values[STOP]
        self.rows = self._memory.view(rows, (processes, counter.LINE_WORDS), np.int64)
        self.lines = [memoryview(row) for row in self.rows]  # the same words, each quicker to read and to write
        size = LINE * 2 + 8 * EPISODES * _EPISODE_WORDS
        self._rings = [self._ring(episodes + number * size) for number in range(actors)]
        self._ended = 0  # episodes that were read
        self._sequence = base + sequence
        self._weights: NDArray[np.float32] = self._memory.view(numbers, (weights,), np.float32)
        self._parent = os.getpid()
        self.watch: Callable[[], None] | None = None  # what the parent does in its waits in place of resting
        self.before_rest: Callable[[], None] = lambda: None  # what a child does in a pause before it rests
        self._base = 0  # gradient steps before the first publication
        self.each = 1  # gradient steps of a publication
        self.route: Route | None = None  # by which actors get weights in place of the vector of this board
        if memory is None:
            counter.add(self._counters[LAST_STEP], FREE)

    # Counters

    def value(self, number: int) -> int:
        """The value of a counter, one of the constants of this module.

        Whoever reads what others wrote before they added to it waits by ``look``, which orders the reads.
        """
        return self._values[number].value

    def add(self, number: int, amount: int = 1) -> int:
        """Add to a counter, and wake who waits for it; returns its value before."""
        return int(counter.add(self._counters[number], amount))

    def set(self, number: int, value: int) -> None:
        """Set a counter that nobody else changes meanwhile."""
        self.add(number, value - self.value(number))

    def claim(self, number: int, amount: int, limit: int) -> int:
        """Add to a counter unless that goes beyond the limit; returns its value before, or -1."""
        return int(counter.claim(self._counters[number], amount, limit))

    def wait(self, number: int, least: int, row: int) -> None:
        """Wait until a counter is at least ``least``, for as long as the run continues; Stopped when it ends.

        A process that waits also rests where a pause is asked for. ``row`` is its own, which counts the time.
        """
        while not self.look(number, least, row):
            self.check(row)

    def look(self, number: int, least: int, row: int) -> bool:
        """Wait for at most 20 ms until a counter is at least ``least``; returns whether it is."""
        return self.look_at(self._counters[number], least, row)

    def look_at(self, address: int, least: int, row: int) -> bool:
        """:meth:`look` at a counter anywhere in memory that is shared."""
        if counter.value_of(address) >= least:
            return True
        began, is_there = clock.nanoseconds(), False
        self._waits += 1
        if self.looks > 1 and (self._luck > 0 or self._waits % _TRY_AGAIN == 0):
            # Invariant: luck is higher the more of the last waits ended while this process looked.
            is_there = bool(counter.seen(address, least, self.looks))
            self._luck = min(_MOST_LUCK, self._luck + 1) if is_there else max(0, self._luck - 1)
        is_there = is_there or bool(counter.reached(address, least, 1))
        self.lines[row][WAITED] += clock.nanoseconds() - began
        return is_there

    # Pauses and the end

    def arrive(self, row: int) -> None:
        """Let the parent know that a child is started: from here on a pause waits for it to rest.

        The child looks by ``check`` before it does anything else; who receives does when all is settled.
        """
        self.rows[row, LIVE] = 1
        self.add(STEPS, 0)  # a fence: either the parent sees this child, or this child sees the parent's pause

    def check(self, row: int) -> None:
        """What every child does between two turns: rest while a pause lasts; Stopped when the run is over.

        In the parent: look after the children, which raises TrainingError when one failed.
        """
        if self.watch is not None:
            self.watch()
            return
        pause = self._pause.value
        if not (pause & 1 or self._stop.value):
            return
        self.go_on()
        self.before_rest()
        self.rows[row, RESTING] = pause
        while not counter.reached(self._counters[PAUSE], pause + 1, 1):
            self.go_on()
        self.rows[row, RESTING] = 0

    @property
    def is_paused(self) -> bool:
        """Whether a pause lasts."""
        return bool(self._pause.value & 1)

    def rests(self, row: int) -> bool:
        """Whether a process rests in the present pause, or is not started and will rest once it is."""
        return not self.rows[row, LIVE] or int(self.rows[row, RESTING]) == self.value(PAUSE)

    def go_on(self) -> None:
        """Stopped when the run is over."""
        if self.value(STOP) or os.getppid() != self._parent:
            raise Stopped

    def level(self) -> None:
        """While every process rests: steps that ended processes had claimed can be claimed again."""
        self.set(CLAIMED_STEPS, self.value(STEPS))  # which are equal, but for what the ended ones had
        for number in (STEPS, UPDATES):
            counter.forget(self._counters[number])

    def stop(self) -> None:
        """Let every process end at its next look."""
        self.add(STOP)

    # Weights

    def begin_at(self, weights: NDArray[np.float32], steps: int, updates: int, kept: int = 0) -> None:
        """Hand out the first weights ``[P]`` of a run that is a given number of steps on; before any child is begun.

        The last ``kept`` gradient steps are not in these weights yet.
        """
        for number, value in ((STEPS, steps), (CLAIMED_STEPS, steps), (UPDATES, updates), (CLAIMED_UPDATES, updates)):
            self.set(number, value)
        self._base = updates - kept - int(counter.value_of(self._sequence)) // 2 * self.each
        self.publish(weights)

    def publish(self, weights: NDArray[np.float32]) -> None:
        """Hand out weights ``[P]`` after a gradient step, also by the route if there is one; one process does."""
        counter.publish(self._sequence, self._weights, weights)
        if self.route is not None:
            self.route.publish(weights, int(counter.value_of(self._sequence)))

    @property
    def acting_weights(self) -> Fetch:
        """What actors fetch weights by: :meth:`fetch`, or that of the route."""
        return self.fetch if self.route is None else self.route.fetch

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the newest weights ``[P]`` to ``target`` unless their version is ``known``; returns their version.

        Versions are even, and 2 more with each publication; 0 before the first. -1 if a publisher died in the middle.
        """
        return int(counter.fetch(self._sequence, self._weights, target, known))

    def published(self, version: int) -> int:
        """Gradient steps behind the weights of a version: the first publication is of the weights to begin with."""
        return self._base + (version // 2 - 1) * self.each

    # Episodes

    def report(self, actor: int, episode: Episode, step: int, row: int) -> None:
        """Let the parent know of an episode that ended at an environment step."""
        written, taken, ring = self._rings[actor]
        at = counter.value_of(written)
        while not self.look_at(taken, at - EPISODES + 1, row):
            self.check(row)
        ring[at % EPISODES] = episode.score, episode.length, step
        counter.add(written, 1)
        self.add(ENDED)

    def episodes(self) -> list[tuple[int, Episode]]:
        """(step, episode) of those that ended since the last call, in the order of their steps."""
        ended: list[tuple[int, Episode]] = []
        if self._ended == self.value(ENDED):
            return ended
        self._ended = self.value(ENDED)
        for written, taken, ring in self._rings:
            first, stop = counter.value_of(taken), counter.value_of(written)
            for at in range(first, stop):
                score, length, step = ring[at % EPISODES]
                ended.append((int(step), Episode(float(score), int(length))))
            counter.add(taken, stop - first)
        return sorted(ended, key=lambda pair: pair[0])

    def _ring(self, start: int) -> tuple[int, int, NDArray[np.float64]]:
        address = self._memory.address + start
        return address, address + LINE, self._memory.view(start + 2 * LINE, (EPISODES, _EPISODE_WORDS), np.float64)

    # Sharing

    def handle(self) -> BoardHandle:
        """What a child attaches by."""
        return BoardHandle(self._memory.handle(), *self._sizes, self._parent, self._base, self.each, self.route)

    @classmethod
    def attach(cls, handle: BoardHandle, looks: int) -> "Board":
        """The board of a handle, in a child of the process that made it."""
        board = cls(handle.processes, handle.actors, handle.weights, handle.memory.attach(), looks)
        board._parent, board._base, board.each, board.route = handle.parent, handle.base, handle.each, handle.route
        return board


def processes_of(workload: Workload, arrangement: Arrangement) -> dict[str, range]:
    """The row of every process on the board: learners first, of which the parent is number 0, actors, the keeper."""
    learners, actors = arrangement.learners, workload.actors.count
    keepers = int(arrangement.name == "pipelined")
    return {
        "learner": range(learners),
        "actor": range(learners, learners + actors),
        "keeper": range(learners + actors, learners + actors + keepers),
    }


def plain(rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """The rows by the names of their words."""
    names = ("resting", "turns", "waited", "stale", "stalest", "lead", "busy", "live")
    return [dict(zip(names, map(int, row), strict=True)) for row in rows]
