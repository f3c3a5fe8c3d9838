"""Tell linear growth with a size from slower growth: which p fits t = a + b n^p, with a, b >= 0.

The slope of ln(t) over ln(n) cannot, for a call costs something at any n: arrays whose work is linear have slopes near
0.8. With the part ``a`` that does not grow, their p is near 1. p - 1 is the slope of what each further n costs; p near
0 stands for log(n). Letters: n a size, t seconds, p exponent.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dse import stats
from dse.records import CELL, Record

from .judge import Data, Finding, Part
from .timings import Names, Where, get_sigma, get_value, measure_noise, pick

Reals = NDArray[np.float64]
POWERS = np.arange(1, 76) / 50  # p, from near log(n) to n^1.5
LINEAR = 1.0
MISFIT = 0.05
"""Relative error of a time by which caches, that no power of n knows, bend it."""


Points = Sequence[tuple[float, float, float]]
"""A series: its sizes, each with the seconds and the standard deviation of their logarithm."""


def fit_growth(name: str, series: Sequence[Points]) -> Part:
    """Fit one p to several series, each with its own a and b, by least squares of relative errors.

    The 95 % interval holds every p that a likelihood ratio test against the best does not reject, with the errors that
    the series state, or larger errors where the best p misses by more. ``share``: of the time at the largest n, how
    much grows if p is 1, in the mean over the series.
    """
    fits = [_fit(points) for points in series]
    misfits = np.sum([misfit for misfit, _ in fits], axis=0)
    freedom = max(1, sum(map(len, series)) - 2 * len(series) - 1)
    allowed = POWERS[misfits - misfits.min() <= stats.Z**2 * max(1.0, misfits.min() / freedom)]
    share = float(np.mean([share for _, share in fits]))
    return Part(name, float(POWERS[misfits.argmin()]), float(allowed[0]), float(allowed[-1]), share=share)


def _fit(points: Points) -> tuple[Reals, float]:
    """Fit a series with each p: (sums of squares ``[powers]``, share that grows at the largest n if p is 1)."""
    from scipy.optimize import nnls  # noqa: PLC0415  # heavy

    sizes, seconds, sigmas = np.array(points).T
    target = 1 / np.hypot(sigmas, MISFIT)
    weights = target / seconds  # of absolute errors
    misfits, share = np.empty(POWERS.size), 0.0
    for place, power in enumerate(POWERS):
        grown = (sizes / sizes.max()) ** power
        (constant, rate), error = nnls(np.column_stack([weights, weights * grown]), target)
        misfits[place] = error**2
        if power == LINEAR:
            share = rate / (constant + rate)
    return misfits, float(share)


def fit_records(
    data: Data, primitive: str, where: Where, ops: Names, over: str, least: int = 3, apart: bool = False
) -> Finding | None:
    """Fit the growth of times with ``over``, a field of records or an option, one p for all operations.

    A series is of one run and one method: whatever else differs is another series. ``least`` sizes are enough.
    ``apart``: a p for each operation. None where an operation has no series or no time was measured twice.
    """
    noise, used = measure_noise(data, primitive), list[Record]()
    series_by_op: dict[str, list[Points]] = defaultdict(list)
    for op in ops:
        timed = pick(data.records.get(primitive, ()), {"status": "ok", **where, "op": op})
        for cells in _group_records(timed, over):
            if len(cells) >= least:
                sigmas = [math.hypot(noise.sigma / math.sqrt(2), get_sigma(record)) for record in cells.values()]
                seconds = [record.seconds for record in cells.values()]
                series_by_op[op].append([*zip(cells, seconds, sigmas, strict=True)])
                used += cells.values()
    if not noise.pairs or len(series_by_op) < len(ops):
        return None
    together = {", ".join(ops): [points for series in series_by_op.values() for points in series]}
    parts = [fit_growth(name, series) for name, series in (series_by_op if apart else together).items()]
    return Finding(parts, {"share that grows": min(part.share for part in parts), "noise": str(noise)}, used)


def _group_records(records: Sequence[Record], over: str) -> list[dict[float, Record]]:
    """Group records by their run and all but the size ``over`` of their cell: records by size."""
    groups: dict[str, dict[float, Record]] = defaultdict(dict)
    for record in records:
        options = {name: value for name, value in record.options.items() if name != over}
        fields = [get_value(record, name) for name in CELL if name not in ("options", over)]
        groups[repr((record.run.key, fields, sorted(options.items())))][get_value(record, over)] = record
    return list(groups.values())
