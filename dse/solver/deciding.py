"""Whose interval changes the choice: all times that rest on one number are put at an end of it, and solved again.

The bounds of a placement at all ends are one array [ends], so its options are looked at only for the ends at which it
may be better than the choice.
"""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .law import Factor, Objective, rate, transfers, value_of
from .problem import Configuration, Hop, Problem, Timed
from .solve import Candidate, Column, Placement, Search

ROUNDING = 1e-9  # by which two values may differ that are the same
LINK_FACTORS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""Error bounds of a link's time, by its source: 1.3 spans what one vendor's log and the data sheet differ by."""
Spread = tuple[float, float]
"""Error bounds of a number, by the ends of its estimate: factors from the first (at most 1) up to the second."""


@dataclass(frozen=True)
class Sensitivity:
    """An end of a number's interval: ``factor`` on all times that rest on it, and the choice's ``value`` then.

    ``winner``: what then is best, with its value then, where that is better than the choice by more than is allowed;
    ``gain``: the share by which it is.
    """

    evidence_id: str
    factor: float
    value: float
    winner: Candidate | None = None
    gain: float = 0.0


def spread_of(timed: Timed) -> Spread:
    """The error bounds of an option's time, by its own ends; of a link's, by its source."""
    if isinstance(timed, Hop):
        return 1 / LINK_FACTORS[timed.rests_on.source], LINK_FACTORS[timed.rests_on.source]
    return timed.time.low / timed.time.value, timed.time.high / timed.time.value


def timed_of(answer: Candidate) -> list[Timed]:
    """All that a configuration's value rests on: the options of its parts, then its links."""
    hops = (hop for _, hop in transfers(answer.problem, answer.configuration.where))
    return [*answer.configuration.options, *hops]


def widest(timed: Iterable[Timed]) -> dict[str, Spread]:
    """The widest ends of every number that some of these rest on."""
    known: dict[str, Spread] = {}
    for one in timed:
        low, high = spread_of(one)
        least, most = known.get(one.rests_on.id, (1.0, 1.0))
        known[one.rests_on.id] = min(low, least), max(high, most)
    return known


def spreads(problems: Iterable[Problem], chosen: Configuration) -> dict[str, Spread]:
    """The widest ends of every number; of a number that ``chosen`` rests on, those of its own options alone."""
    every = (timed for problem in problems for timed in problem.every_timed())
    return widest(every) | widest(chosen.options)


def deciding(
    problems: Mapping[Any, Problem], objective: Objective, chosen: Candidate, allowed: float = 0.0
) -> list[Sensitivity]:
    """Each end of each number at which something may be better than the choice by more than a share of its value.

    What decides comes first, then what moves the choice's value most. ProblemError as for ``solve``.
    """
    used = {timed.rests_on.id for timed in timed_of(chosen)}
    known = sorted(spreads(problems.values(), chosen.configuration).items())
    # Where times grow that the choice does not rest on, nothing becomes better than it.
    every = ((evidence_id, end) for evidence_id, both in known for end in both)
    ends = [(evidence_id, end) for evidence_id, end in every if end < 1 or (end > 1 and evidence_id in used)]
    if not ends:
        return []
    search = Search(problems, objective, by_evidence=True)
    factors_of = functools.cache(
        lambda evidence_id: np.array([end if evidence_id == own else 1.0 for own, end in ends])
    )

    def at_all(timed: Timed) -> Any:
        """The factor on a time at each end."""
        return factors_of(timed.rests_on.id)

    def at(e: int) -> Factor:
        return lambda timed: at_all(timed)[e]

    @functools.cache
    def fewest(column: Column) -> Any:
        """The fewest seconds of a part at each end."""
        return (column.seconds.reshape(-1, 1) * np.array(list(map(at_all, column.options)))).min(axis=0)

    mine = np.broadcast_to(value_of(chosen.problem, chosen.configuration, objective, at_all), len(ends))
    best, winners = mine / (1 - allowed) * (1 + ROUNDING), dict[int, Placement]()
    for placement in (placement for placement in search.placements if not placement.missing_ways):
        # Invariant: best is the largest value at each end of the placements before, or the least that beats the choice.
        timed: list[Timed] = [hop for _, hop in transfers(placement.problem, placement.where)]
        timed += [option for column in placement.columns for option in column.options]
        ids = {one.rests_on.id for one in timed}
        shortest = {column.part: fewest(column) for column in placement.columns}
        bounds = rate(placement.problem, placement.where, shortest, placement.depths.max(), objective, at_all)
        for e in np.flatnonzero(bounds > best).tolist():
            then = placement.scaled(at(e)) if ends[e][0] in ids else placement
            if then.best > best[e]:
                best[e], winners[e] = then.best, then
    rows = []
    for e, (evidence_id, end) in enumerate(ends):
        winner, gain = None, 0.0
        if e in winners:
            winner = search.answer(winners[e].mode, winners[e].first(best[e]))
            gain = float(best[e] / mine[e]) - 1
        rows.append(Sensitivity(evidence_id, end, float(mine[e]), winner, gain))

    def order(row: Sensitivity) -> tuple[Any, ...]:
        moved = abs(math.log(row.value / chosen.value))
        return -row.gain, -moved, row.evidence_id, row.factor

    return sorted(rows, key=order)
