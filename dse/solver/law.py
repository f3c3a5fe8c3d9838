"""The throughput law: gradient steps a second of a configuration, what bounds them, and what it takes.

Every engine (a processor's thread group, a GPU, a slice, a link in one direction) is busy for the sum of what a
gradient step asks of it, so there are at most 1 / busy steps a second. A batch passes the parts of the loop one after
the other, and every transfer between them, in ``loop`` seconds; D + 1 batches under way make at most (D + 1) / loop
steps a second. The throughput is the smallest of these bounds: exact for D = 0 with one engine, an upper bound
elsewhere (``queues.py``, which plays the queues, says how close).

``charges`` is the one place that says who is busy for how long; seconds are numbers, or arrays of many configurations.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from .problem import Configuration, Flow, Hop, Part, Problem, ProblemError

Reals = NDArray[np.float64]
Seconds = Any
"""A number, or an array of many configurations."""
Where = Mapping[Part, tuple[tuple[str, str], ...]]
"""(device, engine) of all that is busy with each part, its own first; parts in the order of the problem's."""
Objective = Literal["training", "ratio", "per_watt", "fewest_devices"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
EPSILONS: dict[Objective, float] = {"training": 0.01, "ratio": 0.01, "per_watt": 0.01, "fewest_devices": 0.1}
"""What counts as equally good unless a question says otherwise. ``fewest_devices`` is ``ratio`` with more patience:
devices come first in every tie, so it takes only a larger epsilon."""
GIVEN_UP = 0.2
"""The share of the expected value that may be given up for less where two cannot be told apart."""
LOOP_BOUND = "batches under way"
TOO_HIGH = {1: 0.46, 2: 0.27, 5: 0.03}
"""By D, how much too high the bound is at worst: of 240 random loops with exact times, simulated, as a test does."""


class Charge(NamedTuple):
    """Seconds that a gradient step keeps an engine busy with ``what``: a part, or a hop of a transfer.

    ``waits``: a batch waits for it, so it is in the loop. ``acting``: of parts that act, or what they send and are
    sent, which the objective ``training`` leaves out, as the published one does.
    """

    engine: str
    seconds: Seconds
    what: Part | Hop
    waits: bool
    acting: bool


@dataclass(frozen=True)
class Outcome:
    """What a configuration gives. ``bottleneck``: the engine that is always busy, or ``LOOP_BOUND``.

    ``training_hz``: gradient steps a second that the learner could take, whatever actors do, bound by
    ``training_bottleneck``; ``actor_hz``: what actors could keep up with. ``hz`` is the smaller one. ``bytes_moved``:
    over links, a gradient step, counted once a hop. ``watts``: None where those of a device are not known.
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


def where_of(configuration: Configuration) -> Where:
    """Where each part runs."""
    return {option.part: option.where for option in configuration.options}


def sent(problem: Problem, where: Where) -> Iterator[tuple[Flow, Hop]]:
    """Every transfer of a gradient step, hop by hop. KeyError, of (from, to), where there is no route."""
    for flow in problem.flows:
        source, target = where[flow.source][0][0], where[flow.target][0][0]
        if source != target and flow.nbytes:
            yield from ((flow, hop) for hop in problem.ways[source, target])


def taken(flow: Flow, hop: Hop, factor: Any = 1.0) -> Any:
    """Seconds that a transfer keeps a hop busy whose times are so many times as long."""
    return flow.times * (hop.alpha_seconds * factor) + flow.nbytes * (hop.seconds_per_byte * factor)


def slowdown(problem: Problem, where: Where, part: Part) -> float:
    """How many times as long a part takes because of what runs beside it on its device."""
    (device, engine), factor = where[part][0], 1.0
    for other, ((its_device, its_engine), *_) in where.items():
        if other != part and its_device == device and its_engine != engine:
            factor *= problem.slowdown.get((part, other, device), 1.0)
    return factor


def slowdowns(problem: Problem, configuration: Configuration) -> dict[Part, float]:
    """How many times as long each part takes because of what runs beside it."""
    where = where_of(configuration)
    return {part: slowdown(problem, where, part) for part in where}


def transfers(problem: Problem, configuration: Configuration) -> Iterator[tuple[Flow, Hop, float]]:
    """(flow, hop, seconds) of everything a gradient step sends."""
    yield from ((flow, hop, taken(flow, hop)) for flow, hop in sent(problem, where_of(configuration)))


def charges(
    problem: Problem, where: Where, seconds: Mapping[Part, Seconds], slower: Callable[[Hop], Seconds] = lambda _: 1.0
) -> Iterator[Charge]:
    """Everything a gradient step asks of engines: transfers first, then parts in order, which take so many seconds.

    ``slower``: how many times as long a link takes.
    """
    for flow, hop in sent(problem, where):
        acting = not {flow.source, flow.target} <= set(problem.loop)
        yield Charge(hop.engine, taken(flow, hop, slower(hop)), hop, flow.waits, acting)
    for part, ((_, engine), *also) in where.items():
        spent, in_loop = seconds[part] * slowdown(problem, where, part), part in problem.loop
        yield Charge(engine, spent, part, in_loop, not in_loop)
        for _, other in also:  # at the same time, so a batch does not wait for these too
            yield Charge(other, spent, part, False, not in_loop)


def law(charged: Iterable[Charge], objective: Objective = "ratio") -> tuple[dict[str, Seconds], Seconds]:
    """(seconds that each engine is busy, seconds that a batch is on its way), of what an objective counts."""
    busy, loop = dict[str, Seconds](), 0.0
    for engine, seconds, _, waits, acting in charged:
        if objective != "training" or not acting:
            busy[engine] = busy.get(engine, 0.0) + seconds
        loop = loop + seconds if waits else loop
    return busy, loop


def steps_per_second(busy: Iterable[Seconds], loop: Seconds, depth: Any = 0, watts: float = 1.0) -> Seconds:
    """Gradient steps a second, or per joule: as many as the busiest engine and D + 1 batches under way allow."""
    in_turn = sorted((*busy, loop / (depth + 1)), key=np.size)  # small arrays first
    return 1 / functools.reduce(np.maximum, in_turn) / watts


def devices_of(problem: Problem, where: Where) -> tuple[str, ...]:
    """Names of the devices that are in use, in order."""
    return tuple(sorted({device for places in where.values() for device, _ in places} | set(problem.hosts)))


def divisor(problem: Problem, devices: Iterable[str], objective: Objective) -> float:
    """What steps a second are divided by: watts of these devices, or 1. ProblemError where watts are not stated."""
    if objective != "per_watt":
        return 1.0
    if unknown := [device for device in devices if not problem.watts.get(device, 0.0) > 0]:
        raise ProblemError(f"steps per joule need watts above 0 of every device; state those of {', '.join(unknown)}")
    return math.fsum(problem.watts[device] for device in devices)  # whatever their names' order


def outcome(problem: Problem, configuration: Configuration) -> Outcome:
    """What a configuration whose routes are there gives."""
    where = where_of(configuration)
    charged = list(charges(problem, where, {option.part: option.seconds for option in configuration.options}))
    (busy, loop), (trained, _) = law(charged), law(charged, "training")
    engines = dict.fromkeys([*(engine for places in where.values() for _, engine in places), *busy])
    under_way = loop / (configuration.depth + 1)  # seconds a step cannot be shorter than
    slowest = max(engines, key=lambda engine: busy[engine])
    learning = max(engines, key=lambda engine: trained.get(engine, 0.0))
    acting = [busy[option.engine] for option in configuration.options if option.part not in problem.loop]
    devices = devices_of(problem, where)
    known = all(device in problem.watts for device in devices)
    return Outcome(
        hz=float(steps_per_second(busy.values(), loop, configuration.depth)),
        training_hz=float(steps_per_second(trained.values(), loop, configuration.depth)),
        actor_hz=1 / max(acting) if acting else math.inf,
        bottleneck=slowest if busy[slowest] >= under_way else LOOP_BOUND,
        training_bottleneck=learning if trained.get(learning, 0.0) >= under_way else LOOP_BOUND,
        busy={engine: busy[engine] for engine in engines},
        loop_seconds=loop,
        devices=devices,
        bytes_moved=total(flow.nbytes for flow, _ in sent(problem, where)),
        watts=math.fsum(problem.watts[device] for device in devices) if known else None,
    )


def value_of(problem: Problem, outcome: Outcome, objective: Objective) -> float:
    """Larger is better: gradient steps a second, or per joule. ProblemError where watts are asked for and not known."""
    hz = outcome.training_hz if objective == "training" else outcome.hz
    return hz / divisor(problem, outcome.devices, objective)


def total(amounts: Iterable[Any], start: Any = 0.0) -> Any:
    """The sum in this order, which ``sum`` does not keep to in every version of Python."""
    return functools.reduce(operator.add, amounts, start)


def cores_of(needs: Mapping[str, float]) -> float:
    """What an option, or an engine, takes of budgets of cores, whatever device they are of."""
    return sum(needs[name] for name in sorted(needs) if name.endswith(".cores"))


def engines_of(problem: Problem, where: Where) -> list[Mapping[str, float]]:
    """What each engine that parts run on takes of the budgets, in the order of their names."""
    return [problem.engines.get(engine, {}) for engine in sorted({one for each in where.values() for _, one in each})]


def needed(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """What a configuration takes of every budget: its engines, its options, and D times what a batch ahead takes."""
    need = dict.fromkeys(problem.budgets, 0.0)
    taken = [(needs, 1) for needs in engines_of(problem, where_of(configuration))]
    taken += [each for one in configuration.options for each in ((one.needs, 1), (one.ahead, configuration.depth))]
    for needs, times in taken:
        for budget, amount in needs.items():
            need[budget] += times * amount
    return need
