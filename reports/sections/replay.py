"""The page's section about whole replay buffers: beside other libraries', and shared by threads and processes."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from dse import stats
from dse.published import lock_claims
from dse.published.quoted import Quoted
from dse.records import Measurement, RecordError, how_to_measure, twins

from .. import origins
from ..chart import Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from ..tidy import commit_of, sources_of
from .replay_cells import (
    IN_PYTHON,
    OURS,
    REMARKS,
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
    microseconds,
    operations,
    part,
    rate,
    remarked,
    sentence,
    strategy,
    times,
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
WORKS = {
    "none": "no other work",
    "computing": "200 us of computing after each operation",
    "sleeping": "200 us of sleep after each operation",
}
MARKS = f"{UNSTABLE} rests on an unstable timing, whose interval is wide; intervals are of 95 %."


def section(material: Material) -> str:
    """Return everything known about whole buffers, as HTML. RecordError where none was timed."""
    parts = {name: part(material.measurements, name) for name in ("operations", "parts", "pairs", *MODES, "flush")}
    if not any(record.primitive.startswith(REPLAY) for record in material.measurements):
        raise RecordError(f"no whole buffer was timed; {how_to_measure('replay')}")
    default = default_strategy(material.measurements)
    compared = operations(parts["operations"].cells, default)
    pictures = {chart.name: material.drawn.get(chart.name, "") for chart in CHARTS}
    return (
        paragraphs(filter(None, [sentence(compared), *_best_pairs(parts["pairs"])]))
        + _operations(parts["operations"], compared)
        + _where_time_goes(parts["parts"])
        + pictures["replay_batches"]
        + _pairs(parts["pairs"])
        + pictures["replay_locks"]
        + "".join(_shared(parts[mode]) for mode in MODES)
        + _claimed(parts, material)
        + pictures["replay_flush"]
        + _learners(parts["flush"])
        + paragraphs(material.missing(CHARTS))
        + _absent(parts.values())
    )


def _origin(of: Part) -> str:
    """Say where, when and at which commit a part was measured, and how large its noise is."""
    record, pairs = of.run[-1], twins(of.run, of.primitive)
    noise = (
        f"noise floor {stats.noise_floor(pairs):.1%} over {len(pairs)} A/A pairs" if pairs else "its noise is unknown"
    )
    left = f" {of.left_out} records of other runs or N are left out." if of.left_out else ""
    return (
        f"Source: {sources_of(of.run)} on {record.machine.get('cpu')}, {record.machine.get('cores')} cores, at "
        f"{commit_of(record, 'with uncommitted changes')}, {origins.span(one.utc for one in of.run)}; implementations "
        f"took turns; {noise}.{left}"
    )


def _left_out(name: str) -> str:
    return paragraph(f"Left out, {name}: not measured on this machine; {how_to_measure(f'replay --only {name}')}.")


def _operations(of: Part, compared: Operations) -> str:
    """Return a table of microseconds a call, with the sum, and how many times as long it takes as ours."""
    if not of.cells:
        return _left_out(of.name)
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
            f"{_origin(of)}"
        )
        + table(("buffer", "version", *head, "sum", f"times {compared.ours}"), rows)
        + items([*_lost(compared, columns), *told])
    )


def _us(record: Measurement | None) -> str:
    return "" if record is None else microseconds(record.seconds) + UNSTABLE * (record.status == "unstable")


def _version(records: Iterable[Measurement]) -> str:
    """Return the versions of a library's own packages."""
    packages = dict(next(iter(records)).machine.get("packages") or {})
    return ", ".join(f"{name} {version}" for name, version in packages.items() if name not in ("numpy", "numba"))


def _lost(compared: Operations, columns: Sequence[tuple[str, int]]) -> list[str]:
    """Say at which operation a library is faster than ours by default, and where a strategy is."""
    ours = compared.cells.get(compared.ours, {})
    lines = []
    for whose, other in (("A library", False), ("Another buffer of ours", True)):
        ahead = [
            f"{op}({batch}): {name} {_us(cells[op, batch])} us against {_us(ours[op, batch])}"
            for name, cells in compared.cells.items()
            if compared.is_ours[name] == other and name != compared.ours
            for op, batch in columns
            if (op, batch) in cells and (op, batch) in ours and cells[op, batch].seconds < ours[op, batch].seconds
        ]
        lines += [f"{whose} is faster than {compared.ours} in {'; '.join(ahead)}." if ahead else ""]
    if not lines[0]:
        lines[0] = f"No library is faster than {compared.ours} in any column."
    return [line for line in lines if line]


def _where_time_goes(of: Part) -> str:
    """Return a table of what each step of an operation adds, and its share."""
    if not of.cells:
        return _left_out(of.name)
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
        return _left_out(of.name)
    return paragraph(
        f"Where the time goes, in microseconds that each step adds to the one before, by kernels that end after it "
        f"({strategy(of.cells[0])}, measured). {MARKS} {_origin(of)}"
    ) + table(("operation", "step", "us", "share"), rows)


