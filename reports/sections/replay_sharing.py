"""Tables of replays that threads and processes share: pairs of them, [Zhang2021, Fig. 10], learners beside flushes."""

import math
from collections.abc import Mapping

from dse.published import lock_claims
from dse.published.quoted import Quoted
from dse.records import Measurement, RecordError

from ..chart import Material
from ..markup import Cell, items, named, paragraph, table
from .replay_cells import (
    COMPILED,
    MARKS,
    REMARKS,
    REPLAY,
    Part,
    factor,
    label,
    left_out,
    microseconds,
    origin,
    rate,
    remarked,
    times,
    total,
)

WORKS = {"computing": "computing", "sleeping": "sleep"}
JUDGED = (lock_claims.AS_PRINTED, lock_claims.CHECKED)
HELD = {"within": "within it", "less": "less", "more": "more", "ambiguous": "across an end"}
FLUSHES = {"insert": "n rows at once", "cache": "a cache flushed every n rows"}
Pairs = Mapping[tuple[str, str], Measurement]
"""The times of one kind of work, by implementation and arrangement."""


def _works(of: Part) -> dict[str, Pairs]:
    """Group times of pairs by the work between operations, then by implementation and arrangement."""
    groups: dict[str, dict[tuple[str, str], Measurement]] = {}
    for record in of.cells:
        if not record.op.startswith("balance"):
            groups.setdefault(_work(record), {})[label(record), record.op] = record
    return dict(groups)


def _work(record: Measurement) -> str:
    """Describe what members do after each operation."""
    us = 1e6 * record.options.get("work_seconds", 0.0)
    return (
        f"{us:.0f} us of {WORKS[record.options.get('work', 'sleeping')]} after each operation"
        if us
        else "no other work"
    )


def _bound(cells: Pairs, name: str) -> Measurement | None:
    """Return what cores allow two processes: each with a buffer of its own, or the slower side alone if that lacks."""
    alone = [cells[name, op] for op in ("insert", "learn") if (name, op) in cells]
    slower = max(alone, key=lambda record: record.seconds) if len(alone) == 2 else None
    return cells.get((name, "apart"), slower)


def best_pairs(of: Part) -> list[str]:
    """Say for each work which right strategy shares best, by how much, and how near it comes to its bound."""
    lines = []
    for work, cells in _works(of).items():
        compiled = {name for (name, op), one in cells.items() if (op, one.contestant) == ("two", COMPILED)}
        right = sorted(compiled - {*REMARKS})
        if not right:
            continue
        best = min(right, key=lambda name: cells[name, "two"].seconds)
        ties = [name for name in right if name != best and not _is_behind(cells[name, "two"], cells[best, "two"])]
        tied = f" (a tie with {', '.join(ties)})" if ties else ""
        two, bound, bases = cells[best, "two"], _bound(cells, best), [("one process", cells.get((best, "one")))]
        bases += [(other, cells.get((other, "two"))) for other in ("global", "none") if other != best]
        said = [f"{times([base], [two]).said(factor)} the rate of {name}" for name, base in bases if base]
        said += [f"{times([bound], [two]).said(_percent)} of the bound that cores set"] if bound else []
        lines.append(
            f"Two processes, one that inserts and one that learns, with {work}{_over(two)}: the best right strategy is "
            f"{best}{tied} with {rate(two).said(_whole)} pairs of operations a second (measured): {', '.join(said)}."
        )
    return lines


def _is_behind(record: Measurement, best: Measurement) -> bool:
    """Tell whether the interval of a strategy's factor behind the best lies above 1."""
    return times([record], [best]).low > 1


def _over(record: Measurement) -> str:
    return ", oversubscribed" if lock_claims.is_oversubscribed(record) else ""


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def pairs(of: Part) -> str:
    """Return a table for each work: each rate alone and shared, its bound, and its factors."""
    groups = _works(of)
    if not groups:
        return left_out(of.name)
    rows = {one.contestant: f"{one.batch:,}" for one in of.cells if one.op == "balance insert"}
    any_of = next(iter(next(iter(groups.values())).values()))
    html = paragraph(
        "Pairs of operations a second (measured): an insertion of rows by one process, a sample and update of B = "
        f"{any_of.batch:,} by the other, N = {any_of.capacity:,}; as many rows as make both sides take equally long. "
        "Bound: two processes with a buffer each, so that cores alone limit them. Rates with other rows an insertion "
        f"do not compare. {MARKS} {origin(of)}"
    )
    heads = ("one process", "two processes", "times one", "slower side alone", "bound", "share of it")
    for work, cells in groups.items():
        names = sorted({name for name, op in cells if op == "two"}, key=lambda name: cells[name, "two"].seconds)
        over = next((_over(cells[name, "two"]) for name in names), "")
        body = [
            [_named(cells[name, "two"]), rows.get(cells[name, "two"].contestant, ""), *_pair(cells, name)]
            for name in names
        ]
        head = ("buffer", "rows an insertion", *heads, "times global", "times none")
        html += paragraph(f"{work.capitalize()}{over}:") + table(head, body)
    return html


def _named(record: Measurement) -> Cell:
    return named(remarked(label(record)), record.contestant == COMPILED)


