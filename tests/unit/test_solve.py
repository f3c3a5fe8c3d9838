"""What is chosen by the rule and by plain loops, any number of parts, what lacks, and what makes no sense."""

import dataclasses
import math

import pytest

from dse.mapping.alternatives import choose
from dse.solver.problem import LOOP, PARTS, Flow, Problem, ProblemError
from dse.solver.solve import Infeasible, Search, Solution, solve
from tests.solver_cases import hop, learners, machine, option


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


def test_what_is_as_good_has_fewer_devices():
    nearly = two_devices(fast=1.99)
    assert solve(nearly, "ratio", 0.01).choice.learner.device == "cpu"
    assert solve(nearly, "ratio", 0.0).choice.learner.device == "gpu"
    assert solve(two_devices(1.9), "ratio").choice.learner.device == "gpu"
    fewest = solve(two_devices(1.9), "fewest_devices")
    assert fewest.choice.learner.device == "cpu"
    assert fewest.value / fewest.best_other_mapping.value == pytest.approx(1.9 / 2)  # speed was traded for a device
    assert solve(two_devices(), "per_watt").choice.learner.device == "cpu"
    assert solve(two_devices(0.5), "per_watt").choice.learner.device == "gpu"
    alone = solve(two_devices(), "ratio")
    assert (alone.value, alone.bound, alone.configurations) == (1.0, 1.0, 2)
    faster = solve(dataclasses.replace(two_devices(4.0), slowdown={("learner", "actors", "cpu"): 0.5}))
    assert (faster.value, faster.bound) == (1.0, 1.0)


def test_of_equal_answers_the_first_modes_comes_first():
    modes = {
        name: learners((learner, hz, 1.0, 1.0, "T"))
        for name, learner, hz in (("my mode", "c", 0.1), ("one", "b", 1.0), ("other", "a", 1.0))
    }
    found = solve(modes)
    assert (found.answer.mode, [one.mode for one in found.ties]) == ("one", ["other"])


# What cannot be told apart


def test_what_cannot_be_told_apart_goes_to_the_fewest_cores():
    """One thread at 80 a second against eight at 100, both right within 3x: nobody knows which is faster."""
    problem = learners(("8 threads", 100.0, 3.0, 8.0, "T(8)"), ("1 thread", 80.0, 3.0, 1.0, "T(1)"))
    chosen = choose({"": problem}, "ratio", None)
    assert chosen.answer.configuration.learner.name == "1 thread"
    assert chosen.best.configuration.learner.name == "8 threads"
    assert [one.configuration.learner.name for one in chosen.ties] == ["8 threads"]
    fastest = chosen.other(chosen.best)
    assert 0.5 < fastest.more["chance"] < 0.8
    assert fastest.more["pace"] == pytest.approx(100 / 80)
    assert chosen.decide.id in ("T(1)", "T(8)")
    for epsilon, name in ((0.0, "8 threads"), (0.1, "8 threads"), (0.3, "1 thread")):
        assert choose({"": problem}, "ratio", epsilon).answer.configuration.learner.name == name


def test_what_is_wrong_together_is_told_apart():
    """The same two threads' counts on the same evidence with the same ends: their quotient is exact."""
    chosen = choose({"": learners(("8", 100.0, 3.0, 8.0, "T"), ("1", 80.0, 3.0, 1.0, "T"))}, "ratio", None)
    assert chosen.answer.configuration.learner.name == "8"
    assert (chosen.best, chosen.ties, chosen.others_tied) == (None, (), 0)


# Parts


def test_any_number_of_parts_is_solved():
    """Six: an evaluator acts beside the loop and takes the longest."""
    parts = (*PARTS[:1], "evaluator", *PARTS[1:])
    options = {part: (option(part, part, "cpu", 1.0, {"cpu.cores": 1.0}, f"cpu.{part}"),) for part in parts}
    options["evaluator"] += (option("evaluator", "fast", "gpu", 0.25),)
    problem = Problem(options, {"cpu.cores": 6.0}, depths=(3,), parts=parts, loop=LOOP)
    found = solve(problem, "ratio", 0.0)
    assert (found.value, found.choice.of("evaluator").device, len(found.choice.options)) == (1.0, "cpu", 6)
    fewer = solve(dataclasses.replace(problem, budgets={"cpu.cores": 5.0}), "ratio")
    assert fewer.choice.evaluator.device == "gpu"
    slower = problem.having("evaluator", option("evaluator", "slow", "cpu", 4.0, {}, "cpu.evaluator"))
    assert (solve(slower, "ratio").value, solve(slower, "training").value) == (0.25, 1.0)
    assert solve(slower, "training").answer.outcome.actor_hz == 0.25


