"""A configuration as a network of queues, simulated in milliseconds: how close the bound of ``law.py`` is.

An engine serves one thing at a time, in the order of arrival, and lets it finish. Each of the D + 1 batches under way
goes round and round: sampling, storage, learner, updating, and every transfer that it waits for. Sampling and updating
of different batches meet on one engine where they share it, which a bound leaves out.

What no batch waits for (new records, weights) runs concurrently: actors make the environment steps of one gradient step
at a time, and each batch drawn needs one such turn; transfers that do not wait follow what sets them off. All of these
may be D + 1 ahead or behind, no more, so a slow one holds up the whole.

A network with a ``data_queue`` has the processing units of [Zhang2023, Table II and Fig. 7]: the tree (sampling and
updating), storage and the learner are threads of the host. Each takes one batch at a time out of its queue, has it
served by engines, and keeps it until there is room in the next unit's queue; the engines are free meanwhile.

A **process** repeats its operations: it takes a thing out of a **box**, or puts one into it, and waits where the box is
empty or full; or it is served by an engine. Batches, actors and each link of a **chain** are processes. A test plays
the same with a library (simpy).

Letters: D batches sampled ahead (so D + 1 are under way), cv coefficient of variation of a time (deviation over mean).
"""

import heapq
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from impls.training.arrangement import REQUESTS

from ..estimate import Estimate, Evidence
from ..stats import STRETCHES, batch_means
from .law import slowdowns, transfers
from .problem import Configuration, Problem, ProblemError

DRAWN = 4096  # random times at once
ACTORS = -1  # the place of actors, before all places of the round
TAKE, PUT, SERVE, DONE = range(4)
Operation = tuple[int, Any, float]
"""(kind, box or engine, mean seconds)."""
Process = Iterator[Operation]
"""What a process has to do next, without end."""
UNITS = {"sampling": "tree", "storage": "storage", "learner": "learner", "updating": "tree"}
"""The processing unit of each part of the round."""
STEPS = {0.0: 200, 1.0: 1000}
"""Steps of a run by the coefficient of variation of its times."""


@dataclass(frozen=True)
class Visit:
    """An engine, and the seconds that it is kept busy on average."""

    engine: str
    seconds: float


@dataclass(frozen=True)
class Network:
    """``round``: what a batch passes, in order. ``actors``: their visit per gradient step; None leaves them out.

    ``chains``: (place, visits): what follows when the visit at this place of the round, or that of ACTORS, has ended.
    ``places``: (place, part) of each part's own visit. ``data_queue``: batches that the learner's queue takes, the
    others ``REQUESTS``; 0 is without units and queues.
    """

    round: tuple[Visit, ...]
    actors: Visit | None = None
    chains: tuple[tuple[int, tuple[Visit, ...]], ...] = ()
    places: tuple[tuple[int, str], ...] = field(default=(), compare=False)
    data_queue: int = 0

    def __post_init__(self) -> None:
        for visit in self.visits:
            if not 0 < visit.seconds < math.inf:
                raise ProblemError(f"a visit of {visit.engine} must take a finite time above 0, not {visit.seconds}")

    @property
    def visits(self) -> tuple[Visit, ...]:
        """All that a gradient step asks of engines."""
        actors = (self.actors,) if self.actors else ()
        return (*self.round, *actors, *(visit for _, visits in self.chains for visit in visits))

    @property
    def busy(self) -> dict[str, float]:
        """Seconds per gradient step that each engine is busy, and each unit, which serves a batch at a time."""
        spent, unit, parts = defaultdict[str, float](float), "", dict(self.places if self.data_queue else ())
        for visit in self.visits:
            spent[visit.engine] += visit.seconds
        for place, visit in enumerate(self.round if self.data_queue else ()):
            unit = f"{UNITS[parts[place]]} unit" if place in parts else unit
            spent[unit] += visit.seconds
        return dict(spent)

    @property
    def queues(self) -> dict[str, float]:
        """Batches that the queue before a part takes: before the first, where a round begins, any number."""
        sizes = {"sampling": math.inf, "learner": self.data_queue}
        return {part: sizes.get(part, REQUESTS) for _, part in self.places if self.data_queue}

    @property
    def round_seconds(self) -> float:
        """Seconds of a round without any waiting."""
        return sum(visit.seconds for visit in self.round)


