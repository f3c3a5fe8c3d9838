"""What is chosen of all execution modes, what is statistically tied with it, and alternatives in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..estimate import Evidence, Interval
from ..solver.deciding import Deciding, deciding
from ..solver.law import EPSILONS, Objective
from ..solver.problem import PARTS, Configuration, Option, Problem
from ..solver.solve import Answer, Infeasible, Search, Solution
from .doubt import Doubt, cores, interval, undominated
from .processes import ExecutionMode


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


@dataclass(frozen=True)
class Decides:
    """What all that rests on a number makes of the choice at an end of its interval, a slowdown of ``factor``.

    ``value``: the choice's then. ``told``: what then is better, in words, by a share of ``gain``; "" where nothing is.
    """

    number: str
    factor: float
    value: float
    told: str = ""
    gain: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """The choice and what surrounds it.

    ``best``: what is expected to give most, where that is another one. ``ties``: what is statistically tied with the
    best, of which no other is as fast on as few devices and cores; ``others_tied``: how many more (kind of execution
    mode, devices of the parts) cannot. ``elsewhere``: the answer if its devices could not be had. ``decide``: what to
    measure to tell the choice from the best of those that tie, or from ``elsewhere``.
    """

    answer: Answer
    found: Solution
    doubt: Doubt = field(repr=False)
    best: Answer | None
    ties: tuple[Answer, ...]
    others_tied: int
    elsewhere: Answer | None
    decide: Evidence | None

    def other(self, one: Answer) -> Other:
        """An alternative in plain values."""
        mine, arrangement = self.answer, arrangement_of(one)
        return Other(
            *(difference(mine, one), arrangement, mapping_of(one.configuration)),
            *(one.value, 1 - one.value / mine.value),
            *self.doubt.ends(one),
            *(interval(one), arrangement == "pipelined"),
            self.doubt.chance(one, mine),
            one.outcome.devices,
            cores(one),
        )

    def decides(self, problems: Mapping[Any, Problem]) -> tuple[Decides, ...]:
        """Each end of a number's interval, what decides first, then what moves the rate most."""
        # Something may be better already: then that it is so by more than epsilon more is news.
        allowed = 1 - (1 - self.found.epsilon) * self.answer.value / max(self.found.best, self.answer.value)
        return tuple(map(self._told, deciding(problems, self.found.objective, self.answer, allowed)))

    def _told(self, one: Deciding) -> Decides:
        told = difference(self.answer, one.winner) if one.winner else ""
        return Decides(one.number, one.factor, one.value, told, one.gain)


def choose(problems: Mapping[Any, Problem], objective: Objective, epsilon: float | None) -> Chosen | Infeasible:
    """The answer of execution modes: equally good is what is statistically tied, or what is within an ``epsilon``."""
    search = Search(problems, objective)
    found = search.solve(EPSILONS[objective] if epsilon is None else epsilon)
    if isinstance(found, Infeasible):
        return found
    doubt = Doubt(objective, found.epsilon, epsilon is not None)

    def group(search: Search) -> list[Answer]:
        best, tied = search.list_tied(found.epsilon)
        if tied and epsilon is None:
            tied += search.frontier(best, len(tied[0].outcome.devices))
        return doubt.group(tied) if tied else []

    chosen, *rest = group(search)
    places = {place_of(one) for one in rest} - {place_of(chosen)}
    shown: dict[object, Answer] = {}
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


def place_of(one: Answer) -> tuple[object, ...]:
    """The arrangement of the execution mode, and the devices of each part: modes of one differ in their times alone."""
    return arrangement_of(one), one.mapping


def arrangement_of(one: Answer) -> str:
    """The arrangement of the execution mode; a mode that is but a name is its own."""
    return one.mode.arrangement if isinstance(one.mode, ExecutionMode) else str(one.mode)


def mapping_of(chosen: Configuration) -> dict[str, str]:
    """The device of each part, by the part's name."""
    return {part: chosen.of(part).device for part in PARTS}


def difference(chosen: Answer, other: Answer) -> str:
    """What an alternative has and the choice has not, in words."""
    mine, yours = chosen.configuration, other.configuration
    words = [arrangement_of(other)] if arrangement_of(chosen) != arrangement_of(other) else []
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
