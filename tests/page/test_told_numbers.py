"""Every number that an answer prints twice has one value: questions drawn by a seed, asked for text and for JSON."""

import copy
import dataclasses
import re

import pytest

from tests import told_numbers
from tests.matrix import slow
from tests.told_numbers import ask, faults, questions

HERE = "recommend --platform this --machine 8fb834d50a --workload"
SERIAL = f"{HERE} hopper_ddpg --fix arrangement=serial"
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


def with_text(pattern, instead):
    """An answer whose texts say otherwise."""

    def changed(told):
        text, verbose = (re.sub(pattern, instead, one, count=1) for one in (told.text, told.verbose))
        assert (text, verbose) != (told.text, told.verbose)
        return dataclasses.replace(told, text=text, verbose=verbose)

    return changed


def times(key, factor=1.1, part=None):
    def change(plain):
        (plain[part] if part else plain)[key] *= factor

    return with_json(change)


@pytest.mark.parametrize(
    ("command", "change", "kind"),
    [
        (SERIAL, times("value"), "headline against JSON"),
        (SERIAL, times("hz"), "charges against rate"),
        (SERIAL, times("low", 0.8), "rate line against JSON"),
        (SERIAL, times("distance", 1.5), "distance"),
        (SERIAL, with_text(r"(learner +cpu .*?) [\d,]+ us", r"\1 123 us"), "table against JSON"),
        (SERIAL, with_text(r"tree [\d,.]+ us", "tree 1,234 us"), "breakdown against JSON"),
        (SERIAL, with_text(r"a step of [\d,]+ us", "a step of 1,234 us"), "breakdown against rate"),
        (SERIAL, with_text(r"by dense: about [\d,]+", "by dense: about 12"), "by implementation against JSON"),
        (SERIAL, with_text(r"1 of 2 cores", "2 of 2 cores"), "cores"),
        (TREE, with_text(r"[\d.]+ ns per element", "123 ns per element"), "headline against JSON"),
        ("cores --platform u200 --workload hopper_ddpg", times("update_interval", 2, "question"), "feed against table"),
        ("depth --platform u200 --workload hopper_ddpg", times("value", 1.1, "choice"), "headline against JSON"),
        ("learners --platform u200 --workload hopper_ddpg", times("single_hz", 1.1, "choice"),
         "second learner against rates"),
        ("fpga --network hopper --batch 64", times("cycles", 1.1, "choice"), "sum of the learner's cycles"),
        ("explain --platform u200 --workload hopper_ddpg --config learner=gpu", with_text(r"loses \d+%", "loses 99%"),
         "explanation against table"),
    ],
)  # fmt: skip
def test_a_number_that_says_otherwise_is_found(command, change, kind):
    assert kind not in {fault.kind for fault in faults(command)}
    assert kind in {fault.kind for fault in faults(command, change)}


def test_a_rate_outside_of_what_is_shown_is_found_where_it_is_called_within(monkeypatch):
    monkeypatch.setattr("dse.answers.run._is_inside", lambda answer, hz: answer.low <= hz <= answer.high)
    assert "verdict against what is shown" in {
        fault.kind for fault in told_numbers.run_faults(3_850.0, 5_760.0, 5_771.0)
    }
