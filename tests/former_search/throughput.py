"""What a configuration gives: gradient steps a second, what bounds them, and what it takes. Plain loops: a definition.

Every engine (a processor's thread group, a GPU, a slice, a link in one direction) is busy for the sum of what a
gradient step asks of it, so there are at most 1 / busy steps a second. A batch passes sampling, storage, learner and
updating one after the other, and every transfer between them, in ``loop`` seconds; D + 1 batches under way make at most
(D + 1) / loop steps a second. The throughput is the smallest of these bounds: exact for D = 0 with one engine,
an upper bound elsewhere (``simulation.py`` says how close).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dse.solver.problem import LOOP, PARTS, Configuration, Flow, Hop, Problem

LOOP_BOUND = "batches under way"


@dataclass(frozen=True)
class Outcome:
    """Of one configuration. ``bottleneck``: the engine that is always busy, or ``LOOP_BOUND``.

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
    """(flow, hop, seconds) of everything a gradient step sends. KeyError where there is no way."""
    for flow in problem.flows:
        source, target = configuration.of(flow.source).device, configuration.of(flow.target).device
        if source != target and flow.nbytes:
            for hop in problem.ways[source, target]:
                yield flow, hop, flow.times * hop.alpha_seconds + flow.nbytes * hop.seconds_per_byte


def seconds(problem: Problem, configuration: Configuration) -> dict[str, float]:
    """Of each part, slowed down by what runs beside it on its device."""
    spent = {}
    for part in PARTS:
        option = configuration.of(part)
        factor = 1.0
        for other in PARTS:
            beside = configuration.of(other)
            if other != part and beside.device == option.device and beside.engine != option.engine:
                factor *= problem.slowdown.get((part, other, option.device), 1.0)
        spent[part] = option.seconds * factor
    return {str(part): value for part, value in spent.items()}


def fits(problem: Problem, configuration: Configuration) -> bool:
    """Whether budgets suffice and every two parts that talk have a way."""
    return not shortages(problem, configuration) and all(
        configuration.of(flow.source).device == configuration.of(flow.target).device
        or not flow.nbytes
        or (configuration.of(flow.source).device, configuration.of(flow.target).device) in problem.ways
        for flow in problem.flows
    )


def shortages(problem: Problem, configuration: Configuration) -> dict[str, tuple[float, float]]:
    """(have, need) of every budget that does not suffice."""
    need = dict.fromkeys(problem.budgets, 0.0)
    for option in configuration.options:
        for budget, amount in option.needs.items():
            need[budget] += amount
    return {name: (have, need[name]) for name, have in problem.budgets.items() if need[name] > have}


def outcome(problem: Problem, configuration: Configuration) -> Outcome:
    """Of a configuration that fits."""
    spent = seconds(problem, configuration)
    busy = {configuration.of(part).engine: 0.0 for part in PARTS}
    trained = dict.fromkeys(busy, 0.0)  # the same without the actors
    loop = moved = 0.0
    for flow, hop, taken in transfers(problem, configuration):
        busy[hop.engine] = busy.get(hop.engine, 0.0) + taken
        moved += flow.nbytes
        if "actors" not in (flow.source, flow.target):
            trained[hop.engine] = trained.get(hop.engine, 0.0) + taken
        if flow.waits:
            loop += taken
    for part in PARTS:  # after the transfers, and in this order: search.py adds in the same one, so ties are exact
        engine = configuration.of(part).engine
        busy[engine] += spent[part]
        if part != "actors":
            trained[engine] += spent[part]
        if part in LOOP:
            loop += spent[part]
    under_way = loop / (configuration.depth + 1)  # seconds a step cannot be shorter than
    slowest = max(busy, key=lambda engine: busy[engine])
    learning = max(trained, key=lambda engine: trained[engine])
    used = {option.device for option in configuration.options} | set(problem.hosts)
    devices = tuple(sorted(used))
    watts: float | None = 0.0
    for device in devices:
        watts = None if watts is None or device not in problem.watts else watts + problem.watts[device]
    return Outcome(
        hz=1 / max(under_way, busy[slowest]),
        training_hz=1 / max(under_way, trained[learning]),
        actor_hz=1 / busy[configuration.actors.engine],
        bottleneck=slowest if busy[slowest] >= under_way else LOOP_BOUND,
        training_bottleneck=learning if trained[learning] >= under_way else LOOP_BOUND,
        busy=busy,
        loop_seconds=loop,
        devices=devices,
        bytes_moved=moved,
        watts=watts,
    )
