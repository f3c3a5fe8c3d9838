"""A second reading of the mapping problem: every configuration looked at in plain loops, for tests to compare with.

Written from what the docstrings of ``dse.solver`` promise and sharing no line with it: of the project only the values
that say a problem are used. Whoever mends a rule there says it in a docstring first, and then here.
"""

import itertools
import math
from dataclasses import dataclass

from dse.solver.problem import Configuration, Option, Problem
from tests.oracles.plain_mirrors import ORDER, Names, axes, images, renamed, told_option

ROUND = ("sampling", "storage", "learner", "updating")
ALL_UNDER_WAY = "batches under way"


@dataclass(frozen=True)
class Row:
    """A configuration, judged. ``need``: of every budget; ``lacks``: routes that are not there."""

    configuration: Configuration
    hz: float
    busiest: tuple[str, ...]
    training_hz: float
    training_busiest: tuple[str, ...]
    watts: float
    key: tuple[object, ...]
    mapping: tuple[object, ...]
    need: dict[str, float]
    lacks: frozenset[tuple[str, str]]

    def value(self, objective: str) -> float:
        """What is to be as large as possible."""
        if objective == "per_watt":
            return self.hz / self.watts
        return self.training_hz if objective == "training" else self.hz

    def bottlenecks(self, objective: str) -> tuple[str, ...]:
        """All that bind it, where several do so equally."""
        return self.training_busiest if objective == "training" else self.busiest


def slowed(problem: Problem, chosen: dict[str, Option], part: str) -> float:
    """Seconds of a part beside the others that have an engine of their own on its device.

    The device is the first one of each: further ones (``also``) neither slow nor are slowed, which no docstring says.
    """
    factor, own = 1.0, chosen[part]
    for other in ORDER:
        beside = chosen[other].device == own.device and chosen[other].engine != own.engine
        factor *= problem.slowdown.get((part, other, own.device), 1.0) if beside else 1.0
    return own.time.value * factor


def judged(problem: Problem, configuration: Configuration) -> Row:
    """A configuration by the law of the throughput: who is busy for how long, what it takes, how it ranks."""
    chosen = {part: getattr(configuration, part) for part in ORDER}
    lacks, moved = set(), 0.0
    busy: list[dict[str, float]] = [{}, {}]  # with actors, and without them and what they send and are sent
    loop = [0.0, 0.0]
    for flow in problem.flows:
        ends = (chosen[flow.source].device, chosen[flow.target].device)
        if ends[0] == ends[1] or not flow.nbytes:  # a flow of no bytes sends nothing, not even an alpha
            continue
        if ends not in problem.ways:
            lacks.add(ends)
            continue
        for hop in problem.ways[ends]:
            seconds = flow.times * hop.alpha_seconds + flow.nbytes * hop.seconds_per_byte
            moved += flow.nbytes
            for without in (0, 1):
                if without and "actors" in (flow.source, flow.target):
                    continue
                busy[without][hop.engine] = busy[without].get(hop.engine, 0.0) + seconds
                loop[without] += seconds if flow.waits else 0.0
    for part in ORDER:
        seconds = slowed(problem, chosen, part)
        for without in (0, 1):
            if without and part == "actors":
                continue
            for _, engine in chosen[part].where:
                busy[without][engine] = busy[without].get(engine, 0.0) + seconds
            loop[without] += seconds if part in ROUND else 0.0
    rates = [steps(busy[k], loop[k], configuration.depth) for k in (0, 1)]
    devices = sorted({device for o in chosen.values() for device, _ in o.where} | set(problem.hosts))
    need = needs(problem, configuration)
    key = (
        *(len(devices), moved, configuration.depth, cores(need)),
        sum(chosen[part].time.value for part in ORDER),
        tuple(option_key(problem, chosen[part]) for part in ORDER),
    )
    mapping = tuple(tuple(device for device, _ in chosen[part].where) for part in ORDER)
    watts = sum(problem.watts.get(device, math.nan) for device in devices)
    return Row(configuration, *rates[0], *rates[1], watts, key, mapping, need, frozenset(lacks))


