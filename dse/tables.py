"""One machine's records as times for any (N, B): measured, interpolated between measured cells, or modeled.

Between measured cells a time is the cost model's, corrected by what the model was off by at the cells around, the less
the noisier they are; outside of them it is the model's alone, marked extrapolated. Each carries a standard deviation of
its logarithm.
"""

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from . import models, stats
from .records import Measurement, RecordError, twins

Basis = Literal["measured", "interpolated", "extrapolated"]
BASES: tuple[Basis, ...] = ("measured", "interpolated", "extrapolated")

TRANSFERS = {"upload": "there", "download": "back"}
LEAST_SIGMA = 0.01
UNKNOWN_SIGMA = 0.5  # of ln(time) where a model's error cannot be told


@dataclass(frozen=True, order=True)
class Configuration:
    """What is chosen: a contestant, its fanout, its threads, its options as sorted pairs."""

    contestant: str
    fanout: int
    threads: int
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [] if self.contestant in models.BASELINES else [f"K={self.fanout}"]
        parts += [f"{key}={value}" for key, value in self.options]
        parts += [f"{self.threads} threads" if self.threads > 1 else "1 thread"]
        return f"{self.contestant} ({', '.join(parts)})"


@dataclass(frozen=True)
class Question:
    """N leaves, batches of B, R updates a draw, at most so many threads."""

    capacity: int
    batch: int
    updates_per_sample: float = 1.0
    threads: int = 1
    dtype: str = "float32"
    distribution: str = "uniform"


@dataclass(frozen=True)
class Estimate:
    """Seconds per step of one configuration: 95 % interval, and what the figure rests on."""

    configuration: Configuration
    seconds: float
    low_seconds: float
    high_seconds: float
    basis: Basis
    sigma: float


