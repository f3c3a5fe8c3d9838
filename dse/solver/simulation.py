"""A configuration as a network of queues, played event by event: what ``throughput.py`` bounds, this shows.

An engine serves one thing at a time, in the order of arrival, and lets it finish. Each of the D + 1 batches under way
goes round and round: sampling, storage, learner, updating, and every transfer that it waits for. Sampling and updating
of different batches meet on one engine where they share it, which is what a bound leaves out.

What no batch waits for (new records, weights) goes beside: actors make the environment steps of one gradient step at a
time, and each batch drawn needs such a turn; transfers that do not wait follow what sets them off. All of these may be
D + 1 ahead or behind, no more, so a slow one holds up the whole.

The queues of [Zhang2023] (200 or 10 batches, 1024 requests) are not there: one that holds D batches never fills, a
shorter one never leaves the learner without a batch.

Letters: D batches sampled ahead (so D + 1 are under way), cv coefficient of variation of a time (deviation over mean).
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimate import Estimate, Evidence
from ..stats import STRETCHES, batch_means
from .problem import LOOP, Configuration, Problem, ProblemError
from .throughput import seconds, transfers

DRAWN = 4096  # random times at once
ACTORS = -1  # the place of actors, before all places of the round


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
    spent = seconds(problem, configuration)
    after: dict[str, list[Visit]] = {part: [] for part in LOOP}
    before: dict[str, list[Visit]] = {part: [] for part in LOOP}
    aside: list[tuple[str, tuple[Visit, ...]]] = []
    for flow, hops in itertools.groupby(transfers(problem, configuration), key=lambda one: one[0]):
        chain = tuple(Visit(hop.engine, taken) for _, hop, taken in hops if taken)
        if not chain or ("actors" in (flow.source, flow.target) and not actors):
            continue
        if not flow.waits:
            aside.append((flow.source, chain))
        elif flow.source == "actors":
            before[flow.target] += chain
        else:
            after[flow.source] += chain
    for option in configuration.options:
        if option.part in LOOP or actors:
            aside += [(option.part, (Visit(engine, spent[option.part]),)) for _, engine in option.also]
    visits: list[Visit] = []
    places = {"actors": ACTORS}
    for part in LOOP:
        visits += before[part]
        places[part] = len(visits)
        visits += [Visit(configuration.of(part).engine, spent[part]), *after[part]]
    acting = Visit(configuration.actors.engine, spent["actors"]) if actors else None
    return Network(tuple(visits), acting, tuple((places[part], chain) for part, chain in aside))


def simulate(loop: Network, depth: int, cv: float = 0.0, steps: int = 2000, seed: int = 0) -> Estimate:
    """Gradient steps a second over ``steps`` of them after a warm-up, with the 95 % interval from means of stretches.

    Times are exact for cv = 0, else drawn from gamma distributions.

    A draw is of one visit, around its mean, whatever the others were; a seed gives the same run always. A run may show
    slightly more than the bound: by steps that were under way when counting began. ProblemError for a negative depth or
    cv, or too few steps, which may be fewer than it takes to bound a rate from above.
    """
    import simpy  # noqa: PLC0415  # only here

    if depth < 0 or not 0 <= cv < math.inf or steps < STRETCHES:
        raise ProblemError(
            f"a simulation wants a depth and cv from 0 on and {STRETCHES} steps at least, not {depth}, {cv} and {steps}"
        )
    under_way = depth + 1
    warm = max(steps // 10, 4 * under_way)
    world = simpy.Environment()
    finished: list[float] = []
    enough = world.event()

    def done() -> None:
        finished.append(world.now)
        if len(finished) == warm + steps:
            enough.succeed()

    _Play(world, simpy, loop, under_way, factors(cv, seed)).start(done)
    world.run(until=enough)
    each, half = batch_means(np.array(finished[warm - 1 :]))
    if half >= each:
        raise ProblemError(f"{steps} simulated steps of cv = {cv:g} are too few to bound their rate; simulate more")
    evidence = Evidence("simulation", "modeled", f"{steps:,} steps with times of cv = {cv:g}")
    return Estimate(1 / each, 1 / (each + half), 1 / (each - half), evidence)


@dataclass
class _Play:
    """The processes of a network in a world of simpy."""

    world: Any
    simpy: Any
    network: Network
    under_way: int
    factors: Iterator[float]

    def start(self, done: Callable[[], None]) -> None:
        self.engines = {engine: self.simpy.Resource(self.world) for engine in self.network.busy}
        self.doors: dict[int, list[Any]] = {}
        for place, chain in self.network.beside:
            self.doors.setdefault(place, []).append(self._line(chain))
        turns = None
        if self.network.actors:
            turns = self._box()
            self.world.process(self._worker(None, self.network.actors, [turns, *self.doors.get(ACTORS, [])]))
        for _ in range(self.under_way):
            self.world.process(self._batch(turns, done))

    def _box(self) -> Any:
        """Things that were set off and not yet begun; who would put more into it waits."""
        return self.simpy.Container(self.world, capacity=self.under_way)

    def _line(self, chain: tuple[Visit, ...]) -> Any:
        """Workers one behind the other; the box before the first of them."""
        gives: list[Any] = []
        for visit in reversed(chain):
            box = self._box()
            self.world.process(self._worker(box, visit, gives))
            gives = [box]
        return gives[0]

    def _serve(self, visit: Visit) -> Iterator[Any]:
        with self.engines[visit.engine].request() as turn:
            yield turn
            yield self.world.timeout(visit.seconds * next(self.factors))

    def _worker(self, takes: Any, visit: Visit, gives: list[Any]) -> Iterator[Any]:
        while True:
            if takes is not None:
                yield takes.get(1)
            yield from self._serve(visit)
            for box in gives:
                yield box.put(1)

    def _batch(self, turns: Any, done: Callable[[], None]) -> Iterator[Any]:
        while True:
            if turns is not None:
                yield turns.get(1)
            for place, visit in enumerate(self.network.round):
                yield from self._serve(visit)
                for box in self.doors.get(place, ()):
                    yield box.put(1)
            done()


def factors(cv: float, seed: int) -> Iterator[float]:
    """Random numbers of mean 1 and deviation cv."""
    if cv == 0:
        yield from itertools.repeat(1.0)
    rng = np.random.default_rng(seed)
    while True:
        yield from rng.gamma(1 / cv**2, cv**2, DRAWN).tolist()
