"""A configuration as a network of queues, run in milliseconds: what ``law.py`` bounds, this shows.

An engine serves one thing at a time, in the order of arrival, and lets it finish. Each of the D + 1 batches under way
goes round and round: sampling, storage, learner, updating, and every transfer that it waits for. Sampling and updating
of different batches meet on one engine where they share it, which is what a bound leaves out.

What no batch waits for (new records, weights) goes beside: actors make the environment steps of one gradient step at a
time, and each batch drawn needs such a turn; transfers that do not wait follow what sets them off. All of these may be
D + 1 ahead or behind, no more, so a slow one holds up the whole. The queues of [Zhang2023] (200 or 10 batches) are not
there: one that holds D batches never fills, a shorter one never leaves the learner without a batch.

A **process** repeats its operations: it takes one thing out of a box, or puts one into it, and waits where it is empty
or full; or it is served by an engine. Batches, actors and each link of a chain beside them are processes. A test plays
the same with a library (simpy).

Letters: D batches sampled ahead (so D + 1 are under way), cv coefficient of variation of a time (deviation over mean).
"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..estimate import Estimate, Evidence
from ..stats import STRETCHES, batch_means
from .law import slowdowns, transfers
from .problem import Configuration, Problem, ProblemError

DRAWN = 4096  # random times at once
ACTORS = -1  # the place of actors, before all places of the round
TAKE, PUT, SERVE, DONE = range(4)
Operation = tuple[int, int, float]
"""(kind, box or engine, mean seconds)."""
STEPS = {0.0: 200, 1.0: 1000}
"""Steps of a run by the coefficient of variation of its times."""


@dataclass(frozen=True)
class Visit:
    """An engine that is kept busy for so long, on average."""

    engine: str
    seconds: float


@dataclass(frozen=True)
class Network:
    """``round``: what a batch passes, in order. ``actors``: their visit a gradient step; None leaves them out.

    ``beside``: (place, visits): what follows when the visit at this place of the round, or that of ACTORS, has ended.
    """

    round: tuple[Visit, ...]
    actors: Visit | None = None
    beside: tuple[tuple[int, tuple[Visit, ...]], ...] = ()

    def __post_init__(self) -> None:
        for visit in self.visits:
            if not 0 < visit.seconds < math.inf:
                raise ProblemError(f"a visit of {visit.engine} must take a finite time above 0, not {visit.seconds}")

    @property
    def visits(self) -> tuple[Visit, ...]:
        """All that a gradient step asks of engines."""
        chains = [visits for _, visits in self.beside]
        return (*self.round, *((self.actors,) if self.actors else ()), *itertools.chain(*chains))

    @property
    def busy(self) -> dict[str, float]:
        """Seconds a gradient step keeps each engine busy."""
        spent: dict[str, float] = {}
        for visit in self.visits:
            spent[visit.engine] = spent.get(visit.engine, 0.0) + visit.seconds
        return spent

    @property
    def round_seconds(self) -> float:
        """A batch takes for a round without any waiting."""
        return sum(visit.seconds for visit in self.round)


def network(problem: Problem, configuration: Configuration, actors: bool = True) -> Network:
    """The network of a configuration that fits, without actors and their traffic unless ``actors``.

    Further engines that a part keeps busy are so as soon as it is done with its own.
    """
    where = configuration.where
    slower = slowdowns(problem, where)
    spent = {one.part: one.seconds * slower[one.part] for one in configuration.options}
    round, places, beside = list[Visit](), {"actors": ACTORS}, list[tuple[str, tuple[Visit, ...]]]()
    after, before = ({part: list[Visit]() for part in problem.loop} for _ in range(2))
    for flow, hops in itertools.groupby(transfers(problem, where), key=lambda one: one[0]):
        chain = tuple(Visit(hop.engine, hop.seconds(flow)) for _, hop in hops if hop.seconds(flow))
        if not chain or ("actors" in (flow.source, flow.target) and not actors):
            continue
        if not flow.waits:
            beside.append((flow.source, chain))
        elif flow.source == "actors":
            before[flow.target] += chain
        else:
            after[flow.source] += chain
    for part in (one for one in problem.parts if actors or one in problem.loop):
        beside += [(part, (Visit(engine, spent[part]),)) for _, engine in where[part][1:]]
    for part in problem.loop:
        round += before[part]
        places[part] = len(round)
        round += [Visit(where[part][0][1], spent[part]), *after[part]]
    acting = Visit(where["actors"][0][1], spent["actors"]) if actors else None
    return Network(tuple(round), acting, tuple((places[part], chain) for part, chain in beside))


def factors(cv: float, seed: int) -> Iterator[float]:
    """Random numbers of mean 1 and deviation cv."""
    if cv == 0:
        yield from itertools.repeat(1.0)
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.gamma(1 / cv**2, cv**2, DRAWN).tolist()


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
    """A run of ``steps`` after a warm-up; at least ``STRETCHES``. A seed gives the same run always."""
    warm = max(steps // 10, 4 * (depth + 1))
    ends = np.array(_Queues(loop, depth + 1, factors(cv, seed)).finished(warm + steps)[warm - 1 :])
    each, half = batch_means(ends)
    return Simulated(1 / each, 1 / (each + half), 1 / max(each - half, each / STRETCHES), cv)


def simulate(loop: Network, depth: int, cv: float = 0.0, steps: int = 2000, seed: int = 0) -> Estimate:
    """Gradient steps a second of a run as an estimate, which may show slightly more than the bound: by steps that were
    under way when counting began. ProblemError for a negative depth or cv, or too few steps to bound a rate.
    """
    if depth < 0 or not 0 <= cv < math.inf or steps < STRETCHES:
        raise ProblemError(
            f"a simulation wants a depth and cv from 0 on and {STRETCHES} steps at least, not {depth}, {cv} and {steps}"
        )
    found = run(loop, depth, cv, steps, seed)
    if found.high >= found.hz * STRETCHES:
        raise ProblemError(f"{steps} simulated steps of cv = {cv:g} are too few to bound their rate; simulate more")
    evidence = Evidence("simulation", "modeled", f"{steps:,} steps with times of cv = {cv:g}")
    return Estimate(found.hz, found.low, found.high, evidence)


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
