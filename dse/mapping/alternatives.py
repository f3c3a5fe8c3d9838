"""What is chosen of all execution modes, what is statistically tied with it, and what alternatives differ in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..estimate import Evidence
from ..records import Source
from ..solver.deciding import Deciding, deciding
from ..solver.law import EPSILONS, Objective
from ..solver.problem import PARTS, Configuration, Option, Problem
from ..solver.solve import Candidate, Infeasible, Search, Solution
from .doubt import Doubt, cores, source_of, undominated
from .processes import ExecutionMode


@dataclass(frozen=True)
class Other:
    """An alternative, its value with its ends, and the share of the choice's value that it loses.

    ``differs``: what it has and the choice has not, by part its device and its option's name.
    ``chance``: the probability that it gives at least as much as the choice, numbers they share being wrong together.
    """

    differs: Mapping[str, Any]
    arrangement: str
    mapping: Mapping[str, str]
    value: float
    cost: float
    low: float
    high: float
    source: Source
    upper_bound: bool
    chance: float = 0.0
    devices: tuple[str, ...] = ()
    cores: float = 0.0


@dataclass(frozen=True)
class Decides:
    """What all that rests on a number makes of the choice at an end of its interval, a slowdown of ``factor``.

    ``parts`` on ``device`` rest on the number. ``value``: the choice's then. ``differs``: what then is better, as in
    ``Other``, by a share of ``gain``; empty where nothing is.
    """

    number: str
    parts: tuple[str, ...]
    device: str
    factor: float
    value: float
    differs: Mapping[str, Any] = field(default_factory=dict)
    gain: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """The choice and what surrounds it.

    ``best``: what is expected to give most, where that is another one. ``ties``: what is statistically tied with the
    best, of which no other is as fast on as few devices and cores; ``others_tied``: how many more (kind of execution
    mode, devices of the parts) cannot. ``elsewhere``: the answer if its devices could not be had. ``decide``: what to
    measure to tell the choice from the best of those that tie, or from ``elsewhere``.
    """

    answer: Candidate
    found: Solution
    doubt: Doubt = field(repr=False)
    best: Candidate | None
    ties: tuple[Candidate, ...]
    others_tied: int
    elsewhere: Candidate | None
    decide: Evidence | None

    def other(self, one: Candidate) -> Other:
        """An alternative in plain values."""
        mine, arrangement = self.answer, arrangement_of(one)
        return Other(
            *(difference(mine, one), arrangement, mapping_of(one.configuration)),
            *(one.value, 1 - one.value / mine.value),
            *self.doubt.ends(one),
            *(source_of(one), arrangement == "pipelined"),
            self.doubt.chance(one, mine),
            one.outcome.devices,
            cores(one),
        )

    def decides(self, problems: Mapping[Any, Problem]) -> tuple[Decides, ...]:
        """Each end of a number's interval, what decides first, then what moves the rate most."""
        # Something may be better already: then that it is so by more than epsilon more is news.
        allowed = 1 - (1 - self.found.epsilon) * self.answer.value / max(self.found.best, self.answer.value)
        users = _users_of(problems.values())
        return tuple(
            Decides(end.number, *users[end.number], end.factor, end.value, self._differs(end), end.gain)
            for end in deciding(problems, self.found.objective, self.answer, allowed)
        )

    def _differs(self, end: Deciding) -> Mapping[str, Any]:
        return difference(self.answer, end.winner) if end.winner else {}


def _users_of(problems: Iterable[Problem]) -> dict[str, tuple[tuple[str, ...], str]]:
    """Return by number the parts that rest on it, and their device; of a link no parts, and its engine."""
    parts, devices = dict[str, set[str]](), dict[str, str]()
    for problem in problems:
        for option in problem.every_option():
            number = option.time.rests_on.number
            parts.setdefault(number, set()).add(option.part)
            devices.setdefault(number, option.device)
        for hop in (hop for way in problem.ways.values() for hop in way):
            parts.setdefault(hop.rests_on.number, set())
            devices.setdefault(hop.rests_on.number, hop.engine)
    return {number: (tuple(sorted(names)), devices[number]) for number, names in parts.items()}


def choose(problems: Mapping[Any, Problem], objective: Objective, epsilon: float | None) -> Chosen | Infeasible:
    """The answer of execution modes: equally good is what is statistically tied, or what is within an ``epsilon``."""
    search = Search(problems, objective)
    found = search.solve(EPSILONS[objective] if epsilon is None else epsilon)
    if isinstance(found, Infeasible):
        return found
    doubt = Doubt(objective, found.epsilon, epsilon is not None)

    def group(search: Search) -> list[Candidate]:
        best, tied = search.list_tied(found.epsilon)
        if tied and epsilon is None:
            tied += search.frontier(best, len(tied[0].outcome.devices))
        return doubt.group(tied) if tied else []

    chosen, *rest = group(search)
    places = {place_of(one) for one in rest} - {place_of(chosen)}
    shown: dict[object, Candidate] = {}
    for one in undominated([chosen, *rest]):
        if one is not chosen:
            shown.setdefault(place_of(one), one)
    best = max((chosen, *rest), key=lambda one: one.value)
    elsewhere = next(iter(group(search.exclude(chosen.mapping))), None)
    other = max(rest, key=lambda one: one.value, default=elsewhere)
    return Chosen(
        chosen,
        found,
        doubt,
        best if best.value > chosen.value else None,
        tuple(shown.values()),
        len(places - shown.keys()),
        elsewhere,
        doubt.decisive(chosen, other) if other else None,
    )


def place_of(one: Candidate) -> tuple[object, ...]:
    """The arrangement of the execution mode, and the devices of each part: modes of one differ in their times alone."""
    return arrangement_of(one), one.mapping


def arrangement_of(one: Candidate) -> str:
    """The arrangement of the execution mode; a mode that is but a name is its own."""
    return one.mode.arrangement if isinstance(one.mode, ExecutionMode) else str(one.mode)


def mapping_of(chosen: Configuration) -> dict[str, str]:
    """The device of each part, by the part's name."""
    return {part: chosen.of(part).device for part in PARTS}


def difference(chosen: Candidate, other: Candidate) -> dict[str, Any]:
    """Return what an alternative has and the choice has not: by part its (device, option), else a value."""
    mine, yours = chosen.configuration, other.configuration
    found: dict[str, Any] = {}
    if arrangement_of(chosen) != arrangement_of(other):
        found["arrangement"] = arrangement_of(other)
    for part in ("actors", "learner", "storage"):
        if _named(mine.of(part)) != _named(yours.of(part)):
            found[part] = _named(yours.of(part))
    if _tree(mine) != _tree(yours):
        found |= _tree(yours)
    return found | ({"depth": yours.depth} if mine.depth != yours.depth else {})


def _tree(one: Configuration) -> dict[str, tuple[str, str]]:
    sampling, updating = one.sampling, one.updating
    if (sampling.where, sampling.name) == (updating.where, updating.name):
        return {"tree": _named(updating)}
    return {"sampling": _named(sampling), "updating": _named(updating)}


def _named(option: Option) -> tuple[str, str]:
    return " and ".join(device for device, _ in option.where), option.name
