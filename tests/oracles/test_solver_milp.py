"""The search against an integer program that shares no line with it: the same largest throughput.

One binary for each option; a continuous time for each part, for each part on each engine, and for the step. Whatever
times are multiplied by binaries is bounded from below with a large constant, and the step is made as short as possible.
"""

import itertools

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from dse.solver.problem import LOOP, PARTS, Part, Problem
from dse.solver.solve import Infeasible, Solution, solve
from tests.matrix import slow
from tests.solver_cases import large_problem, random_problem


class Program:
    """Rows lower <= a x <= upper over variables by name, from 0 to ``most``."""

    def __init__(self) -> None:
        self.place: dict[object, int] = {}
        self.most: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, name: object, most: float = np.inf, whole: bool = False) -> int:
        """Its place; made when first asked for."""
        if name not in self.place:
            self.place[name] = len(self.place)
            self.most.append(most)
            self.whole.append(whole)
        return self.place[name]

    def row(self, terms: list[tuple[float, int]], lower: float, upper: float = np.inf) -> None:
        """Terms of the same variable add up."""
        factors: dict[int, float] = {}
        for factor, place in terms:
            factors[place] = factors.get(place, 0.0) + factor
        self.rows.append((factors, lower, upper))

    def least(self, place: int) -> float | None:
        """The smallest value of a variable, None where nothing is allowed."""
        matrix = scipy.sparse.lil_array((len(self.rows), len(self.place)))
        for number, (factors, _, _) in enumerate(self.rows):
            for column, factor in factors.items():
                matrix[number, column] = factor
        cost = np.zeros(len(self.place))
        cost[place] = 1
        result = scipy.optimize.milp(
            cost,
            integrality=np.array(self.whole, dtype=int),
            bounds=scipy.optimize.Bounds(0, np.array(self.most)),
            constraints=scipy.optimize.LinearConstraint(
                matrix.tocsr(), [lower for _, lower, _ in self.rows], [upper for _, _, upper in self.rows]
            ),
            options={"mip_rel_gap": 0.0},
        )
        assert result.status in {0, 2}, result.message
        return float(result.fun) if result.status == 0 else None


Taken = dict[int, int]
"""Variable by the identity of an option."""


def slowest(problem: Problem, part: Part) -> float:
    """Seconds that a part takes at most, beside whatever slows it down."""
    factor = np.prod([max(f, 1.0) for (slowed, _, _), f in problem.slowdown.items() if slowed == part])
    return float(factor) * max(each.seconds for each in problem.options[part])


def on(problem: Problem, taken: Taken, part: Part, device: str, not_engine: str = "") -> list[tuple[float, int]]:
    """Terms whose sum is 1 if a part is on a device (and on another engine)."""
    options = problem.options[part]
    return [(1.0, taken[id(each)]) for each in options if each.device == device and each.engine != not_engine]


def runs_on(problem: Problem, part: Part) -> set[str]:
    """Engines that some option of a part keeps busy."""
    return {engine for each in problem.options[part] for _, engine in each.where}


def part_seconds(program: Program, problem: Problem, taken: Taken, part: Part) -> None:
    """The time of a part is at least that of the option taken, times each factor of what runs beside it."""
    large = slowest(problem, part)
    spent = program.variable(("seconds", part))
    for each in problem.options[part]:
        slowing = [other for other in PARTS if other != part and (part, other, each.device) in problem.slowdown]
        for count in range(len(slowing) + 1):
            for beside in itertools.combinations(slowing, count):
                seconds = each.seconds * np.prod([problem.slowdown[part, other, each.device] for other in beside])
                terms = [(1.0, spent), (-large, taken[id(each)])]
                for other in beside:
                    terms += [(-large * f, at) for f, at in on(problem, taken, other, each.device, each.engine)]
                program.row(terms, seconds - large * (1 + count))
    for engine in runs_on(problem, part):
        here = [
            (-large, taken[id(each)]) for each in problem.options[part] if any(engine == one for _, one in each.where)
        ]
        program.row([(1.0, program.variable(("busy", part, engine))), (-1.0, spent), *here], -large)


