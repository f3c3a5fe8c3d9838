"""Which code an answer depends on: an id that changes with that code, and not with its comments or docstrings.

An answer is judged together with the others of its predictor alone, so each file of questions holds the ids of the
predictors that answered it. The files below are those that turn records into answers: a rule that is added elsewhere
would escape its id, and a test follows their imports to see that none of ``dse`` does. What is measured (the trees, the
loops and the clocks) is not among them: records name the commit that they were made at.
"""

import ast
import fnmatch
import functools
import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ..platforms import GitError, files_at, git

ROOT = Path(__file__).resolve().parents[2]
Side = Literal["trees", "loops", "arrangements"]
ROOTS: Mapping[Side, str] = {
    "trees": "dse/tree.py",
    "loops": "dse/validation/loops.py",
    "arrangements": "dse/validation/arrangements.py",
}
"""The file of each predictor that is asked; it imports the rest."""
COMMON = (
    *("dse/stats.py", "dse/drift.py", "dse/estimate.py", "dse/questions.py", "dse/records.py"),
    *("dse/platforms/*.py", "dse/validation/asking.py", "impls/levels.py"),
)
_SOLVER = (
    *("dse/mapping/*.py", "dse/solver/*.py", "dse/times/*.py", "dse/fpga/*.py"),
    *("impls/replay/layout.py", "impls/training/sizes.py", "impls/training/workload.py"),
)
FILES: Mapping[Side, tuple[str, ...]] = {
    "trees": (*COMMON, ROOTS["trees"], "dse/machines.py", "dse/times/tree_*.py"),
    "loops": (*COMMON, ROOTS["loops"], *_SOLVER),
    "arrangements": (*COMMON, ROOTS["arrangements"], *_SOLVER),
}


def predictor_id(side: Side, files: Mapping[str, str] | None = None) -> str:
    """Hash the code that answers of a side depend on; ``files``: texts by path, by default those of this package."""
    texts = _here() if files is None else files
    chosen = {path: text for path, text in texts.items() if any(fnmatch.fnmatch(path, one) for one in FILES[side])}
    # As the ``repr`` of a list of pairs, which every id on record was made of.
    code = ", ".join(f"({path!r}, {_code(text)})" for path, text in sorted(chosen.items()))
    return hashlib.sha256(f"[{code}]".encode()).hexdigest()[:10]


@functools.cache
def present(side: Side) -> str:
    """Return the id of the predictor that runs."""
    return predictor_id(side)


@functools.cache
def changed_at(side: Side, commit: str, known: str) -> str:
    """Find the commit after ``commit`` since which no predictor is the ``known`` one; "" where git tells none.

    A predictor that changes and is as before again answers as before.
    """
    try:
        later = git(ROOT, "rev-list", f"{commit}..HEAD", "--", *FILES[side]).split()
        others = list(itertools.takewhile(lambda one: _id_at(side, one) != known, later))
        return others[-1][:8] if others else ""
    except GitError:
        return ""


@functools.cache
def _id_at(side: Side, commit: str) -> str:
    return predictor_id(side, _at(commit))


@functools.cache
def _code(text: str) -> str:
    return repr(_plain(ast.parse(text)))


def _plain(node: Any) -> Any:
    """Write a syntax tree as nested tuples, without docstrings and whatever only some versions of Python fill in."""
    if isinstance(node, ast.AST):
        fields = ((name, _plain(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *fields
    if isinstance(node, list):
        return tuple(_plain(one) for one in node if not _is_text(one))
    return repr(node)


def _is_text(node: Any) -> bool:
    """Say whether a statement is a string alone, which does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _here() -> dict[str, str]:
    paths = (path for folder in ("dse", "impls") for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def _at(commit: str) -> dict[str, str]:
    """Read the texts of the packages at a commit."""
    with files_at(ROOT, commit, "dse", "impls") as archive:
        members = [one for one in archive.getmembers() if one.isfile() and one.name.endswith(".py")]
        return {one.name: file.read().decode() for one in members if (file := archive.extractfile(one))}
