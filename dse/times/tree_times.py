"""One machine's records as times for any (N, B): measured, interpolated between measured cells, or extrapolated.

One variant of a sum tree: its measured cells as times for any fanout K, capacity N and batch B.

An implementation as it comes, on one thread, has a cost model fitted to its cells, if these have two values of N and of
B. Its variants (other options, threads, leaves, priorities) are compared with it instead: what one takes where nobody
measured it is what the default takes there, times the ratio of the two at the cells around. So a variant that was
measured at a single B borrows the default's cost of a call. What a model or a ratio is off by at the cells is carried
over by kriging (stats.Field), the less the noisier they are and the farther away. Each time has a standard deviation of
its logarithm, which grows with the distance from the cells.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import impls
from impls.levels import CACHE_LINE

from .. import platforms, stats
from ..answer import Note
from ..drift import Drift, drift
from ..estimate import Estimate, Evidence, weakest
from ..platforms.files import FILE
from ..records import Record, RecordError, Source, how_to_measure, twins
from . import cost_model

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
        evidence = Evidence(f"tree({configuration.contestant} K={configuration.fanout})", source)
        time = Estimate(seconds, seconds / spread, seconds * spread, evidence)
        return cls(configuration, time, own_sigma, distance, beyond)

    @property
    def seconds(self) -> float:
        """The expected time of a call or a step."""
        return self.time.value

    @property
    def sigma(self) -> float:
        """The standard deviation of the time's logarithm in the records' run."""
        return math.hypot(self.own_sigma, BEYOND_SIGMA * self.beyond)


class Variant:
    """Times of one operation of a variant: of its measured cells (K, N, B), and between and beyond them.

    Between and beyond they follow ``base``, the default, if that is fitted, else a cost model of the variant's own
    cells, which are of ``family``. Without cells ``family`` is None.
    """

    def __init__(
        self,
        chosen: tuple[str, int, tuple[tuple[str, Any], ...]],
        cells: Mapping[tuple[int, int, int], Record],
        family: cost_model.Family | None,
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
        points = [cost_model.Point(n, k, b, record.seconds) for (k, n, b), record in cells.items()]
        if base and base._mean:
            self._mean, offset = base.mean, UNKNOWN_SIGMA
        elif _span(cells):
            model = cost_model.fit(family, points)
            self._mean, offset = lambda n, k, b: (model.predict(n, k, b), 0.0), 0.0
        else:
            return
        off = [math.log(point.seconds / self._mean(point.capacity, point.fanout, point.batch)[0]) for point in points]
        if offset:
            sigma = float(np.std(off))
        else:
            squares = [cell.log_error**2 for cell in cost_model.cross_validate(family, points)]
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


TRANSFERS = {"upload": "there", "download": "back"}
FLOOR_READS = {"line": "gather", "wait": "chase"}  # the kind of read of the memory floor that has each cost
NEAREST = 4  # cells named as evidence where none is the question's own
NAMED = ("op", "capacity", "batch", "median_seconds", "source", "status", "commit", "utc")  # of a cell as evidence
_Key = tuple[str, int, tuple[tuple[str, Any], ...], str, str, str]
"""Implementation, threads, options, op, dtype, distribution: what the cells of a ``Variant`` have in common."""


@dataclass(frozen=True)
class Question:
    """N leaves, batches of B, R updates and ``inserts`` of one leaf per sample, at most a given number of threads."""

    capacity: int
    batch: int
    updates_per_sample: float = 1.0
    threads: int = 1
    dtype: str = "float32"
    distribution: str = "uniform"
    inserts: int = 0


class Table:
    """The timed samples and updates of one machine's sum trees, as times for any (N, B).

    Without ``unchecked`` no tree that does not check its input (``validate=False``) is a configuration. ``results``:
    the folder of the records, where a probe may tell what they do not.
    RecordError for records without a measured time of a sum tree.
    """

    def __init__(self, records: Iterable[Record], unchecked: bool = False, results: Path | None = None) -> None:
        records = list(records)
        trees = [record for record in records if record.primitive in ("sum_tree", "sum_tree_again")]
        self._reads = {
            (record.contestant, record.capacity * CACHE_LINE): record.seconds / record.batch
            for record in records
            if record.primitive == "memory" and record.median_seconds
        }
        known = [record for record in trees if record.median_seconds]
        timed = [record for record in known if record.source == "measured"]
        if not timed:
            raise RecordError(f"the records hold no measured time of a sum tree; {how_to_measure('sweep')}")
        self.machine = timed[-1].machine
        self.machine_key = timed[-1].machine_key
        self.caches: dict[str, int] = dict(self.machine.get("caches") or {})
        self._probe = results / self.machine_key / FILE if results else None
        self.noise_floor = stats.noise_floor(twins(timed))
        self.drift = drift(records)
        self._cells: dict[_Key, dict[tuple[int, int, int], Record]] = {}  # by (K, N, B)
        for record in timed:
            is_offered = unchecked or record.options.get("validate", True)
            if is_offered and record.primitive == "sum_tree" and record.op in ("draw", "update"):
                key = _key(_configuration(record), record.op, record.dtype, record.distribution)
                self._cells.setdefault(key, {})[record.fanout, record.capacity, record.batch] = record
        self._variants: dict[_Key, Variant] = {}
        self._moved = [record for record in timed if record.op in TRANSFERS and record.primitive == "sum_tree"]
        here = {record.contestant for record in known}
        self.untimed = {
            record.contestant: record.reason or record.status for record in trees if record.contestant not in here
        }

    @functools.cached_property
    def memory_bytes(self) -> float | None:
        """Bytes of the machine's memory, as recorded or else as a probe of it says; None if unknown."""
        recorded: float | None = self.machine.get("memory_bytes")
        if recorded is not None or not self._probe or not self._probe.exists():
            return recorded
        memory = platforms.load(self._probe).device("cpu").memory
        return memory.size_bytes.value if memory else None

    def distributions(self, dtype: str) -> set[str]:
        """Distributions of priorities that were measured with leaves of a dtype."""
        return {distribution for *_, leaves, distribution in self._cells if leaves == dtype}

    def configurations(self, question: Question) -> list[Configuration]:
        """Configurations with both a draw and an update of the dtype and distribution asked for.

        Of those that run the very same code there the plainest alone.
        """
        timed: dict[str, set[Configuration]] = {"draw": set(), "update": set()}
        for (contestant, threads, options, op, *leaves), cells in self._cells.items():
            if leaves == [question.dtype, question.distribution]:
                timed[op] |= {Configuration(contestant, fanout, threads, options) for fanout, *_ in cells}
        both = sorted(timed["draw"] & timed["update"], key=repr)
        plain = {shape: _plain(shape, question.capacity, question.batch) for shape in both}
        return [
            shape
            for shape in both
            if plain[shape] == shape or (plain[shape] not in plain and plain[shape].threads == shape.threads)
        ]

    def step(self, configuration: Configuration, question: Question) -> TreeTime | None:
        """Time of one sample, R updates and the insertions; None where no cell and no model has it."""
        parts = [("draw", 1.0, question.batch), ("update", question.updates_per_sample, question.batch)]
        parts += [("update", float(question.inserts), 1)] * (question.inserts > 0)
        calls = [
            (times, call)
            for op, times, batch in parts
            if (call := self.call(configuration, op, replace(question, batch=batch)))
        ]
        if len(calls) < len(parts):
            return None
        seconds = sum(times * call.seconds for times, call in calls)
        sigma = math.hypot(*(times * call.seconds * call.own_sigma for times, call in calls)) / seconds
        used = [call for times, call in calls if times]
        source, distance = weakest(call.time.source for call in used), max(call.distance for call in used)
        beyond = max(call.beyond for call in used)
        return TreeTime.log_normal(configuration, seconds, sigma, source, self.drift, distance, beyond)

    def call(self, configuration: Configuration, op: str, question: Question) -> TreeTime | None:
        """Time of one "draw" or "update" of B; None where no cell and no model has it."""
        variant = self._variant(_key(configuration, op, question.dtype, question.distribution))
        return variant.time(configuration.fanout, question.capacity, question.batch)

    def rests_on(self, configuration: Configuration, question: Question) -> list[dict[str, Any]]:
        """The question's own measured cells, or those nearest to it, of the chosen configuration."""
        result = []
        for op in ("draw", "update"):
            key = _key(configuration, op, question.dtype, question.distribution)
            cells = {(n, b): record for (k, n, b), record in self.cells(key).items() if k == configuration.fanout}
            records = (cells[cell] for cell in sorted(_nearest(cells, question.capacity, question.batch)))
            result += [{name: getattr(record, name) for name in NAMED} for record in records]
        return result

    def most_threads(self) -> int:
        """The most threads that any cell was measured with."""
        return max((threads for _, threads, *_ in self._cells), default=1)

    def transfers(self, configuration: Configuration, batch: int) -> Note | None:
        """Say on which device its batches lie, and what moving one takes; None if in the host's memory."""
        name, chosen = configuration.contestant, _key(configuration)
        timed = (record for key, cells in self._cells.items() if key[:3] == chosen[:3] for record in cells.values())
        records = (record for record in timed if record.fanout == configuration.fanout)
        device = next((record.facts["device"] for record in records if "device" in record.facts), None)
        if device is None:
            return None
        moved = dict[str, dict[str, Any]]()
        for op, direction in TRANSFERS.items():
            known = [record for record in self._moved if (record.contestant, record.op) == (name, op)]
            if known:
                near = min(known, key=lambda record: abs(math.log(record.batch / batch)))
                moved[direction] = {"seconds": near.seconds, "batch": near.batch, "source": near.source}
        kind = "batches_are_moved" if moved else "batches_are_elsewhere"
        return Note(kind, {"name": name, "device": device, "moved": moved})

    def cells(self, key: _Key) -> dict[tuple[int, int, int], Record]:
        """The measured cells of a variant, by (K, N, B)."""
        return self._cells.get(key, {})

    def _variant(self, key: _Key) -> Variant:
        """The variant with those cells; its ``base`` is the default, on one thread."""
        if key not in self._variants:
            cells = self.cells(key)
            default: _Key = (key[0], 1, (), key[3], "float32", "uniform")
            base = None if key == default else self._variant(default)
            family = family_of(next(iter(cells.values())), self.caches, self.floor) if cells else None
            self._variants[key] = Variant(key[:3], cells, family, self.noise_floor, self.drift, base)
        return self._variants[key]

    @functools.cached_property
    def floor(self) -> dict[str, float]:
        """Seconds that a random read costs more out of memory than out of the last cache: where reads overlap ("line")
        and where each waits for the one before ("wait"). Empty where the memory floor was not measured that far."""
        last = self.caches.get("L3", cost_model.DEFAULT_CACHES["L3"])
        result = {}
        for cost, kind in FLOOR_READS.items():
            reads = {size: seconds for (name, size), seconds in self._reads.items() if name == kind}
            if not reads or max(reads) <= last or min(reads) > last / 2:
                continue
            inside = max(size for size in reads if size <= last / 2)
            if (more := reads[max(reads)] - reads[inside]) > 0:
                result[cost] = more
        return result


