"""Cost models of a sum tree: what fills the cells nobody measured, and says how far off it is.

Letters: N capacity, K fanout, B batch, h height, C nodes in a cache line.

[Zhang2021, IV-C.5b] prints (log_K N + 1)(T_miss K/C + T_hit K (1 - 1/C)). That is K times a constant times the
number of levels, so its minimum lies near K = 3 whatever N, T_miss and T_hit are: it charges a fraction of a miss where
the processor fetches whole lines. Here each line of a group costs one load from the cache that its level lives in, and
a line from farther away costs at least as much as a nearer one; the other nodes of a group cost T_hit; heights are
integers. Elements descend 64 at a time, so that misses of a block overlap: beside its lines, each level costs every
block one wait, which is all there is to hide at B = 1.

The fanout K is chosen under the model's own error (``FanoutModel``). Let t_K be the time of a step with fanout K at the
asked N and B, r_K = ln(t_K / t_16), and d how often K must double or halve to be 16. The prior has K = 16 and no other
fanout known: r_K is normal around 0 with standard deviation PRIOR_SIGMA d. The evidence is the r_K that the fitted
models predict, with the error per doubling that such predictions had where capacities and batches were left out of the
fit. From both follows the posterior, and the answer is the K of the least expected time, E[t_K / t_16] =
exp(mean + sigma^2 / 2): 16 where nothing is known, for to try another K then costs more than it gains.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import impls
from impls.levels import CACHE_LINE, level_sizes

from .. import stats

Reals = NDArray[np.float64]

LEAST_POINTS = 3  # below which there is no fit
DEFAULT_CACHES = {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20}
BLOCK = 64  # elements that descend together, whose misses overlap
FEATURES = (
    "line",
    "line from beyond L1",
    "line from beyond L2",
    "line from memory",
    "wait",
    "wait for what lies beyond L1",
    "wait for what lies beyond L2",
    "wait for memory",
    "other node",
    "level",
    "element",
    "call",
)
"""What a call pays for. A line from memory counts in the first four: it costs what each nearer one costs, and more."""
LINES, WAITS, OTHERS = slice(0, 4), slice(4, 8), 8
FLOOR = {"line": 3, "wait": 7}
"""Places in FEATURES of the costs that the memory floor tells too: of a line, and of a wait, from memory."""
FLOOR_WEIGHT = 0.2
"""Weight of the floor's costs beside a cell's time: cells that reach memory outweigh it, others say nothing of it."""


@dataclass(frozen=True)
class Point:
    """One cell's shape and time: seconds per call of B."""

    capacity: int
    fanout: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class Family:
    """Cells one model is fitted to: an implementation's operation, its leaf dtype, and the caches it ran on, in bytes.

    What a call pays for follows from its traits: lines and levels where it uses K, else leaves and steps. A cache that
    is missing, or of no size, is taken for an ordinary one.

    ``shares``: whether a batch works through each group it touches once (an update that recomputes), not once for each
    element. ``floor``: seconds that a "line" and a "wait" cost more from memory than from the last cache, as random
    reads alone were measured; empty where they were not.
    """

    contestant: str
    op: str
    dtype: str
    caches: Mapping[str, int]
    shares: bool = False
    floor: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_levels(self) -> bool:
        """Whether a call descends through groups of K, rather than searching an array."""
        return impls.traits(self.contestant).uses_fanout

    @property
    def cache_bytes(self) -> tuple[int, ...]:
        """Bytes of L1, L2 and L3: those known, else ordinary ones, none smaller than the one before."""
        sizes = (self.caches.get(name) or ordinary for name, ordinary in DEFAULT_CACHES.items())
        return tuple(itertools.accumulate(sizes, max))


Part = tuple[Family, Sequence[Point]]
"""One operation of a step, and its measured cells."""


def tree_bytes(contestant: str, capacity: int, fanout: int, dtype: str, options: Mapping[str, Any]) -> int:
    """Bytes of a tree's levels, from its layout. ValueError for an implementation whose shape does not tell them."""
    nbytes = impls.traits(contestant).nbytes_of(capacity, fanout, dtype, options)
    if nbytes is None:
        raise ValueError(f"nobody knows the bytes of {contestant!r} from its shape")
    return nbytes


def features(point: Point, family: Family) -> Reals:
    """What one call touches: ``[12]`` counts per call of B elements in the order of FEATURES.

    Of an array baseline ``[4]``: for a leaf, a step of a search, an element and a call.
    """
    if not family.has_levels:
        return np.array([point.capacity, point.batch * math.log2(max(point.capacity, 2)), point.batch, 1.0])
    leaf = np.dtype(family.dtype).itemsize
    return _level_features(point.capacity, point.fanout, point.batch, leaf, family.cache_bytes, family.shares).copy()


