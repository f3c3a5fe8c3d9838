"""Counts what the project holds and what its commands enter, and holds it to ``tests/budget.toml``.

    python -m tests.budget            what there is, beside what may be; exit code 1 where it is more
    python -m tests.budget --walks    the functions and modules that seven commands enter as well; half a minute
    python -m tests.budget --lower    write the budget lower wherever there is less

A code line is neither blank, comment nor docstring. Of files that are not Python (settings, faults, styles, kernels)
every line that is not blank counts, and long lines count by their bytes. Prose and records are not counted.
"""

import argparse
import ast
import functools
import gc
import importlib
import inspect
import io
import json
import re
import runpy
import subprocess
import sys
import tarfile
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast
from unittest import mock

from tests import plain
from tests.mutation import entries

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/budget.toml"
PACKAGES = ("benchmarks", "dse", "impls", "reports")
WHERE = (*PACKAGES, "tests")
PYTHON = (".py", ".pyi")
UNCOUNTED = re.compile(r"reports/gallery/|tests/(data/|budget\.toml$)|(?!tests/mutants/).*\.md$")
NOT_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PROGRAMS = {
    **{
        program: f"{program}.__main__"
        for program in ("dse", "benchmarks", "reports", "impls.cluster", "impls.training")
    },
    "reports.readmes": "reports.readmes",
}
COLUMNS = ("code lines", "files", "names")
LABELS = {"folders": COLUMNS, "plain": [f"findings of kind {kind!r}" for kind in plain.KINDS]}
Files = Mapping[str, str]
"""The text of each file, by its path from the top."""
Tables = Mapping[str, Mapping[str, Any]]
"""The budget, or what there is beside it."""


@dataclass(frozen=True)
class Counted:
    """What a file or a folder holds."""

    code: int = 0  # lines
    files: int = 0
    names: int = 0  # public functions, classes and methods
    docstrings: int = 0  # lines
    lines: int = 0
    tokens: int = 0
    python: int = 0  # lines of code that is Python, which has the tokens

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def is_counted(name: str) -> bool:
    """Return whether a file counts: all but prose, records and the budget itself."""
    return not UNCOUNTED.match(name)


def count(name: str, text: str) -> Counted:
    """Count a file."""
    return _read_python(text)[1] if name.endswith(PYTHON) else Counted(code=len(code_lines(name, text)), files=1)


def code_lines(name: str, text: str) -> list[str]:
    """Return the lines that count of a file, without indent; where lines are long, the file in pieces of 120 bytes."""
    if name.endswith(PYTHON):
        return _read_python(text)[0]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    whole = text.encode(errors="surrogateescape").decode("latin-1")  # a character a byte
    pieces = [whole[at : at + 120] for at in range(0, len(whole), 120)]
    return max(lines, pieces, key=len)


@functools.cache
def _read_python(text: str) -> tuple[list[str], Counted]:
    tree = ast.parse(text)
    prose, inside = set[int](), set[int]()  # lines of a string count, whatever they hold
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        body = getattr(node, "body", None)
        for inner in body if isinstance(body, list) else ():  # a docstring, or the string under an attribute
            match inner:
                case ast.Expr(value=ast.Constant(value=str())):
                    prose.update(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    lines = [line.strip() for line in text.splitlines()]
    bare = {number for number, line in enumerate(lines, 1) if not line or line[0] == "#"}
    code = [line for number, line in enumerate(lines, 1) if number not in (bare - inside | prose)]
    names = len(list(public_names(tree)))
    return code, Counted(len(code), 1, names, len(prose), len(lines), python=len(code))


def tokens_of(text: str) -> int:
    """Count the tokens of Python code: what a line packs."""
    return sum(token.type not in NOT_CODE for token in tokenize.generate_tokens(io.StringIO(text).readline))


def public_names(tree: ast.AST) -> Iterator[str]:
    """Yield the functions, classes and methods of public classes that begin with no underscore."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, DOCUMENTED[1:]) and not node.name.startswith("_"):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (f"{node.name}.{inner}" for inner in public_names(node))


def folder_of(name: str) -> str:
    """Return the folder whose budget a file is on: one below a package or below the tests, if it is in one."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def texts(root: Path = ROOT) -> dict[str, str]:
    """Return the text of each file that may count, by its path from the top: those under version control or to be."""
    names = _git(root, "ls-files", "-z", *WHERE).decode().split("\0")
    there = sorted({name for name in names if is_counted(name) and (root / name).is_file()})
    return {name: (root / name).read_bytes().decode(errors="surrogateescape") for name in there}


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout


def count_all(files: Files, dense: bool = False) -> dict[str, Counted]:
    """Count each folder of these files; ``dense`` counts the tokens as well, which takes seconds."""
    folders: dict[str, Counted] = defaultdict(Counted)
    for name, text in files.items():
        counted = count(name, text)
        if dense and name.endswith(PYTHON):
            counted = replace(counted, tokens=tokens_of(text))
        folders[folder_of(name)] += counted
    return dict(sorted(folders.items()))


def commands() -> dict[str, set[str]]:
    """Find the commands a user may type, and the options that each takes."""
    found: dict[str, set[str]] = {}
    for program, module in PROGRAMS.items():
        main = importlib.import_module(module).main
        for line, parser in _parsers(_parser_of(main, [])):
            words = line.removeprefix(program).split()
            own = parser if parser.add_help else _parser_of(main, words)  # a command with a parser of its own
            options = {name for action in own._actions for name in action.option_strings if name.startswith("--")}
            found[" ".join([program, *words])] = options - {"--help", "--version"}
    return found


class _Reached(Exception):
    """Raised where a command would parse its words; holds the parser."""


def _parser_of(main: Any, words: list[str]) -> argparse.ArgumentParser:
    def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Reached(parser)

    with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            main([*words, "--help"])
        except _Reached as reached:
            return cast(argparse.ArgumentParser, reached.args[0])
    raise AssertionError(f"{main} parses nothing for {words}")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog.removeprefix("python -m "), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)


