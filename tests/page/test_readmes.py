"""The READMEs: commands run as printed, what they show is what the records give, links resolve, nothing is missing."""

import contextlib
import csv
import importlib
import itertools
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
from benchmarks.topic import DIRECT
from benchmarks.topics import list_topics
from reports import readmes
from reports.frame import Data
from reports.page import write_cell
from tests.committed import DATA, ROOT
from tests.matrix import matrix
from tests.page_records import KEY, LIBRARIES, peers, write
from tests.system.test_advice import PARSERS, benchmark, parsed, parsers

PAPERS = "reports/claims/PAPERS.md"
PROSE = [*readmes.list_readmes(), *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", PAPERS))]
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
QUANTITY = re.compile(r"\d\s*(?:[nmu]s\b|%|x\b)|\d times ")
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
PACKAGES = ("impls", "dse", "benchmarks", "reports")
NAMED = re.compile(r"python -m (dse|benchmarks|impls(?:\.training)?|reports)(?![.\w])((?: [^ `\"';|\n<]+)*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
OTHERS = {"--walks", "--lower", "--broken"}  # of tools in tests/
RECORDED = "compare"  # the one command whose recorded output is shown: it measures
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
    kinds = (
        "dse explain",
        "dse what-if",
        "dse adapt",
        "dse learners",
        "--front",
        "--exclude",
        "list --export",
    )
    return not any(kind in command for kind in (*kinds, "impls.training train cartpole_dqn --", "benchmarks sweep"))


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
    """Also those that are not run here, or in the long tests alone."""
    for command in commands():
        first, *words = shlex.split(command.partition(" > ")[0])
        package = words[1] if (first, *words[:1]) == ("python", "-m") else ""
        if package == "benchmarks":
            benchmark(command, words[2:])
        elif package in PARSERS:
            parsed(command, importlib.import_module(PARSERS[package])._parser(), words[2:])


def test_every_command_and_option_that_a_text_names_is_there():
    known = {}
    for words, parser in parsers():
        known.setdefault(words, set()).update(parser._option_string_actions)
    prose = [path for path in (*PROSE, ROOT / "results/README.md") if path.name != "CHANGELOG.md"]
    code = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    wrong = []
    for path in (*prose, *code, ROOT / "Makefile"):
        text = readmes.BLOCK.sub("", path.read_text()) if path in prose else path.read_text()
        for package, words in NAMED.findall(text):
            asked = [package, *itertools.takewhile(re.compile("[a-z][a-z-]+").fullmatch, words.split()[:2])]
            command = next(one for one in (" ".join(asked[:count]) for count in (3, 2, 1)) if one in known)
            is_known = command.count(" ") or not asked[1:] or package not in ("dse", "benchmarks")
            wrong += [] if is_known else [(path, asked)]
            wrong += [(path, command, one) for one in OPTION.findall(words) if one not in known[command]]
        options = set().union(*known.values(), OTHERS) if path in prose else {}
        wrong += [(path, one) for one in re.findall(r"`(--[a-z][\w-]*)", text) if options and one not in options]
    assert not wrong, wrong


def test_commands_that_are_not_run_here_are_in_some_readme_and_say_when_they_last_were():
    assert set(slow()) <= set(commands())
    assert len(slow()) < len(commands())
    for command, row in slow().items():
        assert row["takes"], command
        assert re.fullmatch(r"(\d{4}-\d\d-\d\d [0-9a-f]{8})?", f"{row['day']} {row['commit']}".strip()), command


def test_a_changed_block_is_found_and_rewritten_and_the_rest_stays(tmp_path):
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


def test_every_output_is_generated_but_for_the_recorded_one():
    for path in readmes.list_readmes():
        outside = readmes.BLOCK.sub("", path.read_text())
        shown = [line for block in CONSOLE.findall(outside) for line in block.splitlines() if line.startswith("$ ")]
        assert all(f" {RECORDED} " in line for line in shown), path


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


@pytest.mark.parametrize("path", readmes.list_readmes(), ids=lambda path: path.parent.name)
def test_every_number_of_a_readme_is_of_a_record_or_no_figure(path):
    assert numbers_of_no_record(path.read_text()) == []


def test_numbers_that_readmes_may_have_are_there():
    texts = "\n".join(path.read_text() for path in readmes.list_readmes())
    assert [allowed for allowed in NO_FIGURES if not re.search(allowed, texts)] == []


def test_a_number_that_no_record_gives_is_found():
    assert len(numbers_of_no_record("It takes 12 us, 3 of 4 cells, 1.47x.")) == 4
    assert numbers_of_no_record("Since [Zhang2021]: `12 us`, 95 % sure.") == []


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = [link for link in LINK.findall(text) if not link.startswith("http")]
    missing = [link for link in links if not (path.parent / link).exists()]
    assert missing == []


def test_figures_are_those_that_are_shown():
    links = [link for path in readmes.list_readmes() for link in LINK.findall(path.read_text())]
    shown = {Path(link).name for link in links if "gallery/" in link and link.endswith(".svg")}
    there = {path.name for path in (ROOT / "reports" / "gallery").glob("*.svg")}
    assert shown == there == {f"{name}.svg" for name in readmes.FIGURES}


OFFERED = {
    "benchmarks": [*benchmarks_cli.HELP, *(f"run {topic}" for topic in set(list_topics()) - {*DIRECT})],
    "dse": dse_cli._COMMANDS,
}


@pytest.mark.parametrize(("folder", "names"), OFFERED.items())
def test_a_folders_readme_names_all_that_it_offers(folder, names):
    text = (ROOT / folder / "README.md").read_text()
    assert [name for name in names if f"`{name}" not in text] == []


def test_paper_names_are_those_of_the_references():
    cited = {name for path in PROSE for name in re.findall(r"\[([A-Z][A-Za-z]+\d{4}|StoneSachdev)\b", path.read_text())}
    listed = set(re.findall(r"\[(\w+)\]", (ROOT / "REFERENCES.md").read_text()))
    assert {"Zhang2021", "Zhang2022", "Zhang2023", "Hou2023", "StoneSachdev"} <= cited <= listed


def test_a_table_is_the_pages(tmp_path):
    table = readmes.write_table("slowdowns", Data(tmp_path, KEY, [*peers()]))
    head, _, first, *_ = table.splitlines()
    assert head.startswith("| name | ns at B = 128 |") and first.startswith("| numba | ")
    assert first.split(" | ")[1] == write_cell(2 * (LIBRARIES["numba"] + 1_000 / 128))


def test_a_tree_that_git_does_not_have_yet_asks_for_no_row(monkeypatch):
    monkeypatch.setattr(readmes, "names", lambda: ("flat", "numba", "of_a_stranger"))
    flat, numba = readmes.list_implementations().splitlines()[2:]
    assert flat.startswith("| `flat` | ") and flat.endswith(" |  |")
    assert numba.startswith("| `numba` | ") and numba.endswith(" | `propagate`, `layout`, `aligned`, `threads` |")


def test_the_version_is_one(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert project["tool"]["hatch"]["version"]["path"] == "impls/__init__.py"
    assert {impls.__version__, dse.__version__, citation["version"], newest[1]} == {impls.__version__}
    for cli in (dse_cli, benchmarks_cli):
        with pytest.raises(SystemExit) as ended:
            cli.main(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"fanout {impls.__version__}\n"


def test_the_citation_agrees_with_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["authors"] == project["authors"]
    assert citation["license"] == project["license"]
    assert citation["keywords"] == project["keywords"]