def _added(before: Measurement | None, record: Measurement) -> Value:
    """Compute by how much a step is longer than the one before it."""
    return computed([record, before], lambda one, other: one - other) if before else total([record])


def _works(of: Part) -> dict[str, dict[tuple[str, str], Measurement]]:
    """Group times of pairs by the work between operations, then by strategy and arrangement."""
    groups: dict[str, dict[tuple[str, str], Measurement]] = {}
    for record in of.cells:
        if not record.op.startswith("balance"):
            groups.setdefault(str(record.options["work"]), {})[label(record), record.op] = record
    return groups


def _bound(cells: Mapping[tuple[str, str], Measurement], name: str) -> Measurement | None:
    """Return what bounds two processes: both with a buffer of their own, or the slower of both alone if that is less."""
    alone = [cells[name, op] for op in ("insert", "learn") if (name, op) in cells]
    slower = [max(alone, key=lambda record: record.seconds)] if len(alone) > 1 else []
    apart = [cells[name, "apart"]] if (name, "apart") in cells else []
    return max(apart + slower, key=lambda record: record.seconds, default=None)


def _best_pairs(of: Part) -> list[str]:
    """Say for each work which right strategy shares best, by how much, and how near it comes to its bound."""
    lines = []
    for work, cells in _works(of).items():
        right = [name for name, op in cells if op == "two" and name not in REMARKS]
        if not right:
            continue
        best = min(right, key=lambda name: cells[name, "two"].seconds)
        two, bound = cells[best, "two"], _bound(cells, best)
        said = (
            [f"{times([cells[best, 'one']], [two]).said(factor)} those of one process"]
            if (best, "one") in cells
            else []
        )
        said += [f"{times([bound], [two]).said(_percent)} of the bound"] if bound else []
        lines.append(
            f"Two processes, one that inserts and one that learns, with {WORKS.get(work, work)}: the best right "
            f"buffer is {best} with {rate(two).said(_whole)} pairs of operations a second"
            f"{''.join(f', {phrase}' for phrase in said)} (measured{_over(two)})."
        )
    return lines


def _over(record: Measurement) -> str:
    return ", oversubscribed" if lock_claims.is_oversubscribed(record) else ""


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _pairs(of: Part) -> str:
    """Return a table for each work: a strategy's rate alone and shared, its bound, and its factors."""
    groups = _works(of)
    if not groups:
        return _left_out(of.name)
    rows_of = sorted({f"{strategy(one)} {one.reason}" for one in of.cells if "rows an insertion" in (one.reason or "")})
    html = paragraph(
        "Pairs of operations a second (measured): an insertion of rows, and a sample and update of B = "
        f"{of.cells[0].batch:,}, N = {of.cells[0].capacity:,}; as many rows as make both sides take equally long. "
        "Bound: two processes with a buffer each, or the slower side alone if that is less. "
        f"{MARKS} {_origin(of)}"
    )
    for work, cells in groups.items():
        names = sorted({name for name, op in cells if op == "two"}, key=lambda name: cells[name, "two"].seconds)
        over = next((_over(cells[name, "two"]) for name in names), "")
        heads = ("one process", "two processes", "times one", "bound", "share of it", "over global", "over none")
        body = [[named(remarked(name), name != "cpprb_mp"), *_pair(cells, name)] for name in names]
        html += paragraph(f"{WORKS.get(work, work).capitalize()}{over}:") + table(("buffer", *heads), body)
    return html + (items(rows_of[:1]) if len({*rows_of}) == 1 else "")


def _pair(cells: Mapping[tuple[str, str], Measurement], name: str) -> list[Cell]:
    """Return a row of the table of pairs; empty where a part of it was not timed."""
    two, one, bound = cells[name, "two"], cells.get((name, "one")), _bound(cells, name)
    bases = [cells.get((other, "two")) if other != name else None for other in ("global", "none")]
    return [
        Cell(rate(one).said(_whole) if one else ""),
        Cell(rate(two).said(_whole)),
        Cell(times([one], [two]).said(factor) if one else ""),
        Cell(rate(bound).said(_whole) if bound else ""),
        Cell(times([bound], [two]).said(_percent) if bound else ""),
        *(Cell(times([base], [two]).said(factor) if base else "") for base in bases),
    ]


