"""Tests of the exploration: brute force, argmax and tie, and the properties an optimum must have."""

import dataclasses
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.fpga import Point, Slice, design, front, learner_search, pool, rmm_search, subtract
from dse.fpga.learner_search import Problem, fastest
from dse.fpga.rmm_search import Space
from impls.fpga import cycles, learner
from impls.fpga.design import PORTS, Design
from impls.fpga.model import batches, ledger
from impls.fpga.network import parse
from impls.fpga.resources import Budget, DoesNotFit, Resources, exceeded, resources
from tests.oracles.fpga_brute_force import KINDS, brute_force, drawn, small_primitives

PROBLEMS = 2_000


@pytest.mark.slow
def test_the_fastest_learner_is_that_of_brute_force(monkeypatch):
    small_primitives(monkeypatch)
    rng = random.Random(6)
    solved = 0
    for _ in range(PROBLEMS):
        problem = drawn(rng)
        expected = brute_force(problem)
        if expected is None:
            with pytest.raises(DoesNotFit):
                fastest(problem)
            continue
        solved += 1
        assert fastest(problem)[0] == expected, problem
    assert solved > PROBLEMS / 2


# Properties of an optimum

U200_TWO = Budget(lut=773_600, ff=1_547_200, dsp=4560, bram36=1440, uram=640)
NETWORKS = st.sampled_from([parse(text) for text in ("cartpole", "mlp:5-30-4", "conv:2x9x9-4k3s2-20-2", "hopper")])
BUDGETS = st.builds(
    Budget,
    lut=st.integers(30_000, 800_000),
    ff=st.integers(30_000, 1_500_000),
    dsp=st.integers(80, 5_000),
    bram36=st.integers(20, 1_500),
    uram=st.integers(0, 700),
)


def time_of(problem):
    try:
        return fastest(problem)[0].cycles
    except DoesNotFit:
        return float("inf")


@settings(max_examples=40, deadline=None)
@given(
    NETWORKS, st.integers(1, 300), BUDGETS, st.sampled_from(KINDS), st.integers(1, 500), st.sampled_from(learner.FILLS)
)
def test_more_of_a_budget_is_never_slower(network, batch, budget, kind, more, fill):
    richer = dataclasses.replace(budget, **{kind: getattr(budget, kind) + more})
    less_time = time_of(Problem(network, batch, richer, fill))
    assert less_time <= time_of(Problem(network, batch, budget, fill))
    assert time_of(Problem(network, batch, dataclasses.replace(budget, **{kind: None}), fill)) <= less_time


@settings(max_examples=40, deadline=None)
@given(NETWORKS, st.integers(1, 200), st.integers(1, 200), BUDGETS)
def test_a_larger_batch_takes_no_longer_a_sample_but_for_its_last_round(network, batch, more, budget):
    """Only ceil(B / DP) is the reason: the last round of the pipelines may be short of up to DP - 1 samples."""
    small, large = Problem(network, batch, budget), Problem(network, batch + more, budget)
    if time_of(small) == float("inf"):
        return
    best = fastest(small)[0]
    pipelines = best.design.pipelines
    idle = -large.batch % pipelines
    each, each_of_more = best.cycles / small.batch, time_of(large) / large.batch
    assert each_of_more <= each * (1 + idle / large.batch) * (1 + 1e-12)
    if not idle:
        assert each_of_more <= each * (1 + 1e-12)


def test_the_last_round_is_a_true_reason():
    """A sample more for two pipelines costs each a whole round."""
    even, odd = (learner.ledger(learner.Learner(parse("mlp:2-3"), 2, (1, 1, 1), 9), batch) for batch in (8, 9))
    assert odd.cycles / 9 > even.cycles / 8


@settings(max_examples=15, deadline=None)
@given(NETWORKS, st.integers(1, 200), BUDGETS)
def test_the_published_greedy_way_is_never_faster(network, batch, budget):
    problem = Problem(network, batch, budget)
    try:
        found = learner_search.greedy(problem)
    except DoesNotFit:
        return
    assert found.cycles >= time_of(problem)


