"""Judge the claims of [Zhang2021] about other libraries (Fig. 8) by a run that timed them and our trees in turns.

The paper's figure is the latency of insertion + sampling at B = 128; here it is that of a sample and an update. It
compared a C++ tree; ours beside the libraries are the compiled numba tree and, where the language should be the same,
the one written in Python alone.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import impls

from .. import stats
from ..records import Measurement, twins
from .claims import Claim, verdict_of
from .quoted import NOTHING, Quoted
from .tree_claims import LINEAR_SLOPE

PAPER, ORDER = "[Zhang2021]", 2
PEER = "peer"
BATCH = 128
CAPACITIES = (1 << 10, 1 << 20)  # the least and the most of the figure
LEAST_CAPACITIES = 3  # fewer points have no slope worth the name
FIGURE = f"VI-D, Fig. 8: insertion + sampling, B = {BATCH}"

Totals = Mapping[int, float]
Beside = Callable[[Sequence[Measurement], Totals], str]


def is_ours(implementation: str) -> bool:
    """Tell whether it is a tree of ours rather than a library's."""
    return implementation in impls.names()


def one_run(records: Sequence[Measurement], primitive: str = PEER) -> list[Measurement]:
    """Select the records of other libraries that one run made, the one with most of them; of equals, the latest.

    Times of two runs may differ by the hour alone, so only those of one are divided by each other.
    """
    runs: dict[tuple[str | None, str], list[Measurement]] = defaultdict(list)
    for record in records:
        if record.primitive.startswith(primitive):
            runs[record.commit, record.command].append(record)
    return max(runs.values(), key=lambda run: (len(run), max(record.utc for record in run)), default=[])


def verdicts(records: Sequence[Measurement], _: Quoted = NOTHING) -> list[Claim]:
    """Judge the claims of section VI-D about tianshou and RLlib."""
    run = one_run(records)
    floor = stats.noise_floor(twins(run, PEER))
    return [
        _times_as_fast(run, floor, 4, "tianshou", _compiled_too),
        _times_as_fast(run, floor, 100, "RLlib", _in_python_too),
        _rllib_grows_linearly(run),
    ]


def _times_as_fast(run: Sequence[Measurement], floor: float, claimed: int, name: str, beside: Beside) -> Claim:
    """Judge that the tree is so many times as fast as a library's; ``beside`` says what another tree of ours tells."""
    text, library = f"The tree is about {claimed}x as fast as {name}'s ({FIGURE}).", name.lower()
    theirs = _totals(run, library)
    ratios = _ratios(theirs, _totals(run, "numba"))
    if not ratios:
        return _untestable(text, run, library)
    criterion = f"the mean counts, and {claimed}x within the noise floor of {floor:.1%} confirms"
    verdict = verdict_of(_mean(ratios) >= claimed * math.exp(-floor))
    return Claim(text, verdict, f"numba over {name}: {_said(ratios)}; {criterion}. {beside(run, theirs)}")


def _compiled_too(run: Sequence[Measurement], theirs: Totals) -> str:
    exact = _ratios(theirs, _totals(run, "numba", "float64"))
    more = f"; with float64 leaves, as tianshou's: {_said(exact)}" if exact else ""
    return f"Both are compiled by numba, so the language is the same{more}"


def _in_python_too(run: Sequence[Measurement], theirs: Totals) -> str:
    python = _ratios(theirs, _totals(run, "python"))
    if not python:
        return "No tree of ours in pure Python was in the run, RLlib's language"
    return f"In the same language, our tree in pure Python over RLlib's: {_said(python)}"


def _rllib_grows_linearly(run: Sequence[Measurement]) -> Claim:
    text = f"RLlib's latency grows linearly with the capacity ({FIGURE})."
    totals = _totals(run, "rllib")
    if len(totals) < LEAST_CAPACITIES:
        return _untestable(text, run, "rllib", f" at {LEAST_CAPACITIES} capacities")
    slope = float(np.polyfit(np.log(list(totals)), np.log(list(totals.values())), 1)[0])
    times = ", ".join(f"{1e6 * seconds:,.0f} us at N={capacity:,}" for capacity, seconds in totals.items())
    return Claim(
        text,
        verdict_of(slope >= LINEAR_SLOPE),
        f"fitted exponent of N {slope:.2f}, where 1 is linear and {LINEAR_SLOPE} the least that counts as it: {times}",
    )


def _totals(run: Sequence[Measurement], implementation: str, dtype: str | None = None) -> dict[int, float]:
    """Sum the seconds of a sample and an update, by N, with default options; leaves of ours are float32 by default."""
    wanted = dtype or ("float32" if is_ours(implementation) else None)
    parts: dict[int, dict[str, float]] = defaultdict(dict)
    for record in run:
        shape = (record.primitive, record.contestant, record.batch, record.threads, record.options)
        inside = CAPACITIES[0] <= record.capacity <= CAPACITIES[1]
        if shape == (PEER, implementation, BATCH, 1, {}) and inside and wanted in (None, record.dtype):
            if record.median_seconds is not None:
                parts[record.capacity][record.op] = record.seconds
    both = {"draw", "update"}
    return {n: sum(times[op] for op in both) for n, times in sorted(parts.items()) if both <= times.keys()}


def _ratios(theirs: Totals, ours: Totals) -> dict[int, float]:
    """Divide their time by ours, by N."""
    return {capacity: theirs[capacity] / ours[capacity] for capacity in theirs if capacity in ours}


def _mean(ratios: Totals) -> float:
    return math.exp(sum(map(math.log, ratios.values())) / len(ratios))


def _said(ratios: Totals) -> str:
    by_capacity = ", ".join(f"{ratio:,.3g}x at N={capacity:,}" for capacity, ratio in ratios.items())
    return f"{_mean(ratios):,.3g}x in the geometric mean ({by_capacity})"


def _untestable(text: str, run: Sequence[Measurement], implementation: str, where: str = "") -> Claim:
    why = {record.reason for record in run if record.contestant == implementation and record.reason}
    reason = f" ({'; '.join(sorted(why))})" if why else ""
    evidence = (
        f"no samples and updates of {implementation} and of ours at B = {BATCH} were measured in one run{where}{reason}"
    )
    return Claim(text, "not testable here", f"{evidence}; to measure it: make peers")
