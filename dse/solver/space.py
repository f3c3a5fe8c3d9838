"""A problem as arrays: what to add up for many configurations at once, in the order of ``throughput.charges``.

A **group** is where a choice runs: the choices of an axis (a part, or the tree) with the same devices and engines. Once
every axis has a group, which is a **setting**, all that does not depend on the choices themselves is known: who shares
an engine, which links are used, devices, bytes. A **node** of an axis is a choice, or a group that stands for its
choices, with the least seconds and the least of each need. So a row with groups in it is never worse than any
configuration it stands for: the same sums give a bound.

Letters: A axes, P the five parts, S settings, R rows, W engines (links too), B budgets that can bind.
A row is a node for each axis and a setting: integers [A + 1, R].
"""

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .objectives import Objective, cores, option_key, undominated
from .problem import LOOP, PARTS, Choice, Configuration, Part, Problem, ProblemError
from .throughput import Reals, no_routes, slowdowns, transfers, used_devices, used_engines

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Group = tuple[tuple[tuple[str, str], ...], ...]


class Column(NamedTuple):
    """The options of a part, node by node; ``rank``: place in ``option_key`` order. ``needs``, ``ahead`` [nodes, B]."""

    seconds: Reals
    cores: Reals
    rank: Reals
    needs: Reals
    ahead: Reals


@dataclass(frozen=True)
class Nodes:
    """The nodes of an axis: its undominated choices, group after group, then its groups; a column for each part of it.

    ``start``, ``size``: by group, where its choices are.
    """

    choices: tuple[Choice, ...]
    start: Integers
    size: Integers
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Space:
    """A problem's arrays. By setting: ``settings`` [A, S] its groups, ``slow`` [P, S] factors on seconds, ``engine``.

    ``also`` [P, S, W]: whether a part keeps a further engine busy. ``taken`` [S, B] of budgets by engines, and their
    ``cores`` [S]. Also [S]: ``links`` [S, W] seconds that transfers keep engines busy, ``waits`` seconds of them that a
    batch waits, ``nbytes`` moved, the routes a setting ``lacks``, how many ``devices``, what to divide the rate by
    (``divisor``: watts, or 1), and a number for each ``mapping`` of parts to devices and for each set of devices
    ``used``.
    ``stages``: (part, axis, column of the axis' nodes) in the order of ``PARTS``.
    """

    problem: Problem
    objective: Objective
    nodes: tuple[Nodes, ...]
    stages: tuple[tuple[Part, int, int], ...]
    settings: Integers
    lacks: tuple[frozenset[tuple[str, str]], ...]
    slow: Reals
    engine: Integers
    also: Booleans
    taken: Reals
    cores: Reals
    links: Reals
    waits: Reals
    nbytes: Reals
    devices: Integers
    divisor: Reals
    mapping: Integers
    used: Integers
    budgets: tuple[str, ...]
    have: Reals
    depths: tuple[int, ...]

    @property
    def counted(self) -> tuple[Part, ...]:
        """Parts that keep engines busy. Without actors and their traffic in ``training``, as in ``training_hz``."""
        return LOOP if self.objective == "training" else PARTS

    @property
    def raw(self) -> int:
        """Combinations of choices and depths, dominated ones and all."""
        return math.prod(map(len, self.problem.axes)) * len(self.problem.depths)

    @property
    def reduced(self) -> int:
        """The same without dominated choices and repeated depths."""
        return math.prod(len(nodes.choices) for nodes in self.nodes) * len(self.depths)


