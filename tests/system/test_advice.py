"""Every command that an answer, an error or the page advises is one that can be pasted: it parses, and it works.

Commands are found in what is really printed, by the pattern that keeps them in one line there (``terminal.COMMAND``),
so that new advice is tried as well. Those that take no time are run; of the others every flag and value is parsed, and
every workload, platform and make target must be there.
"""

import argparse
import html
import importlib
import json
import re
import shlex
import sys
import tomllib

import pytest

import benchmarks.__main__ as bench
from benchmarks import compare
from benchmarks.topic import DIRECT, parser_for
from benchmarks.topics import list_topics, load_topic
from dse import platforms
from dse.__main__ import main as dse_main
from dse.answers.mapping_answer import explained_answer, mapping_answer
from dse.answers.printer import write
from dse.mapping.question import find_mapping
from dse.records import read_file
from impls.terminal import COMMAND
from impls.training import load
from impls.training.__main__ import main as training_main
from impls.training.settings import path_of
from reports import __main__ as reports
from reports.page import list_figures
from tests.committed import RESULTS, ROOT
from tests.matrix import matrix
from tests.solver_cases import explain_mapping

MACHINE = "d7dae63b89"
HERE = RESULTS / MACHINE / "platform.toml"
INSTALL = re.compile(r"pip install '\.\[(\w+)\]'")
PARSERS = {package: f"{package}.__main__" for package in ("dse", "impls", "impls.cluster", "impls.training", "reports")}
QUICK = ("platform list", "platform show", "platform check", "recommend", "explain", "fpga", "cores")


def advised(said):
    """The commands in a text, in its order, and the extras that it advises to install."""
    return [found[0] for found in COMMAND.finditer(said)], INSTALL.findall(said)


def try_out(command):
    """AssertionError where a command, pasted into a shell here, would be refused."""
    first, *words = shlex.split(command.partition(" > ")[0])  # a shell takes the rest
    if first == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words
        assert set(words) <= set(targets), command
        return
    assert (first, words[0]) == ("python", "-m"), command
    package, words = words[1], words[2:]
    if package == "benchmarks":
        given = benchmark(command, words)
    else:
        assert package in PARSERS, command
        given = parsed(command, importlib.import_module(PARSERS[package])._parser(), words)
    if "--help" in words or getattr(given, "command", None) == "init":  # which writes a file
        return
    if package == "impls.training" and given.command in ("list", "keys", "show"):
        assert training_main(words) == 0, command
    elif workload := getattr(given, "workload", None):
        for name in (workload,) if isinstance(workload, str) else workload:
            load(name)
    if (name := getattr(given, "platform", None)) and name != platforms.files.HERE:
        platforms.load(name)
    if package == "dse" and " ".join(words).startswith(QUICK) and "this" not in words:
        assert dse_main(words) == 0, command


def benchmark(command, words):
    """The parsed words of a command of benchmarks."""
    if words and words[0] in bench.ELSEWHERE:
        return parsed(command, *of_benchmarks(words))
    return parsed(command, bench._parser(), words)


def of_benchmarks(words):
    """The parser of a command that has its own, and the words that it takes."""
    if words[0] == "compare":
        return compare._parser(), words[1:]
    name, rest = bench.find_topic(words)
    return parser_for(load_topic(name)), rest


def parsers():
    """Every parser of a command of ours, by the words that name it."""
    found = [("benchmarks", bench._parser())]
    found += [(package, importlib.import_module(module)._parser()) for package, module in PARSERS.items()]
    commands = ["compare", *DIRECT, *(f"run {name}" for name in list_topics() if name not in DIRECT)]
    found += [(f"benchmarks {command}", of_benchmarks(command.split())[0]) for command in commands]
    found += [("benchmarks run", bench._topic_parser())]
    for words, parser in found:
        yield words, parser
        commands = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
        found += [(f"{words} {name}", one) for choices in commands for name, one in choices.items()]


def parsed(command, parser, words):
    try:
        return parser.parse_args(words)
    except SystemExit as left:
        assert "--help" in words and left.code == 0, f"its own parser refuses: {command}"
        return None


def check(said, least=1):
    """Try all that a text advises."""
    commands, extras = advised(said)
    assert len(commands) + len(extras) >= least, said
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known), said
    for command in dict.fromkeys(commands):
        try_out(command)
    return commands


def said_by(capsys, main, *words):
    """What a command prints, on whichever stream, wherever it leaves; but for argparse's summary of its flags."""
    capsys.readouterr()  # of commands that were tried out before
    try:
        main([str(word) for word in words])
    except SystemExit:
        pass
    captured = capsys.readouterr()
    return re.sub(r"usage: (?:.+\n)+", "", captured.out + captured.err)


@pytest.fixture
def mine(tmp_path):
    """A workload file of a user, under a name that a shell would cut in two."""
    path = tmp_path / "my grid.toml"
    path.write_text(path_of("cartpole_dqn").read_text().replace('"cartpole_dqn"', '"grid"'))
    return path


def test_the_pattern_finds_commands_and_ends_where_they_do():
    said = "measure them: python -m benchmarks sweep --dtypes a,b, or ask (make peers), or: make peers. Or: make gpu"
    assert advised(said)[0] == ["python -m benchmarks sweep --dtypes a,b", "make peers", "make gpu"]
    quoted = "python -m impls.training train 'my grid.toml' --x 1"
    assert advised(f"run 'python -m dse platform show this', or: {quoted}; ")[0] == [
        "python -m dse platform show this",
        quoted,
    ]
    for wrong in ("python -m benchmarks profile", "python -m dse fpga", "make sandwich", "pip install '.[sandwich]'"):
        with pytest.raises(AssertionError):
            check(f"try: {wrong}")


