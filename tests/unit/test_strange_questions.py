"""What strangers ask: several equal devices, modes of any names, files with odd lines; and what they read then."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest

import dse
from dse.__main__ import main
from dse.answers.mapping_answer import mapping_answer
from dse.mapping.question import find_mapping
from dse.times.own_file import TimesError, read_entries
from tests.solver_cases import learners

H200 = Path(dse.__file__).parent / "platforms" / "h200.toml"


@pytest.fixture
def four(tmp_path):
    """The file of a machine like h200 with four of its GPUs."""
    head, gpu, link = re.split(r"(?=\[\[device\]\]\nname = \"gpu\"|\[\[link\]\])", H200.read_text())
    names = [f"gpu{n}" for n in range(4)]
    devices = [gpu.replace('"gpu"', f'"{name}"', 1) for name in names]
    links = [link.replace('to = "gpu"', f'to = "{name}"') for name in names]
    path = tmp_path / "four.toml"
    path.write_text("\n".join([head.replace('"h200"', '"four"'), *devices, *links]))
    return str(path)


def test_learners_that_share_a_batch_are_on_all_their_devices(four, capsys):
    """The answer and the file name every GPU that trains, not the first alone."""
    question = ["recommend", "--platform", four, "--workload", "pong_dqn", "--fix", "batch=32768"]
    assert main([*question, "--emit", "toml"]) == 0
    learner = tomllib.loads(capsys.readouterr().out)["learner"]
    assert learner["device"] == learner["together"][0]
    assert len(learner["together"]) == learner["devices"] > 1
    assert main([*question, "--json"]) == 0
    where = json.loads(capsys.readouterr().out)["choice"]["where"]
    assert where[" and ".join(learner["together"])] == ["learner"]


def test_no_tree_of_equal_devices_is_listed_twice(four, capsys):
    assert main(["recommend", "--platform", four, "--capacity", "1e6", "--batch", "256", "--json"]) == 0
    others = json.loads(capsys.readouterr().out)["others"]
    trees = [(row["device"], row["implementation"], row["fanout"], row["threads"]) for row in others]
    assert len(trees) == len(set(trees)) > 4


def test_to_decide_is_said_where_there_is_something_to_decide():
    """Without a tie it is the rate that another measurement makes surer."""
    tied = find_mapping("u200", "pong_dqn")
    alone = dataclasses.replace(tied, made=dataclasses.replace(tied.made, ties=(), others_tied=0))
    for answer, how in ((tied, tied.decide), (alone, tied.measure_next)):
        (note,) = (note for note in mapping_answer(answer).notes if note.level == "measure")
        assert (note.kind, note.values["evidence"]) == ("measure_there", how.number)
        assert note.values["how"] == how.command


def test_modes_have_any_names():
    slow, fast = (learners(("1 thread", hz, 1.1, 1.0, "T")) for hz in (10.0, 100.0))
    answer = dse.solve({"my mode": slow, "my other mode": fast})
    assert answer.answer.mode == "my other mode"


@pytest.mark.parametrize("asked", ["x", None, {"": None}, {5: learners(("1 thread", 10.0, 1.1, 1.0, "T"))}])
def test_what_is_no_problem_is_said(asked):
    with pytest.raises(dse.ProblemError, match="not "):
        dse.solve(asked)
    with pytest.raises(dse.ProblemError, match="a mapping, not None"):
        dse.Problem({}, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: states no time; name the columns"),
        ("part,device,batch,us\n", ":1: states no time; name the columns"),
        ('part,device,note,us\nlearner,cpu,"two\nlines",5\n', ':2: a text in "" must end in its line'),
        ('part,device,us\nlearner,cpu,5\nlearner,"gpu,6\n', ':3: a text in "" must end in its line'),
        ("part,device,us\nlearner,cpu,nan\n", ":2: us must be a number from"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_column(tmp_path, text, said):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(TimesError, match=re.escape(said)):
        read_entries(path)


def test_inches_need_no_quotes_around_them(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text('part,device,note,us\nlearner,cpu,a 5" drive,5\nlearner,gpu,"of ""X"", p. 3",6\n')
    assert [one.note for one in read_entries(path)] == ['a 5" drive', 'of "X", p. 3']
