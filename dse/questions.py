"""Keep questions about predictions, what was told and what was then measured: a head, and a table of candidates.

The head, ``<stem>.json``, says when and by which seed the questions were asked, and which predictor answered them from
the records of which commits. Its table, ``<stem>.csv``, is one call of ``pandas.read_csv``. A row has its
``side`` ("trees", "loops" or "arrangements"), the number of its ``question``, what was asked, the candidate, what was
``told`` in [``low``, ``high``] and on which ``basis`` (or the ``reason`` why nothing was), and once it was measured,
``measured`` with its ``status``, ``utc`` and ``commit`` (or the ``failure``). Trees are told in seconds per step, loops
and arrangements in gradient steps per second. The sentinels of the runs that measured are records, in ``<stem>.jsonl``.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Self

from .estimate import weakest
from .records import Measurement, RecordError

Row = dict[str, Any]
TEXT = frozenset(
    (
        *("side", "kind", "dtype", "distribution", "contestant", "workload", "arrangement", "learner", "policy"),
        *("basis", "reason", "status", "failure", "utc", "commit"),
    )
)
"""Columns of text; the others hold JSON, and what a row lacks is empty."""


@dataclass(frozen=True)
class Asked:
    """A file of questions, by the ``path`` of its head."""

    path: Path
    head: Mapping[str, Any]
    rows: Sequence[Row]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a head and its table. OSError, ValueError or TypeError for files that hold something else."""
        with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
            rows = [{name: _value(name, text) for name, text in one.items() if text} for one in csv.DictReader(file)]
        return cls(path, dict(json.loads(path.read_text(encoding="utf-8"))), rows)

    @property
    def table(self) -> Path:
        """The file of the rows."""
        return self.path.with_suffix(".csv")

    @property
    def records(self) -> Path:
        """The file of the sentinels."""
        return self.path.with_suffix(".jsonl")

    def questions(self, side: str) -> list[list[Row]]:
        """Group the rows of a side by question."""
        rows = (row for row in self.rows if row["side"] == side)
        return [list(group) for _, group in groupby(rows, lambda row: row["question"])]

    def answered(self, side: str) -> list[list[Row]]:
        """Group the rows of a side by question, without the questions that have no answer."""
        return [rows for rows in self.questions(side) if any("reason" not in row for row in rows)]

    def create(self) -> None:
        """Write both files. RecordError if the head exists: answers are never edited."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(json.dumps(self.head, indent=1) + "\n")
        except FileExistsError:
            raise RecordError(
                f"{self.path}: these questions were answered before, and answers are never edited"
            ) from None
        self.save()

    def save(self) -> None:
        """Write the table, whole or not at all. RecordError if that cannot be done."""
        beside = self.table.with_suffix(".csv.part")
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        try:
            with beside.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, columns, lineterminator="\n")
                writer.writeheader()
                writer.writerows({name: _text(name, value) for name, value in row.items()} for row in self.rows)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.table)
        except OSError as error:
            raise RecordError(f"{self.table}: cannot be written ({error.strerror}); it is as it was") from None


def numbered(side: str, groups: Iterable[Sequence[Row]]) -> list[Row]:
    """Return the rows of questions of a side, each with the number of its question."""
    return [{"side": side, "question": number} | row for number, rows in enumerate(groups) for row in rows]


def told(answer: Any) -> Row:
    """Return what an answer tells of a rate: gradient steps per second, the interval, and what both rest on."""
    basis = weakest(part.source for part in answer.parts)
    return {"told": answer.hz, "low": answer.low, "high": answer.high, "basis": basis}


def is_measured(row: Row) -> bool:
    """Tell whether a candidate was measured, whatever the outcome."""
    return "status" in row


def fill(row: Row, found: Sequence[Measurement], of_seconds: Callable[..., float]) -> None:
    """Fill a row by the records of its candidate: ``of_seconds`` of it and their times, or why one has no time."""
    for name in ("measured", "failure"):
        row.pop(name, None)
    untimed = next((one for one in found if one.median_seconds is None), None)
    if untimed is not None:
        row |= {"failure": untimed.reason or untimed.status, "status": untimed.status}
    else:
        is_unstable = any(one.status == "unstable" for one in found)
        row |= {"measured": of_seconds(row, *(one.seconds for one in found))}
        row |= {"status": "unstable" if is_unstable else "ok"}
    row |= {"utc": min(one.utc for one in found), "commit": (found[0].commit or "")[:8]}


def _value(name: str, text: str) -> Any:
    return text if name in TEXT else json.loads(text)


def _text(name: str, value: Any) -> str:
    return str(value) if name in TEXT else json.dumps(value, allow_nan=False)
