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
from dse.mapping.learners import Processes, calibrate
from dse.mapping.processes import one_thread
from dse.mapping.question import ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.mapping.why_not import SHARE, knee
from dse.platforms import load
from dse.solver.problem import ProblemError
from dse.solver.queues import Network, Visit
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms, factors, single_seconds, spo_seconds
from dse.tuning import depth
from dse.tuning import samplers as tuning_samplers
from dse.tuning.cores import EQUAL, RateCurve, platform_curves, platform_split, split_cores
from dse.tuning.depth import (
    LOSS,
    answer_depth,
    depth_enough,
    own_depth,
    platform_depth,
    published_visits,
)
from dse.tuning.learners import HARDLY, answer_learners, learner_scaling
from dse.tuning.samplers import answer_samplers, fixed_designs, replay
from impls.training import load as load_workload
from tests.committed import COMMITTED, RESULTS
from tests.made import make_record

MACHINE = "d7dae63b89"
HERE = str(RESULTS / MACHINE / "platform.toml")
TORCH = {"learner_implementation": "torch", "policy_implementation": "torch"}  # what that machine's profile timed
EVEN = {x: 100.0 * x for x in range(1, 8)}
TIMES = {"sampling": 1e-3, "there": 3e-4, "training": 2e-3, "back": 3e-4, "updating": 5e-4}
QUICK = f"fpga --network cartpole --batch 32 --capacity 1000 --results {RESULTS}"
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


def test_one_core_serves_both_in_turns():
    answer = platform_split("this", "hopper_ddpg", 1, machine=MACHINE, fix=TORCH)
    loop = find_mapping("this", "hopper_ddpg", machine=MACHINE, fix={**TORCH, "arrangement": "serial"})
    label = {"actors": 1, "learners": 1, "in_turns": True}
    assert (answer.choice.says, answer.choice.label, answer.others) == ("take_turns", label, ())
    assert answer.choice.estimate.value == loop.hz


def test_turns_are_told_apart_where_they_are_faster():
    for rates, says in ((EVEN, "other_turns"), ({1: 100.0, 2: 250.0}, "turns_are_faster")):
        assert [row.says for row in split(rates, cores=2).others] == [says]


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


def test_beyond_two_points_the_least_sure_rate_is_to_be_timed(capsys):
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


def test_ones_own_times_have_a_depth_rates_and_losses(capsys, short):
    given, notes = told(capsys, "depth --sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300")
    choice, parts, points = given["choice"], given["rows"][:5], given["rows"][5:]
    assert (choice["depth"], choice["upper_bound"]) == (2, True)
    assert (choice["value"], choice["round_seconds"]) == pytest.approx((500.0, 4.1e-3))
    assert {row["part"]: row["value"] for row in parts} == TIMES
    assert (notes["busiest_engine"]["engine"], notes["busiest_engine"]["seconds"]) == ("learner", 2e-3)
    assert notes["loss_of_none_ahead"]["loss"] == pytest.approx(1 - 1 / 4.1 / 0.5)
    assert points[2]["bound_hz"] == pytest.approx(2 / 4.1e-3)  # one ahead
    assert points[2]["loss"] == pytest.approx(1 - 2 / 4.1 / 0.5, rel=0.01)
    exact, vary = notes["enough_if_exact"], notes["enough"]
    assert (exact["cv"], exact["depth"], vary["cv"]) == (0.0, 1, 1.0)
    assert all(row["value"] <= row["bound_hz"] * (1 + 1e-6) for row in points if not row["cv"])


def test_a_platforms_times_are_those_of_its_best_mapping():
    given, best = platform_depth("u200", "hopper_ddpg", 0.0), find_mapping("u200", "hopper_ddpg")
    assert given.question["arrangement"] == best.arrangement
    assert given.question["mapping"] == {part.label["part"]: part.label["device"] for part in best.parts}
    assert given.question["presampled"] == best.choice.more["depth"] == 50
    hz = given.choice.estimate.value
    assert given.choice.more["most_hz"] * (1 + 1e-9) >= hz == best.hz  # in apart, no depth makes a difference


