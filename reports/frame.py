"""The records of all machines as one tidy table, a row a timed cell, and which rows of it a figure shows.

Columns: the fields of a record, ``machine``, ``commit``, ``o_NAME`` for each option (NaN where a record lacks it),
``m_NAME`` for each metric that is a number, ``name`` (the contestant with what differs from its default) and times:
``seconds`` a call, ``us`` a call, ``ns`` an element and ``per_second`` calls, each with the ends of its 95 % interval
(``ns_low``, ``ns_high``). Every cell stands once, with the record that ``dse.records.select`` chooses.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dse
from dse import stats
from dse.platforms.checkout import read_races
from dse.race_trees import file_of_races
from dse.records import SENTINEL, NoRecordsError, Record, in_order, text_of, twins

from .claims.judge import PooledError
from .figure import Figure

AGAIN = "_again"  # ends the primitive of a cell's second timing in a run
USUAL: Mapping[str, Any] = {
    "capacity": 1_000_000, "batch": 256, "fanout": 16, "threads": 1, "dtype": "float32", "distribution": "uniform",
}  # fmt: skip
"""What a figure shows in the columns that it holds, or else the nearest to it that was measured."""
UNITS = {"us": 1e6, "ms": 1e3}
VARIANTS = {"validate": "unchecked", "launch": "{}", "propagate": "{}", "layout": "{}", "lanes": "{} lanes"}
"""Options that make a contestant another one, and how its name says so."""


CELL = ("primitive", "contestant", "op", "capacity", "batch", "fanout", "threads", "dtype", "distribution", "options")
BY_LEARNER = ("actor", "forward", "inference", "learner", "loop", "parallel_learners")
"""Parts of a training system that either learner makes; by torch's where a record does not say so."""


@dataclass(frozen=True)
class Data:
    """Records of a page: the folder of ``results``, the page's ``machine``, and the ``records`` of all machines."""

    results: Path
    machine: str
    records: Sequence[Record]
    used: list[pd.DataFrame] = field(default_factory=list, compare=False)
    """Rows that tables were made of since this was emptied: what their source lines name."""

    @classmethod
    def read(cls, results: Path, machine: str) -> "Data":
        """Read every machine's records, and the races of ``machine`` that lie outside of a checkout."""
        races = read_races(file_of_races(machine)) if results == dse.platforms.files.RESULTS else []
        return cls(results, machine, [*dse.read_folder(results), *races])

    @property
    def quotes(self) -> Path:
        """The folder whose ``quoted`` has the numbers that others printed: of these results, or else this project's."""
        return self.results if (self.results / "quoted").is_dir() else Path(__file__).parent.parent / "results"

    @cached_property
    def own(self) -> list[Record]:
        """The records of the page's machine, the latest last."""
        return in_order(record for record in self.records if record.machine_key == self.machine)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The timed records of all machines as a tidy table."""
        return make_frame(self.records)

    def find(self, primitive: str) -> list[Record]:
        """List the timed records of a primitive of this machine, or else of the machine that has most of them."""
        rows = self.nearest(self.query(f"primitive == '{primitive}'"))
        return list(rows["record"])

    def select(self, figure: Figure, **wanted: Sequence[Any]) -> pd.DataFrame:
        """Select the rows of a figure: of this machine, or else of the machine with most of them.

        ``wanted``: the values to show in a column, such as ``batch=[64, 1024]``, instead of the usual. Empty where
        nothing was measured, or where a line would have no two points. PooledError where two cells would be drawn at
        one point.
        """
        try:
            rows = figure.make(self) if figure.make else self.query(figure.where)
            if rows.empty:
                return rows
            for column, values in wanted.items():
                rows = rows[rows[column].isin(list(values))] if column in rows else rows
            if "machine" in rows:
                enough = rows.groupby("machine")[figure.x].transform("nunique") >= figure.least_points
                rows = self.nearest(rows[enough])
        except NoRecordsError:
            return self.frame[:0]
        shown = [figure.hue, *figure.panels]
        for column in (column for column in figure.holds if column not in shown):
            rows = rows[rows[column] == choose_value(rows, column, figure)]
        refuse_pooling(rows, figure)
        return rows.sort_values([figure.x, *filter(None, shown)], kind="stable").reset_index(drop=True)

    def query(self, where: str) -> pd.DataFrame:
        """Select the rows of all machines by a query of the frame, in which an option that no record has is NaN.

        NoRecordsError where there are none.
        """
        if self.frame.empty:
            raise NoRecordsError("nothing was measured")
        missing = {name: np.nan for name in re.findall(r"\b[om]_\w+", where) if name not in self.frame}
        rows = self.frame.assign(**missing).query(where, engine="python")
        if rows.empty:
            raise NoRecordsError("nothing was measured")
        if rows["machine"].nunique() == 1:
            self.used.append(rows)
        return rows

    def nearest(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Select the rows of this machine, or else of the machine that has most of them; NoRecordsError of no rows."""
        if rows.empty:
            raise NoRecordsError("nothing was measured")
        rows = rows[rows["machine"] == self._nearest(rows["machine"])]
        self.used.append(rows)
        return rows

    def _nearest(self, machines: Iterable[str]) -> str:
        """Return this machine where it is among ``machines``, else the most frequent of them."""
        counts = pd.Series(list(machines), dtype=object).value_counts()
        return self.machine if self.machine in counts or counts.empty else str(counts.index[0])

    @cached_property
    def claims(self) -> pd.DataFrame:
        """The claims of papers, a row each, with the verdicts by the records."""
        from reports.claims import judge_claims  # noqa: PLC0415  # heavy

        names = "id paper verdict text value low high unit printed evidence rule place".split()
        return pd.DataFrame([vars(claim) for claim in judge_claims(self.records, self.quotes)], columns=names)

    @cached_property
    def noise(self) -> tuple[float, int]:
        """The noise floor of this machine's sweeps (|ln ratio| of a cell timed twice in one run) and its pairs."""
        pairs = twins(self.own)
        return stats.noise_floor(pairs), len(pairs)


