"""A network of queues played event by event by a library: what ``dse.solver.queues`` runs, for tests to compare."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from dse.solver.queues import ACTORS, UNITS, Network, Visit, draw_factors
from dse.stats import batch_means


def simulated_hz(loop: Network, depth: int, cv: float = 0.0, steps: int = 2000, seed: int = 0) -> float:
    """Gradient steps a second over ``steps`` of them after a warm-up."""
    under_way = depth + 1
    warm = max(steps // 10, 4 * under_way)
    world = simpy.Environment()
    finished: list[float] = []
    enough = world.event()

    def done() -> None:
        finished.append(world.now)
        if len(finished) == warm + steps:
            enough.succeed()

    _Play(world, loop, under_way, draw_factors(cv, seed)).start(done)
    world.run(until=enough)
    each, _ = batch_means(np.array(finished[warm - 1 :]))
    return 1 / each


@dataclass
class _Play:
    """The processes of a network in a world of simpy."""

    world: Any
    network: Network
    under_way: int
    factors: Iterator[float]

    def start(self, done: Callable[[], None]) -> None:
        self.engines = {engine: simpy.Resource(self.world) for engine in self.network.busy}
        self.doors: dict[int, list[Any]] = {}
        for place, chain in self.network.chains:
            self.doors.setdefault(place, []).append(self._line(chain))
        turns = None
        if self.network.actors:
            turns = self._box()
            self.world.process(self._worker(None, self.network.actors, [turns, *self.doors.get(ACTORS, [])]))
        self.units = {unit: simpy.Container(self.world, 1, 1) for unit in UNITS.values()}
        self.queues = {part: simpy.Container(self.world, most) for part, most in self.network.queues.items()}
        for _ in range(self.under_way):
            self.world.process(self._batch(turns, done))

    def _box(self) -> Any:
        """Things that were set off and not yet begun; who would put more into it waits."""
        return simpy.Container(self.world, capacity=self.under_way)

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
            parts, left = dict(self.network.places) if self.queues else {}, None
            for place, visit in enumerate(self.network.round):
                if part := parts.get(place):
                    yield self.queues[part].put(1)
                    turn = self.units[UNITS[part]].get(1)  # of two that begin at once the first
                    if left:
                        left.put(1)
                    left = self.units[UNITS[part]]
                    yield turn
                    self.queues[part].get(1)  # at once: this batch is there
                yield from self._serve(visit)
                for box in self.doors.get(place, ()):
                    yield box.put(1)
            if left:
                left.put(1)
            done()
