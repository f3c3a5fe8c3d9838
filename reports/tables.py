"""What the tables of several sections are made with: values over columns, and speedups with their intervals."""

from collections.abc import Sequence

import pandas as pd

from dse import stats
from dse.records import Record

from .frame import Data

SPEEDUPS = ["speedup", "speedup_low", "speedup_high"]


def spread(rows: pd.DataFrame, keys: Sequence[str], column: str, value: str = "us", name: str = "{}") -> pd.DataFrame:
    """Spread a value over columns, one for each value of ``column`` and named with it, a row for each of the ``keys``.

    ValueError where two cells would be one.
    """
    table = rows.pivot(index=list(keys), columns=column, values=value)
    table = table.rename(columns=name.format).rename_axis(columns=None)
    return mark_unstable(table, rows, keys, column).reset_index()


def mark_unstable(table: pd.DataFrame, rows: pd.DataFrame, keys: Sequence[str], column: str) -> pd.DataFrame:
    """Add a column that lists the values of ``column`` at which a row of a table is unstable, where any is."""
    unstable = rows[rows["status"] == "unstable"] if "status" in rows else rows[:0]
    if unstable.empty:
        return table
    lists = unstable.groupby(list(keys))[column].agg(lambda values: ", ".join(dict.fromkeys(map(str, values))))
    return table.join(lists.rename("unstable")).fillna({"unstable": ""})


def add_speedups(rows: pd.DataFrame, keys: Sequence[str], base: str) -> pd.DataFrame:
    """Add each row's speedup, with its 95 % interval, over the row with equal ``keys`` that the query ``base`` selects.

    NaN where there is no such row. ValueError where there are several.
    """
    bases = rows.query(base)[[*keys, "record"]]
    both = rows.merge(bases, how="left", on=list(keys), suffixes=("", "_of_base"), validate="m:1")
    found = [_speedup(base, own) for base, own in zip(both["record_of_base"], both["record"], strict=True)]
    ends = pd.DataFrame(found, index=both.index, columns=SPEEDUPS)
    return both.drop(columns="record_of_base").join(ends)


def _speedup(base: Record, own: Record) -> tuple[float, float, float]:
    nothing = float("nan")
    if base is own:
        return 1.0, 1.0, 1.0
    return stats.speedup(base, own) if isinstance(base, Record) else (nothing, nothing, nothing)


def keep_latest_code(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows that the latest code of each machine and primitive timed: times of two codes do not compare."""
    codes = rows["record"].map(lambda record: record.run.code or "")
    in_order = rows.assign(code=codes).sort_values("utc")
    latest = in_order.groupby(["machine", "primitive"])["code"].transform("last")
    return rows[codes == latest.reindex(rows.index)]


def lack(rows: pd.DataFrame, *options: str) -> pd.DataFrame:
    """Keep the rows whose records have none of some options."""
    return rows[rows[[name for name in options if name in rows]].isna().all(axis=1)]


def name_other(data: Data, rows: pd.DataFrame) -> str:
    """Name the machine of rows that are not of the page's machine; "" where they are."""
    others = sorted(set(rows["machine"]) - {data.machine})
    return f" on machine {', '.join(others)}" if others else ""
