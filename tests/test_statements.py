"""What a full answer states, taken at its word: solved again at the stated times, by plain loops or by the search."""

import random
from collections import Counter

import pytest

from dse import solve
from dse.mapping.question import ask
from dse.solver import search
from dse.solver.infeasible import Infeasible
from dse.solver.objectives import EPSILONS, OBJECTIVES

from . import plain_answers as plain
from . import plain_doubt, plain_problems

SYSTEMS = [(name, task) for name in ("u200", "h200", "edge") for task in ("hopper_ddpg", "pong_dqn", "cartpole_dqn")]
FARTHEST = 30.0


def in_plain_problems(seed, count, wrong):
    """What ``wrong`` finds in the answers of so many random problems, as one text; each is asked by its objective."""
    kinds, texts = Counter(), []
    for own, problem, objective, _ in plain_problems.problems(seed, count):
        solution = solve(problem, objective)
        if isinstance(solution, Infeasible):
            continue
        for text in wrong(problem, objective, solution, EPSILONS[objective]):
            kinds[text.split(":")[0]] += 1
            texts.append(f"Maker({own}), {objective}: {text}")
    return "\n".join([str(dict(kinds)), *texts[:3]]) if kinds else ""


def test_the_two_plain_readings_of_the_law_agree():
    for _, problem, objective, _ in plain_problems.problems(5, 10):
        for row in plain.fitting_rows(problem)[:100]:
            value = plain_doubt.values(problem, row, objective, {})[0]
            assert value == pytest.approx(row.value(objective), rel=1e-12)


def test_what_cannot_be_told_apart_is_chosen_by_the_rule():
    assert not in_plain_problems(0, 25, plain_doubt.faults)


def test_statements_about_plain_problems_hold():
    assert not in_plain_problems(1, 15, plain_doubt.false_statements)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 204))
def test_what_cannot_be_told_apart_is_chosen_by_the_rule_in_hundreds(seed):
    assert not in_plain_problems(seed, 100, plain_doubt.faults)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 304))
def test_statements_about_hundreds_of_plain_problems_hold(seed):
    assert not in_plain_problems(seed, 50, plain_doubt.false_statements)


def false_of_system(platform, workload, objective, count, seed):
    """(how many statements were drawn, those that are false): solved again just inside, just beyond, and at 30x."""
    question = ask(platform, workload, objective)
    problems = question.built().problems
    solution = solve(problems, objective)
    choice = plain.judged(solution.problem, solution.choice)
    most = max(best(problem, objective) for problem in problems.values())
    keep = min(1 - solution.epsilon, choice.value(objective) / most)

    def lost(number, factor, slack):
        mine = plain_doubt.values(solution.problem, choice, objective, {number: factor})[0]
        others = (best(plain.scaled(problem, number, factor), objective) for problem in problems.values())
        return max(others) * keep > mine * (1 + slack)

    sides = [(one.number, one.up, FARTHEST) for one in solution.survival]
    sides += [(one.number, one.down, 1 / FARTHEST) for one in solution.survival]
    drawn, false = random.Random(seed).sample(sides, min(count, len(sides))), []
    for number, stated, end in drawn:
        last = end if stated is None else stated ** (1 - 1e-3)
        false += [f"{number} to {stated}: better at {f}" for f in (last, last**0.5) if lost(number, f, 1e-7)]
        if stated is not None and not lost(number, stated ** (1 + 1e-3), 0.0):
            false.append(f"{number} to {stated}: nothing is better beyond")
    return len(drawn), false


def best(problem, objective):
    """The largest value of a problem; 0 where nothing fits."""
    result = search.solve(problem, objective, 0.0, alternatives=False)
    return 0.0 if isinstance(result, Infeasible) else result.best


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_statements_about_a_shipped_platform_hold(objective):
    count, false = false_of_system("u200", "hopper_ddpg", objective, 6, 1)
    assert (count, false) == (6, [])


@pytest.mark.slow
def test_five_hundred_statements_hold():
    """Of all shipped platforms, three workloads and every objective."""
    total, false = 0, []
    for seed, (system, objective) in enumerate((system, goal) for system in SYSTEMS for goal in OBJECTIVES):
        count, wrong = false_of_system(*system, objective, 16, seed)
        total += count
        false += [f"{system}, {objective}: {text}" for text in wrong]
    assert not false
    assert total >= 500
