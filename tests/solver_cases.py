"""Small random mapping problems that have a bit of everything, and the answer by nested loops over ``outcome``."""

import itertools
from collections.abc import Iterator

import numpy as np

from dse.records import Source
from dse.solver.objectives import Objective, threshold, tie_key, value
from dse.solver.problem import PARTS, Configuration, Flow, Hop, Option, Part, Problem, Timed
from dse.solver.search import Answer
from dse.solver.throughput import fits, outcome

SOURCE: Source = "modeled"
DEVICES = ("cpu", "gpu", "fpga")
TALKS: tuple[tuple[Part, Part], ...] = (
    ("actors", "storage"),
    ("sampling", "storage"),
    ("storage", "learner"),
    ("learner", "updating"),
    ("learner", "actors"),
)


def timed(seconds: float) -> Timed:
    """A time known exactly."""
    return Timed(seconds, seconds, seconds, SOURCE, "test")


def option(
    part: Part, name: str, device: str, seconds: float, needs: dict[str, float] | None = None, engine: str = ""
) -> Option:
    """An option with a time known exactly; its engine is all of the device unless said."""
    return Option(part, name, device, engine or device, timed(seconds), needs or {})


def hop(engine: str, alpha: float, per_byte: float) -> Hop:
    """A link in one direction."""
    return Hop(engine, alpha, per_byte, SOURCE, "test")


def random_problem(random: np.random.Generator) -> Problem:
    """Up to four options a part on up to three devices.

    Half of them have small integer times, needs and links, so that ties are many and exact. Engines are those of
    devices, of parts, or of links; ways may lack, have one hop or two; flows may be empty; budgets bind or do not.
    """
    exact = random.random() < 0.5
    devices = DEVICES[: random.integers(1, 4)]

    def time(largest: int = 5) -> float:
        return float(random.integers(1, largest)) if exact else float(np.exp(random.uniform(-2, 2)))

    def drawn_option(part: Part, number: int) -> Option:
        device = str(random.choice(devices))
        engine = str(random.choice([device, device, f"{device}.{part}"]))
        needs = {f"{device}.cores": float(random.integers(0, 4))}
        if random.random() < 0.5:
            needs["memory"] = float(random.integers(0, 5)) if exact else float(random.random() * 4)
        return option(part, f"{random.choice(list('abc'))}{number % 3}", device, time(), needs, engine)

    def way(source: str, target: str) -> tuple[Hop, ...]:
        engines = [f"{source}>{target}", f"{source}>{target}", "bus", source]
        return tuple(
            hop(
                str(random.choice(engines)),
                time(3) - 1 if exact else random.random(),
                0.25 if exact else random.random() / 3,
            )
            for _ in range(random.integers(1, 3))
        )

    ways = {
        (source, target): way(source, target)
        for source in devices
        for target in devices
        if source != target and random.random() < 0.85
    }
    flows = tuple(
        Flow(source, target, float(random.integers(0, 4)), bool(random.random() < 0.6))
        for source, target in TALKS
        if random.random() < 0.7
    )
    slowdown = {
        (PARTS[random.integers(5)], PARTS[random.integers(5)], str(random.choice(devices))): float(
            random.choice([1.5, 2.0])
        )
        for _ in range(random.integers(0, 4))
    }
    return Problem(
        options={part: tuple(drawn_option(part, n) for n in range(random.integers(1, 5))) for part in PARTS},
        budgets={
            **{f"{device}.cores": float(random.integers(2, 10)) for device in devices},
            "memory": float(random.integers(2, 15)),
        },
        flows=flows,
        ways=ways,
        depths=tuple(int(depth) for depth in random.choice([0, 1, 2, 5], size=random.integers(1, 4), replace=False)),
        slowdown=slowdown,
        watts={device: float(random.integers(1, 5)) for device in devices},
        hosts=devices[:1] if random.random() < 0.5 else (),
    )


def every(problem: Problem) -> Iterator[Configuration]:
    """All configurations, whether they fit or not."""
    for chosen in itertools.product(*(problem.options[part] for part in PARTS)):
        for depth in problem.depths:
            yield Configuration(*chosen, depth=depth)


def all_answers(problem: Problem, objective: Objective) -> list[Answer]:
    """Of everything that fits."""
    given = ((one, outcome(problem, one)) for one in every(problem) if fits(problem, one))
    return [Answer(one, gives, value(objective, gives)) for one, gives in given]


def by_the_rule(problem: Problem, answers: list[Answer], epsilon: float) -> list[Answer]:
    """All that is as good as the best, in the order of the tie rule."""
    if not answers:
        return []
    least = threshold(max(answer.value for answer in answers), epsilon)
    good = [answer for answer in answers if answer.value >= least]
    return sorted(good, key=lambda answer: tie_key(problem, answer.configuration, answer.outcome))


def mapping(answer: Answer) -> tuple[str, ...]:
    """Device of each part."""
    return tuple(one.device for one in answer.configuration.options)
