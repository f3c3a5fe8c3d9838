"""What the page is declared with: figures, tables and sections, which the files of ``reports/sections`` list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

Make = Callable[[Any], pd.DataFrame]
"""Makes rows of the data of a page (``frame.Data``)."""
NS = "ns per element"
LEAVES, BATCH, FANOUT = "leaves N", "batch B", "fanout K"


@dataclass(frozen=True)
class Figure:
    """A figure: which rows of the frame it shows, and what lies along its axes.

    ``title``: the question it answers. ``where``: a query of the frame; or ``make`` returns rows with the columns that
    follow. ``x``, ``y``: columns; ends of an interval are in ``y_low`` and ``y_high`` where there are such columns.
    ``hue``: a line or a color for each of its values; ``panels``: a panel for each combination of these columns.
    ``holds``: columns that are kept at their usual value (``frame.USUAL``, or the one that is given), or the nearest
    that was measured. ``kind``: "line"; "bar", a bar a value of ``x``, the shortest first; "stack", bars of the parts
    in ``part``; "curve", the median of all rows at each x with its quartiles. ``log``: logarithmic x and y.
    ``reading``: how to read it. ``command``: what measures it; "" where it is computed. ``own_axes``: panels show
    different quantities, which columns ``x_label`` and ``y_label`` may name; an axis is logarithmic where its values
    span many times.
    """

    name: str
    title: str
    x: str
    y: str = "ns"
    where: str = ""
    make: Make | None = None
    hue: str | None = None
    panels: tuple[str, ...] = ()
    part: str | None = None
    holds: Sequence[str] | Mapping[str, Any] = ()
    kind: Literal["line", "bar", "stack", "curve"] = "line"
    labels: tuple[str, str] = ("", NS)
    log: tuple[bool, bool] = (True, True)
    reading: str = ""
    command: str = ""
    own_axes: bool = False

    @property
    def least_points(self) -> int:
        """How many values of x a line needs: a line two, a bar one."""
        return 2 if self.kind in ("line", "curve") else 1


@dataclass(frozen=True)
class Table:
    """A table: its title, a function that makes it, and whether a reader sees it without a click."""

    name: str
    title: str
    make: Make
    is_open: bool = False
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A section of the page: its heading, what it says in at most two sentences, its figures and tables.

    ``says`` returns the answer to the heading, computed; "" where nothing was measured.
    """

    title: str
    about: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    says: Callable[[Any], str] | None = None

    @property
    def anchor(self) -> str:
        """The name that links to the section use."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())
