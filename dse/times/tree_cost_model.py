"""Cost models of a sum tree: what fills the cells nobody measured, and says how far off it is.

Letters: N capacity, K fanout, B batch, h height, C nodes in a cache line.

[Zhang2021, IV-C.5b] prints (log_K N + 1)(T_miss K/C + T_hit K (1 - 1/C)). That is K times a constant times the
number of levels, so its minimum lies near K = 3 whatever N, T_miss and T_hit are: it charges a fraction of a miss where
the processor fetches whole lines. Here each line of a group costs one load from the cache that its level lives in, and
a line from farther away costs at least as much as a nearer one; the other nodes of a group cost T_hit; heights are
integers. Elements descend 64 at a time, so that misses of a block overlap: beside its lines, each level costs every
block one wait, which is all there is to hide at B = 1.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
