"""Records as one tidy table, a row a timed cell, and the rows that each figure shows.

Columns: the fields of a record (options as text), and of each timed cell ``ns``, ``low_ns``, ``high_ns`` (nanoseconds
per element: median and 95 % interval), ``bytes`` (of the tree, or of the buffer that is read; NaN where unknown) and
``samples_seconds``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse import records, stats
from dse.records import Measurement, twins
from dse.times import tree_cost_model

OPS = ("draw", "update")
PREFERRED_CAPACITY = 1_000_000
PREFERRED_FANOUT = 16
PREFERRED_BATCH = 256
LINE_BYTES = 64  # of one read of the "memory" primitive
RUN = ["contestant", "op", "capacity", "commit", "command"]  # what two rows share that may be divided by each other


@dataclass(frozen=True)
class About:
    """The machine, and how far two timings of the same cell lie apart on it (|ln ratio|, over so many A/A pairs)."""

    key: str
    cpu: str
    cores: int
    caches: Mapping[str, int]
    noise_floor: float
    pairs: int
    gpu: str = "an unknown GPU"


def machine_of(found: Sequence[Measurement]) -> dict[str, Any]:
    """The machine and its software, as the last record of a sweep tells it; other libraries come with their own."""
    of_sweeps = [record for record in found if not record.primitive.startswith("peer")]
    return (of_sweeps or found)[-1].machine


def about(found: Sequence[Measurement]) -> About:
    """The machine of records that are all of one, and the noise of its sweeps."""
    machine = machine_of(found)
    pairs = twins(timed(found))
    return About(
        key=found[-1].machine_key,
        cpu=str(machine.get("cpu") or "an unknown CPU"),
        cores=int(machine.get("cores") or 1),
        caches=dict(machine.get("caches") or {}),
        noise_floor=stats.noise_floor(pairs),
        pairs=len(pairs),
        gpu=next((", ".join(one.machine["gpus"]) for one in reversed(found) if one.machine.get("gpus")), About.gpu),
    )


def timed(found: Sequence[Measurement]) -> list[Measurement]:
    """Those with a time."""
    return [record for record in found if record.median_seconds is not None]


def tidy(found: Sequence[Measurement]) -> pd.DataFrame:
    """One row a timed record. ``contestant`` is categorical, so that each keeps its color in every figure."""
    kept = timed(found)
    frame = pd.DataFrame(list(records.to_rows(kept)), columns=[*Measurement.__dataclass_fields__])
    frame["samples_seconds"] = pd.Series([record.samples_seconds for record in kept], dtype=object)
    frame["bytes"] = pd.Series([_bytes(record) for record in kept], dtype=float)
    for name, column in (("ns", "median_seconds"), ("low_ns", "low_seconds"), ("high_ns", "high_seconds")):
        seconds = frame[column].astype(float).fillna(frame["median_seconds"].astype(float))
        frame[name] = 1e9 * seconds / frame["batch"]
    order = {name: "" if name.startswith("sum_tree") else name for name in frame["primitive"].unique()}
    names = frame.assign(primitive=frame["primitive"].map(order)).sort_values(["primitive", "contestant"])
    return frame.assign(contestant=pd.Categorical(frame["contestant"], names["contestant"].unique()))


def _bytes(record: Measurement) -> float:
    if record.primitive == "memory":
        return LINE_BYTES * record.capacity
    try:
        return tree_cost_model.tree_bytes(
            record.contestant, record.capacity, record.fanout, record.dtype, record.options
        )
    except ValueError:
        return float("nan")


def where(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Rows whose columns equal what is wanted, or one of what is wanted."""
    keep = np.ones(len(frame), dtype=bool)
    for column, value in wanted.items():
        keep &= frame[column].isin([value] if np.isscalar(value) else list(value)).to_numpy()
    return frame[keep]


