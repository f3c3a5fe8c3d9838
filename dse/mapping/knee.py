"""Where a larger batch no longer pays: the smallest that trains nearly as many records per second as any.

The rate of records rises with B, as what every gradient step costs is shared by more of them, up to what each record
costs: its saturated rate. What a record trained is worth is no part of it, and falls with B; so a rule that takes the
most records takes the largest batch there is.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..answer import Note

SHARE = 0.9
"""Of the saturated rate: a larger batch trains at most a ninth more, which is less than most rates here are sure to."""
STRIDE = 3  # powers of two between the batches of the coarse search


@dataclass(frozen=True)
class Knee:
    """The ``batch`` at the knee; None where the rate still rises at the ``largest`` that fits, or nothing fits.

    ``rates``: records per second by batch, of all that were tried, 0 where it does not fit.
    """

    batch: int | None
    largest: int | None
    rates: dict[int, float]

    @property
    def most(self) -> float:
        """The highest rate of those tried."""
        return max(self.rates.values(), default=0.0)

    def notes(self, batch: int, unit: str, measured: bool) -> Iterator[Note]:
        """Yield why B is this batch, and what that leaves out. ``measured``: whether the largest measured ends it."""
        shares = {f"{tried:,}": rate / self.most if self.most else 0.0 for tried, rate in sorted(self.rates.items())}
        values = {"batch": batch, "unit": unit, "least_share": SHARE, "largest": self.largest, "shares": shares}
        kind = "batch_at_knee"
        if self.batch is None:
            kind = "batch_still_rising_measured" if measured else "batch_still_rising"
        yield Note(kind, {**values, "is_largest": batch == self.largest})
        yield Note("worth_of_records", {})


def knee(batches: Sequence[int], rate: Callable[[int], float]) -> Knee:
    """The smallest batch with at least ``SHARE`` of the highest rate, coarse to fine; batches rise.

    ``rate``: records per second, 0 where the batch does not fit. It is taken to rise with B, and what fits to be a
    smaller batch's too; so few are asked for.
    """
    rates: dict[int, float] = {}

    def pays(place: int) -> bool:
        batch = batches[place]
        if batch not in rates:
            rates[batch] = rate(batch)
        return rates[batch] > 0 and rates[batch] >= SHARE * max(rates.values())

    last = _largest(len(batches), lambda place: pays(place) or rates[batches[place]] > 0)
    if last < 0:
        return Knee(None, None, rates)
    above, below = last, last - STRIDE
    while below >= 0 and pays(below):
        above, below = below, below - STRIDE
    below = max(below, -1)
    # Invariant: above pays; below does not, or lies before all.
    while above - below > 1:
        middle = (above + below) // 2
        above, below = (middle, below) if pays(middle) else (above, middle)
    smallest = min(batch for batch, known in rates.items() if known >= SHARE * max(rates.values()))
    return Knee(smallest if smallest < batches[last] or last == 0 else None, batches[last], rates)


def _largest(count: int, fits: Callable[[int], bool]) -> int:
    """The last place that fits, -1 where none does."""
    if count and fits(count - 1):
        return count - 1
    first, end = -1, count - 1
    # Invariant: first fits, or lies before all; end does not.
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (middle, end) if fits(middle) else (first, middle)
    return first
