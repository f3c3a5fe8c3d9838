"""Full answers from plain problems: what cannot be told apart, what is said about it, and that none of it is false."""

import dataclasses
import json

import numpy as np
import pytest

import dse
from dse.estimate import Estimate, Evidence
from dse.solver.doubt import Candidate, Doubt
from dse.solver.objectives import OBJECTIVES, threshold, value
from dse.solver.problem import PARTS, Problem, ProblemError
from dse.solver.search import Answer, Found
from dse.solver.search import solve as search
from dse.solver.sensitivity import ROUNDING
from dse.solver.solution import Solution, solve
from dse.solver.throughput import outcome
from tests.solver_cases import every, option, random_problem
from tests.system.test_solver_answer import same, scaled


def doubtful(problem: Problem, random: np.random.Generator, most: float = 3.0) -> Problem:
    """The problem with times that rest on few pieces of evidence, shared between parts, each within ends of its own."""

    def time(estimate: Estimate) -> Estimate:
        low, high = np.exp(random.uniform(0, np.log(most), 2))
        evidence = Evidence(f"number {random.integers(4)}", "modeled", command="measure it")
        return Estimate(estimate.value, estimate.value / low, estimate.value * high, evidence)

    options = {
        part: tuple(dataclasses.replace(one, time=time(one.time)) for one in choices)
        for part, choices in problem.options.items()
    }
    return dataclasses.replace(problem, options=options)


def learners(*hz: tuple[str, float, float, float, str]) -> Problem:
    """A problem of nothing but learners: (name, steps a second, factor, cores, evidence)."""
    rest = {part: (option(part, part, "cpu", 1e-9, {}, f"cpu.{part}"),) for part in PARTS}
    made = [
        dataclasses.replace(
            option("learner", name, "cpu", 1 / rate, {"cpu.cores": cores}, "cpu.learner"),
            time=Estimate(
                1 / rate, 1 / rate / factor, factor / rate, Evidence(number, "modeled", "", f"time {number}")
            ),
        )
        for name, rate, factor, cores, number in hz
    ]
    return Problem({**rest, "learner": tuple(made)}, {"cpu.cores": 64.0})


FIXED = np.random.default_rng(0)


# The rule


def test_what_cannot_be_told_apart_goes_to_the_fewest_cores():
    """One thread at 80 a second against eight at 100, both right within 3x: nobody knows which is faster."""
    solution = solve(learners(("8 threads", 100.0, 3.0, 8.0, "T(8)"), ("1 thread", 80.0, 3.0, 1.0, "T(1)")))
    assert solution.choice.learner.name == "1 thread"
    assert solution.best.configuration.learner.name == "8 threads"
    assert [one.configuration.learner.name for one in solution.ties] == ["8 threads"]
    assert 0.5 < solution.best.chance < 0.8
    assert solution.decide.number in ("T(1)", "T(8)")
    assert "to decide, measure T(" in str(solution)


def test_what_is_wrong_together_is_told_apart():
    """The same two threads' counts on the same evidence with the same ends: their quotient is exact."""
    solution = solve(learners(("8 threads", 100.0, 3.0, 8.0, "T"), ("1 thread", 80.0, 3.0, 1.0, "T")))
    assert solution.choice.learner.name == "8 threads"
    assert (solution.best, solution.ties, solution.others_tied) == (None, (), 0)


def test_no_more_than_a_fifth_is_given_up_and_less_than_half_is_not_listed():
    def answer(rate):
        return solve(learners(("8 threads", 100.0, 20.0, 8.0, "T(8)"), ("1 thread", rate, 20.0, 1.0, "T(1)")))

    assert answer(81.0).choice.learner.name == "1 thread"
    for rate, listed in ((79.0, 1), (51.0, 1), (49.0, 0)):
        assert answer(rate).choice.learner.name == "8 threads"
        assert len(answer(rate).ties) == listed


def test_an_epsilon_switches_the_doubt_off():
    problem = learners(("8 threads", 100.0, 3.0, 8.0, "T(8)"), ("1 thread", 80.0, 3.0, 1.0, "T(1)"))
    assert solve(problem, epsilon=0.0).choice.learner.name == "8 threads"
    assert solve(problem, epsilon=0.1).choice.learner.name == "8 threads"
    assert solve(problem, epsilon=0.3).choice.learner.name == "1 thread"


@pytest.mark.parametrize("seed", range(60))
def test_with_an_epsilon_the_answer_is_that_of_the_search(seed):
    random = np.random.default_rng(seed)
    problem, objective = doubtful(random_problem(random), random), OBJECTIVES[seed % len(OBJECTIVES)]
    found, solution = search(problem, objective, 0.05), solve(problem, objective, 0.05)
    assert isinstance(found, Found) == isinstance(solution, Solution)
    if isinstance(found, Found):
        assert solution.choice == found.choice
        assert (solution.value, solution.bound) == (found.value, found.bound)


@pytest.mark.parametrize("seed", range(60))
def test_of_what_cannot_be_told_apart_nothing_takes_less(seed):
    """Exact times: epsilon alone decides. Else: all that is listed reaches the best, and is worth half of it."""
    random = np.random.default_rng(seed)
    objective, exact = OBJECTIVES[seed % len(OBJECTIVES)], seed % 3 == 0
    problem = dataclasses.replace(random_problem(random), flows=())
    solution = solve(problem if exact else doubtful(problem, random), objective)
    if not isinstance(solution, Solution):
        return
    best = max(solution.value, solution.best.value if solution.best else 0.0)
    least = threshold(best, solution.epsilon) if exact else best / 2
    for one in (solution, *solution.ties):
        assert one.value >= least
    cost = len(solution.outcome.devices)
    assert all(len(one.outcome.devices) >= cost for one in solution.ties if one.value >= 0.8 * best)
    json.dumps(solution.to_dict())
    assert len(str(solution).splitlines()) <= 15