@functools.lru_cache(maxsize=1 << 14)  # every fold of a cross-validation asks for the same cells
def _level_features(
    capacity: int, fanout: int, batch: int, leaf_bytes: int, caches: tuple[int, ...], shares: bool
) -> Reals:
    sizes = level_sizes(capacity, fanout)
    counts = np.zeros(len(FEATURES))
    nbytes = 0
    for level in range(len(sizes) - 2, -1, -1):  # from the root's children down: upper levels are the hottest
        itemsize = leaf_bytes if level == 0 else 8
        nbytes += sizes[level] * itemsize
        beyond = sum(nbytes > size for size in caches)  # caches that are too small for this level and those above
        lines = math.ceil(fanout * itemsize / CACHE_LINE)
        groups = distinct(sizes[level + 1], batch) if shares else batch
        counts[LINES][: beyond + 1] += groups * lines
        counts[WAITS][: beyond + 1] += math.ceil(groups / BLOCK)
        counts[OTHERS] += groups * max(0, fanout - lines)
        counts[OTHERS + 1] += groups
    counts[OTHERS + 2] = batch
    counts[OTHERS + 3] = 1
    return counts


def distinct(groups: int, batch: int) -> float:
    """Groups that B elements, each in a random one of so many, are expected to touch."""
    return -groups * math.expm1(batch * math.log1p(-1 / groups)) if groups > 1 else 1.0


@dataclass(frozen=True)
class CostModel:
    """Nonnegative seconds for each feature, fitted to the measured cells of a family."""

    family: Family
    seconds: Reals

    def predict(self, capacity: int, fanout: int, batch: int) -> float:
        """Predict the seconds of a call on a batch of B."""
        return float(self.seconds @ features(Point(capacity, fanout, batch, 1.0), self.family))


def fit(family: Family, points: Sequence[Point]) -> CostModel:
    """Least squares of the relative errors, no cost below zero. ValueError with fewer than three points.

    What the memory floor says of a line and a wait from memory is an observation too, beside the cells.
    """
    if len(points) < LEAST_POINTS:
        raise ValueError(f"a cost model wants at least {LEAST_POINTS} measured cells, there are {len(points)}")
    counts = np.array([features(point, family) for point in points])
    times = np.array([point.seconds for point in points])
    known = [key for key in FLOOR if key in family.floor] if family.has_levels else []
    prior = np.zeros((len(known), counts.shape[1]))
    for row, key in enumerate(known):
        prior[row, FLOOR[key]] = FLOOR_WEIGHT / family.floor[key]
    weighted = np.vstack([counts / times[:, None], prior])
    target = np.concatenate([np.ones(len(points)), np.full(len(known), FLOOR_WEIGHT)])
    scale = weighted.max(axis=0)
    scale[scale == 0] = 1.0
    return CostModel(family, stats.nonnegative(weighted / scale, target) / scale)


# The form as printed.


def printed_cost(capacity: int, fanout: int, miss_seconds: float, hit_seconds: float, per_line: int = 16) -> float:
    """The formula of [Zhang2021, IV-C.5b] as it stands, for one element: real-valued height, fractional lines."""
    levels = math.log(capacity) / math.log(fanout) + 1
    return levels * (miss_seconds * fanout / per_line + hit_seconds * fanout * (1 - 1 / per_line))


def printed_best_fanout(capacity: int, fanouts: Iterable[int] = range(2, 257)) -> int:
    """The K at which the printed formula is least; T_miss and T_hit cancel."""
    return min(fanouts, key=lambda fanout: printed_cost(capacity, fanout, 1.0, 1.0))


# How far off.


@dataclass(frozen=True)
class HeldOut:
    """A cell predicted by a model that had not seen its (N, K) at any B."""

    point: Point
    predicted_seconds: float

    @property
    def error(self) -> float:
        """|predicted / measured - 1|"""
        return abs(self.predicted_seconds / self.point.seconds - 1)

    @property
    def log_error(self) -> float:
        """ln(predicted / measured), a prediction of 0 taken for a nanosecond"""
        return math.log(max(self.predicted_seconds, 1e-9) / self.point.seconds)


