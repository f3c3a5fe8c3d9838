"""Tests of ``python -m dse cores`` and of ``platform_split``."""

import json
from itertools import product

import pytest

from dse.__main__ import main
from dse.answer import Note
from dse.answers.tune import split_answer
from dse.mapping.question import find_mapping
from dse.records import read_file
from dse.solver.problem import ProblemError
from dse.tuning.core_question import MOST_CORES, platform_split, split_cores
from dse.tuning.core_split import RateCurve
from tests.committed import RESULTS

MACHINE = "d7dae63b89"
TORCH = {"learner_implementation": "torch", "policy_implementation": "torch"}  # what that machine's profile timed
OWN = ["--actors", "1:900,2:1700,4:3000", "--learners", "1:400,2:700"]
CELL = ("contestant", "op", "batch")
EVEN = {x: 100.0 * x for x in range(1, 8)}


def told(capsys, *arguments):
    assert main(["cores", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def split(rates, off=0.0, source="measured", cores=8):
    """The split of cores between two sides that have the same rates."""
    return split_cores(
        *(
            RateCurve.of(
                name,
                rates,
                source,
                1 - off,
                1 + off,
            )
            for name in ("f_a", "f_l")
        ),
        1,
        cores,
    )


def test_rates_are_the_profiles_own(capsys):
    """Rates are those of the records: seconds of a call are those of a step of any actor, or of a learner."""
    given = platform_split(
        "this",
        "hopper_ddpg",
        machine=MACHINE,
        fix=TORCH,
    )
    rows = read_file(RESULTS / MACHINE / "profile-hopper_ddpg-quick.jsonl")
    alone = [row for row in rows if row.options.get("beside", "nothing") == "nothing" and row.threads == 1]
    for rate, asked in ((given.f_a.rates[1], ["actor", "step", 1]), (given.f_l.rates[1], ["learner", "step", 256])):
        seconds = [row.seconds for row in alone if [getattr(row, name) for name in CELL] == asked]
        assert min(seconds) <= 1 / rate.value <= max(seconds)
    assert {rate.source for rate in given.f_a.rates.values()} == {"measured"}
    fix = (f"--fix={key}={value}" for key, value in TORCH.items())
    shown = told(
        capsys,
        "--machine",
        MACHINE,
        *fix,
        "--workload",
        "hopper_ddpg",
    )
    assert shown["choice"] == split_answer(given).choice.to_dict()
    choice = given.choice
    assert (choice.actors, choice.learners, choice.bottleneck, choice.interval) == (1, 1, "learners", "95 %")
    assert (choice.low, choice.hz, choice.high) == pytest.approx((110, 160, 240), rel=0.05)
    assert shown["question"]["machine"] == MACHINE


def test_curves_of_ones_own(capsys):
    given = told(
        capsys,
        *OWN,
        "--cores",
        "8",
    )
    choice, rows = given["choice"], given["rows"]
    assert [choice[name] for name in ("actors", "learners", "bottleneck")] == [2, 6, "learners"]
    assert (
        (choice["feed_hz"], choice["take_hz"]) == (rows[1]["value"], rows[13]["value"]) == (1700, pytest.approx(1400))
    )
    assert [(row["side"], row["cores"]) for row in rows] == [*product(("actors", "learners"), range(1, 9))]
    sources = ["quoted", "quoted", "modeled", "quoted", *["extrapolated"] * 4]
    assert [row["source"] for row in rows[:8]] == sources
    assert [note["evidence"] for note in given["notes"] if note["kind"] == "evidence"] == ["--actors", "--learners"]
    paces = [row["value"] / choice["value"] for row in given["others"]]
    assert [row["pace"] for row in given["others"]] == sorted(paces, reverse=True)
    even = told(
        capsys,
        "--actors",
        "1:900,2:1800,4:3600",
        "--learners",
        "1:900,2:1800",
        "--cores",
        "10",
    )["choice"]
    assert (even["actors"], even["learners"], even["bottleneck"]) == (5, 5, "neither")


def test_an_update_interval_is_the_workloads_unless_asked():
    own, same, more = (platform_split("u200", "pong_dqn", update_interval=u) for u in (None, 4, 64))
    assert own.choice == same.choice
    assert own.choice.actors < more.choice.actors
    choice, limit = split_answer(more).choice.more, split_answer(more).notes[0].values
    assert (limit["spare"], limit["wanted"]) == (pytest.approx(64 * choice["feed_hz"] / choice["take_hz"]), 64)


def test_more_cores_than_a_machine_has_are_carried_on():
    given = platform_split("this", "pong_dqn", 8, machine=MACHINE)
    assert Note("cores_beyond", {"cores": 2}, "warning") in split_answer(given).notes
    far, last = given.f_l.rates[7], given.f_l.rates[2]
    assert (far.source, last.source) == ("extrapolated", "measured")
    assert far.low <= last.value  # more cores may gain nothing
    assert far.high >= last.value * 7 / 2  # or all that they could
    modeled = platform_split("u200", "hopper_ddpg", 40)  # without records
    assert modeled.cores_there == 28
    assert {rate.source for rate in modeled.f_l.rates.values()} == {"modeled"}


def test_one_core_serves_both_in_turns():
    given = platform_split(
        "this",
        "hopper_ddpg",
        1,
        machine=MACHINE,
        fix=TORCH,
    )
    loop = find_mapping("this", "hopper_ddpg", machine=MACHINE, fix={**TORCH, "arrangement": "serial"})
    assert (given.choice.in_turns, given.choice.hz) == (True, loop.hz)
    answer = split_answer(given)
    assert (answer.choice.says, answer.choice.label["actors"], answer.others) == ("take_turns", 1, ())


def test_turns_are_told_apart_where_they_are_faster():
    for rates, says in ((EVEN, "other_turns"), ({1: 100.0, 2: 250.0}, "turns_are_faster")):
        assert [row.says for row in split_answer(split(rates, cores=2)).others] == [says]


def test_ties_are_within_a_percent_or_measured_intervals():
    even, wide = split(EVEN), split(EVEN, 0.2)
    assert (even.ties, even.printed) == ((), (4, even.choice))  # of eq. 5
    assert (wide.choice.actors, wide.choice.learners) == (4, 4)
    tied = [row.label for row in split_answer(wide).others if row.more["is_tied"]]
    pairs = [(tie.actors, tie.learners) for tie in wide.ties]
    assert pairs == [(label["actors"], label["learners"]) for label in tied] == [(3, 3), (3, 4), (3, 5)]
    assert split(EVEN, 0.2, "modeled").ties == ()  # all rates of a law are wrong together


@pytest.mark.parametrize("words", ["1", "1:x", "x:1", "1:2,", "1:2,1:3", "1.5:3"])
def test_a_curve_is_written_as_shown(capsys, words):
    with pytest.raises(SystemExit, match="2"):
        main(["cores", "--actors", words, *OWN[2:], "--cores", "4"])
    assert "argument --actors: " in capsys.readouterr().err.splitlines()[-1]


def test_beyond_two_points_the_least_sure_rate_is_to_be_timed(capsys):
    """S17: two points are Amdahl's law alone, which leaves out what coherence does to 48 learners."""
    given = told(
        capsys,
        "--actors",
        "1:900,2:1700",
        "--learners",
        "1:400,2:700",
        "--cores",
        "56",
    )
    choice, (first, second) = given["choice"], given["decides"]
    assert (choice["actors"], choice["learners"], choice["source"]) == (4, 48, "extrapolated")
    assert choice["value"] / choice["low"] == pytest.approx(21, abs=0.5)
    assert (first["side"], first["cores"], first["on"]) == ("learners", 8, 48)
    assert (first["low"], first["high"]) == pytest.approx((118, 16_800), rel=0.01)
    assert second["side"] == "actors"  # a factor of 2
    limits = [note["kind"] for note in given["notes"] if note["level"] == "first"]
    assert limits == ["bound_by_learners", "fewest_cores"]
    known = ["--actors", "1:900,8:6000", "--learners", "1:400,8:2000", "--cores", "8"]
    assert told(capsys, *known)["decides"] == []


def test_too_many_cores_are_refused_from_python_too():
    with pytest.raises(ProblemError, match="at most 512"):
        split(EVEN, cores=MOST_CORES + 1)
