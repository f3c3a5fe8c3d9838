"""Judge the claims of [Zhang2021] about the K-ary sum tree by records: over K, over N, of its layout and its size.

Claims about K are judged by the paper's own tree, groups of plain sums that updates change by differences; ours, prefix
sums that are computed again, stands next to it. What a run called unstable is omitted.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from dse.records import Record
from dse.times import cost_model

from . import fanout_curves, growth
from .claims import EXACT, Claim, unmeasured
from .fanout_curves import LEAST_FANOUTS, TREE, Curves, Reals, Test, best_at, chances, curves, falling, valley
from .noise import LEVEL, Noise, noise_of, own_sigma, two_sided
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 1

PAPERS_OWN = {"layout": "plain", "propagate": "delta"}
BEST = 16
STEP = math.log(1.05)
"""By so much ln(seconds) changes with each doubling of K where power is stated."""
AHEAD = math.log(1.1)
"""By so much one K is ahead of the others where power is stated."""
ALIGNED = (0.0, 0.02)
"""What is "about 1 %"."""
CONTROLS = {
    ("flat", "draw"): "sampling from an array of priorities",
    ("cumsum", "update"): "updating an array of prefix sums",
}
"""Operations whose work is linear in N by construction, by implementation and operation."""


def verdicts(records: Sequence[Record], _: Quoted = NOTHING) -> list[Claim]:
    """Judge all claims of sections IV-C, VI-D and VI-G that samples and updates of a sum tree can answer."""
    timed = [record for record in records if record.median_seconds is not None]
    noise = noise_of(timed)
    trees = [record for record in timed if record.primitive == "sum_tree"]
    return [
        _insertion_falls_with_fanout(timed),
        _sampling_has_an_inner_minimum(timed),
        _sixteen_is_best(timed),
        _alignment_is_worth_one_percent(trees, noise),
        _latency_is_sublinear(trees, noise),
        _fits_ten_kilobytes(),
    ]


def _insertion_falls_with_fanout(timed: Sequence[Record]) -> Claim:
    text = "Insertion (a priority update) gets faster as K grows (VI-D1)."
    rule = (
        "confirmed if the largest K is clearly faster than the smallest in every series and no larger K clearly slower "
        f"than a smaller one; refuted if one is (one-sided tests, {LEVEL:.0%} for all pairs of K and series together)"
    )
    true, false = (lambda k: 0 * k), (lambda k: np.where(k < BEST, -1, 1) * STEP * np.log2(k / BEST))
    cases = ("a flat curve", true, "one that falls to K = 16 and then rises, by 5 % a doubling", false)
    return _over_fanouts(text, rule, cases, "update", falling, timed)


def _sampling_has_an_inner_minimum(timed: Sequence[Record]) -> Claim:
    text = "Sampling first gets faster, then slower as K grows: it has an inner minimum (VI-D1)."
    rule = (
        "confirmed if in every series some K inside is clearly faster than both the smallest and the largest; refuted "
        f"if in one an end is clearly faster than all K inside (one-sided tests, {LEVEL:.0%} for all together)"
    )
    true, false = (lambda k: STEP * abs(np.log2(k / BEST))), (lambda k: -STEP * np.log2(k))
    cases = ("a curve with a minimum at K = 16, 5 % a doubling", true, "one that falls throughout so", false)
    return _over_fanouts(text, rule, cases, "draw", valley, timed)


Shape = Callable[[Reals], Reals]


def _over_fanouts(
    text: str, rule: str, cases: tuple[str, Shape, str, Shape], op: str, test: Test, timed: Sequence[Record]
) -> Claim:
    """Judge a claim about the shape of one operation's times over K."""
    paper, ours = (curves(timed, op, options) for options in (PAPERS_OWN, {}))
    noise = noise_of(timed, runs=paper.runs if paper else ())
    if paper is None or not noise.pairs:
        return _unmeasured(text, rule, noise)
    code = int(test(paper.logs, noise))
    beside = f". For comparison ours, prefix sums recomputed: {_shape_of(ours)}" if ours else ""
    undecided = "" if code else ": neither is clear at this noise"
    evidence = f"plain sums updated by differences, as in the paper{undecided}: {_shape_of(paper)}{beside}"
    return Claim(text, fanout_curves.verdict(code), evidence, rule, _power(cases, test, paper, noise))