def test_weights_are_streamed_only_where_they_do_not_fit():
    hopper, pong = (Problem(parse(name), 32, U200_TWO) for name in ("hopper", "pong"))
    assert fastest(dataclasses.replace(hopper, bytes_per_s=77e9))[0].cycles == time_of(hopper)
    assert time_of(pong) == float("inf")
    times = [time_of(dataclasses.replace(pong, bytes_per_s=rate)) for rate in (19e9, 77e9, 1e15)]
    assert times[0] > times[1] > times[2]


def test_the_clock_changes_no_choice():
    slow, fast = (fastest(Problem(parse("hopper"), 64, U200_TWO, clock_hz=clock))[0] for clock in (100e6, 300e6))
    assert slow.design == dataclasses.replace(fast.design, clock_hz=100e6)
    assert learner.ledger(slow.design, 64).seconds == pytest.approx(3 * learner.ledger(fast.design, 64).seconds)


def test_a_front_is_what_nothing_beats():
    points = learner_search.pareto(Problem(parse("cartpole"), 64, Budget(dsp=600)))
    assert points[0].cycles == fastest(Problem(parse("cartpole"), 64, Budget(dsp=600)))[0].cycles
    assert len(points) > 5
    for one, other in itertools.permutations(points, 2):
        assert any(left < right for left, right in zip(one.objectives, other.objectives, strict=True))
    assert front([*points, *points]) == points


def test_what_even_the_smallest_learner_lacks_is_told():
    with pytest.raises(DoesNotFit, match="dsp: have 40, need 50") as error:
        fastest(Problem(parse("cartpole"), 8, Budget(dsp=40)))
    assert error.value.exceeded == {"dsp": (40, 50)}


# The replay management module


@pytest.mark.parametrize("batch", [1, 7, 256])
@pytest.mark.parametrize(
    "design",
    [
        Design(1),
        Design(5, 2, banks=4),
        Design(1000, 4, 18, "scan", 8, "contiguous"),
        Design(1000, 16, 18, "wide", 32, "interleaved"),
        Design(1000, 8, 18, "scan", 1),
    ],
)
def test_mean_cycles_are_those_of_the_ledger(design, batch):
    told = ledger(design, "step", batch).cycles
    assert rmm_search.mean_cycles(design, batch) == pytest.approx(told, rel=1e-9)


@pytest.mark.parametrize(("ports", "micro", "banks"), [("dual", "wide", 8), ("dual", "scan", 1), ("copied", "scan", 4)])
def test_mean_cycles_of_both_at_once_are_those_of_the_longer(ports, micro, banks):
    design = Design(1000, 2, 18, micro, banks, ports=ports)
    drawn = list(batches(design, "sample", 200, None))
    pairs = zip(drawn, [drawn[-1], *drawn[:-1]], strict=True)
    spent = [
        max(cycles.count_queued_cycles(design, "sample", now), cycles.count_queued_cycles(design, "update", before))
        for now, before in pairs
    ]
    assert rmm_search.mean_cycles(design, 200) == pytest.approx(sum(spent) / len(spent), rel=1e-9)


def test_a_tree_is_chosen_by_its_ports_where_they_fit():
    """UltraRAM has two ports, so that it need not be copied."""
    space = Space(1 << 16, 256, ports=PORTS)
    points = rmm_search.priced(space)
    fastest = {
        ports: next(point for point in points if point.design.design.ports == ports and point.needed.uram)
        for ports in PORTS
    }
    assert fastest["copied"].cycles < fastest["dual"].cycles < fastest["shared"].cycles
    same = [dataclasses.replace(fastest["dual"].design.design, ports=ports) for ports in PORTS]
    blocks = [resources(design).uram for design in same]
    assert blocks[0] == blocks[1] == blocks[2] / 2


def test_a_batch_larger_than_the_queues_comes_in_parts():
    design = Design(1000, banks=4)
    whole, part = rmm_search.Rmm(design, 64, True), rmm_search.Rmm(design, 16, True)
    assert whole.cycles(64) == rmm_search.mean_cycles(design, 64)
    assert part.cycles(40) == 2 * rmm_search.mean_cycles(design, 16) + rmm_search.mean_cycles(design, 8)
    assert part.needed.lut < whole.needed.lut


