"""The table that a command shows of what it measured: who is the fastest at each operation, and by how much."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.records import Record
from impls.terminal import aligned, plural

MOST_ROWS = 10
RIVALS = ("sum_tree", "peer", "gpu")
"""Primitives whose implementations do the same work, so that one is the fastest; parts of training do not."""
_HEAD = {"op": "operation", "capacity": "N", "batch": "B", "dtype": "dtype", "distribution": "priorities"}
"""The head of each column of what was asked."""
_BEST = ("contestant", "fanout", "threads", "status", "median_seconds", "low_seconds", "high_seconds")
"""What a row says of the fastest."""


def compare_fastest(found: Sequence[Record]) -> list[dict[str, Any]]:
    """Return a row for each operation and size that was timed: its fastest, and the next of another implementation.

    Of a tree alone, each number of threads and each of its options has rows. Of parts of training each is a row.
    Seconds are of one call. ``options``: those in which records differ. ``slower``: the next's median divided by the
    fastest's, minus 1; None where nothing else did the same.
    """
    timed = [record for record in found if record.source == "measured" and record.median_seconds is not None]
    differing = _differing(record.options for record in timed)
    has_rivals = len({record.contestant for record in timed}) > 1
    asked: dict[tuple[Any, ...], list[Record]] = {}
    for record in timed:
        own = None if has_rivals else (record.threads, repr(sorted(record.options.items())))
        alone = (record.primitive, own) if record.primitive in RIVALS else record.cell
        asked.setdefault((*(getattr(record, name) for name in _HEAD), alone), []).append(record)
    rows = []
    for where, own in asked.items():
        best, *others = sorted(own, key=lambda record: record.seconds)
        following = next((record for record in others if record.contestant != best.contestant), None)
        rows.append(
            dict(zip(_HEAD, where, strict=False))
            | {name: getattr(best, name) for name in _BEST}
            | {"options": _select_options(best, differing)}
            | {"cells": len(own), "next": following.contestant if following else None}
            | {"slower": following.seconds / best.seconds - 1 if following else None}
        )
    return rows


def _select_options(record: Record, names: set[str]) -> dict[str, Any]:
    """Return a record's options of these names, but for those that its contestant is named by."""
    return {name: value for name, value in record.options.items() if name in names and value != record.contestant}


def _differing(options: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the names of options that not all have with the same value."""
    every = list(options)
    names = {name for own in every for name in own}
    return {name for name in names if any(own.get(name) != every[0].get(name) for own in every)}


def write_fastest(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the rows of ``compare_fastest`` as a table of ``MOST_ROWS`` lines: of the largest trees, or the first."""
    if not rows:
        return []
    has_rivals = any(row["next"] for row in rows)
    shown = sorted(rows, key=lambda row: (-row["capacity"], -row["batch"])) if has_rivals else rows
    varying = [name for name in _HEAD if name == "op" or len({row[name] for row in rows}) > 1]
    head = [*(_HEAD[name] for name in varying), "fastest" if has_rivals else "of", "us a call", "95 % interval"]
    table = [[*(_write(row[name]) for name in varying), *_write_best(row)] for row in shown[:MOST_ROWS]]
    lines = list(aligned([[*head, "next" if has_rivals else ""], *table]))
    more = len(rows) - MOST_ROWS
    return [*lines, f"and {plural(more, 'row')} more: --json has all"] if more > 0 else lines


def _write(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value else str(value or "-")


def _write_best(row: Mapping[str, Any]) -> list[str]:
    """Write who is the fastest, its time and interval in microseconds, ``*`` where it is unstable, and the next."""
    shape = [f"K = {row['fanout']}"] if row["slower"] is not None else []
    shape += [plural(row["threads"], "thread")] if row["threads"] > 1 else []
    best = ", ".join([row["contestant"], *shape, *(f"{name} = {value}" for name, value in row["options"].items())])
    low, high, slower = row["low_seconds"], row["high_seconds"], row["slower"]
    interval = "-" if low is None or high is None else f"{_round(1e6 * low)} to {_round(1e6 * high)}"
    times = f"{100 * (slower or 0):.0f} %" if (slower or 0) < 1 else f"{1 + (slower or 0):.1f} times"
    return [
        best,
        _round(1e6 * row["median_seconds"]) + "*" * (row["status"] == "unstable"),
        interval,
        f"{row['next']}, {times} slower" if row["next"] else "",
    ]


def _round(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.10g}"
