"""What must hold of every answer, whatever the problem."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dse.solver.law import OBJECTIVES, Objective
from dse.solver.problem import PARTS, Option, Problem
from dse.solver.solve import Solution, solve
from tests.solver_cases import EPSILONS, hop, option, random_problem, timed


def best(problem: Problem, objective: Objective = "ratio") -> float:
    """0 where nothing fits."""
    found = solve(problem, objective, 0.0)
    return found.best if isinstance(found, Solution) else 0.0


def drawn(seed: int) -> tuple[Problem, np.random.Generator]:
    """A problem, and numbers to change it by."""
    random = np.random.default_rng(seed)
    return random_problem(random), random


seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_another_device_option_core_or_link_never_hurts(seed: int) -> None:
    problem, random = drawn(seed)
    before = best(problem)
    part = PARTS[random.integers(5)]
    device = str(random.choice(["cpu", "npu"]))
    more = option(part, "more", device, float(random.uniform(0.1, 3)), {"memory": 1.0})
    assert (
        best(dataclasses.replace(problem, options={**problem.options, part: (*problem.options[part], more)})) >= before
    )
    linked = {
        (one, other): (hop(f"{one}>{other}", 0.1, 0.1),) for one in (*problem.watts, "npu") for other in problem.watts
    }
    npu = {each: (*problem.options[each], option(each, "n", "npu", float(random.uniform(0.1, 3)))) for each in PARTS}
    assert best(dataclasses.replace(problem, options=npu, ways=linked | dict(problem.ways))) >= before
    budget = str(random.choice(list(problem.budgets)))
    relaxed = {**problem.budgets, budget: problem.budgets[budget] + 1}
    assert best(dataclasses.replace(problem, budgets=relaxed)) >= before
    assert best(dataclasses.replace(problem, depths=(*problem.depths, 9))) >= before


@given(seeds, st.sampled_from([0.125, 0.5, 4.0]))
def test_scaling_all_times_scales_throughput_and_changes_no_choice(seed: int, factor: float) -> None:
    problem, _ = drawn(seed)

    def longer(each: Option) -> Option:
        return dataclasses.replace(each, time=timed(each.seconds * factor))

    scaled = dataclasses.replace(
        problem,
        options={part: tuple(map(longer, problem.options[part])) for part in PARTS},
        ways={
            pair: tuple(hop(one.engine, one.alpha_seconds * factor, one.seconds_per_byte * factor) for one in way)
            for pair, way in problem.ways.items()
        },
    )
    found, slower = solve(problem, "ratio"), solve(scaled, "ratio")
    if isinstance(found, Solution) and isinstance(slower, Solution):
        assert slower.best == found.best / factor  # exact: a power of two
        names = [(each.name, each.engine) for each in found.choice.options]
        assert [(each.name, each.engine) for each in slower.choice.options] == names
        assert slower.choice.depth == found.choice.depth
    else:
        assert found == slower


@given(seeds, st.sampled_from(OBJECTIVES))
def test_removing_what_is_chosen_never_helps_and_what_is_not_never_matters(seed: int, objective: Objective) -> None:
    problem, random = drawn(seed)
    found = solve(problem, objective, 0.0)
    if not isinstance(found, Solution):
        return
    part = PARTS[random.integers(5)]
    for gone in problem.options[part]:
        left = tuple(each for each in problem.options[part] if each != gone)
        if left:
            without = dataclasses.replace(problem, options={**problem.options, part: left})
            if gone == found.choice.of(part):
                assert best(without, objective) <= found.best
            else:
                assert solve(without, objective, 0.0).choice == found.choice


@given(seeds)
def test_more_patience_never_takes_more_devices(seed: int) -> None:
    problem, _ = drawn(seed)
    found = [solve(problem, "ratio", epsilon) for epsilon in EPSILONS]
    if isinstance(found[0], Solution):
        counts = [len(each.answer.outcome.devices) for each in found]
        assert counts == sorted(counts, reverse=True)
        assert all(
            each.value >= each.best * (1 - each.epsilon) and each.best <= each.bound * (1 + 1e-12) for each in found
        )