def build(problem: Problem, objective: Objective) -> Space:
    """The arrays. ProblemError for ``per_watt`` where the watts of a device are not stated."""
    axes = [_groups(problem, choices) for choices in problem.axes]
    budgets = _scarce(problem, axes)
    settings = np.indices([len(groups) for groups in axes]).reshape(len(axes), -1).astype(np.int64)
    there = [_configuration([groups[g][0] for groups, g in zip(axes, chosen, strict=True)]) for chosen in settings.T]
    lacks = tuple(frozenset(no_routes(problem, one)) for one in there)
    traffic = [
        _traffic(problem, one, objective) if not lack else ({}, 0.0, 0.0)
        for one, lack in zip(there, lacks, strict=True)
    ]
    engines = {engine for one in there for engine in used_engines(one)}
    index = {name: w for w, name in enumerate(sorted(engines.union(*(busy for busy, _, _ in traffic))))}
    links = np.zeros((len(there), len(index)))
    for setting, (busy, _, _) in enumerate(traffic):
        for engine, taken in busy.items():
            links[setting, index[engine]] = taken
    devices = [used_devices(problem, one) for one in there]
    own = [[problem.engines.get(engine, {}) for engine in used_engines(one)] for one in there]
    parts = [tuple(option.part for option in groups[0][0]) for groups in axes]
    return Space(
        problem,
        objective,
        nodes=tuple(_nodes(problem, groups, budgets) for groups in axes),
        stages=tuple((part, a, axis.index(part)) for part in PARTS for a, axis in enumerate(parts) if part in axis),
        settings=settings,
        lacks=lacks,
        slow=np.array([slowdowns(problem, one) for one in there]).T,
        engine=np.array([[index[option.engine] for option in one.options] for one in there]).T,
        also=_also(there, index),
        taken=np.array([[sum(one.get(name, 0.0) for one in taken) for name in budgets] for taken in own]),
        cores=np.array([sum(map(cores, taken)) for taken in own], dtype=np.float64),
        links=links,
        waits=np.array([waits for _, waits, _ in traffic]),
        nbytes=np.array([nbytes for _, _, nbytes in traffic]),
        devices=np.array([len(used) for used in devices]),
        divisor=_watts(problem, devices) if objective == "per_watt" else np.ones(len(there)),
        mapping=_label([mapping_of(one) for one in there]),
        used=_label(devices),
        budgets=budgets,
        have=np.array([problem.budgets[name] for name in budgets]),
        depths=tuple(sorted(set(problem.depths))),
    )


def group_of(choice: Choice) -> Group:
    """Where a choice runs: every (device, engine) of each of its parts."""
    return tuple(option.where for option in choice)


def mapping_of(configuration: Configuration) -> tuple[tuple[str, ...], ...]:
    """The devices of each part."""
    return tuple(tuple(device for device, _ in option.where) for option in configuration.options)


def _also(there: Sequence[Configuration], index: Mapping[str, int]) -> Booleans:
    """See ``Space``."""
    result = np.zeros((len(PARTS), len(there), len(index)), dtype=np.bool_)
    for setting, one in enumerate(there):
        for p, option in enumerate(one.options):
            for _, engine in option.also:
                result[p, setting, index[engine]] = True
    return result


def _groups(problem: Problem, choices: Sequence[Choice]) -> list[tuple[Choice, ...]]:
    """The undominated choices of each group, groups in order."""
    groups: dict[Group, list[Choice]] = {}
    for choice in choices:
        groups.setdefault(group_of(choice), []).append(choice)
    return [undominated(problem, groups[group]) for group in sorted(groups)]


def _scarce(problem: Problem, axes: Sequence[Sequence[Sequence[Choice]]]) -> tuple[str, ...]:
    """Budgets that some configuration may exceed: for the others nothing need be added up."""
    most, deepest = dict.fromkeys(sorted(problem.budgets), 0.0), max(problem.depths)
    for name in most:
        most[name] += sum(needs.get(name, 0.0) for needs in problem.engines.values())
    for groups in axes:
        for column in zip(*(choice for group in groups for choice in group), strict=True):
            for name in most:
                most[name] += max(
                    option.needs.get(name, 0.0) + deepest * option.ahead.get(name, 0.0) for option in column
                )
    return tuple(name for name, amount in most.items() if amount > problem.budgets[name])


