"""Judge the claims of [Zhang2021] about other libraries (Fig. 8) by runs that timed them and ours in alternation.

The paper's figure is the latency of insertion + sampling at B = 128; here it is that of a sample and an update. It
compared a C++ tree; ours, for the libraries, are the compiled numba tree and, where the language should be the same,
the one written in Python alone. Unstable times stay in, each with its own interval: the evidence counts them.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import impls
from dse.records import Record, in_order

from . import fanout_curves, growth
from .claims import Claim, unmeasured
from .noise import LEVEL, Noise, noise_of, own_sigma, two_sided
from .quoted import NOTHING, Quoted

PAPER, ORDER = "[Zhang2021]", 2
PEER = "peer"
BATCH = 128
CAPACITIES = (1 << 10, 1 << 20)  # the least and the most of the figure
FIGURE = f"VI-D, Fig. 8: insertion + sampling, B = {BATCH}"
ABOUT = 1.25
"""Factor, up and down, that "about" allows."""
OPS = ("draw", "update")


@dataclass(frozen=True)
class Total:
    """Seconds of a sample and an update with the standard deviation of their logarithm, and how many are unstable."""

    seconds: float
    sigma: float
    unstable: int


Totals = Mapping[int, Total]
Beside = Callable[[Sequence[Record], Totals], str]


def is_ours(implementation: str) -> bool:
    """Tell whether it is a tree of ours rather than a library's."""
    return implementation in impls.names()


def one_run(records: Sequence[Record], primitive: str = PEER) -> list[Record]:
    """Select the records of other libraries that one run made, the one with most of them; of equals, the latest.

    Times of two runs may differ by the hour alone, so only those of one are divided by each other.
    """
    runs: dict[tuple[str | None, str], list[Record]] = defaultdict(list)
    for record in in_order(records):
        if record.primitive.startswith(primitive):
            runs[record.run.code, record.run.command].append(record)
    return max(reversed(in_order(runs.values(), lambda run: run[-1].utc)), key=len, default=[])


def verdicts(records: Sequence[Record], _: Quoted = NOTHING) -> list[Claim]:
    """Judge the claims of section VI-D about tianshou and RLlib."""
    run = one_run(records)
    noise = noise_of(run, PEER)
    return [
        _times_as_fast(run, noise, 4, "tianshou", _compiled_too),
        _times_as_fast(run, noise, 100, "RLlib", _in_python_too),
        _rllib_grows_linearly(run, noise),
    ]


def _times_as_fast(run: Sequence[Record], noise: Noise, claimed: int, name: str, beside: Beside) -> Claim:
    """Judge the tree's speedup over a library's; ``beside`` says what another tree of ours tells."""
    text, library = f"The tree is about {claimed}x as fast as {name}'s ({FIGURE}).", name.lower()
    rule = (
        f"for our tree: confirmed if the 90 % interval of the mean ratio lies within {claimed / ABOUT:g}x to "
        f"{claimed * ABOUT:g}x ({ABOUT:g} times less or more is about {claimed}x), refuted if wholly outside, on "
        "either side (two one-sided tests)"
    )
    theirs, ours = _totals(run, library), _totals(run, "numba")
    ratios = _ratios(theirs, ours)
    if not ratios or not noise.pairs:
        return _untestable(text, rule, run, library)
    sigmas = [math.hypot(noise.sigma, theirs[n].sigma, ours[n].sigma) for n in ratios]
    logs = [math.log(ratio) for ratio in ratios.values()]
    mean = two_sided(logs, sigmas, noise, math.log(claimed / ABOUT), math.log(claimed * ABOUT))
    unstable = sum(theirs[n].unstable + ours[n].unstable for n in ratios)
    return Claim(
        text,
        mean.verdict,
        f"our tree, numba over {name}: {_said(ratios)}, interval {math.exp(mean.low):.3g}x to "
        f"{math.exp(mean.high):.3g}x; {unstable} of {4 * len(ratios)} times are unstable. {beside(run, theirs)}",
        rule,
        f"a mean ratio within the range is refuted in at most {LEVEL:.0%} of cases; one of "
        f"{claimed * ABOUT**2:.3g}x is missed in {mean.missed:.0%} ({noise})",
    )


def _compiled_too(run: Sequence[Record], theirs: Totals) -> str:
    exact = _ratios(theirs, _totals(run, "numba", "float64"))
    more = f"; with float64 leaves, as tianshou's: {_said(exact)}" if exact else ""
    return f"Both are compiled by numba, so the language is the same{more}"


