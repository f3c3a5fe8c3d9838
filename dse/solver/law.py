"""The throughput model: gradient steps/s of a configuration, its bottleneck, and its needs.

Every engine (a processor's thread group, a GPU, a slice, a link in one direction) is busy for the sum of what a
gradient step asks of it, so there are at most 1 / busy steps/s. A batch passes the parts of the loop one after the
other, and every transfer between them, in ``loop`` seconds; D + 1 batches under way make at most (D + 1) / loop
steps/s. The throughput is the smallest of these bounds: exact for D = 0 with one engine, an upper bound elsewhere
(``queues.py``, which simulates the queues, says how close).

``charges`` alone says which engine is busy for how long. Every number may be an array, for many configurations.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from .problem import Configuration, Flow, Hop, Part, Problem, ProblemError, Timed

Reals = NDArray[np.float64]
Seconds = Any
"""A number, or an array of many configurations."""
Where = Mapping[Part, tuple[tuple[str, str], ...]]
"""(device, engine) of all that is busy with each part, its own first; parts in the order of the problem's."""
Factor = Callable[[Timed], Seconds]
"""A factor on the time of an option or a link."""
Objective = Literal["training", "ratio", "per_watt", "fewest_devices"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
EPSILONS: dict[Objective, float] = {"training": 0.01, "ratio": 0.01, "per_watt": 0.01, "fewest_devices": 0.1}
"""What counts as equally good unless a question says otherwise. ``fewest_devices`` is ``ratio`` with more patience:
devices come first in every tie, so it takes only a larger epsilon."""
GIVEN_UP = 0.2
"""The share of the expected value that may be given up for fewer devices or cores where two are statistically tied."""
LOOP_BOUND = "batches under way"
TOO_HIGH = {1: 0.46, 2: 0.27, 5: 0.03}
"""By D, how much too high the bound is at worst: of 240 random loops with exact times, simulated, as a test does."""


def unscaled(_: Timed) -> float:
    """The factor 1 on all times."""
    return 1.0


class Charge(NamedTuple):
    """Seconds per gradient step that a part or a transfer keeps an engine busy.

    ``waits``: a batch waits for it, so it is in the loop. ``acting``: of parts that act, or of what they send and
    receive, which the objective ``training`` leaves out, as the published one does. ``what``: the part, or the two that
    something is sent between.
    """

    engine: str
    seconds: Seconds
    waits: bool
    acting: bool
    what: tuple[Part, ...]


@dataclass(frozen=True)
class Outcome:
    """What a configuration gives. ``bottleneck``: the engine that is always busy, or ``LOOP_BOUND``.

    ``training_hz``: gradient steps/s of the learner if actors never slowed it down, limited by
    ``training_bottleneck``; ``actor_hz``: those that actors could keep up with. ``hz`` is the smaller one.
    ``bytes_moved``: over links, per gradient step, counted once per hop. ``watts``: None where those of a device are
    not known.
    """

    hz: float
    training_hz: float
    actor_hz: float
    bottleneck: str
    training_bottleneck: str
    busy: dict[str, float]
    loop_seconds: float
    devices: tuple[str, ...]
    bytes_moved: float
    watts: float | None


def transfers(problem: Problem, where: Where) -> Iterator[tuple[Flow, Hop]]:
    """Yield every transfer of a gradient step, hop by hop. KeyError, of (from, to), where there is no route."""
    for flow in problem.flows:
        source, target = where[flow.source][0][0], where[flow.target][0][0]
        if source != target and flow.nbytes:
            yield from ((flow, hop) for hop in problem.ways[source, target])


def missing_ways(problem: Problem, where: Where) -> list[tuple[str, str]]:
    """(from, to) of every two devices that would have to talk and have no link."""
    pairs = {(where[flow.source][0][0], where[flow.target][0][0]) for flow in problem.flows if flow.nbytes}
    return sorted((source, target) for source, target in pairs - problem.ways.keys() if source != target)


def slowdowns(problem: Problem, where: Where) -> dict[Part, float]:
    """The factor on each part's time that is due to parts on other engines of its device."""
    factors, first = dict.fromkeys(where, 1.0), {part: places[0] for part, places in where.items()}
    for (part, (device, engine)), (other, (its_device, its_engine)) in itertools.product(first.items(), repeat=2):
        if its_device == device and its_engine != engine:
            factors[part] *= problem.slowdown.get((part, other, device), 1.0)
    return factors


def charges(
    problem: Problem, where: Where, seconds: Mapping[Part, Seconds], factor: Factor = unscaled
) -> Iterator[Charge]:
    """Yield all that a gradient step asks of engines: transfers first, then parts in order with their ``seconds``.

    ``factor``: on the times of links.
    """
    for flow, hop in transfers(problem, where):
        ends = flow.source, flow.target
        yield Charge(hop.engine, hop.seconds(flow, factor(hop)), flow.waits, not {*ends} <= set(problem.loop), ends)
    slower = slowdowns(problem, where)
    for part, ((_, engine), *also) in where.items():
        spent, in_loop = seconds[part] * slower[part], part in problem.loop
        yield Charge(engine, spent, in_loop, not in_loop, (part,))
        for _, other in also:  # at the same time, so a batch does not wait for these too
            yield Charge(other, spent, False, not in_loop, (part,))


def sum_charges(charged: Iterable[Charge], objective: Objective = "ratio") -> tuple[dict[str, Seconds], Seconds]:
    """(seconds that each engine is busy, seconds that a batch is on its way), of what an objective counts."""
    busy, loop = dict[str, Seconds](), 0.0
    for engine, seconds, waits, acting, _ in charged:
        if objective != "training" or not acting:
            busy[engine] = busy.get(engine, 0.0) + seconds
        loop = loop + seconds if waits else loop
    return busy, loop


def steps_per_second(busy: Iterable[Seconds], loop: Seconds, depth: Any = 0, watts: float = 1.0) -> Seconds:
    """Gradient steps/s, or per joule: as many as the busiest engine and D + 1 batches under way allow."""
    bounds = sorted((*busy, loop / (depth + 1)), key=np.size)  # small arrays first
    return 1 / functools.reduce(np.maximum, bounds) / watts


def devices_of(problem: Problem, where: Where) -> tuple[str, ...]:
    """Names of the devices that are in use, in order."""
    return tuple(sorted({device for places in where.values() for device, _ in places} | set(problem.hosts)))


def watts_of(problem: Problem, devices: Iterable[str], objective: Objective) -> float:
    """The divisor of steps/s: watts of these devices, or 1. ProblemError where watts are asked for and not stated."""
    if objective != "per_watt":
        return 1.0
    if unknown := [device for device in devices if not problem.watts.get(device, 0.0) > 0]:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
    return math.fsum(problem.watts[device] for device in devices)  # whatever their names' order


def rate(
    problem: Problem,
    where: Where,
    seconds: Mapping[Part, Seconds],
    depth: Any,
    objective: Objective,
    factor: Factor = unscaled,
) -> Seconds:
    """The value, gradient steps/s or per joule, where parts take these seconds and times of links have a factor."""
    busy, loop = sum_charges(charges(problem, where, seconds, factor), objective)
    return steps_per_second(busy.values(), loop, depth, watts_of(problem, devices_of(problem, where), objective))


def value_of(problem: Problem, chosen: Configuration, objective: Objective, factor: Factor = unscaled) -> Seconds:
    """The value of a configuration whose times are multiplied by a factor."""
    seconds = {option.part: option.seconds * factor(option) for option in chosen.options}
    return rate(problem, chosen.where, seconds, chosen.depth, objective, factor)


def outcome(problem: Problem, configuration: Configuration) -> Outcome:
    """What a configuration whose routes are there gives."""
    where, depth = configuration.where, configuration.depth
    charged = list(charges(problem, where, {option.part: option.seconds for option in configuration.options}))
    (busy, loop), (trained, _) = sum_charges(charged), sum_charges(charged, "training")
    engines = dict.fromkeys([*(engine for places in where.values() for _, engine in places), *busy])
    under_way = loop / (depth + 1)  # seconds a step cannot be shorter than
    slowest = max(engines, key=lambda engine: busy[engine])
    learning = max(engines, key=lambda engine: trained.get(engine, 0.0))
    acting = [busy[option.engine] for option in configuration.options if option.part not in problem.loop]
    devices = devices_of(problem, where)
    known = all(device in problem.watts for device in devices)
    return Outcome(
        hz=float(steps_per_second(busy.values(), loop, depth)),
        training_hz=float(steps_per_second(trained.values(), loop, depth)),
        actor_hz=1 / max(acting) if acting else math.inf,
        bottleneck=slowest if busy[slowest] >= under_way else LOOP_BOUND,
        training_bottleneck=learning if trained.get(learning, 0.0) >= under_way else LOOP_BOUND,
        busy={engine: busy[engine] for engine in engines},
        loop_seconds=loop,
        devices=devices,
        bytes_moved=sum_bytes(problem, where),
        watts=math.fsum(problem.watts[device] for device in devices) if known else None,
    )


def sum_bytes(problem: Problem, where: Where) -> float:
    """Return the bytes over links per gradient step, counted once per hop."""
    return float(total(flow.nbytes for flow, _ in transfers(problem, where)))


def total(amounts: Iterable[Any], start: Any = 0.0) -> Any:
    """The sum in this order, which ``sum`` does not keep to in every version of Python."""
    return functools.reduce(operator.add, amounts, start)


def engine_needs(problem: Problem, where: Where) -> list[Mapping[str, float]]:
    """What each engine that parts run on takes of the budgets, in the order of their names."""
    return [problem.engines.get(engine, {}) for engine in sorted({one for each in where.values() for _, one in each})]


def sum_needs(problem: Problem, chosen: Configuration, budgets: Iterable[str] | None = None) -> dict[str, Any]:
    """What a configuration takes of budgets: its engines, its options, and D times what each batch ahead takes."""
    need: dict[str, Any] = dict.fromkeys(problem.budgets if budgets is None else budgets, 0.0)
    taken = [(needs, 1) for needs in engine_needs(problem, chosen.where)]
    for option in chosen.options:
        taken += [(option.needs, 1), (option.ahead, chosen.depth)]
    for needs, times in taken:
        for budget in need.keys() & needs.keys():
            need[budget] = need[budget] + times * needs[budget]
    return need


def costs_of(problem: Problem, chosen: Configuration) -> dict[str, Any]:
    """What decides between configurations of equal value, by name: less is better."""
    needs = [*engine_needs(problem, chosen.where), *(option.needs for option in chosen.options)]
    return {
        "devices": len(devices_of(problem, chosen.where)),
        "bytes": sum_bytes(problem, chosen.where),
        "depth": chosen.depth,
        "cores": total(sum(each[name] for name in sorted(each) if name.endswith(".cores")) for each in needs),
        "seconds": total(option.seconds for option in chosen.options),
    }
