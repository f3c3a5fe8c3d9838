"""Compute statistics, all in one place: intervals of timings, the noise floor, verdicts, ties, fits."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Verdict = Literal["faster", "regression", "no regression", "inconclusive"]

RESAMPLES = 400
LEAST_ROUNDS = 3
LEAST_SEEDS = 5  # whose least and most hold the median of all seeds at 94 %; those of four do at 88 %
CONFIDENCE = 0.95
Z = 1.96  # standard deviations on each side of the mean hold so much of a normal distribution
STRETCHES = 20  # of a run, whose means count as independent
STUDENT = 2.093  # 97.5 % quantile of Student's t for 19 degrees of freedom


@dataclass(frozen=True)
class MedianInterval:
    """A statistic of samples: their median with its 95 % interval. It rests on nothing else, unlike an estimate."""

    median: float
    low: float
    high: float

    @property
    def relative_width(self) -> float:
        """Width of the interval as a fraction of the median."""
        return (self.high - self.low) / self.median if self.median else math.inf


def bootstrap_medians(samples: Sequence[float], seed: int = 0, resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """Compute medians ``[resamples]`` of resamples with replacement."""
    values = np.asarray(samples, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, values.size, (resamples, values.size))
    return np.median(values[picks], axis=1)


def ratio_interval(base: Sequence[float], new: Sequence[float]) -> tuple[float, float]:
    """Compute the 95 % interval of median(new) / median(base), of independent samples; NaN where either has none."""
    if not len(base) or not len(new):
        return math.nan, math.nan
    return percentile_interval(bootstrap_medians(new, seed=1) / bootstrap_medians(base, seed=0))


class Timed(Protocol):
    """What has samples and their median in seconds, as a record has."""

    @property
    def seconds(self) -> float: ...
    @property
    def samples_seconds(self) -> Sequence[float]: ...


def speedup(base: Timed, new: Timed) -> tuple[float, float, float]:
    """Compute the speedup of ``new`` over ``base``: of their medians, and the ends of its 95 % interval."""
    low, high = ratio_interval(new.samples_seconds, base.samples_seconds)
    middle = base.seconds / new.seconds
    return middle, min(low, middle), max(high, middle)


def interval_of(
    of: Callable[..., Any], records: Sequence[Timed], seeds: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Compute a function of the records' medians, and the ends of its 95 % interval; NaN where one has no samples.

    Samples with the same seed are resampled together, as two readings of the same calls are; else each on its own.
    """
    middle = float(of(*(record.seconds for record in records)))
    if not all(record.samples_seconds for record in records):
        return middle, math.nan, math.nan
    pairs = zip(records, seeds or range(len(records)), strict=True)
    low, high = percentile_interval(of(*(bootstrap_medians(record.samples_seconds, seed) for record, seed in pairs)))
    return middle, min(low, middle), max(high, middle)


def median_interval(samples: Sequence[float], seed: int = 0) -> MedianInterval:
    """Compute the median of the samples with the 95 % percentile-bootstrap interval. ValueError without samples."""
    if not len(samples):
        raise ValueError("no samples, no median")
    low, high = percentile_interval(bootstrap_medians(samples, seed))
    median = float(np.median(samples))
    return MedianInterval(median, min(low, median), max(high, median))


def interval_over_seeds(values: Sequence[float]) -> tuple[float, ...]:
    """Compute (median, low, high) of a value a seed, inf among them too; () of fewer than ``LEAST_SEEDS``.

    The ends of the 95 % bootstrap interval are medians that were drawn, for between a number and inf there is none.

    >>> interval_over_seeds([1.0, 2.0, 3.0, 4.0, math.inf]), interval_over_seeds([1.0, 2.0])
    ((3.0, 1.0, inf), ())
    """
    if len(values) < LEAST_SEEDS:
        return ()
    drawn = np.sort(bootstrap_medians(values))
    cut = round(drawn.size * (1 - CONFIDENCE) / 2)
    return float(np.median(values)), float(drawn[cut]), float(drawn[-1 - cut])


