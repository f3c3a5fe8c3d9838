"""One machine's records as times for any (N, B): measured, interpolated between measured cells, or extrapolated.

An implementation as it comes, on one thread, has a cost model fitted to its cells, if these have two values of N and of
B. Its variants (other options, threads, leaves, priorities) are compared with it instead: what one takes where nobody
measured it is what the default takes there, times the ratio of the two at the cells around. So a variant that was
measured at a single B borrows the default's cost of a call. What a model or a ratio is off by at the cells is carried
over by kriging (stats.Field), the less the noisier they are and the farther away. Each time has a standard deviation of
its logarithm, which grows with the distance from the cells.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

import impls
from impls.levels import CACHE_LINE

from .. import stats
from ..records import Measurement, RecordError, how_to_measure, twins
from . import tree_cost_model

Basis = Literal["measured", "interpolated", "extrapolated"]
BASES: tuple[Basis, ...] = ("measured", "interpolated", "extrapolated")

TRANSFERS = {"upload": "there", "download": "back"}
FLOOR_READS = {"line": "gather", "wait": "chase"}  # contestants of the memory floor that tell each cost
LEAST_CELLS = 6  # of an operation, below which no cost model is fitted: a cell answers for itself alone
LEAST_SIGMA = 0.01
LEAST_MODEL_SIGMA = 0.05  # no model of eight costs and more is better than that, however few cells it misses
UNKNOWN_SIGMA = 0.5  # of ln(time) where a model's error cannot be told, or nothing but the default tells a variant's
DRIFT_SIGMA = 0.25  # of ln(time), for each factor of e that N or B lies outside of the cells
SCALES = (1.5 * math.log(10), math.log(4), 1.5 * math.log(8))  # of ln N, ln K, ln B: how far a cell tells of others
NEAREST = 4  # cells named as evidence where none is the question's own


@dataclass(frozen=True, order=True)
class Configuration:
    """What is chosen: a contestant, its fanout, its threads, its options as sorted pairs."""

    contestant: str
    fanout: int
    threads: int
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        parts = [f"K={self.fanout}"] if impls.traits(self.contestant).uses_fanout else []
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
    """Seconds per step of one configuration: 95 % interval, and what the figure rests on.

    ``distance`` is how far outside of that configuration's cells the question lies: the sum of |ln| of the factors in N
    and B, 0 inside. ``own_sigma`` is the standard deviation of its logarithm but for what the distance adds, ``sigma``
    with that.
    """

    configuration: Configuration
    seconds: float
    low_seconds: float
    high_seconds: float
    basis: Basis
    sigma: float
    own_sigma: float
    distance: float = 0.0


class Table:
    """The timed draws and updates of one machine's sum trees, as times for any (N, B).

    ``modeled``: the configurations that only a model tells of. ``memory_bytes``: of the machine, None if unknown.
    """

    def __init__(self, found: Iterable[Measurement]) -> None:
        found = list(found)
        trees = [record for record in found if record.primitive.startswith("sum_tree")]
        self._reads = {
            (one.contestant, one.capacity * CACHE_LINE): one.seconds / one.batch
            for one in found
            if one.primitive == "memory" and one.median_seconds
        }
        known = [record for record in trees if record.median_seconds]
        timed = [record for record in known if record.source == "measured"]
        if not timed:
            raise RecordError(f"the records hold no measured time of a sum tree; {how_to_measure('sweep')}")
        self.machine = timed[-1].machine
        self.machine_key = timed[-1].machine_key
        self.memory_bytes: float | None = self.machine.get("memory_bytes")
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
        used = [draw, update] if rate else [draw]
        basis = max((one.basis for one in used), key=BASES.index)
        return _estimate(configuration, seconds, sigma, basis, max(one.distance for one in used))

    def call(self, configuration: Configuration, op: str, question: Question) -> Estimate | None:
        """Time of one "draw" or "update" of B; None where nothing tells it."""
        known = self._call(configuration, op, question)
        if known is None:
            return None
        return _estimate(configuration, known.seconds, known.sigma, known.basis, known.distance)

    def rests_on(self, configuration: Configuration, question: Question) -> list[dict[str, Any]]:
        """The question's own measured cells, or those nearest to it, of the chosen configuration."""
        result = []
        for op in ("draw", "update"):
            cells = self._cells[configuration, op, question.dtype, question.distribution]
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
                for record in (cells[cell] for cell in sorted(_nearest(cells, question.capacity, question.batch)))
            ]
        return result

    def most_threads(self) -> int:
        """The most threads that any cell was measured with."""
        return max((found.threads for found, *_ in self._cells), default=1)

    def most_cells(self, dtype: str) -> int:
        """Cells of the operation that was measured most often, at any K, of leaves of a dtype."""
        counts: Counter[tuple[Any, ...]] = Counter()
        for (found, op, leaves, distribution), held in self._cells.items():
            if leaves == dtype:
                counts[found.contestant, found.threads, found.options, op, distribution] += len(held)
        return max(counts.values(), default=0)

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
        variant = (configuration.contestant, configuration.threads, configuration.options)
        family = self._family((*variant, op, question.dtype, question.distribution))
        return family.time(configuration.fanout, question.capacity, question.batch)

    def _family(self, key: "_Key") -> "_Family":
        """The cells of a variant, and the family of the default that it is compared with."""
        if key not in self._families:
            cells = {
                (found.fanout, *cell): record
                for (found, *rest), held in self._cells.items()
                if (found.contestant, found.threads, found.options, *rest) == key
                for cell, record in held.items()
            }
            default: _Key = (key[0], 1, (), key[3], "float32", "uniform")
            base = None if key == default else self._family(default)
            about = family_of(next(iter(cells.values())), self.caches, self.floor) if cells else None
            self._families[key] = _Family(cells, about, self.noise_floor, base)
        return self._families[key]

    @cached_property
    def _families(self) -> "dict[_Key, _Family]":
        return {}

    @cached_property
    def floor(self) -> dict[str, float]:
        """Seconds that a random read costs more out of memory than out of the last cache: where reads overlap ("line")
        and where each waits for the one before ("wait"). Empty where the memory floor was not measured that far."""
        last = self.caches.get("L3", tree_cost_model.DEFAULT_CACHES["L3"])
        result = {}
        for what, kind in FLOOR_READS.items():
            reads = {size: seconds for (name, size), seconds in self._reads.items() if name == kind}
            if not reads or max(reads) <= last or min(reads) > last / 2:
                continue
            inside = max(size for size in reads if size <= last / 2)
            if (more := reads[max(reads)] - reads[inside]) > 0:
                result[what] = more
        return result


