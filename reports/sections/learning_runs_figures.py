"""The figures of learning by several processes: the selection of runs, and the drawing."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dse.published.learning_runs import SERIAL
from dse.records import Measurement

from .. import style
from ..tidy import About, commit_of

RETURN = "mean return of an evaluation"
COLUMNS = (
    "workload", "kind", "arrangement", "learners", "presampled", "seed", "step", "seconds", "mean", "solved_at",
    "step_seconds", "commit",
)  # fmt: skip


def points(runs: Sequence[Measurement]) -> pd.DataFrame:
    """Return a row an evaluation: what run it is of, its step as it was due, its seconds and its mean return."""
    rows = []
    for run in runs:
        known = {name: run.options[name] for name in COLUMNS[:6]}
        more = {"solved_at": run.machine["solved_at"], "step_seconds": run.seconds, "commit": commit_of(run)}
        for step, _, seconds, mean in run.machine["points"]:
            due = step // run.machine["interval"] * run.machine["interval"]
            rows.append({**known, **more, "step": due, "seconds": seconds, "mean": mean})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_one(runs: Sequence[Measurement]) -> list[Measurement]:
    """Return the runs of the workload with the most of them."""
    counts = pd.Series([run.options["workload"] for run in runs]).value_counts()
    return [run for run in runs if run.options["workload"] == counts.index[0]]


def of_depths(runs: Sequence[Measurement]) -> pd.DataFrame:
    """Select the runs with one learner beside actors, by D; empty unless there are two D."""
    one = [run for run in runs if run.options["learners"] == 1 and run.options["arrangement"] != SERIAL]
    rows = points(_of_one(one) if one else [])
    return rows if rows["presampled"].nunique() > 1 else rows[:0]


def of_arrangements(runs: Sequence[Measurement]) -> pd.DataFrame:
    """Select the runs of every arrangement and sync at the least D; empty unless there are two kinds."""
    least = {run.options["arrangement"]: run.options["presampled"] for run in reversed(runs)}
    for run in runs:
        least[run.options["arrangement"]] = min(least[run.options["arrangement"]], run.options["presampled"])
    shown = [run for run in runs if run.options["presampled"] == least[run.options["arrangement"]]]
    rows = points(_of_one(shown) if shown else [])
    return rows if rows["kind"].nunique() > 1 else rows[:0]


def gains(rows: pd.DataFrame) -> pd.DataFrame:
    """Divide the rate of each run by that with no batch sampled ahead, of the same seed; empty without any."""
    runs = rows.drop_duplicates(["kind", "seed"])
    least = runs[runs["presampled"] == 0].set_index("seed")["step_seconds"]
    runs = runs[runs["seed"].isin(least.index)]
    return runs.assign(gain=runs["seed"].map(least) / runs["step_seconds"])


@style.styled
def depths(rows: pd.DataFrame, about: About) -> Figure:
    """Draw returns over steps by D, and the gain of each D over none."""
    gained = gains(rows)
    titles = ["returns", "rates"][: 2 - gained.empty]
    figure, panels = style.panels("What do batches sampled ahead gain and cost?", titles, sharey=False)
    each = sorted(rows.groupby("presampled"), key=lambda one: one[0])
    for position, (depth, part) in enumerate(each):
        style.band(panels[0], part, "step", "mean", f"D = {depth}", position)
    style.returns(panels[0], rows["solved_at"].iloc[0])
    panels[0].set(ylabel=RETURN)
    if not gained.empty:
        shown = sorted(gained["presampled"].unique())
        for position, depth in enumerate(shown):
            part = gained[gained["presampled"] == depth]["gain"]
            panels[1].plot([position] * len(part), part, "o", color=style.COLORS[position], alpha=0.5)
            panels[1].plot(position, part.median(), "_", markersize=24, color=style.COLORS[position])
        panels[1].axhline(1, color="0.5", linewidth=1)
        panels[1].set(xscale="linear", ylabel="rate over that of D = 0", xlim=(-0.5, len(shown) - 0.5))
        style.ticks(panels[1].xaxis, range(len(shown)), lambda at: f"{shown[int(at)]:,}")
        panels[1].set(xlabel="batches sampled ahead D", yscale="linear")
    return _finished(figure, rows, about, "Right: a point a seed, the bar their median." * (not gained.empty))


@style.styled
def arrangements(rows: pd.DataFrame, about: About) -> Figure:
    """Draw returns over steps and over seconds, by kind of run."""
    figure, panels = style.panels("Does training by several processes learn as well?", ["by steps", "by seconds"])
    for position, (_, part) in enumerate(rows.groupby("kind", sort=False)):
        kind = str(part["kind"].iloc[0])
        style.band(panels[0], part, "step", "mean", kind, position)
        over = part.groupby("step")[["seconds", "mean"]].median()
        panels[1].plot(over["seconds"], over["mean"], label=kind, **style.marks(position))
    for axes in panels:
        style.returns(axes, rows["solved_at"].iloc[0])
        axes.set(ylabel=RETURN)
    panels[1].set(xlabel="seconds of training")
    return _finished(figure, rows, about, "Right: medians over seeds of both, at each evaluation.")


def _finished(figure: Figure, rows: pd.DataFrame, about: About, more: str) -> Figure:
    seeds = rows.groupby("kind")["seed"].nunique()
    count = f"{seeds.min()}" if seeds.nunique() == 1 else f"{seeds.min()} to {seeds.max()}"
    note = (
        f"{rows['workload'].iloc[0]}, {count} seeds each. Lines: medians over seeds; bands: from the lowest to the "
        f"highest; a run that was solved may have ended before the others. {more} Source: measured on {about.cpu}, "
        f"{about.cores} cores, at {', '.join(sorted(set(rows['commit'])))}."
    )
    figure = style.captioned(figure, note)
    for axes in figure.axes:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    return figure
