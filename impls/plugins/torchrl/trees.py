"""Our trees behind the methods of torchrl's compiled ones."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import impls

from ...checks import integer_at_least


class _SegmentTree:
    """What both adapters share: torchrl's way of asking, the leaves in a tree of ours.

    Indices and values are Python numbers, NumPy arrays or torch tensors of any shape; answers are of the same kind and
    shape. As torchrl's trees have more leaves than ``size``, and buffers write to them, so have these: ``capacity``,
    the least power of two that is not below ``size``. An index outside [0, capacity) is an IndexError, where torchrl's
    trees write to other leaves or beyond their memory.

    ``tree``: one that holds the leaves already; else one is made.
    """

    _minimum = False

    def __init__(
        self,
        size: int,
        dtype: torch.dtype = torch.float32,
        *,
        implementation: str = "numba",
        fanout: int = 16,
        tree: impls.SumTree | None = None,
    ) -> None:
        self.size = integer_at_least("size", size, 1)
        if tree is None:
            tree = impls.make(
                implementation, leaves_of(size), fanout=fanout, dtype=dtype_name(dtype), minimum=self._minimum
            )
        self._tree = tree

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, tree={self._tree!r})"

    @property
    def capacity(self) -> int:
        """Leaves that can be written and read."""
        return self._tree.capacity

    @property
    def identity_element(self) -> float:
        """What a query over no leaf answers."""
        return float(np.finfo(self._tree.dtype).max) if self._minimum else 0.0

    def __getitem__(self, index: Any) -> Any:
        return self.at(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.update(index, value)

    def at(self, index: Any) -> Any:
        """The values at an index: ``tree[index]``. IndexError, TypeError."""
        return like(index, self._tree.get(flat(index)))

    def update(self, index: Any, value: Any) -> None:
        """Set the leaves at an index to as many values, or all to one: ``tree[index] = value``.

        Raises IndexError, TypeError and, for NaN, negative or infinite values, ValueError.
        """
        where, values = flat(index), flat(value)
        self._tree.update(where, values if values.size == where.size else values.item() if values.size == 1 else values)

    def query(self, left: Any, right: Any) -> Any:
        """The sum, or the minimum, over leaves left .. right-1; ends beyond the tree count as its ends."""
        starts, ends = np.clip(flat(left), 0, self.capacity), np.clip(flat(right), 0, self.capacity)
        answers = [
            self._over(start, end) if start < end else self.identity_element
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return like(left, np.array(answers))

    def _covers(self, start: int, end: int) -> bool:
        """Whether no leaf outside [start, end) is above 0."""
        bounds = [0, end], [start, self.capacity]
        return (start == 0 and end == self.capacity) or not self._tree.range_sum(*map(np.array, bounds)).any()

    def _over(self, start: int, end: int) -> float:
        raise NotImplementedError


class SumSegmentTree(_SegmentTree):
    """Our tree behind the methods of torchrl's ``SumSegmentTreeFp32`` and ``Fp64``. Sums are float64 in both."""

    def _over(self, start: int, end: int) -> float:
        # The root where it can be: a value drawn below it then never lies beyond the last leaf.
        return self._tree.total() if self._covers(start, end) else float(self._tree.range_sum(start, end)[0])

    def scan_lower_bound(self, value: Any) -> Any:
        """The first leaf i with p_0 + .. + p_i >= value; ``size`` for a value above the total. ValueError below 0."""
        values, total = flat(value), self._tree.total()
        found = self._tree.prefix_sum_index(np.minimum(values, total), side="left")
        return like(value, np.where(values > total, self.size, found))


class MinSegmentTree(_SegmentTree):
    """Our tree behind the methods of torchrl's ``MinSegmentTreeFp32`` and ``Fp64``: the minimum over leaves above 0.

    A leaf that was never set reads as ``identity_element``, the largest number of the dtype, and one that is set to 0
    counts as never set: it cannot be drawn either.
    """

    _minimum = True

    def at(self, index: Any) -> Any:
        values = self._tree.get(flat(index))
        return like(index, np.where(values > 0, values, np.array(self.identity_element, values.dtype)))

    def update(self, index: Any, value: Any) -> None:
        values = flat(value).astype(np.float64)
        super().update(index, np.where(values >= self.identity_element, 0.0, values))

    def _over(self, start: int, end: int) -> float:
        if self._covers(start, end):
            least = self._tree.min()
        else:
            leaves = self._tree.get(np.arange(start, end))
            least = float(leaves.min(where=leaves > 0, initial=math.inf))
        return min(least, self.identity_element)


def leaves_of(size: int) -> int:
    """Leaves of a tree for ``size`` rows: the least power of two that is not below."""
    return 1 << (size - 1).bit_length()


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def array_of(values: Any) -> NDArray[Any]:
    """The values as an array in host memory; those of a tensor that is there are not copied."""
    try:
        return values.numpy() if isinstance(values, torch.Tensor) else impls.to_numpy(values)
    except (RuntimeError, TypeError):  # a tensor with a gradient, of another device, of a dtype that NumPy lacks
        return impls.to_numpy(values)


def flat(values: Any) -> NDArray[Any]:
    """The values ``[B]``, without a copy where there need be none."""
    return array_of(values).reshape(-1)


def like(question: Any, answers: NDArray[Any]) -> Any:
    """The answers ``[B]`` as what was asked for: a tensor, an array or a number, in its shape."""
    if isinstance(question, torch.Tensor):
        return torch.from_numpy(answers).reshape(question.shape).to(question.device)
    shape = np.shape(question)
    return answers.reshape(shape) if shape or isinstance(question, np.ndarray) else answers.item()
