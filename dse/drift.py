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

import impls

from . import stats
from .records import SENTINEL, Record

WORTH = 4  # runs of this machine that USUAL counts as much as
LEAST_VISITS = 5  # of a sentinel in a run: one visit in seven meets a neighbor, which the median of a few follows
_OURS = frozenset(impls.names())
_Name = tuple[str, ...]
_Run = tuple[str | None, str]


@dataclass(frozen=True)
class Drift:
    """95 % quantiles of |ln(time in one run / time in another)|: what a machine's times share, and what is each one's.

    ``runs``: how many runs of this machine tell it, besides what is usual.
    """

    common: float
    own: float
    runs: int = 0

    def half_width(self, sigma: float) -> float:
        """Half the width of the 95 % interval of ln(time in another run), ``sigma`` that of the time in its own."""
        return math.hypot(stats.Z * sigma, self.common, self.own)


USUAL = Drift(common=0.16, own=0.15)
"""Drift of a machine of which little is known: the quadratic means of what was seen three times.

One machine's 360 cells, measured twice seven hours apart, changed by 0.21 together and by 0.165 besides; its
sentinels in 10 runs by 0.135 and 0.079; another machine's in 5 runs by 0.112 and 0.169.
"""


def drift(found: Iterable[Record]) -> Drift:
    """Estimate one machine's drift from pairs of runs, with ``USUAL`` as worth a few more runs.

    A visit is over in moments, which a neighbor may disturb, and a cell's timing is not: so a sentinel counts with its
    median over a run's visits, and not at all where it has fewer than ``LEAST_VISITS``. The median over the sentinels
    is what two runs share; what each differs by beyond is its own, of which the median sentinel counts, for a brief
    call may have two speeds.
    """
    runs = list(_runs(found).values())
    common, own = list[float](), defaultdict[_Name, list[float]](list)
    for first, second in itertools.combinations(runs, 2):
        changes = {name: math.log(second[name] / first[name]) for name in first.keys() & second.keys()}
        if len(changes) > 1:
            shared = float(np.median(list(changes.values())))
            common.append(abs(shared))
            for name, change in changes.items():
                own[name].append(abs(change - shared))
    count = len(runs) if common else 0

    def pooled(seen: float, usual: float) -> float:
        return math.sqrt((count * seen**2 + WORTH * usual**2) / (count + WORTH))

    typical = float(np.median([_quantile(changes) for changes in own.values()])) if own else 0.0
    return Drift(pooled(_quantile(common), USUAL.common), pooled(typical, USUAL.own), count)


def _quantile(sizes: list[float]) -> float:
    return float(np.quantile(sizes, stats.CONFIDENCE)) if sizes else 0.0


def between(found: Iterable[Record], before: str, after: str) -> float | None:
    """Return the slowdown of the machine at the visits from UTC ``after`` on over those until ``before``.

    The median over the sentinels; None without visits on both sides.
    """
    sides: tuple[dict[_Name, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for record in found:
        if record.primitive == SENTINEL and record.median_seconds and (record.utc <= before or record.utc >= after):
            sides[record.utc > before][_name(record)].append(record.seconds)
    ratios = [np.median(sides[1][name]) / np.median(sides[0][name]) for name in sides[0].keys() & sides[1].keys()]
    return float(np.median(ratios)) if ratios else None


def _name(record: Record) -> _Name:
    """Name a sentinel; a tree of ours also by its code, for the time of another code tells nothing of the machine."""
    code = str(record.machine.get("evidence", {}).get("code", ""))
    return record.contestant, record.op, code if record.contestant in _OURS else ""


def _runs(found: Iterable[Record]) -> dict[_Run, dict[_Name, float]]:
    """Collect the median of each sentinel over a run's visits, where they are enough; commit and command name a run."""
    seconds: dict[_Run, dict[_Name, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in found:
        if record.primitive == SENTINEL and record.median_seconds:
            seconds[record.commit, record.run.command][_name(record)].append(record.seconds)
    medians = {
        run: {name: float(np.median(times)) for name, times in visits.items() if len(times) >= LEAST_VISITS}
        for run, visits in seconds.items()
    }
    return {run: times for run, times in medians.items() if times}
