"""The tools of the tests themselves: faults and their killers, the budget and skips."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from coverage import CoverageData

from tests import budget, mutation, plain
from tests.budget import Counted
from tests.committed import ROOT
from tests.run import PYTEST
from tests.skips import EXPECTED, REMEDY, is_expected

MOST_CHARACTERS = 60  # of a test's name

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
    for name in (mutation.FOLDER, "tests/data/kept"):
        (tmp_path / name).mkdir(parents=True)
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


def test_faults_are_read_as_they_are_written():
    text = "# a comment\nfile: a/b.py\n\nwrong sum\n    x + 1 -> x\n"
    more = "two lines\n    c/d.py: if x:\N{RETURN SYMBOL}    y ->\n        no test sees it\n"
    first, second = mutation.entries(text + more)
    assert first == {"name": "wrong sum", "file": "a/b.py", "old": "x + 1", "new": "x"}
    assert second["file"] == "c/d.py"
    assert (second["old"], second["new"], second["excuse"]) == ("if x:\n    y", "", "no test sees it")


def test_a_killer_is_found_among_tests_that_enter_a_fault(toy, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(mutation, "ROOT", toy)
    tests = [f"test_toy.py::{name}" for name in ("test_fails", "test_zero", "test_twice")]
    monkeypatch.setattr(mutation, "list_candidates", lambda mutant, root: tests)
    outcomes = mutation.run(mutation.read(toy)[:3], toy, workers=1)
    mutation.find_killers(outcomes, toy)
    found = mutation.read_killers(toy)
    assert (found["toy: is killed"], found["toy: lives"]) == ((tests[2],), (tests[2],))


def test_a_fault_that_no_test_enters_is_not_judged(toy, monkeypatch, capsys):
    monkeypatch.setattr(mutation, "ROOT", toy)
    lives = mutation.run(mutation.read(toy)[1:2], toy, workers=1)
    for tests, said in (["test_toy.py::test_none"], "not judged: "), ([], "not judged: no test enters it"):
        monkeypatch.setattr(mutation, "list_candidates", lambda mutant, root, tests=tests: tests)
        mutation.find_killers(lives, toy)
        assert f"toy: lives: {said}" in capsys.readouterr().err
    assert mutation.main(["--find"]) == 2
    assert "tests.run --contexts" in capsys.readouterr().err


def test_the_narrowest_tests_of_a_line_come_first(tmp_path):
    (tmp_path / "code_under_test.py").write_text(CODE)
    data = CoverageData(str(tmp_path / ".coverage"))
    for name, lines in {"wide": {1, 2, 5, 6}, "narrow": {6}, "elsewhere": {1, 2}, "child": {5, 6}}.items():
        data.set_context(f"test_x.py::{name}" + " (call)" * (name == "child"))
        data.add_lines({str(tmp_path / "code_under_test.py"): lines})
    data.write()
    mutant = mutation.Mutant("toy", "sign", "code_under_test.py", "x if x > 0 else -x", "x")
    assert mutation.list_candidates(mutant, tmp_path) == [f"test_x.py::{name}" for name in ("narrow", "child", "wide")]


def test_every_mutant_of_the_list_still_fits_the_code():
    assert [(mutant.name, reason) for mutant in mutants() if (reason := mutant.why_stale(mutation.ROOT))] == []
    for mutant in mutants():
        assert mutant.killer or mutant.excuse, mutant.key
        if mutant.file.endswith(".py"):
            ast.parse((mutation.ROOT / mutant.file).read_text().replace(mutant.old, mutant.new))
    names = [(mutant.area, mutant.name) for mutant in mutants()]
    assert len(names) == len(set(names))


CONFORMANCE = mutation.ROOT / "tests/plugin_conformance.py"  # whose tests a class of a host's file takes over


def test_every_killer_is_a_test_that_is_there():
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


def test_at_most_three_faults_live_each_for_a_reason():
    alive = [mutant for mutant in mutants() if mutant.excuse]
    assert len(alive) <= mutation.MOST_ALIVE
    assert all(len(mutant.excuse.split()) > 3 for mutant in alive)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_test_names_are_short():
    functions = re.compile(r"^ *def (test_\w+)", re.MULTILINE)
    names = {name for path in (ROOT / "tests").rglob("*.py") for name in functions.findall(path.read_text("utf-8"))}
    assert [name for name in sorted(names) if len(name) > MOST_CHARACTERS] == []


SOURCE = '''"""A module.

Two paragraphs.
"""

LIMIT = """four
lines
of
text"""


class Public:  # a comment beside code
    """A class."""

    size: int
    """An attribute."""

    # a comment alone
    def method(self): ...

    def _hidden(self): ...


def _helper():
    def inner(): ...
'''


def test_blanks_comments_and_docstrings_are_no_code():
    counted = budget.count("impls/new.py", SOURCE)
    assert (counted.code, counted.files, counted.names) == (10, 1, 2)
    assert (counted.docstrings, counted.lines) == (6, 25)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("reports/layout/look.css", "a {\n\n}\n", 2),
        ("reports/page.html.j2", "<p>\n", 1),
        ("tests/mutants/trees.txt", "# faults\n\noff by one\n", 2),
        ("tests/mutants/trees.md", "a fault\n", 1),
        ("dse/platforms/u200.toml", "[cpu]\n", 1),
        ("tests/hidden.json", "[" + 240 * "1" + "]", 3),
        ("tests/packed.json.gz", bytes(range(256)).decode(errors="surrogateescape"), 3),
    ],
)
def test_other_files_count_by_their_lines_or_bytes(name, text, code):
    assert budget.is_counted(name)
    assert budget.count(name, text).code == code


@pytest.mark.parametrize("name", ["reports/gallery/a.svg", "tests/budget.toml", "tests/data/a.json", "dse/README.md"])
def test_records_prose_and_the_budget_are_not_counted(name):
    assert not budget.is_counted(name)


def test_what_is_above_the_budget_is_listed():
    there = {"folders": {"impls": [2, 1, 0], "impls/new": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 2]}}
    limits = {"folders": {"impls": [1, 1, 0]}, "all": {"options": 4}, "walks": {"a": [9, 1]}}
    names = [line.split(",")[0] for line in budget.excesses(there, limits)]
    assert names == ["impls: 2 code lines", "impls/new: 1 code lines", "impls/new: 1 files", "a: 2"]


UNREADABLE = """
def of_run(one):
    'By a law.'
