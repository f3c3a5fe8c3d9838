"""The answer to a mapping question: what to run where, how fast, how sure, what is next, and what it all rests on."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..answer import Note
from ..estimate import Estimate, Evidence, Interval, off
from ..records import Source, how_to_measure
from ..solver.deciding import timed_of
from ..solver.law import LOOP_BOUND, TOO_HIGH, Objective, slowdowns, sum_needs, transfers
from ..solver.problem import LOOP, PARTS, Configuration, Option, Part, Problem
from ..solver.queues import Simulated, run_configuration
from ..solver.solve import Candidate, Infeasible, solve
from ..times.whole_runs import REFERENCE
from .alternatives import Chosen, Decides, Other, choose
from .build import Built
from .doubt import Doubt, interval, source_of
from .options import implementation_of
from .processes import ExecutionMode, Process, is_here, processes_of, strategy_of
from .step_shares import StepShare, beyond, step_shares

BY: tuple[Part, ...] = ("learner", "actors")
"""The parts that have implementations: gradient steps, and the policy that actors act by."""


@dataclass(frozen=True)
class Rate:
    """The best value by the objective, in [low, high], of mappings with this implementation, E environments and L
    learners that combine by ``sync``."""

    value: float
    low: float
    high: float
    source: Source
    upper_bound: bool
    implementation: str = ""  # of learner and policy; "" for any
    environments: int = 1
    learners: int = 1
    sync: str = ""


def rate_of(built: Built, objective: Objective, epsilon: float | None, by: str = "") -> Rate | None:
    """The best rate of a problem, with learner and policy ``by`` an implementation; None where nothing fits."""
    problems = {mode: one for mode, problem in built.problems.items() if (one := _by(built, problem, by))}
    found = solve(problems, objective, epsilon) if problems else None
    if found is None or isinstance(found, Infeasible):
        return None
    return _rate(built, found.answer, Doubt(objective, found.epsilon).ends(found.answer), by)


def _rate(built: Built, one: Candidate, ends: tuple[float, float], by: str) -> Rate:
    known, is_bound = built.details(one.configuration.learner), not one.mode.in_turns
    how = known.get("learners", 1), known.get("sync", "")
    return Rate(one.value, *ends, source_of(one), is_bound, by, built.parts.environments, *how)


def by_implementation(built: Built, objective: Objective, epsilon: float | None, chosen: Chosen) -> tuple[Rate, ...]:
    """The rate of each implementation of learner and policy, the fastest first; none where there is no choice.

    Of the one by which the ``chosen`` learns and acts, it is that rate.
    """
    one = chosen.answer
    by = {implementation_of(built.details(one.configuration.of(part))) for part in BY}
    options = [option for problem in built.problems.values() for part in BY for option in problem.options[part]]
    names = sorted({implementation_of(built.details(option)) for option in options})
    rates = [
        rate
        for name in (names if len(names) > 1 else ())
        if (
            rate := _rate(built, one, chosen.doubt.ends(one), name)
            if by == {name}
            else rate_of(built, objective, epsilon, name)
        )
    ]
    return tuple(sorted(rates, key=lambda rate: -rate.value)) if len(rates) > 1 else ()


def by_learners(built: Built, objective: Objective, epsilon: float | None, chosen: int) -> tuple[Rate, ...]:
    """The rate of each other number of learners than the ``chosen``, where several were tried."""
    groups: dict[int, dict[ExecutionMode, Problem]] = {}
    for mode, problem in built.problems.items():
        count = built.details(problem.options["learner"][0]).get("learners", 1)
        groups.setdefault(count, {})[mode] = problem
    others = (replace(built, problems=groups[count]) for count in sorted(groups) if count != chosen)
    return tuple(rate for one in others if (rate := rate_of(one, objective, epsilon)))


def _by(built: Built, problem: Problem, name: str) -> Problem | None:
    """The problem with the options of an implementation; None where a part has none."""
    for part in BY if name else ():
        options = [one for one in problem.options[part] if implementation_of(built.details(one)) == name]
        if not options:
            return None
        problem = problem.having(part, *options)
    return problem


def notes(built: Built, objective: Objective, one: Candidate) -> Iterator[Note]:
    """Yield what the rate counts and what it leaves out; warnings where the question is not quite what is answered."""
    parts, mode, chosen = built.parts, one.mode, one.configuration
    yield from _profile_notes(built)
    for option in chosen.options:
        if (factor := slowdowns(one.problem, chosen.where)[option.part]) != 1:
            is_other = implementation_of(built.details(option)) != REFERENCE
            values = {"part": option.part, "device": option.device, "factor": factor, "timed_with": REFERENCE}
            yield Note("slowdown_of_other" if is_other else "slowdown", values)
    yield from _depth_notes(mode, chosen.depth)
    if mode.arrangement == "serial" and (ratio := built.ratios.get(mode, 1.0)) != 1:
        yield Note("whole_loop", {"ratio": ratio})
    count = parts.workload.actors.count
    if one.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
        if built.details(chosen.actors).get("processes") == count:
            yield Note("actors_have_processes", {"actors": count})
    if chosen.sampling.device != chosen.updating.device:
        yield Note("tree_is_parted", level="warning")
    if parts.environments > 1:
        yield Note("several_environments", {"environments": parts.environments}, "warning")
    if objective == "per_watt":
        yield Note("watts_are_limits")
    yield from built.notes(chosen)


def _profile_notes(built: Built) -> Iterator[Note]:
    """Yield whether the records are of another shape of the workload, or lack its profile."""
    parts = built.parts
    if parts.table and parts.table.differs:
        yield Note("profile_differs", {"workload": parts.table.workload, "differs": parts.table.differs}, "warning")
    if parts.table is None:
        yield Note("no_records", {"platform": parts.platform.name})
    elif not parts.table.rows:
        command = how_to_measure(f"profile --workload {parts.workload_word}")
        yield Note("no_profile", {"workload": parts.workload.name, "how": command}, "warning")


def _depth_notes(mode: ExecutionMode, depth: int) -> Iterator[Note]:
    """Yield whether batches that are sampled ahead gain anything, and how far off the rate may be."""
    if mode.in_turns and depth:
        yield Note("depth_gains_nothing", {"depth": depth})
    if not mode.in_turns and depth == 0:
        yield Note("nothing_overlaps")
    if not mode.in_turns:
        yield Note("rate_is_bound", {"too_high": {f"D = {ahead}": share for ahead, share in TOO_HIGH.items()}})


CLOSE = 0.005  # a rate that changes by less is sure enough


@dataclass(frozen=True)
class PartAnswer:
    """Where a part runs, and its seconds of a gradient step; ``interval``: what low and high mean.

    ``charged``: the seconds that its engine is charged, and each further (device, engine) of ``also``: other than its
    own where a serial loop was timed whole.
    """

    part: str
    device: str
    engine: str
    choice: str
    details: Mapping[str, Any]
    seconds: float
    low: float
    high: float
    source: Source
    number: str
    interval: Interval
    charged: float = 0.0
    also: tuple[tuple[str, str], ...] = ()

    @property
    def time(self) -> dict[str, Any]:
        """The seconds with their ends and their source, as plain values."""
        return {name: getattr(self, name) for name in ("low", "high", "source")} | {"value": self.seconds, "unit": "s"}

    @property
    def engines(self) -> tuple[str, ...]:
        """All engines that are busy meanwhile."""
        return (self.engine, *(engine for _, engine in self.also))

    @property
    def factor(self) -> float:
        """Error bound of the seconds, as a factor."""
        return off(self.seconds, self.low, self.high)


@dataclass(frozen=True)
class TransferAnswer:
    """What a gradient step sends over a link, and the seconds that this keeps an engine busy.

    ``waits``: whether a batch waits for it.
    """

    engine: str
    source: str
    target: str
    seconds: float
    nbytes: float
    waits: bool


@dataclass(frozen=True)
class MappingAnswer:
    """``hz`` gradient steps/s; ``value`` by the objective, in [low, high]. ``distance``: below ``bound``.

    ``interval``: what low and high mean, "95 %" or, where any part of it was not timed, "factor". ``upper_bound``:
    whether parts run at the same time, so that the rate is at most so high. ``searched``: what was tried where more
    could be made; ``tried``: options by (part, device). ``bound``: the value of every part on its fastest option,
    without sharing, transfers or budgets.
    ``best``: what is expected to give most, where that is another one. ``ties``: what is statistically tied with it,
    undominated ones; ``others_tied``: how many more; ``decide``: what to measure to tell them apart. ``simulated``:
    runs of the mapping with exact and with exponential times. ``decides``: ends of times' intervals, where
    another mapping is better first. ``watts``: the limits of all ``devices`` in use, each whole. ``shares``: how the
    step of a serial loop is spent. ``environments``: how many each actor steps at once.
    ``by_implementation``: what each implementation of learner and policy would give; ``by_environments``: what other
    numbers of environments would, ``by_learners`` of learners. ``runs_here``: whether impls.training has a program for
    its arrangement; of such with several processes those, and the locking ``strategy`` of the replay that they share.
    ``learners``: how many, of several how they combine.
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
    bottleneck: Note
    bound: float
    distance: float
    learner_hz: float
    watts: float | None
    ties: tuple[Other, ...]
    elsewhere: Other | None
    decides: tuple[Decides, ...]
    sources: tuple[Evidence, ...]
    measure_next: Evidence | None
    configurations: int
    notes: tuple[Note, ...]
    interval: Interval
    upper_bound: bool
    searched: tuple[Note, ...]
    tried: Mapping[tuple[str, str], int]
    machine: str = ""  # whose records were read, if any
    machine_note: Note | None = None  # says so where another machine stands for "this"
    profile_notes: tuple[Note, ...] = ()  # that the profile is incomplete, or was disturbed
    results: str = ""  # the folder of those records, as it was given
    best: Other | None = None
    others_tied: int = 0
    decide: Evidence | None = None
    simulated: tuple[Simulated, ...] = ()
    transfers: tuple[TransferAnswer, ...] = ()
    devices: tuple[str, ...] = ()
    called: str = ""  # the workload's name or file, where the question changes no value in it
    shares: tuple[StepShare, ...] = ()
    environments: int = 1
    runs_here: bool = False
    strategy: str = ""
    processes: tuple[Process, ...] = ()
    by_implementation: tuple[Rate, ...] = ()
    by_environments: tuple[Rate, ...] = ()
    by_learners: tuple[Rate, ...] = ()
    learners: int = 1
    sync: str = ""
    period: int = 0
    banks: int = 1
    chosen: Candidate | None = field(default=None, repr=False, compare=False)  # what it was made from

    @property
    def busy(self) -> dict[str, float]:
        """Seconds a gradient step keeps each engine busy: its parts and its transfers."""
        spent: dict[str, float] = {}
        for engine, seconds, _ in self.charges:
            spent[engine] = spent.get(engine, 0.0) + seconds
        return spent

    @property
    def charges(self) -> list[tuple[str, float, str]]:
        """(engine, seconds, of what) of each part and transfer."""
        parts = [(engine, part.charged, part.part) for part in self.parts for engine in part.engines]
        return [*parts, *((one.engine, one.seconds, f"{one.source} to {one.target}") for one in self.transfers)]