def steps(busy: dict[str, float], loop: float, depth: int) -> tuple[float, tuple[str, ...]]:
    """Gradient steps a second, and everything that allows no more."""
    rates = {engine: 1.0 / seconds for engine, seconds in busy.items() if seconds > 0}
    rates[ALL_UNDER_WAY] = 1.0 / (loop / (depth + 1))
    least = min(rates.values())
    return least, tuple(name for name, rate in rates.items() if rate <= least * (1 + 1e-12))


def cores(amounts: dict[str, float]) -> float:
    """How many cores, of whatever device."""
    return sum(amount for name, amount in amounts.items() if name.endswith("cores"))


def needs(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """What is taken of every budget: once by an engine in use, by each option, and D times by batches ahead."""
    total = dict.fromkeys(problem.budgets, 0.0)
    options = [getattr(configuration, part) for part in ORDER]
    for engine in dict.fromkeys(engine for option in options for _, engine in option.where):
        for name, amount in problem.engines.get(engine, {}).items():
            total[name] += amount
    for option in options:
        for name, amount in option.needs.items():
            total[name] += amount
        for name, amount in option.ahead.items():
            total[name] += configuration.depth * amount
    return total


def option_key(problem: Problem, option: Option) -> tuple[object, ...]:
    """Seconds, where, what it needs, and names."""
    taken = tuple(table.get(name, 0.0) for table in (option.needs, option.ahead) for name in sorted(problem.budgets))
    time = option.time
    return (option.seconds, option.where, taken, option.name, time.low, time.high, time.rests_on.number)


@dataclass(frozen=True)
class Verdict:
    """What the rules give. Rows are one of each set of mirror images, except ``answer``: the first one in order."""

    answer: Row
    best: float
    ties: tuple[Row, ...]
    runner_up: Row | None
    elsewhere: Row | None
    bound: float
    learner_hz: float
    configurations: int


Broken = frozenset[object]


def brute_force(problem: Problem, objective: str, epsilon: float) -> Verdict | dict[Broken, list[dict[str, float]]]:
    """The verdict, or each smallest set of limits whose lifting would do, with the least needs of its budgets."""
    rows, mirror = every_row(problem), images(problem)
    fitting = [row for row in rows if not broken(problem, row)]
    if not fitting:
        return repairs(problem, rows)
    answer = best_of(fitting, objective, epsilon)
    assert answer is not None
    best = max(row.value(objective) for row in fitting)
    home = place(mirror, answer)
    good = [row for row in fitting if row.value(objective) >= (1 - epsilon) * best]
    tied: dict[object, Row] = {}
    for row in sorted(good, key=lambda row: row.key):
        tied.setdefault(place(mirror, row), row)
    tied.pop(home)
    itself, homes = copies(mirror, answer), {mirrored(answer.mapping, names) for names in mirror}
    runner_up = best_of([row for row in fitting if facts(row, {}) not in itself], objective, epsilon)
    elsewhere = best_of([row for row in fitting if mirrored(row.mapping, {}) not in homes], objective, epsilon)
    fastest = min(option.seconds for option in problem.options["learner"])
    ends = (max(ceiling(problem, row, objective) for row in rows), 1 / fastest, len(rows))
    return Verdict(answer, best, tuple(tied.values()), runner_up, elsewhere, *ends)


def every_row(problem: Problem) -> list[Row]:
    """All configurations, judged, whether they fit or not."""
    rows = []
    for choices in itertools.product(*axes(problem)):
        parts = {option.part: option for choice in choices for option in choice}
        rows += [judged(problem, Configuration(**parts, depth=depth)) for depth in problem.depths]
    return rows


def fitting_rows(problem: Problem) -> list[Row]:
    """All configurations that fit, judged."""
    return [row for row in every_row(problem) if not broken(problem, row)]


def best_of(rows: list[Row], objective: str, epsilon: float) -> Row | None:
    """The answer among rows: of those as good as the best of them, the one with the smallest key."""
    best = max((row.value(objective) for row in rows), default=0.0)
    good = [row for row in rows if row.value(objective) >= (1 - epsilon) * best]
    return min(good, key=lambda row: row.key, default=None)


def place(mirror: list[Names], row: Row) -> object:
    """One name for a mapping and its mirror images."""
    return min(mirrored(row.mapping, names) for names in mirror)


def mirrored(mapping: tuple[tuple[str, ...], ...], names: Names) -> tuple[object, ...]:
    """A mapping with other names; the first device of each part stays first."""
    parts = [tuple(names.get(device, device) for device in part) for part in mapping]
    return tuple((part[0], *sorted(part[1:])) for part in parts)


def copies(mirror: list[Names], row: Row) -> set[object]:
    """A configuration and its mirror images, as ``facts``."""
    return {facts(row, names) for names in mirror}


def facts(row: Row, names: Names) -> tuple[object, ...]:
    """All that tells configurations from each other, with other names."""
    options = [told_option(getattr(row.configuration, part), names) for part in ORDER]
    return (row.configuration.depth, *options)


def ceiling(problem: Problem, row: Row, objective: str) -> float:
    """Value of a row's options without sharing, transfers or budgets; what speeds them up stays, as do watts."""
    chosen = {part: getattr(row.configuration, part) for part in ORDER}
    seconds = {part: min(chosen[part].seconds, slowed(problem, chosen, part)) for part in ORDER}
    parts = [part for part in ORDER if part != "actors" or objective != "training"]
    loop = sum(seconds[part] for part in ROUND) / (max(problem.depths) + 1)
    rate = 1 / max(loop, *(seconds[part] for part in parts))
    return rate / row.watts if objective == "per_watt" else rate


def broken(problem: Problem, row: Row) -> Broken:
    """Limits a row does not keep: names of budgets, and routes that are not there."""
    return frozenset(name for name, have in problem.budgets.items() if row.need[name] > have) | row.lacks


def repairs(problem: Problem, rows: list[Row]) -> dict[Broken, list[dict[str, float]]]:
    """Smallest sets of limits that some row breaks and no others, mirror images once, with the least needs."""
    sets: dict[Broken, list[Row]] = {}
    for row in rows:
        sets.setdefault(broken(problem, row), []).append(row)
    mirror = images(problem)
    shown = {renamed_limits(limits, names) for limits in sets for names in mirror}
    smallest = [limits for limits in sets if not any(other < limits for other in shown)]
    once = {mirrored_limits(mirror, limits): limits for limits in sorted(smallest, key=sorted_limits, reverse=True)}
    return {limits: least_needs(problem, limits & set(problem.budgets), sets[limits]) for limits in once.values()}


def mirrored_limits(mirror: list[Names], limits: Broken) -> object:
    """One name for limits and their mirror images."""
    return min(sorted_limits(renamed_limits(limits, names)) for names in mirror)


def renamed_limits(limits: Broken, names: Names) -> Broken:
    """Limits with other names."""
    return frozenset(
        renamed(one, names) if isinstance(one, str) else tuple(names.get(end, end) for end in one) for one in limits
    )


def sorted_limits(limits: Broken) -> tuple[str, ...]:
    """Limits in an order."""
    return tuple(sorted(map(repr, limits)))


def least_needs(problem: Problem, names: Broken, rows: list[Row]) -> list[dict[str, float]]:
    """Needs of these budgets by the rows whose largest need / have is the smallest: of one budget, the least."""

    def excess(row: Row) -> float:
        if len(names) == 1:
            return sum(row.need[name] for name in names)
        shares = [row.need[name] / problem.budgets[name] if problem.budgets[name] else math.inf for name in names]
        return max(shares, default=0.0)

    least = min(map(excess, rows))
    return [{name: row.need[name] for name in names} for row in rows if excess(row) == least]


SHARES = (0.99, 0.95, 0.9, 0.8, 0.65, 0.5)


def frugal_key(row: Row) -> tuple[object, ...]:
    """Devices, cores, bytes moved, depth, seconds, and the options' keys: what takes least comes first."""
    devices, moved, depth, its_cores, seconds, options = row.key
    return (devices, its_cores, moved, depth, seconds, options)


def frontier(problem: Problem, objective: str, best: float) -> list[Row]:
    """For each mapping (mirror images once) and share: what takes least of what is worth that share of ``best``."""
    mirror = images(problem)
    least: dict[object, Row] = {}
    for row in fitting_rows(problem):
        for share in SHARES:
            spot = (share, place(mirror, row))
            if row.value(objective) >= share * best and (
                spot not in least or frugal_key(row) < frugal_key(least[spot])
            ):
                least[spot] = row
    return list({facts(row, {}): row for row in least.values()}.values())