def test_an_engine_that_is_always_busy_is_what_bounds():
    """With one batch under way that is as long as it: the engine of the loop, on which actors are not."""
    options = {part: (option(part, part, "cpu", 1.0, {}, f"cpu.{part == 'actors'}"),) for part in PARTS}
    given = solve(Problem(options, {})).answer.outcome
    assert (given.hz, given.bottleneck, given.training_bottleneck) == (0.25, "cpu.False", "cpu.False")


# What lacks, and what makes no sense


def test_no_placement_is_the_mirror_image_of_another():
    found = Search({"": EQUAL}, "ratio").placements
    assert len({str(one.where) for one in found}) == len(found) > 20


def test_two_of_three_devices_lack_by_names_of_the_first_two():
    parts = {part: (option(part, part, "cpu", 1.0, {}, f"cpu.{part}"),) for part in PARTS}
    gpus, needs = ("gpu0", "gpu1", "gpu2"), {"gpu0.memory": 5.0, "gpu1.memory": 20.0, "gpu2.memory": 20.0}
    three = option("learner", "three", "gpu0", 1.0, needs)
    first = dataclasses.replace(three, also=(("gpu1", "gpu1"), ("gpu2", "gpu2")))
    turned = ({}, {"gpu0": "gpu1", "gpu1": "gpu0"}, {"gpu0": "gpu2", "gpu2": "gpu0"})
    parts["learner"] = tuple(first.on(names) for names in turned)
    found = solve(Problem(parts, {f"{gpu}.memory": 10.0 for gpu in gpus}, equal=(gpus,)))
    assert [one.budgets for one in found.repairs] == [{"gpu0.memory": (10.0, 20.0), "gpu1.memory": (10.0, 20.0)}]


def test_what_lacks_least_is_named_where_nothing_fits():
    tight = dataclasses.replace(two_devices(), budgets={"cpu.cores": 4.0, "gpu.memory_bytes": 6.0}, ways={})
    (repair,) = solve(tight).repairs
    assert (repair.budgets, repair.ways) == ({"cpu.cores": (4.0, 5.0)}, ())
    only = tight.having("learner", tight.options["learner"][1])
    (repair,) = solve(only).repairs
    assert (repair.budgets, repair.ways) == ({"gpu.memory_bytes": (6.0, 8.0)}, (("cpu", "gpu"),))
    sizes = [{"cpu.cores": 9.0, "gpu.memory_bytes": need} for need in (9.0, 8.0)]
    either = tight.having("learner", *(option("learner", f"{9 - n}", "gpu", n + 1.0, sizes[n]) for n in (0, 1)))
    assert "cpu.cores has 4 of 13 and gpu.memory_bytes has 6 of 8" in str(solve(either))
    assert isinstance(solve(dataclasses.replace(only, budgets={"cpu.cores": 4.0, "gpu.memory_bytes": 8.0})), Infeasible)
    assert isinstance(solve(dataclasses.replace(tight, budgets={"cpu.cores": 5.0, "gpu.memory_bytes": 6.0})), Solution)


EQUAL = machine(3, cores=4, fanouts=1, copies=1)
FAR = option("learner", "far", "cpu", 1.0, {"gpu0.memory": 1.0}, "cpu.learner")
UNEVEN = dataclasses.replace(FAR, also=(("gpu0", "gpu0"), ("gpu1", "gpu1")))
OTHERS = {
    "budgets": {**EQUAL.budgets, "gpu1.memory": 40e9},
    "watts": {**EQUAL.watts, "gpu1": 300.0},
    "hosts": (*EQUAL.hosts, "gpu1"),
    "slowdown": {**EQUAL.slowdown, ("learner", "storage", "gpu1"): 1.2},
    "engines": {**EQUAL.engines, "gpu1": {"cpu.cores": 1.0}},
}
WAYS = (
    {("cpu", "gpu1"): (hop("cpu>gpu1", 2e-5, 1 / 25e9),)},
    {("cpu", "gpu1"): (hop("cpu>gpu1", 1e-5, 1 / 50e9),)},
    {("cpu", name): (hop("bus", 1e-5, 1 / 25e9),) for name in ("gpu0", "gpu2")},
)
UNEQUAL = [*OTHERS.items(), *(("ways", EQUAL.ways | ways) for ways in WAYS)]


