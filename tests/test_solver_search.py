"""The search against nested loops: the same answer, ties, runner-up, front, and reasons why nothing fits."""

import numpy as np
import pytest

from dse.solver.infeasible import Infeasible
from dse.solver.objectives import OBJECTIVES, Objective
from dse.solver.problem import Problem
from dse.solver.search import Found, solve
from dse.solver.throughput import shortages
from tests.solver_cases import all_answers, by_the_rule, every, mapping, random_problem

EPSILONS = (0.0, 1e-9, 0.01, 0.1, 0.5)


def check_found(problem: Problem, objective: Objective, epsilon: float, found: Found) -> None:
    """Choice, best value, ties, runner-up and the best elsewhere are those of nested loops."""
    answers = all_answers(problem, objective)
    good = by_the_rule(problem, answers, epsilon)
    assert found.answer == good[0]
    assert found.best == max(answer.value for answer in answers) <= found.bound * (1 + 1e-12)
    first_of_mapping = {mapping(answer): answer for answer in reversed(good)}
    del first_of_mapping[mapping(good[0])]
    assert set(map(mapping, found.ties)) == set(first_of_mapping)
    assert list(found.ties) == [answer for answer in good if answer is first_of_mapping.get(mapping(answer))]
    rest = by_the_rule(problem, [answer for answer in answers if answer.configuration != found.choice], epsilon)
    assert found.runner_up == (rest[0] if rest else None)
    away = by_the_rule(problem, [answer for answer in answers if mapping(answer) != mapping(good[0])], epsilon)
    assert found.elsewhere == (away[0] if away else None)


def missing_ways(problem: Problem, configuration) -> set[tuple[str, str]]:
    """Ways that a configuration would need and has not."""
    pairs = {(configuration.of(f.source).device, configuration.of(f.target).device) for f in problem.flows if f.nbytes}
    return {pair for pair in pairs if pair[0] != pair[1] and pair not in problem.ways}


def check_infeasible(problem: Problem, answer: Infeasible) -> None:
    """The smallest sets of limits that some configuration breaks, and no others; a need as small as any."""
    broken: dict[frozenset, list[dict[str, tuple[float, float]]]] = {}
    for configuration in every(problem):
        short = shortages(problem, configuration)
        broken.setdefault(frozenset(short) | missing_ways(problem, configuration), []).append(short)
    smallest = {limits for limits in broken if not any(other < limits for other in broken)}
    assert {frozenset(repair.budgets) | frozenset(repair.ways) for repair in answer.repairs} == smallest
    for repair in answer.repairs:
        same = broken[frozenset(repair.budgets) | frozenset(repair.ways)]
        assert repair.budgets in same
        excess = [max((need / have for have, need in short.values()), default=0.0) for short in same]
        assert max((need / have for have, need in repair.budgets.values()), default=0.0) == min(excess)
        assert str(repair) in str(answer)


def check(seed: int) -> bool:
    """One random problem; whether anything fits."""
    random = np.random.default_rng(seed)
    problem = random_problem(random)
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    epsilon = float(random.choice(EPSILONS))
    found = solve(problem, objective, epsilon)
    if isinstance(found, Infeasible):
        assert not all_answers(problem, objective)
        check_infeasible(problem, found)
        return False
    check_found(problem, objective, epsilon, found)
    return True


def test_equals_nested_loops() -> None:
    feasible = sum(check(seed) for seed in range(1000))
    assert 500 < feasible < 950  # both kinds are many


@pytest.mark.slow
def test_equals_nested_loops_ten_thousand_times() -> None:
    assert sum(check(seed) for seed in range(1000, 11_000)) > 5000
