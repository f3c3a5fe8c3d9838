"""The search against plain loops over every configuration: answer, ties, runner-up, elsewhere, bounds, repairs."""

from collections import Counter
from dataclasses import replace

import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.problem import Configuration, Flow, Hop, Option, Problem
from tests.oracles import plain_answers as plain
from tests.oracles import plain_mirrors, plain_problems


def option(part, device, seconds, engine="", also=(), **needs):
    time = Estimate(seconds, seconds / 2, seconds * 2, Evidence(f"T_{part}({device})", "modeled"))
    return Option(part, f"{part} on {device}", device, engine or device, time, needs, {}, also)


def system(learners, storage=("cpu",), **more):
    """One processor, on which all but learners and storage runs for a second each."""
    options = {part: (option(part, "cpu", 1.0, "cpu.tree"),) for part in ("sampling", "updating")}
    options["actors"] = (option("actors", "cpu", 1.0, "cpu.actors"),)
    options["storage"] = tuple(option("storage", device, 1.0) for device in storage)
    return Problem({**options, "learner": tuple(learners)}, more.pop("budgets", {}), **more)


def rates(problem):
    """(hz, training_hz) by hand-checkable loops, of a problem with one configuration."""
    parts = {part: options[0] for part, options in problem.options.items()}
    row = plain.judged(problem, Configuration(**parts, depth=problem.depths[0]))
    return row.hz, row.training_hz


def test_the_plain_law_is_what_one_adds_up_by_hand():
    """At D = 0 the loop of 1 + 1 + 4 + 1 s binds; with four batches under way the learner; alone, with its transfer."""
    gpu = option("learner", "gpu", 4.0)
    link = {("cpu", "gpu"): (Hop("down", 0.5, 0.25, Evidence("link", "modeled")),)}
    assert rates(system([gpu])) == (1 / 7, 1 / 7)
    assert rates(system([gpu], depths=(3,))) == (1 / 4, 1 / 4)
    sent = Flow("storage", "learner", 2.0, True)
    assert rates(system([gpu], flows=(sent,), ways=link)) == (1 / 8, 1 / 8)
    assert rates(system([gpu], flows=(replace(sent, nbytes=0.0),))) == (1 / 7, 1 / 7)
    slow = {("learner", "storage", "cpu"): 3.0, ("sampling", "storage", "cpu"): 3.0}
    assert rates(system([gpu], slowdown=slow)) == (1 / 9, 1 / 9), "only what is beside it on its device slows a part"


def test_equal_devices_are_those_whose_exchange_changes_nothing():
    twins = system([option("learner", "gpu0", 4.0), option("learner", "gpu1", 4.0)], hosts=("cpu",))
    assert len(plain_mirrors.images(twins)) == 2
    assert len(plain_mirrors.images(replace(twins, hosts=("cpu", "gpu1")))) == 1
    assert len(plain_mirrors.images(replace(twins, watts={"gpu0": 1.0, "gpu1": 2.0}))) == 1
    slower = twins.having("learner", option("learner", "gpu0", 4.0), option("learner", "gpu1", 5.0))
    assert len(plain_mirrors.images(slower)) == 1


def test_mirror_images_are_neither_ties_nor_next():
    twins = system([option("learner", "gpu0", 4.0), option("learner", "gpu1", 4.0), option("learner", "cpu", 9.0)])
    verdict = plain.brute_force(twins, "ratio", 0.0)
    assert verdict.answer.configuration.learner.device == "gpu0"
    assert not verdict.ties
    assert verdict.runner_up == verdict.elsewhere
    assert verdict.elsewhere.configuration.learner.device == "cpu"


def test_what_to_lift_is_smallest():
    small = system(
        [option("learner", "gpu", 4.0, bytes=3.0), option("learner", "cpu", 4.0, bytes=2.0)], budgets={"bytes": 1.0}
    )
    assert plain.brute_force(small, "ratio", 0.0) == {frozenset({"bytes"}): [{"bytes": 2.0}]}
    far = system([option("learner", "gpu", 4.0)], flows=(Flow("storage", "learner", 1.0, True),))
    assert plain.brute_force(far, "ratio", 0.0) == {frozenset({("cpu", "gpu")}): [{}]}


def compared(seed, count):
    """The differences of so many problems, by what they are in, with the first few of all."""
    kinds, texts = Counter(), []
    for own, problem, objective, epsilon in plain_problems.problems(seed, count):
        for text in plain_problems.differences(problem, objective, epsilon):
            kinds[text.split(":")[0]] += 1
            texts.append(f"Maker({own}), {objective}, epsilon {epsilon}: {text[:600]}")
    return "\n".join([str(dict(kinds)), *texts[:3]]) if kinds else ""


def test_the_generator_covers_what_it_says():
    """Of 120 problems, each feature is in some: what no problem has, no comparison tests."""
    wanted = {*plain_problems.OBJECTIVES, "trees", "any pair", "copies", "together", "ahead", "two hops", "one way"}
    wanted |= {"no bytes", "faster", "slower", "engines need", "nothing fits", "full budget", "tie", "no elsewhere"}
    wanted |= {"1 images", "2 images", "6 images", *(f"epsilon {epsilon}" for epsilon in plain_problems.EPSILONS)}
    found = Counter()
    for _, problem, objective, epsilon in plain_problems.problems(0, 120):
        if not wanted - set(found):
            break
        options = plain_mirrors.every(problem)
        found.update({objective, f"epsilon {epsilon}", f"{len(plain_mirrors.images(problem))} images"})
        found.update(["trees"] if problem.trees else ["any pair"])
        found.update(["copies"] if any(a.device != b.device for a, b in problem.trees) else [])
        found.update(["together"] if any(one.also for one in options) else [])
        found.update(["ahead"] if any(one.ahead for one in options) else [])
        found.update(["two hops"] if any(len(hops) == 2 for hops in problem.ways.values()) else [])
        found.update(["one way"] if any((b, a) not in problem.ways for a, b in problem.ways) else [])
        found.update(["no bytes"] if any(not flow.nbytes for flow in problem.flows) else [])
        found.update(["faster"] if any(factor < 1 for factor in problem.slowdown.values()) else [])
        found.update(["slower"] if any(factor > 1 for factor in problem.slowdown.values()) else [])
        found.update(["engines need"] if any(engine in problem.engines for engine in _engines(options)) else [])
        fitting = plain.brute_force(problem, objective, epsilon)
        found.update(["nothing fits"] if isinstance(fitting, dict) else _of_verdict(problem, fitting))
    assert not wanted - set(found)


def _engines(options):
    return {engine for one in options for _, engine in one.where}


def _of_verdict(problem, verdict):
    full = any(verdict.answer.need[name] == have > 0 for name, have in problem.budgets.items())
    yield from ["full budget"] if full else []
    yield from ["tie"] if verdict.ties else []
    yield from ["no elsewhere"] if verdict.elsewhere is None else []


@pytest.mark.parametrize("seed", range(3))
def test_the_search_is_what_plain_loops_find(seed):
    assert not compared(seed, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 103))
def test_the_search_is_what_plain_loops_find_in_thousands(seed):
    assert not compared(seed, 500)


@pytest.mark.parametrize("seconds", [4.0, 9.0])
def test_devices_that_share_no_place_are_not_each_others_mirror_images(seconds):
    """Engines of another pattern of names: nothing on the one has a counterpart on the other, so it is elsewhere."""
    problem = system([option("learner", "gpu0", 4.0, "gpu0.learner"), option("learner", "gpu1", seconds)])
    assert not plain_problems.differences(problem, "ratio", 0.01)
