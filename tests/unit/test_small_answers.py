"""Tests of ``python -m dse cores``, ``depth``, ``adapt``, ``learners`` and ``fpga``, and of the knee of a batch.

What they answer to questions of any kind is kept (``tests/golden.py``); here are the rules that it follows from.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from dse.__main__ import main
from dse.estimate import Estimate, Evidence
from dse.mapping.learners import calibrate
from dse.mapping.processes import one_thread
from dse.mapping.question import ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.mapping.why_not import SHARE, knee
from dse.platforms import load
from dse.solver.problem import ProblemError
from dse.solver.queues import Network, Visit
from dse.times.several import single_seconds, spo_seconds
from dse.tuning import depth
from dse.tuning import samplers as tuning_samplers
from dse.tuning.cores import EQUAL, RateCurve, platform_curves, split_cores
from dse.tuning.depth import answer_depth, depth_enough
from dse.tuning.learners import learner_scaling
from dse.tuning.samplers import fixed_designs, replay
from tests.committed import RESULTS
from tests.made import make_record

EVEN = {x: 100.0 * x for x in range(1, 8)}
BATCHES = [1 << power for power in range(5, 17)]


def told(capsys, command):
    """The answer in JSON, and its notes by their kind."""
    assert main([*command.split(), "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    return given, {note["kind"]: note for note in given["notes"]}


# Cores


def split(rates, off=0.0, source="measured", cores=8):
    """The split of cores between two sides that have the same rates."""
    estimates = {x: Estimate(hz, (1 - off) * hz, (1 + off) * hz, Evidence("f", source)) for x, hz in rates.items()}
    return split_cores(*(RateCurve(name, estimates) for name in ("f_a", "f_l")), 1, cores)


def test_ties_are_within_a_percent_or_measured_intervals():
    def list_ties(answer):
        return [(note.values["actors"], note.values["learners"]) for note in answer.notes if note.kind == "tied_split"]

    even, wide = split(EVEN), split(EVEN, 0.2)
    assert list_ties(even) == []
    eq_5 = next(note.values for note in even.notes if note.kind == "eq_5")
    solution = {"pairs": 4, "equal_share": EQUAL, "actors": 4, "learners": 4, "hz": even.choice.estimate.value}
    assert (eq_5, wide.choice.label["actors"], wide.choice.label["learners"]) == (solution, 4, 4)
    tied = [(row.label["actors"], row.label["learners"]) for row in wide.others if row.more["is_tied"]]
    assert list_ties(wide) == tied == [(3, 3), (3, 4), (3, 5)]
    assert list_ties(split(EVEN, 0.2, "modeled")) == []  # all rates of a law are wrong together


def test_beyond_two_points_the_least_sure_rate_is_named(capsys):
    """S17: two points are Amdahl's law alone, which leaves out what coherence does to 48 learners."""
    given, _ = told(capsys, "cores --actors 1:900,2:1700 --learners 1:400,2:700 --cores 56")
    choice, (first, second) = given["choice"], given["decides"]
    assert (choice["actors"], choice["learners"], choice["source"]) == (4, 48, "extrapolated")
    assert choice["value"] / choice["low"] == pytest.approx(21, abs=0.5)
    assert [first[key] for key in ("side", "cores", "on")] == ["learners", 8, 48]
    assert (first["low"], first["high"]) == pytest.approx((118, 16_800), rel=0.01)
    assert second["side"] == "actors"  # a factor of 2
    known, _ = told(capsys, "cores --actors 1:900,8:6000 --learners 1:400,8:2000 --cores 8")
    assert known["decides"] == []


# Depth


@pytest.fixture
def short(monkeypatch):
    """Simulate few steps, so that a test is quick."""
    monkeypatch.setattr(depth, "STEPS", 400)


def test_the_range_of_depths_is_that_of_all_times_between(short):
    rng = np.random.default_rng(3)
    for _ in range(15):
        engines = [f"engine {number}" for number in range(rng.integers(1, 5))]
        names, low = rng.choice(engines, 5), 10 ** rng.uniform(-1, 1, 5)
        more = low * rng.uniform(0, 2, 5)

        def loop(at, names=names, low=low, more=more):
            return Network(tuple(map(Visit, map(str, names), map(float, low + more * at))))

        given = answer_depth(loop(0.5), 0.0, (loop(0), loop(1))).choice.more
        corners = [depth_enough(loop(np.array(at))) for at in itertools.product((0, 1), repeat=5)]
        between = [depth_enough(loop(rng.uniform(0, 1, 5))) for _ in range(20)]
        assert given["least"] == min(corners) <= min(between)
        assert max(between + corners) <= given["most"] <= len(engines) - 1


# FPGAs


# Samplers and batches, and learners


QUICK_GPU = with_changes(load("u200"), {"gpu.launch_us": 1})


def test_a_pairs_rates_are_those_of_both_fixed():
    rates = replay(ask(QUICK_GPU, "hopper_ddpg"), cpu_percent=50.0)  # beside a GPU that is quick to launch
    asked = {"exclude": fixed_designs(load("u200")), "epsilon": 0.0}
    for samplers, batch in ((1, 32), (5, 128), (8, 4096)):
        fix = {"actors": samplers, "actor_count": samplers, "batch": batch}
        apart, pipelined = (
            find_mapping(QUICK_GPU, "hopper_ddpg", "training", fix={**fix, "arrangement": mode}, **asked)
            for mode in ("apart", "pipelined")
        )
        assert rates.sampling_hz(samplers, batch) == pytest.approx(apart.choice.more["actor_hz"])
        assert apart.choice.more["actor_hz"] == pytest.approx(pipelined.choice.more["actor_hz"])
        assert rates.frames_hz(samplers, batch) == pytest.approx(batch * max(apart.value, pipelined.value))


