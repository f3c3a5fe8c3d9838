"""``python -m dse validate``: how good are answers? Arguments in, text or JSON out."""

import argparse
import json
from pathlib import Path
from typing import Any

from impls.terminal import aligned

from ..records import RecordError
from ..validation.answered import Side, sides
from ..validation.fanouts import NO_PEER, Reach, Regrets, families, reaches, regrets, verdict
from .text import add_command, percent, share, wrapped

ABOUT = """How good are answers? Each file of answers on record, by what was measured after them.

Nobody chose the questions: their seed was the hash of a commit, whose code wrote the answers down before anything was
measured, but where the last column says otherwise. The code that answers has changed since; what can be run here is
raced instead: python -m dse recommend --help"""


def add_to(commands: Any) -> None:
    """Add ``validate`` to the commands of a parser."""
    summary = "how good answers were, when measured: coverage, regret, error"
    add = add_command(commands, "validate", summary, ABOUT, "validate").add_argument
    add("--fanouts", action="store_true", help="instead: what the choice of K cost, judged on what it had not seen")
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Print figures; return the exit code 0. RecordError where there are none."""
    if options.fanouts:
        print(fanouts_text(options.results))
        return 0
    if not (known := sides(options.results)):
        raise RecordError(f"{options.results}: no answers that were measured are on record here")
    if options.json:
        print(json.dumps([to_dict(one) for one in known]))
    else:
        print(*aligned([ANSWERS, *map(answer_row, known)]), sep="\n")
    return 0


def to_dict(side: Side) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {"file": str(side.path), "side": side.name, "but": side.doubt, **side.figures}


ANSWERS = (
    *(
        "by code of",
        "about",
        "questions",
        "intervals hold",
        "of choices",
        "off",
        "worst",
        "too high",
        "regret",
        "worst",
    ),
    *("best chosen", "but"),
)
"""Heads of the table of answers on record; errors and regrets are in the median and at worst."""


def answer_row(side: Side) -> tuple[str, ...]:
    """Write the cells of a row under ``ANSWERS``."""
    if not (found := side.figures):
        return side.stem, side.name, *["0", *[""] * (len(ANSWERS) - 4)], side.doubt
    costs = [percent(found[key]) if key in found else "" for key in ("median_regret", "worst_regret")]
    best = share(found["best_is_choice"]) if costs[0] else ""
    off = (percent(found[key]) for key in ("median_error", "worst_error"))
    held, too_high = (share(found[key]) for key in ("inside", "inside_of_choices")), share(found["too_high"])
    return side.stem, side.name, str(found["questions"][0]), *held, *off, too_high, *costs, best, side.doubt


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
