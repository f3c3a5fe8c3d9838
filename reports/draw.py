"""Draw a figure with seaborn and pandas: an SVG a panel for the page, or one file with all panels for a paper.

A name has one color on the whole page. Median and 95 % interval are those of the record; a hollow marker is a cell
whose interval is wide ("unstable"), a bar of that kind is hatched.
"""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from .figure import Figure

INK, GRID, PAPER = "#123456", "#123457", "#123458"  # stand for the page's colors, light and dark
NAMES = (
    ("numba", "numpy", "cumsum", "fpga", "torchrl", "tianshou", "cpprb", "python", "rllib", "flat"),
    ("two_lock_checked", "two_lock_lazy", "rwlock", "none", "global", "banked", "owner", "cpprb_mp"),
    ("dense", "torch"),
    ("apart", "pipelined", "serial", "copies", "nodes"),
    ("shared", "queue", "fill", "pipe", "file"),
    ("draw", "update"),
    ("uniform", "prioritized"),
    ("learner on CPU", "learner on GPU", "learner on FPGA"),
)
"""Names that share a figure, the most frequent first: each has a color of its own among them."""
COLORS = {name: color for names in NAMES for name, color in zip(names, sns.color_palette("colorblind"), strict=False)}
OTHERS = "#9e9e9e"
Keys = list[tuple[str, str, str]]
"""Names of a figure, each with its color and its marker."""
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
LETTERS = {"capacity": "N = ", "batch": "B = ", "fanout": "K = "}
PREDICTED = ", predicted"
"""The end of a name whose line is dashed."""
MOST_COLORS = 10
STYLE = {
    **sns.axes_style("whitegrid"), **sns.plotting_context("paper", font_scale=1.15), "svg.fonttype": "none",
    "svg.hashsalt": "fanout", "font.family": "sans-serif", "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
ON_PAGE = {
    "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": GRID,
    "grid.color": GRID, "axes.facecolor": "none", "figure.facecolor": "none",
}  # fmt: skip


def name_panels(rows: pd.DataFrame, figure: Figure) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each panel of a figure: its name and its rows."""
    if not figure.panels:
        yield "", rows
        return
    for key, part in rows.groupby(list(figure.panels), observed=True, sort=True):
        yield ", ".join(_label(name, value) for name, value in zip(figure.panels, key, strict=True)), part


def _label(column: str, value: Any) -> str:
    letter = LETTERS.get(column, "")
    return f"{letter}{shorten(value) if letter else value}"


def draw_panels(rows: pd.DataFrame, figure: Figure) -> list[tuple[str, str, Keys]]:
    """Draw each panel as an SVG that follows the colors of the page; return its name, itself and its own keys."""
    panels, drawn = list(name_panels(rows, figure)), []
    width, is_own = {1: 5.4, 2: 4.6, 4: 4.6}.get(len(panels), 3.9), has_own_keys(rows, figure)
    with mpl.rc_context(STYLE | ON_PAGE):
        for name, part in panels:
            every = rows if len(list_keys(rows, figure)) <= MOST_COLORS else part
            keys = [key for key in list_keys(every, figure) if key[0] in set(part[figure.hue])] if is_own else []
            height = _height(part, figure, 3.0)
            picture = Picture(figsize=(width, height), layout="constrained")
            draw_axes(picture.subplots(), part, figure, every)
            drawn.append((name, _to_html(picture, f"{figure.title} {name}".strip()), keys))
    return drawn


def save(rows: pd.DataFrame, figure: Figure, path: Path, width: float = 3.4) -> None:
    """Write a figure for a paper: panels of ``width`` inches, two in a line, without a title or a source."""
    panels = list(name_panels(rows, figure))
    with mpl.rc_context(STYLE | sns.plotting_context("paper") | {"svg.fonttype": "path", "pdf.fonttype": 42}):
        is_own, across, lines = has_own_keys(rows, figure), min(2, len(panels)), -(-len(panels) // 2)
        most = max(len(list_keys(part, figure)) for _, part in panels) if is_own else 0
        width *= 1.5 if len(panels) == 1 and figure.kind in ("bar", "stack") else 1  # room for names and numbers
        height = max(_height(part, figure, 2.5) for _, part in panels)
        size = width * across, (height + 0.18 * most) * lines
        picture = Picture(figsize=size, layout="constrained", dpi=300)
        grid = picture.subplots(lines, across, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        for axes, (name, part) in zip(grid, panels, strict=False):
            draw_axes(axes, part, figure, part if is_own else rows)
            axes.set_title(name)
            if is_own:
                marks = _list_lines(label_keys(part, figure))
                axes.legend(handles=marks, fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0, -0.25))
        marks = _list_lines(label_keys(rows, figure))
        if len(marks) > 1 and not is_own:
            picture.legend(handles=marks, loc="outside upper center", ncols=min(2 * across, len(marks)), frameon=False)
        picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def has_own_keys(rows: pd.DataFrame, figure: Figure) -> bool:
    """Say whether no panel has all names of a figure, so that each panel needs a legend of its own."""
    if not (figure.own_axes and figure.hue and figure.panels):
        return False
    most = rows.groupby(list(figure.panels), observed=True)[figure.hue].nunique().max()
    return bool(most < rows[figure.hue].nunique())


def _list_lines(keys: Keys) -> list[mpl.lines.Line2D]:
    return [mpl.lines.Line2D([], [], color=color, marker=mark, label=name) for name, color, mark in keys]


def _height(rows: pd.DataFrame, figure: Figure, usual: float) -> float:
    """Return inches: of bars, so much for each."""
    if figure.kind not in ("bar", "stack"):
        return usual
    lanes = _count_lanes(rows, figure) if figure.kind == "bar" else 1
    return float(0.7 + rows[figure.x].nunique() * (0.07 + 0.17 * lanes))


def _count_lanes(rows: pd.DataFrame, figure: Figure) -> int:
    """Count the bars beside each other: the hues, or a single one where no x has two."""
    if not figure.hue or rows.groupby([figure.x, *figure.panels], observed=True)[figure.hue].nunique().max() == 1:
        return 1
    return int(rows[figure.hue].nunique())


def draw_axes(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    """Draw the rows of a panel; ``every`` row of the figure sets colors, their order, and limits of shared axes."""
    {"line": _draw_lines, "bar": _draw_bars, "stack": _draw_stack, "curve": _draw_curves}[figure.kind](
        axes, rows, figure, every
    )


def _draw_lines(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    keys = list_keys(every, figure)
    for name, color, mark in keys:
        line = rows if not figure.hue else rows[rows[figure.hue].astype(str) == name]
        line = line.sort_values(figure.x)
        is_ours = color != OTHERS
        sns.lineplot(line, x=figure.x, y=figure.y, color=color, errorbar=None, estimator=None, legend=False, ax=axes,
                     linewidth=1.6 if is_ours else 0.9, linestyle="--" if name.endswith(PREDICTED) else "-",
                     zorder=2 + is_ours)  # fmt: skip
        if f"{figure.y}_low" in line:
            ends = [line[figure.y] - line[f"{figure.y}_low"], line[f"{figure.y}_high"] - line[figure.y]]
            axes.errorbar(
                line[figure.x], line[figure.y], np.clip(ends, 0, None), fmt="none", ecolor=color, elinewidth=1
            )
        solid = line["status"] != "unstable" if "status" in line else pd.Series(True, line.index)
        for part, face in ((line[solid], color), (line[~solid], _paper(axes))):
            axes.plot(part[figure.x], part[figure.y], mark, color=color, markerfacecolor=face, markersize=4.5 + is_ours,
                      linestyle="none", zorder=3 + is_ours)  # fmt: skip
    _set_scales(axes, rows, figure, every)


def _draw_curves(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    """Draw the median over seeds with its quartiles."""
    keys = list_keys(every, figure)
    palette = {name: color for name, color, _ in keys}
    marker = "o" if rows[figure.x].nunique() <= 8 else None
    hue = rows[figure.hue].astype(str) if figure.hue else None  # without categories that the rows do not have
    sns.lineplot(rows, x=figure.x, y=figure.y, hue=hue, palette=palette if figure.hue else None, legend=False,
                 estimator="median", errorbar=("pi", 50), err_kws={"alpha": 0.18, "linewidth": 0}, ax=axes,
                 marker=marker, markeredgecolor="none")  # fmt: skip
    _set_scales(axes, rows, figure, every)


def _draw_bars(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    """Draw horizontal bars, the shortest on top, a color a hue."""
    hue = figure.hue or figure.x
    order = every.groupby(figure.x, observed=True)[figure.y].min().sort_values(ascending=False).index
    order = [name for name in order if name in set(rows[figure.x])]
    names = [name for name, _, _ in list_keys(every, figure)] if figure.hue else [""]
    colors = {name: color for name, color, _ in list_keys(every, figure)}
    lanes = _count_lanes(every, figure)
    wide = 0.8 / lanes
    for place, name in enumerate(reversed(names)):
        part = rows[rows[hue].astype(str) == name] if figure.hue else rows
        part = part.set_index(figure.x).reindex([value for value in order if value in set(part[figure.x])])
        lane = place - (lanes - 1) / 2 if lanes > 1 else 0.0
        at = np.array([order.index(value) for value in part.index]) + wide * lane
        shades = [colors[name]] * len(part) if figure.hue else [color_of(str(value)) for value in part.index]
        is_solid = part["status"] != "unstable" if "status" in part else pd.Series(True, part.index)
        (_draw_dots if figure.log[1] else _draw_lengths)(axes, part[figure.y], at, wide, shades, is_solid)
        if f"{figure.y}_low" in part:
            ends = [part[figure.y] - part[f"{figure.y}_low"], part[f"{figure.y}_high"] - part[figure.y]]
            axes.errorbar(part[figure.y], at, xerr=np.clip(ends, 0, None), fmt="none", ecolor="0.35", elinewidth=1)
        highs = part.get(f"{figure.y}_high", part[figure.y])
        for value, x, y in zip(part[figure.y], highs, at, strict=True):
            text = {"va": "center", "fontsize": 8.5, "xytext": (5, 0), "textcoords": "offset points"}
            axes.annotate(write_number(value), (x, y), **text)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(-0.6, len(order) - 0.4)
    axes.grid(visible=False, axis="y")
    _set_value_axis(axes, rows if figure.own_axes else every, figure)


def _draw_lengths(axes: Axes, values: Any, at: Any, wide: float, colors: Any, is_solid: Any) -> None:
    """Draw bars from 0, hatched where unstable."""
    for bar, solid in zip(axes.barh(at, values, 0.9 * wide, color=colors, edgecolor="none"), is_solid, strict=True):
        bar.set(hatch="" if solid else "////", edgecolor="none" if solid else PAPER)


def _draw_dots(axes: Axes, values: Any, at: Any, wide: float, colors: Any, is_solid: Any) -> None:
    """Draw dots on thin stems, hollow where unstable: a scale of factors has no 0 from which a bar could be long."""
    for value, y, color, solid in zip(values, at, colors, is_solid, strict=True):
        axes.hlines(y, 1e-12, value, color=color, linewidth=4 * wide / 0.8, alpha=0.35, zorder=1)
        axes.plot(
            [value], [y], "o", color=color, markerfacecolor=color if solid else _paper(axes), markersize=6, zorder=3
        )


def _paper(axes: Axes) -> Any:
    """Return the color behind the axes: the page's, or white."""
    return axes.figure.get_facecolor() if axes.get_facecolor()[3] else PAPER


def _draw_stack(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    """Draw a bar of parts for each x, in shares of its sum, which is written at its end."""
    assert figure.part
    table = rows.pivot_table(index=figure.x, columns=figure.part, values=figure.y, observed=True, sort=False)
    colors = [color for _, color, _ in list_keys(every, figure)]
    shares = (100 * table.div(table.sum(axis=1), axis=0)).iloc[::-1]
    shares.plot.barh(stacked=True, ax=axes, color=colors, width=0.72, legend=False)
    for place, (total, share) in enumerate(zip(table.sum(axis=1)[::-1], shares.itertuples(index=False), strict=True)):
        axes.annotate(f"{write_number(total)} {figure.labels[1]}", (101, place), va="center", annotation_clip=False)
        for at, value in zip(np.cumsum(share) - np.array(share) / 2, share, strict=True):
            if value >= 9:
                axes.annotate(f"{value:.0f} %", (at, place), ha="center", va="center", fontsize=8, color="white")
    axes.grid(visible=False, axis="y")
    axes.set(xlabel=figure.labels[0], ylabel="", xlim=(0, 100))


def fit_axes(rows: pd.DataFrame, figure: Figure) -> Figure:
    """Return a figure whose labels and logarithmic axes are those of the rows of a panel."""
    x = pd.Series(rows[figure.x].unique())
    y = rows.groupby([figure.hue or figure.x, figure.x], observed=True)[figure.y].median()
    is_log = x.max() > max(4 * x[x > 0].min(), 3 * x.median()), 0 < 10 * y.min() < y.max()
    names = [rows[name].iloc[0] if name in rows else "" for name in ("x_label", "y_label")]
    x_label, y_label = (name or label for name, label in zip(names, figure.labels, strict=True))
    return replace(figure, log=is_log, labels=(x_label, y_label))


def _set_scales(axes: Axes, rows: pd.DataFrame, figure: Figure, every: pd.DataFrame) -> None:
    if figure.own_axes:
        figure, every = fit_axes(rows, figure), rows
    axes.set(xscale="log" if figure.log[0] else "linear", yscale="log" if figure.log[1] else "linear")
    if figure.log[0] and rows[figure.x].min() <= 0:  # a count that may be none
        axes.set_xscale("symlog", linthresh=1)
    low, high = find_limits(every, figure)
    if figure.log[1]:
        if figure.kind == "line":
            axes.set_ylim(low / 1.35, high * 1.35)
        _set_log_ticks(axes.yaxis, high / low)
    elif figure.kind == "line":
        axes.set_ylim(min(0, 1.1 * low), max(1.1 * high, 1.02 * every.get(f"{figure.y}_high", every[figure.y]).max()))
    values = np.sort(rows[figure.x].unique())
    if figure.log[0] and len(values) <= 9:
        kept = values[:: 2 if len(values) > 6 else 1]
        axes.xaxis.set_major_locator(FixedLocator(kept))
        axes.xaxis.set_minor_locator(NullLocator())
    elif not figure.log[0]:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for axis, is_log in ((axes.xaxis, figure.log[0]), (axes.yaxis, figure.log[1])):
        axis.set_major_formatter(FuncFormatter(lambda value, _: shorten(value)))
        if is_log:
            axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel=figure.labels[0], ylabel=figure.labels[1])


def find_limits(rows: pd.DataFrame, figure: Figure) -> tuple[float, float]:
    """Find the least and the largest value of y, with the ends of intervals."""
    values = rows[[name for name in (figure.y, f"{figure.y}_low", f"{figure.y}_high") if name in rows]]
    return float(values.min(axis=None)), float(values.max(axis=None))


def _set_value_axis(axes: Axes, every: pd.DataFrame, figure: Figure) -> None:
    low, high = find_limits(every, figure)
    if figure.log[1]:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.8, high * 1.9)
        _set_log_ticks(axes.xaxis, high / low)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_xlim(0, high * 1.18)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shorten(value)))
    axes.set(xlabel=figure.labels[1], ylabel=figure.labels[0])


