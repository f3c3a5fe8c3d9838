"""The search against nested loops: the same answer, ties, runner-up, front, and reasons why nothing fits."""

import dataclasses
import math
import tracemalloc

import numpy as np
import pytest

from dse.solver import optimum
from dse.solver.infeasible import Infeasible
from dse.solver.objectives import OBJECTIVES, Objective, tie_key, undominated
from dse.solver.problem import PARTS, Flow, Option, Part, Problem, ProblemError
from dse.solver.search import Found, front, solve
from dse.solver.space import build
from dse.solver.throughput import shortages
from dse.stats import front_of
from tests.matrix import slow
from tests.solver_cases import (
    EPSILONS,
    all_answers,
    by_the_rule,
    every,
    first_image,
    first_limits,
    hop,
    large_problem,
    mapping,
    option,
    random_problem,
    twinned,
    with_trees,
)

LOOPS = 4000  # configurations of problems with equal devices
Names = tuple[str, ...]


def check_found(problem: Problem, objective: Objective, epsilon: float, found: Found, equal: Names = ()) -> None:
    """Choice, best value, ties, runner-up and the best elsewhere are those of nested loops, mirror images aside."""
    answers = all_answers(problem, objective)
    good = by_the_rule(problem, answers, epsilon)
    assert found.answer == good[0]
    assert found.best == max(answer.value for answer in answers) <= found.bound * (1 + 1e-12)
    place = mapping(good[0], equal)
    first_of_mapping = {mapping(answer, equal): answer for answer in reversed(good)}
    del first_of_mapping[place]
    assert {mapping(answer, equal) for answer in found.ties} == set(first_of_mapping)
    assert list(found.ties) == [answer for answer in good if answer is first_of_mapping.get(mapping(answer, equal))]
    chosen = first_image(found.choice, equal)
    others = [answer for answer in answers if first_image(answer.configuration, equal) != chosen]
    rest = by_the_rule(problem, others, epsilon)
    assert found.runner_up == (rest[0] if rest else None)
    away = by_the_rule(problem, [answer for answer in answers if mapping(answer, equal) != place], epsilon)
    assert found.elsewhere == (away[0] if away else None)


def missing_ways(problem: Problem, configuration) -> set[tuple[str, str]]:
    """Ways that a configuration would need and has not."""
    pairs = {(configuration.of(f.source).device, configuration.of(f.target).device) for f in problem.flows if f.nbytes}
    return {pair for pair in pairs if pair[0] != pair[1] and pair not in problem.ways}


def check_infeasible(problem: Problem, answer: Infeasible, equal: Names = ()) -> None:
    """The smallest sets of limits that some configuration breaks, and no others; a need as small as any."""
    broken: dict[frozenset, list[dict[str, tuple[float, float]]]] = {}
    for configuration in every(problem):
        short = shortages(problem, configuration)
        broken.setdefault(frozenset(short) | missing_ways(problem, configuration), []).append(short)
    smallest = {limits for limits in broken if not any(other < limits for other in broken)}
    found = [frozenset(repair.budgets) | frozenset(repair.ways) for repair in answer.repairs]
    assert {first_limits(limits, equal) for limits in found} == {first_limits(limits, equal) for limits in smallest}
    assert len({first_limits(limits, equal) for limits in found}) == len(found)
    for repair in answer.repairs:
        same = broken[frozenset(repair.budgets) | frozenset(repair.ways)]
        assert repair.budgets in same
        excess = [max((need / have for have, need in short.values()), default=0.0) for short in same]
        assert max((need / have for have, need in repair.budgets.values()), default=0.0) == min(excess)
        assert str(repair) in str(answer)


def drawn(seed: int, trees: bool = False, twins: bool = False) -> tuple[Problem, np.random.Generator]:
    """A random problem. With ``trees`` not every sampling goes with every updating; ``twins``: with equal GPUs."""
    random = np.random.default_rng(seed)
    problem = random_problem(random)
    problem = twinned(problem, random) if twins else problem
    return with_trees(problem, random) if trees else problem, random


