"""The figures of a training system's primitives, a panel or a line a workload: the selection of rows, and the drawing.

Rows have their times in the figure's unit.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.records import in_order
from dse.times.curves import FlatThenLinear, flat_then_linear

from .. import style
from ..tidy import About, either, of_one_run, short, where

PRIMITIVE = "training"
SHARE = "serial_step"  # the primitive of the parts of a step
ALONE = "nothing"
OPTIONS = ("workload", "macs", "parameters", "update_interval", "via", "models", "beside", "cores")
REFERENCE, COMPILED = "torch", "dense"
BY = (REFERENCE, COMPILED)
TRAINED = ("inference", "actor", "learner", "product", "forward", "loop")  # by some implementation
CELL = ("workload", "part", "by", "batch", "threads", "via", "models", "beside", "placement")
UNITS = {"us": 1e6, "ms": 1e3}
STEPS = (
    ("learner step", REFERENCE, 1, "-"),
    ("learner step", REFERENCE, 0, "--"),
    ("forward act", REFERENCE, 1, "-"),
    ("learner step", COMPILED, 1, "-"),
    ("forward act", COMPILED, 1, "-"),
)
MOST_TICKS = 10


def parts(frame: pd.DataFrame, *names: str, by: Sequence[str] = (REFERENCE,)) -> pd.DataFrame:
    """Select the newest timing of each part ("contestant op"), a column an option; of pairs ``placement``.

    Column ``by`` is the implementation of learner and policy, "" where neither works; those of ``by`` are selected.
    Actors step one environment at a time.
    """
    return newest(_all_parts(frame, *names, by=by))


def newest(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the newest of the timings of each cell."""
    ordered = rows.iloc[in_order(range(len(rows)), [*rows["utc"]].__getitem__)]
    return ordered.drop_duplicates([*CELL], keep="last").sort_index()


def _all_parts(frame: pd.DataFrame, *names: str, by: Sequence[str] = (REFERENCE,)) -> pd.DataFrame:
    rows = where(frame, primitive=PRIMITIVE)
    rows = rows.assign(part=rows["contestant"].astype(str) + " " + rows["op"].astype(str))
    rows = rows[rows["part"].isin(names)]
    for name in OPTIONS:
        column = "placement" if name == "cores" else name
        rows[column] = pd.Series([one.get(name, "") for one in rows["setting"]], index=rows.index, dtype=object)
    for name in ("macs", "parameters", "update_interval", "models"):
        rows[name] = pd.to_numeric(rows[name])
    told = [one.get("learner", REFERENCE) for one in rows["setting"]]
    rows["by"] = np.where(rows["contestant"].isin(TRAINED), pd.Series(told, index=rows.index, dtype=object), "")
    is_single = np.array([one.get("environments", 1) == 1 for one in rows["setting"]], dtype=bool)
    return rows[is_single & rows["by"].isin(["", *by]).to_numpy()]


