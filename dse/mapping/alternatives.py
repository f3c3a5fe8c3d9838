"""The best over all places, and what else there is, told by what sets it apart from the choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..solver.infeasible import Infeasible
from ..solver.objectives import EPSILONS, OBJECTIVES, Objective, threshold, tie_key
from ..solver.problem import PARTS, Configuration, Problem, ProblemError
from ..solver.search import Answer, Found, solve

ARRANGEMENT = {
    "serial": "one process does everything in turns, as impls.training does",
    "apart": "actors on cores of their own; one process draws, gathers, learns and updates in turns",
    "pipelined": "actors, replay and learner on cores or devices of their own, all at the same time",
}
RUNS_HERE = ("serial",)  # what impls.training can run; the others are put together from their parts' times


@dataclass(frozen=True)
class Other:
    """Another configuration, in words, and the share of the value that is lost with it."""

    told: str
    arrangement: str
    mapping: Mapping[str, str]
    value: float
    cost: float


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
    problems: Mapping[str, Problem], objective: Objective, epsilon: float | None = None, alternatives: bool = True
) -> Solved | list[Infeasible]:
    """The answer over all places, by the same rule as within one; then the place that comes first.

    A place's own answer may be epsilon below a best that is itself below that of all: then it is solved again with what
    is left of epsilon.
    """
    if objective not in OBJECTIVES:
        raise ProblemError(f"the objective is one of {', '.join(OBJECTIVES)}, not {objective!r}")
    epsilon = EPSILONS[objective] if epsilon is None else epsilon
    results = {place: solve(problem, objective, epsilon, alternatives) for place, problem in problems.items()}
    found = {place: one for place, one in results.items() if isinstance(one, Found)}
    if not found:
        return [one for one in results.values() if isinstance(one, Infeasible)]
    least = threshold(max(one.best for one in found.values()), epsilon)
    for place, one in found.items():
        if one.value < least <= one.best:
            again = solve(problems[place], objective, max(0.0, 1 - least / one.best), alternatives)
            if isinstance(again, Found):
                found[place] = again
    good = [place for place, one in found.items() if one.value >= least]
    order = list(problems)

    def key(place: str) -> tuple[Any, ...]:
        one = found[place]
        return (*tie_key(problems[place], one.choice, one.outcome)[:5], order.index(place))

    place = min(good, key=key)
    return Solved(place, found[place].answer, found, epsilon)


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


def mapping_of(chosen: Configuration) -> dict[str, str]:
    """Device by part."""
    return {str(part): chosen.of(part).device for part in PARTS}


def others(result: Solved) -> list[Other]:
    """The best of every other mapping or place that was found, and the runner-up within the choice's; best first."""
    rows: list[tuple[float, str, Configuration, float]] = []
    for place, found in result.found.items():
        answers = [found.answer, *found.ties, found.runner_up, found.elsewhere]
        rows += [(one.value, place, one.configuration, one.outcome.hz) for one in answers if one]
    choice = (result.place, result.answer.configuration)
    seen, kept = {key_of(*choice)}, list[Other]()
    for value, place, one, _ in sorted(rows, key=lambda row: -row[0]):
        key = key_of(place, one)
        if key not in seen:
            seen.add(key)
            told = difference(choice, (place, one))
            kept.append(
                Other(told, place.split(maxsplit=1)[0], mapping_of(one), value, 1 - value / result.answer.value)
            )
    return kept


def by_mapping(found: Sequence[Other], least: float) -> list[Other]:
    """The best of each arrangement on each mapping of parts to devices, as long as it is as good as the best."""
    kept: dict[tuple[Any, ...], Other] = {}
    for other in found:
        if other.value >= least:
            kept.setdefault((other.arrangement, *other.mapping.items()), other)
    return list(kept.values())


def key_of(place: str, one: Configuration) -> tuple[Any, ...]:
    """What a reader can tell apart: not how many cores stand by to replay."""
    arrangement = place.split(maxsplit=1)[0]
    return (arrangement, *((option.device, option.name) for option in one.options), one.depth)
