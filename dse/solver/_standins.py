"""Slow stand-ins of what ``search.py`` offers under the same names: drop this file for ``from .search import ...``."""

import functools
from dataclasses import replace

import numpy as np

from .objectives import Objective, OptionKey, cores, option_key, threshold
from .problem import LONGEST, Choice, Configuration, Hop, Option, Problem
from .search import Answer, _answer, _legal, _one, best_values, least_keys
from .space import Nodes, Space, build, configuration
from .throughput import Outcome, used_engines

SHARES = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5)
FrugalKey = tuple[int, float, float, int, float, tuple[OptionKey, ...]]


def frugal_key(problem: Problem, chosen: Configuration, outcome: Outcome) -> FrugalKey:
    """Order of what cannot be told apart: devices, cores, bytes moved, depth, seconds, then the options' keys."""
    count = sum(cores(problem.engines.get(engine, {})) for engine in used_engines(chosen))
    count += sum(cores(option.needs) for option in chosen.options)
    seconds = sum(option.seconds for option in chosen.options)
    keys = tuple(option_key(problem, option) for option in chosen.options)
    return len(outcome.devices), count, outcome.bytes_moved, chosen.depth, seconds, keys


def frontier(problem: Problem, objective: Objective, best: float) -> tuple[Answer, ...]:
    """For each mapping and share of ``best``: the smallest key among what is worth that share."""
    space = build(problem, objective)
    start, rows = _legal(space), dict[tuple[int, ...], Configuration]()
    for share in SHARES:
        least = np.full(space.mapping.max() + 1, threshold(best, 1 - share))
        for key in least_keys(space, start, space.mapping, least):
            rows.setdefault((*key.row.tolist(), key.depth), configuration(space, key.row, key.depth))
    return tuple(_answer(space, one) for one in rows.values())


def scaled(problem: Problem, number: str, factor: float) -> Problem:
    """The problem where every time that rests on evidence ``number`` takes ``factor`` times as long."""

    def longer(option: Option) -> Option:
        return replace(option, time=option.time.scaled(factor)) if option.time.rests_on.number == number else option

    def slower(hop: Hop) -> Hop:
        if hop.rests_on.number != number:
            return hop
        return replace(hop, alpha_seconds=hop.alpha_seconds * factor, seconds_per_byte=hop.seconds_per_byte * factor)

    def changed(choice: Choice) -> Choice:
        return tuple(map(longer, choice))

    return replace(
        problem,
        options={part: changed(options) for part, options in problem.options.items()},
        trees=tuple((longer(sampling), longer(updating)) for sampling, updating in problem.trees),
        ways={pair: tuple(map(slower, way)) for pair, way in problem.ways.items()},
    )


@functools.lru_cache(maxsize=8)
def _kept(key: int, objective: Objective) -> tuple[Problem, Space, dict[int, Option]]:
    """The arrays of a problem where no choice is dominated by one that rests on other evidence."""
    problem = _ALIVE[key]
    numbers = {option.time.rests_on.number for option in problem.every_option()}

    def marked(option: Option) -> Option:
        return replace(option, needs={**option.needs, f"#{option.time.rests_on.number}": 1.0})

    other = replace(
        problem,
        options={part: tuple(map(marked, options)) for part, options in problem.options.items()},
        trees=tuple((marked(sampling), marked(updating)) for sampling, updating in problem.trees),
        budgets={**problem.budgets, **{f"#{number}": LONGEST for number in numbers}},
    )
    own = {id(new): old for new, old in zip(other.every_option(), problem.every_option(), strict=True)}
    return other, build(other, objective), own


_ALIVE: dict[int, Problem] = {}


def overtaken(problem: Problem, objective: Objective, least: float, number: str, factor: float) -> Answer | None:
    """The best configuration, of the problem's options, at that factor, if its value is then above ``least``."""
    if _ALIVE.get(id(problem)) is not problem:
        _ALIVE[id(problem)] = problem
        _kept.cache_clear()
    _, space, own = _kept(id(problem), objective)
    nodes = tuple(_longer(one, number, factor) for one in space.nodes)
    space = replace(space, nodes=nodes)
    if any(hop.rests_on.number == number for way in problem.ways.values() for hop in way):
        other = build(scaled(problem, number, factor), objective)
        space = replace(space, links=other.links, waits=other.waits)
    start = _legal(space)
    if not start.size or not least_keys(space, start, _one(space), np.nextafter([least], np.inf)):
        return None
    best = float(best_values(space, start, _one(space))[0])
    key = least_keys(space, start, _one(space), np.array([best]))[0]
    chosen = configuration(space, key.row, key.depth)
    chosen = chosen.having(*(own[id(option)] for option in chosen.options))
    return replace(_answer(space, chosen), value=best)


def _longer(nodes: Nodes, number: str, factor: float) -> Nodes:
    columns = []
    for place, column in enumerate(nodes.columns):
        same = np.array([choice[place].time.rests_on.number == number for choice in nodes.choices])
        seconds = column.seconds[: len(same)] * np.where(same, factor, 1.0)
        columns.append(
            column._replace(seconds=np.concatenate([seconds, np.minimum.reduceat(seconds, nodes.start, axis=0)]))
        )
    return replace(nodes, columns=tuple(columns))
