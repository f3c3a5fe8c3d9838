"""Tests of ``python -m dse adapt`` and ``learners``."""

import dataclasses
import json

import pytest

from dse.__main__ import main
from dse.answers.tune import HARDLY, adapted_answer, scaling_answer
from dse.mapping.knee import SHARE
from dse.mapping.learners import Processes, calibrate
from dse.mapping.processes import one_thread
from dse.mapping.question import ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.platforms import load
from dse.records import Measurement
from dse.solver.problem import ProblemError
from dse.times.batch_law import FlatThenLinear
from dse.times.multi_learner import Terms, factors, spo_seconds
from dse.tuning import adapt
from dse.tuning.adapt import MEMORY, PROCESSOR, adapted
from dse.tuning.core_question import platform_split
from dse.tuning.learners import learner_scaling
from impls.training import load as load_workload
from tests.committed import COMMITTED, RESULTS

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")


@pytest.fixture(scope="module")
def many_cores():
    return adapted(ask("u200", "hopper_ddpg"), cpu_percent=50.0)


def told(capsys, command, *more):
    """The answer in JSON, and its notes by their kind."""
    assert main([command, "--platform", HERE, "--workload", "hopper_ddpg", *more, "--json"]) == 0
    given = json.loads(capsys.readouterr().out)
    return given, {note["kind"]: note for note in given["notes"]}


def test_a_pairs_rates_are_those_of_the_question_with_both_fixed(many_cores):
    rates, asked = many_cores.rates, {"exclude": many_cores.left_out, "epsilon": 0.0}
    for samplers, batch in ((1, 32), (5, 128), (8, 4096)):
        fix = {"actors": samplers, "actor_count": samplers, "batch": batch}
        apart, pipelined = (
            find_mapping(
                "u200",
                "hopper_ddpg",
                "training",
                fix={**fix, "arrangement": mode},
                **asked,
            )
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


def test_adaptation_in_json(capsys):
    given, notes = told(capsys, "adapt")
    looks = [row for row in given["rows"] if row["search"] == "batch"]
    assert [(row["samplers"], row["batch"]) for row in (given["choice"], *given["others"])] == [(1, 512), (1, 2048)]
    assert (notes["searching_apart"]["loss"], notes["searching_apart"]["level"]) == (0, "first")
    assert notes["search_found"]["best"] == max(row["tried"] for row in looks)
    shares = notes["shares_of_the_most"]["shares"]
    assert shares["512"] >= SHARE > shares["256"]
    assert given["choice"]["upper_bound"]
    assert {row["source"] for row in looks} == {"modeled"}
    assert looks[0]["rate_hz"] == pytest.approx(looks[0]["tried"] / looks[0]["value"], rel=0.05)
    torch, _ = told(
        capsys,
        "adapt",
        "--fix",
        "learner_implementation=torch",
    )
    assert {row["source"] for row in torch["rows"] if row["search"] == "batch"} == {"measured", "interpolated"}


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
        assert learner_scaling(question).by == question.parts().implementation == by
        split = platform_split(platform, "cartpole_dqn", fix=fix)
        assert split.f_l.rates[1].value == pytest.approx(1 / alone.value)
        with pytest.raises(ProblemError, match=f"^{by}$"):
            adapted(question)


def test_learners_that_share_cores_take_turns_and_wait_longer():
    terms = Terms(
        64, 8e-6, FlatThenLinear(10e-6, 1e-6), 12e-6, FlatThenLinear(0.0, 0.0), 1e-6, FlatThenLinear(0.0, 2e-6), False
    )
    costs = (1.1, 5e-6, 7e-6), (2.0, 50e-6, 9e-6)
    three = Processes(
        3,
        1,
        40e-6,
        phases=2,
        vectors=2,
        costs=costs,
    )
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
            options = {
                **one,
                "learners": 2,
                "sync": "local",
                "period": horizon,
            }
            seconds = 1.2 * part + 50e-6 + (4e-6 + 2 * 30e-6) / horizon
            found.append(
                dataclasses.replace(
                    own,
                    batch=64,
                    options=options,
                    median_seconds=seconds,
                )
            )
    given, parts = learner_scaling(question), question.parts()
    parts = dataclasses.replace(parts, table=dataclasses.replace(parts.table, learned=tuple(found)))
    made, _, ran = calibrate(
        given.processes,
        given.terms,
        parts,
        "dense",
    )
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


def test_a_second_learner_that_hardly_gains_is_not_the_choice(capsys):
    given, notes = told(
        capsys,
        "learners",
        "--fix",
        "learner_implementation=torch",
    )
    question, choice = given["question"], given["choice"]
    assert [question[name] for name in ("by", "actors", "cores")] == ["torch", 1, 2]  # an actor has the other core
    assert (choice["learners"], choice["value"], given["others"]) == (1, choice["single_hz"], [])
    assert all(row["as_run"] < row["alone"] for row in given["rows"] if row.get("learners") == 2)
    dense, notes = told(capsys, "learners")
    choice, (other,), second = dense["choice"], dense["others"], notes["second_learner"]
    assert (dense["question"]["by"], choice["learners"], other["learners"]) == ("dense", 1, 2)
    assert choice["value"] < other["value"] < HARDLY * choice["value"]
    assert (second["worth"], second["level"]) == ("hardly", "first")
    assert second["faster"] == pytest.approx(1 / choice["value"] / second["seconds"])


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
    found = {one.rests_on.number: one.rests_on.source for one in learner_scaling(asked).sources}
    assert found["T_pass"] == "interpolated"
    assert found["T_avg"] == "measured"