for it, [each, x] in []: parser.add_argument(help='of the leaves')
"""


def test_a_new_unreadable_name_is_found_where_it_stands():
    before = {"impls/a.py": "class told:\n    size: int\n"}
    findings = plain.find_all({"impls/moved.py": before["impls/a.py"], "impls/b.py": UNREADABLE})
    assert plain.count(findings) == {"impls": [2, 3, 1, 1]}
    limits = {"impls": [1, 3, 1, 1]}
    new = plain.list_excess(findings, limits, plain.find_all(before))
    assert new == ["impls/b.py:2: name: of_run in def of_run(one):"]
    (fault,) = budget.excesses({"plain": plain.count(findings)}, {"plain": limits})
    assert fault == "impls: 2 findings of kind 'name', 1 above the budget of 1"


def test_dense_lines_and_missing_docstrings_are_named():
    fine = {"dse": Counted(10, 1, 1, 5, 20, 100, 10), "impls/x": Counted(90, 1, 1, 3, 20, 120, 10)}
    guards = {"docstrings_percent": 12, "tokens_a_code_line": 12, "denser": {}}
    assert budget.breaches(fine, guards) == []
    dense = fine | {"impls/x": Counted(90, 1, 1, 2, 20, 121, 10)}
    assert [line.split(":")[0] for line in budget.breaches(dense, guards)] == ["impls", "impls/x"]
    assert len(budget.breaches(dense, guards | {"denser": {"impls/x": 12.1}})) == 1


def test_a_fault_may_go_with_its_code_alone():
    fault = "off by one\n    impls/a.py: n + 1 -> n\n"
    before = {"tests/mutants/trees.txt": fault, "impls/a.py": "m = n + 1\n"}
    assert budget.lost_faults(before, before) == []
    assert budget.lost_faults(before, {"impls/moved/a.py": "m = n + 1\n"}) == ["off by one (tests/mutants/trees.txt)"]
    assert budget.lost_faults(before, {"impls/a.py": "m = n + 2\n"}) == []


def test_numbers_are_only_lowered():
    text = (
        'start = "abc" # a commit\n[folders]\n"impls" = [5, 2, 3] # why\n"dse" = [5, 2, 3]\n'
        '[all]\n"options" = 7\n[plain]\n"impls" = [9, 9, 9, 9]\n'
    )
    there = {"folders": {"impls": [4, 3, 3]}, "all": {"options": 9}, "plain": {"impls": [9, 8, 9, 9]}}
    less = text.replace('"impls" = [5, 2, 3] # why', '"impls" = [4, 2, 3] # why')
    assert budget.lowered(text, there) == less.replace("[9, 9, 9, 9]", "[9, 8, 9, 9]")


def test_a_walk_counts_functions_of_this_project():
    functions, modules = budget.entered("python -m dse platform list")
    assert 5 < modules <= functions < 200
    with pytest.raises(RuntimeError, match="exit code"):
        budget.entered("python -m dse.nothing")


SKIPPING = """
import pytest

def test_passes(): pass

@pytest.mark.skip(reason="there is no CUDA device")
def test_of_a_device(): pass
"""
UNEXPECTED = """
import pytest
missing = pytest.importorskip("no_such_library")

def test_of_a_library(): pass
"""
CONFTEST = """
from tests.skips import StrictSkips

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(StrictSkips())
"""


def run_pytest(folder, *words):
    """Run pytest in a folder, with no plugin that is not named; returns its exit code and output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    more = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout


def test_an_unexpected_skip_fails_the_run_and_is_named(tmp_path):
    files = {"conftest.py": CONFTEST, "test_expected.py": SKIPPING, "pytest.ini": "[pytest]\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, shown = run_pytest(tmp_path)
    assert (code, "unexpected" in shown) == (0, False), shown
    (tmp_path / "test_other.py").write_text(UNEXPECTED)
    code, shown = run_pytest(tmp_path, "-p", "xdist", "-n", "1")
    assert code == 1, shown
    assert "test_other.py: could not import 'no_such_library'" in shown
    assert REMEDY in shown and "test_of_a_device" not in shown


def test_few_skips_are_expected():
    assert len(EXPECTED) <= 8
    for reason in ("Implementation 'cupy' needs the module 'cupy', which is not installed.", "this system has no fork"):
        assert is_expected(reason)
    for reason in ("could not import 'torch'", "learners need the extra `train`", "cuda-bindings is not installed", ""):
        assert not is_expected(reason)


def test_every_run_of_the_tests_is_strict():
    assert "--strict-skips" in PYTEST
    text = "".join((ROOT / name).read_text() for name in ("Makefile", ".ci/run"))
    commands = [line for line in text.splitlines() if "-m pytest" in line and "--benchmark-only" not in line]
    assert len(commands) >= 2
    assert all("--strict-skips" in line for line in commands)