def called(rows: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Convert ``ns`` and its interval from nanoseconds an element into a unit of time a call."""
    factor = UNITS[unit] * rows["batch"] / 1e9
    return rows.assign(**{name: rows[name] * factor for name in ("ns", "low_ns", "high_ns")})


def alone(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the rows that were measured apart from pairs."""
    return where(rows, beside="")


def over_batch(frame: pd.DataFrame) -> pd.DataFrame:
    """Select milliseconds of gradient steps and forward passes over B; empty unless a workload has two B."""
    rows = called(alone(parts(frame, "learner step", "forward act", by=BY)), "ms")
    return _several(rows, "batch", ("workload", "part", "by"))


def of_trees(frame: pd.DataFrame) -> pd.DataFrame:
    """Select microseconds of draws and updates over B at each workload's N and K; empty unless one has two B."""
    return _several(called(alone(parts(frame, "numba draw", "numba update")), "us"), "batch", ("workload", "op"))


def over_models(frame: pd.DataFrame) -> pd.DataFrame:
    """Select milliseconds of averaging k models; empty unless a workload has two k."""
    return _several(called(parts(frame, "weights average"), "ms"), "models", ("workload",))


def of_pairs(frame: pd.DataFrame) -> pd.DataFrame:
    """Divide the time of a part under load by its time alone: medians of one run, with an interval from both.

    ``ns``, ``low_ns`` and ``high_ns`` are those ratios; ``pair`` names both parts.
    """
    rows = _all_parts(frame, "actor step", "learner step", "numba step")
    key = ["workload", "part", "batch", "commit", "command"]
    pairs = rows[~rows["beside"].isin(["", ALONE])].merge(
        where(rows, beside=ALONE)[[*key, "ns", "low_ns", "high_ns", "status"]], on=key, suffixes=("", "_alone")
    )
    pairs = newest(pairs)
    # The ends of both intervals: wider than a bootstrap of the ratio, never too narrow.
    ratios = {
        "ns": pairs["ns"] / pairs["ns_alone"],
        "low_ns": pairs["low_ns"] / pairs["high_ns_alone"],
        "high_ns": pairs["high_ns"] / pairs["low_ns_alone"],
    }
    part, other = (pairs[name].astype(str).replace("numba", "tree") for name in ("contestant", "beside"))
    return pairs.assign(
        **ratios, status=either(pairs["status"], pairs["status_alone"]), pair=part + "\nbeside " + other
    )


def _several(rows: pd.DataFrame, x: str, keys: Iterable[str]) -> pd.DataFrame:
    return rows if (rows.groupby(list(keys))[x].nunique() > 1).any() else rows[:0]


def _by_workload(question: str, rows: pd.DataFrame, more: str = "") -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Make a panel for each workload with its rows, two side by side; ``more`` adds its first row to the title."""
    groups = dict(iter(rows.groupby("workload")))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    titles = [name + more.format(**part.iloc[0]) for name, part in groups.items()]
    figure, panels = style.panels(question, titles, 3.2 + 2.6 * lines, nrows=lines, ncols=columns, sharey=False)
    for axes in panels:
        axes.tick_params(labelbottom=True)
    return figure, list(zip(panels, groups.values(), strict=True))


@style.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of a gradient step and of a forward pass over B, the knee of each solid line marked."""
    figure, panels = _by_workload("From which batch on does time grow?", rows, ", {macs:,.0f} MACs")
    for axes, part in panels:
        for position, (kind, by, threads, dashes) in enumerate(STEPS):
            line = where(part, part=kind, by=by)
            count = threads or line["threads"].max()
            line = line[line["threads"] == count]
            if line.empty or (not threads and count == 1):
                continue
            name = "forward pass" if kind == "forward act" else "gradient step"
            label = f"{name}, {by}, {'1 thread' if threads else 'a thread a core'}"
            style.line(axes, line, "batch", label, position, dashes)
            if dashes == "-":
                _knee(axes, of_one_run(line), style.COLORS[position])
        _batch_axis(axes, part)
        axes.set(ylabel="time of a call (ms)")
    note = "Thin: fixed + each x B, fitted; its knee, where both parts are equal, as a dotted line."
    return style.finish(figure, rows, about, note)


def _knee(axes: Axes, line: pd.DataFrame, color: Any) -> None:
    """Draw the fit of a line, and the B from which it grows."""
    if line["batch"].nunique() < 3:
        return
    knee = _fitted(axes, line, "batch", color=color, alpha=0.8).knee
    if knee and line["batch"].min() <= knee <= line["batch"].max():
        axes.axvline(knee, color=color, linewidth=1, linestyle=(0, (1, 2)))
        text = f" {knee:,.0f}"
        axes.text(knee, 0.02, text, transform=axes.get_xaxis_transform(), color=color, fontsize=9, va="bottom")


def _fitted(axes: Axes, line: pd.DataFrame, x: str, **look: Any) -> FlatThenLinear:
    """Draw the law that fits a line, and return it."""
    law = flat_then_linear(line[x].tolist(), line["ns"].tolist())
    shown = np.geomspace(line[x].min(), line[x].max(), 60)
    axes.plot(shown, [law.seconds(count) for count in shown], linewidth=0.8, **look)
    return law


@style.styled
def trees(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of a draw and an update over B at each workload's capacity and fanout."""
    figure, panels = style.by_op("How long does the tree take in a workload?", rows, "numba tree")
    workloads = sorted(rows["workload"].unique())
    for axes, part in panels:
        for name, line in part.groupby("workload"):
            shape = f"{name}: N = {short(line['capacity'].iloc[0])}, K = {line['fanout'].iloc[0]}"
            style.line(axes, line, "batch", shape, workloads.index(name))
        _batch_axis(axes, rows)
    panels[0][0].set(ylabel="time of a call (us)")
    return style.finish(figure, rows, about)


@style.styled
def averages(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of averaging k models, and the straight line through it."""
    setting = "the mean of k models' weights, in one process"
    figure, (axes,) = style.panels("What does averaging weights cost?", [setting])
    for position, (name, line) in enumerate(rows.groupby("workload")):
        label = f"{name} ({line['parameters'].iloc[0]:,.0f} parameters act)"
        style.line(axes, line, "models", label, position, "none")
        _fitted(axes, of_one_run(line), "models", color=style.COLORS[position])
    style.x_axis(axes, rows["models"], "models k")
    axes.set(ylabel="time (ms)")
    return style.finish(figure, rows, about, "Lines: fixed + each x k, fitted.")


@style.styled
def beside(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the slowdown of a part under load from another, on the same core and on its own."""
    titles = {"shared": "both on one core", "own": "each on a core of its own"}
    shown = [name for name in titles if (rows["placement"] == name).any()]
    figure, panels = style.panels("What do primitives cost each other?", [titles[name] for name in shown])
    pairs, workloads = list(dict.fromkeys(rows["pair"])), sorted(rows["workload"].unique())
    for axes, name in zip(panels, shown, strict=True):
        for level, text in ((1, "alone"), (2, "half of the core")):
            axes.axhline(level, color="0.5", linewidth=1, linestyle="-" if level == 1 else (0, (1, 2)), label=text)
        for position, workload in enumerate(workloads):
            line = rows[(rows["placement"] == name) & (rows["workload"] == workload)]
            offset = 0.16 * (position - (len(workloads) - 1) / 2)
            line = line.assign(at=[pairs.index(pair) + offset for pair in line["pair"]])
            style.line(axes, line, "at", workload, position, "none")
        axes.grid(axis="x", visible=False)
        axes.set(xscale="linear", xlim=(-0.5, len(pairs) - 0.5))
        style.ticks(axes.xaxis, range(len(pairs)), lambda position: pairs[int(position)])
        axes.tick_params("x", labelsize=8.5)
    panels[0].set(ylabel="time under load / time alone (ratio)")
    return style.finish(figure, rows, about, "Ends of a bar: those of both intervals.")


def _batch_axis(axes: Axes, rows: pd.DataFrame) -> None:
    """Set ticks at all of a few batches; at some of many, evenly chosen, both ends among them."""
    values = sorted(rows["batch"].unique())
    if len(values) > MOST_TICKS:
        values = [values[at] for at in np.linspace(0, len(values) - 1, MOST_TICKS - 3).round().astype(int)]
    style.x_axis(axes, values, "batch B")
    axes.tick_params("x", rotation=40)
