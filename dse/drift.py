"""By how much a machine changes from one run to another, minutes and hours apart, from its sentinels' records.

A run's times are wrong together where the machine as a whole is slower (``common``), and each on its own, by where its
memory happens to lie and what else ran at that moment (``own``). An interval that is to hold in another run is as wide
as both; which of two times is the smaller depends on the second alone.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from . import stats
from .records import SENTINEL, Measurement

WORTH = 4  # runs of this machine that USUAL counts as much as
_Name = tuple[str, str]
_Visit = tuple[tuple[str | None, str], dict[_Name, float]]


@dataclass(frozen=True)
class Drift:
    """95 % quantiles of |ln(time in one run / time in another)|: what a machine's times share, and what is each one's.

    ``runs``: how many runs of this machine tell it, beside what is usual.
    """

    common: float
    own: float
    runs: int = 0

    def half_width(self, sigma: float) -> float:
        """Half the width of the 95 % interval of ln(time in another run), ``sigma`` that of the time in its own."""
        return math.hypot(stats.Z * sigma, self.common, self.own)


USUAL = Drift(common=0.25, own=0.15)
"""Drift of a machine of which little is known. One machine's 360 cells, measured twice seven hours apart, changed by
0.21 (medians of cells timed together) and by 0.165 beside those; three groups that its neighbors disturbed left out."""


def drift(found: Iterable[Measurement]) -> Drift:
    """Estimate one machine's drift from pairs of visits in different runs, with ``USUAL`` as worth a few more runs.

    A median over the sentinels is what two visits share; what each differs by beyond is its own.
    """
    visits = _visits(found)
    common, own = list[float](), list[float]()
    for (first_run, first), (second_run, second) in itertools.combinations(visits, 2):
        both = first.keys() & second.keys()
        if first_run != second_run and len(both) > 1:
            changes = np.array([math.log(second[name] / first[name]) for name in both])
            common.append(abs(float(np.median(changes))))
            own += np.abs(changes - np.median(changes)).tolist()
    runs = len({run for run, _ in visits}) if common else 0

    def pooled(seen: list[float], usual: float) -> float:
        here = float(np.quantile(seen, stats.CONFIDENCE)) if seen else 0.0
        return math.sqrt((runs * here**2 + WORTH * usual**2) / (runs + WORTH))

    return Drift(pooled(common, USUAL.common), pooled(own, USUAL.own), runs)


def between(found: Iterable[Measurement], before: str, after: str) -> float | None:
    """Return how many times as long the machine took at the visits from UTC ``after`` on as at those until ``before``.

    The median over the sentinels; None without visits on both sides.
    """
    sides: tuple[dict[_Name, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for _, visit in _visits(one for one in found if one.utc <= before):
        for name, seconds in visit.items():
            sides[0][name].append(seconds)
    for _, visit in _visits(one for one in found if one.utc >= after):
        for name, seconds in visit.items():
            sides[1][name].append(seconds)
    ratios = [np.median(sides[1][name]) / np.median(sides[0][name]) for name in sides[0].keys() & sides[1].keys()]
    return float(np.median(ratios)) if ratios else None


def _visits(found: Iterable[Measurement]) -> list[_Visit]:
    """Part the records of sentinels into visits, each with its run (commit and command), in the order of time."""
    result: list[_Visit] = []
    timed = (record for record in found if record.primitive == SENTINEL and record.median_seconds)
    for record in sorted(timed, key=lambda record: record.utc):
        run, name = (record.commit, record.command), (record.contestant, record.op)
        # Invariant: within the last visit every sentinel occurs once.
        if not result or result[-1][0] != run or name in result[-1][1]:
            result.append((run, {}))
        result[-1][1][name] = record.seconds
    return result
