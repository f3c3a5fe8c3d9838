"""Several learners as a choice of the solver: what may be asked, what they take, and what runs them."""

import dataclasses
import json
import shlex

import pytest

from benchmarks.profile import beside as cells
from benchmarks.profile.cells import PRESETS
from benchmarks.timing import Timing
from dse.answers import deciding
from dse.answers.emit import training_command
from dse.answers.mapping_answer import input_of_run, mapping_answer
from dse.mapping.learners import Processes
from dse.mapping.processes import combinations
from dse.mapping.question import answer_question, ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.platforms import load as load_platform
from dse.solver.problem import ProblemError
from dse.times.batch_law import FlatThenLinear
from dse.times.multi_learner import Terms
from dse.tuning.adapt import adapted
from dse.tuning.core_question import platform_split
from dse.tuning.learners import learner_scaling
from impls.training import load
from impls.training.__main__ import _parser as training_parser
from impls.training.options import set_up_answer, setup_of
from tests.committed import RESULTS
from tests.profiled import NOISE, folder, stamp
from tests.solver_cases import explain_mapping
from tests.system.test_implementations import PLATFORM, records

HERE = RESULTS / "8fb834d50a" / "platform.toml"
NOTHING = FlatThenLinear(0.0, 0.0)
TERMS = Terms(64, 8e-6, FlatThenLinear(10e-6, 1e-6), 12e-6, NOTHING, 1e-6, FlatThenLinear(0.0, 2e-6), False)
LOCAL = {"learners": 2, "sync": "local", "period": 5, "banks": 2}


def details(answer):
    return next(part.more["details"] for part in answer.parts if part.label["part"] == "learner")


@pytest.mark.parametrize(
    ("fix", "words"),
    [
        ({"learners": 0}, ("at least 1", "not 0")),
        ({"learners": 3}, ("learners=3", "2 cores", "fix 2 at most")),
        ({"sync": "locl"}, ("'locl'", "local")),
        ({"period": 5, "sync": "lock"}, ("period=5", "sync=local", "leave out period")),
        ({"learners": 1, "sync": "lock"}, ("sync=lock", "not of 1", "fix learners=2")),
        ({"banks": 2}, ("banks=2", "fix learners=2")),
        ({"learners": 2, "arrangement": "pipelined"}, ("learners=2", "not pipelined", "fix arrangement=apart")),
        ({"sync": "synchronous", "batch": 33}, ("a batch of 33", "2 equal parts")),
        ({"learners": 2, "capacity": 50_001, "banks": 2}, ("50,001", "2 equal banks")),
    ],
)
def test_what_no_learners_can_have_is_a_sentence(fix, words):
    with pytest.raises(ProblemError) as caught:
        find_mapping(HERE, "cartpole_dqn", fix=fix)
    assert all(word in str(caught.value) for word in words), caught.value


def test_several_learners_where_none_are_predicted_are_a_sentence():
    with pytest.raises(ProblemError, match="fix learners=1, or measure"):
        find_mapping("u200", "hopper_ddpg", fix={"sync": "lock"})
    for asks in (learner_scaling, adapted):
        with pytest.raises(ProblemError, match=r"period cannot be fixed here.*leave it out"):
            asks(ask(HERE, "cartpole_dqn", fix={"period": 5}))
    with pytest.raises(ProblemError, match="learners cannot be fixed here"):
        platform_split(HERE, "cartpole_dqn", fix={"learners": 2})


@pytest.mark.parametrize(("cores", "learners"), [(1, {1}), (2, {1, 2}), (5, {1, 2}), (6, {1, 2, 4})])
def test_as_many_learners_are_tried_as_cores_may_hold(cores, learners):
    question = ask(with_changes(load_platform(HERE), {"cpu.cores": cores}), "cartpole_dqn")
    assert {how.learners for how in combinations(question.parts())} == learners


def test_learners_that_take_whole_steps_never_wait_for_each_other_but_for_the_lock():
    three = Processes(3, 1, 40e-6, phases=1, vectors=1, costs=((1.1, 5e-6, 7e-6), (2.0, 50e-6, 9e-6)))
    single, passes = 94e-6, 74e-6
    assert three.step_seconds(TERMS, 2, None, "hogwild") == pytest.approx(1.1 * single / 2 + 7e-6)
    assert three.step_seconds(TERMS, 2, None, "lock") == pytest.approx(1.1 * passes + 7e-6)
    two = dataclasses.replace(three, cores=2)  # do the work of both, and the actor's
    assert two.step_seconds(TERMS, 2, None, "hogwild") == pytest.approx(2.0 * (single + 40e-6) / 2 + 9e-6)
    assert two.step_seconds(TERMS, 1, None, "hogwild") == pytest.approx(single)


