"""Answers written down, measured, and compared: from hand-written records, and once with a real sweep of little."""

import dataclasses
import json

import pytest

from benchmarks import __main__ as benchmarks
from dse import __main__ as cli
from dse.estimate import Estimate, Evidence
from dse.recommend import answer
from dse.records import RecordError, Writer
from dse.times.tree_times import Question, Table
from dse.times.tree_variants import Configuration, TreeTime
from dse.validation import trees
from tests.test_recommend import records, write


def drawn(folder, seed=3, count=8):
    words = ["validate", "--draw", str(count), "--seed", str(seed), "--results", str(folder), "--machine", "here"]
    return cli.main(words), folder / "here" / f"answers-{seed}.json"


def measure(path, factors):
    """Records as if every configuration had taken so many times what was told, in turn."""
    answers = json.loads(path.read_text())["answers"]
    example = next(records())
    with Writer(path.with_suffix(".jsonl")) as writer:
        for number, one in enumerate(answers):
            question, chosen = one["question"], one["choice"]["configuration"]
            told = one["choice"]["seconds"] * factors[number % len(factors)]
            call = told / (1 + question["updates_per_sample"])
            times = dict.fromkeys(("median_seconds", "low_seconds", "high_seconds"), call)
            for op in ("draw", "update"):
                shape = {name: question[name] for name in ("capacity", "batch", "dtype", "distribution")}
                writer.append(
                    dataclasses.replace(
                        example,
                        primitive="answer",
                        op=op,
                        contestant=chosen["contestant"],
                        fanout=chosen["fanout"],
                        threads=chosen["threads"],
                        options=dict(chosen["options"]),
                        **shape,
                        **times,
                    )
                )


def test_questions_cover_the_range_and_a_seed_draws_the_same_again():
    asked = trees.questions(300, 7, 2)
    assert asked == trees.questions(300, 7, 2) != trees.questions(300, 8, 2)
    assert [one.batch for one in asked[:3]] == [1, 3, 31]
    assert {one.threads for one in asked} == {1, 2}
    assert min(one.capacity for one in asked) < 1_500
    assert max(one.capacity for one in asked) > 30_000_000
    assert all(1_000 <= one.capacity <= 50_000_000 and 1 <= one.batch <= 10_000 for one in asked)
    assert sum(one.capacity < 223_607 for one in asked) == pytest.approx(150, abs=40)  # half of them, log-uniformly


