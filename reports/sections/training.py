"""What takes the time in a training step: its parts alone and beside each other, and the tree's share by library."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from dse import stats
from dse.records import Record
from dse.times.curves import flat_then_linear

from ..answer import divide_step
from ..draw import write_number
from ..figure import BATCH, Figure, Section, Table
from ..frame import Data
from ..tables import lack, name_other, spread

COMMAND = "python -m benchmarks profile --workload cartpole_dqn"
TORCH, DENSE = "torch", "dense"
MOST_WORKLOADS = 4
SLOWDOWNS = ("slowdown", "slowdown_low", "slowdown_high")
BESIDE = ("o_beside", "o_environments", "o_via", "o_units")
"""Options of parts that were timed beside others, or several at a time."""
STEP = "primitive == 'training' and contestant == 'learner' and op == 'step'"


def select_gradient_steps(data: Data) -> pd.DataFrame:
    """Select gradient steps over B, of at most four workloads of each machine: the smallest networks to the largest."""
    rows = lack(data.query(f"{STEP} and o_macs == o_macs"), *BESIDE)
    chosen = []
    for _, own in rows.groupby("machine"):
        several = own.groupby("o_workload").agg(macs=("o_macs", "max"), batches=("batch", "nunique"))
        names = several[several["batches"] > 1].sort_values("macs", kind="stable").index
        places = np.linspace(0, len(names) - 1, min(MOST_WORKLOADS, len(names))).round().astype(int)
        chosen.append(own[own["o_workload"].isin(names[places])])
    rows = pd.concat(chosen).sort_values("o_macs", kind="stable")
    names = [f"{name} ({macs:,.0f} MACs)" for name, macs in zip(rows["o_workload"], rows["o_macs"], strict=True)]
    return rows.assign(workload=pd.Categorical(names, list(dict.fromkeys(names))))


def fit_batches(data: Data) -> pd.DataFrame:
    """Fit a fixed time and a time for each record to every line over B, which is flat up to a knee.

    The knee is the B at which both are equal; the error is the largest of the fit, as a share of a measured time.
    """
    parts = "(contestant == 'learner' and op == 'step' or contestant == 'forward' and op == 'act')"
    rows = data.nearest(data.query(f"primitive == 'training' and {parts} and o_learner == o_learner"))
    made = []
    for key, line in lack(rows, *BESIDE).groupby(["o_workload", "contestant", "o_learner", "threads"]):
        if line["batch"].nunique() > 2:
            law = flat_then_linear(list(line["batch"]), list(line["seconds"]))
            error = max(
                abs(law.seconds(batch) / s - 1) for batch, s in zip(line["batch"], line["seconds"], strict=True)
            )
            made.append((*key, law.knee, 1e6 * law.fixed_seconds, 1e6 * law.each_seconds, 100 * error))
    columns = ["workload", "part", "learner", "threads", "knee B", "fixed us", "us a record", "error (%)"]
    return pd.DataFrame(made, columns=columns)


def share_trees(records: Iterable[Record]) -> pd.DataFrame:
    """Return a row for each tree whose parts of a step were all timed in one run, the smallest share first.

    A step is ``update_interval`` steps of an actor and learning, which contains the tree's calls: both are readings of
    the same calls, so they are resampled together. ``whole_us``: the loop as it trains, in the same run; ``dense_us``:
    the same loop where this project's code learns and acts.
    """
    runs: dict[tuple[Any, ...], dict[tuple[str, ...], Record]] = defaultdict(dict)
    for record in records:
        run = (record.options["workload"], record.run.code, record.run.command)
        runs[run][record.contestant, record.op, record.options.get("learner", TORCH)] = record
    made = []
    for (workload, _, _), cells in runs.items():
        actor = cells.get(("actor", "step", TORCH))
        wholes = [cells.get(("loop", "step", learner)) for learner in (TORCH, DENSE)]
        for (name, op, _), tree in cells.items():
            learning = cells.get((name, "learning", TORCH))
            if op == "tree" and actor and learning:
                us = [1e6 * loop.seconds if loop and name == "numba" else None for loop in wholes]
                made.append((workload, name, *_share(actor, learning, tree), *us))
    columns = ["workload", "tree", "step_us", "tree_us", "share", "share_low", "share_high", "status"]
    table = pd.DataFrame(made, columns=[*columns, "whole_us", "dense_us"])
    return table.sort_values(["workload", "share"], ignore_index=True)


def _share(actor: Record, learning: Record, tree: Record) -> tuple[Any, ...]:
    interval = int(tree.options["update_interval"])
    parts = [actor, learning, tree]
    share = stats.interval_of(lambda act, learn, spent: spent / (learn + interval * act), parts, seeds=(1, 0, 0))
    step = learning.seconds + interval * actor.seconds
    status = "unstable" if "unstable" in [part.status for part in parts] else "ok"
    return 1e6 * step, 1e6 * tree.seconds, *share, status


def list_shares(data: Data) -> pd.DataFrame:
    """List every tree's share of a step, the speedup by a tree in no time, and the whole loop beside its parts."""
    table = share_trees(data.find("serial_step"))
    beyond = 100 * (table["whole_us"].astype(float) / table["step_us"] - 1)
    return table.assign(most_speedup=1 / (1 - table["share"]), **{"whole beyond its parts (%)": beyond})


