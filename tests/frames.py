"""Keeps what the page's figures and tables say of the tests' records and of made-up ones: columns, summed up.

python -m tests.frames            compare with what was written; exit code 1 where anything differs
python -m tests.frames --write    write what there is now, where a change is meant
"""

import json
import math
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from reports import page
from reports.frame import Data
from tests.committed import DATA, RESULTS
from tests.page_records import data_of, everything, write_curves

FILE = DATA / "kept" / "frames.json"
KEY = "d7dae63b89"
OF_THIS_MACHINE = {"missing", "packages", "commands"}  # and not of the records
TOLERANCE = 1e-6  # as packages of other versions fit laws


def sum_up(rows: Any) -> dict[str, list[float]]:
    """Sum up each column: how many values it has, and the sum of its numbers by their rows, or how many texts."""
    numbers = rows.select_dtypes("number").replace([math.inf, -math.inf], math.nan).fillna(0.0).astype(float)
    sums = {column: float(np.dot(numbers[column], np.arange(1, len(rows) + 1))) for column in numbers}
    texts = {column: float(rows[column].astype(str).nunique()) for column in rows.columns.difference(numbers.columns)}
    return {column: [int(rows[column].count()), found] for column, found in {**sums, **texts}.items()}


def read_frames() -> dict[str, list[float]]:
    """Sum up every column of every figure and table by the names of both."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(RESULTS / "quoted", Path(folder) / "quoted")
        made_up = data_of(*everything(), results=write_curves(Path(folder)))
        sources = {"": Data.read(RESULTS, KEY), "made-up ": made_up}
        frames = [(place + name, rows) for place, data in sources.items() for name, rows in page.to_frames(data)]
    rows = ((name, sum_up(found)) for name, found in frames if name.split()[-1] not in OF_THIS_MACHINE)
    return {f"{name}, {column}": found for name, columns in rows for column, found in columns.items()}


def list_changes(before: dict[str, list[float]], after: dict[str, list[float]]) -> list[str]:
    """List the columns that differ, each with what was kept of it and what there is now."""
    pairs = {name: (before.get(name, [-1, 0]), after.get(name, [-1, 0])) for name in {**before, **after}}
    same = {name for name, pair in pairs.items() if np.allclose(*pair, rtol=TOLERANCE, atol=TOLERANCE)}
    return [f"{name}: {pair}" for name, pair in pairs.items() if name not in same]


def main(words: list[str]) -> int:
    """Compare or write; return the exit code."""
    found = read_frames()
    if words == ["--write"]:
        FILE.write_text(json.dumps(found).replace("], ", "],\n ") + "\n", encoding="utf-8")
        return 0
    changes = list_changes(json.loads(FILE.read_text(encoding="utf-8")), found)
    print(*changes, sep="\n")
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
