"""Questions that are answered by measuring, a file each: ``python -m benchmarks run <file's name>``.

To add a topic, add a file with one public subclass of ``benchmarks.topic.Topic``, or a folder whose ``command.py`` has
it; ``transports.py`` is the one to read. Nothing else names it.
"""

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import Any


def list_topics() -> dict[str, str]:
    """Return the question of every topic by its name: the first line of its file, which is not imported."""
    return {name: _read_question(file) for name, (_, file) in sorted(_find_files().items())}


def load_topic(name: str) -> Any:
    """Return the class of a topic."""
    module = importlib.import_module(_find_files()[name][0])
    from ..topic import Topic  # noqa: PLC0415  # which workers of a library's environment do without

    own = (kind for label, kind in vars(module).items() if isinstance(kind, type) and label[0] != "_")
    return next(kind for kind in own if issubclass(kind, Topic) and kind.__module__ == module.__name__)


def _find_files() -> dict[str, tuple[str, Path]]:
    """Return the module and the file of every topic by its name."""
    found = {}
    for folder in __path__:
        for _, name, is_package in pkgutil.iter_modules([folder]):
            inner = (name, "command") if is_package else (name,)
            found[name] = ".".join((__name__, *inner)), Path(folder, *inner).with_suffix(".py")
    return found


@cache
def _read_question(file: Path) -> str:
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]
