"""The answer to a mapping question: what to run where, how fast, how sure, what is next, and what it all rests on."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .build import RULE, Built
from .infeasible import Infeasible
from .objectives import EPSILONS, OBJECTIVES, Objective, threshold, tie_key
from .parts import Evidence
from .problem import PARTS, Configuration, Option, Problem, ProblemError
from .search import Answer, Found, solve
from .sensitivity import Survival, Terms, around, spreads
from .throughput import LOOP_BOUND

ARRANGEMENT = {
    "serial": "one process does everything in turns, as `python -m impls.training` does",
    "apart": "actors on cores of their own; one process draws, gathers, learns and updates in turns",
    "pipelined": "actors, replay and learner on cores or devices of their own, all at the same time",
}
CLOSE = 0.005  # a rate that changes by less is sure enough


@dataclass(frozen=True)
class PartAnswer:
    """Where a part runs and how long it is busy in a gradient step."""

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


@dataclass(frozen=True)
class Other:
    """Another configuration, in words, and the share of the value that is lost with it."""

    told: str
    arrangement: str
    mapping: Mapping[str, str]
    value: float
    cost: float


@dataclass(frozen=True)
class MappingAnswer:
    """``hz`` gradient steps a second in [low, high] at 95 %; ``value`` by the objective. ``distance``: below ``bound``.

    ``bound``: the value of every part on its fastest option, without sharing, transfers or budgets.
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
    survival: tuple[Survival, ...]
    sources: tuple[Evidence, ...]
    measure_next: Evidence | None
    configurations: int
    notes: tuple[str, ...]

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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Solved:
    """The place and the answer of the best, and what was found in each place."""

    place: str
    answer: Answer
    found: Mapping[str, Found]
    epsilon: float

    @property
    def best(self) -> float:
        """The largest value of all."""
        return max(one.best for one in self.found.values())


def solved(
    problems: Mapping[str, Problem], objective: Objective, epsilon: float | None = None
) -> Solved | list[Infeasible]:
    """The answer over all places, by the same rule as within one; then the place that comes first.

    A place's own answer may be epsilon below a best that is itself below that of all: then it is solved again with what
    is left of epsilon.
    """
    if objective not in OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}")
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    results = {place: solve(problem, objective, epsilon) for place, problem in problems.items()}
    found = {place: one for place, one in results.items() if isinstance(one, Found)}
    if not found:
        return [one for one in results.values() if isinstance(one, Infeasible)]
    least = threshold(max(one.best for one in found.values()), epsilon)
    for place, one in found.items():
        if one.value < least <= one.best:
            again = solve(problems[place], objective, max(0.0, 1 - least / one.best))
            if isinstance(again, Found):
                found[place] = again
    good = [place for place, one in found.items() if one.value >= least]
    order = list(problems)

    def key(place: str) -> tuple[Any, ...]:
        one = found[place]
        return (*tie_key(problems[place], one.choice, one.outcome)[:5], order.index(place))

    place = min(good, key=key)
    return Solved(place, found[place].answer, found, epsilon)


def answered(built: Built, objective: Objective, epsilon: float | None = None) -> MappingAnswer | Shortage:
    """The whole answer."""
    result = solved(built.problems, objective, epsilon)
    parts = built.parts
    if not isinstance(result, Solved):
        return _shortage(built, result)
    chosen, given = result.answer.configuration, result.answer.outcome
    others = _others(built, result)
    terms, names = _terms(built, result, objective)
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
        arrangement=result.place.split(maxsplit=1)[0],
        parts=tuple(_part(built, chosen, option) for option in chosen.options),
        depth=chosen.depth,
        cores=(sum(option.needs.get(cpu, 0.0) for option in chosen.options), built.problems[result.place].budgets[cpu]),
        value=result.answer.value,
        low=min(low, result.answer.value),
        high=max(high, result.answer.value),
        hz=given.hz,
        actor_hz=given.actor_hz,
        bottleneck=_bottleneck(built.problems[result.place], chosen, given.bottleneck),
        bound=bound,
        distance=1 - result.answer.value / bound,
        learner_hz=max(one.learner_hz for one in result.found.values()),
        watts=given.watts,
        ties=tuple(_by_mapping(others, threshold(result.best, result.epsilon))),
        runner_up=others[0] if others else None,
        elsewhere=next((other for other in others if other.mapping != _mapping(chosen)), None),
        survival=survival,
        sources=tuple(built.evidence[number] for number in used),
        measure_next=_next(built, survival),
        configurations=sum(one.configurations for one in result.found.values()),
        notes=tuple(_notes(built, result)),
    )


