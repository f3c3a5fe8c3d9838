"""Counts what the project holds and what its commands enter, and holds it to ``tests/budget.toml``.

    python -m tests.budget            what there is, beside what may be; exit code 1 where it is more
    python -m tests.budget --walks    the functions and modules that eight commands enter as well; half a minute
    python -m tests.budget --lower    write the budget lower wherever there is less

A code line is neither blank, comment nor docstring. Of files that are not Python (faults, styles, scripts, kernels)
every line that is not blank counts.
"""

import argparse
import ast
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast
from unittest import mock

from tests.mutation import entries

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/budget.toml"
PACKAGES = ("benchmarks", "dse", "impls", "reports")
WHERE = (*PACKAGES, "tests")
OTHER_CODE = {".cpp", ".css", ".cu", ".h", ".html", ".j2", ".js", ".sh", ".v"}
DATA = ("reports/gallery/", "tests/budget.toml")
NOT_CODE = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PROGRAMS = {
    **{program: f"{program}.__main__" for program in ("dse", "benchmarks", "reports", "impls.training")},
    "reports.readmes": "reports.readmes",
}
COLUMNS = ("code lines", "files", "names")


@dataclass(frozen=True)
class Counted:
    """What a file or a folder holds."""

    code: int = 0  # lines
    files: int = 0
    names: int = 0  # public functions, classes and methods
    docstrings: int = 0  # lines
    lines: int = 0
    tokens: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def count(name: str, text: str) -> Counted | None:
    """Count a file; None for data and prose, which no budget is for."""
    suffix = Path(name).suffix
    if name.startswith(DATA):
        return None
    if suffix in (".py", ".pyi"):
        return _count_python(text)
    if suffix in OTHER_CODE or name.startswith("tests/mutants/"):
        return Counted(code=sum(bool(line.strip()) for line in text.splitlines()), files=1)
    return None


def _count_python(text: str) -> Counted:
    tree = ast.parse(text)
    prose, inside = set[int](), set[int]()  # lines of a string count, whatever they hold
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():  # a docstring, or the string under an attribute
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                prose.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    lines = text.splitlines()
    bare = {number for number, line in enumerate(lines, 1) if not (stripped := line.strip()) or stripped[0] == "#"}
    code = len(lines) - len(bare - inside | prose)
    return Counted(code, 1, len(list(public_names(tree))), len(prose), len(lines))


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
    command = ["git", "ls-files", "-z", *WHERE]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout.split("\0")
    there = sorted({name for name in names if _may_count(name) and (root / name).is_file()})
    return {name: (root / name).read_text(encoding="utf-8") for name in there}


def count_all(files: Mapping[str, str], dense: bool = False) -> dict[str, Counted]:
    """Count each folder of these files; ``dense`` counts the tokens as well, which takes seconds."""
    found: dict[str, Counted] = {}
    for name, text in files.items():
        if counted := count(name, text):
            if dense and name.endswith((".py", ".pyi")):
                counted = replace(counted, tokens=tokens_of(text))
            found[folder_of(name)] = found.get(folder_of(name), Counted()) + counted
    return dict(sorted(found.items()))


def _may_count(name: str) -> bool:
    return name.startswith("tests/mutants/") or Path(name).suffix in OTHER_CODE | {".py", ".pyi", ".toml"}


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