def cross_validate(family: Family, points: Sequence[Point], folds: int = 4) -> list[HeldOut]:
    """Every point predicted from the others: (N, K) pairs are dealt into folds, each left out in turn."""
    pairs = sorted({(point.capacity, point.fanout) for point in points})
    fold_of = {pair: number % folds for number, pair in enumerate(pairs)}
    result = []
    for fold in range(folds):
        seen = [point for point in points if fold_of[point.capacity, point.fanout] != fold]
        if len(seen) < LEAST_POINTS:
            continue
        model = fit(family, seen)
        result += [
            HeldOut(point, model.predict(point.capacity, point.fanout, point.batch))
            for point in points
            if fold_of[point.capacity, point.fanout] == fold
        ]
    return result


# The fanout

Axis = Literal["capacity", "batch"]
AXES: tuple[Axis, ...] = ("capacity", "batch")
DEFAULT = 16  # the K of who knows nothing
PRIOR_SIGMA = 0.15  # of ln(t_K / t_16), for each doubling or halving of K
GUESSES = 10  # held-out cells that a first guess of a model's error counts for
TIME_SIGMA = 0.5  # the first guess, of a model's ln(time)
MOST_LOG = math.log(1e6)  # of a factor that is told


@dataclass(frozen=True)
class ErrorModel:
    """How far off predictions are, as the standard deviation of a logarithm that a cross-validation showed.

    ``inside`` the N and B of the cells, and ``beyond`` them for each factor of e.

    >>> ErrorModel(0.1, 0.2).sigma(distance=0.0), round(ErrorModel(0.1, 0.2).factor(math.log(10)), 2)
    (0.1, 2.52)
    """

    inside: float
    beyond: float

    @classmethod
    def of(cls, errors: Iterable[tuple[float, float]], guess: float) -> "ErrorModel":
        """Estimate it from held-out cells, each (distance from the cells seen, error of the logarithm).

        A few cells may agree by chance, so a ``guess`` counts for as many as ``GUESSES``; half of it for each factor of
        e beyond, so that the doubt always grows with the distance.
        """
        squares: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for distance, error in errors:
            squares[distance > 0].append((distance**2, error**2))
        near, far = squares[False] or squares[True], squares[True]
        inside = (sum(error for _, error in near) + GUESSES * guess**2) / (len(near) + GUESSES)
        more = max(0.0, sum(error - inside for _, error in far)) / (sum(distance for distance, _ in far) or 1.0)
        beyond = (len(far) * more + GUESSES * (guess / 2) ** 2) / (len(far) + GUESSES)
        return cls(math.sqrt(inside), math.sqrt(beyond))

    def sigma(self, distance: float = 0.0) -> float:
        """Return the standard deviation at a distance, as ``outside`` measures it."""
        return math.hypot(self.inside, self.beyond * distance)

    def factor(self, distance: float = 0.0) -> float:
        """Return the factor within which 95 % of the predictions at a distance lie, if the errors are log-normal."""
        return math.exp(min(stats.Z * self.sigma(distance), MOST_LOG))


def outside(points: Iterable[Point], capacity: int, batch: int) -> float:
    """Measure how far (N, B) lies beyond the cells: the sum of |ln| of the factors in N and in B, 0 inside."""
    shapes = [(math.log(capacity / point.capacity), math.log(batch / point.batch)) for point in points]
    return math.fsum(max(0.0, min(axis), -max(axis)) for axis in zip(*shapes, strict=True))


def leave_out(*parts: Part) -> Iterator[tuple[Axis, float, list[Part], list[list[Point]]]]:
    """Leave out every capacity in turn, then every batch, from all parts at once.

    Yields (the axis, how far the cells left out lie beyond those seen, the parts with what is seen, the cells left out
    of each). What leaves any part too few cells for a fit is passed over.
    """
    for axis in AXES:
        for value in sorted({getattr(point, axis) for _, points in parts for point in points}):
            left = [[point for point in points if getattr(point, axis) == value] for _, points in parts]
            seen: list[Part] = [
                (family, [point for point in points if getattr(point, axis) != value]) for family, points in parts
            ]
            if all(len(points) >= LEAST_POINTS for _, points in seen):
                distances = (
                    outside(points, *shape)
                    for (_, points), out in zip(seen, left, strict=True)
                    for shape in {(point.capacity, point.batch) for point in out}
                )
                yield axis, max(distances, default=0.0), seen, left


