"""The page's section about whole replay buffers: ours and other libraries', and shared by threads and processes."""

import math
from collections.abc import Iterable, Mapping, Sequence

from dse import stats
from dse.records import Record, RecordError, how_to_measure, twins
from reports.claims import lock_claims
from reports.claims.quoted import Quoted

from ..chart import Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from .replay_cells import (
    COMPILED,
    MARKS,
    OURS,
    REMARKS,
    REPLAY,
    SUMMED,
    Operations,
    Part,
    Value,
    computed,
    default_strategy,
    factor,
    label,
    left_out,
    microseconds,
    microseconds_of,
    operations,
    origin,
    part,
    rate,
    remarked,
    sentence,
    strategy,
    times,
    total,
)
from .replay_figures import CHARTS, MODES

WORKS = {"computing": "computing", "sleeping": "sleep"}
JUDGED = (lock_claims.AS_PRINTED, lock_claims.CHECKED)
HELD = {"within": "within it", "less": "less", "more": "more", "ambiguous": "across an end"}
FLUSHES = {"insert": "n rows at once", "cache": "a cache flushed every n rows"}
Pairs = Mapping[tuple[str, str], Record]
"""The times of one kind of work, by implementation and arrangement."""


def _works(of: Part) -> dict[str, Pairs]:
    """Group times of pairs by the work between operations, then by implementation and arrangement."""
    groups: dict[str, dict[tuple[str, str], Record]] = {}
    for record in of.cells:
        if not record.op.startswith("balance"):
            groups.setdefault(_work(record), {})[label(record), record.op] = record
    return dict(groups)


def _work(record: Record) -> str:
    """Describe what members do after each operation."""
    us = 1e6 * record.options.get("work_seconds", 0.0)
    return (
        f"{us:.0f} us of {WORKS[record.options.get('work', 'sleeping')]} after each operation"
        if us
        else "no other work"
    )


def _slower_side(cells: Pairs, name: str) -> Record | None:
    """Return the slower of inserting and learning alone; None where one of them lacks."""
    alone = [cells[name, op] for op in ("insert", "learn") if (name, op) in cells]
    return max(alone, key=lambda record: record.seconds) if len(alone) == 2 else None


def _bound(cells: Pairs, name: str) -> Record | None:
    """Return what cores allow two processes: each with a buffer of its own, or the slower side alone if that lacks."""
    return cells.get((name, "apart"), _slower_side(cells, name))


def _best_pairs(of: Part) -> list[str]:
    """Say for each work which right strategy shares best, by how much, and how near it comes to its bound."""
    lines = []
    for work, cells in _works(of).items():
        compiled = {name for (name, op), one in cells.items() if (op, one.contestant) == ("two", COMPILED)}
        right = sorted(compiled - {*REMARKS})
        if not right:
            continue
        best = min(right, key=lambda name: cells[name, "two"].seconds)
        behind = {name: times([cells[name, "two"]], [cells[best, "two"]]) for name in right if name != best}
        ties = [name for name, factor_behind in behind.items() if factor_behind.low <= 1]
        tied = f" (a tie with {', '.join(ties)})" if ties else ""
        two, bound, bases = cells[best, "two"], _bound(cells, best), [("one process", cells.get((best, "one")))]
        bases += [(other, cells.get((other, "two"))) for other in ("global", "none") if other != best]
        said = [f"{times([base], [two]).said(factor)} the rate of {name}" for name, base in bases if base]
        said += [f"{times([bound], [two]).said(_percent)} of the bound that cores set"] if bound else []
        lines.append(
            f"Two processes, one that inserts and one that learns, with {work}{_over(two)}: the best right strategy is "
            f"{best}{tied} with {rate(two).said(_whole)} pairs of operations per second (measured): {', '.join(said)}."
        )
    return lines


def _over(record: Record) -> str:
    return ", oversubscribed" if record.is_oversubscribed else ""


_whole, _percent = "{:,.0f}".format, "{:.0%}".format