def _shared(of: Part) -> str:
    """Return a table of microseconds a gradient step over threads or processes, for each work."""
    shapes = lock_claims.shapes(of.run, of.primitive)
    if not shapes:
        return _left_out(of.name)
    html = paragraph(
        f"Actors and learners as {of.name}: microseconds of wall time a gradient step of B = {of.cells[0].batch:,} "
        f"with one inserted record (measured), N = {of.cells[0].capacity:,}. {MARKS} {_origin(of)}"
    )
    for work in sorted({work for work, _ in shapes}):
        members = {count: cells for (each, count), cells in shapes.items() if each == work}
        names = sorted({name for cells in members.values() for name in cells})
        head = [_members(count, next(iter(cells.values()))) for count, cells in members.items()]
        least = {count: min(one.seconds for one in cells.values()) for count, cells in members.items()}
        rows = [
            [
                named(remarked(name), name in OURS),
                *(_step(cells.get(name), least[count]) for count, cells in members.items()),
            ]
            for name in names
        ]
        said = f"{1e6 * work:.0f} us of sleep after each operation" if work else "No other work"
        html += paragraph(f"{said}:") + table(("strategy", *head), rows)
    return html


def _members(count: int, record: Measurement) -> str:
    return f"{count} {record.primitive.removeprefix(REPLAY)}{_over(record)}"


def _step(record: Measurement | None, least: float) -> Cell:
    if record is None:
        return Cell("")
    return Cell(total([record]).said(microseconds), "best" if record.seconds == least else "")


def _claimed(parts: Mapping[str, Part], material: Material) -> str:
    """Return a table of the factors that [Zhang2021] prints, ours beside them, each with what it says of the claim."""
    try:
        printed: Quoted = material.printed
    except RecordError as error:
        return paragraph(f"Left out, the factors of [Zhang2021]: {error}.")
    tables = {claim: printed.table(f"zhang2021.locks.{claim}") for claim in lock_claims.BASES}
    rows = []
    for mode in MODES:
        for (work, count), cells in lock_claims.shapes(parts[mode].run, REPLAY + mode).items():
            for name in sorted(cells.keys() - set(lock_claims.BASES.values())):
                found = [(lock_claims.times(claim, cells, name), tables[claim]) for claim in lock_claims.BASES]
                factors = [text for each, table_of in found for text in _held(each, table_of)]
                where = (_members(count, cells[name]), f"{1e6 * work:.0f} us")
                rows.append([named(remarked(name), name == lock_claims.AS_PRINTED), *where, *factors])
    if not rows or not all(tables.values()):
        return ""
    heads = [f"{least:g}x to {most:g}x" for least, most in ((one["least"], one["most"]) for one in tables.values())]
    judged = lock_claims.verdicts(material.measurements, printed)
    return (
        paragraph(
            "The factors of [Zhang2021, Fig. 10] here: times as fast as one global lock, and times as long as without "
            f"a lock, each with where its interval lies beside the printed one. Bold is Algorithm 3 as printed. {MARKS}"
        )
        + items(f"{claim.text} {claim.verdict.capitalize()}: {claim.evidence}." for claim in judged)
        + table(
            ("strategy", "shared by", "sleep", "over global", heads[0], "of no lock", heads[1]),
            rows,
        )
    )


def _held(each: lock_claims.Times | None, printed: Mapping[str, float]) -> tuple[str, str]:
    if each is None or not printed:
        return "", ""
    middle, low, high = each
    verdict = {"within": "within it", "less": "less", "more": "more", "ambiguous": "across an end"}
    return f"{factor(middle)} [{factor(low)}, {factor(high)}]", verdict[lock_claims.compared(each, printed)]


def _learners(of: Part) -> str:
    """Return a table of what a learner's step takes beside an actor that inserts n rows at a time."""
    cells = [record for record in of.cells if record.op == "learn"]
    if not cells:
        return "" if of.cells else _left_out(of.name)
    counts = sorted({int(record.options["rows"]) for record in cells})
    kinds = {"insert": "n rows at once", "cache": "a cache flushed every n rows"}
    rows = []
    for beside, name in sorted({(str(one.options["beside"]), label(one)) for one in cells}):
        own = {int(one.options["rows"]): one for one in cells if (one.options["beside"], label(one)) == (beside, name)}
        rows.append([named(remarked(name)), kinds.get(beside, beside), *(_step(own.get(n), np.nan) for n in counts)])
    over = next(iter({_over(one) for one in cells}), "")
    return paragraph(
        f"The learner beside the insertions of the figure{over}: microseconds of a sample and update of B = "
        f"{cells[0].batch:,} (measured). {MARKS} {_origin(of)}"
    ) + table(("strategy", "beside it", *(f"n = {n}" for n in counts)), rows)


def _absent(parts: Iterable[Part]) -> str:
    """List what has no time, and why."""
    missing: dict[tuple[str, ...], int] = {}
    for of in parts:
        for record in of.absent:
            what = (of.name, label(record), record.status, record.reason or "no reason given")
            missing[what] = missing.get(what, 0) + 1
    if not missing:
        return paragraph("Nobody is absent: each cell has a time.")
    rows = [(*what, count) for what, count in sorted(missing.items())]
    return paragraph("Absent, and why:") + table(("part", "buffer", "status", "reason", "cells"), rows)


SECTIONS = (Section(55, "Replay", section, (REPLAY,), ("quoted/zhang2021.toml",)),)
