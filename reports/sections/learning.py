"""The kept training runs: their curves over environment steps, and what each reached and how fast."""

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from impls.writing import list_files

from .. import style
from ..markup import paragraph, table
from ..tidy import About, short

REACHED = ("mean return of 100 fresh episodes, a seed each", "solved from", "steps until then")
RATES = {"sampling_hz": "sampling (Hz)", "update_hz": "updates (Hz)", "update_frame_hz": "update frames (Hz)"}
HEAD = ("workload", "alpha", "learner", "seeds", "steps", *REACHED, *RATES.values(), "CPU", "GPU", "wall time (s)")


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
            **{name: summary[name] for name in ("workload", "alpha", "seed", "solved_at")}, learner=_by(summary)
        )
        for summary, curve in runs(machine)
        if len(curve) > 1
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


@style.styled
def draw(rows: pd.DataFrame, about: About) -> Figure:
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


def section(machine: Path) -> str:
    """Return the table as HTML; nothing where nobody has trained."""
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = defaultdict(list)
    for summary, _ in runs(machine):
        groups[summary["workload"], summary["alpha"], _by(summary)].append(summary)
    if not groups:
        return ""
    sentence = (
        "Runs of the serial loop (measured). Those too short for an evaluation have rates alone: sampling counts steps "
        "of the environment, update frames are updates x batch. Medians over seeds."
    )
    return paragraph(sentence) + table(HEAD, [_row(*key, summaries) for key, summaries in sorted(groups.items())])


def _by(summary: dict[str, Any]) -> str:
    """Return the implementation that learned; runs recorded before there were others are torch's."""
    return str(summary.get("learner", "torch"))


def _row(workload: str, alpha: float, learner: str, summaries: list[dict[str, Any]]) -> tuple[str, ...]:
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
