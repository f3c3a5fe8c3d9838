"""The points of the solver's figures, which the solver computes for the platform of [Zhang2023].

Letters: B batch, D batches sampled ahead, u environment steps a gradient step; L learners, H gradient steps between
averages of the weights.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dse.mapping.alternatives import JointUncertainty
from dse.mapping.build import Built, build
from dse.mapping.question import MappingQuestion, ask, load_workload, tables
from dse.platforms import load
from dse.records import RecordError
from dse.solver.problem import Configuration
from dse.solver.queues import network
from dse.solver.solve import Candidate, Search, Solution, solve
from dse.stats import front_of
from dse.times.door import Times
from dse.times.several import FactorPoint, factors, single_seconds
from dse.times.whole import what_of
from dse.tuning.cores import RateCurve, platform_curves
from dse.tuning.depth import DepthPoint, depth_curve, depth_enough
from dse.tuning.learners import LearnerScaling, learner_scaling
from impls.files import list_files

PLATFORM, WORKLOAD = "u200", "hopper_ddpg"  # the machine of [Zhang2023], and one of its workloads
ACCELERATORS = ("gpu", "fpga")
INTERVALS = (1, 16)  # u
RESERVED = 1  # cores for the replay manager
WITHIN = 0.01  # of the most steps, below which rates count as equal
DEPTHS, CVS, STEPS = (0, 1, 2, 4), (0.0, 1.0), 1000
BATCHES, CORES = (64, 256, 1024), (1, 2, 3, 4, 8)
FRONTS = ("hopper_ddpg", "pong_dqn")
WORKLOADS = ("hopper_ddpg", "pong_dqn", "cartpole_dqn", "cartpole_ddpg")  # in this order, if they were profiled
MOST_WORKLOADS = 2
LEARNERS, HORIZONS = (1, 2, 4, 8), (5, 25)

Evidence = Path | None


def evidence(results: Path) -> Evidence:
    """Return the folder if a machine in it was profiled; otherwise no answer for another machine depends on it."""
    return results if list_files(results, "*/profile-*.jsonl") else None


def parts_of(results: Evidence, workload: str = WORKLOAD, batch: int | None = None) -> Times:
    """Return the times of each part of a workload on PLATFORM."""
    platform, task = load(PLATFORM), load_workload(workload)
    if batch:
        task = dataclasses.replace(task, learner=dataclasses.replace(task.learner, batch=batch))
    return Times(platform, task, *(tables(platform, task, results) if results else (None, None)), {})


def built(results: Evidence, workload: str = WORKLOAD, batch: int | None = None, excluded: Iterable[str] = ()) -> Built:
    """Build the solver's problems from the times of a workload's parts on PLATFORM."""
    return build(parts_of(results, workload, batch), excluded=frozenset(excluded))


def letters(chosen: Configuration) -> str:
    """Write the devices of learner, RMM and storage as [Zhang2023] does; an RMM on two devices has two letters."""
    tree = dict.fromkeys((chosen.updating.device, chosen.sampling.device))
    parts = ([chosen.learner.device], tree, [chosen.storage.device])
    return "-".join("+".join(device[:1].upper() for device in devices) for devices in parts)


# Cores


def platform_cores(results: Evidence) -> tuple[RateCurve, RateCurve, int, str]:
    """Return f_a and f_l, as the solver takes them, over the cores of the processor, their number, and the evidence."""
    parts = parts_of(results)
    f_a, f_l, sources = platform_curves(parts, parts.cores - 1)
    described = (f"{rests.id}: {rests.source}, {rests.description}" for rests in sources)
    return f_a, f_l, parts.cores, ". ".join(described)


# Batches ahead


@dataclass(frozen=True)
class Depths:
    """A mapping's name, its curve over D, and D*."""

    name: str
    points: tuple[DepthPoint, ...]
    enough: int


@functools.lru_cache(maxsize=4)
def depths(results: Evidence) -> list[Depths]:
    """Return the depths of the answer, and of the answer without the accelerator that its learner is on."""
    panels: list[Depths] = []
    title, excluded = "the answer", list[str]()
    # Invariant: ``panels`` has the depths of every answer with fewer devices excluded.
    while True:
        model = built(results, excluded=excluded)
        result = solve(model.problems)
        if not isinstance(result, Solution):
            return panels
        chosen = result.choice
        loop = network(result.answer.problem, chosen, actors=False)
        points = depth_curve(loop, DEPTHS, CVS, STEPS)
        panels.append(Depths(f"{WORKLOAD}, {title}: {letters(chosen)}", points, depth_enough(loop)))
        device = chosen.learner.device
        if excluded or device not in ACCELERATORS:
            return panels
        title, excluded = f"without {device.upper()}", [device]