def _nodes(problem: Problem, groups: Sequence[tuple[Choice, ...]], budgets: tuple[str, ...]) -> Nodes:
    choices = tuple(choice for group in groups for choice in group)
    size = np.array([len(group) for group in groups])
    start = np.cumsum(size) - size
    columns = []
    for options in zip(*choices, strict=True):
        keys = [option_key(problem, option) for option in options]
        place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
        arrays = (
            np.array([option.seconds for option in options]),
            np.array([cores(option.needs) for option in options], dtype=np.float64),
            np.array([place[key] for key in keys], dtype=np.float64),
            *(
                np.array([[taken.get(name, 0.0) for name in budgets] for taken in column], dtype=np.float64)
                for column in ([option.needs for option in options], [option.ahead for option in options])
            ),
        )
        columns.append(Column(*(np.concatenate([own, np.minimum.reduceat(own, start, axis=0)]) for own in arrays)))
    return Nodes(choices, start, size, tuple(columns))


def _traffic(
    problem: Problem, configuration: Configuration, objective: Objective
) -> tuple[dict[str, float], float, float]:
    """Seconds of transfers by engine, those that a batch waits, and bytes moved."""
    busy: dict[str, float] = {}
    waits = nbytes = 0.0
    for flow, hop, taken in transfers(problem, configuration):
        nbytes += flow.nbytes
        waits += taken if flow.waits else 0.0
        if objective != "training" or "actors" not in (flow.source, flow.target):
            busy[hop.engine] = busy.get(hop.engine, 0.0) + taken
    return busy, waits, nbytes


def _watts(problem: Problem, devices: Sequence[tuple[str, ...]]) -> Reals:
    """Watts of the devices of each setting, added in the order of ``outcome``."""
    unknown = sorted({device for used in devices for device in used if not problem.watts.get(device, 0.0) > 0})
    if unknown:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
    return np.array([functools.reduce(lambda total, one: total + problem.watts[one], used, 0.0) for used in devices])


def _label(keys: Sequence[tuple[Any, ...]]) -> Integers:
    """The same number for equal keys, from 0 on."""
    place = {key: number for number, key in enumerate(sorted(set(keys)))}
    return np.array([place[key] for key in keys])


def _configuration(choices: Iterable[Choice], depth: int = 0) -> Configuration:
    return Configuration(**{option.part: option for choice in choices for option in choice}, depth=depth)


def configuration(space: Space, row: Integers, depth: int) -> Configuration:
    """The configuration of a row [A + 1] without groups."""
    return _configuration((nodes.choices[node] for nodes, node in zip(space.nodes, row[:-1], strict=True)), depth)


def roots(space: Space, settings: Integers) -> Integers:
    """Rows [A + 1, R] of settings, all axes still groups."""
    choices = np.array([len(nodes.choices) for nodes in space.nodes])
    return np.vstack([space.settings[:, settings] + choices[:, None], settings[None]])


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


def loads(space: Space, rows: Integers) -> tuple[Reals, Reals]:
    """Seconds [R] of the busiest engine, and of the loop."""
    setting = rows[-1]
    busy = space.links[setting]
    flat, first = busy.reshape(-1), np.arange(setting.size) * busy.shape[1]
    loop = space.waits[setting]
    # Invariant: busy and loop are the sums of ``charges`` up to this part, in their order.
    for p, part, column, node in by_part(space, rows):
        spent = column.seconds[node] * space.slow[p, setting]
        if part in space.counted:
            flat[first + space.engine[p, setting]] += spent
            if space.also[p].any():
                busy += spent[:, None] * space.also[p, setting]
        if part in LOOP:
            loop += spent
    return busy.max(axis=1), loop


def needs(space: Space, rows: Integers, depth: Integers | int = 0) -> Reals:
    """What rows need of ``space.budgets`` at a depth, or at depths [R] of their own: [R, B]."""
    total: Reals = space.taken[rows[-1]]
    more = np.asarray(depth)[..., None]
    for _, _, column, node in by_part(space, rows):
        total += column.needs[node]
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
