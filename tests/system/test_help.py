"""Tests of ``--help`` of every command: its question comes first, and last an example that works."""

import argparse
import re
import shlex

import pytest

from dse.__main__ import _parser, main
from tests.matrix import matrix


def parsers(parser):
    """Yield every parser, by its command line."""
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


PARSERS = dict(parsers(_parser()))
WRITES = ("python -m dse platform probe",)  # a file, so its example is only parsed


def example(parser):
    return shlex.split(parser.format_help().splitlines()[-1])


@pytest.mark.parametrize("name", PARSERS)
def test_help_begins_with_the_question_and_ends_with_an_example(name):
    question = PARSERS[name].description.splitlines()[0]
    assert re.match(r"Ask which |(Which|What|Why|How|Is) .*\?", question)
    words = example(PARSERS[name])
    assert words[:3] == ["python", "-m", "dse"]
    assert " ".join(words).startswith(name)
    assert _parser().parse_args(words[3:])
    assert all(len(line) <= 120 for line in PARSERS[name].description.splitlines())


@pytest.mark.parametrize("name", matrix(sorted(PARSERS.keys() - WRITES), brief=lambda name: not name.endswith(" run")))
def test_the_example_is_answered(capsys, name):
    assert main(example(PARSERS[name])[3:]) == 0
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err == ""