def sizes(counted: Mapping[str, Counted], root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Arrange what there is as the budget's file has it: of each folder, and in all."""
    options = commands()
    # of the last commit: what a user measures goes into the same files
    command = ["git", "ls-tree", "-r", "--long", "HEAD", "results"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    return {
        "folders": {folder: [one.code, one.files, one.names] for folder, one in counted.items()},
        "all": {
            "commands": len(options),
            "options": sum(map(len, options.values())),
            "bytes of results": sum(int(line.split()[3]) for line in listed.splitlines()),
        },
    }


def excesses(there: Mapping[str, Mapping[str, Any]], budget: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """List what is above its budget, or has none."""
    over = []
    for folder, numbers in there["folders"].items():
        may = budget["folders"].get(folder, [0] * len(COLUMNS))
        for what, number, most in zip(COLUMNS, numbers, may, strict=True):
            if number > most:
                over.append(f"{folder}: {number:,} {what}, {number - most:,} above the budget of {most:,}")
    for table in ("all", "walks"):
        for what, number in there.get(table, {}).items():
            for one, most in zip(
                *(each if isinstance(each, list) else [each] for each in (number, budget[table][what])), strict=True
            ):
                if one > most:
                    over.append(f"{what}: {one:,}, {one - most:,} above the budget of {most:,}")
    return over


def breaches(counted: Mapping[str, Counted], guards: Mapping[str, Any]) -> list[str]:
    """List the folders whose lines are fewer for the wrong reason: too long, or without docstrings."""
    found = []
    for package in ("dse", "impls"):
        whole = sum((one for folder, one in counted.items() if folder.partition("/")[0] == package), Counted())
        share = 100 * whole.docstrings / whole.lines
        if share < guards["docstrings_percent"]:
            found.append(
                f"{package}: {share:.1f} % of its lines are docstrings, fewer than {guards['docstrings_percent']}"
            )
    means: dict[str, Counted] = {}
    for folder, one in counted.items():
        name = "tests" if folder.startswith("tests/") else folder  # whose tables of cases are dense wherever they stand
        means[name] = means.get(name, Counted()) + one if one.tokens else means.get(name, Counted())
    for folder, one in means.items():
        most = guards["denser"].get(folder, guards["tokens_a_code_line"])
        if one.tokens > most * one.code:
            found.append(f"{folder}: {one.tokens / one.code:.2f} tokens a code line, more than {most}")
    return found


def texts_at(commit: str, root: Path = ROOT) -> dict[str, str]:
    """Return the text of each file that may count, as it was at a commit."""
    archive = subprocess.run(["git", "archive", commit, *WHERE], cwd=root, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {
            member.name: cast(Any, files.extractfile(member)).read().decode()
            for member in files
            if member.isfile() and _may_count(member.name)
        }


def added(before: Mapping[str, str], after: Mapping[str, str]) -> list[tuple[int, str]]:
    """List by how many code lines each file differs between two states of all, the largest growth first."""
    differences = {
        name: _code_of(name, after.get(name, "")) - _code_of(name, before.get(name, "")) for name in {*before, *after}
    }
    return sorted(((lines, name) for name, lines in differences.items() if lines), reverse=True)


def _code_of(name: str, text: str) -> int:
    counted = count(name, text)
    return counted.code if counted else 0


def lost_faults(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
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


def lowered(text: str, there: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the budget's text with every number that is above what there is brought down to it."""

    def lower(line: re.Match[str]) -> str:
        name, most = line[1], tomllib.loads(f"most = {line[2]}")["most"]
        now = next((table[name] for table in there.values() if name in table), most)
        return f'"{name}" = {list(map(min, most, now)) if isinstance(most, list) else min(most, now)}'

    return re.sub(r'^"([^"\n]+)" = (\[.*\]|\d+)$', lower, text, flags=re.MULTILINE)


def main(arguments: list[str] | None = None) -> int:
    """Print what there is beside what may be; return the exit code: 0 within the budget, 1 above it."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["--entered"]:
        _enter(words[1], words[2:])
        return 0
    kind = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.budget", description=__doc__, formatter_class=kind)
    parser.add_argument("--walks", action="store_true", help="count what eight commands enter as well")
    parser.add_argument("--lower", action="store_true", help="write what there is into the budget where it is less")
    options = parser.parse_args(words)
    budget, counted = read(), count_all(files := texts(), dense=True)
    there = sizes(counted)
    if options.walks:
        there["walks"] = {line: list(entered(line)) for line in budget["walks"]}
    print(table(there, budget, counted))
    faults = excesses(there, budget) + breaches(counted, budget["guards"])
    for fault in faults:
        print(f"above the budget: {fault}")
    if faults:
        print(growth(budget["start"], files))
    if options.lower:
        FILE.write_text(lowered(FILE.read_text(encoding="utf-8"), there), encoding="utf-8")
    return int(bool(faults))


def growth(start: str, files: Mapping[str, str]) -> str:
    """Say which files grew most since a commit, and by how many code lines."""
    grown = [f"{lines:+6} {name}" for lines, name in added(texts_at(start), files) if lines > 0][:20]
    remedy = "take as much away elsewhere, or raise the budget in this commit and say why"
    return "\n".join([f"code lines added since {start}:", *grown, remedy])


def table(there: Mapping[str, Mapping[str, Any]], budget: Mapping[str, Any], counted: Mapping[str, Counted]) -> str:
    """Arrange what there is beside what may be, a line a folder and a line a sum."""
    lines = [f"{'':28}{'code':>8}{'of':>8}{'files':>7}{'of':>6}{'names':>7}{'of':>6}{'tokens/line':>13}"]
    for folder, numbers in there["folders"].items():
        may = budget["folders"].get(folder, [0] * len(COLUMNS))
        cells = "".join(
            f"{number:>{width}}{most:>{less}}"
            for number, most, width, less in zip(numbers, may, (8, 7, 7), (8, 6, 6), strict=True)
        )
        one = counted[folder]
        lines.append(f"{folder:28}{cells}{one.tokens / max(1, one.code):>13.1f}")
    for package in WHERE:
        inside = [numbers for folder, numbers in there["folders"].items() if folder.partition("/")[0] == package]
        code, files, names = (sum(column) for column in zip(*inside, strict=True))
        lines.append(f"{package + ', all':28}{code:>8}{'':8}{files:>7}{'':6}{names:>7}")
    for kind in ("all", "walks"):
        for what, number in there.get(kind, {}).items():
            lines.append(f"{what}: {number} of {budget[kind][what]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
