"""Judge numbers against the noise of the run that measured them: critical values, and claims that name a number.

Every verdict of these tests is wrong in at most ``LEVEL`` of cases where what it denies is true.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from dse import stats
from dse.records import Record, twins

from .claims import Verdict

LEVEL = 0.05
LEAST_PAIRS = 10
"""Fewer A/A pairs of a run say little of its noise."""


@dataclass(frozen=True)
class Noise:
    """The noise of timings: ``floor`` as ``stats.noise_floor`` has it, and the A/A ``pairs`` that it rests on."""

    floor: float
    pairs: int

    @property
    def sigma(self) -> float:
        """Standard deviation of the difference of the logarithms of two times."""
        return self.floor / stats.Z

    @property
    def single(self) -> float:
        """Standard deviation of the logarithm of one time."""
        return self.sigma / math.sqrt(2)

    def critical(self, tests: int = 1) -> float:
        """Compute how many standard deviations each of several one-sided tests must exceed (Student, Bonferroni)."""
        return student(LEVEL / max(1, tests), max(1, self.pairs - 1))

    def __str__(self) -> str:
        return f"noise floor {self.floor:.0%} of {self.pairs} A/A pairs"


@cache
def student(level: float, freedom: int) -> float:
    """Compute the quantile of Student's t that is exceeded with probability ``level``."""
    from scipy.stats import t  # noqa: PLC0415  # heavy

    return float(t.isf(level, freedom))


def noise_of(
    records: Iterable[Record], primitive: str = "sum_tree", runs: Collection[tuple[str | None, str]] = ()
) -> Noise:
    """Measure the noise by the A/A twins among the records; by those of the ``runs`` (code, command) if there are
    ``LEAST_PAIRS`` of them."""
    timed = list(records)
    pairs = twins([record for record in timed if (record.run.code, record.run.command) in runs], primitive)
    if len(pairs) < LEAST_PAIRS:
        pairs = twins(timed, primitive)
    return Noise(stats.noise_floor(pairs), len(pairs))


def own_sigma(record: Record) -> float:
    """Compute the standard deviation of a record's ln(time) from its own interval, 0 where it has none."""
    if record.low_seconds is None or record.high_seconds is None:
        return 0.0
    return math.log(record.high_seconds / record.low_seconds) / (2 * stats.Z)


@dataclass(frozen=True)
class TwoSided:
    """A mean of logarithms with its 90 % interval, validated against the range that a claim allows."""

    mean: float
    low: float
    high: float
    verdict: Verdict
    missed: float


def two_sided(values: Sequence[float], sigmas: Sequence[float], noise: Noise, least: float, most: float) -> TwoSided:
    """Judge that the mean of ``values`` lies from ``least`` to ``most`` (two one-sided tests [Schuirmann1987]).

    Confirmed: the interval lies within; refuted: wholly outside; not testable here: it straddles an end. Its half-width
    is from the noise or from how much the values differ, whichever is larger. ``missed``: the chance that a mean as far
    beyond an end as the ends are from their middle is not refuted.
    """
    count, mean = len(values), sum(values) / len(values)
    error, freedom = math.sqrt(sum(sigma**2 for sigma in sigmas)) / count, max(1, noise.pairs - 1)
    if count > 1:
        spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
        if spread > error:
            error, freedom = spread, count - 1
    half = student(LEVEL, freedom) * error
    low, high = mean - half, mean + half
    verdict: Verdict = "not testable here"
    if least <= low and high <= most:
        verdict = "confirmed"
    elif high < least or low > most:
        verdict = "refuted"
    beyond = (most - least) / 2
    missed = NormalDist().cdf((half - beyond) / error) if error else 0.0
    return TwoSided(mean, low, high, verdict, missed)
