"""What earlier builds left: figures and sections that need no drawing again, as neither records nor code changed.

A build keeps ``kept.json`` next to the page. A figure counts as the same while its rows, the code of ``dse`` and
``impls``, the files of ``reports`` that draw it, and the libraries' versions are the same; a section while all results
and all code are; the whole page while they, the machine and the question are.
"""

import ast
import hashlib
import io
import json
import pickle
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from impls.files import list_files

if TYPE_CHECKING:
    from .chart import Chart

ROOT = Path(__file__).resolve().parent.parent
FILE = "kept.json"
LIBRARIES = ("matplotlib", "seaborn", "pandas", "numpy", "scipy", "numba", "torch", "vl-convert-python")
SOURCES = (".py", ".toml", ".css", ".js", ".md", ".txt", ".csv", ".c", ".h", ".cu", ".cpp")


@dataclass
class Kept:
    """What lies in a folder of output: by name, the key that a figure or section was made for, and what was made."""

    folder: Path
    figures: dict[str, dict[str, str]] = field(default_factory=dict)
    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    whole: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Kept":
        """Read what a folder keeps; nothing where there is no such file, or none that can be read."""
        try:
            found = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(folder, found["figures"], found["sections"], found["whole"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls(folder)

    def write(self) -> None:
        """Keep it for the next build."""
        kept = {"figures": self.figures, "sections": self.sections, "whole": self.whole}
        (self.folder / FILE).write_text(json.dumps(kept), encoding="utf-8")

    def title(self, name: str, key: str) -> str | None:
        """Return the title of a figure drawn for this key, if its files are as they were written; else None."""
        found = self.figures.get(name, {})
        same = found.get("key") == key and all(found[path.suffix] == digest([path]) for path in self.pictures(name))
        return found["title"] if key and same else None

    def keep(self, name: str, key: str, title: str) -> None:
        """Keep a figure whose files are written."""
        self.figures[name] = {"key": key, "title": title, **{p.suffix: digest([p]) for p in self.pictures(name)}}

    def pictures(self, name: str) -> list[Path]:
        """Return where the two files of a figure are."""
        return [self.folder / f"{name}{ending}" for ending in (".svg", ".png")]

    def built(self, stamp: str) -> dict[str, Any] | None:
        """Return what a build of this stamp said, if all that it wrote is there; else None."""
        said = self.whole.get("said", {})
        if self.whole.get("stamp") != stamp:
            return None
        return said if digest(map(Path, [said["page"], *said["figures"]])) == self.whole["files"] else None

    def finish(self, stamp: str, said: dict[str, Any]) -> None:
        """Keep what a build said, and write all."""
        files = digest(map(Path, [said["page"], *said["figures"]]))
        self.whole = {"stamp": stamp, "said": said, "files": files}
        self.write()


def digest(files: Iterable[Path]) -> str:
    """Return a hash of the names and bytes of files; one that is not there counts as its name alone."""
    made = hashlib.blake2b(digest_size=16)
    for path in files:
        content = path.read_bytes() if path.is_file() else b"\0"
        made.update(f"{path}\0{len(content)}\0".encode() + content)
    return made.hexdigest()


class _ByContent(pickle.Pickler):
    """Pickles a folder as what its files hold: figures that are given the folder of results read them."""

    def persistent_id(self, value: Any) -> Any:
        """Return what stands for a folder; None for any other value, which is pickled as it is."""
        return of_results(value) if isinstance(value, Path) and value.is_dir() else None


def key_of(*parts: Any) -> str:
    """Return a hash of values by their content; "", which is no key, where one of them cannot be told by it."""
    content = io.BytesIO()
    pickler = _ByContent(content, protocol=5)
    pickler.fast = True  # equal values give equal bytes, whether or not they are one object
    try:
        pickler.dump(parts)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return ""
    return hashlib.blake2b(content.getbuffer(), digest_size=16).hexdigest()


@cache
def surroundings() -> tuple[str, ...]:
    """Return the versions of Python and of the libraries that figures and answers rest on."""
    return (sys.version, *map(_version, LIBRARIES))


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "absent"


@cache
def code(*packages: str) -> str:
    """Return a hash of all sources of packages of this checkout."""
    found = (path for package in packages for path in (ROOT / package).rglob("*") if path.suffix in SOURCES)
    return digest(sorted(path for path in found if "build" not in path.relative_to(ROOT).parts))


def of_results(results: Path) -> str:
    """Return a hash of every file of results."""
    return digest(path for path in list_files(results, "**/*") if path.is_file())


def of_drawing(chart: "Chart") -> str:
    """Return a hash of the code that draws a figure."""
    drawn_by = chart.draw.func if isinstance(chart.draw, partial) else chart.draw
    module = getattr(drawn_by, "__module__", "")
    path = ROOT / f"{module.replace('.', '/')}.py"
    if not path.is_file():
        return code("impls", "dse", "reports")
    return code("impls", "dse") + digest(sorted(_needed(path)))


@cache
def _needed(path: Path) -> frozenset[Path]:
    """Return the files of ``reports`` that one of them needs, itself among them."""
    needed, left = {path}, [path]
    while left:
        new = set(_imported(left.pop())) - needed
        needed |= new
        left += new
    return frozenset(needed)


@cache
def _imported(path: Path) -> tuple[Path, ...]:
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[Path]:
    """Yield the files of ``reports`` that a file of it imports, by relative imports as the house has them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            names = [folder / name.name for name in node.names]
            yield from (one.with_suffix(".py") for one in (folder, *names) if one.with_suffix(".py").is_file())
