"""How good were answers that were given before anybody measured? Errors, coverage and regret of what is on record.

Questions were sampled by the hash of a commit, answered by its code, and measured afterwards; since what can be run is
raced, none are asked any more. A file's head, ``<stem>.json``, says when and from which records they were answered. In
its table, ``<stem>.csv``, a row is a candidate: its ``side`` and the number of its ``question``, what was ``told`` in
[``low``, ``high``] on which ``basis`` (or the ``reason`` why nothing was), and what was ``measured`` (or the
``failure``) with its ``status``, ``utc`` and ``commit``. Trees are told in seconds per step, loops and arrangements in
gradient steps per second. The sentinels of the runs that measured are records, in ``<stem>.jsonl``.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from impls.files import list_files

from ..records import RecordError, in_order

Row = dict[str, Any]
TEXT = frozenset(
    (
        *("side", "kind", "dtype", "distribution", "contestant", "workload", "arrangement", "learner", "policy"),
        *("basis", "reason", "status", "failure", "utc", "commit"),
    )
)
"""Columns of text; the others hold JSON, and what a row lacks is empty."""


@dataclass(frozen=True)
class Side:
    """The questions of one kind in a file, each a list of candidates, with what the file's ``head`` says of them."""

    path: Path
    name: str
    head: Mapping[str, Any]
    questions: Sequence[Sequence[Row]]

    @property
    def doubt(self) -> str:
        """Why the answers say less than those of the others; "" where they do not."""
        if "answered_afterwards_by" in self.head:
            return "answered after measuring"
        return "" if self.head.get("seed_from") == "commit" else "seed chosen by hand"

    @property
    def stem(self) -> str:
        """The machine, and the commit whose code answered or the seed."""
        return f"{self.path.parent.name}/{self.path.stem.partition('-')[2]}"

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of the questions whose candidates were all measured."""
        return figures(self.questions, is_rate=self.name != "trees")


def read_rows(path: Path) -> list[Row]:
    """Read a table of candidates."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: text if name in TEXT else json.loads(text) for name, text in one.items() if text}
            for one in csv.DictReader(file)
        ]


def is_measured(row: Row) -> bool:
    """Tell whether a candidate was measured, whatever the outcome."""
    return "status" in row


def sides(results: Path, machine: str = "*") -> list[Side]:
    """Read each side of every file of answers, of one machine or of all, the oldest first. RecordError for others."""
    return in_order((one for path in list_files(results, f"{machine}/*.csv") for one in _sides(path)), _when)


def _sides(path: Path) -> Iterable[Side]:
    try:
        head, rows = dict(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))), read_rows(path)
        for name, own in groupby(rows, lambda row: str(row["side"])):
            yield Side(path, name, head, [list(group) for _, group in groupby(own, lambda row: row["question"])])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no table of answers with its head beside it ({error})") from None


def _when(side: Side) -> str:
    return str(side.head.get("utc", ""))


def figures(questions: Iterable[Sequence[Row]], *, is_rate: bool) -> dict[str, Any]:
    """Compute errors, coverage and regret; {} where nothing was measured. Shares are (how many, of how many).

    ``is_rate``: more is better, else less. Controls do not count: they show how the machine was meanwhile. A choice is
    the recommended candidate, or the first; it has a regret where others were measured beside it.
    """
    asked = [rows for rows in questions if not rows[0].get("is_control")]
    counted = [rows for rows in asked if all(map(is_measured, rows)) and any("told" in row for row in rows)]
    every = [row for rows in counted for row in rows]
    known = [row for row in every if "told" in row and "measured" in row]
    if not known:
        return {}
    choices = list(map(_choice, counted))
    errors = [abs(row["told"] / row["measured"] - 1) for row in known]
    found = {
        "questions": (len(counted), len(asked)),
        "candidates": len(every),
        **{f"without_{what}": sum(what not in row for row in every) for what in ("told", "measured")},
        "unstable": sum(row["status"] == "unstable" for row in every),
        "median_error": median(errors),
        "worst_error": max(errors),
        "too_high": (sum(row["told"] > row["measured"] for row in known), len(known)),
        "inside": _inside(known),
        "inside_of_choices": _inside([row for row in choices if "measured" in row]),
        "inside_by": {
            key: _inside([row for row in known if key in _groups(row)])
            for key in sorted({key for row in known for key in _groups(row)})
        },
    }
    contested = [rows for rows in counted if len(rows) > 1 and any("measured" in row for row in rows)]
    regrets = [one for rows in contested if (one := _regret(rows, is_rate)) is not None]
    if not regrets:
        return found
    bests = [(rows, _best(rows, is_rate)) for rows in contested]
    return found | {
        "median_regret": median(regrets),
        "worst_regret": max(regrets),
        "best_is_choice": (sum(best is _choice(rows) for rows, best in bests), len(bests)),
        "best_is_choice_or_tie": (
            sum(best is _choice(rows) or best.get("is_tie", False) for rows, best in bests),
            len(bests),
        ),
    }


def _groups(row: Row) -> set[str]:
    """The basis of what was told, and the implementation of a tree or the arrangement."""
    return {row[name] for name in ("basis", "contestant", "arrangement") if name in row}


def _choice(rows: Sequence[Row]) -> Row:
    return next((row for row in rows if row.get("is_recommended")), rows[0])


def _best(rows: Sequence[Row], is_rate: bool) -> Row:
    timed = [row for row in rows if "measured" in row]
    return (max if is_rate else min)(timed, key=lambda row: float(row["measured"]))


def _regret(rows: Sequence[Row], is_rate: bool) -> float | None:
    """By which fraction a step of the choice took longer than the best one's; None where the choice has no time."""
    if (chosen := _choice(rows).get("measured")) is None:
        return None
    best = _best(rows, is_rate)["measured"]
    return float(best / chosen if is_rate else chosen / best) - 1


def _inside(rows: Sequence[Row]) -> tuple[int, int]:
    """Count the rows whose interval holds what was measured, and all."""
    return sum(row["low"] <= row["measured"] <= row["high"] for row in rows), len(rows)