_Key = tuple[str, int, tuple[tuple[str, Any], ...], str, str, str]
"""contestant, threads, options, op, dtype, distribution"""
_Mean = Callable[[int, int, int], tuple[float, float]]


@dataclass(frozen=True)
class _Time:
    """Seconds per call, the standard deviation of its logarithm but for what the distance adds, what it rests on, and
    how far outside of the cells it is."""

    seconds: float
    sigma: float
    basis: Basis
    distance: float = 0.0


class _Family:
    """All measured cells (K, N, B) of a variant's op, and what tells of the places between and beyond them.

    That is ``base``, the default's family, if there is one that can tell, else a cost model of its own. ``about`` is
    None where there are no cells.
    """

    def __init__(
        self,
        cells: dict[tuple[int, int, int], Measurement],
        about: tree_cost_model.Family | None,
        noise_floor: float,
        base: "_Family | None",
    ) -> None:
        self._cells, self._noise_floor = cells, noise_floor
        self._mean: _Mean | None = None  # (seconds, sigma) of (N, K, B), before what the cells around are off by
        if about is None:
            return
        points = [tree_cost_model.Point(n, k, b, record.seconds) for (k, n, b), record in cells.items()]
        if base and base.tells:
            self._mean, offset = base.mean, UNKNOWN_SIGMA
        elif _span(cells):
            model = tree_cost_model.fit(about, points)
            self._mean, offset = lambda n, k, b: (model.predict(n, k, b), 0.0), 0.0
        else:
            return
        off = [math.log(one.seconds / self._mean(one.capacity, one.fanout, one.batch)[0]) for one in points]
        if offset:
            sigma = float(np.std(off))
        else:
            held_out = [one.log_error for one in tree_cost_model.cross_validate(about, points)]
            sigma = _rms(held_out) if held_out else UNKNOWN_SIGMA
        errors = [self._sigma(record) for record in cells.values()]
        places = np.array([_place(*cell) for cell in cells])
        self._off = stats.Field(places, np.array(off), np.array(errors), max(LEAST_MODEL_SIGMA, sigma), offset)

    @property
    def tells(self) -> bool:
        """Whether it tells of places that are no cells of its own."""
        return self._mean is not None

    def mean(self, capacity: int, fanout: int, batch: int) -> tuple[float, float]:
        """(seconds, standard deviation of their logarithm) of a call anywhere. ValueError where nothing tells them."""
        known = self.time(fanout, capacity, batch)
        if known is None:
            raise ValueError(f"nothing tells the time of K={fanout}, N={capacity}, B={batch}")
        return known.seconds, known.sigma

    def time(self, fanout: int, capacity: int, batch: int) -> _Time | None:
        """The measured time, or what the cells around and a model or the default tell; None where nothing does."""
        record = self._cells.get((fanout, capacity, batch))
        if record is not None:
            return _Time(record.seconds, self._sigma(record), "measured")
        if self._mean is None:
            return None
        seconds, doubt = self._mean(capacity, fanout, batch)
        off, sigma = self._off.at(_place(fanout, capacity, batch))
        held = [(n, b) for k, n, b in self._cells if k == fanout] or [(n, b) for _, n, b in self._cells]
        distance = sum(
            _outside(values, asked) for values, asked in zip(zip(*held, strict=True), (capacity, batch), strict=True)
        )
        basis: Basis = "extrapolated" if distance else "interpolated"
        return _Time(seconds * math.exp(off), max(LEAST_SIGMA, math.hypot(sigma, doubt)), basis, distance)

    def _sigma(self, record: Measurement) -> float:
        low, high = record.low_seconds or record.seconds, record.high_seconds or record.seconds
        return max(LEAST_SIGMA, stats.log_sigma(stats.Interval(record.seconds, low, high), self._noise_floor))


