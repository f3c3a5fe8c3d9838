"""The naive float64 twin that every implementation is tested against: an array, summed again for each question."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from .arguments import Indices, Reals


class Oracle:
    """N priorities, rounded to the leaf dtype or as ``rounded`` says, summed in float64 from left to right."""

    def __init__(
        self, capacity: int, dtype: str = "float32", rounded: Callable[[ArrayLike], Reals] | None = None
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.rounded = rounded or (lambda priorities: np.asarray(priorities).astype(self.dtype).astype(np.float64))
        self.leaves: Reals = np.zeros(capacity)

    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        """Set leaves ``[B]`` to priorities ``[B]`` (or one scalar for all), one after the other."""
        where = np.atleast_1d(np.asarray(indices))
        stored = np.broadcast_to(self.rounded(priorities), where.shape)
        # Invariant: every leaf has the last of the priorities so far that its index came with.
        for index, priority in zip(where, stored, strict=True):
            self.leaves[int(index)] = priority

    def get(self, indices: ArrayLike) -> Reals:
        """Leaves ``[B]`` at indices ``[B]``."""
        return self.leaves[np.atleast_1d(np.asarray(indices, dtype=np.int64))]

    def total(self) -> float:
        """Sum of all leaves."""
        return float(self.leaves.cumsum()[-1])

    def min(self) -> float:
        """The smallest leaf above 0; infinity where there is none."""
        return float(self.leaves[self.leaves > 0].min(initial=np.inf))

    def range_sum(self, left: ArrayLike, right: ArrayLike) -> Reals:
        """The leaves from ``left [B]`` to before ``right [B]``, added without rounding and rounded once."""
        pairs = zip(np.atleast_1d(np.asarray(left)), np.atleast_1d(np.asarray(right)), strict=True)
        return np.array([math.fsum(self.leaves[start:end]) for start, end in pairs])

    def prefix_sum_index(self, mass: ArrayLike, side: Literal["left", "right"] = "right") -> Indices:
        """The smallest i with p_0 + .. + p_i > mass (``side="left"``: >= mass), ``[B]``; N where there is none."""
        return np.searchsorted(self.leaves.cumsum(), np.atleast_1d(np.asarray(mass)), side=side)

    def sample_distinct(self, uniforms: ArrayLike) -> Indices:
        """Distinct leaves ``[B]``, each next one in proportion to its priority among those left; N where none is."""
        leaves, drawn = self.leaves.copy(), []
        for uniform in np.atleast_1d(np.asarray(uniforms)):
            # Invariant: leaves are those left; each that was drawn is 0.
            ends = leaves.cumsum()
            drawn.append(np.searchsorted(ends, min(uniform * ends[-1], np.nextafter(ends[-1], 0)), side="right"))
            leaves[drawn[-1] : drawn[-1] + 1] = 0.0
        return np.array(drawn, np.int64)

    def misses(self, indices: ArrayLike, mass: ArrayLike, tolerance: float = 1e-9) -> Indices:
        """Positions ``[<= B]`` of wrong answers ``indices [B]``: out of range, of priority 0, or with a prefix value
        ``mass [B]`` more than ``tolerance * total`` outside the leaf's interval [p_0 + .. + p_(i-1), p_0 + .. + p_i).
        """
        chosen, wanted = np.atleast_1d(np.asarray(indices)), np.atleast_1d(np.asarray(mass, dtype=np.float64))
        ends = np.concatenate([[0.0], self.leaves.cumsum()])  # leaf i's interval is [ends[i], ends[i + 1])
        slack = tolerance * ends[-1]
        in_range = (chosen >= 0) & (chosen < self.leaves.size)
        safe = np.where(in_range, chosen, 0)
        right = in_range & (self.leaves[safe] > 0) & (ends[safe] - slack <= wanted) & (wanted < ends[safe + 1] + slack)
        return np.flatnonzero(~right)
