"""The quick simulation of every answer against one by a library, and the simulated cluster against known rates."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dse.estimate import Estimate, Evidence
from dse.solver.law import TOO_HIGH, outcome
from dse.solver.problem import LOOP, PARTS, Configuration, Flow, Hop, Option, Problem, ProblemError
from dse.solver.queues import Network, Visit, draw_factors, network, run, run_configuration, simulate, watch_queues
from dse.tuning.depth import bound_hz, depth_curve, depth_enough, published_loop
from tests.oracles.simulated_cluster import Costs
from tests.oracles.simulated_cluster import simulate as simulate_shards
from tests.oracles.simulation import simulated_hz
from tests.solver_cases import hop, option


@pytest.mark.parametrize(("seed", "data_queue"), [(seed, max(0, seed // 5 - 3)) for seed in range(30)])
def test_a_quick_run_is_as_fast_as_a_thorough_one(seed, data_queue):
    problem, configuration = random_case(np.random.default_rng(seed))
    loop = dataclasses.replace(network(problem, configuration), data_queue=data_queue)
    depth = configuration.depth + 2 * data_queue
    exact = run(loop, depth, 0.0, 400)
    assert exact.hz == pytest.approx(simulated_hz(loop, depth, 0.0, 400), rel=0.01)
    noisy = run(loop, depth, 1.0, 2000, seed)
    assert simulated_hz(loop, depth, 1.0, 2000, seed + 1) == pytest.approx(noisy.hz, abs=1.5 * (noisy.high - noisy.low))


@pytest.mark.parametrize("seed", range(20))
def test_no_run_of_exact_times_exceeds_its_bound(seed):
    problem, configuration = random_case(np.random.default_rng(seed))
    bound, loop, depth = outcome(problem, configuration), network(problem, configuration), configuration.depth
    exact, noisy = run_configuration(problem, configuration)
    assert (exact.cv, noisy.cv) == (0.0, 1.0)
    highest = bound.hz * (1 + 2 * (depth + 1) / 200)  # batches under way or set off when a window began count too
    assert bound_hz(loop, depth) == pytest.approx(bound.hz)
    assert exact.hz <= highest and simulate(loop, depth, steps=200).value <= highest
    assert noisy.low <= noisy.hz <= noisy.high
    assert noisy.hz <= exact.hz * 1.2
    trained = network(problem, configuration, actors=False)
    if not any(flow.waits and flow.source == "actors" for flow in problem.flows):  # else part of the loop itself
        assert bound_hz(trained, depth) == pytest.approx(bound.training_hz)
    if not trained.chains:
        assert simulate(trained, 0, steps=20).value == pytest.approx(bound_hz(trained, 0), rel=1e-9)


def test_further_engines_are_busy_too():
    """Two devices learn together, and the tree of the second one waits for it: two thirds of what one alone makes."""
    parts = {part: option(part, part, "cpu", 1e-6, {}, f"cpu.{part}") for part in PARTS}
    parts["learner"] = dataclasses.replace(option("learner", "two", "gpu0", 2.0), also=(("gpu1", "gpu1"),))
    parts["updating"] = option("updating", "tree", "gpu1", 1.0)
    ways = {pair: (hop("link", 0.0, 0.0),) for pair in (("cpu", "gpu0"), ("gpu0", "gpu1"))}
    flows = (Flow("storage", "learner", 1.0, True), Flow("learner", "updating", 1.0, False))
    problem = Problem({part: (one,) for part, one in parts.items()}, {}, flows, ways, depths=(3,))
    chosen = Configuration(tuple(parts.values()), depth=3)
    exact, _ = run_configuration(problem, chosen)
    assert exact.hz == pytest.approx(outcome(problem, chosen).hz, rel=0.02) == pytest.approx(1 / 3, rel=0.02)


def test_a_batch_passes_parts_and_transfers_in_order():
    """Storage takes twice as long while sampling runs on the same device; actors' records come before the learner."""
    parts = {part: option(part, part, "cpu", 1.0, {}, f"cpu.{part}") for part in PARTS}
    parts["learner"] = option("learner", "one", "gpu", 1.0)
    ways = {("cpu", "gpu"): (hop("to", 0.5, 0.0),), ("gpu", "cpu"): (hop("from", 0.25, 0.0),)}
    flows = (Flow("actors", "learner", 1.0, True), Flow("learner", "actors", 1.0, False))
    slower = {("storage", "sampling", "cpu"): 2.0}
    problem = Problem({part: (one,) for part, one in parts.items()}, {}, flows, ways, slowdown=slower)
    chosen = Configuration(tuple(parts.values()))
    before = Visit("cpu.sampling", 1.0), Visit("cpu.storage", 2.0)
    after = Visit("gpu", 1.0), Visit("cpu.updating", 1.0)
    weights = Visit("from", 0.25)
    assert network(problem, chosen) == Network(
        (*before, Visit("to", 0.5), *after), Visit("cpu.actors", 1.0), ((3, (weights,)),)
    )
    assert network(problem, chosen, actors=False) == Network((*before, *after))


