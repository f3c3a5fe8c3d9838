"""The page's section about learning by several processes: curves by arrangement and by D, and what each run reached."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse import learning_runs
from dse.learning_runs import (
    ALL_METRICS,
    COPIES,
    FIGURES,
    PRIMITIVE,
    SERIAL,
    Reached,
    figures_of,
    label_kind,
    latest,
    list_unsolved,
    metrics_of,
    write_figures,
    write_metrics,
)
from dse.mapping.question import ask
from dse.platforms import PlatformError
from dse.records import Record, RecordError, how_to_measure
from dse.solver.problem import ProblemError
from dse.stats import LEAST_SEEDS
from dse.times.several import data_parallel_factor, single_seconds, spo_factor
from dse.tuning.depth import platform_depth
from dse.tuning.learners import learner_scaling
from impls.terminal import plural

from .. import style
from ..chart import Chart, Material, Section
from ..markup import items, paragraph, paragraphs, table
from ..tidy import About, commit_of, untimed

LONGEST = 25  # gradient steps between averages that are predicted
RETURN = "mean return of an evaluation"
ONE_MACHINE = ("apart", "pipelined")  # arrangements with one learner
COLUMNS = (
    "workload", "kind", "arrangement", "learners", "presampled", "seed", "step", "seconds", "mean", "solved_at",
    "step_seconds", "commit",
)  # fmt: skip


def points(runs: Sequence[Record]) -> pd.DataFrame:
    """Return a row an evaluation: what run it is of, its step as it was due, its seconds and its mean return."""
    rows = []
    for run in runs:
        known = {name: run.options[name] for name in COLUMNS[:6]}
        more = {"solved_at": run.metrics["solved_at"], "step_seconds": run.seconds, "commit": commit_of(run)}
        for step, _, seconds, mean in run.metrics["points"]:
            due = step // run.metrics["interval"] * run.metrics["interval"]
            rows.append({**known, **more, "step": due, "seconds": seconds, "mean": mean})
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_one(runs: Sequence[Record]) -> list[Record]:
    """Return the runs of the workload with the most of them."""
    counts = pd.Series([run.options["workload"] for run in runs]).value_counts()
    return [run for run in runs if run.options["workload"] == counts.index[0]]


def _is_as_shipped(run: Record) -> bool:
    """Whether a run is no ablation: nothing of its workload was changed, and records go by shared memory."""
    options = run.options
    is_changed = "count" in options or (options["arrangement"] == SERIAL) != (options["kind"] == SERIAL)
    return not is_changed and options.get("transport", "shared") == "shared"


def of_depths(runs: Sequence[Record]) -> pd.DataFrame:
    """Select the runs with one learner apart from actors, by D; empty unless there are two D."""
    runs = list(filter(_is_as_shipped, runs))
    one = [run for run in runs if run.options["learners"] == 1 and run.options["arrangement"] in ONE_MACHINE]
    rows = points(_of_one(one) if one else [])
    return rows if rows["presampled"].nunique() > 1 else rows[:0]


def of_arrangements(runs: Sequence[Record]) -> pd.DataFrame:
    """Select the runs of every arrangement and sync at the least D; empty unless there are two kinds."""
    runs = [run for run in runs if run.options["arrangement"] != COPIES and _is_as_shipped(run)]
    several = {run.options["workload"] for run in runs if run.options["arrangement"] != SERIAL}
    runs = [run for run in runs if run.options["workload"] in several]
    least = {run.options["arrangement"]: run.options["presampled"] for run in reversed(runs)}
    for run in runs:
        least[run.options["arrangement"]] = min(least[run.options["arrangement"]], run.options["presampled"])
    shown = [run for run in runs if run.options["presampled"] == least[run.options["arrangement"]]]
    rows = points(_of_one(shown) if shown else [])
    return rows if rows["kind"].nunique() > 1 else rows[:0]


def of_copies(runs: Sequence[Record]) -> pd.DataFrame:
    """Return a row a figure, run and seed of copies, at the interval k that most numbers of them have."""
    own = [run for run in runs if run.options["arrangement"] == COPIES]
    shown = {(run.options["workload"], label_kind(run)): run for run in _of_one(own) if own}
    rows = []
    for (workload, kind), figures in figures_of(own).items():
        if (run := shown.get((workload, kind))) is None:
            continue
        known = {"workload": workload, "kind": kind, "commit": commit_of(run)}
        known |= {name: run.options[name] for name in ("processes", "sync", "every")}
        for name, by_seed in figures.items():
            rows += [
                known | {"figure": name, "seed": seed, "value": one.number, "is_beyond": one.is_beyond}
                for seed, one in by_seed.items()
            ]
    found = pd.DataFrame(rows)
    if found.empty or (found["processes"] == 1).all():
        return found[:0]
    usual = found[found["processes"] > 1].groupby("every")["processes"].nunique().idxmax()
    return found[(found["processes"] == 1) | (found["every"] == usual)]


ROLLOUTS, BASE, CHANGED = "pendulum_memr", "pendulum_sac", ("alpha", "segments")


def of_rollouts(runs: Sequence[Record]) -> pd.DataFrame:
    """Select the runs of MEMR and of SAC alone, with the key that was changed; empty unless there are both."""
    own = [run for run in runs if run.options["workload"] in (ROLLOUTS, BASE) and "library" not in run.options]
    changed = {run.options["kind"]: next((key for key in CHANGED if key in run.options), "") for run in own}
    rows = points(own)
    rows["changed"] = rows["kind"].map(changed)
    is_base = rows["workload"] == BASE
    rows["label"] = rows["kind"].where(rows["changed"] != "", "as shipped").mask(is_base, "SAC without a model")
    return rows if rows["workload"].nunique() > 1 else rows[:0]


def gains_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Divide the rate of each run by that with no batch sampled ahead, of the same seed; empty without any."""
    runs = rows.drop_duplicates(["kind", "seed"])
    least = runs[runs["presampled"] == 0].set_index("seed")["step_seconds"]
    runs = runs[runs["seed"].isin(least.index)]
    return runs.assign(gain=runs["seed"].map(least) / runs["step_seconds"])


