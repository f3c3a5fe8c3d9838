"""How sure an answer is: the interval of its rate, and how far each number may be off before another choice wins.

Every time is a sum of numbers' shares, so a configuration's rate at other values of the numbers is found without
solving again: c configurations, e engines, n numbers; seconds [c, e, n] of engines, loop [c, n] of a batch on its way.
A number may be shared by options of several parts, and by links: all of them change together.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..stats import Z, percentile_interval
from .objectives import Objective
from .problem import Configuration, Hop, Option, Problem
from .throughput import Reals, charges, fits, steps_per_second, used_devices

DRAWS = 1000
GRID = np.exp(np.linspace(0, math.log(30.0), 60)[1:])  # factors that are tried, up to 30 times
POWERS = (1.0, 0.5, 0.1)  # of a factor that is stated, to be verified
STEPS = 30  # of bisection
ALL = slice(None)
Integers = NDArray[np.int64]
ROUNDING = 1e-9  # by which two values may differ that are the same
TOLD = 1.05  # a factor nearer to 1 is no news
LINK_FACTORS = {"measured": 1.1, "quoted": 1.3, "modeled": 2.0, "extrapolated": 2.0}
"""How far off a link's time may be, by its source: 1.3 spans what one vendor's log and the data sheet differ by."""


@dataclass(frozen=True)
class Spread:
    """How far off a number may be, by its estimate's ends: factors down to ``low`` (at most 1) and up to ``high``."""

    low: float
    high: float


EXACT = Spread(1.0, 1.0)


@dataclass(frozen=True)
class Robustness:
    """Factors by which a number may be wrong, down and up, before the choice is more than epsilon worse than another.

    None where no factor up to 30 does it. ``winner``: who then is better, at the nearer of the two factors, and by side
    ``winner_down``, ``winner_up``. ``decides``: whether its interval reaches one of them. ``rate_factor``: by how much
    the predicted rate changes from one end of the interval to the other.
    """

    number: str
    down: float | None
    up: float | None
    winner: str
    decides: bool
    rate_factor: float
    winner_down: str = ""
    winner_up: str = ""
    decides_down: bool = False
    decides_up: bool = False

    @property
    def statements(self) -> tuple[str, ...]:
        """A sentence for each side that is not all but reached: whose rate is better beyond which factor."""
        said = []
        if self.up and self.up >= TOLD:
            allowed = " (its interval allows it)" if self.decides_up else ""
            said.append(f"{self.winner_up} is faster if {self.number} takes more than {_up(self.up)} times as long")
            said[-1] += allowed
        if self.down and self.down <= 1 / TOLD:
            allowed = " (its interval allows it)" if self.decides_down else ""
            said.append(
                f"{self.winner_down} is faster if {self.number} takes less than {_down(self.down)} times as long"
            )
            said[-1] += allowed
        return tuple(said)


Row = tuple[Problem, Configuration]
Rivals = Callable[[str, float, float], Iterable[tuple[Row, str]]]
"""Takes evidence, a factor on all that rests on it, and a value: (row, name) of whatever then is above the value."""


