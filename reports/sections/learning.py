"""Learning curves: uniform against prioritized replay, batches sampled ahead, copies of the loop, model rollouts."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from dse import learning_runs
from dse.learning_runs import ALL_METRICS, FIGURES, figures_of, label_kind, write_figures, write_metrics
from impls.files import list_files

from ..figure import Figure, Section, Table
from ..frame import Data

STEPS = "environment steps"
COPIED = {"episodes": "episodes until solved", "minutes": "minutes until solved"}
REACHED = {"per_second": "gradient steps/s", "m_test_mean": "return of the trained policy"}
ROLLOUTS = {"alpha": "MEMR: return by priorities", "segments": "MEMR: return by segments"}
NAMED = {"pendulum_sac": "SAC", "pendulum_memr": "MEMR", "pendulum_mbpo": "MBPO"}
CHANGED = ("alpha", "segments", "updates", "model_kind")
"""Options that the record of a run of a model has only where the run changes what its workload says."""
COUNTED = {"x": STEPS, "updates": "gradient steps", "rollouts": "records that the model made"}
SOURCE = ["machine", "commit", "utc", "source"]
NAMES = "workload kind seed presampled library actor_nodes count transport model_workers learners arrangement processes"
OPTIONS = [f"o_{name}" for name in [*NAMES.split(), "sync", "every"]]
POINT = [*SOURCE, "panel", "kind", "seed", "x", "value", "x_label"]


def read_curves(data: Data) -> pd.DataFrame:
    """Read every evaluation of the serial runs that machines keep, a row each.

    ``best``: the highest mean return of an evaluation so far. ``solved_steps``: NaN for a run that was not solved.
    """
    parts = [pd.DataFrame(columns=["machine", "workload", "learner", "step", "best", "replay", "seed"])]
    for path in list_files(data.results, "*/training/*/*/summary.json"):
        curve = path.with_name("curve.csv")
        run = {"learner": "torch", **json.loads(path.read_text(encoding="utf-8"))}
        kept = {name: run.get(name) for name in "workload learner alpha seed utc solved_at test_mean".split()}
        kept |= {"solved_steps": run.get("sample_efficiency"), "replay": "prioritized" if run["alpha"] else "uniform"}
        kept |= {"machine": path.parents[3].name, "commit": None, "source": "measured"}
        if curve.is_file():
            parts.append(pd.read_csv(curve).assign(**kept, best=lambda rows: rows["mean_score"].cummax()))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def compare_replays(data: Data) -> pd.DataFrame:
    """Select the curves of workloads that learned with both replays, by the learner with the most of them."""
    rows = read_curves(data)
    rows = rows[rows.groupby(["machine", "workload", "learner"])["replay"].transform("nunique") > 1]
    usual = rows.groupby(["machine", "workload"])["learner"].transform(lambda names: names.value_counts().index[0])
    rows = rows[rows["learner"] == usual]
    return rows.assign(y_label=[f"best return (solved: {value:,g})" for value in rows.get("solved_at", [])])


CURVES = Figure(
    "training_curves", "Does prioritized replay learn faster than uniform replay?", "step", "best", hue="replay",
    make=compare_replays, panels=("workload",), kind="curve", own_axes=True, labels=(STEPS, ""),
    reading="Median and quartiles over seeds; a run keeps the weights of its best evaluation.",
    command="python -m impls.training train cartpole_dqn --alpha 0 "
    "--out results/KEY/training/cartpole_dqn/alpha0-seed0",
)  # fmt: skip


def say_which_learns_faster(data: Data) -> str:
    """Compare the environment steps until solved of both replays by a rank test; a run not solved comes last."""
    from scipy.stats import mannwhitneyu  # noqa: PLC0415  # heavy

    said = []
    for workload, part in data.select(CURVES).groupby("workload"):
        runs = part.drop_duplicates(["replay", "seed"])
        until = runs["solved_steps"].astype(float).fillna(float("inf")).groupby(runs["replay"])
        median, seeds = until.median().map("{:,.0f}".format).replace("inf", "more than all"), until.size()
        p_value = mannwhitneyu(*(steps for _, steps in until)).pvalue
        said.append(
            f"{workload}: {seeds['prioritized']} prioritized runs took a median of {median['prioritized']} {STEPS} to "
            f"be solved, {seeds['uniform']} uniform runs {median['uniform']}; the difference "
            f"{'is no chance' if p_value < 0.05 else 'may be chance'} (rank test, p = {p_value:.2g})."
        )
    return " ".join(said)


def select_runs(data: Data) -> pd.DataFrame:
    """Select the newest run of each machine, workload, kind and seed."""
    runs = data.frame[data.frame["primitive"] == learning_runs.PRIMITIVE]
    return runs.reindex(columns=[*SOURCE, *OPTIONS, *REACHED, "record"]).drop_duplicates(
        ["machine", *OPTIONS[:3]], keep="last"
    )


def list_depths(data: Data) -> pd.DataFrame:
    """List the rate and the final return of runs with one learner, by the batches D that are sampled ahead."""
    runs = select_runs(data).query("o_learners == 1 and o_count != o_count and o_transport == 'shared'")
    runs = runs[(runs["o_kind"] == "apart") | (runs["o_arrangement"] == "pipelined")]
    several = runs.groupby(["machine", "o_workload"])["o_presampled"].transform("nunique") > 1
    return _list_values(runs[several].rename(columns=REACHED), "o_workload", "o_presampled", REACHED)


def _list_values(runs: pd.DataFrame, kind: str, x: str, panels: Mapping[str, str]) -> pd.DataFrame:
    """Return a row for each of several columns of runs: ``panel`` names the column, ``value`` is its value."""
    rows = runs.rename(columns={kind: "kind", x: "x", "o_seed": "seed"})
    return rows.melt([*SOURCE, "kind", "seed", "x"], list(panels.values()), "panel").dropna(subset="value")


def list_copies(data: Data) -> pd.DataFrame:
    """List copies of the loop and workers of a model by the figures of [StoneSachdev], over seeds."""
    reached = select_runs(data).groupby("machine")["record"].agg(lambda runs: write_figures(figures_of(list(runs))))
    rows = [(machine, *row) for machine, rows in reached.items() for row in rows]
    return pd.DataFrame(rows, columns=["machine", "copies", "seeds_solved", *FIGURES])


def _draw_copies(data: Data) -> pd.DataFrame:
    """Select copies of the workload with most runs, at the interval k of averages that most numbers of copies have."""
    runs = select_runs(data).query("o_arrangement == 'copies' and o_model_workers != o_model_workers")
    runs = runs[runs["o_workload"] == next(iter(runs["o_workload"].value_counts().index), "")]
    reached = [figures_of([record]).popitem()[1] for record in runs["record"]]
    values = {text: [next(iter(figures[name].values())).number for figures in reached] for name, text in COPIED.items()}
    runs, is_single = runs.assign(**values), runs["o_processes"] == 1
    usual = runs[~is_single].groupby("o_every")["o_processes"].nunique().sort_values().index[-1:]
    several = runs[~is_single & runs["o_every"].isin(usual)]
    starts = [runs[is_single].assign(o_sync=sync) for sync in several["o_sync"].unique()]  # of each line
    return _list_values(pd.concat([several, *starts]), "o_sync", "o_processes", COPIED)


def _cut(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep points as far as every run of a line got: runs end once solved, so that those left would be the worst."""
    line = ["machine", "panel", "kind"]
    last = rows.groupby([*line, "seed"])["x"].transform("max")
    return rows[rows["x"] <= last.groupby([rows[name] for name in line]).transform("min")]


