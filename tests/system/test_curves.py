"""Training begins with the weights, and takes the first steps, that were kept (``tests/curves.py``)."""

import json

from tests import curves

PART = ("pendulum_sac", "dense")


def test_learners_begin_with_the_kept_weights():
    kept = json.loads(curves.FILE.read_text())
    assert len(kept["weights"]) == len(kept["curves"]) > 20
    assert not list(curves.list_changes(kept, curves.hash_all(["weights"])))


def test_a_short_curve_is_the_kept_one():
    kept = json.loads(curves.FILE.read_text())
    is_comparable = kept["made with"] == curves.describe_machine()
    expected = kept["curves"][" ".join(PART)] if is_comparable else curves.hash_curve(*PART)
    assert curves.hash_curve(*PART) == expected


def test_changed_and_missing_hashes_are_listed():
    before, after = {"weights": {"a": "1", "b": "2", "c": "3"}}, {"weights": {"a": "1", "b": "3", "d": "4"}}
    assert list(curves.list_changes(before, after)) == ["weights of b", "weights of c", "weights of d"]


def test_elsewhere_curves_are_not_compared(monkeypatch, capsys):
    monkeypatch.setattr(curves, "describe_machine", lambda: {"processor": "other"})
    monkeypatch.setattr(
        curves, "hash_all", lambda kinds: {kind: json.loads(curves.FILE.read_text())[kind] for kind in kinds}
    )
    assert curves.main([]) == 0
    assert "--print" in capsys.readouterr().out
