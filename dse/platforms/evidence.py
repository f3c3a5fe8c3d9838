"""Which kept record answers a request: one with a time, of the same cell, by the same code, versions and settings.

Races are kept for whoever asks the same again, who gets an answer without them too: a file that cannot be read or
written costs a race and a warning.

A record's machine has its ``evidence``: what may change a number besides the cell, the machine and its versions. The
commit is kept with it and not compared, for edits need not be committed, and most commits change nothing that is
timed. Records that were kept before there was evidence are of other code, and answer nothing.
"""

import contextlib
import functools
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from impls.cores import count_allowed
from impls.files import warn_once

from ..records import LOAD, Measurement, RecordError, Writer, parse
from .fingerprint import fingerprint

ROOT = Path(__file__).parents[2]
CORES = count_allowed()  # that can be busy, as this process began: later it may keep to some of them
CODE = ("impls/**/*", "benchmarks/**/*", "dse/stats.py", "dse/platforms/memory.py")
"""What is timed and what times it, of ``SOURCES``, for benchmarks: no test, text or report among it."""
SOURCES = (".py", ".cu", ".cpp", ".h")
VERSIONS = ("python", "packages")
SETTING = re.compile(r"NUMBA_(?!CACHE_DIR).*|.*_NUM_THREADS")
"""Environment variables that change compiled code, or how many threads run."""


def evidence_here(libraries: Iterable[Path] = (), code: tuple[str, ...] = CODE, **asked: Any) -> dict[str, Any]:
    """Return the evidence of what is measured by this process: its code, the CPUs it may use and its settings.

    ``libraries``: other interpreters whose packages are timed. ``code``: the files, as ``CODE`` has them. ``asked``:
    what changes a time and is in no cell, such as the seconds of sampling.
    """
    settings = {name: value for name, value in sorted(os.environ.items()) if SETTING.fullmatch(name)}
    facts = {"cpus": CORES, "settings": settings, "asked": asked}
    environments = [_installed(python) for python in libraries]
    ours = [fingerprint()[name] for name in VERSIONS]
    facts |= {"libraries": _hash(ours + environments)} if environments else {}
    return {"code": hash_code(code=code), **{name: fact for name, fact in facts.items() if fact}}


def answers(kept: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Say whether what was kept is evidence of what is asked for: both are told by the ``machine`` of their records.

    What was made under load is not enough where this run is not.
    """
    is_as_quiet = LOAD in asked or LOAD not in kept
    return "evidence" in kept and is_as_quiet and _key(kept) == _key(asked)


def is_done(kept: Measurement) -> bool:
    """Say whether a record ends the search for its cell's time.

    A skip or a failure does not: whatever it was for (a budget, a variable, a package, memory) may be gone, and to look
    costs little against a time that is never measured.
    """
    return kept.median_seconds is not None


def kept_race(path: Path, asked: Mapping[str, Any], limit: float, machine: Mapping[str, Any]) -> Measurement | None:
    """Find the latest race in a file that answers a question: decided, or given at least so many seconds."""
    for record in reversed(read_races(path)):
        told = record.machine["race"]
        is_enough = told["ending"] == "decided" or limit <= told["limit"]
        if told["asked"] == asked and is_enough and answers(record.machine, machine):
            return record
    return None


def read_races(path: Path) -> list[Measurement]:
    """Read the races of a file in order; one that cannot be read has none, nor have lines that are damaged or torn."""
    races = list[Measurement]()
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(RecordError):
                races.append(parse(line.decode(errors="replace"), str(path)))
    return [one for one in races if "race" in one.machine]


def keep_race(path: Path, race: Measurement) -> bool:
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
def hash_code(root: Path = ROOT, code: tuple[str, ...] = CODE) -> str:
    """Hash the files of ``code`` as they are, committed or not."""
    paths = sorted({path for pattern in code for path in root.glob(pattern) if path.suffix in SOURCES})
    return _hash([(path.relative_to(root).as_posix(), path.read_bytes()) for path in paths if path.name[0] != "."])


def _installed(python: Path) -> list[str]:
    """List the packages of an interpreter's environment with their versions; to ask nobody, by their folders."""
    folder = python.parent.parent
    return sorted(str(path.relative_to(folder)) for path in folder.glob("lib/python*/site-packages/*.dist-info"))


def _hash(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]