def test_what_is_excluded_is_heeded_and_in_turns_nothing_is_gained(capsys, short):
    given, _ = told(capsys, "depth --platform u200 --workload hopper_ddpg --exclude fpga --spread 0")
    assert "fpga" not in given["question"]["mapping"].values()
    given, notes = told(capsys, f"depth --workload hopper_ddpg --machine {MACHINE}")
    assert (given["choice"]["depth"], given["question"]["machine"]) == (0, MACHINE)
    assert notes["workload_samples_ahead"]["presampled"] == 50
    together = own_depth(published_visits(1.0, 2.0, 0.5, together=True))
    depths = [note.values["depth"] for note in together.notes if "cv" in note.values]
    assert (together.choice.label["depth"], *depths) == (0, 0, 0)


def test_the_range_of_depths_is_that_of_all_times_between(short):
    rng = np.random.default_rng(3)
    for _ in range(40):
        engines = [f"engine {number}" for number in range(rng.integers(1, 5))]
        names, low = rng.choice(engines, 5), 10 ** rng.uniform(-1, 1, 5)
        more = low * rng.uniform(0, 2, 5)

        def loop(at, names=names, low=low, more=more):
            return Network(tuple(map(Visit, map(str, names), map(float, low + more * at))))

        given = answer_depth(loop(0.5), 0.0, (loop(0), loop(1))).choice.more
        corners = [depth_enough(loop(np.array(at))) for at in itertools.product((0, 1), repeat=5)]
        between = [depth_enough(loop(rng.uniform(0, 1, 5))) for _ in range(50)]
        assert given["least"] == min(corners) <= min(between)
        assert max(between + corners) <= given["most"] <= len(engines) - 1


def test_a_depth_is_enough_where_its_rate_is_near_the_most(short):
    given = own_depth(published_visits(1.0, 2.0, 0.5, 0.3))
    rates = {(row.label["cv"], row.label["depth"]): row.estimate.value for row in given.rows if "cv" in row.label}
    enough = [note.values for note in given.notes if "cv" in note.values]
    assert [found["cv"] for found in enough] == [0.0, 1.0]
    for found in enough:
        cv, depth, least = found["cv"], found["depth"], (1 - LOSS) * given.choice.more["most_hz"]
        assert rates[cv, depth] >= least > rates[cv, depth - 1]
        assert found["least"] <= depth <= (found["most"] or depth)


# FPGAs


def test_cycles_make_the_rate_and_every_number_has_a_basis(capsys):
    given, _ = told(capsys, QUICK)
    best, (greedy, other) = given["choice"], given["others"]
    own = sum(best["learner"]["cycles"].values())
    assert best["cycles"] == max(own, best["rmm"]["cycles"])
    assert best["seconds"] == best["cycles"] / given["question"]["clock_hz"] == 1 / best["value"]
    assert best["mac_units"] == sum(best["learner"]["units"].values()) == 313
    bases = {note["basis"] for note in given["notes"] if "basis" in note}
    assert bases == {"modeled", "quoted", "assumed", "datasheet"}
    front = [row["front_cycles"] for row in given["rows"] if "front_cycles" in row]
    assert (front, front[0]) == (sorted(front), own)
    assert len(front) > 3
    assert all(0 <= row[key] <= 1 for row in given["rows"] for key in row if key.endswith("_share"))
    assert (best["pace"], best["pipelines"], other["pipelines"]) == (1, 2, 4)
    assert other["pace"] < greedy["pace"] == best["cycles"] / greedy["cycles"] <= 1  # the better first


