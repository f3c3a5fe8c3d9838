"""The throughput law: gradient steps a second of a configuration, what bounds them, and what it takes.

Every engine (a processor's thread group, a GPU, a slice, a link in one direction) is busy for the sum of what a
gradient step asks of it, so there are at most 1 / busy steps a second. A batch passes sampling, storage, learner and
updating one after the other, and every transfer between them, in ``loop`` seconds; D + 1 batches under way make at most
(D + 1) / loop steps a second. The throughput is the smallest of these bounds (``steps_per_second``): exact for D = 0
with one engine, an upper bound elsewhere (``simulation.py``, which plays the queues, says how close).

Who is busy for how long stands in ``charges``. ``outcome`` adds them up for one configuration, ``sensitivity.py`` by
what the times rest on; ``space.py`` adds the same terms as arrays, in the same order, so that ties are exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .problem import LOOP, Configuration, Flow, Hop, Problem

LOOP_BOUND = "batches under way"
TOO_HIGH = {1: 0.46, 2: 0.27, 5: 0.03}
"""By D, how much too high the bound is at worst: of 240 random loops with exact times, simulated, as a test does."""
Reals = NDArray[np.float64]


class Charge(NamedTuple):
    """Seconds that a gradient step keeps an engine busy, with a part or a transfer.

    ``number``: the evidence of the time. ``waits``: a batch waits for it, so it is in the loop. ``acting``: of actors,
    or what they send and are sent, which the published objective leaves out.
    """

    engine: str
    seconds: float
    number: str
    waits: bool
    acting: bool


@dataclass(frozen=True)
class Outcome:
    """What a configuration gives. ``bottleneck``: the engine that is always busy, or ``LOOP_BOUND``.

    ``training_hz`` leaves actors out, as the published objective does: gradient steps a second that the learner could
    take, bound by ``training_bottleneck``; ``actor_hz``: what the actors could keep up with at the asked update
    interval. ``hz`` is the smaller one.
    ``bytes_moved``: over links, a gradient step, counted once a hop.
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


def transfers(problem: Problem, configuration: Configuration) -> Iterator[tuple[Flow, Hop, float]]:
    """(flow, hop, seconds) of everything a gradient step sends. KeyError where there is no route."""
    for flow in problem.flows:
        source, target = configuration.of(flow.source).device, configuration.of(flow.target).device
        if source != target and flow.nbytes:
            for hop in problem.ways[source, target]:
                yield flow, hop, flow.times * hop.alpha_seconds + flow.nbytes * hop.seconds_per_byte


def slowdowns(problem: Problem, configuration: Configuration) -> tuple[float, ...]:
    """How much slower each part is because of what runs beside it on its device, in the order of ``PARTS``."""
    slower = []
    for option in configuration.options:
        factor = 1.0
        for beside in configuration.options:
            if beside.part != option.part and beside.device == option.device and beside.engine != option.engine:
                factor *= problem.slowdown.get((option.part, beside.part, option.device), 1.0)
        slower.append(factor)
    return tuple(slower)


def seconds(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """Seconds of each part, slowed down by what runs beside it."""
    slower = zip(configuration.options, slowdowns(problem, configuration), strict=True)
    return {option.part: option.seconds * factor for option, factor in slower}


def charges(problem: Problem, configuration: Configuration) -> Iterator[Charge]:
    """Everything a gradient step asks of engines: transfers first, then parts in the order of ``PARTS``."""
    for flow, hop, taken in transfers(problem, configuration):
        yield Charge(hop.engine, taken, hop.rests_on.number, flow.waits, "actors" in (flow.source, flow.target))
    spent = seconds(problem, configuration)
    for option in configuration.options:
        number = option.time.rests_on.number
        acting = option.part == "actors"
        yield Charge(option.engine, spent[option.part], number, option.part in LOOP, acting)
        for _, engine in option.also:  # at the same time, so a batch does not wait for these too
            yield Charge(engine, spent[option.part], number, False, acting)


def steps_per_second(busiest: Reals | float, loop: Reals | float, depth: Reals | int = 0) -> Reals:
    """Gradient steps a second where the busiest engine is busy, and a batch on its way, for so many seconds a step."""
    result: Reals = 1 / np.maximum(loop / (np.asarray(depth) + 1), busiest)
    return result


def no_routes(problem: Problem, configuration: Configuration) -> set[tuple[str, str]]:
    """(from, to) of every two devices that would have to talk and have no link."""
    sent = (flow for flow in problem.flows if flow.nbytes)
    pairs = {(configuration.of(flow.source).device, configuration.of(flow.target).device) for flow in sent}
    return {(source, target) for source, target in pairs - problem.ways.keys() if source != target}


def fits(problem: Problem, configuration: Configuration) -> bool:
    """Whether budgets suffice and every two parts that talk have a route."""
    return not shortages(problem, configuration) and not no_routes(problem, configuration)


def shortages(problem: Problem, configuration: Configuration) -> dict[str, tuple[float, float]]:
    """(have, need) of every budget that does not suffice."""
    need = needed(problem, configuration)
    return {name: (have, need[name]) for name, have in problem.budgets.items() if need[name] > have}


def used_engines(configuration: Configuration) -> tuple[str, ...]:
    """Names of the engines that parts run on, in order."""
    return tuple(sorted({engine for option in configuration.options for _, engine in option.where}))


def needed(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """What a configuration takes of every budget: its engines, its options, and D times what a batch ahead takes."""
    need = dict.fromkeys(problem.budgets, 0.0)
    for engine in used_engines(configuration):
        for budget, amount in problem.engines.get(engine, {}).items():
            need[budget] += amount
    for option in configuration.options:
        for budget, amount in option.needs.items():
            need[budget] += amount
        for budget, amount in option.ahead.items():
            need[budget] += configuration.depth * amount
    return need


def used_devices(problem: Problem, configuration: Configuration) -> tuple[str, ...]:
    """Names of the devices that are in use, in order."""
    return tuple(
        sorted({device for option in configuration.options for device, _ in option.where} | set(problem.hosts))
    )


def outcome(problem: Problem, configuration: Configuration) -> Outcome:
    """What a configuration that fits gives."""
    engines = [engine for option in configuration.options for _, engine in option.where]
    busy, trained = (dict.fromkeys(engines, 0.0) for _ in range(2))
    loop = moved = 0.0
    for charge in charges(problem, configuration):
        busy[charge.engine] = busy.get(charge.engine, 0.0) + charge.seconds
        if not charge.acting:
            trained[charge.engine] = trained.get(charge.engine, 0.0) + charge.seconds
        if charge.waits:
            loop += charge.seconds
    for flow, _, _ in transfers(problem, configuration):
        moved += flow.nbytes
    under_way = loop / (configuration.depth + 1)  # seconds a step cannot be shorter than
    slowest = max(busy, key=lambda engine: busy[engine])
    learning = max(trained, key=lambda engine: trained[engine])
    devices = used_devices(problem, configuration)
    known = all(device in problem.watts for device in devices)
    watts = math.fsum(problem.watts[device] for device in devices) if known else None  # whatever their names' order
    return Outcome(
        hz=float(steps_per_second(busy[slowest], loop, configuration.depth)),
        training_hz=float(steps_per_second(trained[learning], loop, configuration.depth)),
        actor_hz=1 / busy[configuration.actors.engine],
        bottleneck=slowest if busy[slowest] >= under_way else LOOP_BOUND,
        training_bottleneck=learning if trained[learning] >= under_way else LOOP_BOUND,
        busy=busy,
        loop_seconds=loop,
        devices=devices,
        bytes_moved=moved,
        watts=watts,
    )