@dataclass(frozen=True)
class Shortage:
    """Why nothing fits: each entry of ``repairs`` would be enough, budgets as (have, need) by name."""

    platform: str
    workload: str
    repairs: tuple[Mapping[str, tuple[float, float]], ...]
    no_links: tuple[tuple[str, str], ...]
    machine: str = ""
    machine_note: Note | None = None
    profile_notes: tuple[Note, ...] = ()
    results: str = ""


def build_answer(built: Built, objective: Objective, epsilon: float | None = None) -> MappingAnswer | Shortage:
    """The best mapping with its alternatives and how sure it is, or what lacks for any to fit.

    What is statistically tied with the best counts as equally good (``doubt.py``); with an epsilon just that.
    """
    made = choose(built.problems, objective, epsilon)
    if isinstance(made, Infeasible):
        return _shortage(built, made)
    one, found, parts, mode = made.answer, made.found, built.parts, made.answer.mode
    chosen, outcome, decides = one.configuration, one.outcome, made.decides(built.problems)
    low, high = made.doubt.ends(one)
    workload, slower = parts.workload, slowdowns(one.problem, chosen.where)
    at_home = all({device for device, _ in option.where} == {parts.cpu.name} for option in chosen.options)
    is_shared = mode.arrangement != "serial" and at_home and is_here(parts)
    runs_here, actors = is_shared or mode.arrangement == "serial", built.details(chosen.actors).get("processes", 1)
    combined = built.details(chosen.learner)
    learners = combined.get("learners", 1)
    numbers = dict.fromkeys(timed.rests_on.number for timed in timed_of(one))
    engine = outcome.training_bottleneck if objective == "training" else outcome.bottleneck
    return MappingAnswer(
        platform=parts.platform.name,
        workload=workload.name,
        batch=workload.learner.batch,
        update_interval=workload.learner.update_interval,
        objective=objective,
        epsilon=found.epsilon,
        arrangement=mode.arrangement,
        parts=tuple(_part(built, beyond(built, mode), option, slower[option.part]) for option in chosen.options),
        depth=chosen.depth,
        cores=(sum_needs(one.problem, chosen)[f"{parts.cpu.name}.cores"], float(parts.cores)),
        value=one.value,
        low=low,
        high=high,
        hz=outcome.hz,
        actor_hz=outcome.actor_hz,
        bottleneck=_bottleneck(chosen, objective, engine),
        bound=found.bound,
        distance=1 - one.value / found.bound,
        learner_hz=max(
            1 / option.seconds for problem in built.problems.values() for option in problem.options["learner"]
        ),
        watts=outcome.watts,
        ties=tuple(map(made.other, made.ties)),
        elsewhere=made.other(made.elsewhere) if made.elsewhere else None,
        decides=decides,
        sources=tuple(built.rests_on(number, chosen) for number in numbers),
        measure_next=_next(built, one, decides),
        configurations=found.configurations,
        notes=tuple(notes(built, objective, one)),
        interval=interval(one),
        upper_bound=not mode.in_turns,
        searched=built.searched,
        tried=built.count_options(),
        best=made.other(made.best) if made.best else None,
        others_tied=made.others_tied,
        decide=made.decide and built.rests_on(made.decide.number, chosen),
        simulated=run_configuration(one.problem, chosen, objective != "training"),
        transfers=tuple(_transfers(one)),
        devices=outcome.devices,
        shares=step_shares(built, one),
        environments=parts.environments,
        runs_here=runs_here,
        strategy=strategy_of(mode.arrangement, combined.get("banks", 1)) if is_shared else "",
        processes=processes_of(parts, mode.arrangement, actors, learners) if is_shared else (),
        by_implementation=by_implementation(built, objective, epsilon, made),
        by_learners=by_learners(built, objective, epsilon, learners),
        learners=learners,
        sync=combined.get("sync", ""),
        period=combined.get("period", 0),
        banks=combined.get("banks", 1),
        chosen=one,
    )


