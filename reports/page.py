"""The page: one HTML file that needs nothing else, made of what the files of ``reports/sections`` declare."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from dse.platforms import PlatformError
from dse.records import NoRecordsError, RecordError
from dse.solver.problem import ProblemError
from impls.training import WorkloadError

from . import sections as folder
from .answer import FIRST, make_answer
from .draw import describe_held, describe_source, draw_panels, has_own_keys, label_keys
from .figure import Figure, Section, Table
from .frame import Data

HERE = Path(__file__).parent
MOST_ROWS = 100  # of a table on the page; ``python -m reports data`` writes all
UNAVAILABLE = (RecordError, PlatformError, ProblemError, WorkloadError, ModuleNotFoundError)
"""What a part of the page may lack; any other error is a fault of ours."""


@dataclass
class View:
    """A figure or a table as the template shows it; ``missing`` says why there is none, and what measures it."""

    name: str
    title: str
    panels: Sequence[tuple[str, str, Sequence[tuple[str, str, str]]]] = ()
    keys: Sequence[tuple[str, str, str]] = ()
    reading: str = ""
    source: str = ""
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    count: int = 0
    is_open: bool = False
    missing: str = ""
    is_fault: bool = False


@dataclass
class Shown:
    """A section as the template shows it."""

    section: Section
    says: str = ""
    figures: list[View] = field(default_factory=list)
    tables: list[View] = field(default_factory=list)
    faults: list[View] = field(default_factory=list)


def list_sections() -> list[Section]:
    """List the sections in the order of the page."""
    modules = (importlib.import_module(f"{__package__}.sections.{name}") for name in folder.ORDER)
    return [section for module in modules for section in module.SECTIONS]


def list_figures() -> dict[str, Figure]:
    """List every figure of the page by its name."""
    return {figure.name: figure for section in (FIRST, *list_sections()) for figure in section.figures}


def list_tables() -> dict[str, Table]:
    """List every table of the page by its name."""
    return {table.name: table for section in list_sections() for table in section.tables}


def build_page(data: Data, tell: Any = lambda text: None) -> tuple[str, list[Shown]]:
    """Return the page as HTML, and the sections that it shows."""
    logging.getLogger("matplotlib.category").setLevel(logging.ERROR)
    tell("the answer")
    answer, first = make_answer(data), show_section(FIRST, data)
    shown = []
    for section in list_sections():
        tell(section.title.lower())
        shown.append(show_section(section, data))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((HERE / "page.html.j2").read_text(encoding="utf-8"))
    style, script = ((HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return template.render(answer=answer, first=first, shown=shown, style=style, script=script), [first, *shown]


def show_section(section: Section, data: Data) -> Shown:
    """Make the views of a section; what was not measured is named with the command that measures it."""
    answer = View("", section.title)
    with _noting(answer):
        answer.reading = section.says(data) if section.says else ""
    says = answer.reading or answer.missing
    figures = [show_figure(figure, data) for figure in section.figures]
    tables = [show_table(table, data) for table in section.tables]
    return Shown(section, says, figures, tables, [view for view in (answer, *figures, *tables) if view.is_fault])


def show_figure(figure: Figure, data: Data) -> View:
    """Draw a figure for the page, with its numbers and their source."""
    view = View(figure.name, figure.title, reading=figure.reading)
    with _noting(view):
        rows = data.select(figure)
        if rows.empty:
            view.missing = f"Not measured yet. To measure it: {figure.command}" if figure.command else "Not computed."
            return view
        view.panels, keys = draw_panels(rows, figure), label_keys(rows, figure)
        view.keys = keys if len(keys) > 1 and not has_own_keys(rows, figure) else ()
        is_unstable = "status" in rows and bool((rows["status"] == "unstable").any())
        mark = "hatched" if figure.kind == "bar" and not figure.log[1] else "hollow"
        view.reading += f" {mark.capitalize()}: unstable, a wide interval." * is_unstable
        view.source = f"{describe_held(rows, figure)} {describe_source(rows)}".strip()
        _fill(view, rows[[name for name in columns_of(rows, figure) if name in rows]])
    return view


@contextmanager
def _noting(view: View) -> Iterator[None]:
    """Let a figure or table that cannot be made cost the page no more than that: the page says why."""
    try:
        yield
    except NoRecordsError:
        pass  # nothing was measured, which the section's figures say
    except ModuleNotFoundError as error:
        view.missing = f"This needs the package {error.name}; pip install '.[suite]' installs it."
    except UNAVAILABLE as error:
        view.missing = f"{error}."
    except Exception as error:
        view.missing, view.is_fault = f"Not shown, for a fault: {type(error).__name__}: {error}", True


def columns_of(rows: pd.DataFrame, figure: Figure) -> list[str]:
    """List the columns of a figure: its panels, axes, color, the ends of intervals and the status."""
    ends = [f"{figure.y}{end}" for end in ("", "_low", "_high")]
    return list(dict.fromkeys([*figure.panels, *filter(None, [figure.hue, figure.part]), figure.x, *ends, "status"]))


def show_table(table: Table, data: Data) -> View:
    """Make a table for the page, with at most ``MOST_ROWS`` rows."""
    view = View(table.name, table.title, reading=table.note, is_open=table.is_open)
    with _noting(view):
        rows, view.source = make_table(table, data)
        _fill(view, rows)
    return view


def make_table(table: Table, data: Data) -> tuple[pd.DataFrame, str]:
    """Make a table; return it with its source: machine, days and commits of the records that it was made of."""
    data.used.clear()
    rows = table.make(data)
    return rows, describe_source(pd.concat(data.used)) if data.used and len(rows) else ""


def _fill(view: View, frame: pd.DataFrame) -> None:
    view.head, view.rows = write_table(frame.head(MOST_ROWS))
    view.count = len(frame)


def write_table(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Write a table: its heads, and its rows; an interval stands behind its number, a share is in percent."""
    ends = {f"{name}{end}" for name in frame for end in ("_low", "_high") if f"{name}_low" in frame}
    names = [name for name in frame if name not in ends]

    def write(row: dict[str, Any], name: Any) -> str:
        is_share = "share" in str(name) and "%" not in str(name) and not isinstance(row[name], str)
        values = [row[column] for column in (name, f"{name}_low", f"{name}_high") if column in row]
        written, *ends = (write_cell(100 * value if is_share else value) for value in values)
        written += " %" * bool(is_share and written)
        return f"{written} [{', '.join(ends)}]" if written and any(ends) else written

    heads = [str(name).replace("_", " ").removeprefix("o ") for name in names]
    return heads, [[write(row, name) for name in names] for row in frame.to_dict("records")]


def write_cell(value: Any) -> str:
    """Write a value of a table: numbers with four digits that count.

    >>> [write_cell(value) for value in (1234567, 0.000123456, float("nan"), None, "draw")]
    ['1,234,567', '0.0001235', '', '', 'draw']
    """
    if value is None or value != value:  # noqa: PLR0124  # NaN alone differs from itself
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def to_frames(data: Data, only: str = "") -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield every table and the rows of every figure by name, or the ``only`` one, with all columns and rows."""
    for name, figure in list_figures().items():
        rows = _try(name, partial(data.select, figure)) if only in ("", name) else pd.DataFrame()
        kept = dict.fromkeys([*columns_of(rows, figure), *SOURCE])
        if not rows.empty:
            yield name, rows[[column for column in kept if column in rows]]
    for name, table in list_tables().items():
        if only in ("", name) and not (rows := _try(name, partial(table.make, data))).empty:
            yield name, rows


def _try(name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """Make rows; without what they need they are empty, and a line on standard error says why."""
    try:
        return make()
    except NoRecordsError:
        return pd.DataFrame()
    except UNAVAILABLE as error:
        print(f"without {name}: {error}", file=sys.stderr)
        return pd.DataFrame()


SOURCE = ("source", "machine", "commit", "utc")
