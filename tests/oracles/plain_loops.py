"""A second reading of the mapping problem: every configuration looked at in plain loops, for tests to compare with.

Written from what the docstrings of ``dse.solver`` promise and sharing no line with it: of the project only the values
that say a problem are used. Whoever mends a rule there says it in a docstring first, and then here.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dse.solver.problem import Configuration, Option, Problem


@dataclass(frozen=True)
class Row:
    """A configuration, judged. ``broken``: budgets, with what they would have to be, and links that are not there."""

    configuration: Configuration
    value: float
    key: tuple[Any, ...]
    mapping: tuple[Any, ...]
    broken: dict[Any, float]


def every(problem: Problem) -> Iterator[Configuration]:
    """All configurations, whether they fit or not, on whichever of equal devices."""
    for chosen in itertools.product(
        *([image for one in axis for image in images(problem, one)] for axis in problem.axes)
    ):
        options = {option.part: option for choice in chosen for option in choice}
        for depth in problem.depths:
            yield Configuration(tuple(options[part] for part in problem.parts), depth)


def images(problem: Problem, choice: tuple[Option, ...]) -> Iterator[tuple[Option, ...]]:
    """A choice on all devices that it may be on."""
    used = {device for option in choice for device, _ in option.where}
    own = [[device for device in devices if device in used] for devices in problem.equal]
    moves = [itertools.permutations(devices, len(some)) for devices, some in zip(problem.equal, own, strict=True)]
    for to in itertools.product(*moves):
        names = dict(zip(itertools.chain(*own), itertools.chain(*to), strict=True))
        yield tuple(on(option, names) for option in choice)


def on(option: Option, names: dict[str, str]) -> Option:
    """An option on other devices."""

    def told(text: str) -> str:
        device, *rest = text.split(".", 1)
        return ".".join([names.get(device, device), *rest])

    (device, engine), *also = [(told(device), told(engine)) for device, engine in option.where]
    needs, ahead = ({told(name): need for name, need in each.items()} for each in (option.needs, option.ahead))
    return replace(option, device=device, engine=engine, also=tuple(sorted(also)), needs=needs, ahead=ahead)


def judged(
    problem: Problem, configuration: Configuration, objective: str, factors: dict[str, float] | None = None
) -> Row:
    """A configuration by the law of the throughput; times that rest on evidence take ``factors`` as long."""
    factors, chosen = factors or {}, {option.part: option for option in configuration.options}
    busy: dict[str, float] = {}
    loop = moved = 0.0
    broken: dict[Any, float] = {}
    for flow in problem.flows:
        ends = chosen[flow.source].device, chosen[flow.target].device
        if ends[0] == ends[1] or not flow.nbytes:
            continue
        if ends not in problem.ways:
            broken[ends] = math.inf
        for hop in problem.ways.get(ends, ()):
            factor = factors.get(hop.rests_on.id, 1.0)
            seconds = flow.times * (hop.alpha_seconds * factor) + flow.nbytes * (hop.seconds_per_byte * factor)
            moved += flow.nbytes
            loop += seconds if flow.waits else 0.0
            if objective != "training" or (flow.source in problem.loop and flow.target in problem.loop):
                busy[hop.engine] = busy.get(hop.engine, 0.0) + seconds
    for part, option in chosen.items():
        slower = 1.0
        for name, other in chosen.items():
            if other.device == option.device and other.engine != option.engine:
                slower *= problem.slowdown.get((part, name, option.device), 1.0)
        seconds = option.seconds * factors.get(option.time.rests_on.id, 1.0) * slower
        loop += seconds if part in problem.loop else 0.0
        for _, engine in option.where if objective != "training" or part in problem.loop else ():
            busy[engine] = busy.get(engine, 0.0) + seconds
    devices = {device for option in chosen.values() for device, _ in option.where} | set(problem.hosts)
    watts = math.fsum(problem.watts[device] for device in devices) if objective == "per_watt" else 1.0
    need = needed(problem, configuration)
    broken |= {name: need[name] for name, have in problem.budgets.items() if need[name] > have}
    cores = sum(amount for name, amount in need.items() if name.endswith(".cores"))
    seconds = 0.0
    for option in configuration.options:
        seconds += option.seconds
    keys = tuple(option_key(problem, option) for option in configuration.options)
    key = len(devices), moved, configuration.depth, cores, seconds, keys
    mapping = tuple((option.device, *sorted(device for device, _ in option.also)) for option in configuration.options)
    value = 1 / max(loop / (configuration.depth + 1), *busy.values()) / watts
    return Row(configuration, value, key, mapping, broken)


def needed(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """What is taken of every budget: once by an engine in use, by each option, and D times by batches ahead."""
    need = dict.fromkeys(problem.budgets, 0.0)
    for engine in sorted({engine for option in configuration.options for _, engine in option.where}):
        for name, amount in problem.engines.get(engine, {}).items():
            need[name] += amount
    for option in configuration.options:
        for name, amount in option.needs.items():
            need[name] += amount
        for name, amount in option.ahead.items():
            need[name] += configuration.depth * amount
    return need


def option_key(problem: Problem, option: Option) -> tuple[Any, ...]:
    """What orders options that are as good: seconds, places, needs, and names."""
    taken = tuple(needs.get(name, 0.0) for needs in (option.needs, option.ahead) for name in sorted(problem.budgets))
    time = option.time
    return option.seconds, option.where, taken, option.name, time.low, time.high, time.rests_on.id


def mirrored(problem: Problem, mapping: Any) -> Any:
    """One name for a mapping, or for what is broken, and its mirror images."""
    orders = itertools.product(*map(itertools.permutations, problem.equal))
    named = [dict(zip(itertools.chain(*problem.equal), itertools.chain(*order), strict=True)) for order in orders]
    return min(repr(_renamed(mapping, names)) for names in named)


def _renamed(what: Any, names: dict[str, str]) -> Any:
    if isinstance(what, tuple):
        first, *rest = (_renamed(one, names) for one in what)
        return (first, *(sorted(rest) if all(isinstance(one, str) for one in rest) else rest))
    device, *rest = what.split(".", 1)
    return ".".join([names.get(device, device), *rest])


def by_the_rule(rows: list[Row], epsilon: float) -> list[Row]:
    """All that is as good as the best of these rows, in the order of the rule."""
    best = max((row.value for row in rows), default=0.0)
    return sorted((row for row in rows if row.value >= best * (1 - epsilon)), key=lambda row: row.key)


def repairs(problem: Problem, rows: list[Row]) -> dict[Any, list[float]]:
    """Of the fewest limits that some row breaks each set, with the least that would do: mirror images once."""
    fewest = min(len(row.broken) for row in rows)
    found: dict[Any, list[float]] = {}
    for row in (row for row in rows if len(row.broken) == fewest):
        budgets = sorted(name for name in row.broken if isinstance(name, str))
        shares = [row.broken[name] / problem.budgets[name] if problem.budgets[name] else math.inf for name in budgets]
        least = [max(shares, default=0.0), *(row.broken[name] for name in budgets)]
        name = min(mirrored(problem, one) for one in row.broken) if fewest == 1 else repr(sorted(map(repr, row.broken)))
        found[name] = min(least, found.get(name, least))
    return found
