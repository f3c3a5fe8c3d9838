"""Which share of a training step is spent in the tree: a row a tree, from records of steps and of trees in them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dse import stats
from dse.published.peer_claims import is_ours
from dse.records import Measurement

from .markup import Cell, items, paragraph, table

PRIMITIVE = "serial_step"
ACTOR, LOOP, LEARNING, TREE = "actor", "loop", "learning", "tree"
OURS = "numba"  # the tree of the whole loop
HEAD = ("workload", "tree", "step (us)", "in the tree (us)", "share of the step", "95 % interval", "")


@dataclass(frozen=True)
class Share:
    """Of one tree in a workload's step: microseconds, and the share with its 95 % interval."""

    workload: str
    contestant: str
    step_us: float
    tree_us: float
    share: float
    low: float
    high: float
    is_unstable: bool
    whole_us: float | None = None  # the loop as it trains, on the numba tree


def shares(found: Sequence[Measurement]) -> list[Share]:
    """Every tree whose parts of a step were all timed in one run, by workload, the smallest share first.

    A step is update_interval steps of an actor and what learning takes. Tree and learning are two readings of the same
    samples, so they are resampled together; actors' samples are their own.
    """
    runs: dict[tuple[str, str, str], dict[tuple[str, str], Measurement]] = defaultdict(dict)
    for one in found:
        if one.primitive == PRIMITIVE and one.median_seconds is not None:
            run = (str(one.options["workload"]), one.commit or "", one.command)
            runs[run][one.contestant, one.op] = one
    made = []
    for (workload, _, _), cells in runs.items():
        actor = cells.get((ACTOR, "step"))
        for contestant, op in cells:
            pair = [cells.get((contestant, name)) for name in (LEARNING, TREE)]
            if op == TREE and actor and pair[0] and pair[1]:
                made.append(_share(workload, actor, pair[0], pair[1], cells.get((LOOP, "step"))))
    return sorted(made, key=lambda one: (one.workload, one.share))


def _share(
    workload: str, actor: Measurement, learning: Measurement, tree: Measurement, whole: Measurement | None
) -> Share:
    interval = int(tree.options["update_interval"])
    acting = interval * stats.bootstrap_medians(actor.samples_seconds, seed=1)
    both = np.stack([learning.samples_seconds, tree.samples_seconds])
    picks = np.random.default_rng(0).integers(0, both.shape[1], (stats.RESAMPLES, both.shape[1]))
    learnt, spent = np.median(both[:, picks], axis=2)
    tail = (1 - stats.CONFIDENCE) / 2
    low, high = np.quantile(spent / (learnt + acting), [tail, 1 - tail])
    step = learning.seconds + interval * actor.seconds
    unstable = "unstable" in (actor.status, learning.status, tree.status)
    ratio = tree.seconds / step
    return Share(
        workload,
        tree.contestant,
        1e6 * step,
        1e6 * tree.seconds,
        ratio,
        min(float(low), ratio),
        max(float(high), ratio),
        unstable,
        1e6 * whole.seconds if whole and tree.contestant == OURS else None,
    )


def section(found: Sequence[Measurement]) -> str:
    """The table as HTML; nothing where no step was timed."""
    kept = shares(found)
    if not kept:
        return ""
    rows = [
        (
            one.workload,
            Cell(one.contestant, f"name {'ours' if is_ours(one.contestant) else ''}".strip()),
            f"{one.step_us:,.0f}",
            f"{one.tree_us:,.1f}",
            f"{one.share:.2%}",
            f"{one.low:.2%} to {one.high:.2%}",
            "unstable" if one.is_unstable else "",
        )
        for one in kept
    ]
    told = (
        "Which share of a serial training step is spent in the tree (measured, on one core, trees in turns): the "
        "actor's steps, insertion, draw, gather, gradient step and new priorities; the tree's own calls are timed "
        "where they stand in the step. This is what stands behind Figure 11 of seed 0. Bold is ours."
    )
    untimed = sorted(
        {
            f"Not timed, {one.options['workload']}, {one.contestant}: {one.reason}"
            for one in found
            if one.primitive == PRIMITIVE and one.median_seconds is None
        }
    )
    sums = [
        f"{one.workload}: the parts on the {OURS} tree add up to {one.step_us:,.0f} us; the whole loop, measured in "
        f"the same run, takes {one.whole_us:,.0f} us, {one.step_us / one.whole_us - 1:+.0%}."
        for one in kept
        if one.whole_us
    ]
    return paragraph(told) + table(HEAD, rows) + items([*sums, *untimed])
