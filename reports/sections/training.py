"""The page's section about training: times of primitives, the tree's share of a step, and the kept training runs."""

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from dse import stats
from dse.records import Record, in_order, twins
from dse.times.cells import workloads
from dse.times.curves import flat_then_linear
from impls.files import list_files
from impls.training.weights import step_macs
from reports.claims.peer_claims import is_ours

from .. import style
from ..chart import Chart, Material, Section, measured
from ..markup import items, named, paragraph, paragraphs, table
from ..tidy import About, commit_of, short, sources_of, tidy, timed, untimed
from . import training_figures as figures

COMMAND = "python -m benchmarks profile --workload cartpole_dqn"
SINGLE = (
    ("env step", "environment step"),
    ("inference act", "inference"),
    ("actor step", "actor step"),
    ("learner step", "gradient step"),
    ("product step", "product of matrices"),
    ("loop step", "whole loop"),
    ("numba draw", "tree, draw"),
    ("numba update", "tree, update"),
    ("storage gather", "storage, gather"),
    ("storage write", "storage, write"),
    ("weights publish", "weights, publish"),
    ("weights fetch", "weights, fetch"),
)
ACTOR, LOOP, LEARNING, TREE = "actor", "loop", "learning", "tree"
OURS, BY_OTHER = "numba", figures.COMPILED  # the tree of the whole loop; who else learns and acts in it
SHARE_HEAD = ("workload", "tree", "step (us)", "in the tree (us)", "share of the step", "95 % interval", "")
ROWS = ("workload", "primitive", "by", "of", "microseconds a call", "95 % interval", "calls/s", "")


def section(measurements: Sequence[Record], pictures: str, left_out: Sequence[str]) -> str:
    """Return the section as HTML around its figures, or the command that would measure it."""
    names = (figures.PRIMITIVE, f"{figures.PRIMITIVE}_again")
    kept = [record for record in timed(measurements) if record.primitive in names]
    shares_table = share_table(measurements)
    body = shares_table or paragraph(f"Left out: no training system was profiled; this would: {COMMAND}.")
    if kept:
        frame = tidy(kept)
        body = _origin(kept) + pictures + _singles(frame) + _products(kept) + _knees(frame) + shares_table
    not_timed = (
        f"Not timed, {cell.options.get('workload')}, {cell.contestant} {cell.op} of B = {cell.batch:,}: {cell.reason}"
        for cell in untimed(measurements, figures.PRIMITIVE)
    )
    return body + paragraphs(left_out) + items(not_timed)


def _origin(kept: Sequence[Record]) -> str:
    pairs = twins(kept, figures.PRIMITIVE)
    dirty = ", with uncommitted changes" if any(record.run.dirty for record in kept) else ""
    commits = ", ".join(sorted({commit_of(record) for record in kept}))
    return paragraph(
        f"Source: {sources_of(kept)} at {commits}{dirty}; the cells of a group took turns, each process on the cores "
        f"that its record names. The noise floor is {stats.noise_floor(pairs):.1%} ({len(pairs)} A/A pairs)."
    )


def _singles(frame: pd.DataFrame) -> str:
    """Return a table of the times without a curve: one row a primitive and workload, on one core."""
    rows = figures.alone(figures.parts(frame, *(part for part, _ in SINGLE), by=figures.BY))
    rows = figures.called(rows[rows["threads"] == 1], "us")
    lines = []
    for workload, group in rows.groupby("workload"):
        batches = group[group["part"] == "learner step"]["batch"]
        wanted = _workload_batch(frame, str(workload), batches)
        for part, name in SINGLE:
            some = group[group["part"] == part]
            if part in ("learner step", "numba draw", "numba update") and wanted:
                some = some[some["batch"] == wanted]
            for row in some.sort_values(["batch", "by"], ascending=[True, False]).itertuples():
                of = f"B = {row.batch:,}" if row.batch > 1 else row.via or "one"
                ends = f"{row.low_ns:,.1f} to {row.high_ns:,.1f}"
                rate = 1e6 / row.ns
                reason = row.reason if isinstance(row.reason, str) else ""
                remarks = "; ".join(word for word in ("" if row.status == "ok" else row.status, reason) if word)
                lines.append((workload, name, row.by, of, f"{row.ns:,.1f}", ends, f"{rate:,.0f}", remarks))
    return paragraph("One process on one core (measured):") + table(ROWS, lines)


