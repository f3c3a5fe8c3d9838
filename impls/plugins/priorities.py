"""Prioritized replay's rule, which all plug-ins share: |TD errors| become the leaves of a tree, and these weights.

What differs between hosts (which leaf a row has, where uniforms come from, what a state holds) is in their modules.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..replay.values import number
from ..sumtree.arguments import to_numpy
from ..sumtree.contract import SumTree

GONE = np.iinfo(np.int64).max  # the number of no row


class Priorities:
    """Priorities (|TD error| + epsilon)^alpha [Schaul2016] of N rows, each in a leaf of ``tree``.

    ``largest`` and ``smallest`` are those of |TD error| + epsilon so far, 1 at first. With ``is_clipped`` a priority
    that the tree cannot hold is stored as the nearest above 0 that it can; else it is a ValueError. TypeError or
    ValueError for an ``alpha`` or ``epsilon`` that is negative or not finite.
    """

    def __init__(self, tree: SumTree, alpha: float, epsilon: float = 0.0, *, is_clipped: bool = False) -> None:
        for name, value in (("alpha", alpha), ("epsilon", epsilon)):
            if not 0 <= number(name, value) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite, not {value}")
        self.tree, self.alpha, self.epsilon = tree, alpha, epsilon
        self._range = (tree.smallest_priority, tree.largest_priority) if is_clipped else None
        self.largest = self.smallest = 1.0

    @property
    def fresh(self) -> float:
        """Priority of a new row: that of the largest |TD error| so far."""
        leaf = self.largest ** float(self.alpha)
        return leaf if self._range is None else min(max(leaf, self._range[0]), self._range[1])

    def update(self, leaves: NDArray[np.int64], errors: ArrayLike, present: NDArray[np.bool_] | None = None) -> None:
        """Set the leaves ``[B]`` from |TD errors| ``[B]``, or all from one; of equal leaves the last counts.

        ``present [B]`` tells which of them still hold the rows that the errors are of: the others stay as they are.
        Raises, before anything is written, TypeError (no real numbers, leaves that are no integers), ValueError (NaN,
        negative or infinite ones, shapes that do not match) and IndexError (a leaf outside the tree).
        """
        sizes = to_numpy(errors)
        if sizes.dtype.kind not in "iuf":
            raise TypeError(f"TD errors must be real numbers, not {sizes.dtype}")
        if sizes.dtype.char not in "fd":
            sizes = sizes.astype(np.float64)
        if sizes.ndim and sizes.shape != leaves.shape:
            raise ValueError(f"TD errors must be {list(leaves.shape)} like their rows, not {list(sizes.shape)}")
        if present is not None and not present.all():
            leaves, sizes = leaves[present], sizes[present] if sizes.ndim else sizes
        if not leaves.size:
            return
        smallest, largest = sizes.min(), sizes.max()
        if not (smallest >= 0 and largest < math.inf):  # also where one is NaN
            worst = sizes[~((sizes >= 0) & (sizes < math.inf))].flat[0]
            remedy = "give absolute TD errors, and finite ones; where they were computed so, training has diverged"
            raise ValueError(f"TD error {worst} is outside [0, inf): {remedy}")
        priorities = (sizes + self.epsilon) ** float(self.alpha)
        self.tree.update(leaves, priorities if self._range is None else np.clip(priorities, *self._range))
        self.largest = max(self.largest, largest + self.epsilon)
        self.smallest = min(self.smallest, smallest + self.epsilon)

    def weights(self, priorities: NDArray[Any], beta: float, least: float | None = None) -> NDArray[Any]:
        """Importance weights ``[B]`` of rows with these priorities ``[B]``: (N p_i / total)^-beta over its maximum.

        The maximum is that of the smallest priority above 0, or of ``least`` in its place; N and the total cancel.
        """
        return (priorities / (self.tree.min() if least is None else least)) ** -beta


class NumberedPriorities(Priorities):
    """Priorities of rows in a ring, each with a number, so that errors which come late reach no other row.

    ``numbers [N]``: how many rows were written before the one at each leaf, ``GONE`` where there is none. ``written``
    is the number of the next row.
    """

    def __init__(self, tree: SumTree, alpha: float, epsilon: float = 0.0, *, is_clipped: bool = False) -> None:
        super().__init__(tree, alpha, epsilon, is_clipped=is_clipped)
        self.numbers, self.written = np.full(tree.capacity, GONE), 0

    def write(self, leaves: NDArray[np.int64]) -> None:
        """Number rows just written at leaves ``[B]``, in this order, and give them the largest priority so far."""
        self.tree.update(leaves, self.fresh)
        first, self.written = self.written, self.written + leaves.size
        self.numbers[leaves] = np.arange(first, self.written)

    def forget(self, leaves: NDArray[np.int64]) -> None:
        """Let no row be drawn, or updated, at leaves ``[B]`` until another is written there."""
        self.tree.update(leaves, 0.0)
        self.numbers[leaves] = GONE


def kept(name: str) -> property:
    """Return an attribute under the host's name that is an attribute of ``priorities``."""
    return property(
        lambda buffer: getattr(buffer.priorities, name),
        lambda buffer, value: setattr(buffer.priorities, name, value),
    )
