"""The mutation runner on a toy tree, and the list of mutants against the code as it is."""

import ast
import functools
import json
import subprocess
from pathlib import Path

import pytest
from coverage import CoverageData

from tests import mutation

CODE = "def twice(x):\n    return 2 * x\n\n\ndef absolute(x):\n    return x if x > 0 else -x\n"
TESTS = """
import code_under_test as code

def test_twice(): assert code.twice(3) == 6
def test_zero(): assert code.twice(0) == 0
def test_fails(): assert False
"""
ENTRY = "{}\n    {} -> {}\n"
LIST = [
    ("is killed", "2 * x", "3 * x", "test_toy.py::test_twice"),
    ("lives", "2 * x", "4 * x", "test_toy.py::test_zero"),
    ("is stale", "5 * x", "6 * x", "test_toy.py::test_twice"),
    ("has a killer that always fails", "2 * x", "5 * x", "test_toy.py::test_fails"),
    ("has no such killer", "2 * x", "6 * x", "test_toy.py::test_none"),
    ("ends the interpreter", "2 * x", "__import__('os').abort() if x else 0", "test_toy.py::test_twice"),
]


@functools.cache
def mutants():
    return mutation.read()


@pytest.fixture
def toy(tmp_path):
    """A repository of a module, its tests, and mutants of every kind of outcome; the module is changed since."""
    (tmp_path / "code_under_test.py").write_text("def twice(x):\n    return x\n")
    (tmp_path / "gone.py").write_text("")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (tmp_path / mutation.FOLDER).mkdir(parents=True)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a commit"]):
        author = ["-c", "user.name=Tester", "-c", "user.email=tester@example.org"]
        subprocess.run(["git", *author, *command], cwd=tmp_path, check=True)
    (tmp_path / "code_under_test.py").write_text(CODE)
    (tmp_path / "test_toy.py").write_text(TESTS)
    (tmp_path / "gone.py").unlink()
    entries = [ENTRY.format(*entry[:3]) for entry in LIST]
    entries.append(ENTRY.format("is equivalent", "x > 0", "x >= 0") + "        -0 is 0\n")
    (tmp_path / mutation.FOLDER / "toy.txt").write_text("".join(["file: code_under_test.py\n\n", *entries]))
    killers = {f"toy: {name}": (killer,) for name, _, _, killer in LIST}
    killers["toy: is equivalent"] = ("test_toy.py::test_zero",)
    killers["toy: ends the interpreter"] = ("test_toy.py::test_zero", "test_toy.py::test_twice")
    mutation.write_killers(killers, tmp_path)
    return tmp_path