def difference(chosen: tuple[str, Configuration], other: tuple[str, Configuration]) -> str:
    """What another configuration has that the chosen one, each with its place, has not."""
    (here, mine), (there, yours) = chosen, other
    told = []
    if here.split(maxsplit=1)[0] != there.split(maxsplit=1)[0]:
        told.append(there.split(maxsplit=1)[0])
    pairs = ((mine.actors, yours.actors), (mine.learner, yours.learner), (mine.storage, yours.storage))
    for one, two in pairs:
        if (one.device, one.name) != (two.device, two.name):
            told.append(f"{one.part} on {two.device}" + (f" ({two.name})" if two.name != one.name else ""))
    if _tree(mine) != _tree(yours):
        told.append(_tree(yours))
    if mine.depth != yours.depth:
        told.append(f"{yours.depth} batches drawn ahead")
    return ", ".join(told) or f"the same with cores to replay ({there})"


def _tree(one: Configuration) -> str:
    if one.sampling.device == one.updating.device:
        return f"tree on {one.updating.device} ({one.updating.name})"
    return f"drawing on {one.sampling.device} ({one.sampling.name}), updating on {one.updating.device}"


def _mapping(chosen: Configuration) -> dict[str, str]:
    return {str(part): chosen.of(part).device for part in PARTS}


def _part(built: Built, chosen: Configuration, option: Option) -> PartAnswer:
    name, time, details = option.name, option.time, dict(built.details(option))
    if option.part == "sampling" and option.name == "with updating":
        name, told = chosen.updating.name, built.details(chosen.updating)
        share = told["draw_seconds"] / (told["draw_seconds"] + told["update_seconds"])
        return _told(option, name, details, chosen.updating, share)
    if option.part == "updating" and chosen.sampling.name == "with updating":
        share = details.pop("update_seconds") / (chosen.updating.seconds)
        details.pop("draw_seconds")
        return _told(option, name, details, option, share)
    return PartAnswer(
        option.part,
        option.device,
        option.engine,
        name,
        details,
        time.seconds,
        time.low,
        time.high,
        time.source,
        time.number,
    )


def _told(option: Option, name: str, details: Mapping[str, Any], held: Option, share: float) -> PartAnswer:
    """A part whose time is a share of another option's."""
    time = held.time
    ends = time.low * share, time.high * share
    return PartAnswer(
        option.part, option.device, option.engine, name, details, time.seconds * share, *ends, time.source, time.number
    )


def _bottleneck(problem: Problem, chosen: Configuration, engine: str) -> str:
    if engine == LOOP_BOUND:
        return f"batches under way: a batch waits for the one before it ({chosen.depth} drawn ahead)"
    on = [str(part) for part in PARTS if chosen.of(part).engine == engine]
    if not on:
        return engine
    if len(on) == 1:
        return f"{on[0]} on {chosen.of(on[0]).device}"  # type: ignore[arg-type]
    return f"{engine}, which does {', '.join(on)} in turns"


def _others(built: Built, result: Solved) -> list[Other]:
    """The best of every other mapping or place that was found, and the runner-up within the choice's; best first."""
    rows: list[tuple[float, str, Configuration, float]] = []
    for place, found in result.found.items():
        answers = [found.answer, *found.ties, found.runner_up, found.elsewhere]
        rows += [(one.value, place, one.configuration, one.outcome.hz) for one in answers if one]
    choice = (result.place, result.answer.configuration)
    seen, kept = {_key(*choice)}, list[Other]()
    for value, place, one, _ in sorted(rows, key=lambda row: -row[0]):
        key = _key(place, one)
        if key not in seen:
            seen.add(key)
            told = difference(choice, (place, one))
            kept.append(Other(told, place.split(maxsplit=1)[0], _mapping(one), value, 1 - value / result.answer.value))
    return kept


def _by_mapping(others: Sequence[Other], least: float) -> list[Other]:
    """The best of each arrangement on each mapping of parts to devices, as long as it is as good as the best."""
    found: dict[tuple[Any, ...], Other] = {}
    for other in others:
        if other.value >= least:
            found.setdefault((other.arrangement, *other.mapping.items()), other)
    return list(found.values())