def test_every_design_is_priced_and_the_best_comes_first():
    space = Space(500, 64, fanouts=(2, 8), banks=(1, 4, 1000), leaf_bits=(12, 18), queues=(16, 256))
    points = rmm_search.priced(space)
    shapes = {(point.design.design.banks, point.design.queue) for point in points}
    assert shapes == {(1, 64), (4, 16), (4, 64)}
    assert len(points) == 2 * 2 * 2 * 2 * (1 + 2 * 2)  # fanout, micro, bits, UltraRAM; one bank or banking and queue
    assert [point.cycles for point in points] == sorted(point.cycles for point in points)
    best = points[0].design.design
    assert (best.banking, best.leaf_bits, best.micro) == ("interleaved", 18, "wide")


# Both together


SLICES = (
    Slice("a", Budget(lut=60_000, ff=90_000, dsp=300, bram36=60, uram=20)),
    Slice("b", Budget(lut=40_000, ff=60_000, dsp=200, bram36=40, uram=10)),
    Slice("c", Budget(lut=60_000, ff=90_000, dsp=300, bram36=60, uram=20)),
)


def choose(text, space, sharing, count=3):
    return design.explore(design.Question(parse(text), space, SLICES[:count], sharing))


def nested(network, space, slices, sharing):
    """Try every RMM in every slice that it fits, each with the best learner for what is left."""
    whole = pool(slices)
    for point in rmm_search.priced(space):
        for held in slices:
            if exceeded(point.needed, held.budget):
                continue
            others = [part for part in slices if part is not held]
            left = pool(others) if sharing == "kept" else subtract(whole, point.needed)
            try:
                found = fastest(Problem(network, space.batch, left))
            except DoesNotFit:
                continue
            names = tuple(part.name for part in slices if sharing == "free" or part is not held)
            yield from (design.Choice(point, held.name, learner, names) for learner in found)


@pytest.mark.parametrize("sharing", design.SHARINGS)
@pytest.mark.parametrize(("text", "batch", "count"), [("cartpole", 16, 3), ("cartpole", 500, 3), ("mlp:4-40-2", 9, 2)])
def test_the_joint_choice_is_that_of_nested_loops(text, batch, count, sharing):
    space = Space(300, batch, fanouts=(2, 4), banks=(1, 8), queues=(), ports=PORTS)
    every = sorted(nested(parse(text), space, SLICES[:count], sharing), key=lambda choice: choice.order)
    best, other = choose(text, space, sharing, count)
    assert best == every[0]
    pipelines = best.learner.design.pipelines
    assert other.order == next(one.order for one in every if one.learner.design.pipelines != pipelines)


def test_free_is_no_slower_than_kept():
    kept, free = (choose("cartpole", Space(300, 64, banks=(1, 8)), sharing)[0] for sharing in design.SHARINGS)
    assert free.cycles <= kept.cycles
    assert (kept.is_shared, free.is_shared, free.learner_slices) == (False, True, ("a", "b", "c"))


@pytest.mark.parametrize("sharing", design.SHARINGS)
@pytest.mark.parametrize(
    ("text", "capacity", "facts"),
    [
        ("pong", 300, r"to stream them.*memory.bandwidth_gb_per_s.*uram: have"),
        ("cartpole", 1 << 20, r"RMM .* nearest, in a"),
    ],
)
def test_what_does_not_fit_is_named(text, capacity, facts, sharing):
    with pytest.raises(DoesNotFit, match=facts):
        choose(text, Space(capacity, 8), sharing)


def test_a_single_slice_cannot_be_kept():
    with pytest.raises(ValueError, match="free"):
        choose("cartpole", Space(300, 8), "kept", 1)
    assert choose("cartpole", Space(300, 8, banks=(1,)), "free", 1)


def test_sums_of_budgets():
    assert pool(SLICES[:2]).dsp == 500
    assert pool([SLICES[0], Slice("unbounded", Budget())]).dsp is None
    assert subtract(SLICES[1].budget, Resources(1, 2, 300, 0.5, 0, 0)) == Budget(39_999, 59_998, 0, 39.5, 10)
    assert subtract(Budget(), Resources(1, 2, 3, 4, 5, 6)) == Budget()
    assert Point("", 1.0, Resources(1, 2, 3, 4, 5, 6)).cost == (3, 1, 2, 4, 5)
