"""Choosing among implementations of learner and policy, and numbers of environments at once, from made-up records."""

import dataclasses
import functools
import re

import pytest

from dse.answers.emit import training_command
from dse.answers.mapping_answer import mapping_answer
from dse.mapping.answer import MappingAnswer
from dse.mapping.options import implementation_of
from dse.mapping.question import ask, find_mapping
from dse.solver.problem import ProblemError
from dse.times.profile import of_records
from dse.times.whole_runs import what_of
from impls.training import load
from impls.training.__main__ import _parser as training_parser
from tests.profiled import folder, made_up, world
from tests.solver_cases import explain_mapping

CARTPOLE = load("cartpole_dqn")
BOTH = ("torch", "dense")
PLATFORM = "made-up/platform.toml"


def records(learners=BOTH, preset="quick"):
    """Records of a machine of two cores."""
    found = made_up(("cartpole_dqn",), preset, 2, learners)
    return [dataclasses.replace(one, machine=one.machine | {"key": "made-up"}) for one in found]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results of a machine that timed both implementations."""
    return folder(tmp_path_factory.mktemp("both"), records())


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory):
    """The same of a machine whose records name no implementation, as older ones."""
    plain = [one for one in records(("torch",)) if "environments" not in one.options]
    for one in plain:
        one.options.pop("learner", None)
    return folder(tmp_path_factory.mktemp("older"), plain)


def answer(results, fix=None, free=()):
    return _answer(results, tuple((fix or {}).items()), tuple(free))


@functools.cache
def _answer(results, fix, free):
    return find_mapping(results / PLATFORM, "cartpole_dqn", results=results, fix=dict(fix), free=free)


def by(told):
    """(implementation of the learner, of the policy) of an answer."""
    parts = {part.label["part"]: implementation_of(part.more["details"]) for part in told.parts}
    return parts["learner"], parts["actors"]


# What records tell


def test_rows_of_another_implementation_are_never_those_of_torch():
    table = of_records(records(), "made-up", CARTPOLE)
    torch, dense = (table.time(what_of("learner step", name), 64).value for name in BOTH)
    assert (torch, dense) == (pytest.approx(1e-3 + 64e-5), pytest.approx(1e-4 + 64 * 3e-6))
    assert table.implementations("learner step") == BOTH  # torch first
    assert table.environments("actor step", "dense") == (1, 8)
    assert table.threads("learner step") == [1, 2]
    assert set(table.alone("learner step")) == {(1, 32), (1, 64), (1, 128), (1, 512), (1, 2048)} | {
        (2, size) for size in (32, 64, 128, 512, 2048)
    }


def test_records_without_a_name_are_of_torch_and_pooled_with_those_that_name_it():
    found = records(("torch",))
    plain = [
        dataclasses.replace(one, options={name: value for name, value in one.options.items() if name != "learner"})
        for one in found
    ]
    told = of_records([*plain, *found], "made-up", CARTPOLE).time("learner step", 64)
    assert told.value == pytest.approx(1e-3 + 64e-5)
    assert re.search(r"pooled with \d+ earlier records", told.rests_on.told)


def test_an_implementation_that_was_not_timed_is_offered_by_laws(of_torch):
    told = answer(of_torch)
    assert by(told) == ("dense", "dense")
    assert {one.estimate.source for one in told.parts if one.label["part"] in ("learner", "actors")} == {"modeled"}
    assert [one.label["implementation"] for one in told.by_implementation()] == ["dense", "torch"]
    torch = answer(of_torch, fix=dict.fromkeys(("learner_implementation", "policy_implementation"), "torch"))
    assert {one.estimate.source for one in torch.parts if one.label["part"] == "learner"} == {"measured"}
    for key in ("learner_implementation", "policy_implementation"):
        assert isinstance(answer(of_torch, fix={key: "dense"}), MappingAnswer)
    assert by(find_mapping("h200", "cartpole_dqn")) == ("dense", "dense")


# What is recommended


def test_the_command_runs_the_fastest_implementations(results):
    told = answer(results)
    assert by(told) == ("dense", "dense")
    words = "--learner dense --policy dense --contestant numba --fanout 16 --threads 1"
    assert mapping_answer(told).paste == (f"python -m impls.training train cartpole_dqn {words}",)


def test_each_implementation_has_a_row_with_what_it_would_give(results):
    told = answer(results)
    rows = [row for row in mapping_answer(told).others if "implementation" in row.label]
    assert [row.label["implementation"] for row in rows] == ["dense", "torch"]
    for row in rows:
        fix = dict.fromkeys(("learner_implementation", "policy_implementation"), row.label["implementation"])
        alone = answer(results, fix=fix)
        assert alone.value == pytest.approx(row.estimate.value, rel=0.02)
        assert row.estimate.low < row.estimate.value < row.estimate.high
        assert alone.by_implementation() == []  # nothing is left to choose


def test_learner_and_policy_of_one_process_may_be_of_different_implementations(results):
    told = answer(results, fix={"learner_implementation": "torch", "learner_threads": 2})
    assert by(told) == ("torch", "dense")
    given = training_parser().parse_args(training_command(told).split()[3:])
    assert (given.learner, given.policy, given.threads) == ("torch", "dense", 2)
    assert by(answer(results, fix={"policy_implementation": "torch"})) == ("dense", "torch")


def test_explain_says_why_an_implementation_loses(results):
    told = explain_mapping(results / PLATFORM, "cartpole_dqn", {"learner_implementation": "torch"}, results=results)
    assert by(told.asked) == ("torch", "dense")
    assert told.loss > 0.4
    with pytest.raises(ProblemError, match=r"learner_implementation: no learner 'dens'; there are .*torch"):
        answer(results, fix={"learner_implementation": "dens"})


def test_other_modes_name_the_implementations_too(results):
    told = answer(results, fix={"arrangement": "apart"})
    assert by(told) == ("dense", "dense")
    assert {note.values["timed_with"] for note in told.notes if note.kind == "slowdown_of_other"} == {"torch"}
    assert told.shares == ()


# How a step is spent


def test_the_shares_of_a_step_add_up_to_the_predicted_one(results, of_torch):
    parts = ["learner", "policy", "environment", "tree", "storage", "the rest"]
    torch = dict.fromkeys(("learner_implementation", "policy_implementation"), "torch")
    for told in (answer(results), answer(of_torch, fix=torch), answer(results, fix={"policy_implementation": "torch"})):
        assert sum(one.more["seconds"] for one in told.shares) == pytest.approx(1 / told.hz)
        assert sum(one.more["share"] for one in told.shares) == pytest.approx(1)
        assert [one.label["of_a_step"] for one in told.shares] == parts


def test_policy_and_environment_are_what_they_take_alone(results):
    told = answer(results)
    spent = {one.label["of_a_step"]: one.more["seconds"] for one in told.shares}
    assert spent["policy"] == pytest.approx(1e-5 + 2e-6)
    assert spent["environment"] == pytest.approx(2e-5 + 2e-6)
    assert spent["learner"] == pytest.approx(1e-4 + 64 * 3e-6)
    (learner,) = (part for part in told.parts if part.label["part"] == "learner")
    assert learner.estimate.value == pytest.approx(spent["learner"])  # one part, one time
    assert learner.more["charged_seconds"] > learner.estimate.value


def slower_loops(found, times):
    """The same records with whole loops that take so many times as long."""
    names = ("median_seconds", "low_seconds", "high_seconds")
    return [
        dataclasses.replace(one, **{name: times * getattr(one, name) for name in names})
        if one.contestant == "loop"
        else one
        for one in found
    ]


def test_what_the_loop_takes_beyond_its_parts_is_the_rest_and_no_learners(tmp_path):
    found = world(CARTPOLE)
    slow = slower_loops(found, 4)
    fix = {"arrangement": "serial"}
    fast, told = (answer(folder(tmp_path / name, each), fix=fix) for name, each in (("fast", found), ("slow", slow)))
    (before,), (after,) = (
        [one.more["seconds"] for one in each.shares if one.label["of_a_step"] == "learner"] for each in (fast, told)
    )
    assert after == pytest.approx(before)
    assert {one.label["of_a_step"]: one.more["seconds"] for one in told.shares}["the rest"] > before


def test_actors_that_no_profile_splits_are_one_share_and_their_number_stays(of_torch):
    told = find_mapping("edge", "hopper_ddpg", fix={"arrangement": "serial", "learner": "cpu"})
    assert [one.label["of_a_step"] for one in told.shares] == ["learner", "acting", "tree", "storage"]
    assert sum(one.more["seconds"] for one in told.shares) == pytest.approx(1 / told.hz)
    for told in (
        answer(of_torch, free=["environments"]),
        find_mapping("edge", "hopper_ddpg", free=["environments"]),
    ):
        assert (told.choice.more["environments"], told.by_environments) == (1, ())


# Whole loops


def test_the_rate_of_a_loop_that_was_timed_is_the_measured_one_and_so_is_its_interval(results):
    table = of_records(records(), "made-up", CARTPOLE)
    for name in BOTH:
        fix = {"arrangement": "serial", "learner_implementation": name, "policy_implementation": name, "fanout": 16}
        told = answer(results, fix={**fix, "learner_threads": 1})
        (whole,) = (one for one in table.whole if one.learner == name)
        assert told.hz == pytest.approx(1 / whole.time.value)
        assert (told.low, told.high) == (  # but for the tree's part of it, whose error is its own
            pytest.approx(1 / whole.time.high, rel=0.05),
            pytest.approx(1 / whole.time.low, rel=0.05),
        )
        assert told.interval == "95 %"


def test_what_was_not_timed_whole_is_scaled_by_its_nearest_that_was(results, tmp_path):
    slow = folder(tmp_path, slower_loops(records(), 3))
    for fix in ({"policy_implementation": "torch"}, {"batch": 128}, {"update_interval": 4}, {"environments": 8}):
        asked = {"arrangement": "serial", "learner_implementation": "dense", "fanout": 16, **fix}
        before, after = (answer(there, fix=asked) for there in (results, slow))
        assert before.hz / after.hz == pytest.approx(3)
        assert after.high / after.low > 1.5  # less sure than a loop that was timed


def test_a_loop_of_which_none_was_timed_takes_what_those_of_other_workloads_take_beyond_their_parts(tmp_path):
    hopper, own = world(load("hopper_ddpg")), [one for one in world(CARTPOLE) if one.contestant != "loop"]
    fix = {"arrangement": "serial"}
    alone, twice, more = (
        answer(folder(tmp_path / str(times), [*own, *slower_loops(found, times)]), fix=fix)
        for times, found in ((1, []), (2, hopper), (3, hopper))
    )
    assert alone.hz > twice.hz > more.hz


# Environments at once


def test_an_environment_step_of_a_turn_of_e_takes_its_share_of_the_turn(results):
    alone, eight = (
        ask(results / PLATFORM, "cartpole_dqn", results=results, fix=fix).parts() for fix in ({}, {"environments": 8})
    )
    assert alone.actor_step(1, "dense").value == pytest.approx(1e-4)
    assert eight.actor_step(1, "dense").value == pytest.approx((8e-5 + 16e-5) / 8)
    assert eight.actor_step(1, "dense").source == "measured"
    assert eight.acting(1, True, "dense").value == pytest.approx(CARTPOLE.learner.update_interval * 3e-5)
    assert eight.inserts == alone.inserts / 8
    assert eight.fetches(False).value == pytest.approx(alone.fetches(False).value / 8)


def test_numbers_between_are_interpolated_and_those_beyond_in_more_doubt(results):
    def step(count):
        return (
            ask(results / PLATFORM, "cartpole_dqn", results=results, fix={"environments": count}).parts().actor_step(1)
        )

    assert step(1).value > step(4).value > step(8).value
    assert step(4).source == "interpolated"
    turn, far = 8 * step(8).value, step(32)
    assert far.source == "extrapolated"
    assert far.low < turn / 32 * 1.01  # a turn as long
    assert far.high > turn / 8 * 0.99  # steps as long
    assert "32 environments at once, taken between a turn as long as that of 8 and steps as long" in far.rests_on.told


def test_another_number_of_environments_is_an_alternative(results):
    told = answer(results)
    assert (told.choice.more["environments"], [rate.label["environments"] for rate in told.by_environments]) == (1, [8])
    assert told.by_environments[0].estimate.value > told.value
    assert {"environments": 8} in [row.label for row in mapping_answer(told).others]
    assert answer(results, fix={"environments": 8}).value == pytest.approx(
        told.by_environments[0].estimate.value, rel=0.02
    )
    assert answer(results, fix={"environments": 1}).by_environments == ()


def test_free_environments_takes_the_fastest_number_and_warns(results):
    told = answer(results, free=["environments"])
    assert (told.choice.more["environments"], by(told)) == (8, ("dense", "dense"))
    (warning,) = [note for note in told.notes if note.level == "warning"]
    assert (warning.kind, warning.values) == ("several_environments", {"environments": 8})
    assert training_parser().parse_args(training_command(told).split()[3:]).environments == 8
    where, how = results / PLATFORM, {"results": results, "free": ["environments"]}
    asked = explain_mapping(where, "cartpole_dqn", {"environments": 1}, **how)
    assert (asked.asked.choice.more["environments"], asked.best.choice.more["environments"]) == (1, 8)