def compare_beside(data: Data) -> pd.DataFrame:
    """List the time of each part beside another part over its time alone in the same run.

    The ends are the ends of both intervals: wider than a bootstrap of the ratio, never too narrow.
    """
    beside = "o_beside == 'nothing' or o_cores == o_cores"
    rows = data.nearest(data.query(f"primitive == 'training' and op == 'step' and ({beside})"))
    learners = rows.get("o_learner", pd.Series(index=rows.index, dtype=object)).fillna("")
    rows = rows.assign(command=rows["record"].map(lambda record: record.run.command), learner=learners)
    keys = ["o_workload", "contestant", "learner", "batch", "commit", "command"]
    alone = rows[rows["o_beside"] == "nothing"]
    both = rows[rows["o_beside"] != "nothing"].merge(alone, on=keys, suffixes=("", "_alone"))
    both = both.assign(
        slowdown=both["us"] / both["us_alone"],
        slowdown_low=both["us_low"] / both["us_high_alone"],
        slowdown_high=both["us_high"] / both["us_low_alone"],
    )
    both = both.rename(columns={"contestant": "part"})
    columns = ["o_workload", "part", "o_beside", "o_cores", "learner", "batch", "us", *SLOWDOWNS]
    return both.sort_values(columns[:4], ignore_index=True)[columns]


def list_averages(data: Data) -> pd.DataFrame:
    """List the time to average the weights of k models in one process."""
    rows = data.nearest(data.query("primitive == 'training' and op == 'average' and o_models == o_models"))
    return spread(rows, ["o_workload", "o_parameters"], "o_models", name="us of {:.0f} models")


def say_parts(data: Data) -> str:
    """Say which part takes the most of a serial step, and what the tree takes."""
    steps = divide_step(data)
    if steps.empty:
        return ""
    times = steps.pivot(index="loop", columns="what", values="us")
    shares = 100 * times.div(times.sum(axis=1), axis=0)
    most = shares.median().idxmax()
    first, tree = (
        f"{write_number(shares[part].min())} to {write_number(shares[part].max())} %" for part in (most, "tree")
    )
    loops = f"{len(shares)} serial loops{name_other(data, steps)}"
    return f"The {most} takes {first} of a step and our tree {tree}, of {loops}."


SECTIONS = (
    Section(
        "What takes the time in a training step?",
        "Dense is compiled code of this project, torch is PyTorch; each part was timed in a process of its own.",
        figures=(
            Figure(
                "training_batch", "From which batch on does a gradient step take longer?", "batch", "ms",
                make=select_gradient_steps, hue="o_learner", panels=("workload",), holds=("threads",),
                labels=(BATCH, "ms per gradient step"), own_axes=True, command=COMMAND,
                reading="Lower is faster. Where a line is flat, a larger batch costs little; where it is steep, time "
                "grows as the batch does. MACs: multiplications of a forward pass, each with an addition. Compare "
                "[Zhang2023, Fig. 11] and [Zhang2022, Figs. 5.3 and 5.5].",
            ),
        ),
        tables=(
            Table("training_shares", "The tree's share of a step by library (learner: torch)", list_shares),
            Table("training_beside", "Parts beside each other, on one core or on a core each", compare_beside),
            Table("training_knees", "A fixed time and a time for each record, fitted", fit_batches),
            Table("training_averages", "Averages of weights", list_averages),
        ),
        says=say_parts,
    ),
)  # fmt: skip
