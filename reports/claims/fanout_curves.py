"""Test what a paper says of times over the fanout K: that they fall, have an inner minimum, or that one K is best.

A verdict is a number: 1 confirmed, -1 refuted, 0 neither. The tests take ``logs [..., S, K]``, ln(seconds) of S series
over the same fanouts, NaN where there is none, and judge every leading index by itself: the records' curves, and the
thousands of simulated ones by which the tests' own errors are computed (``chances``).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dse.records import Record

from .claims import Verdict
from .noise import Noise

LEAST_FANOUTS = 7
"""Fewer different K are no curve."""
SIMULATED = 4_000
SEED = 20_211_217
TREE = "numba"
BATCH = 256

Reals = NDArray[np.float64]
Codes = NDArray[np.int64]
Test = Callable[[Reals, Noise], Codes]


@dataclass(frozen=True)
class Curves:
    """Series of ln(seconds): ``logs [S, K]`` at ``fanouts`` and, of each series, its (N, B); ``left_out`` unstable.

    ``runs``: (commit, command) of the runs that measured them.
    """

    fanouts: tuple[int, ...]
    cells: tuple[tuple[int, int], ...]
    logs: Reals
    left_out: int
    runs: frozenset[tuple[str | None, str]]


def curves(records: Iterable[Record], op: str, options: Mapping[str, Any]) -> Curves | None:
    """Collect the curves of our tree with these options, each of one run; None where none has enough stable K."""
    runs: dict[tuple[Any, ...], dict[int, Record]] = defaultdict(dict)
    for record in records:
        shape = (record.primitive, record.contestant, record.op, record.threads, record.dtype, record.distribution)
        if (
            shape == ("sum_tree", TREE, op, 1, "float32", "uniform")
            and record.options == options
            and record.batch == BATCH
        ):
            runs[record.capacity, record.batch, record.run.code, record.run.command][record.fanout] = record
    chosen: dict[tuple[int, int], dict[int, Record]] = {}
    for (capacity, batch, *_), run in sorted(runs.items(), key=repr):
        if len(_stable(run)) > len(_stable(chosen.get((capacity, batch), {}))):
            chosen[capacity, batch] = run
    kept = {cell: run for cell, run in sorted(chosen.items()) if len(_stable(run)) >= LEAST_FANOUTS}
    if not kept:
        return None
    fanouts = tuple(sorted({fanout for run in kept.values() for fanout in _stable(run)}))
    logs = np.array([[_stable(run).get(fanout, math.nan) for fanout in fanouts] for run in kept.values()])
    left_out = sum(len(run) - len(_stable(run)) for run in kept.values())
    made = frozenset((record.run.code, record.run.command) for run in kept.values() for record in run.values())
    return Curves(fanouts, tuple(kept), logs, left_out, made)


def _stable(run: Mapping[int, Record]) -> dict[int, float]:
    """Return ln(seconds) by K of the cells that are not unstable."""
    return {fanout: math.log(record.seconds) for fanout, record in run.items() if record.status == "ok"}


def falling(logs: Reals, noise: Noise) -> Codes:
    """Test that times fall as K grows, or stay.

    Refuted: of all pairs of K, the larger one is somewhere clearly slower. A flat curve is the falling one that is the
    likeliest to be refuted. Confirmed: not that, and in every series the largest K is clearly faster than the smallest.
    """
    rises = logs[..., None, :] - logs[..., :, None]
    pairs = np.triu(np.ones(rises.shape[-2:], dtype=bool), 1)
    tests = int((pairs & ~np.isnan(rises)).sum(axis=(-3, -2, -1)).max())
    risen = ((rises > noise.critical(tests) * noise.sigma) & pairs).any(axis=(-3, -2, -1))
    first, last = _ends(logs)
    fallen = (first - last > noise.critical() * noise.sigma).all(axis=-1)
    return np.where(risen, -1, np.where(fallen, 1, 0))


def valley(logs: Reals, noise: Noise) -> Codes:
    """Test that times fall and then rise: the minimum over K is inside.

    Refuted: in a series one end is clearly faster than every K inside. Confirmed: not that, and in every series some K
    inside is clearly faster than both ends.
    """
    first, last = _ends(logs)
    inside = logs[..., 1:-1]
    between = inside.shape[-1]
    above = np.minimum(first[..., None], last[..., None]) - inside
    clear = (above > noise.critical(between) * noise.sigma).any(axis=-1).all(axis=-1)
    limit = noise.critical(2 * logs.shape[-2]) * noise.sigma
    missing = np.isnan(inside)
    ended = [((inside - end[..., None] > limit) | missing).all(axis=-1).any(axis=-1) for end in (first, last)]
    return np.where(ended[0] | ended[1], -1, np.where(clear, 1, 0))


def best_at(place: int) -> Test:
    """Make the test that the K at this position is the best of all, in the mean over the series.

    Refuted: another K is clearly faster. Confirmed: it is clearly faster than every other K.
    """

    def test(logs: Reals, noise: Noise) -> Codes:
        behind = np.delete(logs[..., [place]] - logs, place, axis=-1)
        series = (~np.isnan(behind)).sum(axis=-2)
        sigma = noise.sigma / np.sqrt(np.maximum(1, series))
        mean = np.where(series > 0, np.nansum(behind, axis=-2) / np.maximum(1, series), 0.0)
        beaten = (mean > noise.critical(behind.shape[-1]) * sigma).any(axis=-1)
        ahead = (mean < -noise.critical() * sigma).all(axis=-1)
        return np.where(beaten, -1, np.where(ahead, 1, 0))

    return test


def _ends(logs: Reals) -> tuple[Reals, Reals]:
    """Return (first, last) of every series ``[..., S]``; NaN where that K is missing, and then nothing is clear."""
    return logs[..., 0], logs[..., -1]


def chances(test: Test, truth: Reals, missing: NDArray[np.bool_], noise: Noise) -> tuple[float, float]:
    """Compute by simulation (chance to refute, chance to confirm) where ln(seconds) are ``truth [S, K]`` and noise."""
    sampled = np.random.default_rng(SEED).normal(truth, noise.single, (SIMULATED, *truth.shape))
    codes = test(np.where(missing, np.nan, sampled), noise)
    return float((codes == -1).mean()), float((codes == 1).mean())


def verdict(code: int) -> Verdict:
    """Name the verdict of a code."""
    names: dict[int, Verdict] = {1: "confirmed", -1: "refuted", 0: "not testable here"}
    return names[code]
