"""Draws faults by a seed from all places of the code, into a folder for ``python -m tests.mutation --folder``.

    python -m tests.draw_faults --seed 7 --out tests/data/drawn/step-46    30 of the mechanisms, 30 of all other code

A place is a comparison, arithmetic, a whole number, and/or, or a condition. Killers are found by the tests that enter
each: ``python -m tests.run --contexts``, then ``python -m tests.mutation --folder FOLDER --find``.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

from tests.mutation import RETURN

ROOT = Path(__file__).resolve().parent.parent
MECHANISMS = ("impls/", "dse/fpga/", "dse/race_", "dse/solver/", "dse/stats.py", "dse/times/")
AREAS = ("benchmarks", "dse", "impls", "reports")
SWAPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
Place = tuple[str, int, str, str, str]  # what goes wrong, the file, the line, the old text and the new one


def list_places(path: Path) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield what may go wrong in a file: its kind, the node, and the text of the node with the fault."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node) for other in ast.walk(tree) if isinstance(other, ast.JoinedStr) for node in ast.walk(other)}
    for node in (node for node in ast.walk(tree) if id(node) not in skipped):
        match node:
            case ast.Compare(ops=[op], left=left, comparators=[right]):
                yield "comparison", node, f"{ast.unparse(left)} {SWAPPED[type(op)]} {ast.unparse(right)}"
            case ast.BinOp(op=op, left=left, right=right) if type(op) in SWAPPED:
                yield "arithmetic", node, f"({ast.unparse(left)}) {SWAPPED[type(op)]} ({ast.unparse(right)})"
            case ast.BoolOp(op=op, values=values):
                yield "and/or", node, f" {SWAPPED[type(op)]} ".join(f"({ast.unparse(value)})" for value in values)
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield "constant", node, str(value + 1)
            case ast.If(test=test) | ast.IfExp(test=test):
                yield "condition always", test, "True"
                yield "condition never", test, "False"


def write_change(path: Path, node: ast.AST, new: str) -> tuple[str, str]:
    """Return whole lines before and after a fault, with as many lines above as make them occur once in the file."""
    lines = path.read_bytes().splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno
    changed = lines[first][: node.col_offset] + new.encode() + lines[last - 1][node.end_col_offset :]
    text = path.read_text(encoding="utf-8")
    for low in range(first, -1, -1):
        old = b"".join(lines[low:last]).decode().rstrip("\n")
        if text.count(old) == 1:
            return old, (b"".join(lines[low:first]) + changed).decode().rstrip("\n")
    return "", ""


def main() -> None:
    """Write the two files of faults."""
    parser = argparse.ArgumentParser("python -m tests.draw_faults", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=30, help="faults of each of the two kinds of code")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    files = sorted(str(path.relative_to(ROOT)) for name in AREAS for path in (ROOT / name).rglob("*.py"))
    chance = random.Random(options.seed)
    for area, is_mechanism in (("mechanisms", True), ("others", False)):
        chosen = [name for name in files if name.startswith(MECHANISMS) == is_mechanism]
        places = [(name, *place) for name in chosen for place in list_places(ROOT / name)]
        rows = [f"# {options.count} faults drawn by seed {options.seed} from {len(places):,} places."]
        for name, kind, node, fault in chance.sample(places, len(places)):
            old, new = (text.replace("\n", RETURN) for text in write_change(ROOT / name, node, fault))
            if old and " ->" not in old and len(rows) <= 2 * options.count:  # which the list's format could not hold
                rows += [f"{len(rows) // 2 + 1} {kind}, {Path(name).name}:{node.lineno}", f"    {name}: {old} -> {new}"]
        (options.out / f"{area}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
