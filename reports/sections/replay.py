"""The page's section about whole replay buffers: beside other libraries', and shared by threads and processes."""

import math
from collections.abc import Iterable, Sequence

from dse import stats
from dse.records import Measurement, how_to_measure, twins

from ..chart import Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from . import replay_sharing as sharing
from .replay_cells import (
    MARKS,
    REPLAY,
    SUMMED,
    UNSTABLE,
    Operations,
    Part,
    Value,
    computed,
    default_strategy,
    factor,
    label,
    left_out,
    microseconds,
    operations,
    origin,
    part,
    remarked,
    sentence,
    strategy,
    total,
)
from .replay_figures import CHARTS, MODES

COLUMNS = (("insert", 1), ("insert", 64), ("sample", 256), ("update", 256), ("step", 256))
STEPS = {
    "sample": {"call": "call", "tree": "tree", "gather": "gather", "whole": "weights"},
    "update": {"call": "call", "priorities": "priorities", "whole": "tree"},
    "insert": {"call": "call", "whole": "row and tree"},
}
"""What each step adds to the one before, by operation and the last step that a record's kernel does."""


def section(material: Material) -> str:
    """Return everything known about whole buffers, as HTML."""
    parts = {name: part(material.measurements, name) for name in ("operations", "parts", "pairs", *MODES, "flush")}
    if not any(record.primitive.startswith(REPLAY) for record in material.measurements):
        why = f"Left out: no whole buffer was timed; {how_to_measure('replay')}."
        return paragraphs([why, *material.missing(CHARTS)])
    default = default_strategy(material.measurements)
    compared = operations(parts["operations"].cells, default)
    pictures = {chart.name: material.pictures([chart]) for chart in CHARTS}
    return (
        paragraphs(filter(None, [sentence(compared), *sharing.best_pairs(parts["pairs"])]))
        + _operations(parts["operations"], compared)
        + _where_time_goes(parts["parts"])
        + pictures["replay_batches"]
        + sharing.pairs(parts["pairs"])
        + pictures["replay_locks"]
        + "".join(sharing.shared(parts[mode]) for mode in MODES)
        + sharing.claimed({mode: parts[mode] for mode in MODES}, material)
        + pictures["replay_flush"]
        + sharing.learners(parts["flush"])
        + paragraphs(material.missing(CHARTS))
        + _absent(parts.values())
    )


def _operations(of: Part, compared: Operations) -> str:
    """Return a table of microseconds a call, with the sum, and how many times as long it takes as ours."""
    if not of.cells:
        return left_out(of.name)
    columns = [key for key in COLUMNS if any(key in cells for cells in compared.cells.values())]
    least = {key: min(cells[key].seconds for cells in compared.cells.values() if key in cells) for key in columns}
    rows = []
    for name in compared.in_order:
        cells, summed = compared.cells[name], compared.sum_of(name)
        ours = "ours" if compared.is_ours[name] else ""
        ahead = compared.ahead_of(name)
        body = [
            Cell(
                _us(cells.get(key)),
                f"number {ours} {'best' if key in cells and cells[key].seconds == least[key] else ''}",
            )
            for key in columns
        ]
        rows.append(
            [
                named(remarked(name), compared.is_ours[name]),
                Cell(_version(cells.values())),
                *body,
                Cell(total(summed).said(microseconds) if summed else ""),
                Cell("1" if name == compared.ours else ahead.said(factor) if ahead else ""),
            ]
        )
    head = [f"{op}({batch})" for op, batch in columns]
    calls = ", ".join(f"{op}({batch})" for op, batch in SUMMED)
    told = sorted({f"{label(record)}: {record.reason}" for record in of.cells if record.reason})
    return (
        paragraph(
            f"Microseconds a call (measured), N = {of.cells[0].capacity:,}, Hopper's records, one thread on one core; "
            f"the sum is of {calls}, a step inserts one record, samples and updates. Bold is ours, green the fastest "
            f"of a column; the last column is how many times as long the sum takes as that of {compared.ours}. {MARKS} "
            f"{origin(of)}"
        )
        + table(("buffer", "version", *head, "sum", f"times {compared.ours}"), rows)
        + items([*_lost(of, compared, columns), *told])
    )


