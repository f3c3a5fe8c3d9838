"""The figures: one function each, from the rows of ``reports.table`` to a matplotlib Figure.

All share one look: a panel an operation, logarithmic axes with plain numbers, bars for the 95 % interval of the median,
hollow markers where a timing was unstable, dots and a word in the legend for what was not measured. Every color comes
with a marker or dash of its own, so that nothing is lost in print or to a color-blind reader.
"""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from . import table
from .table import About, binary, short

COLORS = [sns.color_palette("colorblind")[i] for i in (0, 1, 2, 3, 4, 5, 7, 9)]  # without those too pale for a line
MARKERS = "osD^vPXp"
TIME = "time per element (ns)"
LEAVES = "leaves N"
MOST_LEVEL_TICKS = 6  # more of five digits each run into each other
LEGEND_WIDTH = 120  # characters, 6 of them a marker's
DOTS_PER_INCH = 130
SUBDIVISIONS = (  # of a decade, for axes whose highest value is less than so many times the lowest
    (1.6, (1, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5)),
    (8, (1, 1.2, 1.5, 2, 3, 5, 7)),
    (500, (1, 2, 5)),
    (math.inf, (1,)),
)
STYLE = {
    **sns.axes_style("whitegrid"),
    **sns.plotting_context("notebook", font_scale=0.9),
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "grid.color": "0.9",
    "lines.linewidth": 1.6,
    "lines.markersize": 6.5,
    "svg.hashsalt": "reports",
}
styled = mpl.rc_context(STYLE)


