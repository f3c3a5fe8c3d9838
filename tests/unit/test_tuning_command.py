"""Tests of ``python -m dse adapt`` and ``learners``."""

import dataclasses
import json
import re

import pytest

from dse.__main__ import main
from dse.mapping.knee import SHARE
from dse.mapping.question import ask, recommend_mapping
from dse.platforms import load
from dse.solver.problem import ProblemError
from dse.tuning.adapt import MEMORY, PROCESSOR, adapted
from dse.tuning.learners import learner_scaling, measured_terms
from dse.tuning.multi_learner import data_parallel_factor, spo_factor, spo_seconds
from impls.training import load as load_workload
from tests.committed import RESULTS

HERE = str(RESULTS / "d7dae63b89" / "platform.toml")
ASK = ["--platform", HERE, "--workload", "hopper_ddpg"]


@pytest.fixture(scope="module")
def many_cores():
    return adapted(ask("u200", "hopper_ddpg"), cpu_percent=50.0)


def told(capsys, *arguments):
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_pairs_rates_are_those_of_the_question_with_both_fixed(many_cores):
    for pair in ((1, 32), (5, 128), (8, 4096)):
        samplers, batch = pair
        rates = []
        for arrangement in ("apart", "pipelined"):
            fix = {"actors": samplers, "actor_count": samplers, "batch": batch, "arrangement": arrangement}
            given = recommend_mapping(
                "u200", "hopper_ddpg", "training", fix=fix, exclude=many_cores.left_out, epsilon=0.0
            )
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


def test_adaptation_in_words_and_in_json(capsys):
    code, text, errors = told(capsys, "adapt", *ASK)
    assert (code, errors) == (0, "")
    for words in (
        "1 sampler, B = 512: about ",
        "2  over the cap on the processor (100 %)",
        "loop(cpu), apart: measured",
    ):
        assert words in text
    given = json.loads(told(capsys, "adapt", *ASK, "--json")[1])
    assert given["pair"] == given["best"] == [1, max(given["batch"]["values"])]
    assert (given["loss"], given["choice"]) == (0, [1, 512])
    assert given["knee"]["512"] >= SHARE > given["knee"]["256"]
    assert set(given["batch"]["source"].values()) == {"measured", "interpolated"}


def test_factors_follow_from_the_terms_that_are_told():
    given = learner_scaling(ask(HERE, "hopper_ddpg"), most=6, longest=40)
    assert {one.rests_on.source for one in given.sources} == {"measured"}
    assert given.counts == (1, 2, 4, 6)
    for one in given.points:
        if one.horizon is None:
            assert one.exact == data_parallel_factor(given.terms, one.learners)
        else:
            assert one.exact == spo_factor(given.terms, one.learners, one.horizon)
    learners, horizon = given.choice
    shortest = min(spo_seconds(given.terms, count, 40) for count in (1, 2))  # no more learners than cores
    assert learners == 2
    assert given.best_seconds <= 1.01 * shortest < spo_seconds(given.terms, learners, horizon - 1)


def test_a_machine_without_records_has_modeled_terms():
    given = learner_scaling(ask("u200", "hopper_ddpg"), device="gpu")
    assert {one.rests_on.source for one in given.sources} == {"modeled"}
    assert given.held == 1
    assert given.second()[1] > 0.9 * given.single_seconds  # a framework's own time is no learner's to share


def test_a_device_without_a_link_is_refused():
    machine = dataclasses.replace(load("u200"), links=())
    with pytest.raises(ProblemError, match="no chain of links from cpu to gpu"):
        learner_scaling(ask(machine, "hopper_ddpg"), device="gpu")


def test_learners_in_words_and_in_json(capsys):
    """Two learners took longer than one when they were timed, whatever the formulas say of averaging."""
    answer = learner_scaling(ask(*ASK[1::2]), longest=10)
    assert answer.contradicted()[0].value > answer.single_seconds
    assert answer.choice == (2, 8)
    code, text, errors = told(capsys, "learners", *ASK, "--longest-period", "10")
    assert (code, errors) == (0, "")
    words = re.sub(r"\s+", " ", text)
    assert words.startswith("Stay with one learner: about ")
    assert "choice: L = 2, H = 8 (limit 10)" in words  # within 1 % of H = 10
    assert "What was measured says otherwise" in words  # of two data parallel learners
    given = json.loads(told(capsys, "learners", *ASK, "--json")[1])
    assert given["second_learner"]["spo_seconds"] < given["single_seconds"]


def test_the_terms_of_a_profiled_machine_are_those_of_its_records():
    question = ask(HERE, "hopper_ddpg")
    own, _ = question.tables
    given = learner_scaling(ask(HERE, "hopper_ddpg"))
    assert {one.rests_on.source for one in given.sources} == {"measured"}
    assert measured_terms(own, question.workload.learner.batch) == given.terms
    without = tuple(row for row in own.rows if row.what != "weights average")
    assert measured_terms(dataclasses.replace(own, rows=without), question.workload.learner.batch) is None


def test_a_term_between_measured_batches_is_interpolated():
    workload = load_workload("hopper_ddpg")
    between = dataclasses.replace(workload, learner=dataclasses.replace(workload.learner, batch=200))
    found = {one.rests_on.number: one.rests_on.source for one in learner_scaling(ask(HERE, between)).sources}
    assert found.pop("T_replay") == "interpolated"
    assert set(found.values()) == {"measured"}
