"""Answers from made-up profiles: implementations, numbers of environments, several learners, and unfinished ones."""

import dataclasses
import functools
import json
import re
import shlex
from types import SimpleNamespace

import pytest

from benchmarks.timing import Timing
from benchmarks.topic import parser_for
from benchmarks.topics.profile import command as profile
from benchmarks.topics.profile import concurrent_parts as cells
from benchmarks.topics.profile.cells import PRESETS, facts_of, groups
from benchmarks.topics.profile.concurrent_parts import PRIMITIVE, WINDOWS, list_whole_runs
from dse.__main__ import main
from dse.answers import deciding
from dse.answers.deciding import contenders
from dse.answers.emit import training_command
from dse.answers.mapping_answer import input_of_run, mapping_answer
from dse.answers.printer import say
from dse.mapping.answer import MappingAnswer
from dse.mapping.learners import Processes
from dse.mapping.options import implementation_of
from dse.mapping.processes import combinations
from dse.mapping.question import answer_question, ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.platforms import load as load_platform
from dse.records import LOAD
from dse.times.cells import of_records
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms
from dse.times.whole import what_of
from dse.tuning.cores import platform_curves
from dse.tuning.learners import learner_scaling
from impls.training import load
from impls.training.__main__ import _parser as training_parser
from impls.training.options import set_up_answer, setup_of
from tests.committed import RESULTS
from tests.made import alter
from tests.profiled import NOISE, folder, made_up, seconds, stamp, world
from tests.solver_cases import explain_mapping

CARTPOLE = load("cartpole_dqn")
BOTH = ("torch", "dense")
PLATFORM = "made-up/platform.toml"


def records(learners=BOTH, preset="quick"):
    """Records of a machine of two cores."""
    found = made_up(("cartpole_dqn",), preset, 2, learners)
    return [alter(one, machine=one.machine | {"key": "made-up"}) for one in found]


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
    assert torch == pytest.approx(1e-3 + 64e-5)
    assert dense == pytest.approx(1e-4 + 64 * 3e-6)
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
    assert re.search(r"pooled with \d+ earlier records", told.rests_on.description)


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
    assert given.learner == "torch"
    assert given.policy == "dense"
    assert given.threads == 2
    assert by(answer(results, fix={"policy_implementation": "torch"})) == ("dense", "torch")


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
    assert alone.actors.step(1, "dense").value == pytest.approx(1e-4)
    assert eight.actors.step(1, "dense").value == pytest.approx((8e-5 + 16e-5) / 8)
    assert eight.actors.step(1, "dense").source == "measured"
    assert eight.actors.acting(1, True, "dense").value == pytest.approx(CARTPOLE.learner.update_interval * 3e-5)
    assert eight.inserts == alone.inserts / 8
    assert eight.actors.fetches(False).value == pytest.approx(alone.actors.fetches(False).value / 8)


def test_numbers_between_are_interpolated_and_those_beyond_in_more_doubt(results):
    def step(count):
        return (
            ask(results / PLATFORM, "cartpole_dqn", results=results, fix={"environments": count}).parts().actors.step(1)
        )

    assert step(1).value > step(4).value > step(8).value
    assert step(4).source == "interpolated"
    turn, far = 8 * step(8).value, step(32)
    assert far.source == "extrapolated"
    assert far.low < turn / 32 * 1.01  # a turn as long
    assert far.high > turn / 8 * 0.99  # steps as long
    assert (
        "32 environments at once, taken between a turn as long as that of 8 and steps as long"
        in far.rests_on.description
    )


def test_free_environments_takes_the_fastest_number_and_warns(results):
    told = answer(results, free=["environments"])
    assert (told.choice.more["environments"], by(told)) == (8, ("dense", "dense"))
    assert [rate.label["environments"] for rate in answer(results).by_environments] == [8]
    assert answer(results, fix={"environments": 1}).by_environments == ()
    (warning,) = [note for note in told.notes if note.level == "warning"]
    assert warning.kind == "several_environments"
    assert warning.values == {"environments": 8}
    assert training_parser().parse_args(training_command(told).split()[3:]).environments == 8
    where, how = results / PLATFORM, {"results": results, "free": ["environments"]}
    asked = explain_mapping(where, "cartpole_dqn", {"environments": 1}, **how)
    assert asked.asked.choice.more["environments"] == 1
    assert asked.best.choice.more["environments"] == 8


