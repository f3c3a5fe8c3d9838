"""The page's section about other libraries on our trees: gains of a step, the tree's share, and learning."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dse import stats
from dse.learning_runs import Value, write_over_seeds
from dse.records import Record, how_to_measure, in_order, twins
from reports.claims import plugin_claims as claims

from .. import origins, style
from ..chart import Chart, Material, Section
from ..markup import Cell, items, named, paragraph, paragraphs, table
from ..tidy import About, commit_of, versions_of
from .replay_cells import factor, microseconds

RUN = "plugin run"
NAMES = {"sb3": "SB3", "tianshou": "tianshou", "torchrl": "torchrl", "rllib": "RLlib"}
TASKS = {
    "buffer": "buffer step",
    "cartpole_dqn": "CartPole DQN",
    "pendulum_sac": "Pendulum SAC",
    "hopper_sac": "Hopper SAC",
}
COLUMNS = (
    *("host", "task", "kind", "own", "ratio", "low", "high", "most", "status", "source", "commit", "utc"),
    *("own_us", "us", "share", "own_share"),
)


def gains(measurements: Sequence[Record]) -> pd.DataFrame:
    """Return a row for each host, task and kind of ours: the ratio to the host's own, and what a free tree gives."""
    rows = []
    for (host, task), cells in claims.by_step(measurements).items():
        own = claims.own_kind(cells)
        for kind in dict.fromkeys(kind for kind, _ in cells if kind != own) if own else ():
            base, new = cells[own, claims.STEP], cells[kind, claims.STEP]
            part = claims.share(cells, own)
            rows.append(
                (
                    *(host, task, kind, own, *stats.speedup(base, new), 1 / (1 - part) if part else np.nan),
                    *("unstable" if "unstable" in (base.status, new.status) else "ok", "measured"),
                    *(commit_of(new), new.utc, 1e6 * base.seconds, 1e6 * new.seconds),
                    *(claims.share(cells, kind), part),
                )
            )
    return pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["task", "host"], kind="stable", ignore_index=True)


