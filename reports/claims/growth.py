"""Tell linear growth with the capacity N from slower growth: which p fits t = a + b N^p, with a, b >= 0.

The slope of ln(t) over ln(N) cannot, for a call costs something at any N: arrays whose work is linear have slopes near
0.8. With the part ``a`` that does not grow, their p is near 1. p - 1 is the slope of what one leaf more costs; p near 0
stands for log(N). Letters: N leaves, t seconds, p exponent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dse import stats

Reals = NDArray[np.float64]

POWERS = np.arange(1, 76) / 50  # p, from near log(N) to N^1.5
LINEAR = 1.0
NEARLY = 0.8
"""Where p = 1 fits, growth counts as linear if no p up to this does."""
HALF = 0.5
"""The least share of the time at the largest N that must grow."""
MISFIT = 0.05
"""Relative error of a time by which caches, that no power of N knows, bend it."""
LEAST_CAPACITIES = 3
SIMULATED = 400
SEED = 20_211_218
GROWING = 30.0
"""Simulated linear growth: the part that grows is at the largest N so many times the one that does not."""


@dataclass(frozen=True)
class Series:
    """Seconds ``[n]`` at capacities ``[n]``, rising, with the standard deviation ``[n]`` of their logarithms."""

    capacities: Reals
    seconds: Reals
    sigmas: Reals

    @classmethod
    def of(cls, points: Sequence[tuple[int, float, float]]) -> "Series":
        """Build a series of (N, seconds, sigma); the misfit that caches cause comes on top."""
        capacities, seconds, sigmas = (
            np.array(values, dtype=np.float64) for values in zip(*sorted(points), strict=True)
        )
        return cls(capacities, seconds, np.hypot(sigmas, MISFIT))


@dataclass(frozen=True)
class Growth:
    """The best p with its 95 % interval, and the share of the time at the largest N that grows, if p is 1."""

    power: float
    low: float
    high: float
    share: float

    @property
    def is_sublinear(self) -> bool:
        """True where growth is slower than linear: p is below 1, or most of the time does not grow at all."""
        return self.high < LINEAR or self.share < HALF

    @property
    def is_linear(self) -> bool:
        """True where p = 1 fits, no p up to ``NEARLY`` does, and most of the time grows."""
        return self.low > NEARLY and self.high >= LINEAR and self.share >= HALF

    def __str__(self) -> str:
        return f"p = {self.power:.2f} ({self.low:.2f} to {self.high:.2f})"


def growth_of(series: Sequence[Series]) -> Growth:
    """Fit one p to several series, each with its own a and b, by least squares of relative errors.

    The interval holds every p that a likelihood ratio test against the best one does not reject, with the errors that
    the series state, or larger ones where even the best p misses by more.
    """
    growths = _growths([each.seconds[None, :] for each in series], series)
    return Growth(*(float(values[0]) for values in growths))


def _growths(seconds: Sequence[Reals], series: Sequence[Series]) -> tuple[Reals, Reals, Reals, Reals]:
    """Fit each of m alternatives: (p, low, high, share) ``[m]``, of ``seconds`` ``[m, n]`` in place of each series'."""
    fits = [_fit(times, each) for times, each in zip(seconds, series, strict=True)]
    misfits = np.sum([misfit for misfit, _ in fits], axis=0)
    freedom = max(1, sum(each.seconds.size for each in series) - 2 * len(series) - 1)
    best = misfits.min(axis=1, keepdims=True)
    allowed = misfits - best <= stats.Z**2 * np.maximum(1.0, best / freedom)
    low = np.where(allowed, POWERS, np.inf).min(axis=1)
    high = np.where(allowed, POWERS, -np.inf).max(axis=1)
    share = np.mean([share for _, share in fits], axis=0)
    return POWERS[misfits.argmin(axis=1)], low, high, share


def _fit(times: Reals, series: Series) -> tuple[Reals, Reals]:
    """Fit times ``[m, n]``: (sums of squares ``[m, powers]``, share that grows at the largest N if p is 1 ``[m]``)."""
    weights = 1 / (times * series.sigmas)  # of an absolute error
    grown = (series.capacities / series.capacities[-1])[None, :] ** POWERS[:, None]
    ones, target = weights, 1 / series.sigmas
    s11 = (ones**2).sum(axis=1)[:, None]
    s12, s22 = (ones**2) @ grown.T, (ones**2) @ (grown**2).T
    b1, b2 = (ones @ target)[:, None], (ones * target) @ grown.T
    determinant = np.maximum(s11 * s22 - s12**2, 1e-300)
    constant, rate = (b1 * s22 - b2 * s12) / determinant, (b2 * s11 - b1 * s12) / determinant
    rate = np.where(constant < 0, b2 / s22, np.maximum(rate, 0.0))
    constant = np.where(constant < 0, 0.0, np.where(rate > 0, constant, b1 / s11))
    misfit = (target**2).sum() - constant * (2 * b1 - constant * s11 - 2 * rate * s12) - rate * (2 * b2 - rate * s22)
    linear = int(np.abs(POWERS - LINEAR).argmin())
    return misfit, rate[:, linear] / (constant + rate)[:, linear]


def mistaken(series: Sequence[Series]) -> tuple[float, float]:
    """Compute by simulation how often (linear growth passes as slower, growth like log(N) does not).

    At these capacities and this noise: ``GROWING`` says how linear; that like log(N) doubles the time.
    """
    errors = []
    for slower in (False, True):
        rng = np.random.default_rng(SEED)
        sampled = [
            _made(each, slower) * np.exp(rng.normal(0, each.sigmas, (SIMULATED, len(each.sigmas)))) for each in series
        ]
        _, _, high, share = _growths(sampled, series)
        passes = float(((high < LINEAR) | (share < HALF)).mean())
        errors.append(1 - passes if slower else passes)
    return errors[0], errors[1]


def _made(series: Series, slower: bool) -> Reals:
    """Make the seconds ``[n]`` of growth that is linear, or slower: like log(N)."""
    of_least: Reals = series.capacities / series.capacities[0]
    grown = np.log(of_least) / math.log(of_least[-1]) if slower else GROWING * of_least / of_least[-1]
    result: Reals = 1 + grown
    return result
