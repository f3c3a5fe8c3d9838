"""The page's section about other libraries on our trees: gains of a step, the tree's share, and learning."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from dse import stats
from dse.published import plugin_claims as claims
from dse.records import Measurement, how_to_measure, twins

from .. import origins
from ..chart import Chart, Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from ..tidy import commit_of
from . import plugins_figures as figures
from .replay_cells import factor, microseconds

COMMAND = "python -m benchmarks plugins"
LEARNING = f"{COMMAND} --learning"
HEAD = (
    "library", "step", "replay", "us", "its own, us", "times as fast", "95 % interval", "tree's share",
    "its own tree's share", "at most",
)  # fmt: skip
READING = (
    "Steps of other libraries on their own replay and on ours, which took turns in one process on one core. Buffer "
    "step: a row of Hopper is added to a full buffer, B = 256 are sampled, their priorities updated. The others are "
    "whole training steps: environment, acting, replay and gradient step. The tree's share is the time inside its "
    "calls; at most: what a tree that takes no time would gain in the library's own step. Stable-Baselines3 has no "
    "prioritized replay: it is compared with its uniform one, which does less. * rests on an unstable timing, whose "
    "interval is wide."
)
LEARNED_HEAD = ("workload", "replay", "seeds solved", "steps until then (median)", "best mean return, each seed")
READINGS = {
    "plugins": "How many times as fast each library's step is on our trees, and where a free tree would bring it.",
    "plugins_learning": "Returns of Stable-Baselines3's DQN on its uniform replay and on our prioritized one.",
}


def section(material: Material) -> str:
    """Return everything known about plug-ins, as HTML."""
    found = claims.latest(material.measurements)
    rows = figures.gains(material.measurements)
    if rows.empty:
        body = paragraph(f"Left out: no other library was timed on our trees; {how_to_measure('plugins')}.")
    else:
        body = paragraph(answer(rows)) + paragraph(f"{READING} {_origin(found)}")
        body += table(HEAD, [cells(row) for row in rows.itertuples()]) + items(_notes(found))
    pictures = material.pictures(CHARTS)
    return body + pictures + _learned(material.measurements) + paragraphs(material.missing(CHARTS))


def answer(rows: pd.DataFrame) -> str:
    """Say what each library gains, its buffer's step first."""
    parts = []
    for row in rows[rows["kind"] == claims.OURS].itertuples():
        than = "its uniform replay" if row.own == "uniform" else "its own"
        parts.append(
            f"{figures.NAMES[row.host]}, {figures.TASKS[row.task]}: {factor(row.ratio)} [{factor(row.low)}, "
            f"{factor(row.high)}] as fast as {than}{_resolved(row)}"
        )
    return f"On our trees (measured): {'; '.join(parts)}."


def _resolved(row: Any) -> str:
    return ", no difference shown" if row.low <= 1 <= row.high else ""


def cells(row: Any) -> list[Cell]:
    """Return the cells of a row of ``figures.gains``, under HEAD."""

    def said(share: float | None) -> str:
        return "" if share is None or math.isnan(share) else f"{share:.0%}"

    mark = "*" * (row.status == "unstable")
    most = "" if math.isnan(row.most) else factor(row.most)
    interval = f"{factor(row.low)} to {factor(row.high)}"
    times = microseconds(1e-6 * row.us), microseconds(1e-6 * row.own_us), f"{factor(row.ratio)}{mark}", interval
    written = figures.TASKS[row.task], row.kind, *times, said(row.share), said(row.own_share), most
    return [named(figures.NAMES[row.host]), *map(Cell, written)]


def _notes(found: Sequence[Measurement]) -> Iterator[str]:
    """Yield the versions of each library, what its times leave out, and what was not timed."""
    hosts: dict[str, Measurement] = {}
    for record in found:
        if record.primitive == claims.PRIMITIVE and record.samples_seconds:
            hosts.setdefault(record.contestant, record)
    for host, record in hosts.items():
        packages = dict(record.machine.get("packages") or {})
        versions = ", ".join(f"{name} {version}" for name, version in packages.items())
        yield f"{figures.NAMES[host]}: {'; '.join(filter(None, [versions, record.reason]))}."
    for record in found:
        if record.op == claims.STEP and not record.samples_seconds:
            task, kind = record.options["task"], record.options["kind"]
            yield f"Not timed, {figures.NAMES[record.contestant]}, {figures.TASKS[task]}, {kind}: {record.reason}"


def _origin(found: Sequence[Measurement]) -> str:
    record = next(one for one in found if one.samples_seconds)
    floor = stats.noise_floor(twins(found, claims.PRIMITIVE))
    return (
        f"Source: measured on {record.machine.get('cpu')}, at {commit_of(record, 'with uncommitted changes')}, "
        f"{origins.span(one.utc for one in found)}; a step timed twice differs by up to {floor:.1%}."
    )


def _learned(measurements: Sequence[Measurement]) -> str:
    """Return the table of training runs as HTML; nothing where there are none."""
    kinds: dict[tuple[str, str], list[Measurement]] = {}
    for run in figures.runs(measurements):
        kinds.setdefault((run.options["task"], run.options["kind"]), []).append(run)
    if not kinds:
        return ""
    rows = []
    for (task, kind), runs in kinds.items():
        solved = [one.machine["solved_steps"] for one in runs if one.machine["solved_steps"] is not None]
        steps = f"{statistics.median(solved):,.0f}" if solved else "never"
        best = ", ".join(f"{max(mean for *_, mean in one.machine['points']):.0f}" for one in runs)
        name = "its own, uniform" if kind == "uniform" else "prioritized by ours"
        rows.append((task, name, f"{len(solved)} of {len(runs)}", steps, best))
    said = (
        "Stable-Baselines3's DQN by its own learn(), evaluated without exploration in between (measured); solved at "
        "the first evaluation that reaches the workload's threshold."
    )
    return paragraph(said) + table(LEARNED_HEAD, rows)


CHARTS = (
    Chart(
        "plugins", lambda material: figures.gains(material.measurements), figures.draw, READINGS["plugins"], COMMAND,
        claims.PRIMITIVE,
    ),
    Chart(
        "plugins_learning", lambda material: figures.curves(material.measurements), figures.learning,
        READINGS["plugins_learning"], LEARNING, claims.PRIMITIVE,
    ),
)  # fmt: skip
PRIMITIVES, FILES = (claims.PRIMITIVE, figures.RUN), ("quoted/zhang2021.toml",)
SECTIONS = (Section(59, "Other libraries on our trees", section, PRIMITIVES, FILES, borrowed=claims.PRIMITIVE),)
