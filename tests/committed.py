"""The checkout as its last commit has its records: tests never read what a user has measured in ``results``."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _git(*arguments: str, root: Path = ROOT) -> bytes:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True).stdout


def checkout(root: Path = ROOT) -> Path:
    """The folder itself where nothing was measured since its last commit, else one of links with that commit's records.

    What is no repository, such as an unpacked archive, has no other records than its own.
    """
    try:
        if not _git("status", "--porcelain", "--", "results", root=root):
            return root
        tree = _git("rev-parse", "HEAD:results", root=root).decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return root
    made = Path(tempfile.gettempdir()) / f"fanout-tests-{os.getuid()}-{tree[:12]}-{zlib.crc32(str(root).encode()):x}"
    if not made.is_dir():
        fresh = Path(tempfile.mkdtemp(prefix=".fanout-tests-"))
        archive = _git("archive", "HEAD", "results", root=root)
        subprocess.run(["tar", "-x", "-C", str(fresh)], input=archive, check=True)
        for path in root.iterdir():
            if path.name != "results":
                (fresh / path.name).symlink_to(path)
        with contextlib.suppress(OSError):  # another worker was first
            fresh.rename(made)
        shutil.rmtree(fresh, ignore_errors=True)
    return made


CHECKOUT = checkout()
RESULTS = CHECKOUT / "results"
