"""Traits of the trees, read from the text of their files where their modules cannot be imported.

Either what a module needs is not installed, or the package that is installed is another commit's, as where asv imports
the benchmarks of a checkout: these run this file by its path, so it imports nothing of ours.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def read(folder: Path) -> dict[str, SimpleNamespace]:
    """The traits of each implementation by its name; those its class does not state come from its bases.

    ValueError for a trait that is no literal.
    """
    paths = [folder / "contract.py", *sorted(folder.glob("*_tree.py"))]
    nodes = [
        (path.stem.removesuffix("_tree"), node)
        for path in paths
        for node in ast.parse(path.read_text("utf-8"), path.name).body
    ]
    pairs = [(name, node) for name, node in nodes if isinstance(node, ast.ClassDef)]
    classes = {node.name: node for _, node in pairs}
    public = [(name, _stated(node.name, classes)) for name, node in pairs if not node.name.startswith("_")]
    return {name: SimpleNamespace(**traits) for name, traits in public if name != "contract" and "variants" in traits}


def _stated(name: str, classes: Mapping[str, ast.ClassDef]) -> dict[str, Any]:
    """Literals that a class's body gives to names, over those of its bases."""
    stated: dict[str, Any] = {}
    if name not in classes:
        return stated
    # Invariant: a later entry overrides an earlier one, as the class and its first bases do for Python.
    for base in reversed(classes[name].bases):
        stated |= _stated(getattr(base, "id", ""), classes)
    for node in classes[name].body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
            key = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
            try:
                stated[key] = ast.literal_eval(node.value)
            except ValueError:
                if key in stated:
                    raise ValueError(f"{name}.{key} must be a literal, for it is read from the text") from None
    return stated