class Table:
    """The timed draws and updates of one machine's sum trees, as times for any (N, B).

    ``modeled``: the configurations that only a model tells of.
    """

    def __init__(self, found: Iterable[Measurement]) -> None:
        found = list(found)
        trees = [record for record in found if record.primitive.startswith("sum_tree")]
        known = [record for record in trees if record.median_seconds]
        timed = [record for record in known if record.source == "measured"]
        if not timed:
            raise RecordError(
                "the records hold no measured time of a sum tree; measure with: python -m benchmarks sweep"
            )
        self.machine = timed[-1].machine
        self.machine_key = timed[-1].machine_key
        self.noise_floor = stats.noise_floor(twins(timed))
        self._cells: dict[tuple[Configuration, str, str, str], dict[tuple[int, int], Measurement]] = defaultdict(dict)
        for record in timed:
            if record.primitive == "sum_tree" and record.op in ("draw", "update"):
                where = (_configuration(record), record.op, record.dtype, record.distribution)
                self._cells[where][record.capacity, record.batch] = record
        self._moved = [record for record in timed if record.op in TRANSFERS and record.primitive == "sum_tree"]
        self.modeled = {
            _configuration(one) for one in known if one.source == "modeled" and one.op in ("draw", "update")
        }
        here = {record.contestant for record in known}
        self.untimed = {one.contestant: one.reason or one.status for one in trees if one.contestant not in here}

    @property
    def caches(self) -> dict[str, int]:
        """Bytes of each cache, as recorded."""
        return dict(self.machine.get("caches") or {})

    def distributions(self, dtype: str) -> set[str]:
        """Those measured for a leaf dtype."""
        return {distribution for _, _, held, distribution in self._cells if held == dtype}

    def configurations(self, question: Question) -> list[Configuration]:
        """Those with both a draw and an update of the dtype and distribution asked for."""
        here = [key for key in self._cells if key[2:] == (question.dtype, question.distribution)]
        draws, updates = ({key[0] for key in here if key[1] == op} for op in ("draw", "update"))
        return sorted(draws & updates, key=repr)

    def step(self, configuration: Configuration, question: Question) -> Estimate | None:
        """Time of one draw and R updates; None where nothing tells it."""
        draw, update = (self._call(configuration, op, question) for op in ("draw", "update"))
        if draw is None or update is None:
            return None
        rate = question.updates_per_sample
        seconds = draw.seconds + rate * update.seconds
        sigma = math.hypot(draw.seconds * draw.sigma, rate * update.seconds * update.sigma) / seconds
        basis = max([draw.basis, update.basis] if rate else [draw.basis], key=BASES.index)
        spread = math.exp(1.96 * sigma)
        return Estimate(configuration, seconds, seconds / spread, seconds * spread, basis, sigma)

    def call(self, configuration: Configuration, op: str, question: Question) -> Estimate | None:
        """Time of one "draw" or "update" of B; None where nothing tells it."""
        known = self._call(configuration, op, question)
        if known is None:
            return None
        spread = math.exp(1.96 * known.sigma)
        ends = known.seconds / spread, known.seconds * spread
        return Estimate(configuration, known.seconds, *ends, known.basis, known.sigma)

    def rests_on(self, configuration: Configuration, question: Question) -> list[dict[str, Any]]:
        """The measured cells around the question, of the chosen configuration."""
        result = []
        for op in ("draw", "update"):
            cells = self._cells[configuration, op, question.dtype, question.distribution]
            around = _around(cells, question.capacity, question.batch) or tuple(cells)
            result += [
                {
                    "op": op,
                    "capacity": record.capacity,
                    "batch": record.batch,
                    "median_seconds": record.median_seconds,
                    "source": record.source,
                    "commit": record.commit,
                    "utc": record.utc,
                }
                for record in (cells[cell] for cell in sorted(set(around)))
            ]
        return result

    def transfers(self, configuration: Configuration, batch: int) -> str | None:
        """Where the configuration's batches lie, if not in the host's memory, and what moving one takes, if known."""
        name = configuration.contestant
        cells = (record for where, held in self._cells.items() if where[0] == configuration for record in held.values())
        device = next((one.machine["device"] for one in cells if "device" in one.machine), None)
        if device is None:
            return None
        moved = []
        for op, direction in TRANSFERS.items():
            known = [one for one in self._moved if (one.contestant, one.op) == (name, op)]
            if known:
                near = min(known, key=lambda one: abs(math.log(one.batch / batch)))
                moved.append(f"{near.seconds * 1e6:.2f} us {direction} (B={near.batch:,}, {near.source})")
        return f"{name} takes and leaves its batches on {device}; moving one takes {' and '.join(moved) or 'more'}"

    def _call(self, configuration: Configuration, op: str, question: Question) -> "_Time | None":
        """Time of one call, None where nothing measured or fitted tells it."""
        key = (configuration.contestant, configuration.threads, configuration.options, op)
        where = (question.dtype, question.distribution)
        if (*key, *where) not in self._families:
            cells = {
                (found.fanout, *cell): record
                for (found, found_op, *rest), held in self._cells.items()
                if (found.contestant, found.threads, found.options, found_op) == key and tuple(rest) == where
                for cell, record in held.items()
            }
            self._families[*key, *where] = _Family(cells, self.caches, self.noise_floor)
        return self._families[*key, *where].time(configuration.fanout, question.capacity, question.batch)

    @cached_property
    def _families(self) -> "dict[tuple[Any, ...], _Family]":
        return {}


@dataclass(frozen=True)
class _Time:
    """Seconds per call, the standard deviation of its logarithm, what it rests on."""

    seconds: float
    sigma: float
    basis: Basis


