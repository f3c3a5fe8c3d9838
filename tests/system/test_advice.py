"""Every command that an answer, an error or the page advises is one that can be pasted: it parses, and it works.

Commands are found in what is really printed, by the pattern that keeps them in one line there (``terminal.COMMAND``),
so that new advice is tried as well. Those that take no time are run; of the others every flag and value is parsed, and
every workload, platform and make target must be there.
"""

import argparse
import importlib
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
from dse.answers.printer import write
from impls.terminal import COMMAND
from impls.training import load
from impls.training.__main__ import main as training_main
from impls.training.settings import path_of
from tests.committed import RESULTS, ROOT

MACHINE = "d7dae63b89"
HERE = RESULTS / MACHINE / "platform.toml"
INSTALL = re.compile(r"pip install '\.\[(\w+)\]'")
PARSERS = {package: f"{package}.__main__" for package in ("dse", "impls", "impls.cluster", "impls.training", "reports")}
QUICK = ("platform list", "platform show", "platform check", "recommend", "explain", "what-if", "fpga", "cores")


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
    for words, parser in found:  # which grows by the commands of a command
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
    quoted = "python -m impls.training train 'my grid.toml' --x 1"
    said = f"measure: python -m benchmarks sweep --dtypes a,b, or ask (make it), or: make peers. Or: {quoted}; "
    assert advised(said)[0] == ["python -m benchmarks sweep --dtypes a,b", "make peers", quoted]
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


SAID = [
    (dse_main, f"recommend --batch 256 --capacity 1e6 --machine {MACHINE}"),
    (dse_main, "recommend --batch 256 --capacity 1e6 --machine 0123456789"),
    (dse_main, f"recommend --batch 256 --capacity 1e6 --dtype float16 --machine {MACHINE}"),
    (dse_main, f"recommend --batch 256 --capacity 1e12 --machine {MACHINE}"),
    (dse_main, "recommend --batch 256 --capacity 1e6 --no-race --results {empty}"),
    (dse_main, "recommend --workload cartpole_dqn --platform this --results {empty}"),
    (dse_main, "platform list --results {empty}"),
    *((dse_main, f"{command} --workload cartpole_dqn --results {{empty}}") for command in ("cores", "depth")),
    *((bench.main, words) for words in ("", "--help", "list --results {empty}", "profile --workload none")),
    (bench.main, "share --workload cartpole_dqn --contestants tianshou --python no"),
    *((bench.main, words) for words in ("peers --python no", "peers --help", "gpu --help", "share --help")),
    (training_main, "--help"),
]


def test_what_commands_advise_can_be_pasted(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # in which no command of the help is cut
    found = 0
    for main, words in SAID:
        found += len(check(said_by(capsys, main, *words.format(empty=tmp_path).split()), least=0))
    for words in (words for words, _ in parsers() if words.startswith("dse ")):
        *_, example = advised(said_by(capsys, dse_main, *words.split()[1:], "--help"))[0]
        assert example.startswith(f"python -m {words}")
        try_out(example)
    assert found > 25


def test_training_without_torch(capsys, monkeypatch, mine):
    monkeypatch.setitem(sys.modules, "torch", None)
    said = said_by(capsys, training_main, "train", str(mine), "--learner", "torch")
    assert "pip install" in said
    check(said)
