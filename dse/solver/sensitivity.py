"""How sure an answer is: the interval of its rate, and how far each number may be off before another choice wins.

Every time is a sum of numbers' shares, so a configuration's rate at other values of the numbers is found without
solving again: c configurations, e engines, n numbers; seconds [c, e, n] of engines, loop [c, n] of a batch on its way.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..stats import Z, percentile_interval
from .objectives import Objective
from .problem import Configuration, Option, Problem
from .throughput import Reals, charges, fits, steps_per_second, used_devices

DRAWS = 1000
GRID = np.exp(np.linspace(0, math.log(30.0), 60)[1:])  # factors that are tried, up to 30 times
STEPS = 30  # of bisection
LINK_FACTORS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""How far off a link's time may be, by its source: 1.3 spans what one vendor's log and the data sheet differ by."""


@dataclass(frozen=True)
class Spread:
    """How far off a number may be, by its estimate's ends: factors down to ``low`` (at most 1) and up to ``high``."""

    low: float
    high: float


@dataclass(frozen=True)
class Robustness:
    """Factors by which a number may be wrong, down and up, before the choice is more than epsilon worse than another.

    None where no factor up to 30 does it. ``decides``: whether its interval reaches one of them. ``rate_factor``:
    by how much the predicted rate changes from one end of the interval to the other.
    """

    number: str
    down: float | None
    up: float | None
    winner: str
    decides: bool
    rate_factor: float


class Terms:
    """Configurations as sums over numbers. ``with_actors``: as ``Outcome.hz``, else as ``Outcome.training_hz``."""

    def __init__(
        self, rows: Sequence[tuple[Problem, Configuration]], objective: Objective, spreads: Mapping[str, Spread]
    ) -> None:
        self.numbers = sorted(spreads)
        self._spreads = [spreads[number] for number in self.numbers]
        place = {number: index for index, number in enumerate(self.numbers)}
        charged = [list(charges(problem, one)) for problem, one in rows]
        row = {engine: index for index, engine in enumerate(sorted({one.engine for each in charged for one in each}))}
        self._busy = np.zeros((len(rows), len(row), len(place)))
        self._loop = np.zeros((len(rows), len(place)))
        self._watts = np.ones(len(rows))
        for c, (problem, one) in enumerate(rows):
            for charge in charged[c]:
                n = place[charge.number]
                if objective != "training" or not charge.acting:
                    self._busy[c, row[charge.engine], n] += charge.seconds
                if charge.waits:
                    self._loop[c, n] += charge.seconds / (one.depth + 1)
            if objective == "per_watt":
                self._watts[c] = sum(problem.watts[device] for device in used_devices(problem, one))

    def values(self, factors: Reals) -> Reals:
        """[c] of numbers times ``factors`` [n]."""
        busiest = (self._busy @ factors).max(axis=1)
        return steps_per_second(busiest, self._loop @ factors) / self._watts

    def interval(self, chosen: int) -> tuple[float, float]:
        """95 % of one's values, every number drawn independently, log-normal by sides, its ends taken for 95 %.

        It is no surer than those ends: of numbers that are right within an assumed factor, it is one too.
        """
        z = np.random.default_rng(0).standard_normal((DRAWS, len(self.numbers))) / Z
        low, high = (np.log([getattr(one, side) for one in self._spreads]) for side in ("low", "high"))
        factors = np.exp(np.where(z > 0, z * high, -z * low))
        busiest = np.einsum("en,dn->de", self._busy[chosen], factors).max(axis=1)
        return percentile_interval(steps_per_second(busiest, factors @ self._loop[chosen]) / self._watts[chosen])

    def survival(self, chosen: int, epsilon: float, names: Sequence[str]) -> list[Robustness]:
        """The robustness against every number; those that may decide come first, then those that move the rate most."""
        used = np.flatnonzero(self._busy.any(axis=(0, 1)) | self._loop.any(axis=0))
        robust = [self._of(int(n), chosen, epsilon, names) for n in used]
        return sorted(robust, key=lambda one: (not one.decides, -one.rate_factor, _closest(one), one.number))

    def _of(self, n: int, chosen: int, epsilon: float, names: Sequence[str]) -> Robustness:
        down, loser = self._flip(n, chosen, epsilon, 1 / GRID, names)
        up, other = self._flip(n, chosen, epsilon, GRID, names)
        spread, ends = self._spreads[n], []
        for factor in (spread.low, spread.high):
            ends.append(float(self.values(self._factors(n, factor))[chosen]))
        decides = (down is not None and down >= spread.low) or (up is not None and up <= spread.high)
        near_down = down is not None and (up is None or 1 / down < up)
        winner = loser if near_down else other
        name = names[winner] if winner is not None else ""
        return Robustness(self.numbers[n], down, up, name, decides, max(ends) / min(ends))

    def _factors(self, n: int, factor: float) -> Reals:
        factors = np.ones(len(self.numbers))
        factors[n] = factor
        return factors

    def _flip(
        self, n: int, chosen: int, epsilon: float, grid: Reals, names: Sequence[str]
    ) -> tuple[float | None, int | None]:
        """(the first factor at which the choice loses, to whom), on a grid and then by bisection.

        Of several that then are as good as the best, whoever takes the fewest words to tell from the choice.
        """

        def lost(factor: float) -> bool:
            values = self.values(self._factors(n, factor))
            return bool(values[chosen] < (1 - epsilon) * values.max())

        rest_busy = self._busy.sum(axis=2) - self._busy[:, :, n]
        rest_loop = self._loop.sum(axis=1) - self._loop[:, n]
        busiest = (rest_busy[:, :, None] + self._busy[:, :, n, None] * grid).max(axis=1)
        values = steps_per_second(busiest, rest_loop[:, None] + self._loop[:, n, None] * grid) / self._watts[:, None]
        losing = np.flatnonzero(values[chosen] < (1 - epsilon) * values.max(axis=0))
        if not losing.size:
            return None, None
        first = int(losing[0])
        inside, outside = (float(grid[first - 1]) if first else 1.0), float(grid[first])
        for _ in range(STEPS):
            middle = math.sqrt(inside * outside)
            inside, outside = (inside, middle) if lost(middle) else (middle, outside)
        after = self.values(self._factors(n, outside))
        good = np.flatnonzero(after >= (1 - epsilon) * after.max()).tolist()
        return outside, min(good, key=lambda one: (len(names[one]), -after[one]))


