"""A problem as arrays: what to add up for many configurations at once, in the order of ``throughput.charges``.

A **group** is where a choice runs: the choices of an axis (a part, or the tree) with the same devices and engines. Once
every axis has a group, which is a **setting** (``settings.py``), all that does not depend on the choices themselves is
known: who shares an engine, which links are used, devices, bytes. A **node** of an axis is a choice, or a group that
stands for its choices, with the least seconds and the least of each need. So a row with groups in it is never worse
than any configuration it stands for: the same sums give a bound, and ``limits.py`` a closer one.

Letters: A axes, P the five parts, S settings, R rows, B budgets that can bind.
A row is a node for each axis and a setting: integers [A + 1, R].
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .equal_devices import Axes, Classes, equal_devices
from .images import Integers
from .objectives import Objective, cores, option_keys, undominated
from .problem import LOOP, PARTS, Choice, Configuration, Part, Problem
from .settings import Booleans, Settings, counted, settings
from .throughput import Reals

Group = tuple[tuple[tuple[str, str], ...], ...]


class Column(NamedTuple):
    """The options of a part, node by node; ``rank``: place in ``option_keys`` order. ``needs``, ``ahead`` [nodes, B].

    ``tail``: place in the order of ``option_keys`` without seconds.
    """

    seconds: Reals
    cores: Reals
    rank: Reals
    tail: Reals
    needs: Reals
    ahead: Reals


@dataclass(frozen=True)
class Nodes:
    """The nodes of an axis: its undominated choices, group after group, then its groups; a column for each part of it.

    ``start``, ``size``: by group, where its choices are. ``numbers``: by column the evidence of each choice.
    """

    choices: tuple[Choice, ...]
    start: Integers
    size: Integers
    columns: tuple[Column, ...]
    numbers: tuple[NDArray[np.str_], ...]


@dataclass(frozen=True)
class Space:
    """A problem's arrays. ``axes``: undominated choices by axis and group; ``classes``: of equal devices.

    ``stages``: (part, axis, column of the axis' nodes) in the order of ``PARTS``.
    """

    problem: Problem
    objective: Objective
    axes: Axes
    classes: Classes
    nodes: tuple[Nodes, ...]
    stages: tuple[tuple[Part, int, int], ...]
    at: Settings
    budgets: tuple[str, ...]
    have: Reals
    depths: tuple[int, ...]

    @property
    def counted(self) -> tuple[Part, ...]:
        """Parts that keep engines busy."""
        return counted(self.objective)

    @property
    def raw(self) -> int:
        """Combinations of choices and depths, dominated ones, mirror images and all."""
        return math.prod(map(len, self.problem.axes)) * len(self.problem.depths)

    @property
    def reduced(self) -> int:
        """The same without dominated choices, mirror images and repeated depths."""
        sizes = [nodes.size[own] for nodes, own in zip(self.nodes, self.at.groups, strict=True)]
        return int(np.prod(np.array(sizes, dtype=object), axis=0).sum()) * len(self.depths)


def build(problem: Problem, objective: Objective) -> Space:
    """The arrays, made once for a problem and kept with it.

    ProblemError for ``per_watt`` where the watts of a device are not stated.
    """
    kept: dict[Objective, Space] = vars(problem).setdefault("_spaces", {})
    if objective not in kept:
        axes = [groups_of(problem, choices) for choices in problem.axes]
        kept[objective] = space_of(problem, objective, axes, equal_devices(problem, axes))
    return kept[objective]


def space_of(problem: Problem, objective: Objective, axes: list[list[tuple[Choice, ...]]], classes: Classes) -> Space:
    """The arrays of these choices, by axis and group."""
    budgets = _scarce(problem, axes)
    parts = [tuple(option.part for option in groups[0][0]) for groups in axes]
    return Space(
        problem,
        objective,
        axes,
        classes,
        nodes=tuple(_nodes(problem, groups, budgets) for groups in axes),
        stages=tuple((part, a, axis.index(part)) for part in PARTS for a, axis in enumerate(parts) if part in axis),
        at=settings(problem, objective, axes, classes, budgets),
        budgets=budgets,
        have=np.array([problem.budgets[name] for name in budgets]),
        depths=tuple(sorted(set(problem.depths))),
    )


def group_of(choice: Choice) -> Group:
    """Where a choice runs: every (device, engine) of each of its parts."""
    return tuple(option.where for option in choice)


def groups_of(problem: Problem, choices: Sequence[Choice], by_evidence: bool = False) -> list[tuple[Choice, ...]]:
    """The undominated choices of each group, groups in order. ``by_evidence``: of each evidence their times rest on."""
    groups: dict[Group, dict[tuple[str, ...], list[Choice]]] = {}
    for choice in choices:
        evidence = tuple(option.time.rests_on.number for option in choice) if by_evidence else ()
        groups.setdefault(group_of(choice), {}).setdefault(evidence, []).append(choice)
    return [
        tuple(one for each in groups[group].values() for one in undominated(problem, each)) for group in sorted(groups)
    ]


def _scarce(problem: Problem, axes: Sequence[Sequence[Sequence[Choice]]]) -> tuple[str, ...]:
    """Budgets that some configuration may exceed: for the others nothing need be added up."""
    most, deepest = dict.fromkeys(sorted(problem.budgets), 0.0), max(problem.depths)
    for needs in problem.engines.values():
        for name, amount in needs.items():
            most[name] += amount
    for groups in axes:
        for column in zip(*(choice for group in groups for choice in group), strict=True):
            largest: dict[str, float] = {}
            for option in column:
                for name in {**option.needs, **option.ahead}:
                    need = option.needs.get(name, 0.0) + deepest * option.ahead.get(name, 0.0)
                    largest[name] = max(largest.get(name, 0.0), need)
            for name, amount in largest.items():
                most[name] += amount
    return tuple(name for name, amount in most.items() if amount * (1 + 1e-9) > problem.budgets[name])


def _nodes(problem: Problem, groups: Sequence[tuple[Choice, ...]], budgets: tuple[str, ...]) -> Nodes:
    choices = tuple(choice for group in groups for choice in group)
    size = np.array([len(group) for group in groups])
    start = np.cumsum(size) - size
    columns, numbers = [], []
    for options in zip(*choices, strict=True):
        numbers.append(np.array([option.time.rests_on.number for option in options]))
        keys = option_keys(problem, options)
        place, tails = (
            {key: rank for rank, key in enumerate(sorted(set(every)))} for every in (keys, [k[1:] for k in keys])
        )
        arrays = (
            np.array([option.seconds for option in options]),
            np.array([cores(option.needs) for option in options], dtype=np.float64),
            np.array([place[key] for key in keys], dtype=np.float64),
            np.array([tails[key[1:]] for key in keys], dtype=np.float64),
            _amounts([option.needs for option in options], budgets),
            _amounts([option.ahead for option in options], budgets),
        )
        columns.append(Column(*(with_groups(own, start) for own in arrays)))
    return Nodes(choices, start, size, tuple(columns), tuple(numbers))


def with_groups(own: Reals, start: Integers) -> Reals:
    """What choices have, then the least of each group."""
    return np.concatenate([own, np.minimum.reduceat(own, start, axis=0)])


def _amounts(taken: Sequence[Mapping[str, float]], budgets: tuple[str, ...]) -> Reals:
    """What each option takes of each budget: [nodes, B]."""
    result, place = np.zeros((len(taken), len(budgets))), {name: b for b, name in enumerate(budgets)}
    for node, own in enumerate(taken):
        for name, amount in own.items():
            if name in place:
                result[node, place[name]] = amount
    return result


def _configuration(choices: Iterable[Choice], depth: int = 0) -> Configuration:
    return Configuration(**{option.part: option for choice in choices for option in choice}, depth=depth)


def configuration(space: Space, row: Integers, depth: int) -> Configuration:
    """The configuration of a row [A + 1] without groups."""
    return _configuration((nodes.choices[node] for nodes, node in zip(space.nodes, row[:-1], strict=True)), depth)


def roots(space: Space, settings: Integers) -> Integers:
    """Rows [A + 1, R] of settings, all axes still groups."""
    choices = np.array([len(nodes.choices) for nodes in space.nodes])
    return np.vstack([space.at.groups[:, settings] + choices[:, None], settings[None]])


def single(space: Space, rows: Integers) -> Booleans:
    """Whether rows are configurations, without a group: [R]."""
    choices = np.array([len(nodes.choices) for nodes in space.nodes])
    result: Booleans = np.all(rows[:-1] < choices[:, None], axis=0)
    return result


def expanded(space: Space, rows: Integers, axis: int) -> Integers:
    """Every row once for each choice of its group of an axis."""
    nodes = space.nodes[axis]
    group = rows[axis] - len(nodes.choices)
    size = nodes.size[group]
    result = np.repeat(rows, size, axis=1)
    result[axis] = np.arange(size.sum()) + np.repeat(nodes.start[group] - (np.cumsum(size) - size), size)
    return result


def by_part(space: Space, rows: Integers) -> Iterator[tuple[int, Part, Column, Integers]]:
    """(place in ``PARTS``, part, its arrays over nodes, the rows' nodes) of every part, in that order."""
    for p, (part, axis, column) in enumerate(space.stages):
        yield p, part, space.nodes[axis].columns[column], rows[axis]


class Load(NamedTuple):
    """Seconds of rows: [R, K] that slots are busy, [R] of the loop, and of each part [P, R], slowed down."""

    busy: Reals
    idle: Reals
    loop: Reals
    spent: Reals

    @property
    def busiest(self) -> Reals:
        """Seconds of the busiest engine: [R]."""
        result: Reals = np.maximum(self.busy.max(axis=1), self.idle)
        return result


def loads(space: Space, rows: Integers, least: Reals | None = None) -> Load:
    """What rows keep busy for how long. ``least`` [P, R]: seconds that parts take at least."""
    setting = rows[-1]
    busy, loop = space.at.links[setting], space.at.waits[setting]
    spent = np.empty((len(PARTS), rows.shape[1]))
    # Invariant: busy and loop are the sums of ``charges`` up to this part, in their order.
    for p, part, column, node in by_part(space, rows):
        seconds = column.seconds[node] if least is None else np.maximum(column.seconds[node], least[p])
        spent[p] = seconds * space.at.slow[p, setting]
        if part in space.counted:
            busy += spent[p][:, None] * space.at.member[p, setting]
        if part in LOOP:
            loop += spent[p]
    return Load(busy, space.at.idle[setting], loop, spent)


def needs(space: Space, rows: Integers, depth: Integers | int = 0) -> Reals:
    """What rows need of ``space.budgets`` at a depth, or at depths [R] of their own: [R, B]."""
    total: Reals = space.at.taken[rows[-1]]
    more = np.asarray(depth)[..., None]
    for _, _, column, node in by_part(space, rows):
        total += column.needs[node]
        if more.any():
            total += more * column.ahead[node]
    return total


def affordable(space: Space, rows: Integers) -> Booleans:
    """Whether rows fit the budgets at each depth: [R, depths]."""
    result: Booleans = np.column_stack(
        [(needs(space, rows, depth) <= space.have).all(axis=1) for depth in space.depths]
        if any(column.ahead.any() for nodes in space.nodes for column in nodes.columns)
        else [(needs(space, rows) <= space.have).all(axis=1)] * len(space.depths)
    )
    return result
