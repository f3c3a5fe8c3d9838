"""Repositories of git that tests make: of files of their own, and of this checkout."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.committed import ROOT

WHO = ("-c", "user.name=Tester", "-c", "user.email=tester@example.org")


def git(folder: Path, *words: str, **more: Any) -> str:
    """Return what git prints in a folder."""
    command = ["git", "-C", str(folder), *WHO, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, **more).stdout.strip()


def commit(folder: Path) -> str:
    """Commit all there is in a folder, which becomes a repository where it is none; return the hash."""
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a commit")
    return git(folder, "rev-parse", "HEAD")


def copy_checkout(folder: Path) -> str:
    """Make a repository of the checkout's files as they are, but for results; return the hash of its commit."""
    for name in git(ROOT, "ls-files", "-co", "--exclude-standard", "-z").split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("results/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return commit(folder)
