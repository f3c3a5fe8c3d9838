"""Share out cores between actors and learners ([Zhang2021, V-D, eq. 5 and Fig. 12]).

Letters: M cores, x_a and x_l of them for actors and for learners, f_a(x_a) environment steps/s, f_l(x_l)
gradient steps/s, u environment steps a gradient step (update_interval).

Eq. 5 asks for f_a(x_a) = u f_l(x_l) with x_a + x_l <= M. Whole cores seldom make both sides equal, and (1, 1) may do so
at a fraction of what M cores could give. Here the slower side is made as fast as it can be: the most gradient
steps/s, min(f_a(x_a) / u, f_l(x_l)), with x_a + x_l + reserved <= M. Curves need not rise, so every pair is looked at.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from ..estimate import Estimate, Evidence, Interval, interval_of
from ..records import Source
from ..solver.problem import ProblemError
from ..stats import nonnegative

LEAST_POINTS = 2  # below which no law of scaling is fitted
LEAST_HZ, MOST_HZ = 1e-9, 1e15  # bounds of any rate and of its interval
MISFIT = 1.05  # a law that misses the points by so much more than they allow is no longer possible
AMDAHL, RETROGRADE, UNIVERSAL = (0, 1), (0, 2), (0, 1, 2)
"""Parts of x / f(x) that a law has: of one core, of contention, of coherence."""


@dataclass(frozen=True)
class RateCurve:
    """Calls/s by number of cores: f_a or f_l. ProblemError without points, or for a rate outside any sense.

    >>> RateCurve.of("f_a", {2: 90.0, 1: 100.0}).cores
    (1, 2)
    """

    name: str
    rates: Mapping[int, Estimate]

    @classmethod
    def of(
        cls, name: str, rates: Mapping[int, float], source: Source = "quoted", low: float = 1.0, high: float = 1.0
    ) -> "RateCurve":
        """A curve of plain rates, each in an interval from ``low`` to ``high`` times itself."""
        if source not in get_args(Source):
            raise ProblemError(f"{name}: the source of a rate is one of {get_args(Source)}, not {source!r}")
        for cores, hz in rates.items():
            if not 0 < low * hz <= hz <= high * hz < math.inf:
                raise ProblemError(
                    f"{name}: on {cores} cores a rate must be above 0, finite and within its interval, not {hz} in "
                    f"[{low * hz}, {high * hz}]"
                )
            if not LEAST_HZ <= low * hz <= high * hz <= MOST_HZ:
                raise ProblemError(f"{name}: on {cores} cores {_senseless(low * hz, high * hz)}")
        evidence = Evidence(name, source)
        return cls(name, {cores: Estimate(hz, low * hz, high * hz, evidence) for cores, hz in rates.items()})

    def __post_init__(self) -> None:
        if not self.rates:
            raise ProblemError(f"{self.name}: a curve without a point; time it on at least one number of cores")
        for cores in self.rates:
            if cores < 1 or cores != cores // 1:
                raise ProblemError(f"{self.name}: a rate on {cores} cores; cores are whole and at least 1")
        object.__setattr__(self, "rates", {int(cores): rate for cores, rate in self.rates.items()})

    @property
    def cores(self) -> tuple[int, ...]:
        """Numbers of cores that have a rate, rising."""
        return tuple(sorted(self.rates))


def _senseless(low: float, high: float) -> str:
    shown = f"{low:g}" if low == high else f"[{low:g}, {high:g}]"
    return f"a rate of {shown}; rates are from {LEAST_HZ:g} to {MOST_HZ:g}, give them in steps/s"


@dataclass(frozen=True)
class Scaling:
    """The universal scalability law [Gunther2007]: f(x) = rate x / (1 + contention (x - 1) + coherence x (x - 1)).

    ``off``: how many times as high or as low as a fitted point the law, or that point's own interval, is at worst.
    """

    rate_hz: float
    contention: float
    coherence: float
    off: float

    def hz(self, cores: int) -> float:
        """Give the rate f(x) on a given number of cores."""
        return self.rate_hz * cores / (1 + self.contention * (cores - 1) + self.coherence * cores * (cores - 1))


def scaling(curve: RateCurve) -> Scaling:
    """Fit the law with the least squared relative errors, no part of it below 0.

    x / f(x) is linear in its three parts. Two points leave coherence open: it is 0 then, which is Amdahl's law, unless
    the rates fall by more than that allows.
    ProblemError for a single point, for a rate outside any sense, or where one core would be infinitely fast.
    """
    if len(curve.rates) < LEAST_POINTS:
        raise ProblemError(f"{curve.name}: one point says nothing of scaling; time it on a second number of cores")
    for x, rate in curve.rates.items():
        if not LEAST_HZ <= rate.low <= rate.high <= MOST_HZ:
            raise ProblemError(f"{curve.name}: on {x} cores {_senseless(rate.low, rate.high)}")
    law = _fitted(curve, UNIVERSAL[: len(curve.rates)]) or _fitted(curve, RETROGRADE)
    if law is None:
        raise ProblemError(f"{curve.name}: rates on {curve.cores} cores say nothing of one core; time it on one")
    return law


def _fitted(curve: RateCurve, parts: Sequence[int], tilt: float = 1.0) -> Scaling | None:
    """Fit a law that has some of the ``parts``; None where one core would be infinitely fast.

    The rates are fitted as if the first were ``tilt`` times as high and the last as low, in between by ln x.
    """
    x = np.array(curve.cores, np.float64)
    turn = 1 - 2 * np.log(x / x[0]) / np.log(x[-1] / x[0])
    f = np.array([curve.rates[cores].value for cores in curve.cores]) * tilt**turn
    columns = np.stack((np.ones_like(x), x - 1, x * (x - 1)), axis=1)[:, list(parts)] * (f / x)[:, None]
    scale = columns.max(axis=0)
    scale[scale == 0] = 1.0
    found = np.zeros(3)
    found[list(parts)] = nonnegative(columns / scale, np.ones(len(x))) / scale
    alone, contention, coherence = found
    if alone <= 0:
        return None
    law = Scaling(float(1 / alone), float(contention / alone), float(coherence / alone), 1.0)
    off = 1.0
    for cores, hz in zip(curve.cores, f, strict=True):
        fitted, rate = law.hz(cores), curve.rates[cores]
        off = max(off, float(fitted / hz), float(hz / fitted), rate.high / rate.value, rate.value / rate.low)
    return Scaling(law.rate_hz, law.contention, law.coherence, off)


def _possible(curve: RateCurve, law: Scaling) -> list[Scaling]:
    """List laws through the same points: the one fitted, Amdahl's, and one that falls by coherence alone.

    Each also through points as far from their rates as their intervals allow, the first high and the last low: whatever
    is wrong with two points is worse for what they foretell. Laws that miss the points are omitted.
    """
    wide = max(max(rate.high / rate.value, rate.value / rate.low) for rate in curve.rates.values())
    fits = [_fitted(curve, parts, tilt) for parts in (AMDAHL, RETROGRADE) for tilt in {1.0, wide}]
    if len(curve.rates) > LEAST_POINTS:
        fits.append(_fitted(curve, UNIVERSAL, wide))
    return [law, *(fit for fit in fits if fit and fit.off <= MISFIT * law.off)]


def completed(curve: RateCurve, cores: int) -> RateCurve:
    """Complete a curve to a rate for each of 1 to ``cores`` cores; those it lacks are from its ``scaling``.

    They are "modeled" between points of the curve, "extrapolated" outside of them. Their interval has what every law
    through the same points foretells, in proportion to cores and not at all better with them included, and is as much
    wider as the law is off at worst where the curve has points. Past the last point laws part, so it widens with x.
    """
    missing = [x for x in range(1, cores + 1) if x not in curve.rates]
    if not missing:
        return curve
    law, rates = scaling(curve), dict(curve.rates)
    laws = _possible(curve, law)
    for x in missing:
        may = [each.hz(x) for each in laws]
        below = max((known for known in curve.cores if known < x), default=None)
        above = min((known for known in curve.cores if known > x), default=None)
        ends = [end for end in (below, above) if end]
        if len(ends) == 1:  # no gain by more cores, and all that they could give
            may += [curve.rates[ends[0]].value, curve.rates[ends[0]].value * x / ends[0]]
        else:
            may.append(float(np.interp(x, ends, [curve.rates[end].value for end in ends])))
        evidence = Evidence(curve.name, "extrapolated" if len(ends) == 1 else "modeled")
        rates[x] = Estimate(law.hz(x), min(may) / law.off, max(may) * law.off, evidence)
    return RateCurve(curve.name, rates)


def next_point(curve: RateCurve, cores: int) -> int:
    """Choose the number of cores to time next, for the rate on ``cores``: a power of two about midway in ln x.

    >>> next_point(RateCurve.of("f_l", {1: 400.0, 2: 700.0}), 48)
    8
    """
    last = curve.cores[-1]
    midway = 1 << int(math.log2(math.sqrt(last * cores)))
    return max(min(max(midway, last + 1), cores), last + 1)


@dataclass(frozen=True)
class Allocation:
    """Cores for actors and for learners. ``in_turns``: the same cores serve first actors, then learners.

    ``hz``: gradient steps/s in [``low``, ``high``], by the intervals of the two rates. ``ratio``: environment
    steps a gradient step if neither side waits for the other. ``idle``: cores that nothing uses.
    """

    actors: int
    learners: int
    in_turns: bool
    hz: float
    low: float
    high: float
    ratio: float
    bottleneck: Literal["actors", "learners", "neither", "both serially"]
    idle: int
    sources: tuple[Source, Source]

    @property
    def interval(self) -> Interval:
        """What the ends mean: "95 %" where both rates were measured, or lie between points that were."""
        return interval_of(self.sources)

    @property
    def cores(self) -> int:
        """Cores that actors and learners use."""
        return self.actors if self.in_turns else self.actors + self.learners


def allocate(
    f_a: RateCurve,
    f_l: RateCurve,
    update_interval: float,
    cores: int,
    reserved: int = 0,
    turns: bool = False,
    within: float = 0.0,
) -> Allocation:
    """Find the most gradient steps/s; of equal ones the fewest cores, then the fewest for actors.

    Only numbers of cores that a curve has a rate for are tried (``completed`` fills in others). ``reserved``: cores
    for anything else, such as the three threads of [Zhang2023] that coordinate. With ``turns``, actors and learners may
    also share cores one after the other, as a serial loop does; one core allows nothing else. Rates that lack no more
    than the part ``within`` of the highest count as equal. ProblemError where nothing fits.
    """
    cores, reserved = check(update_interval, cores, reserved)
    if not 0 <= within < 1:
        raise ProblemError(f"a part of the highest rate is from 0 to below 1, not {within}")
    free = cores - reserved
    splits = list(parted(f_a, f_l, update_interval, free))
    if turns:
        splits += in_turns(f_a, f_l, update_interval, free)
    if not splits:
        least = f_a.cores[0] + f_l.cores[0]
        raise ProblemError(
            f"{cores} cores with {reserved} reserved leave {free}, {f_a.name} and {f_l.name} need {least} at least"
            + ("" if turns else "; they could take turns on the same cores")
        )
    least_hz = (1 - within) * max(one.hz for one in splits)
    return min((one for one in splits if one.hz >= least_hz), key=lambda one: (one.cores, one.actors, -one.hz))


def printed_allocations(
    f_a: RateCurve, f_l: RateCurve, update_interval: float, cores: int, tolerance: float
) -> tuple[Allocation, ...]:
    """Find all solutions of eq. 5 as printed, fastest first, as published: by trying all M^2 / 2 pairs.

    Both sides count as equal up to ``tolerance``, a part of the right one; for a small tolerance there is seldom a
    solution. Eq. 5 prefers none of them, and has no reserved cores.
    """
    cores, _ = check(update_interval, cores, 0)
    solutions = [
        one
        for one in parted(f_a, f_l, update_interval, cores)
        if abs(one.ratio - update_interval) <= tolerance * update_interval
    ]
    return tuple(sorted(solutions, key=lambda one: (-one.hz, one.cores, one.actors)))


def check(update_interval: float, cores: float, reserved: float) -> tuple[int, int]:
    """Return (cores, reserved) as integers. ProblemError, with value and bound, for numbers outside any sense."""
    if not 0 < update_interval < math.inf:
        raise ProblemError(f"update_interval must be above 0 and finite, not {update_interval}")
    if cores < 1 or reserved < 0 or cores // 1 != cores or reserved // 1 != reserved:  # no NaN, no infinity
        raise ProblemError(f"cores must be at least 1 and reserved at least 0, both whole, not {cores} and {reserved}")
    return int(cores), int(reserved)


def parted(f_a: RateCurve, f_l: RateCurve, u: float, free: int) -> Iterator[Allocation]:
    """Yield every pair of numbers of cores that the curves have and that fits into the free ones."""
    for x_a, acting in f_a.rates.items():
        for x_l, learning in f_l.rates.items():
            if x_a + x_l > free:
                continue
            feed, take = acting.value / u, learning.value
            ends = min(acting.low / u, learning.low), min(acting.high / u, learning.high)
            equal = math.isclose(feed, take)  # a law through points is right to rounding alone
            side: Literal["actors", "learners"] = "actors" if feed < take else "learners"
            bottleneck = "neither" if equal else side
            sources = (acting.source, learning.source)
            ratio = acting.value / learning.value
            yield Allocation(x_a, x_l, False, min(feed, take), *ends, ratio, bottleneck, free - x_a - x_l, sources)


def in_turns(f_a: RateCurve, f_l: RateCurve, u: float, free: int) -> Iterator[Allocation]:
    """Yield splits with the same cores for both sides, one after the other, as a serial loop has them."""
    for x in set(f_a.rates) & set(f_l.rates):
        if x <= free:
            acting, learning = f_a.rates[x], f_l.rates[x]
            pairs = ((acting.value, learning.value), (acting.low, learning.low), (acting.high, learning.high))
            hz, low, high = (1 / (u / a + 1 / b) for a, b in pairs)
            sources = (acting.source, learning.source)
            yield Allocation(x, x, True, hz, low, high, u, "both serially", free - x, sources)
