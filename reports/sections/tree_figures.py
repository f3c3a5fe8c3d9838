"""The figures of the sweeps: the selection of each one's rows from the tidy records, and the drawing."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse import stats
from impls.sumtree.registry import traits

from .. import style
from ..tidy import OPS, PREFERRED_CAPACITY, About, binary, digits, either, nearest, of_one_run, short, where

USUAL = {"contestant": "numba", "options": "", "dtype": "float32", "distribution": "uniform", "threads": 1}
USUAL |= {"fanout": 16, "batch": 256, "capacity": PREFERRED_CAPACITY, "primitive": "sum_tree"}
"""What figures show where it was measured; elsewhere they show what is nearest to it, and say so."""
LETTERS = {"fanout": "K", "batch": "B", "capacity": "N"}
SETTING = ("dtype", "distribution", "threads")
LINE = ("contestant", "op", "options", *SETTING, "fanout", "batch", "capacity")  # points of a line share all but x
RUN = ["contestant", "op", "capacity", "fanout", "batch", "commit", "command"]
"""What two rows share that may be divided."""
MOST_LEVEL_TICKS = 6  # more labels of five digits run into each other
FLOOR_BATCH = 2_048


def trees(frame: pd.DataFrame, *names: str, over: str = "", **wanted: Any) -> pd.DataFrame:
    """Select draws and updates of trees as wanted, else of the usual leaves, priorities and threads, or the nearest.

    So it does in other named columns; ``over`` is as in ``usual``.
    """
    rows = where(frame, **({"primitive": "sum_tree", "op": OPS} | wanted))
    return usual(rows, *(name for name in SETTING if name not in wanted), *names, over=over)


def usual(rows: pd.DataFrame, *names: str, over: str = "") -> pd.DataFrame:
    """Select the rows at the usual value of each of these columns, or at the nearest to it that was measured.

    ``over``: an axis; then some line has two points along it, and nothing is selected where none has. A tree without a
    fanout is taken as of any.
    """
    for name in names:
        with_fanout = _with_fanout(rows)
        is_free = ~with_fanout & with_fanout.any() & (name == "fanout")
        lines = rows.groupby([one for one in LINE if one != over], observed=True)
        found = rows[~is_free & (lines[over].transform("nunique") > 1)] if over else rows[~is_free]
        if found.empty:
            return found
        timed = where(found, source="measured")
        value = nearest((found if timed.empty else timed)[name], USUAL[name])
        rows = rows[is_free | (rows[name] == value)].assign(**({name: value} if is_free.any() else {}))
    return rows


def _with_fanout(rows: pd.DataFrame) -> "pd.Series[bool]":
    return rows["contestant"].map(lambda name: traits(str(name)).uses_fanout).astype(bool)


def said(rows: pd.DataFrame, *names: str) -> str:
    """Write what all rows have in common, such as K = 16, B = 256."""
    return ", ".join(f"{LETTERS.get(name, name)} = {digits(rows[name].iloc[0])}" for name in names)


def instead(rows: pd.DataFrame, *names: str) -> str:
    """Say in which of these columns, and of leaves, priorities and threads, rows are not usual, but the nearest."""
    other = [name for name in (*SETTING, *names) if rows[name].iloc[0] != USUAL[name]]
    return "".join(f"{said(rows, name)}: the nearest to {digits(USUAL[name])} that was measured. " for name in other)


def by_fanout(frame: pd.DataFrame) -> pd.DataFrame:
    """Select each measured tree at one B over K, default and plain layout; empty unless some line has two K."""
    rows = trees(frame, "batch", over="fanout", source="measured", options=("", "layout=plain"))
    return rows[rows.groupby("contestant", observed=True)["fanout"].transform("nunique") > 1]


def by_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """Select every implementation by default at one K and B over N; empty unless there are two N."""
    return trees(frame, "fanout", "batch", over="capacity", options="")


def by_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """Select every implementation by default, and its threads, at one K and N over B; empty unless there are two B."""
    return trees(frame, "fanout", "capacity", over="batch", options="", threads=set(frame["threads"]))


def layout_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Divide the time of a layout by the default's, measured in the same run, at one K and B.

    The variants' rows get ``ratio``, ``low``, ``high`` (95 % interval) and ``base_bytes``.
    """
    rows = trees(frame, source="measured")
    variants = where(rows, options=("aligned=False", "padding=full"))
    pairs = usual(variants.merge(rows[rows["options"] == ""], on=RUN, suffixes=("", "_base")), "fanout", "batch")
    pairs = pairs.rename(columns={"bytes_base": "base_bytes"})
    pairs["status"] = either(pairs["status"], pairs["status_base"])
    pairs["ratio"] = pairs["ns"] / pairs["ns_base"]
    ends = map(stats.ratio_interval, pairs["samples_seconds_base"], pairs["samples_seconds"])
    pairs[["low", "high"]] = pd.DataFrame(list(ends), columns=["low", "high"], index=pairs.index, dtype=float)
    return pairs