def test_modes_are_problems_by_their_name():
    slow, fast = learners(("only", 50.0, 1.1, 1.0, "T")), learners(("only", 100.0, 1.1, 1.0, "T"))
    solution = solve({"apart": slow, "pipelined": fast}, "ratio")
    assert (solution.mode, solution.value) == ("pipelined", pytest.approx(100.0))
    assert solution.runner_up.mode == "apart"
    assert solution.runner_up.cost == pytest.approx(0.5)
    equal = solve({"apart": fast, "pipelined": fast}, "ratio")
    assert equal.mode == "apart"
    with pytest.raises(ProblemError, match="no problem to solve"):
        solve({})


def test_what_is_slower_and_takes_more_is_only_counted():
    """S14: of four that tie, one is faster with more cores, the others gain nothing."""
    problem = learners(
        ("1", 80.0, 3.0, 1.0, "a"), ("8", 100.0, 3.0, 8.0, "b"), ("9", 90.0, 3.0, 9.0, "c"), ("7", 79.0, 3.0, 7.0, "d")
    )
    solution = solve(problem)
    assert [one.configuration.learner.name for one in solution.ties] == ["8"]


# What is said of it


def better(problem: Problem, objective: str, number: str, factor: float, choice) -> float:
    """How much larger the best value is than the choice's, where a number is so many times as large."""
    other = scaled(problem, number, factor)
    found = search(other, objective, 0.0, alternatives=False)
    return found.best / value(objective, outcome(other, same(other, choice)))


def check_statements(seed: int) -> int:
    """Re-solve one random problem at every factor that is stated, and at 30 times where none is; how many were."""
    random = np.random.default_rng(seed)
    problem, objective = doubtful(random_problem(random), random), OBJECTIVES[seed % len(OBJECTIVES)]
    names = [(one.part, one.name, one.device, one.engine) for one in problem.every_option()]
    solution = solve(problem, objective)
    if not isinstance(solution, Solution) or len(set(names)) < len(names):  # twins that ``same`` cannot tell apart
        return 0
    best = max(solution.value, solution.best.value if solution.best else 0.0)
    allowed = max(1 / (1 - solution.epsilon), best / solution.value) * (1 + 10 * ROUNDING)
    for one in solution.survival:
        for stated, end in ((one.down, 1 / 30), (one.up, 30.0)):
            more = better(problem, objective, one.number, stated or end, solution.choice)
            inside = better(problem, objective, one.number, (stated or end) ** 0.999, solution.choice)
            assert inside <= allowed, (seed, one)
            if stated:
                beyond = better(
                    problem, objective, one.number, stated * (1.001 if stated > 1 else 0.999), solution.choice
                )
                assert max(more, beyond) > allowed * (1 - 1e-6), (seed, one)
            else:
                assert more <= allowed, (seed, one)
    return 2 * len(solution.survival)


def test_no_statement_is_false_where_the_problem_is_solved_again():
    assert sum(map(check_statements, range(24))) >= 40


@pytest.mark.slow
def test_none_of_five_hundred_statements_is_false():
    stated, seed = 0, 1000
    while stated < 500:
        stated += check_statements(seed)
        seed += 1


def test_statements_name_who_wins_and_from_where():
    solution = solve(learners(("fast", 100.0, 2.5, 1.0, "T(a)"), ("slow", 50.0, 1.01, 1.0, "T(b)")))
    said = [sentence for one in solution.survival for sentence in one.statements]
    assert "learner on cpu (slow) is faster if T(a) takes more than 2.1 times as long (its interval allows it)" in said
    assert "learner on cpu (slow) is faster if T(b) takes less than 0.49 times as long" in said


def test_chance_and_ends_are_of_the_same_draws():
    problem = learners(("a", 100.0, 2.0, 1.0, "T(a)"), ("b", 100.0, 2.0, 1.0, "T(b)"), ("c", 90.0, 2.0, 1.0, "T(a)"))
    doubt = Doubt("ratio", 0.01)
    one, two, three = (
        Candidate("", problem, Answer(each, outcome(problem, each), outcome(problem, each).hz))
        for each in every(problem)
    )
    assert doubt.chance(one, two) == pytest.approx(0.5, abs=0.05)
    assert (doubt.chance(one, three), doubt.chance(three, one)) == (1.0, 0.0)
    assert doubt.ends(one) == (pytest.approx(50.0, rel=0.02), pytest.approx(200.0, rel=0.02))
    assert not doubt.no_worse(three, one)
    assert doubt.no_worse(two, one)


def test_the_public_solve_is_this_one():
    assert dse.solve is solve


def test_mirror_images_on_equal_devices_are_never_listed():
    """S9: of eight equal devices the first is the answer, and the other seven are no alternatives."""
    rest = {part: (option(part, part, "cpu", 1e-6, {}, f"cpu.{part}"),) for part in PARTS}
    on = [option("learner", "framework", f"gpu{number}", 1e-3) for number in range(8)]
    problem = doubtful(Problem({**rest, "learner": (*on, option("learner", "torch", "cpu", 1.2e-3))}, {}), FIXED)
    same_time = problem.options["learner"][0].time
    learners = tuple(
        dataclasses.replace(one, time=same_time) if one.device != "cpu" else one for one in problem.options["learner"]
    )
    solution = solve(problem.having("learner", *learners), epsilon=0.0)
    assert solution.choice.learner.device == "gpu0"
    assert (solution.ties, solution.others_tied) == ((), 0)
    assert solution.runner_up.configuration.learner.device == "cpu"
    assert all("gpu" not in one.winner for one in solution.survival)
