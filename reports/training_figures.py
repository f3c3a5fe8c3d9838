"""The figures of a training system's primitives, a panel or a line a workload."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.times.batch_law import flat_then_linear
from dse.tuning.core_split import Rate, RateCurve, allocate

from . import look
from .table import About, short

STEPS = (("learner step", 1, "-"), ("learner step", 0, "--"), ("forward act", 1, "-"))
MOST_TICKS = 10


def _by_workload(question: str, rows: pd.DataFrame, name: str, **layout: Any) -> tuple[Figure, list[Any]]:
    """A panel a workload with its rows, two beside each other; ``name`` says more in a title."""
    groups = dict(iter(rows.groupby("workload")))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    titles = [f"{one}{_macs(part) if name == 'macs' else ''}" for one, part in groups.items()]
    titles += [""] * (lines * columns - len(titles))
    grid = {"nrows": lines, "ncols": columns, "sharey": False} | layout
    figure, panels = look.panels(question, titles, 3.2 + 2.6 * lines, **grid)
    for axes in panels[len(groups) :]:
        axes.set_visible(False)
    for axes in panels[: len(groups)]:
        axes.tick_params(labelbottom=True, labelleft=True)
    return figure, list(zip(panels, groups.values(), strict=False))


def _macs(rows: pd.DataFrame) -> str:
    """A pass of the acting network."""
    return f", {rows['macs'].iloc[0]:,.0f} MACs"


@look.styled
def cores(rows: pd.DataFrame, about: About) -> Figure:
    """Environment steps a second over cores: taken by actors, and followed by learners; the chosen split is ringed."""
    figure, panels = _by_workload("How do actors and learners use cores?", rows, "")
    kinds = (
        ("actor step", "actors, f_a", "-"),
        ("parallel_learners step", "learners and a parameter server, update_interval x f_l", "-"),
        ("learner step", "one learner on threads of torch, x update_interval", "--"),
    )
    for axes, part in panels:
        for position, (kind, label, dashes) in enumerate(kinds):
            look.line(axes, part[part["part"] == kind], "threads", label, position, dashes)
        _ring_split(axes, [part[part["part"] == kind] for kind, _, _ in kinds[:2]], about.cores)
        look.ticks(axes.xaxis, sorted(rows["threads"].unique()))
        over = rows["threads"].max() > about.cores
        axes.set(xlabel=f"cores (beyond {about.cores}: shared)" if over else "cores", ylabel="env steps / s")
    note = (
        f"Ringed: actors and learners where {about.cores} cores make the most steps, as few as do. An actor is a "
        "process on a core of its own, a learner a thread."
    )
    return look.finish(figure, rows, about, note)


def _ring_split(axes: Axes, lines: Sequence[pd.DataFrame], cores: int) -> None:
    """Rings around what actors and learners reach (both in environment steps a second) on the cores chosen for them."""
    if any(line.empty for line in lines) or sum(line["threads"].min() for line in lines) > cores:
        return
    f_a, f_l = (
        RateCurve(
            str(line["part"].iloc[0]),
            {one.threads: Rate(one.ns, one.low_ns, one.high_ns, one.source) for one in line.itertuples()},
        )
        for line in lines
    )
    chosen = allocate(f_a, f_l, 1, cores)
    for count, curve in ((chosen.actors, f_a), (chosen.learners, f_l)):
        axes.plot(count, curve.rates[count].hz, "o", markersize=15, fillstyle="none", color="black", zorder=5)


@look.styled
def batch(rows: pd.DataFrame, about: About) -> Figure:
    """Time of a gradient step and of a forward pass over B, the knee of each solid line marked."""
    figure, panels = _by_workload("From which batch on does time grow?", rows, "macs")
    for axes, part in panels:
        for position, (kind, threads, dashes) in enumerate(STEPS):
            count = threads or part["threads"].max()
            line = part[(part["part"] == kind) & (part["threads"] == count)]
            if line.empty or (not threads and count == 1):
                continue
            name = "forward pass" if kind == "forward act" else "gradient step"
            label = f"{name}, {'1 thread' if threads else 'a thread a core'}"
            look.line(axes, line, "batch", label, position, dashes)
            if dashes == "-":
                _knee(axes, line, look.COLORS[position])
        look.ticks(axes.xaxis, _every_other(sorted(part["batch"].unique())))
        axes.tick_params("x", rotation=40)
        axes.set(xlabel="batch B", ylabel="time of a call (ms)")
    note = "Thin: fixed + each x B, fitted; its knee, where both parts are equal, as a dotted line."
    return look.finish(figure, rows, about, note)


def _knee(axes: Axes, line: pd.DataFrame, color: Any) -> None:
    """The fit of a line, and the B from which it grows."""
    if line["batch"].nunique() < 3:
        return
    law = flat_then_linear(line["batch"].tolist(), line["ns"].tolist())
    shown = np.geomspace(line["batch"].min(), line["batch"].max(), 60)
    axes.plot(shown, [law.seconds(one) for one in shown], color=color, linewidth=0.8, alpha=0.8)
    knee = law.knee
    if knee and line["batch"].min() <= knee <= line["batch"].max():
        axes.axvline(knee, color=color, linewidth=1, linestyle=(0, (1, 2)))
        text = f" {knee:,.0f}"
        axes.text(knee, 0.02, text, transform=axes.get_xaxis_transform(), color=color, fontsize=9, va="bottom")


@look.styled
def trees(rows: pd.DataFrame, about: About) -> Figure:
    """Time of a draw and an update over B at each workload's capacity and fanout."""
    figure, panels = look.by_op("What does the tree take at a workload's shape?", rows, "numba tree")
    workloads = sorted(rows["workload"].unique())
    for axes, part in panels:
        for name, line in part.groupby("workload"):
            shape = f"{name}: N = {short(line['capacity'].iloc[0])}, K = {line['fanout'].iloc[0]}"
            look.line(axes, line, "batch", shape, workloads.index(name))
        look.ticks(axes.xaxis, _every_other(sorted(rows["batch"].unique())))
        axes.tick_params("x", rotation=40)
        axes.set(xlabel="batch B")
    panels[0][0].set(ylabel="time of a call (us)")
    return look.finish(figure, rows, about)