def entered(line: str) -> tuple[int, int]:
    """Run a command in a process of its own and count what of ours it enters: functions, and modules they stand in."""
    command = [sys.executable, "-m", "tests.budget", "--entered", *line.removeprefix("python -m ").split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        functions, modules = json.loads(done.stderr.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"{line} ended with exit code {done.returncode}: {done.stderr[-500:]}") from None
    return functions, modules


def _enter(module: str, words: list[str]) -> None:
    """Run a command here and write the two counts as the last line of standard error."""
    codes = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    sys.argv = [module, *words]
    with suppress(SystemExit):
        sys.setprofile(note)
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        finally:
            sys.setprofile(None)
    ours = [
        code
        for code in codes
        if code.co_flags & inspect.CO_OPTIMIZED  # the body of a class or a module is none
        and not code.co_name.startswith("<")
        and Path(code.co_filename).is_relative_to(ROOT)
        and Path(code.co_filename).relative_to(ROOT).parts[0] in PACKAGES
    ]
    print(json.dumps([len(ours), len({code.co_filename for code in ours})]), file=sys.stderr)


def sizes(counted: Mapping[str, Counted], root: Path = ROOT) -> dict[str, Mapping[str, Any]]:
    """Arrange what there is as the budget's file has it: of each folder, and in all."""
    options = commands()
    return {
        "folders": {folder: [counts.code, counts.files, counts.names] for folder, counts in counted.items()},
        "all": {
            "commands": len(options),
            "options": sum(map(len, options.values())),
            # of the last commit: what a user measures goes into the same files
            **{f"bytes of {folder}": _count_bytes(root, folder) for folder in ("results", "tests/data")},
            "words quoted": sum(len(text.split()) for text in _files_at("HEAD", root, "results/quoted").values()),
        },
    }


def _count_bytes(root: Path, folder: str) -> int:
    listed = _git(root, "ls-tree", "-r", "--long", "HEAD", folder).decode()
    return sum(int(line.split()[3]) for line in listed.splitlines())


def excesses(there: Tables, budget: Tables) -> list[str]:
    """List what is above its budget, or has none."""
    over = []
    for table, rows in there.items():
        for name, number in rows.items():
            most = budget.get(table, {}).get(name, 0)
            pairs = zip_longest(number, most or [], fillvalue=0) if isinstance(number, list) else [(number, most)]
            for column, (found, limit) in enumerate(pairs):
                if found > limit:
                    what = f" {LABELS[table][column]}" if table in LABELS else ""
                    over.append(f"{name}: {found:,}{what}, {found - limit:,} above the budget of {limit:,}")
    return over


def breaches(counted: Mapping[str, Counted], guards: Mapping[str, Any]) -> list[str]:
    """List the folders whose lines are fewer for the wrong reason: too long, or without docstrings."""
    found = []
    least = guards["docstrings_percent"]
    for package in ("dse", "impls"):
        whole = _sum_package(counted, package)
        share = 100 * whole.docstrings / whole.lines
        if share < least:
            found.append(f"{package}: {share:.1f} % of its lines are docstrings, fewer than {least}")
    means: dict[str, Counted] = defaultdict(Counted)
    for folder, counts in counted.items():  # of all tests one mean, for their tables of cases are dense
        means["tests" if folder.startswith("tests/") else folder] += counts
    for folder, counts in means.items():
        most = guards["denser"].get(folder, guards["tokens_a_code_line"])
        if counts.tokens > most * counts.python:
            found.append(f"{folder}: {counts.tokens / counts.python:.2f} tokens a code line, more than {most}")
    return found


def _sum_package(counted: Mapping[str, Counted], package: str) -> Counted:
    return sum((counts for folder, counts in counted.items() if folder.split("/")[0] == package), Counted())


def texts_at(commit: str, root: Path = ROOT) -> dict[str, str]:
    """Return the text of each file that counts, as it was at a commit."""
    return {name: text for name, text in _files_at(commit, root, *WHERE).items() if is_counted(name)}


def _files_at(commit: str, root: Path, *paths: str) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", commit, *paths))) as files:
        return {
            member.name: cast(Any, files.extractfile(member)).read().decode(errors="surrogateescape")
            for member in files
            if member.isfile()
        }


def lost_faults(before: Files, after: Files) -> list[str]:
    """List the faults of an earlier state that are in no list today, though the code they change is there."""
    today = {fault["name"] for name, text in after.items() for fault in _faults(name, text)}
    sources: dict[str, list[str]] = {}
    for name, text in after.items():
        if not name.startswith("tests/mutants/"):
            sources.setdefault(Path(name).name, []).append(text)
    return [
        f"{fault['name']} ({name})"
        for name, text in sorted(before.items())
        for fault in _faults(name, text)
        if fault["name"] not in today
        and any(fault["old"] in text for text in sources.get(Path(fault["file"]).name, ()))
    ]


def _faults(name: str, text: str) -> list[dict[str, Any]]:
    return entries(text) if name.startswith("tests/mutants/") and name.endswith(".txt") else []


def read(path: Path = FILE) -> dict[str, Any]:
    """Read the budget."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def lowered(text: str, there: Tables) -> str:
    """Return the budget's text with every number that is above what there is brought down to it."""
    lines: list[str] = []
    rows: Mapping[str, Any] = {}
    for line in text.splitlines(keepends=True):
        rows = there.get(line[1 : line.index("]")], {}) if line.startswith("[") else rows
        lines.append(line)
        if (number := re.match(r'("(.+?)" = )(\[.*?\]|\d+)', line)) and number[2] in rows:
            most, now = json.loads(number[3]), rows[number[2]]
            less = list(map(min, most, now)) if isinstance(most, list) else min(most, now)
            lines[-1] = f"{number[1]}{less}{line[number.end() :]}"
    return "".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print what there is beside what may be; return the exit code: 0 within the budget, 1 above it."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["--entered"]:
        _enter(words[1], words[2:])
        return 0
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.budget", description=__doc__, formatter_class=kind)
    parser.add_argument("--walks", action="store_true", help="count what seven commands enter as well")
    parser.add_argument("--lower", action="store_true", help="write what there is into the budget where it is less")
    options = parser.parse_args(words)
    budget, counted = read(), count_all(files := texts(), dense=True)
    findings = plain.find_all(files)
    there = sizes(counted) | {"plain": plain.count(findings)}
    if options.walks:
        there["walks"] = {line: list(entered(line)) for line in budget["walks"]}
    print(table(there, budget, counted))
    faults = excesses(there, budget) + breaches(counted, budget["guards"])
    for fault in faults:
        print(f"above the budget: {fault}")
    if excesses({"plain": there["plain"]}, budget):
        print(*plain.list_excess(findings, budget["plain"], plain.find_all(texts_at("HEAD"))), sep="\n")
    if options.lower:
        FILE.write_text(lowered(FILE.read_text(encoding="utf-8"), there), encoding="utf-8")
    return int(bool(faults))


def table(there: Tables, budget: Mapping[str, Any], counted: Mapping[str, Counted]) -> str:
    """Arrange what there is beside what may be, a line a folder and a line a sum."""
    lines = [f"{'':28}{'code':>8}{'of':>8}{'files':>7}{'of':>6}{'names':>7}{'of':>6}{'tokens/line':>13}"]
    for folder, (code, files, names) in there["folders"].items():
        most = budget["folders"].get(folder, [0] * len(COLUMNS))
        cells = f"{code:>8}{most[0]:>8}{files:>7}{most[1]:>6}{names:>7}{most[2]:>6}"
        lines.append(f"{folder:28}{cells}{counted[folder].tokens / max(1, counted[folder].python):>13.1f}")
    for package in WHERE:
        whole = _sum_package(counted, package)
        lines.append(f"{package + ', all':28}{whole.code:>8}{'':8}{whole.files:>7}{'':6}{whole.names:>7}")
    for kind in ("all", "walks", "plain"):
        for what, number in there.get(kind, {}).items():
            lines.append(f"[{kind}] {what}: {number} of {budget.get(kind, {}).get(what, 0)}")
    return "\n".join(lines)


if __name__ == "__main__":
    gc.disable()  # there is no garbage in syntax trees, and to look for it takes a fifth longer
    sys.exit(main())
