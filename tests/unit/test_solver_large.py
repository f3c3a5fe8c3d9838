"""Large spaces: every number of threads, equal GPUs, learners on every set of them; small ones against nested loops."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from dse.solver import optimum, space
from dse.solver.objectives import OBJECTIVES, Objective
from dse.solver.problem import Problem
from dse.solver.search import Found, solve
from tests.solver_cases import all_answers, by_the_rule, hop, machine, mapping, option


def shuffled(problem: Problem) -> Problem:
    """The same options in another order."""
    random = np.random.default_rng(1)

    def other(choices: tuple) -> tuple:
        return tuple(choices[place] for place in random.permutation(len(choices)))

    options = {part: other(options) for part, options in problem.options.items()}
    return dataclasses.replace(problem, options=options, trees=other(problem.trees))


@pytest.mark.parametrize(("gpus", "cpus", "least"), [(1, 1, 1e8), (0, 2, 1e8), (8, 2, 1e9)])
def test_many_configurations_take_little_memory(gpus: int, cpus: int, least: float) -> None:
    problem = machine(gpus, cpus)
    tracemalloc.start()
    found = solve(problem, "ratio")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, Found)
    assert found.configurations > least and peak < 200e6
    assert found.runner_up and found.elsewhere and len(found.ties) < 300
    assert solve(shuffled(problem), "ratio") == found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_small_machine_is_that_of_nested_loops(objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "ROWS", 40)  # else it is small enough to be opened at once
    problem = dataclasses.replace(machine(2, cores=8, fanouts=2, copies=1), depths=(0, 2))
    answers = all_answers(problem, objective)
    found = solve(problem, objective)
    assert isinstance(found, Found)
    assert space.build(problem, objective).classes == (("gpu0", "gpu1"),)
    assert found.best == max(answer.value for answer in answers)
    assert found.answer == by_the_rule(problem, answers, found.epsilon)[0]


def test_equal_devices_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = machine(4, cores=16)
    once = solve(problem, "ratio")
    monkeypatch.setattr(space, "equal_devices", lambda *_: ())
    each = solve(dataclasses.replace(problem), "ratio")
    assert isinstance(once, Found) and isinstance(each, Found)
    assert (once.answer, once.best) == (each.answer, each.best)
    assert once.reduced < each.reduced / 4 and len(once.ties) < len(each.ties)
    first_images: dict = {}
    for answer in (each.answer, *each.ties):
        first_images.setdefault(mapping(answer, ("gpu0", "gpu1", "gpu2", "gpu3")), answer)
    assert [once.answer, *once.ties] == list(first_images.values())


def other(problem: Problem, changed: str) -> Problem:
    """The same where gpu1 differs from the other GPUs in something."""
    if changed == "watts":
        return dataclasses.replace(problem, watts={**problem.watts, "gpu1": 300.0})
    if changed == "budgets":
        return dataclasses.replace(problem, budgets={**problem.budgets, "gpu1.memory": 40e9})
    if changed == "hosts":
        return dataclasses.replace(problem, hosts=(*problem.hosts, "gpu1"))
    if changed == "engines":
        return dataclasses.replace(problem, engines={**problem.engines, "gpu1": {"cpu0.cores": 1.0}})
    if changed == "slowdown":
        return dataclasses.replace(problem, slowdown={**problem.slowdown, ("learner", "storage", "gpu1"): 1.2})
    if changed == "starts":
        starts = {pair: (hop(">".join(pair), 2e-5, one.seconds_per_byte),) for pair, (one,) in problem.ways.items()}
        return dataclasses.replace(problem, ways=problem.ways | {key: starts[key] for key in starts if "gpu1" in key})
    if changed == "ahead":
        more = [
            dataclasses.replace(one, ahead={"gpu1.memory": 2e7}) if one.device == "gpu1" and not one.also else one
            for one in problem.options["learner"]
        ]
        return problem.having("learner", *more)
    if changed == "ways":
        way = (hop("cpu0>gpu1", 1e-5, 1 / 20e9),)
        return dataclasses.replace(problem, ways={**problem.ways, ("cpu0", "gpu1"): way})
    slower = [
        dataclasses.replace(one, time=one.time.scaled(2.0)) if one.device == "gpu1" and not one.also else one
        for one in problem.options["learner"]
    ]
    return problem.having("learner", *slower)


@pytest.mark.parametrize(
    "changed", ["watts", "budgets", "hosts", "engines", "ways", "times", "slowdown", "starts", "ahead"]
)
def test_devices_that_differ_in_anything_are_not_equal(changed: str) -> None:
    problem = machine(3, cores=4, fanouts=1, copies=1)
    assert space.build(problem, "ratio").classes == (("gpu0", "gpu1", "gpu2"),)
    assert space.build(other(problem, changed), "ratio").classes == (("gpu0", "gpu2"),)


def test_batches_that_are_always_ahead_take_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a group leaves its choices the room of the batches that are ahead at every depth."""
    monkeypatch.setattr(optimum, "ROWS", 1)
    small = machine(1, cores=4, fanouts=2, copies=1)
    (one,) = (one for one in small.options["learner"] if one.device == "gpu0")
    fast = dataclasses.replace(one, ahead={"gpu0.memory": 5e9})
    slow = dataclasses.replace(one, name="slow", time=one.time.scaled(3.0), ahead={"gpu0.memory": 1e9})
    other = option("learner", "between", "cpu0", 1.5 * one.seconds, {}, "cpu0.learner")
    budgets = {**small.budgets, "gpu0.memory": 42e9}
    problem = dataclasses.replace(small.having("learner", fast, slow, other), depths=(8, 16), budgets=budgets)
    found = solve(problem, "training")
    assert isinstance(found, Found)
    assert found.best == max(answer.value for answer in all_answers(problem, "training"))
    assert found.choice.learner == fast