@style.styled
def depths(rows: pd.DataFrame, about: About) -> Figure:
    """Draw returns over steps by D, and the gain of each D over none."""
    gained = gains_of(rows)
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


@style.styled
def rollouts(rows: pd.DataFrame, about: About) -> Figure:
    """Draw returns of MEMR over steps by alpha, and beside SAC and by the number of segments."""
    figure, panels = style.panels("What do priorities and segments of model rollouts gain?", ["priorities", "segments"])
    is_alpha, own = rows["changed"] == "alpha", rows["label"] == "as shipped"
    labels = sorted(rows["label"].unique())
    for axes, shown in zip(panels, (rows[is_alpha | own], rows[~is_alpha]), strict=True):
        for label, part in shown.groupby("label"):
            style.band(axes, part, "step", "mean", str(label), labels.index(label))
        style.returns(axes, rows["solved_at"].iloc[0])
    panels[0].set(ylabel=RETURN)
    more = "As shipped: with the workload's own alpha and segments; alpha = 0 samples uniformly."
    return _finished(figure, rows.assign(workload=ROLLOUTS), about, more)


@style.styled
def copies(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the four figures of [StoneSachdev] over the number of copies, by sync."""
    figure, panels = style.panels(
        "What do more copies of the loop gain?", list(FIGURES), 9, nrows=2, ncols=2, sharey=False
    )
    counts = sorted(rows["processes"].unique())
    for axes, name in zip(panels, FIGURES, strict=True):
        part = rows[rows["figure"] == name]
        for position, (sync, of_sync) in enumerate(part[part["processes"] > 1].groupby("sync")):
            both = pd.concat([part[part["processes"] == 1], of_sync])
            at = both["processes"].map(counts.index) + 0.1 * (position - 1)
            color = style.COLORS[position]
            for is_beyond, mark in ((False, "o"), (True, "^")):
                is_so = both["is_beyond"] == is_beyond
                axes.plot(at[is_so], both["value"][is_so], mark, color=color, alpha=0.6, fillstyle="none")
            medians = both.groupby("processes")["value"].median()
            axes.plot(range(len(medians)), medians, label=sync, **style.marks(position))
        axes.set(xscale="linear", yscale="log" if name == "speed-up" else "linear", title=name)
        axes.set(xlabel="copies P", ylabel=FIGURE_AXES[name])
        style.ticks(axes.xaxis, range(len(counts)), lambda at: f"{counts[int(at)]}")
    every = rows[rows["processes"] > 1]["every"].iloc[0]
    commits = ", ".join(sorted(set(rows["commit"])))
    note = (
        f"{rows['workload'].iloc[0]}, {rows['seed'].nunique()} seeds. Meeting every k = {every} gradient steps. "
        "A point a seed; triangles: not solved, as far as the run got; lines: medians of these; the speed-up is of "
        "solved seeds alone. More processes than cores share them. Source: measured on "
        f"{about.cpu}, {about.cores} cores, at {commits}."
    )
    return style.few_ticks(style.captioned(figure, note))


FIGURE_AXES = {
    "episodes": "episodes of all copies until solved", "seconds an episode": "seconds an episode",
    "minutes": "minutes until solved", "speed-up": "times as fast as one copy",
}  # fmt: skip


def _finished(figure: Figure, rows: pd.DataFrame, about: About, more: str) -> Figure:
    seeds = rows.groupby("kind")["seed"].nunique()
    count = f"{seeds.min()}" if seeds.nunique() == 1 else f"{seeds.min()} to {seeds.max()}"
    note = (
        f"{rows['workload'].iloc[0]}, {count} seeds each. Lines: medians over seeds; bands: from the lowest to the "
        f"highest; a run that was solved may have ended before the others. {more} Source: measured on {about.cpu}, "
        f"{about.cores} cores, at {', '.join(sorted(set(rows['commit'])))}."
    )
    return style.few_ticks(style.captioned(figure, note))


COMMAND = "python -m benchmarks run learning"
HEAD = (
    "run", "seeds solved",
    *(f"{name.replace('_', ' ')}{unit and f' ({unit})'}" for name, (unit, _) in ALL_METRICS.items()),
)  # fmt: skip
READING = (
    "Runs of a workload as it is shipped, by several seeds, one gradient step in update_interval environment steps "
    "(measured). A run is solved at the first evaluation whose mean reaches the workload's threshold. The five metrics "
    "of [Zhang2022, 1.5]: policy quality, the mean return of the best weights on fresh episodes; sample and learning "
    "efficiency, the environment and gradient steps until solved; computation efficiency; and the scaling factor, the "
    "speedup over one learner apart, seed by seed, divided by the learners: 1 is perfect. Stale: mean over a run of "
    "the gradient steps by which actors' weights and learners' batches were behind. Medians over seeds, in brackets "
    "their 95 % bootstrap intervals, in which a seed that was not solved counts as beyond its last evaluation (>); "
    f"fewer than {LEAST_SEEDS} seeds have no interval, and each one's number is there."
)
READINGS = {
    "learning_depths": (
        "Returns over environment steps with D batches sampled ahead, and the speedup of training over that with "
        "none, seed by seed, as [Zhang2023, Fig. 10] asks."
    ),
    "learning_copies": (
        "Serial loops in processes of their own whose weights meet, as in [StoneSachdev, Figs. 1 to 4]: episodes of "
        "all copies, seconds an episode and minutes until solved, and the speed-up over one copy, seed by seed."
    ),
    "learning_rollouts": (
        "Returns of MEMR over environment steps, as [Zhang2022, Fig. 3.6] asks: by the exponent of priorities, and "
        "with one segment of model rollouts instead of many, next to SAC of the same settings."
    ),
    "learning_arrangements": (
        "Returns over environment steps and over seconds of training, by arrangement and by how two learners combine."
    ),
}


def section(material: Material) -> str:
    """Return everything known about learning by several processes, as HTML."""
    runs = latest(material.measurements)
    failed = untimed(material.measurements, PRIMITIVE)
    if not runs and not failed:
        why = paragraph(f"Left out: no run was kept; {how_to_measure('run learning')}.")
        return why + paragraphs(material.missing(CHARTS))
    found = metrics_of(runs)
    body = "".join(paragraph(sentence) for sentence in _answers(found))
    body += paragraph(f"{READING} {_origin(runs)}") if runs else ""
    rows = [(", ".join(key), *write_metrics(metrics, ALL_METRICS)) for key, metrics in found.items()]
    body += table(HEAD, rows) if runs else ""
    if reached := figures_of(runs):
        body += paragraph(READINGS["learning_copies"]) + table(
            ("copies", "seeds solved", *FIGURES), [tuple(row) for row in write_figures(reached)]
        )
    several = dict.fromkeys(task for (task, _), metrics in found.items() if metrics["scaling_factor"])
    body += "".join(paragraph(_formulas(material, workload)) for workload in several)
    body += material.pictures(CHARTS) + paragraph(_predicted(material, runs)) if runs else ""
    lost = [f"Failed, {one.options.get('kind')}, seed {one.options.get('seed')}: {one.reason}" for one in failed]
    lost += [
        f"Restarted, {one.options['kind']}, seed {one.options['seed']}: {plural(count, 'process')}"
        for one in runs
        if (count := one.metrics.get("restarts"))
    ]
    body += paragraphs(material.missing(CHARTS)) + items(lost) * bool(lost)
    if not (factors := learning_runs.step_rows(material.measurements)):
        return body
    return body + paragraph(ALONE) + table(learning_runs.STEP_HEAD, list(learning_runs.write_step_rows(factors)))


ALONE = (
    "Gradient steps of one and of two learners alone, each on a core and with a bank of its own, from a full replay "
    "while actors stand still; weights are averaged every H steps. A scaling factor is the speedup over one learner "
    "divided by the learners, in brackets as far as the intervals of both times allow. Eqs. 5.2 and 5.5 of [Zhang2022] "
    "are given the times of one learner on B and on B / 2 records, and of an average; Eq. 5.6 is as printed. Measured; "
    "the formulas' factors are modeled."
)


def _answers(found: Reached) -> Iterator[str]:
    """Say for each workload which kinds of run every seed solved, and which seeds of others did not."""
    for workload in dict.fromkeys(task for task, _ in found):
        lost = {kind: list_unsolved(metrics) for (task, kind), metrics in found.items() if task == workload}
        if every := [kind for kind, seeds in lost.items() if not seeds]:
            yield f"{workload} was solved by every seed: {'; '.join(every)}."
        for kind, seeds in lost.items():
            if seeds:
                solved, not_by = write_metrics(found[workload, kind])[0], ", ".join(map(str, seeds))
                yield f"{workload}, {kind}: {solved} solved, not seed{'s' * (len(seeds) > 1)} {not_by}."


def _origin(runs: Sequence[Record]) -> str:
    commits = ", ".join(sorted({commit_of(one, "with uncommitted changes") for one in runs}))
    return f"Source: measured on {runs[-1].machine.get('cpu')}, {runs[-1].machine.get('cores')} cores, at {commits}."


def _formulas(material: Material, workload: str) -> str:
    """Say what ``dse learners`` predicts of two learners, and what the formulas of [Zhang2022] give."""
    try:
        question = ask(material.folder / "platform.toml", workload, results=material.results)
        answer = learner_scaling(question)
    except (ProblemError, RecordError, PlatformError) as error:
        return f"python -m dse learners gives no scaling factor of {workload} here: {error}."
    (_, horizon), single = answer.choose([2], LONGEST), 1e6 * single_seconds(answer.terms)
    gathering, averaging = data_parallel_factor(answer.terms, 2), spo_factor(answer.terms, 2, LONGEST)
    return (
        f"python -m dse learners predicts for two {answer.by} learners of {workload}, processes next to "
        f"{plural(answer.processes.actors, 'actor')} on {answer.processes.cores} cores, a scaling factor of "
        f"{answer.factor(2, None):.2f} where they gather gradients at each step, of {answer.factor(2, horizon):.2f} "
        f"where they average weights every {horizon} steps (one takes {single:,.0f} us). With a core for each and no "
        f"waits, the formulas of [Zhang2022] give {gathering:.2f}, and {averaging:.2f} with H = {LONGEST}."
    )


def _predicted(material: Material, runs: Sequence[Record]) -> str:
    """Set the gain that the solver's times predict for each D next to the measured one."""
    gains = gains_of(of_depths(runs))
    if gains.empty:
        return ""
    workload = str(gains["workload"].iloc[0])
    try:
        rates = predicted(material, workload)
    except (ProblemError, RecordError, PlatformError) as error:
        return f"python -m dse depth predicts no gain by D for {workload} here: {error}."
    parts = []
    for depth, part in gains[gains["presampled"] > 0].groupby("presampled"):
        known = max(at for at in rates if at <= depth)
        parts.append(f"D = {depth}: {rates[known] / rates[0]:.2f} predicted, {part['gain'].median():.2f} measured")
    return f"Gain over sampling none ahead, predicted from this machine's records of the parts: {'; '.join(parts)}."


def predicted(material: Material, workload: str) -> dict[int, float]:
    """Return gradient steps/s by D, simulated with exact times of the pipelined arrangement, actors aside.

    ProblemError where no such mapping fits; RecordError or PlatformError where the machine is not known.
    """
    answer = platform_depth(
        material.folder / "platform.toml", workload, 0.0, fix={"arrangement": "pipelined"}, results=material.results,
    )  # fmt: skip
    return {row.label["depth"]: row.number["value"] for row in answer.rows if "depth" in row.label}


def _rows(select: Any) -> Any:
    return lambda material: select(latest(material.measurements))


CHARTS = (
    Chart("learning_depths", _rows(of_depths), depths, READINGS["learning_depths"], COMMAND),
    Chart(
        "learning_arrangements", _rows(of_arrangements), arrangements,
        READINGS["learning_arrangements"], COMMAND,
    ),
    Chart("learning_copies", _rows(of_copies), copies, READINGS["learning_copies"], f"{COMMAND} --only copies"),
    Chart("learning_rollouts", _rows(of_rollouts), rollouts, READINGS["learning_rollouts"], f"{COMMAND} --only memr"),
)  # fmt: skip
SECTIONS = (Section(82, "Learning by several processes", section, (PRIMITIVE,)),)