def _pair(cells: Pairs, name: str) -> list[Cell]:
    """Return a row of the table of pairs; cells are empty where their timing lacks."""
    two, one, bound = cells[name, "two"], cells.get((name, "one")), _bound(cells, name)
    alone = [cells[name, op] for op in ("insert", "learn") if (name, op) in cells]
    slower = max(alone, key=lambda record: record.seconds) if len(alone) == 2 else None
    is_compiled = two.contestant == COMPILED
    bases = [cells.get((other, "two")) if is_compiled and other != name else None for other in ("global", "none")]
    return [
        *(Cell(rate(one).said(_whole) if one else "") for one in (one, two)),
        Cell(times([one], [two]).said(factor) if one else ""),
        *(Cell(rate(one).said(_whole) if one else "") for one in (slower, bound)),
        Cell(times([bound], [two]).said(_percent) if bound else ""),
        *(Cell(times([base], [two]).said(factor) if base else "") for base in bases),
    ]


def shared(of: Part) -> str:
    """Return a table of microseconds a gradient step over threads or processes, for each work."""
    shapes = lock_claims.shapes(of.run, of.primitive)
    if not shapes:
        return left_out(of.name)
    html = paragraph(
        f"Actors and learners as {of.name}: microseconds of wall time a gradient step of B = {of.cells[0].batch:,} "
        f"with one inserted record (measured), N = {of.cells[0].capacity:,}; green is the fastest of a column; below "
        f"it times as fast as global, then as none. {MARKS} {origin(of)}"
    )
    for work in sorted({work for work, _ in shapes}):
        columns = [cells for (each, _), cells in shapes.items() if each == work]
        names = sorted({name for cells in columns for name in cells})
        first = [next(iter(cells.values())) for cells in columns]
        rows = [[named(remarked(name), True), *(_step(name, cells) for cells in columns)] for name in names]
        html += paragraph(f"{_work(first[0]).capitalize()}:") + table(("strategy", *map(_members, first)), rows)
    return html


def _members(record: Measurement) -> str:
    return f"{record.threads} {record.primitive.removeprefix(REPLAY)}{_over(record)}"


def _step(name: str, cells: Mapping[str, Measurement]) -> Cell:
    """Return a cell with a time, and below it the factors over ``global`` and ``none``; empty where it lacks."""
    if name not in cells:
        return Cell("")
    best = "best" if cells[name].seconds == min(one.seconds for one in cells.values()) else ""
    bases = [cells[other] for other in ("global", "none") if other in cells and other != name]
    note = ", ".join(times([base], [cells[name]]).said(factor) for base in bases)
    return Cell(total([cells[name]]).said(microseconds), best, note if len(bases) == 2 else "")


def claimed(parts: Mapping[str, Part], material: Material) -> str:
    """Return the factors that [Zhang2021] prints, ours beside them, each with where it lies beside the printed one."""
    try:
        printed: Quoted = material.printed
    except RecordError as error:
        return paragraph(f"Left out, the factors of [Zhang2021]: {error}.")
    ranges = {claim: printed.table(f"zhang2021.locks.{claim}") for claim in lock_claims.BASES}
    if not all(ranges.values()):
        return paragraph("Left out, the factors of [Zhang2021]: they are not quoted.")
    rows = []
    for mode, of in parts.items():
        for cells in lock_claims.shapes(of.run, REPLAY + mode).values():
            for name in (name for name in JUDGED if name in cells):
                factors = (text for claim in ranges for text in _held(claim, cells, name, ranges[claim]))
                where = (_members(cells[name]), _work(cells[name]))
                rows.append([named(name, name == lock_claims.AS_PRINTED), *where, *factors])
    if not rows:
        return ""
    heads = [f"{one['least']:g}x to {one['most']:g}x" for one in ranges.values()]
    judged = lock_claims.verdicts(material.measurements, printed)
    return (
        paragraph(
            "What [Zhang2021] says of its locks (Fig. 10), judged by threads that have a core each. Below it each "
            "factor here, with where its interval lies beside the printed one. Bold is Algorithm 3 as printed, below "
            "it the same with a word a slot that keeps records whole."
        )
        + items(f"{claim.text} {claim.verdict.capitalize()}: {claim.evidence}." for claim in judged)
        + table(("strategy", "shared by", "work", "times global", heads[0], "time over none's", heads[1]), rows)
    )


def _held(claim: str, cells: Mapping[str, Measurement], name: str, printed: Mapping[str, float]) -> tuple[str, str]:
    """Write the factor of a claim with its interval, and where that lies; nothing where it was not timed."""
    each = lock_claims.times(claim, cells, name)
    if each is None:
        return "", ""
    middle, low, high = map(factor, each)
    return f"{middle} [{low}, {high}]", HELD[lock_claims.compared(each, printed)] if not math.isnan(each[1]) else ""


def learners(of: Part) -> str:
    """Return a table of what a learner's step takes beside an actor that inserts n rows at a time."""
    cells = [record for record in of.cells if record.op == "learn"]
    if not cells:
        return "" if of.cells else left_out(of.name)
    counts = sorted({int(record.options["rows"]) for record in cells})
    rows = []
    for beside, name in sorted({(str(one.options["beside"]), label(one)) for one in cells}):
        own = {int(one.options["rows"]): one for one in cells if (one.options["beside"], label(one)) == (beside, name)}
        each = (total([own[n]]).said(microseconds) if n in own else "" for n in counts)
        rows.append([named(remarked(name), True), FLUSHES.get(beside, beside), *each])
    return paragraph(
        f"The learner beside those insertions{_over(cells[0])}: microseconds of a sample and update of B = "
        f"{cells[0].batch:,} (measured), N = {cells[0].capacity:,}. {MARKS} {origin(of)}"
    ) + table(("strategy", "beside it", *(f"n = {n}" for n in counts)), rows)
