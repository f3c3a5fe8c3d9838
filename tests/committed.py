"""Records for tests: a small copy in ``tests/data``, so that what a user measures into ``results`` changes no test.

``COMMITTED`` is for the few tests that are about the committed records themselves: a folder with a copy of them as the
last commit has them, made when it is first imported, whatever lies in ``results``.
"""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
RESULTS = DATA / "results"
FOLDERS = ("27f8af3c07", "635af1acbb", "8fb834d50a", "b4a6e9d58e", "c948cac9ea", "d7dae63b89", "quoted")


@functools.cache
def _copy_committed() -> Path:
    """Copy ``FOLDERS`` as the last commit has them; from an unpacked archive, which is no repository, as they are."""
    made = Path(tempfile.mkdtemp(prefix="fanout-records-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    if not (ROOT / ".git").exists():
        for name in FOLDERS:
            shutil.copytree(ROOT / "results" / name, made / "results" / name)
        return made / "results"
    git = ["git", "-c", "safe.directory=*", "-c", "core.autocrlf=false", f"--git-dir={ROOT / '.git'}"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}  # others are a hook's
    archive = [*git, "archive", "--format=tar", "HEAD", *(f"results/{name}" for name in FOLDERS)]
    tar = subprocess.run(archive, cwd=ROOT, env=ours, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(made)], input=tar, check=True)
    return made / "results"


def __getattr__(name: str) -> Any:
    if name == "COMMITTED":
        return _copy_committed()
    raise AttributeError(name)