@dataclass(frozen=True)
class ProductBound:
    """A gradient step of B records, and how many products of [H, H] and [H, B] it takes, each in ``product_seconds``.

    Narrow first and last layers count by their multiply-adds, as if they were as fast.
    """

    workload: str
    learner: str
    batch: int
    step_seconds: float
    product_seconds: float
    products: float

    @property
    def share(self) -> float:
        """The share of the step that products take: no step of the same kernel is faster than that part."""
        return self.products * self.product_seconds / self.step_seconds


def product_bounds(measurements: Sequence[Record]) -> list[ProductBound]:
    """Return the bound of each workload whose product was timed, by its newest records."""
    newest: dict[tuple[str, str, str, str, int], Record] = {}
    for record in in_order(measurements):
        if record.primitive == "training" and record.median_seconds and record.threads == 1:
            name, own, learner = (str(record.options.get(key)) for key in ("workload", "identity", "learner"))
            newest[name, own, learner, record.contestant, record.batch] = record
    bounds, told = [], workloads(newest.values())
    for (workload, own, learner, contestant, batch), product in sorted(newest.items()):
        step, known = newest.get((workload, own, learner, "learner", batch)), told.get((workload, own))
        if contestant == "product" and step and known:
            products = step_macs(known) / known.network.hidden[-1] ** 2
            bounds.append(ProductBound(workload, learner, batch, step.seconds, product.seconds, products))
    return bounds


def _products(kept: Sequence[Record]) -> str:
    """Return which share of a compiled gradient step matrix products take, a line a workload."""
    lines = [
        f"{one.workload}: a step of B = {one.batch:,} by {one.learner} takes {1e6 * one.step_seconds:,.1f} us, "
        f"{one.share:.0%} of it for {one.products:.1f} products of {1e6 * one.product_seconds:,.1f} us each; "
        f"without anything else it would be {1 / one.share:.2f} times faster."
        for one in product_bounds(kept)
    ]
    sentence = (
        "Which share of a step products of matrices take, all counted as products of the last hidden layers (product "
        "measured; count modeled, as if narrow layers were as fast):"
    )
    return paragraph(sentence) + items(lines) if lines else ""


def _workload_batch(frame: pd.DataFrame, workload: str, batches: "pd.Series[int]") -> int:
    """Return the workload's own batch: that of its loop and of a learner under load; 0 where neither was timed."""
    rows = figures.parts(frame, "learner step", "loop step")
    is_own = (rows["workload"] == workload) & ((rows["part"] == "loop step") | (rows["beside"] != ""))
    own = set(rows[is_own]["batch"]) & set(batches)
    return int(max(own, default=0))


def _knees(frame: pd.DataFrame) -> str:
    """Return a table of the batch from which each line of time over the batch grows."""
    rows = figures.over_batch(frame)
    lines = []
    for (workload, part, by, threads), line in rows.groupby(["workload", "part", "by", "threads"]):
        if line["batch"].nunique() < 3:
            continue
        law = flat_then_linear(line["batch"].tolist(), line["ns"].tolist())
        off = max(abs(law.seconds(b) / ms - 1) for b, ms in zip(line["batch"], line["ns"], strict=True))
        knee = f"{law.knee:,.0f}" if law.knee else "none"
        fits = (f"{law.fixed_seconds:.3g}", f"{1e3 * law.each_seconds:.3g}", f"{off:.0%}")
        shaky = f"{(line['status'] == 'unstable').sum()} of {len(line)}"
        lines.append((workload, part.replace(" step", "").replace(" act", ""), by, threads, knee, *fits, shaky))
    fitted = ("knee B", "fixed (ms)", "each record (us)", "worst error of the fit", "unstable cells")
    head = ("workload", "what", "by", "threads", *fitted)
    sentence = "Time over the batch is flat, then linear; fitted, fixed + each x B, to the measured times:"
    return paragraph(sentence) + table(head, lines) if lines else ""


