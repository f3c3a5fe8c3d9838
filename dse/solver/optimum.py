"""The largest value in a space, and the smallest key of what is worth enough, each by one descent (``descent.py``)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .descent import comes_before, descend
from .images import Integers
from .limits import limits_of
from .problem import PARTS
from .settings import Booleans
from .space import Load, Space, affordable, by_part, loads, single
from .throughput import Reals, steps_per_second

TIE = (0, 1, 2, 3, 4)
"""Order of a key's components: devices, bytes, depth, cores, seconds, as in ``tie_key``."""
FRUGAL = (0, 3, 1, 2, 4)
"""The same as in ``frugal_key``."""


def values(space: Space, rows: Integers, depths: Sequence[int], least: Reals | None = None) -> Reals:
    """Value (a bound, where a choice is a group) of rows at each depth, budgets aside: [R, depths].

    ``least`` [P, R]: seconds that parts take at least.
    """
    return _values_of(space, rows, loads(space, rows, least), depths)


def _values_of(space: Space, rows: Integers, load: Load, depths: Sequence[int]) -> Reals:
    value: Reals = steps_per_second(load.busiest[:, None], load.loop[:, None], np.array(depths))
    return value / space.at.divisor[rows[-1], None]


def best_values(
    space: Space, start: Integers, labels: Integers, without: Integers | None = None, floor: float = 0.0
) -> Reals:
    """Largest value under each label (of a setting, from 0 on), ``floor`` where nothing that fits is above it.

    ``without``: a row left out.
    """
    best, limits = np.full(labels.max() + 1, floor), limits_of(space)

    def judge(rows: Integers) -> Integers:
        # Invariant: best is the largest value under each label among the configurations judged so far.
        rows = rows[:, values(space, rows, space.depths[-1:])[:, 0] > best[labels[rows[-1]]]]
        possible = _possible(space, rows, without)
        rows, possible = rows[:, possible.any(axis=1)], possible[possible.any(axis=1)]
        deepest = possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
        value = values(space, rows, space.depths, limits.seconds(rows))[np.arange(len(deepest)), deepest]
        keep = np.flatnonzero(value > best[labels[rows[-1]]])
        keep = keep[np.argsort(-value[keep], kind="stable")]
        whole = keep[single(space, rows[:, keep])]
        np.maximum.at(best, labels[rows[-1, whole]], value[whole])
        return rows[:, keep]

    descend(space, start, judge)
    return best


class Keyed(NamedTuple):
    """A configuration in the order of the tie rule."""

    key: tuple[float, ...]
    row: Integers
    depth: int


def least_keys(
    space: Space,
    start: Integers,
    labels: Integers,
    least: Reals,
    without: Integers | None = None,
    order: Sequence[int] = TIE,
) -> list[Keyed]:
    """The smallest key under each label among what has at least a value of ``least`` [labels], in order."""
    columns = (*order, *range(len(order), len(order) + len(PARTS)))
    least_key, limits = np.full((labels.max() + 1, len(columns)), np.inf), limits_of(space)
    where: dict[int, Keyed] = {}

    def judge(rows: Integers) -> Integers:
        # Invariant: least_key is the smallest key under each label among the configurations judged so far.
        fast = values(space, rows, space.depths[-1:])[:, 0] >= least[labels[rows[-1]]]  # the deepest is never slower
        rows = rows[:, fast]
        load = loads(space, rows, limits.seconds(rows))
        enough = _values_of(space, rows, load, space.depths) >= least[labels[rows[-1]], None]
        longest = 1 / np.maximum(least[labels[rows[-1]]] * space.at.divisor[rows[-1]], 1e-200)
        cores = limits.cores(rows, load, longest)
        keys = _keys(space, rows, np.array(space.depths)[enough.argmax(axis=1)], cores)[:, columns]
        keep = np.flatnonzero(enough[:, -1] & comes_before(keys, least_key[labels[rows[-1]]]))
        # The smallest depth that is fast enough also needs the least memory.
        possible = _possible(space, rows[:, keep], without)[np.arange(keep.size), enough[keep].argmax(axis=1)]
        keep = keep[possible]
        keep = keep[np.lexsort(keys[keep].T[::-1])]
        rows, keys = rows[:, keep], keys[keep]
        whole = np.flatnonzero(single(space, rows))
        for label, first in zip(*np.unique(labels[rows[-1, whole]], return_index=True), strict=True):
            key = keys[whole[first]]
            least_key[label] = key
            where[int(label)] = Keyed(tuple(map(float, key)), rows[:, whole[first]], int(key[order.index(TIE[2])]))
        return rows

    descend(space, start, judge)
    return sorted(where.values(), key=lambda keyed: keyed.key)


def _keys(space: Space, rows: Integers, depth: Integers, least_cores: Reals) -> Reals:
    """``tie_key`` of rows, with ranks for the options' own keys: [R, 5 + P]. No more than of what a row stands for."""
    cores, seconds, ranks = space.at.cores[rows[-1]], np.zeros(rows.shape[1]), list[Reals]()
    for _, _, column, node in by_part(space, rows):
        cores += column.cores[node]
        seconds += column.seconds[node]
        ranks.append(column.rank[node])
    closer = np.maximum(cores, np.where(single(space, rows), 0.0, least_cores - 1e-9 * np.ceil(least_cores % 1)))
    return np.column_stack([space.at.devices[rows[-1]], space.at.nbytes[rows[-1]], depth, closer, seconds, *ranks])


def _possible(space: Space, rows: Integers, without: Integers | None) -> Booleans:
    """Whether rows may fit into the budgets at each depth (and are not the one left out): [R, depths]."""
    other = np.ones(rows.shape[1]) if without is None else (rows != without[:, None]).any(axis=0)
    possible: Booleans = np.logical_and(affordable(space, rows), other[:, None])
    return possible