def test_each_mutant_of_a_toy_tree_gets_its_verdict(toy, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # it starts in less time
    told = []
    outcomes = mutation.run(mutation.read(toy), toy, workers=2, told=lambda outcome, count: told.append(count))
    assert [(outcome.mutant.name, outcome.verdict) for outcome in outcomes] == [
        ("is killed", "killed"),
        ("lives", "lives"),
        ("is stale", "stale"),
        ("has a killer that always fails", "broken"),
        ("has no such killer", "broken"),
        ("ends the interpreter", "killed"),
        ("is equivalent", "lives"),
    ]
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert outcomes[0].detail == "test_toy.py::test_twice"
    assert "occurs 0 times in code_under_test.py" in outcomes[2].detail
    assert "test_fails fails without it" in outcomes[3].detail
    assert "test_none does not run here" in outcomes[4].detail
    assert [outcome.is_right for outcome in outcomes] == [True, False, False, False, False, True, True]
    good, words = mutation.summary(outcomes)
    assert (good, words) == (False, "7 mutants: 2 killed, 2 lives, 1 stale, 2 broken; 4 not as the list says")
    assert mutation.summary([outcomes[0], outcomes[6]])[0]
    assert not mutation.summary([outcomes[6]] * (mutation.MOST_ALIVE + 1))[0]
    assert (toy / "code_under_test.py").read_text() == CODE


def test_killers_that_take_too_long_on_the_code_as_it_is_make_their_mutants_broken(toy, monkeypatch):
    def slow(copy, killers, *more, seconds=0.0):
        raise subprocess.TimeoutExpired("pytest", seconds)

    monkeypatch.setattr(mutation.Copy, "pytest", slow)
    outcomes = mutation.run(mutation.read(toy)[:2], toy, workers=1)
    assert [outcome.verdict for outcome in outcomes] == ["broken", "broken"]
    assert outcomes[0].detail == "test_toy.py::test_twice takes too long without it: 2 tests more than 200 s"


def test_faults_are_read_as_they_are_written():
    text = "# a comment\nfile: a/b.py\n\nwrong sum\n    x + 1 -> x\n"
    more = "two lines\n    c/d.py: if x:\N{RETURN SYMBOL}    y ->\n        no test sees it\n"
    first, second = mutation.entries(text + more)
    assert first == {"name": "wrong sum", "file": "a/b.py", "old": "x + 1", "new": "x"}
    assert second["file"] == "c/d.py"
    assert (second["old"], second["new"], second["excuse"]) == ("if x:\n    y", "", "no test sees it")


def test_a_killer_is_found_among_the_tests_that_enter_a_fault(toy, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(mutation, "ROOT", toy)
    tests = [f"test_toy.py::{name}" for name in ("test_fails", "test_zero", "test_twice")]
    monkeypatch.setattr(mutation, "list_candidates", lambda mutant, root: tests)
    outcomes = mutation.run(mutation.read(toy)[:3], toy, workers=1)
    mutation.find_killers(outcomes, toy)
    found = mutation.read_killers(toy)
    assert (found["toy: is killed"], found["toy: lives"]) == ((tests[2],), (tests[2],))


def test_what_could_not_be_judged_is_not_said_to_live(toy, monkeypatch, capsys):
    monkeypatch.setattr(mutation, "ROOT", toy)
    lives = mutation.run(mutation.read(toy)[1:2], toy, workers=1)
    for tests, said in (["test_toy.py::test_none"], "not judged: "), ([], "not judged: no test enters it"):
        monkeypatch.setattr(mutation, "list_candidates", lambda mutant, root, tests=tests: tests)
        mutation.find_killers(lives, toy)
        assert f"toy: lives: {said}" in capsys.readouterr().err
    assert mutation.main(["--find"]) == 2
    assert "tests.run --contexts" in capsys.readouterr().err


def test_tests_that_enter_a_line_are_listed_the_narrowest_first(tmp_path):
    (tmp_path / "code_under_test.py").write_text(CODE)
    data = CoverageData(str(tmp_path / ".coverage"))
    for name, lines in {"wide": {1, 2, 5, 6}, "narrow": {6}, "elsewhere": {1, 2}, "child": {5, 6}}.items():
        data.set_context(f"test_x.py::{name}" + " (call)" * (name == "child"))
        data.add_lines({str(tmp_path / "code_under_test.py"): lines})
    data.write()
    mutant = mutation.Mutant("toy", "sign", "code_under_test.py", "x if x > 0 else -x", "x")
    assert mutation.list_candidates(mutant, tmp_path) == [f"test_x.py::{name}" for name in ("narrow", "child", "wide")]


def test_an_unknown_area_and_a_bad_entry_are_one_sentence(toy, monkeypatch, capsys):
    monkeypatch.setattr(mutation, "ROOT", toy)
    assert mutation.main(["--only", "nowhere"]) == 2
    assert capsys.readouterr().err == "error: no area nowhere; there are toy\n"
    (toy / mutation.FOLDER / "bad.txt").write_text("it breaks\n    x = 1\n")
    assert mutation.main(["--only", "bad"]) == 2
    assert "bad.txt, 'x = 1': " in capsys.readouterr().err


def test_an_area_whose_module_is_missing_is_left_out_with_a_sentence(toy, monkeypatch, capsys):
    monkeypatch.setattr(mutation, "ROOT", toy)
    monkeypatch.setattr(mutation, "run", lambda mutants, *_: [mutation.Outcome(one, "killed") for one in mutants])
    path = toy / mutation.FOLDER / "toy.txt"
    path.write_text("needs: no_such_module\n" + path.read_text())
    assert mutation.main(["--only", "toy"]) == 1
    assert capsys.readouterr().err == "toy is left out: it needs no_such_module; make plugins installs it\n"
    path.write_text(path.read_text().replace("no_such_module", "json"))
    assert mutation.main(["--only", "toy", "--named", "is killed"]) == 0


def test_the_command_prints_json_and_its_exit_code_tells(toy, monkeypatch, capsys):
    monkeypatch.setattr(mutation, "ROOT", toy)
    monkeypatch.setattr(mutation, "run", lambda mutants, *_: [mutation.Outcome(one, "killed") for one in mutants])
    assert mutation.main(["--only", "toy", "--named", "is killed", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["good"], [one["verdict"] for one in shown["mutants"]]) == (True, ["killed"])
    assert mutation.main(["--named", "is equivalent"]) == 1
    assert "1 mutant: 1 killed; 1 not as the list says" in capsys.readouterr().out
    assert mutation.main(["--named", "no such name"]) == 1


def test_every_mutant_of_the_list_still_fits_the_code():
    assert [(mutant.name, reason) for mutant in mutants() if (reason := mutant.why_stale(mutation.ROOT))] == []
    for mutant in mutants():
        assert mutant.killer or mutant.excuse, mutant.key
        if mutant.file.endswith(".py"):
            ast.parse((mutation.ROOT / mutant.file).read_text().replace(mutant.old, mutant.new))
    names = [(mutant.area, mutant.name) for mutant in mutants()]
    assert len(names) == len(set(names))


CONFORMANCE = mutation.ROOT / "tests/plugin_conformance.py"  # whose tests a class of a host's file takes over


def test_every_killer_is_of_a_fault_and_a_test_that_is_there():
    assert mutation.read_killers().keys() == {mutant.key for mutant in mutants() if mutant.killer}
    for killer in {killer for mutant in mutants() for killer in mutant.killer}:
        file, *path = killer.partition("[")[0].split("::")
        assert path, killer
        nodes = _parsed(mutation.ROOT / file).body
        for name in path:
            here = [node for node in nodes if getattr(node, "name", None) == name]
            assert here, killer
            nodes = getattr(here[0], "body", [])
            if any(getattr(base, "id", None) == "Conformance" for base in getattr(here[0], "bases", [])):
                (shared,) = [node for node in _parsed(CONFORMANCE).body if getattr(node, "name", None) == "Conformance"]
                nodes = nodes + shared.body


def test_at_most_three_are_expected_to_live_each_for_a_reason():
    alive = [mutant for mutant in mutants() if mutant.excuse]
    assert len(alive) <= mutation.MOST_ALIVE
    assert all(len(mutant.excuse.split()) > 3 for mutant in alive)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
