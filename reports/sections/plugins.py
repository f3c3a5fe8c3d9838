"""Other libraries' replay buffers and training steps on this project's trees, and our tree over a cluster."""

import pandas as pd

from dse.learning_runs import Value, write_over_seeds

from ..figure import Figure, Section, Table
from ..frame import Data
from ..tables import SPEEDUPS, add_speedups, keep_latest_code, name_other

OWN = ("theirs", "uniform")
"""Kinds of replay that are a library's own; a uniform replay has no tree."""
BUFFER, OURS = "buffer", "ours"
STEP = {True: "a step of the buffer", False: "a training step"}
COMMAND = "python -m benchmarks run plugins"


def select_steps(data: Data) -> pd.DataFrame:
    """Select the steps of each library on its own replay and on ours: of the buffer, and of training."""
    rows = find_steps(data).query(f"op == 'step' and o_kind in {[*OWN, OURS]}")
    is_buffer, library = rows["o_task"] == BUFFER, rows["contestant"]
    names = library.where(is_buffer, library + ", " + rows["o_task"])
    whose = rows["o_kind"].map({"ours": "our replay in its place"}).fillna("the library's own replay")
    uniform = rows["o_kind"].eq("uniform").groupby([rows["machine"], names]).transform("any")
    names = names + uniform.map({True: ", uniform", False: ""})
    return rows.assign(step=names, what=is_buffer.map(STEP), whose=whose)


def find_steps(data: Data) -> pd.DataFrame:
    """Find the steps of the machine that timed most libraries, of the latest code; of equals, the page's own."""
    rows = data.query("primitive == 'plugin' and o_kind == o_kind")
    counts = rows.groupby("machine")["contestant"].transform(lambda names: names.nunique())
    return keep_latest_code(data.nearest(rows[counts == counts.max()]))


def compare_steps(data: Data) -> pd.DataFrame:
    """List the speedup of each library's step on our trees, and the most that a tree which takes no time would give.

    A tree's share is the time inside its calls over the time of the step with it.
    """
    rows = find_steps(data)
    keys = ["contestant", "o_task"]
    trees = rows[rows["op"] == "tree"].set_index([*keys, "o_kind"])["us"].rename("tree_us")
    steps = add_speedups(rows[rows["op"] == "step"], keys, f"o_kind in {OWN}").join(trees, on=[*keys, "o_kind"])
    steps["share"] = steps["tree_us"] / steps["us"]
    own = steps[steps["o_kind"].isin(OWN)].set_index(keys)[["us", "share"]].rename(columns="own_{}".format)
    table = steps[~steps["o_kind"].isin(OWN)].join(own, on=keys)
    table["most_speedup"] = 1 / (1 - table["own_share"])
    columns = [*keys, "o_kind", "us", "own_us", *SPEEDUPS, "share", "own_share", "most_speedup", "status", "machine"]
    names = {"contestant": "library", "share": "tree_share", "own_share": "own_tree_share"}
    return table[columns].rename(columns=names)


def list_learned(data: Data) -> pd.DataFrame:
    """List how many seeds of a library's training were solved on each replay, and in how many steps.

    A seed that is not solved counts as beyond its last evaluation.
    """
    rows = data.nearest(data.query("primitive == 'plugin run' and o_kind == o_kind"))
    made = []
    for (library, task, kind), runs in rows.groupby(["contestant", "o_task", "o_kind"]):
        metrics = [record.metrics for record in runs["record"]]
        steps = [Value(run["solved_steps"] or run["points"][-1][0], not run["solved_steps"]) for run in metrics]
        solved = f"{sum(not value.is_beyond for value in steps)} of {len(steps)}"
        best = max(mean for run in metrics for *_, mean in run["points"])
        made.append((library, task, kind, solved, write_over_seeds(steps, ",.0f"), best))
    columns = ["library", "task", "replay", "seeds solved", "environment steps until solved", "best mean return"]
    return pd.DataFrame(made, columns=columns)


def compare_clusters(data: Data) -> pd.DataFrame:
    """List steps of a replay that is spread over the nodes of a cluster, and speedups over torchrl's over Ray."""
    rows = data.nearest(data.query("primitive == 'replay_sharded'"))
    both = add_speedups(rows, ["capacity", "batch", "op"], "contestant == 'torchrl_ray'")
    return both[["contestant", "capacity", "batch", "op", "us", "us_low", "us_high", *SPEEDUPS, "status"]]


def say_speedups(data: Data) -> str:
    """Say by how much our replay speeds up a buffer's step and a training step, over a library's own replay."""
    table = compare_steps(data)
    table = table[table["o_kind"] == OURS]
    table = table.assign(library=table["library"] + table["own_tree_share"].isna().map({True: " (uniform)", False: ""}))
    said = []
    for is_buffer, rows in table.groupby(table["o_task"] == BUFFER, sort=False):
        is_shown = (rows["speedup_low"] > 1) | (rows["speedup_high"] < 1)
        shown = rows[is_shown].sort_values("speedup", ascending=False)
        names = shown["library"] + ("" if is_buffer else " on " + shown["o_task"])
        ends = zip(names, *(shown[end] for end in SPEEDUPS), strict=True)
        factors = [f"{name} {speedup:.2f} [{low:.2f}, {high:.2f}]" for name, speedup, low, high in ends]
        others = ", ".join(sorted(set(rows["library"][~is_shown])))
        factors += [f"no difference is shown in {others}"] if others else []
        said.append(f"{STEP[bool(is_buffer)]}: {', '.join(factors)}")
    where = name_other(data, table)
    return f"Speedups with our replay in place of a library's own{where}: {'; '.join(said)}." if said else ""


SECTIONS = (
    Section(
        "Our replay inside other libraries",
        "Each library runs its own code on its replay and on ours, interleaved in one process on one core.",
        figures=(
            Figure(
                "plugins", "How long does a library's step take on its own replay and on ours?", "step", "us",
                make=select_steps, hue="whose", panels=("what",), kind="bar", labels=("", "us per step"),
                log=(False, True), own_axes=True, command=COMMAND,
                reading="Shorter is faster. A buffer's step inserts a record, samples a batch and updates its "
                "priorities; a training step also acts and learns. "
                "Compare [Zhang2021, Fig. 11].",
            ),
        ),
        tables=(
            Table("plugins_speedups", "Speedups by the whole replay; the most by a tree in no time", compare_steps),
            Table("plugins_learning", "What a library's training learns on each replay", list_learned),
            Table("replay_cluster", "A replay over the nodes of a cluster", compare_clusters),
        ),
        says=say_speedups,
    ),
)  # fmt: skip
