"""What strangers ask: several equal devices, modes of any names, files with odd lines; and what they read then."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

import dse
from dse.__main__ import main
from dse.answers import mapping_text
from dse.answers.mapping_words import bound
from dse.mapping.question import find_mapping
from dse.solver.queues import Simulated
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
    """The first line and the file name every GPU that trains, not the first alone."""
    question = ["recommend", "--platform", four, "--workload", "pong_dqn", "--fix", "batch=32768"]
    assert main([*question, "--emit", "toml"]) == 0
    learner = tomllib.loads(capsys.readouterr().out)["learner"]
    assert learner["device"] == learner["together"][0]
    assert len(learner["together"]) == learner["devices"] > 1
    assert main(question) == 0
    *others, last = learner["together"]
    assert f"the learner on {', '.join(others)} and {last} together" in capsys.readouterr().out.partition("\n")[0]


def test_equal_devices_are_listed_once_for_a_tree(four, capsys):
    assert main(["recommend", "--platform", four, "--capacity", "1e6", "--batch", "256"]) == 0
    assert re.findall("best on .*:", capsys.readouterr().out) == ["best on each of gpu0, gpu1, gpu2 and gpu3:"]


def test_no_run_is_shown_above_its_bound():
    """A run of random times is above by chance; beside "at most" that reads as a mistake."""
    answer = find_mapping("u200", "hopper_ddpg", epsilon=0.0)
    assert answer.upper_bound
    lucky = dataclasses.replace(answer, simulated=(Simulated(1.07 * answer.hz, answer.hz, 1.2 * answer.hz, 1.0),))
    said = " ".join(bound(lucky))
    assert f"simulated: about {mapping_text.about(answer).removeprefix('at most about ')} with" in said


def test_to_decide_is_said_where_there_is_something_to_decide():
    """Without a tie it is the rate that another measurement makes surer."""
    tied = find_mapping("u200", "hopper_ddpg")
    assert (tied.ties or tied.others_tied) and tied.decide
    alone = dataclasses.replace(tied, ties=(), others_tied=0)
    for answer, words in ((tied, "to decide, "), (alone, f"to be surer, measure {alone.measure_next.number}: ")):
        assert re.findall(r"\n  (to (?:decide|be surer), )", mapping_text.text(answer)) == [
            words[: words.index(",") + 2]
        ]
        assert words in mapping_text.text(answer)


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


def test_no_more_digits_are_told_than_are_known(capsys):
    """A threefold guess has two digits, a distance too."""
    assert main(["explain", "--platform", "u200", "--workload", "hopper_ddpg", "--config", "learner=gpu"]) == 0
    told = capsys.readouterr().out.partition("\n\n")[0]
    assert re.search(r"~\d{2}0 us \(x3\)", told)
    assert not re.search(r"\d\.\d us", told)
