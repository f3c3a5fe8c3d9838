"""The page's section about adaptation while training runs: the path of looks, and every pair measured."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dse.records import Record
from impls.terminal import plural
from impls.training.adapting import GRID, Loss, Step, losses_of

from .. import style
from ..chart import Chart, Material, Section
from ..markup import paragraph, paragraphs, table
from ..tidy import About, commit_of

PRIMITIVE = "training adaptation"
WORKLOAD = "cartpole_dqn"
COMMAND = f"python -m benchmarks run adapt --workload {WORKLOAD} --exhaustive"
RATES = ("sampling_hz", "update_hz", "frames_hz", "cpu_percent", "used_bytes")
HEAD = ("look", "search", "samplers", "B", "env steps/s", "gradient steps/s", "records/s", "processor", "memory (MB)")
READING = (
    "A search while training runs ([Hou2023, 3.4]): samplers for the most environment steps/s at the smallest "
    "batch, then the batch for the most records trained on per second."
)


def latest(measurements: Sequence[Record]) -> pd.DataFrame:
    """Return the looks of the latest run, of its path and of all pairs, in their order; empty without any."""
    kept = [one for one in measurements if one.primitive == PRIMITIVE and one.median_seconds is not None]
    run = max((one.options["run"] for one in kept), default="")
    rows = [
        {name: one.options[name] for name in ("workload", "actors", "batch", "look")}
        | {name: one.metrics[name] for name in (*RATES, "over")}
        | {"search": one.op, "commit": commit_of(one, "with uncommitted changes"), "utc": one.utc}
        for one in kept
        if one.options["run"] == run
    ]
    names = ("workload", "actors", "batch", "look", *RATES, "over", "search", "commit", "utc")
    return pd.DataFrame(rows, columns=list(names)).sort_values("look", ignore_index=True)


def pair_of(rows: pd.DataFrame) -> tuple[int, int]:
    """Return the samplers and the batch that the searches found: each the best of its own looks by its own rate."""
    path = rows[(rows["search"] != GRID) & (rows["over"] == "")]
    least = path["batch"].min()
    acting = path[path["batch"] == least].sort_values(["sampling_hz", "actors"], ascending=[False, True])
    samplers = int(acting["actors"].iloc[0])
    learning = path[path["actors"] == samplers].sort_values(["frames_hz", "batch"], ascending=[False, True])
    return samplers, int(learning["batch"].iloc[0])


def losses(rows: pd.DataFrame) -> dict[str, Loss]:
    """Return what each search lost against all pairs; empty where those were not measured."""
    every: Any = rows[rows["search"] == GRID].itertuples()  # each has its rates by their names
    grid = [Step(GRID, (row.actors, row.batch), row, row.over) for row in every]
    return losses_of(pair_of(rows), int(rows["batch"].min()), grid)


def section(material: Material) -> str:
    """Return what the latest search on a running loop found, as HTML."""
    rows = latest(material.measurements)
    if rows.empty:
        why = paragraph(f"Left out: nothing was adapted while it trained; this would measure it: {COMMAND}.")
        return why + paragraphs(material.missing(CHARTS))
    path, grid = rows[rows["search"] != GRID], rows[rows["search"] == GRID]
    samplers, batch = pair_of(rows)
    found = f"{plural(samplers, 'sampler')} and B = {batch:,}, found by {len(path)} looks (measured)"
    answer = f"{rows['workload'].iloc[0]}: {found}"
    settings = {"samplers": f"at B = {rows['batch'].min():,}", "batch": f"with {plural(samplers, 'sampler')}"}
    for name, loss in losses(rows).items():
        answer += (
            f"; {name}: {loss.best:,} is the fastest of all measured {settings[name]}, the search loses "
            f"{loss.share:.1%}"
        )
    allowed = rows[rows["over"] == ""]
    best = allowed.loc[allowed["frames_hz"].idxmax()]
    if (best["actors"], best["batch"]) != (samplers, batch):
        answer += (
            f". Of all pairs {plural(int(best['actors']), 'sampler')} and B = {best['batch']:,} train on the most "
            f"records per second, {best['frames_hz']:,.0f}, but the search first asks for the most environment steps"
        )
    how = f" {len(grid)} pairs were measured as well." if len(grid) else " Other pairs were not measured."
    source = f"Source: measured on {material.about.cpu}, {material.about.cores} cores, at {rows['commit'].iloc[-1]}."
    return (
        paragraph(f"{answer}.")
        + paragraph(f"{READING}{how} Actors and one learner are apart, the ratio of their rates is free. {source}")
        + table(HEAD, [_row(row) for row in path.itertuples()])
        + material.pictures(CHARTS)
        + paragraphs(material.missing(CHARTS))
    )


def _row(row: Any) -> tuple[str, ...]:
    over = f" (over its cap: {row.over})" if row.over else ""
    return (
        str(row.look), row.search + over, str(row.actors),
        f"{row.batch:,}", f"{row.sampling_hz:,.0f}", f"{row.update_hz:,.0f}", f"{row.frames_hz:,.0f}",
        f"{row.cpu_percent:.0f} %", f"{row.used_bytes / 1e6:,.0f}",
    )  # fmt: skip


@style.styled
def draw(rows: pd.DataFrame, about: About) -> Figure:
    """Draw both searches: rates over samplers and over the batch, looks as numbered rings, all pairs as lines."""
    samplers, batch = pair_of(rows)
    least, grid, path = rows["batch"].min(), rows[rows["search"] == GRID], rows[rows["search"] != GRID]
    titles = [f"samplers, at B = {least}", "batch, by samplers"]
    figure, panels = style.panels("Which samplers and batch does a search find while it trains?", titles, sharey=False)
    first, second = panels
    _line(first, grid[grid["batch"] == least], "actors", "sampling_hz", "every number of samplers", 0)
    for position, (count, part) in enumerate(grid.groupby("actors")):
        _line(second, part, "batch", "frames_hz", plural(int(count), "sampler"), position + 1)
    _looks(first, path[path["batch"] == least], "actors", "sampling_hz")
    _looks(second, path[path["actors"] == samplers], "batch", "frames_hz")
    first.set(xscale="linear")
    for axes, x, y, label in (
        (first, "actors", "env steps / s", "samplers"),
        (second, "batch", "records trained on / s", "batch B"),
    ):
        style.x_axis(axes, rows[x], label)
        axes.set(ylabel=y)
    note = (
        f"Rings: looks, numbered in their order; found: {samplers} samplers, B = {batch:,}. Lines: every pair, "
        f"measured after the search in the same run. Source: measured on {about.cpu}, {about.cores} cores, at "
        f"{rows['commit'].iloc[-1]}, {rows['utc'].iloc[-1][:10]}."
    )
    return style.captioned(figure, note)


def _line(axes: Axes, rows: pd.DataFrame, x: str, y: str, label: str, position: int) -> None:
    rows = rows.sort_values(x)
    if not rows.empty:
        axes.plot(rows[x], rows[y], label=label, **style.marks(position) | {"markersize": 4})


def _looks(axes: Axes, looks: pd.DataFrame, x: str, y: str) -> None:
    """Draw a numbered ring at each look."""
    for look in looks.itertuples():
        at, rate = getattr(look, x), getattr(look, y)
        axes.plot(at, rate, "o", markersize=13, fillstyle="none", color="black", label="look of the search")
        axes.annotate(str(look.look), (at, rate), (7, 7), textcoords="offset points")


CHARTS = (Chart("adaptation_path", lambda material: latest(material.measurements), draw, READING, COMMAND),)
SECTIONS = (Section(84, "Adaptation while training runs", section, (PRIMITIVE,)),)
