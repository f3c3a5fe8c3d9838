"""Small random mapping problems that have a bit of everything, large ones, and machines of equal devices."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dse.estimate import Estimate, Evidence
from dse.mapping.answer import MappingAnswer
from dse.mapping.processes import ExecutionMode
from dse.solver.problem import PARTS, TREE, Flow, Hop, Option, Part, Problem, moved, named

EVIDENCE = Evidence("test", "modeled")
EPSILONS = (0.0, 1e-9, 0.01, 0.1, 0.5)
DEVICES = ("cpu", "gpu", "fpga")
MODES = {name: ExecutionMode(name) for name in ("serial", "apart", "pipelined")}
TALKS: tuple[tuple[Part, Part], ...] = (
    ("actors", "storage"),
    ("sampling", "storage"),
    ("storage", "learner"),
    ("learner", "updating"),
    ("learner", "actors"),
)


def timed(seconds: float) -> Estimate:
    """A time known exactly."""
    return Estimate(seconds, seconds, seconds, EVIDENCE)


def option(
    part: Part, name: str, device: str, seconds: float, needs: dict[str, float] | None = None, engine: str = ""
) -> Option:
    """An option with a time known exactly; its engine is all of the device unless said."""
    return Option(part, name, device, engine or device, timed(seconds), needs or {})


def replace_details(answer: MappingAnswer, part: Part, details: Mapping[str, Any], device: str = "") -> MappingAnswer:
    """An answer whose option of a part has further details, on another device if one is given."""
    chosen = answer.chosen.configuration
    option = chosen.of(part)
    there = dataclasses.replace(option, device=device or option.device, details={**option.details, **details})
    candidate = dataclasses.replace(answer.chosen, configuration=chosen.having(there))
    return dataclasses.replace(answer, made=dataclasses.replace(answer.made, answer=candidate))


def hop(engine: str, alpha: float, per_byte: float) -> Hop:
    """A link in one direction."""
    return Hop(engine, alpha, per_byte, EVIDENCE)


def random_problem(random: np.random.Generator, least: int = 1, most: int = 4) -> Problem:
    """Some options a part, up to four unless said, on up to three devices.

    Half of them have small integer times, needs and links, so that ties are many and exact. Engines are those of
    devices, of parts, or of links; ways may lack, have one hop or two; flows may be empty; budgets bind or do not.
    """
    exact = random.random() < 0.5
    devices = DEVICES[: random.integers(1, 4)]

    def time(largest: int = 5) -> float:
        return float(random.integers(1, largest)) if exact else float(np.exp(random.uniform(-2, 2)))

    def drawn_option(part: Part, number: int) -> Option:
        device = str(random.choice(devices))
        engine = str(random.choice([device, device, f"{device}.{part}"]))
        needs = {f"{device}.cores": float(random.integers(0, 4))}
        if random.random() < 0.5:
            needs["memory"] = float(random.integers(0, 5)) if exact else float(random.random() * 4)
        return option(part, f"{random.choice(list('abc'))}{number % 3}", device, time(), needs, engine)

    def way(source: str, target: str) -> tuple[Hop, ...]:
        engines = [f"{source}>{target}", f"{source}>{target}", "bus", source]
        return tuple(
            hop(
                str(random.choice(engines)), *((time(3) - 1, 0.25) if exact else (random.random(), random.random() / 3))
            )
            for _ in range(random.integers(1, 3))
        )

    ways = {pair: way(*pair) for pair in itertools.permutations(devices, 2) if random.random() < 0.85}
    flows = tuple(
        Flow(source, target, float(random.integers(0, 4)), bool(random.random() < 0.6))
        for source, target in TALKS
        if random.random() < 0.7
    )
    slowdown = {}
    for _ in range(random.integers(0, 4)):
        slowed = PARTS[random.integers(5)], PARTS[random.integers(5)], str(random.choice(devices))
        slowdown[slowed] = float(random.choice([1.5, 2.0]))
    problem = Problem(
        options={part: tuple(drawn_option(part, n) for n in range(random.integers(least, most + 1))) for part in PARTS},
        budgets={f"{device}.cores": float(random.integers(2, 10)) for device in devices}
        | {"memory": float(random.integers(2, 15))},
        flows=flows,
        ways=ways,
        depths=tuple(int(depth) for depth in random.choice([0, 1, 2, 5], size=random.integers(1, 4), replace=False)),
        slowdown=slowdown,
        watts={device: float(random.integers(1, 5)) for device in devices},
        hosts=devices[:1] if random.random() < 0.5 else (),
    )
    return with_shares(problem, random, exact) if random.random() < 0.5 else problem


def with_shares(problem: Problem, random: np.random.Generator, exact: bool) -> Problem:
    """The same where some options are on several engines or take more with each batch ahead, and engines take cores."""
    devices = sorted(problem.watts)

    def shared(one: Option) -> Option:
        also = {str(random.choice([d, d, f"{d}.learner", "bus"])): d for d in devices if random.random() < 0.2}
        ahead = {"memory": float(random.integers(0, 3)) if exact else random.random()} if random.random() < 0.4 else {}
        more = tuple((device, engine) for engine, device in also.items() if engine != one.engine)
        return dataclasses.replace(one, ahead=ahead, also=more)

    options = {part: tuple(map(shared, options)) for part, options in problem.options.items()}
    names = sorted({engine for each in options.values() for one in each for _, engine in one.where})
    cores = sorted(set(problem.budgets) - {"memory"})
    engines = {
        name: {str(random.choice(cores)): float(random.integers(0, 3))} for name in names if random.random() < 0.4
    }
    return dataclasses.replace(problem, options=options, engines=engines)


def with_trees(problem: Problem, random: np.random.Generator) -> Problem:
    """The same where some pairs of sampling and updating go together, and no others."""
    pairs = list(itertools.product(problem.options["sampling"], problem.options["updating"]))
    kept = random.choice(len(pairs), size=random.integers(1, len(pairs) + 1), replace=False)
    options = {part: held for part, held in problem.options.items() if part not in TREE}
    return dataclasses.replace(problem, options=options, trees=tuple(pairs[place] for place in sorted(kept)))


def with_equal(problem: Problem, random: np.random.Generator) -> Problem:
    """The same with two or three equal GPUs in place of one; some options are on two, some trees copied to another."""
    names = ("gpu", "gpu1", "gpu2")[: random.integers(2, 4)]

    def renamed(what: Any, name: str) -> Any:
        if isinstance(what, Hop):
            return dataclasses.replace(what, engine=what.engine.replace("gpu", name))
        if isinstance(what, dict):
            return {renamed(key, name): renamed(value, name) for key, value in what.items()}
        if isinstance(what, tuple):
            return tuple(renamed(one, name) for one in what)
        return named(what, {"gpu": name}) if isinstance(what, str) else what

    def each(stated: Mapping) -> dict:
        return {key: value for name in names for key, value in renamed(dict(stated), name).items()}

    def wide(one: Option) -> list[Option]:
        if one.device != "gpu" or one.also or random.random() < 0.5:
            return [one]
        own = moved({name: need for name, need in one.needs.items() if name.startswith("gpu")}, {"gpu": "gpu1"})
        also = (("gpu1", named(one.engine, {"gpu": "gpu1"})),)
        return [one, dataclasses.replace(one, also=also, needs={**one.needs, **own}, time=one.time.scaled(0.5))]

    options = {part: tuple(more for one in some for more in wide(one)) for part, some in problem.options.items()}
    copies = [(a, b.on({"gpu": "gpu1"})) for a, b in problem.trees if a.device == b.device == "gpu"]
    ways = each(problem.ways)
    if random.random() < 0.7:
        ways |= {pair: (hop(">".join(pair), 1.0, 0.5),) for pair in itertools.permutations(names, 2)}
    own = {
        engine: needs for engine, needs in problem.engines.items() if engine[:3] == "gpu" or "gpu.cores" not in needs
    }
    problem = dataclasses.replace(problem, engines=own)
    stated = {name: each(getattr(problem, name)) for name in ("budgets", "slowdown", "watts", "engines")}
    trees = (*problem.trees, *copies)
    return dataclasses.replace(problem, options=options, trees=trees, ways=ways, equal=(names,), **stated)


def doubtful(problem: Problem, random: np.random.Generator, most: float = 3.0) -> Problem:
    """The same with times that rest on few numbers, shared by parts and links, each within ends of its own."""

    def evidence() -> Evidence:
        return Evidence(f"number {random.integers(8)}", "modeled", command="measure it")

    def time(one: Option) -> Option:
        low, high = np.exp(random.uniform(0, np.log(most), 2))
        return dataclasses.replace(one, time=Estimate(one.seconds, one.seconds / low, one.seconds * high, evidence()))

    options = {part: tuple(map(time, choices)) for part, choices in problem.options.items()}
    ways = {
        pair: tuple(dataclasses.replace(one, rests_on=evidence()) for one in way) for pair, way in problem.ways.items()
    }
    return dataclasses.replace(problem, options=options, ways=ways)


def learners(*hz: tuple[str, float, float, float, str]) -> Problem:
    """A problem of nothing but learners: (name, steps a second, factor, cores, evidence)."""
    rest = {part: (option(part, part, "cpu", 1e-9, {}, f"cpu.{part}"),) for part in PARTS}
    made = []
    for name, rate, factor, cores, number in hz:
        evidence = Evidence(number, "modeled", "", f"time {number}")
        time = Estimate(1 / rate, 1 / rate / factor, factor / rate, evidence)
        made.append(Option("learner", name, "cpu", "cpu.learner", time, {"cpu.cores": cores}))
    return Problem({**rest, "learner": tuple(made)}, {"cpu.cores": 64.0})


def threads(part: Part, device: str, engine: str, one: float, most: int, gain: float) -> Iterator[Option]:
    """An option for every number of threads up to ``most``, the time of one divided by their number to the ``gain``."""
    for count in range(1, most + 1):
        time = Estimate.within(one / count**gain, 1.5, EVIDENCE)
        yield Option(part, f"{count} threads", device, f"{device}.{engine}", time, {f"{device}.cores": float(count)})


def machine(gpus: int, cores: int = 128, fanouts: int = 12, copies: int = 3) -> Problem:
    """A machine of equal GPUs, every number of threads on its processor, trees on each device or copied to another.

    Learners are on the processor, or share their batch on some of the GPUs.
    """
    names = [f"gpu{number}" for number in range(gpus)]
    shapes = [(k, n) for k in range(1, fanouts + 1) for n in range(1, cores // 4 + 1)]
    slower = {k: 1 + abs(k - 4) / 4 for k in range(1, fanouts + 1)}
    drawn = {
        "cpu": [(f"K={2**k}, {n} threads", 5e-5 * slower[k] / n**0.5, {"cpu.cores": float(n)}) for k, n in shapes],
        **{
            name: [(f"K={2**k}", 3e-5 * slower[k], {f"{name}.memory": 1e8, "cpu.cores": 1.0}) for k in slower]
            for name in names[:2]
        },
    }

    def tree(on: tuple[str, str], sampling: tuple, updating: tuple) -> tuple[Option, Option]:
        engines = ["cpu.replay" if device == "cpu" else device for device in on]
        both = on[0] != on[1]
        return (
            option("sampling", sampling[0], on[0], sampling[1] * (1 + both), sampling[2], engines[0]),
            option("updating", updating[0], on[1], updating[1] * 1.5, updating[2] if both else {}, engines[1]),
        )

    learners = [*threads("learner", "cpu", "learner", 5e-3, cores - 1, 0.6)]
    for group in (names[:size] for size in range(1, gpus + 1)):
        needs = {"cpu.cores": 1.0, **{f"{name}.memory": 1e9 for name in group}}
        one = option("learner", "+".join(group), group[0], 4e-4 / len(group) + 2e-5 * (len(group) - 1), needs)
        also = tuple((name, name) for name in group[1:])
        learners.append(dataclasses.replace(one, ahead={f"{group[0]}.memory": 1e7}, also=also))
    ways = {
        pair: (hop(">".join(pair), 1e-5, 1 / 25e9 if "cpu" in pair else 1 / 300e9),)
        for pair in itertools.permutations(["cpu", *names], 2)
    }
    pairs, firsts = (("cpu", names[0]), (names[0], "cpu"), tuple(names[:2])), ("cpu", names[0])
    trees = [tree((device, device), one, one) for device in firsts for one in drawn[device]]
    for one, other in pairs:
        trees += [tree((one, other), *both) for both in itertools.product(drawn[one][:copies], drawn[other][:copies])]
    sizes = {("actors", "storage"): 1e5, ("storage", "learner"): 2e6, ("learner", "actors"): 4e6}
    stored = [option("storage", "records", one, 3e-5, {}, "cpu.replay" if one == "cpu" else one) for one in firsts]
    return Problem(
        {
            "actors": tuple(threads("actors", "cpu", "actors", 8e-3, cores - 1, 0.95)),
            "storage": tuple(stored),
            "learner": tuple(learners),
        },
        {"cpu.cores": float(cores)} | {f"{name}.memory": 80e9 for name in names},
        tuple(Flow(*pair, sizes.get(pair, 4e3), "actors" not in pair) for pair in TALKS),
        ways,
        (0, 1, 2, 3, 4, 8, 16, 50),
        {("learner", "actors", "cpu"): 1.13, ("actors", "learner", "cpu"): 1.13},
        dict.fromkeys(names, 700.0) | {"cpu": 280.0},
        ("cpu",),
        tuple(trees),
        {"cpu.replay": {"cpu.cores": 1.0}},
        (tuple(names),) if gpus > 1 else (),
    )
