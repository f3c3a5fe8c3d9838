"""Tests of ``python -m dse cores``, ``depth``, ``adapt``, ``learners`` and ``fpga``, and of the knee of a batch.

What they answer to questions of any kind is kept (``tests/golden.py``); here are the rules that it follows from.
"""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from dse.__main__ import main
from dse.answer import Note
from dse.answers.tune import HARDLY, adapted_answer, scaling_answer, split_answer
from dse.mapping.learners import Processes, calibrate
from dse.mapping.processes import one_thread
from dse.mapping.question import ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.mapping.why_not import SHARE, knee
from dse.platforms import load
from dse.solver.problem import ProblemError
from dse.solver.queues import Network, Visit
from dse.times.between import FlatThenLinear
from dse.times.multi_learner import Terms, factors, spo_seconds
from dse.tuning import adapt, presampling
from dse.tuning.adapt import MEMORY, PROCESSOR, adapted
from dse.tuning.core_question import platform_split, split_cores
from dse.tuning.core_split import RateCurve
from dse.tuning.learners import learner_scaling
from dse.tuning.presampling import LOSS, depth_enough, depth_of, platform_depth, published_loop
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
    sides = (RateCurve.of(name, rates, source, 1 - off, 1 + off) for name in ("f_a", "f_l"))
    return split_cores(*sides, 1, cores)


def test_more_cores_than_a_machine_has_are_carried_on():
    given = platform_split("this", "pong_dqn", 8, machine=MACHINE)
    assert Note("cores_beyond", {"cores": 2}, "warning") in split_answer(given).notes
    far, last = given.f_l.rates[7], given.f_l.rates[2]
    assert (far.source, last.source) == ("extrapolated", "measured")
    assert far.low <= last.value  # more cores may gain nothing
    assert far.high >= last.value * 7 / 2  # or all that they could


def test_one_core_serves_both_in_turns():
    given = platform_split("this", "hopper_ddpg", 1, machine=MACHINE, fix=TORCH)
    loop = find_mapping("this", "hopper_ddpg", machine=MACHINE, fix={**TORCH, "arrangement": "serial"})
    assert (given.choice.in_turns, given.choice.hz) == (True, loop.hz)
    answer = split_answer(given)
    assert answer.choice.says == "take_turns"
    assert answer.choice.label["actors"] == 1
    assert answer.others == ()


def test_turns_are_told_apart_where_they_are_faster():
    for rates, says in ((EVEN, "other_turns"), ({1: 100.0, 2: 250.0}, "turns_are_faster")):
        assert [row.says for row in split_answer(split(rates, cores=2)).others] == [says]


def test_ties_are_within_a_percent_or_measured_intervals():
    even, wide = split(EVEN), split(EVEN, 0.2)
    assert even.ties == ()
    assert even.printed == (4, even.choice)  # of eq. 5
    assert (wide.choice.actors, wide.choice.learners) == (4, 4)
    tied = [row.label for row in split_answer(wide).others if row.more["is_tied"]]
    pairs = [(tie.actors, tie.learners) for tie in wide.ties]
    assert pairs == [(label["actors"], label["learners"]) for label in tied] == [(3, 3), (3, 4), (3, 5)]
    assert split(EVEN, 0.2, "modeled").ties == ()  # all rates of a law are wrong together


def test_beyond_two_points_the_least_sure_rate_is_to_be_timed(capsys):
    """S17: two points are Amdahl's law alone, which leaves out what coherence does to 48 learners."""
    given, _ = told(capsys, "cores --actors 1:900,2:1700 --learners 1:400,2:700 --cores 56")
    choice, (first, second) = given["choice"], given["decides"]
    assert choice["actors"] == 4
    assert choice["learners"] == 48
    assert choice["source"] == "extrapolated"
    assert choice["value"] / choice["low"] == pytest.approx(21, abs=0.5)
    assert first["side"] == "learners"
    assert first["cores"] == 8
    assert first["on"] == 48
    assert (first["low"], first["high"]) == pytest.approx((118, 16_800), rel=0.01)
    assert second["side"] == "actors"  # a factor of 2
    known, _ = told(capsys, "cores --actors 1:900,8:6000 --learners 1:400,8:2000 --cores 8")
    assert known["decides"] == []


