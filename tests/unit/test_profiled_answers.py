"""Answers from made-up profiles: implementations, environments at once, several learners, parts beside each other."""

import dataclasses
import functools
import json
import re
import shlex
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import Case
from benchmarks.timing import Timing
from benchmarks.topic import parser_for
from benchmarks.topics.profile import command as profile
from benchmarks.topics.profile import concurrent_parts as cells
from benchmarks.topics.profile.cells import PRESETS, facts_of, groups
from benchmarks.topics.profile.concurrent_parts import PRIMITIVE, WINDOWS, list_whole_runs
from dse.__main__ import main
from dse.answers import deciding
from dse.answers.deciding import contenders
from dse.answers.emit import training_command, why_not_run
from dse.answers.mapping_answer import input_of_run
from dse.answers.printer import say
from dse.mapping.learners import Processes
from dse.mapping.options import implementation_of
from dse.mapping.processes import can_run, combinations
from dse.mapping.question import answer_question, ask, find_mapping
from dse.mapping.what_if import with_changes
from dse.platforms import load as load_platform
from dse.records import LOAD
from dse.solver.problem import ProblemError
from dse.times.cells import of_records
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms
from dse.times.trees import trees
from dse.times.whole import TimedRun, crowded, nearest, what_of
from impls.training import load
from impls.training.__main__ import _parser as training_parser
from impls.training.options import set_up_answer, setup_of
from tests.committed import RESULTS
from tests.made import alter
from tests.matrix import slow
from tests.profiled import NOISE, folder, made_up, seconds, stamp, world

CARTPOLE = load("cartpole_dqn")
BOTH, IMPLEMENTED = ("torch", "dense"), ("learner_implementation", "policy_implementation")
PLATFORM = "made-up/platform.toml"