# Profiles of which some cells are measured


NAME, IMPLEMENTATIONS = "cartpole_dqn", ["torch", "dense"]
WORKLOAD, BRIEF = load(NAME), PRESETS["brief"]
SERIAL, *PARTS = groups(WORKLOAD, BRIEF, 2, IMPLEMENTATIONS)
CELLS = [SERIAL, *list_whole_runs(WORKLOAD, BRIEF, 2, IMPLEMENTATIONS), *PARTS]
FACTS = facts_of(WORKLOAD, "brief", CELLS)
TOTAL = sum(map(len, CELLS))
APART = ("arrangement=apart", "actors=1", "learners=1", "learner_threads=1")


def first_records(count, load=0.0):
    """Records of the first cells of a brief profile."""
    for cell in [cell for group in CELLS for cell in group][:count]:
        made = stamp(PRIMITIVE if cell.contestant == "apart" else "training")
        machine = {**made.machine, **FACTS, **({LOAD: load} if load else {})}
        timing = Timing(tuple(seconds(cell) * noise for noise in NOISE), 10)
        yield dataclasses.replace(made, machine=machine).timed(cell, timing, utc="2030-01-01T00:00:00+00:00")


@pytest.fixture(params=[TOTAL, 3, 1, 0])
def unfinished(request, tmp_path):
    """A profile with so many cells; with none, that of another workload alone."""
    return folder(tmp_path, first_records(request.param) if request.param else made_up(["pong_dqn"], "brief", 2))


