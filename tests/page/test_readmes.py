"""The READMEs: commands run as printed, what they show is what the records give, links resolve, nothing is missing."""

import contextlib
import csv
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import benchmarks.__main__ as benchmarks_cli
import dse
import dse.__main__ as dse_cli
import impls
from reports import readmes
from reports.frame import Data
from reports.page import write_cell
from tests.committed import DATA, ROOT
from tests.matrix import matrix
from tests.page_records import KEY, LIBRARIES, peers, write
from tests.system.test_advice import PARSERS, benchmark, parsed

pytest.importorskip("pandas", reason="reports need pandas")

from impls import training
from impls.training.options import setup_of
from reports import page
from tests.unit.judging import ROWS as CLAIMS

PAPERS = "reports/claims/PAPERS.md"
PROSE = [*readmes.list_readmes(), *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", PAPERS))]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
NUMBER = re.compile(r"\d[\d.,]*")
NO_FIGURES = {
    r"\[\w+\d{4}\]": "the year of a paper",
    r"(Algorithm|equation) \d": "of a paper",
    r"Python 3\.11|Apache-2\.0": "versions",
    r"float(32|64)|TD3|A3C|d3rlpy|Baselines3": "names",
    r"\d+ minutes": "how long a command may take at most; slow_commands.csv says when it last ran",
    r"95 %": "the confidence of every interval",
    r"[Ee]xit code \d+|; [12]: |(?m:\| \d \|$)": "exit codes",
    r"priority 0|exactly 0\.0|\(1/N\)": "rules, whose limits are tested",
}
"""Numbers that READMEs may have outside of what records give, each with the reason."""
LONGEST_SECONDS = 60  # ten on an idle machine


def commands():
    """Each command of a `sh` block, without its comment."""
    lines = (line for path in PROSE for block in SHELL.findall(path.read_text()) for line in block.splitlines())
    return list(dict.fromkeys(line.partition("  #")[0].strip() for line in lines))


def slow():
    """Return the commands that are not run here, each with how long it takes and the day and commit of its last run."""
    with (DATA / "slow_commands.csv").open(newline="") as file:
        return {row["command"]: row for row in csv.DictReader(file)}


def is_brief(command):
    """Whether a command is run each time: one of each kind is."""
    kinds = "dse explain|dse what-if|dse adapt|dse learners|--front|--exclude|list --export|benchmarks sweep"
    return not re.search(f"{kinds}|impls.training train cartpole_dqn --", command)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the files that git knows, with a home of its own, and a way to run a command in it."""
    folder = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(folder), "PATH": path, "HOME": str(folder), "TMPDIR": str(folder)}

    def run(command):
        how = {"cwd": folder, "env": environment, "timeout": LONGEST_SECONDS}
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, **how)

    return run


@pytest.mark.parametrize("command", matrix([one for one in commands() if one not in slow()], brief=is_brief))
def test_a_command_runs_as_printed(checkout, command):
    done = checkout(command)
    assert done.returncode == 0, done.stderr[-2000:]
    _, writes, file = command.partition(" > ")
    assert checkout(f"cat {file}").stdout if writes else done.stdout


def test_every_command_is_one_that_its_parser_takes():
    """Also those that are not run here, which say when they last were, or in the long tests alone."""
    assert set(slow()) < set(commands()) and all(row["takes"] for row in slow().values())
    for command in commands():
        first, *words = shlex.split(command.partition(" > ")[0])
        package = words[1] if (first, *words[:1]) == ("python", "-m") else ""
        if package == "benchmarks":
            benchmark(command, words[2:])
        elif package in PARSERS:
            parsed(command, importlib.import_module(PARSERS[package])._parser(), words[2:])


def test_a_changed_block_is_rewritten_and_the_rest_stays(tmp_path):
    page = tmp_path / "README.md"
    made = "<!-- begin: output -->\n```console\n$ echo 2\n2\n```\n<!-- end: output -->\n\nAfter.\n"
    page.write_text("Before.\n\n" + made.replace("\n2\n```", "\n1\n```"))
    assert readmes.fill_blocks(page, Data(tmp_path / "results", "", [])) == "Before.\n\n" + made
    page.write_text(made.replace("echo 2", "exit 3"))
    with pytest.raises(RuntimeError, match="exit 3: exit code 3"):
        readmes.fill_blocks(page, Data(tmp_path / "results", "", []))


def test_the_check_says_what_differs_and_writes_nothing(tmp_path, monkeypatch, capsys):
    results, path = write([*peers(), *peers(machine="elsewhere")], tmp_path / "results"), tmp_path / "README.md"
    names = ("slowdowns", "slowdowns elsewhere")
    path.write_text(empty := "".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in names))
    stand_ins = {"ROOT": tmp_path, "MACHINE": KEY, "list_readmes": lambda: [path], "draw_figures": lambda data: {}}
    for name, own in {**stand_ins, "committed_results": lambda: contextlib.nullcontext(results)}.items():
        monkeypatch.setattr(readmes, name, own)
    assert readmes.main(["--check"]) == 1 and path.read_text() == empty
    assert "README.md differs" in capsys.readouterr().out
    assert readmes.main([]) == 0 == readmes.main(["--check"])
    assert re.findall(r"on machine ([\w-]+)", path.read_text()) == [KEY, "elsewhere"]


def numbers_of_no_record(text):
    """The numbers of a README outside of generated blocks, code and links, but for those that are no figures."""
    text = re.sub(r"^```.*?^```$", "", readmes.BLOCK.sub("", text), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`|<!--.*?-->", "", text))
    allowed = [found.span() for reason in NO_FIGURES for found in re.finditer(reason, text)]
    return [
        text[max(0, found.start() - 30) : found.end() + 20]
        for found in NUMBER.finditer(text)
        if not any(start <= found.start() < end for start, end in allowed)
    ]


def test_every_number_of_a_readme_is_of_a_record_or_no_figure():
    assert len(numbers_of_no_record("It takes 12 us, 3 of 4 cells, 1.47x. Since [Zhang2021]: `12 us`, 95 % sure.")) == 4
    assert {path: found for path in readmes.list_readmes() if (found := numbers_of_no_record(path.read_text()))} == {}


def test_links_resolve():
    for path in PROSE:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        links = [link for link in LINK.findall(text) if not link.startswith("http")]
        assert [link for link in links if not (path.parent / link).exists()] == [], path


def test_a_table_is_the_pages(tmp_path):
    table = readmes.write_table("slowdowns", Data(tmp_path, KEY, [*peers()]))
    head, _, first, *_ = table.splitlines()
    assert head.startswith("| name | ns at B = 128 |") and first.startswith("| numba | ")
    assert first.split(" | ")[1] == write_cell(2 * (LIBRARIES["numba"] + 1_000 / 128))


AGREED = ("authors", "license", "keywords")


def test_the_version_is_one_and_the_citation_agrees(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert project["tool"]["hatch"]["version"]["path"] == "impls/__init__.py"
    assert {impls.__version__, dse.__version__, citation["version"], newest[1]} == {impls.__version__}
    assert {name: citation[name] for name in AGREED} == {name: project["project"][name] for name in AGREED}
    for cli in (dse_cli, benchmarks_cli):
        with pytest.raises(SystemExit) as ended:
            cli.main(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"fanout {impls.__version__}\n"


# The index of the documents


ROW = re.compile(r"^\| ([KS]\w+(?:-\w+)?) \| ([^|]+) \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "reports" / "claims" / "PAPERS.md").read_text(encoding="utf-8"))
COMMAND = re.compile(r"`((?:python -m|make|asv) [^`]+)`")
JUDGED = re.compile("`([^`]+)`")


def test_rows_name_every_claim_and_none_is_silent():
    assert {name for *_, judged in ROWS for name in JUDGED.findall(judged)} == set(CLAIMS)
    for name, _, how, judged in ROWS:
        assert COMMAND.search(how) or JUDGED.search(judged) or "Out of reach: " in how, name


def test_a_command_of_a_row_can_be_given():
    for command in {row.measure for row in CLAIMS.values() if row.measure}:
        assert benchmark(f"python -m benchmarks {command}", shlex.split(command)), command
    for command in {each for _, _, how, _ in ROWS for each in COMMAND.findall(how)}:
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


def _list_workloads(given):
    """The shipped workloads that a command names."""
    named = getattr(given, "workload", None) or ()
    return {named} - {"list"} if isinstance(named, str) else set(named)
