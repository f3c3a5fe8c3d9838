"""The answer to a mapping question: what to run where, how fast, how sure, what is next, and what it all rests on."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..estimate import Evidence, Interval, off
from ..records import how_to_measure
from ..solver.infeasible import Infeasible
from ..solver.objectives import Objective, bottleneck, threshold
from ..solver.problem import LOOP, PARTS, Configuration, Option
from ..solver.sensitivity import Robustness, Spread, Terms, around, spreads
from ..solver.throughput import LOOP_BOUND, TOO_HIGH, slowdowns
from .alternatives import Other, Solved, best_placement, by_mapping, difference, key_of, mapping_of, others
from .build import Built
from .ends import ends, meaning
from .options import Place

CLOSE = 0.005  # a rate that changes by less is sure enough


@dataclass(frozen=True)
class PartAnswer:
    """Where a part runs, and the seconds of a gradient step that it is busy; ``interval``: what low and high mean."""

    part: str
    device: str
    engine: str
    choice: str
    details: Mapping[str, Any]
    seconds: float
    low: float
    high: float
    source: str
    number: str
    interval: Interval
    charged: float = 0.0

    @property
    def factor(self) -> float:
        """How far off the seconds may be, as a factor."""
        return off(self.seconds, self.low, self.high)


@dataclass(frozen=True)
class Simulated:
    """Gradient steps a second in a simulation with times that vary by ``cv``, within [low, high] at 95 %."""

    hz: float
    low: float
    high: float
    cv: float


@dataclass(frozen=True)
class TransferAnswer:
    """What a gradient step sends over a link; ``waits``: whether a batch waits for it."""

    engine: str
    sent: str
    seconds: float
    nbytes: float
    waits: bool


@dataclass(frozen=True)
class MappingAnswer:
    """``hz`` gradient steps a second; ``value`` by the objective, in [low, high]. ``distance``: below ``bound``.

    ``interval``: what low and high mean, "95 %" or, where any part of it was not timed, "factor". ``upper_bound``:
    whether parts run at the same time, so that the rate is at most so high. ``searched``: what was tried where more
    could be made. ``bound``: the value of every part on its fastest option, without sharing, transfers or budgets.
    """

    platform: str
    workload: str
    batch: int
    update_interval: int
    objective: Objective
    epsilon: float
    arrangement: str
    parts: tuple[PartAnswer, ...]
    depth: int
    cores: tuple[float, float]
    value: float
    low: float
    high: float
    hz: float
    actor_hz: float
    bottleneck: str
    bound: float
    distance: float
    learner_hz: float
    watts: float | None
    ties: tuple[Other, ...]
    runner_up: Other | None
    elsewhere: Other | None
    survival: tuple[Robustness, ...]
    sources: tuple[Evidence, ...]
    measure_next: Evidence | None
    configurations: int
    notes: tuple[str, ...]
    interval: Interval
    upper_bound: bool
    searched: tuple[str, ...]
    machine: str = ""  # whose records were read, if any
    machine_note: str = ""  # says so where another machine stands for "this"
    results: str = ""  # the folder of those records, as it was given
    best: Other | None = None
    others_tied: int = 0
    decide: Evidence | None = None
    simulated: tuple[Simulated, ...] = ()
    transfers: tuple[TransferAnswer, ...] = ()
    devices: tuple[str, ...] = ()
    called: str = ""  # the workload's name or file, where the question changes no value in it

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Shortage:
    """Why nothing fits: each entry of ``repairs`` would be enough, budgets as (have, need) by name."""

    platform: str
    workload: str
    repairs: tuple[Mapping[str, tuple[float, float]], ...]
    no_links: tuple[tuple[str, str], ...]
    machine: str = ""
    machine_note: str = ""
    results: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def build_answer(built: Built, objective: Objective, epsilon: float | None = None) -> MappingAnswer | Shortage:
    """The best mapping with its alternatives and how sure it is, or what lacks for any to fit."""
    result = best_placement(built.problems, objective, epsilon)
    parts = built.parts
    if not isinstance(result, Solved):
        return _shortage(built, result)
    chosen, outcome = result.answer.configuration, result.answer.outcome
    problem = built.problems[result.place]
    terms, sure, names = _terms(built, result, objective)
    beside = others(result, functools.partial(ends, built.problems, objective, sure))
    low, high = terms.interval(0)
    survival = tuple(terms.survival(0, result.epsilon, names))
    bound = max(one.bound for one in result.found.values())
    used = _numbers(built, result)
    cpu = f"{parts.cpu.name}.cores"
    workload = parts.workload
    return MappingAnswer(
        platform=parts.platform.name,
        workload=workload.name,
        batch=workload.learner.batch,
        update_interval=workload.learner.update_interval,
        objective=objective,
        epsilon=result.epsilon,
        arrangement=result.place.arrangement,
        parts=tuple(map(functools.partial(_part, built), chosen.options, slowdowns(problem, chosen))),
        depth=chosen.depth,
        cores=(sum(option.needs.get(cpu, 0.0) for option in chosen.options), problem.budgets[cpu]),
        value=result.answer.value,
        low=min(low, result.answer.value),
        high=max(high, result.answer.value),
        hz=outcome.hz,
        actor_hz=outcome.actor_hz,
        bottleneck=_bottleneck(chosen, objective, bottleneck(objective, outcome)),
        bound=bound,
        distance=1 - result.answer.value / bound,
        learner_hz=max(one.learner_hz for one in result.found.values()),
        watts=outcome.watts,
        ties=tuple(by_mapping(beside, threshold(result.best, result.epsilon))),
        runner_up=beside[0] if beside else None,
        elsewhere=next((other for other in beside if other.mapping != mapping_of(chosen)), None),
        survival=survival,
        sources=tuple(built.rests_on(number, chosen) for number in used),
        measure_next=_next(built, chosen, survival),
        configurations=sum(one.configurations for one in result.found.values()),
        notes=tuple(_notes(built, result)),
        interval=meaning(problem, chosen),
        upper_bound=not result.place.in_turns,
        searched=built.searched,
    )


def _part(built: Built, option: Option, slower: float) -> PartAnswer:
    time, evidence = option.time.scaled(slower), option.time.rests_on
    return PartAnswer(
        *(option.part, option.device, option.engine, option.name, built.details(option)),
        *(time.value, time.low, time.high),
        *(evidence.source, evidence.number),
        time.interval,
    )


def _bottleneck(chosen: Configuration, objective: Objective, engine: str) -> str:
    if engine == LOOP_BOUND:
        return f"batches under way: a batch waits for the one before it ({chosen.depth} sampled ahead)"
    on = [part for part in (LOOP if objective == "training" else PARTS) if chosen.of(part).engine == engine]
    if not on:
        return engine
    if len(on) == 1:
        return f"{on[0]} on {chosen.of(on[0]).device}"
    return f"{engine}, which does {', '.join(on)} in turns"


def _terms(built: Built, result: Solved, objective: Objective) -> tuple[Terms, dict[str, Spread], list[str]]:
    """(terms, how far off each number may be, names): the choice first, then what a changed number might put there."""
    rows = [(result.place, result.answer.configuration)]
    for place, solved in result.found.items():
        rows += [(place, one.configuration) for one in solved.answers]
        rows += [(place, one) for one in around(built.problems[place], solved.choice)]
    unique = list({(place, key_of(place, one)): (place, one) for place, one in rows}.values())
    sure = spreads(list(built.problems.values()), rows[0][1])
    terms = Terms([(built.problems[place], one) for place, one in unique], objective, sure)
    return terms, sure, [difference(rows[0], (place, one)) for place, one in unique]


def _numbers(built: Built, result: Solved) -> list[str]:
    """Evidence of the chosen configuration's times, those of parts first, then those of links."""
    problem, chosen = built.problems[result.place], result.answer.configuration
    numbers = [option.time.rests_on.number for option in chosen.options]
    for flow in problem.flows:
        route = problem.ways.get((chosen.of(flow.source).device, chosen.of(flow.target).device), ())
        numbers += [hop.rests_on.number for hop in route]
    return [number for number in dict.fromkeys(numbers) if number in built.evidence]