def read(capsys, results, *words):
    asked = [words[0], "--platform", results / PLATFORM, "--results", results, "--workload", NAME, *words[1:], "--json"]
    assert main([*map(str, asked)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def measure_run(monkeypatch):
    """Return what measures the run timed whole of a brief profile, by a process that answers as given."""
    monkeypatch.setattr(profile, "implementations", lambda workload: IMPLEMENTATIONS)
    monkeypatch.setattr(profile, "CORES", 2)
    options = parser_for(profile.Profile).parse_args(["--workload", NAME, "--preset", "brief"])
    topic = profile.Profile(options)
    topic._runs.stamp = stamp(PRIMITIVE)

    def measure(**answer):
        topic.worker = lambda index: SimpleNamespace(ask=lambda *what, **how: answer)
        return list(topic.measure(topic.cells()[1]))

    return measure


@pytest.mark.parametrize(("key", "status"), [("samples", "ok"), ("failed", "failed"), ("skipped", "skipped")])
def test_a_profile_records_each_part_of_a_run_timed_whole(measure_run, key, status):
    answer = {cell.op: [0.5] * WINDOWS for cell in CELLS[1]} if key == "samples" else "it died"
    found = measure_run(**{key: answer})
    assert [(record.primitive, record.status, record.op) for record in found] == [
        (PRIMITIVE, status, cell.op) for cell in CELLS[1]
    ]
    assert {record.facts["profile"]["cells"] for record in found} == {TOTAL}


@pytest.mark.parametrize("by", IMPLEMENTATIONS)
def test_every_command_has_one_rate_for_a_loop(capsys, unfinished, by):
    both = (f"learner_implementation={by}", f"policy_implementation={by}")
    fix, implemented = ([word for one in every for word in ("--fix", one)] for every in ((*APART, *both), both))

    def told(*words):
        return read(capsys, unfinished, *words)

    hz = told("recommend", *fix)["choice"]["hz"]
    assert told("explain", "--config", ",".join([*APART, *both]))["others"][0]["hz"] == hz
    assert told("depth", *fix)["choice"]["value"] == hz
    assert told("learners", *implemented)["choice"]["single_hz"] == hz
    assert told("cores", *implemented)["choice"]["value"] == hz
    given = {key: value for key, _, value in (one.partition("=") for one in both)}
    raced = contenders(ask(unfinished / PLATFORM, NAME, fix=given, results=unfinished))
    assert all(one.answer for one in raced)
    assert hz in [one.answer.hz for one in raced if one.fix.get("arrangement") == "apart"]


def test_a_loop_that_was_timed_whole_has_that_rate(tmp_path):
    there = folder(tmp_path, first_records(3))
    for cell in (cell for group in CELLS[:2] for cell in group):
        by = dict.fromkeys(("learner_implementation", "policy_implementation"), cell.options["learner"])
        fix = {**by, "arrangement": cell.options.get("arrangement", "serial"), "learners": 1}
        told = find_mapping(there / PLATFORM, NAME, results=there, fix=fix)
        assert told.hz == pytest.approx(1 / seconds(cell), rel=0.01)
        assert told.interval == "95 %"
        assert told.low < told.hz < told.high
        assert {one.estimate.source for one in told.parts} == {"modeled"}  # each alone


@pytest.mark.parametrize("command", ["recommend", "explain", "cores", "depth", "learners", "adapt"])
def test_an_unfinished_or_disturbed_profile_is_warned_of(measure_run, capsys, tmp_path, command):
    more = ["--config", "learner_implementation=torch"] if command == "explain" else []

    def warned(name, found):
        (tmp_path / name).mkdir()
        notes = read(capsys, folder(tmp_path / name, found), command, *more)["notes"]
        return [say(note["kind"], note) for note in notes if note["level"] == "warning"]

    (warning,) = warned("unfinished", first_records(3))
    assert re.findall(r"\d+", warning)[:2] == ["3", str(TOTAL)]
    assert warning.endswith(f"python -m benchmarks profile --workload {NAME} --preset brief")
    (loaded,) = warned("loaded", first_records(TOTAL, 9.0))
    assert re.findall(r"\d+", loaded)[:3] == [str(TOTAL), str(TOTAL), "9"]
    (again,) = measure_run(samples={"rate": list(NOISE) * WINDOWS})
    again = dataclasses.replace(again, utc="2030-01-02T00:00:00+00:00")
    assert not warned("complete", [*first_records(TOTAL), again])  # --arrangements measured a cell anew


@pytest.mark.parametrize("platform", ["edge", "u200", "h200"])
def test_modeled_platforms_offer_the_preferred_learner(platform):
    fix = {"learner": "cpu", "learner_implementation": "dense", "policy_implementation": "dense"}
    told = find_mapping(platform, NAME, fix=fix)
    assert {one.estimate.source for one in told.parts} <= {"modeled", "extrapolated"}
    assert told.hz <= find_mapping(platform, NAME, epsilon=0.0).hz * (1 + 1e-9)


# Several learners


HERE = RESULTS / "8fb834d50a" / "platform.toml"
NOTHING = FlatThenLinear(0.0, 0.0)
TERMS = Terms(64, 8e-6, FlatThenLinear(10e-6, 1e-6), 12e-6, NOTHING, 1e-6, FlatThenLinear(0.0, 2e-6), False)
LOCAL = {"learners": 2, "sync": "local", "period": 5, "banks": 2}


def details(answer):
    return next(part.more["details"] for part in answer.parts if part.label["part"] == "learner")


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
    assert local.choice.more["sync"] == "local"
    assert local.choice.more["period"] == 25
    assert local.hz > told.hz


def test_one_learner_is_an_answer_next_to_what_two_would_give():
    told = find_mapping(HERE, "cartpole_dqn")
    assert (told.choice.more["learners"], told.choice.more["sync"]) == (1, "")
    (other,) = told.by_learners()
    two = find_mapping(HERE, "cartpole_dqn", fix={"learners": 2})
    assert other.label == {"learners": 2, "sync": two.choice.more["sync"]}
    assert other.number["value"] == two.value
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
        assert told.choice.more["learners"] == 2
        assert told.choice.more["sync"] == sync
        assert told.interval == "95 %"
        assert 1 / told.hz == pytest.approx(slower[sync] * 6e-4, rel=1e-6)
    question = ask(there / PLATFORM, "cartpole_dqn", results=there)
    assert "apart, 1 actor, dense, 2 learners" in [one.name for one in deciding.contenders(question)]


def test_cores_of_learners_are_processes_that_combine_as_asked():
    rates = {
        sync: platform_curves(ask(HERE, "cartpole_dqn", fix={"sync": sync, "learner_implementation": by}).parts(), 4)[
            1
        ].rates
        for sync, by in (("synchronous", "dense"), ("hogwild", "dense"), ("local", "torch"))
    }
    assert rates["hogwild"][2].value > rates["synchronous"][2].value
    assert rates["hogwild"][1] == rates["synchronous"][1]
    assert {each[2].source for each in rates.values()} == {"modeled"}
