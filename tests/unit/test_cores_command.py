"""Tests of ``python -m dse cores`` and of ``platform_split``."""

import json
import re

import pytest

from dse.__main__ import main
from dse.mapping.question import find_mapping
from dse.solver.problem import ProblemError
from dse.tuning.core_question import MOST_CORES, WITHIN, platform_split, split_cores
from dse.tuning.core_split import RateCurve
from tests.committed import RESULTS

MACHINE = "d7dae63b89"
TORCH = {"learner_implementation": "torch", "policy_implementation": "torch"}  # what that machine's profile timed
HERE = ["--machine", MACHINE, *(f"--fix={key}={one}" for key, one in TORCH.items()), "--workload"]
OWN = ["--actors", "1:900,2:1700,4:3000", "--learners", "1:400,2:700"]


def told(capsys, *arguments):
    return main(["cores", *arguments]), *capsys.readouterr()


def curve(name, rates, off=0.0, source="measured"):
    return RateCurve.of(name, rates, source, 1 - off, 1 + off)


def test_the_answer_comes_first_and_the_records_last(capsys):
    code, text, errors = told(capsys, *HERE, "hopper_ddpg")
    assert (code, errors) == (0, "")
    first, *_, last = text.splitlines()
    assert first == "Give 1 core to actors and 1 core to learners: about 160 gradient steps/s, bottleneck: learners."
    assert re.search(r"\n  160 \[1\d0, 2\d0\] gradient steps/s, bottleneck: learners\n", text)
    assert last == f"  records: those of machine {MACHINE} in results"


def test_rates_are_the_profiles_own():
    """Rates are those of the records: seconds of a call are those of a step of any actor, or of a learner."""
    given = platform_split("this", "hopper_ddpg", machine=MACHINE, fix=TORCH)
    path = RESULTS / MACHINE / "profile-hopper_ddpg-quick.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    acting, learning = given.f_a.rates, given.f_l.rates
    for rate, asked in ((acting[1], ["actor", "step", 1]), (learning[1], ["learner", "step", 256])):
        seconds = [
            row["median_seconds"]
            for row in rows
            if [row[name] for name in ("primitive", "contestant", "op", "batch", "threads")] == ["training", *asked, 1]
            and row["options"].get("beside", "nothing") == "nothing"
        ]
        assert min(seconds) <= 1 / rate.value <= max(seconds)
    assert {rate.source for rate in acting.values()} == {"measured"}


def test_curves_of_ones_own(capsys):
    given = json.loads(told(capsys, *OWN, "--cores", "8", "--json")[1])
    assert [given["choice"][name] for name in ("actors", "learners", "bottleneck")] == [2, 6, "learners"]
    sources = ["quoted", "quoted", "modeled", "quoted", *["extrapolated"] * 4]
    assert [given["f_a"]["rates"][str(x)]["source"] for x in range(1, 9)] == sources
    assert given["f_a"]["rates"]["2"]["hz"] == 1700
    for side in ("f_a", "f_l"):
        assert all(rate["low"] <= rate["hz"] <= rate["high"] for rate in given[side]["rates"].values())
    assert [one["number"] for one in given["sources"]] == ["--actors", "--learners"]
    best = max(min(given["f_a"]["rates"][str(a)]["hz"], given["f_l"]["rates"][str(8 - a)]["hz"]) for a in range(1, 8))
    assert given["choice"]["hz"] >= (1 - WITHIN) * best


def test_equal_sides_are_bound_by_neither(capsys):
    even = ("--actors", "1:900,2:1800,4:3600", "--learners", "1:900,2:1800", "--cores", "10", "--json")
    choice = json.loads(told(capsys, *even)[1])["choice"]
    assert (choice["actors"], choice["learners"], choice["bottleneck"]) == (5, 5, "neither")


def test_an_update_interval_is_the_workloads_unless_it_is_asked():
    own = platform_split("u200", "pong_dqn")
    asked = platform_split("u200", "pong_dqn", update_interval=64)
    assert own.update_interval == 4
    assert asked.choice.actors > own.choice.actors
    assert platform_split("u200", "pong_dqn", update_interval=4).choice == own.choice