def pairs(of: Part) -> str:
    """Return a table for each work: each rate alone and shared, its bound, and its factors."""
    groups = _works(of)
    if not groups:
        return left_out(of.name)
    rows = {one.contestant: f"{one.batch:,}" for one in of.cells if one.op == "balance insert"}
    any_of = next(iter(next(iter(groups.values())).values()))
    html = paragraph(
        "Pairs of operations per second (measured): an insertion of rows by one process, a sample and update of B = "
        f"{any_of.batch:,} by the other, N = {any_of.capacity:,}; as many rows as make both sides take equally long. "
        "Bound: two processes with a buffer each, so that cores alone limit them. Rates with other rows an insertion "
        f"do not compare. {MARKS} {origin(of)}"
    )
    heads = ("one process", "two processes", "times one", "slower side alone", "bound", "share of it")
    for work, cells in groups.items():
        names = sorted({name for name, op in cells if op == "two"}, key=lambda name: cells[name, "two"].seconds)
        over = next((_over(cells[name, "two"]) for name in names), "")
        body = [_pair(cells, name, rows.get(cells[name, "two"].contestant, "")) for name in names]
        head = ("buffer", "rows an insertion", *heads, "times global", "times none")
        html += paragraph(f"{work.capitalize()}{over}:") + table(head, body)
    return html


def _pair(cells: Pairs, name: str, inserted: str) -> list[Cell]:
    """Return a row of the table of pairs, ``inserted`` rows at once; cells are empty where their timing lacks."""
    two, one, bound = cells[name, "two"], cells.get((name, "one")), _bound(cells, name)
    is_compiled = two.contestant == COMPILED
    bases = [cells.get((other, "two")) if is_compiled and other != name else None for other in ("global", "none")]
    return [
        named(remarked(label(two)), is_compiled),
        Cell(inserted),
        *(Cell(rate(one).said(_whole) if one else "") for one in (one, two)),
        Cell(times([one], [two]).said(factor) if one else ""),
        *(Cell(rate(one).said(_whole) if one else "") for one in (_slower_side(cells, name), bound)),
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
        f"its speedup over global, then over none. {MARKS} {origin(of)}"
    )
    for work in sorted({work for work, _ in shapes}):
        columns = [cells for (each, _), cells in shapes.items() if each == work]
        names = sorted({name for cells in columns for name in cells})
        first = [next(iter(cells.values())) for cells in columns]
        rows = [[named(remarked(name), True), *(_step(name, cells) for cells in columns)] for name in names]
        html += paragraph(f"{_work(first[0]).capitalize()}:") + table(("strategy", *map(_members, first)), rows)
    return html


def _members(record: Record) -> str:
    return f"{record.threads} {record.primitive.removeprefix(REPLAY)}{_over(record)}"


def _step(name: str, cells: Mapping[str, Record]) -> Cell:
    """Return a cell with a time, and below it the factors over ``global`` and ``none``; empty where it lacks."""
    if name not in cells:
        return Cell("")
    best = "best" if cells[name].seconds == min(one.seconds for one in cells.values()) else ""
    bases = [cells[other] for other in ("global", "none") if other in cells and other != name]
    note = ", ".join(times([base], [cells[name]]).said(factor) for base in bases)
    return Cell(total([cells[name]]).said(microseconds), best, note if len(bases) == 2 else "")


def claimed(parts: Mapping[str, Part], material: Material) -> str:
    """Return the factors that [Zhang2021] prints, with ours, each with where it lies against the printed one."""
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
            "factor here, with where its interval lies against the printed one. Bold is Algorithm 3 as printed, below "
            "it the same with a word a slot that keeps records whole."
        )
        + items(f"{claim.text} {claim.verdict.capitalize()}: {claim.evidence}." for claim in judged)
        + table(("strategy", "shared by", "work", "times global", heads[0], "time over none's", heads[1]), rows)
    )


def _held(claim: str, cells: Mapping[str, Record], name: str, printed: Mapping[str, float]) -> tuple[str, str]:
    """Write the factor of a claim with its interval, and where that lies; nothing where it was not timed."""
    each = lock_claims.times(claim, cells, name)
    if each is None:
        return "", ""
    middle, low, high = map(factor, each)
    return f"{middle} [{low}, {high}]", HELD[lock_claims.compared(each, printed)] if not math.isnan(each[1]) else ""


def learners(of: Part) -> str:
    """Return a table of what a learner's step takes under load from an actor that inserts n rows at a time."""
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
        f"The learner under load from those insertions{_over(cells[0])}: microseconds of a sample and update of B = "
        f"{cells[0].batch:,} (measured), N = {cells[0].capacity:,}. {MARKS} {origin(of)}"
    ) + table(("strategy", "load", *(f"n = {n}" for n in counts)), rows)


COLUMNS = (("insert", 1), ("insert", 64), ("sample", 256), ("update", 256), ("step", 256))
STEPS = {
    "sample": {"call": "call", "tree": "tree", "gather": "gather", "whole": "weights"},
    "update": {"call": "call", "priorities": "priorities", "whole": "tree"},
    "insert": {"call": "call", "whole": "row and tree"},
}
"""What each step adds to the one before, by operation and the last step that a record's kernel does."""


