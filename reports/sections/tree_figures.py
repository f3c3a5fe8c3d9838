"""The figures of the sweeps: the selection of each one's rows from the tidy records, and the drawing."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse import stats

from .. import style
from ..tidy import OPS, PREFERRED_CAPACITY, About, binary, either, of_one_run, short, where

PREFERRED_FANOUT = 16
PREFERRED_BATCH = 256
RUN = ["contestant", "op", "capacity", "commit", "command"]  # two rows may be divided that share these
MOST_LEVEL_TICKS = 6  # more labels of five digits run into each other


def trees(frame: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Select draws and updates of float32 trees with uniform priorities, by one thread, unless ``wanted`` says else."""
    usual = {"primitive": "sum_tree", "op": OPS, "dtype": "float32", "distribution": "uniform", "threads": 1}
    return where(frame, **(usual | wanted))


def by_fanout(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the numba tree at B = 256 over K, default and plain layout; empty unless some line has two K."""
    rows = trees(frame, contestant="numba", batch=PREFERRED_BATCH, options=("", "layout=plain"))
    return rows if (rows[rows["options"] == ""].groupby(["op", "capacity"])["fanout"].nunique() > 1).any() else rows[:0]


def by_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """Select every implementation by default at K = 16, B = 256 over N; empty unless there are two N."""
    rows = trees(frame, batch=PREFERRED_BATCH, fanout=PREFERRED_FANOUT, options="")
    return rows if rows["capacity"].nunique() > 1 else rows[:0]


def by_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """Select every implementation by default, and its threads, at K = 16 over B, at N = 1,000,000 or the largest N.

    Empty unless there are two B.
    """
    rows = trees(frame, fanout=PREFERRED_FANOUT, options="", threads=set(frame["threads"]))
    batches = rows.groupby("capacity")["batch"].nunique()
    capacities = set(batches[batches > 1].index)
    chosen = PREFERRED_CAPACITY if PREFERRED_CAPACITY in capacities else max(capacities, default=0)
    return where(rows, capacity=chosen)


def layout_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Divide the time of a layout by the default's, measured in the same run, at K = 16, B = 256.

    The variants' rows get ``ratio``, ``low``, ``high`` (95 % interval) and ``base_bytes``.
    """
    rows = trees(frame, batch=PREFERRED_BATCH, fanout=PREFERRED_FANOUT, source="measured")
    variants = where(rows, options=("aligned=False", "padding=full"))
    pairs = variants.merge(rows[rows["options"] == ""], on=RUN, suffixes=("", "_base"))
    pairs = pairs.rename(columns={"bytes_base": "base_bytes"})
    pairs["status"] = either(pairs["status"], pairs["status_base"])
    pairs["ratio"] = pairs["ns"] / pairs["ns_base"]
    ends = map(stats.ratio_interval, pairs["samples_seconds_base"], pairs["samples_seconds"])
    pairs[["low", "high"]] = pd.DataFrame(list(ends), columns=["low", "high"], index=pairs.index, dtype=float)
    return pairs


def by_lanes(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the GPU tree at K = 16, unchecked, over the ``lanes`` that share a sample, at the largest N with them.

    Empty unless there are two of them.
    """
    rows = trees(frame, contestant="cupy", fanout=PREFERRED_FANOUT)
    unchecked = [one if one.get("validate") is False and len(one) == 2 else {} for one in rows["setting"]]
    rows = rows.assign(lanes=pd.Series([one.get("lanes") for one in unchecked], rows.index, float)).dropna(
        subset="lanes"
    )
    rows = rows[rows["capacity"] == rows["capacity"].max()]
    return rows if rows["lanes"].nunique() > 1 else rows[:0]


def against_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the default numba tree at K = 16 and one B, and the random reads of memory; empty unless there are both.

    The B is one with the most capacities, preferably 2,048.
    """
    numba = trees(frame, contestant="numba", fanout=PREFERRED_FANOUT, options="")
    reads = where(frame, primitive="memory", op="read")
    if numba.empty or reads.empty:
        return frame[:0]
    capacities = numba.groupby("batch")["capacity"].nunique()
    most = capacities[capacities == capacities.max()].index
    batch = 2_048 if 2_048 in most else max(most)
    return pd.concat([where(numba, batch=batch), reads])


def by_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """Select draws of B = 256: the numba tree at every K and N, and the numpy tree with ragged and full levels."""
    sampling = trees(frame, op="draw", batch=PREFERRED_BATCH)
    numba = where(sampling, contestant="numba", options="")
    return pd.concat([numba, where(sampling, contestant="numpy", options=("", "padding=full"))])


@style.styled
def fanout(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over K: a line a capacity, the best K ringed, the plain layout dashed."""
    figure, panels = style.by_op("Which K is fastest?", rows, "numba tree, B = 256")
    capacities = sorted(rows["capacity"].unique())
    for axes, part in panels:
        for (options, capacity), line in part.groupby(["options", "capacity"], observed=True):
            position, plain = capacities.index(capacity), options != ""
            name = f"N = {short(capacity)}" + (", plain layout" if plain else "")
            style.line(axes, line, "fanout", name, position, "--" if plain else "-")
            timed = of_one_run(line[line["source"] == "measured"])
            if not plain and len(timed) > 1:
                best = timed.loc[timed["ns"].idxmin()]
                style.ring(axes, best["fanout"], best["ns"])
        style.x_axis(axes, rows["fanout"], "fanout K (children of a node)")
    return style.finish(figure, rows, about, "Ringed: the fastest K of its line.")


@style.styled
def capacity(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over N: a line an implementation."""
    figure, panels = style.by_op("How does time grow with the number of leaves?", rows, "K = 16, B = 256")
    for axes, part in panels:
        for name, line in part.groupby("contestant", observed=True):
            style.line(axes, line, "capacity", str(name), line["contestant"].cat.codes.iloc[0])
        style.x_axis(axes, rows["capacity"], style.LEAVES)
    return style.finish(figure, rows, about)


@style.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over B: a line an implementation, several threads dashed."""
    setting = f"N = {rows['capacity'].iloc[0]:,}, K = 16"
    figure, panels = style.by_op("What do larger batches save, and more threads?", rows, setting)
    several = sorted(set(rows["threads"]) - {1})
    for axes, part in panels:
        for (name, threads), line in part.groupby(["contestant", "threads"], observed=True):
            label = f"{name}, {threads} threads" if threads > 1 else str(name)
            dashes, marker = ("-", None) if threads == 1 else (("--", "*"), ("-.", "h"))[several.index(threads) % 2]
            style.line(axes, line, "batch", label, line["contestant"].cat.codes.iloc[0], dashes, marker)
        style.x_axis(axes, rows["batch"], "elements of a call B")
        axes.tick_params("x", rotation=40 if rows["batch"].nunique() > MOST_LEVEL_TICKS else 0)
    return style.finish(figure, rows, about)


@style.styled
def layout(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of a layout over the default's, by capacity, each point with the cache level its tree fits in."""
    figure, panels = style.by_op("What do alignment and ragged levels save?", rows, "K = 16, B = 256")
    capacities = sorted(rows["capacity"].unique())
    labels = {"aligned=False": "misaligned / aligned", "padding=full": "full / ragged levels"}
    series = list(rows.groupby(["contestant", "options"], observed=True).groups)
    for axes, part in panels:
        axes.axhspan(*np.exp([-about.noise_floor, about.noise_floor]), color="0.85", zorder=0, label="A/A noise floor")
        axes.axhline(1, color="0.4", linewidth=1)
        for position, (name, options) in enumerate(series):
            line = where(part, contestant=name, options=options)
            at = [capacities.index(n) + 0.26 * (position - (len(series) - 1) / 2) for n in line["capacity"]]
            shown = line.assign(at=at, ns=line["ratio"], low_ns=line["low"], high_ns=line["high"])
            style.line(axes, shown, "at", f"{name}: {labels[options]}", position, "none")
            for x, high, ours, theirs in zip(at, shown["high_ns"], shown["bytes"], shown["base_bytes"], strict=True):
                levels = dict.fromkeys([_level(theirs, about), _level(ours, about)])
                where_to = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
                axes.annotate("→\n".join(levels), (x, high), (0, 4), **where_to)
        axes.grid(axis="x", visible=False)
        axes.set(xscale="linear", xlim=(-0.5, len(capacities) - 0.5), xlabel=style.LEAVES)
        style.ticks(axes.xaxis, range(len(capacities)), lambda position: short(capacities[int(position)]))
    panels[0][0].set(ylabel="time over the default layout's (ratio)")
    note = (
        "L1 to L3, RAM: where the trees fit, the default's → the variant's if it is another. "
        f"Noise floor ±{about.noise_floor:.1%} ({about.pairs} A/A pairs)."
    )
    return style.finish(figure, rows, about, note)


@style.styled
def lanes(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element of the GPU tree over the threads that share one sample: a line a batch."""
    setting = f"N = {rows['capacity'].iloc[0]:,}, K = 16"
    figure, panels = style.by_op("On a GPU, how many threads should share a sample?", rows, setting)
    batches = sorted(rows["batch"].unique())
    for axes, part in panels:
        for batch, line in part.groupby("batch"):
            style.line(axes, line, "lanes", f"B = {batch:,}", batches.index(batch))
        style.x_axis(axes, rows["lanes"], "lanes (threads that share a sample)")
    return style.finish(figure, rows, about, f"On {about.gpu}, unchecked.")


@style.styled
def floor(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element of the tree, and of one random read of 64 bytes, over the bytes they run through."""
    tree = rows[rows["primitive"] != "memory"]
    setting = f"numba tree, K = 16, B = {tree['batch'].iloc[0]:,}, and random reads of 64 bytes"
    figure, (axes,) = style.panels("How far is a tree from the cost of memory itself?", [setting])
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
        style.line(axes, rows[keys == key], "bytes", name, position, "--" if reads else "-")
    for name, size in about.caches.items():
        axes.axvline(size, color="0.4", linewidth=1, linestyle=(0, (1, 2)))
        text = f"{name}\n{binary(size)}"
        axes.text(size, 1.01, text, transform=axes.get_xaxis_transform(), ha="center", va="bottom", fontsize=9)
    style.bytes_axis(axes, rows, "bytes of the tree, or of the buffer read")
    axes.set(ylabel="time per element, or per read (ns)")
    return style.finish(figure, rows, about)


@style.styled
def tree_bytes(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time per element of a draw over the tree's bytes: a number in a marker is K, thin lines join one N."""
    parts = dict(iter(rows.groupby("contestant", observed=True)))
    titles = [f"{name}, samples of B = 256" for name in parts]
    stacked = {"nrows": len(parts), "ncols": 1, "sharex": True, "sharey": False}
    figure, panels = style.panels("Does a smaller tree sample faster?", titles, 7, **stacked)
    fanouts = sorted(rows["fanout"].unique())
    colors = dict(zip(fanouts, sns.color_palette("viridis", len(fanouts)), strict=True))
    for axes, part in zip(panels, parts.values(), strict=True):
        for other in ("options", "fanout"):
            for _, same in part.sort_values("fanout").groupby(["capacity", other, "run"]):
                axes.plot(same["bytes"], same["ns"], color="0.6", linewidth=1, zorder=1)
        for row in part.itertuples():
            _numbered(axes, row, colors[row.fanout])
        axes.margins(y=0.15)
    for marker, name in (("o", "ragged levels"), ("D", "full levels")):
        panels[-1].plot([], [], marker, color="0.4", markersize=11, linestyle="none", label=name)
    style.bytes_axis(panels[-1], rows, "bytes of the tree")
    return style.finish(figure, rows, about, "The number in a marker is K; a thin line joins the trees of one N.")


def _numbered(axes: Axes, row: Any, color: tuple[float, float, float]) -> None:
    """Draw one tree as a marker with its K in it: a circle, or a diamond where its levels are full."""
    hollow, source = row.status == "unstable", "" if row.source == "measured" else f"\n{row.source}"
    ink = "black" if hollow or sum(color) > 1.5 else "white"
    marker, size = ("D", 12.5) if "full" in row.options else ("o", 15)
    face = "white" if hollow else color
    style.bars(axes, row.bytes, row.ns, row.low_ns, row.high_ns, fmt="none", ecolor=color, zorder=1)
    axes.plot(row.bytes, row.ns, marker, markersize=size, markerfacecolor=face, markeredgecolor=color, zorder=2)
    at = (row.bytes, row.ns)
    axes.annotate(f"{row.fanout}{source}", at, ha="center", va="center", fontsize=7.5, color=ink, zorder=3)


def _level(size: float, about: About) -> str:
    """Return the smallest cache that holds a given number of bytes."""
    return next((name for name, most in sorted(about.caches.items()) if size <= most), "RAM")