@pytest.mark.parametrize("machine", ["8fb834d50a", "d7dae63b89"])
def test_one_learner_takes_what_recommend_says_of_it(machine):
    """It rested on torch's times where the dense learner runs, 10 times slower."""
    platform = RESULTS / machine / "platform.toml"
    asked = [(name, "apart") for name in ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg")]
    for name, arrangement in (*asked, ("cartpole_dqn", "serial")):
        given = learner_scaling(ask(platform, name, fix={"arrangement": arrangement}))
        assert given.by == "dense"
        fix = {"arrangement": arrangement, "learner_implementation": given.by, "learner_threads": 1}
        answer = find_mapping(platform, name, fix=fix)
        taken = sum(one.more["charged_seconds"] for one in answer.parts if one.label["part"] != "actors")
        assert single_seconds(given.terms) == pytest.approx(taken, rel=0.05)


def test_cores_learners_and_adapt_ask_of_one_implementation(monkeypatch):
    platform = RESULTS / "8fb834d50a" / "platform.toml"

    def refuse(parts, **more):
        raise ProblemError(parts.constraints["learner_implementation"])

    monkeypatch.setattr(tuning_samplers, "build", refuse)
    for fix, by in (({}, "dense"), ({"learner_implementation": "torch"}, "torch")):
        question = ask(platform, "cartpole_dqn", fix=fix)
        alone = one_thread(question.parts(), by)
        assert learner_scaling(question).by == question.parts().learners.implementation == by
        assert platform_curves(question.parts(), 2)[1].rates[1].value == pytest.approx(1 / alone.value)
        with pytest.raises(ProblemError, match=f"^{by}$"):
            replay(question)


def test_learners_timed_alone_tell_costs_for_any_network():
    """Work that takes 1.2 times as long on both cores, 30 us a wait, of which a vector takes two, and 50 us a step."""
    question = ask(RESULTS / "8fb834d50a" / "platform.toml", "hopper_sac")
    found = []
    same = {"source": "measured", "status": "ok", "primitive": "learners step", "contestant": "dense"}
    for units, part in ((64, 1e-3), (256, 4e-3)):
        one = {"workload": "cartpole_dqn", "hidden": [units], "learners": 1}
        how = {"op": "gradient step", "batch": 32, "capacity": 1000, "metrics": {"average_seconds": 4e-6}}
        own = make_record(**same, **how, median_seconds=part, options=one)
        found.append(own)
        for horizon in (1, 5, 25):
            options = {**one, "learners": 2, "sync": "local", "period": horizon}
            seconds = 1.2 * part + 50e-6 + (4e-6 + 2 * 30e-6) / horizon
            found.append(dataclasses.replace(own, batch=64, options=options, median_seconds=seconds))
    given, parts = learner_scaling(question), question.parts()
    parts = dataclasses.replace(parts, table=dataclasses.replace(parts.table, learned=tuple(found)))
    made, _, ran = calibrate(given.processes, given.terms, parts, "dense")
    assert made.costs[0] == (pytest.approx(1.2), pytest.approx(30e-6), pytest.approx(50e-6))
    assert made.costs[1] == given.processes.costs[1]  # nothing shared a core
    assert ran == {}
    few = dataclasses.replace(parts, table=dataclasses.replace(parts.table, learned=tuple(found[:4])))  # of one network
    slower, wait, further = calibrate(given.processes, given.terms, few, "dense")[0].costs[0]
    assert further == given.processes.costs[0][2]
    assert slower * 1e-3 + further == pytest.approx(1.25e-3)
    assert wait == pytest.approx(30e-6)


def test_a_machine_without_records_has_modeled_terms():
    question = ask("u200", "hopper_ddpg")
    given = learner_scaling(question, "gpu")
    assert {one.rests_on.source for one in given.sources} == {"modeled"}
    least = 0.9 * single_seconds(given.terms)  # a framework's own time is no learner's to share
    assert given.seconds(*given.choose([2], 25)) > least
    assert given.seconds(2, 5) == spo_seconds(given.terms, 2, 5)  # nothing here runs there
    with pytest.raises(ProblemError, match="cpu to gpu"):
        learner_scaling(ask(dataclasses.replace(load("u200"), links=()), "hopper_ddpg"), device="gpu")


# The knee


def test_the_knee_is_the_smallest_near_the_largest_rate():
    """A gradient step takes a fixed time and one that grows with B; above ``most`` nothing fits."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        fixed, each, most = 10 ** rng.uniform(-6, -1), 10 ** rng.uniform(-8, -4), int(rng.choice(BATCHES))
        rates = {batch: batch / (fixed + each * batch) if batch <= most else 0.0 for batch in BATCHES}
        seen = []
        found = knee(BATCHES, lambda batch, rates=rates, seen=seen: seen.append(batch) or rates[batch])
        expected = min(batch for batch in BATCHES if rates[batch] >= SHARE * max(rates.values()))
        assert found.largest == most
        assert found.batch == (expected if expected < most or most == BATCHES[0] else None)
        assert len(seen) == len(set(seen)) <= 10


def test_the_share_itself_is_enough_and_nothing_is_not():
    for share in (SHARE, np.nextafter(SHARE, 0), 0.0):
        found = knee([1, 2], {1: share, 2: 1.0}.__getitem__)
        assert found.batch == (1 if share >= SHARE else None)
    assert knee(BATCHES, lambda batch: 0.0).batch is None


def test_a_design_that_streams_its_weights_is_told(capsys):
    _, notes = told(capsys, "fpga --workload pong_dqn --batch 2")
    assert {"bound_by_reading", "streams_weights"} < notes.keys()
