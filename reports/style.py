"""The one look of all figures.

A panel an operation, logarithmic axes with plain numbers, bars for the 95 % interval of the median, hollow markers
where a timing was unstable, dots and a word in the legend for what was not measured. Every color comes with a marker or
dash of its own, so that nothing is lost in print or to a color-blind reader.
"""

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from .tidy import About, binary, of_one_run, short

COLORS = [sns.color_palette("colorblind")[i] for i in (0, 1, 2, 3, 4, 5, 7, 9)]  # without those too pale for a line
MARKERS = "osD^vPXp"
TIME = "time per element (ns)"
LEAVES = "leaves N"
LEGEND_WIDTH = 120  # characters; a marker takes 6
DOTS_PER_INCH = 130
CAPTIONS, MOST_LINES = ((140, 8.5), (160, 7.5)), 3  # (characters of a line, points): the first that has room
SUBDIVISIONS = (  # ticks in a decade, for axes whose highest value is less than so many times the lowest
    (1.6, (1, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5)),
    (8, (1, 1.2, 1.5, 2, 3, 5, 7)),
    (500, (1, 2, 5)),
    (math.inf, (1,)),
)
STYLE = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook", font_scale=0.9),
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.wspace": 0.06,  # so that ticks of panels beside each other do not touch
    "font.family": "DejaVu Sans",
    "grid.color": "0.9",
    "lines.linewidth": 1.6,
    "lines.markersize": 6.5,
    "svg.hashsalt": "reports",
}
styled = mpl.rc_context(STYLE)


def panels(
    title: str, titles: Sequence[str], height: float = 6, y: str = TIME, **layout: Any
) -> tuple[Figure, Sequence[Axes]]:
    """Make a figure 9 inches wide with a title, a logarithmic panel for each of ``titles`` and room for a caption.

    ``y`` labels the axes on the left; ``layout`` goes to ``Figure.subplots``; cells beyond the titles stay empty.
    """
    layout = {"nrows": 1, "ncols": len(titles), "sharey": True} | layout
    figure = Figure(figsize=(9, height))
    top, _ = figure.subfigures(2, 1, squeeze=False, height_ratios=(12, 1)).ravel()
    top.suptitle(title, fontweight="bold")
    grid = top.subplots(squeeze=False, **layout).ravel()
    for position, axes in enumerate(grid):
        axes.set_title(titles[position] if position < len(titles) else "")
        axes.set(xscale="log", yscale="log", ylabel=y)
        axes.label_outer()
        axes.set_visible(position < len(titles))
        if not layout["sharey"]:
            axes.tick_params(labelleft=True)
    return figure, grid[: len(titles)]


