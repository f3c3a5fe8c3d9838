"""Closer bounds of what a group stands for: what budgets leave, and what a value asks for.

The choices of a group that a row can still have take no more of a budget than the rest of the row leaves, so they take
at least so many seconds; and where a row is to reach a value, they take at most so many seconds, so at least so many
cores. Both are looked up in steps; limits are taken a bit wider than they are, as sums of floats come out.
"""

import functools

import numpy as np

from .images import Integers
from .problem import LOOP, PARTS
from .space import Load, Nodes, Space, by_part, needs, single
from .throughput import Reals

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