def test_fill_sharing_clock_and_cost_of_a_design_matter(capsys):
    best = told(capsys, QUICK)[0]["choice"]
    for option, changed in (("--fill systolic", "slowest_stage_cycles"), ("--slice free", "slices")):
        assert told(capsys, f"{QUICK} {option}")[0]["choice"]["learner"][changed] != best["learner"][changed]
    slower, _ = told(capsys, f"{QUICK} --dsp-per-mac 9 --clock-mhz 100")
    assert slower["choice"]["seconds"] == slower["choice"]["cycles"] / 1e8
    limits = [note["kind"] for note in slower["notes"] if note["level"] == "first"]
    assert limits == ["bound_by_learner", "tree_at_once", "nearly_full"]
    streamed, _ = told(capsys, "fpga --workload pong_dqn --batch 2")
    assert {"bound_by_reading", "streams_weights"} < {note["kind"] for note in streamed["notes"]}


# Samplers and batches, and learners


QUICK_GPU = with_changes(load("u200"), {"gpu.launch_us": 1})


@pytest.fixture(scope="module")
def many_cores():
    """The rates on half of 28 cores, beside a GPU that is quick to launch, and the answer by them."""
    question = ask(QUICK_GPU, "hopper_ddpg")
    rates = replay(question, cpu_percent=50.0)
    return rates, answer_samplers(question, rates)


def values_of(answer, kind, search=None):
    """The values of the notes of a kind, of a search if one is given."""
    notes = [note.values for note in answer.notes if note.kind == kind]
    return [values for values in notes if search is None or values["search"] == search]


def test_a_pairs_rates_are_those_of_the_question_with_both_fixed(many_cores):
    rates, _ = many_cores
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


def test_searching_apart_keeps_the_caps_and_loses_what_is_told(many_cores):
    rates, answer = many_cores
    every = {pair: rates.records_hz(*pair) for pair in rates.looks}
    best, pair, *printed = (tuple(row.label.values())[:2] for row in answer.others)
    assert printed == [(16, 8192), (16, 16_384), (4, 2048)]  # by [Hou2023]
    (found,) = values_of(answer, "search_found", "samplers")
    assert (found["best"], found["values"]) == (pair[0], 13)  # and a core for the learner: 14 of 28
    assert found["looks"] == sum(row.label["search"] == "samplers" for row in answer.rows) <= 13 / 2
    assert best == min(every, key=lambda pair: (-every[pair], pair))
    (apart,) = values_of(answer, "searching_apart")
    assert apart.pop("loss") == pytest.approx(loss := 1 - every[pair] / max(every.values()))
    assert (apart, loss >= 0) == ({"samplers": pair[0], "batch": pair[1], "pairs": len(every)}, True)
    for kind, search in (("over_processor", "samplers"), ("still_rising", "samplers"), ("design_is_fixed", None)):
        assert values_of(answer, kind, search)


def test_the_choice_is_the_knee_with_as_few_samplers_as_keep_up(many_cores):
    """It was the largest batch tried, with as many samplers as there are cores."""
    rates, answer = many_cores
    samplers, batch, _ = answer.choice.label.values()
    every = {b: max(rates.records_hz(x, b) for x in rates.samplers) for b in rates.batches}
    assert batch == min(b for b in every if every[b] >= SHARE * max(every.values()))
    assert batch < answer.others[0].label["batch"] == max(rates.batches)
    enough = [x for x in rates.samplers if rates.records_hz(x, batch) >= 0.99 * every[batch]]
    assert samplers == min(enough) < answer.others[1].label["samplers"]


def test_a_rate_that_only_rises_leaves_the_workloads_batch():
    question = ask("h200", "cartpole_dqn")
    rates, workload = replay(question), load_workload("cartpole_dqn")
    answer = answer_samplers(question, rates)
    assert values_of(answer, "batch_still_rising")
    assert answer.choice.label["batch"] == workload.learner.batch
    assert max(rates.batches) < workload.replay.capacity


def test_memory_caps_the_batch():
    question = ask(HERE, "hopper_ddpg")
    free, tight = (answer_samplers(question, replay(question, bytes_)) for bytes_ in (None, 0.64e9))
    assert not values_of(free, "over_memory")
    assert values_of(tight, "over_memory", "batch")
    batches = [values_of(answer, "search_found", "batch")[0]["best"] for answer in (tight, free)]
    assert batches[0] == 512 < batches[1]
    assert tight.others[0].label["batch"] == tight.others[1].label["batch"] == 512  # which searching apart finds too


