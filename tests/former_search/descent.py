"""Opening what may still win: rows of groups, part by part, the most promising first.

A row of groups (``space.py``) is judged with the sums of single configurations, so it bounds whatever it stands for.
Whoever searches says what to keep; what is not kept is dropped with all it stands for.
"""

from collections.abc import Callable, Iterator

import numpy as np

from dse.solver.problem import PARTS

from .space import Booleans, Integers, Reals, Space

ROWS = 1 << 14  # judged at once; some 300 bytes each
OPENED = tuple(PARTS.index(part) for part in ("learner", "sampling", "updating", "storage", "actors"))
"""Parts in the order in which they are opened: what decides most comes first. Any order gives the same answers."""

Judge = Callable[[Integers], Integers]
"""Takes rows, notes the best among those that are single configurations, gives those that may still win, best first."""


def descend(space: Space, start: Integers, judge: Judge) -> None:
    """Judges everything that may win, best first and at most about ``ROWS`` at a time."""
    for first in range(0, start.shape[1], ROWS):
        _open(space, judge(start[:, first : first + ROWS]), 0, judge)


def _open(space: Space, rows: Integers, opened: int, judge: Judge) -> None:
    """Opens the parts from ``OPENED[opened]`` on in rows that are judged and in order."""
    if opened == len(OPENED) or not rows.shape[1]:
        return
    for block in _blocks(rows, _sizes(space, rows, OPENED[opened])):
        left = judge(block)  # others may have won meanwhile
        until = opened
        while until < len(OPENED) and (until == opened or _sizes(space, left, OPENED[until]).sum() <= ROWS):
            left = _expand(space, left, OPENED[until])
            until += 1
        _open(space, judge(left), until, judge)


def _sizes(space: Space, rows: Integers, part: int) -> Integers:
    """How many options the groups of a part have, by row."""
    nodes = space.nodes[part]
    sizes: Integers = nodes.size[rows[part] - len(nodes.options)]
    return sizes


def _blocks(rows: Integers, sizes: Integers) -> Iterator[Integers]:
    """Rows in turn, as many as open into ``ROWS``, at least one."""
    block = (np.cumsum(sizes) - sizes) // ROWS
    for stop in np.flatnonzero(np.diff(block, append=-1)):
        yield rows[:, np.searchsorted(block, block[stop]) : stop + 1]


def _expand(space: Space, rows: Integers, part: int) -> Integers:
    """Every row once for each option of its group of a part."""
    nodes = space.nodes[part]
    group = rows[part] - len(nodes.options)
    size = nodes.size[group]
    expanded = np.repeat(rows, size, axis=1)
    expanded[part] = np.arange(size.sum()) + np.repeat(nodes.start[group] - (np.cumsum(size) - size), size)
    return expanded


def single(space: Space, rows: Integers) -> bool:
    """Whether rows are configurations: all parts of a block are opened together."""
    return rows.shape[1] > 0 and all(rows[p, 0] < len(nodes.options) for p, nodes in enumerate(space.nodes))


def comes_before(keys: Reals, bound: Reals) -> Booleans:
    """Whether keys come before others, component by component: [R]."""
    below = np.zeros(len(keys), dtype=np.bool_)
    for component in reversed(range(keys.shape[1])):
        here, there = keys[:, component], bound[:, component]
        below = (here < there) | ((here == there) & below)
    return below
