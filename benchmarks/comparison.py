"""The outcome of comparing two commits: its cells, its exit code, and how it is printed."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from dse import stats
from impls.terminal import plural

from .cases import Case

OK, REGRESSION, BROKEN, INCONCLUSIVE = range(4)
OUTCOMES = ("ok", "regression", "broken", "inconclusive")


@dataclasses.dataclass
class Cell:
    """A case, and its seconds in each round: in the process of BASE, of NEW and of BASE again."""

    case: Case
    base: list[float] = dataclasses.field(default_factory=list)
    new: list[float] = dataclasses.field(default_factory=list)
    again: list[float] = dataclasses.field(default_factory=list)
    untimed: str | None = None
    difference: stats.Difference | None = None

    @property
    def changes(self) -> list[float]:
        """``ln(new / base)`` of each round; their mean is the change that is judged and shown.

        What a machine does in a round is in both times and cancels, and the geometric means of both times over the
        rounds have that very ratio, which their medians need not have.
        """
        return [math.log(new / base) for base, new in zip(self.base, self.new, strict=True)]

    @property
    def twins(self) -> list[float]:
        """``ln(base again / base)`` of each round."""
        return [math.log(again / base) for base, again in zip(self.base, self.again, strict=True)]


@dataclasses.dataclass
class Comparison:
    """All cells, the noise floor, and what the verdicts are held against; ``broken`` says what went wrong."""

    base: str
    new: str
    cells: list[Cell]
    threshold: float
    detect: float
    floor: float = 0.0
    rounds: int = 0
    broken: str | None = None
    machine: str = ""  # that all of it was timed on

    def judge(self, cells: Sequence[Cell], estimates: Sequence[float], errors: Sequence[float]) -> None:
        """Give cells their verdicts, by estimates of ln(new / base) and their standard errors."""
        floor = max(self.floor, math.log1p(self.threshold))
        differences = stats.differences(estimates, errors, floor, math.log1p(self.detect))
        for cell, difference in zip(cells, differences, strict=True):
            cell.difference = difference

    @property
    def code(self) -> int:
        """The exit code: OK, REGRESSION, BROKEN or INCONCLUSIVE."""
        verdicts = [cell.difference.verdict for cell in self.cells if cell.difference]
        if self.broken:
            return BROKEN
        if "slower" in verdicts:
            return REGRESSION
        return INCONCLUSIVE if "ambiguous" in verdicts or not verdicts else OK


def label(case: Case) -> str:
    """Describe a case in one line."""
    options = "".join(f", {key}={value}" for key, value in sorted(case.options.items()))
    more = f", {case.threads} threads" if case.threads > 1 else ""
    kind = "" if case.workload == "uniform" else f", {case.workload}"
    shape = f"N={case.capacity:,} K={case.fanout} B={case.batch:,}"
    return f"{case.contestant} {case.op}, {shape}, {case.dtype}{more}{kind}{options}"


def as_markdown(comparison: Comparison) -> str:
    """Return a table of the cells for a pull request, and the summary below it."""
    rows = [("cell", comparison.base, comparison.new, "change", "interval", "verdict")]
    for cell in comparison.cells:
        if cell.untimed or not cell.difference:
            rows.append((label(cell.case), "", "", "", "", f"not timed, {cell.untimed or 'the run ended before'}"))
            continue
        base, new = (f"{1e6 * stats.geometric_mean(values):,.2f} us" for values in (cell.base, cell.new))
        change, low, high = (math.expm1(getattr(cell.difference, name)) for name in ("log_ratio", "low", "high"))
        interval = f"{low:+.0%} to {high:+.0%}" if math.isfinite(high) else "unknown"
        verdict = f"**{cell.difference.verdict}**" if cell.difference.verdict == "slower" else cell.difference.verdict
        rows.append((label(cell.case), base, new, f"{change:+.1%}", interval, verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows] if comparison.cells else []
    timed_on = [f"timed on machine {comparison.machine}:"] if comparison.machine else []
    return "\n".join([*lines, "", *timed_on, _summary(comparison)])


def _summary(comparison: Comparison) -> str:
    if comparison.code == BROKEN:
        return f"broken: {comparison.broken}"
    counts = dict.fromkeys(("slower", "faster", "same", "ambiguous"), 0)
    for cell in comparison.cells:
        if cell.difference:
            counts[cell.difference.verdict] += 1
    verdicts = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing was timed"
    how = "records as they are"
    if comparison.rounds:
        how = f"times are geometric means over {plural(comparison.rounds, 'round')}, the change is their ratio"
    floor = f"A/A noise floor {math.expm1(comparison.floor):.1%}"
    remedy = {
        OK: f"nothing is slower, and a slow-down of {comparison.detect:.0%} would have been seen in every cell",
        REGRESSION: f"slower by more than the noise floor and {comparison.threshold:.0%}",
        INCONCLUSIVE: f"cannot exclude a slow-down of {comparison.detect:.0%} in every cell; try a larger --budget",
    }[comparison.code]
    return f"{OUTCOMES[comparison.code]}: {verdicts} ({how}; {floor}, 95 % confidence for all cells together); {remedy}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return everything, with ln ratios and the seconds of each round; None for what is not finite."""
    cells = []
    for cell in comparison.cells:
        fields: dict[str, Any] = {"case": dataclasses.asdict(cell.case), "source": "measured", "reason": cell.untimed}
        if cell.difference:
            names = ("log_ratio", "low", "high")
            shown = {name: value if math.isfinite(value := getattr(cell.difference, name)) else None for name in names}
            fields |= {"verdict": cell.difference.verdict, **shown}
        cells.append(fields | {"base_seconds": cell.base, "new_seconds": cell.new, "base_again_seconds": cell.again})
    same = {
        name: getattr(comparison, name)
        for name in ("base", "new", "machine", "broken", "rounds", "threshold", "detect")
    }
    outcome = {"outcome": OUTCOMES[comparison.code], "exit_code": comparison.code, "noise_floor": comparison.floor}
    return {**same, **outcome, "cells": cells}
