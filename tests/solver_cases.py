"""Small random mapping problems that have a bit of everything, and the answer by nested loops over ``outcome``."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dse.estimate import Estimate, Evidence
from dse.solver.objectives import Objective, threshold, tie_key, value
from dse.solver.problem import PARTS, TREE, Configuration, Flow, Hop, Option, Part, Problem
from dse.solver.search import Answer
from dse.solver.throughput import fits, outcome

EVIDENCE = Evidence("test", "modeled")
EPSILONS = (0.0, 1e-9, 0.01, 0.1, 0.5)
DEVICES = ("cpu", "gpu", "fpga")
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


def hop(engine: str, alpha: float, per_byte: float) -> Hop:
    """A link in one direction."""
    return Hop(engine, alpha, per_byte, EVIDENCE)


def random_problem(random: np.random.Generator) -> Problem:
    """Up to four options a part on up to three devices.

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
                str(random.choice(engines)),
                time(3) - 1 if exact else random.random(),
                0.25 if exact else random.random() / 3,
            )
            for _ in range(random.integers(1, 3))
        )

    ways = {
        (source, target): way(source, target)
        for source in devices
        for target in devices
        if source != target and random.random() < 0.85
    }
    flows = tuple(
        Flow(source, target, float(random.integers(0, 4)), bool(random.random() < 0.6))
        for source, target in TALKS
        if random.random() < 0.7
    )
    slowdown = {
        (PARTS[random.integers(5)], PARTS[random.integers(5)], str(random.choice(devices))): float(
            random.choice([1.5, 2.0])
        )
        for _ in range(random.integers(0, 4))
    }
    problem = Problem(
        options={part: tuple(drawn_option(part, n) for n in range(random.integers(1, 5))) for part in PARTS},
        budgets={
            **{f"{device}.cores": float(random.integers(2, 10)) for device in devices},
            "memory": float(random.integers(2, 15)),
        },
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


def numbered(problem: Problem, random: np.random.Generator) -> Problem:
    """The same where times rest on "one", on "two", or on a number that names the device."""

    def evidence(*devices: str) -> Evidence:
        return Evidence(str(random.choice(["one", "two", f"of {'>'.join(devices)}"])), "modeled")

    def other(one: Option) -> Option:
        return dataclasses.replace(one, time=dataclasses.replace(one.time, rests_on=evidence(one.device)))

    return dataclasses.replace(
        problem,
        options={part: tuple(map(other, options)) for part, options in problem.options.items()},
        ways={
            pair: tuple(dataclasses.replace(one, rests_on=evidence(*pair)) for one in way)
            for pair, way in problem.ways.items()
        },
    )


def twinned(problem: Problem, random: np.random.Generator) -> Problem:
    """The same with two or three equal GPUs, gpu0 and so on, in place of one.

    Some options are on several of them, on each set once or with each of a set as the one that is sent to.
    """
    names = ("gpu0", "gpu1", "gpu2")[: random.integers(2, 4)]
    first_only, talk = random.random() < 0.5, random.random() < 0.7

    def on(text: str, name: str) -> str:
        return text.replace("gpu", name)

    def amounts(needs: Mapping[str, float], name: str) -> dict[str, float]:
        return {on(budget, name): amount for budget, amount in needs.items()}

    def moved(one: Option, name: str) -> Option:
        where = tuple((on(device, name), on(engine, name)) for device, engine in one.where)
        time = one.time.resting_on(number=on(one.time.rests_on.number, name))
        changes = {
            "needs": amounts(one.needs, name),
            "ahead": amounts(one.ahead, name),
            "also": where[1:],
            "time": time,
        }
        return dataclasses.replace(one, device=where[0][0], engine=where[0][1], **changes)

    def copied(one: Option) -> list[Option]:
        copies = [
            moved(one, name) for name in names if name == names[0] or "gpu" in str((one.where, one.needs, one.ahead))
        ]
        if one.device == "gpu" and one.part in ("learner", "storage") and not one.also and random.random() < 0.5:
            time = one.time.scaled(0.5)
            for size in range(2, len(names) + 1):
                for group in itertools.permutations(names, size):
                    if group[1:] == tuple(sorted(group[1:])) and (not first_only or group[0] < group[1]):
                        also = tuple((name, on(one.engine, name)) for name in group[1:])
                        copies.append(dataclasses.replace(moved(one, group[0]), time=time, also=also))
        return copies

    ways = {
        (on(source, name), on(target, name)): tuple(
            dataclasses.replace(
                one,
                engine=on(one.engine, name),
                rests_on=dataclasses.replace(one.rests_on, number=on(one.rests_on.number, name)),
            )
            for one in way
        )
        for (source, target), way in problem.ways.items()
        for name in names
    }
    if talk:
        ways |= {pair: (hop(">".join(pair), 1.0, 0.5),) for pair in itertools.permutations(names, 2)}
    return dataclasses.replace(
        problem,
        options={part: tuple(o for one in each for o in copied(one)) for part, each in problem.options.items()},
        budgets={on(budget, name): have for budget, have in problem.budgets.items() for name in names},
        ways=ways,
        slowdown={(*key[:2], on(key[2], name)): f for key, f in problem.slowdown.items() for name in names},
        watts={on(device, name): watts for device, watts in problem.watts.items() for name in names},
        engines={on(engine, name): amounts(needs, name) for engine, needs in problem.engines.items() for name in names},
    )


def images(equal: tuple[str, ...]) -> Iterator[Callable[[str], str]]:
    """Every way to exchange the names of equal devices in a text."""
    for order in itertools.permutations(equal):
        image = dict(zip(equal, order, strict=True))
        yield lambda text, image=image: re.sub(r"gpu\d", lambda match: image.get(match[0], match[0]), text)


def first_image(one: Configuration, equal: tuple[str, ...]) -> tuple[str, ...]:
    """The same text for configurations that are mirror images of each other."""

    def text(option: Option, on: Callable[[str], str]) -> str:
        needs = [sorted((on(budget), n) for budget, n in needs.items()) for needs in (option.needs, option.ahead)]
        where = [(on(device), on(engine)) for device, engine in option.where]
        return str((where[0], sorted(where[1:]), on(option.name), option.time, needs, one.depth))

    return min(tuple(text(option, on) for option in one.options) for on in images(equal))


def first_limits(limits: frozenset, equal: tuple[str, ...]) -> tuple[str, ...]:
    """The same text for limits that are mirror images of each other."""
    return min(tuple(sorted(on(str(limit)) for limit in limits)) for on in images(equal))


def every(problem: Problem) -> Iterator[Configuration]:
    """All configurations, whether they fit or not."""
    for chosen in itertools.product(*problem.axes):
        options = {option.part: option for choice in chosen for option in choice}
        for depth in problem.depths:
            yield Configuration(**options, depth=depth)


def with_trees(problem: Problem, random: np.random.Generator) -> Problem:
    """The same where some pairs of sampling and updating go together, and no others."""
    pairs = list(itertools.product(problem.options["sampling"], problem.options["updating"]))
    kept = random.choice(len(pairs), size=random.integers(1, len(pairs) + 1), replace=False)
    options = {part: held for part, held in problem.options.items() if part not in TREE}
    return dataclasses.replace(problem, options=options, trees=tuple(pairs[place] for place in sorted(kept)))


def all_answers(problem: Problem, objective: Objective) -> list[Answer]:
    """Of everything that fits."""
    given = ((one, outcome(problem, one)) for one in every(problem) if fits(problem, one))
    return [Answer(one, gives, value(objective, gives)) for one, gives in given]


def by_the_rule(problem: Problem, answers: list[Answer], epsilon: float) -> list[Answer]:
    """All that is as good as the best, in the order of the tie rule."""
    if not answers:
        return []
    least = threshold(max(answer.value for answer in answers), epsilon)
    good = [answer for answer in answers if answer.value >= least]
    return sorted(good, key=lambda answer: tie_key(problem, answer.configuration, answer.outcome))


Devices = tuple[tuple[str, ...], ...]


def mapping(answer: Answer, equal: tuple[str, ...] = ()) -> Devices:
    """Devices of each part; of mirror images, where some are equal, always the same one."""
    devices = [[device for device, _ in one.where] for one in answer.configuration.options]
    images = (dict(zip(equal, image, strict=True)) for image in itertools.permutations(equal))
    return min(
        tuple((image.get(first, first), *sorted(image.get(one, one) for one in more)) for first, *more in devices)
        for image in images
    )


WORK = {"actors": 8e-3, "sampling": 4e-4, "storage": 8e-5, "learner": 8e-3, "updating": 2e-4}
SLICE = {"lut": 200e3, "ff": 400e3, "bram36": 420.0, "uram": 160.0, "dsp": 1320.0}


def large_problem(random: np.random.Generator, designs: int, scattered: bool) -> Problem:
    """CPU, GPU and FPGA with two slices: some 10^5 times ``designs`` cubed / 64 configurations.

    Threads on the CPU share its cores. Learner and sum tree have ``designs`` designs each on a slice of their own,
    faster ones larger; where times are not ``scattered``, no design is dominated, since needs vary on their own.
    """

    def design(part: Part, number: int, slice_: str) -> Option:
        size = float(np.exp(random.uniform(0, 3)))
        taken = 0.3 * WORK[part] / size * float(np.exp(random.normal(0, 0.5)) if scattered else 1)
        needs = {
            f"fpga.{slice_}.{budget}": have * size / 10 * float(1 if scattered else np.exp(random.normal(0, 0.3)))
            for budget, have in SLICE.items()
        }
        return option(part, f"design {number}", "fpga", taken, needs, f"fpga.{slice_}.{part}")

    options: dict[Part, list[Option]] = {part: [] for part in PARTS}
    for part in PARTS:
        for threads in range(1, 3 if part == "storage" else 13):
            needs = {"cpu.cores": float(threads)}
            options[part].append(
                option(part, f"{threads} threads", "cpu", WORK[part] / threads**0.8, needs, f"cpu.{part}")
            )
        if part != "actors":
            for way in (1, 2, 3):
                needs = {"gpu.memory_bytes": 2e9 / way}
                options[part].append(option(part, f"way {way}", "gpu", WORK[part] / 8 * (1 + way / 10), needs))
    options["learner"] += [design("learner", number, "slr0") for number in range(designs)]
    options["sampling"] += [design("sampling", number, "slr1") for number in range(designs)]
    options["updating"] += [design("updating", number, "slr1") for number in range(designs)]
    down = {"gpu": hop("gpu>cpu", 1e-5, 1e-10), "fpga": hop("fpga>cpu", 1e-5, 1e-10)}
    up = {"gpu": hop("cpu>gpu", 1e-5, 1e-10), "fpga": hop("cpu>fpga", 1e-5, 1e-10)}
    return Problem(
        options={part: tuple(each) for part, each in options.items()},
        budgets={
            "cpu.cores": 16.0,
            "gpu.memory_bytes": 5e9,
            **{f"fpga.{slice_}.{budget}": have for slice_ in ("slr0", "slr1") for budget, have in SLICE.items()},
        },
        flows=tuple(
            Flow(source, target, 1e5 if "learner" in (source, target) else 1e3, target != "actors" != source)
            for source, target in TALKS
        ),
        ways={
            **{("cpu", device): (way,) for device, way in up.items()},
            **{(device, "cpu"): (way,) for device, way in down.items()},
            ("gpu", "fpga"): (down["gpu"], up["fpga"]),
            ("fpga", "gpu"): (down["fpga"], up["gpu"]),
        },
        depths=(0, 1, 2, 3, 4, 6, 8, 16),
        slowdown={("learner", "actors", "cpu"): 1.1},
        watts={"cpu": 100.0, "gpu": 250.0, "fpga": 40.0},
        hosts=("cpu",),
    )
