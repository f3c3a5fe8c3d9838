"""Whole replay buffers: alone, next to other libraries' buffers, and shared by threads and processes."""

import pandas as pd

from dse import stats
from dse.records import Record
from impls.replay.registry import strategies

from ..figure import Figure, Section, Table
from ..frame import Data
from ..tables import SPEEDUPS, add_speedups, keep_latest_code, name_other, spread

COMMAND = "python -m benchmarks run replay --only {}"
DEFAULT, GLOBAL = "two_lock_checked", "global"
NOT_RIGHT = ("none", "two_lock_lazy")
PAIRS = {"one": "one process", "two": "two processes", "apart": "a buffer each"}
SUMMED = ("insert", "sample", "update")
STEPS = {
    "sample": {"call": "call", "tree": "tree", "gather": "gather", "whole": "weights"},
    "update": {"call": "call", "priorities": "priorities", "whole": "tree"},
    "insert": {"call": "call", "whole": "row and tree"},
}
"""What each step adds to the step before, by operation and the last step that a record's kernel does."""


def select_buffers(data: Data, where: str) -> pd.DataFrame:
    """Select the rows of buffers that one machine's latest code timed, with the ``strategy`` or the library's name.

    Strategies that the project has no more are left out. NoRecordsError where there are none.
    """
    rows = data.query(where)
    names = rows.get("o_strategy", rows["contestant"]).fillna(rows["contestant"])
    reused = names.where(rows["contestant"] != "replay_reused", names + ", arrays reused")
    is_ours = rows["contestant"].str.startswith("replay")
    return keep_latest_code(data.nearest(rows.assign(strategy=reused)[~is_ours | names.isin(strategies())]))


def select_processes(data: Data) -> pd.DataFrame:
    """Select runs of processes that share a replay; a panel says from which number on they share cores too."""
    rows = select_buffers(data, "primitive == 'replay_processes' and op == 'run' and o_work_seconds >= 0")
    shares = rows["record"].map(lambda record: record.is_oversubscribed)
    crowded = f" (cores shared from {rows['threads'][shares].min()} on)" if shares.any() else ""
    sleeps = (1e6 * rows["o_work_seconds"]).map("{:.0f} us of sleep".format)
    return rows.assign(work=sleeps + crowded)


def select_flushes(data: Data) -> pd.DataFrame:
    """Select insertions of a cache that is flushed every n rows, alone and beside a learner."""
    rows = select_buffers(data, "primitive == 'replay_flush' and op == 'cache'")
    beside = {"nothing": "alone", "learner": "beside a learner"}
    return rows.assign(beside=rows["o_beside"].replace(beside))


def compare_locks(data: Data) -> pd.DataFrame:
    """List times of a gradient step by strategy and members, and speedups over one global lock with most members.

    Members are threads or processes. A superseded priority is one that another learner changed since it was drawn.
    """
    shared = "primitive in ('replay_threads', 'replay_processes') and o_work_seconds >= 0"
    rows = select_buffers(data, shared)
    rows = rows.assign(shared_by=rows["primitive"].str.removeprefix("replay_"), sleep_us=1e6 * rows["o_work_seconds"])
    keys = ["shared_by", "sleep_us", "strategy"]
    runs = rows[rows["op"] == "run"]
    most = runs[runs["threads"] == runs.groupby(keys[:2])["threads"].transform("max")]
    factors = add_speedups(most, keys[:2], f"strategy == {GLOBAL!r}")[[*keys, *SPEEDUPS]]
    table = spread(runs, keys, "threads", name="us with {}").merge(factors, how="left", on=keys)
    if "m_superseded" in rows:
        superseded = 100 * rows.groupby(keys)["m_superseded"].max()
        table = table.merge(superseded.rename("superseded priorities (%)"), how="left", on=keys)
    return table


def compare_buffers(data: Data) -> pd.DataFrame:
    """List the time of each call by buffer, their sum, and its slowdown over this project's buffer by default."""
    rows = select_buffers(data, "primitive == 'replay_operations'")
    calls = rows["op"] + "(" + rows["batch"].astype(str) + ")"
    table = spread(rows.assign(call=calls), ["strategy"], "call", name="us of {}")
    summed = rows[rows["op"].isin(SUMMED)].sort_values("batch").drop_duplicates(["strategy", "op"])
    records = {name: list(part["record"]) for name, part in summed.groupby("strategy") if len(part) == len(SUMMED)}
    ours = records.get(DEFAULT, [])
    sums = pd.DataFrame({name: _slow_down(own, ours) for name, own in records.items() if ours}).T
    sums.columns = ["us of " + " + ".join(SUMMED), "slowdown", "slowdown_low", "slowdown_high"][: len(sums.columns)]
    table = table.join(sums, on="strategy")
    return table if sums.empty else table.sort_values(sums.columns[0], ignore_index=True)


def _slow_down(own: list[Record], ours: list[Record]) -> tuple[float, ...]:
    """Return the microseconds of all calls, and their slowdown over ours with its 95 % interval."""
    slowdown = stats.interval_of(lambda *times: sum(times[: len(own)]) / sum(times[len(own) :]), [*own, *ours])
    return 1e6 * sum(record.seconds for record in own), *slowdown


def divide_calls(data: Data) -> pd.DataFrame:
    """List what each step of a call adds to the time of the step before it, and its share of the call."""
    rows = select_buffers(data, "primitive == 'replay_parts' and o_until == o_until")
    parts = [pd.DataFrame(columns=["call", "step", "us", "share (%)"])]
    for (op, batch, _), cells in rows.groupby(["op", "batch", "strategy"]):
        steps, us = STEPS[op], cells.set_index("o_until")["us"]
        if set(steps) <= set(us.index):
            added = us[list(steps)].diff().fillna(us)
            share = 100 * added / us["whole"]
            own = {"call": f"{op}({batch})", "step": list(steps.values()), "us": added, "share (%)": share}
            parts.append(pd.DataFrame(own))
    return pd.concat(parts, ignore_index=True)


