"""The rows that the figures of training primitives show, by workload, in the unit that a figure asks for."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from .table import where

PRIMITIVE = "training"
ALONE = "nothing"
OPTIONS = ("workload", "macs", "parameters", "update_interval", "via", "models", "beside", "cores")
UNITS = {"us": 1e6, "ms": 1e3}


def parts(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Timed rows of parts, each "contestant op", a column an option; ``cores`` of a pair is ``placement``."""
    rows = where(frame, primitive=PRIMITIVE)
    kinds = rows["contestant"].astype(str) + " " + rows["op"].astype(str)
    rows = rows.assign(part=kinds)[kinds.isin(names)]
    told = [dict(word.split("=", 1) for word in text.split(",") if "=" in word) for text in rows["options"]]
    for name in OPTIONS:
        column = "placement" if name == "cores" else name
        rows[column] = pd.Series([one.get(name, "") for one in told], index=rows.index, dtype=object)
    for name in ("macs", "parameters", "update_interval", "models"):
        rows[name] = pd.to_numeric(rows[name])
    return rows


def called(rows: pd.DataFrame, unit: str) -> pd.DataFrame:
    """The same with ``ns`` and its interval as times of a call, in a unit, instead of nanoseconds an element."""
    factor = UNITS[unit] * rows["batch"] / 1e9
    return rows.assign(**{name: rows[name] * factor for name in ("ns", "low_ns", "high_ns")})


def rates(rows: pd.DataFrame, factor: Any = 1.0) -> pd.DataFrame:
    """The same with ``ns`` and its interval as calls a second, ``factor`` times as many."""
    seconds = called(rows, "ms")[["ns", "low_ns", "high_ns"]] / 1e3
    return rows.assign(
        ns=factor / seconds["ns"], low_ns=factor / seconds["high_ns"], high_ns=factor / seconds["low_ns"]
    )


def alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Those with nothing beside them, measured apart from pairs."""
    return where(rows, beside="")


def over_cores(frame: pd.DataFrame) -> pd.DataFrame:
    """Environment steps a second over cores: those actors take, and those that gradient steps can follow.

    Empty unless a workload has actors or learners on two numbers of cores.
    """
    rows = alone(parts(frame, "actor step", "parallel_learners step", "learner step"))
    batches = where(rows, part="parallel_learners step").groupby("workload")["batch"].first()
    rows = rows[(rows["part"] == "actor step") | (rows["batch"] == rows["workload"].map(batches))]
    rows = rates(rows, np.where(rows["part"] == "actor step", 1, rows["update_interval"]))
    return rows if (rows.groupby(["workload", "part"])["threads"].nunique() > 1).any() else rows[:0]


def over_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of gradient steps and forward passes over B; empty unless a workload has two B."""
    rows = called(alone(parts(frame, "learner step", "forward act")), "ms")
    return _several(rows, "batch", ("workload", "part"))


def of_trees(frame: pd.DataFrame) -> pd.DataFrame:
    """Microseconds of draws and updates over B at each workload's shape; empty unless one has two B."""
    return _several(called(alone(parts(frame, "numba draw", "numba update")), "us"), "batch", ("workload", "op"))


def averages(frame: pd.DataFrame) -> pd.DataFrame:
    """Milliseconds of averaging k models; empty unless a workload has two k."""
    return _several(called(parts(frame, "weights average"), "ms"), "models", ("workload",))


def beside(frame: pd.DataFrame) -> pd.DataFrame:
    """How many times as long a part takes beside another: of medians of one run, with an interval from both.

    ``ns``, ``low_ns`` and ``high_ns`` are those ratios; ``pair`` names both parts.
    """
    rows = parts(frame, "actor step", "learner step", "numba step")
    key = ["workload", "part", "batch", "commit", "command"]
    pairs = rows[~rows["beside"].isin(["", ALONE])].merge(
        where(rows, beside=ALONE)[[*key, "ns", "low_ns", "high_ns", "status"]], on=key, suffixes=("", "_alone")
    )
    # The ends of both intervals: wider than a bootstrap of the ratio, never too narrow.
    ratios = {
        "ns": pairs["ns"] / pairs["ns_alone"],
        "low_ns": pairs["low_ns"] / pairs["high_ns_alone"],
        "high_ns": pairs["high_ns"] / pairs["low_ns_alone"],
    }
    unstable = (pairs["status"] == "unstable") | (pairs["status_alone"] == "unstable")
    names = (
        pairs["contestant"].astype(str).replace("numba", "tree")
        + "\nbeside "
        + pairs["beside"].replace("numba", "tree")
    )
    return pairs.assign(**ratios, status=np.where(unstable, "unstable", "ok"), pair=names)


def _several(rows: pd.DataFrame, x: str, keys: Iterable[str]) -> pd.DataFrame:
    return rows if (rows.groupby(list(keys))[x].nunique() > 1).any() else rows[:0]
