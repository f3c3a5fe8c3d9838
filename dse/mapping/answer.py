"""The answer to a mapping question: what to run where, how fast, how sure, what is next, and what it all rests on."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..estimate import Evidence, Interval, off
from ..records import how_to_measure
from ..solver.infeasible import Infeasible
from ..solver.objectives import Objective
from ..solver.problem import LOOP, PARTS, Configuration, Option
from ..solver.queues import Simulated
from ..solver.result import Solution
from ..solver.sensitivity import Robustness
from ..solver.solution import solve
from ..solver.throughput import LOOP_BOUND, TOO_HIGH, needed, slowdowns, transfers
from ..times.whole_runs import REFERENCE
from .alternatives import Other, other_of
from .build import Built
from .options import Place, implementation_of
from .processes import Process, is_here, processes_of, strategy_of
from .rates import Rate, by_implementation
from .step_shares import StepShare, beyond, step_shares


def notes(built: Built, solution: Solution) -> list[str]:
    """What the rate counts and what it leaves out, a sentence each."""
    parts, place, notes = built.parts, Place(solution.mode), list[str]()
    chosen = solution.choice
    workload = parts.workload
    if parts.table and parts.table.differs:
        notes.append(
            f"profiled was {parts.table.workload} with other {', '.join(parts.table.differs)}; what depends on those "
            "was interpolated or modeled, the rest is that profile's"
        )
    for option, factor in zip(chosen.options, slowdowns(solution.problem, chosen), strict=True):
        if factor != 1:
            notes.append(
                f"on {option.device} the time of {option.part} is {factor:.2f} times as long beside what runs on other "
                f"cores; the time above counts that{_by_reference(built, option)}"
            )
    if parts.table is None:
        notes.append(
            f"no records of {parts.platform.name}: every time is modeled, quoted, or carried over from another machine"
        )
    elif not parts.table.rows:
        notes.append(f"no profile of {workload.name}; {how_to_measure(f'profile --workload {parts.workload_word}')}")
    in_turns = place.in_turns
    if in_turns and chosen.depth:
        notes.append(f"the workload's {chosen.depth} batches sampled ahead gain nothing where everything takes turns")
    if not in_turns and chosen.depth == 0:
        notes.append(
            "the workload samples no batch ahead, so nothing of the loop overlaps; --free presampled lifts that"
        )
    if place.arrangement == "serial" and (ratio := built.ratios.get(place, 1.0)) != 1:
        notes.append(f"a whole serial loop took {ratio:.2f} times its parts, each timed alone; the rate is the loop's")
    count = workload.actors.count
    if solution.outcome.bottleneck == chosen.actors.engine != chosen.learner.engine:
        if built.details(chosen.actors).get("processes") == count:
            notes.append(
                f"each of the workload's actors ({count}) has a process already; --fix actor_count= takes others"
            )
    if chosen.sampling.device != chosen.updating.device:
        notes.append("sampling and updating part: how sums travel between two trees is our model, nobody has built it")
    return [*notes, *_of_the_rate(solution.objective, place, parts.environments), *built.notes(chosen)]


def _by_reference(built: Built, option: Option) -> str:
    """Say that a factor was not timed with the implementation of an option; "" where it was."""
    is_other = implementation_of(built.details(option)) != REFERENCE
    return f", as timed with learner and policy {REFERENCE}" * is_other


def _of_the_rate(objective: Objective, place: Place, environments: int) -> Iterator[str]:
    if environments > 1:
        yield (
            f"actors.environments = {environments:,}: each actor steps so many at once, by the same weights; another "
            "number changes learning slightly"
        )
    if objective == "per_watt":
        yield "watts are the limits of whole devices, each counted in full as soon as anything runs on it"
    if not place.in_turns:
        high = ", ".join(f"{share:.0%} at D = {depth}" for depth, share in TOO_HIGH.items())
        yield (
            "the rate is an upper bound: where parts run at the same time, batches meet on their way; of random loops "
            f"it was too high by up to {high} (`python -m dse depth` simulates a system's own)"
        )


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
    source: str
    number: str
    interval: Interval
    charged: float = 0.0
    also: tuple[tuple[str, str], ...] = ()

    @property
    def engines(self) -> tuple[str, ...]:
        """All engines that are busy meanwhile."""
        return (self.engine, *(engine for _, engine in self.also))

    @property
    def factor(self) -> float:
        """How far off the seconds may be, as a factor."""
        return off(self.seconds, self.low, self.high)


@dataclass(frozen=True)
class TransferAnswer:
    """What a gradient step sends over a link, and the seconds that this keeps an engine busy.

    ``sent``: "storage to learner". ``waits``: whether a batch waits for it.
    """

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
    ``best``: what is expected to give most, where that is another one. ``ties``: what cannot be told apart from it,
    undominated ones; ``others_tied``: how many more; ``decide``: what to measure to tell them apart. ``simulated``:
    runs of the mapping with exact and with exponential times. ``watts``: the limits of all ``devices`` that it uses,
    each whole. ``shares``: how the step of a serial loop is spent. ``environments``: how many each actor steps at once.
    ``by_implementation``: what each implementation of learner and policy would give; ``by_environments``: what other
    numbers of environments would. ``runs_here``: whether impls.training has a program for its arrangement; of such with
    several processes those, and the locking ``strategy`` of the replay that they share.
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
    shares: tuple[StepShare, ...] = ()
    environments: int = 1
    runs_here: bool = False
    strategy: str = ""
    processes: tuple[Process, ...] = ()
    by_implementation: tuple[Rate, ...] = ()
    by_environments: tuple[Rate, ...] = ()
    solution: Solution | None = field(default=None, repr=False, compare=False)  # what it was made from

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
        return [*parts, *((one.engine, one.seconds, one.sent) for one in self.transfers)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain = asdict(replace(self, solution=None))
        del plain["solution"]
        return plain


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
    """The best mapping with its alternatives and how sure it is, or what lacks for any to fit.

    What cannot be told apart from the best counts as equally good (``solver/doubt.py``); with an epsilon just that.
    """
    solution = solve(built.problems, objective, epsilon)
    if isinstance(solution, Infeasible):
        return _shortage(built, solution)
    parts, place, problem = built.parts, Place(solution.mode), solution.problem
    chosen, outcome, survival = solution.choice, solution.outcome, solution.survival
    cpu, workload = f"{parts.cpu.name}.cores", parts.workload
    slower = slowdowns(problem, chosen)
    at_home = all({device for device, _ in option.where} == {parts.cpu.name} for option in chosen.options)
    is_shared = place.arrangement != "serial" and at_home and is_here(parts)
    runs_here, actors = is_shared or place.arrangement == "serial", built.details(chosen.actors).get("processes", 1)
    return MappingAnswer(
        platform=parts.platform.name,
        workload=workload.name,
        batch=workload.learner.batch,
        update_interval=workload.learner.update_interval,
        objective=objective,
        epsilon=solution.epsilon,
        arrangement=place.arrangement,
        parts=tuple(map(functools.partial(_part, built, beyond(built, place)), chosen.options, slower)),
        depth=chosen.depth,
        cores=(needed(problem, chosen)[cpu], float(parts.cores)),
        value=solution.value,
        low=solution.low,
        high=solution.high,
        hz=outcome.hz,
        actor_hz=outcome.actor_hz,
        bottleneck=_bottleneck(chosen, objective, solution.bottleneck),
        bound=solution.bound,
        distance=1 - solution.value / solution.bound,
        learner_hz=solution.learner_hz,
        watts=outcome.watts,
        ties=tuple(map(other_of, solution.ties)),
        runner_up=other_of(solution.runner_up),
        elsewhere=other_of(solution.elsewhere),
        survival=survival,
        sources=tuple(built.rests_on(one.number, chosen) for one in solution.evidence),
        measure_next=_next(built, chosen, survival),
        configurations=solution.configurations,
        notes=tuple(notes(built, solution)),
        interval=solution.interval,
        upper_bound=not place.in_turns,
        searched=built.searched,
        best=other_of(solution.best),
        others_tied=solution.others_tied,
        decide=solution.decide and built.rests_on(solution.decide.number, chosen),
        simulated=solution.simulated,
        transfers=tuple(_transfers(solution)),
        devices=outcome.devices,
        shares=step_shares(built, solution),
        environments=parts.environments,
        runs_here=runs_here,
        strategy=strategy_of(place.arrangement) if is_shared else "",
        processes=processes_of(parts, place.arrangement, actors) if is_shared else (),
        by_implementation=by_implementation(built, objective, epsilon, solution),
        solution=solution,
    )


def _part(built: Built, beyond: float, option: Option, slower: float) -> PartAnswer:
    time, evidence = option.time.scaled(slower / beyond), option.time.rests_on
    return PartAnswer(
        *(option.part, option.device, option.engine, option.name, built.details(option)),
        *(time.value, time.low, time.high),
        *(evidence.source, evidence.number),
        time.interval,
        option.seconds * slower,
        option.also,
    )


def _transfers(solution: Solution) -> Iterator[TransferAnswer]:
    for flow, hop, taken in transfers(solution.problem, solution.choice):
        yield TransferAnswer(hop.engine, f"{flow.source} to {flow.target}", taken, flow.nbytes, flow.waits)


def _bottleneck(chosen: Configuration, objective: Objective, engine: str) -> str:
    if engine == LOOP_BOUND:
        return f"batches under way: a batch waits for the one before it ({chosen.depth} sampled ahead)"
    parts = [chosen.of(part) for part in (LOOP if objective == "training" else PARTS)]
    on = [option for option in parts if engine in {name for _, name in option.where}]
    if not on:
        return engine
    if len(on) == 1:
        return f"{on[0].part} on {' and '.join(device for device, _ in on[0].where)}"
    return f"{engine}, which does {', '.join(option.part for option in on)} in turns"


def _next(built: Built, chosen: Configuration, survival: Sequence[Robustness]) -> Evidence | None:
    """The evidence whose interval moves the decision most, or else the predicted rate."""
    for one in survival:
        if one.number in built.evidence and (one.decides or one.rate_factor > 1 + CLOSE):
            return built.rests_on(one.number, chosen)
    return None


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
