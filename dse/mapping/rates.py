"""Rates that other choices would give: by the implementation of learner and policy, and by environments at once."""

from dataclasses import dataclass

from ..estimate import Interval
from ..solver.doubt import Candidate, Doubt
from ..solver.objectives import EPSILONS, Objective
from ..solver.problem import Part, Problem
from ..solver.result import Solution
from .alternatives import Solved, best_placement
from .build import Built
from .options import Place, implementation_of

BY: tuple[Part, ...] = ("learner", "actors")
"""The parts that have implementations: gradient steps, and the policy that actors act by."""


@dataclass(frozen=True)
class Rate:
    """The best value by the objective, in [low, high], of mappings with this implementation and E environments."""

    value: float
    low: float
    high: float
    interval: Interval
    upper_bound: bool
    implementation: str = ""  # of learner and policy; "" for any
    environments: int = 1


def rate_of(built: Built, objective: Objective, epsilon: float | None, by: str = "") -> Rate | None:
    """The best rate of a problem, with learner and policy ``by`` an implementation; None where nothing fits."""
    problems = {place: one for place, problem in built.problems.items() if (one := _by(built, problem, by))}
    solved = best_placement(problems, objective, epsilon, False) if problems else None
    if not isinstance(solved, Solved):
        return None
    candidate = Candidate(str(solved.place), problems[solved.place], solved.answer)
    ends = Doubt(objective, EPSILONS[objective] if epsilon is None else epsilon).ends(candidate)
    is_bound = not Place(solved.place).in_turns
    return Rate(candidate.value, *ends, candidate.interval, is_bound, by, built.parts.environments)


def by_implementation(built: Built, objective: Objective, epsilon: float | None, chosen: Solution) -> tuple[Rate, ...]:
    """The rate of each implementation of learner and policy, the fastest first; none where there is no choice.

    Of the one by which the ``chosen`` learns and acts, it is that rate.
    """
    by = {implementation_of(built.details(chosen.choice.of(part))) for part in BY}
    ends = chosen.value, chosen.low, chosen.high, chosen.interval, not Place(chosen.mode).in_turns
    options = [one for problem in built.problems.values() for part in BY for one in problem.options[part]]
    names = sorted({implementation_of(built.details(one)) for one in options})
    rates = [
        rate
        for name in (names if len(names) > 1 else ())
        if (rate := Rate(*ends, name) if by == {name} else rate_of(built, objective, epsilon, name))
    ]
    return tuple(sorted(rates, key=lambda rate: -rate.value)) if len(rates) > 1 else ()


def _by(built: Built, problem: Problem, name: str) -> Problem | None:
    """The problem with the options of an implementation; None where a part has none."""
    for part in BY if name else ():
        options = [one for one in problem.options[part] if implementation_of(built.details(one)) == name]
        if not options:
            return None
        problem = problem.having(part, *options)
    return problem
