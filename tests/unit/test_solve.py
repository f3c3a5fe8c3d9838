"""What is chosen by the rule, any number of parts, what lacks, and what makes no sense."""

import dataclasses

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


def test_as_good_as_the_best_is_no_chain():
    """1, 0.992 and 0.984: the last is within 1 % of the middle one, and not of the best."""
    problem = learners(("3", 1.0, 1.0, 3.0, "a"), ("2", 0.992, 1.0, 2.0, "b"), ("1", 0.984, 1.0, 1.0, "c"))
    assert solve(problem, "ratio", 0.01).choice.learner.name == "2"
    assert solve(problem, "ratio", 0.02).choice.learner.name == "1"


def test_of_equal_answers_the_first_modes_comes_first_and_the_other_ties():
    modes = {name: learners((learner, 1.0, 1.0, 1.0, "T")) for name, learner in (("one", "b"), ("other", "a"))}
    found = solve(modes)
    assert (found.answer.mode, [one.mode for one in found.ties]) == ("one", ["other"])


def test_seconds_of_a_tie_add_up_in_the_order_of_the_parts():
    """Either the learner or updating may be fast: 0.03 + 0.3 + 0.1 is less than 0.03 + 0.1 + 0.3, in floats."""
    taken = {part: ((0.1, {"memory": 1.0}), (0.3, {})) for part in ("learner", "updating")}
    options = {
        part: tuple(option(part, part, "cpu", *each, f"cpu.{part}") for each in taken.get(part, ((0.01, {}),)))
        for part in PARTS
    }
    assert solve(Problem(options, {"memory": 1.0})).choice.updating.seconds == 0.1


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
    found = Search({"": machine(3, cores=4, fanouts=1, copies=1)}, "ratio").placements
    assert len({str(one.where) for one in found}) == len(found) > 20


def test_what_takes_of_one_of_equal_devices_runs_there():
    problem = machine(2, cores=4, fanouts=1, copies=1)
    far = option("learner", "far", "cpu", 1.0, {"gpu0.memory": 1.0}, "cpu.learner")
    with pytest.raises(ProblemError, match="takes of gpu0, one of equal devices"):
        problem.having("learner", far)
    uneven = dataclasses.replace(far, also=(("gpu0", "gpu0"), ("gpu1", "gpu1")))
    with pytest.raises(ProblemError, match="take as much of gpu0 as of gpu1"):
        problem.having("learner", uneven)


def test_two_of_three_equal_devices_lack_by_the_names_of_the_first_two():
    parts = {part: (option(part, part, "cpu", 1.0, {}, f"cpu.{part}"),) for part in PARTS}
    gpus, needs = ("gpu0", "gpu1", "gpu2"), {"gpu0.memory": 5.0, "gpu1.memory": 20.0, "gpu2.memory": 20.0}
    first = dataclasses.replace(
        option("learner", "three", "gpu0", 1.0, needs), also=(("gpu1", "gpu1"), ("gpu2", "gpu2"))
    )
    turned = ({}, {"gpu0": "gpu1", "gpu1": "gpu0"}, {"gpu0": "gpu2", "gpu2": "gpu0"})
    parts["learner"] = tuple(first.on(names) for names in turned)
    found = solve(Problem(parts, {f"{gpu}.memory": 10.0 for gpu in gpus}, equal=(gpus,)))
    assert [one.budgets for one in found.repairs] == [{"gpu0.memory": (10.0, 20.0), "gpu1.memory": (10.0, 20.0)}]


def test_nothing_fits_in_words():
    tight = dataclasses.replace(two_devices(), budgets={"cpu.cores": 4.0, "gpu.memory_bytes": 6.0}, ways={})
    answer = solve(tight)
    assert str(answer) == "nothing fits: cpu.cores has 4 of 5"
    assert answer.configurations == 2
    only = tight.having("learner", tight.options["learner"][1])
    assert str(solve(only)) == "nothing fits: gpu.memory_bytes has 6 of 8 and no link from cpu to gpu"
    sizes = [{"cpu.cores": 9.0, "gpu.memory_bytes": need} for need in (9.0, 8.0)]
    either = tight.having("learner", *(option("learner", f"{9 - n}", "gpu", n + 1.0, sizes[n]) for n in (0, 1)))
    least = "nothing fits: cpu.cores has 4 of 13 and gpu.memory_bytes has 6 of 8 and no link from cpu to gpu"
    assert str(solve(either)) == least
    assert isinstance(solve(dataclasses.replace(only, budgets={"cpu.cores": 4.0, "gpu.memory_bytes": 8.0})), Infeasible)
    assert isinstance(solve(dataclasses.replace(tight, budgets={"cpu.cores": 5.0, "gpu.memory_bytes": 6.0})), Solution)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (("fastest",), "the objective is one of training, ratio, per_watt, fewest_devices, not 'fastest'"),
        (("ratio", 1.0), "epsilon is a share of the best value, from 0 up to 1, not 1.0"),
        (("ratio", float("nan")), "not nan"),
        (("per_watt",), "state those of gpu"),
    ],
)
def test_questions_without_sense(question, message):
    with pytest.raises(ProblemError, match=message):
        solve(dataclasses.replace(two_devices(), watts={"cpu": 10.0}), *question)


@pytest.mark.parametrize(
    "what", ["budgets", "watts", "hosts", "slowdown", "engines", "ways", "ways, by bytes", "ways, by bus"]
)
def test_devices_that_differ_in_anything_are_not_equal(what):
    problem = machine(3, cores=4, fanouts=1, copies=1)
    other = {
        "budgets": {**problem.budgets, "gpu1.memory": 40e9},
        "watts": {**problem.watts, "gpu1": 300.0},
        "hosts": (*problem.hosts, "gpu1"),
        "slowdown": {**problem.slowdown, ("learner", "storage", "gpu1"): 1.2},
        "engines": {**problem.engines, "gpu1": {"cpu.cores": 1.0}},
        "ways": {**problem.ways, ("cpu", "gpu1"): (hop("cpu>gpu1", 2e-5, 1 / 25e9),)},
        "ways, by bytes": {**problem.ways, ("cpu", "gpu1"): (hop("cpu>gpu1", 1e-5, 1 / 50e9),)},
    }
    shared = {("cpu", name): (hop("bus", 1e-5, 1 / 25e9),) for name in ("gpu0", "gpu2")}
    other["ways, by bus"] = {**problem.ways, **shared}
    name = what.split(",")[0]
    with pytest.raises(ProblemError, match=f"gpu1 differ in .*{name}"):
        dataclasses.replace(problem, **{name: other[what]})


def wrong(**changes):
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
        ({"options": ALL | {"storage": ALL["learner"]}}, "is an option of 'learner'"),
        *(
            ({"options": ALL | {"actors": (dataclasses.replace(ALL["actors"][0], **{taken: {"disk": 1.0}}),)}}, "disk")
            for taken in ("needs", "ahead")
        ),
        ({"engines": {"cpu": {"disk": 1.0}}}, "the engine 'cpu' needs disk, of which no budget is stated"),
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
        ({"slowdown": {("learner", "critic", "cpu"): 2.0}}, "a slowdown of 'learner' with 'critic'"),
        ({"slowdown": {("learner", "actors", "cpu"): 0.0}}, "cannot have a slowdown of 0.0"),
    ],
)
def test_a_problem_without_sense_is_refused_before_it_is_solved(changes, message):
    with pytest.raises(ProblemError, match=message):
        Problem(**wrong(**changes))
