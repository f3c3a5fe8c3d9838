"""A problem as arrays: what to add up for many configurations at once, in the order in which ``outcome`` adds.

A **group** is what a part can run on: its options on one device and engine. Once every part has a group, which is a
**setting**, all that does not depend on the options themselves is known: who shares an engine, which links are used,
devices, bytes. A **node** of a part is an option, or a group that stands for its options, with the least seconds and
the least of each need. So a row with groups in it is never worse than any configuration it stands for: the same sums
give a bound.

Letters: P the five parts, S settings, R rows, W engines (links too, and one more for "none"), B budgets that can bind.
A row is a node for each part and a setting: integers [P + 1, R].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.solver.problem import LOOP, PARTS, Configuration, Flow, Option, Part, Problem, ProblemError

from .objectives import Objective, cores, option_key, undominated

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Nodes:
    """Of one part: its undominated options, group after group, then its groups.

    ``rank``: place in ``option_key`` order among all options of the part, ``needs`` [nodes, B]. ``start`` and ``size``
    by group: where its options are. ``groups``: (device, engine).
    """

    options: tuple[Option, ...]
    groups: tuple[tuple[str, str], ...]
    start: Integers
    size: Integers
    seconds: Reals
    cores: Reals
    rank: Reals
    needs: Reals


@dataclass(frozen=True)
class Space:
    """Of a problem. By setting: ``settings`` [P, S] the groups, ``slow`` [P, S] factors on seconds, ``engine`` [P, S].

    Also [S]: ``links`` [S, W] seconds that transfers keep engines busy, ``waits`` seconds of them that a batch waits,
    ``nbytes`` moved, whether a way is ``missing``, how many ``devices``, what to divide throughput by (``divisor``:
    watts, or 1), and a number for each ``mapping`` of parts to devices and for each set of devices ``used``.
    """

    problem: Problem
    objective: Objective
    nodes: tuple[Nodes, ...]
    settings: Integers
    slow: Reals
    engine: Integers
    links: Reals
    waits: Reals
    nbytes: Reals
    missing: Booleans
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
        """Combinations of options and depths, dominated ones and all."""
        return math.prod(len(self.problem.options[part]) for part in PARTS) * len(self.problem.depths)

    @property
    def reduced(self) -> int:
        """The same without dominated options and repeated depths."""
        return math.prod(len(nodes.options) for nodes in self.nodes) * len(self.depths)


def build(problem: Problem, objective: Objective) -> Space:
    """ProblemError for ``per_watt`` where the watts of a device are not stated."""
    depths = tuple(sorted(set(problem.depths)))
    reduced = {part: _groups(problem, part) for part in PARTS}
    budgets = _scarce(problem, reduced)
    nodes = tuple(_nodes(problem, reduced[part], budgets) for part in PARTS)
    shape = [len(part.groups) for part in nodes]
    settings = np.indices(shape).reshape(len(PARTS), -1).astype(np.int64)
    devices = sorted({group[0] for part in nodes for group in part.groups} | set(problem.hosts))
    engines = sorted(
        {group[1] for part in nodes for group in part.groups}
        | {hop.engine for way in problem.ways.values() for hop in way}
    )
    device = _places(nodes, settings, devices, 0)
    engine = _places(nodes, settings, engines, 1)
    used = np.zeros((len(devices), settings.shape[1]), dtype=np.bool_)
    used[[devices.index(host) for host in problem.hosts]] = True
    for row in device:
        used[row, np.arange(row.size)] = True
    links, waits, nbytes, missing = _traffic(problem, device, devices, engines, objective != "training")
    return Space(
        problem,
        objective,
        nodes,
        settings,
        _slowdown(problem, device, engine, devices),
        engine,
        links,
        waits,
        nbytes,
        missing,
        used.sum(axis=0),
        _watts(problem, devices, used) if objective == "per_watt" else np.ones(used.shape[1]),
        _label(device),
        _label(used.astype(np.int64)),
        budgets,
        np.array([problem.budgets[name] for name in budgets]),
        depths,
    )


def _places(nodes: Sequence[Nodes], settings: Integers, names: Sequence[str], which: int) -> Integers:
    """Place among ``names`` of each part's device (0) or engine (1): [P, S]."""
    places = [np.array([names.index(group[which]) for group in part.groups]) for part in nodes]
    return np.stack([place[chosen] for place, chosen in zip(places, settings, strict=True)])


def _groups(problem: Problem, part: Part) -> dict[tuple[str, str], tuple[Option, ...]]:
    """Undominated options by (device, engine)."""
    groups: dict[tuple[str, str], list[Option]] = {}
    for option in problem.options[part]:
        groups.setdefault((option.device, option.engine), []).append(option)
    return {group: undominated(problem, groups[group]) for group in sorted(groups)}


def _scarce(problem: Problem, reduced: dict[Part, dict[tuple[str, str], tuple[Option, ...]]]) -> tuple[str, ...]:
    """Budgets that some configuration exceeds: for the others nothing need be added up."""
    names = []
    for budget in sorted(problem.budgets):
        most = 0.0
        for groups in reduced.values():
            most += max(option.needs.get(budget, 0.0) for group in groups.values() for option in group)
        if most > problem.budgets[budget]:
            names.append(budget)
    return tuple(names)


