"""The page's section about training: curves of primitives, the times that have no curve, the tree's share of a step."""

from collections.abc import Sequence

import pandas as pd

from dse import stats
from dse.records import Measurement, twins
from dse.times.batch_law import flat_then_linear

from . import share_table, training_rows
from .markup import items, paragraph, table
from .table import tidy, timed

FIGURES = "training_"  # what the names of this section's figures begin with
COMMAND = "python -m benchmarks profile --workload cartpole_dqn"
SINGLE = (
    ("env step", "environment step"),
    ("inference act", "inference"),
    ("actor step", "actor step"),
    ("learner step", "gradient step"),
    ("numba draw", "tree, draw"),
    ("numba update", "tree, update"),
    ("storage gather", "storage, gather"),
    ("storage write", "storage, write"),
    ("weights publish", "weights, publish"),
    ("weights fetch", "weights, fetch"),
)
ROWS = ("workload", "primitive", "of", "microseconds a call", "95 % interval", "calls a second", "")


def section(found: Sequence[Measurement], pictures: str, left_out: Sequence[str]) -> str:
    """The section as HTML around its figures, or how to make one."""
    kept = [one for one in timed(found) if one.primitive.startswith(training_rows.PRIMITIVE)]
    shares = share_table.section(found)
    body = shares or paragraph(f"Left out: no training system was profiled; this would: {COMMAND}.")
    if kept:
        frame = tidy(kept)
        body = _origin(kept) + pictures + _singles(frame) + _knees(frame) + shares
    return body + "".join(map(paragraph, left_out)) + items(_untimed(found))


def _origin(kept: Sequence[Measurement]) -> str:
    pairs = twins(kept, training_rows.PRIMITIVE)
    dirty = ", with uncommitted changes" if any(one.dirty for one in kept) else ""
    commits = ", ".join(sorted({(one.commit or "no commit")[:10] for one in kept}))
    return paragraph(
        f"Source: {' and '.join(sorted({one.source for one in kept}))} at {commits}{dirty}; the cells of a group took "
        f"turns, each process on the cores that its record names. The noise floor is {stats.noise_floor(pairs):.1%} "
        f"({len(pairs)} A/A pairs)."
    )


def _singles(frame: pd.DataFrame) -> str:
    """What has no curve: one row a primitive and workload, on one core."""
    rows = training_rows.alone(training_rows.parts(frame, *(part for part, _ in SINGLE)))
    rows = training_rows.called(rows[rows["threads"] == 1], "us")
    lines = []
    for workload, group in rows.groupby("workload"):
        batches = group[group["part"] == "learner step"]["batch"]
        wanted = _workload_batch(frame, str(workload), batches)
        for part, name in SINGLE:
            some = group[group["part"] == part]
            if part in ("learner step", "numba draw", "numba update") and wanted:
                some = some[some["batch"] == wanted]
            for one in some.sort_values("batch").itertuples():
                of = f"B = {one.batch:,}" if one.batch > 1 else one.via or "one"
                ends = f"{one.low_ns:,.1f} to {one.high_ns:,.1f}"
                rate = 1e6 / one.ns
                reason = one.reason if isinstance(one.reason, str) else ""
                told = "; ".join(word for word in ("" if one.status == "ok" else one.status, reason) if word)
                lines.append((workload, name, of, f"{one.ns:,.1f}", ends, f"{rate:,.0f}", told))
    return paragraph("One process on one core (measured):") + table(ROWS, lines)


def _workload_batch(frame: pd.DataFrame, workload: str, batches: "pd.Series[int]") -> int:
    """The workload's own batch: that of its parallel learners; 0 where they were not timed."""
    rows = training_rows.parts(frame, "parallel_learners step")
    own = set(rows[rows["workload"] == workload]["batch"]) & set(batches)
    return int(max(own, default=0))


def _knees(frame: pd.DataFrame) -> str:
    """Where each line of time over the batch begins to grow."""
    rows = training_rows.over_batch(frame)
    lines = []
    for (workload, part, threads), line in rows.groupby(["workload", "part", "threads"]):
        if line["batch"].nunique() < 3:
            continue
        law = flat_then_linear(line["batch"].tolist(), line["ns"].tolist())
        off = max(abs(law.seconds(b) / ms - 1) for b, ms in zip(line["batch"], line["ns"], strict=True))
        knee = f"{law.knee:,.0f}" if law.knee else "none"
        fits = (f"{law.fixed_seconds:.3g}", f"{1e3 * law.each_seconds:.3g}", f"{off:.0%}")
        lines.append((workload, part.replace(" step", "").replace(" act", ""), threads, knee, *fits))
    head = ("workload", "what", "threads", "knee B", "fixed (ms)", "each record (us)", "worst error of the fit")
    told = "Time over the batch is flat, then linear; fitted, fixed + each x B, to the measured times:"
    return paragraph(told) + table(head, lines) if lines else ""


def _untimed(found: Sequence[Measurement]) -> list[str]:
    return [
        f"Not timed, {one.options.get('workload')}, {one.contestant} {one.op} of B = {one.batch:,}: {one.reason}"
        for one in found
        if one.primitive == training_rows.PRIMITIVE and one.median_seconds is None
    ]
