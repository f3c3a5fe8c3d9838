"""The figures of other libraries: ours thick and strong, the fastest libraries in color, the others gray.

A contestant has the same place in the order of both figures, and so the same color, marker and dash.
"""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import look, peer_rows
from .table import About

OURS = [look.COLORS[0], "black", "0.35", "#5b2a86"]  # a color a tree, whatever its dtype or options
THEIRS = look.COLORS[1:6]
GRAY = "0.62"
DASHES = ("-", "--", "-.")
MARKERS = "osD^vPXp<>h*8dH"


@look.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element over B: a line a contestant, a panel an op."""
    return _over_batches("How do other libraries compare, over the batch?", rows, about, "Thick: ours.")


@look.styled
def gpu(rows: pd.DataFrame, about: About) -> Figure:
    """The same of trees on a GPU."""
    note = f"Thick: ours. On {about.gpu}; launched call by call, or as a captured graph."
    return _over_batches("On a GPU, how do trees compare over the batch?", rows, about, note)


def _over_batches(question: str, rows: pd.DataFrame, about: About, note: str) -> Figure:
    figure, panels = look.by_op(question, rows, f"N = {rows['capacity'].iloc[0]:,}", 8)
    for axes, part in panels:
        _lines(axes, part, "batch")
        look.ticks(axes.xaxis, sorted(rows["batch"].unique()))
        axes.set(xlabel="elements of a call B")
    return look.finish(figure, rows, about, note)


@look.styled
def capacity(rows: pd.DataFrame, about: About) -> Figure:
    """Time per element of a draw and an update over N: a line a contestant."""
    setting = f"{peer_rows.SUM}, B = {rows['batch'].iloc[0]:,}"
    figure, (axes,) = look.panels("How do other libraries grow with the number of leaves?", [setting], 8)
    _lines(axes, rows, "capacity")
    look.ticks(axes.xaxis, sorted(rows["capacity"].unique()))
    axes.set(xlabel=look.LEAVES)
    return look.finish(figure, rows, about, "Thick: ours. A bar is those of draw and update added.")


def _lines(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """A line a contestant, in the order of their labels; the first of them lie on top."""
    for position, (name, part) in enumerate(rows.groupby("label", observed=True)):
        look.series(axes, part, x, str(name), {**_style(part.iloc[0]), "zorder": 3 - position / 100})


def _style(one: Any) -> dict[str, Any]:
    """How the contestant of a row is drawn."""
    marker = MARKERS[one["place"] % len(MARKERS)]
    if one["ours"]:
        color, dashes = OURS[one["tree"] % len(OURS)], DASHES[one["variant"] % len(DASHES)]
        return {"color": color, "marker": marker, "linestyle": dashes, "linewidth": 2.8}
    color = THEIRS[one["place"]] if one["place"] < len(THEIRS) else GRAY
    return {"color": color, "marker": marker, "linestyle": "-", "linewidth": 1.3}
