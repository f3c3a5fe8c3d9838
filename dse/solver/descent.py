"""Branch and bound: opening what may still win, axis after axis, the most promising rows first.

A row of groups (``space.py``) is judged with the sums of single configurations, so it bounds whatever it stands for.
Whoever searches says which rows to keep; a row that is dropped is dropped with all it stands for.
"""

import functools
from collections.abc import Callable

import numpy as np

from .images import Integers
from .problem import PARTS
from .settings import Booleans
from .space import Space, expanded
from .throughput import Reals

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
