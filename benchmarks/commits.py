"""Commits installed in environments of their own, to be timed by workers."""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

from .workers import ROOT, quietly

FOLDER = ".compare"
READY = "ready"
CONSTRAINTS = "constraints.txt"


class BrokenCommitError(Exception):
    """A commit cannot be built, installed or run; the message says which, and why."""


@dataclass(frozen=True)
class Installed:
    """A commit and the interpreter of the environment that has it."""

    name: str
    sha: str
    python: Path


def resolve(name: str, root: Path = ROOT) -> str:
    """Return the hash of a commit. ValueError for a name git does not know."""
    done = quietly(["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"])
    if done.returncode:
        raise ValueError(f"{name!r} is neither a commit of this repository nor a file of records")
    return done.stdout.strip()


def install(name: str, root: Path = ROOT) -> Installed:
    """Build a commit of the repository and install it with its dependencies, unless that was done before.

    ValueError for a name git does not know, BrokenCommitError for a commit that does not install.
    """
    sha = resolve(name, root)
    folder = root / FOLDER / sha[:12]
    python = folder / "bin" / "python"
    if not (folder / READY).exists():
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as source:
            _unpack(root, sha, Path(source))
            venv.create(folder, with_pip=True)
            _install(name, python, Path(source))
        (folder / READY).touch()
    return Installed(name, sha, python)


def suite(root: Path = ROOT) -> Path:
    """Return a folder where workers find this checkout's ``benchmarks`` and none of its other packages."""
    folder = root / FOLDER / "suite"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "benchmarks"
    if not link.exists():
        link.symlink_to(Path(__file__).parent, target_is_directory=True)
    return folder


def _unpack(root: Path, sha: str, folder: Path) -> None:
    archive = folder / "commit.tar"
    subprocess.run(["git", "-C", str(root), "archive", "-o", str(archive), sha], check=True)
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()


def _install(name: str, python: Path, source: Path) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = {"PIP_CONSTRAINT": str(source / CONSTRAINTS)} if (source / CONSTRAINTS).exists() else {}
    done = quietly([*pip, f"{source}[numba]"], env={**os.environ, **pinned})
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        print("\n".join(lines[-20:]), file=sys.stderr)
        raise BrokenCommitError(f"{name} does not install; pip said what is above")