def check(problem: Problem, random: np.random.Generator, seed: int) -> bool:
    """The answer of one random problem; whether anything fits."""
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    epsilon = float(random.choice(EPSILONS))
    with pytest.MonkeyPatch.context() as patch:
        if seed // 4 % 2:  # small spaces are opened at once otherwise
            patch.setattr(optimum, "ROWS", min(optimum.ROWS, 40))
        found = solve(problem, objective, epsilon)
    (equal,) = build(problem, objective).classes or ((),)
    if isinstance(found, Infeasible):
        assert not all_answers(problem, objective)
        check_infeasible(problem, found, equal)
        return False
    check_found(problem, objective, epsilon, found, equal)
    return True


@pytest.mark.parametrize("trees", [False, True])
def test_equals_nested_loops(trees: bool) -> None:
    feasible = sum(check(*drawn(seed, trees), seed) for seed in range(80))
    assert 40 < feasible < 75  # both kinds are many


def twins_are_equal(seeds: range, trees: bool) -> list[int]:
    """How many GPUs each problem's answer takes for equal; of problems that are small enough for nested loops."""
    sizes = []
    for seed in seeds:
        problem, random = drawn(seed, trees, twins=True)
        if math.prod(map(len, problem.axes)) * len(problem.depths) < LOOPS:
            check(problem, random, seed)
            sizes.append(len((build(problem, "ratio").classes or ((),))[0]))
    return sizes


@pytest.mark.parametrize("trees", [False, True])
def test_equal_devices_are_looked_at_once(trees: bool) -> None:
    sizes = twins_are_equal(range(50), trees)
    assert sizes.count(2) > 5 and sizes.count(3) > 2


@pytest.mark.slow
@pytest.mark.parametrize("trees", [False, True])
def test_equal_devices_are_looked_at_once_two_thousand_times(trees: bool) -> None:
    sizes = twins_are_equal(range(50, 2000), trees)
    assert sizes.count(2) > 150 and sizes.count(3) > 50


@pytest.mark.slow
@pytest.mark.parametrize(("trees", "end"), [(False, 11_000), (True, 1150)])
def test_equals_nested_loops_thousands_of_times(trees: bool, end: int) -> None:
    assert sum(check(*drawn(seed, trees), seed) for seed in range(80, end)) > (end - 80) / 2


@pytest.mark.parametrize("rows", [slow(1), 7])
def test_small_blocks_change_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimum, "ROWS", rows)
    assert sum(check(*drawn(seed), seed) for seed in range(20)) > 10