@pytest.mark.parametrize(("field", "value"), UNEQUAL, ids=[f"{n}-{name}" for n, (name, _) in enumerate(UNEQUAL)])
def test_devices_that_differ_in_anything_are_not_equal(field, value):
    with pytest.raises(ProblemError, match=f"gpu1 differ in .*{field}"):
        dataclasses.replace(EQUAL, **{field: value})


GOOD = two_devices()
ALL = GOOD.options
TREES = tuple(zip(ALL["sampling"], ALL["updating"], strict=True))
REST = {part: options for part, options in ALL.items() if part not in ("sampling", "updating")}
ACTORS, ORDER = ALL["actors"][0], "sampling and one of updating"
WRONG = (
    ({"options": REST, "trees": tuple(pair[::-1] for pair in TREES)}, ORDER),
    ({"options": REST, "trees": tuple((*pair, pair[0]) for pair in TREES)}, ORDER),
    ({"options": REST, "trees": ((),)}, ORDER),
    ({"trees": TREES}, "'sampling' has its options in trees"),
    ({"options": REST}, "nothing can run the part 'sampling'"),
    ({"options": ALL | {"storage": ALL["learner"]}}, "'learner'"),
    ({"options": ALL | {"actors": (dataclasses.replace(ACTORS, needs={"disk": 1.0}),)}}, "disk"),
    ({"options": ALL | {"actors": (dataclasses.replace(ACTORS, ahead={"disk": 1.0}),)}}, "disk"),
    ({"options": ALL | {"actors": (dataclasses.replace(ACTORS, also=(("cpu", ACTORS.engine),)),)}}, "an engine twice"),
    ({"engines": {"cpu": {"disk": 1.0}}}, "'cpu' needs disk"),
    ({"options": ALL | {"critic": ALL["learner"]}}, "'critic'"),
    ({"options": ALL | {"actors": (option("actors", "x", "cpu", 1e31),)}}, "1e-30 to 1e[+]30 s"),
    ({"budgets": {"cpu.cores": math.nan, "gpu.memory_bytes": 1.0}}, "cpu.cores"),
    ({"budgets": {"cpu.cores": -1.0, "gpu.memory_bytes": 1.0}}, "cpu.cores"),
    ({"budgets": None}, "a mapping, not None"),
    ({"depths": (1.5,)}, "depths"),
    ({"depths": ()}, "depths"),
    ({"hosts": "cpu"}, "hosts"),
    ({"watts": {"cpu": -1.0}}, "watts of cpu"),
    ({"flows": (Flow("storage", "critic", 1.0, True),)}, "'storage' to 'critic'"),
    ({"flows": (Flow("storage", "learner", -1.0, True),)}, "bytes from storage to learner"),
    ({"flows": (Flow("storage", "learner", 1.0, True, math.nan),)}, "transfers from storage to learner"),
    ({"ways": {("cpu", "gpu"): (hop("x", -1.0, 0.0),)}}, "alpha of x"),
    ({"ways": {("cpu", "gpu"): (hop("x", 0.0, math.inf),)}}, "seconds per byte of x"),
    ({"slowdown": {("learner", "critic", "cpu"): 2.0}}, "'learner' with 'critic'"),
    ({"slowdown": {("learner", "actors", "cpu"): 0.0}}, "0.0"),
)
SENSELESS = (
    (lambda: solve(GOOD, "fastest"), "training, ratio, per_watt, fewest_devices, not 'fastest'"),
    (lambda: solve(GOOD, "ratio", 1.0), "0 up to 1, not 1.0"),
    (lambda: solve(GOOD, "ratio", math.nan), "not nan"),
    (lambda: solve(dataclasses.replace(GOOD, watts={"cpu": 10.0}), "per_watt"), "gpu"),
    (lambda: EQUAL.having("learner", FAR), "gpu0, one of equal devices"),
    (lambda: EQUAL.having("learner", UNEVEN), "gpu0 as of gpu1"),
    *((lambda asked=asked: solve(asked), "not ") for asked in ("x", None, {"": None}, {5: GOOD})),
    *((lambda changes=changes: dataclasses.replace(GOOD, **changes), facts) for changes, facts in WRONG),
)


def test_what_makes_no_sense_is_refused_by_name_and_bound():
    for make, facts in SENSELESS:
        with pytest.raises(ProblemError, match=facts):
            make()
