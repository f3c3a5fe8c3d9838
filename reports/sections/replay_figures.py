"""The figures of whole replay buffers: a line a strategy in the same color everywhere, dashed where it is not right."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.records import Record
from reports.claims.lock_claims import RUN

from .. import style
from ..chart import Chart, Material
from ..tidy import About, tidy
from .replay_cells import COMPILED, IN_PYTHON, REMARKS, REPLAY, label, part, strategy

COMMAND = "python -m benchmarks run replay --only {}"
MODES = ("threads", "processes")
OPS = {"cache": "cache flushed every n rows", "insert": "n rows at once"}
BESIDE = {"nothing": "alone", "learner": "under load from a learner"}
NOT_RIGHT = "Dashed: not right, a bound or as printed. "
SHADE = "0.93"
APART = 0.012  # by so much two lines that lie on each other are set apart, as a factor of x
GAP = 0.35  # of a number of threads, between the shade and the last that have a core each


def _frame(material: Material, cells: Sequence[Record], divide_by: Callable[[Record], float]) -> pd.DataFrame:
    """Make rows for ``style.series``; its columns of time are seconds of a call divided by what is given.

    ``place`` is the strategy's among all that were measured, others come after them.
    """
    compiled = (record for record in material.measurements if record.contestant == COMPILED)
    ours = sorted({strategy(record) for record in compiled if record.primitive.startswith(REPLAY)})
    others = sorted({label(record) for record in cells} - {*ours})
    frame = tidy(cells)
    frame["label"] = [label(record) for record in cells]
    frame["place"] = [[*ours, *others].index(name) for name in frame["label"]]
    divisors = pd.Series([divide_by(record) for record in cells], dtype=float)
    for name, column in (("ns", "median_seconds"), ("low_ns", "low_seconds"), ("high_ns", "high_seconds")):
        frame[name] = frame[column].astype(float).fillna(frame["median_seconds"].astype(float)) / divisors
    return frame


def shared(material: Material) -> pd.DataFrame:
    """Select runs of actors and learners, in microseconds a gradient step, by ``mode`` and ``work`` (us)."""
    parts = []
    for mode in MODES:
        cells = [record for record in part(material.measurements, mode).cells if record.op == RUN]
        if cells:
            work = [round(1e6 * record.options["work_seconds"]) for record in cells]
            extra = {"mode": mode, "work": work, "oversubscribed": [record.is_oversubscribed for record in cells]}
            parts.append(_frame(material, cells, lambda record: 1e-6).assign(**extra))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def flushed(material: Material) -> pd.DataFrame:
    """Select insertions of n rows, in nanoseconds a row, by their load, ``beside``; empty below two n."""
    cells = [record for record in part(material.measurements, "flush").cells if record.op in OPS]
    frame = _frame(material, cells, lambda record: 1e-9 * record.batch) if cells else pd.DataFrame()
    if frame.empty or frame["batch"].nunique() < 2:
        return frame[:0]
    return frame.assign(beside=[record.options["beside"] for record in cells])


def over_batches(material: Material) -> pd.DataFrame:
    """Select sampling and updating over the batch, in microseconds a call; empty below two B."""
    cells = part(material.measurements, "batches").cells
    frame = _frame(material, cells, lambda record: 1e-6) if cells else pd.DataFrame()
    return frame if not frame.empty and frame["batch"].nunique() > 1 else frame[:0]


def _lines(axes: Axes, rows: pd.DataFrame, x: str) -> None:
    """Draw a line an implementation, each a little to the right of the one before."""
    for (place, name), part_of in rows.groupby(["place", "label"]):
        shifted = part_of.assign(**{x: part_of[x] * (1 + APART) ** (place - rows["place"].median())})
        style.line(axes, shifted, x, name, place, "--" if name in REMARKS else "-")


@style.styled
def locks(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the time of a gradient step over threads and processes: a line a strategy."""
    shapes = [(mode, work) for mode in MODES for work in sorted(rows["work"].unique())]
    titles = [
        f"{mode}, {f'{work} us of sleep after each operation' if work else 'no other work'}" for mode, work in shapes
    ]
    columns = rows["work"].nunique()
    layout = {"nrows": len(MODES), "ncols": columns, "sharey": False}
    figure, panels = style.panels(
        "Which strategy lets actors and learners share a replay best?", titles, 8.5, "us a gradient step", **layout
    )
    for axes, (mode, work) in zip(panels, shapes, strict=True):
        own = rows[(rows["mode"] == mode) & (rows["work"] == work)]
        if own.empty:
            axes.set_visible(False)
            continue
        _lines(axes, own, "threads")
        style.x_axis(axes, rows["threads"], f"{mode}, actors and learners")
        axes.tick_params(labelbottom=True)
        _shade(axes, own, about.cores)
    note = (
        f"{NOT_RIGHT}Wall time of a run, with one inserted record a gradient step of B = {rows['batch'].iloc[0]:,}, "
        f"N = {rows['capacity'].iloc[0]:,}. Shaded: oversubscribed, more of them than the {about.cores} cores."
    )
    return style.finish(figure, rows, about, note)