@pytest.mark.parametrize("scattered", [True, False])
def test_large_spaces_take_little_memory_and_blocks_do_not_matter(
    scattered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = large_problem(np.random.default_rng(7), designs=16, scattered=scattered)
    tracemalloc.start()
    found = solve(problem, "ratio")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(found, Found)
    assert found.configurations > 5e6 and (scattered or found.reduced > found.configurations / 2)
    assert peak < 100e6
    monkeypatch.setattr(optimum, "ROWS", 1 << 11)
    assert solve(problem, "ratio") == found


@pytest.mark.parametrize("seed", range(60))
def test_the_front_is_that_of_nested_loops(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    answers = all_answers(problem, "ratio")
    points = [(answer.value, -answer.outcome.watts, -len(answer.outcome.devices)) for answer in answers]
    expected = {points[place] for place in front_of(points)}
    members = front(problem)
    assert {(one.value, -one.outcome.watts, -len(one.outcome.devices)) for one in members} == expected
    assert len(members) == len(expected)
    for one in members:
        same = [
            a
            for a, point in zip(answers, points, strict=True)
            if point == (one.value, -one.outcome.watts, -len(one.outcome.devices))
        ]
        assert one == min(same, key=lambda answer: tie_key(problem, answer.configuration, answer.outcome))


def test_a_front_without_watts_is_of_throughput_and_devices() -> None:
    problem = dataclasses.replace(two_devices(), watts={})
    assert [(one.value, len(one.outcome.devices), one.outcome.watts) for one in front(problem)] == [
        (1.0, 2, None),
        (0.5, 1, None),
    ]


def two_devices(fast: float = 1.0) -> Problem:
    """All on the CPU takes 2 s, with the learner on the GPU ``fast``."""
    parts = {part: (option(part, "only", "cpu", 1e-3, {"cpu.cores": 1.0}, f"cpu.{part}"),) for part in PARTS}
    parts["learner"] = (
        option("learner", "host", "cpu", 2.0, {"cpu.cores": 1.0}, "cpu.learner"),
        option("learner", "device", "gpu", fast, {"gpu.memory_bytes": 8.0}),
    )
    return Problem(
        parts,
        {"cpu.cores": 8.0, "gpu.memory_bytes": 10.0},
        (Flow("storage", "learner", 100.0, True),),
        {("cpu", "gpu"): (hop("cpu>gpu", 0.0, 1e-9),)},
        depths=(3,),
        watts={"cpu": 10.0, "gpu": 20.0},
    )


def test_what_is_as_good_has_fewer_devices() -> None:
    nearly = two_devices(fast=1.99)
    assert solve(nearly, "ratio", 0.01).choice.learner.device == "cpu"
    assert solve(nearly, "ratio", 0.0).choice.learner.device == "gpu"
    assert solve(two_devices(1.9), "ratio").choice.learner.device == "gpu"
    fewest = solve(two_devices(1.9), "fewest_devices")
    assert fewest.choice.learner.device == "cpu"
    assert fewest.cost(fewest.elsewhere) == pytest.approx(1 - 2 / 1.9)  # a gain: speed was traded for a device
    assert solve(two_devices(), "per_watt").choice.learner.device == "cpu"
    assert solve(two_devices(0.5), "per_watt").choice.learner.device == "gpu"


def test_ties_go_to_fewer_devices_then_fewer_bytes_then_a_smaller_depth() -> None:
    problem = two_devices()
    answer = solve(problem, "ratio").answer
    shapes = [(("cpu",), 9.0, 1), (("cpu", "gpu"), 0.0, 0), (("cpu",), 1.0, 2), (("cpu",), 1.0, 1)]
    keys = {
        shape: tie_key(
            problem,
            dataclasses.replace(answer.configuration, depth=shape[2]),
            dataclasses.replace(answer.outcome, devices=shape[0], bytes_moved=shape[1]),
        )
        for shape in shapes
    }
    assert sorted(shapes, key=keys.__getitem__) == [shapes[3], shapes[2], shapes[0], shapes[1]]


def test_as_good_as_the_best_is_no_chain() -> None:
    """1, 0.992 and 0.984: the last is within 1 % of the middle one, and not of the best."""
    problem = two_devices()
    learners = [
        option("learner", f"{cores:g} cores", "cpu", 1 / speed, {"cpu.cores": cores}, "cpu.learner")
        for cores, speed in ((3.0, 1.0), (2.0, 0.992), (1.0, 0.984))
    ]
    problem = dataclasses.replace(problem, options={**problem.options, "learner": tuple(learners)})
    assert solve(problem, "ratio", 0.01).choice.learner.name == "2 cores"
    assert solve(problem, "ratio", 0.02).choice.learner.name == "1 cores"


def test_bound_and_learner_alone() -> None:
    found = solve(two_devices(), "ratio")
    assert found.value == found.bound == found.learner_hz == 1.0
    assert found.configurations == found.reduced == 2
    assert found.runner_up == found.elsewhere != found.answer


@pytest.mark.parametrize("seed", range(60))
def test_without_dominated_options_the_answer_is_the_same(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    kept: dict[Part, tuple[Option, ...]] = {}
    for part in PARTS:
        places = {each.where for each in problem.options[part]}
        groups = [[each for each in problem.options[part] if each.where == place] for place in places]
        kept[part] = tuple(each for group in groups for (each,) in undominated(problem, [(one,) for one in group]))
    objective = OBJECTIVES[seed % len(OBJECTIVES)]
    full = all_answers(problem, objective)
    reduced = [answer for answer in full if all(each in kept[each.part] for each in answer.configuration.options)]
    for epsilon in EPSILONS:
        assert by_the_rule(problem, reduced, epsilon)[:1] == by_the_rule(problem, full, epsilon)[:1]


def test_nothing_fits_in_words() -> None:
    problem = two_devices()
    tight = dataclasses.replace(problem, budgets={"cpu.cores": 4.0, "gpu.memory_bytes": 6.0}, ways={})
    answer = solve(tight)
    assert str(answer) == (
        "nothing fits: cpu.cores has 4 of 5; or gpu.memory_bytes has 6 of 8 and no link from cpu to gpu"
    )
    assert answer.configurations == 2
    assert front(tight) == ()
    enough = dataclasses.replace(tight, budgets={"cpu.cores": 5.0, "gpu.memory_bytes": 6.0})
    assert isinstance(solve(enough), Found)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (("fastest",), "the objective is one of training, ratio, per_watt, fewest_devices, not 'fastest'"),
        (("ratio", 1.0), "epsilon is a share of the best value, from 0 up to 1, not 1.0"),
        (("ratio", float("nan")), "not nan"),
        (("per_watt",), "state those of gpu"),
    ],
)
def test_questions_without_sense(question: tuple, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        solve(dataclasses.replace(two_devices(), watts={"cpu": 10.0}), *question)


def test_dominated_options_go_and_no_others() -> None:
    problem = two_devices()
    sizes = {"fast": (1.0, 4.0), "same": (1.0, 4.0), "slower": (1.5, 4.0), "small": (2.0, 1.0), "useless": (2.0, 2.0)}
    designs = [
        option("learner", name, "gpu", taken, {"cpu.cores": need, "gpu.memory_bytes": 1.0})
        for name, (taken, need) in sizes.items()
    ]
    assert [each.name for (each,) in undominated(problem, [(design,) for design in designs])] == ["fast", "small"]


def wrong(**changes) -> dict:
    """The fields of a problem with some of them replaced."""
    good = two_devices()
    return {field.name: getattr(good, field.name) for field in dataclasses.fields(good)} | changes


ALL = two_devices().options
TREES = tuple(zip(ALL["sampling"], ALL["updating"], strict=True))
REST = {part: options for part, options in ALL.items() if part not in ("sampling", "updating")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"options": REST, "trees": tuple(pair[::-1] for pair in TREES)},
            "sampling and one of updating, in this order",
        ),
        ({"options": REST, "trees": tuple((*pair, pair[0]) for pair in TREES)}, "sampling and one of updating"),
        ({"options": REST, "trees": ((),)}, "sampling and one of updating"),
        ({"trees": TREES}, "the part 'sampling' has its options in trees"),
        ({"options": REST}, "nothing can run the part 'sampling'"),
        (
            {"options": ALL | {"storage": ALL["learner"]}},
            "is an option of 'learner'",
        ),
        ({"options": ALL | {"critic": ALL["learner"]}}, "not of 'critic'"),
        ({"options": ALL | {"actors": (option("actors", "x", "cpu", 1e31),)}}, "an Estimate from 1e-30 to 1e[+]30 s"),
        ({"budgets": {"cpu.cores": float("nan"), "gpu.memory_bytes": 1.0}}, "budget cpu.cores must be a number from 0"),
        ({"budgets": {"cpu.cores": -1.0, "gpu.memory_bytes": 1.0}}, "budget cpu.cores must be a number from 0"),
        ({"depths": (1.5,)}, "depths must be one or more whole numbers from 0 on"),
        ({"depths": ()}, "depths must be"),
        ({"hosts": "cpu"}, "hosts are a tuple"),
        ({"watts": {"cpu": -1.0}}, "watts of cpu must be a number from 0"),
        ({"flows": (Flow("storage", "critic", 1.0, True),)}, "a flow from 'storage' to 'critic'"),
        ({"flows": (Flow("storage", "learner", -1.0, True),)}, "bytes from storage to learner must be a number from 0"),
        ({"flows": (Flow("storage", "learner", 1.0, True, float("nan")),)}, "transfers from storage to learner"),
        ({"ways": {("cpu", "gpu"): (hop("x", -1.0, 0.0),)}}, "alpha of x must be a number from 0"),
        ({"ways": {("cpu", "gpu"): (hop("x", 0.0, float("inf")),)}}, "seconds per byte of x"),
        ({"slowdown": {("learner", "critic", "cpu"): 2.0}}, "a slowdown of 'learner' beside 'critic'"),
        ({"slowdown": {("learner", "actors", "cpu"): 0.0}}, "cannot take 0.0 times as long"),
    ],
)
def test_a_problem_without_sense_is_refused_before_it_is_solved(changes: dict, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem(**wrong(**changes))