def _power(cases: tuple[str, Shape, str, Shape], test: Test, paper: Curves, noise: Noise) -> str:
    """Say how often the test errs at this noise, by simulation."""
    fanouts, missing = np.array(paper.fanouts, dtype=np.float64), np.isnan(paper.logs)
    what, true, other, false = cases
    held, wrong = (
        chances(test, np.broadcast_to(truth(fanouts), paper.logs.shape), missing, noise) for truth in (true, false)
    )
    return (
        f"simulated at the {noise}, {len(paper.cells)} series: {what} is refuted in {held[0]:.1%} and confirmed in "
        f"{held[1]:.1%} of runs; {other} is refuted in {wrong[0]:.1%}, confirmed in {wrong[1]:.1%}"
    )


def _shape_of(measured: Curves) -> str:
    """Describe each series by its fastest K, and how much slower its ends and the worst rise are."""
    said = []
    for (capacity, batch), logs in zip(measured.cells, measured.logs, strict=True):
        kept = [(fanout, log) for fanout, log in zip(measured.fanouts, logs, strict=True) if not math.isnan(log)]
        best, least = min(kept, key=lambda pair: pair[1])
        ends = ", ".join(f"K={fanout} {math.expm1(log - least):+.0%}" for fanout, log in (kept[0], kept[-1]))
        said.append(f"N={capacity:,}, B={batch:,} fastest at K={best} ({ends})")
    left = f"; {measured.left_out} unstable cells left out" if measured.left_out else ""
    return "; ".join(said) + left


def _unmeasured(text: str, rule: str, noise: Noise) -> Claim:
    own = "the paper's own tree (plain sums updated by differences)"
    lacks = f"no {LEAST_FANOUTS} stable fanouts of {own} in one run" if noise.pairs else "no cell was measured twice"
    return unmeasured(text, rule, lacks, "sweep --preset quick", "the noise and curves")


def _sixteen_is_best(timed: Sequence[Record]) -> Claim:
    text = "K = 16 yields the best total of insertion and sampling (VI-D1)."
    rule = (
        "in the mean over all series: confirmed if K = 16 is clearly faster than every other K; refuted if another is "
        f"clearly faster (one-sided tests, {LEVEL:.0%} for all K together)"
    )
    paper, ours = (_totals(timed, options) for options in (PAPERS_OWN, {}))
    noise = noise_of(timed, runs=paper.runs if paper else ())
    if paper is None or BEST not in paper.fanouts or not noise.pairs:
        return _unmeasured(text, rule, noise)
    test = best_at(paper.fanouts.index(BEST))
    code = int(test(paper.logs, noise))
    cases = (
        "K = 16 ahead of all others by 10 %",
        lambda k: np.where(k == BEST, -AHEAD, 0.0),
        "K = 8 ahead by as much",
        lambda k: np.where(k == 8, -AHEAD, 0.0),
    )
    beside = f". For comparison ours, prefix sums recomputed: {_shape_of(ours)}" if ours else ""
    undecided = "neither is clear at this noise; " if not code else ""
    evidence = f"{undecided}{_behind(paper)}; {_shape_of(paper)}{beside}"
    return Claim(text, fanout_curves.verdict(code), evidence, rule, _power(cases, test, paper, noise))


def _totals(timed: Sequence[Record], options: dict[str, str]) -> Curves | None:
    """Add up the curves of sampling and updating where both were measured."""
    draws, updates = (curves(timed, op, options) for op in ("draw", "update"))
    if draws is None or updates is None:
        return None
    fanouts = tuple(sorted({*draws.fanouts} & {*updates.fanouts}))
    cells = tuple(sorted({*draws.cells} & {*updates.cells}))
    rows = [[_row(each, cell, fanouts) for cell in cells] for each in (draws, updates)]
    if not cells:
        return None
    return Curves(
        fanouts, cells, np.logaddexp(*np.array(rows)), draws.left_out + updates.left_out, draws.runs | updates.runs
    )


def _row(measured: Curves, cell: tuple[int, int], fanouts: Sequence[int]) -> list[float]:
    logs = measured.logs[measured.cells.index(cell)]
    return [float(logs[measured.fanouts.index(fanout)]) for fanout in fanouts]


def _behind(totals: Curves) -> str:
    """Say how far K = 16 is ahead of or behind the best K in the mean over the series."""
    behind = np.nanmean(totals.logs[:, [totals.fanouts.index(BEST)]] - totals.logs, axis=0)
    best = int(np.nanargmax(behind))
    if totals.fanouts[best] == BEST:
        return "K = 16 has the smallest total in the mean"
    return f"K = {totals.fanouts[best]} is faster than K = 16 by {math.expm1(behind[best]):.0%} in the mean"