def network(problem: Problem, configuration: Configuration, actors: bool = True) -> Network:
    """The network of a configuration that fits, without actors and their traffic unless ``actors``.

    Further engines that a part keeps busy are so as soon as it is done with its own.
    """
    where, slower = configuration.where, slowdowns(problem, configuration.where)
    spent = {option.part: option.seconds * slower[option.part] for option in configuration.options}
    chains = list[tuple[str, tuple[Visit, ...]]]()
    before, after = defaultdict[str, list[Visit]](list), defaultdict[str, list[Visit]](list)
    for flow, hops in itertools.groupby(transfers(problem, where), key=lambda pair: pair[0]):
        visits = tuple(Visit(hop.engine, seconds) for _, hop in hops if (seconds := hop.seconds(flow)))
        if not visits or ("actors" in (flow.source, flow.target) and not actors):
            continue
        if not flow.waits:
            chains.append((flow.source, visits))
        elif flow.source == "actors":
            before[flow.target] += visits
        else:
            after[flow.source] += visits
    for part in problem.parts if actors else problem.loop:
        chains += [(part, (Visit(engine, spent[part]),)) for _, engine in where[part][1:]]
    round, places = list[Visit](), {"actors": ACTORS}
    for part in problem.loop:
        round += before[part]
        places[part] = len(round)
        round += [Visit(where[part][0][1], spent[part]), *after[part]]
    acting = Visit(where["actors"][0][1], spent["actors"]) if actors else None
    chained = tuple((places[part], visits) for part, visits in chains)
    return Network(tuple(round), acting, chained, tuple((places[part], part) for part in problem.loop))


def draw_factors(cv: float, seed: int) -> Iterator[float]:
    """Yield random numbers of mean 1 and deviation cv."""
    if cv == 0:
        yield from itertools.repeat(1.0)
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.gamma(1 / cv**2, cv**2, DRAWN).tolist()


@dataclass(frozen=True)
class Simulated:
    """Gradient steps/s of a run, within the 95 % interval of its own length; ``cv``: of the times.

    Exact times for cv = 0, else drawn from gamma distributions, exponential for cv = 1.
    """

    hz: float
    low: float
    high: float
    cv: float


def run_configuration(problem: Problem, configuration: Configuration, actors: bool = True) -> tuple[Simulated, ...]:
    """Runs of a configuration that fits, with exact times and with exponential ones."""
    loop = network(problem, configuration, actors)
    return tuple(run(loop, configuration.depth, cv, steps) for cv, steps in STEPS.items())


