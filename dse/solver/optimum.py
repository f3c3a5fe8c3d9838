"""The largest value in a space, and the smallest key of what is worth enough, each by one descent.

Bounds of what a group stands for are closer by what budgets leave, and by what a value asks for: the choices of a group
that a row can still have take no more of a budget than the rest of the row leaves, so they take at least so many
seconds; and where a row is to reach a value, they take at most so many seconds, so at least so many cores. Both are
looked up in steps; limits are taken a bit wider than they are, as sums of floats come out.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .images import Integers
from .problem import LOOP, PARTS
from .settings import Booleans
from .space import Load, Nodes, Space, affordable, by_part, expanded, loads, needs, single
from .throughput import Reals, steps_per_second

ROWS = 1 << 14  # judged at once; some 300 bytes each
ORDER = tuple(PARTS.index(part) for part in ("learner", "sampling", "updating", "storage", "actors"))
"""Parts in the order in which their axes are opened: what decides most comes first. Answers do not depend on it."""

Judge = Callable[[Integers], Integers]
"""Takes rows, notes the best among those that are configurations, returns those that may still win, best first."""


def descend(space: Space, start: Integers, judge: Judge) -> None:
    """Judges everything that may win, best first."""
    axes = list(dict.fromkeys(space.stages[place][1] for place in ORDER))
    sizes = [nodes.size[own] for nodes, own in zip(space.nodes, space.at.groups[:, start[-1]], strict=True)]
    if np.prod(sizes, axis=0, dtype=np.float64).sum() <= ROWS / 4:  # quicker all at once
        judge(functools.reduce(functools.partial(expanded, space), axes, start))
        return
    for first in range(0, start.shape[1], ROWS):
        _open(space, start[:, first : first + ROWS], axes, judge)


def _open(space: Space, rows: Integers, axes: list[int], judge: Judge) -> None:
    """Opens ``axes``, which are groups in ``rows``."""
    rows = judge(rows)
    if not axes:
        return
    step = max(1, ROWS // int(space.nodes[axes[0]].size.max()))
    for first in range(0, rows.shape[1], step):
        # Invariant: whatever the rows before stood for is judged, so this block may be beaten by now.
        block = judge(rows[:, first : first + step])
        if block.size:
            _open(space, expanded(space, block, axes[0]), axes[1:], judge)


def comes_before(keys: Reals, bound: Reals) -> Booleans:
    """Whether keys come before others, component by component: [R]."""
    below = np.zeros(len(keys), dtype=np.bool_)
    for component in reversed(range(keys.shape[1])):
        here, there = keys[:, component], bound[:, component]
        below = (here < there) | ((here == there) & below)
    return below


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


STEPS = 256
WIDER = 1 + 1e-9
NONE = 1e200  # seconds, or cores, of a choice that is not there


class Steps:
    """The least that a group's choices ``give``, of those that ``take`` at most so much: [choices] each."""

    def __init__(self, nodes: Nodes, take: Reals, give: Reals) -> None:
        values = np.unique(take)
        # Choices below a step: with fewer steps than values some count that take more, so a bound stays one.
        self._steps = values if values.size <= STEPS else values[:: -(-values.size // STEPS)]
        self._least = np.full((nodes.size.size, self._steps.size + 1), NONE)
        group = np.repeat(np.arange(nodes.size.size), nodes.size)
        np.minimum.at(self._least, (group, np.searchsorted(self._steps, take, side="right")), give)
        np.minimum.accumulate(self._least, axis=1, out=self._least)

    def least(self, group: Integers, limit: Reals) -> Reals:
        """What choices of groups [R] within limits [R] give at least."""
        result: Reals = self._least[group, np.searchsorted(self._steps, limit, side="right")]
        return result


def limits_of(space: Space) -> "Limits":
    """The bounds of a space, kept with it."""
    limits: Limits = vars(space).setdefault("_limits", Limits(space))
    return limits


class Limits:
    """Bounds of rows of a space; steps are made when they are first asked for."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._by_need = functools.cache(self._steps_by_need)
        self._by_time = functools.cache(self._steps_by_time)
        self._varying = functools.cache(self._varying_needs)

    def seconds(self, rows: Integers) -> Reals | None:
        """Seconds that parts of rows take at least, 0 where their axis is no group: [P, R]. None without any group."""
        space, least = self._space, np.zeros((len(PARTS), rows.shape[1]))
        if single(space, rows).all():
            return None
        depth = space.depths[0]
        total = needs(space, rows, depth)
        for p, (_, a, c) in enumerate(space.stages):
            group = rows[a] - len(space.nodes[a].choices)
            if (group < 0).any():
                continue
            for b in self._varying(a):
                own = sum(one.needs[rows[a], b] + depth * one.ahead[rows[a], b] for one in space.nodes[a].columns)
                left = (space.have[b] * WIDER - (total[:, b] - own)) * WIDER
                np.maximum(least[p], self._by_need(a, b, c).least(group, left), out=least[p])
        return least

    def cores(self, rows: Integers, load: Load, longest: Reals) -> Reals:
        """Cores that rows take at least if a step is to take at most ``longest`` [R] seconds: [R]."""
        space, setting = self._space, rows[-1]
        if single(space, rows).all():
            return np.zeros(rows.shape[1])
        cores = np.zeros((len(space.nodes), rows.shape[1]))
        for p, part, column, node in by_part(space, rows):
            a = space.stages[p][1]
            group = node - len(space.nodes[a].choices)
            if (group < 0).any():
                cores[a] += column.cores[node]
                continue
            others = np.where(space.at.member[p, setting], load.busy - load.spent[p][:, None], -np.inf).max(axis=1)
            left = longest - others
            if part in LOOP:
                left = np.minimum(left, longest * (space.depths[-1] + 1) - (load.loop - load.spent[p]))
            left = (left + longest * 1e-9) / space.at.slow[p, setting] * WIDER
            np.maximum(cores[a], self._by_time(a, space.stages[p][2]).least(group, left), out=cores[a])
        result: Reals = space.at.cores[setting] + cores.sum(axis=0)
        return result

    def _varying_needs(self, a: int) -> list[int]:
        """Budgets of which the choices of an axis do not all need the same."""
        return [b for b in range(len(self._space.budgets)) if np.ptp(self._needs_of(a, b)) > 0]

    def _needs_of(self, a: int, b: int) -> Reals:
        """What the choices of an axis need of a budget at the smallest depth."""
        nodes, depth = self._space.nodes[a], self._space.depths[0]
        count = len(nodes.choices)
        result: Reals = np.sum([one.needs[:count, b] + depth * one.ahead[:count, b] for one in nodes.columns], axis=0)
        return result

    def _steps_by_need(self, a: int, b: int, c: int) -> Steps:
        nodes = self._space.nodes[a]
        return Steps(nodes, self._needs_of(a, b), nodes.columns[c].seconds[: len(nodes.choices)])

    def _steps_by_time(self, a: int, c: int) -> Steps:
        nodes = self._space.nodes[a]
        count = len(nodes.choices)
        cores = np.sum([column.cores[:count] for column in nodes.columns], axis=0)
        return Steps(nodes, nodes.columns[c].seconds[:count], cores)