class Terms:
    """Configurations as sums over numbers; ``spreads``: how far off each number may be."""

    def __init__(self, rows: Sequence[Row], objective: Objective, spreads: Mapping[str, Spread]) -> None:
        self.numbers = sorted(spreads)
        self._spreads = [spreads[number] for number in self.numbers]
        self._place = {number: index for index, number in enumerate(self.numbers)}
        self._objective, self._rows = objective, dict[str, int]()
        self._busy, self._loop, self._watts = (
            np.zeros(shape) for shape in ((0, 0, len(self.numbers)), (0, len(self.numbers)), 0)
        )
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Appends rows for more configurations."""
        charged = [list(charges(problem, one)) for problem, one in rows]
        for charge in (charge for each in charged for charge in each):
            self._rows.setdefault(charge.engine, len(self._rows))
        before, engines, numbers = self._busy.shape
        busy = np.zeros((before + len(rows), len(self._rows), numbers))
        busy[:before, :engines] = self._busy
        loop = np.vstack([self._loop, np.zeros((len(rows), numbers))])
        for c, ((_, one), each) in enumerate(zip(rows, charged, strict=True), before):
            for charge in each:
                n = self._place[charge.number]
                if self._objective != "training" or not charge.acting:
                    busy[c, self._rows[charge.engine], n] += charge.seconds
                if charge.waits:
                    loop[c, n] += charge.seconds / (one.depth + 1)
        self._busy, self._loop = busy, loop
        if self._objective == "per_watt":
            watts = [math.fsum(problem.watts[device] for device in used_devices(problem, one)) for problem, one in rows]
        else:
            watts = [1.0] * len(rows)
        self._watts = np.concatenate([self._watts, watts])

    def values(self, factors: Reals, few: Integers | slice = ALL) -> Reals:
        """[c] of numbers times ``factors`` [n]; of a ``few`` rows only."""
        busiest = (self._busy[few] @ factors).max(axis=1)
        return steps_per_second(busiest, self._loop[few] @ factors) / self._watts[few]

    def interval(self, chosen: int) -> tuple[float, float]:
        """95 % of one's values, every number drawn independently, log-normal by sides, its ends taken for 95 %.

        It is no surer than those ends: of numbers that are right within an assumed factor, it is one too.
        """
        z = np.random.default_rng(0).standard_normal((DRAWS, len(self.numbers))) / Z
        low, high = (np.log([getattr(one, side) for one in self._spreads]) for side in ("low", "high"))
        factors = np.exp(np.where(z > 0, z * high, -z * low))
        busiest = np.einsum("en,dn->de", self._busy[chosen], factors).max(axis=1)
        return percentile_interval(steps_per_second(busiest, factors @ self._loop[chosen]) / self._watts[chosen])

    def survival(
        self, chosen: int, epsilon: float, names: Sequence[str], rivals: Rivals = lambda *_: ()
    ) -> list[Robustness]:
        """The robustness of a row against every number; what may decide comes first, then what moves the rate most.

        ``names``: of the rows, in words. Each factor, or 30 where there is none, and some between it and 1 are asked of
        ``rivals``; what they find is a row too, until they find nothing.
        """
        self._chosen, self._keep, self._names = chosen, (1 - epsilon) * (1 - ROUNDING), list(names)
        used = np.flatnonzero(self._busy.any(axis=(0, 1)) | self._loop.any(axis=0))
        robust = [self._of(int(n), rivals) for n in used]
        return sorted(robust, key=lambda one: (not one.decides, -one.rate_factor, _closest(one), one.number))

    def _of(self, n: int, rivals: Rivals) -> Robustness:
        number, spread, chosen = self.numbers[n], self._spreads[n], self._chosen
        down, loser = self._verified(n, 1 / GRID, rivals)
        rests = self._busy[chosen, :, n].any() or self._loop[chosen, n]  # else more of it slows only others down
        up, other = self._verified(n, GRID, rivals) if rests else (None, "")
        ends = [float(self.values(self._factors(n, factor))[chosen]) for factor in (spread.low, spread.high)]
        sides = (down is not None and bool(down >= spread.low), up is not None and bool(up <= spread.high))
        winner = loser if down is not None and (up is None or 1 / down < up) else other
        return Robustness(number, down, up, winner, any(sides), max(ends) / min(ends), loser, other, *sides)

    def _verified(self, n: int, grid: Reals, rivals: Rivals) -> tuple[float | None, str]:
        """(the first factor at which the choice loses, to whom), of these rows and whatever rivals are found."""
        while True:
            # Invariant: of the rows so far, this is the first factor at which the choice loses.
            factor, winner = self._flip(n, grid)
            at = float(grid[-1]) if factor is None else factor
            more: list[tuple[Row, str]] = []
            for power in POWERS:
                values = self.values(self._factors(n, at**power))
                least = max(values.max(), values[self._chosen] / self._keep) * (1 + ROUNDING)
                more = more or list(rivals(self.numbers[n], at**power, float(least)))
            if not more:
                return factor, self._names[winner] if winner is not None else ""
            self.add([row for row, _ in more])
            self._names += [name for _, name in more]

    def _factors(self, n: int, factor: float) -> Reals:
        factors = np.ones(len(self.numbers))
        factors[n] = factor
        return factors

    def _flip(self, n: int, grid: Reals) -> tuple[float | None, int | None]:
        """(the first factor at which the choice loses, to whom), on a grid and then by bisection.

        Of several that then are as good as the best, whoever takes the fewest words to tell from the choice.
        """

        keep, chosen, names = self._keep, self._chosen, self._names
        rest_busy = self._busy.sum(axis=2) - self._busy[:, :, n]
        rest_loop = self._loop.sum(axis=1) - self._loop[:, n]
        busiest = (rest_busy[:, :, None] + self._busy[:, :, n, None] * grid).max(axis=1)
        values = steps_per_second(busiest, rest_loop[:, None] + self._loop[:, n, None] * grid)
        values /= self._watts[:, None]
        losing = np.flatnonzero(values[chosen] < keep * values.max(axis=0))
        if not losing.size:
            return None, None
        first = int(losing[0])
        rivals = np.flatnonzero(values[:, first] * keep > values[chosen, first])
        few = np.concatenate([[chosen], rivals])
        inside, outside = (float(grid[first - 1]) if first else 1.0), float(grid[first])
        for _ in range(STEPS):
            # Invariant: the choice loses to one of the rivals at outside, and to none of them at inside.
            middle = math.sqrt(inside * outside)
            after = self.values(self._factors(n, middle), few)
            lost = after[0] < keep * after.max()
            inside, outside = (inside, middle) if lost else (middle, outside)
        after = self.values(self._factors(n, outside), few)
        good = np.flatnonzero(after * keep > after[0]).tolist()
        return outside, min(few[good].tolist(), key=lambda one: (len(names[one]), -after[few.tolist().index(one)]))


def spreads(problems: Iterable[Problem], chosen: Configuration | None = None) -> dict[str, Spread]:
    """The spread of every number that some option or link rests on: the widest of its times' intervals.

    For a number that ``chosen`` rests on, only its own options count: what was not chosen makes it no less sure.
    """
    problems = list(problems)
    known = widest(option for problem in problems for option in problem.every_option())
    for hop in (hop for problem in problems for way in problem.ways.values() for hop in way):
        spread, before = spread_of_hop(hop), known.get(hop.rests_on.number, EXACT)
        known[hop.rests_on.number] = Spread(min(before.low, spread.low), max(before.high, spread.high))
    return known | (widest(chosen.options) if chosen else {})


def spread_of_hop(hop: Hop) -> Spread:
    """How far off a link's time may be, by its source."""
    factor = LINK_FACTORS[hop.rests_on.source]
    return Spread(1 / factor, factor)