@dataclass(frozen=True)
class Share:
    """One tree's share of a workload's step with its 95 % interval, and the microseconds of both."""

    workload: str
    contestant: str
    step_us: float
    tree_us: float
    share: float
    low: float
    high: float
    is_unstable: bool
    whole_us: float | None = None  # the loop as it trains, on the numba tree
    is_whole_unstable: bool = False
    other_us: float | None = None  # the same loop with learner and policy by dense

    @property
    def most_gain(self) -> float:
        """The speedup of a step if the tree took no time: 1 / (1 - share), all that is to be had."""
        return 1 / (1 - self.share)


def shares(measurements: Sequence[Record]) -> list[Share]:
    """Return every tree whose parts of a step were all timed in one run, by workload, the smallest share first.

    A step is update_interval steps of an actor and what learning takes. Tree and learning are two readings of the same
    samples, so both are resampled by the same seed; actors' samples are their own. Learner and policy are torch's; a
    whole loop by others was timed in the same run.
    """
    runs: dict[tuple[str, str, str], dict[tuple[str, str], Record]] = defaultdict(dict)
    for record in measurements:
        by = str(record.options.get("learner", figures.REFERENCE))
        if record.primitive == figures.SHARE and record.median_seconds is not None:
            run = (str(record.options["workload"]), record.run.code or "", record.run.command)
            runs[run][record.contestant, record.op if by == figures.REFERENCE else by] = record
    made = []
    for (workload, _, _), cells in runs.items():
        actor = cells.get((ACTOR, "step"))
        for contestant, op in cells:
            pair = [cells.get((contestant, name)) for name in (LEARNING, TREE)]
            if op == TREE and actor and pair[0] and pair[1]:
                made.append(_share(workload, actor, pair[0], pair[1], cells))
    return sorted(made, key=lambda record: (record.workload, record.share))


def _share(
    workload: str,
    actor: Record,
    learning: Record,
    tree: Record,
    cells: Mapping[tuple[str, str], Record],
) -> Share:
    interval = int(tree.options["update_interval"])
    acting = interval * stats.bootstrap_medians(actor.samples_seconds, seed=1)
    learnt, spent = (stats.bootstrap_medians(record.samples_seconds, seed=0) for record in (learning, tree))
    low, high = stats.percentile_interval(spent / (learnt + acting))
    step = learning.seconds + interval * actor.seconds
    unstable = "unstable" in (actor.status, learning.status, tree.status)
    ratio = tree.seconds / step
    ends = min(low, ratio), max(high, ratio)
    whole, compiled = (cells.get((LOOP, name)) if tree.contestant == OURS else None for name in ("step", BY_OTHER))
    whole_us, shaky = (1e6 * whole.seconds, whole.status == "unstable") if whole else (None, False)
    other_us = 1e6 * compiled.seconds if compiled else None
    times = 1e6 * step, 1e6 * tree.seconds
    return Share(workload, tree.contestant, *times, ratio, *ends, unstable, whole_us, shaky, other_us)


