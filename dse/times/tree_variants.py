"""One variant of a sum tree: its measured cells as times for any fanout K, capacity N and batch B.

An implementation as it comes, on one thread, has a cost model fitted to its cells, if these have two values of N and of
B. Its variants (other options, threads, leaves, priorities) are compared with it instead: what one takes where nobody
measured it is what the default takes there, times the ratio of the two at the cells around. So a variant that was
measured at a single B borrows the default's cost of a call. What a model or a ratio is off by at the cells is carried
over by kriging (stats.Field), the less the noisier they are and the farther away. Each time has a standard deviation of
its logarithm, which grows with the distance from the cells.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

import impls

from .. import stats
from ..drift import Drift
from ..estimate import Estimate, Evidence
from ..records import Record, Source
from . import tree_cost_model

LEAST_CELLS = 6  # of an operation, below which no cost model is fitted: a cell answers for itself alone
LEAST_SIGMA = 0.01
LEAST_MODEL_SIGMA = 0.05  # no model of eight costs and more is better than that, however few cells it misses
UNKNOWN_SIGMA = 0.5  # of ln(time) where a model's error cannot be known, or a variant's rests on the default alone
BEYOND_SIGMA = 0.25  # of ln(time), for each factor of e that N or B lies outside of the implementation's cells
FAR_SIGMA = 0.08  # the same, of what a K or a variant takes over its implementation, outside of its own cells
MOST_SPREAD = 1e6  # factor to either end of an interval
SCALES = (1.5 * math.log(10), math.log(4), 1.5 * math.log(8))  # of ln N, ln K, ln B: how far cells resemble others
_Mean = Callable[[int, int, int], tuple[float, float]]


@dataclass(frozen=True, order=True)
class Configuration:
    """What is chosen: an implementation, its fanout, its threads, its options as sorted pairs."""

    contestant: str
    fanout: int
    threads: int
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def settings(self) -> str:
        """K, options and threads in words."""
        parts = [f"K={self.fanout}"] if impls.traits(self.contestant).uses_fanout else []
        parts += [f"{key}={value}" for key, value in self.options]
        parts += [f"{self.threads} threads" if self.threads > 1 else "1 thread"]
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.contestant} ({self.settings})"


@dataclass(frozen=True)
class TreeTime:
    """Seconds of a call, or of a step, of one configuration, and how sure they are beside those of others.

    ``distance`` is how far outside of that configuration's cells the question lies: the sum of |ln| of the factors in N
    and B, 0 inside; ``beyond`` the same for all cells of the implementation as it comes. ``own_sigma`` is the standard
    deviation of the time's logarithm without what ``beyond`` adds, which the implementation's times share. The interval
    of ``time`` is one that holds in another run: it has the machine's drift in it, ``own_sigma`` has not.
    """

    configuration: Configuration
    time: Estimate
    own_sigma: float
    distance: float = 0.0
    beyond: float = 0.0

    @classmethod
    def log_normal(
        cls,
        configuration: Configuration,
        seconds: float,
        own_sigma: float,
        source: Source,
        drift: Drift,
        distance: float = 0.0,
        beyond: float = 0.0,
    ) -> "TreeTime":
        """The time whose logarithm has that standard deviation, with the 95 % interval that follows."""
        sigma = math.hypot(own_sigma, BEYOND_SIGMA * beyond)
        spread = math.exp(min(drift.half_width(sigma), math.log(MOST_SPREAD)))
        estimate = Estimate(seconds, seconds / spread, seconds * spread, _evidence(configuration, source))
        return cls(configuration, estimate, own_sigma, distance, beyond)

    @property
    def seconds(self) -> float:
        """The expected time of a call or a step."""
        return self.time.value

    @property
    def low_seconds(self) -> float:
        """The lower end of its 95 % interval."""
        return self.time.low

    @property
    def high_seconds(self) -> float:
        """The upper end of its 95 % interval."""
        return self.time.high

    @property
    def basis(self) -> Source:
        """Where the time comes from."""
        return self.time.source

    @property
    def sigma(self) -> float:
        """The standard deviation of the time's logarithm in the records' run."""
        return math.hypot(self.own_sigma, BEYOND_SIGMA * self.beyond)


def _evidence(configuration: Configuration, source: Source) -> Evidence:
    return Evidence(f"tree({configuration.contestant} K={configuration.fanout})", source)


class Variant:
    """Times of one operation of a variant: of its measured cells (K, N, B), and between and beyond them.

    Between and beyond they follow ``base``, the default, if that is fitted, else a cost model of the variant's own
    cells, which are of ``family``. Without cells ``family`` is None.
    """

    def __init__(
        self,
        chosen: tuple[str, int, tuple[tuple[str, Any], ...]],
        cells: Mapping[tuple[int, int, int], Record],
        family: tree_cost_model.Family | None,
        noise_floor: float,
        drift: Drift,
        base: "Variant | None",
    ) -> None:
        """``chosen``: implementation, threads and options; ``drift``: of the machine."""
        self._chosen, self._cells, self._noise_floor, self._drift, self._base = chosen, cells, noise_floor, drift, base
        self._mean: _Mean | None = None  # (seconds, sigma) of (N, K, B), before what the cells around are off by
        self.time = functools.cache(self._time)  # its variants, and other questions, ask for the same
        if family is None:
            return
        points = [tree_cost_model.Point(n, k, b, record.seconds) for (k, n, b), record in cells.items()]
        if base and base._mean:
            self._mean, offset = base.mean, UNKNOWN_SIGMA
        elif _span(cells):
            model = tree_cost_model.fit(family, points)
            self._mean, offset = lambda n, k, b: (model.predict(n, k, b), 0.0), 0.0
        else:
            return
        off = [math.log(point.seconds / self._mean(point.capacity, point.fanout, point.batch)[0]) for point in points]
        if offset:
            sigma = float(np.std(off))
        else:
            squares = [cell.log_error**2 for cell in tree_cost_model.cross_validate(family, points)]
            sigma = math.sqrt(fmean(squares)) if squares else UNKNOWN_SIGMA
        errors = [self._measured_sigma(record) for record in cells.values()]
        places = np.array([_place(*cell) for cell in cells])
        self._off = stats.Field(places, np.array(off), np.array(errors), max(LEAST_MODEL_SIGMA, sigma), offset)

    def mean(self, capacity: int, fanout: int, batch: int) -> tuple[float, float]:
        """(seconds, standard deviation of their logarithm) of a call. ValueError where ``time`` is None."""
        time = self.time(fanout, capacity, batch)
        if time is None:
            raise ValueError(f"nothing tells the time of K={fanout}, N={capacity}, B={batch}")
        return time.seconds, time.own_sigma

    def _time(self, fanout: int, capacity: int, batch: int) -> TreeTime | None:
        """The measured time, or one from the cells around and the default or a model; None without these."""
        contestant, threads, options = self._chosen
        configuration = Configuration(contestant, fanout, threads, options)
        record = self._cells.get((fanout, capacity, batch))
        if record is not None:
            sigma = self._measured_sigma(record)
            return TreeTime.log_normal(configuration, record.seconds, sigma, "measured", self._drift)
        if self._mean is None:
            return None
        seconds, doubt = self._mean(capacity, fanout, batch)
        off, sigma = self._off.at(_place(fanout, capacity, batch))
        far = _distance([cell for cell in self._cells if cell[0] == fanout] or self._cells, capacity, batch)
        beyond = self.beyond(capacity, batch)
        own_sigma = max(LEAST_SIGMA, math.hypot(sigma, doubt, FAR_SIGMA * max(0.0, far - beyond)))
        source: Source = "extrapolated" if far else "interpolated"
        return TreeTime.log_normal(configuration, seconds * math.exp(off), own_sigma, source, self._drift, far, beyond)

    def beyond(self, capacity: int, batch: int) -> float:
        """How far N and B lie outside of the implementation's cells: the default's, where this variant follows it."""
        if self._base and self._base.is_fitted:
            return self._base.beyond(capacity, batch)
        return _distance(self._cells, capacity, batch)

    @property
    def is_fitted(self) -> bool:
        """Whether times between and beyond the cells are known."""
        return self._mean is not None

    def _measured_sigma(self, record: Record) -> float:
        low, high = record.low_seconds or record.seconds, record.high_seconds or record.seconds
        return max(LEAST_SIGMA, stats.log_sigma(low, high, self._noise_floor))


def _span(cells: Iterable[tuple[int, int, int]]) -> bool:
    """Whether there are enough cells for a cost model: two values of N and of B, for it is asked along both."""
    known = list(cells)
    return len(known) >= LEAST_CELLS and all(len({cell[axis] for cell in known}) > 1 for axis in (1, 2))


def _place(fanout: int, capacity: int, batch: int) -> list[float]:
    """Coordinates ``[3]`` of a cell in the field."""
    logs = (math.log(capacity), math.log(fanout), math.log(batch))
    return [value / scale for value, scale in zip(logs, SCALES, strict=True)]


def _distance(cells: Iterable[tuple[int, int, int]], capacity: int, batch: int) -> float:
    """How far N and B lie outside of cells (K, N, B): the sum of |ln| of the factors."""
    _, *axes = zip(*cells, strict=True)
    ends = [(asked / max(axis), min(axis) / asked) for axis, asked in zip(axes, (capacity, batch), strict=True)]
    return sum(max(0.0, *map(math.log, end)) for end in ends)
