"""What the processes of a run share besides the replay: counters, the weights, what each process reports.

Nothing of it is an address. The parent makes it; children attach by its handle.
"""

import ctypes
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...replay.block import Handle, Memory, allocate
from .. import clock
from ..actor import Episode
from ..arrangement import Arrangement
from ..workload import Workload
from . import counter

LINE = 8 * counter.LINE_WORDS
Shapes = Mapping[str, tuple[tuple[int, ...], Any]]
"""(shape, dtype) of arrays by name."""


def whole_lines(size: int) -> int:
    """Bytes of as many whole cache lines as ``size`` bytes need."""
    return -(-size // LINE) * LINE


class SharedArrays:
    """One block of shared memory: first counters or mutexes, each in a line of its own, then arrays by name.

    Each array begins with a line. Without ``memory`` the block is made, and holds zeros.
    """

    def __init__(self, counters: int, shapes: Shapes, memory: Memory | None = None) -> None:
        sizes = [whole_lines(math.prod(shape) * np.dtype(dtype).itemsize) for shape, dtype in shapes.values()]
        starts = counters * LINE + np.cumsum([0, *sizes])
        self._memory = allocate(max(LINE, int(starts[-1])), True) if memory is None else memory
        self.arrays: dict[str, NDArray[Any]] = {
            name: self._memory.view(int(start), shape, dtype)
            for (name, (shape, dtype)), start in zip(shapes.items(), starts, strict=False)
        }

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def address(self, line: int) -> int:
        """The address of a counter or a mutex."""
        return self._memory.address + line * LINE

    def memory_handle(self) -> Handle:
        """A small picklable reference to the block, for children."""
        return self._memory.handle()


class Counter:
    """Counters of a run, and where its weights' version lies.

    Environment steps taken and begun, gradient steps taken and begun, pauses begun and ended (odd: a pause lasts),
    whether the run ends, whether the process that samples lacks records, the step after which no other begins, episodes
    that ended, environment steps of other machines, whether actors need not follow the pace for now, and the row from
    which on actors take no turn for now.
    """

    STEPS, CLAIMED_STEPS, UPDATES, CLAIMED_UPDATES, PAUSE, STOP, EMPTY, LAST_STEP, ENDED, VERSION, ELSEWHERE = range(11)
    UNPACED, FIRST_IDLE = 11, 12
    COUNT = 13


class Row:
    """Words of a process.

    The pause in which it rests; its turns (actors), gradient steps (learners) or batches (prefetchers); nanoseconds
    that it waited; gradient steps by which its weights or batches were behind, sum and most; most environment steps
    ahead of the ratio (actors) or behind it (learners); nanoseconds at work in its turns; whether it is started.
    """

    RESTING, TURNS, WAITED, LAG_SUM, LAG_MAX, LEAD, BUSY, LIVE = range(8)


EPISODES = 1024
_EPISODE_WORDS = 3
_MOST_LUCK, _TRY_AGAIN = 8, 32  # waits without luck after which looking is omitted, but for one wait in ``_TRY_AGAIN``
FREE = 1 << 60  # a limit that no counter reaches


class Stopped(Exception):
    """Raised in a child when the run is over or its parent process has died."""


Fetch = Callable[[NDArray[np.float32], int], int]
"""Takes an array ``[P]`` to fill and the version that it has; returns the version then, as ``Board.fetch``."""


class BoardHandle(NamedTuple):
    """A small picklable reference to a board."""

    memory: Handle
    processes: int
    actors: int
    weights: int
    parent: int
    base: int
    each: int
    transport: Any


class Board(SharedArrays):
    """Shared words of a run of ``processes`` processes, of which ``actors`` act; ``weights`` P numbers.

    ``rows [processes, 8]`` are the words of each process; of each actor ``episodes`` is a ring of those that ended, and
    ``rings`` counts how many were written and read. ``looks`` is how often a waiting process looks before it sleeps;
    where that was of no use lately, it rarely does.
    """

    def __init__(self, processes: int, actors: int, weights: int, memory: Memory | None = None, looks: int = 1) -> None:
        shapes: Shapes = {
            "rows": ((processes, counter.LINE_WORDS), np.int64),
            "rings": ((actors, 2, counter.LINE_WORDS), np.int64),
            "episodes": ((actors, EPISODES, _EPISODE_WORDS), np.float64),
            "weights": ((weights,), np.float32),
        }
        super().__init__(Counter.COUNT, shapes, memory)
        self._sizes = processes, actors, weights
        self.looks, self._luck, self._waits = looks, _MOST_LUCK, 0
        self._counters = [self.address(number) for number in range(Counter.COUNT)]
        self._values = [ctypes.c_int64.from_address(address) for address in self._counters]  # quicker than a kernel
        self._pause, self._stop = self._values[Counter.PAUSE], self._values[Counter.STOP]
        self.rows: NDArray[np.int64] = self["rows"]
        self.lines = [memoryview(row) for row in self.rows]  # the same words, each quicker to read and to write
        self._rings = [
            (counter.address_of(written), counter.address_of(read), ring)
            for (written, read), ring in zip(self["rings"], self["episodes"], strict=True)
        ]
        self._ended = 0  # episodes that were read
        self._version, self._weights = self._counters[Counter.VERSION], self["weights"]
        self._parent = os.getpid()
        self.watch: Callable[[], None] | None = None  # what the parent does in its waits in place of resting
        self.before_rest: Callable[[], None] = lambda: None  # what a child does in a pause before it rests
        self._base = 0  # gradient steps before the first publication
        self.each = 1  # gradient steps of a publication
        self.transport: Any = None  # a ``WeightTransport`` to actors in place of the vector of this board
        if memory is None:
            for number in (Counter.LAST_STEP, Counter.FIRST_IDLE):
                counter.add(self._counters[number], FREE)

    # Counters

    def value(self, number: int) -> int:
        """The value of a counter, one of ``Counter``.

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
        self.lines[row][Row.WAITED] += clock.nanoseconds() - began
        return is_there

    # Pauses and the end

    def arrive(self, row: int) -> None:
        """Let the parent know that a child is started: from here on a pause waits for it to rest.

        The child looks by ``check`` before it does anything else; the receiver of records does when all have come.
        """
        self.rows[row, Row.LIVE] = 1
        self.add(Counter.STEPS, 0)  # a fence: either the parent sees this child, or this child sees the parent's pause

    def check(self, row: int) -> None:
        """Rest while a pause lasts, as every child does between two turns; Stopped when the run is over.

        In the parent: look after the children, which raises TrainingError when one failed.
        """
        if self.watch is not None:
            self.watch()
            return
        pause = self._pause.value
        if not (pause & 1 or self._stop.value):
            return
        self.raise_if_stopped()
        self.before_rest()
        self.rows[row, Row.RESTING] = pause
        while not counter.reached(self._counters[Counter.PAUSE], pause + 1, 1):
            self.raise_if_stopped()
        self.rows[row, Row.RESTING] = 0

    @property
    def is_paused(self) -> bool:
        """Whether a pause lasts."""
        return bool(self._pause.value & 1)

    def rests(self, row: int) -> bool:
        """Whether a process rests in the present pause, or is not started and will rest once it is."""
        return not self.rows[row, Row.LIVE] or int(self.rows[row, Row.RESTING]) == self.value(Counter.PAUSE)

    def raise_if_stopped(self) -> None:
        """Stopped when the run is over."""
        if self.value(Counter.STOP) or os.getppid() != self._parent:
            raise Stopped

    def reclaim_steps_of_dead_processes(self) -> None:
        """While every process rests: let steps that ended processes had claimed be claimed again."""
        self.set(Counter.CLAIMED_STEPS, self.value(Counter.STEPS))  # which are equal, but for what the ended ones had
        for number in (Counter.STEPS, Counter.UPDATES):
            counter.forget(self._counters[number])

    def stop(self) -> None:
        """Let every process end at its next look."""
        self.add(Counter.STOP)

    # Weights

    def begin_at(self, weights: NDArray[np.float32], steps: int, updates: int, kept: int = 0) -> None:
        """Hand out the first weights ``[P]`` of a run that is a given number of steps on; before any child is begun.

        The last ``kept`` gradient steps are not in these weights yet.
        """
        for number in (Counter.STEPS, Counter.CLAIMED_STEPS):
            self.set(number, steps)
        for number in (Counter.UPDATES, Counter.CLAIMED_UPDATES):
            self.set(number, updates)
        self._base = updates - kept - int(counter.value_of(self._version)) // 2 * self.each
        self.publish(weights)

    def publish(self, weights: NDArray[np.float32]) -> None:
        """Hand out weights ``[P]`` after a gradient step, also by their transport if there is one; one process does."""
        counter.publish(self._version, self._weights, weights)
        if self.transport is not None:
            self.transport.publish(weights, int(counter.value_of(self._version)))

    @property
    def acting_weights(self) -> Fetch:
        """The function by which actors fetch weights: :meth:`fetch`, or that of the transport of weights."""
        return self.fetch if self.transport is None else self.transport.fetch

    def fetch(self, target: NDArray[np.float32], known: int) -> int:
        """Copy the newest weights ``[P]`` to ``target`` unless their version is ``known``; returns their version.

        Versions are even, and 2 more with each publication; 0 before the first. -1 if a publisher died in the middle.
        """
        return int(counter.fetch(self._version, self._weights, target, known))

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
        self.add(Counter.ENDED)

    def episodes(self) -> list[tuple[int, Episode]]:
        """(step, episode) of those that ended since the last call, in the order of their steps."""
        ended: list[tuple[int, Episode]] = []
        if self._ended == self.value(Counter.ENDED):
            return ended
        self._ended = self.value(Counter.ENDED)
        for written, taken, ring in self._rings:
            first, stop = counter.value_of(taken), counter.value_of(written)
            for at in range(first, stop):
                score, length, step = ring[at % EPISODES]
                ended.append((int(step), Episode(float(score), int(length))))
            counter.add(taken, stop - first)
        return sorted(ended, key=lambda pair: pair[0])

    # Sharing

    def handle(self) -> BoardHandle:
        """A small picklable reference, by which a child attaches."""
        return BoardHandle(self.memory_handle(), *self._sizes, self._parent, self._base, self.each, self.transport)

    @classmethod
    def attach(cls, handle: BoardHandle, looks: int) -> "Board":
        """The board of a handle, in a child of the process that made it."""
        board = cls(handle.processes, handle.actors, handle.weights, handle.memory.attach(), looks)
        board._parent, board._base = handle.parent, handle.base
        board.each, board.transport = handle.each, handle.transport
        return board


def processes_of(workload: Workload, arrangement: Arrangement) -> dict[str, range]:
    """The row of every process on the board: learners first, of which the parent is number 0, actors, then who keeps
    the replay: a keeper, or the two units."""
    learners, last = arrangement.learners, arrangement.learners + workload.actors.count
    rows = {"learner": range(learners), "actor": range(learners, last)}
    if arrangement.units == "two":
        return rows | {"tree": range(last, last + 1), "storage": range(last + 1, last + 2)}
    return rows | {"keeper": range(last, last + (arrangement.name == "pipelined"))}
