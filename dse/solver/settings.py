"""Which groups go together, mirror images left out, and all that is known of them before any choice is made.

Letters: A axes, P the five parts, S settings, G groups of an axis, D devices, W engines (links too), B budgets that can
bind, K slots. A **slot** stands for the engines of a setting that are kept busy by the same parts: only the one that
transfers keep busy longest can be the busiest.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .equal_devices import Axes, Classes
from .images import Integers, combined, images, label_of
from .objectives import Objective, cores
from .problem import LOOP, PARTS, Hop, Option, Part, Problem, ProblemError
from .throughput import Reals

Booleans = NDArray[np.bool_]
AT_ONCE = 1 << 13  # settings; some 10 kB each with many devices


@dataclass(frozen=True)
class Settings:
    """By setting: ``groups`` [A, S], the ``missing`` [S, routes] of ``routes``, ``slow`` [P, S] factors on seconds.

    ``links`` [S, K] seconds that transfers keep slots busy, ``member`` [P, S, K] parts that do, ``idle`` [S] seconds of
    the engine that transfers keep busy longest, of those no part runs on. ``taken`` [S, B] of budgets by engines, and
    their ``cores`` [S]. Also [S]: ``waits`` seconds of transfers that a batch waits, ``nbytes`` moved, how many
    ``devices``, what to divide the rate by (``divisor``: watts, or 1), and a number for each ``mapping`` of parts to
    devices, and for each set of devices ``used``, mirror images having the same.
    """

    groups: Integers
    routes: tuple[tuple[str, str], ...]
    missing: Booleans
    slow: Reals
    links: Reals
    member: Booleans
    idle: Reals
    taken: Reals
    cores: Reals
    waits: Reals
    nbytes: Reals
    devices: Integers
    divisor: Reals
    mapping: Integers
    used: Integers


def counted(objective: Objective) -> tuple[Part, ...]:
    """Parts that keep engines busy. Without actors and their traffic in ``training``, as in ``training_hz``."""
    return LOOP if objective == "training" else PARTS


class Tables:
    """What is known of each group of each axis, and of each pair of devices, by number of device and engine."""

    def __init__(self, problem: Problem, objective: Objective, axes: Axes, hops: Mapping[str, float]) -> None:
        firsts = [[group[0] for group in groups] for groups in axes]
        where = {pair for groups in firsts for choice in groups for option in choice for pair in option.where}
        self.devices = sorted({device for device, _ in where} | set(problem.hosts))
        links = {hop.engine for way in problem.ways.values() for hop in way}
        self.engines = sorted({engine for _, engine in where} | links)
        self.problem, self.objective = problem, objective
        self._device = {name: number for number, name in enumerate(self.devices)}
        self._engine = {name: number for number, name in enumerate(self.engines)}
        self._factors = hops
        self.device = {option.part: np.zeros(len(groups), dtype=np.int64) for groups in firsts for option in groups[0]}
        self.engine = {part: devices.copy() for part, devices in self.device.items()}
        self.axis = {option.part: a for a, groups in enumerate(firsts) for option in groups[0]}
        self.used = [np.zeros((len(groups), len(self.devices)), dtype=np.bool_) for groups in firsts]
        self.busy = [np.zeros((len(groups), len(self.engines)), dtype=np.uint8) for groups in firsts]
        for a, groups in enumerate(firsts):
            for g, choice in enumerate(groups):
                for option in choice:
                    self._place(a, g, option)

    def _place(self, a: int, g: int, option: Option) -> None:
        self.device[option.part][g] = self._device[option.device]
        self.engine[option.part][g] = self._engine[option.engine]
        for device, engine in option.where:
            self.used[a][g, self._device[device]] = True
            self.busy[a][g, self._engine[engine]] |= 1 << PARTS.index(option.part)

    def route(self, source: int, target: int) -> tuple[Hop, ...] | None:
        """The hops between two devices, none where they are one, None where there is no route."""
        return () if source == target else self.problem.ways.get((self.devices[source], self.devices[target]))

    def seconds(self, hop: Hop, times: float, nbytes: float) -> float:
        """How long a transfer keeps a hop busy, as ``throughput.transfers`` adds it up."""
        factor = self._factors.get(hop.rests_on.number, 1.0)
        return times * (hop.alpha_seconds * factor) + nbytes * (hop.seconds_per_byte * factor)


def settings(problem: Problem, objective: Objective, axes: Axes, classes: Classes, budgets: Sequence[str]) -> Settings:
    """All settings but mirror images. ProblemError for ``per_watt`` where the watts of a device are not stated."""
    tables, groups = Tables(problem, objective, axes, {}), combined(axes, classes)
    pairs, joined = _blocks(tables, groups, budgets)
    used = joined.pop("used")
    lacked = np.flatnonzero(joined["missing"].any(axis=0))
    joined["missing"] = joined["missing"][:, lacked]
    return Settings(
        groups=groups,
        routes=tuple(pairs[pair] for pair in lacked),
        devices=used.sum(axis=1),
        divisor=_watts(tables, used) if objective == "per_watt" else np.ones(len(used)),
        mapping=label_of(images(axes, classes, groups, engines=False)),
        used=_of_devices(tables, used, classes),
        **joined,
    )


def relinked(
    at: Settings, problem: Problem, objective: Objective, axes: Axes, factors: Mapping[str, float]
) -> Settings:
    """The same where times of links take ``factors`` times as long, by the evidence they rest on."""
    _, joined = _blocks(Tables(problem, objective, axes, factors), at.groups, ())
    return replace(at, links=joined["links"], idle=joined["idle"], waits=joined["waits"])


def _blocks(
    tables: Tables, groups: Integers, budgets: Sequence[str]
) -> tuple[list[tuple[str, str]], dict[str, NDArray[Any]]]:
    """Pairs of devices without a route, and fields of ``Settings`` for settings."""
    pairs = sorted(set(itertools.permutations(tables.devices, 2)) - tables.problem.ways.keys())
    firsts = range(0, groups.shape[1], AT_ONCE)
    return pairs, _joined([_block(tables, groups[:, first : first + AT_ONCE], pairs, budgets) for first in firsts])


def _block(
    tables: Tables, groups: Integers, pairs: Sequence[tuple[str, str]], budgets: Sequence[str]
) -> dict[str, NDArray[Any]]:
    """The fields of ``Settings`` for some settings; ``used``: [S, D]."""
    device = {part: tables.device[part][groups[a]] for part, a in tables.axis.items()}
    busy = np.bitwise_or.reduce([one[own] for one, own in zip(tables.busy, groups, strict=True)])
    used = np.logical_or.reduce([one[own] for one, own in zip(tables.used, groups, strict=True)])
    used[:, [tables.devices.index(host) for host in tables.problem.hosts]] = True
    sent, waits, nbytes, missing = _traffic(tables, device, pairs)
    return {
        "missing": missing,
        "slow": _slow(tables, device, {part: tables.engine[part][groups[a]] for part, a in tables.axis.items()}),
        **_slots(busy & sum(1 << PARTS.index(part) for part in counted(tables.objective)), sent),
        **_taken(tables, busy > 0, budgets),
        "waits": waits,
        "nbytes": nbytes,
        "used": used,
    }


def _traffic(
    tables: Tables, device: Mapping[Part, Integers], pairs: Sequence[tuple[str, str]]
) -> tuple[Reals, Reals, Reals, Booleans]:
    """[S, W] seconds of transfers by engine, [S] those that a batch waits, [S] bytes, and [S, pairs] missing ones."""
    size, count = len(device["learner"]), len(tables.devices)
    busy = np.zeros((size, len(tables.engines)))
    waits, nbytes = np.zeros(size), np.zeros(size)
    missing = np.zeros((size, len(pairs)), dtype=np.bool_)
    place = {pair: number for number, pair in enumerate(pairs)}
    # Invariant: the sums are those of ``charges`` up to this flow, in their order.
    for flow in (flow for flow in tables.problem.flows if flow.nbytes):
        both = device[flow.source] * count + device[flow.target]
        acting = tables.objective == "training" and "actors" in (flow.source, flow.target)
        for pair in np.unique(both).tolist():
            source, target = divmod(pair, count)
            hops, here = tables.route(source, target), np.flatnonzero(both == pair)
            if hops is None:
                missing[here, place[tables.devices[source], tables.devices[target]]] = True
            for hop in hops or ():
                taken = tables.seconds(hop, flow.times, flow.nbytes)
                nbytes[here] += flow.nbytes
                waits[here] += taken if flow.waits else 0.0
                if not acting:
                    busy[here, tables.engines.index(hop.engine)] += taken
    return busy, waits, nbytes, missing


def _slow(tables: Tables, device: Mapping[Part, Integers], engine: Mapping[Part, Integers]) -> Reals:
    """See ``throughput.slowdowns``: [P, S]."""
    result = np.ones((len(PARTS), len(device["learner"])))
    for part, other in itertools.permutations(PARTS, 2):
        factors = [tables.problem.slowdown.get((part, other, name), 1.0) for name in tables.devices]
        if set(factors) != {1.0}:
            beside = (device[part] == device[other]) & (engine[part] != engine[other])
            result[PARTS.index(part)] *= np.where(beside, np.array(factors)[device[part]], 1.0)
    return result


def _slots(codes: NDArray[np.uint8], sent: Reals) -> dict[str, NDArray[Any]]:
    """``links``, ``member`` and ``idle``. ``codes`` [S, W]: the parts that keep an engine busy, as bits."""
    size = len(codes)
    kinds = [int(code) for code in np.unique(codes) if code]
    there = np.array([(codes == code).any(axis=1) for code in kinds]).reshape(len(kinds), size)
    slot = np.cumsum(there, axis=0) - 1
    links = np.zeros((size, int(slot[-1].max()) + 1 if kinds else 1))
    member = np.zeros((len(PARTS), *links.shape), dtype=np.bool_)
    for k, code in enumerate(kinds):
        here = np.flatnonzero(there[k])
        links[here, slot[k, here]] = np.where(codes[here] == code, sent[here], 0.0).max(axis=1)
        for p in range(len(PARTS)):
            member[p, here, slot[k, here]] = bool(code >> p & 1)
    return {"links": links, "member": member, "idle": np.where(codes == 0, sent, 0.0).max(axis=1, initial=0.0)}


def _taken(tables: Tables, used: Booleans, budgets: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What engines take of budgets, and of cores, added in the order of their names."""
    taken, core_count = np.zeros((len(used), len(budgets))), np.zeros(len(used))
    for w, engine in enumerate(tables.engines):
        own = tables.problem.engines.get(engine)
        if own:
            taken += used[:, w, None] * np.array([own.get(budget, 0.0) for budget in budgets])
            core_count += used[:, w] * cores(own)
    return {"taken": taken, "cores": core_count}