def _nodes(problem: Problem, reduced: dict[tuple[str, str], tuple[Option, ...]], budgets: tuple[str, ...]) -> Nodes:
    options = [option for group in reduced.values() for option in group]
    size = np.array([len(group) for group in reduced.values()])
    start = np.cumsum(size) - size
    ordered = sorted(range(len(options)), key=lambda place: option_key(problem, options[place]))
    rank = np.empty(len(options))
    rank[ordered] = np.arange(len(options))
    columns = [
        np.array([option.seconds for option in options]),
        np.array([cores(option) for option in options], dtype=np.float64),
        rank,
        np.array([[option.needs.get(name, 0.0) for name in budgets] for option in options], dtype=np.float64),
    ]
    whole = [np.concatenate([column, np.minimum.reduceat(column, start, axis=0)]) for column in columns]
    return Nodes(tuple(options), tuple(reduced), start, size, whole[0], whole[1], whole[2], whole[3])


def _slowdown(problem: Problem, device: Integers, engine: Integers, devices: Sequence[str]) -> Reals:
    factor = np.ones(device.shape)
    for p, part in enumerate(PARTS):
        for q, other in enumerate(PARTS):
            stated = np.array([problem.slowdown.get((part, other, name), 1.0) for name in devices])
            if part != other and (stated != 1).any():
                beside = (device[p] == device[q]) & (engine[p] != engine[q])
                factor[p] *= np.where(beside, stated[device[p]], 1.0)
    return factor


def _watts(problem: Problem, devices: Sequence[str], used: Booleans) -> Reals:
    """Of each setting, added in the order of ``outcome``."""
    unknown = [device for device in devices if not problem.watts.get(device, 0.0) > 0]
    if unknown:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
    total = np.zeros(used.shape[1])
    for device, inside in zip(devices, used, strict=True):
        total += np.where(inside, problem.watts[device], 0.0)
    return total


def _traffic(
    problem: Problem, device: Integers, devices: Sequence[str], engines: Sequence[str], with_actors: bool
) -> tuple[Reals, Reals, Reals, Booleans]:
    """``links``, ``waits``, ``nbytes`` and ``missing`` of ``Space``."""
    settings = np.arange(device.shape[1])
    links = np.zeros((settings.size, len(engines) + 1))
    waits, nbytes, missing = np.zeros(settings.size), np.zeros(settings.size), np.zeros(settings.size, dtype=np.bool_)
    pairs = [(source, target) for source in devices for target in devices]
    for flow in (flow for flow in problem.flows if flow.nbytes):
        pair = device[PARTS.index(flow.source)] * len(devices) + device[PARTS.index(flow.target)]
        absent = np.array([source != target and (source, target) not in problem.ways for source, target in pairs])
        missing |= absent[pair]
        for engine, taken in _hops(problem, flow, pairs, engines):
            nbytes += np.where(engine[pair] < len(engines), flow.nbytes, 0.0)
            if with_actors or "actors" not in (flow.source, flow.target):
                links[settings, engine[pair]] += taken[pair]
            if flow.waits:
                waits += taken[pair]
    return links, waits, nbytes, missing


def _hops(
    problem: Problem, flow: Flow, pairs: Sequence[tuple[str, str]], engines: Sequence[str]
) -> list[tuple[Integers, Reals]]:
    """The first, second ... hop of a flow: (engine, seconds) by pair of devices, 0 s on the last engine for none."""
    ways = [problem.ways.get(pair, ()) if pair[0] != pair[1] else () for pair in pairs]
    hops = []
    for place in range(max(map(len, ways))):
        engine, taken = np.full(len(pairs), len(engines)), np.zeros(len(pairs))
        for pair, way in enumerate(ways):
            if place < len(way):
                engine[pair] = engines.index(way[place].engine)
                taken[pair] = flow.times * way[place].alpha_seconds + flow.nbytes * way[place].seconds_per_byte
        hops.append((engine, taken))
    return hops


def _label(columns: NDArray[Any]) -> Integers:
    """The same number for equal columns."""
    label: Integers = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return label


def legal_roots(space: Space) -> Integers:
    """Rows of all settings whose ways are there."""
    return roots(space, np.flatnonzero(~space.missing))


def roots(space: Space, settings: Integers) -> Integers:
    """Rows [P + 1, R] of settings, all parts still groups."""
    options = np.array([len(nodes.options) for nodes in space.nodes])
    return np.vstack([space.settings[:, settings] + options[:, None], settings[None]])


def loads(space: Space, rows: Integers) -> tuple[Reals, Reals]:
    """Seconds [R] of the busiest engine, and of the loop."""
    setting = rows[-1]
    busy = space.links[setting]
    flat, first = busy.reshape(-1), np.arange(setting.size) * busy.shape[1]
    loop = space.waits[setting]
    for p, part in enumerate(PARTS):
        spent = space.nodes[p].seconds[rows[p]] * space.slow[p, setting]
        if part in space.counted:
            flat[first + space.engine[p, setting]] += spent
        if part in LOOP:
            loop += spent
    return busy.max(axis=1), loop


def needs(space: Space, rows: Integers) -> Reals:
    """What rows need of ``space.budgets`` [R, B]."""
    total = np.zeros((rows.shape[1], len(space.budgets)))
    for nodes, node in zip(space.nodes, rows[:-1], strict=True):
        total += nodes.needs[node]
    return total


def configuration(space: Space, row: Integers, depth: int) -> Configuration:
    """Of a row [P + 1] without groups."""
    actors, sampling, storage, learner, updating = (
        nodes.options[int(node)] for nodes, node in zip(space.nodes, row[:-1], strict=True)
    )
    return Configuration(actors, sampling, storage, learner, updating, depth)
