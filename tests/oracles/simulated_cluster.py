"""How many batches a sampler gets from many shards: its requests and their calls played as queues, by measured costs.

    python -m tests.oracles.simulated_cluster          requests and records a second from 3 to 1,000 shards

The sampler has one thread, and each shard has one. A request goes to all shards, or to ``most`` of them, and ``ahead``
more are under way. Each call takes the sampler ``call`` seconds and the shard ``serve``; a record takes both ``record``
seconds, and a message ``delay`` seconds on its way. ``cores`` are those that all share; by default each has its own.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy


@dataclass(frozen=True)
class Costs:
    """Seconds: by default as measured for Ray between processes of one machine, with the delay of a data center."""

    call: float = 600e-6
    serve: float = 600e-6
    record: float = 0.1e-6
    delay: float = 50e-6


@dataclass(frozen=True)
class Simulated:
    """Requests a second, calls a request, and the mean age of a shard's total when it is drawn by, in seconds."""

    requests: float
    calls: float
    age: float


def simulate(
    shards: int,
    records: int,
    costs: Costs | None = None,
    ahead: int = 2,
    most: int = 16,
    cores: int | None = None,
    seconds: float = 5.0,
    seed: int = 0,
) -> Simulated:
    """Play requests of ``records`` records each for so many seconds; shards have equal totals."""
    costs, rng, world = costs or Costs(), np.random.default_rng(seed), simpy.Environment()
    processors = simpy.Resource(world, cores or shards + 1)
    threads = [simpy.Resource(world, 1) for _ in range(shards)]
    heard, ages, calls = np.zeros(shards), list[float](), 0

    def work(length: float) -> Generator[Any, Any, None]:
        with processors.request() as processor:
            yield processor
            yield world.timeout(length)

    def answer(shard: int, count: int) -> Generator[Any, Any, None]:
        yield world.timeout(costs.delay)
        with threads[shard].request() as turn:
            yield turn
            yield from work(costs.serve + costs.record * count)
        at = world.now
        yield world.timeout(costs.delay)
        heard[shard] = at

    def sample() -> Generator[Any, Any, None]:
        nonlocal calls
        under_way = list[list[Any]]()
        while True:
            # Invariant: ``under_way`` are the requests that were sent and not received, the oldest first.
            while len(under_way) <= ahead:
                chosen = rng.choice(shards, min(most, shards), replace=False)
                ages.append(world.now - heard.mean())
                calls += chosen.size
                sent = list[Any]()
                for shard in chosen:
                    yield from work(costs.call)
                    sent.append(world.process(answer(int(shard), records // chosen.size)))
                under_way.append(sent)
            yield world.all_of(under_way.pop(0))
            yield from work(costs.record * records)
            done.append(world.now)

    done: list[float] = []
    world.process(sample())
    world.run(until=seconds)
    return Simulated(len(done) / seconds, calls / len(ages), float(np.mean(ages[len(ages) // 2 :])))


if __name__ == "__main__":
    for shards, records, most in ((3, 512, 16), (30, 512, 16), (1000, 512, 1000), (1000, 512, 16), (1000, 8192, 16)):
        found = simulate(shards, records, most=most)
        print(
            f"{shards:5} shards, {records:5} records, at most {most:4} calls a request: "
            f"{found.requests:6.1f} requests/s, {found.requests * records:9,.0f} records/s, "
            f"totals {1e3 * found.age:6.1f} ms old (simulated)"
        )