# Depth


@pytest.fixture
def short(monkeypatch):
    """Simulate few steps, so that a test is quick."""
    monkeypatch.setattr(presampling, "STEPS", 400)


def test_ones_own_times_have_a_depth_rates_and_losses(capsys, short):
    own = "--sampling-us 1000 --training-us 2000 --updating-us 500 --transfer-us 300"
    given, notes = told(capsys, f"depth {own}")
    choice, parts, points = given["choice"], given["rows"][:5], given["rows"][5:]
    assert choice["depth"] == depth_enough(published_loop(1.0, 2.0, 0.5, 0.3)) == 2
    assert (choice["value"], choice["round_seconds"]) == pytest.approx((500.0, 4.1e-3))
    assert choice["upper_bound"]
    assert {row["part"]: row["value"] for row in parts} == TIMES
    assert notes["busiest_engine"]["engine"] == "learner"
    assert notes["busiest_engine"]["seconds"] == 2e-3
    assert notes["loss_of_none_ahead"]["loss"] == pytest.approx(1 - 1 / 4.1 / 0.5)
    assert points[2]["bound_hz"] == pytest.approx(2 / 4.1e-3)  # one ahead
    assert points[2]["loss"] == pytest.approx(1 - 2 / 4.1 / 0.5, rel=0.01)
    exact, vary = notes["enough_if_exact"], notes["enough"]
    assert (exact["cv"], exact["depth"], vary["cv"]) == (0.0, 1, 1.0)
    assert vary["least"] <= vary["depth"]
    assert all(row["value"] <= row["bound_hz"] * (1 + 1e-6) for row in points if not row["cv"])


def test_a_platforms_times_are_those_of_its_best_mapping():
    given, best = platform_depth("u200", "hopper_ddpg", 0.0), find_mapping("u200", "hopper_ddpg")
    assert given.arrangement == best.arrangement
    parts = {part.label["part"]: part.label["device"] for part in best.parts}
    assert given.mapping == parts
    assert given.most_hz * (1 + 1e-9) >= given.hz == best.hz  # in apart, no depth makes a difference
    assert given.presampled == best.choice.more["depth"] == 50


def test_what_is_excluded_is_heeded(capsys, short):
    given, _ = told(capsys, "depth --platform u200 --workload hopper_ddpg --exclude fpga --spread 0")
    assert "fpga" not in given["question"]["mapping"].values()


def test_in_turns_nothing_is_gained(capsys, short):
    given, notes = told(capsys, f"depth --workload hopper_ddpg --machine {MACHINE}")
    assert given["choice"]["depth"] == 0
    assert given["question"]["machine"] == MACHINE
    assert notes["workload_samples_ahead"]["presampled"] == 50
    together = depth_of(published_loop(1.0, 2.0, 0.5, 0.3, together=True))
    assert (together.depth, together.simulated[0].depth) == (0, 0)


def test_the_range_of_depths_is_that_of_all_times_between(short):
    rng = np.random.default_rng(3)
    for _ in range(40):
        engines = [f"engine {number}" for number in range(rng.integers(1, 5))]
        names, low = rng.choice(engines, 5), 10 ** rng.uniform(-1, 1, 5)
        more = low * rng.uniform(0, 2, 5)

        def loop(at, names=names, low=low, more=more):
            return Network(tuple(map(Visit, map(str, names), map(float, low + more * at))))

        given = depth_of(loop(0.5), 0.0, (loop(0), loop(1)))
        corners = [depth_enough(loop(np.array(at))) for at in itertools.product((0, 1), repeat=5)]
        between = [depth_enough(loop(rng.uniform(0, 1, 5))) for _ in range(50)]
        assert given.least == min(corners) <= min(between)
        assert max(between + corners) <= given.most <= len(engines) - 1


