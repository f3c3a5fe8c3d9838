"""The page's section about other libraries: times beside ours of one run, their ratios, how exact each tree is."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dse import accuracy, stats
from dse.accuracy import ACCURACY_FILE, CHECKS, Accuracy
from dse.published.peer_claims import PEER, is_ours, one_run
from dse.records import Measurement, RecordError, to_rows, twins

from ..chart import Section
from ..markup import Cell, items, named, paragraph, table
from ..tidy import OPS, PREFERRED_CAPACITY, commit_of, sources_of, timed
from .peers_figures import SUM, label

SHARED = f"{PEER}_shared"
SORTED_BY = 1_024  # the batch whose sums order the table
PARTS = (*OPS, SUM)
ASKED = ((SUM, SORTED_BY), ("draw", 16_384), (SUM, 32))  # what numba is compared with the best library at


@dataclass(frozen=True)
class Contestant:
    """A library in one dtype, or a tree of ours, with its records by (op, batch)."""

    name: str
    dtype: str
    options: str
    label: str
    version: str
    cells: dict[tuple[str, int], Measurement]

    @property
    def ours(self) -> bool:
        """Whether it is a tree of ours."""
        return is_ours(self.name)

    def ns(self, part: str, batch: int) -> float | None:
        """Nanoseconds per element of an op or of both; None where one was not timed."""
        found = [self.cells.get((op, batch)) for op in (OPS if part == SUM else (part,))]
        times = [1e9 * one.seconds / batch for one in found if one]
        return sum(times) if len(times) == len(found) else None


def contestants(cells: Iterable[Measurement], run: Sequence[Measurement]) -> list[Contestant]:
    """The contestants of some cells, named and versioned as in their whole run."""
    dtypes = {one.contestant: {other.dtype for other in run if other.contestant == one.contestant} for one in run}
    found: dict[tuple[str, str, str], Contestant] = {}
    for one, row in ((one, next(to_rows([one]))) for one in cells):
        key = (one.contestant, one.dtype, row["options"])
        if key not in found:
            found[key] = Contestant(*key, label(*key, len(dtypes[one.contestant])), _version(one, run), {})
        found[key].cells[one.op, one.batch] = one
    return list(found.values())


def _version(one: Measurement, run: Sequence[Measurement]) -> str:
    """Of the package of its name, else of the packages it alone needed."""
    packages = _packages(one)
    if one.contestant in packages:
        return packages[one.contestant]
    common = set.intersection(*(set(_packages(other)) for other in run))
    return ", ".join(f"{package} {version}" for package, version in packages.items() if package not in common)


def _packages(one: Measurement) -> dict[str, str]:
    return {"python": str(one.machine.get("python", "")), **(one.machine.get("packages") or {})}


def section(found: Sequence[Measurement], folder: Path) -> str:
    """Everything known about other libraries, as HTML. RecordError where no run timed any."""
    run = one_run(found)
    cells = [one for one in timed(run) if one.primitive == PEER]
    if not cells:
        raise RecordError("no other library was timed; install and measure them: make peers")
    capacity = _capacity(cells)
    cells = [one for one in cells if one.capacity == capacity]
    batches = sorted({one.batch for one in cells})
    floor = stats.noise_floor(twins(run, PEER))
    compared = contestants(cells, run)
    others = sum(one.primitive.startswith(PEER) for one in found) - len(run)
    return (
        _origin(run, others)
        + _times(compared, batches, capacity)
        + items([*_ratios(compared, floor), *_single(compared, floor), *_lost(compared, batches)])
        + _remarks(cells)
        + _shared(run)
        + _accuracy(folder / ACCURACY_FILE)
        + _untimed(run)
    )


def _capacity(cells: Iterable[Measurement]) -> int:
    """1,000,000 if it was measured, else the N with the most B."""
    batches: dict[int, set[int]] = defaultdict(set)
    for one in cells:
        batches[one.capacity].add(one.batch)
    return max(batches, key=lambda n: (n == PREFERRED_CAPACITY, len(batches[n]), n))


def _origin(run: Sequence[Measurement], others: int) -> str:
    """Which run it was, and how large its noise."""
    one, pairs = run[-1], twins(run, PEER)
    noise = (
        f"The noise floor of the run is {stats.noise_floor(pairs):.1%} over {len(pairs)} A/A pairs."
        if pairs
        else "No cell was measured twice in the run, so nothing tells how large its noise is."
    )
    left = f" {others} cells of other runs are left out." if others else ""
    return paragraph(
        f"Source: {sources_of(run)}, in one run of {one.command} at {commit_of(one, 'with uncommitted changes')}; "
        f"contestants took turns. {noise}{left}"
    )


def _times(compared: Sequence[Contestant], batches: Sequence[int], capacity: int) -> str:
    """Nanoseconds per element, ours in bold, the fastest of each column marked."""
    columns = [(part, batch) for batch in batches for part in PARTS]
    least = {column: min((ns for one in compared if (ns := one.ns(*column))), default=None) for column in columns}
    rows = []
    for one in sorted(compared, key=lambda one: one.ns(SUM, SORTED_BY) or math.inf):
        ours = "ours" if one.ours else ""
        times = [(ns, "best" if ns and ns == least[column] else "") for column in columns for ns in [one.ns(*column)]]
        cells = [Cell(said(ns), f"{ours} {best}") for ns, best in times]
        rows.append([named(text, one.ours) for text in (one.label, one.version)] + cells)
    groups = [("", 2), *((f"B = {batch:,}", len(PARTS)) for batch in batches)]
    head = ("contestant", "version", *("both" if part == SUM else part for part, _ in columns))
    return paragraph(
        f"Nanoseconds per element (measured), N = {capacity:,}, one thread, sorted by both at B = {SORTED_BY:,}. Bold "
        "is ours, green the fastest of a column. A name with two dtypes comes with both: of a library's sums, of our "
        "leaves, whose sums are float64 either way."
    ) + table(head, rows, groups)


def said(ns: float | None) -> str:
    """Nanoseconds as the tables show them.

    >>> said(4_538.4), said(16.26), said(None)
    ('4,538', '16.3', '')
    """
    return "" if ns is None else f"{ns:,.0f}" if ns >= 100 else f"{ns:.1f}"


def _fastest(compared: Iterable[Contestant], part: str, batch: int) -> tuple[Contestant, float] | None:
    times = [(one, ns) for one in compared if (ns := one.ns(part, batch))]
    return min(times, key=lambda pair: pair[1], default=None)


def _reference(compared: Iterable[Contestant], options: str = "") -> list[Contestant]:
    """The numba tree of float32 leaves, as it comes unless ``options`` say otherwise."""
    return [one for one in compared if (one.name, one.dtype, one.options) == ("numba", "float32", options)]


def _ratios(compared: Sequence[Contestant], floor: float) -> list[str]:
    """How many times as long the best library takes as numba."""
    sentences = []
    for part, batch in ASKED:
        ours = _fastest(_reference(compared), part, batch)
        theirs = _fastest([one for one in compared if not one.ours], part, batch)
        if ours and theirs:
            ratio = theirs[1] / ours[1]
            wins = "numba wins" if ratio > 1 else "the library wins"
            who = "a tie within the noise" if abs(math.log(ratio)) <= floor else wins
            sentences.append(
                f"{part} at B = {batch:,}: the best library, {theirs[0].label}, takes {said(theirs[1])} ns and numba "
                f"{said(ours[1])} ns (measured): {ratio:.2f} times as long, {who}."
            )
    return sentences


def _single(compared: Sequence[Contestant], floor: float) -> list[str]:
    """What one element costs, and how much of it are checks."""
    fastest, ours = _fastest(compared, SUM, 1), _fastest(_reference(compared), SUM, 1)
    if not fastest or not ours:
        return []
    sentence = (
        f"{SUM} at B = 1: the fastest, {fastest[0].label}, takes {said(fastest[1])} ns and numba {said(ours[1])} ns "
        f"(measured), {ours[1] / fastest[1]:.2f} times as long."
    )
    bare = _fastest(_reference(compared, "validate=False"), SUM, 1)
    if bare and math.log(ours[1] / bare[1]) > floor:
        checks = ours[1] - bare[1]
        sentence += (
            f" Unchecked it takes {said(bare[1])} ns, {bare[1] / fastest[1]:.2f} times as long: checks are "
            f"{said(checks)} ns ({checks / ours[1]:.0%}), the rest is the two calls themselves."
        )
    elif bare:
        sentence += f" Unchecked it takes {said(bare[1])} ns: checks cost no more than the noise."
    return [sentence]


def _lost(compared: Sequence[Contestant], batches: Sequence[int]) -> list[str]:
    """Where a library is faster than the best of ours."""
    losses = []
    for batch in batches:
        for part in PARTS:
            ours = _fastest([one for one in compared if one.ours], part, batch)
            theirs = _fastest([one for one in compared if not one.ours], part, batch)
            if ours and theirs and theirs[1] < ours[1]:
                losses.append(
                    f"{part} at B = {batch:,} ({theirs[0].label} {said(theirs[1])} ns, {ours[0].label} "
                    f"{said(ours[1])} ns)"
                )
    return [f"A library is faster than all of ours in: {'; '.join(losses)}." if losses else "No library is faster."]


def _remarks(cells: Iterable[Measurement]) -> str:
    """What a time includes or leaves out, where its record says so."""
    remarks = sorted({(one.contestant, one.reason) for one in cells if one.reason})
    if not remarks:
        return ""
    return paragraph("What to know of the times:") + items(f"{name}: {reason}" for name, reason in remarks)


def _shared(run: Sequence[Measurement]) -> str:
    """What several Python threads gain that draw from one tree at once."""
    shared = [one for one in timed(run) if one.primitive == SHARED]
    most = max((one.threads for one in shared), default=1)
    alone, together = (
        {one.label: one for one in contestants([cell for cell in shared if cell.threads == threads], run)}
        for threads in (1, most)
    )
    rows = []
    for one, several in ((alone[key], together[key]) for key in sorted(alone.keys() & together.keys())):
        for op, batch in one.cells.keys() & several.cells.keys():
            times = [held.ns(op, batch) for held in (one, several)]
            speed_up = one.cells[op, batch].seconds / several.cells[op, batch].seconds
            texts = (one.label, *map(said, times), f"{speed_up:.2f}x")
            rows.append((-speed_up, [Cell(text, "ours" if one.ours else "") for text in texts]))
    if most == 1 or not rows:
        return paragraph("Left out: no tree was shared by several threads; measure it: make peers.")
    n, b = shared[-1].capacity, shared[-1].batch
    return paragraph(
        f"One tree, {most} Python threads that draw from it at once: nanoseconds of wall time per element that all of "
        f"them together draw (measured), N = {n:,}, B = {b:,}. Who holds the GIL gains nothing."
    ) + table(
        ("contestant", "1 thread", f"{most} threads", "speed-up"),
        [row for _, row in sorted(rows, key=lambda row: row[0])],
    )


def _accuracy(path: Path) -> str:
    """What each tree gets wrong."""
    if not path.exists():
        return paragraph("Left out: no tree was checked for what it gets wrong; check them: make peers.")
    try:
        found = accuracy.read(path)
    except RecordError as error:
        return paragraph(f"Left out: {error}.")
    checks = [check for check in CHECKS if any(one.check == check for one in found)]
    rows: dict[tuple[bool, str, str], dict[str, Accuracy]] = defaultdict(dict)
    for one in found:
        rows[not is_ours(one.contestant), one.contestant, one.dtype][one.check] = one
    body = [
        [Cell(text, "" if theirs else "ours") for text in (name, dtype)] + [_finding(held.get(c)) for c in checks]
        for (theirs, name, dtype), held in sorted(rows.items())
    ]
    return (
        paragraph(f"What each tree gets wrong ({sources_of(found)}); red is wrong, small what was seen:")
        + table(("contestant", "dtype", *(check.replace("_", " ") for check in checks)), body)
        + items(f"{check.replace('_', ' ')}: {CHECKS[check]}" for check in checks)
    )


def _finding(one: Accuracy | None) -> Cell:
    """One check as a cell: the relative error, yes or no, or how many of how many."""
    if one is None:
        return Cell("")
    note = one.note or ""
    if one.value is None:
        return Cell("not checked", "", note)
    if one.check == "drift":
        return Cell(f"{one.value:.1e}", "number", note)
    fault = "fault" if one.value else ""
    if one.trials == 1:
        return Cell("yes" if one.value else "no", fault, note)
    share = f" ({one.value / one.trials:.2%})" if one.value else ""
    return Cell(f"{one.value:,.0f} of {one.trials:,}{share}", fault, note)


def _untimed(run: Sequence[Measurement]) -> str:
    """Who is absent, and why."""
    missing: dict[tuple[str, ...], list[Measurement]] = defaultdict(list)
    for one in run:
        if one.median_seconds is None:
            missing[one.contestant, one.dtype, one.status, one.reason or "no reason given"].append(one)
    if not missing:
        return paragraph(f"Nobody is absent: each of the run's {len(run)} cells has a time.")
    rows = [(*what, len(held), ", ".join(sorted({one.op for one in held}))) for what, held in sorted(missing.items())]
    return paragraph("Absent, and why:") + table(("contestant", "dtype", "status", "reason", "cells", "ops"), rows)


SECTIONS = (Section(50, "Other libraries", lambda material: section(material.found, material.folder)),)
