"""What the solver's figures show, computed by the solver itself: on the seeds' platform, and from a machine's profile.

Letters: B batch, L learners, H gradient steps between averages, u environment steps a gradient step.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse.mapping import tables
from dse.platforms import load
from dse.records import Measurement, RecordError
from dse.solver import modeled
from dse.solver.allocation import Rate, RateCurve
from dse.solver.build import Built, build
from dse.solver.multi_learner import FactorPoint, Terms, factors
from dse.solver.objectives import EPSILONS, threshold, tie_key
from dse.solver.others import Solved, solved
from dse.solver.pareto import front_of
from dse.solver.parts import Parts
from dse.solver.presampling import DepthPoint, depth_curve, depth_enough
from dse.solver.primitives import PerformanceTable, of_records, timed
from dse.solver.problem import Configuration, Problem, Timed
from dse.solver.search import Answer, front
from dse.solver.sensitivity import Terms as Sums
from dse.solver.sensitivity import spreads
from dse.solver.simulation import network
from dse.training import FlatThenLinear, flat_then_linear
from impls.training import load as load_workload

PLATFORM, WORKLOAD = "u200", "hopper_ddpg"  # the seeds' machine, and a workload of theirs
ACCELERATORS = ("gpu", "fpga")
INTERVALS = (1, 16)  # u
RESERVED = 1  # cores that replay
WITHIN = 0.01  # of the most steps counts as equal
DEPTHS, CVS, STEPS = (0, 1, 2, 4), (0.0, 1.0), 1000
BATCHES, CORES = (64, 256, 1024), (1, 2, 3, 4, 8)
FRONTS = ("hopper_ddpg", "pong_dqn")
SCALED = ("hopper_ddpg", "pong_dqn", "cartpole_dqn", "cartpole_ddpg")  # in this order, as far as they were profiled
MOST_SCALED = 2
LEARNERS, HORIZONS = (1, 2, 4, 8), (5, 25)


def parts_of(results: Path, workload: str = WORKLOAD, batch: int | None = None) -> Parts:
    """What each part of a workload takes on the seeds' platform."""
    platform, task = load(PLATFORM), load_workload(workload)
    if batch:
        task = dataclasses.replace(task, learner=dataclasses.replace(task.learner, batch=batch))
    return Parts(platform, task, *tables(platform, task, results), {})


def built(results: Path, workload: str = WORKLOAD, batch: int | None = None, excluded: Iterable[str] = ()) -> Built:
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

    workload: str
    f_a: RateCurve
    f_l: RateCurve
    total: int
    told: str


def platform_cores(results: Path) -> Cores:
    """Of the workload, as the solver takes them on each number of cores."""
    parts = parts_of(results)
    counts = range(1, parts.cores)
    acting = {count: _rate(parts.actor_step(count)) for count in counts}
    laws = {count: modeled.learner(parts.cpu, parts.cpu, parts.workload, parts.batch, count) for count in counts}
    learning = {count: _rate(timed(law.seconds, law.factor, "modeled", "f_l")) for count, law in laws.items()}
    rests = next(one for number, one in parts.evidence.items() if number.startswith("f_a("))
    told = f"f_a: {rests.source}, {rests.told}. f_l: modeled, {laws[counts[-1]].told}"
    return Cores(WORKLOAD, RateCurve("f_a", acting), RateCurve("f_l", learning), parts.cores, told)


def _rate(time: Timed) -> Rate:
    return Rate(1 / time.seconds, 1 / time.high, 1 / time.low, time.source)


# Batches ahead


@dataclass(frozen=True)
class Depths:
    """Of a mapping: its name, its curve over D, and D*."""

    name: str
    points: tuple[DepthPoint, ...]
    enough: int


def depths(results: Path) -> list[Depths]:
    """Of the answer, and of the answer without the accelerator that its learner is on."""
    found: list[Depths] = []
    title, excluded = "the answer", list[str]()
    while True:
        held = built(results, excluded=excluded)
        result = solved(held.problems, "ratio")
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


