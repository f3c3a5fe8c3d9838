"""Which kept record answers a request: one with a time, of the same cell, by the same code, versions and settings.

Races are kept for whoever asks the same again, who gets an answer without them too: a file that cannot be read or
written costs a race and a warning.

A record's machine has its ``evidence``: what may change a number besides the cell, the machine and its versions. Of the
code these are the modules that the clock may reach, without comments, docstrings and layout. The commit is kept with it
and not compared, for edits need not be committed, and most commits change nothing that is timed. Records that were kept
before there was evidence are of other code, and answer nothing.
"""

import ast
import contextlib
import functools
import hashlib
import marshal
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from impls.cores import count_allowed
from impls.files import warn_once

from ..records import LOAD, Record, RecordError, Writer, parse
from .fingerprint import fingerprint

ROOT = Path(__file__).parents[2]
CORES = count_allowed()  # that can be busy, as this process began: later it may keep to some of them
FOLLOWED = ("impls", "benchmarks", "dse.stats", "dse.platforms.memory")
"""Modules and packages whose code may change a time: no test, answer or report among them."""
WHOLE = ("impls", "benchmarks")
TOPICS = ["benchmarks", "topics"]
"""The package of topics, none of which reaches another because it is one."""
SOURCES = (".py", ".cu", ".cpp", ".h")
VERSIONS = ("python", "packages")
SETTING = re.compile(r"NUMBA_(?!CACHE_DIR).*|.*_NUM_THREADS")
"""Environment variables that change compiled code, or how many threads run."""


def evidence_here(clock: str, libraries: Iterable[Path] = (), **asked: Any) -> dict[str, Any]:
    """Return the evidence of what is measured by this process: its code, the CPUs it may use and its settings.

    ``clock``: the module that measures, by its full name; the code is what it may reach. ``libraries``: other
    interpreters whose packages are timed. ``asked``: what changes a time and is in no cell, such as the seconds of
    sampling.
    """
    settings = {name: value for name, value in sorted(os.environ.items()) if SETTING.fullmatch(name)}
    facts = {"cpus": CORES, "settings": settings, "asked": asked}
    environments = [_installed(python) for python in libraries]
    ours = [fingerprint()[name] for name in VERSIONS]
    facts |= {"libraries": _hash(ours + environments)} if environments else {}
    return {"code": hash_code(clock), **{name: fact for name, fact in facts.items() if fact}}