def trees(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Draws and updates of sum trees of float32 leaves with uniform priorities; one thread unless ``wanted`` says."""
    usual = {"primitive": "sum_tree", "op": OPS, "dtype": "float32", "distribution": "uniform", "threads": 1}
    return where(frame, **(usual | wanted))


def by_fanout(frame: pd.DataFrame) -> pd.DataFrame:
    """The numba tree at B = 256 over K, default and plain layout; empty unless some line has two K."""
    rows = trees(frame, contestant="numba", batch=PREFERRED_BATCH, options=("", "layout=plain"))
    return rows if (rows[rows["options"] == ""].groupby(["op", "capacity"])["fanout"].nunique() > 1).any() else rows[:0]


def by_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """Every contestant as it comes at K = 16, B = 256 over N; empty unless there are two N."""
    rows = trees(frame, batch=PREFERRED_BATCH, fanout=PREFERRED_FANOUT, options="")
    return rows if rows["capacity"].nunique() > 1 else rows[:0]


def by_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """Every contestant as it comes, and its threads, at K = 16 over B, at N = 1,000,000 or else at the largest N.

    Empty unless there are two B.
    """
    rows = trees(frame, fanout=PREFERRED_FANOUT, options="", threads=set(frame["threads"]))
    batches = rows.groupby("capacity")["batch"].nunique()
    capacities = set(batches[batches > 1].index)
    chosen = PREFERRED_CAPACITY if PREFERRED_CAPACITY in capacities else max(capacities, default=0)
    return where(rows, capacity=chosen)


def layout_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """What layout costs: time of a variant over the default's, measured in the same run, at K = 16, B = 256.

    Rows of the variants with ``ratio``, ``low``, ``high`` (95 % interval) and ``base_bytes`` besides.
    """
    rows = trees(frame, batch=PREFERRED_BATCH, fanout=PREFERRED_FANOUT, source="measured")
    variants = where(rows, options=("aligned=False", "padding=full"))
    pairs = variants.merge(rows[rows["options"] == ""], on=RUN, suffixes=("", "_base"))
    pairs = pairs.rename(columns={"bytes_base": "base_bytes"})
    unstable = (pairs["status"] == "unstable") | (pairs["status_base"] == "unstable")
    pairs["status"] = np.where(unstable, "unstable", "ok")
    pairs["ratio"] = pairs["ns"] / pairs["ns_base"]
    ends = [_ratio_ends(*both) for both in zip(pairs["samples_seconds_base"], pairs["samples_seconds"], strict=True)]
    pairs[["low", "high"]] = pd.DataFrame(ends, columns=["low", "high"], index=pairs.index, dtype=float)
    return pairs


def _ratio_ends(base: Sequence[float], variant: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the ratio of medians, both bootstrapped; NaN without samples."""
    if not len(base) or not len(variant):
        return float("nan"), float("nan")
    tail = (1 - stats.CONFIDENCE) / 2
    ratios = stats.bootstrap_medians(variant, seed=1) / stats.bootstrap_medians(base, seed=0)
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return float(low), float(high)


def by_lanes(frame: pd.DataFrame) -> pd.DataFrame:
    """The GPU tree at K = 16, unchecked, over the ``lanes`` that share a sample, at the largest N that has them.

    Empty unless there are two of them.
    """
    rows = trees(frame, contestant="cupy", fanout=PREFERRED_FANOUT)
    lanes = rows["options"].str.extract(r"^lanes=(\d+),validate=False$", expand=False).astype(float)
    rows = rows.assign(lanes=lanes)[lanes.notna()]
    rows = rows[rows["capacity"] == rows["capacity"].max()]
    return rows if rows["lanes"].nunique() > 1 else rows[:0]


def against_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """The default numba tree at K = 16 and one B, and the random reads of memory; empty unless there are both.

    The B is the one with the most capacities, of those 2,048 if it is among them.
    """
    numba = trees(frame, contestant="numba", fanout=PREFERRED_FANOUT, options="")
    reads = where(frame, primitive="memory", op="read")
    if numba.empty or reads.empty:
        return frame[:0]
    capacities = numba.groupby("batch")["capacity"].nunique()
    most = capacities[capacities == capacities.max()].index
    batch = 2_048 if 2_048 in most else max(most)
    return pd.concat([where(numba, batch=batch), reads])


def by_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """Draws of B = 256 from the numba tree at every K and N, and from the numpy tree with ragged and full levels."""
    draws = trees(frame, op="draw", batch=PREFERRED_BATCH)
    numba = where(draws, contestant="numba", options="")
    return pd.concat([numba, where(draws, contestant="numpy", options=("", "padding=full"))])


def short(value: float) -> str:
    """A count as a tick says it: 10k, 1M; others in full.

    >>> [short(n) for n in (32, 2_048, 10_000, 1_000_000)]
    ['32', '2,048', '10k', '1M']
    """
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:,.0f}{name}"
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def binary(size: float) -> str:
    """Bytes in binary units, as caches are.

    >>> [binary(n) for n in (512, 48 << 10, 33_554_432)]
    ['512 B', '48 KiB', '32 MiB']
    """
    power = next((p for p in (30, 20, 10) if size >= 1 << p), 0)
    return f"{size / (1 << power):,.3g} {({30: 'GiB', 20: 'MiB', 10: 'KiB', 0: 'B'})[power]}"
