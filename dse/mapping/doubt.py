"""What is statistically tied: configurations whose rates differ by less than their times are known to.

All times are drawn at once, log-normal by sides, an estimate's ends taken for its 95 %. Times that rest on the same
evidence are wrong together, so they share a draw, each within its own ends; all others are drawn independently. A
configuration is statistically tied with the best where the 95 % interval of the quotient of their values reaches
1 - epsilon: a learner that both use makes both uncertain, and their quotient not at all.

Of these, those that are expected to give at least half of the best's value are listed, since a ``frontier`` ends there.
Chosen is what takes least (devices, then cores, bytes moved, depth) of those that are expected to give ``GIVEN_UP``
less at most: a device or a core is not worth more, however little is known. With exact times epsilon alone decides.

Letters: d draws.
"""

import functools
import zlib
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist

import numpy as np

from ..estimate import Evidence, Interval, interval_of, weakest
from ..records import Source
from ..solver.deciding import Spread, spread_of, timed_of
from ..solver.law import GIVEN_UP, Objective, Reals, value_of
from ..solver.problem import Timed
from ..solver.solve import FRUGAL, TIED, Candidate
from ..stats import CONFIDENCE, Z, percentile_interval

DRAWS = 1000
"""The expected speedup of another one up to which the two are statistically tied."""


def source_of(candidate: Candidate) -> Source:
    """Return the least sure source of all that a value rests on."""
    return weakest(timed.rests_on.source for timed in timed_of(candidate))


def interval(candidate: Candidate) -> Interval:
    """Return what the ends of a value mean: by all that it rests on."""
    return interval_of([source_of(candidate)])


def cores(one: Candidate) -> float:
    """Cores that a configuration's engines and options take, whatever device they are of."""
    return float(one.key(("cores",))[0])


class Doubt:
    """Values of configurations where all numbers are drawn jointly. ``choose`` is the rule; see above.

    ``exact``: equally good is what lies within epsilon, whatever is known of the times, in the order of ``TIED``.
    """

    def __init__(self, objective: Objective, epsilon: float, exact: bool = False) -> None:
        self.objective, self.epsilon, self.exact = objective, epsilon, exact
        self.values = functools.cache(self._drawn)
        self._key = functools.partial(Candidate.key, order=TIED if exact else FRUGAL)

    def _drawn(self, one: Candidate) -> Reals:
        """Values [d] of a candidate; the same draws for the same evidence, whoever asks."""
        return self._values(one, _drawn_factors)

    def ends(self, one: Candidate) -> tuple[float, float]:
        """The 95 % interval of a candidate's value, which holds the value itself."""
        low, high = percentile_interval(self.values(one))
        return min(low, one.value), max(high, one.value)

    def chance(self, one: Candidate, other: Candidate) -> float:
        """The probability that one gives at least as much as another."""
        return float((self.values(one) >= self.values(other) * (1 - 1e-12)).mean())

    def no_worse(self, one: Candidate, best: Candidate) -> bool:
        """Whether one is statistically tied with the best."""
        if one.value >= best.value * (1 - self.epsilon):
            return True
        if self.exact or all(spread_of(timed) == (1.0, 1.0) for timed in (*timed_of(one), *timed_of(best))):
            return False
        quotient = self.values(one) / self.values(best)
        return bool(np.quantile(quotient, (1 + CONFIDENCE) / 2) >= 1 - self.epsilon)

    def group(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best, and whatever is statistically tied with it: what may be chosen first, in the order of the rule."""
        best = max(candidates, key=lambda one: one.value)
        least = best.value * (1 - max(GIVEN_UP, self.epsilon))
        return sorted(
            (one for one in candidates if self.no_worse(one, best)),
            key=lambda one: (one.value < least, *self._key(one)),
        )

    def decisive(self, one: Candidate, other: Candidate) -> Evidence | None:
        """The evidence whose uncertainty moves the quotient of two values most; None where none moves it."""
        moved: dict[str, tuple[float, Evidence]] = {}
        for timed in (timed for each in (one, other) for timed in timed_of(each) if spread_of(timed) != (1.0, 1.0)):
            evidence = timed.rests_on
            if evidence.number not in moved:
                at = functools.partial(_ends_of, evidence.number)
                moves = float(np.ptp(np.log(self._values(one, at) / self._values(other, at))))
                moved[evidence.number] = moves, evidence
        most = max(moved.values(), key=lambda pair: pair[0], default=None)
        return most[1] if most and most[0] > self.epsilon / 10 else None

    def _values(self, one: Candidate, factor: Callable[[str, Spread], Reals]) -> Reals:
        """Values where every time has a slowdown of ``factor(number, spread)``."""

        def slower(timed: Timed) -> Reals:
            return factor(timed.rests_on.number, spread_of(timed))

        values: Reals = value_of(one.problem, one.configuration, self.objective, slower)
        return values


@functools.cache
def _grid() -> Reals:
    """``DRAWS`` equally likely values of a normal distribution, 95 % of them within 1."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((place + 0.5) / DRAWS) for place in range(DRAWS)]) / Z


@functools.cache
def normals(number: str) -> Reals:
    """What is drawn for a piece of evidence, [d]: the same in every answer, and independent of all other evidence."""
    return np.random.default_rng(zlib.crc32(number.encode())).permutation(_grid())


@functools.lru_cache(maxsize=1000)
def _drawn_factors(number: str, spread: Spread) -> Reals:
    z = normals(number)
    factors: Reals = np.exp(np.where(z > 0, z * np.log(spread[1]), -z * np.log(spread[0])))
    return factors


def _ends_of(number: str, name: str, spread: Spread) -> Reals:
    """Factors [3] of a time: its low end, itself and its high end if it rests on the evidence, else just itself."""
    return np.array([spread[0], 1.0, spread[1]] if name == number else [1.0, 1.0, 1.0])


def undominated(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of which no other is as fast with no more devices and cores, and better in one of these; fastest first."""
    kept: list[tuple[Candidate, int, float]] = []
    costs = [(one, len(one.outcome.devices), cores(one)) for one in candidates]
    # Invariant: kept has whatever is undominated among the candidates before, which are at least as fast.
    for one, devices, own in sorted(costs, key=lambda cost: (-cost[0].value, *cost[1:])):
        if not any(other[1] <= devices and other[2] <= own for other in kept):
            kept.append((one, devices, own))
    return [one for one, *_ in kept]