def make_frame(records: Iterable[Record]) -> pd.DataFrame:
    """Make a row of each timed record, but for sentinels and second timings."""
    kept = [record for record in records if record.median_seconds is not None and record.primitive != SENTINEL]
    kept = [record for record in kept if not record.primitive.endswith(AGAIN)]
    if not kept:
        return pd.DataFrame(columns=["machine", "primitive", "record"])
    ordered = in_order(kept)
    frame = pd.DataFrame([_row(record) for record in ordered]).assign(record=ordered)
    several = frame.groupby(["primitive", "contestant"])["dtype"].transform("nunique") > 1
    dtypes = ", " + frame["dtype"].where(several & (frame["dtype"] == "float64"), "")
    frame["name"] += dtypes.where(dtypes != ", ", "")
    return frame.drop_duplicates(["machine", *CELL], keep="last")


def _read_options(record: Record) -> dict[str, Any]:
    """Return a record's options, with those that records lacked before the option came."""
    options = dict(record.options)
    if record.primitive == "training" and record.contestant in BY_LEARNER:
        options.setdefault("learner", "torch")
        options.pop("policy", None)  # which is the learner's in every record
    return options


def _row(record: Record) -> dict[str, Any]:
    options = _read_options(record)
    fields = ("source", "status", "primitive", "contestant", "op", "capacity", "batch", "fanout", "threads", "dtype")
    seconds = record.seconds
    low, high = record.low_seconds or seconds, record.high_seconds or seconds
    times = {"seconds": 1.0, **UNITS, "ns": 1e9 / record.batch}
    row: dict[str, Any] = {name: getattr(record, name) for name in (*fields, "distribution", "utc", "commit")}
    row |= {"machine": record.machine_key, "options": text_of(options), "name": name_contestant(record)}
    for unit, factor in times.items():
        row |= {unit: factor * seconds, f"{unit}_low": factor * low, f"{unit}_high": factor * high}
    per_second = [1 / time if time else math.inf for time in (seconds, high, low)]
    row |= dict(zip(("per_second", "per_second_low", "per_second_high"), per_second, strict=True))
    row |= {f"o_{name}": value for name, value in options.items()}
    return row | {f"m_{name}": value for name, value in record.metrics.items() if isinstance(value, int | float)}


def name_contestant(record: Record) -> str:
    """Name a contestant with what differs from its default: a variant, threads."""
    parts = [VARIANTS[name].format(value) for name, value in record.options.items() if name in VARIANTS]
    parts += [f"{record.threads} threads"] if record.threads > 1 else []
    return ", ".join([record.contestant, *parts])


def choose_value(rows: pd.DataFrame, column: str, figure: Figure) -> Any:
    """Choose the value of a held column: the usual, or the nearest measured that leaves a line two points.

    Values that some tree does not have, such as the fanout of an array, are as the records state them.
    """
    several = rows.groupby([column, *filter(None, [figure.hue, *figure.panels])], observed=True)[figure.x]
    lines = several.nunique()
    lines = lines[lines >= figure.least_points]
    values = lines.groupby(column).size() if len(lines) else rows.groupby(column).size()
    usual = figure.holds[column] if isinstance(figure.holds, Mapping) else USUAL[column]
    if usual in values.index or values.empty:
        return usual
    if isinstance(usual, str):
        return values.idxmax()
    return min(values.index, key=lambda value: abs(math.log(max(value, 1) / usual)))


def refuse_pooling(rows: pd.DataFrame, figure: Figure) -> None:
    """Raise PooledError where several cells are at one point, and name the columns in which they differ."""
    if figure.kind == "curve":  # whose points are seeds, and its line their median
        return
    point = [figure.x, *filter(None, [figure.hue, figure.part, *figure.panels])]
    again = rows[rows.duplicated(point, keep=False)]
    if again.empty:
        return
    first = again.groupby(point, observed=True, dropna=False).get_group(tuple(again.iloc[0][point]))
    texts = first.drop(columns=["record"], errors="ignore").astype(str)
    differing = [name for name in texts if texts[name].nunique() > 1 and name not in TIMES]
    raise PooledError(f"{figure.name}: {len(first)} cells at one point, which differ in {', '.join(differing)}")


TIMES = {f"{unit}{end}" for unit in ("seconds", "us", "ms", "ns", "per_second") for end in ("", "_low", "_high")}
TIMES |= {"utc", "status", "commit"}


def with_values(figure: Figure, **wanted: Sequence[Any]) -> Figure:
    """Return a figure with a panel for each of several wanted values of a column that is no axis of it."""
    shown = {figure.x, figure.hue, *figure.panels}
    more = tuple(name for name, values in wanted.items() if len(values) > 1 and name not in shown)
    return replace(figure, panels=(*figure.panels, *more))
