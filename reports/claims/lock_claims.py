"""Judge the claims of [Zhang2021] about its locks (Fig. 10) by runs of actors and learners on one replay buffer.

The figure is the time of 5,000 iterations by threads that do nothing else, over the number of cores. Algorithm 3 as
printed is judged; the same with a word a slot that keeps records whole, processes, work and more threads than cores
stand next to it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from dse import stats
from dse.records import Record, how_to_measure, in_order

from .claims import Claim, not_run, unmeasured
from .noise import LEVEL, Noise, noise_of, own_sigma, two_sided
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 3
THREADS, PROCESSES = "replay_threads", "replay_processes"
RUN, SUPERSEDED = "run", "superseded"  # the op of Fig. 10, and the key of a record's machine for a share of samples
AS_PRINTED, CHECKED = "two_lock_lazy", "two_lock_checked"
BASES = {"over_global": "global", "behind_none": "none"}
"""The strategy that each claim compares with, by the table that quotes it."""
CAPACITY = 1_000_000
Times = tuple[float, float, float]
"""A ratio of times: its median and both ends of its 95 % interval."""


def one_run(records: Iterable[Record], primitive: str) -> list[Record]:
    """Select a primitive's records, A/A twins too, that the latest code made at N = 1,000,000, or else at its most
    frequent N: times of two codes are not divided by each other."""
    own = [record for record in records if record.primitive in (primitive, f"{primitive}_again")]
    if not own:
        return []
    code = in_order(own)[-1].run.code
    own = [record for record in own if record.run.code == code]
    sizes = Counter(record.capacity for record in own)
    capacity = max(sizes, key=lambda size: (size == CAPACITY, sizes[size]))
    return [record for record in own if record.capacity == capacity]


def shapes(run: Iterable[Record], primitive: str) -> dict[tuple[float, int], dict[str, Record]]:
    """Group the timed runs of a mode by seconds of work and number of members, then by strategy."""
    groups: dict[tuple[float, int], dict[str, Record]] = defaultdict(dict)
    for record in run:
        if (record.primitive, record.op) == (primitive, RUN) and record.median_seconds is not None:
            shape = float(record.options.get("work_seconds", 0.0)), record.threads
            groups[shape][str(record.options.get("strategy", record.contestant))] = record
    return dict(sorted(groups.items()))


def times(claim: str, cells: Mapping[str, Record], strategy: str) -> Times | None:
    """Compute the factor that a claim speaks of, with its 95 % interval: the speedup over ``global``, or the
    slowdown over ``none``. None where one of both was not timed."""
    if strategy not in cells or BASES[claim] not in cells:
        return None
    ours, base = cells[strategy], cells[BASES[claim]]
    above, below = (base, ours) if claim == "over_global" else (ours, base)
    return stats.speedup(above, below)


def compared(factor: Times, printed: Mapping[str, float]) -> str:
    """Say where an interval lies relative to the printed one: "within", "less", "more" or "ambiguous".

    >>> printed = {"least": 2, "most": 4.4}
    >>> [compared(times, printed) for times in ((2.5, 2.2, 2.8), (1.1, 1.0, 1.2), (9, 8, 10), (2, 1.9, 2.1))]
    ['within', 'less', 'more', 'ambiguous']
    """
    _, low, high = factor
    if printed["least"] <= low and high <= printed["most"]:
        return "within"
    return "less" if high < printed["least"] else "more" if low > printed["most"] else "ambiguous"


def verdicts(records: Sequence[Record], printed: Quoted = NOTHING) -> list[Claim]:
    """Judge both claims of section VI-D2, and that of IV-D3; none where the first are not quoted."""
    tables = {claim: printed.table(f"zhang2021.locks.{claim}") for claim in BASES}
    judged = [_judged(claim, table, records) for claim, table in tables.items() if table]
    return [*judged, _write_after_read(records)] if judged else []


def _write_after_read(records: Sequence[Record]) -> Claim:
    runs = [record for primitive in (THREADS, PROCESSES) for record in one_run(records, primitive)]
    shares = [one.metrics.get(SUPERSEDED) for one in runs if one.options.get("learners", 1) > 1]
    known = [share for share in shares if share is not None]
    beside = f"{min(known):.2%} to {max(known):.2%} of samples were so, over {len(known)} runs" if known else ""
    measured = "" if known else f", and {how_to_measure('run replay --only threads')}"
    return not_run(
        "Samples whose priority another learner supersedes before they are updated (write after read) have little "
        "impact (IV-D3).",
        "what such samples do to a return was not asked",
        f"returns with them and without{measured}",
        beside,
    )


def _judged(claim: str, table: Mapping[str, float], records: Sequence[Record]) -> Claim:
    least, most = table["least"], table["most"]
    text = {
        "over_global": f"The locks of Algorithm 3 are {least:g}x to {most:g}x as fast as one global lock (Fig. 10).",
        "behind_none": f"The locks of Algorithm 3 take {least:g}x to {most:g}x the time without a lock (Fig. 10).",
    }[claim]
    rule = (
        f"for {AS_PRINTED} by threads without other work, not more of them than cores: confirmed if the 90 % interval "
        f"of the mean factor lies within {least:g}x to {most:g}x, refuted if wholly outside (two one-sided tests)"
    )
    run = one_run(records, THREADS)
    noise, cells = noise_of(run, THREADS), shapes(run, THREADS)
    logs, sigmas = _logs(claim, cells)
    if not logs or not noise.pairs:
        lacks = f"no run of {AS_PRINTED} and {BASES[claim]} with A/A twins and a core for each thread"
        return unmeasured(text, rule, lacks, "run replay --only threads")
    mean = two_sided(logs, sigmas, noise, math.log(least), math.log(most))
    middle, low, high = (math.exp(value) for value in (mean.mean, mean.low, mean.high))
    beside = "; ".join(_beside(claim, records, cells))
    more = f". For comparison, with work, more members than cores, and processes: {beside}" if beside else ""
    return Claim(
        text,
        mean.verdict,
        f"{middle:.2f}x, interval {low:.2f}x to {high:.2f}x, at {_counts(cells)} threads{more}",
        rule,
        _power(mean.missed, least, most, noise),
    )


def _counts(cells: Mapping[tuple[float, int], Mapping[str, Record]]) -> str:
    judged = (count for (work, count), each in cells.items() if AS_PRINTED in each and _is_judged(work, each))
    return " and ".join(map(str, judged))


def _power(missed: float, least: float, most: float, noise: Noise) -> str:
    beyond = most * math.sqrt(most / least)
    return (
        f"a mean factor within the range is refuted in at most {LEVEL:.0%} of cases; one of {beyond:.3g}x is missed "
        f"in {missed:.0%} ({noise})"
    )


def _logs(claim: str, cells: Mapping[tuple[float, int], Mapping[str, Record]]) -> tuple[list[float], list[float]]:
    """Return the logarithm of each factor that is judged, and the standard deviation of its own."""
    logs, sigmas = [], []
    for (work, _), by_strategy in cells.items():
        factor = times(claim, by_strategy, AS_PRINTED)
        if factor and _is_judged(work, by_strategy):
            both = (by_strategy[AS_PRINTED], by_strategy[BASES[claim]])
            logs.append(math.log(factor[0]))
            sigmas.append(math.hypot(*map(own_sigma, both)))
    return logs, sigmas


def _beside(
    claim: str, records: Sequence[Record], threads: Mapping[tuple[float, int], Mapping[str, Record]]
) -> list[str]:
    """Say for both strategies from what to what the factor goes that is not judged."""
    processes = shapes(one_run(records, PROCESSES), PROCESSES)
    lines = []
    for strategy in (AS_PRINTED, CHECKED):
        factors = [
            factor[0]
            for cells in (threads, processes)
            for (work, _), by_strategy in cells.items()
            if (factor := times(claim, by_strategy, strategy))
            if not (strategy == AS_PRINTED and _is_judged(work, by_strategy))
        ]
        if factors:
            lines.append(f"{strategy} {min(factors):.2f}x to {max(factors):.2f}x over {len(factors)} shapes")
    return lines


def _is_judged(work: float, by_strategy: Mapping[str, Record]) -> bool:
    """Tell whether threads did nothing else and had a core each."""
    record = by_strategy[AS_PRINTED]
    return record.primitive == THREADS and not work and not record.is_oversubscribed
