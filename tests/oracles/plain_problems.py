"""Random small mapping problems, and whether the solver says of them what plain loops over everything say.

Two processors and two or three equal accelerators; times and intervals of one's own; learners on several of them;
trees with copies; engines that take cores, batches ahead that take memory; slow-downs and speed-ups; links one way,
over two hops, of zero bytes; budgets exactly full. In a third of them one small thing makes an accelerator unequal.

    python -m tests.oracles.plain_problems --seed 1 --count 5000
"""

import argparse
import collections
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dse.estimate import Estimate, Evidence
from dse.solver import search
from dse.solver.problem import Flow, Hop, Option, Problem
from tests.oracles import plain_answers as plain
from tests.oracles import plain_mirrors

EPSILONS = (0.0, 0.0, 0.01, 0.1, 0.3, 0.5)
OBJECTIVES = ("training", "ratio", "per_watt", "fewest_devices")
LARGEST = 2500


class Maker:
    """The random choices behind one problem: what is alike on equal accelerators is chosen once."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.even = self.random.random() < 0.6  # times on a coarse grid, so that exact ties are common
        self.shared = self.random.random() < 0.5  # equal accelerators rest on the same evidence
        self.accelerators = [f"gpu{i}" for i in range(self.random.choice((2, 2, 3)))]
        self.processors = ["cpu0", "cpu1"]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def seconds(self, scale: float = 1.0) -> float:
        if self.even:
            return self.random.choice((1, 2, 2, 4, 4, 8, 16)) * scale / 1024
        return scale * math.exp(self.random.uniform(-7.0, -4.0))

    def estimate(self, part: str, kind: str, scale: float = 1.0) -> Estimate:
        value, factor = self.seconds(scale), self.random.choice((1.02, 1.3, 2.0, 5.0))
        source = self.random.choice(("measured", "modeled", "quoted"))
        number = f"T_{self.random.choice((part, part, 'all'))}({kind})"
        return Estimate(value, value / factor, value * factor, Evidence(number, source))

    def on(self, device: str, estimate: Estimate) -> Estimate:
        """The same time on an equal device, resting on evidence of its own unless they share it."""
        number = estimate.rests_on.number
        return estimate if self.shared else estimate.resting_on(number=number.replace("(gpu)", f"({device})"))

    def on_processors(self, part: str) -> Iterator[Option]:
        for device in self.processors if self.chance(0.6) else self.processors[:1]:
            engine = self.random.choice((f"{device}.replay", f"{device}.{part}", f"{device}.{part}"))
            for threads in self.random.sample((1, 2, 4), self.random.choice((1, 1, 2))):
                time = self.estimate(part, device)
                needs = {f"{device}.cores": float(threads)} if engine != f"{device}.replay" else {}
                ahead = {f"{device}.memory": 1.0} if part == "storage" and self.chance(0.4) else {}
                yield Option(part, f"{threads} threads", device, engine, time, needs, ahead)

    def on_accelerators(self, part: str) -> Iterator[Option]:
        own_engine, time, size = self.chance(0.3), self.estimate(part, "gpu"), float(self.random.choice((0, 1, 2)))
        ahead = float(self.random.choice((0, 1)))
        for device in self.accelerators:
            engine = f"{device}.{part}" if own_engine else device
            needs, later = {f"{device}.memory": size}, {f"{device}.memory": ahead} if ahead else {}
            yield Option(part, f"kernel on {device}", device, engine, self.on(device, time), needs, later)

    def learners_together(self) -> Iterator[Option]:
        """Learners that share a batch: every set of two (or three), with each or just the first one in the lead."""
        if not self.chance(0.5):
            return
        count, time = self.random.choice((2, len(self.accelerators))), self.estimate("learner", "gpu", 0.5)
        any_leads = self.chance(0.6)
        for devices in itertools.combinations(self.accelerators, count):
            for lead in devices if any_leads else devices[:1]:
                others = tuple((device, device) for device in devices if device != lead)
                needs = {f"{device}.memory": 1.0 for device in devices}
                name = f"together on {' '.join(devices)}" if self.shared else f"{count} together"
                yield Option("learner", name, lead, lead, self.on(lead, time), needs, {}, others)

    def tree_pairs(self) -> Iterator[tuple[Option, Option]]:
        """One tree on a device, or copies on two."""
        home = [self.on_processors("sampling"), self.on_processors("updating")]
        processors = list(itertools.product(*home))
        yield from (pair for pair in processors if pair[0].device == pair[1].device)
        there = list(zip(self.on_accelerators("sampling"), self.on_accelerators("updating"), strict=True))
        yield from there if self.chance(0.8) else ()
        if self.chance(0.5):
            yield from ((sampling, processors[0][1]) for sampling, _ in there)

    def options(self) -> dict[str, Any]:
        options = {part: tuple(self.on_processors(part)) for part in ("actors", "storage", "learner")}
        options["storage"] += tuple(self.on_accelerators("storage")) if self.chance(0.5) else ()
        options["learner"] += (*self.on_accelerators("learner"), *self.learners_together())
        if self.chance(0.6):
            return {"options": options, "trees": tuple(self.tree_pairs())}
        for part in ("sampling", "updating"):
            options[part] = tuple(self.on_processors(part))
            options[part] += tuple(self.on_accelerators(part)) if self.chance(0.4) else ()
        return {"options": options}

    def hop(self, engine: str, kind: str) -> tuple[Hop, ...]:
        alpha, each = self.random.choice((0.0, 1 / 1024)), self.random.choice((0.0, 1 / 1024, 1 / 256))
        number = f"link({kind})" if self.shared else f"link({engine})"
        return (Hop(engine, alpha, each, Evidence(number, "modeled")),)

    def ways(self) -> dict[tuple[str, str], tuple[Hop, ...]]:
        """Links of the first processor with all; over it, or not at all, from the second one and among accelerators."""
        first, second = self.processors
        bus = self.chance(0.3)  # all share one engine
        there, back = self.hop("bus", "bus"), self.hop("bus", "bus")
        if not bus:
            there, back = self.hop("down", "down"), self.hop("up", "up")
        ways = {}
        for device in self.accelerators:
            ends = ((first, device), there), ((device, first), back)
            for (source, target), hops in ends if self.chance_once("both", 0.85) else ends[:1]:
                named = [replace(hop, engine=hop.engine if bus else f"{source}->{target}") for hop in hops]
                ways[source, target] = tuple(named)
        if self.chance(0.8):
            ways[first, second] = self.hop("cpu0->cpu1", "between")
            ways.update({(second, first): self.hop("cpu1->cpu0", "between")} if self.chance(0.8) else {})
        return self.over_two(ways)

    def over_two(self, ways: dict[tuple[str, str], tuple[Hop, ...]]) -> dict[tuple[str, str], tuple[Hop, ...]]:
        direct = dict(ways)
        for a, b in itertools.permutations([*self.processors[1:], *self.accelerators], 2):
            among = a in self.accelerators and b in self.accelerators
            if (a, "cpu0") in direct and ("cpu0", b) in direct and self.chance_once(f"over {among}", 0.7):
                ways[a, b] = (*direct[a, "cpu0"], *direct["cpu0", b])
        return ways

    def chance_once(self, what: str, probability: float) -> bool:
        """The same outcome whenever the same is asked."""
        known: dict[str, bool] = self.__dict__.setdefault("known", {})
        return known.setdefault(what, self.chance(probability))

    def flows(self) -> tuple[Flow, ...]:
        ends = [("actors", "storage", False), ("storage", "learner", True), ("sampling", "storage", True)]
        ends += [("learner", "updating", True), ("learner", "actors", False), ("updating", "sampling", False)]
        chosen = [end for end in ends if self.chance(0.7)]
        return tuple(
            Flow(a, b, self.random.choice((0.0, 0.0, 0.5, 1.0, 2.0)), waits, self.random.choice((1.0, 1.0, 0.25)))
            for a, b, waits in chosen
        )

    def slowdown(self) -> dict[tuple[str, str, str], float]:
        pairs = self.random.sample(list(itertools.permutations(plain.ORDER, 2)), self.random.choice((0, 2, 6)))
        slow = {}
        for part, other in pairs:
            on_cpu, on_gpu = self.random.choice((0.5, 1.5, 3.0)), self.random.choice((0.75, 2.0))
            slow.update({(part, other, device): on_cpu for device in self.processors})
            slow.update({(part, other, device): on_gpu for device in self.accelerators})
        return slow

    def problem(self) -> Problem:
        """All of it, with budgets that some random configuration exactly fills, or none does."""
        devices = [*self.processors, *self.accelerators]
        names = [*(f"{device}.cores" for device in self.processors), *(f"{device}.memory" for device in devices)]
        gpu_watts = float(self.random.choice((50, 200)))
        watts = {"cpu0": 100.0, "cpu1": 150.0, **dict.fromkeys(self.accelerators, gpu_watts)}
        engines = {f"{device}.replay": {f"{device}.cores": 1.0} for device in self.processors}
        engines.update({device: {"cpu0.cores": 1.0} for device in self.accelerators} if self.chance(0.3) else {})
        hosts = ("cpu0",) if self.chance(0.7) else ()
        depths = self.random.choice(((0,), (0, 1), (0, 3), (1, 2), (0, 1, 4)))
        generous = dict.fromkeys(names, 1e6)
        common = {"flows": self.flows(), "ways": self.ways(), "depths": depths, "slowdown": self.slowdown()}
        whole = Problem(budgets=generous, watts=watts, hosts=hosts, engines=engines, **common, **self.options())
        return self.unequal(self.filled(whole))

    def filled(self, problem: Problem) -> Problem:
        parts = {o.part: o for axis in plain_mirrors.axes(problem) for o in self.random.choice(axis)}
        need = plain.needs(problem, plain.Configuration(**parts, depth=self.random.choice(problem.depths)))
        most = max(need[f"{device}.memory"] for device in self.accelerators)
        need.update({f"{device}.memory": most for device in self.accelerators})
        less = 1.0 if self.chance(0.15) else 0.0
        tight = {n: max(0.0, need[n] - less) if self.chance_once(n[:3] + n[4:], 0.6) else 1e6 for n in problem.budgets}
        return replace(problem, budgets=tight)

    def unequal(self, problem: Problem) -> Problem:
        """In a third of the problems, one thing that sets the last accelerator apart."""
        last, kind = self.accelerators[-1], self.random.choice(("watts", "budget", "slowdown", "route", "host", "time"))
        if not self.chance(0.35):
            return problem
        if kind == "watts":
            return replace(problem, watts={**problem.watts, last: 60.0})
        if kind == "budget":
            return replace(problem, budgets={**problem.budgets, f"{last}.memory": 3.0})
        if kind == "slowdown":
            return replace(problem, slowdown={**problem.slowdown, ("learner", "storage", last): 1.25})
        if kind == "route":
            return replace(problem, ways={ends: hops for ends, hops in problem.ways.items() if ends[0] != last})
        if kind == "host":
            return replace(problem, hosts=(*problem.hosts, last))
        changed = [
            replace(o, time=o.time.scaled(0.75)) if o.device == last and not o.also else o
            for o in problem.options["learner"]
        ]
        return problem.having("learner", *changed)


def problems(seed: int, count: int) -> Iterator[tuple[int, Problem, str, float]]:
    """(its own seed, problem, objective, epsilon) of so many problems, none of which is too large for plain loops."""
    for own in itertools.count(seed * 10_000_000):
        if not count:
            return
        maker = Maker(own)
        problem = maker.problem()
        if 0 < math.prod([len(axis) for axis in problem.axes]) * len(problem.depths) <= LARGEST:
            count -= 1
            yield own, problem, maker.random.choice(OBJECTIVES), maker.random.choice(EPSILONS)


def differences(problem: Problem, objective: str, epsilon: float) -> list[str]:
    """What the solver and the plain loops say differently, each with both."""
    mine, theirs = plain.brute_force(problem, objective, epsilon), search.solve(problem, objective, epsilon)
    if isinstance(mine, dict) or not hasattr(theirs, "answer"):
        return _repairs(problem, mine, theirs)
    pairs = {
        "answer": (mine.answer.configuration, theirs.answer.configuration),
        "value": (mine.answer.value(objective), theirs.answer.value),
        "best": (mine.best, theirs.best),
        "ties": ([row.configuration for row in mine.ties], [tie.configuration for tie in theirs.ties]),
        "runner-up": tuple(getattr(one, "configuration", None) for one in (mine.runner_up, theirs.runner_up)),
        "elsewhere": tuple(getattr(one, "configuration", None) for one in (mine.elsewhere, theirs.elsewhere)),
        "learner_hz": (mine.learner_hz, theirs.learner_hz),
        "configurations": (mine.configurations, theirs.configurations),
    }
    unlike = [f"{what}: {a} by loops, {b} by the solver" for what, (a, b) in pairs.items() if a != b]
    if not math.isclose(mine.bound, theirs.bound, rel_tol=1e-12):
        unlike.append(f"bound: {mine.bound} by loops, {theirs.bound} by the solver")
    outcome = theirs.answer.outcome
    named = outcome.training_bottleneck if objective == "training" else outcome.bottleneck
    if named not in mine.answer.bottlenecks(objective):
        unlike.append(f"bottleneck: {mine.answer.bottlenecks(objective)} by loops, {named} by the solver")
    return unlike


def _repairs(problem: Problem, mine: Any, theirs: Any) -> list[str]:
    if not isinstance(mine, dict) or hasattr(theirs, "answer"):
        return [f"fits: {not isinstance(mine, dict)} by loops, {hasattr(theirs, 'answer')} by the solver"]
    said = {frozenset((*r.budgets, *r.ways)): {n: need for n, (_, need) in r.budgets.items()} for r in theirs.repairs}
    mirror = plain_mirrors.images(problem)
    theirs_once = {plain.mirrored_limits(mirror, limits): sorted(needs.values()) for limits, needs in said.items()}
    ours = {plain.mirrored_limits(mirror, limits): needs for limits, needs in mine.items()}
    same = len(theirs_once) == len(said) and theirs_once.keys() == ours.keys()
    same = same and all(needs in [sorted(one.values()) for one in ours[key]] for key, needs in theirs_once.items())
    unlike = [] if same else [f"repairs: {ours} by loops, {said} by the solver"]
    have = {n: have for r in theirs.repairs for n, (have, _) in r.budgets.items()}
    return unlike + [f"have {n}: {h}" for n, h in have.items() if problem.budgets[n] != h]


def main(arguments: list[str] | None = None) -> int:
    """Compare, and print how many differ and in what."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    options = parser.parse_args(arguments)
    kinds, examples = collections.Counter[str](), {}
    infeasible = mirrored = 0
    for own, problem, objective, epsilon in problems(options.seed, options.count):
        infeasible += not hasattr(search.solve(problem, objective, epsilon, False), "answer")
        mirrored += len(plain_mirrors.images(problem)) > 1
        for text in differences(problem, objective, epsilon):
            kinds[text.split(":")[0]] += 1
            examples.setdefault(text.split(":")[0], (own, objective, epsilon))
    counts = f"{infeasible} fit nothing, {mirrored} have equal devices"
    print(f"{options.count} problems ({counts}): {dict(kinds) or 'none'} differ")
    for what, (own, objective, epsilon) in examples.items():
        print(f"  {what}: first at Maker({own}), {objective}, epsilon {epsilon}")
    return bool(kinds)


if __name__ == "__main__":
    raise SystemExit(main())
