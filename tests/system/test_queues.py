"""The quick simulation of every answer against one by a library, and the simulated cluster against known rates."""

import dataclasses
import itertools

import numpy as np
import pytest

from dse.solver import queues
from dse.solver.law import outcome
from dse.solver.problem import LOOP, PARTS, Configuration, Flow, Problem, ProblemError
from dse.solver.queues import Network, Visit, draw_factors, network, run, run_configuration, watch_queues
from tests.oracles.simulated_cluster import Costs, simulate
from tests.oracles.simulation import simulated_hz
from tests.solver_cases import hop, option
from tests.unit.test_presampling import random_case


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
    bound = outcome(problem, configuration)
    exact, noisy = run_configuration(problem, configuration)
    assert (exact.cv, noisy.cv) == (0.0, 1.0)
    assert exact.hz <= bound.hz * (1 + 2 * (configuration.depth + 1) / 200)
    assert noisy.low <= noisy.hz <= noisy.high
    assert noisy.hz <= exact.hz * 1.2


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
    found = simulate(shards, 64, ALONE, ahead=0)
    assert found.requests == pytest.approx(1 / (shards * ALONE.call + ALONE.serve), rel=0.01)
    assert found.calls == shards


def test_the_slower_side_bounds_requests_that_overlap():
    assert simulate(1, 64, ALONE, ahead=3).requests == pytest.approx(1 / ALONE.serve, rel=0.01)
    assert simulate(4, 64, ALONE, ahead=3).requests == pytest.approx(1 / (4 * ALONE.call), rel=0.01)
    assert simulate(4, 64, ALONE, ahead=3, cores=1).requests == pytest.approx(1 / (4 * 3e-3), rel=0.01)


def test_a_thousand_shards_are_as_fast_as_sixteen():
    few, many, all_of_them = (simulate(shards, 512, most=most) for shards, most in ((16, 16), (1000, 16), (1000, 1000)))
    assert many.calls == 16 and many.requests == pytest.approx(few.requests, rel=0.1)
    assert all_of_them.requests < many.requests / 20
    assert few.age < many.age < all_of_them.age * 2


@pytest.mark.parametrize(
    ("seconds", "asked", "facts"),
    [
        (0.0, {}, "cpu 0.0"),
        (float("inf"), {}, "cpu inf"),
        (1.0, {"depth": -1}, "-1"),
        (1.0, {"cv": float("nan")}, "nan"),
        (1.0, {"steps": queues.STRETCHES - 1}, f"{queues.STRETCHES} {queues.STRETCHES - 1}"),
        (1.0, {"cv": 30.0, "steps": queues.STRETCHES}, "cv 30"),
    ],
)
def test_what_cannot_be_simulated_is_refused(seconds, asked, facts):
    with pytest.raises(ProblemError) as refusal:
        queues.simulate(Network((Visit("cpu", seconds),)), **{"depth": 0} | asked)
    assert all(fact in str(refusal.value) for fact in facts.split())