def run(loop: Network, depth: int, cv: float, steps: int, seed: int = 0) -> Simulated:
    """A run of ``steps`` after a warm-up; at least ``STRETCHES``. A seed gives the same run always."""
    warm = max(steps // 10, 4 * (depth + 1))
    ends = np.array(_Queues(loop, depth + 1, draw_factors(cv, seed)).play(warm + steps)[warm - 1 :])
    each, half = batch_means(ends)
    return Simulated(1 / each, 1 / (each + half), 1 / max(each - half, each / STRETCHES), cv)


def watch_queues(loop: Network, depth: int, cv: float, steps: int) -> dict[str, tuple[float, int]]:
    """Run ``steps`` steps; return by part the mean of batches in its queue, and how many waited because it was full."""
    made = _Queues(loop, depth + 1, draw_factors(cv, 0))
    end = made.play(steps)[-1]
    return {part: (box.area / end, box.full) for part, box in made.queues.items() if math.isfinite(box.capacity)}


def simulate(loop: Network, depth: int, cv: float = 0.0, steps: int = 2000, seed: int = 0) -> Estimate:
    """Gradient steps/s of a run as an estimate, which may exceed the bound slightly: by steps that were under way when
    counting began. ProblemError for a negative depth or cv, or too few steps to bound a rate.
    """
    if depth < 0 or not 0 <= cv < math.inf or steps < STRETCHES:
        raise ProblemError(
            f"a simulation wants a depth and cv from 0 on and {STRETCHES} steps at least, not {depth}, {cv} and {steps}"
        )
    rate = run(loop, depth, cv, steps, seed)
    if rate.high >= rate.hz * STRETCHES:
        raise ProblemError(f"{steps} simulated steps of cv = {cv:g} are too few to bound their rate; simulate more")
    evidence = Evidence("simulation", "modeled", f"{steps:,} steps with times of cv = {cv:g}")
    return Estimate(rate.hz, rate.low, rate.high, evidence)


@dataclass(eq=False)
class _Box:
    """Things that were set off and not yet begun, and the processes that wait to take or to put one."""

    capacity: float
    things: int = 0
    full: int = 0  # puts that waited for room
    area: float = 0.0  # things by the seconds that they were in it, until ``changed_at``
    changed_at: float = 0.0
    takers: deque[Process] = field(default_factory=deque)
    putters: deque[Process] = field(default_factory=deque)


class _Queues:
    """The processes of a network with ``under_way`` batches, the most that a box holds."""

    def __init__(self, loop: Network, under_way: int, factors: Iterator[float]) -> None:
        self._factors, self._count = factors, itertools.count()
        self._now, self._ended = 0.0, list[float]()
        self._ready, self._events = deque[Process](), list[tuple[float, int, str, Process]]()
        self._busy, self._lines = set[str](), defaultdict[str, deque[tuple[Process, float]]](deque)
        starts = defaultdict[int, list[Operation]](list)
        for place, visits in loop.chains:
            box = _Box(under_way)
            starts[place].append((PUT, box, 0.0))
            for number, visit in enumerate(visits, 1):
                after = _Box(under_way)
                passes = [(PUT, after, 0.0)] if number < len(visits) else []
                self._add((TAKE, box, 0.0), (SERVE, visit.engine, visit.seconds), *passes)
                box = after
        batch = list[Operation]()
        if loop.actors:
            turns = _Box(under_way)
            batch.append((TAKE, turns, 0.0))
            self._add((SERVE, loop.actors.engine, loop.actors.seconds), (PUT, turns, 0.0), *starts[ACTORS])
        self.queues = {part: _Box(size) for part, size in loop.queues.items()}
        units, parts = {unit: _Box(1, 1) for unit in UNITS.values()}, dict(loop.places if loop.data_queue else ())
        release: list[Operation] = []
        for place, visit in enumerate(loop.round):
            if place in parts:
                unit, queue = units[UNITS[parts[place]]], self.queues[parts[place]]
                batch += [(PUT, queue, 0.0), *release, (TAKE, unit, 0.0), (TAKE, queue, 0.0)]
                release = [(PUT, unit, 0.0)]
            batch += [(SERVE, visit.engine, visit.seconds), *starts[place]]
        batch += release
        for _ in range(under_way):
            self._add(*batch, (DONE, None, 0.0))

    def _add(self, *operations: Operation) -> None:
        self._ready.append(itertools.cycle(operations))

    def play(self, steps: int) -> list[float]:
        """When each step ended."""
        while True:
            # Invariant: who is not ready waits at a box or in the line of an engine, or is served until its event.
            while self._ready:
                self._advance(self._ready.popleft())
            if len(self._ended) >= steps:
                return self._ended[:steps]
            if not self._events:
                raise ProblemError("every unit waits for a queue that is full: fewer batches ahead, or larger queues")
            self._now, _, engine, process = heapq.heappop(self._events)
            self._busy.remove(engine)
            if self._lines[engine]:
                self._serve(engine, *self._lines[engine].popleft())
            self._ready.append(process)

    def _serve(self, engine: str, process: Process, seconds: float) -> None:
        self._busy.add(engine)
        ends = self._now + seconds * next(self._factors)
        heapq.heappush(self._events, (ends, next(self._count), engine, process))  # of equal times the first that began

    def _advance(self, process: Process) -> None:
        """Runs a process until it waits."""
        for kind, what, seconds in process:
            if kind == DONE:
                self._ended.append(self._now)
            elif kind == SERVE:
                if what in self._busy:
                    self._lines[what].append((process, seconds))
                else:
                    self._serve(what, process, seconds)
                return
            else:
                own, others = (what.takers, what.putters) if kind == TAKE else (what.putters, what.takers)
                if what.things == (0 if kind == TAKE else what.capacity):
                    own.append(process)
                    what.full += kind == PUT
                    return
                what.area, what.changed_at = what.area + what.things * (self._now - what.changed_at), self._now
                if others:  # what one puts another takes at once
                    self._ready.append(others.popleft())
                else:
                    what.things += 1 if kind == PUT else -1