@look.styled
def averages(rows: pd.DataFrame, about: About) -> Figure:
    """Time of averaging k models, and the straight line through it."""
    setting = "the mean of k models' weights, in one process"
    figure, (axes,) = look.panels("What does averaging weights cost?", [setting])
    for position, (name, line) in enumerate(rows.groupby("workload")):
        label = f"{name} ({line['parameters'].iloc[0]:,.0f} parameters act)"
        look.line(axes, line, "models", label, position, "none")
        law = flat_then_linear(line["models"].tolist(), line["ns"].tolist())
        shown = np.geomspace(line["models"].min(), line["models"].max(), 60)
        axes.plot(shown, [law.seconds(one) for one in shown], color=look.COLORS[position], linewidth=0.8)
    look.ticks(axes.xaxis, sorted(rows["models"].unique()))
    axes.set(xlabel="models k", ylabel="time (ms)")
    return look.finish(figure, rows, about, "Lines: fixed + each x k, fitted.")


@look.styled
def beside(rows: pd.DataFrame, about: About) -> Figure:
    """How many times as long a part takes beside another, on the same core and on its own."""
    titles = {"shared": "both on one core", "own": "each on a core of its own"}
    shown = [name for name in titles if (rows["placement"] == name).any()]
    figure, panels = look.panels("What do primitives cost each other?", [titles[name] for name in shown])
    pairs, workloads = list(dict.fromkeys(rows["pair"])), sorted(rows["workload"].unique())
    for axes, name in zip(panels, shown, strict=True):
        for level, text in ((1, "alone"), (2, "half of the core")):
            axes.axhline(level, color="0.5", linewidth=1, linestyle="-" if level == 1 else (0, (1, 2)), label=text)
        for position, workload in enumerate(workloads):
            line = rows[(rows["placement"] == name) & (rows["workload"] == workload)]
            offset = 0.16 * (position - (len(workloads) - 1) / 2)
            line = line.assign(at=[pairs.index(pair) + offset for pair in line["pair"]])
            look.line(axes, line, "at", workload, position, "none")
        axes.grid(axis="x", visible=False)
        axes.set(xscale="linear", xlim=(-0.5, len(pairs) - 0.5))
        look.ticks(axes.xaxis, range(len(pairs)), lambda position: pairs[int(position)])
        axes.tick_params("x", labelsize=8.5)
    panels[0].set(ylabel="time beside / time alone (ratio)")
    return look.finish(figure, rows, about, "Ends of a bar: those of both intervals.")


def _every_other(values: Sequence[float]) -> list[float]:
    """All of a few values; of many some, evenly chosen, both ends among them."""
    if len(values) <= MOST_TICKS:
        return list(values)
    chosen = np.unique(np.linspace(0, len(values) - 1, MOST_TICKS - 3).round().astype(int))
    return [values[at] for at in chosen]
