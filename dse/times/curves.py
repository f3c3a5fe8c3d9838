"""Times between and beyond those that were measured: over batches, and over counts of threads, processes and the like.

Letters: B batch. Times are seconds.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..estimate import Estimate, Evidence, weakest

_NOTHING = 1e-9  # share of a time that is rounding and no part of it


@dataclass(frozen=True)
class FlatThenLinear:
    """seconds(B) = fixed + each * B: flat while the fixed part is the larger one, then linear."""

    fixed_seconds: float
    each_seconds: float

    @property
    def knee(self) -> float | None:
        """The B at which both parts are equal; None where one of them is 0."""
        if self.fixed_seconds <= 0 or self.each_seconds <= 0:
            return None
        return self.fixed_seconds / self.each_seconds

    def seconds(self, batch: float) -> float:
        """The time of a call of B elements."""
        return self.fixed_seconds + self.each_seconds * batch


def flat_then_linear(batches: Sequence[float], seconds: Sequence[float]) -> FlatThenLinear:
    """The least squares fit of relative errors with both parts at least 0. ValueError for fewer than two batches.

    >>> flat_then_linear([1, 10, 100, 1000], [1.01, 1.1, 2.0, 11.0]).knee
    100.0
    """
    count, time = np.asarray(batches, np.float64), np.asarray(seconds, np.float64)
    if np.unique(count).size < 2:
        raise ValueError("a knee needs times at two batches at least")
    parts = np.stack((1 / time, count / time), axis=1)
    fixed, each = np.linalg.lstsq(parts, np.ones(count.size), rcond=None)[0]
    if fixed <= _NOTHING * each * count.min():
        fixed, each = 0.0, float(parts[:, 1].sum() / (parts[:, 1] ** 2).sum())
    elif each * count.max() <= _NOTHING * fixed:
        fixed, each = float(parts[:, 0].sum() / (parts[:, 0] ** 2).sum()), 0.0
    return FlatThenLinear(float(f"{fixed:.12g}"), float(f"{each:.12g}"))


def over_batch(cells: Mapping[int, Estimate], batch: int, evidence_id: str) -> Estimate:
    """The time at B from those at measured batches: log-log between two, beyond them by the flat-then-linear fit.

    Between, the interval is as wide as the fit misses its own points, halved; beyond, as wide as it misses at worst.
    """
    if batch in cells:
        return cells[batch].resting_on(id=evidence_id)
    sizes = sorted(cells)
    law = flat_then_linear(sizes, [cells[size].value for size in sizes])
    misses = [abs(math.log(law.seconds(size) / cells[size].value)) for size in sizes]
    if not sizes[0] < batch < sizes[-1]:
        own = max(cells[sizes[0]].factor, cells[sizes[-1]].factor)
        return Estimate.within(
            law.seconds(batch),
            own * math.exp(max(misses)),
            Evidence(evidence_id, "extrapolated", cells[sizes[-1]].rests_on.description),
        )
    low, high = next(pair for pair in itertools.pairwise(sizes) if pair[0] < batch < pair[1])
    part = math.log(batch / low) / math.log(high / low)
    seconds = cells[low].value ** (1 - part) * cells[high].value ** part
    own = max(cells[low].factor, cells[high].factor)
    missed = math.sqrt(sum(miss * miss for miss in misses) / len(misses)) / 2
    told = " and ".join(f"B = {size:,} ({cells[size].rests_on.description})" for size in (low, high))
    return Estimate.within(seconds, own * math.exp(missed), Evidence(evidence_id, "interpolated", f"between {told}"))


def over_count(by_count: Mapping[int, Estimate], count: int, evidence_id: str) -> Estimate | None:
    """The time with N threads, processes or devices from those with others: log-log between two, None beyond.

    Between, the interval is wider by half the way to the nearer of the two.
    """
    if count in by_count:
        return by_count[count]
    around = [pair for pair in itertools.pairwise(sorted(by_count)) if pair[0] < count < pair[1]]
    if not around:
        return None
    (fewer, more), low, high = around[0], by_count[around[0][0]], by_count[around[0][1]]
    part = math.log(count / fewer) / math.log(more / fewer)
    seconds = low.value ** (1 - part) * high.value**part
    missed = math.sqrt(min(max(seconds / end.value, end.value / seconds) for end in (low, high)))
    source = weakest([low.source, high.source, "interpolated"])
    told = f"between {fewer} ({low.rests_on.description}) and {more} ({high.rests_on.description})"
    evidence = Evidence(evidence_id, source, told, low.rests_on.command, topic=low.rests_on.topic)
    return Estimate.within(seconds, max(low.factor, high.factor) * missed, evidence)


def carried(cell: Estimate, ratio: float, evidence_id: str) -> Estimate:
    """A measured time multiplied by a law's ratio, whose uncertainty is its square root."""
    factor = cell.factor * math.sqrt(max(ratio, 1 / ratio))
    return Estimate.within(cell.value * ratio, factor, Evidence(evidence_id, "extrapolated", cell.rests_on.description))