def by_lanes(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the GPU tree at one K, unchecked, over the ``lanes`` that share a sample, at the largest N with them.

    Empty unless there are two of them.
    """
    rows = trees(frame, contestant="cupy")
    unchecked = [one if one.get("validate") is False and len(one) == 2 else {} for one in rows["setting"]]
    lanes_of = pd.Series([one.get("lanes") for one in unchecked], rows.index, float)
    rows = usual(rows.assign(lanes=lanes_of).dropna(subset="lanes"), "fanout")
    rows = rows[rows["capacity"] == rows["capacity"].max()]
    return rows if rows["lanes"].nunique() > 1 else rows[:0]


def against_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """Select a default tree, by preference numba's, at one K and B, and the random reads of memory.

    The B is of those with the most capacities. Empty unless there are both.
    """
    tree = trees(frame, "contestant", "fanout", source="measured", options="")
    reads = where(frame, primitive="memory", op="read")
    if tree.empty or reads.empty:
        return frame[:0]
    capacities = tree.groupby("batch")["capacity"].nunique()
    batch = nearest(capacities[capacities == capacities.max()].index, FLOOR_BATCH)
    return pd.concat([where(tree, batch=batch), reads])


def by_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """Select draws at one B of the measured trees of known size that have a fanout, with ragged and full levels."""
    sized = frame[_with_fanout(frame) & frame["bytes"].notna()]
    return trees(sized, "batch", source="measured", op="draw", options=("", "padding=full"))


@style.styled
def fanout(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over K: a line a capacity, the best K ringed, the plain layout dashed."""
    title, setting = "Time per element over the fanout K", said(rows, "batch")
    figure, panels = style.by_op(title, rows, setting, 3 + 3 * rows["contestant"].nunique(), "contestant")
    capacities = sorted(rows["capacity"].unique())
    for axes, part in panels:
        for (options, capacity), line in part.groupby(["options", "capacity"], observed=True):
            position, plain = capacities.index(capacity), options != ""
            name = f"N = {short(capacity)}" + (", plain layout" if plain else "")
            style.line(axes, line, "fanout", name, position, "--" if plain else "-")
            timed = of_one_run(line)
            if not plain and len(timed) > 1:
                best = timed.loc[timed["ns"].idxmin()]
                style.ring(axes, best["fanout"], best["ns"])
        style.x_axis(axes, rows["fanout"], "fanout K (children of a node)")
    return style.finish(figure, rows, about, f"{instead(rows, 'batch')}Ringed: the fastest K of its line.")


@style.styled
def capacity(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over N: a line an implementation."""
    figure, panels = style.by_op("Time per element over the number of leaves N", rows, said(rows, "fanout", "batch"))
    for axes, part in panels:
        for name, line in part.groupby("contestant", observed=True):
            style.line(axes, line, "capacity", str(name), line["contestant"].cat.codes.iloc[0])
        style.x_axis(axes, rows["capacity"], style.LEAVES)
    return style.finish(figure, rows, about, instead(rows, "fanout", "batch"))


@style.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over B: a line an implementation, several threads dashed."""
    several = sorted(set(rows["threads"]) - {1})
    title = "Time per element over the batch B" + ", by threads" * bool(several)
    figure, panels = style.by_op(title, rows, said(rows, "capacity", "fanout"))
    for axes, part in panels:
        for (name, threads), line in part.groupby(["contestant", "threads"], observed=True):
            label = f"{name}, {threads} threads" if threads > 1 else str(name)
            dashes, marker = ("-", None) if threads == 1 else (("--", "*"), ("-.", "h"))[several.index(threads) % 2]
            style.line(axes, line, "batch", label, line["contestant"].cat.codes.iloc[0], dashes, marker)
        style.x_axis(axes, rows["batch"], "elements of a call B")
        axes.tick_params("x", rotation=40 if rows["batch"].nunique() > MOST_LEVEL_TICKS else 0)
    return style.finish(figure, rows, about, instead(rows.sort_values("threads"), "capacity", "fanout"))


@style.styled
def layout(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of a layout over the default's, by capacity, each point with the cache level its tree fits in."""
    figure, panels = style.by_op("Time of other layouts over the default's", rows, said(rows, "fanout", "batch"))
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
    note = instead(rows, "fanout", "batch") + (
        "L1 to L3, RAM: where the trees fit, the default's → the variant's if it is another. "
        f"Noise floor ±{about.noise_floor:.1%} ({about.pairs} A/A pairs)."
    )
    return style.finish(figure, rows, about, note)


@style.styled
def lanes(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element of the GPU tree over the threads that share one sample: a line a batch."""
    title = "Time per element over the threads of a GPU that share a sample"
    figure, panels = style.by_op(title, rows, said(rows, "capacity", "fanout"))
    batches = sorted(rows["batch"].unique())
    for axes, part in panels:
        for batch, line in part.groupby("batch"):
            style.line(axes, line, "lanes", f"B = {batch:,}", batches.index(batch))
        style.x_axis(axes, rows["lanes"], "lanes (threads that share a sample)")
    return style.finish(figure, rows, about, f"{instead(rows, 'fanout')}On {about.gpu}, unchecked.")


@style.styled
def floor(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element of the tree, and of one random read of 64 bytes, over the bytes they run through."""
    tree = rows[rows["primitive"] != "memory"]
    contestant = tree["contestant"].iloc[0]
    setting = f"{contestant} tree, {said(tree, 'fanout', 'batch')}, and random reads of 64 bytes"
    figure, (axes,) = style.panels("Time per element, and per random read of memory", [setting])
    axes.set_title(setting, pad=32)
    names = {
        "draw": f"{contestant} draw",
        "update": f"{contestant} update",
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
    return style.finish(figure, rows, about, instead(tree, "fanout"))


@style.styled
def tree_bytes(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time per element of a draw over the tree's bytes: a number in a marker is K, thin lines join one N."""
    parts = dict(iter(rows.groupby("contestant", observed=True)))
    titles = [f"{name}, samples of {said(rows, 'batch')}" for name in parts]
    stacked = {"nrows": len(parts), "ncols": 1, "sharex": True, "sharey": False}
    figure, panels = style.panels("Time of a draw over the bytes of the tree", titles, 7, **stacked)
    fanouts = sorted(rows["fanout"].unique())
    colors = dict(zip(fanouts, sns.color_palette("viridis", len(fanouts)), strict=True))
    for axes, part in zip(panels, parts.values(), strict=True):
        for _, same in part.sort_values("fanout").groupby(["capacity", "options", "run"]):
            axes.plot(same["bytes"], same["ns"], color="0.6", linewidth=1, zorder=1)
        for row in part.itertuples():
            _numbered(axes, row, colors[row.fanout])
        axes.margins(y=0.15)
    for marker, name in (("o", "ragged levels"), ("D", "full levels")):
        panels[-1].plot([], [], marker, color="0.4", markersize=11, linestyle="none", label=name)
    style.bytes_axis(panels[-1], rows, "bytes of the tree")
    return style.finish(
        figure, rows, about, f"{instead(rows, 'batch')}In a marker: K; a thin line joins trees of one N."
    )


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
