"""Judge the claims of [Zhang2021] about the K-ary sum tree by the records: confirmed, refuted, or not testable here."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter

import numpy as np

from .. import stats
from ..records import Measurement, twins
from ..times import tree_cost_model
from .claims import Claim, verdict_of
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 1
Series = dict[int, Measurement]

TREE = "numba"
INNER_KS = 3  # fewer fanouts have no inside
LINEAR_SLOPE = 0.9  # of ln(time) over ln(N), from which growth counts as linear


def verdicts(records: Sequence[Measurement], _: Quoted = NOTHING) -> list[Claim]:
    """Judge all claims of sections IV-C, VI-D and VI-G that samples and updates of a sum tree can answer."""
    timed = [record for record in records if record.median_seconds is not None]
    floor = stats.noise_floor(twins(timed))
    trees = [record for record in timed if record.primitive == "sum_tree"]
    return [
        _insertion_falls_with_fanout(trees, floor),
        _sampling_has_an_inner_minimum(trees, floor),
        _sixteen_is_best(trees, floor),
        _alignment_is_worth_one_percent(trees, floor),
        _latency_is_sublinear(trees),
        _fits_ten_kilobytes(),
    ]


def _by_fanout(trees: Iterable[Measurement], op: str, **options: str) -> dict[tuple[int, int], Series]:
    """Collect records of the tree with these options by (N, B), then K."""
    series: dict[tuple[int, int], Series] = defaultdict(dict)
    for record in trees:
        if (record.contestant, record.op, record.options, record.threads) == (TREE, op, options, 1):
            series[record.capacity, record.batch][record.fanout] = record
    return {cell: dict(sorted(by_k.items())) for cell, by_k in series.items() if len(by_k) >= INNER_KS}


def _insertion_falls_with_fanout(trees: Sequence[Measurement], floor: float) -> Claim:
    text = "Insertion (a priority update) gets faster as K grows (VI-D1)."
    paper = _rises(_by_fanout(trees, "update", propagate="delta"), floor)
    ours = _rises(_by_fanout(trees, "update"), floor)
    if not paper and not ours:
        return Claim(text, "not testable here", "no updates over several K were measured")
    evidence = [
        f"{method}: {share}"
        for method, share in (("by deltas, as in the paper", paper), ("recomputing", ours))
        if share
    ]
    clean = all(share.startswith("0 of") for share in (paper or ours,))
    return Claim(text, verdict_of(clean), "; ".join(evidence))


def _rises(series: dict[tuple[int, int], Series], floor: float) -> str:
    """Count steps to the next K that are slower by more than the noise floor, with the worst; empty without steps."""
    steps = [
        (math.log(by_k[high].seconds / by_k[low].seconds), cell, low, high)
        for cell, by_k in series.items()
        for low, high in itertools.pairwise(by_k)
    ]
    if not steps:
        return ""
    rises = sum(change > floor for change, *_ in steps)
    change, (capacity, batch), low, high = max(steps)
    worst = (
        f", the worst by {math.expm1(change):.0%}: K={low} to {high} at N={capacity:,}, B={batch:,}" if rises else ""
    )
    return f"{rises} of {len(steps)} steps to the next K are slower by more than the noise floor of {floor:.0%}{worst}"


def _sampling_has_an_inner_minimum(trees: Sequence[Measurement], floor: float) -> Claim:
    text = "Sampling first gets faster, then slower as K grows: it has an inner minimum (VI-D1)."
    series = _by_fanout(trees, "draw")
    if not series:
        return Claim(text, "not testable here", "no samples over several K were measured")
    inner = []
    for by_k in series.values():
        fanouts, times = list(by_k), [record.seconds for record in by_k.values()]
        least = int(np.argmin(times))
        clear = math.log(min(times[0], times[-1]) / times[least]) > floor
        if clear and 0 < least < len(times) - 1:
            inner.append(fanouts[least])
    where = f", at K={_counted(inner)}" if inner else ""
    return Claim(
        text,
        verdict_of(2 * len(inner) > len(series)),
        f"{len(inner)} of {len(series)} (N, B) have one clearer than the noise floor of {floor:.0%}{where}",
    )


def _sixteen_is_best(trees: Sequence[Measurement], floor: float) -> Claim:
    text = "K = 16 yields the best total of insertion and sampling (VI-D1)."
    draws, updates = _by_fanout(trees, "draw"), _by_fanout(trees, "update")
    best, ties, losses = [], 0, []
    for where in sorted(draws.keys() & updates.keys()):
        totals = {
            fanout: draws[where][fanout].seconds + updates[where][fanout].seconds
            for fanout in draws[where].keys() & updates[where].keys()
        }
        if 16 not in totals:
            continue
        best.append(min(totals, key=totals.__getitem__))
        loss = totals[16] / min(totals.values()) - 1
        ties += math.log1p(loss) <= floor
        losses.append(loss)
    if not best:
        return Claim(text, "not testable here", "no samples and updates at K = 16 beside other K were measured")
    return Claim(
        text,
        verdict_of(ties == len(best)),
        f"best K by (N, B): {_counted(best)}; K = 16 is best or ties within {floor:.0%} in {ties} of {len(best)}, and "
        f"loses {max(losses):.0%} at worst, {float(np.median(losses)):.0%} in the median",
    )


def _alignment_is_worth_one_percent(trees: Sequence[Measurement], floor: float) -> Claim:
    text = "Aligning groups to cache lines is worth about 1 % (VI-G)."
    default = {_shape(record): record for record in trees if not record.options}
    gains = [
        record.seconds / default[_shape(record)].seconds - 1
        for record in trees
        if record.options == {"aligned": False} and record.contestant == TREE and _shape(record) in default
    ]
    if not gains:
        return Claim(text, "not testable here", "no misaligned twins were measured")
    median = float(np.median(gains))
    near = sum(abs(math.log1p(gain) - 0.01) <= floor for gain in gains)
    return Claim(
        text,
        verdict_of(near == len(gains)),
        f"misaligned takes {median:.0%} longer in the median of {len(gains)} cells, from {min(gains):.0%} to "
        f"{max(gains):.0%}; {near} of them lie within the noise floor of {floor:.0%} around 1 %",
    )


def _latency_is_sublinear(trees: Sequence[Measurement]) -> Claim:
    text = "Latency grows less than linearly with the capacity (VI-C)."
    series: dict[tuple[str, int], Series] = defaultdict(dict)
    for record in trees:
        if (record.contestant, record.options, record.threads, record.fanout) == (TREE, {}, 1, 16):
            series[record.op, record.batch][record.capacity] = record
    slopes = [_exponent(by_n) for by_n in series.values() if len(by_n) >= INNER_KS]
    if not slopes:
        return Claim(text, "not testable here", "no op was measured at three capacities")
    arrays = {
        "sampling from an array of priorities": _slope(trees, "flat", "draw"),
        "updating an array of prefix sums": _slope(trees, "cumsum", "update"),
    }
    beside = "".join(f"; {what} has {slope:.2f}" for what, slope in arrays.items() if slope is not None)
    return Claim(
        text,
        verdict_of(max(slopes) < LINEAR_SLOPE),
        f"fitted exponents of N (1 is linear) from {min(slopes):.2f} to {max(slopes):.2f} over "
        f"{len(slopes)} (op, B){beside}",
    )


def _slope(trees: Sequence[Measurement], implementation: str, op: str) -> float | None:
    """Fit the exponent of N at the smallest batch measured at three capacities."""
    series: dict[int, Series] = defaultdict(dict)
    for record in trees:
        if (record.contestant, record.op) == (implementation, op):
            series[record.batch][record.capacity] = record
    several = (by_n for _, by_n in sorted(series.items()) if len(by_n) >= INNER_KS)
    return next(map(_exponent, several), None)


def _exponent(by_n: Series) -> float:
    """Fit the exponent of N to the times of a series."""
    return float(np.polyfit(np.log(list(by_n)), np.log([record.seconds for record in by_n.values()]), 1)[0])


def _fits_ten_kilobytes() -> Claim:
    text = "The sum tree of a buffer of 1 million is less than 10 KB and fits the L2 cache (VI-G)."
    smallest = tree_cost_model.tree_bytes("numpy", 1_000_000, 256, "float32", {})
    return Claim(
        text,
        "refuted",
        f"arithmetic: a million float32 leaves alone are 4,000,000 bytes, at K = 256 {smallest:,} in all",
    )


_shape = attrgetter("contestant", "op", "capacity", "fanout", "batch", "threads", "dtype", "distribution")


def _counted(values: Sequence[int]) -> str:
    """Count how often each value occurs, the most frequent first."""
    counts = {value: values.count(value) for value in values}
    return ", ".join(f"{value} ({counts[value]}x)" for value in sorted(counts, key=lambda v: (-counts[v], v)))
