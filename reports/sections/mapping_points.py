"""What the solver's figures show of the seeds' platform, computed by the solver itself.

Letters: B batch, D batches drawn ahead, u environment steps a gradient step; L learners, H gradient steps between
averages of the weights.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.mapping.alternatives import Solved, best_placement
from dse.mapping.build import Built, build
from dse.mapping.question import load_workload, tables
from dse.platforms import load
from dse.records import Measurement, RecordError
from dse.solver.objectives import EPSILONS, threshold, tie_key
from dse.solver.problem import Configuration, Problem
from dse.solver.search import Answer, front
from dse.solver.sensitivity import Terms, spreads
from dse.solver.simulation import network
from dse.stats import front_of
from dse.times.parts import Parts
from dse.times.profile import PerformanceTable, of_records
from dse.tuning.core_question import platform_curves
from dse.tuning.core_split import RateCurve
from dse.tuning.learners import measured_terms, side_by_side
from dse.tuning.multi_learner import FactorPoint, factors
from dse.tuning.multi_learner import Terms as StepTerms
from dse.tuning.presampling import DepthPoint, depth_curve, depth_enough

PLATFORM, WORKLOAD = "u200", "hopper_ddpg"  # the seeds' machine, and a workload of theirs
ACCELERATORS = ("gpu", "fpga")
INTERVALS = (1, 16)  # u
RESERVED = 1  # cores that replay
WITHIN = 0.01  # of the most steps counts as equal
DEPTHS, CVS, STEPS = (0, 1, 2, 4), (0.0, 1.0), 1000
BATCHES, CORES = (64, 256, 1024), (1, 2, 3, 4, 8)
FRONTS = ("hopper_ddpg", "pong_dqn")
WORKLOADS = ("hopper_ddpg", "pong_dqn", "cartpole_dqn", "cartpole_ddpg")  # in this order, as far as they were profiled
MOST_WORKLOADS = 2
LEARNERS, HORIZONS = (1, 2, 4, 8), (5, 25)

Evidence = Path | None


def evidence(results: Path) -> Evidence:
    """The folder if a machine in it was profiled; without that nothing in it matters to answers for other machines."""
    return results if any(results.glob("*/profile-*.jsonl")) else None


def parts_of(results: Evidence, workload: str = WORKLOAD, batch: int | None = None) -> Parts:
    """What each part of a workload takes on the seeds' platform."""
    platform, task = load(PLATFORM), load_workload(workload)
    if batch:
        task = dataclasses.replace(task, learner=dataclasses.replace(task.learner, batch=batch))
    return Parts(platform, task, *(tables(platform, task, results) if results else (None, None)), {})


def built(results: Evidence, workload: str = WORKLOAD, batch: int | None = None, excluded: Iterable[str] = ()) -> Built:
    """The same as problems."""
    return build(parts_of(results, workload, batch), excluded=frozenset(excluded))


def letters(chosen: Configuration) -> str:
    """Devices of learner, RMM and storage as seed 3 writes them; an RMM in two places has two letters."""
    tree = dict.fromkeys((chosen.updating.device, chosen.sampling.device))
    places = ([chosen.learner.device], tree, [chosen.storage.device])
    return "-".join("+".join(device[:1].upper() for device in devices) for devices in places)


# Cores


@dataclass(frozen=True)
class Cores:
    """f_a and f_l by cores of the platform's processor, and what they rest on."""

    f_a: RateCurve
    f_l: RateCurve
    total: int
    told: str


def platform_cores(results: Evidence) -> Cores:
    """Of the workload, as the solver takes them on each number of cores."""
    parts = parts_of(results)
    f_a, f_l, sources = platform_curves(parts, parts.cores - 1)
    told = ". ".join(f"{curve.name}: {one.source}, {one.told}" for curve, one in zip((f_a, f_l), sources, strict=True))
    return Cores(f_a, f_l, parts.cores, told)


# Batches ahead


@dataclass(frozen=True)
class Depths:
    """Of a mapping: its name, its curve over D, and D*."""

    name: str
    points: tuple[DepthPoint, ...]
    enough: int


@functools.lru_cache(maxsize=4)
def depths(results: Evidence) -> list[Depths]:
    """Of the answer, and of the answer without the accelerator that its learner is on."""
    found: list[Depths] = []
    title, excluded = "the answer", list[str]()
    while True:
        held = built(results, excluded=excluded)
        result = best_placement(held.problems, "ratio")
        if not isinstance(result, Solved):
            return found
        chosen = result.answer.configuration
        loop = network(held.problems[result.place], chosen, actors=False)
        points = depth_curve(loop, DEPTHS, CVS, STEPS)
        found.append(Depths(f"{WORKLOAD}, {title}: {letters(chosen)}", points, depth_enough(loop)))
        device = chosen.learner.device
        if excluded or device not in ACCELERATORS:
            return found
        title, excluded = f"without {device.upper()}", [device]


# Mappings


@dataclass(frozen=True)
class Point:
    """The fastest on some devices: gradient steps a second with their interval at 95 %, and watts."""

    devices: tuple[str, ...]
    arrangement: str
    letters: str
    hz: float
    low: float
    high: float
    watts: float
    is_undominated: bool


