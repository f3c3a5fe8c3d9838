"""Repositories made of this checkout, with commits whose effect is known."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEARCH = "status = descend(tree, form, values, uniform, indices, priorities)"


class Repository:
    """A copy of the checkout's files with a history of its own; the first commit is the checkout as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True
        )
        for name in listed.stdout.decode().split("\0"):
            if name and (ROOT / name).is_file() and not name.startswith("results/"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        self._git("init", "-q", "-b", "main")
        self.base = self._commit()

    def commit(self, file: str, change: Callable[[str], str]) -> str:
        """The base with one file changed; returns the hash."""
        self._git("checkout", "-q", self.base)
        path = self.folder / file
        path.write_text(change(path.read_text()))
        return self._commit()

    def slow_sampling(self) -> str:
        """A commit in which every search of the numba tree is done twice."""
        kernels = "impls/sumtree/kernels/searching.py"
        assert (self.folder / kernels).read_text().count(SEARCH) == 1
        return self.commit(kernels, lambda text: text.replace(SEARCH, f"{SEARCH}; {SEARCH}"))

    def same_code(self) -> str:
        """A commit that changes a word of prose."""
        return self.commit("README.md", lambda text: text + "\nAs before.\n")

    def broken(self) -> str:
        """A commit that does not install."""
        return self.commit("pyproject.toml", lambda text: text.replace("hatchling.build", "no_such_backend"))

    def _commit(self) -> str:
        self._git("add", "-A")
        self._git("-c", "user.name=Tester", "-c", "user.email=tester@example.org", "commit", "-q", "-m", "a commit")
        return self._git("rev-parse", "HEAD")

    def _git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()