def answers(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Say whether what was kept is evidence of what is asked for: both are told by the ``machine`` of their records.

    What was made under load is not enough where this run is not.
    """
    is_as_quiet = LOAD in asked or LOAD not in kept
    return "evidence" in kept and is_as_quiet and _key(kept) == _key(asked)


def is_done(kept: Record) -> bool:
    """Say whether a record ends the search for its cell's time.

    A skip or a failure does not: whatever it was for (a budget, a variable, a package, memory) may be gone, and to look
    costs little against a time that is never measured.
    """
    return kept.median_seconds is not None


def kept_race(path: Path, asked: Mapping[str, Any], limit: float, machine: Mapping[str, Any]) -> Record | None:
    """Find the latest race in a file that answers a question: decided, or given at least so many seconds."""
    for record in reversed(read_races(path)):
        told = record.metrics["race"]
        is_enough = told["ending"] == "decided" or limit <= told["limit"]
        if told["asked"] == asked and is_enough and answers(record.machine, machine):
            return record
    return None


def read_races(path: Path) -> list[Record]:
    """Read the races of a file in order; one that cannot be read has none, nor have lines that are damaged or torn."""
    races = list[Record]()
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8-sig", errors="replace").split("\n"):
            with contextlib.suppress(RecordError):
                races.append(parse(line, str(path)))
    return [one for one in races if "race" in one.metrics]


def keep_race(path: Path, race: Record) -> bool:
    """Append a race to a file; return whether it is kept there."""
    try:
        with Writer(path) as writer:
            writer.append(race)
    except (RecordError, OSError, Warning) as error:
        warn_once(
            f"this race is not kept, so that its question is raced again: {error}; what is damaged can be deleted"
        )
        return False
    return True


def _key(machine: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what two machines of records must share for one to answer for the other.

    Where libraries are timed a record has their versions, and the evidence has all.
    """
    versions = () if "libraries" in machine.get("evidence", {}) else VERSIONS
    return tuple(machine.get(name) for name in ("key", "gpus", "evidence", "workload", *versions))


@functools.cache
def hash_code(clock: str, root: Path = ROOT) -> str:
    """Hash the code that a module may reach as it is on disk, committed or not; comments and docstrings are no part."""
    return _hash(
        [(path.relative_to(root).as_posix(), code) for path, code in sorted(find_reached(clock, root).items())]
    )


def find_reached(clock: str, root: Path = ROOT) -> dict[Path, bytes]:
    """Return the files of code that a module may reach, each with its code: its own, what these import, and so on.

    Imports are followed into ``FOLLOWED`` alone. A package inside ``WHOLE`` is reached as a whole, for it finds its
    parts by their names; a worker of benchmarks is reached where its name stands.
    """
    modules, waiting, reached = {clock}, _files(clock, root), dict[Path, bytes]()
    while waiting:
        if (path := waiting.pop()) in reached:
            continue
        # Invariant: what a file of ``reached`` imports is in ``reached`` or in ``waiting``.
        reached[path] = content = path.read_bytes()
        if path.suffix != ".py":
            continue
        with contextlib.suppress(SyntaxError):  # of a file that is being written: it counts by its text
            tree = ast.parse(content)
            reached[path] = _compiled(tree)
            workers = _WORKER.findall(content.decode(errors="replace"))
            named = {*workers, *_imported(tree, path.relative_to(root).parent.parts)}
            for module in filter(_FOLLOWED.match, named - modules):
                waiting += _files(module, root)
            modules |= named
    return reached


_FOLLOWED = re.compile("|".join(rf"{re.escape(name)}(\.|$)" for name in FOLLOWED))
_WORKER = re.compile(r'"(benchmarks\.[\w.]+)"')


def _files(module: str, root: Path) -> list[Path]:
    """List the files of a module: its own, those of the packages around it, and all of a package in ``WHOLE``."""
    names = module.split(".")
    depth = 3 if names[:2] == TOPICS else 2
    is_whole = names[0] in WHOLE and len(names) >= depth and root.joinpath(*names[:depth]).is_dir()
    names = names[:depth] if is_whole else names
    place = root.joinpath(*names)
    paths = [
        place.with_suffix(".py"),
        *(root.joinpath(*names[:end], "__init__.py") for end in range(1, len(names) + 1)),
    ]
    paths += [path for path in place.rglob("[!.]*") if path.suffix in SOURCES] if is_whole else []
    return [path for path in paths if path.is_file()]


def _imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the full names of what a file of a package imports, modules and the names of modules alike."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join([*around, *([node.module] if node.module else [])])
            yield from (module, *(f"{module}.{name.name}" for name in node.names))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a tree's node and the statements inside it, at any depth."""
    yield tree
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(tree, field, ())
        for node in inner if isinstance(inner, list) else ():
            yield from _statements(node)


def _compiled(tree: ast.Module) -> bytes:
    """Return a file's code as Python compiles it, without docstrings and the places of lines."""
    for node in _statements(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
            node.body = node.body or [ast.Pass(lineno=1, col_offset=0)]
    return marshal.dumps(_without_places(compile(tree, "", "exec")), 2)


def _without_places(code: CodeType) -> CodeType:
    inner = tuple(_without_places(const) if isinstance(const, CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=inner, co_firstlineno=0, co_linetable=b"")


def _installed(python: Path) -> list[str]:
    """List the packages of an interpreter's environment with their versions; to ask nobody, by their folders."""
    folder = python.parent.parent
    return sorted(str(path.relative_to(folder)) for path in folder.glob("lib/python*/site-packages/*.dist-info"))


def _hash(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]