def share_table(measurements: Sequence[Record]) -> str:
    """Return the table of shares as HTML; nothing where no step was timed."""
    kept = shares(measurements)
    if not kept:
        return ""
    rows = []
    for share in kept:
        part = (f"{share.share:.2%}", f"{share.low:.2%} to {share.high:.2%}", "unstable" if share.is_unstable else "")
        who = (share.workload, named(share.contestant, is_ours(share.contestant)))
        rows.append((*who, f"{share.step_us:,.0f}", f"{share.tree_us:,.1f}", *part))
    sentence = (
        "Which share of a serial training step is spent in the tree (measured, on one core, trees in alternation): the "
        "actor's steps, insertion, sampling, gathering, gradient step and new priorities; the tree's own calls are "
        "timed inside the step. [Zhang2021, Fig. 11] rests on this share. Bold is ours. Unstable, an interval that it "
        f"rests on is wide: {sum(share.is_unstable for share in kept)} of {len(kept)} rows."
    )
    left_out = {
        f"Not timed, {record.options['workload']}, {record.contestant}: {record.reason}"
        for record in untimed(measurements, figures.SHARE)
    }
    sums = [
        f"{share.workload}: the parts on the {OURS} tree add up to {share.step_us:,.0f} us; the whole loop, measured "
        f"in the same run, takes {share.whole_us:,.0f} us, {share.step_us / share.whole_us - 1:+.0%}"
        f"{' (unstable)' * (share.is_unstable or share.is_whole_unstable)}."
        + (f" With learner and policy by {BY_OTHER} it takes {share.other_us:,.0f} us." if share.other_us else "")
        for share in kept
        if share.whole_us
    ]
    most = max(kept, key=lambda share: share.share)
    sums.append(
        f"A tree that took no time at all would give a step a speedup of at most {most.most_gain:.2f}, 1 / (1 - "
        f"share): in place of {most.contestant} on {most.workload}{', unstable' * most.is_unstable}."
    )
    return paragraph(sentence) + table(SHARE_HEAD, rows) + items([*sums, *sorted(left_out)])


REACHED = ("mean return of 100 fresh episodes, a seed each", "solved from", "steps until then")
RATES = {"sampling_hz": "sampling (Hz)", "update_hz": "updates (Hz)", "update_frame_hz": "update frames (Hz)"}
RUNS_HEAD = ("workload", "alpha", "learner", "seeds", "steps", *REACHED, *RATES.values(), "CPU", "GPU", "wall time (s)")


def runs(machine: Path) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Return (summary, curve) of every finished run below ``machine/training``, in the order of their folders."""
    finished = []
    for path in list_files(machine / "training", "*/*/summary.json"):
        curve = path.with_name("curve.csv")
        finished.append((json.loads(path.read_text()), pd.read_csv(curve) if curve.exists() else pd.DataFrame()))
    return finished


def curves(machine: Path) -> pd.DataFrame:
    """Return a row an evaluation: workload, alpha, seed, step, mean_score, and the return that counts as solved."""
    parts = [
        curve.assign(
            **{name: summary[name] for name in ("workload", "alpha", "seed", "solved_at")}, learner=_learner_of(summary)
        )
        for summary, curve in runs(machine)
        if len(curve) > 1
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


@style.styled
def _draw_curves(rows: pd.DataFrame, about: About) -> Figure:
    """Draw the returns of evaluations over steps: the median of the seeds, and all of them as a band."""
    groups = dict(iter(rows.groupby("workload")))
    figure, panels = style.panels("What do the trained policies return?", list(groups), 5, sharey=False)
    for axes, (_, part) in zip(panels, groups.items(), strict=True):
        kinds = sorted(part.groupby(["alpha", "learner"]), key=lambda kind: (-kind[0][0], kind[0][1]))
        for position, ((alpha, learner), of_alpha) in enumerate(kinds):
            name = f"prioritized, alpha = {alpha:g}, by {learner}" if alpha else f"uniform, alpha = 0, by {learner}"
            style.band(axes, of_alpha, "step", "mean_score", name, position)
        if part["solved_at"].iloc[0] < rows["mean_score"].max() * 2:
            axes.axhline(part["solved_at"].iloc[0], color="0.3", linestyle=":", linewidth=1, label="solved")
        axes.set(xscale="linear", yscale="linear", xlabel="environment steps", ylabel="mean return of an evaluation")
        axes.xaxis.set_major_formatter(lambda value, _: short(value) if value else "0")
    seeds = ", ".join(f"{name}: {part['seed'].nunique()} seeds" for name, part in groups.items())
    note = f"Lines: medians over seeds; bands: from the lowest to the highest seed ({seeds}). Source: measured."
    return style.few_ticks(style.captioned(figure, note))


def table_of_runs(machine: Path) -> str:
    """Return the table as HTML; nothing where nobody has trained."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = defaultdict(list)
    for summary, _ in runs(machine):
        groups[summary["workload"], summary["alpha"], _learner_of(summary)].append(summary)
    if not groups:
        return ""
    sentence = (
        "Runs of the serial loop (measured). Those too short for an evaluation have rates alone: sampling counts steps "
        "of the environment, update frames are updates x batch. Medians over seeds."
    )
    return paragraph(sentence) + table(
        RUNS_HEAD, [_run_row(*key, summaries) for key, summaries in sorted(groups.items())]
    )


