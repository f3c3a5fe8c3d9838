"""Which time's interval changes the choice: all that rests on one evidence is put at an end of it, and solved again.

Placements are kept from one end to the next, just columns of seconds are scaled. The bounds of a placement at all ends
are one array [ends], so that options are looked at just where something may be better than the choice is then.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .law import Objective, Reals, charges, divisor, law, sent, steps_per_second, where_of
from .problem import Configuration, Hop, Option, Part, Problem
from .solve import Answer, Group, Placement, Search

ROUNDING = 1e-9  # by which two values may differ that are the same
LINK_FACTORS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""How far off a link's time may be, by its source: 1.3 spans what one vendor's log and the data sheet differ by."""
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


def spread_of(one: Option | Hop) -> Spread:
    """How far off an option's time may be, by its own ends; a link's, by its source."""
    if isinstance(one, Hop):
        return 1 / LINK_FACTORS[one.rests_on.source], LINK_FACTORS[one.rests_on.source]
    return one.time.low / one.time.value, one.time.high / one.time.value


def widest(timed: Iterable[Option | Hop]) -> dict[str, Spread]:
    """The widest ends of every number that some of these rest on."""
    known: dict[str, Spread] = {}
    for one in timed:
        number = (one if isinstance(one, Hop) else one.time).rests_on.number
        (low, high), (least, most) = spread_of(one), known.get(number, (1.0, 1.0))
        known[number] = min(low, least), max(high, most)
    return known


def spreads(problems: Iterable[Problem], chosen: Configuration) -> dict[str, Spread]:
    """The widest ends of every number; of one that ``chosen`` rests on, by its own options: others' say nothing."""
    options = [one for problem in problems for one in problem.every_option()]
    hops = [hop for problem in problems for way in problem.ways.values() for hop in way]
    return widest([*options, *hops]) | widest(chosen.options)


def deciding(
    problems: Mapping[Any, Problem], objective: Objective, chosen: Answer, allowed: float = 0.0
) -> list[Deciding]:
    """Each end of each number at which something may be better than the choice by more than a share of its value.

    What decides comes first, then what moves the choice's value most. ProblemError as for ``solve``.
    """
    where, options = where_of(chosen.configuration), chosen.configuration.options
    used = {one.time.rests_on.number for one in options} | {
        hop.rests_on.number for _, hop in sent(chosen.problem, where)
    }
    known = sorted(spreads(problems.values(), chosen.configuration).items())
    # What takes longer only where others rest on it makes nothing better.
    ends = [(number, end) for number, both in known for end in both if end < 1 or (end > 1 and number in used)]
    if not ends:
        return []
    factor = functools.cache(lambda number: np.array([end if number == own else 1.0 for own, end in ends]))
    seconds = {one.part: one.seconds * factor(one.time.rests_on.number) for one in options}
    busy, loop = law(charges(chosen.problem, where, seconds, lambda hop: factor(hop.rests_on.number)), objective)
    watts = divisor(chosen.problem, chosen.outcome.devices, objective)
    mine = steps_per_second(busy.values(), loop, chosen.configuration.depth, watts) * np.ones(len(ends))
    best, winner = mine / (1 - allowed) * (1 + ROUNDING), dict[int, Placement]()
    search = Search(problems, objective, by_evidence=True)

    @functools.cache
    def least(group: Group, part: Part) -> Reals:
        numbers, result = np.array(group.numbers[part]), np.full(len(ends), group.seconds[part].min())
        for e in (e for e, (number, _) in enumerate(ends) if number in group.numbers[part]):
            result[e] = np.where(numbers == ends[e][0], group.seconds[part] * ends[e][1], group.seconds[part]).min()
        return result

    def values(placement: Placement, e: int) -> Reals:
        return placement.values(lambda number: ends[e][1] if number == ends[e][0] else 1.0)

    for one in (one for one in search.placements if not one.lacks):
        # Invariant: ``best`` is what is best at each end of the placements before, or what the choice may lose against.
        bounds = one.rate(
            {part: least(group, part) for part, (_, group, _) in one.columns.items()}, one.depths.max(), factor
        )
        for e in np.flatnonzero(bounds > best).tolist():
            top = float(values(one, e).max()) if ends[e][0] in one.numbers else one.best
            if top > best[e]:
                best[e], winner[e] = top, one
    rows = []
    for e, (number, end) in enumerate(ends):
        row = Deciding(number, end, float(mine[e]))
        if e in winner and (first := winner[e].first(values(winner[e], e), best[e])):
            row = replace(row, winner=search.answer(winner[e].mode, first), gain=float(best[e] / mine[e]) - 1)
        rows.append(row)
    return sorted(rows, key=lambda one: (-one.gain, -abs(math.log(one.value / chosen.value)), one.number, one.factor))