def test_answers_are_written_down_once_and_compared_with_what_was_measured(tmp_path, capsys):
    write(tmp_path, records())
    code, path = drawn(tmp_path)
    assert code == 0
    assert f"python -m benchmarks answers {path}" in capsys.readouterr().out
    table = Table(records())
    for one in json.loads(path.read_text())["answers"]:
        question = Question(**one["question"])
        assert one["choice"]["seconds"] == pytest.approx(answer(table, question).choice.seconds)
    assert drawn(tmp_path)[0] == 2
    assert "were answered before" in capsys.readouterr().err
    assert cli.main(["validate", str(path)]) == 2
    assert f"measure with: python -m benchmarks answers {path}" in capsys.readouterr().err

    measure(path, [1.0, 1.2, 0.25])
    found = trees.held(path)
    assert [round(one.factor, 6) for one in found] == [1.0, 1.2, 4.0, 1.0, 1.2, 4.0, 1.0, 1.2]
    assert [one.covered for one in found][:1] == [True]
    choices = [one["choice"] for one in json.loads(path.read_text())["answers"]]
    assert [one.inside for one in found] == [choice["distance"] == 0 for choice in choices]
    assert {one.inside for one in found} == {True, False}
    assert cli.main(["validate", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["inside"]["answers"] + told["outside"]["answers"] == 8
    assert told["inside"]["within"] + told["outside"]["within"] == 6
    assert max(told[side]["worst_factor"] or 0 for side in ("inside", "outside")) == pytest.approx(4.0)
    assert told["not_measured"] == 0
    assert cli.main(["validate", str(path)]) == 0
    assert "within a factor of" in capsys.readouterr().out


def test_answers_without_a_time_are_counted_and_never_dropped_in_silence(tmp_path, capsys):
    write(tmp_path, records())
    _, path = drawn(tmp_path)
    measure(path, [1.0])
    lines = path.with_suffix(".jsonl").read_text().splitlines(keepends=True)
    path.with_suffix(".jsonl").write_text("".join(lines[2:]))  # both cells of the first answer
    capsys.readouterr()
    assert cli.main(["validate", str(path)]) == 0
    assert "1 answer of the file not measured" in capsys.readouterr().out
    assert cli.main(["validate", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_measured"] == 1


def test_what_was_measured_of_answers_is_never_rested_on(tmp_path):
    write(tmp_path, records())
    _, path = drawn(tmp_path)
    before = [answer(Table(records()), one).choice for one in trees.questions(8, 3, 2)]
    measure(path, [0.001])
    code, again = drawn(tmp_path, seed=4)
    assert code == 0
    asked = [Question(**one["question"]) for one in json.loads(again.read_text())["answers"]]
    told = [one["choice"]["seconds"] for one in json.loads(again.read_text())["answers"]]
    assert told == pytest.approx([answer(Table(records()), one).choice.seconds for one in asked])
    assert before == [answer(Table(records()), one).choice for one in trees.questions(8, 3, 2)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["validate"], "name a file of answers, or draw questions"),
        (["validate", "--draw", "40"], "and a --seed"),
        (["validate", "--draw", "0", "--seed", "1"], "from 1 up"),
        (["validate", "nowhere.json"], "no answers that were measured"),
    ],
)
def test_what_cannot_be_validated_is_one_sentence(words, sentence, capsys):
    assert cli.main(words) == 2
    shown = capsys.readouterr().err
    assert sentence in shown
    assert shown.count("\n") == 1


def test_the_benchmark_measures_exactly_what_was_answered(tmp_path, capsys):
    write(tmp_path, [r for r in records(threads=(1,)) if r.contestant == "numba"])
    table = Table([r for r in records(threads=(1,)) if r.contestant == "numba"])
    path = tmp_path / "here" / "answers-1.json"
    trees.write_answers(table, [Question(2_000, 3), Question(5_000, 40, 0.5)], 1, path)
    assert benchmarks.main(["answers", str(path), "--budget", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["by_status"].keys() <= {"ok", "unstable"}
    found = trees.held(path)
    assert [(one.question.capacity, one.question.batch) for one in found] == [(2_000, 3), (5_000, 40)]
    assert all(one.measured_seconds > 0 for one in found)
    assert benchmarks.main(["answers", str(path), "--budget", "0.01", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["found_done"] == 4  # it goes on where it stopped


def test_a_file_that_holds_no_answers_is_refused(tmp_path, capsys):
    for text in ("", "{}", '{"answers": [{}]}'):
        (tmp_path / "a.json").write_text(text)
        assert benchmarks.main(["answers", str(tmp_path / "a.json")]) == 2
        assert "write one with: python -m dse validate --draw" in capsys.readouterr().err
    with pytest.raises(RecordError, match="no answers that were measured"):
        trees.held(tmp_path / "a.json")


def test_a_choice_is_read_as_it_was_written():
    table = Table(records())
    for question in trees.questions(8, 3, 2):
        choice = answer(table, question).choice
        plain = json.loads(json.dumps(choice.to_dict()))
        assert TreeTime.from_dict(plain) == choice
        assert TreeTime.from_dict(plain).sigma == plain["sigma"]
        del plain["own_sigma"]  # as in older files
        assert TreeTime.from_dict(plain).time == choice.time


def test_an_interval_covers_its_ends():
    seconds = Estimate(1.0, 0.5, 2.0, Evidence("", "measured"))
    one = trees.Held(Question(1, 1), TreeTime(Configuration("numba", 16, 1), seconds, 0.1), 1.0)
    covered = [dataclasses.replace(one, measured_seconds=seconds).covered for seconds in (0.4, 0.5, 2.0, 2.1)]
    assert covered == [False, True, True, False]