def spreads(problems: Sequence[Problem], chosen: Configuration | None = None) -> dict[str, Spread]:
    """The spread of every number that some option or link rests on: the widest of its times' intervals.

    For a number that ``chosen`` rests on, only its own options count: what was not chosen makes it no less sure.
    """
    known = widest(option for problem in problems for option in problem.every_option())
    for hop in (hop for problem in problems for way in problem.ways.values() for hop in way):
        factor = LINK_FACTORS[hop.rests_on.source]
        known[hop.rests_on.number] = Spread(1 / factor, factor)
    return known | (widest(chosen.options) if chosen else {})


def widest(options: Iterable[Option]) -> dict[str, Spread]:
    """The widest ends of every number that some of the options rest on."""
    known: dict[str, Spread] = {}
    for option in options:
        time = option.time
        before = known.get(time.rests_on.number, Spread(1.0, 1.0))
        low, high = time.low / time.value, time.high / time.value
        known[time.rests_on.number] = Spread(min(before.low, low), max(before.high, high))
    return known


def around(problem: Problem, chosen: Configuration) -> list[Configuration]:
    """Configurations that fit and differ from the chosen one in one part, or in the tree."""
    others = (chosen.having(*choice) for choices in problem.axes for choice in choices)
    return [one for one in others if one != chosen and fits(problem, one)]


def _closest(one: Robustness) -> float:
    return min(abs(math.log(factor)) if factor else math.inf for factor in (one.down, one.up))
