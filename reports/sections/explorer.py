"""The page's section in which a reader asks for other trees: answers computed when the page is built, and looked up.

``data`` is all that the script ``layout/explorer.js`` knows; it computes no time and chooses nothing.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dse.answers.printer import say, write_range, write_tree
from dse.answers.tree_answer import label_of, tree_answer, tree_to_take
from dse.records import RecordError, how_to_measure
from dse.times.tree_times import Question, Table
from dse.tree import SWEEP, Recommendation, answer

from ..chart import Material, Section
from ..markup import Cell, paragraph, safe, table
from .tree import TREES

CAPACITIES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
BATCHES = (32, 64, 128, 256, 1_024, 4_096)
UPDATES = (0, 1, 2)
USUAL = {"capacity": 100_000, "batch": 64, "updates_per_sample": 1}
"""Where the grid is, and the point of it that is shown first."""
ABOUT = (
    "Which tree for your N and B? What python -m dse recommend answers was computed at each point of a grid when this "
    "page was built; the point nearest to your numbers is shown."
)
MOST = 10**12  # of leaves or elements that the page takes
WITHOUT = "A part of the grid, each sample followed by one update:"


@dataclass(frozen=True)
class Axis:
    """A number of the question: the option that asks for it, its meaning, and its values on the grid.

    ``by_ratio``: whether near means a small ratio. A value of an axis that is ``listed`` is chosen from a list.
    """

    name: str
    label: str
    values: tuple[Any, ...]
    by_ratio: bool = False
    listed: bool = False

    @property
    def first(self) -> int:
        """The place of the value that is shown first."""
        return self.values.index(USUAL[self.name]) if self.name in USUAL else 0


@dataclass(frozen=True)
class Point:
    """A question and its answer, or why there is none."""

    question: Question
    answer: Recommendation | None
    reason: str = ""

    @property
    def lines(self) -> tuple[str, str, str, str]:
        """The choice with its time, how sure that is, warnings, and the line to paste."""
        if self.answer is None:
            return self.reason, "", "", ""
        told, choice = tree_answer(self.answer), self.answer.choice
        is_fastest = tree_to_take(self.answer) is choice
        fastest = (
            "" if is_fastest else f"Fastest by the nearest records: {write_tree(label_of(choice.configuration))}; "
        )
        assert told.choice  # as each answer about a tree has
        warnings = "; ".join(say(note.kind, note.values) for note in self.answer.notes if note.level == "warning")
        return say(told.choice.says, told.choice.values), f"{fastest}{choice.time.source}.", warnings, *told.paste


def axes(measured: Table) -> tuple[Axis, ...]:
    """Return the axes of a machine's grid: up to all of its threads, and every dtype that was measured.

    RecordError where no draw and no update was.
    """
    cores = int(measured.machine.get("cores", 1))
    dtypes = tuple(dtype for dtype in ("float32", "float64") if measured.distributions(dtype))
    if not dtypes:
        raise RecordError(f"no draw or update of a tree was timed here; {how_to_measure(SWEEP)}")
    return (
        Axis("capacity", "N, leaves", CAPACITIES, by_ratio=True),
        Axis("batch", "B, leaves in a batch", BATCHES, by_ratio=True),
        Axis("updates_per_sample", "updates per sample", UPDATES),
        Axis("threads", "threads at most", tuple(sorted({1, cores}, reverse=True)), listed=True),
        Axis("dtype", "dtype of the leaves", dtypes, listed=True),
    )


def grid(material: Material) -> tuple[tuple[Axis, ...], list[Point]]:
    """Return the axes and the answer at each point, the last axis changing fastest. RecordError without records."""
    measured = Table(material.measurements, results=material.results)
    there = axes(measured)
    names = [axis.name for axis in there]
    return there, [
        _point(measured, Question(**dict(zip(names, values, strict=True))))
        for values in itertools.product(*(axis.values for axis in there))
    ]


def _point(measured: Table, question: Question) -> Point:
    try:
        return Point(question, answer(measured, question))
    except RecordError as error:
        return Point(question, None, f"No answer: {error}.")


def data(there: Sequence[Axis], points: Sequence[Point], asked: str) -> dict[str, Any]:
    """Return what the script shows: the axes, and for each point the places of its lines among all different ones."""
    texts: dict[str, int] = {}
    places = [[texts.setdefault(line, len(texts)) for line in point.lines] for point in points]
    described = [{"name": axis.name, "values": axis.values, "byRatio": axis.by_ratio} for axis in there]
    return {"axes": described, "texts": list(texts), "points": places, "asked": asked}


def _html(material: Material) -> str:
    there, points = grid(material)
    known = data(there, points, f"python -m dse recommend --machine {material.about.key}")
    content = json.dumps(known, separators=(",", ":")).replace("<", "\\u003c")
    return (
        paragraph(ABOUT)
        + f'<form id="explorer" class="explorer" hidden>\n{"".join(map(_control, there))}'
        + '<div class="answer" role="status"><p class="nearest"></p><p class="far"></p>'
        + '<p class="lead choice"></p><p class="sure"></p>'
        + '<p class="warned"></p><pre class="made"></pre></div>\n'
        + '<p>Exactly your numbers: <code class="asked"></code></p></form>\n'
        + f'<script type="application/json" id="explorer-data">{content}</script>\n'
        + paragraph(WITHOUT)
        + table(("N", *(f"B = {batch:,}" for batch in BATCHES)), _rows(points))
    )


def _control(axis: Axis) -> str:
    """Return what a reader sets a number with: a list, or a field and a slider over the values of the grid."""
    name, value = f"explorer-{axis.name}", axis.values[axis.first]
    label = f'<label for="{name}">{safe(axis.label)}</label>'
    if axis.listed:
        listed = "".join(f"<option>{safe(one)}</option>" for one in axis.values)
        return f'<div class="field">{label}<select id="{name}" name="{axis.name}">{listed}</select></div>\n'
    bounds = f'min="1" max="{MOST}" step="1"' if axis.by_ratio else 'min="0" step="any"'
    return (
        f'<div class="field">{label}'
        f'<input id="{name}" name="{axis.name}" type="number" {bounds} value="{value}">'
        f'<input type="range" data-axis="{axis.name}" min="0" max="{len(axis.values) - 1}" value="{axis.first}" '
        f'aria-label="{safe(axis.label)}: points of the grid"></div>\n'
    )


def _rows(points: Sequence[Point]) -> Iterator[tuple[str | Cell, ...]]:
    """Yield a row of choices for each N: as many threads as there are, the first dtype."""
    most, dtype = points[0].question.threads, points[0].question.dtype
    shown = {
        (one.question.capacity, one.question.batch): one
        for one in points
        if (one.question.updates_per_sample, one.question.threads, one.question.dtype) == (1, most, dtype)
    }
    for capacity in CAPACITIES:
        yield (f"{capacity:,}", *(_cell(shown[capacity, batch]) for batch in BATCHES))


def _cell(point: Point) -> str | Cell:
    if point.answer is None:
        return "no answer"
    choice = tree_answer(point.answer).choice
    assert choice  # as each answer about a tree has
    return Cell(write_tree(choice.label), note=write_range(choice.number))


SECTIONS = (Section(25, "Ask for another tree", _html, TREES, ("KEY/platform.toml",)),)
