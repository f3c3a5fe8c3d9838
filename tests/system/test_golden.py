"""The facts of answers are those that were kept (``tests/golden.py``)."""

import json

import pytest

from tests import golden


def test_some_answers_have_the_facts_that_were_kept():
    asked, kept = golden.draw_questions()[::12], json.loads(golden.FILE.read_text())
    now = golden.ask(asked)
    assert not [line for question in asked for line in golden.compare(kept[question], now[question], question)]


def test_kept_are_the_questions_that_the_seed_draws():
    kept = json.loads(golden.FILE.read_text())
    assert list(kept) == golden.draw_questions()
    assert len(kept) == 200
    assert all(facts["code"] in (0, 1, 2) for facts in kept.values())
    for facts in list(kept.values())[-20:]:  # of misfits: an error with names, or budgets that are short
        is_named = any(fact for key, fact in facts.items() if key.endswith(".sentence"))
        assert facts["code"] and (is_named or "does_not_fit" in facts["notes"])


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


def test_a_sentence_is_reduced_to_names_and_numbers():
    found = "no platform 'u20'; there are edge, u200, or ask with: python -m dse platform probe --anyway, in 1,000 s"
    assert golden.list_names(found) == ["--anyway", "1000", "dse platform probe", "edge", "u20", "u200"]