class _Family:
    """All measured cells (K, N, B) of one contestant, op and options, and the cost model fitted to them."""

    def __init__(self, cells: dict[tuple[int, int, int], Measurement], caches: dict[str, int], floor: float) -> None:
        self._cells, self._floor = cells, floor
        family = family_of(next(iter(cells.values())), caches)
        points = [models.Point(n, k, b, record.seconds) for (k, n, b), record in cells.items()]
        self._model: models.CostModel | None = None
        if len(points) >= models.LEAST_POINTS:
            self._model = models.fit(family, points)
            held_out = models.cross_validate(family, points)
            self._model_sigma = _rms([one.log_error for one in held_out]) if held_out else UNKNOWN_SIGMA
            self._off = {
                (k, n, b): math.log(r.seconds / self._model.predict(n, k, b)) for (k, n, b), r in cells.items()
            }

    def time(self, fanout: int, capacity: int, batch: int) -> _Time | None:
        """The measured time, or the model's corrected by the cells around, or the model's; None without a model."""
        record = self._cells.get((fanout, capacity, batch))
        if record is not None:
            return _Time(record.seconds, self._sigma(record), "measured")
        if self._model is None:
            return None
        seconds = self._model.predict(capacity, fanout, batch)
        off = {(n, b): value for (k, n, b), value in self._off.items() if k == fanout}
        around = _around(off, capacity, batch)
        if not around:
            return _Time(seconds, self._model_sigma, "extrapolated")
        # Noisy cells are believed less: what they are off by shrinks as their error grows beside the model's own.
        own = max(self._sigma(self._cells[fanout, n, b]) for n, b in around)
        model_variance = max(self._model_sigma**2 - own**2, LEAST_SIGMA**2)
        belief = model_variance / (model_variance + own**2)
        seconds *= math.exp(belief * _blend(off, around, (capacity, batch)))
        return _Time(seconds, math.hypot(math.sqrt(belief) * own, self._interpolation_sigma(off)), "interpolated")

    def _interpolation_sigma(self, off: dict[tuple[int, int], float]) -> float:
        """How far cells lie from what their neighbors say, halved: a cell left out spans twice the distance."""
        misses = []
        for cell, value in off.items():
            rest = {other: o for other, o in off.items() if other != cell}
            if around := _around(rest, *cell):
                misses.append(value - _blend(rest, around, cell))
        return (_rms(misses) if misses else self._model_sigma) / 2

    def _sigma(self, record: Measurement) -> float:
        low, high = record.low_seconds or record.seconds, record.high_seconds or record.seconds
        return max(LEAST_SIGMA, stats.log_sigma(stats.Interval(record.seconds, low, high), self._floor))


def family_of(record: Measurement, caches: Mapping[str, int]) -> models.Family:
    """The family of cells that a record's model is fitted to."""
    shares = record.op != "draw" and record.options.get("propagate", "recompute") == "recompute"
    return models.Family(record.contestant, record.op, record.dtype, caches, shares and record.contestant != "python")


def _configuration(record: Measurement) -> Configuration:
    return Configuration(record.contestant, record.fanout, record.threads, tuple(sorted(record.options.items())))


def _around(cells: Iterable[tuple[int, int]], capacity: int, batch: int) -> list[tuple[int, int]]:
    """The one, two or four cells of the grid that enclose (N, B); none where one of them is missing."""
    held = set(cells)
    capacities = _sides({n for n, _ in held}, capacity)
    batches = _sides({b for _, b in held}, batch)
    corners = list(itertools.product(capacities, batches))
    return corners if corners and held.issuperset(corners) else []


def _sides(values: Iterable[int], value: int) -> list[int]:
    """The value itself if it is there, else its two neighbors, else nothing."""
    ordered = sorted(values)
    position = bisect.bisect_left(ordered, value)
    if position < len(ordered) and ordered[position] == value:
        return [value]
    return ordered[position - 1 : position + 1] if 0 < position < len(ordered) else []


def _blend(values: dict[tuple[int, int], float], corners: Sequence[tuple[int, int]], where: tuple[int, int]) -> float:
    """Bilinear interpolation in (ln N, ln B) between the corners."""
    result, total = 0.0, 0.0
    for corner in corners:
        weight = 1.0
        for axis in (0, 1):
            low, high = min(c[axis] for c in corners), max(c[axis] for c in corners)
            if low != high:
                part = math.log(where[axis] / low) / math.log(high / low)
                weight *= part if corner[axis] == high else 1 - part
        result += weight * values[corner]
        total += weight
    return result / total


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))