def estimate_error(family: Family, points: Sequence[Point]) -> ErrorModel | None:
    """Tell how far off the model's times are, by leaving out capacities and batches; None if they are too few."""
    errors = [
        (distance, HeldOut(point, model.predict(point.capacity, point.fanout, point.batch)).log_error)
        for _, distance, [part], [left] in leave_out((family, points))
        for model in [fit(*part)]
        for point in left
    ]
    return ErrorModel.of(errors, TIME_SIGMA) if errors else None


def error_factor(family: Family, points: Sequence[Point], capacity: int, batch: int) -> float | None:
    """Return the factor within which 95 % of the times that ``fit`` predicts at (N, B) should lie; None if too few.

    It is 1 for a perfect model, and grows with the distance of (N, B) from the cells.
    """
    known = estimate_error(family, points)
    return known.factor(outside(points, capacity, batch)) if known else None


@dataclass(frozen=True)
class Ratio:
    """What is known of ln(t_K / t_16): a normal distribution."""

    mean: float
    sigma: float

    @property
    def expected(self) -> float:
        """Return the expected t_K / t_16."""
        return math.exp(self.mean + self.sigma**2 / 2)


@dataclass(frozen=True)
class FanoutChoice:
    """The K of the least expected time at one (N, B), and what is known of each K asked about."""

    best: int
    ratios: Mapping[int, Ratio]


class FanoutModel:
    """The cost models of a step's parts, fitted once, with how far off the ratios are that they predict.

    The times of the parts add up: a draw and an update, the seconds of whose points are multiplied by the updates a
    sample (without any, leave the update out). Parts of fewer than three cells, and no parts, are no evidence; nor is a
    model whose choices, at the capacities and batches left out of it, cost more in the mean than K = 16.
    """

    def __init__(self, *parts: Part) -> None:
        self._points = [point for _, points in parts for point in points]
        enough = parts and all(len(points) >= LEAST_POINTS for _, points in parts)
        self._models = [fit(*part) for part in parts] if enough else []
        left_out = list(_left_out(parts)) if enough else []
        errors = [pair for cell in left_out for pair in cell.errors()]
        doubt = ErrorModel.of(errors, PRIOR_SIGMA) if errors else None
        self.doubt = doubt if doubt and _gains(left_out, doubt) else None
        """Of a predicted ln(t_K / t_16) per doubling of K; None where nothing shows it, and so nothing is believed."""

    def ratios(self, capacity: int, batch: int, fanouts: Iterable[int]) -> dict[int, Ratio]:
        """Return the posterior of ln(t_K / t_16) for each K; the prior for a K beyond those of the cells."""
        if self.doubt is None:
            return {fanout: _posterior(fanout, 0.0, math.inf) for fanout in fanouts}
        measured = [point.fanout for point in self._points]
        sigma = self.doubt.sigma(outside(self._points, capacity, batch))
        default = _seconds(self._models, capacity, DEFAULT, batch)
        result = {}
        for fanout in fanouts:
            ratio = math.log(_seconds(self._models, capacity, fanout, batch) / default)
            is_known = min(measured) <= fanout <= max(measured)
            result[fanout] = _posterior(fanout, ratio, sigma if is_known else math.inf)
        return result

    def best(self, capacity: int, batch: int, fanouts: Iterable[int]) -> FanoutChoice:
        """Choose among the fanouts; of equally good ones the nearest to 16. ValueError without any."""
        ratios = self.ratios(capacity, batch, sorted(fanouts, key=_doublings))
        return FanoutChoice(min(ratios, key=lambda fanout: ratios[fanout].expected), ratios)


def best_fanout(parts: Iterable[Part], capacity: int, batch: int, fanouts: Iterable[int]) -> FanoutChoice:
    """Choose the K of the least expected time at (N, B), 16 unless evidence carries further.

    ``parts``: the operations whose times add up to a step, each a family and its measured cells; none where nothing
    was measured. ``ratios`` of the answer is the posterior of ln(t_K / t_16) for each of ``fanouts``: where a time is
    not measured, t_16 exp(mean) with that sigma beside t_16's own. Ask a ``FanoutModel`` where there are several
    questions of the same cells. ValueError without fanouts.
    """
    return FanoutModel(*parts).best(capacity, batch, fanouts)


def _doublings(fanout: int, other: int = DEFAULT) -> float:
    """Count how often K must double or halve to be the other."""
    return abs(math.log2(fanout / other))


def _posterior(fanout: int, predicted: float, sigma: float) -> Ratio:
    """Join the prior of K with a predicted ln(t_K / t_16), whose error has a standard deviation per doubling."""
    weight = 1 / (1 + (sigma / PRIOR_SIGMA) ** 2)
    return Ratio(weight * predicted, PRIOR_SIGMA * _doublings(fanout) * math.sqrt(1 - weight))


