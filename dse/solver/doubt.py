"""What cannot be told apart: configurations whose rates differ by less than their times are known to.

All times are drawn at once, log-normal by sides, an estimate's ends taken for its 95 %. Times that rest on the same
evidence are wrong together, so they share a draw, each within its own ends; all others are drawn independently. A
configuration cannot be told apart from the best where the 95 % interval of the quotient of their values reaches
1 - epsilon: a learner that both use makes both uncertain, and their quotient not at all.

Of these, those that are expected to give at least 1 / ``WORTH`` of the best's value are listed. The smallest
``frugal_key`` is chosen, which has fewest devices, then cores, bytes moved, depth, of those that are expected to give
``GIVEN_UP`` less at most: a device or a core is not worth more, however little is known. With exact times epsilon alone
decides.

Letters: d draws, k charges.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ..estimate import Interval, interval_of
from ..stats import CONFIDENCE, Z, percentile_interval
from .objectives import Objective, cores, frugal_key, threshold, tie_key
from .problem import Configuration, Problem, ProblemError
from .search import Answer
from .sensitivity import EXACT, Spread, spread_of_hop, spread_of_option
from .throughput import Charge, Outcome, Reals, charges, steps_per_second, transfers, used_devices, used_engines

DRAWS = 1000
WORTH = 2.0
"""How many times as fast another one may be expected to be where the two cannot be told apart."""
GIVEN_UP = 0.2
"""The share of the expected value that may be given up for fewer devices and cores where two cannot be told apart."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A configuration that fits, in an execution mode, which is a problem; equal only to itself."""

    mode: str
    problem: Problem
    answer: Answer

    @property
    def configuration(self) -> Configuration:
        """What is chosen of the problem."""
        return self.answer.configuration

    @property
    def outcome(self) -> Outcome:
        """What it gives, and what bounds it."""
        return self.answer.outcome

    @property
    def value(self) -> float:
        """Its value by the objective."""
        return self.answer.value

    @functools.cached_property
    def cores(self) -> float:
        """Cores that its engines and options take, whatever device they are of."""
        engines = (self.problem.engines.get(engine, {}) for engine in used_engines(self.configuration))
        return sum(map(cores, engines)) + sum(cores(option.needs) for option in self.configuration.options)

    @property
    def where(self) -> tuple[Any, ...]:
        """The kind of its execution mode, and the devices of each part."""
        return (
            self.mode.partition(",")[0],
            *(tuple(device for device, _ in option.where) for option in self.configuration.options),
        )

    @functools.cached_property
    def interval(self) -> Interval:
        """What the ends of its value mean: by all that it rests on, parts and links."""
        hops = (hop.rests_on.source for _, hop, _ in transfers(self.problem, self.configuration))
        return interval_of([*(option.time.source for option in self.configuration.options), *hops])


def shares(problem: Problem, configuration: Configuration) -> Iterator[tuple[Charge, Spread]]:
    """Everything a gradient step asks of engines, with how far off its seconds may be."""
    ends = [spread_of_hop(hop) for _, hop, _ in transfers(problem, configuration)]
    ends += [spread_of_option(option) for option in configuration.options for _ in option.where]
    return zip(charges(problem, configuration), ends, strict=True)


