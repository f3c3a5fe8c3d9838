"""Tests that commands answer in their first line, in one sentence with a number rounded to what is known."""

import re

import pytest

from dse.__main__ import main
from dse.mapping.question import ask
from dse.tuning.learners import learner_scaling

SYSTEM = ["--platform", "u200", "--workload", "hopper_ddpg"]
PROBED = ["--platform", "results/d7dae63b89/platform.toml", "--workload", "hopper_ddpg"]
FIRST = [
    (["cores", *SYSTEM], r"Give 1 core to actors and \d+ cores to learners: about \d+ gradient steps a second, .*\."),
    (
        ["depth", *SYSTEM, "--spread", "0"],
        r"Sample 1 batch ahead: at most about 2,000 gradient steps a second, right .*",
    ),
    (
        ["learners", *SYSTEM, "--device", "gpu"],
        r"Stay with one learner: about 880 us a gradient step; \d learners .*\.",
    ),
    (
        ["fpga", "--network", "hopper", "--batch", "256"],
        r"Take a learner of 1 pipeline .* about 3,100 gradient steps .*",
    ),
    (
        ["platform", "estimate", "u200"],
        r"A gradient step of hopper_ddpg .* fastest on fpga: about 490 us, right within 2x",
    ),
    (["platform", "estimate", "u200", "--network", "hopper"], r"A gradient step of hopper .* about 54 us, modeled\."),
    (["platform", "list"], r"\d+ platforms to ask about by name, and this machine"),
    (["platform", "show", "u200"], r"u200; Host of .*: 73 numbers, \d+ datasheet, \d+ paper, \d+ assumed"),
    (["platform", "diff", "u200", "edge"], r"90 keys of u200 and edge differ:"),
    (["platform", "check", "dse/platforms/u200.toml"], r".*: fine, 73 numbers of cpu, gpu, fpga"),
]


@pytest.mark.parametrize(("command", "first"), FIRST, ids=[" ".join(command[:3]) for command, _ in FIRST])
def test_the_first_line_is_the_answer(capsys, command, first):
    assert main(command) == 0
    assert re.match(first, " ".join(capsys.readouterr().out.split()))


def test_a_second_learner_is_not_advised_against_what_was_measured(capsys):
    """Two learners took longer than one when they were timed, whatever the formulas say of averaging."""
    answer = learner_scaling(ask(*PROBED[1::2]), longest=10)
    ran, _ = answer.contradicted()
    assert ran.value > answer.single_seconds
    assert answer.choice[0] == 2
    assert main(["learners", *PROBED, "--longest-period", "10"]) == 0
    first = " ".join(capsys.readouterr().out.partition("hopper_ddpg")[0].split())
    assert first.startswith("Stay with one learner: about ")
    assert "when measured" in first


def test_what_an_estimate_does_not_check_is_said(capsys):
    for more in ([], ["--network", "hopper"]):
        assert main(["platform", "estimate", "u200", *more]) == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "Not checked here: whether records, tree and batches fit a device's memory, and that an FPGA" in text
        assert "{" not in text
