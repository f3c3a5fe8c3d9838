"""What git says of a checkout, whatever the user's environment and settings are."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

from impls.files import warn_once

CODE = (":/", ":!/results")
KEPT = tuple(f"GIT_{name}" for name in ("CONFIG", "SSH", "SSL", "PROXY", "ASKPASS", "TERMINAL", "EXEC", "DISCOVERY"))
"""How the variables begin that git keeps: they say what it may read, and how; others name another repository."""


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
    told = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name.startswith(KEPT)}
    # A monitor of files may be asked for changes, and is no part of git; the user may commit meanwhile.
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=", "-C", str(folder), *words]
    told["LC_ALL"] = "C"
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=told, check=False)
    except OSError as error:
        raise GitError(f"git does not run ({error.strerror}); install it, or add its folder to PATH") from None
    if done.returncode:
        raise GitError(" ".join(done.stderr.decode(errors="replace").split()))
    return done.stdout


def head(folder: Path) -> str:
    """Return the commit of a checkout. GitError outside of one, as in an ignored folder of another repository."""
    return git(folder, "rev-parse", "HEAD", "HEAD:./").split()[0]


def commit(folder: Path, is_told: bool = True) -> tuple[str | None, bool | None]:
    """Return (commit, whether tracked files but results differ from it) of a checkout.

    Outside of one, and where git cannot tell, it is (None, None), and a line on stderr says why if ``is_told``.
    """
    try:
        changed = git(folder, "status", "--porcelain=v1", "--no-renames", "--untracked-files=no", "--", *CODE)
        return head(folder), bool(changed)
    except GitError as error:
        if is_told:
            warn_once(f"no commit is recorded, for git cannot tell it: {error}")
        return None, None


def is_shallow(folder: Path) -> bool:
    """Say whether a clone lacks older commits. GitError."""
    return git(folder, "rev-parse", "--is-shallow-repository") == "true"
