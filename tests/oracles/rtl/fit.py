"""Fit the coefficients of look-up tables: results/fpga/synthesis.json to impls/fpga/coefficients.py.

python -m tests.oracles.rtl.fit
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impls.fpga.design import Design
from impls.fpga.resources import PARTS, Part

ROOT = Path(__file__).resolve().parents[3]
RECORDS = ROOT / "results" / "fpga" / "synthesis.json"
COEFFICIENTS = ROOT / "impls" / "fpga" / "coefficients.py"
HEAD = '"""Look-up tables a unit of each term of ``resources.py``, by ``python -m tests.oracles.rtl.fit``."""\n\n'


@dataclass(frozen=True)
class Point:
    """A ``part`` of a design, for batches of up to ``batch``; ``held_out`` points test the fit and are not in it."""

    part: str
    design: Design
    batch: int = 1024
    uram: bool = False
    held_out: bool = False

    @property
    def tag_bits(self) -> int:
        """Bits that number the samples of a batch."""
        return (self.batch - 1).bit_length()


def records() -> list[dict[str, Any]]:
    """Records of all points, with the counts of those that were synthesized."""
    read: list[dict[str, Any]] = json.loads(RECORDS.read_text())
    return read


POINTS = tuple(
    Point(one["part"], Design(**one["design"]), one["batch"], one["uram"], one["held_out"]) for one in records()
)
"""What is synthesized: one more is a record of these fields alone, until ``synthesis`` adds its counts."""


def part_of(record: Mapping[str, Any]) -> Part:
    """The part that a record was synthesized from, by the laws of ``resources.py``."""
    return PARTS[record["part"]](Design(**record["design"]), record["batch"], record["uram"])


def fit(measured: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Coefficients >= 0 by term, with the least sum of squares of relative errors over points that are not held out.

    A term whose coefficient would be negative is left out, the most negative first. Designs that overlap have the
    coefficients of those that do not, and terms of their own.
    """
    taken = [record for record in measured if not record["held_out"]]
    turns = [record for record in taken if record["design"]["ports"] == "shared"]
    known = _fit(turns, {})
    return dict(sorted((known | _fit([record for record in taken if record not in turns], known)).items()))


def _fit(taken: Sequence[Mapping[str, Any]], known: Mapping[str, float]) -> dict[str, float]:
    parts = [part_of(record) for record in taken]
    names = sorted({name for part in parts for name in part.terms} - set(known))
    luts = np.array([record["counts"]["lut"] for record in taken], np.float64)
    told = [part.memory_luts + part.fitted_luts(dict.fromkeys(names, 0.0) | dict(known)) for part in parts]
    fitted = (luts - told) / luts
    sizes = np.array([[part.terms.get(name, 0) for name in names] for part in parts], np.float64) / luts[:, None]
    kept = list(range(len(names)))
    while True:
        # Invariant: the terms left out had negative coefficients, and count as 0.
        solution = np.linalg.lstsq(sizes[:, kept], fitted, rcond=None)[0]
        if solution.min() >= 0:
            break
        del kept[int(solution.argmin())]
    values = dict(zip((names[column] for column in kept), solution, strict=True))
    return {name: round(float(values.get(name, 0.0)), 4) for name in names}


def main() -> None:
    """Fit the records' coefficients and write them to ``coefficients.py``."""
    lines = "".join(f'    "{name}": {value},\n' for name, value in fit(records()).items())
    COEFFICIENTS.write_text(f"{HEAD}LUTS = {{\n{lines}}}\n")


if __name__ == "__main__":
    main()