# Learners side by side


@dataclass(frozen=True)
class Scaled:
    """Scaling factors over L and H at a workload's batch; ``measured``: (L, factor, low, high) of learners that ran."""

    name: str
    points: tuple[FactorPoint, ...]
    measured: tuple[tuple[int, float, float, float], ...]


def scaled(found: Sequence[Measurement], key: str) -> list[Scaled]:
    """Two batches of each of two workloads; RecordError where no profile has all terms."""
    made = []
    for name in SCALED:
        table = of_records(found, key, load_workload(name))
        own = max((batch for _, batch in table.alone("parallel_learners step")), default=0)
        batches = {own, max((batch for _, batch in table.alone("learner step", 1)), default=0)}
        chosen = [(batch, terms(table, batch)) for batch in sorted(batches) if batch]
        made += [
            Scaled(f"{name}, B = {batch:,}", factors(one, LEARNERS, HORIZONS), tuple(_ran(table, one)))
            for batch, one in chosen
            if one
        ]
        if len({one.name.partition(",")[0] for one in made}) == MOST_SCALED:
            break
    if not made:
        raise RecordError(
            f"machine {key} has no profile with gradient steps of two batches, transfers and averages of weights; this "
            "would measure them: python -m benchmarks profile --workload hopper_ddpg"
        )
    return made


def terms(table: PerformanceTable, batch: int) -> Terms | None:
    """Of a gradient step on one thread, from what was measured; None where a part was not.

    Passes and the update of weights were timed together, so the fixed part of the fit has both. Weights go there by
    publishing and fetching them in shared memory. Records are sent as fast as they are gathered.
    """
    steps = {size: rows[0].time.seconds for (_, size), rows in table.alone("learner step", 1).items()}
    means = {
        float(row.options["models"]): row.time.seconds
        for rows in table.alone("weights average").values()
        for row in rows
    }
    tree = [table.time(f"numba {op}", batch) for op in ("draw", "update")]
    sent = [table.time(f"weights {op}", 1, via="shared") for op in ("publish", "fetch")]
    gathers = [(size, rows[0].time) for (_, size), rows in table.alone("storage gather").items()]
    if len(steps) < 2 or len(means) < 2 or not gathers or None in (*tree, *sent):
        return None
    size, gather = gathers[0]
    return Terms(
        batch=batch,
        replay_seconds=sum(one.seconds for one in tree if one),
        passes=flat_then_linear(list(steps), list(steps.values())),
        update_seconds=0.0,
        records=FlatThenLinear(0.0, gather.seconds / size),
        weights_seconds=sum(one.seconds for one in sent if one),
        average=flat_then_linear(list(means), list(means.values())),
        shared_link=True,
    )


def _ran(table: PerformanceTable, one: Terms) -> Iterator[tuple[int, float, float, float]]:
    """Of data parallel learners as they were timed, each with the same replay beside."""
    alone, replay = table.time("learner step", one.batch), one.replay_seconds
    for (count, batch), rows in sorted(table.alone("parallel_learners step").items()):
        if alone and batch == one.batch and count > 1:
            time = rows[0].time
            yield (
                count,
                (alone.seconds + replay) / (time.seconds + replay) / count,
                (alone.low + replay) / (time.high + replay) / count,
                (alone.high + replay) / (time.low + replay) / count,
            )


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


def fronts(results: Path) -> dict[str, list[Point]]:
    """By workload: the fastest on each set of devices, whatever the others could add; RecordError without watts."""
    return {workload: _front(results, workload) for workload in FRONTS}


def _front(results: Path, workload: str) -> list[Point]:
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
    low, high = Sums([(problem, chosen)], "ratio", spreads([problem])).interval(0)
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


def what_if(results: Path) -> list[WhatIf]:
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
