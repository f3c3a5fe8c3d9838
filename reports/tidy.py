"""The records as one tidy table, a row a timed cell; what they say of the machine and its noise; counts as text.

Columns: the fields of a record (``options`` as a label, which nothing reads back, ``setting`` as a dict), and of each
timed cell ``ns``, ``low_ns``, ``high_ns`` (nanoseconds per element: median and 95 % interval), ``run`` (which made it),
``bytes`` (of the tree, or of the buffer that is read; NaN where unknown) and ``samples_seconds``.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dse import stats
from dse.accuracy import Accuracy
from dse.records import COLUMNS, Record, in_order, to_rows, twins
from dse.times import cost_model

OPS = ("draw", "update")
PREFERRED_CAPACITY = 1_000_000
LINE_BYTES = 64  # that one read of the "memory" primitive takes


@dataclass(frozen=True)
class About:
    """The machine, and its noise floor: how far two timings of a cell lie apart (|ln ratio| over ``pairs`` twins)."""

    key: str
    cpu: str
    cores: int
    caches: Mapping[str, int]
    noise_floor: float
    pairs: int
    gpu: str = "an unknown GPU"


def machine_of(measurements: Sequence[Record]) -> dict[str, Any]:
    """Return the machine and its software as the last record of a sweep has them; other libraries have their own."""
    of_sweeps = [record for record in measurements if not record.primitive.startswith("peer")]
    return (of_sweeps or measurements)[-1].machine


def about(measurements: Sequence[Record]) -> About:
    """Describe the machine of records that are all of one, and the noise of its sweeps."""
    machine = machine_of(measurements)
    pairs = twins(timed(measurements))
    gpus = [record.machine["gpus"] for record in measurements if record.machine.get("gpus")]
    return About(
        key=measurements[-1].machine_key,
        cpu=str(machine.get("cpu") or "an unknown CPU"),
        cores=int(machine.get("cores") or 1),
        caches=dict(machine.get("caches") or {}),
        noise_floor=stats.noise_floor(pairs),
        pairs=len(pairs),
        gpu=", ".join(gpus[-1]) if gpus else About.gpu,
    )


def sources_of(measurements: Iterable[Record | Accuracy]) -> str:
    """Name the sources of records: measured, modeled ..."""
    return " and ".join(sorted({record.source for record in measurements}))


def commit_of(record: Record, dirty: str = "") -> str:
    """Return the first letters of a record's commit, with the word ``dirty`` for one with uncommitted changes."""
    return (record.commit or "no commit")[:10] + (f" {dirty}" if dirty and record.run.dirty else "")


def versions_of(record: Record) -> str:
    """List the packages that a record was made with, and their versions."""
    return ", ".join(f"{name} {version}" for name, version in dict(record.machine.get("packages") or {}).items())


def timed(measurements: Sequence[Record]) -> list[Record]:
    """Return the records that have a time."""
    return [record for record in measurements if record.median_seconds is not None]


def untimed(measurements: Sequence[Record], *primitives: str) -> list[Record]:
    """Return the records without a time, of these primitives or of all."""
    wanted = (record for record in measurements if not primitives or record.primitive in primitives)
    return [record for record in wanted if record.median_seconds is None]


def tidy(measurements: Sequence[Record]) -> pd.DataFrame:
    """Make one row of each timed record. ``contestant`` is categorical, so that each keeps its color everywhere."""
    kept = timed(measurements)
    frame = pd.DataFrame(list(to_rows(kept)), columns=list(COLUMNS))
    frame["samples_seconds"] = pd.Series([record.samples_seconds for record in kept], dtype=object)
    frame["setting"] = pd.Series([dict(record.options) for record in kept], dtype=object)
    frame["run"] = [" ".join(map(str, record.run.key)) for record in kept]
    frame["bytes"] = pd.Series([_bytes(record) for record in kept], dtype=float)
    for name, column in (("ns", "median_seconds"), ("low_ns", "low_seconds"), ("high_ns", "high_seconds")):
        seconds = frame[column].astype(float).fillna(frame["median_seconds"].astype(float))
        frame[name] = 1e9 * seconds / frame["batch"]
    order = {name: "" if name.startswith("sum_tree") else name for name in frame["primitive"].unique()}
    names = frame.assign(primitive=frame["primitive"].map(order)).sort_values(["primitive", "contestant"])
    return frame.assign(contestant=pd.Categorical(frame["contestant"], names["contestant"].unique()))


def _bytes(record: Record) -> float:
    if record.primitive == "memory":
        return LINE_BYTES * record.capacity
    try:
        return cost_model.tree_bytes(record.contestant, record.capacity, record.fanout, record.dtype, record.options)
    except ValueError:
        return float("nan")


def of_one_run(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of the run that has most of them, of equals the latest: only those may be compared."""
    runs = rows["run"].iloc[in_order(range(len(rows)), [*rows["utc"]].__getitem__)].to_list()
    last, sizes = {run: place for place, run in enumerate(runs)}, Counter(runs)
    return rows[rows["run"].isin(sorted(last, key=lambda run: (sizes[run], last[run]))[-1:])]


def either(status: pd.Series, other: pd.Series) -> Any:
    """Return the status of what two timings make: unstable where one of them is."""
    return np.where((status == "unstable") | (other == "unstable"), "unstable", "ok")


def where(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Select the rows whose columns equal the wanted value, or one of the wanted values."""
    keep = np.ones(len(frame), dtype=bool)
    for column, value in wanted.items():
        keep &= frame[column].isin([value] if np.isscalar(value) else list(value)).to_numpy()
    return frame[keep]


def nearest(values: Iterable[Any], wanted: Any) -> Any:
    """Return the value nearest to the wanted one, numbers by their ratio; of names without it the most frequent.

    >>> nearest([64, 1024], 256), nearest([16, 8], 16), nearest(["float64"], "float32")
    (64, 16, 'float64')
    """
    counts = Counter(values)
    if wanted in counts or isinstance(wanted, str):
        return wanted if wanted in counts else counts.most_common(1)[0][0]
    return min(sorted(counts), key=lambda value: abs(math.log(max(value, 1) / wanted)))


def digits(value: Any) -> str:
    """Write a value, the digits of a number in groups of three."""
    return f"{value:,}" if isinstance(value, int | float | np.number) else str(value)


def short(value: float) -> str:
    """Write a count as a tick: 10k, 1M; others in full.

    >>> [short(n) for n in (32, 2_048, 10_000, 1_000_000)]
    ['32', '2,048', '10k', '1M']
    """
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit and value % unit == 0:
            return f"{value // unit:,.0f}{name}"
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def binary(size: float) -> str:
    """Write bytes in binary units.

    >>> [binary(n) for n in (512, 48 << 10, 33_554_432)]
    ['512 B', '48 KiB', '32 MiB']
    """
    power = next((p for p in (30, 20, 10) if size >= 1 << p), 0)
    return f"{size / (1 << power):,.3g} {({30: 'GiB', 20: 'MiB', 10: 'KiB', 0: 'B'})[power]}"
