"""Answers on record held against what was measured after them: figures by hand, and those of what is shipped."""

import hashlib
import json

import pytest

from dse.__main__ import main
from dse.answers.validate import ANSWERS, answer_row
from dse.records import RecordError
from dse.validation import answered
from tests.committed import COMMITTED


def row(told, measured, side="trees", **more):
    """A candidate that was measured; its interval is from 0.8 to 1.25 of what was told."""
    given = {"told": told, "low": 0.8 * told, "high": 1.25 * told, "basis": "measured"} if told else {"reason": "none"}
    found = {"measured": measured, "status": "ok"} if measured else {"failure": "it stood", "status": "failed"}
    return {"side": side} | given | found | more


def test_of_trees_the_first_is_the_choice_and_less_is_better():
    asked = [
        [row(1.0, 1.1, contestant="flat"), row(1.2, 1.0, contestant="numba", is_tie=True), row(2.0, 3.0)],
        [row(1.0, 1.0, contestant="flat"), row(1.2, 2.0, contestant="numba"), row(2.0, None)],
        [row(1.0, 1.5, contestant="flat"), row(1.2, 1.2, contestant="numba"), row(2.0, 1.0)],
    ]
    found = answered.figures(asked, is_rate=False)
    assert (found["questions"], found["candidates"], found["without_measured"]) == ((3, 3), 9, 1)
    assert (found["inside"], found["inside_of_choices"]) == ((4, 8), (2, 3))
    assert found["inside_by"] == {"flat": (2, 3), "measured": (4, 8), "numba": (2, 3)}
    assert (found["median_regret"], found["worst_regret"]) == (pytest.approx(0.1), pytest.approx(0.5))
    assert (found["best_is_choice"], found["best_is_choice_or_tie"]) == ((1, 3), (2, 3))


def test_of_rates_more_is_better_and_what_was_recommended_is_the_choice():
    asked = [
        [row(100.0, 100.0, arrangement="serial"), row(200.0, 250.0, is_recommended=True), row(None, 500.0)],
        [row(300.0, 100.0, arrangement="serial", is_recommended=True), row(100.0, 110.0)],
        [row(100.0, None, is_recommended=True), row(100.0, 100.0)],
    ]
    found = answered.figures(asked, is_rate=True)
    # Told over measured: 100/100, 200/250, 300/100, 100/110, 100/100.
    assert (found["median_error"], found["worst_error"]) == (pytest.approx(1 / 11), pytest.approx(2.0))
    assert (found["inside"], found["inside_of_choices"], found["too_high"]) == ((4, 5), (1, 2), (1, 5))
    assert (found["without_told"], found["without_measured"]) == (1, 1)
    # 250 beside 500, which nobody predicted; then 100 beside 110; of the third no regret is known.
    assert (found["median_regret"], found["worst_regret"]) == pytest.approx((0.55, 1.0))
    assert found["best_is_choice"] == (0, 3)


def test_controls_and_what_waits_do_not_count_and_one_candidate_has_no_regret():
    waits = {name: value for name, value in row(1.0, 1.0).items() if name != "status"}
    found = answered.figures([[row(1.0, 9.0, is_control=True)], [row(1.0, 2.0)], [waits]], is_rate=True)
    assert (found["questions"], found["worst_error"]) == ((1, 2), pytest.approx(0.5))
    assert "median_regret" not in found
    assert answered.figures([[waits]], is_rate=True) == {}
    assert answered.figures([], is_rate=True) == {}


@pytest.mark.parametrize(
    ("head", "table"),
    [("", "side,question\n"), ("[1]", "side,question\n"), ("{}", "side\ntrees\n"), ("{}", "side,question\ntrees,{\n")],
)
def test_a_file_that_holds_no_answers_is_refused(tmp_path, head, table):
    path = tmp_path / "here" / "questions-a.csv"
    path.parent.mkdir()
    path.with_suffix(".json").write_text(head)
    path.write_text(table)
    with pytest.raises(RecordError, match=r"questions-a.csv: no table of answers"):
        answered.sides(tmp_path)


@pytest.fixture(scope="module")
def shipped():
    return {(one.path.stem.partition("-")[2], one.name): one for one in answered.sides(COMMITTED)}


@pytest.mark.parametrize(
    ("file", "side", "figures"),
    [
        ("b07aa8ec", "trees", {"inside": (346, 555), "median_regret": 0.022, "best_is_choice_or_tie": (17, 24)}),
        ("542d7393", "trees", {"inside": (943, 950), "worst_regret": 0.255, "best_is_choice": (7, 30)}),
        ("seed1555233615", "trees", {"inside_of_choices": (39, 44)}),
        ("fde1cd63", "loops", {"inside": (0, 6), "median_error": 0.266}),
        ("f3940387", "loops", {"inside": (7, 8), "worst_error": 0.459}),
        ("f3940387", "arrangements", {"median_error": 0.217, "too_high": (32, 48), "best_is_choice": (2, 8)}),
        ("27477f7b", "arrangements", {"inside": (46, 48), "median_regret": 0.046, "worst_regret": 0.496}),
    ],
)
def test_what_is_shipped_has_the_figures_that_were_published_of_it(shipped, file, side, figures):
    found = shipped[file, side].figures
    for name, value in figures.items():
        assert found[name] == (value if isinstance(value, tuple) else pytest.approx(value, abs=5e-4))


def test_nobody_chose_the_questions_that_are_shipped_and_they_were_answered_before_measuring(shipped):
    """But for those whose line says otherwise."""
    assert {one.stem for one in shipped.values() if one.doubt} == {
        *("8fb834d50a/seed1", "8fb834d50a/seed1555233615", "8fb834d50a/0b1fdbb9"),
        *("d7dae63b89/b07aa8ec", "d7dae63b89/fde1cd63"),
    }
    told = [one for one in shipped.values() if not one.doubt]
    assert len(told) == 13
    for one in told:
        seed = hashlib.sha256(f"{one.head['commit']} {one.head['number']}".encode()).digest()[:4]
        assert one.head["seed"] == int.from_bytes(seed)
        assert all(one.head["utc"] < row["utc"] for rows in one.questions for row in rows if "utc" in row)


def test_a_line_has_the_figures_of_a_side(shipped):
    told = dict(zip(ANSWERS, answer_row(shipped["27477f7b", "arrangements"]), strict=True))
    assert (told["by code of"], told["intervals hold"], told["off"]) == (
        "8fb834d50a/27477f7b",
        "46 of 48 (96 %)",
        "13.9 %",
    )
    assert (told["regret"], told["best chosen"], told["but"]) == ("4.6 %", "3 of 8 (38 %)", "")
    assert answer_row(shipped["seed1", "trees"])[-4:] == ("", "", "", "seed chosen by hand")


def test_the_command_prints_every_side_also_one_that_nobody_measured(tmp_path, capsys):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "questions-a.json").write_text('{"seed_from": "commit"}')
    table = "side,question,told,low,high,basis,measured,status\n"
    table += "trees,0,1.0,0.5,2.0,measured,1.25,ok\nloops,0,1.0,0.5,2.0,measured,,\n"
    (tmp_path / "here" / "questions-a.csv").write_text(table)
    assert main(["validate", "--results", str(tmp_path)]) == 0
    _, trees, loops = (line.split() for line in capsys.readouterr().out.splitlines())
    assert trees[:7] == ["here/a", "trees", "1", "1", "of", "1", "(100"]
    assert loops == ["here/a", "loops", "0"]
    assert main(["validate", "--results", str(tmp_path), "--json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["side"], first["median_error"]) == ("trees", pytest.approx(0.2))