def _part(built: Built, beyond: float, option: Option, slower: float) -> PartAnswer:
    time, evidence = option.time.scaled(slower / beyond), option.time.rests_on
    if evidence.alone:  # the whole was timed, and this share of it was not
        source, factor = evidence.alone
        evidence = replace(evidence, source=source)
        time = Estimate.within(time.value, max(time.factor, factor), evidence)
    return PartAnswer(
        *(option.part, option.device, option.engine, option.name, built.details(option)),
        *(time.value, time.low, time.high),
        *(evidence.source, evidence.number),
        time.interval,
        option.seconds * slower,
        option.also,
    )


def _transfers(one: Candidate) -> Iterator[TransferAnswer]:
    for flow, hop in transfers(one.problem, one.configuration.where):
        yield TransferAnswer(hop.engine, flow.source, flow.target, hop.seconds(flow), flow.nbytes, flow.waits)


def _bottleneck(chosen: Configuration, objective: Objective, engine: str) -> Note:
    if engine == LOOP_BOUND:
        return Note("bound_by_batches", {"engine": engine, "depth": chosen.depth})
    parts = [chosen.of(part) for part in (LOOP if objective == "training" else PARTS)]
    on = [option for option in parts if engine in {name for _, name in option.where}]
    pairs = [pair for option in on for pair in option.where]
    device = next((device for device, name in pairs if name == engine), "")
    named: dict[str, Any] = {"engine": engine, "device": device, "parts": [option.part for option in on]}
    if len(on) == 1:
        return Note("bound_by_part", named | {"devices": [device for device, _ in on[0].where]})
    return Note("bound_by_parts" if on else "bound_by_engine", named)


def _next(built: Built, one: Candidate, decides: Sequence[Decides]) -> Evidence | None:
    """The evidence whose interval moves the decision most, or else the predicted rate."""
    moving = (each.number for each in decides if each.differs or abs(math.log(each.value / one.value)) > CLOSE)
    return next((built.rests_on(number, one.configuration) for number in moving if number in built.evidence), None)


def _shortage(built: Built, result: Infeasible) -> Shortage:
    repairs: list[Mapping[str, tuple[float, float]]] = []
    links: set[tuple[str, str]] = set()
    for missing in result.repairs:
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
