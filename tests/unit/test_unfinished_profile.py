"""Answers from a profile of which some cells are measured: what was timed whole is used, and what runs is offered."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest

from benchmarks.profile import command as profile
from benchmarks.profile.beside import PRIMITIVE, WINDOWS, whole
from benchmarks.profile.cells import PRESETS, facts_of, groups
from benchmarks.timing import Timing
from dse.__main__ import main
from dse.answers.deciding import contenders
from dse.mapping.question import ask, find_mapping
from dse.records import LOAD
from impls.training import load
from tests.profiled import NOISE, folder, made_up, seconds, stamp

NAME, IMPLEMENTATIONS = "cartpole_dqn", ["torch", "dense"]
WORKLOAD, BRIEF = load(NAME), PRESETS["brief"]
SERIAL, *PARTS = groups(WORKLOAD, BRIEF, 2, IMPLEMENTATIONS)
CELLS = [SERIAL, *whole(WORKLOAD, BRIEF, 2, IMPLEMENTATIONS), *PARTS]
FACTS = facts_of(WORKLOAD, "brief", CELLS)
TOTAL = sum(map(len, CELLS))
APART = ("arrangement=apart", "actors=1", "learners=1", "learner_threads=1")


def records(count, load=0.0):
    """Those of the first cells of a brief profile."""
    for cell in [cell for group in CELLS for cell in group][:count]:
        made = stamp(PRIMITIVE if cell.contestant == "apart" else "training")
        machine = {**made.machine, **FACTS, **({LOAD: load} if load else {})}
        timing = Timing(tuple(seconds(cell) * noise for noise in NOISE), 10)
        yield dataclasses.replace(made, machine=machine).timed(cell, timing, utc="2030-01-01T00:00:00+00:00")


@pytest.fixture(params=[TOTAL, 3, 1, 0])
def results(request, tmp_path):
    """A profile with so many cells; with none, that of another workload alone."""
    return folder(tmp_path, records(request.param) if request.param else made_up(["pong_dqn"], "brief", 2))


def asked(results, *words):
    return [words[0], "--platform", str(results / "made-up" / "platform.toml"), "--results", str(results),
            "--workload", NAME, *words[1:]]  # fmt: skip


def read(capsys, results, *words):
    assert main(asked(results, *words, "--json")) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("key", "status"), [("samples", "ok"), ("failed", "failed"), ("skipped", "skipped")])
def test_a_profile_records_each_part_of_a_run_timed_whole(key, status):
    (cells,) = whole(WORKLOAD, BRIEF, 2, IMPLEMENTATIONS)[:1]
    answer = {key: {cell.op: [0.5] * WINDOWS for cell in cells} if key == "samples" else "it died"}
    team = SimpleNamespace(preset=BRIEF, worker=lambda number: SimpleNamespace(ask=lambda *what, **how: answer))
    found = list(profile._measure(team, stamp("training"), 0, cells))
    assert [(one.primitive, one.status, one.op) for one in found] == [(PRIMITIVE, status, cell.op) for cell in cells]


@pytest.mark.parametrize("by", IMPLEMENTATIONS)
def test_every_command_has_one_rate_for_a_loop(capsys, results, by):
    both = (f"learner_implementation={by}", f"policy_implementation={by}")
    fix, implemented = ([word for one in every for word in ("--fix", one)] for every in ((*APART, *both), both))

    def told(*words):
        return read(capsys, results, *words)

    hz = told("recommend", *fix)["choice"]["hz"]
    assert told("explain", "--config", ",".join([*APART, *both]))["others"][0]["hz"] == hz
    assert told("depth", *fix)["choice"]["value"] == hz
    assert told("learners", *implemented)["choice"]["single_hz"] == hz
    assert told("cores", *implemented)["choice"]["value"] == hz
    given = {key: value for key, _, value in (one.partition("=") for one in both)}
    raced = contenders(ask(results / "made-up" / "platform.toml", NAME, fix=given, results=results))
    assert hz in [one.answer.hz for one in raced if one.fix.get("arrangement") == "apart"]


def test_all_that_a_run_may_race_is_predicted(capsys, results):
    platform = results / "made-up" / "platform.toml"
    assert all(one.answer for one in contenders(ask(platform, NAME, results=results)))
    best = find_mapping(platform, NAME, results=results)
    assert (
        next(one.more["details"] for one in best.parts if one.label["part"] == "learner")["implementation"] == "dense"
    )
    explained = read(capsys, results, "explain", "--config", "learner_implementation=dense")
    assert explained["choice"]["loss"] <= explained["choice"]["epsilon"]


def test_a_loop_that_was_timed_whole_has_that_rate(tmp_path):
    there = folder(tmp_path, records(3))
    for cell in (cell for group in CELLS[:2] for cell in group):
        by = dict.fromkeys(("learner_implementation", "policy_implementation"), cell.options["learner"])
        fix = {**by, "arrangement": cell.options.get("arrangement", "serial"), "learners": 1}
        told = find_mapping(there / "made-up" / "platform.toml", NAME, results=there, fix=fix)
        assert told.hz == pytest.approx(1 / seconds(cell), rel=0.01)
        assert (told.interval, told.low < told.hz < told.high) == ("95 %", True)
        assert {one.estimate.source for one in told.parts} == {"modeled"}  # each alone


@pytest.mark.parametrize("command", ["recommend", "explain", "cores", "depth", "learners", "adapt"])
def test_an_unfinished_or_disturbed_profile_is_warned_of(capsys, tmp_path, command):
    more = ["--config", "learner_implementation=torch"] if command == "explain" else []

    def warned(name, found):
        (tmp_path / name).mkdir()
        notes = read(capsys, folder(tmp_path / name, found), command, *more)["notes"]
        return [note["text"] for note in notes if note["level"] == "warning"]

    (unfinished,) = warned("unfinished", records(3))
    assert re.findall(r"\d+", unfinished)[:2] == ["3", str(TOTAL)]
    assert unfinished.endswith(f"python -m benchmarks profile --workload {NAME} --preset brief")
    (loaded,) = warned("loaded", records(TOTAL, 9.0))
    assert re.findall(r"\d+", loaded)[:3] == [str(TOTAL), str(TOTAL), "9"]
    (cell,) = CELLS[1]
    own = profile.stamps_beside(stamp(PRIMITIVE), WORKLOAD, "brief", CELLS)(cell)
    again = own.timed(cell, Timing(NOISE, 10), utc="2030-01-02T00:00:00+00:00")
    assert not warned("complete", [*records(TOTAL), again])  # --arrangements measured a cell anew


@pytest.mark.parametrize("platform", ["edge", "u200", "h200"])
def test_modeled_platforms_offer_the_preferred_learner(platform):
    fix = {"learner": "cpu", "learner_implementation": "dense", "policy_implementation": "dense"}
    told = find_mapping(platform, NAME, fix=fix)
    assert {one.estimate.source for one in told.parts} <= {"modeled", "extrapolated"}
    assert told.hz <= find_mapping(platform, NAME, epsilon=0.0).hz * (1 + 1e-9)
