"""The alternatives of a mapping, each described by what sets it apart; and the best by the exact rule of epsilon."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import overload

from ..estimate import Interval
from ..solver.infeasible import Infeasible
from ..solver.objectives import EPSILONS, Objective
from ..solver.problem import PARTS, Configuration, Problem
from ..solver.search import Answer, Found
from ..solver.solution import Alternative, first_of, search_modes
from .options import Place


@dataclass(frozen=True)
class Other:
    """An alternative in words, its value with its ends, and the share of the choice's value that it loses.

    ``chance``: the probability that it gives at least as much as the choice, numbers they share being wrong together.
    """

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


@overload
def other_of(one: Alternative) -> Other: ...
@overload
def other_of(one: None) -> None: ...
def other_of(one: Alternative | None) -> Other | None:
    """An alternative in plain values."""
    if one is None:
        return None
    place = Place(one.mode)
    rate = (one.value, one.cost, one.low, one.high, one.interval)
    beside = one.chance, one.outcome.devices, one.cores
    return Other(one.described, place.arrangement, mapping_of(one.configuration), *rate, not place.in_turns, *beside)


def mapping_of(chosen: Configuration) -> dict[str, str]:
    """The device of each part, by the part's name."""
    return {str(part): chosen.of(part).device for part in PARTS}


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
    """The answer over all execution modes by epsilon alone, however sure the times are: for those who solve often.

    Of equal ones the mode that comes first. ProblemError for an unknown objective, or as ``search.solve``.
    """
    modes = dict[str, Problem](problems.items())
    found = search_modes(modes, objective, epsilon, alternatives)
    if isinstance(found, Infeasible):
        return [found]
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    place = first_of(modes, found, epsilon)
    return Solved(Place(place), found[place].answer, {Place(mode): one for mode, one in found.items()}, epsilon)
