"""A full answer from plain problems: the choice, how sure it is, what cannot be told apart from it, and what decides.

A problem for each execution mode goes in; ``doubt.py`` says what is chosen of what the search finds in all of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..estimate import Evidence
from .doubt import Candidate, Doubt, undominated
from .infeasible import Infeasible
from .objectives import EPSILONS, Objective, threshold, tie_key, value
from .problem import Configuration, Option, Problem, ProblemError
from .queues import simulated
from .result import Alternative, Solution, difference
from .search import Answer, Found, frontier, overtaken
from .search import solve as search
from .sensitivity import Robustness, Row, Terms, around, spreads
from .throughput import outcome

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
