"""The best over all execution modes, and the alternatives, each described by what sets it apart from the choice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..estimate import Interval
from ..solver.infeasible import Infeasible
from ..solver.objectives import EPSILONS, Objective, threshold, tie_key
from ..solver.problem import PARTS, Configuration, Problem
from ..solver.search import Answer, Found, solve
from .options import Place


@dataclass(frozen=True)
class Other:
    """An alternative in words, its value with its ends, and the share of the choice's value that it loses."""

    told: str
    arrangement: str
    mapping: Mapping[str, str]
    value: float
    cost: float
    low: float
    high: float
    interval: Interval
    upper_bound: bool
    chance: float = 0.0
    devices: tuple[str, ...] = ()
    cores: float = 0.0


@dataclass(frozen=True)
class Solved:
    """The best answer with its execution mode, and the best of each mode."""

    place: Place
    answer: Answer
    found: Mapping[Place, Found]
    epsilon: float

    @property
    def best(self) -> float:
        """The largest value of all."""
        return max(one.best for one in self.found.values())


def best_placement(
    problems: Mapping[Place, Problem], objective: Objective, epsilon: float | None = None, alternatives: bool = True
) -> Solved | list[Infeasible]:
    """The answer over all execution modes, by the same rule as within one; of equal ones the mode that comes first.

    A mode's own answer may be epsilon below a best that is itself below that of all: then it is solved again with what
    is left of epsilon. ProblemError for an unknown objective, or as ``solve``.
    """
    results = {place: solve(problem, objective, epsilon, alternatives) for place, problem in problems.items()}
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    solved = {place: one for place, one in results.items() if isinstance(one, Found)}
    if not solved:
        return [one for one in results.values() if isinstance(one, Infeasible)]
    least = threshold(max(one.best for one in solved.values()), epsilon)
    for place, one in solved.items():
        if one.value < least <= one.best:
            again = solve(problems[place], objective, max(0.0, 1 - least / one.best), alternatives)
            if isinstance(again, Found):
                solved[place] = again
    good = [place for place, one in solved.items() if one.value >= least]
    # Modes are in the order of the problems, of which min takes the first where keys are equal.
    place = min(good, key=lambda place: tie_key(problems[place], solved[place].choice, solved[place].outcome)[:5])
    return Solved(place, solved[place].answer, solved, epsilon)


def difference(chosen: tuple[Place, Configuration], other: tuple[Place, Configuration]) -> str:
    """What an alternative has and the choice has not, in words; each is given with its execution mode."""
    (here, mine), (there, yours) = chosen, other
    words = [there.arrangement] if here.arrangement != there.arrangement else []
    pairs = ((mine.actors, yours.actors), (mine.learner, yours.learner), (mine.storage, yours.storage))
    for one, two in pairs:
        if (one.device, one.name) != (two.device, two.name):
            words.append(f"{one.part} on {two.device}" + (f" ({two.name})" if two.name != one.name else ""))
    if _tree(mine) != _tree(yours):
        words.append(_tree(yours))
    if mine.depth != yours.depth:
        words.append(f"{yours.depth} batches sampled ahead")
    return ", ".join(words) or f"the same with cores to replay ({there})"


def _tree(one: Configuration) -> str:
    if one.sampling.device == one.updating.device:
        return f"tree on {one.updating.device} ({one.updating.name})"
    return f"sampling on {one.sampling.device} ({one.sampling.name}), updating on {one.updating.device}"


def mapping_of(chosen: Configuration) -> dict[str, str]:
    """The device of each part, by the part's name."""
    return {str(part): chosen.of(part).device for part in PARTS}


def others(result: Solved, ends: Callable[[Place, Configuration], tuple[float, float, Interval]]) -> list[Other]:
    """The alternatives, best first: the best of each other mapping and execution mode, and the runner-up.

    ``ends``: (low, high, what they mean) of a configuration's value.
    """
    every = ((place, one) for place, solved in result.found.items() for one in solved.answers)
    choice = (result.place, result.answer.configuration)
    seen, kept = {key_of(*choice)}, list[Other]()
    for place, answer in sorted(every, key=lambda pair: -pair[1].value):
        # Invariant: kept has the first, so the best, of each key in seen but the choice's own.
        one, value = answer.configuration, answer.value
        key = key_of(place, one)
        if key not in seen:
            seen.add(key)
            words, cost = difference(choice, (place, one)), 1 - value / result.answer.value
            low, high, interval = ends(place, one)
            sure = min(low, value), max(high, value), interval
            kept.append(Other(words, place.arrangement, mapping_of(one), value, cost, *sure, not place.in_turns))
    return kept


def by_mapping(others: Sequence[Other], least: float) -> list[Other]:
    """The best of each arrangement on each mapping of parts to devices, as long as it is as good as the best."""
    kept: dict[tuple[Any, ...], Other] = {}
    for other in others:
        if other.value >= least:
            kept.setdefault((other.arrangement, *other.mapping.items()), other)
    return list(kept.values())


def key_of(place: Place, one: Configuration) -> tuple[Any, ...]:
    """What a reader can tell configurations apart by: not by how many cores stand by to replay."""
    return (place.arrangement, *((option.device, option.name) for option in one.options), one.depth)
