"""Keeps which cells the measuring commands measure: of each command line their number and hash, the first and the last.

    python -m tests.cells            compare with what was written; exit code 1 where anything differs
    python -m tests.cells --write    write what there is now, where a change is meant

The command lines are those of the file: to add one, write ``"its words": null`` there. The cells are those that
``--dry-run`` lists on a machine of ``CORES`` cores without a GPU, wherever this runs; the hash is over their keys in
the order of measuring.
"""

import contextlib
import hashlib
import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from impls import cores

FILE = Path(__file__).with_name("data") / "kept" / "cells.json"
CORES = 4


def list_cells(line: str) -> list[dict[str, Any]]:
    """List the cells of a command line, each an object of its key's fields."""
    from benchmarks.__main__ import main  # noqa: PLC0415  # once the number of cores is set

    printed, words = io.StringIO(), shlex.split(line)
    words += [] if words[0] == "compare" else ["--results", str(FILE.with_name("nothing"))]
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([*words, "--dry-run", "--json"])
    assert code == 0, f"{line} ends with exit code {code}"
    return [cell for cell in json.loads(printed.getvalue()) if cell["contestant"] != "cuda"]


def sum_up(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is kept of a command line's cells."""
    first, last = (" ".join(map(str, cell.values())) for cell in (cells[0], cells[-1]))
    key = hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()[:16]
    return {"cells": len(cells), "hash": key, "first": first, "last": last}


def list_changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield what was kept and what there is now of each command line whose cells differ, and how to list them."""
    for line, kept in before.items():
        if kept != after[line]:
            yield f"{line}:\n  {kept} before\n  {after[line]} now"
            yield f"  to see what differs, list them by both commits: python -m benchmarks {line} --dry-run"


def main(words: list[str]) -> int:
    """Compare, and print what differs; return the exit code."""
    is_writing = words == ["--write"]
    cores.count_allowed = lambda: CORES
    before = json.loads(FILE.read_text(encoding="utf-8"))
    now = {line: sum_up(list_cells(line)) for line in before}
    if is_writing:
        rows = ",\n".join(f"{json.dumps(line)}: {json.dumps(kept)}" for line, kept in now.items())
        FILE.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    print(*list_changes(before, now), f"{len(now)} command lines: {'' if now == before else 'not '}equal", sep="\n")
    return now != before and not is_writing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