def links(program: Program, problem: Problem, taken: Taken, with_actors: bool) -> dict[str, list[tuple[float, int]]]:
    """What links are busy with, by engine, and under "" what a batch waits for. Rows forbid ways that are not there."""
    busy: dict[str, list[tuple[float, int]]] = {"": []}
    devices = sorted({each.device for part in PARTS for each in problem.options[part]})
    for number, flow in enumerate(problem.flows):
        for source, target in itertools.permutations(devices, 2) if flow.nbytes else ():
            both = on(problem, taken, flow.source, source) + on(problem, taken, flow.target, target)
            if (source, target) not in problem.ways:
                program.row(both, -np.inf, 1.0)
                continue
            sent = program.variable(("sent", number, source, target))
            program.row([(1.0, sent), *((-factor, place) for factor, place in both)], -1.0)
            for hop in problem.ways[source, target]:
                seconds = hop.alpha_seconds + flow.nbytes * hop.seconds_per_byte
                busy[""] += [(seconds, sent)] if flow.waits else []
                if with_actors or "actors" not in (flow.source, flow.target):
                    busy.setdefault(hop.engine, []).append((seconds, sent))
    return busy


def budget_rows(program: Program, problem: Problem, taken: Taken, depth: int) -> None:
    """Options, batches ahead, and the engines that are in use stay within the budgets."""
    for engine in problem.engines:
        used = program.variable(("used", engine), 1.0, True)
        for each in (each for part in PARTS for each in problem.options[part]):
            if any(engine == one for _, one in each.where):
                program.row([(1.0, used), (-1.0, taken[id(each)])], 0.0)
    for budget, have in problem.budgets.items():
        needs = [
            (amounts[budget], program.place["used", one])
            for one, amounts in problem.engines.items()
            if budget in amounts
        ]
        for each in (each for part in PARTS for each in problem.options[part]):
            needs.append((each.needs.get(budget, 0.0) + depth * each.ahead.get(budget, 0.0), taken[id(each)]))
        program.row(needs, -np.inf, have)


def least_step(problem: Problem, with_actors: bool, depth: int) -> float | None:
    """Seconds of the shortest gradient step with so many batches sampled ahead."""
    program = Program()
    taken = {id(each): program.variable(id(each), 1.0, True) for part in PARTS for each in problem.options[part]}
    for part in PARTS:
        program.row([(1.0, taken[id(each)]) for each in problem.options[part]], 1.0, 1.0)
        part_seconds(program, problem, taken, part)
    budget_rows(program, problem, taken, depth)
    busy = links(program, problem, taken, with_actors)
    loop = busy.pop("") + [(1.0, program.variable(("seconds", part))) for part in LOOP]
    for part in PARTS if with_actors else LOOP:
        for engine in runs_on(problem, part):
            busy.setdefault(engine, []).append((1.0, program.variable(("busy", part, engine))))
    step = program.variable("step")
    for terms in busy.values():
        program.row([(1.0, step), *((-factor, place) for factor, place in terms)], 0.0)
    program.row([(depth + 1.0, step), *((-factor, place) for factor, place in loop)], 0.0)
    return program.least(step)


def check(problem: Problem, objective: str) -> bool:
    """The same throughput, or both find nothing; whether there is any."""
    steps = [least_step(problem, objective == "ratio", depth) for depth in problem.depths]
    step = min((step for step in steps if step), default=None)
    found = solve(problem, objective, 0.0)
    if step is None:
        assert isinstance(found, Infeasible)
        return False
    assert isinstance(found, Solution)
    assert 1 / step == pytest.approx(found.best, rel=1e-6)
    return True


@pytest.mark.parametrize("seeds", [range(40), slow(range(40, 340))])
def test_equals_an_integer_program(seeds: range) -> None:
    asked = [(random_problem(np.random.default_rng(seed)), ("training", "ratio")[seed % 2]) for seed in seeds]
    assert len(seeds) / 4 < sum(itertools.starmap(check, asked)) < len(seeds)


@pytest.mark.parametrize("scattered", [True, False])
def test_equals_an_integer_program_on_a_large_space(scattered: bool) -> None:
    assert check(large_problem(np.random.default_rng(7), 16, scattered), "ratio")
