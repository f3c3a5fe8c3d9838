"""Which tree, which K, how many threads for this N and B: an answer from records, with what it rests on.

A training step is one draw of B leaves and R updates of B leaves. Every configuration measured gets a time for the
asked (N, B): the measured one; or, between measured cells, the cost model's, corrected by what it was off by at the
cells around, the less the noisier they are; or, outside of them, the cost model's alone, marked extrapolated. Each time
carries a standard deviation of its logarithm; from these come ties, regret and the probability of being best.
"""

import bisect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import models, stats
from .platforms import fingerprint
from .records import Measurement, RecordError, read_folder, twins

Basis = Literal["measured", "interpolated", "extrapolated"]
BASES: tuple[Basis, ...] = ("measured", "interpolated", "extrapolated")

QUESTIONS_FILE = "questions.jsonl"  # what answers are tested with: never what they rest on
CLOSE_ENOUGH = 0.02  # a tie within so much goes to fewer threads
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


@dataclass(frozen=True)
class Recommendation:
    """The answer. ``regret_95``: at 95 % confidence the choice costs at most this fraction more than the best one."""

    question: Question
    choice: Estimate
    ties: tuple[Estimate, ...]
    runner_up: Estimate | None
    regret_95: float
    probability_best: float
    noise_floor: float
    machine: str
    rests_on: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def recommend(
    capacity: int,
    batch: int,
    updates_per_sample: float = 1.0,
    threads: int | None = None,
    dtype: str = "float32",
    distribution: str = "uniform",
    results: Path = Path("results"),
    machine: str | None = None,
) -> Recommendation:
    """The best configuration for N leaves and batches of B on a machine (default: this one).

    ``threads`` bounds the threads (default: the machine's cores). RecordError if the results cannot answer; ValueError
    for a question outside any sense.
    """
    for what, value, least in (("capacity", capacity, 1), ("batch", batch, 1), ("threads", threads, 1)):
        if value is not None and value < least:
            raise ValueError(f"{what} must be at least {least}, not {value}")
    if not (updates_per_sample >= 0 and math.isfinite(updates_per_sample)):
        raise ValueError(f"updates per sample must be at least 0 and finite, not {updates_per_sample}")
    key = machine or str(fingerprint()["key"])
    table = Table(read_folder(results, key, skip=(QUESTIONS_FILE,)))
    most = threads or int(table.machine.get("cores", 1))
    return answer(table, Question(capacity, batch, updates_per_sample, most, dtype, distribution))


def answer(table: "Table", question: Question) -> Recommendation:
    """The recommendation a table of records gives. RecordError if it holds no draws and updates of that dtype."""
    asked, notes = question, []
    if question.distribution not in table.distributions(question.dtype):
        question = Question(**{**asdict(question), "distribution": "uniform"})
        notes.append(f"nothing was measured at {asked.distribution!r}: answered for 'uniform'")
    candidates = [c for c in table.configurations(question) if c.threads <= question.threads]
    steps = (table.step(configuration, question) for configuration in candidates)
    estimates = [estimate for estimate in steps if estimate]
    if not estimates:
        raise RecordError(
            f"the records hold no draws and updates of {question.dtype} leaves; measure some: python -m benchmarks "
            f"sweep --preset quick --dtypes {question.dtype}"
        )
    # What was measured around the question decides; models answer only where nothing was.
    inside = [estimate for estimate in estimates if estimate.basis != "extrapolated"]
    estimates = inside or estimates
    logs, sigmas = [math.log(e.seconds) for e in estimates], [e.sigma for e in estimates]
    chosen = stats.choose(logs, sigmas)
    # A tie within 2 % goes to fewer threads: a core it leaves free is worth more than what nobody can measure.
    close = [i for i in (chosen.best, *chosen.ties) if logs[i] - logs[chosen.best] <= CLOSE_ENOUGH]
    best = min(close, key=lambda i: (estimates[i].configuration.threads, logs[i]))
    regret, probability = stats.risk(logs, sigmas, best)
    tied = sorted({chosen.best, *chosen.ties} - {best}, key=logs.__getitem__)
    choice = estimates[best]
    others = [i for i in np.argsort(logs).tolist() if i != best]
    if choice.basis == "extrapolated":
        notes.append("the question lies outside what was measured: the fitted cost model answers, with its error")
    return Recommendation(
        question=asked,
        choice=choice,
        ties=tuple(estimates[i] for i in tied),
        runner_up=estimates[others[0]] if others else None,
        regret_95=regret,
        probability_best=probability,
        noise_floor=table.noise_floor,
        machine=table.machine_key,
        rests_on=tuple(table.rests_on(choice.configuration, question)),
        notes=tuple(notes),
    )


class Table:
    """The timed draws and updates of one machine's sum trees, as times for any (N, B)."""

    def __init__(self, found: Iterable[Measurement]) -> None:
        found = list(found)
        timed = [record for record in found if record.median_seconds and record.primitive.startswith("sum_tree")]
        if not timed:
            raise RecordError("the records hold no time of a sum tree; measure with: python -m benchmarks sweep")
        self.machine = timed[-1].machine
        self.machine_key = timed[-1].machine_key
        self.noise_floor = stats.noise_floor(twins(timed))
        self._cells: dict[tuple[Configuration, str, str, str], dict[tuple[int, int], Measurement]] = defaultdict(dict)
        for record in timed:
            if record.primitive == "sum_tree" and record.op in ("draw", "update"):
                where = (_configuration(record), record.op, record.dtype, record.distribution)
                self._cells[where][record.capacity, record.batch] = record

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
