"""A run of a network of queues in milliseconds, for every answer: what ``simulation.py`` plays, without its library.

The same rules: an engine serves in the order of arrival; D + 1 batches go round and round; actors and transfers that no
batch waits for may be D + 1 behind or ahead. A test holds the two against each other.

A **process** repeats its operations: it takes one thing out of a box, or puts one into it, and waits where it is empty
or full; or it is served by an engine. Batches, actors and each link of a chain beside them are processes.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..stats import STRETCHES, batch_means
from .problem import Configuration, Problem
from .simulation import ACTORS, Network, Visit, factors, network

TAKE, PUT, SERVE, DONE = range(4)
Operation = tuple[int, int, float]
"""(kind, box or engine, mean seconds)."""
STEPS = {0.0: 200, 1.0: 1000}
"""Steps of a run by the coefficient of variation of its times."""


@dataclass(frozen=True)
class Simulated:
    """Gradient steps a second of a run, within the 95 % interval of its own length; ``cv``: of the times.

    Exact times for cv = 0, else drawn from gamma distributions, exponential for cv = 1.
    """

    hz: float
    low: float
    high: float
    cv: float


def simulated(problem: Problem, configuration: Configuration, actors: bool = True) -> tuple[Simulated, ...]:
    """Runs of a configuration that fits, with exact times and with exponential ones."""
    loop = network(problem, configuration, actors)
    return tuple(run(loop, configuration.depth, cv, steps) for cv, steps in STEPS.items())


def run(loop: Network, depth: int, cv: float, steps: int, seed: int = 0) -> Simulated:
    """A run of ``steps`` after a warm-up; at least ``STRETCHES``."""
    warm = max(steps // 10, 4 * (depth + 1))
    ends = np.array(_Queues(loop, depth + 1, factors(cv, seed)).finished(warm + steps)[warm - 1 :])
    each, half = batch_means(ends)
    return Simulated(1 / each, 1 / (each + half), 1 / max(each - half, each / STRETCHES), cv)


class _Queues:
    """Processes, boxes and engines by their numbers."""

    def __init__(self, loop: Network, under_way: int, factor: Iterator[float]) -> None:
        self._capacity, self._factor, self._count = under_way, factor, 0
        self._engine = {engine: number for number, engine in enumerate(loop.busy)}
        self._level: list[int] = []
        self.programs: list[list[Operation]] = []
        doors: dict[int, list[Operation]] = {}
        for place, chain in loop.beside:
            doors.setdefault(place, []).append((PUT, self._line(chain), 0.0))
        turns: list[Operation] = []
        if loop.actors:
            box = self._box()
            turns = [(TAKE, box, 0.0)]
            self.programs.append([self._serve(loop.actors), (PUT, box, 0.0), *doors.get(ACTORS, [])])
        for place, visit in enumerate(loop.round):
            turns += [self._serve(visit), *doors.get(place, [])]
        self.programs += [[*turns, (DONE, 0, 0.0)]] * under_way

    def _box(self) -> int:
        self._level.append(0)
        return len(self._level) - 1

    def _serve(self, visit: Visit) -> Operation:
        return SERVE, self._engine[visit.engine], visit.seconds

    def _line(self, chain: tuple[Visit, ...]) -> int:
        """Adds a process for each visit; returns the box before the first of them."""
        boxes = [self._box() for _ in chain]
        for place, visit in enumerate(chain):
            gives = [(PUT, box, 0.0) for box in boxes[place + 1 : place + 2]]
            self.programs.append([(TAKE, boxes[place], 0.0), self._serve(visit), *gives])
        return boxes[0]

    def finished(self, steps: int) -> list[float]:
        """When each of so many steps ended."""
        self._empty, self._full = ([deque[int]() for _ in self._level] for _ in range(2))
        self._lines, self._busy = [deque[int]() for _ in self._engine], [False] * len(self._engine)
        self._at, self._ended, self._now = [0] * len(self.programs), list[float](), 0.0
        self._events, self._ready = list[tuple[float, int, int]](), deque(range(len(self.programs)))
        while True:
            # Invariant: who is not ready waits in one line of an engine or a box, or is served until its event.
            while self._ready:
                self._advance(self._ready.popleft())
            if len(self._ended) >= steps:
                return self._ended[:steps]
            self._now, _, process = heapq.heappop(self._events)
            engine = self.programs[process][self._at[process]][1]
            self._busy[engine] = False
            if self._lines[engine]:
                self._begin(self._lines[engine].popleft(), engine)
            self._next(process)

    def _begin(self, process: int, engine: int) -> None:
        self._busy[engine] = True
        self._count += 1  # of equal times the first that began ends first
        ends = self._now + self.programs[process][self._at[process]][2] * next(self._factor)
        heapq.heappush(self._events, (ends, self._count, process))

    def _next(self, process: int) -> None:
        """A process that waited goes on with its next operation."""
        self._at[process] = (self._at[process] + 1) % len(self.programs[process])
        self._ready.append(process)

    def _advance(self, process: int) -> None:
        """Runs a process until it waits."""
        program, level, at = self.programs[process], self._level, self._at
        while True:
            kind, which, _ = program[at[process]]
            if kind == SERVE:
                if self._busy[which]:
                    self._lines[which].append(process)
                else:
                    self._begin(process, which)
                return
            if kind == DONE:
                self._ended.append(self._now)
            elif not self._moved(kind, which, process, level):
                return
            at[process] = (at[process] + 1) % len(program)

    def _moved(self, kind: int, box: int, process: int, level: list[int]) -> bool:
        """Whether a thing could be taken or put; whoever waited for that goes on. Else the process waits."""
        mine, others = (self._empty, self._full) if kind == TAKE else (self._full, self._empty)
        if level[box] == (0 if kind == TAKE else self._capacity):
            mine[box].append(process)
            return False
        if others[box]:  # what one puts another takes at once
            self._next(others[box].popleft())
        else:
            level[box] += 1 if kind == PUT else -1
        return True