class Doubt:
    """Values of configurations where all numbers are drawn jointly. ``choose`` is the rule; see above.

    ``exact``: equally good is what lies within epsilon, whatever is known of the times, in the order of ``tie_key``.
    ``modes``: of candidates with equal keys those come first whose mode does.
    """

    def __init__(self, objective: Objective, epsilon: float, exact: bool = False, modes: Sequence[str] = ()) -> None:
        self.objective, self.epsilon, self.exact, self._modes = objective, epsilon, exact, list(modes)
        self._factors: dict[tuple[str, Spread], Reals] = {}
        self._drawn: dict[Candidate, Reals] = {}
        self._keys: dict[Candidate, tuple[Any, ...]] = {}

    def values(self, one: Candidate) -> Reals:
        """Values [d] of a candidate; the same draws for the same evidence, whoever asks."""
        if one not in self._drawn:
            self._drawn[one] = self._values(one, self._factor)
        return self._drawn[one]

    def ends(self, one: Candidate) -> tuple[float, float]:
        """The 95 % interval of a candidate's value, which holds the value itself."""
        low, high = percentile_interval(self.values(one))
        return min(low, one.value), max(high, one.value)

    def chance(self, one: Candidate, other: Candidate) -> float:
        """The probability that one gives at least as much as another."""
        return float((self.values(one) >= self.values(other) * (1 - 1e-12)).mean())

    def no_worse(self, one: Candidate, best: Candidate) -> bool:
        """Whether one cannot be told apart from the best."""
        if one.value >= threshold(best.value, self.epsilon):
            return True
        if self.exact or (self._sure(one) and self._sure(best)):
            return False
        quotient = self.values(one) / self.values(best)
        return bool(np.quantile(quotient, (1 + CONFIDENCE) / 2) >= 1 - self.epsilon)

    def group(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The best, and whatever cannot be told apart from it: what may be chosen first, in the order of the rule."""
        best = max(candidates, key=lambda one: one.value)
        worth = [one for one in candidates if one.value * WORTH >= best.value or self.exact]
        least = threshold(best.value, max(GIVEN_UP, self.epsilon))
        return sorted(
            (one for one in worth if self.no_worse(one, best)), key=lambda one: (one.value < least, *self._key(one))
        )

    def choose(self, candidates: Sequence[Candidate]) -> Candidate | None:
        """The answer among candidates, None without any."""
        return self.group(candidates)[0] if candidates else None

    def deciding(self, one: Candidate, other: Candidate) -> str | None:
        """The evidence whose doubt moves the quotient of two values most; None where none moves it."""
        sure = [charged for each in (one, other) for charged in shares(each.problem, each.configuration)]
        moved = {}
        for number in dict.fromkeys(charge.number for charge, spread in sure if spread != EXACT):
            at = functools.partial(_ends_of, number)
            quotient = np.log(self._values(one, at) / self._values(other, at))
            moved[number] = float(np.ptp(quotient))
        most = max(moved, key=lambda number: moved[number], default=None)
        return most if most is not None and moved[most] > self.epsilon / 10 else None

    def _key(self, one: Candidate) -> tuple[Any, ...]:
        if one not in self._keys:
            *numbers, options = (tie_key if self.exact else frugal_key)(one.problem, one.configuration, one.outcome)
            self._keys[one] = (*numbers, self._modes.index(one.mode) if self._modes else 0, options)
        return self._keys[one]

    def _sure(self, one: Candidate) -> bool:
        return all(spread == EXACT for _, spread in shares(one.problem, one.configuration))

    def _factor(self, number: str, spread: Spread) -> Reals:
        key = number, spread
        if key not in self._factors:
            z = normals(number)
            self._factors[key] = np.exp(np.where(z > 0, z * np.log(spread.high), -z * np.log(spread.low)))
        return self._factors[key]

    def _values(self, one: Candidate, factor: Callable[[str, Spread], Reals]) -> Reals:
        """Values [d] where every time takes ``factor(number, spread)`` [d] times as long."""
        charged = list(shares(one.problem, one.configuration))
        index = {engine: row for row, engine in enumerate(dict.fromkeys(charge.engine for charge, _ in charged))}
        share = np.zeros((len(index) + 1, len(charged)))  # [engines and the loop, k]
        for k, (charge, _) in enumerate(charged):
            if self.objective != "training" or not charge.acting:
                share[index[charge.engine], k] = charge.seconds
            if charge.waits:
                share[-1, k] = charge.seconds
        seconds = share @ np.array([factor(charge.number, spread) for charge, spread in charged])
        value = steps_per_second(seconds[:-1].max(axis=0), seconds[-1], one.configuration.depth)
        return value / watts(one) if self.objective == "per_watt" else value


def watts(one: Candidate) -> float:
    """Watts of all devices in use. ProblemError where they are not known."""
    devices = used_devices(one.problem, one.configuration)
    if not all(device in one.problem.watts for device in devices):
        raise ProblemError(f"steps per joule need the watts of every device of {', '.join(devices)}")
    return math.fsum(one.problem.watts[device] for device in devices)


@functools.cache
def _grid() -> Reals:
    """``DRAWS`` equally likely values of a normal distribution, 95 % of them within 1."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((place + 0.5) / DRAWS) for place in range(DRAWS)]) / Z


@functools.cache
def normals(number: str) -> Reals:
    """What is drawn for a piece of evidence, [d]: the same in every answer, and independent of all other evidence."""
    return np.random.default_rng(zlib.crc32(number.encode())).permutation(_grid())


def _ends_of(number: str, name: str, spread: Spread) -> Reals:
    """Factors [3] of a time: its low end, itself and its high end if it rests on the evidence, else just itself."""
    return np.array([spread.low, 1.0, spread.high] if name == number else [1.0, 1.0, 1.0])


def undominated(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those of which no other is as fast with no more devices and cores, and better in one of these; fastest first."""
    kept: list[Candidate] = []
    # Invariant: kept has whatever is undominated among the candidates before, which are at least as fast.
    for one in sorted(candidates, key=lambda one: (-one.value, len(one.outcome.devices), one.cores)):
        cost = len(one.outcome.devices), one.cores
        if not any(len(other.outcome.devices) <= cost[0] and other.cores <= cost[1] for other in kept):
            kept.append(one)
    return kept