def records(learners=BOTH, preset="quick"):
    """Records of a machine of two cores."""
    found = made_up(("cartpole_dqn",), preset, 2, learners)
    return [alter(one, machine=one.machine | {"key": "made-up"}) for one in found]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A folder of results of a machine that timed both implementations."""
    return folder(tmp_path_factory.mktemp("both"), records())


def answer(results, fix=None):
    return _answer(results, tuple((fix or {}).items()))


@functools.cache
def _answer(results, fix):
    return find_mapping(results / PLATFORM, "cartpole_dqn", results=results, fix=dict(fix))


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


# What is recommended


def test_learner_and_policy_may_be_of_two_implementations(results):
    told = answer(results, fix={"learner_implementation": "torch", "learner_threads": 2})
    assert by(told) == ("torch", "dense")
    given = training_parser().parse_args(training_command(told).split()[3:])
    assert given.learner == "torch"
    assert given.policy == "dense"
    assert given.threads == 2
    assert by(answer(results, fix={"policy_implementation": "torch"})) == ("dense", "torch")


# How a step is spent


def test_the_shares_of_a_step_add_up_to_the_predicted_one(results):
    parts = ["learner", "policy", "environment", "tree", "storage", "the rest"]
    for fix in ({}, dict.fromkeys(IMPLEMENTED, "torch"), {"policy_implementation": "torch"}):
        told = answer(results, fix=fix)
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
    for one in found:
        slow = {f"{name}_seconds": times * getattr(one, f"{name}_seconds") for name in ("median", "low", "high")}
        yield dataclasses.replace(one, **slow) if one.contestant == "loop" else one


def test_what_the_loop_takes_beyond_its_parts_is_the_rest(tmp_path):
    found = world(CARTPOLE)
    slow = slower_loops(found, 4)
    fix = {"arrangement": "serial"}
    fast, told = (answer(folder(tmp_path / name, each), fix=fix) for name, each in (("fast", found), ("slow", slow)))
    (before,), (after,) = (
        [one.more["seconds"] for one in each.shares if one.label["of_a_step"] == "learner"] for each in (fast, told)
    )
    assert after == pytest.approx(before)
    assert {one.label["of_a_step"]: one.more["seconds"] for one in told.shares}["the rest"] > before


# Whole loops


def test_a_loop_that_was_timed_has_its_rate_and_interval(results):
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


def test_what_was_not_timed_is_scaled_by_its_nearest(results, tmp_path):
    slow = folder(tmp_path, slower_loops(records(), 3))
    for fix in ({"policy_implementation": "torch"}, {"batch": 128}, {"update_interval": 4}, {"environments": 8}):
        asked = {"arrangement": "serial", "learner_implementation": "dense", "fanout": 16, **fix}
        before, after = (answer(there, fix=asked) for there in (results, slow))
        assert before.hz / after.hz == pytest.approx(3)
        assert after.high / after.low > 1.5  # less sure than a loop that was timed


# Environments at once


def test_a_step_of_a_turn_of_e_takes_its_share_of_it(results):
    alone, eight = (
        ask(results / PLATFORM, "cartpole_dqn", results=results, fix=fix).parts() for fix in ({}, {"environments": 8})
    )
    assert alone.actors.step(1, "dense").value == pytest.approx(1e-4)
    assert eight.actors.step(1, "dense").value == pytest.approx((8e-5 + 16e-5) / 8)
    assert eight.actors.step(1, "dense").source == "measured"
    assert eight.actors.acting(1, True, "dense").value == pytest.approx(CARTPOLE.learner.update_interval * 3e-5)
    assert eight.inserts == alone.inserts / 8
    assert eight.actors.fetches(False).value == pytest.approx(alone.actors.fetches(False).value / 8)


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


@pytest.fixture(params=["whole", "a third", "of another"])
def unfinished(request, tmp_path):
    """A profile with all its cells, or three; that of another workload alone."""
    counts = {"whole": TOTAL, "a third": 3}
    found = first_records(counts[request.param]) if request.param in counts else made_up(["pong_dqn"], "brief", 2)
    return folder(tmp_path, found)


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


def test_every_command_has_one_rate_for_a_loop(capsys, unfinished):
    both = ("learner_implementation=dense", "policy_implementation=dense")
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


@pytest.mark.parametrize("command", ["recommend", "cores"])
def test_an_unfinished_or_disturbed_profile_is_warned_of(measure_run, capsys, tmp_path, command):
    def warned(name, found):
        (tmp_path / name).mkdir()
        notes = read(capsys, folder(tmp_path / name, found), command)["notes"]
        return [say(note["kind"], note) for note in notes if note["level"] == "warning"]

    (warning,) = warned("unfinished", first_records(3))
    assert re.findall(r"\d+", warning)[:2] == ["3", str(TOTAL)]
    assert warning.endswith(f"python -m benchmarks profile --workload {NAME} --preset brief")
    (loaded,) = warned("loaded", first_records(TOTAL, 9.0))
    assert re.findall(r"\d+", loaded)[:3] == [str(TOTAL), str(TOTAL), "9"]
    (again,) = measure_run(samples={"rate": list(NOISE) * WINDOWS})
    again = dataclasses.replace(again, utc="2030-01-02T00:00:00+00:00")
    assert not warned("complete", [*first_records(TOTAL), again])  # --arrangements measured a cell anew


@pytest.mark.parametrize("platform", ["u200", slow("edge"), slow("h200")])
def test_modeled_platforms_offer_the_preferred_learner(platform):
    fix = {"learner": "cpu", "learner_implementation": "dense", "policy_implementation": "dense"}
    told = find_mapping(platform, NAME, fix=fix)
    assert {one.estimate.source for one in told.parts} <= {"modeled", "extrapolated"}
    assert told.hz <= find_mapping(platform, NAME, epsilon=0.0).hz * (1 + 1e-9)


# Several learners


HERE = RESULTS / "8fb834d50a" / "platform.toml"
NOTHING = FlatThenLinear(0.0, 0.0)
TERMS = Terms(64, 8e-6, FlatThenLinear(10e-6, 1e-6), 12e-6, NOTHING, 1e-6, FlatThenLinear(0.0, 2e-6), False)
THREE = Processes(3, 1, 40e-6, phases=1, vectors=1, costs=((1.1, 5e-6, 7e-6), (2.0, 50e-6, 9e-6)))
LOCAL = {"learners": 2, "sync": "local", "period": 5, "banks": 2}


def details(answer):
    return next(part.more["details"] for part in answer.parts if part.label["part"] == "learner")


def test_as_many_learners_are_tried_as_cores_may_hold():
    for cores, learners in ((1, {1}), (2, {1, 2}), (5, {1, 2}), (6, {1, 2, 4})):
        question = ask(with_changes(load_platform(HERE), {"cpu.cores": cores}), "cartpole_dqn")
        assert {how.learners for how in combinations(question.parts())} == learners


def test_learners_that_share_cores_wait_longer():
    three = dataclasses.replace(THREE, phases=2, vectors=2)
    part = 4e-6 + 42e-6 + 12e-6
    assert three.step_seconds(TERMS, 2, None) == pytest.approx(1.1 * part + 14e-6 + 4 * 5e-6 + 1e-6 + 4e-6)
    assert three.step_seconds(TERMS, 2, 10) == pytest.approx(1.1 * part + 14e-6 + (4 * 5e-6 + 1e-6 + 2e-6) / 10)
    two = dataclasses.replace(three, cores=2)
    assert two.is_crowded(2)
    assert two.step_seconds(TERMS, 2, 10) == pytest.approx(2 * part + 40e-6 + 18e-6 + (4 * 50e-6 + 3e-6) / 10)
    assert three.step_seconds(TERMS, 1, 10) == pytest.approx(94e-6)
    assert dataclasses.replace(two, actors=0).step_seconds(TERMS, 2, 10) == three.step_seconds(TERMS, 2, 10)


def test_learners_of_whole_steps_wait_for_the_lock_alone():
    single, passes = 94e-6, 74e-6
    assert THREE.step_seconds(TERMS, 2, None, "hogwild") == pytest.approx(1.1 * single / 2 + 7e-6)
    assert THREE.step_seconds(TERMS, 2, None, "lock") == pytest.approx(1.1 * passes + 7e-6)
    two = dataclasses.replace(THREE, cores=2)  # do the work of both, and the actor's
    assert two.step_seconds(TERMS, 2, None, "hogwild") == pytest.approx(2.0 * (single + 40e-6) / 2 + 9e-6)
    assert two.step_seconds(TERMS, 1, None, "hogwild") == pytest.approx(single)


def test_an_answer_of_several_learners_is_the_setup_of_a_run(tmp_path):
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


def time_learners(slower):
    """Records of a machine, and of its runs of two learners, which take ``slower`` times some 0.6 ms a step."""
    groups = cells.groups(load("cartpole_dqn"), PRESETS["quick"], 2, ["torch", "dense"])
    two = [cell for group in groups for cell in group if cell.options["learners"] == 2]
    assert {cell.options["sync"] for cell in two} == {"synchronous", "lock", "hogwild", "local"}
    for cell in two:
        timing = Timing(tuple(slower[cell.options["sync"]] * 6e-4 * one for one in NOISE), 1)
        yield stamp(cells.PRIMITIVE).timed(cell, timing)


def test_runs_that_were_timed_replace_the_prediction(tmp_path):
    slower = {"synchronous": 0.5, "lock": 0.2, "hogwild": 0.4, "local": 0.3}
    there = folder(tmp_path, [*records(), *time_learners(slower)])
    for fix, sync in (({}, "lock"), ({"sync": "local"}, "local"), ({"sync": "synchronous"}, "synchronous")):
        question = ask(there / PLATFORM, "cartpole_dqn", results=there, fix={"actors": 1, **fix})
        told = answer_question(question)
        assert told.choice.more["learners"] == 2
        assert told.choice.more["sync"] == sync
        assert told.interval == "95 %"
        assert 1 / told.hz == pytest.approx(slower[sync] * 6e-4, rel=1e-6)
    question = ask(there / PLATFORM, "cartpole_dqn", results=there)
    assert "apart, 1 actor, dense, 2 learners" in [one.name for one in deciding.contenders(question)]


LEARNER, TURN = 4e-4, 1e-4
SLOWER = 1.25


def made(**changes):
    values = {"implementation": "dense", "policy": "dense", "actors": 1, "environments": 1, "batch": 64}
    values |= {"learner": LEARNER, "turn": TURN, "beside": (LEARNER * SLOWER, TURN * SLOWER), "keeper": 0.0}
    return TimedRun(**{"arrangement": "apart", **values, "kept": 0.0, "interval": 1, "told": "", **changes})


RUN = made()


# The law


@given(st.floats(0.1, 5), st.floats(0.1, 9), st.floats(1, 2), st.floats(1, 2))
def test_two_that_slow_each_other_take_what_playing_them_takes(learner, turns, c_l, c_a):
    """Each gives the other work at 1 / c of its speed for as long as both are busy, then the slower side is alone."""
    run = made(learner=1.0, turn=1.0, beside=(c_l, c_a))
    both = min(learner * c_l, turns * c_a)
    alone = max(learner - both / c_l, turns - both / c_a)
    assert max(run.sides(learner, turns, 0.0, 0)) == pytest.approx(both + alone)


def test_more_processes_than_cores_share_what_the_cores_did():
    run = made(actors=2, learner=1.0, turn=1.0, beside=(1.5, 1.5))
    assert run.cores == pytest.approx(2.0)
    assert max(run.sides(3.0, 2.0, 0.0, 2)) == pytest.approx((3.0 + 2 * 2.0) / 2)
    assert max(run.sides(3.0, 0.1, 0.0, 2)) == pytest.approx(3.0)  # one process takes its own time at least


def test_the_hand_over_is_what_a_kept_ratio_takes_more():
    longest = max(RUN.sides(LEARNER, TURN, 0.0, 0))
    assert dataclasses.replace(RUN, kept=longest + 3e-5).handoff_seconds(0) == pytest.approx(3e-5)
    assert dataclasses.replace(RUN, kept=longest / 2).handoff_seconds(0) == 0.0


def test_a_run_stands_for_its_like_and_less_surely_others():
    runs = [RUN, made(environments=8), made(actors=2), made(arrangement="pipelined")]
    like, sure = nearest(runs, "apart", "dense", "dense", 1, 8, 2)
    other, less_sure = nearest(runs, "apart", "dense", "torch", 1, 4, 2)
    many, _ = nearest(runs, "apart", "dense", "dense", 2, 8, 2)
    assert (like.environments, other.environments, many.actors) == (8, 8, 2)
    assert less_sure > sure > 1
    assert nearest(runs[:3], "pipelined", "dense", "dense", 1, 1, 2) is None
    assert [crowded("apart", count, 3) for count in (1, 2, 3)] == [False, False, True]


# Answers


def tree_records():
    """Trees of the made-up machine: numba's by default is the slowest of four that a run could name."""
    shapes = (
        ({}, 1, "numba", 4.0),
        ({"propagate": "delta"}, 1, "numba", 1.0),
        ({}, 2, "numba", 1.0),
        ({}, 1, "numpy", 8.0),
    )
    return [
        stamp("sum_tree").timed(
            Case(name, op, capacity, batch, threads=threads, options=options),
            Timing(tuple(slower * 1e-7 * batch * one for one in NOISE), 10),
            utc="2030-01-01T00:00:00+00:00",
        )
        for options, threads, name, slower in shapes
        for op in ("draw", "update")
        for capacity in (10_000, 100_000, 1_000_000)
        for batch in (1, 64, 256)
    ]


def test_an_answer_runs_whatever_the_fastest_tree_is(tmp_path):
    there = folder(tmp_path, [*records(), *tree_records()])
    for arrangement in (None, "serial", "apart"):
        told = answer(there, ({"arrangement": arrangement} if arrangement else {}))
        (tree,) = (part.more["details"] for part in told.parts if part.label["part"] == "sampling")
        assert why_not_run(told) is None
        assert (tree["contestant"], tree["threads"], tree.get("options")) == ("numba", 1, None)
    with pytest.raises(ProblemError):  # what no run has is no answer even where it is asked for
        answer(there, {"arrangement": "serial", "threads": 2})


def test_a_tree_with_options_of_its_own_cannot_be_shared(results):
    parts = ask(results / PLATFORM, "cartpole_dqn", results=results).parts()
    (tree,) = [one for one in trees(parts, parts.cpu) if can_run(one)][:1]
    assert not can_run(dataclasses.replace(tree, details={**tree.details, "options": {"layout": "plain"}}))
    assert not can_run(dataclasses.replace(tree, threads=2), "serial")
    numpy = dataclasses.replace(tree, details={**tree.details, "contestant": "numpy"})
    assert (can_run(numpy), can_run(numpy, "serial")) == (False, True)


# Timing