def test_a_depth_is_enough_where_its_rate_is_near_the_most(short):
    given = depth_of(published_loop(1.0, 2.0, 0.5, 0.3))
    rates = {point.depth: point.simulated for point in given.points}
    for at, enough in enumerate(given.simulated):
        depth = enough.depth
        assert rates[depth][at].value >= (1 - LOSS) * given.most_hz > rates[depth - 1][at].value
        assert enough.least <= depth <= (enough.most or depth)


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
    assert front == sorted(front)
    assert front[0] == own
    assert len(front) > 3
    assert all(0 <= row[key] <= 1 for row in given["rows"] for key in row if key.endswith("_share"))
    assert best["pace"] == 1
    assert best["pipelines"] == 2
    assert other["pipelines"] == 4
    assert other["pace"] < greedy["pace"] <= 1  # the better first
    assert greedy["cycles"] == best["cycles"] / greedy["pace"]
    for option, changed in (("--fill systolic", "slowest_stage_cycles"), ("--slice free", "slices")):
        other, _ = told(capsys, f"{QUICK} {option}")
        assert other["choice"]["learner"][changed] != best["learner"][changed]
    slower, _ = told(capsys, f"{QUICK} --dsp-per-mac 9 --clock-mhz 100")
    assert slower["choice"]["seconds"] == slower["choice"]["cycles"] / 1e8
    limits = [note["kind"] for note in slower["notes"] if note["level"] == "first"]
    assert limits == ["bound_by_learner", "nearly_full"]


# Samplers and batches, and learners


@pytest.fixture(scope="module")
def many_cores():
    return adapted(ask("u200", "hopper_ddpg"), cpu_percent=50.0)


def test_a_pairs_rates_are_those_of_the_question_with_both_fixed(many_cores):
    rates, asked = many_cores.rates, {"exclude": many_cores.left_out, "epsilon": 0.0}
    for samplers, batch in ((1, 32), (5, 128), (8, 4096)):
        fix = {"actors": samplers, "actor_count": samplers, "batch": batch}
        apart, pipelined = (
            find_mapping("u200", "hopper_ddpg", "training", fix={**fix, "arrangement": mode}, **asked)
            for mode in ("apart", "pipelined")
        )
        assert rates.sampling_hz(samplers, batch) == pytest.approx(apart.choice.more["actor_hz"])
        assert apart.choice.more["actor_hz"] == pytest.approx(pipelined.choice.more["actor_hz"])
        assert rates.frames_hz(samplers, batch) == pytest.approx(batch * max(apart.value, pipelined.value))


def test_searching_apart_keeps_the_caps_and_loses_what_is_told(many_cores):
    samplers, _ = many_cores.pair
    assert many_cores.found.samplers.stopped_by == PROCESSOR
    assert samplers == many_cores.found.samplers.allowed[-1] == 13  # and a core for the learner: 14 of 28
    assert len(many_cores.found.samplers.seen) <= 13 / 2
    rates = many_cores.rates
    every = {pair: rates.records_hz(*pair) for pair in rates.looks}
    assert many_cores.best == min(every, key=lambda pair: (-every[pair], pair))
    assert 0 <= many_cores.loss == pytest.approx(1 - every[many_cores.pair] / max(every.values()))
    assert len(every) == many_cores.tried
    answer = adapted_answer(many_cores)
    assert [(row.says, *row.label.values()) for row in answer.others] == [
        ("fastest_pair", *many_cores.best),
        ("searched_apart", *many_cores.pair),
    ]
    kinds = [(note.kind, note.values.get("search")) for note in answer.notes]
    assert {("over_processor", "samplers"), ("still_rising", "samplers"), ("design_is_fixed", None)} <= {*kinds}