def test_a_queue_is_full_with_more_batches_than_it_takes():
    """Sampling and storage are quick, so that all batches but the learner's wait before it: as many as it takes."""
    visits = tuple(Visit(part, 1.0 if part == "learner" else 1e-3) for part in LOOP)
    free = Network(visits, places=tuple(enumerate(LOOP)))
    bounded = dataclasses.replace(free, data_queue=5)
    for depth, full in ((0, False), (5, False), (6, True), (40, True)):
        length, waited = watch_queues(bounded, depth, 0.0, 400)["learner"]
        assert ((waited > 0), length) == (full, pytest.approx(min(depth, 5), rel=0.05))
        assert run(bounded, depth, 0.0, 200).hz == pytest.approx(run(free, depth, 0.0, 200).hz, rel=1e-2)
    with pytest.raises(ProblemError, match="queue that is full"):
        watch_queues(bounded, 3_000, 0.0, 10)


def test_drawn_factors_have_the_deviation_that_is_asked_for():
    drawn = list(itertools.islice(draw_factors(0.5, 0), 20_000))
    assert (np.mean(drawn), np.std(drawn)) == pytest.approx((1.0, 0.5), rel=0.02)


def test_a_short_run_counts_once_it_is_held_up():
    """What follows takes twice as long as the round, which waits for it once enough batches are set off."""
    loop = Network((Visit("a", 1.0),), None, ((0, (Visit("b", 2.0),)),))
    assert run(loop, 10, 0.0, 20).hz == pytest.approx(0.5, rel=0.01)


ALONE = Costs(call=1e-3, serve=2e-3, record=0.0, delay=0.0)


@pytest.mark.parametrize("shards", [1, 3, 10])
def test_requests_in_turn_take_the_sum_of_their_parts(shards):
    found = simulate_shards(shards, 64, ALONE, ahead=0)
    assert found.requests == pytest.approx(1 / (shards * ALONE.call + ALONE.serve), rel=0.01)
    assert found.calls == shards


def test_the_slower_side_bounds_requests_that_overlap():
    assert simulate_shards(1, 64, ALONE, ahead=3).requests == pytest.approx(1 / ALONE.serve, rel=0.01)
    assert simulate_shards(4, 64, ALONE, ahead=3).requests == pytest.approx(1 / (4 * ALONE.call), rel=0.01)
    assert simulate_shards(4, 64, ALONE, ahead=3, cores=1).requests == pytest.approx(1 / (4 * 3e-3), rel=0.01)


def test_a_thousand_shards_are_as_fast_as_sixteen():
    few, many, all_of_them = (
        simulate_shards(shards, 512, most=most) for shards, most in ((16, 16), (1000, 16), (1000, 1000))
    )
    assert many.calls == 16 and many.requests == pytest.approx(few.requests, rel=0.1)
    assert all_of_them.requests < many.requests / 20
    assert few.age < many.age < all_of_them.age * 2


# Bounds of loops, and how many batches to sample ahead


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