OTHER_PARTS = 3  # of an environment step: the environment, the policy, the learner
KINDS = ("operations", "parts", "memr", "pairs", *MODES, "flush")


def section(material: Material) -> str:
    """Return everything known about whole buffers, as HTML."""
    parts = {name: part(material.measurements, name) for name in KINDS}
    if not any(record.primitive.startswith(REPLAY) for record in material.measurements):
        why = f"Left out: no whole buffer was timed; {how_to_measure('run replay')}."
        return paragraphs([why, *material.missing(CHARTS)])
    default = default_strategy(material.measurements)
    compared = operations(parts["operations"].cells, default)
    pictures = {chart.name: material.pictures([chart]) for chart in CHARTS}
    return (
        paragraphs(filter(None, [sentence(compared), *_best_pairs(parts["pairs"])]))
        + _operations(parts["operations"], compared)
        + _where_time_goes(parts["parts"])
        + pictures["replay_batches"]
        + rollouts(parts["memr"])
        + pairs(parts["pairs"])
        + pictures["replay_locks"]
        + "".join(shared(parts[mode]) for mode in MODES)
        + claimed({mode: parts[mode] for mode in MODES}, material)
        + pictures["replay_flush"]
        + learners(parts["flush"])
        + paragraphs(material.missing(CHARTS))
        + _absent(parts.values())
    )


def _operations(of: Part, compared: Operations) -> str:
    """Return a table of microseconds a call, with the sum, and its slowdown over ours."""
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
                microseconds_of(cells.get(key)),
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
            f"of a column; the last column is the slowdown of the sum over that of {compared.ours}. {MARKS} "
            f"{origin(of)}"
        )
        + table(("buffer", "version", *head, "sum", f"times {compared.ours}"), rows)
        + items([*_lost(of, compared, columns), *told])
    )


def _version(records: Iterable[Record]) -> str:
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
                ahead.append(f"{key[0]}({key[1]}), {microseconds_of(ours[key])} us: {', '.join(faster)}")
        if ours and others:
            lines.append(
                f"Another {who} is faster than {compared.ours} in {'; '.join(ahead)}."
                if ahead
                else f"No other {who} is faster than {compared.ours} in any column."
            )
    return lines


def _ahead(name: str, record: Record, ours: Record, floor: float) -> str:
    is_tie = math.log(ours.seconds / record.seconds) <= floor
    return f"{name} {microseconds_of(record)}{' (a tie within the noise)' * is_tie}"


def _where_time_goes(of: Part) -> str:
    """Return a table of what each step of an operation adds, and its share."""
    if not of.cells:
        return left_out(of.name)
    rows = []
    for op, steps in STEPS.items():
        cells = {str(record.options.get("until")): record for record in of.cells if record.op == op}
        if set(steps) - set(cells):
            continue
        before: Record | None = None
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


def _added(before: Record | None, record: Record) -> Value:
    """Compute by how much a step is longer than the one before it."""
    return computed([record, before], lambda one, other: one - other) if before else total([record])


def rollouts(of: Part) -> str:
    """Return a table of what model rollouts take of each buffer over M, with its share of an environment step."""
    rest, cells = ([one for one in of.cells if ("workload" in one.options) == is_rest] for is_rest in (True, False))
    if not cells:
        return left_out(of.name)
    counts = sorted({record.batch for record in cells})
    steps = {count: [one for one in rest if one.options["rollouts"] == count] for count in counts}
    names = {label(record): record.contestant in OURS for record in sorted(cells, key=lambda one: one.seconds)}
    own = {(label(record), record.batch): record for record in cells}
    body = [
        [named(name, ours), *(_rollout(own.get((name, count)), steps[count]) for count in counts)]
        for name, ours in names.items()
    ]
    return paragraph(
        "Microseconds that an environment step of [Zhang2022, Alg. 2] spends on replay (measured): a record inserted, "
        "M sampled and updated, a segment of M stored, by our segmented replay for every buffer. Below it its share of "
        "the step, at most: the rest is an environment's step, M actions and one gradient step, timed in alternation, "
        f"without the model. N = {cells[0].capacity:,}. {MARKS} {origin(of)}"
    ) + table(("buffer", *(f"M = {count:,}" for count in counts)), body)


def _rollout(record: Record | None, rest: Sequence[Record]) -> Cell:
    if record is None:
        return Cell("")
    share = computed([record, *rest], lambda own, *others: own / (own + sum(others)))
    return Cell(
        microseconds_of(record), "number", share.said(lambda one: f"{one:.1%}") if len(rest) == OTHER_PARTS else ""
    )


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