def by_op(
    title: str, rows: pd.DataFrame, setting: str, height: float = 6, *others: str
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Make a figure with a panel for each op, and a row of panels for each value of other columns.

    Return it, and each panel with its rows.
    """
    parts = {key[::-1]: part for key, part in rows.groupby([*others, "op"], observed=True)}
    columns = rows["op"].nunique()
    layout = {"ncols": columns, "nrows": -(-len(parts) // columns), "sharey": "row"}
    figure, grid = panels(title, [", ".join([*key, setting]) for key in parts], height, **layout)
    return figure, list(zip(grid, parts.values(), strict=True))


def marks(position: int, dashes: str = "-") -> dict[str, str]:
    """Return the color, marker and dash of a series by its position, of which the first 64 are different."""
    turn, place = divmod(position, len(COLORS))
    marker = MARKERS[(place + turn) % len(MARKERS)]
    return {"color": COLORS[place], "marker": marker, "linestyle": "-." if turn and dashes == "-" else dashes}


def columns(points: Sequence[Any], *names: str) -> list[list[Any]]:
    """Return a list for each name: that attribute of every point."""
    return [[getattr(point, name) for point in points] for name in names]


def bars(axes: Axes, x: Any, middle: Any, low: Any, high: Any, **how: Any) -> None:
    """Draw intervals ``low`` to ``high`` around points, or around one point."""
    ends = [np.clip(np.subtract(middle, low), 0, None), np.clip(np.subtract(high, middle), 0, None)]
    axes.errorbar(x, middle, np.reshape(ends, (2, -1)), **({"elinewidth": 1, "capsize": 2.5} | how))


def line(
    axes: Axes, rows: pd.DataFrame, x: str, label: str, position: int, dashes: str = "-", marker: str | None = None
) -> None:
    """Draw one series with its intervals, in the color and marker of its position."""
    series(axes, rows, x, label, marks(position, dashes) | ({"marker": marker} if marker else {}))


def series(axes: Axes, rows: pd.DataFrame, x: str, label: str, style: Mapping[str, Any]) -> None:
    """Draw one series with its intervals, in this style; a line joins measured points of one run alone."""
    color, marker = style["color"], style["marker"]
    for source, part in rows.sort_values(x).groupby("source"):
        is_measured = source == "measured"
        name, look = (label, style) if is_measured else (f"{label} ({source})", {**style, "linestyle": ":"})
        bars(axes, part[x], part["ns"], part["low_ns"], part["high_ns"], fmt="none", ecolor=color, alpha=0.7)
        joined = of_one_run(part) if is_measured else part
        axes.plot(joined[x], joined["ns"], label=name, **look)
        if len(others := part.drop(joined.index)):
            axes.plot(others[x], others["ns"], **{**look, "linestyle": "none", "alpha": 0.5})
        hollow = part[part["status"] == "unstable"]
        axes.plot(hollow[x], hollow["ns"], marker, color=color, markerfacecolor="white")


def band(axes: Axes, rows: pd.DataFrame, x: str, y: str, label: str, position: int) -> None:
    """Draw the median over seeds, and a band from the lowest to the highest."""
    over = rows.groupby(x)[y].agg(["median", "min", "max"])
    color = COLORS[position % len(COLORS)]
    axes.fill_between(over.index, over["min"], over["max"], color=color, alpha=0.15, linewidth=0)
    axes.plot(over.index, over["median"], label=label, **marks(position))


def returns(axes: Axes, solved_at: float) -> None:
    """Set linear axes for returns over environment steps, with a line at the return that counts as solved."""
    axes.axhline(solved_at, color="0.3", linestyle=":", linewidth=1, label="solved")
    axes.set(xscale="linear", yscale="linear", xlabel="environment steps")
    axes.xaxis.set_major_formatter(lambda value, _: short(round(value, 6)) if value else "0")


def few_ticks(figure: Figure) -> Figure:
    """Give the linear axes of a captioned figure a handful of ticks upwards."""
    for axes in figure.axes:
        if axes.get_yscale() == "linear":
            axes.yaxis.set_major_locator(MaxNLocator(6))
    return figure


def ring(axes: Axes, x: float, y: float) -> None:
    """Draw a ring around the best point."""
    axes.plot(x, y, "o", markersize=15, fillstyle="none", color="black", zorder=5)


def ticks(axis: Axis, values: Sequence[float], say: Callable[[float], str] = short) -> None:
    """Set ticks at these values and nowhere else."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FixedFormatter([say(value) for value in values]))
    axis.set_minor_locator(NullLocator())


def x_axis(axes: Axes, values: Iterable[float], label: str) -> None:
    """Set a label, and ticks at these values and nowhere else."""
    ticks(axes.xaxis, sorted(set(values)))
    axes.set(xlabel=label)


def bytes_axis(axes: Axes, rows: pd.DataFrame, label: str) -> None:
    """Set a label, and ticks at powers of four of a KiB."""
    powers = range(math.floor(math.log(rows["bytes"].min(), 4)), math.ceil(math.log(rows["bytes"].max(), 4)) + 1)
    ticks(axes.xaxis, [4.0**power for power in powers], binary)
    axes.set(xlabel=label)


def finish(figure: Figure, rows: pd.DataFrame, about: About, note: str = "") -> Figure:
    """Set plain numbers on the time axes; below the panels the legend, a note, and the origin of the rows."""
    return captioned(figure, f"{note} {_origin(rows, about)}")


def captioned(figure: Figure, caption: str) -> Figure:
    """Set plain numbers on the time axes; below the panels the legend, then this caption."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        low, high = axes.get_ylim()
        steps = next(steps for ratio, steps in SUBDIVISIONS if high / low < ratio)
        axes.yaxis.set_major_locator(LogLocator(subs=steps))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        axes.yaxis.set_minor_locator(NullLocator())
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    top, bottom = figure.subfigs
    columns = min(len(handles), LEGEND_WIDTH // (6 + max(map(len, handles))))
    top.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
    lines = [textwrap.wrap(" ".join(caption.split()), width) for width, _ in CAPTIONS]
    text, (_, points) = next(
        (one for one in zip(lines, CAPTIONS, strict=True) if len(one[0]) <= MOST_LINES), (lines[-1], CAPTIONS[-1])
    )
    bottom.text(0.01, 1, "\n".join(text), va="top", fontsize=points, color="0.3")
    return figure


def _origin(rows: pd.DataFrame, about: About) -> str:
    """Say what the rows are; of measured ones where, when and at which commits."""
    hollow = " Hollow: unstable, its interval is wide." if (rows["status"] == "unstable").any() else ""
    others = ", ".join(sorted(set(rows["source"]) - {"measured"}))
    dotted = f" Dotted: {others}, the device alone." if others else ""
    measured = rows[rows["source"] == "measured"]
    if measured.empty:
        return dotted.strip()
    several = "run" in measured and measured["run"].nunique() > 1
    hollow += " Pale, not joined: points of other runs." if several else ""
    commits = ", ".join(sorted({(commit or "no commit")[:8] for commit in measured["commit"]}))
    days = sorted({utc[:10] for utc in measured["utc"]})
    return (
        f"Bars: 95 % intervals of medians.{hollow}{dotted} Source: measured on {about.cpu}, {about.cores} cores, "
        f"at {commits}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}."
    )


@styled
def picture(figure: Figure, ending: str) -> bytes:
    """Return a figure as the bytes of a .svg or .png file: the same bytes for the same figure.

    The file's own canvas draws once; ``Figure.savefig`` would draw twice.
    """
    content = io.BytesIO()
    figure.set_dpi(DOTS_PER_INCH)
    if engine := figure.get_layout_engine():  # places panels to the last bit as memory lies, so once and rounded
        engine.execute(figure)
        figure.set_layout_engine("none")
        for axes in figure.axes:
            axes.set_position([round(edge, 9) for edge in axes.get_position().bounds])
    if ending == "svg":
        FigureCanvasSVG(figure).print_svg(content, metadata={"Date": None})
    else:
        FigureCanvasAgg(figure).print_png(content)
    return content.getvalue()
