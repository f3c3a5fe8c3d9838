"""The page's section about other libraries: times and ours in one run, their ratios, and how exact each tree is."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse import accuracy, stats
from dse.accuracy import ACCURACY_FILE, CHECKS, Accuracy
from dse.records import Record, RecordError, text_of, twins
from reports.claims.peer_claims import PEER, is_ours, one_run

from ..chart import Section
from ..markup import Cell, items, named, paragraph, table
from ..tidy import OPS, PREFERRED_CAPACITY, commit_of, nearest, sources_of, timed, untimed
from .peers_figures import SUM, label

SHARED = f"{PEER}_shared"
SORTED_BY = 1_024  # the batch whose sums order the table
PARTS = (*OPS, SUM)
UNSTABLE = "*"
ABOUT_UNSTABLE = f"{UNSTABLE} marks what rests on an unstable timing, whose interval is wide"
ASKED = ((SUM, SORTED_BY), ("draw", 16_384), (SUM, 32))  # ops and batches at which numba and the best library compare


@dataclass(frozen=True)
class Implementation:
    """A library in one dtype, or a tree of ours, with its records by (op, batch)."""

    name: str
    dtype: str
    options: str
    label: str
    version: str
    cells: dict[tuple[str, int], Record]

    @property
    def kind(self) -> tuple[str, str, str]:
        """The name, dtype and options."""
        return self.name, self.dtype, self.options

    @property
    def ours(self) -> bool:
        """Whether the implementation is ours."""
        return is_ours(self.name)

    def ns(self, part: str, batch: int) -> float | None:
        """Return the nanoseconds per element of an op or of both; None where one was not timed."""
        records = [self.cells.get((op, batch)) for op in (OPS if part == SUM else (part,))]
        times = [1e9 * record.seconds / batch for record in records if record]
        return sum(times) if len(times) == len(records) else None

    def said(self, part: str, batch: int) -> str:
        """Write the nanoseconds per element of an op or of both, marked where a timing of them is unstable."""
        return said(self.ns(part, batch)) + self.mark(part, batch)

    def mark(self, part: str, batch: int) -> str:
        """Return the mark of an unstable timing of an op or of both, else nothing."""
        records = (self.cells.get((op, batch)) for op in (OPS if part == SUM else (part,)))
        return UNSTABLE * any(record.status == "unstable" for record in records if record)


def implementations(cells: Iterable[Record], run: Sequence[Record]) -> list[Implementation]:
    """Return the implementations of some cells, named and versioned as in their whole run."""
    dtypes = {
        record.contestant: {other.dtype for other in run if other.contestant == record.contestant} for record in run
    }
    by_key: dict[tuple[str, str, str], Implementation] = {}
    for record in cells:
        key = (record.contestant, record.dtype, text_of(record.options))
        if key not in by_key:
            called = label(*key[:2], record.options, len(dtypes[record.contestant]))
            by_key[key] = Implementation(*key, called, _version(record, run), {})
        by_key[key].cells[record.op, record.batch] = record
    return list(by_key.values())


def _version(record: Record, run: Sequence[Record]) -> str:
    """Return the version of the package of its name, else of the packages that it alone needed."""
    packages = _packages(record)
    if record.contestant in packages:
        return packages[record.contestant]
    common = set.intersection(*(set(_packages(other)) for other in run))
    return ", ".join(f"{package} {version}" for package, version in packages.items() if package not in common)


def _packages(record: Record) -> dict[str, str]:
    return {"python": str(record.machine.get("python", "")), **(record.machine.get("packages") or {})}


def section(measurements: Sequence[Record], folder: Path) -> str:
    """Return everything known about other libraries, as HTML. RecordError where no run timed any."""
    run = one_run(measurements)
    cells = [record for record in timed(run) if record.primitive == PEER]
    if not cells:
        raise RecordError("no other library was timed; install and measure them: make peers")
    capacity = nearest([record.capacity for record in cells], PREFERRED_CAPACITY)
    cells = [record for record in cells if record.capacity == capacity]
    batches = sorted({record.batch for record in cells})
    floor = stats.noise_floor(twins(run, PEER))
    compared = implementations(cells, run)
    others = sum(record.primitive.startswith(PEER) for record in measurements) - len(run)
    return (
        origin(run, PEER, others=others)
        + _times(compared, batches, capacity)
        + items([*_ratios(compared, floor), *_single(compared, floor), *_lost(compared, batches)])
        + _remarks(cells)
        + _shared(run)
        + _accuracy(folder / ACCURACY_FILE)
        + _untimed(run)
    )


def origin(run: Sequence[Record], primitive: str, where: str = "", others: int = 0) -> str:
    """Say which run it was, ``where``, how large its noise is, and how many cells of other runs are omitted."""
    last, pairs = run[-1], twins(run, primitive)
    noise = (
        f"The noise floor of the run is {stats.noise_floor(pairs):.1%} over {len(pairs)} A/A pairs."
        if pairs
        else "No cell was measured twice in the run, so the size of its noise is unknown."
    )
    left = f" {others} cells of other runs are omitted." if others else ""
    return paragraph(
        f"Source: {sources_of(run)}{where}, in one run of {last.run.command} at "
        f"{commit_of(last, 'with uncommitted changes')}; implementations took turns. {noise}{left}"
    )


def _times(compared: Sequence[Implementation], batches: Sequence[int], capacity: int) -> str:
    """Return a table of nanoseconds per element, ours in bold, the fastest of each column marked."""
    columns = [(part, batch) for batch in batches for part in PARTS]
    base = _fastest([tree for tree in compared if tree.ours and not tree.options], SUM, SORTED_BY)
    least = {column: min((ns for tree in compared if (ns := tree.ns(*column))), default=None) for column in columns}
    rows = []
    for tree in sorted(compared, key=lambda tree: tree.ns(SUM, SORTED_BY) or math.inf):
        ours = "ours" if tree.ours else ""
        best = ("best" if (ns := tree.ns(*column)) and ns == least[column] else "" for column in columns)
        cells = [Cell(tree.said(*column), f"{ours} {mark}") for column, mark in zip(columns, best, strict=True)]
        rows.append([named(tree.label, tree.ours), _ratio(tree, base), *cells, named(tree.version)])
    groups = [("", 2), *((f"B = {batch:,}", len(PARTS)) for batch in batches), ("", 1)]
    head = ("implementation", "slowdown", *("both" if part == SUM else part for part, _ in columns), "version")
    return paragraph(
        f"Nanoseconds per element (measured), N = {capacity:,}, one thread, sorted by both at B = {SORTED_BY:,}. Times "
        "as long: as the fastest of ours by default, at that B. Bold is ours, green the fastest of a column; "
        f"{ABOUT_UNSTABLE}. A name with two dtypes comes with both: of a library's sums, of our leaves, whose sums are "
        "float64 either way."
    ) + table(head, rows, groups)


def _ratio(tree: Implementation, base: tuple[Implementation, float] | None) -> str:
    """Write the slowdown of a tree over the fastest of ours, for both where the table is sorted by it."""
    ns = tree.ns(SUM, SORTED_BY)
    if not ns or not base:
        return ""
    ratio = ns / base[1]
    mark = tree.mark(SUM, SORTED_BY) or base[0].mark(SUM, SORTED_BY)
    return f"{ratio:,.2f}x{mark}" if ratio < 10 else f"{ratio:,.0f}x{mark}"


def said(ns: float | None) -> str:
    """Write nanoseconds as the tables show them.

    >>> said(4_538.4), said(16.26), said(None)
    ('4,538', '16.3', '')
    """
    return "" if ns is None else f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}"


def _fastest(compared: Iterable[Implementation], part: str, batch: int) -> tuple[Implementation, float] | None:
    times = [(tree, ns) for tree in compared if (ns := tree.ns(part, batch))]
    return min(times, key=lambda pair: pair[1], default=None)


def _reference(compared: Iterable[Implementation], options: str = "") -> list[Implementation]:
    """Select the numba tree of float32 leaves, with default options unless ``options`` say otherwise."""
    return [tree for tree in compared if tree.kind == ("numba", "float32", options)]


def _ratios(compared: Sequence[Implementation], floor: float) -> list[str]:
    """Say the slowdown of the best library over numba."""
    sentences = []
    for part, batch in ASKED:
        ours = _fastest(_reference(compared), part, batch)
        theirs = _fastest([tree for tree in compared if not tree.ours], part, batch)
        if ours and theirs:
            ratio = theirs[1] / ours[1]
            wins = "numba wins" if ratio > 1 else "the library wins"
            who = "a tie within the noise" if abs(math.log(ratio)) <= floor else wins
            sentences.append(
                f"{part} at B = {batch:,}: the best library, {theirs[0].label}, takes "
                f"{theirs[0].said(part, batch)} ns and numba {ours[0].said(part, batch)} ns (measured), a "
                f"ratio of {ratio:.2f}: {who}."
            )
    return sentences


def _single(compared: Sequence[Implementation], floor: float) -> list[str]:
    """Say what one element costs, and how much of it are checks."""
    fastest, ours = _fastest(compared, SUM, 1), _fastest(_reference(compared), SUM, 1)
    if not fastest or not ours:
        return []
    sentence = (
        f"{SUM} at B = 1: the fastest, {fastest[0].label}, takes {fastest[0].said(SUM, 1)} ns and numba "
        f"{ours[0].said(SUM, 1)} ns (measured), a slowdown of {ours[1] / fastest[1]:.2f}."
    )
    bare = _fastest(_reference(compared, "validate=False"), SUM, 1)
    if bare and math.log(ours[1] / bare[1]) > floor:
        checks = ours[1] - bare[1]
        sentence += (
            f" Unchecked it takes {bare[0].said(SUM, 1)} ns, a slowdown of {bare[1] / fastest[1]:.2f}: checks are "
            f"{said(checks)} ns ({checks / ours[1]:.0%}), the rest is the two calls themselves."
        )
    elif bare:
        sentence += f" Unchecked it takes {bare[0].said(SUM, 1)} ns: checks cost no more than the noise."
    return [sentence]


def _lost(compared: Sequence[Implementation], batches: Sequence[int]) -> list[str]:
    """Say where a library is faster than the best of ours."""
    losses = []
    for batch in batches:
        for part in PARTS:
            ours = _fastest([tree for tree in compared if tree.ours], part, batch)
            theirs = _fastest([tree for tree in compared if not tree.ours], part, batch)
            if ours and theirs and theirs[1] < ours[1]:
                losses.append(
                    f"{part} at B = {batch:,} ({theirs[0].label} {theirs[0].said(part, batch)} ns, {ours[0].label} "
                    f"{ours[0].said(part, batch)} ns)"
                )
    return [f"A library is faster than all of ours in: {'; '.join(losses)}." if losses else "No library is faster."]


def _remarks(cells: Iterable[Record]) -> str:
    """List what a time includes or leaves out, where its record says so."""
    remarks = sorted({(record.contestant, record.reason) for record in cells if record.reason})
    if not remarks:
        return ""
    return paragraph("What to know of the times:") + items(f"{name}: {reason}" for name, reason in remarks)


def _shared(run: Sequence[Record]) -> str:
    """Return a table of what several Python threads gain that sample from one tree at once."""
    shared = [record for record in timed(run) if record.primitive == SHARED]
    most = max((record.threads for record in shared), default=1)
    alone, together = (
        {tree.label: tree for tree in implementations([cell for cell in shared if cell.threads == threads], run)}
        for threads in (1, most)
    )
    rows = []
    for single, several in ((alone[key], together[key]) for key in sorted(alone.keys() & together.keys())):
        for op, batch in single.cells.keys() & several.cells.keys():
            mark = UNSTABLE * any(tree.mark(op, batch) != "" for tree in (single, several))
            speed_up = single.cells[op, batch].seconds / several.cells[op, batch].seconds
            times = (tree.said(op, batch) for tree in (single, several))
            texts = (single.label, *times, f"{speed_up:.2f}x{mark}")
            rows.append((-speed_up, [Cell(text, "ours" if single.ours else "") for text in texts]))
    if most == 1 or not rows:
        return paragraph("Left out: no tree was shared by several threads; measure it: make peers.")
    n, b = shared[-1].capacity, shared[-1].batch
    return paragraph(
        f"One tree, {most} Python threads that sample from it at once: nanoseconds of wall time per element that all "
        f"of them together sample (measured), N = {n:,}, B = {b:,}. A tree that keeps the GIL gains nothing; "
        f"{ABOUT_UNSTABLE}."
    ) + table(
        ("implementation", "1 thread", f"{most} threads", "speed-up"),
        [row for _, row in sorted(rows, key=lambda row: row[0])],
    )


def _accuracy(path: Path) -> str:
    """Return a table of how each tree errs."""
    if not path.exists():
        return paragraph("Left out: no tree was checked for errors; check them: make peers.")
    try:
        findings = accuracy.read(path)
    except RecordError as error:
        return paragraph(f"Left out: {error}.")
    checks = [check for check in CHECKS if any(finding.check == check for finding in findings)]
    rows: dict[tuple[bool, str, str], dict[str, Accuracy]] = defaultdict(dict)
    for finding in findings:
        rows[not is_ours(finding.contestant), finding.contestant, finding.dtype][finding.check] = finding
    body = [
        [Cell(text, "" if theirs else "ours") for text in (name, dtype)] + [_finding(by_check.get(c)) for c in checks]
        for (theirs, name, dtype), by_check in sorted(rows.items())
    ]
    return (
        paragraph(f"What each tree gets wrong ({sources_of(findings)}); red is wrong, small what was seen:")
        + table(("implementation", "dtype", *(check.replace("_", " ") for check in checks)), body)
        + items(f"{check.replace('_', ' ')}: {CHECKS[check]}" for check in checks)
    )


def _finding(finding: Accuracy | None) -> Cell:
    """Write one check as a cell: the relative error, yes or no, or how many of how many."""
    if finding is None:
        return Cell("")
    note = finding.note or ""
    if finding.value is None:
        return Cell("not checked", "", note)
    if finding.check == "drift":
        return Cell(f"{finding.value:.1e}", "number", note)
    fault = "fault" if finding.value else ""
    if finding.trials == 1:
        return Cell("yes" if finding.value else "no", fault, note)
    share = f" ({100 * finding.value / finding.trials:.3g}%)" if finding.value else ""
    return Cell(f"{finding.value:,.0f} of {finding.trials:,}{share}", fault, note)


def _untimed(run: Sequence[Record]) -> str:
    """List the implementations without a time, and why."""
    missing: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in untimed(run):
        missing[record.contestant, record.dtype, record.status, record.reason or "no reason given"].append(record)
    if not missing:
        return paragraph(f"Every implementation was timed in all of the run's {len(run)} cells.")
    rows = [(*what, len(cells), ", ".join(sorted({c.op for c in cells}))) for what, cells in sorted(missing.items())]
    return paragraph("Absent, and why:") + table(("implementation", "dtype", "status", "reason", "cells", "ops"), rows)


SECTIONS = (
    Section(
        50,
        "Other libraries",
        lambda material: section(material.measurements, material.folder),
        (PEER,),
        ("KEY/peers-*.json",),
        borrowed=PEER,
    ),
)