def list_depths_and_copies(data: Data) -> pd.DataFrame:
    """List what batches sampled ahead gain and cost, and what copies of the loop gain."""
    depths, copies = list_depths(data), _draw_copies(data)
    return pd.concat([depths.assign(x_label="batches sampled ahead D"), copies.assign(x_label="copies of the loop")])


def _draw_rollouts(data: Data) -> pd.DataFrame:
    """Select the best return so far of MEMR, by the exponent of its priorities and by segments of its rollouts."""
    parts = []
    for changed, points in _read_points(data, "pendulum_memr"):
        for name, text in ROLLOUTS.items():
            if changed.keys() <= {name}:
                kind = f"{name} = {changed[name]:g}" if changed else "as shipped"
                parts.append(points.assign(kind=kind, panel=text, value=points["value"].cummax()))
    return pd.concat(parts) if parts else pd.DataFrame(columns=POINT)


def _read_points(data: Data, task: str) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Yield the ``CHANGED`` options of each serial run of a workload that was evaluated most often, and its points."""
    runs = select_runs(data)
    runs = runs[(runs["o_workload"] == task) & (runs["o_arrangement"] == "serial") & runs["o_library"].isna()]
    grid = min((record.metrics["interval"] for record in runs["record"]), default=0)
    for _, run in runs.iterrows():
        metrics, options = run["record"].metrics, run["record"].options
        if metrics["interval"] > grid:
            continue
        points = pd.DataFrame(metrics["points"], columns=["x", "updates", "seconds", "value"])
        points = points.assign(x=points["x"] // metrics["interval"] * metrics["interval"], x_label=STEPS)
        points = points.assign(**run[SOURCE], seed=run["o_seed"], rollouts=metrics.get("rollouts"))
        yield {name: options[name] for name in CHANGED if name in options}, points


def list_models(data: Data) -> pd.DataFrame:
    """List returns of SAC, MEMR and MBPO over what they count, and of the latter two by gradient steps G a step.

    Of MEMR also by the exponent of its priorities, and by segments.
    """
    parts, ratios = [pd.DataFrame(columns=POINT)], set[int]()
    for task, name in NAMED.items():
        for changed, points in _read_points(data, task):
            if changed.keys() <= {"model_kind"}:
                of_model = points.assign(kind=f"{name} with {changed['model_kind']}" if changed else name)
                for count, label in COUNTED.items():
                    parts.append(of_model.assign(x=points[count], x_label=label, panel=f"return over {label}"))
            if changed.keys() <= {"updates"} and name != "SAC":
                taken = points[["x", "updates"]].iloc[[0, -1]].diff().iloc[-1]
                steps = round(taken["updates"] / taken["x"]) if taken["x"] else 0
                ratios.add(steps)
                parts.append(points.assign(kind=f"G = {steps}", panel=f"{name} by gradient steps G a step"))
    rows = _cut(pd.concat([*parts, _draw_rollouts(data)]).dropna(subset="x").reindex(columns=POINT))
    order = [*(f"return over {label}" for label in COUNTED.values()), *rows["panel"].unique()]
    kinds = dict.fromkeys([*(f"G = {steps}" for steps in sorted(ratios)), *sorted(rows["kind"].unique())])
    return rows.assign(
        panel=pd.Categorical(rows["panel"], [*dict.fromkeys(order)]), kind=pd.Categorical(rows["kind"], [*kinds])
    )


def list_kinds(data: Data, column: str = "") -> pd.DataFrame:
    """List what each kind of run reached: seeds solved, and medians over seeds with their 95 % intervals.

    ``column``: an option; only runs that have it, and plain runs of the same workloads.
    """
    runs, rows = select_runs(data), []
    if column:
        tasks, plain = runs[runs[column].notna()]["o_workload"], runs["o_kind"].isin(["serial", "apart"])
        runs = runs[runs[column].notna() | runs["o_workload"].isin(tasks) & plain]
    for machine, part in runs.groupby("machine"):
        placed = [run for run in part["record"] if "cores" in (run.metrics.get("report") or ())]
        labels = {run.options["kind"]: label_kind(run) for run in placed}
        for (workload, kind), metrics in learning_runs.metrics_of(list(part["record"])).items():
            rows.append((machine, workload, labels.get(kind, kind), *write_metrics(metrics, ALL_METRICS)))
    units = [f"{name}{unit and f' ({unit})'}" for name, (unit, _) in ALL_METRICS.items()]
    return pd.DataFrame(rows, columns=["machine", "workload", "kind", "seeds_solved", *units])


def list_serial_runs(data: Data) -> pd.DataFrame:
    """List the serial runs that machines keep, a row each."""
    columns = ["machine", "workload", "learner", "alpha", "seed", "step", "best", "test_mean", "solved_steps"]
    return read_curves(data).drop_duplicates(columns[:5], keep="last").reindex(columns=columns)


RUN, SEEDS = "python -m benchmarks run learning", "Median and quartiles over seeds"
SECTIONS = (
    Section(
        "Does prioritized replay learn faster?",
        "A run is solved at the first evaluation whose mean return reaches the workload's threshold.",
        says=say_which_learns_faster,
        figures=(
            CURVES,
            Figure(
                "learning", "What do batches sampled ahead and copies of the loop gain?", "x", "value", hue="kind",
                make=list_depths_and_copies, panels=("panel",), kind="curve", own_axes=True, labels=("", ""),
                reading=f"{SEEDS}; a run that was not solved counts as far as it got. D batches are drawn before the "
                "priorities of the batches in front of them are known. Compare [Zhang2023, Fig. 10]. Copies share the "
                "cores, and update weights under a lock, without one (hogwild) or through a server [StoneSachdev].",
                command=f"{RUN} --only depths,copies",
            ),
            Figure(
                "model_rollouts", "Does SAC learn faster from a model of the environment?", "x", "value", hue="kind",
                make=list_models, panels=("panel",), kind="curve", own_axes=True, labels=("", "mean return"),
                reading=f"{SEEDS} of an evaluation's mean return. MEMR makes rollouts of one step from states that are "
                "chosen by priorities, MBPO rollouts of k steps from states of equal chance; G are gradient steps for "
                "each environment step. By priorities and segments a return is the best so far. Compare [Zhang2022, "
                "Figs. 3.5 and 3.6].", command=f"{RUN} --only memr,rollouts",
            ),
        ),
        tables=(
            Table("runs", "Every kind of run: seeds solved, steps until solved, rates", list_kinds),
            Table("serial_runs", "Every serial run that a machine keeps", list_serial_runs),
            Table("library_runs", "Runs by other libraries", partial(list_kinds, column="o_library")),
            Table("node_runs", "Runs over several nodes", partial(list_kinds, column="o_actor_nodes")),
            Table("copies", "Copies of the loop by the figures of [StoneSachdev]", list_copies),
        ),
    ),
)  # fmt: skip