def test_the_choice_is_the_knee_with_as_few_samplers_as_keep_up(many_cores):
    """It was the largest batch tried, with as many samplers as there are cores."""
    rates, (samplers, batch) = many_cores.rates, many_cores.choice
    every = {b: max(rates.records_hz(x, b) for x in many_cores.samplers) for b in many_cores.batches}
    assert batch == min(b for b in every if every[b] >= SHARE * max(every.values()))
    assert batch < many_cores.best[1] == max(many_cores.batches)
    enough = [x for x in many_cores.samplers if rates.records_hz(x, batch) >= 0.99 * every[batch]]
    assert samplers == min(enough) < many_cores.pair[0]


def test_a_rate_that_only_rises_leaves_the_workloads_batch():
    given, workload = adapted(ask("h200", "cartpole_dqn")), load_workload("cartpole_dqn")
    assert given.knee.batch is None
    assert given.choice[1] == workload.learner.batch
    assert max(given.batches) < workload.replay.capacity


def test_memory_caps_the_batch():
    free = adapted(ask(HERE, "hopper_ddpg"))
    tight = adapted(ask(HERE, "hopper_ddpg"), memory_bytes=0.64e9)
    assert tight.found.batch.stopped_by == MEMORY
    assert tight.pair[1] == tight.found.batch.allowed[-1] == 512 < free.pair[1]


def test_factors_follow_from_the_terms_that_are_told():
    four = with_changes(load(HERE), {"cpu.cores": 4})
    given = learner_scaling(ask(four, "hopper_ddpg"), most=6, longest=40)
    assert given.counts == (1, 2, 3, 4, 6)
    assert given.points == factors(given.terms, given.counts, given.horizons)
    learners, horizon = given.choice
    shortest = min(given.seconds(count, 40) for count in range(1, 7))
    assert learners == 3  # and an actor: more of them share cores
    assert given.seconds(*given.choice) <= 1.01 * shortest < given.seconds(learners, horizon - 1)


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
        assert given.single_seconds == pytest.approx(taken, rel=0.05)


def test_cores_learners_and_adapt_ask_about_one_implementation(monkeypatch):
    platform = RESULTS / "8fb834d50a" / "platform.toml"

    def refuse(parts, **more):
        raise ProblemError(parts.constraints["learner_implementation"])

    monkeypatch.setattr(adapt, "build", refuse)
    for fix, by in (({}, "dense"), ({"learner_implementation": "torch"}, "torch")):
        question = ask(platform, "cartpole_dqn", fix=fix)
        alone = one_thread(question.parts(), by)
        assert learner_scaling(question).by == question.parts().learners.implementation == by
        split = platform_split(platform, "cartpole_dqn", fix=fix)
        assert split.f_l.rates[1].value == pytest.approx(1 / alone.value)
        with pytest.raises(ProblemError, match=f"^{by}$"):
            adapted(question)


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
    given = learner_scaling(ask("u200", "hopper_ddpg"), device="gpu")
    assert {one.rests_on.source for one in given.sources} == {"modeled"}
    assert given.held == 1
    assert given.second()[1] > 0.9 * given.single_seconds  # a framework's own time is no learner's to share
    assert given.seconds(2, 5) == spo_seconds(given.terms, 2, 5)  # nothing here runs there


def test_a_device_without_a_link_is_refused():
    machine = dataclasses.replace(load("u200"), links=())
    with pytest.raises(ProblemError, match="cpu to gpu"):
        learner_scaling(ask(machine, "hopper_ddpg"), device="gpu")


def test_learners_that_gain_are_the_choice():
    found = learner_scaling(ask("u200", "hopper_ddpg"), most=4)
    answer = scaling_answer(found)
    rate = answer.choice.estimate
    assert (answer.choice.says, answer.others, *answer.choice.label.values()) == ("more_learners", (), *found.choice)
    assert rate.value == 1 / found.seconds(*found.choice) >= HARDLY * found.hz
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
    assert found.batch == (BATCHES[0] if count == 1 else None)
    assert found.largest == BATCHES[count - 1]


def test_where_nothing_fits_there_is_none():
    found = knee(BATCHES, lambda batch: 0.0)
    assert found.batch is None
    assert found.largest is None
    assert found.most == 0.0


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