def _seconds(models: Iterable[CostModel], capacity: int, fanout: int, batch: int) -> float:
    return max(1e-12, sum(model.predict(capacity, fanout, batch) for model in models))


def _steps(parts: Iterable[Iterable[Point]]) -> dict[tuple[int, int], dict[int, float]]:
    """Return the seconds of all parts together, by (N, B) and K, where every part has the cell."""
    times = [{(point.capacity, point.batch, point.fanout): point.seconds for point in points} for points in parts]
    result: dict[tuple[int, int], dict[int, float]] = {}
    for capacity, batch, fanout in sorted(set.intersection(*map(set, times))) if times else ():
        cell = capacity, batch, fanout
        result.setdefault((capacity, batch), {})[fanout] = sum(seconds[cell] for seconds in times)
    return result


@dataclass(frozen=True)
class _LeftOut:
    """The steps at one (N, B) by K, as measured and as predicted by models that had not seen it, so far away."""

    distance: float
    measured: Mapping[int, float]
    predicted: Mapping[int, float]

    def errors(self) -> Iterator[tuple[float, float]]:
        """Yield (distance, error per doubling) of each ratio of times to that at the K nearest to 16."""
        default = min(self.measured, key=_doublings)
        for fanout in self.measured.keys() - {default}:
            ratios = (times[fanout] / times[default] for times in (self.predicted, self.measured))
            off = math.log(next(ratios)) - math.log(next(ratios))
            yield self.distance, off / _doublings(fanout, default)

    def gain(self, doubt: ErrorModel) -> float:
        """Return ln(t_16 / t_K) of the K that would be chosen here, above 0 where it is the faster one."""
        posterior = {
            fanout: _posterior(fanout, math.log(seconds / self.predicted[DEFAULT]), doubt.sigma(self.distance))
            for fanout, seconds in sorted(self.predicted.items(), key=lambda pair: _doublings(pair[0]))
        }
        chosen = min(posterior, key=lambda fanout: posterior[fanout].expected)
        return math.log(self.measured[DEFAULT] / self.measured[chosen])


def _left_out(parts: Sequence[Part]) -> Iterator[_LeftOut]:
    for _, distance, seen, left in leave_out(*parts):
        models = [fit(*part) for part in seen]
        for (capacity, batch), measured in _steps(left).items():
            yield _LeftOut(distance, measured, {k: _seconds(models, capacity, k, batch) for k in measured})


def _gains(left_out: Iterable[_LeftOut], doubt: ErrorModel) -> bool:
    """Tell whether choices under doubt lost nothing against K = 16 where models had not seen what they chose for."""
    return sum(cell.gain(doubt) for cell in left_out if DEFAULT in cell.measured) >= 0


@dataclass(frozen=True)
class FanoutRegret:
    """What answering a K costs at one (N, B): time over the best measured K's, less 1."""

    capacity: int
    batch: int
    best: int
    predicted: int
    predicted_regret: float
    sixteen_regret: float
    printed: int
    printed_regret: float


def fanout_regrets(*parts: Part, axis: Axis = "capacity") -> list[FanoutRegret]:
    """For each (N, B) with several K measured, 16 among them: the K chosen by models that have not seen this N.

    Each part is a family and its cells; the times of several parts (a draw and an update) add up. ``axis``: "batch"
    where they have not seen this B instead.
    """
    result = []
    for left_out, _, seen, left in leave_out(*parts):
        if left_out == axis:
            result += regrets_of(FanoutModel(*seen), left)
    return result


def regrets_of(model: FanoutModel, left: Iterable[Iterable[Point]]) -> list[FanoutRegret]:
    """Judge a model's K at each (N, B) of cells that it has not seen, those of each part of a step."""
    return [
        _fanout_regret(capacity, batch, measured, model.best(capacity, batch, measured).best)
        for (capacity, batch), measured in _steps(left).items()
        if len(measured) >= LEAST_POINTS and DEFAULT in measured
    ]


def _fanout_regret(capacity: int, batch: int, measured: Mapping[int, float], chosen: int) -> FanoutRegret:
    best, printed = min(measured, key=measured.__getitem__), printed_best_fanout(capacity, measured)
    regret = {fanout: seconds / measured[best] - 1 for fanout, seconds in measured.items()}
    return FanoutRegret(capacity, batch, best, chosen, regret[chosen], regret[DEFAULT], printed, regret[printed])
