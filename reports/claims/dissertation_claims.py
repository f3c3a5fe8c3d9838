"""Judge the claims of [Zhang2022] that [Zhang2023] does not share: several learners, and how times grow with the batch.

What both state about mapping and the FPGA is judged as [Zhang2023]. Letters: B batch, L learners, H steps between
averages of their weights.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any

import numpy as np

from dse import learning_runs, stats
from dse.drift import drift
from dse.records import Record, how_to_measure
from dse.times.curves import FlatThenLinear
from dse.times.several import Terms, data_parallel_factor, printed_data_parallel_factor, printed_spo_factor

from . import fanout_curves, growth, seeds
from .claims import EXACT, UNTESTED, Claim, adds_up_if, not_run, unmeasured
from .noise import Noise, noise_of, own_sigma
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2022]", 1
RULE = (
    "times of n records or models are fitted by t = a + b n^p with one p: confirmed if p = 1 fits, p <= 0.8 does not "
    "and half of the time at the largest n or more grows; refuted if p is below 1 with 95 % confidence, or less grows"
)
OVER_BATCHES = {"sum_tree": fanout_curves.TREE, "replay_batches": "replay"}
"""Primitives that were timed over the batch, each with its implementation."""
OPS = ("draw", "sample", "update")
HORIZONS = (1, 5, 10, 25)
LEARNERS = (2, 4, 8, 16, 32)
RECORDS, BANKS, SKEW = 1_000_000, 2, 0.6  # of which priorities fall with their rank
NOTHING_TAKEN = FlatThenLinear(0.0, 0.0)
EXAMPLE = Terms(2, 1.0, FlatThenLinear(0.0, 2.0), 0.0, NOTHING_TAKEN, 0.1, NOTHING_TAKEN, shared_link=False)
"""Replay 1 s, passes 2 s a record, and a transfer of weights 0.1 s."""
SEVERAL_GPUS = "a GPU for each learner, which is only modeled (dse/times/several.py)"
MEMR, SAC = ("pendulum_memr", "serial"), ("pendulum_sac", "serial")  # workload and kind of run
CLOSE = 0.9  # a factor from which on is close to 1
MISS, MOST_CELLS = 0.1, 0.9  # of a formula in as many cells
Row = Mapping[str, Any]


def verdicts(records: Sequence[Record], quoted: Quoted = NOTHING) -> list[Claim]:
    """Judge growth with the batch by records and the laws of several learners by arithmetic; list what was not run."""
    timed = [record for record in records if record.median_seconds is not None and record.status == "ok"]
    return [
        _replay_is_linear(records, timed),
        *_passes_and_averages(timed),
        _worked_points(quoted),
        _factor_of_data_parallel(),
        _factor_grows_with_horizon(),
        _weights_of_banks(),
        *_measured_factors(learning_runs.step_rows(timed), quoted),
        *_of_rollouts(records),
        *_not_run(records),
    ]


def _replay_is_linear(records: Sequence[Record], timed: Sequence[Record]) -> Claim:
    """Judge by a whole replay or by the tree alone, whichever was timed at more batches."""
    text = "Times of sampling and of priority updates grow linearly with the batch (5.1.2, Fig. 5.2)."
    between, judged = drift(records).half_width(0.0) / stats.Z, []
    for primitive, own in OVER_BATCHES.items():
        noise, series = noise_of(timed, primitive), defaultdict(list)
        for one in timed:
            shape = (one.primitive, one.contestant, one.capacity, one.fanout, one.threads, one.dtype, one.distribution)
            is_plain = primitive != "sum_tree" or not one.options
            if shape == (primitive, own, 1_000_000, 16, 1, "float32", "uniform") and is_plain and one.op in OPS:
                series[one.op, str(one.options)].append(one)
        judged.append((noise, [_points(each, noise, between) for each in series.values()]))
    noise, points = max(judged, key=lambda one: len({batch for each in one[1] for batch, *_ in each}))
    return _linear(text, points, noise, "run replay --only batches", least=2)


def _passes_and_averages(timed: Sequence[Record]) -> Iterator[Claim]:
    """Judge how the time of a forward pass grows with the batch, and that of an average with the number of models."""
    noise, series = noise_of(timed, "training"), dict[str, dict[Any, list[Record]]]()
    for one in timed:
        if one.primitive == "training" and one.threads == 1 and one.options.get("learner", "torch") == "torch":
            of_part = series.setdefault(f"{one.contestant} {one.op}", defaultdict(list))
            of_part[one.options.get("workload"), one.run.command].append(one)
    said = "The forward pass takes the same time below a batch, and grows linearly above it (5.1.2, Figs. 5.3 and 5.5)."
    averages = "Averaging weights takes time linear in the number of learners (Figs. 5.4 and 5.6)."
    for part, text in (("forward act", said), ("weights average", averages)):
        points = [_points(each, noise) for each in series.get(part, {}).values()]
        yield _linear(text, points, noise, f"profile --workload cartpole_dqn --preset full --only '{part}'")


Point = tuple[int, float, float]


def _points(records: Sequence[Record], noise: Noise, between: float = 0.0) -> list[Point]:
    """Return (n, seconds, sigma) of records; ``between`` runs times differ by more, where a later one replaced some."""
    more = between * (len({(one.commit, one.run.command) for one in records}) > 1)
    sigmas = (math.hypot(noise.single, own_sigma(one), more) for one in records)
    return [
        (one.options.get("models", one.batch), one.seconds, sigma) for one, sigma in zip(records, sigmas, strict=True)
    ]


def _linear(text: str, points: Sequence[Sequence[Point]], noise: Noise, command: str, least: int = 1) -> Claim:
    """Judge linear growth, over whatever does not grow, of ``least`` series with one exponent."""
    series = [growth.Series.of(each) for each in points if len({batch for batch, *_ in each}) > growth.LEAST_CAPACITIES]
    if len(series) < least or not noise.pairs:
        return unmeasured(text, RULE, f"no stable times at more than {growth.LEAST_CAPACITIES} sizes", command)
    grown = growth.growth_of(series)
    linear, slower = growth.mistaken(series)
    batches = sorted({int(batch) for each in series for batch in each.capacities})
    alone = ", ".join(f"{growth.growth_of([each]).power:.2f}" for each in series)
    return Claim(
        text,
        fanout_curves.verdict(1 if grown.is_linear else -int(grown.is_sublinear)),
        f"on a CPU, {len(series)} series from n = {batches[0]:,} to {batches[-1]:,}: {grown}, {grown.share:.0%} of "
        f"the time at the largest n grows; each series alone: p = {alone}",
        RULE,
        f"simulated at this noise ({noise}): linear growth is refuted in {linear:.1%} of runs, growth like log n "
        f"is not in {slower:.1%}",
    )


def _worked_points(quoted: Quoted) -> Claim:
    text = "Two learners have a speedup of 1.25 over one, a scaling factor of 0.63; four 1.34 times, 0.34 (5.1.4)."
    speed_ups, factors = (quoted.table(f"zhang2022.data_parallel.{name}") for name in ("speed_up", "factor"))
    said, right = [], bool(factors)
    for learners, printed in factors.items():
        exact = Decimal(str(speed_ups[learners])) / int(learners)
        right &= exact.quantize(Decimal("0.01"), ROUND_HALF_UP) == Decimal(str(printed))
        said.append(f"{speed_ups[learners]:g} / {learners} = {exact:.4g}, printed {printed:g}")
    return Claim(
        text,
        adds_up_if(right) if factors else "not testable here",
        f"arithmetic: {'; '.join(said)}. That they are so fast was not run: it takes {SEVERAL_GPUS}",
        "of the pairs alone: adds up if each factor is its speed-up over the learners as printed, refuted otherwise",
        EXACT,
    )


def _factor_of_data_parallel() -> Claim:
    exact, printed = data_parallel_factor(EXAMPLE, 2), printed_data_parallel_factor(EXAMPLE, 2)
    return Claim(
        "The scaling factor of data parallel learners is Eq. 5.3.",
        adds_up_if(math.isclose(exact, printed)),
        f"arithmetic: with replay 1 s, passes of 4 s and transfers of 0.1 s, Eqs. 5.1 and 5.2 give {exact:.3f} for two "
        f"learners, Eq. 5.3 gives {printed:.3f}: it leaves out the replay of the one learner that it compares with",
        "refuted if one case has another value by Eqs. 5.1 and 5.2 and the text's own speed-up over learners, "
        "adds up otherwise",
        EXACT,
    )


def _factor_grows_with_horizon() -> Claim:
    factors = [[printed_spo_factor(EXAMPLE, learners, horizon) for horizon in HORIZONS] for learners in LEARNERS]
    rising = all(row == sorted(set(row)) for row in factors)
    falling = all(list(column) == sorted(set(column), reverse=True) for column in zip(*factors, strict=True))
    return Claim(
        "By Eq. 5.6 the scaling factor of SPO grows with H and falls with L (5.2.3, 5.3.2.2).",
        adds_up_if(rising and falling),
        f"arithmetic: from {factors[-1][0]:.2f} (L = {LEARNERS[-1]}, H = {HORIZONS[0]}) to {factors[0][-1]:.2f} "
        f"(L = {LEARNERS[0]}, H = {HORIZONS[-1]}) in one example; H only divides, and L only multiplies, a positive "
        "term",
        "adds up if the formula rises with H at every L and falls with L at every H, refuted otherwise",
        EXACT,
    )


def _weights_of_banks() -> Claim:
    """Judge the constant of Eq. 5.4, and how far from one a bank's weights are, by priorities that differ."""
    priorities = np.arange(1, RECORDS + 1) ** -SKEW
    in_turn, in_parts = priorities.reshape(-1, BANKS).sum(0), priorities.reshape(BANKS, -1).sum(1)
    turn, part = (float(np.abs(BANKS * sums / sums.sum() - 1).max()) for sums in (in_turn, in_parts))
    return Claim(
        "Weights of a bank are about 1 / N, N all data points, where banks have equal sums of priorities (Eq. 5.4).",
        adds_up_if(math.isclose(1 / BANKS, 1 / RECORDS)),
        f"computed: the sum of a bank over that of all is then one over the number of banks, {1 / BANKS:g} with "
        f"{BANKS}, not {1 / RECORDS:g} as N = {RECORDS:,} gives. Taken for a constant it is off, of priorities "
        f"rank^-{SKEW:g}, by {turn:.2%} where records go to banks in turn by rank, by {part:.0%} where each bank has "
        "ranks of its own; the replay's exact weights are not",
        "refuted if the equation's ratio of sums is another number than the constant printed, adds up otherwise",
        EXACT,
    )