def _key(place: str, one: Configuration) -> tuple[Any, ...]:
    """What a reader can tell apart: not how many cores stand by to replay."""
    arrangement = place.split(maxsplit=1)[0]
    return (arrangement, *((option.device, option.name) for option in one.options), one.depth)


def _terms(built: Built, result: Solved, objective: Objective) -> tuple[Terms, list[str]]:
    """The choice first, then every configuration a changed number might put in its place."""
    rows = [(result.place, result.answer.configuration)]
    for place, found in result.found.items():
        answers = [found.answer, *found.ties, *(one for one in (found.runner_up, found.elsewhere) if one)]
        rows += [(place, one.configuration) for one in answers]
        rows += [(place, one) for one in around(built.problems[place], found.choice)]
    unique = list({(place, _key(place, one)): (place, one) for place, one in rows}.values())
    found_terms = Terms(
        [(built.problems[place], one) for place, one in unique], objective, spreads(list(built.problems.values()))
    )
    return found_terms, [difference(rows[0], (place, one)) for place, one in unique]


def _numbers(built: Built, result: Solved) -> list[str]:
    """Of the chosen configuration, parts first, then links."""
    problem, chosen = built.problems[result.place], result.answer.configuration
    numbers = [option.time.number for option in chosen.options]
    for flow in problem.flows:
        way = problem.ways.get((chosen.of(flow.source).device, chosen.of(flow.target).device), ())
        numbers += [hop.number for hop in way]
    return [number for number in dict.fromkeys(numbers) if number in built.evidence]


def _next(built: Built, survival: Sequence[Survival]) -> Evidence | None:
    """The number whose interval moves the decision, or else the predicted rate, most."""
    for one in survival:
        if one.number in built.evidence and (one.decides or one.rate_factor > 1 + CLOSE):
            return built.evidence[one.number]
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
    if parts.table is None:
        notes.append("no records of this machine: every time is modeled, quoted, or carried over from another machine")
    elif not parts.table.rows:
        notes.append(f"no profile of {workload.name}: python -m benchmarks profile --workload {workload.name}")
    apart = result.place in ("apart", "serial")
    if apart and chosen.depth:
        notes.append(f"the workload's {chosen.depth} batches drawn ahead gain nothing where everything takes turns")
    if not apart and chosen.depth == 0:
        notes.append("the workload draws no batch ahead, so nothing of the loop overlaps; --free presampled lifts that")
    if parts.table and parts.table.overheads and result.place in ("serial", "apart"):
        over = parts.table.overheads
        if over.rest > 1:
            notes.append(
                f"a gradient step in a loop takes {over.rest:.2f} times as long as alone, or "
                f"{over.rest_seconds * 1e6:,.0f} us more if that is longer, and the tree {over.cold_seconds * 1e9:.0f} "
                f"ns an element more: {over.told}"
            )
    count = workload.actors.count
    if result.answer.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
        if built.details(chosen.actors).get("processes") == count:
            notes.append(
                f"each of the workload's actors ({count}) has a process already; --fix actor_count= takes others"
            )
    if chosen.sampling.device != chosen.updating.device:
        notes.append("drawing and updating part: how sums travel between two trees is our model, nobody has built it")
    return notes


def _shortage(built: Built, results: Sequence[Infeasible]) -> Shortage:
    repairs: list[Mapping[str, tuple[float, float]]] = []
    links: set[tuple[str, str]] = set()
    for one in results:
        for repair in one.repairs:
            if not any(name.startswith(RULE) for name in repair.budgets):
                repairs += [repair.budgets] if repair.budgets else []
                links |= set(repair.ways)
    unique: dict[tuple[str, ...], Mapping[str, tuple[float, float]]] = {}
    for found in sorted(repairs, key=lambda repair: (len(repair), _excess(repair))):
        if not any(set(names) <= set(found) for names in unique):  # of the same budgets, the least that would do
            unique[tuple(found)] = found
    return Shortage(built.parts.platform.name, built.parts.workload.name, tuple(unique.values()), tuple(sorted(links)))


def _excess(repair: Mapping[str, tuple[float, float]]) -> float:
    return max(need / have if have else math.inf for have, need in repair.values())