def list_batches(data: Data) -> pd.DataFrame:
    """List times of sampling and updating by B: this project's compiled buffer, and its buffer in Python."""
    rows = select_buffers(data, "primitive == 'replay_batches'")
    return spread(rows, ["op", "strategy"], "batch", name="us at B = {}")


def list_rollouts(data: Data) -> pd.DataFrame:
    """List the time that an environment step of [Zhang2022, Alg. 2] spends on each buffer, by its model rollouts."""
    rows = select_buffers(data, "primitive == 'replay_memr' and op == 'rollouts'")
    return spread(rows, ["strategy"], "batch", name="us of {} rollouts")


def compare_pairs(data: Data) -> pd.DataFrame:
    """List the rates of one process that inserts beside one that learns, and how near they come to a buffer each."""
    rows = select_buffers(data, f"primitive == 'replay_pairs' and op in {[*PAIRS]} and o_work_seconds >= 0")
    rows = rows.assign(work_us=1e6 * rows["o_work_seconds"], work=rows["o_work"], op=rows["op"].replace(PAIRS))
    table = spread(rows, ["work", "work_us", "strategy"], "op", "per_second", "{}, pairs/s")
    if {"two processes, pairs/s", "a buffer each, pairs/s"} <= set(table):
        table["share of a buffer each (%)"] = 100 * table["two processes, pairs/s"] / table["a buffer each, pairs/s"]
    return table


def name_best_locks(data: Data) -> str:
    """Say which correct strategy to take: where a process inserts all the time, and where once a gradient step."""
    two, runs = data.select(TWO), data.select(LOCKS)
    known = [(f"Where a process inserts without pause and another learns{name_other(data, two)}", two)]
    if len(runs):
        runs = runs[runs["o_work_seconds"] == runs["o_work_seconds"].min()]
        alone = runs[~runs["record"].map(lambda record: record.is_oversubscribed)]
        most = (alone if len(alone) else runs)["threads"].max()
        where = f"With one insertion a gradient step by {most} processes{name_other(data, runs)}"
        known.append((where, runs[runs["threads"] == most]))
    ranked = [(where, *rank_locks(runs)) for where, runs in known if GLOBAL in set(runs.get("strategy", ()))]
    if not ranked:
        return ""
    both = set.intersection(*(set(tied) for _, tied, _ in ranked))
    said = (
        [f"Take {' or '.join(sorted(both))}: where processes share a replay no other is shown to be faster."]
        if both
        else []
    )
    for where, tied, factor in ranked:
        is_tie = GLOBAL in tied
        gain = f"{' and '.join(tied)}: a speedup of {factor} over"
        fast = "no correct strategy is shown to be faster than" if is_tie else gain
        said.append(f"{where}, {fast} one global lock.")
    return " ".join(said)


def rank_locks(runs: pd.DataFrame) -> tuple[list[str], str]:
    """List the correct strategies that none is shown to beat; and the fastest's speedup over one global lock."""
    correct = runs[~runs["strategy"].isin(NOT_RIGHT)]
    correct = add_speedups(correct, ["machine"], f"strategy == {GLOBAL!r}")
    best = correct.loc[correct["us"].idxmin()]
    tied = correct["strategy"][~(correct["speedup_high"] < best["speedup_low"])]
    factor, low, high = (f"{best[end]:.2f}" for end in SPEEDUPS)
    return list(tied), f"{factor} [{low}, {high}]"


TWO = Figure(
    "", "", "strategy", "us", kind="bar", holds=("capacity",),
    make=lambda data: select_buffers(data, "primitive == 'replay_pairs' and op == 'two' and o_work == 'none'"),
)  # fmt: skip
LOCKS = Figure(
    "replay_locks", "How long do a sample and an update take when processes share a replay?", "threads", "us",
    make=select_processes, hue="strategy", panels=("work",), holds=("capacity", "batch"),
    labels=("processes, actors and learners", "us per sample and update"), log=(False, False), own_axes=True,
    command=COMMAND.format("processes"),
    reading="Lower is faster. Each process inserts records, or samples and updates; none computes gradients. Where "
    "processes share cores, a strategy loses by waiting for one that is not running. Compare [Zhang2021, Fig. 10].",
)  # fmt: skip
FLUSHES = Figure(
    "replay_flush", "How many records should an actor collect before it inserts them?", "batch",
    make=select_flushes, hue="strategy", panels=("beside",), holds=("capacity",),
    labels=("records n of a flush", "ns per record"), command=COMMAND.format("flush"),
    reading="A line falls while the call costs more than its records. A learner makes the actor wait; larger flushes "
    "make that rarer.",
)  # fmt: skip
SECTIONS = (
    Section(
        "Which lock for a shared replay?",
        "Correct strategies never return a half-written record: all but none, which has no lock and shows the limit, "
        "and two_lock_lazy, which is Algorithm 3 of [Zhang2021] as printed.",
        figures=(LOCKS, FLUSHES),
        tables=(
            Table("replay_locks_all", "Every strategy, and its speedup over one global lock", compare_locks),
            Table("replay_buffers", "Whole buffers; slowdowns over this project's by default", compare_buffers),
            Table("replay_parts", "Where the time of a call goes", divide_calls),
            Table("replay_batches", "Sampling and updating by batch", list_batches),
            Table("replay_rollouts", "Replay of model rollouts in an environment step", list_rollouts),
            Table("replay_pairs", "A process that inserts beside a process that learns", compare_pairs),
        ),
        says=name_best_locks,
    ),
)
