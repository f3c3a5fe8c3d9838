"""Times between and beyond those that were measured: over batches, and over counts of threads, processes and the like.

Letters: B batch. Times are seconds.
"""

import itertools
import math
from collections.abc import Mapping

from ..estimate import Estimate, Evidence, weakest
from .batch_law import flat_then_linear


def over_batch(cells: Mapping[int, Estimate], batch: int, number: str) -> Estimate:
    """The time at B from those at measured batches: log-log between two, beyond them by the flat-then-linear fit.

    Between, the interval is as wide as the fit misses its own points, halved; beyond, as wide as it misses at worst.
    """
    if batch in cells:
        return cells[batch].resting_on(number=number)
    sizes = sorted(cells)
    law = flat_then_linear(sizes, [cells[size].value for size in sizes])
    misses = [abs(math.log(law.seconds(size) / cells[size].value)) for size in sizes]
    if not sizes[0] < batch < sizes[-1]:
        own = max(cells[sizes[0]].factor, cells[sizes[-1]].factor)
        return Estimate.within(
            law.seconds(batch),
            own * math.exp(max(misses)),
            Evidence(number, "extrapolated", cells[sizes[-1]].rests_on.told),
        )
    low, high = next(pair for pair in itertools.pairwise(sizes) if pair[0] < batch < pair[1])
    part = math.log(batch / low) / math.log(high / low)
    seconds = cells[low].value ** (1 - part) * cells[high].value ** part
    own = max(cells[low].factor, cells[high].factor)
    missed = math.sqrt(sum(miss * miss for miss in misses) / len(misses)) / 2
    told = " and ".join(f"B = {size:,} ({cells[size].rests_on.told})" for size in (low, high))
    return Estimate.within(seconds, own * math.exp(missed), Evidence(number, "interpolated", f"between {told}"))


def over_count(by_count: Mapping[int, Estimate], count: int, number: str) -> Estimate | None:
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
    told = f"between {fewer} ({low.rests_on.told}) and {more} ({high.rests_on.told})"
    evidence = Evidence(number, source, told, low.rests_on.command, topic=low.rests_on.topic)
    return Estimate.within(seconds, max(low.factor, high.factor) * missed, evidence)


def carried(cell: Estimate, ratio: float, number: str) -> Estimate:
    """A measured time multiplied by a law's ratio, whose uncertainty is its square root."""
    factor = cell.factor * math.sqrt(max(ratio, 1 / ratio))
    return Estimate.within(cell.value * ratio, factor, Evidence(number, "extrapolated", cell.rests_on.told))
