"""The one uncertain number: a value, its uncertainty, and the evidence it rests on.

What was measured, or lies between measured points, has a 95 % interval, which later measurements validate. What a
model or another's table says has a factor instead, the error bound that its maker takes.

Units are the user's: seconds for a part of a training system, calls/s for a curve over cores.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, NamedTuple, Self

from .records import Source

LEAST_FACTOR = 1.02
"""No law and no stopwatch tells a time better than within this factor."""
SUREST_FIRST: tuple[Source, ...] = ("measured", "interpolated", "quoted", "extrapolated", "modeled")

Interval = Literal["95 %", "factor"]
"""What the ends around a value mean."""
TIMED: tuple[Source, ...] = ("measured", "interpolated")


def interval_of(sources: Iterable[Source]) -> Interval:
    """What the ends of a value mean that rests on all these sources: "95 %" where each was measured, or lies between.

    >>> interval_of(["measured", "interpolated"]), interval_of(["measured", "modeled"])
    ('95 %', 'factor')
    """
    return "95 %" if set(sources) <= set(TIMED) else "factor"


def off(value: float, low: float, high: float) -> float:
    """The wider side of the ends around a value, as a factor on it."""
    return max(high / value, value / low)


def written(text: str, factor: float, interval: Interval) -> str:
    """Mark a value's text with the factor of its error bound, where that is what its ends mean.

    >>> written("494 us", 2.0, "factor"), written("494 us", 1.1, "95 %"), written("494 us", 2345.6, "factor")
    ('~494 us (x2)', '494 us', '~494 us (x2,350)')
    """
    return f"~{text} (x{float(f'{factor:.3g}'):,.10g})" if interval == "factor" else text


def weakest(sources: Iterable[Source]) -> Source:
    """The least sure of sources, which is that of whatever rests on all of them. ValueError without any.

    >>> weakest(["measured", "extrapolated", "interpolated"])
    'extrapolated'
    """
    return max(sources, key=SUREST_FIRST.index)


class Assumption(NamedTuple):
    """What stands for a number that a platform file does not state: ``value`` for ``device.key``, in ``unit``."""

    device: str
    key: str
    value: float
    unit: str


@dataclass(frozen=True)
class Evidence:
    """What a value rests on: its source, a description in words, and the command that measures it (again).

    ``assumed``: what a platform file does not state and the value needs. Values with the same
    ``id``, a name such as "T_train(gpu)", are wrong together: sensitivity scales all of them at once. ``alone``:
    the source and the factor of a part's own time, where just the run that it is a share of was timed. ``topic``: what
    the command measures, "profile" (parts), "arrangements" (whole runs) or "sweep" (trees).
    """

    id: str
    source: Source
    description: str = ""
    command: str = ""
    assumed: tuple[Assumption, ...] = ()
    alone: tuple[Source, float] | None = None
    topic: str = ""

    def __post_init__(self) -> None:
        if self.source not in SUREST_FIRST:
            raise ValueError(f"{self.id}: a source is one of {', '.join(SUREST_FIRST)}, not {self.source!r}")


@dataclass(frozen=True)
class Estimate:
    """A value above 0 within [low, high], which ``interval`` says the meaning of. ValueError for anything else."""

    value: float
    low: float
    high: float
    rests_on: Evidence

    def __post_init__(self) -> None:
        if not isinstance(self.rests_on, Evidence):
            raise ValueError(f"an estimate rests on an Evidence, not {self.rests_on!r}")
        real = all(isinstance(end, Real) for end in (self.value, self.low, self.high))
        if not (real and 0 < self.low <= self.value <= self.high < math.inf):
            raise ValueError(
                f"{self.rests_on.id}: an estimate must be above 0, finite and within its interval, not "
                f"{self.value} in [{self.low}, {self.high}]"
            )

    @classmethod
    def within(cls, value: float, factor: float, rests_on: Evidence) -> Self:
        """A value with an error bound of ``factor``, taken as ``LEAST_FACTOR`` at least, either way."""
        if not factor > 0:
            raise ValueError(f"{rests_on.id}: a factor must be above 0, not {factor}")
        factor = max(factor, LEAST_FACTOR)
        return cls(value, value / factor, value * factor, rests_on)

    @property
    def source(self) -> Source:
        """Where the value comes from."""
        return self.rests_on.source

    @property
    def interval(self) -> Interval:
        """What the ends mean: "95 %", or "factor" where nothing but a law, a fit or a quotation backs them."""
        return interval_of([self.source])

    @property
    def factor(self) -> float:
        """The wider side of the ends, as a factor on the value.

        >>> Estimate(2.0, 1.0, 3.0, Evidence("a guess", "modeled")).factor
        2.0
        """
        return off(self.value, self.low, self.high)

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum; its ends are sums too, as for errors that go together. The evidence is the first one's."""
        return replace(self, value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    def plus(self, value: float, factor: float = 1.0) -> "Estimate":
        """The sum with a value of error bound ``factor``, either way."""
        return replace(self, value=self.value + value, low=self.low + value / factor, high=self.high + value * factor)

    def scaled(self, ratio: float) -> "Estimate":
        """The product with an exact ratio."""
        return replace(self, value=self.value * ratio, low=self.low * ratio, high=self.high * ratio)

    def resting_on(self, **changes: Any) -> "Estimate":
        """The same value with fields of its evidence replaced."""
        return replace(self, rests_on=replace(self.rests_on, **changes))