def _measured_factors(rows: Sequence[Row], quoted: Quoted) -> Iterator[Claim]:
    """Judge the scaling factors that learners on cores of their own have by those measured here."""
    near = quoted.table("zhang2022.near_one")
    batches = " and ".join(f"{batch:,.0f}" for batch in near.values()) or "?"
    close = (
        f"The scaling factor of SPO is close to 1 for a perceptron and a convolutional network at B = {batches} "
        "(5.3.2.2, Figs. 5.14 and 5.15)."
    )
    shape = "The scaling factor of SPO rises with H and with B (5.3.2.2, Figs. 5.14 and 5.15)."
    law = "The scaling factor of SPO is what Eq. 5.6 gives."
    if not rows:
        for text in (close, shape, law):
            yield not_run(text, "no such factor is on record", how_to_measure("run learning --only scaling"))
        return
    ran = f"{rows[0]['learners']} learners, each on a core, {len(rows)} cells of perceptrons"
    most, longest = max(row["batch"] for row in rows), max(row["period"] for row in rows)
    last = [row for row in rows if (row["batch"], row["period"]) == (most, longest)]
    is_close = all(row["factor_range"][1] >= CLOSE for row in last)
    yield Claim(
        close,
        ("confirmed" if all(row["factor_range"][0] >= CLOSE for row in last) else UNTESTED) if is_close else "refuted",
        f"{ran}; at B = {most:,}, H = {longest}: {'; '.join(map(_told, last))}; no convolutional network, and no GPU",
        f"confirmed if all intervals of perceptrons at the largest B and H are above {CLOSE}, refuted if one is below",
        "each interval is that of 95 % of samples; two machines alike may differ by more",
    )
    rising, falling = _orders(rows)
    yield Claim(
        shape,
        fanout_curves.verdict(int(bool(rising) and not falling) - bool(falling)),
        f"{ran}; of neighbors in H or in B {rising} pairs rise and {falling} fall by more than their intervals; "
        f"from {_told(min(rows, key=_factor))} to {_told(max(rows, key=_factor))}",
        "confirmed if some pairs rise by more than their intervals and none falls, refuted if one falls",
        "a pair that seems to fall by chance, at 95 % intervals that must not touch: at most 0.6 %",
    )
    misses = sorted(abs(row["printed"] / row["factor"] - 1) for row in rows)
    exact = sorted(abs(row["exact"] / row["factor"] - 1) for row in rows)
    within_bound = sum(miss <= MISS for miss in misses) / len(rows)
    yield Claim(
        law,
        "confirmed" if within_bound >= MOST_CELLS else "refuted",
        f"{ran}; Eq. 5.6 is off by {misses[len(rows) // 2]:.0%} in the median and {misses[-1]:.0%} at most, within "
        f"{MISS:.0%} in {within_bound:.0%} of cells; Eqs. 5.2 and 5.5 by {exact[len(rows) // 2]:.0%} and "
        f"{exact[-1]:.0%}, from the steps of one learner on B and on B / L records and the time of an average",
        f"confirmed if it is within {MISS:.0%} of what was measured in {MOST_CELLS:.0%} of cells or more, else refuted",
        "computing is exact; intervals of the factors are given with them",
    )


