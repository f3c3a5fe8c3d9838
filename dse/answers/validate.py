"""How good are answers? Each file of answers on record, by what was measured after them.

Nobody chose the questions: their seed was the hash of a commit, whose code wrote the answers down before anything was
measured, but where the last column says otherwise. The code that answers has changed since; what can be run here is
raced instead: python -m dse recommend --help
"""

import argparse
import json
from pathlib import Path
from typing import Any

from impls.terminal import aligned

from ..records import RecordError
from ..validation.answered import Side, sides
from .text import add_command, percent, share


def add_to(commands: Any) -> None:
    """Add ``validate`` to the commands of a parser."""
    summary = "how good answers were, when measured: coverage, regret, error"
    add = add_command(commands, "validate", summary, __doc__, "validate").add_argument
    add("--results", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")
    add("--json", action="store_true", help="print JSON instead of text")


def run(options: argparse.Namespace) -> int:
    """Print figures; return the exit code 0. RecordError where there are none."""
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
