"""Every number that an answer has twice has one value: questions drawn by a seed, asked for text and for JSON."""

import copy
import dataclasses
import re

import pytest

from tests import told_numbers
from tests.matrix import slow
from tests.told_numbers import ask, faults, questions

HERE = "recommend --platform this --machine 8fb834d50a --workload"
SERIAL = f"{HERE} hopper_ddpg --fix arrangement=serial"
SYSTEM = "--platform u200 --workload hopper_ddpg"
TREE = "recommend --capacity 200000 --batch 128 --platform h200"


def found(seed, count):
    """What has two values in the answers to drawn questions."""
    answered = [command for command in questions(seed, count) if ask(command).code == 0]
    assert len(answered) > 2 * count / 3
    return [str(fault) for command in answered for fault in faults(command)]


@pytest.mark.parametrize(("seed", "count"), [(1, 13), slow(2, 60), slow(3, 60)])
def test_no_number_has_two_values(seed, count):
    assert found(seed, count) == []


def test_a_run_is_called_within_what_is_shown():
    assert [*told_numbers.verdicts(2, 60)] == []


def with_json(change):
    """An answer whose JSON says otherwise."""

    def changed(told):
        plain = copy.deepcopy(told.plain)
        change(plain)
        return dataclasses.replace(told, plain=plain)

    return changed


def with_text(shown, instead):
    """An answer whose text says otherwise."""
    return lambda told: dataclasses.replace(told, text=re.sub(shown, instead, told.text, count=1))


def times(place, factor=1.1):
    """An answer whose JSON has another number at a place, such as "choice.value"."""

    def change(plain):
        *path, last = (int(key) if key.isdigit() else key for key in place.split("."))
        for key in path:
            plain = plain[key]
        plain[last] *= factor

    return with_json(change)


@pytest.mark.parametrize(
    ("command", "change", "kind"),
    [
        (SERIAL, times("choice.hz"), "charges against rate"),
        (SERIAL, times("choice.distance", 1.5), "distance"),
        (SERIAL, times("choice.value", 1.5), "above its bound"),
        (SERIAL, times("rows.3.value"), "row against breakdown"),
        (SERIAL, with_text(r"about [\d,]+", "about 123,456,000"), "text against JSON"),
        (TREE, times("others.0.pace"), "pace of an alternative"),
        (TREE, times("choice.each_seconds"), "time of an element"),
        (f"cores {SYSTEM}", times("question.update_interval", 2), "feed against rows"),
        (f"depth {SYSTEM}", times("choice.most_hz"), "rate against times"),
        (f"learners {SYSTEM}", times("choice.seconds"), "choice against itself"),
        (f"adapt {SYSTEM}", times("choice.value", 9), "loss"),
        ("fpga --network hopper --batch 64", times("rows.0.cycles"), "sum of the learner's cycles"),
        (f"explain {SYSTEM} --config learner=gpu", times("choice.loss"), "loss"),
        (f"explain {SYSTEM} --config learner=gpu", times("choice.value"), "against recommend"),
        (f"what-if {SYSTEM} --set fpga.clock_mhz=400", times("choice.before"), "change"),
    ],
)
def test_a_number_that_says_otherwise_is_found(command, change, kind):
    assert kind not in {fault.kind for fault in faults(command)}
    assert kind in {fault.kind for fault in faults(command, change)}


def test_a_verdict_against_what_is_shown_is_found(monkeypatch):
    monkeypatch.setattr(told_numbers, "is_inside", lambda answer, hz: answer.low <= hz <= answer.high)
    assert [*told_numbers.verdicts(2, 300)]
