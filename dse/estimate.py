"""The one uncertain number: a value, the interval that holds it at 95 %, and the evidence it rests on.

Units are the user's: seconds for a part of a training system, calls a second for a curve over cores.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

from .records import Source

LEAST_FACTOR = 1.02
"""No law and no stopwatch tells a time better than within this factor."""
SUREST_FIRST: tuple[Source, ...] = ("measured", "interpolated", "quoted", "extrapolated", "modeled")


def weakest(sources: Iterable[Source]) -> Source:
    """The least sure of sources, which is that of whatever rests on all of them. ValueError without any.

    >>> weakest(["measured", "extrapolated", "interpolated"])
    'extrapolated'
    """
    return max(sources, key=SUREST_FIRST.index)


@dataclass(frozen=True)
class Evidence:
    """What a value rests on: its source, a description in words, and the command that measures it (again).

    Values with the same ``number``, a name such as "T_train(gpu)", are wrong together: sensitivity scales all of them
    at once.
    """

    number: str
    source: Source
    told: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        if self.source not in SUREST_FIRST:
            raise ValueError(f"{self.number}: a source is one of {', '.join(SUREST_FIRST)}, not {self.source!r}")


@dataclass(frozen=True)
class Estimate:
    """A value above 0 within [low, high] at 95 %. ValueError, which names the evidence, for anything else."""

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
                f"{self.rests_on.number}: an estimate must be above 0, finite and within its interval, not "
                f"{self.value} in [{self.low}, {self.high}]"
            )

    @classmethod
    def within(cls, value: float, factor: float, rests_on: Evidence) -> Self:
        """A value that is right within ``factor``, taken as ``LEAST_FACTOR`` at least, either way."""
        if not factor > 0:
            raise ValueError(f"{rests_on.number}: a factor must be above 0, not {factor}")
        factor = max(factor, LEAST_FACTOR)
        return cls(value, value / factor, value * factor, rests_on)

    @property
    def source(self) -> Source:
        """Where the value comes from."""
        return self.rests_on.source

    @property
    def factor(self) -> float:
        """The wider side of the interval, as a factor on the value.

        >>> Estimate(2.0, 1.0, 3.0, Evidence("a guess", "modeled")).factor
        2.0
        """
        return max(self.high / self.value, self.value / self.low)

    def __add__(self, other: "Estimate") -> "Estimate":
        """The sum; its ends are sums too, as for errors that go together. The evidence is the first one's."""
        return replace(self, value=self.value + other.value, low=self.low + other.low, high=self.high + other.high)

    def plus(self, value: float, factor: float = 1.0) -> "Estimate":
        """The sum with a value that is right within ``factor``, either way."""
        return replace(self, value=self.value + value, low=self.low + value / factor, high=self.high + value * factor)

    def scaled(self, ratio: float) -> "Estimate":
        """The product with an exact ratio."""
        return replace(self, value=self.value * ratio, low=self.low * ratio, high=self.high * ratio)

    def resting_on(self, **changes: Any) -> "Estimate":
        """The same value with fields of its evidence replaced."""
        return replace(self, rests_on=replace(self.rests_on, **changes))