@functools.lru_cache(maxsize=4)
def fronts(results: Evidence) -> dict[str, list[Point]]:
    """By workload: the fastest on each set of devices, whatever the others could add; RecordError without watts."""
    return {workload: _front(results, workload) for workload in FRONTS}


def _front(results: Evidence, workload: str) -> list[Point]:
    fastest: dict[tuple[str, ...], tuple[Built, str, Answer]] = {}
    for count in range(len(ACCELERATORS) + 1):
        for excluded in itertools.combinations(ACCELERATORS, count):
            held = built(results, workload, excluded=excluded)
            for place, answer in fastest_of(held.problems):
                best = fastest.get(answer.outcome.devices)
                if best is None or answer.value > best[2].value:
                    fastest[answer.outcome.devices] = (held, place, answer)
    watts = [answer.outcome.watts for _, _, answer in fastest.values()]
    if None in watts:
        raise RecordError(f"platform {PLATFORM} does not state the watts of each device")
    points = [
        (answer.value, -float(power or 0), -float(len(devices)))
        for (devices, (_, _, answer)), power in zip(fastest.items(), watts, strict=True)
    ]
    kept = front_of(points)
    return [_point(*one, position in kept) for position, one in enumerate(fastest.values())]


def _point(held: Built, place: str, answer: Answer, is_undominated: bool) -> Point:
    problem, chosen = held.problems[place], answer.configuration
    low, high = Terms([(problem, chosen)], "ratio", spreads([problem])).interval(0)
    given = answer.outcome
    ends = min(low, given.hz), max(high, given.hz)
    arrangement = place.split(maxsplit=1)[0]
    return Point(given.devices, arrangement, letters(chosen), given.hz, *ends, given.watts or 0.0, is_undominated)


def fastest_of(problems: Mapping[str, Problem]) -> list[tuple[str, Answer]]:
    """(place, answer) of each place's front over steps a second, watts and devices."""
    return [(place, answer) for place, problem in problems.items() for answer in front(problem)]


@dataclass(frozen=True)
class WhatIf:
    """The fastest mapping at a batch on so many cores; of those within 1 % the one with fewest devices."""

    batch: int
    cores: int
    hz: float
    arrangement: str
    letters: str
    learner: str


@functools.lru_cache(maxsize=4)
def what_if(results: Evidence) -> list[WhatIf]:
    """Of every batch on every number of cores that may be used; those on which nothing fits are left out."""
    found = []
    for batch in BATCHES:
        held = built(results, batch=batch)
        name = f"{held.parts.cpu.name}.cores"
        for count in CORES:
            problems = {
                place: dataclasses.replace(one, budgets={**one.budgets, name: float(count)})
                for place, one in held.problems.items()
            }
            answers = fastest_of(problems)
            if answers:
                place, answer = _chosen(problems, answers)
                chosen = answer.configuration
                arrangement, learner = place.split(maxsplit=1)[0], chosen.learner.device
                found.append(WhatIf(batch, count, answer.value, arrangement, letters(chosen), learner))
    return found


def _chosen(problems: Mapping[str, Problem], answers: Sequence[tuple[str, Answer]]) -> tuple[str, Answer]:
    least = threshold(max(one.value for _, one in answers), EPSILONS["ratio"])
    good = [(place, one) for place, one in answers if one.value >= least]
    return min(good, key=lambda pair: tie_key(problems[pair[0]], pair[1].configuration, pair[1].outcome)[:5])


# Learners


@dataclass(frozen=True)
class Scaled:
    """Scaling factors over L and H at a workload's batch; ``measured``: (L, factor, low, high) of learners that ran."""

    name: str
    points: tuple[FactorPoint, ...]
    measured: tuple[tuple[int, float, float, float], ...]


def scaled(found: Sequence[Measurement], key: str) -> list[Scaled]:
    """Two batches of each of two workloads; RecordError where no profile has all terms."""
    made = []
    for name in WORKLOADS:
        table = of_records(found, key, load_workload(name))
        own = max((batch for _, batch in table.alone("parallel_learners step")), default=0)
        batches = {own, max((batch for _, batch in table.alone("learner step", 1)), default=0)}
        chosen = [(batch, measured_terms(table, batch)) for batch in sorted(batches) if batch]
        made += [
            Scaled(f"{name}, B = {batch:,}", factors(one, LEARNERS, HORIZONS), tuple(_ran(table, one)))
            for batch, one in chosen
            if one
        ]
        if len({one.name.partition(",")[0] for one in made}) == MOST_WORKLOADS:
            break
    if not made:
        raise RecordError(
            f"machine {key} has no profile with gradient steps of two batches, transfers and averages of weights; this "
            "would measure them: python -m benchmarks profile --workload hopper_ddpg"
        )
    return made


def _ran(table: PerformanceTable, terms: StepTerms) -> Iterator[tuple[int, float, float, float]]:
    """Of data parallel learners as they were timed, each with the same replay beside."""
    alone, replay = table.time("learner step", terms.batch), terms.replay_seconds
    for learners, ran in side_by_side(table, terms).items() if alone else ():
        times = ((alone.value, ran.value), (alone.low, ran.high), (alone.high, ran.low))
        yield learners, *((one + replay) / several / learners for one, several in times)