def test_more_cores_than_a_machine_has_are_carried_on():
    given = platform_split("this", "pong_dqn", 8, machine=MACHINE)
    assert given.cores_there == 2
    far, last = given.f_l.rates[7], given.f_l.rates[2]
    assert (far.source, last.source) == ("extrapolated", "measured")
    assert far.low <= last.value  # more cores may gain nothing
    assert far.high >= last.value * 7 / 2  # or all that they could


def test_a_machine_without_records_is_modeled():
    given = platform_split("u200", "hopper_ddpg", 40)
    assert given.cores_there == 28
    assert {rate.source for rate in given.f_l.rates.values()} == {"modeled"}
    assert given.choice.cores <= 40


def test_one_core_serves_both_in_turns(capsys):
    given = platform_split("this", "hopper_ddpg", 1, machine=MACHINE, fix=TORCH)
    assert given.choice.in_turns
    loop = find_mapping("this", "hopper_ddpg", machine=MACHINE, fix={**TORCH, "arrangement": "serial"})
    assert given.choice.hz == loop.hz
    code, text, _ = told(capsys, *HERE, "hopper_ddpg", "--cores", "1")
    assert (code, text.startswith("Let both sides take turns on 1 core: about ")) == (0, True)


def test_ties_are_within_a_percent_or_within_measured_intervals():
    f_a = {x: 100.0 * x for x in range(1, 8)}
    f_l = {x: 100.0 * x for x in range(1, 8)}
    assert split_cores(curve("f_a", f_a), curve("f_l", f_l), 1, 8).ties == ()
    wide = split_cores(curve("f_a", f_a, 0.2), curve("f_l", f_l, 0.2), 1, 8)
    assert (wide.choice.actors, wide.choice.learners) == (4, 4)
    assert [(one.actors, one.learners) for one in wide.ties] == [(3, 3), (3, 4), (3, 5)]
    unknown = split_cores(curve("f_a", f_a, 0.2, "modeled"), curve("f_l", f_l, 0.2, "modeled"), 1, 8)
    assert unknown.ties == ()  # all rates of a law are wrong together


def test_eq_5_as_printed_is_told():
    even = {x: 100.0 * x for x in range(1, 8)}
    given = split_cores(curve("f_a", even), curve("f_l", even), 1, 8)
    assert given.printed == (4, given.choice)


@pytest.mark.parametrize("words", ["1", "1:x", "x:1", "1:2,", "1:2,1:3", "1.5:3"])
def test_a_curve_is_written_as_shown(capsys, words):
    with pytest.raises(SystemExit) as left:
        main(["cores", "--actors", words, *OWN[2:], "--cores", "4"])
    assert left.value.code == 2
    assert "argument --actors: " in capsys.readouterr().err.splitlines()[-1]


def test_far_beyond_two_points_it_says_what_to_time_next(capsys):
    """S17: two points are Amdahl's law alone, which leaves out what coherence does to 48 learners."""
    two = ["--actors", "1:900,2:1700", "--learners", "1:400,2:700", "--cores", "56"]
    text = told(capsys, *two)[1]
    assert text.startswith("Give 4 cores to actors and 48 cores to learners: about 2,500 gradient steps/s, ")
    assert "a factor of 21" in text.splitlines()[0]
    assert "on 48 it may be from 118 to 16,800 steps/s" in text
    assert dict(json.loads(told(capsys, *two, "--json")[1])["to_decide"])["--learners"] == 8
    known = ["--actors", "1:900,8:6000", "--learners", "1:400,8:2000", "--cores", "8"]
    assert "to decide" not in told(capsys, *known)[1]


def test_too_many_cores_are_refused_from_python_too():
    even = curve("f_a", {1: 1.0, 2: 2.0})
    with pytest.raises(ProblemError, match="at most 512"):
        split_cores(even, even, 1, MOST_CORES + 1)
