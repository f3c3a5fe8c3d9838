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

FOLDER = Path(__file__).parent


@cache
def list_topics() -> dict[str, str]:
    """Return the question of every topic by its name: the first line of its file, which is not imported."""
    return {name: _read_question(file) for name, file in sorted(_find_files().items())}


def load_topic(name: str) -> Any:
    """Return the class of a topic."""
    file = _find_files()[name]
    module = importlib.import_module(".".join((__name__, *file.relative_to(FOLDER).with_suffix("").parts)))
    from ..topic import Topic  # noqa: PLC0415  # which workers of a library's environment do without

    if hasattr(module, "main"):
        return module.main  # of a topic that has its own way still
    own = (kind for label, kind in vars(module).items() if isinstance(kind, type) and label[0] != "_")
    return next(kind for kind in own if issubclass(kind, Topic) and kind.__module__ == module.__name__)


def _find_files() -> dict[str, Path]:
    modules = pkgutil.iter_modules([str(FOLDER)])
    return {
        name: FOLDER / name / "command.py" if is_package else FOLDER / f"{name}.py" for _, name, is_package in modules
    }


def _read_question(file: Path) -> str:
    doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return doc.partition("\n")[0]