def _estimate(configuration: Configuration, seconds: float, own: float, basis: Basis, distance: float) -> Estimate:
    sigma = math.hypot(own, DRIFT_SIGMA * distance)
    spread = math.exp(min(1.96 * sigma, math.log(1e6)))
    return Estimate(configuration, seconds, seconds / spread, seconds * spread, basis, sigma, own, distance)


def family_of(record: Measurement, caches: Mapping[str, int], floor: Mapping[str, float]) -> tree_cost_model.Family:
    """The family of cells that a record's model is fitted to; ``floor`` as ``Table.floor`` has it."""
    shares = record.op != "draw" and record.options.get("propagate", "recompute") == "recompute"
    shares = shares and impls.traits(record.contestant).shares_groups
    return tree_cost_model.Family(
        record.contestant, record.op, record.dtype, caches, shares, {} if "device" in record.machine else floor
    )


def family_and_points(
    found: Iterable[Measurement],
    op: str,
    contestant: str = "numba",
    threads: int = 1,
    dtype: str = "float32",
    distribution: str = "uniform",
    **options: Any,
) -> tuple[tree_cost_model.Family, list[tree_cost_model.Point]]:
    """What ``fit`` takes, of one machine's records: an implementation's timed "draw" or "update" cells, at any K.

    ``options``: of the implementation, none for it as it comes. RecordError where there is no such cell.
    """
    table = Table(found)
    cells = [
        record
        for (one, *rest), held in table._cells.items()
        if (one.contestant, one.threads, dict(one.options), *rest)
        == (contestant, threads, options, op, dtype, distribution)
        for record in held.values()
    ]
    if not cells:
        raise RecordError(f"no timed {op} of {contestant} as asked; {how_to_measure('sweep')}")
    points = [tree_cost_model.Point(one.capacity, one.fanout, one.batch, one.seconds) for one in cells]
    return family_of(cells[0], table.caches, table.floor), points


def _configuration(record: Measurement) -> Configuration:
    return Configuration(record.contestant, record.fanout, record.threads, tuple(sorted(record.options.items())))


def _span(cells: Iterable[tuple[int, int, int]]) -> bool:
    """Whether there are enough cells for a cost model: two values of N and of B, for it is asked along both."""
    held = list(cells)
    return len(held) >= LEAST_CELLS and all(len({cell[axis] for cell in held}) > 1 for axis in (1, 2))


def _place(fanout: int, capacity: int, batch: int) -> list[float]:
    """A cell as a place of the field ``[3]``."""
    logs = (math.log(capacity), math.log(fanout), math.log(batch))
    return [value / scale for value, scale in zip(logs, SCALES, strict=True)]


def _outside(values: Sequence[int], asked: int) -> float:
    """|ln| of the factor by which a value lies outside of others."""
    return max(0.0, math.log(asked / max(values)), math.log(min(values) / asked))


def _nearest(cells: Iterable[tuple[int, int]], capacity: int, batch: int) -> list[tuple[int, int]]:
    """The cell (N, B) itself, or the few that are nearest by ratio."""

    def distance(cell: tuple[int, int]) -> float:
        return abs(math.log(cell[0] / capacity)) + abs(math.log(cell[1] / batch))

    found = sorted(cells, key=distance)[:NEAREST]
    return found[:1] if found and distance(found[0]) == 0 else found


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in values) / len(values))
