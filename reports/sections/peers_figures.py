"""The figures of other libraries, and their rows: ours thick and strong, the fastest libraries in color, others gray.

Every implementation has one label and one place in the order of all figures, and so the same color, marker and dash.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.claims.peer_claims import BATCH, PEER, is_ours

from .. import style
from ..tidy import OPS, PREFERRED_CAPACITY, About, either, nearest, where

NAMED = {
    ("validate", False): "unchecked",
    ("launch", "graph"): "graph",
    ("arrays", "torch"): "tensors",
}  # options that have a name
GPU = "gpu"  # the primitive of trees on a device, timed in alternation
SUM = "draw + update"
KINDS = ["contestant", "dtype", "options"]
OURS = [style.COLORS[0], "black", "0.35", "#5b2a86"]  # a color a tree, whatever its dtype or options
THEIRS = style.COLORS[1:6]
GRAY = "0.62"
DASHES = ("-", "--", "-.")
MARKERS = "osD^vPXp<>h*8dH"


def label(contestant: str, dtype: str, options: Mapping[str, Any], dtypes: int) -> str:
    """Return an implementation's name, its dtype if it was measured in several, its options.

    >>> label("torchrl", "float32", {}, 2), label("cupy", "float32", {"validate": False, "launch": "graph"}, 1)
    ('torchrl float32', 'cupy, graph, unchecked')
    """
    name = f"{contestant} {dtype}" if dtypes > 1 else contestant
    return ", ".join([name, *(NAMED.get(one, f"{one[0]}={one[1]}") for one in sorted(options.items()))])


def peers(frame: pd.DataFrame, primitive: str = PEER) -> pd.DataFrame:
    """Select draws and updates of libraries and of ours, by one thread, with ``label`` and ``ours``.

    ``label`` is categorical: ours first, then libraries, each from the fastest to the slowest in the geometric mean.
    ``place`` is the label's position among ours or among the libraries, ``tree`` its implementation's, ``variant`` that
    of its options and dtype among those of its implementation.
    """
    rows = where(frame, primitive=primitive, op=OPS, threads=1, distribution="uniform")
    rows = rows.assign(contestant=rows["contestant"].astype(str), cost=np.log(rows["ns"]))
    rows["ours"] = rows["contestant"].map(is_ours).astype(bool)
    dtypes = rows.groupby("contestant")["dtype"].nunique()
    kinds = zip(rows["contestant"], rows["dtype"], rows["setting"], strict=True)
    rows["label"] = [label(*kind, dtypes[kind[0]]) for kind in kinds]
    order = rows.groupby(["ours", *KINDS, "label"], as_index=False)["cost"].mean()
    order["variant"] = order.sort_values(["options", "dtype"]).groupby("contestant").cumcount()
    order = order.sort_values(["ours", "cost"], ascending=[False, True])
    order["place"] = order.groupby("ours").cumcount()
    order["tree"] = order.groupby("ours")["contestant"].transform(lambda names: pd.factorize(names)[0])
    rows = rows.merge(order[["label", "place", "tree", "variant"]], on="label")
    return rows.assign(label=pd.Categorical(rows["label"], order["label"]))


def by_batch(frame: pd.DataFrame, primitive: str = PEER) -> pd.DataFrame:
    """Select every implementation over B at N = 1,000,000, or at the nearest N with two B; empty where none has."""
    rows = peers(frame, primitive)
    batches = rows.groupby("capacity")["batch"].nunique()
    several = batches[batches > 1].index
    return where(rows, capacity=nearest(several, PREFERRED_CAPACITY)) if len(several) else rows[:0]


def on_gpu(frame: pd.DataFrame) -> pd.DataFrame:
    """Select the trees on a GPU over B, as ``by_batch`` does."""
    return by_batch(frame, GPU)


def by_capacity(frame: pd.DataFrame) -> pd.DataFrame:
    """Add draw and update of every implementation at B = 128 over N to one row; empty unless there are two N."""
    rows = both(where(peers(frame), batch=BATCH))
    return rows if rows["capacity"].nunique() > 1 else rows[:0]


def both(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the draw and the update of every implementation at a B and N, and their intervals, to one row."""
    keys = ["label", "batch", "capacity"]
    parts = {op: where(rows, op=op).set_index(keys) for op in OPS}
    draw_rows, update_rows = (
        part.loc[parts["draw"].index.intersection(parts["update"].index)] for part in parts.values()
    )
    added = draw_rows.assign(op=SUM)
    for column in ("ns", "low_ns", "high_ns"):
        added[column] += update_rows[column]
    added["status"] = either(draw_rows["status"], update_rows["status"])
    return added.reset_index()


@style.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over B: a line an implementation, a panel an op."""
    return _over_batches("Time per element over the batch B, ours and other libraries", rows, about, "Thick: ours.")


@style.styled
def gpu(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element over B for trees on a GPU."""
    note = f"Thick: ours. On {about.gpu}; launched call by call, or as a captured graph."
    return _over_batches("Time per element over the batch B, on a GPU", rows, about, note)


def _over_batches(title: str, rows: pd.DataFrame, about: About, note: str) -> Figure:
    figure, panels = style.by_op(title, rows, f"N = {rows['capacity'].iloc[0]:,}", 8)
    for axes, part in panels:
        _lines(axes, part, "batch")
        style.x_axis(axes, rows["batch"], "elements of a call B")
    return style.finish(figure, rows, about, note)


@style.styled
def capacity(rows: pd.DataFrame, about: About) -> Figure:
    """Draw time per element of a draw and an update over N: a line an implementation."""
    setting = f"{SUM}, B = {rows['batch'].iloc[0]:,}"
    figure, (axes,) = style.panels("Time per element over the leaves N, ours and other libraries", [setting], 8)
    _lines(axes, rows, "capacity")
    style.x_axis(axes, rows["capacity"], style.LEAVES)
    return style.finish(figure, rows, about, "Thick: ours. A bar is those of draw and update added.")


def _lines(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """Draw a line for each implementation, in the order of their labels; the first lie on top."""
    for position, (name, part) in enumerate(rows.groupby("label", observed=True)):
        style.series(axes, part, x, str(name), {**_style(part.iloc[0]), "zorder": 3 - position / 100})


def _style(row: Any) -> dict[str, Any]:
    """Return the color, marker and dash of a row's implementation."""
    marker = MARKERS[row["place"] % len(MARKERS)]
    if row["ours"]:
        color, dashes = OURS[row["tree"] % len(OURS)], DASHES[row["variant"] % len(DASHES)]
        return {"color": color, "marker": marker, "linestyle": dashes, "linewidth": 2.8}
    color = THEIRS[row["place"]] if row["place"] < len(THEIRS) else GRAY
    return {"color": color, "marker": marker, "linestyle": "-", "linewidth": 1.3}