def _set_log_ticks(axis: Any, ratio: float) -> None:
    axis.set_major_locator(
        LogLocator(10, subs=(1,) if ratio > 200 else (1, 2, 5) if ratio > 3 else (1, 1.5, 2, 3, 5, 7))
    )


def list_keys(rows: pd.DataFrame, figure: Figure) -> Keys:
    """List each name of a figure with its color and marker: numbers in order and in shades, known names first."""
    column = figure.part if figure.kind == "stack" else figure.hue
    if not column:
        return [("", mpl.colors.to_hex(COLORS["numba"]), "o")]
    values = list(dict.fromkeys(rows[column]))
    markers = list(MARKERS)
    if all(isinstance(value, int | float | np.number) for value in values):
        values = sorted(values)
        shades = sns.color_palette("viridis", len(values) + 1).as_hex()
        return [(str(value), shades[i], markers[i % len(markers)]) for i, value in enumerate(values)]
    if isinstance(rows[column].dtype, pd.CategoricalDtype):
        values = [value for value in rows[column].cat.categories if value in values]
    else:
        values.sort(
            key=lambda value: (
                color_of(str(value)) == OTHERS,
                list(COLORS).index(_base(str(value))) if _base(str(value)) in COLORS else 0,
            )
        )
    known = [color_of(str(value)) for value in values]
    if len(set(known)) == 1:  # names of this figure alone, or of a single known name
        known = sns.color_palette("colorblind" if len(values) <= 10 else "husl", len(values)).as_hex()
    return [(str(value), known[i], markers[i % len(markers)]) for i, value in enumerate(values)]