def _told(row: Row) -> str:
    low, high = row["factor_range"]
    return f"{row['factor']:.2f} [{low:.2f}, {high:.2f}] ({row['network']}, B = {row['batch']:,}, H = {row['period']})"


def _factor(row: Row) -> float:
    return float(row["factor"])


def _orders(rows: Sequence[Row]) -> tuple[int, int]:
    """Count the pairs of cells next to each other in H or in B, the rest equal, whose factor rises, and falls."""
    rising = falling = 0
    for axis, rest in (("period", ("network", "batch")), ("batch", ("network", "period"))):
        lines = defaultdict(list)
        for row in sorted(rows, key=lambda row: row[axis]):
            lines[tuple(row[name] for name in rest)].append(row["factor_range"])
        for (low, high), (later_low, later_high) in (pair for line in lines.values() for pair in pairwise(line)):
            rising += later_low > high
            falling += later_high < low
    return rising, falling


def _of_rollouts(records: Sequence[Record]) -> Iterator[Claim]:
    """Judge MEMR by runs on the pendulum, compared with SAC of the same settings and with other values of its own."""
    found = learning_runs.metrics_of(learning_runs.latest(records))

    def ratios(name: str, others: Mapping[str, learning_runs.Key]) -> dict[str, seeds.Ratio]:
        own = found.get(MEMR, {}).get(name, {})
        return {told: seeds.ratio_of(own, found.get(other, {}).get(name, {})) for told, other in others.items()}

    alphas = {f"as shipped to alpha {alpha}": (MEMR[0], f"{MEMR[1]}, alpha = {alpha}") for alpha in ("0.2", "1")}
    uniform = {"as shipped to alpha 0": (MEMR[0], f"{MEMR[1]}, alpha = 0")}
    one = {"as shipped to one segment": (MEMR[0], f"{MEMR[1]}, segments = 1")}
    for text, name, others, sign in (
        ("MEMR needs fewer environment steps than SAC (Fig. 3.5).", "sample_efficiency", {"MEMR to SAC": SAC}, -1),
        ("MEMR needs no more policy updates than SAC (3.3.1).", "learning_efficiency", {"MEMR to SAC": SAC}, -1),
        ("Rollouts chosen for their entropy need fewer policy updates (ch. 3).", "learning_efficiency", uniform, -1),
        ("An exponent of 0.6 is best (3.3.2, Fig. 3.6).", "sample_efficiency", alphas, -1),
        ("A small model dataset hinders learning (3.3.2, Fig. 3.6).", "sample_efficiency", one, -1),
    ):
        what = {"sample_efficiency": "environment steps", "learning_efficiency": "gradient steps"}[name]
        yield seeds.judge(text, what, ratios(name, others), "until the pendulum is solved", sign, "memr")
    few, *more = (found.get(("pendulum_td3", f"serial, batch = {size}"), {}) for size in (64, 256, 1000))
    larger = {
        f"B = {size:,} to 64": seeds.ratio_of(each.get("learning_efficiency", {}), few.get("learning_efficiency", {}))
        for size, each in zip((256, 1000), more, strict=True)
    }
    text, of = "A larger batch takes fewer gradient steps to learn (5.1.1, Fig. 5.1).", "until the pendulum is solved"
    yield seeds.judge(text, "gradient steps", larger, of, -1, "batches")


def _not_run(records: Sequence[Record]) -> list[Claim]:
    """List what would take training for days."""
    beside = learning_runs.describe(records)
    return [
        not_run(
            "Averaging weights every H steps keeps the learning of most environments (5.3.2.1, Figs. 5.10 to 5.13).",
            "none of those environments was trained here",
            "hours of training for each environment and seed",
            beside,
        ),
    ]
