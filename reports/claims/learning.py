"""Compute values of claims from training runs: ratios of what two kinds of runs need, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dse import learning_runs
from dse.learning_runs import Value
from dse.records import Record
from dse.stats import interval_over_seeds

from .judge import Data, Finding, Part

OF_TIME = ("time_to_solve", "minutes", "seconds an episode")
"""Metrics that count no steps, so that runs may be evaluated after other numbers of steps."""
MISS = 0.1
"""Relative error of a formula that counts as none."""


def compare_kinds(data: Data, metric: str, pairs: Sequence[Sequence[str]]) -> Finding | None:
    """Compute the ratio of what one kind of runs needs to what another needs, in the median over seeds.

    ``pairs``: workload, own kind, other kind, and the workload of that where it is another. What was not solved is
    infinite. Steps are compared only where both kinds were evaluated equally often. None where a pair was not run, or
    no pair by enough seeds.
    """
    runs = learning_runs.latest(data.records.get(learning_runs.PRIMITIVE, ()))
    groups = learning_runs.group_by_kind(runs)
    parts, used, left_out, grids = [], list[Record](), dict[str, str](), set[int]()
    for workload, own, other, *another in pairs:
        both = [groups.get(key, []) for key in ((workload, own), (another[0] if another else workload, other))]
        seeds = set.intersection(*({run.options["seed"] for run in group} for group in both))
        both = [[run for run in group if run.options["seed"] in seeds] for group in both]
        if not all(both):
            return None
        name, used = f"{workload}, {own} to {', '.join([*another, other])}", [*used, *both[0], *both[1]]
        grid = {run.metrics["interval"] for group in both for run in group}
        if len(grid) > 1 and metric not in OF_TIME:
            left_out[name] = f"evaluated at different steps ({', '.join(map(str, sorted(grid)))})"
        elif ratios := compute_seed_ratios(*(_get_metric(group, metric) for group in both)):
            parts.append(Part(name, ratios[0], ratios[1], ratios[2]))
            grids |= grid
        else:
            left_out[name] = "solved by too few seeds"
    facts = {"ratio of": metric.replace("_", " "), "evaluated every": f"{max(grids, default=0):,} steps", **left_out}
    return Finding(parts, facts, used, bool(left_out)) if parts else None


def _get_metric(group: Sequence[Record], metric: str) -> Mapping[int, Value]:
    """Return a metric of [Zhang2022] or a figure of [StoneSachdev] by seed, of runs of one kind."""
    for found in (learning_runs.metrics_of(group), learning_runs.figures_of(group)):
        for metrics in found.values():
            if metric in metrics:
                return metrics[metric]
    return {}


def compute_seed_ratios(own: Mapping[int, Value], other: Mapping[int, Value]) -> tuple[float, ...]:
    """Compute the median of own / other over seeds, and the ends of its interval; () of too few seeds.

    A seed that neither solved has no ratio.
    """
    above, below = (
        {seed: math.inf if value.is_beyond else value.number for seed, value in values.items()}
        for values in (own, other)
    )
    ratios = [above[seed] / below[seed] for seed in above if seed in below]
    return interval_over_seeds([ratio for ratio in ratios if not math.isnan(ratio)])


def _collect_factors(data: Data) -> tuple[list[dict[str, Any]], list[Record]]:
    used = list(data.records.get(learning_runs.STEP_PRIMITIVE, ()))
    return learning_runs.step_rows(used), used


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['network']}, B = {row['batch']:,}, H = {row['period']}, L = {row['learners']}"


def list_largest_factors(data: Data) -> Finding | None:
    """Compute the scaling factors of several learners at the largest batch and the longest period."""
    rows, used = _collect_factors(data)
    if not rows:
        return None
    most = [max(row[name] for row in rows) for name in ("batch", "period")]
    last = [row for row in rows if [row["batch"], row["period"]] == most]
    return Finding([Part(_name(row), row["factor"], *row["factor_range"]) for row in last], {}, used)


def compare_factors(data: Data) -> Finding | None:
    """Compute how many times the scaling factor at the largest batch and period is that at the smallest, by network.

    Guards compare each factor with that of the next shorter period, and of the next smaller batch: none may fall.
    """
    rows, used = _collect_factors(data)
    ends, guards = [], []
    for first, second in (("batch", "period"), ("period", "batch")):
        rows.sort(key=lambda row: (row["network"], row["learners"], row[first], row[second]))
        for small, large in pairwise(rows):
            if all(small[name] == large[name] for name in ("network", "learners", first)):
                guards.append(_divide(large, small, True))
    for network in dict.fromkeys(row["network"] for row in rows):
        own = sorted((row for row in rows if row["network"] == network), key=lambda row: (row["batch"], row["period"]))
        ends.append(_divide(own[-1], own[0]))
    rising = sum(guard.low > 1 for guard in guards)
    return Finding([*ends, *guards], {"neighbors that rise": rising}, used) if rows else None


def _divide(above: Mapping[str, Any], below: Mapping[str, Any], is_guard: bool = False) -> Part:
    low, high = (above["factor_range"][end] / below["factor_range"][1 - end] for end in (0, 1))
    name = f"{_name(above)} to B = {below['batch']:,}, H = {below['period']}"
    return Part(name, above["factor"] / below["factor"], low, high, is_guard=is_guard)


def count_met_factors(data: Data) -> Finding | None:
    """Compute in what share of cells Eq. 5.6 gives the scaling factor that was measured, within ``MISS``."""
    rows, used = _collect_factors(data)
    if not rows:
        return None
    misses = sorted(abs(row["printed"] / row["factor"] - 1) for row in rows)
    share = sum(miss <= MISS for miss in misses) / len(rows)
    facts = {"cells": len(rows), "median error": misses[len(rows) // 2], "largest": misses[-1]}
    return Finding([Part.exact("share of cells", share)], facts, used)