def label_keys(rows: pd.DataFrame, figure: Figure) -> list[tuple[str, str, str]]:
    """List what ``list_keys`` does, for a reader: N = 10k instead of 10000."""
    keys, column = list_keys(rows, figure), figure.hue or ""
    is_number = column in rows and pd.api.types.is_numeric_dtype(rows[column])
    return [(_label(column, float(name)) if is_number else name, color, mark) for name, color, mark in keys]


def _base(name: str) -> str:
    return name.partition(",")[0]


def color_of(name: str) -> str:
    """Return the color of a name on the whole page; gray for a name that has none."""
    color = COLORS.get(_base(name))
    return mpl.colors.to_hex(color) if color else OTHERS


def _to_html(picture: Picture, title: str) -> str:
    """Return an SVG that takes the colors of the page around it, with a title for those who hear it."""
    out = io.StringIO()
    picture.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"font: [^;\"]*sans-serif", lambda found: re.sub(r"'[^']*', ?|DejaVu Sans, ?", "", found[0]), svg)
    for stand_in, color in ((INK, "currentColor"), (GRID, "var(--grid)"), (PAPER, "var(--paper)")):
        svg = svg.replace(stand_in, color)
    safe = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{safe}" ', 1)


def shorten(value: Any) -> str:
    """Write a tick: 10k, 1M.

    >>> [shorten(value) for value in (16, 2_048, 10_000, 2_000_000, 0.5, 1e-3)]
    ['16', '2,048', '10k', '2M', '0.5', '0.001']
    """
    if not isinstance(value, int | float | np.number):
        return str(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:,.0f}{letter}"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:g}"