def _us(record: Measurement | None) -> str:
    return "" if record is None else microseconds(record.seconds) + UNSTABLE * (record.status == "unstable")


def _version(records: Iterable[Measurement]) -> str:
    """Return the versions of a library's own packages."""
    packages = dict(next(iter(records)).machine.get("packages") or {})
    return ", ".join(f"{name} {version}" for name, version in packages.items() if name not in ("numpy", "numba"))


def _lost(of: Part, compared: Operations, columns: Sequence[tuple[str, int]]) -> list[str]:
    """Say at which operations a library, or another buffer of ours, is faster than ours by default."""
    floor, ours = stats.noise_floor(twins(of.run, of.primitive)), compared.cells.get(compared.ours, {})
    lines = []
    for who, is_ours in (("library", False), ("buffer of ours", True)):
        others = [name for name in compared.in_order if compared.is_ours[name] == is_ours and name != compared.ours]
        ahead = []
        for key in (key for key in columns if key in ours):
            cells = {name: compared.cells[name][key] for name in others if key in compared.cells[name]}
            faster = [
                _ahead(name, one, ours[key], floor) for name, one in cells.items() if one.seconds < ours[key].seconds
            ]
            if faster:
                ahead.append(f"{key[0]}({key[1]}), {_us(ours[key])} us: {', '.join(faster)}")
        if ours and others:
            lines.append(
                f"Another {who} is faster than {compared.ours} in {'; '.join(ahead)}."
                if ahead
                else f"No other {who} is faster than {compared.ours} in any column."
            )
    return lines


def _ahead(name: str, record: Measurement, ours: Measurement, floor: float) -> str:
    is_tie = math.log(ours.seconds / record.seconds) <= floor
    return f"{name} {_us(record)}{' (a tie within the noise)' * is_tie}"


def _where_time_goes(of: Part) -> str:
    """Return a table of what each step of an operation adds, and its share."""
    if not of.cells:
        return left_out(of.name)
    rows = []
    for op, steps in STEPS.items():
        cells = {str(record.options.get("until")): record for record in of.cells if record.op == op}
        if set(steps) - set(cells):
            continue
        before: Measurement | None = None
        for until, name in steps.items():
            added = _added(before, cells[until])
            share = f"{added.middle / cells['whole'].seconds:.0%}"
            rows.append((f"{op}({cells[until].batch})", name, Cell(added.said(microseconds), "number"), share))
            before = cells[until]
    if not rows:
        return left_out(of.name)
    return paragraph(
        f"Where the time goes, in microseconds that each step adds to the one before, by kernels that end after it "
        f"({strategy(of.cells[0])}, measured). {MARKS} {origin(of)}"
    ) + table(("operation", "step", "us", "share"), rows)


def _added(before: Measurement | None, record: Measurement) -> Value:
    """Compute by how much a step is longer than the one before it."""
    return computed([record, before], lambda one, other: one - other) if before else total([record])


def _absent(parts: Iterable[Part]) -> str:
    """List what has no time, and why."""
    missing: dict[tuple[str, ...], int] = {}
    for of in parts:
        for record in of.absent:
            what = (of.name, label(record), record.status, record.reason or "no reason given")
            missing[what] = missing.get(what, 0) + 1
    if not missing:
        return paragraph("Every implementation was timed in all cells.")
    rows = [(*what, count) for what, count in sorted(missing.items())]
    return paragraph("Absent, and why:") + table(("part", "buffer", "status", "reason", "cells"), rows)


SECTIONS = (Section(55, "Replay", section, (REPLAY,), ("quoted/zhang2021.toml",)),)