def percentile_interval(drawn: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends between which the middle 95 % of the values lie."""
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def batch_means(ends: NDArray[np.float64]) -> tuple[float, float]:
    """Return (mean, half-width of its 95 % interval) of a run's steps, from ``ends [steps + 1]``, when each step ends.

    Steps that follow each other are not independent, means of long enough stretches nearly are ("batch means"); the
    first time is that at which the first step begins.
    """
    steps = len(ends) - 1
    edges = np.linspace(0, steps, STRETCHES + 1).round().astype(int)
    means = np.diff(ends[edges]) / np.diff(edges)
    return float(ends[-1] - ends[0]) / steps, STUDENT * float(means.std(ddof=1)) / math.sqrt(STRETCHES)


def geometric_mean(values: Sequence[float]) -> float:
    """Compute the geometric mean of numbers above 0."""
    return math.exp(sum(map(math.log, values)) / len(values))


def noise_floor(pairs: Iterable[tuple[float, float]]) -> float:
    """Estimate by how much two timings of the same thing in one run differ: the 95 % quantile of |ln(a / b)|.

    ``pairs``: (a, b) of each cell that was timed twice (A/A). 0.0 without pairs, so say how many there were.
    """
    differences = [abs(math.log(a / b)) for a, b in pairs]
    return float(np.quantile(differences, CONFIDENCE)) if differences else 0.0


def log_sigma(low: float, high: float, floor: float) -> float:
    """Compute the standard deviation of ln(time) from its 95 % interval and the noise floor, as independent errors."""
    own = math.log(high / low) / (2 * Z)
    return math.hypot(own, floor / Z)


def ties(log_times: Sequence[float], sigmas: Sequence[float], drift: float, best: int) -> list[int]:
    """List those that a 95 % test cannot tell from the choice ``best``: faster ones, or slower by less than it sees.

    Each ln(time) is normal with its sigma, and changes from run to run by ``drift`` (the 95 % quantile of its size).
    """
    slower = [log - log_times[best] for log in log_times]
    seen = [math.hypot(Z * sigma, Z * sigmas[best], drift, drift) for sigma in sigmas]
    return [i for i in range(len(log_times)) if i != best and slower[i] <= seen[i]]


@dataclass(frozen=True)
class Difference:
    """A difference of two versions of a cell: ln(new / base) with an interval that holds for all cells together."""

    log_ratio: float
    low: float
    high: float
    verdict: Verdict


def differences(
    estimates: Sequence[float], errors: Sequence[float], floor: float, tolerated: float
) -> list[Difference]:
    """Judge several cells at once: ``estimates`` of ln(new / base) and their standard ``errors``.

    Intervals are as wide as it takes for all of them to hold at 95 % confidence together (Bonferroni). "regression",
    "faster": the interval lies wholly beyond +-``floor``; "no regression": it ends by ``tolerated``; "inconclusive":
    neither.
    """
    quantile = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(1, len(estimates)))
    results = []
    for estimate, error in zip(estimates, errors, strict=True):
        low, high = estimate - quantile * error, estimate + quantile * error
        verdict: Verdict = "inconclusive"
        if low > floor:
            verdict = "regression"
        elif high < -floor:
            verdict = "faster"
        elif high <= tolerated:
            verdict = "no regression"
        results.append(Difference(estimate, low, high, verdict))
    return results


def standard_errors(rounds: Sequence[Sequence[Sequence[float]]]) -> list[float]:
    """Estimate each cell's standard error over rounds, from ``rounds[cell][series][round]`` of independent differences.

    The spread is the cell's own or that of all cells pooled, whichever is larger: a few rounds that happen to agree
    must not make a cell look certain. inf for a cell of fewer than 3 rounds.
    """
    squares = [sum(float(np.square(np.subtract(s, np.mean(s))).sum()) for s in series) for series in rounds]
    freedom = [sum(len(s) - 1 for s in series) for series in rounds]
    pooled = sum(squares) / max(1, sum(freedom))
    return [
        math.sqrt(max(pooled, square / free) / len(series[0])) if len(series[0]) >= LEAST_ROUNDS else math.inf
        for series, square, free in zip(rounds, squares, freedom, strict=True)
    ]


def nonnegative(matrix: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve for the x >= 0 with the least |matrix x - target| [LawsonHanson1974, chapter 23].

    ``matrix`` [rows, columns], ``target`` [rows]. SciPy has it too, but its import would add 0.4 s to an answer of 1 s.

    >>> nonnegative(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0])).tolist()
    [2.0, 0.0]
    """
    columns = matrix.shape[1]
    x, free = np.zeros(columns), np.zeros(columns, dtype=bool)
    small = 10 * np.finfo(float).eps * max(matrix.shape) * np.abs(matrix).sum(axis=0).max()
    for _ in range(3 * columns):  # each round frees a column; more rounds would only move the last digits
        gradient = matrix.T @ (target - matrix @ x)
        if free.all() or (gradient[~free] <= small).all():
            break
        free[np.where(free, -np.inf, gradient).argmax()] = True
        # Invariant: x is feasible and 0 outside of the free columns.
        while True:
            best = np.zeros(columns)
            best[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
            below = free & (best <= 0)
            if not below.any():
                x = best
                break
            x += (x[below] / (x[below] - best[below])).min() * (best - x)
            free &= x > small
            x[~free] = 0.0
    return x


def front_of(points: Sequence[tuple[float, ...]]) -> list[int]:
    """List positions of the points (larger is better in every component) that no other beats; the first of equals.

    >>> front_of([(3.0, -2.0), (2.0, -2.0), (1.0, -1.0), (3.0, -2.0)])
    [0, 2]
    """
    order = sorted(range(len(points)), key=lambda here: points[here], reverse=True)  # whatever beats comes before
    return sorted(order[position] for position in frugal([[-value for value in points[here]] for here in order]))


def frugal(costs: Sequence[Sequence[float]]) -> list[int]:
    """List positions of the costs ``[n, d]``, the most wanted first, of which none before takes no more of anything.

    >>> frugal([(2.0, 5.0), (2.0, 5.0), (3.0, 4.0), (1.0, 9.0)])
    [0, 2, 3]
    """
    taken, left, kept = np.array(costs, dtype=np.float64), np.arange(len(costs)), []
    # Invariant: left are the positions after those of kept, rising, that take less of something than each of kept.
    while left.size:
        first, rest = left[0], left[1:]
        kept.append(int(first))
        left = rest[(taken[rest] < taken[first]).any(axis=1)]
    return kept


class Field:
    """A field of values known with errors at scattered places, carried over to others: kriging, a Gaussian process.

    Two places correlate by exp(-distance), the distance added up over the axes: on a grid the places around decide. Far
    from every place the mean is the offset they share, and the standard deviation is ``sigma``.

    ``places [n, d]`` in length scales of their axes; ``values [n]`` with standard deviations ``errors [n]``; ``offset``
    is the standard deviation of what all values share, 0 where their mean is known to be 0.
    """

    def __init__(
        self,
        places: NDArray[np.float64],
        values: NDArray[np.float64],
        errors: NDArray[np.float64],
        sigma: float,
        offset: float = 0.0,
    ) -> None:
        self._places, self._sigma, self._offset = places, sigma, offset
        self._inverse = np.linalg.inv(self._covariance(places) + np.diag(np.square(errors)))
        self._weighted = self._inverse @ values

    def _covariance(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute prior covariances ``[m, n]`` of the values at ``places [m, d]`` with those that are known."""
        distances = np.abs(places[:, None, :] - self._places[None, :, :]).sum(axis=2)
        result: NDArray[np.float64] = self._sigma**2 * np.exp(-distances) + self._offset**2
        return result

    def at(self, place: Sequence[float]) -> tuple[float, float]:
        """Predict (value, its standard deviation) at a place ``[d]``.

        >>> known = Field(np.array([[0.0], [1.0]]), np.array([1.0, 3.0]), np.array([1e-6, 1e-6]), sigma=1.0)
        >>> [round(number, 2) for number in (*known.at([0.5]), *known.at([1.0]), *known.at([20.0]))]
        [1.77, 0.68, 3.0, 0.0, 0.0, 1.0]
        """
        near = self._covariance(np.array([place], dtype=np.float64))[0]
        variance = self._sigma**2 + self._offset**2 - float(near @ self._inverse @ near)
        return float(near @ self._weighted), math.sqrt(max(0.0, variance))