def _shade(axes: Axes, rows: pd.DataFrame, cores: int) -> None:
    """Shade and name what has more threads or processes than cores."""
    over = rows[rows["oversubscribed"]]["threads"]
    if over.empty:
        return
    left, right = axes.get_xlim()
    start = over.min() - GAP if (rows["threads"] < over.min()).any() else left
    axes.axvspan(start, right, color=SHADE, zorder=0)
    axes.set_xlim(left, right)
    where = {"transform": axes.get_xaxis_transform(), "va": "top", "fontsize": 8.5, "color": "0.35"}
    axes.text(start * 1.01, 0.985, f"oversubscribed: more than the {cores} cores", **where)


@style.styled
def flush(rows: pd.DataFrame, about: About) -> Figure:
    """Draw nanoseconds a row over n: a line a strategy, a panel for each kind of insertion, alone and not."""
    shapes = [(op, beside) for op in OPS for beside in BESIDE]
    layout = {"nrows": 2, "ncols": 2, "sharey": True}
    titles = [f"{OPS[op]}, {BESIDE[beside]}" for op, beside in shapes]
    question = "How many rows should an actor collect before it inserts?"
    figure, panels = style.panels(question, titles, 8.5, "ns a row", **layout)
    for axes, (op, beside) in zip(panels, shapes, strict=True):
        _lines(axes, rows[(rows["op"] == op) & (rows["beside"] == beside)], "batch")
        style.x_axis(axes, rows["batch"], "rows n of an insertion")
        axes.label_outer()
    note = f"{NOT_RIGHT}One process, N = {rows['capacity'].iloc[0]:,}; a learner as its load samples and updates."
    return style.finish(figure, rows, about, note)


@style.styled
def batches(rows: pd.DataFrame, about: About) -> Figure:
    """Draw microseconds a call over B: ours compiled and in Python, a panel an operation."""
    ops = [op for op in ("sample", "update") if op in set(rows["op"])]
    figure, panels = style.panels("How do sampling and updating grow with the batch?", ops, 6, "us a call")
    for axes, op in zip(panels, ops, strict=True):
        _lines(axes, rows[rows["op"] == op], "batch")
        style.x_axis(axes, rows["batch"], "records of a call B")
        axes.tick_params(axis="x", labelrotation=45)
    note = f"N = {rows['capacity'].iloc[0]:,}, one thread; {IN_PYTHON} is the buffer in Python on the numba tree."
    return style.finish(figure, rows, about, note)


CHARTS = (
    Chart(
        "replay_locks",
        shared,
        locks,
        "Lower is faster. What a line lies above that of none is what its locks cost. In the shade members take turns "
        "on a core, and a strategy loses by who waits for one that is not running. [Zhang2021, Fig. 10] asks the same.",
        COMMAND.format("threads,processes"),
    ),
    Chart(
        "replay_flush",
        flushed,
        flush,
        "A line falls where the call costs more than its rows, and is flat where the rows count. The right panels lie "
        "above the left ones by contention, which larger flushes make rarer. [StoneSachdev] keeps such a cache.",
        COMMAND.format("flush"),
    ),
    Chart(
        "replay_batches",
        over_batches,
        batches,
        "Where a line is flat the call counts, where it rises as B does the records count. [Zhang2023, Fig. 12] asks "
        "the same.",
        COMMAND.format("batches"),
    ),
)