def _in_python_too(run: Sequence[Record], theirs: Totals) -> str:
    python = _ratios(theirs, _totals(run, "python"))
    if not python:
        return "No tree of ours in pure Python was in the run, RLlib's language"
    return f"In the same language, our tree in pure Python over RLlib's: {_said(python)}"


def _rllib_grows_linearly(run: Sequence[Record], noise: Noise) -> Claim:
    text = f"RLlib's latency grows linearly with the capacity ({FIGURE})."
    rule = (
        "samples and updates are fitted by t = a + b N^p with one p: confirmed if p = 1 fits, p <= "
        f"{growth.NEARLY:g} does not and at least half of the time at the largest N grows; refuted if p is below 1 "
        "with 95 % confidence, or less than half grows"
    )
    series = _series(run, "rllib", noise)
    if len(series) < len(OPS):
        return _untestable(text, rule, run, "rllib", f" at {growth.LEAST_CAPACITIES} capacities")
    grown = growth.growth_of(series)
    control = _series(run, "cumsum", noise, ("update",))
    beside = (
        f"; by comparison an array of prefix sums, linear by design: {growth.growth_of(control)}" if control else ""
    )
    times = ", ".join(f"{1e6 * total.seconds:,.0f} us at N={n:,}" for n, total in _totals(run, "rllib").items())
    linear, slower = growth.mistaken(series)
    return Claim(
        text,
        fanout_curves.verdict(1 if grown.is_linear else -int(grown.is_sublinear)),
        f"{grown}, {grown.share:.0%} of the time at the largest N grows: {times}{beside}",
        rule,
        f"simulated at this noise ({noise}): linear growth is refuted in {linear:.1%} of runs, growth like log N is "
        f"not in {slower:.1%}",
    )


def _series(run: Sequence[Record], implementation: str, noise: Noise, ops: Sequence[str] = OPS) -> list[growth.Series]:
    """Collect times over N by operation, of default options, where there are enough capacities."""
    series = []
    for op in ops:
        points = {
            record.capacity: (record.capacity, record.seconds, math.hypot(noise.single, own_sigma(record)))
            for record in _of_the_figure(run, implementation, None)
            if record.op == op
        }
        if len(points) >= growth.LEAST_CAPACITIES:
            series.append(growth.Series.of(list(points.values())))
    return series


def _of_the_figure(run: Sequence[Record], implementation: str, dtype: str | None) -> list[Record]:
    """Select the times of an implementation that Fig. 8 asks for; leaves of ours are float32 by default."""
    wanted = dtype or ("float32" if is_ours(implementation) else None)
    timed = (record for record in run if record.median_seconds is not None)
    return [
        record
        for record in timed
        if (record.primitive, record.contestant, record.batch) == (PEER, implementation, BATCH)
        and (record.threads, record.options) == (1, {})
        and CAPACITIES[0] <= record.capacity <= CAPACITIES[1]
        and wanted in (None, record.dtype)
    ]


def _totals(run: Sequence[Record], implementation: str, dtype: str | None = None) -> dict[int, Total]:
    """Add up the times of a sample and an update, by N."""
    parts: dict[int, dict[str, Record]] = defaultdict(dict)
    for record in _of_the_figure(run, implementation, dtype):
        parts[record.capacity][record.op] = record
    return {n: _total(list(both.values())) for n, both in sorted(parts.items()) if set(OPS) <= both.keys()}


def _total(records: Sequence[Record]) -> Total:
    seconds = sum(record.seconds for record in records)
    sigma = math.hypot(*(record.seconds * own_sigma(record) for record in records)) / seconds
    return Total(seconds, sigma, sum(record.status == "unstable" for record in records))


def _ratios(theirs: Totals, ours: Totals) -> dict[int, float]:
    """Divide their time by ours, by N."""
    return {capacity: theirs[capacity].seconds / ours[capacity].seconds for capacity in theirs if capacity in ours}


def _said(ratios: Mapping[int, float]) -> str:
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    by_capacity = ", ".join(f"{ratio:,.3g}x at N={capacity:,}" for capacity, ratio in ratios.items())
    return f"{mean:,.3g}x in the geometric mean ({by_capacity})"


def _untestable(text: str, rule: str, run: Sequence[Record], implementation: str, where: str = "") -> Claim:
    why = {record.reason for record in run if record.contestant == implementation and record.reason}
    reason = f" ({'; '.join(sorted(why))})" if why else ""
    lacks = f"no samples and updates of {implementation} and ours at B = {BATCH} in one run with twins{where}{reason}"
    return unmeasured(text, rule, lacks, "peers", remedy="measure with: make peers")
