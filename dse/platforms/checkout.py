"""State what a number rests on besides its machine: the command, the commit, the code and the load from others.

Which kept record answers a request: one with a time, of the same cell, by the same code, versions and settings.

Races are kept for the same question later, which has an answer without them too: a file that cannot be read or
written costs a race and a warning.

A record's machine has its ``evidence``: what may change a number besides the cell, the machine and its versions. Of the
code these are the modules that the clock may reach, without comments, docstrings and layout. The commit is kept with it
and not compared, for edits need not be committed, and most commits change nothing that is timed. Records that were kept
before there was evidence are of other code, and answer nothing.

The load is that of the whole machine, in a container too, and so are the cores it is compared with.
"""

import ast
import contextlib
import datetime
import functools
import hashlib
import io
import marshal
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
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
CODE = (":/", ":!/results")
KEPT = tuple(f"GIT_{name}" for name in ("CONFIG", "SSH", "SSL", "PROXY", "ASKPASS", "TERMINAL", "EXEC", "DISCOVERY"))
"""How the variables begin that git keeps: they say what it may read, and how; others name another repository."""
BUSY_EXIT_CODE = 75
"""The exit code of a command that does not measure for load: that of sysexits.h for what may succeed later."""
LOOKS, EVERY_SECONDS = 11, 0.05
PROCESSES = Path("/proc/loadavg")  # three averages, then running/all


def now() -> str:
    """Return the UTC time of a record, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def command_line() -> str:
    """Return the command that runs, as a user would type it, without the paths of this machine."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    words = (Path(word).name if os.sep in word else word for word in sys.argv[1:])
    return " ".join([name, *map(shlex.quote, words)])


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


def is_evidence(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Say whether what was kept is evidence of what is asked for, by the ``machine`` of both.

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


def find_race(path: Path, asked: Mapping[str, Any], limit: float, machine: Mapping[str, Any]) -> Record | None:
    """Find the latest race in a file that answers a question: decided, or given at least so many seconds."""
    for record in reversed(read_races(path)):
        race = record.metrics["race"]
        is_enough = race["ending"] == "decided" or limit <= race["limit"]
        if race["asked"] == asked and is_enough and is_evidence(record.machine, machine):
            return record
    return None


def read_races(path: Path) -> list[Record]:
    """Read the races of a file in order; one that cannot be read has none, nor have lines that are damaged or torn."""
    races = list[Record]()
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8-sig", errors="replace").split("\n"):
            with contextlib.suppress(RecordError):
                races.append(parse(line, str(path)))
    return [race for race in races if "race" in race.metrics]


def keep_race(path: Path, race: Record) -> bool:
    """Append a race to a file; return whether it is kept there."""
    try:
        with Writer(path) as writer:
            writer.append(race)
    except (RecordError, OSError, Warning) as error:
        again = "so that its question is raced again"
        warn_once(f"this race is not kept, {again}: {error}; what is damaged can be deleted")
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
    return marshal.dumps(_strip_lines(compile(tree, "", "exec")), 2)


def _strip_lines(code: CodeType) -> CodeType:
    inner = tuple(_strip_lines(const) if isinstance(const, CodeType) else const for const in code.co_consts)
    return code.replace(co_consts=inner, co_firstlineno=0, co_linetable=b"")


def _installed(python: Path) -> list[str]:
    """List the packages of an interpreter's environment with their versions; to ask nobody, by their folders."""
    folder = python.parent.parent
    return sorted(str(path.relative_to(folder)) for path in folder.glob("lib/python*/site-packages/*.dist-info"))


def _hash(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


# The checkout, as git knows it


class GitError(ValueError):
    """Git has no answer; the message is what it said, and empty where it said nothing."""


def git(folder: Path, *words: str) -> str:
    """Ask git about the checkout that a folder is of, by a command whose output no setting changes. GitError."""
    return _output(folder, words).decode(errors="replace").strip()


def files_at(folder: Path, commit: str, *paths: str) -> tarfile.TarFile:
    """Open the files of a commit beneath a folder, or those of its ``paths`` alone. GitError."""
    files = tarfile.open(fileobj=io.BytesIO(_output(folder, ("archive", "--format=tar", commit, *paths))))
    files.extraction_filter = getattr(tarfile, "data_filter", None)  # which Python has from 3.11.4 on
    return files


def _output(folder: Path, words: tuple[str, ...]) -> bytes:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(KEPT)}
    # A monitor of files may be asked for changes, and is no part of git; the user may commit meanwhile.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=", "-C", str(folder), *words]
    settings = {**kept, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=settings, check=False)
    except OSError as error:
        raise GitError(f"git does not run ({error.strerror}); install it, or add its folder to PATH") from None
    if done.returncode:
        raise GitError(" ".join(done.stderr.decode(errors="replace").split()))
    return done.stdout


def commit(folder: Path, is_told: bool = True) -> tuple[str | None, bool | None]:
    """Return (commit, whether tracked files but results differ from it) of a checkout.

    Outside of one, and where git cannot tell, it is (None, None), and a line on stderr says why if ``is_told``.
    """
    try:
        changed = git(folder, "status", "--porcelain=v1", "--no-renames", "--untracked-files=no", "--", *CODE)
        # Outside of a checkout, as in an ignored folder of another repository, HEAD:./ is an error.
        return git(folder, "rev-parse", "HEAD", "HEAD:./").split()[0], bool(changed)
    except GitError as error:
        if is_told:
            warn_once(f"no commit is recorded, for git cannot tell it: {error}")
        return None, None


def is_shallow(folder: Path) -> bool:
    """Say whether a clone lacks older commits. GitError."""
    return git(folder, "rev-parse", "--is-shallow-repository") == "true"


# The load from other processes


@functools.cache
def read_load() -> float:
    """Return how many processes of others run, as seen first by this process; 0.0 while they leave half the cores.

    It is the load average of the last minute, or what runs at this moment where that is less: the average alone counts
    what a command of ours just left in it, the moment alone what is about to end. Where a system tells no moment, a
    process on each core is taken for ours.
    """
    cores, average = os.cpu_count() or 1, read_load_average()
    if average <= cores / 2:
        return 0.0
    looks = [_count_running() for _ in range(LOOKS)] if PROCESSES.exists() else [average - cores]
    load = float(min(average, sorted(looks)[len(looks) // 2]))
    return load if load > cores / 2 else 0.0


def describe_load() -> str:
    """Say how many processes of others run; "" while they leave half the cores."""
    return f"load is {read_load():.3g} on {os.cpu_count()} cores" if read_load() else ""


def read_load_average() -> float:
    """Return the load average of the last minute, with our own processes in it; 0.0 where the system tells none."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return 0.0


def _count_running() -> int:
    """Count the processes that run at this moment, but for this one."""
    time.sleep(EVERY_SECONDS)
    return int(PROCESSES.read_text(encoding="utf-8").split()[3].partition("/")[0]) - 1


def is_too_loaded(is_anyway: bool) -> bool:
    """Say on standard error that others run, if they do; return whether a command must not measure for that."""
    if read_load() and is_anyway:
        how = "measuring all the same; the records are marked as disturbed"
        print(f"{describe_load()}: {how}", file=sys.stderr, flush=True)
    elif read_load():
        how = "not measuring; wait until others have ended, or add --anyway"
        print(f"error: {describe_load()}: {how}", file=sys.stderr, flush=True)
    return bool(read_load()) and not is_anyway