def write_number(value: float) -> str:
    """Write a number with two digits that count, three from 10 on.

    >>> [write_number(value) for value in (0.1234, 5.678, 45.67, 1234.5)]
    ['0.12', '5.7', '46', '1,234']
    """
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def describe_held(rows: pd.DataFrame, figure: Figure) -> str:
    """Say which N, B and K all rows of a figure have, where these are no axis of it."""
    shown = {figure.x, figure.hue, *figure.panels}
    letters = [name for name in LETTERS if name != "fanout" or name in figure.holds]
    held = [name for name in letters if name in rows and name not in shown and rows[name].nunique() == 1]
    text = ", ".join(_label(name, int(rows[name].iloc[0])) for name in held if rows[name].iloc[0] > 0)
    return f"{text}." if text else ""


def describe_source(rows: Iterable[Any]) -> str:
    """Name the machines, days and commits that rows are from, and how they came about."""
    table = pd.DataFrame(rows)
    if "utc" not in table or table["utc"].isna().all():
        return ""
    days = sorted({utc[:10] for utc in table["utc"].dropna()})
    commits = sorted({str(commit)[:8] for commit in table["commit"].dropna()})
    machines = sorted(set(table["machine"]))
    kinds = " and ".join(sorted(set(table["source"]))) if "source" in table else "measured"
    when = " to ".join(dict.fromkeys([days[0], days[-1]]))
    which = f"{len(commits)} commits" if len(commits) > 2 else " and ".join(commits)
    at = f", at {which}" if commits else ""
    return f"{kinds.capitalize()} on machine {', '.join(machines)}, {when}{at}."
