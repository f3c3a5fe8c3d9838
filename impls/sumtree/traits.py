"""What trees state of themselves, read from the text of their files, where their modules cannot be imported.

Either what a module needs is not installed, or the package that is installed is another commit's, as where asv imports
the benchmarks of a checkout: these run this file by its path, so it imports nothing of ours.
"""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

BASE = "SumTree"


def read(folder: Path) -> dict[str, SimpleNamespace]:
    """The traits of each contestant by its name: literals of its class, else of the classes it is made of.

    ValueError for a file without a tree, and for a trait that is no literal.
    """
    paths = [folder / "contract.py", *sorted(folder.glob("*_tree.py"))]
    held = {
        path: [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
        for path in paths
    }
    classes = {one.name: one for found in held.values() for one in found}
    known = {name for name, value in _stated(BASE, classes).items() if _is_literal(value)}
    return {path.stem.removesuffix("_tree"): _traits(path, held[path], classes, known) for path in paths[1:]}


def _traits(
    path: Path, held: list[ast.ClassDef], classes: Mapping[str, ast.ClassDef], known: set[str]
) -> SimpleNamespace:
    """Of the file's tree: its public class that is made of the contract's."""
    for one in held:
        stated = {name: value for name, value in _stated(one.name, classes).items() if name in known}
        if stated and not one.name.startswith("_"):
            for name, value in stated.items():
                if not _is_literal(value):
                    raise ValueError(f"{path}: {one.name}.{name} must be a literal, for it is read from the text")
            return SimpleNamespace(**{name: ast.literal_eval(value) for name, value in stated.items()})
    raise ValueError(f"{path}: no public class is made of {BASE}")


def _stated(name: str, classes: Mapping[str, ast.ClassDef]) -> dict[str, ast.expr]:
    """What a class's body gives to names, over what its bases' do."""
    found: dict[str, ast.expr] = {}
    for base in reversed(classes[name].bases) if name in classes else ():
        found |= _stated(getattr(base, "id", ""), classes)
    for node in classes[name].body if name in classes else ():
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=key)], value=value)
                | ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value)
            ):
                found[key] = value
    return found


def _is_literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True
