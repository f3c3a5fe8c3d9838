"""Write as text how good the choice of the fanout K is."""

from pathlib import Path

from ..validation.fanouts import NO_PEER, Reach, Regrets, families, reaches, regrets, verdict
from .text import aligned, wrapped

REGRETS = (
    "family",
    "left out",
    "(N, B)",
    "model",
    "worst",
    "always 16",
    "worst",
    "printed",
    "worst",
    "noise floor",
    "unstable",
)
REACHES = ("family", "op", "left out, times beyond the rest", "cells", "median off", "worst off", "told", "within it")
"""Heads of the two tables: what a choice of K cost, and how far off times were where the cells end."""


def fanouts_text(results: Path) -> str:
    """Write both tables for a reader. RecordError where no machine's sweep over K is there."""
    swept = families(results)
    judged = regrets(swept)
    regret_lines = aligned([REGRETS, *map(regret_row, judged)])
    reach_lines = aligned([REACHES, *map(reach_row, reaches(swept))])
    notes = [line for sentence in (verdict(judged), NO_PEER) for line in wrapped(sentence, "")]
    return "\n".join([*regret_lines, "", *notes, "", *reach_lines])


def regret_row(row: Regrets) -> tuple[str, ...]:
    """Write the cells of a row under ``REGRETS``."""
    shares = [f"{share:.1%}" for pair in (row.model, row.sixteen, row.printed) for share in pair]
    return row.family, row.left_out, str(row.cells), *shares, f"{row.noise_floor:.1%}", str(row.unstable)


def reach_row(row: Reach) -> tuple[str, ...]:
    """Write the cells of a row under ``REACHES``."""
    factors = (f"{factor:.2f}x" for factor in (row.median, row.worst, row.told))
    return row.family, row.op, row.left_out, str(row.cells), *factors, f"{row.within} of {row.cells}"