def _joined(blocks: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Fields of all blocks; slots are filled up with some that nothing keeps busy."""
    width = max(block["links"].shape[1] for block in blocks)
    for block in blocks:
        for name in ("links", "member"):
            more = [(0, 0)] * (block[name].ndim - 1) + [(0, width - block[name].shape[-1])]
            block[name] = np.pad(block[name], more)
    along = {"slow": 1, "member": 1}
    return {name: np.concatenate([block[name] for block in blocks], axis=along.get(name, 0)) for name in blocks[0]}


def _of_devices(tables: Tables, used: Booleans, classes: Classes) -> Integers:
    """A number for each set of devices, the same for mirror images."""
    equal = [[tables.devices.index(device) for device in devices] for devices in classes]
    alone = [used[:, d] for d in range(len(tables.devices)) if not any(d in devices for devices in equal)]
    return label_of(iter([*alone, *(used[:, devices].sum(axis=1) for devices in equal)]))


def _watts(tables: Tables, used: Booleans) -> Reals:
    """Watts of the devices of each setting."""
    known = tables.problem.watts
    names = [tables.devices[d] for d in np.flatnonzero(used.any(axis=0))]
    unknown = [device for device in names if not known.get(device, 0.0) > 0]
    if unknown:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
    sets, place = np.unique(used, axis=0, return_inverse=True)
    sums = [math.fsum(known[tables.devices[d]] for d in np.flatnonzero(one)) for one in sets]
    return np.array(sums)[place.reshape(-1)]