def _next(built: Built, chosen: Configuration, survival: Sequence[Robustness]) -> Evidence | None:
    """The evidence whose interval moves the decision most, or else the predicted rate."""
    for one in survival:
        if one.number in built.evidence and (one.decides or one.rate_factor > 1 + CLOSE):
            return built.rests_on(one.number, chosen)
    return None


def _notes(built: Built, result: Solved) -> list[str]:
    parts, notes = built.parts, []
    chosen = result.answer.configuration
    workload = parts.workload
    if parts.table and parts.table.differs:
        notes.append(
            f"profiled was {parts.table.workload} with other {', '.join(parts.table.differs)}; what depends on those "
            "was interpolated or modeled, the rest is that profile's"
        )
    for option, factor in zip(chosen.options, slowdowns(built.problems[result.place], chosen), strict=True):
        if factor != 1:
            notes.append(
                f"{option.part} takes {factor:.2f} times as long beside what runs on other cores of {option.device}; "
                "its time above counts that"
            )
    if parts.table is None:
        notes.append(
            f"no records of {parts.platform.name}: every time is modeled, quoted, or carried over from another machine"
        )
    elif not parts.table.rows:
        notes.append(f"no profile of {workload.name}; {how_to_measure(f'profile --workload {parts.workload_word}')}")
    in_turns = result.place.in_turns
    if in_turns and chosen.depth:
        notes.append(f"the workload's {chosen.depth} batches sampled ahead gain nothing where everything takes turns")
    if not in_turns and chosen.depth == 0:
        notes.append(
            "the workload samples no batch ahead, so nothing of the loop overlaps; --free presampled lifts that"
        )
    if parts.table and parts.table.overheads and in_turns:
        over = parts.table.overheads
        if over.rest > 1:
            notes.append(
                f"a gradient step in a loop takes {over.rest:.2f} times as long as alone, or "
                f"{over.rest_seconds * 1e6:,.0f} us more if that is longer, and the tree {over.cold_seconds * 1e9:.0f} "
                f"ns an element more: {over.description}"
            )
    count = workload.actors.count
    if result.answer.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
        if built.details(chosen.actors).get("processes") == count:
            notes.append(
                f"each of the workload's actors ({count}) has a process already; --fix actor_count= takes others"
            )
    if chosen.sampling.device != chosen.updating.device:
        notes.append("sampling and updating part: how sums travel between two trees is our model, nobody has built it")
    return [*notes, *_upper_bound(result.place), *built.notes(chosen)]


