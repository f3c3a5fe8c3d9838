"""Tests of ``python -m dse adapt`` and ``learners``."""

import dataclasses
import json
import re

import pytest

from dse.__main__ import main
from dse.mapping.knee import SHARE
from dse.mapping.learners import Processes, calibrate
from dse.mapping.processes import one_thread
from dse.mapping.question import ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.platforms import load
from dse.records import Measurement
from dse.solver.problem import ProblemError
from dse.times.batch_law import FlatThenLinear
from dse.times.multi_learner import Terms, data_parallel_factor, spo_factor, spo_seconds
from dse.tuning import adapt
from dse.tuning.adapt import MEMORY, PROCESSOR, adapted
from dse.tuning.core_question import platform_split
from dse.tuning.learners import learner_scaling
from impls.training import load as load_workload
from tests.committed import COMMITTED, RESULTS

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")
ASK = ["--platform", HERE, "--workload", "hopper_ddpg"]


@pytest.fixture(scope="module")
def many_cores():
    return adapted(ask("u200", "hopper_ddpg"), cpu_percent=50.0)


def told(capsys, *arguments):
    return main(list(arguments)), *capsys.readouterr()


def test_every_pairs_rates_are_those_of_the_question_with_both_fixed(many_cores):
    for pair in ((1, 32), (5, 128), (8, 4096)):
        samplers, batch = pair
        rates = []
        for arrangement in ("apart", "pipelined"):
            fix = {"actors": samplers, "actor_count": samplers, "batch": batch, "arrangement": arrangement}
            given = find_mapping("u200", "hopper_ddpg", "training", fix=fix, exclude=many_cores.left_out, epsilon=0.0)
            rates.append(given.value)
            assert many_cores.rates.sampling_hz(*pair) == pytest.approx(given.actor_hz)
        assert many_cores.rates.frames_hz(*pair) == pytest.approx(batch * max(rates))


def test_searching_apart_is_under_the_caps_and_loses_what_is_told(many_cores):
    samplers, batch = many_cores.pair
    assert many_cores.found.samplers.stopped_by == PROCESSOR
    assert samplers == many_cores.found.samplers.allowed[-1] == 13  # and a core for the learner: 14 of 28
    assert len(many_cores.found.samplers.seen) <= 13 / 2
    rates = many_cores.rates
    every = {pair: rates.records_hz(*pair) for pair in rates.looks}
    assert many_cores.best == min(every, key=lambda pair: (-every[pair], pair))
    assert many_cores.loss == pytest.approx(1 - rates.records_hz(samplers, batch) / max(every.values()))
    assert many_cores.loss >= 0
    assert len(every) == many_cores.tried


def test_the_answer_is_the_knee_with_the_fewest_samplers_that_keep_up(many_cores):
    """It was the largest batch tried, with as many samplers as there are cores."""
    rates, (samplers, batch) = many_cores.rates, many_cores.choice
    every = {b: max(rates.records_hz(x, b) for x in many_cores.samplers) for b in many_cores.batches}
    assert batch == min(b for b in every if every[b] >= SHARE * max(every.values()))
    assert batch < many_cores.best[1] == max(many_cores.batches)
    enough = [x for x in many_cores.samplers if rates.records_hz(x, batch) >= 0.99 * every[batch]]
    assert samplers == min(enough) < many_cores.pair[0]


def test_a_rate_that_only_rises_leaves_the_workloads_batch():
    given = adapted(ask("h200", "cartpole_dqn"))
    assert given.knee.batch is None
    assert given.choice[1] == load_workload("cartpole_dqn").learner.batch
    assert "what the workload states" in given.notes[0]
    assert max(given.batches) < load_workload("cartpole_dqn").replay.capacity


def test_memory_caps_the_batch():
    free = adapted(ask(HERE, "hopper_ddpg"))
    tight = adapted(ask(HERE, "hopper_ddpg"), memory_bytes=0.64e9)
    assert tight.found.batch.stopped_by == MEMORY
    assert tight.pair[1] == tight.found.batch.allowed[-1] == 512 < free.pair[1]


def test_adaptation_in_json(capsys):
    given = json.loads(told(capsys, "adapt", *ASK, "--json")[1])
    assert given["pair"] == given["best"] == [1, max(given["batch"]["values"])]
    assert (given["loss"], given["choice"]) == (0, [1, 512])
    assert given["knee"]["512"] >= SHARE > given["knee"]["256"]
    assert set(given["batch"]["source"].values()) == {"modeled"}
    torch = json.loads(told(capsys, "adapt", *ASK, "--json", "--fix", "learner_implementation=torch")[1])
    assert set(torch["batch"]["source"].values()) == {"measured", "interpolated"}