def check_all(answer):
    """Try all that an answer advises, on screen and as data; the commands that measure its evidence."""
    hows = [note.values["how"] for note in answer.notes if note.values.get("how")]
    measures = [note.values["command"] for note in answer.notes if note.values.get("command")]
    shown = "\n".join(write(answer, is_verbose=True))
    check("\n".join([*write(answer), *answer.paste, *hows, *measures]), least=0)
    assert all(line in shown for line in (*hows, *answer.paste)), "a command is cut by the end of a line"
    return measures


@pytest.mark.parametrize(
    "words",
    [
        f"--capacity 1e6 --machine {MACHINE}",
        "--capacity 1e6 --machine 0123456789",
        f"--capacity 1e6 --dtype float16 --machine {MACHINE}",
        f"--capacity 1e6 --threads 64 --machine {MACHINE}",
        f"--capacity 1e12 --machine {MACHINE}",
        "--capacity 1e6 --no-race --results {empty}",
    ],
)
def test_answers_about_a_tree(capsys, tmp_path, words):
    check(said_by(capsys, dse_main, "recommend", "--batch", "256", *words.format(empty=tmp_path).split()), least=0)


@pytest.mark.parametrize(
    ("workload", "platform"),
    matrix(
        ["cartpole_dqn", "hopper_ddpg", "pong_dqn"],
        ["u200", "h200", "edge", str(HERE)],
        brief=lambda name, where: name == "cartpole_dqn" or (name == "pong_dqn" and where not in ("u200", "edge")),
    ),
)
def test_answers_about_a_mapping(platform, workload):
    check_all(mapping_answer(find_mapping(platform, workload)))


@pytest.mark.slow
def test_advice_has_the_users_file_as_the_user_gave_it(capsys, mine, tmp_path):
    others = ("sweep", "fpga --help", "--example")
    for platform, free in ((str(HERE), []), (str(HERE), ["batch"]), ("h200", []), ("u200", ["presampled"])):
        for command in check_all(mapping_answer(find_mapping(platform, str(mine), free=free))):
            assert str(mine) in shlex.split(command) or any(word in command for word in others)
    asked = explain_mapping("h200", str(mine), {"learner_threads": "1"})
    check_all(explained_answer(asked))
    check("\n".join(one.command for one in asked.asked.sources))


@pytest.mark.parametrize("command", ["cores", "depth"])
def test_answers_about_numbers_of_cores_and_batches(capsys, mine, monkeypatch, tmp_path, command):
    monkeypatch.setenv("COLUMNS", "300")  # in which no command of the help is cut
    ask = [command, "--workload"]
    check(said_by(capsys, dse_main, command, "--help"))
    check(said_by(capsys, dse_main, *ask, "cartpole_dqn", "--machine", MACHINE), least=0)
    told = json.loads(said_by(capsys, dse_main, *ask, "hopper_ddpg", "--platform", "h200", "--json"))
    check("\n".join(note.get("command", "") for note in told["notes"]))
    check(said_by(capsys, dse_main, *ask, mine, "--platform", "edge"), least=0)
    for where in (("--results", tmp_path), ("--machine", "0123456789")):
        check(said_by(capsys, dse_main, *ask, "cartpole_dqn", *where))


def test_refusals_about_mappings_and_platforms(capsys, tmp_path, monkeypatch):
    ask = ["recommend", "--workload", "cartpole_dqn", "--platform"]
    check(said_by(capsys, dse_main, *ask, "this", "--results", tmp_path))
    check(said_by(capsys, dse_main, "platform", "list", "--results", tmp_path))
    here = tmp_path / str(platforms.fingerprint()["key"])
    here.mkdir()
    (here / "platform.toml").write_text(HERE.read_text().replace(MACHINE, "0123456789"))
    check(said_by(capsys, dse_main, *ask, "this", "--results", tmp_path))
    check(said_by(capsys, dse_main, *ask, here / "platform.toml", "--results", tmp_path))
    check(said_by(capsys, dse_main, *ask, HERE, "--batch", "64"), least=0)


@pytest.mark.parametrize(
    "words",
    [
        *("", "--help", "list --results {empty}", "profile --workload none", "profile --help", "share --help"),
        "share --workload cartpole_dqn --contestants tianshou --python no",
        *("peers --python no", "peers --help", "gpu --help"),
    ],
)
def test_benchmarks(capsys, tmp_path, words):
    check(said_by(capsys, bench.main, *words.format(empty=tmp_path).split()), least=0)


def test_training(capsys, monkeypatch, mine):
    check(said_by(capsys, training_main, "--help"), least=4)
    monkeypatch.setitem(sys.modules, "torch", None)
    said = said_by(capsys, training_main, "train", str(mine), "--learner", "torch")
    assert "pip install" in said
    check(said)


@pytest.mark.slow
def test_the_page_and_what_is_left_out_of_it(capsys, tmp_path):
    """Of records that suffice for no figure, so that nearly all are left out; and of a folder without any."""
    found = read_file(RESULTS / MACHINE / "quick.jsonl")
    kept = [record.to_json() for record in found if record.primitive == "memory"][:2]
    folder = tmp_path / "results" / MACHINE
    check(said_by(capsys, reports.main, "--results", folder.parent, "--machine", MACHINE))
    folder.mkdir(parents=True)
    (folder / "quick.jsonl").write_text("\n".join(kept) + "\n")
    place = ["--results", folder.parent, "--machine", MACHINE, "--out", tmp_path / "out"]
    check(said_by(capsys, reports.main, *place), least=len(list_figures()) // 2)
    page = (tmp_path / "out" / "index.html").read_text()
    check(re.sub(r"<[^>]*>", "\n", html.unescape(re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))), least=20)