def _learner_of(summary: dict[str, Any]) -> str:
    """Return the implementation that learned; runs recorded before there were others are torch's."""
    return str(summary.get("learner", "torch"))


def _run_row(workload: str, alpha: float, learner: str, summaries: list[dict[str, Any]]) -> tuple[str, ...]:
    def median(name: str, unit: str = "") -> str:
        # A run that was killed between its last checkpoint and its summary has no rates.
        values = [summary["throughput"][name] for summary in summaries if summary["throughput"]]
        return "none" if not values or None in values else f"{statistics.median(values):,.0f}{unit}"

    tested = [f"{summary['test_mean']:.0f}" for summary in summaries if summary.get("test_episodes", 0) >= 100]
    until = [summary["sample_efficiency"] for summary in summaries if summary.get("test_episodes", 0) >= 100]
    solved = f"{summaries[0]['solved_at']:g}" if tested else ""
    reached = ", ".join(tested) or "not trained to an end", solved
    steps = ", ".join(f"{steps:,}" if steps else "never" for steps in until)
    used = (*map(median, RATES), median("cpu_percent", " %"), median("gpu_percent"))
    seconds = statistics.median(summary["seconds"] for summary in summaries)
    shape = (workload, f"{alpha:g}", learner, str(len(summaries)), f"{summaries[0]['steps']:,}")
    return *shape, *reached, steps, *used, f"{seconds:,.0f}"


READINGS = {
    "training_batch": "Left of the knee a larger batch costs little; right of it time grows as B does. [Zhang2023, "
    "Fig. 11] and [Zhang2022, Figs. 5.3 and 5.5] ask the same.",
    "training_tree": "Compare with a gradient step of the same batch. [Zhang2022, Fig. 5.2] asks the same.",
    "training_average": "A straight line through 0 would be proportional to k. [Zhang2022, Figs. 5.4 and 5.6] ask the "
    "same.",
    "training_beside": "On one core 2 is a fair half of it and nothing more; what lies above is lost to the caches. On "
    "cores of their own 1 is no loss; what lies above is what both share: caches, memory, and whatever else runs.",
    "training_curves": "A policy is tested at regular intervals, with no noise on its actions; the best one's weights "
    "are kept.",
}
"""How to read each figure."""
CHARTS = (
    Chart("training_batch", measured(figures.over_batch), figures.batch, READINGS["training_batch"], COMMAND),
    Chart("training_tree", measured(figures.of_trees), figures.trees, READINGS["training_tree"], COMMAND),
    Chart("training_average", measured(figures.over_models), figures.averages, READINGS["training_average"], COMMAND),
    Chart("training_beside", measured(figures.of_pairs), figures.beside, READINGS["training_beside"], COMMAND),
    Chart(
        "training_curves",
        lambda material: curves(material.folder),
        _draw_curves,
        READINGS["training_curves"],
        "python -m impls.training train cartpole_dqn --out results/{key}/training/cartpole_dqn/alpha0.6-seed0",
    ),
)


def _html(material: Material) -> str:
    body = section(material.measurements, material.pictures(CHARTS), material.missing(CHARTS))
    return body + table_of_runs(material.folder)


RUNS = "KEY/training/*"
SECTIONS = (Section(80, "Training primitives", _html, (figures.PRIMITIVE, figures.SHARE), (RUNS,)),)
