"""Why nothing fits: the budgets and links that bind, and how much of each would do.

Every configuration breaks some limits: budgets it exceeds, ways it needs that are not there. A **repair** is a smallest
set of limits such that some configuration breaks just these: lift them and it can be had. Where several budgets bind
only together, they are one repair.
"""

from dataclasses import dataclass

import numpy as np

from .descent import comes_before, descend
from .settings import Integers
from .space import Space, needs, roots, single
from .throughput import Reals

Limits = frozenset[str | tuple[str, str]]
"""Budgets by name, ways by (from, to)."""


@dataclass(frozen=True)
class Repair:
    """Enough by itself. ``budgets``: name to (have, need), ``ways`` to add.

    The need is the smallest one of the configurations that break only these limits; with several budgets that of the
    configuration whose largest need / have is the smallest.
    """

    budgets: dict[str, tuple[float, float]]
    ways: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        short = [f"{name} has {have:g} of {need:g}" for name, (have, need) in self.budgets.items()]
        return " and ".join(short + [f"no link from {source} to {target}" for source, target in self.ways])


@dataclass(frozen=True)
class Infeasible:
    """Nothing fits; each of ``repairs`` would change that. None of them is part of another."""

    repairs: tuple[Repair, ...]
    configurations: int

    def __str__(self) -> str:
        return "nothing fits: " + "; or ".join(map(str, self.repairs))


def infeasible(space: Space) -> Infeasible:
    """The smallest sets of limits to lift, for a space in which nothing fits."""
    names: tuple[str | tuple[str, str], ...] = (*space.budgets, *space.at.routes)
    keys_of: dict[Limits, Reals] = {}

    def judge(rows: Integers) -> Integers:
        need = needs(space, rows, space.depths[0])
        broken = np.hstack([need > space.have, space.at.missing[rows[-1]]])
        keys = _keys(space, need)
        left = []
        for pattern in np.unique(broken, axis=0):
            limits = frozenset(name for name, is_broken in zip(names, pattern, strict=True) if is_broken)
            if any(other < limits for other in keys_of):
                continue
            here = np.flatnonzero((broken == pattern).all(axis=1))
            if limits in keys_of:
                here = here[comes_before(keys[here], np.broadcast_to(keys_of[limits], keys[here].shape))]
            here = here[np.lexsort(keys[here].T[::-1])]
            if here.size and single(space, rows)[here[0]]:
                keys_of[limits] = keys[here[0]]
            left.append((len(limits), here))
        ordered = [here for _, here in sorted(left, key=lambda item: item[0])]
        return rows[:, np.concatenate(ordered)] if ordered else rows[:, :0]

    descend(space, roots(space, np.arange(space.at.groups.shape[1])), judge)
    smallest = [limits for limits in keys_of if not any(other < limits for other in keys_of)]
    repairs = [_repair(space, limits, keys_of[limits]) for limits in smallest]
    repairs.sort(key=lambda repair: (len(repair.budgets) + len(repair.ways), str(repair)))
    return Infeasible(tuple(repairs), space.raw)


def _keys(space: Space, need: Reals) -> Reals:
    """The largest need / have of a row, then its needs, all 0 where a budget suffices: [R, 1 + B]."""
    short = np.where(need > space.have, need, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(short > 0, short / space.have, 0.0)
    return np.column_stack([excess.max(axis=1, initial=0.0), short])


def _repair(space: Space, limits: Limits, key: Reals) -> Repair:
    budgets = {
        name: (float(have), float(need))
        for name, have, need in zip(space.budgets, space.have, key[1:], strict=True)
        if name in limits
    }
    return Repair(budgets, tuple(sorted(limit for limit in limits if isinstance(limit, tuple))))