def spread_of_option(option: Option) -> Spread:
    """How far off an option's time may be, by its own ends."""
    time = option.time
    return Spread(time.low / time.value, time.high / time.value)


def widest(options: Iterable[Option]) -> dict[str, Spread]:
    """The widest ends of every number that some of the options rest on."""
    known: dict[str, Spread] = {}
    for option in options:
        number, own = option.time.rests_on.number, spread_of_option(option)
        before = known.get(number, EXACT)
        known[number] = Spread(min(before.low, own.low), max(before.high, own.high))
    return known


def around(problem: Problem, chosen: Configuration) -> list[Configuration]:
    """Configurations that fit and differ from the chosen one in one part, or in the tree."""
    others = (chosen.having(*choice) for choices in problem.axes for choice in choices)
    return [one for one in others if one != chosen and fits(problem, one)]


def _closest(one: Robustness) -> float:
    return min(abs(math.log(factor)) if factor else math.inf for factor in (one.down, one.up))


def _up(factor: float) -> str:
    """A factor with two digits, rounded up, so that what is said of more than it is true."""
    return f"{math.ceil(factor * 10) / 10:.1f}" if factor < 10 else f"{math.ceil(factor)}"


def _down(factor: float) -> str:
    """The same for what is said of less than it."""
    return f"{math.floor(factor * 100) / 100:.2f}" if factor >= 0.1 else f"{math.floor(factor * 1000) / 1000:.3f}"
