"""The index of the documents: each row once, its commands can be given, and it names every claim and no other."""

import importlib
import re
import shlex

import pytest

pytest.importorskip("pandas", reason="reports need pandas")

from impls import training
from impls.training.options import setup_of
from reports import page
from tests.committed import ROOT
from tests.system.test_advice import PARSERS, benchmark, parsed
from tests.unit.judging import ROWS as CLAIMS

ROW = re.compile(r"^\| ([KS]\w+(?:-\w+)?) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "reports" / "claims" / "PAPERS.md").read_text(encoding="utf-8"))
KINDS = {"K": 7, "S0-M": 18, "S0-E": 9, "S1-M": 9, "S1-E": 4, "S2-M": 8, "S2-E": 6, "S3-M": 27, "S3-E": 8}
KINDS |= {"S4-M": 11, "S4-E": 7}
FUTURE = {"S1-F", "S4-F"}
FIGURES = {"S0": 12, "S1": 4, "S2": 8, "S3": 14}  # of the documents that number them throughout
COMMAND = re.compile(r"`((?:python -m|make|asv) [^`]+)`")
NAMED = re.compile("`([^`]+)`")


def test_a_row_of_the_five_documents_is_there_once():
    names = [name for name, *_ in ROWS]
    asked = {f"{kind}{number}" for kind, most in KINDS.items() for number in range(1, most + 1)} | FUTURE
    assert len(set(names)) == len(names)
    assert {name for name in names if "-X" not in name} == asked


def test_every_figure_of_the_documents_has_a_row():
    for document, most in FIGURES.items():
        said = " ".join(content for name, content, *_ in ROWS if name.startswith(document))
        said = re.sub(r"(\d+) to (\d+)", lambda ends: ", ".join(map(str, range(int(ends[1]), int(ends[2]) + 1))), said)
        figures = re.findall(r"Figs?\. (\d[\w.]*(?:(?:, | and |, and )\d[\w.]*)*)", said)
        assert set(re.findall(r"\d+", " ".join(figures))) >= set(map(str, range(1, most + 1))), document


def test_no_row_is_silent():
    said = [bool(COMMAND.search(how) or NAMED.search(judged) or "Out of reach: " in how) for _, _, how, judged in ROWS]
    assert [row[0] for row, is_said in zip(ROWS, said, strict=True) if not is_said] == []


def test_rows_name_every_claim_and_no_other():
    named = {name for *_, judged in ROWS for name in NAMED.findall(judged)}
    assert named == set(CLAIMS)


@pytest.mark.parametrize("command", sorted({each for _, _, how, _ in ROWS for each in COMMAND.findall(how)}))
def test_a_command_of_a_row_can_be_given(command):
    first, *words = shlex.split(command)
    package, words = words[words[0] == "-m"], words[2:]
    if first in ("make", "asv"):
        assert first == "asv" or re.search(f"^{package}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif package == "benchmarks":
        assert all(training.load(name) for name in _list_workloads(benchmark(command, words)))
    elif package in PARSERS:
        given = parsed(command, importlib.import_module(PARSERS[package])._parser(), words)
        name = {"data": getattr(given, "only", ""), "figure": getattr(given, "name", "")}.get((*words, "")[0], "")
        assert package != "reports" or not name or name in {**page.list_figures(), **page.list_tables()}
        for workload in map(training.load, _list_workloads(given)):
            assert package != "impls.training" or setup_of(workload, given)
    else:
        path = words[-1] if package == "pytest" else f"{package.replace('.', '/')}.py"
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("command", sorted({row.measure for row in CLAIMS.values() if row.measure}))
def test_a_command_that_measures_a_claim_can_be_given(command):
    assert benchmark(f"python -m benchmarks {command}", shlex.split(command))


def _list_workloads(given):
    """The shipped workloads that a command names."""
    named = getattr(given, "workload", None) or ()
    return {named} - {"list"} if isinstance(named, str) else set(named)
