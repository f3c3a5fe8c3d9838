"""A law of a training system's primitives: a call's fixed and growing parts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