def test_factors_follow_from_the_terms_that_are_told():
    question = ask(with_changes(load(HERE), {"cpu.cores": 4}), "hopper_ddpg")
    found, answer = learner_scaling(question), answer_learners(question, most=6, longest=40)
    learners, horizon = found.choose(range(1, 7), 40)
    told = {tuple(row.label.values()): row.more["exact"] for row in answer.rows if "horizon" in row.label}
    points = factors(found.terms, (2, 3, 4, 6), sorted({1, horizon, 40}))
    assert told == {(point.learners, point.horizon): point.exact for point in points}
    shortest = min(found.seconds(count, 40) for count in range(1, 7))
    assert learners == 3  # and an actor: more of them share cores
    assert found.seconds(learners, horizon) <= 1.01 * shortest < found.seconds(learners, horizon - 1)


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


def test_cores_learners_and_adapt_ask_about_one_implementation(monkeypatch):
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


def test_learners_that_share_cores_take_turns_and_wait_longer():
    terms = Terms(
        64, 8e-6, FlatThenLinear(10e-6, 1e-6), 12e-6, FlatThenLinear(0.0, 0.0), 1e-6, FlatThenLinear(0.0, 2e-6), False
    )
    costs = (1.1, 5e-6, 7e-6), (2.0, 50e-6, 9e-6)
    three = Processes(3, 1, 40e-6, phases=2, vectors=2, costs=costs)
    part = 4e-6 + 42e-6 + 12e-6
    assert three.step_seconds(terms, 2, None) == pytest.approx(1.1 * part + 14e-6 + 4 * 5e-6 + 1e-6 + 4e-6)
    assert three.step_seconds(terms, 2, 10) == pytest.approx(1.1 * part + 14e-6 + (4 * 5e-6 + 1e-6 + 2e-6) / 10)
    two = dataclasses.replace(three, cores=2)
    assert two.is_crowded(2)
    assert two.step_seconds(terms, 2, 10) == pytest.approx(2 * part + 40e-6 + 18e-6 + (4 * 50e-6 + 3e-6) / 10)
    assert three.step_seconds(terms, 1, 10) == pytest.approx(94e-6)
    assert dataclasses.replace(two, actors=0).step_seconds(terms, 2, 10) == three.step_seconds(terms, 2, 10)


def test_runs_of_several_learners_say_how_long_they_wait():
    """Five runs of two learners that gather gradients, next to an actor on two cores, have a factor of 0.17."""
    given = learner_scaling(ask(COMMITTED / "8fb834d50a" / "platform.toml", "cartpole_dqn", results=COMMITTED))
    assert len(given.ran[2, None]) == 5
    assert given.seconds(2, None) == pytest.approx(sorted(given.ran[2, None])[2], rel=0.01)
    assert given.sources[-1].rests_on.source == "measured"
    assert given.factor(2, None) == pytest.approx(0.17, abs=0.01)
    assert given.factor(2, None) < given.factor(2, None, are_alone=True) < 0.5


def test_learners_timed_alone_tell_costs_for_any_network():
    """Work that takes 1.2 times as long on both cores, 30 us a wait, of which a vector takes two, and 50 us a step."""
    question = ask(RESULTS / "8fb834d50a" / "platform.toml", "hopper_sac")
    found = []
    for units, part in ((64, 1e-3), (256, 4e-3)):
        one = {"workload": "cartpole_dqn", "hidden": [units], "learners": 1}
        own = make_record(
            source="measured", status="ok", primitive="learners step", contestant="dense", op="gradient step", batch=32,
            capacity=1000, metrics={"average_seconds": 4e-6}, median_seconds=part, options=one
        )  # fmt: skip
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
    assert answer_learners(question, device="gpu").question["held"] == 1
    assert given.seconds(*given.choose([2], 25)) > 0.9 * single_seconds(
        given.terms
    )  # a framework's own time is no learner's to share
    assert given.seconds(2, 5) == spo_seconds(given.terms, 2, 5)  # nothing here runs there