def family_of(record: Record, caches: Mapping[str, int], floor: Mapping[str, float]) -> cost_model.Family:
    """The family of cells that a record's model is fitted to; ``floor`` as ``Table.floor`` has it."""
    shares = record.op != "draw" and record.options.get("propagate", "recompute") == "recompute"
    shares = shares and impls.traits(record.contestant).shares_groups
    return cost_model.Family(
        record.contestant, record.op, record.dtype, caches, shares, {} if "device" in record.facts else floor
    )


def family_and_points(
    found: Iterable[Record],
    op: str,
    contestant: str = "numba",
    threads: int = 1,
    dtype: str = "float32",
    distribution: str = "uniform",
    **options: Any,
) -> tuple[cost_model.Family, list[cost_model.Point]]:
    """What ``fit`` takes, of one machine's records: an implementation's timed "draw" or "update" cells, at any K.

    ``options``: of the implementation, none for it as it comes. RecordError where there is no such cell.
    """
    table = Table(found, unchecked=True)
    cells = list(table.cells((contestant, threads, tuple(sorted(options.items())), op, dtype, distribution)).values())
    if not cells:
        raise RecordError(f"no timed {op} of {contestant} as asked; {how_to_measure('sweep')}")
    points = [cost_model.Point(cell.capacity, cell.fanout, cell.batch, cell.seconds) for cell in cells]
    return family_of(cells[0], table.caches, table.floor), points


def _configuration(record: Record) -> Configuration:
    return Configuration(record.contestant, record.fanout, record.threads, tuple(sorted(record.options.items())))


def _plain(chosen: Configuration, capacity: int, batch: int) -> Configuration:
    """The configuration that runs the very same code at that N and B, in as few words as can be."""
    kind, options = impls.traits(chosen.contestant), dict(chosen.options)
    fanout, threads, options = kind.runs_as(capacity, batch, chosen.fanout, chosen.threads, options)
    return Configuration(chosen.contestant, fanout, threads, tuple(sorted(options.items())))


def _key(chosen: Configuration, op: str = "", dtype: str = "", distribution: str = "") -> _Key:
    return chosen.contestant, chosen.threads, chosen.options, op, dtype, distribution


def _nearest(cells: Collection[tuple[int, int]], capacity: int, batch: int) -> list[tuple[int, int]]:
    """The cell (N, B) itself, or the few that are nearest by ratio."""
    if (capacity, batch) in cells:
        return [(capacity, batch)]
    return sorted(cells, key=lambda cell: abs(math.log(cell[0] / capacity)) + abs(math.log(cell[1] / batch)))[:NEAREST]