# Mappings


@dataclass(frozen=True)
class Point:
    """The fastest mapping on some devices: gradient steps/s with their ends, and watts."""

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
    """Return the fastest mapping on each set of devices, by workload. RecordError without watts."""
    return {workload: _front(results, workload) for workload in FRONTS}


def _front(results: Evidence, workload: str) -> list[Point]:
    search, fastest = Search(built(results, workload).problems, "ratio"), dict[tuple[str, ...], Candidate]()
    for devices in {placement.devices: None for placement in search.placements}:
        there = search.among(lambda placement, devices=devices: placement.devices == devices)  # type: ignore[misc]
        _, answers = there.list_tied(0.0)
        fastest.update((devices, answer) for answer in answers[:1])
    watts = [answer.outcome.watts for answer in fastest.values()]
    if None in watts:
        raise RecordError(f"platform {PLATFORM} does not state the watts of each device")
    points = [
        (answer.value, -float(power or 0), -float(len(devices)))
        for (devices, answer), power in zip(fastest.items(), watts, strict=True)
    ]
    kept = front_of(points)
    return [_point(answer, position in kept) for position, answer in enumerate(fastest.values())]


def _point(one: Candidate, is_undominated: bool) -> Point:
    ends, given = JointUncertainty("ratio", 0.0).ends(one), one.outcome
    arrangement = one.mode.arrangement
    return Point(
        given.devices, arrangement, letters(one.configuration), given.hz, *ends, given.watts or 0.0, is_undominated
    )


@dataclass(frozen=True)
class WhatIf:
    """The fastest mapping at a batch and a number of cores; of those within 1 % the one with fewest devices."""

    batch: int
    cores: int
    hz: float
    arrangement: str
    letters: str
    learner: str


@functools.lru_cache(maxsize=4)
def what_if(results: Evidence) -> list[WhatIf]:
    """Solve for every batch on every number of cores that may be used; those on which nothing fits are omitted."""
    cells = []
    for batch in BATCHES:
        model = built(results, batch=batch)
        name = f"{model.parts.cpu.name}.cores"
        for count in CORES:
            problems = {
                placement: dataclasses.replace(problem, budgets={**problem.budgets, name: float(count)})
                for placement, problem in model.problems.items()
            }
            if isinstance(found := solve(problems), Solution):
                chosen, arrangement = found.choice, found.answer.mode.arrangement
                cells.append(WhatIf(batch, count, found.value, arrangement, letters(chosen), chosen.learner.device))
    return cells


# Learners


@dataclass(frozen=True)
class Scaled:
    """Scaling factors over L and H at a workload's batch; ``measured``: (L, factor, low, high) of timed learners."""

    name: str
    points: tuple[FactorPoint, ...]
    measured: tuple[tuple[int, float, float, float], ...]


def scaled(platform: Path, results: Path) -> list[Scaled]:
    """Return the factors of two batches of each of two workloads. RecordError where no profile has gradient steps."""
    made: list[Scaled] = []
    for name in WORKLOADS if platform.is_file() else ():
        made += _scaled(ask(platform, name, results=results))
        if len({curves.name.partition(",")[0] for curves in made}) == MOST_WORKLOADS:
            break
    if not made:
        raise RecordError(
            f"machine {platform.parent.name} has no profile with gradient steps of two batches; this would measure "
            "them: python -m benchmarks profile --workload hopper_ddpg"
        )
    return made


def _scaled(question: MappingQuestion) -> Iterator[Scaled]:
    """Yield the factors at the workload's own batch and at the largest timed, by what would run or else was timed."""
    table, own, preferred = (
        question.tables[0],
        question.workload.learner.batch,
        question.parts().learners.implementation,
    )
    steps = {by: table.alone(what_of("learner step", by), 1) if table else {} for by in (preferred, "torch")}
    by, timed = next(
        ((by, {batch for _, batch in found}) for by, found in steps.items() if len(found) > 1), ("", set())
    )
    for batch in sorted({own, max(timed)}) if timed else ():
        asked = dataclasses.replace(question, fix={"batch": batch, "learner_implementation": by})
        answer = learner_scaling(asked)
        title = f"{question.workload.name}, B = {batch:,}, learners {by}"
        yield Scaled(title, factors(answer.terms, LEARNERS, HORIZONS), tuple(_ran(answer)))


def _ran(answer: LearnerScaling) -> Iterator[tuple[int, float, float, float]]:
    """Yield (L, factor, low, high) of learners that gathered gradients as they were timed."""
    for (learners, horizon), seconds in answer.ran.items():
        if horizon is None:
            single = single_seconds(answer.terms) / learners
            yield learners, single / median(seconds), single / max(seconds), single / min(seconds)
