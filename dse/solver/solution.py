"""A full answer from plain problems: the choice, how sure it is, what cannot be told apart from it, and what decides.

A problem for each execution mode goes in; ``doubt.py`` says what is chosen of what the search finds in all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..estimate import Evidence, Interval, off, written
from .doubt import Candidate, Doubt, undominated
from .infeasible import Infeasible
from .objectives import EPSILONS, Objective, bottleneck, threshold, tie_key, value
from .problem import PARTS, TREE, Configuration, Option, Problem, ProblemError
from .queues import Simulated, simulated
from .search import Answer, Found, frontier, overtaken
from .search import solve as search
from .sensitivity import Robustness, Row, Terms, around, spreads
from .throughput import Outcome, outcome

SHOWN = 3  # lines of a kind in a text


@dataclass(frozen=True)
class Alternative:
    """Another configuration: ``described`` by what sets it apart from the choice, with its value and the ends of it.

    ``chance``: the probability that it gives at least as much as the choice. ``cost``: the share of the choice's value
    that it loses, negative where it is expected to gain.
    """

    described: str
    mode: str
    configuration: Configuration
    outcome: Outcome
    value: float
    low: float
    high: float
    interval: Interval
    chance: float
    cost: float
    cores: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("described", "mode", "value", "low", "high", "interval", "chance", "cost", "cores")
        plain = {name: getattr(self, name) for name in names}
        return plain | {"devices": list(self.outcome.devices)} | plain_choice(self.configuration)


@dataclass(frozen=True)
class Solution:
    """What to choose of one or more problems, each an execution mode, and how sure that is.

    ``value`` by the objective, in [low, high], whose meaning ``interval`` says. ``best``: what is expected to give
    most, where that is another one. ``ties``: what cannot be told apart from the best, of which no other is as fast on
    as few devices and cores; ``others_tied``: how many more (execution mode, devices of the parts) cannot. The
    ``runner_up`` is the answer if just this configuration could not be had; ``elsewhere`` if its devices could not.
    ``bound``, ``learner_hz``, ``configurations``: as in ``Found``. ``survival``: by evidence, from which factor on
    something else is better. ``evidence``: all that the choice rests on. ``decide``: what to measure to tell the choice
    from the best of ``ties``. ``simulated``: runs of the choice; ``value`` is a bound, which batches that meet on their
    way stay below. ``problem``: that of the mode.
    """

    objective: Objective
    epsilon: float
    mode: str
    choice: Configuration
    outcome: Outcome
    value: float
    low: float
    high: float
    interval: Interval
    best: Alternative | None
    ties: tuple[Alternative, ...]
    others_tied: int
    runner_up: Alternative | None
    elsewhere: Alternative | None
    bound: float
    learner_hz: float
    survival: tuple[Robustness, ...]
    evidence: tuple[Evidence, ...]
    decide: Evidence | None
    simulated: tuple[Simulated, ...]
    configurations: int
    problem: Problem

    @property
    def candidate(self) -> Candidate:
        """The choice with its problem, to be compared with others."""
        return Candidate(self.mode, self.problem, Answer(self.choice, self.outcome, self.value))

    @property
    def bottleneck(self) -> str:
        """The engine that bounds the value, or ``LOOP_BOUND``."""
        return bottleneck(self.objective, self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("objective", "epsilon", "mode", "value", "low", "high", "interval", "others_tied", "bound")
        plain = {name: getattr(self, name) for name in (*names, "learner_hz", "configurations", "bottleneck")}
        plain |= plain_choice(self.choice) | {"hz": self.outcome.hz, "devices": list(self.outcome.devices)}
        plain |= {"busy": dict(self.outcome.busy), "watts": self.outcome.watts}
        others = {name: getattr(self, name) for name in ("best", "runner_up", "elsewhere")}
        plain |= {name: other and other.to_dict() for name, other in others.items()}
        plain["ties"] = [other.to_dict() for other in self.ties]
        for name in ("survival", "evidence", "simulated"):
            plain[name] = [dict(vars(one)) for one in getattr(self, name)]
        return plain | {"decide": self.decide and dict(vars(self.decide))}

    def __str__(self) -> str:
        return "\n".join(_text(self))


def plain_choice(configuration: Configuration) -> dict[str, Any]:
    """A configuration as plain values: its parts, and the depth."""
    parts = [
        {"part": one.part, "device": one.device, "engine": one.engine, "choice": one.name, "seconds": one.seconds}
        | {"low": one.time.low, "high": one.time.high, "number": one.time.rests_on.number, "source": one.time.source}
        for one in configuration.options
    ]
    return {"parts": parts, "depth": configuration.depth}


def kind(mode: str) -> str:
    """The kind of an execution mode, before the comma of its name: modes of a kind differ in their times alone.

    >>> kind("apart, 2 actors"), kind("serial")
    ('apart', 'serial')
    """
    return mode.partition(",")[0]


def difference(chosen: tuple[str, Configuration], other: tuple[str, Configuration]) -> str:
    """What an alternative has and the choice has not, in words; each is given with its execution mode."""
    (here, mine), (there, yours) = chosen, other
    words = [kind(there)] if kind(here) != kind(there) else []
    for part in ("actors", "learner", "storage"):
        one, two = mine.of(part), yours.of(part)
        if (_devices(one), one.name) != (_devices(two), two.name):
            words.append(f"{part} on {_devices(two)}" + (f" ({two.name})" if two.name != one.name else ""))
    if _tree(mine) != _tree(yours):
        words.append(_tree(yours))
    if mine.depth != yours.depth:
        words.append(f"{yours.depth} batches sampled ahead")
    return ", ".join(words) or "another of these names"


def _devices(option: Option) -> str:
    return " and ".join(device for device, _ in option.where)


def _tree(one: Configuration) -> str:
    sampling, updating = one.sampling, one.updating
    if (sampling.where, sampling.name) == (updating.where, updating.name):
        return f"tree on {_named(updating)}"
    if sampling.device == updating.device and sampling.name == updating.name:
        return f"tree on {_named(updating)}, sampling and updating apart"
    return f"sampling on {_named(sampling)}, updating on {_named(updating)}"


def _named(option: Option) -> str:
    return f"{_devices(option)} ({option.name})"


def _text(solution: Solution) -> Iterator[str]:
    """A full answer in some fifteen lines."""
    chosen = solution.choice
    alone = [f"{part} on {_named(chosen.of(part))}" for part in PARTS if part not in TREE]
    ahead = f"{chosen.depth} batches sampled ahead"
    yield (f"{kind(solution.mode)}: " if solution.mode else "") + ", ".join([*alone, _tree(chosen), ahead])
    yield f"at most {_rate(solution)}, bound by {solution.bottleneck}"
    for run in solution.simulated:
        times = "exponential times" if run.cv else "exact times"
        yield f"simulated with {times}: {run.hz:.3g} a second [{run.low:.3g}, {run.high:.3g}]"
    if solution.best:
        yield f"expected to give most: {_other(solution.best)}"
    for other in solution.ties[:SHOWN]:
        yield f"cannot be told apart: {_other(other)}"
    if more := solution.others_tied + len(solution.ties[SHOWN:]):
        others = "more" if solution.ties else f"other{'s' * (more > 1)}, none faster or on less,"
        yield f"{more} {others} cannot be told apart"
    if evidence := solution.decide:
        purpose = "to decide" if solution.ties or solution.others_tied else "to be surer of this than of the next"
        yield f"{purpose}, measure {evidence.number}" + (f": {evidence.command}" if evidence.command else "")
    if solution.runner_up and not solution.ties:
        yield f"next: {_other(solution.runner_up)}"
    statements = [sentence for one in solution.survival for sentence in one.statements]
    more_of = "gives more steps a joule" if solution.objective == "per_watt" else "is faster"
    yield from (sentence.replace("is faster", more_of) for sentence in statements[:SHOWN])
    if not any(one.up or one.down for one in solution.survival):
        yield "no single time that is wrong by up to 30 times changes the choice"


def _rate(solution: Solution) -> str:
    """The value with its factor, or its interval where it has one."""
    unit = "joule" if solution.objective == "per_watt" else "second"
    factor = off(solution.value, solution.low, solution.high)
    rate = written(f"{solution.value:.3g} gradient steps a {unit}", factor, solution.interval)
    return rate + (f" [{solution.low:.3g}, {solution.high:.3g}]" if solution.interval == "95 %" else "")


def _other(other: Alternative) -> str:
    return f"{other.described}, {other.value:.3g} ({other.chance:.0%} likely to be as good)"


Mode = TypeVar("Mode", bound=str)


def solve(
    problems: Problem | Mapping[Mode, Problem], objective: Objective = "ratio", epsilon: float | None = None
) -> Solution | Infeasible:
    """The answer of one problem, or of several, each an execution mode by its name.

    What cannot be told apart from the best counts as equally good (``doubt.py``). With an ``epsilon`` in [0, 1) just
    what lies within it does, whatever is known of the times, in the order of ``tie_key``. ProblemError for an unknown
    objective, another epsilon, no problem, or ``per_watt`` where the watts of a device are not stated.
    """
    if not isinstance(problems, (Problem, Mapping)):
        raise ProblemError(f"what is solved is a Problem, or several by the names of their modes, not {problems!r:.80}")
    modes = dict[str, Problem]([("", problems)] if isinstance(problems, Problem) else problems.items())
    if not modes:
        raise ProblemError("there is no problem to solve; give at least one")
    for mode, problem in modes.items():
        if not (isinstance(mode, str) and isinstance(problem, Problem)):
            raise ProblemError(f"a mode is a name and its Problem, not {mode!r:.80} and {problem!r:.80}")
    found = search_modes(modes, objective, epsilon)
    if isinstance(found, Infeasible):
        return found
    return _Solving(modes, objective, epsilon, found).solution()


def search_modes(
    problems: Mapping[str, Problem], objective: Objective, epsilon: float | None, alternatives: bool = True
) -> dict[str, Found] | Infeasible:
    """What the search finds in each execution mode in which anything fits; if in none, why.

    A mode's own answer may be epsilon below a best that is itself below that of all: then it is solved again with what
    is left of epsilon.
    """
    results = {mode: search(problem, objective, epsilon, alternatives) for mode, problem in problems.items()}
    solved = {mode: one for mode, one in results.items() if isinstance(one, Found)}
    if not solved:
        lacking = [one for one in results.values() if isinstance(one, Infeasible)]
        repairs = {str(repair): repair for one in lacking for repair in one.repairs}
        return Infeasible(tuple(repairs.values()), sum(one.configurations for one in lacking))
    least = threshold(max(one.best for one in solved.values()), EPSILONS[objective] if epsilon is None else epsilon)
    for mode, one in solved.items():
        if one.value < least <= one.best:
            again = search(problems[mode], objective, max(0.0, 1 - least / one.best), alternatives)
            if isinstance(again, Found):
                solved[mode] = again
    return solved


def first_of(problems: Mapping[str, Problem], found: Mapping[str, Found], epsilon: float) -> str:
    """The mode of the answer by the rule of ``objectives``; of equal ones the mode that comes first."""
    least = threshold(max(one.best for one in found.values()), epsilon)
    good = [mode for mode, one in found.items() if one.value >= least]
    return min(good, key=lambda mode: tie_key(problems[mode], found[mode].choice, found[mode].outcome)[:5])


class _Solving:
    """The steps from what the search found to a solution."""

    def __init__(
        self, problems: Mapping[str, Problem], objective: Objective, epsilon: float | None, found: Mapping[str, Found]
    ) -> None:
        self.problems, self.objective, self.found = problems, objective, found
        self.epsilon = EPSILONS[objective] if epsilon is None else epsilon
        self.doubt = Doubt(objective, self.epsilon, epsilon is not None, list(problems))
        self._labels: dict[int, Any] = {}
        self.rows: dict[Any, Candidate] = {}
        best = max(found.values(), key=lambda one: one.best)
        largest, devices = best.best, len(best.outcome.devices)
        for mode, one in found.items():
            self.add(mode, one.answers)
            if epsilon is None:
                self.add(mode, frontier(problems[mode], objective, largest, devices))
        if epsilon is None:
            self.chosen = self._choose(self.rows.values())
        else:
            mode = first_of(problems, found, self.epsilon)
            self.chosen = self.rows[self.label(mode, found[mode].choice)]
        self.searched = list(self.rows.values())
        for mode, configuration in {one.mode: found[one.mode].choice for one in self.searched}.items():
            self._around(mode, configuration)
        self._around(self.chosen.mode, self.chosen.configuration)
        if epsilon is None:
            self.chosen = self._choose(self.rows.values())

    def add(self, mode: str, answers: Iterable[Answer]) -> None:
        """Candidates of a mode, each once."""
        for one in answers:
            self.rows.setdefault(self.label(mode, one.configuration), Candidate(mode, self.problems[mode], one))

    def label(self, mode: str, configuration: Configuration) -> Any:
        """Identifies a configuration by what it is, whichever of equal options it was made of."""
        return mode, configuration.depth, *map(self._label, configuration.options)

    def _label(self, option: Option) -> Any:
        if id(option) not in self._labels:
            taken = tuple(tuple(sorted(needs.items())) for needs in (option.needs, option.ahead))
            time = option.time
            key = option.where, option.name, time.value, time.low, time.high, time.rests_on.number, *taken
            self._labels[id(option)] = key
        return self._labels[id(option)]

    def _choose(self, candidates: Iterable[Candidate]) -> Candidate:
        chosen = self.doubt.choose(list(candidates))
        assert chosen  # the search found something
        return chosen

    def _around(self, mode: str, configuration: Configuration) -> None:
        """Adds what differs in one part; not what only mirrors what the search found on equal devices."""
        seen = {_looks(one) for one in self.searched}
        for one in around(self.problems[mode], configuration):
            result = outcome(self.problems[mode], one)
            candidate = Candidate(mode, self.problems[mode], Answer(one, result, value(self.objective, result)))
            if _looks(candidate) not in seen:
                self.rows.setdefault(self.label(mode, one), candidate)

    def solution(self) -> Solution:
        """All that is said about the choice."""
        chosen, every = self.chosen, list(self.rows.values())
        group = self.doubt.group(every)
        best = max(every, key=lambda one: one.value)
        rest = [one for one in group if one is not chosen]
        shown, left = self._ties(rest)
        runner_up = self.doubt.choose([one for one in every if one is not chosen])
        elsewhere = self.doubt.choose([one for one in every if one.where[1:] != chosen.where[1:]])
        other = max(rest, key=lambda one: one.value, default=runner_up)
        deciding = other and self.doubt.deciding(chosen, other)
        return Solution(
            objective=self.objective,
            epsilon=self.epsilon,
            mode=chosen.mode,
            choice=chosen.configuration,
            outcome=chosen.outcome,
            value=chosen.value,
            **dict(zip(("low", "high"), self.doubt.ends(chosen), strict=True)),
            interval=chosen.interval,
            best=self.told(best if best.value > chosen.value else None),
            ties=tuple(one for one in map(self.told, shown) if one),
            others_tied=left,
            runner_up=self.told(runner_up),
            elsewhere=self.told(elsewhere),
            bound=max(one.bound for one in self.found.values()),
            learner_hz=max(one.learner_hz for one in self.found.values()),
            survival=tuple(self._survival(best.value)),
            evidence=tuple(evidence_of([chosen]).values()),
            decide=evidence_of([chosen, other])[deciding] if other and deciding else None,
            simulated=simulated(chosen.problem, chosen.configuration, self.objective != "training"),
            configurations=sum(one.configurations for one in self.found.values()),
            problem=chosen.problem,
        )

    def told(self, one: Candidate | None) -> Alternative | None:
        """A candidate as an alternative to the choice."""
        mine = self.chosen
        if one is None:
            return None
        described = difference((mine.mode, mine.configuration), (one.mode, one.configuration))
        rate = (one.value, *self.doubt.ends(one), one.interval)
        chance, cost = self.doubt.chance(one, mine), 1 - one.value / mine.value
        return Alternative(described, one.mode, one.configuration, one.outcome, *rate, chance, cost, one.cores)

    def _ties(self, rest: Sequence[Candidate]) -> tuple[list[Candidate], int]:
        """(undominated ones, the fastest of each mode and mapping; how many other modes and mappings)."""
        shown: dict[Any, Candidate] = {}
        for one in undominated([self.chosen, *rest]):
            if one is not self.chosen:
                shown.setdefault(one.where, one)
        others = {one.where for one in rest} - shown.keys() - {self.chosen.where}
        return list(shown.values()), len(others)

    def _survival(self, best: float) -> list[Robustness]:
        chosen = self.chosen
        rows = [chosen, *(one for one in self.rows.values() if one is not chosen)]
        mine = chosen.mode, chosen.configuration
        names = [difference(mine, (one.mode, one.configuration)) for one in rows]
        terms = Terms(
            [(one.problem, one.configuration) for one in rows],
            self.objective,
            spreads(self.problems.values(), chosen.configuration),
        )

        def rivals(number: str, factor: float, least: float) -> Iterator[tuple[Row, str]]:
            for mode, problem in self.problems.items():
                if mode in self.found and (one := overtaken(problem, self.objective, least, number, factor)):
                    configuration = one.configuration
                    if (label := self.label(mode, configuration)) not in self.rows:
                        result = outcome(problem, configuration)
                        answer = Answer(configuration, result, value(self.objective, result))
                        self.rows[label] = Candidate(mode, problem, answer)
                        yield (problem, configuration), difference(mine, (mode, configuration))

        return terms.survival(0, max(self.epsilon, 1 - chosen.value / best), names, rivals)


def _looks(one: Candidate) -> tuple[Any, ...]:
    """All but the devices' names: what mirror images on equal devices share."""
    names = tuple(option.name for option in one.configuration.options)
    result = one.outcome
    return one.mode, names, one.configuration.depth, one.value, result.hz, result.watts, result.bytes_moved, one.cores


def evidence_of(candidates: Iterable[Candidate]) -> dict[str, Evidence]:
    """The evidence of all times of candidates, by number: those of parts, then those of links."""
    known: dict[str, Evidence] = {}
    for one in candidates:
        for option in one.configuration.options:
            known.setdefault(option.time.rests_on.number, option.time.rests_on)
        for flow in one.problem.flows:
            route = one.configuration.of(flow.source).device, one.configuration.of(flow.target).device
            for hop in one.problem.ways.get(route, ()) if flow.nbytes else ():
                known.setdefault(hop.rests_on.number, hop.rests_on)
    return known