def test_the_learners_step_is_that_of_the_question_about_learners():
    question = ask(HERE, "cartpole_dqn", fix={"learners": 2, "sync": "synchronous"})
    told = answer_question(question)
    expected = learner_scaling(ask(HERE, "cartpole_dqn")).seconds(2, None)
    assert 1 / told.hz == pytest.approx(expected, rel=0.01)
    local = find_mapping(HERE, "cartpole_dqn", fix={"learners": 2, "period": 25})
    assert (local.choice.more["sync"], local.choice.more["period"], local.hz > told.hz) == ("local", 25, True)


def test_one_learner_is_an_answer_next_to_what_two_would_give():
    told = find_mapping(HERE, "cartpole_dqn")
    assert (told.choice.more["learners"], told.choice.more["sync"]) == (1, "")
    (other,) = told.by_learners()
    two = find_mapping(HERE, "cartpole_dqn", fix={"learners": 2})
    assert (other.label, other.number["value"]) == ({"learners": 2, "sync": two.choice.more["sync"]}, two.value)
    assert two.low < two.value < two.high
    assert two.value < told.value
    assert {"learners": 2, "sync": two.choice.more["sync"]} in [row.label for row in mapping_answer(told).others]
    assert (two.choice.more["cores"], two.choice.more["cores_there"]) == (3.0, 2.0)
    assert [one.label["process"] for one in two.processes] == ["learner", "learner", "actor"]
    explained = explain_mapping(HERE, "cartpole_dqn", {"learners": 2})
    assert explained.loss == pytest.approx(1 - two.value / told.value)


def test_an_answer_of_several_learners_is_the_setup_of_a_run_by_file_and_by_line(tmp_path):
    question = ask(HERE, "cartpole_dqn", fix=LOCAL)
    told = answer_question(question)
    assert {key: told.choice.more[key] for key in LOCAL} == LOCAL == {key: details(told)[key] for key in LOCAL}
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(input_of_run(question, told)))
    options, workload = training_parser().parse_args(["train", "cartpole_dqn"]), load("cartpole_dqn")
    by_file = set_up_answer(str(file), workload, options).arrangement
    line = training_parser().parse_args(shlex.split(training_command(told))[3:])
    assert by_file == setup_of(workload, line).arrangement
    assert {key: getattr(by_file, key) for key in LOCAL} == LOCAL
    assert by_file.strategy == "banked"


def timed(slower):
    """Records of a machine, and of its runs of two learners, which take ``slower`` times some 0.6 ms a step."""
    groups = cells.groups(load("cartpole_dqn"), PRESETS["quick"], 2, ["torch", "dense"])
    two = [cell for group in groups for cell in group if cell.options["learners"] == 2]
    assert {cell.options["sync"] for cell in two} == {"synchronous", "lock", "hogwild", "local"}
    assert {(cell.op, cell.options["ratio"], cell.options["period"]) for cell in two} == {("rate", "kept", 10)}
    return [
        stamp(cells.PRIMITIVE).timed(cell, Timing(tuple(slower[cell.options["sync"]] * 6e-4 * one for one in NOISE), 1))
        for cell in two
    ]


def test_runs_that_were_timed_replace_the_prediction_and_may_win_and_race(tmp_path):
    slower = {"synchronous": 0.5, "lock": 0.2, "hogwild": 0.4, "local": 0.3}
    there = folder(tmp_path, [*records(), *timed(slower)])
    for fix, sync in (({}, "lock"), ({"sync": "local"}, "local"), ({"sync": "synchronous"}, "synchronous")):
        question = ask(there / PLATFORM, "cartpole_dqn", results=there, fix={"actors": 1, **fix})
        told = answer_question(question)
        assert (told.choice.more["learners"], told.choice.more["sync"], told.interval) == (2, sync, "95 %")
        assert 1 / told.hz == pytest.approx(slower[sync] * 6e-4, rel=1e-6)
    question = ask(there / PLATFORM, "cartpole_dqn", results=there)
    assert "apart, 1 actor, dense, 2 learners" in [one.name for one in deciding.contenders(question)]


def test_cores_of_learners_are_processes_that_combine_as_asked():
    rates = {
        sync: platform_split(HERE, "cartpole_dqn", cores=4, fix={"sync": sync, "learner_implementation": by}).f_l.rates
        for sync, by in (("synchronous", "dense"), ("hogwild", "dense"), ("local", "torch"))
    }
    assert rates["hogwild"][2].value > rates["synchronous"][2].value
    assert rates["hogwild"][1] == rates["synchronous"][1]
    assert {each[2].source for each in rates.values()} == {"modeled"}
