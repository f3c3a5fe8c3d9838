"""What was kept of answers, options, settings, first steps, cells and READMEs is what there is now."""

import pytest

from dse.__main__ import _COMMANDS
from tests import golden
from tests.nursery import run_python

KEPT = ("tests.golden", "tests.options_net", "tests.settings", "tests.curves", "tests.cells", "reports.readmes --check")


@pytest.mark.slow
@pytest.mark.parametrize("command", KEPT)
def test_nothing_that_was_kept_has_changed(command):
    run_python("-m", *command.split())


@pytest.fixture(scope="module")
def kept():
    return golden.read_kept()


def differences(asked, kept):
    """Ask some questions, and list the facts that differ."""
    now = golden.ask(asked)
    return [line for question in asked for line in golden.compare(kept[question], now[question], question)]


def test_some_answers_have_the_facts_that_were_kept(kept):
    assert differences([*golden.draw_questions()[::12], golden.EXAMPLE], kept) == []


def test_each_bad_question_is_refused_as_it_was(kept):
    """A sentence names a value, a bound or a remedy, and the exit code is that of a refusal."""
    refused = golden.read_kept(golden.REFUSED)
    assert differences([*refused], kept) == []
    assert {facts["code"] for facts in refused.values()} == {1, 2}
    for facts in refused.values():
        assert facts.get("repeats") or facts.get(".sentence") or "notes" in facts or ".0.line" in facts


def test_kept_are_the_questions_that_the_seed_draws(kept):
    drawn = golden.draw_questions()
    assert {*kept} == {*golden.list_questions()} >= {*drawn}
    assert len(drawn) == 200
    assert all(facts["code"] in (0, 1, 2) for facts in kept.values())
    for question in drawn[-20:]:  # misfits: an error with names, or budgets that are short
        facts = kept[question]
        is_named = any(fact for key, fact in facts.items() if key.endswith(".sentence"))
        assert facts["code"] and (is_named or "does_not_fit" in facts["notes"])


def test_every_command_has_a_file_of_answers(kept):
    """A run is kept where it is refused alone, for what it measures is another each time."""
    names = {path.stem.partition("-")[0] if "recommend" in path.stem else path.stem for path in golden.FOLDER.glob("*")}
    assert names == {*_COMMANDS, "refused"}


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"value": {"rate": 1.0 + 1e-10}}, 0),
        ({"value": {"rate": 1.0 + 1e-8}}, 1),
        ({"value": {}}, 1),
        ({"choice": {"device": "gpu"}}, 1),
        ({"remedy": {"sentence": ["--platform"]}}, 1),
        ({"code": 1, "bottleneck": {"busy": "cpu"}}, 2),
    ],
)
def test_each_changed_fact_is_listed(change, seen):
    kept = {"choice": {"device": "cpu"}, "value": {"rate": 1.0}, "remedy": {"sentence": ["--free", "--platform"]}}
    assert len(list(golden.compare(kept | {"code": 0}, kept | {"code": 0} | change, "question"))) == seen
