"""Why nothing fits: the budgets and links that bind, and how much of each would do.

Every configuration breaks some limits: budgets it exceeds, ways it needs that are not there. A **repair** is a smallest
set of limits such that some configuration breaks just these: lift them and it can be had. Where several budgets bind
only together, they are one repair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .equal_devices import Classes, Words
from .images import Integers
from .optimum import comes_before, descend
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
    """Nothing fits; each of ``repairs`` would change that. None of them is part of another, or of a mirror image."""

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
    smallest.sort(key=lambda limits: (len(limits), keys_of[limits][0], sorted(map(str, limits))))
    alone = _first_of_images(space.classes, smallest)
    repairs = [_repair(space, limits, keys_of[limits]) for limits in alone]
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


def _first_of_images(classes: Classes, ordered: Sequence[Limits]) -> list[Limits]:
    """Limits but those that have a mirror image, or part of one, before them."""
    kept: list[Limits] = []
    for limits in ordered:
        if not classes or not any(_within(classes, other, limits) for other in kept):
            kept.append(limits)
    return kept


def _within(classes: Classes, part: Limits, whole: Limits) -> bool:
    """Whether a mirror image of limits is among others."""
    place = {device: c for c, devices in enumerate(classes) for device in devices}
    words = Words(place)

    def mentioned(limit: str | tuple[str, str]) -> list[str]:
        return sorted(words.of(limit)) if isinstance(limit, str) else [name for name in limit if name in place]

    def renamed(limit: str | tuple[str, str], image: Mapping[str, str]) -> str | tuple[str, str]:
        if isinstance(limit, str):
            return words.replaced(limit, lambda name: image[name])
        return image.get(limit[0], limit[0]), image.get(limit[1], limit[1])

    def fits(limits: list[str | tuple[str, str]], image: dict[str, str]) -> bool:
        # Invariant: with this image the limits before these are among the others.
        if not limits:
            return True
        free = next((name for name in mentioned(limits[0]) if name not in image), None)
        if free is None:
            return renamed(limits[0], image) in whole and fits(limits[1:], image)
        others = (name for name in classes[place[free]] if name not in image.values())
        return any(fits(limits, {**image, free: name}) for name in others)

    return len(part) <= len(whole) and fits(sorted(part, key=lambda limit: len(mentioned(limit))), {})