def _upper_bound(place: Place) -> Iterator[str]:
    if not place.in_turns:
        high = ", ".join(f"{share:.0%} at D = {depth}" for depth, share in TOO_HIGH.items())
        yield (
            "the rate is an upper bound: where parts run at the same time, batches meet on their way; of random loops "
            f"it was too high by up to {high} (`python -m dse depth` simulates a system's own)"
        )


def _shortage(built: Built, results: Sequence[Infeasible]) -> Shortage:
    repairs: list[Mapping[str, tuple[float, float]]] = []
    links: set[tuple[str, str]] = set()
    for missing in (repair for result in results for repair in result.repairs):
        repairs += [missing.budgets] if missing.budgets else []
        links |= set(missing.ways)
    unique: dict[tuple[str, ...], Mapping[str, tuple[float, float]]] = {}
    for repair in sorted(repairs, key=lambda repair: (len(repair), _excess(repair))):
        if not any(set(names) <= set(repair) for names in unique):  # of the same budgets, the least that would do
            unique[tuple(repair)] = repair
    return Shortage(built.parts.platform.name, built.parts.workload.name, tuple(unique.values()), tuple(sorted(links)))


def lacking(shortage: Shortage) -> list[str]:
    """List what would be enough, a line each: budgets, bytes in GB or MB, then links that are not there."""
    budgets = [" and ".join(_amounts(name, *pair) for name, pair in one.items()) for one in shortage.repairs]
    return [*budgets, *(f"no chain of links from {source} to {target}" for source, target in shortage.no_links)]


def _amounts(name: str, have: float, need: float) -> str:
    if not name.endswith("_bytes"):
        return f"{name}: have {have:,.5g}, need {need:,.5g}"
    unit, size = ("GB", 1e9) if need >= 1e9 else ("MB", 1e6)
    return f"{name.removesuffix('_bytes')}: have {have / size:,.4g} {unit}, need {need / size:,.4g} {unit}"


def _excess(repair: Mapping[str, tuple[float, float]]) -> float:
    return max(need / have if have else math.inf for have, need in repair.values())