def test_a_device_without_a_link_is_refused():
    machine = dataclasses.replace(load("u200"), links=())
    with pytest.raises(ProblemError, match="cpu to gpu"):
        learner_scaling(ask(machine, "hopper_ddpg"), device="gpu")


def test_learners_that_gain_are_the_choice():
    question = ask("u200", "hopper_ddpg")
    found, answer = learner_scaling(question), answer_learners(question, most=4)
    chosen, rate = found.choose(range(1, 5), 25), answer.choice.estimate
    assert (answer.choice.says, answer.others, *answer.choice.label.values()) == ("more_learners", (), *chosen)
    assert rate.value == 1 / found.seconds(*chosen) >= HARDLY * found.hz
    assert rate.high / rate.value >= max(term.factor for term in found.sources if term.factor)


def test_a_term_between_measured_batches_is_interpolated():
    workload = load_workload("hopper_ddpg")
    between = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=200))
    asked = ask(HERE, between, fix={"learner_implementation": "torch"})  # the other was not timed on that machine
    found = {one.rests_on.id: one.rests_on.source for one in learner_scaling(asked).sources}
    assert found["T_pass"] == "interpolated"
    assert found["T_avg"] == "measured"


# The knee


def record_rates(rates):
    """A rate function of a table, and the list of what it is asked for."""
    seen = []

    def rate(batch):
        seen.append(batch)
        return rates[batch]

    return rate, seen


def law(fixed, each, most=BATCHES[-1]):
    """Records a second where a gradient step takes fixed + each * B seconds; none above ``most``."""
    return {batch: batch / (fixed + each * batch) if batch <= most else 0.0 for batch in BATCHES}


def test_of_a_fixed_and_a_growing_time_it_is_the_smallest_near_the_rate_of_the_largest():
    rng = np.random.default_rng(1)
    for _ in range(500):
        rates = law(10 ** rng.uniform(-6, -1), 10 ** rng.uniform(-8, -4), most=int(rng.choice(BATCHES)))
        rate, seen = record_rates(rates)
        found = knee(BATCHES, rate)
        largest = max(batch for batch in BATCHES if rates[batch])
        expected = min(batch for batch in BATCHES if rates[batch] >= SHARE * max(rates.values()))
        assert found.largest == largest
        assert found.batch == (expected if expected < largest or largest == BATCHES[0] else None)
        assert len(seen) == len(set(seen)) <= 10


@pytest.mark.parametrize("count", range(1, 13))
def test_a_rate_that_rises_to_the_end_has_none(count):
    found = knee(BATCHES[:count], float)
    assert (found.batch, found.largest) == (BATCHES[0] if count == 1 else None, BATCHES[count - 1])


def test_where_nothing_fits_there_is_none():
    found = knee(BATCHES, lambda batch: 0.0)
    assert (found.batch, found.largest, found.most) == (None, None, 0.0)


@pytest.mark.parametrize("share", [SHARE, np.nextafter(SHARE, 0)])
def test_the_share_itself_is_enough(share):
    found = knee([1, 2], {1: share, 2: 1.0}.__getitem__)
    assert found.batch == (1 if share >= SHARE else None)


def test_any_table_gets_a_batch_that_pays_among_those_tried():
    rng = np.random.default_rng(2)
    for _ in range(500):
        rates = dict(zip(BATCHES, rng.uniform(0, 1, len(BATCHES)), strict=True))
        found = knee(BATCHES, rates.__getitem__)
        least = SHARE * max(found.rates.values())
        near = [batch for batch, rate in sorted(found.rates.items()) if rate >= least]
        assert found.batch == (near[0] if near[0] < found.largest else None)