@style.styled
def draw(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the gain of each host and task, and up to where a tree that takes no time would bring it."""
    tasks = [task for task in TASKS if task in set(rows["task"])]
    shown = rows[rows["kind"] == claims.OURS]
    prioritized = shown[shown["own"] != "uniform"]
    title = _title(prioritized if len(prioritized) else shown)
    figure, panels = style.panels(
        title, [TASKS[task] for task in tasks], 5, y="speedup over the library's own replay (ratio)"
    )
    kinds = list(dict.fromkeys(rows["kind"]))
    for axes, task in zip(panels, tasks, strict=True):
        axes.set(xscale="linear")  # before anything is drawn at 0
        of_task = rows[rows["task"] == task]
        names = list(dict.fromkeys(of_task["host"]))
        for position, kind in enumerate(kinds):
            part = of_task[of_task["kind"] == kind]
            at = [names.index(host) + 0.18 * (position - (len(kinds) - 1) / 2) for host in part["host"]]
            color, marker = style.COLORS[position], style.MARKERS[position]
            style.bars(axes, at, part["ratio"], part["low"], part["high"], fmt="none", ecolor=color)
            axes.plot(at, part["ratio"], marker, linestyle="none", color=color, label=kind)
            shaky = [(x, y) for x, y, status in zip(at, part["ratio"], part["status"], strict=True) if status != "ok"]
            for x, y in shaky:
                axes.plot(x, y, marker, color=color, markerfacecolor="white")
        free = of_task.drop_duplicates("host").dropna(subset="most")
        axes.plot(
            [names.index(host) for host in free["host"]], free["most"], "_", linestyle="none", markersize=30,
            color="0.4", label="a tree that takes no time",
        )  # fmt: skip
        axes.axhline(1, color="0.5", linewidth=1)
        axes.set(xlim=(-0.6, len(names) - 0.4))
        uniform = set(of_task[of_task["own"] == "uniform"]["host"])
        style.ticks(
            axes.xaxis,
            range(len(names)),
            lambda at, names=names, uniform=uniform: (
                NAMES[names[int(at)]] + "\nover its uniform" * (names[int(at)] in uniform)
            ),
        )
    note = "Above 1: ours is faster. Above the gray line: more than the tree was exchanged, whose share alone it shows."
    if (rows["own"] == "uniform").any():
        note += " Compared with a library's uniform replay, where it has no other: not in the title."
    return style.finish(figure, rows, about, note)


def _title(rows: pd.DataFrame) -> str:
    """Answer in one line how much faster the libraries are on ours, by stable times where there are any."""
    ratios = rows[rows["status"] == "ok"]["ratio"] if (rows["status"] == "ok").any() else rows["ratio"]
    low, high = ratios.min(), ratios.max()
    return f"With our replay in place of theirs, libraries' steps are {low:.2f} to {high:.2f} times faster"


def _trained_runs(measurements: Sequence[Record]) -> list[Record]:
    """Return the training runs that ended, of each workload, kind and seed the latest."""
    kept = {}
    for record in in_order(measurements):
        if record.primitive == RUN and record.median_seconds is not None:
            kept[tuple(record.options[name] for name in ("task", "kind", "seed"))] = record
    return [kept[key] for key in sorted(kept, key=str)]


def curves(measurements: Sequence[Record]) -> pd.DataFrame:
    """Return a row an evaluation: workload, kind, seed, step, mean return and the return that counts as solved."""
    rows = [
        (
            *(run.options[name] for name in ("task", "kind", "seed")),
            step,
            mean,
            run.metrics["solved_at"],
            commit_of(run),
        )
        for run in _trained_runs(measurements)
        for step, _, mean in run.metrics["points"]
    ]
    return pd.DataFrame(rows, columns=["task", "kind", "seed", "step", "mean", "solved_at", "commit"])


@style.styled
def learning(rows: pd.DataFrame, about: About) -> Figure:
    """Draw returns over steps: the median of the seeds, and from the lowest to the highest as a band."""
    groups = dict(iter(rows.groupby("task")))
    figure, panels = style.panels(_learned_rows(rows), list(groups), 5, y="mean return of an evaluation", sharey=False)
    for axes, (_, part) in zip(panels, groups.items(), strict=True):
        for position, (kind, of_kind) in enumerate(part.groupby("kind")):
            name = "SB3's own uniform replay" if kind == "uniform" else "prioritized by ours"
            style.band(axes, of_kind, "step", "mean", name, position)
        style.returns(axes, part["solved_at"].iloc[0])
    seeds = ", ".join(f"{task}: {part['seed'].nunique()} seeds" for task, part in groups.items())
    commits = ", ".join(sorted(set(rows["commit"])))
    note = f"Lines: medians over seeds; bands: from the lowest to the highest seed ({seeds}). Source: measured on "
    return style.few_ticks(style.captioned(figure, f"{note}{about.cpu}, at {commits}."))


def _learned_rows(rows: pd.DataFrame) -> str:
    """Answer in one line how many runs of each kind were solved."""
    parts = []
    for (task, kind), part in rows.groupby(["task", "kind"]):
        solved = part[part["mean"] >= part["solved_at"]]["seed"].nunique()
        parts.append(f"{task} {kind}: {solved} of {part['seed'].nunique()}")
    return f"Seeds solved by SB3's DQN. {'; '.join(parts)}"


COMMAND = "python -m benchmarks run plugins"
LEARNING = f"{COMMAND} --learning"
HEAD = (
    "library", "step", "replay", "us", "its own, us", "speedup", "95 % interval", "tree's share",
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
LEARNED_HEAD = ("workload", "replay", "seeds solved", "steps until then", "best mean return, each seed")
READINGS = {
    "plugins": "Speedup of each library's step on our trees, and where a free tree would bring it.",
    "plugins_learning": "Returns of Stable-Baselines3's DQN on its uniform replay and on our prioritized one.",
}


def section(material: Material) -> str:
    """Return everything known about plug-ins, as HTML."""
    found = claims.latest(material.measurements)
    rows = gains(material.measurements)
    if rows.empty:
        body = paragraph(f"Left out: no other library was timed on our trees; {how_to_measure('run plugins')}.")
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
            f"{NAMES[row.host]}, {TASKS[row.task]}: {factor(row.ratio)} [{factor(row.low)}, "
            f"{factor(row.high)}] over {than}{', no difference shown' * (row.low <= 1 <= row.high)}"
        )
    return f"Speedups on our trees (measured): {'; '.join(parts)}."


def cells(row: Any) -> list[Cell]:
    """Return the cells of a row of ``gains``, under HEAD."""

    def said(share: float | None) -> str:
        return "" if share is None or math.isnan(share) else f"{share:.0%}"

    mark = "*" * (row.status == "unstable")
    most = "" if math.isnan(row.most) else factor(row.most)
    interval = f"{factor(row.low)} to {factor(row.high)}"
    times = microseconds(1e-6 * row.us), microseconds(1e-6 * row.own_us), f"{factor(row.ratio)}{mark}", interval
    written = TASKS[row.task], row.kind, *times, said(row.share), said(row.own_share), most
    return [named(NAMES[row.host]), *map(Cell, written)]


def _notes(found: Sequence[Record]) -> Iterator[str]:
    """Yield the versions of each library, what its times leave out, and what was not timed."""
    hosts: dict[str, Record] = {}
    for record in found:
        if record.primitive == claims.PRIMITIVE and record.samples_seconds:
            hosts.setdefault(record.contestant, record)
    for host, record in hosts.items():
        yield f"{NAMES[host]}: {'; '.join(filter(None, [versions_of(record), record.reason]))}."
    for record in found:
        if record.op == claims.STEP and not record.samples_seconds:
            task, kind = record.options["task"], record.options["kind"]
            yield f"Not timed, {NAMES[record.contestant]}, {TASKS[task]}, {kind}: {record.reason}"


def _origin(found: Sequence[Record]) -> str:
    record = next(one for one in found if one.samples_seconds)
    floor = stats.noise_floor(twins(found, claims.PRIMITIVE))
    return (
        f"Source: measured on {record.machine.get('cpu')}, at {commit_of(record, 'with uncommitted changes')}, "
        f"{origins.span(one.utc for one in found)}; a step timed twice differs by up to {floor:.1%}."
    )


def _learned(measurements: Sequence[Record]) -> str:
    """Return the table of training runs as HTML; nothing where there are none."""
    kinds: dict[tuple[str, str], list[Record]] = {}
    for run in _trained_runs(measurements):
        kinds.setdefault((run.options["task"], run.options["kind"]), []).append(run)
    if not kinds:
        return ""
    rows = []
    for (task, kind), runs in kinds.items():
        ends = [(one.metrics["solved_steps"], one.metrics["points"][-1][0]) for one in runs]
        until = [Value(at or end, not at) for at, end in ends]
        solved = sum(not value.is_beyond for value in until)
        best = ", ".join(f"{max(mean for *_, mean in one.metrics['points']):.0f}" for one in runs)
        name = "its own, uniform" if kind == "uniform" else "prioritized by ours"
        rows.append((task, name, f"{solved} of {len(runs)}", write_over_seeds(until, ",.0f"), best))
    said = (
        "Stable-Baselines3's DQN by its own learn(), evaluated without exploration in between (measured); solved at "
        "the first evaluation that reaches the workload's threshold. Steps: the median over seeds with its 95 % "
        "interval, or each one's of few seeds; a seed that is not solved counts as beyond its last evaluation."
    )
    return paragraph(said) + table(LEARNED_HEAD, rows)


CHARTS = (
    Chart(
        "plugins", lambda material: gains(material.measurements), draw, READINGS["plugins"], COMMAND,
        claims.PRIMITIVE,
    ),
    Chart(
        "plugins_learning", lambda material: curves(material.measurements), learning,
        READINGS["plugins_learning"], LEARNING, claims.PRIMITIVE,
    ),
)  # fmt: skip
PRIMITIVES, FILES = (claims.PRIMITIVE, RUN), ("quoted/zhang2021.toml",)
SECTIONS = (Section(59, "Other libraries on our trees", section, PRIMITIVES, FILES, borrowed=claims.PRIMITIVE),)