@styled
def fanout(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element over K: a line a capacity, the best K ringed, the plain layout dashed."""
    figure, panels = _by_op("Which K is fastest?", rows, "numba tree, B = 256")
    capacities = sorted(rows["capacity"].unique())
    for axes, part in panels:
        for (options, capacity), line in part.groupby(["options", "capacity"], observed=True):
            position, plain = capacities.index(capacity), options != ""
            name = f"N = {short(capacity)}" + (", plain layout" if plain else "")
            _line(axes, line, "fanout", name, position, "--" if plain else "-")
            timed = line[line["source"] == "measured"]
            if not plain and len(timed) > 1:
                best = timed.loc[timed["ns"].idxmin()]
                axes.plot(best["fanout"], best["ns"], "o", markersize=15, fillstyle="none", color="black", zorder=5)
        _ticks(axes.xaxis, sorted(rows["fanout"].unique()))
        axes.set(xlabel="fanout K (children of a node)")
    return _finish(figure, rows, about, "Ringed: the fastest K of its line.")


@styled
def capacity(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element over N: a line a contestant."""
    figure, panels = _by_op("How does time grow with the number of leaves?", rows, "K = 16, B = 256")
    for axes, part in panels:
        for name, line in part.groupby("contestant", observed=True):
            _line(axes, line, "capacity", str(name), line["contestant"].cat.codes.iloc[0])
        _ticks(axes.xaxis, sorted(rows["capacity"].unique()))
        axes.set(xlabel=LEAVES)
    return _finish(figure, rows, about)


@styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element over B: a line a contestant, several threads dashed."""
    setting = f"N = {rows['capacity'].iloc[0]:,}, K = 16"
    figure, panels = _by_op("What do larger batches save, and more threads?", rows, setting)
    several = sorted(set(rows["threads"]) - {1})
    for axes, part in panels:
        for (name, threads), line in part.groupby(["contestant", "threads"], observed=True):
            label = f"{name}, {threads} threads" if threads > 1 else str(name)
            dashes, marker = ("-", None) if threads == 1 else (("--", "*"), ("-.", "h"))[several.index(threads) % 2]
            _line(axes, line, "batch", label, line["contestant"].cat.codes.iloc[0], dashes, marker)
        _ticks(axes.xaxis, sorted(rows["batch"].unique()))
        axes.tick_params("x", rotation=40 if rows["batch"].nunique() > MOST_LEVEL_TICKS else 0)
        axes.set(xlabel="elements of a call B")
    return _finish(figure, rows, about)


@styled
def layout(rows: pd.DataFrame, about: About) -> Figure:
    """Time of a layout over the default's, by capacity, each point with the cache level its tree fits in."""
    figure, panels = _by_op("What do alignment and ragged levels save?", rows, "K = 16, B = 256")
    capacities = sorted(rows["capacity"].unique())
    labels = {"aligned=False": "misaligned / aligned", "padding=full": "full / ragged levels"}
    series = list(rows.groupby(["contestant", "options"], observed=True).groups)
    for axes, part in panels:
        axes.axhspan(*np.exp([-about.noise_floor, about.noise_floor]), color="0.85", zorder=0, label="A/A noise floor")
        axes.axhline(1, color="0.4", linewidth=1)
        for position, (name, options) in enumerate(series):
            line = table.where(part, contestant=name, options=options)
            at = [capacities.index(n) + 0.26 * (position - (len(series) - 1) / 2) for n in line["capacity"]]
            shown = line.assign(at=at, ns=line["ratio"], low_ns=line["low"], high_ns=line["high"])
            _line(axes, shown, "at", f"{name}: {labels[options]}", position, "none")
            for x, high, ours, theirs in zip(at, shown["high_ns"], shown["bytes"], shown["base_bytes"], strict=True):
                levels = dict.fromkeys([_level(theirs, about), _level(ours, about)])
                axes.annotate(
                    "→\n".join(levels), (x, high), (0, 4), textcoords="offset points", ha="center", fontsize=8
                )
        axes.grid(axis="x", visible=False)
        axes.set(xscale="linear", xlim=(-0.5, len(capacities) - 0.5), xlabel=LEAVES)
        _ticks(axes.xaxis, range(len(capacities)), lambda position: short(capacities[int(position)]))
    panels[0][0].set(ylabel="time over the default layout's (ratio)")
    note = (
        "L1 to L3, RAM: where the trees fit, the default's → the variant's if it is another. "
        f"Noise floor ±{about.noise_floor:.1%} ({about.pairs} A/A pairs)."
    )
    return _finish(figure, rows, about, note)


@styled
def floor(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element of the tree, and of one random read of 64 bytes, over the bytes they run through."""
    tree = rows[rows["primitive"] != "memory"]
    setting = f"numba tree, K = 16, B = {tree['batch'].iloc[0]:,}, beside random reads of 64 bytes"
    figure, (axes,) = _panels("How far is a tree from the cost of memory itself?", [setting])
    axes.set_title(setting, pad=32)
    names = {
        "draw": "numba draw",
        "update": "numba update",
        "gather": "one read, misses overlap (gather)",
        "chase": "one read, each waits for the last (chase)",
    }
    keys = rows["op"].where(rows["primitive"] != "memory", rows["contestant"].astype(str))
    for position, (key, name) in enumerate(names.items()):
        reads = key in ("gather", "chase")
        _line(axes, rows[keys == key], "bytes", name, position, "--" if reads else "-")
    for name, size in about.caches.items():
        axes.axvline(size, color="0.4", linewidth=1, linestyle=(0, (1, 2)))
        text = f"{name}\n{binary(size)}"
        axes.text(size, 1.01, text, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=9)
    _bytes_axis(axes, rows, "bytes of the tree, or of the buffer read")
    axes.set(ylabel="time per element, or per read (ns)")
    return _finish(figure, rows, about)


@styled
def tree_bytes(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element of a draw over the tree's bytes: a number in a marker is its K, thin lines join one N."""
    parts = dict(iter(rows.groupby("contestant", observed=True)))
    titles = [f"{name}, draws of B = 256" for name in parts]
    stacked = {"nrows": len(parts), "ncols": 1, "sharex": True, "sharey": False}
    figure, panels = _panels("Does a smaller tree draw faster?", titles, 7, **stacked)
    fanouts = sorted(rows["fanout"].unique())
    colors = dict(zip(fanouts, sns.color_palette("viridis", len(fanouts)), strict=True))
    for axes, part in zip(panels, parts.values(), strict=True):
        for other in ("options", "fanout"):
            for _, same in part.sort_values("fanout").groupby(["capacity", other]):
                axes.plot(same["bytes"], same["ns"], color="0.6", linewidth=1, zorder=1)
        for row in part.itertuples():
            _numbered(axes, row, colors[row.fanout])
        axes.margins(y=0.15)
    for marker, name in (("o", "ragged levels"), ("D", "full levels")):
        panels[-1].plot([], [], marker, color="0.4", markersize=11, linestyle="none", label=name)
    _bytes_axis(panels[-1], rows, "bytes of the tree")
    return _finish(figure, rows, about, "The number in a marker is K; a thin line joins the trees of one N.")


def _numbered(axes: Axes, row: Any, color: tuple[float, float, float]) -> None:
    """One tree as a marker with its K in it: a circle, or a diamond where its levels are full."""
    hollow, source = row.status == "unstable", "" if row.source == "measured" else f"\n{row.source}"
    ink = "black" if hollow or sum(color) > 1.5 else "white"
    marker, size = ("D", 12.5) if "full" in row.options else ("o", 15)
    face = "white" if hollow else color
    ends = [[max(0, row.ns - row.low_ns)], [max(0, row.high_ns - row.ns)]]
    axes.errorbar(row.bytes, row.ns, ends, fmt="none", ecolor=color, elinewidth=1, capsize=2.5, zorder=1)
    axes.plot(row.bytes, row.ns, marker, markersize=size, markerfacecolor=face, markeredgecolor=color, zorder=2)
    at = (row.bytes, row.ns)
    axes.annotate(f"{row.fanout}{source}", at, ha="center", va="center", fontsize=7.5, color=ink, zorder=3)


# The shared look.


def _panels(question: str, titles: Sequence[str], height: float = 6, **layout: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure 9 inches wide that asks a question, with a logarithmic panel a title, and room for a caption."""
    figure = Figure(figsize=(9, height))
    top, _ = figure.subfigures(2, 1, squeeze=False, height_ratios=(12, 1)).ravel()
    top.suptitle(question, fontweight="bold")
    panels = top.subplots(squeeze=False, **({"ncols": len(titles), "sharey": True} | layout)).ravel()
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.set(xscale="log", yscale="log", ylabel=TIME)
        axes.label_outer()
    return figure, panels


def _by_op(question: str, rows: pd.DataFrame, setting: str) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """A panel for each op, with its rows."""
    parts = dict(iter(rows.groupby("op")))
    figure, panels = _panels(question, [f"{op}, {setting}" for op in parts])
    return figure, list(zip(panels, parts.values(), strict=True))


def _line(
    axes: Axes, rows: pd.DataFrame, x: str, label: str, position: int, dashes: str = "-", marker: str | None = None
) -> None:
    """One series with its intervals, in the color and marker of its position."""
    color, marker = COLORS[position % len(COLORS)], marker or MARKERS[position % len(MARKERS)]
    for source, line in rows.sort_values(x).groupby("source"):
        is_measured = source == "measured"
        name, style = (label, dashes) if is_measured else (f"{label} ({source})", ":")
        ends = [(line["ns"] - line["low_ns"]).clip(lower=0), (line["high_ns"] - line["ns"]).clip(lower=0)]
        axes.errorbar(line[x], line["ns"], ends, fmt="none", ecolor=color, elinewidth=1, capsize=2.5, alpha=0.7)
        axes.plot(line[x], line["ns"], color=color, marker=marker, linestyle=style, label=name)
        hollow = line[line["status"] == "unstable"]
        axes.plot(hollow[x], hollow["ns"], marker, color=color, markerfacecolor="white")


def _ticks(axis: Axis, values: Sequence[float], say: Callable[[float], str] = short) -> None:
    """Ticks at these values and nowhere else."""
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_major_formatter(FixedFormatter([say(value) for value in values]))
    axis.set_minor_locator(NullLocator())


def _bytes_axis(axes: Axes, rows: pd.DataFrame, label: str) -> None:
    """Ticks at powers of four of a KiB."""
    powers = range(math.floor(math.log(rows["bytes"].min(), 4)), math.ceil(math.log(rows["bytes"].max(), 4)) + 1)
    _ticks(axes.xaxis, [4.0**power for power in powers], binary)
    axes.set(xlabel=label)


def _level(size: float, about: About) -> str:
    """The smallest cache that holds so many bytes."""
    return next((name for name, held in sorted(about.caches.items()) if size <= held), "RAM")


def _finish(figure: Figure, rows: pd.DataFrame, about: About, note: str = "") -> Figure:
    """Plain numbers on the time axes; below the panels the legend, then where the numbers come from."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        low, high = axes.get_ylim()
        steps = next(steps for ratio, steps in SUBDIVISIONS if high / low < ratio)
        axes.yaxis.set_major_locator(LogLocator(subs=steps))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    top, bottom = figure.subfigs
    columns = min(len(handles), LEGEND_WIDTH // (6 + max(map(len, handles))))
    top.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)
    caption = textwrap.fill(f"{note} {_origin(rows, about)}".strip(), 140)
    bottom.text(0.01, 1, caption, va="top", fontsize=8.5, color="0.3")
    return figure


def _origin(rows: pd.DataFrame, about: About) -> str:
    """What the rows are, where, when and from which commits."""
    hollow = " Hollow: unstable, its interval is wide." if (rows["status"] == "unstable").any() else ""
    sources = " and ".join(sorted(rows["source"].unique()))
    commits = ", ".join(sorted({(commit or "no commit")[:8] for commit in rows["commit"]}))
    days = sorted({utc[:10] for utc in rows["utc"]})
    return (
        f"Bars: 95 % intervals of medians.{hollow} Source: {sources} on {about.cpu}, {about.cores} cores, "
        f"at {commits}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}."
    )


@styled
def picture(figure: Figure, ending: str) -> bytes:
    """A figure as the bytes of a .svg or .png file: the same bytes for the same figure."""
    content = io.BytesIO()
    figure.savefig(content, format=ending, dpi=DOTS_PER_INCH, metadata={"Date": None} if ending == "svg" else {})
    return content.getvalue()
