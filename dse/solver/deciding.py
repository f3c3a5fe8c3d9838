"""Which time's interval changes the choice: all that rests on one evidence is put at an end of it, and solved again.

Placements are kept from one end to the next, just columns of seconds are scaled. The bounds of a placement at all ends
are one array [ends], so that options are looked at just where something may be better than the choice is then.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..estimate import Evidence
from .law import Objective, Reals, charges, divisor, law, sent, steps_per_second, where_of
from .problem import Configuration, Hop, Option, Problem
from .solve import Answer, Column, Placement, Search

ROUNDING = 1e-9  # by which two values may differ that are the same
LINK_FACTORS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""How far off a link's time may be, by its source: 1.3 spans what one vendor's log and the data sheet differ by."""
Timed = Option | Hop
Spread = tuple[float, float]
"""How far off a number may be, by its estimate's ends: factors down to the first (at most 1) and up to the second."""


@dataclass(frozen=True)
class Deciding:
    """An end of a number's interval: ``factor`` on all times that rest on it, and the choice's ``value`` then.

    ``winner``: what then is best, with its value then, where that is better than the choice by more than is allowed;
    ``gain``: the share by which it is.
    """

    number: str
    factor: float
    value: float
    winner: Answer | None = None
    gain: float = 0.0


def spread_of(one: Timed) -> Spread:
    """How far off an option's time may be, by its own ends; a link's, by its source."""
    if isinstance(one, Hop):
        return 1 / LINK_FACTORS[one.rests_on.source], LINK_FACTORS[one.rests_on.source]
    return one.time.low / one.time.value, one.time.high / one.time.value


def evidence_of(one: Timed) -> Evidence:
    """What a time rests on."""
    return one.rests_on if isinstance(one, Hop) else one.time.rests_on


def timed_of(one: Answer) -> list[Timed]:
    """All that a configuration's value rests on: the options of its parts, then its links."""
    hops = (hop for _, hop in sent(one.problem, where_of(one.configuration)))
    return [*one.configuration.options, *hops]


def widest(timed: Iterable[Timed]) -> dict[str, Spread]:
    """The widest ends of every number that some of these rest on."""
    known: dict[str, Spread] = {}
    for one in timed:
        number, (low, high) = evidence_of(one).number, spread_of(one)
        least, most = known.get(number, (1.0, 1.0))
        known[number] = min(low, least), max(high, most)
    return known


def spreads(problems: Iterable[Problem], chosen: Configuration) -> dict[str, Spread]:
    """The widest ends of every number; of one that ``chosen`` rests on, by its own options: others' say nothing."""
    options = [one for problem in problems for one in problem.every_option()]
    hops = [hop for problem in problems for way in problem.ways.values() for hop in way]
    return widest([*options, *hops]) | widest(chosen.options)


def ends_of(problems: Mapping[Any, Problem], chosen: Answer) -> list[tuple[str, float]]:
    """(number, end of its interval as a factor) of all that may make something better than the choice."""
    used = {evidence_of(one).number for one in timed_of(chosen)}
    known = sorted(spreads(problems.values(), chosen.configuration).items())
    # What takes longer only where others rest on it makes nothing better.
    return [(number, end) for number, both in known for end in both if end < 1 or (end > 1 and number in used)]


def _values_of(chosen: Answer, objective: Objective, factor: Callable[[str], Reals]) -> Reals:
    """The choice's value where times take ``factor`` of their evidence times as long."""
    where, options = where_of(chosen.configuration), chosen.configuration.options
    seconds = {one.part: one.seconds * factor(evidence_of(one).number) for one in options}
    busy, loop = law(charges(chosen.problem, where, seconds, lambda hop: factor(hop.rests_on.number)), objective)
    watts = divisor(chosen.problem, chosen.outcome.devices, objective)
    values: Reals = steps_per_second(busy.values(), loop, chosen.configuration.depth, watts)
    return values


def deciding(
    problems: Mapping[Any, Problem], objective: Objective, chosen: Answer, allowed: float = 0.0
) -> list[Deciding]:
    """Each end of each number at which something may be better than the choice by more than a share of its value.

    What decides comes first, then what moves the choice's value most. ProblemError as for ``solve``.
    """
    ends = ends_of(problems, chosen)
    if not ends:
        return []
    factor = functools.cache(lambda number: np.array([end if number == own else 1.0 for own, end in ends]))
    mine = _values_of(chosen, objective, factor) * np.ones(len(ends))
    best, winner = mine / (1 - allowed) * (1 + ROUNDING), dict[int, Placement]()
    search = Search(problems, objective, by_evidence=True)

    @functools.cache
    def least(column: Column) -> Reals:
        """The fewest seconds of a part at each end."""
        numbers, result = np.array(column.numbers), np.full(len(ends), column.seconds.min())
        for e, (number, end) in enumerate(ends):
            if number in column.numbers:
                result[e] = np.where(numbers == number, column.seconds * end, column.seconds).min()
        return result

    def values(placement: Placement, e: int) -> Reals:
        return placement.values(lambda number: ends[e][1] if number == ends[e][0] else 1.0)

    for one in (one for one in search.placements if not one.lacks):
        # Invariant: ``best`` is what is best at each end of the placements before, or what the choice may lose against.
        shortest = {part: least(column) for part, (_, column, _) in one.columns.items()}
        bounds = one.rate(shortest, one.depths.max(), factor)
        for e in np.flatnonzero(bounds > best).tolist():
            top = float(values(one, e).max()) if ends[e][0] in one.numbers else one.best
            if top > best[e]:
                best[e], winner[e] = top, one
    rows = []
    for e, (number, end) in enumerate(ends):
        row = Deciding(number, end, float(mine[e]))
        placement = winner.get(e)
        first = placement and placement.first(values(placement, e), best[e])
        if placement and first:
            better = search.answer(placement.mode, first)
            row = replace(row, winner=better, gain=float(best[e] / mine[e]) - 1)
        rows.append(row)

    def order(one: Deciding) -> tuple[Any, ...]:
        moved = abs(math.log(one.value / chosen.value))
        return -one.gain, -moved, one.number, one.factor

    return sorted(rows, key=order)