def _alignment_is_worth_one_percent(trees: Sequence[Record], noise: Noise) -> Claim:
    text = "Aligning groups to cache lines is worth about 1 % (VI-G)."
    least, most = ALIGNED
    rule = (
        f"confirmed if the 90 % interval of the mean gain lies within {least:.0%} to {most:.0%}, refuted if it lies "
        "wholly outside (two one-sided tests)"
    )
    default = {_shape(record): record for record in trees if not record.options and record.status == "ok"}
    gains = [
        math.log(record.seconds / default[_shape(record)].seconds)
        for record in trees
        if record.options == {"aligned": False} and (record.contestant, record.status) == (TREE, "ok")
        if _shape(record) in default
    ]
    if not gains or not noise.pairs:
        return unmeasured(text, rule, "no stable misaligned twins with A/A pairs", "sweep --preset quick")
    mean = two_sided(gains, [noise.sigma] * len(gains), noise, math.log1p(least), math.log1p(most))
    middle, low, high, worst, best = (
        math.expm1(log) for log in (mean.mean, mean.low, mean.high, min(gains), max(gains))
    )
    return Claim(
        text,
        mean.verdict,
        f"misaligned takes {middle:.1%} longer in the mean of {len(gains)} cells ({low:.1%} to {high:.1%}), single "
        f"ones from {worst:.0%} to {best:.0%}",
        rule,
        f"a gain within the range is refuted in at most {LEVEL:.0%} of cases, one of 3 % missed in {mean.missed:.0%} "
        f"({noise})",
    )


def _latency_is_sublinear(trees: Sequence[Record], noise: Noise) -> Claim:
    text = "Latency grows less than linearly with the capacity (VI-C)."
    rule = (
        "times of all B are fitted by t = a + b N^p with one p an operation: confirmed if p is below 1 with 95 % "
        "confidence, or less than half of the time at the largest N grows, for both samples and updates; refuted if "
        f"for one p = 1 fits and p <= {growth.NEARLY:g} does not"
    )
    ours = {op: _series(trees, TREE, op, noise) for op in ("draw", "update")}
    if not all(ours.values()):
        lacks = f"no samples and updates at {growth.LEAST_CAPACITIES} stable capacities"
        return unmeasured(text, rule, lacks, "sweep")
    grown = {op: growth.growth_of(series) for op, series in ours.items()}
    said = [f"{'sampling' if op == 'draw' else 'updating'} {_grown(each)}" for op, each in grown.items()]
    for (name, op), what in CONTROLS.items():
        control = _series(trees, name, op, noise)
        if control:
            said.append(f"for comparison {what}, linear by construction: {_grown(growth.growth_of(control))}")
    code = (
        -1 if any(each.is_linear for each in grown.values()) else int(all(one.is_sublinear for one in grown.values()))
    )
    errors = [growth.mistaken(series) for series in ours.values()]
    return Claim(
        text,
        fanout_curves.verdict(code),
        "; ".join(said),
        rule,
        f"simulated at this noise: linear growth passes in {max(linear for linear, _ in errors):.1%} of runs, growth "
        f"like log N is missed in {max(slower for _, slower in errors):.1%}",
    )


def _grown(each: growth.Growth) -> str:
    return f"{each}, {each.share:.0%} of the time at the largest N grows"


def _series(trees: Sequence[Record], implementation: str, op: str, noise: Noise) -> list[growth.Series]:
    """Collect stable times over N by batch, of default options at K = 16, where there are enough capacities."""
    points: dict[tuple[int, str], dict[int, tuple[int, float, float]]] = defaultdict(dict)
    for record in trees:
        shape = (record.contestant, record.op, record.threads, record.dtype, record.distribution, record.status)
        if shape != (implementation, op, 1, "float32", "uniform", "ok") or record.options or record.fanout != BEST:
            continue
        sigma = math.hypot(noise.single, own_sigma(record))
        points[record.batch, record.run.command][record.capacity] = (record.capacity, record.seconds, sigma)
    enough = (by_n for _, by_n in sorted(points.items()) if len(by_n) >= growth.LEAST_CAPACITIES)
    return [growth.Series.of(list(by_n.values())) for by_n in enough]


def _fits_ten_kilobytes() -> Claim:
    smallest = cost_model.tree_bytes("numpy", 1_000_000, 256, "float32", {})
    return Claim(
        "The sum tree of a buffer of 1 million is less than 10 KB and fits the L2 cache (VI-G).",
        "refuted",
        f"arithmetic: a million float32 leaves alone are 4,000,000 bytes, at K = 256 {smallest:,} in all",
        "adds up if the bytes of some tree with that many leaves are below 10,000, refuted if of none",
        EXACT,
    )


_shape = attrgetter(
    "contestant", "op", "capacity", "fanout", "batch", "threads", "dtype", "distribution", "run.command"
)