def test_factors_follow_from_the_terms_that_are_told():
    four = with_changes(load(HERE), {"cpu.cores": 4})
    given = learner_scaling(ask(four, "hopper_ddpg"), most=6, longest=40)
    assert given.counts == (1, 2, 3, 4, 6)
    for one in given.points:
        if one.horizon is None:
            assert one.exact == data_parallel_factor(given.terms, one.learners)
        else:
            assert one.exact == spo_factor(given.terms, one.learners, one.horizon)
    learners, horizon = given.choice
    shortest = min(given.seconds(count, 40) for count in range(1, 7))
    assert learners == 3  # and an actor: more of them share cores
    assert given.seconds(*given.choice) <= 1.01 * shortest < given.seconds(learners, horizon - 1)


@pytest.mark.parametrize(("machine", "by"), [("8fb834d50a", "dense"), ("d7dae63b89", "dense")])
def test_one_learner_takes_what_recommend_says_of_it_by_the_implementation_that_would_run(machine, by):
    """It rested on torch's times where the dense learner runs, 10 times slower."""
    platform = RESULTS / machine / "platform.toml"
    asked = [(name, "apart") for name in ("cartpole_dqn", "cartpole_ddpg", "hopper_ddpg")]
    for name, arrangement in (*asked, ("cartpole_dqn", "serial")):
        given = learner_scaling(ask(platform, name, fix={"arrangement": arrangement}))
        assert given.by == by
        fix = {"arrangement": arrangement, "learner_implementation": by, "learner_threads": 1}
        answer = find_mapping(platform, name, fix=fix)
        taken = sum(one.charged for one in answer.parts if one.part != "actors")
        assert given.single_seconds == pytest.approx(taken, rel=0.05)


def test_cores_learners_and_adapt_ask_about_one_implementation(monkeypatch):
    platform = RESULTS / "8fb834d50a" / "platform.toml"

    def refuse(parts, **more):
        raise ProblemError(parts.constraints["learner_implementation"])

    monkeypatch.setattr(adapt, "build", refuse)
    for fix, by in (({}, "dense"), ({"learner_implementation": "torch"}, "torch")):
        question = ask(platform, "cartpole_dqn", fix=fix)
        alone = one_thread(question.parts(), by)
        assert learner_scaling(question).by == question.parts().implementation == by
        split = platform_split(platform, "cartpole_dqn", fix=fix)
        assert split.f_l.rates[1].value == pytest.approx(1 / alone.value)
        with pytest.raises(ProblemError, match=f"^{by}$"):
            adapted(question)


def test_learners_that_share_cores_take_turns_on_them_and_wait_longer():
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
        own = Measurement(
            source="measured", status="ok", primitive="learners step", contestant="dense", op="gradient step", batch=32,
            capacity=1000, machine={"average_seconds": 4e-6}, median_seconds=part, options=one,
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
    with pytest.raises(ProblemError, match="no chain of links from cpu to gpu"):
        learner_scaling(ask(machine, "hopper_ddpg"), device="gpu")


def test_learners_in_words_and_in_json(capsys):
    code, text, errors = told(
        capsys, "learners", *ASK, "--longest-period", "10", "--fix", "learner_implementation=torch"
    )
    assert (code, errors) == (0, "")
    words = re.sub(r"\s+", " ", text)
    assert words.startswith("Stay with one learner: about ")  # an actor has the other core
    assert "torch learners, a process each, next to 1 actor on 2 cores:" in words
    assert json.loads(told(capsys, "learners", *ASK, "--json")[1])["by"] == "dense"
    given = json.loads(told(capsys, "learners", *ASK, "--json", "--fix", "learner_implementation=torch")[1])
    assert (given["by"], given["choice"]) == ("torch", [1, 1])
    assert all(one["as_run"] < one["alone"] for one in given["points"] if one["learners"] == 2)


def test_a_term_between_measured_batches_is_interpolated():
    workload = load_workload("hopper_ddpg")
    between = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=200))
    asked = ask(HERE, between, fix={"learner_implementation": "torch"})  # the other was not timed on that machine
    found = {one.rests_on.number: one.rests_on.source for one in learner_scaling(asked).sources}
    assert found["T_pass"] == "interpolated"
    assert found["T_avg"] == "measured"
