"""Tests of the bounds of loops against their simulation, and of how many batches to sample ahead."""

import itertools
import math

import numpy as np
import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.law import TOO_HIGH, outcome
from dse.solver.problem import LOOP, PARTS, Configuration, Flow, Hop, Option, Problem, ProblemError
from dse.solver.queues import Network, Visit, network, simulate
from dse.tuning.depth import bound_hz, depth_curve, depth_enough, published_loop

STEPS = 400
EXAMPLE = published_loop(1.0, 2.0, 0.5, 0.3)
DEVICES = ("cpu", "gpu", "fpga")
MADE_UP = Evidence("", "modeled")
FLOWS = (
    ("actors", "storage", False),
    ("actors", "updating", False),
    ("sampling", "storage", True),
    ("storage", "learner", True),
    ("learner", "updating", True),
    ("learner", "actors", False),
    ("actors", "sampling", True),
)


def timed(seconds):
    return Estimate(seconds, seconds, seconds, Evidence("made up", "modeled"))


def random_case(rng):
    """Sample a problem and a configuration: parts may share engines, routes have one or two hops, links may be busy."""
    chosen = {}
    for part in PARTS:
        device = rng.choice(DEVICES)
        engine = f"{device}.{rng.integers(1, 3) if device == 'cpu' else 1}"
        chosen[part] = Option(part, f"{part} on {engine}", device, engine, timed(float(10 ** rng.uniform(-1, 1))))
    flows = tuple(Flow(a, b, float(rng.integers(1, 100)), waits) for a, b, waits in FLOWS if rng.random() < 0.6)
    ways = {
        (a, b): tuple(
            Hop(f"{a}>{b}.{hop}" if rng.random() < 0.7 else "bus", 0.01, float(10 ** rng.uniform(-4, -1.5)), MADE_UP)
            for hop in range(rng.integers(1, 3))
        )
        for a, b in itertools.permutations(DEVICES, 2)
    }
    slowdown = {("sampling", "learner", "cpu"): 1.3}
    problem = Problem({part: (option,) for part, option in chosen.items()}, {}, flows, ways, slowdown=slowdown)
    return problem, Configuration(tuple(chosen.values()), int(rng.integers(0, 6)))


@pytest.mark.parametrize("seed", range(40))
def test_no_simulation_exceeds_its_bound(seed):
    problem, configuration = random_case(np.random.default_rng(seed))
    bound, loop, depth = outcome(problem, configuration), network(problem, configuration), configuration.depth
    highest = bound.hz * (1 + 2 * (depth + 1) / 200)  # batches under way or set off when a window began count too
    assert bound_hz(loop, depth) == pytest.approx(bound.hz)
    assert simulate(loop, depth, steps=200).value <= highest
    noisy = simulate(loop, depth, cv=0.7, steps=200, seed=seed)
    # Twice its half width: a 95 % interval misses the mean now and then, among so many.
    assert noisy.value <= highest + 2 * (noisy.value - noisy.low)
    trained = network(problem, configuration, actors=False)
    if not any(flow.waits and flow.source == "actors" for flow in problem.flows):  # else part of the loop itself
        assert bound_hz(trained, depth) == pytest.approx(bound.training_hz)
    if not trained.chains:
        assert simulate(trained, 0, steps=20).value == pytest.approx(bound_hz(trained, 0), rel=1e-9)


def test_the_formula_is_the_bound_of_the_published_loop():
    rng = np.random.default_rng(3)
    for _ in range(100):
        sampling, learner, updating = rng.uniform(0.1, 5, 3)
        transfer = 0.9 * rng.uniform() * max(learner, sampling + updating)  # never the slowest engine itself
        loop = published_loop(sampling, learner, updating, transfer)
        slowest, around = max(learner, sampling + updating), sampling + learner + updating + 2 * transfer
        for depth in range(6):
            assert bound_hz(loop, depth) == pytest.approx(min(1 / slowest, (depth + 1) / around))
        assert depth_enough(loop) == math.ceil(around / slowest) - 1
        together = published_loop(*rng.uniform(0.1, 5, 4), together=True)
        assert (len(together.busy), depth_enough(together)) == (1, 0)
    assert simulate(together, 3, steps=400).value == pytest.approx(1 / together.round_seconds, rel=0.01)


def test_the_worked_example_and_what_randomness_costs():
    assert depth_enough(EXAMPLE) == 2  # ahead, three under way
    curve = depth_curve(EXAMPLE, range(4), cvs=(0.0, 1.0), steps=4000)
    assert [point.depth for point in curve] == list(range(4))
    assert [point.simulated[0].value for point in curve] == pytest.approx([1 / 4.1, 2 / 4.1, 0.5, 0.5])
    assert all(point.simulated[1].value < point.simulated[0].value for point in curve[1:])
    little = simulate(EXAMPLE, 2, cv=0.3, steps=10_000)
    assert little.value / 0.5 == pytest.approx(0.995, abs=0.01)
    three, eight = (simulate(EXAMPLE, under_way - 1, cv=1.0, steps=10_000) for under_way in (3, 8))
    assert three.high / 0.5 < 0.9
    assert eight.low / 0.5 < 0.98 < eight.high / 0.5 + 0.01
    assert simulate(EXAMPLE, 2, cv=1.0, seed=5) == simulate(EXAMPLE, 2, cv=1.0, seed=5)


def optimism(count, depths, steps):
    """Compare the bound with the simulation, of random loops at each depth."""
    rng = np.random.default_rng(0)
    found = {depth: [] for depth in depths}
    for _ in range(count):
        times = 10 ** rng.uniform(-1, 1, 4)
        loop = published_loop(*times[:3], times[3] / 5)
        for depth in depths:
            found[depth].append(bound_hz(loop, depth) / simulate(loop, depth, steps=steps).value - 1)
    return found


@pytest.mark.slow
def test_how_optimistic_the_bound_is():
    found = optimism(240, (1, 2, 5), 600)
    assert np.median(found[1]) < 0.001
    assert [max(found[depth]) for depth in (1, 2, 5)] == pytest.approx([0.46, 0.27, 0.03], abs=0.005)
    assert {depth: max(found[depth]) for depth in TOO_HIGH} == pytest.approx(TOO_HIGH, abs=0.005)


SLOWEST = {  # (loop, depth, seconds a step)
    "chain": (Network((Visit("learner", 1.0),), chains=((0, (Visit("link", 3.0), Visit("far link", 2.0))),)), 2, 3),
    "actors": (Network((Visit("learner", 1.0),), actors=Visit("cpu", 4.0)), 2, 4),
    "learner": (Network((Visit("learner", 1.0),)), 2, 1),
    "one core": (Network(tuple(Visit("core", 1.0) for _ in LOOP), actors=Visit("core", 2.0)), 0, 6),
}


@pytest.mark.parametrize("part", SLOWEST)
def test_what_no_batch_waits_for_holds_up_the_whole(part):
    loop, depth, seconds = SLOWEST[part]
    assert simulate(loop, depth, steps=STEPS).value == pytest.approx(1 / seconds, rel=0.01)


def test_senseless_questions_are_refused():
    together = published_loop(1.0, 2.0, 0.5, together=True)
    for ask, words in (
        (lambda: published_loop(1.0, math.nan, 1.0), "learner .* nan"),
        (lambda: simulate(EXAMPLE, 1, steps=5), "20 steps"),
        (lambda: simulate(EXAMPLE, -1), "-1"),
        (lambda: simulate(together, 0, cv=3.0, steps=20, seed=14), "20 .*cv = 3"),
    ):
        with pytest.raises(ProblemError, match=words):
            ask()
