"""Batches as calls give them: each check returns the converted batch, or raises with the value and the bound."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Indices = NDArray[np.int64]
Reals = NDArray[np.float64]
Priorities = NDArray[np.floating[Any]]

BELOW_ONE = math.nextafter(1.0, 0.0)
EXACT = {
    np.dtype(np.float64): frozenset(map(np.dtype, ("float16", "float32", "float64"))),
    np.dtype(np.int64): frozenset(map(np.dtype, ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"))),
}
"""Dtypes every value of which converts unchanged to the key's."""
told_of_tensors: list[Callable[[type], object]] = []
"""Functions that are called with the class of each tensor that was met."""


def to_numpy(array: Any) -> NDArray[Any]:
    """The array in host memory, from whatever device it is on: NumPy's, CuPy's or torch's, gradients left behind.

    torch's bfloat16, which NumPy lacks, becomes float32.
    """
    if hasattr(array, "detach"):
        for know in told_of_tensors:
            know(type(array))
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
    elif hasattr(array, "__cuda_array_interface__"):
        array = array.get()
    elif isinstance(array, (list, tuple)) and array and hasattr(array[0], "detach"):
        array = [to_numpy(each) for each in array]
    return np.asarray(array)


def vector(what: str, values: ArrayLike) -> NDArray[Any]:
    """The values as ``[B]``, in memory that no other thread holds; a scalar is B = 1, any other rank a ValueError."""
    try:
        array = np.array(values if type(values) is np.ndarray else to_numpy(values), order="C")
    except ValueError as error:
        raise ValueError(f"{what} must be a scalar or of shape [B]: {error}") from None
    except (RuntimeError, TypeError, NotImplementedError) as error:  # a tensor that NumPy cannot have
        raise TypeError(f"{what} cannot be taken as an array of numbers: {error}") from None
    if array.ndim > 1:
        raise ValueError(f"{what} must be a scalar or of shape [B], not of shape {list(array.shape)}")
    return array.reshape(-1)


def is_scalar(values: ArrayLike) -> bool:
    """Whether the values are one number and no ``[1]``."""
    return not isinstance(values, (list, tuple)) and np.ndim(values) == 0


def index_batch(values: ArrayLike, capacity: int, *, closed: bool = False) -> Indices:
    """Indices ``[B]`` as int64, all in [0, capacity), or in [0, capacity] if ``closed``.

    TypeError, ValueError, IndexError.
    """
    array = vector("indices", values)
    bounds, highest = f"[0, {capacity}{']' if closed else ')'}", capacity if closed else capacity - 1
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype == object:  # Python integers beyond every integer dtype are still indices, and out of range
        is_beyond = np.array([type(i) is int and not 0 <= i <= highest for i in array])
        _refuse(IndexError, "index", array, is_beyond, bounds)
    if array.dtype.kind not in "iu":
        raise TypeError(f"indices must be integers, not {array.dtype}")
    _refuse(IndexError, "index", array, (array < 0) | (array > highest), bounds)
    return array.astype(np.int64, copy=False)


def _refuse(kind: type[Exception], what: str, array: NDArray[Any], bad: NDArray[np.bool_], bounds: str) -> None:
    if bad.any():
        at = int(bad.argmax())
        raise kind(f"{what} {array[at]} at position {at} is outside {bounds}")


def range_batch(left: ArrayLike, right: ArrayLike, capacity: int) -> tuple[Indices, Indices]:
    """Bounds ``[B]`` of ranges as int64, 0 <= left <= right <= capacity; either may be one scalar for all.

    TypeError, ValueError, IndexError.
    """
    bounds = index_batch(left, capacity, closed=True), index_batch(right, capacity, closed=True)
    starts, ends = bounds
    if starts.size != ends.size:
        if not (is_scalar(left) or is_scalar(right)):
            raise ValueError(
                f"left and right must be scalars or of one shape [B], not [{starts.size}] and [{ends.size}]"
            )
        starts, ends = (np.array(each) for each in np.broadcast_arrays(*bounds))
    if (bad := starts > ends).any():
        at = int(bad.argmax())
        raise ValueError(f"left {starts[at]} at position {at} is above right {ends[at]}: left must be in [0, right]")
    return starts, ends


def real_batch(what: str, values: ArrayLike) -> NDArray[Any]:
    """The values as real numbers ``[B]`` in the caller's own dtype. TypeError, ValueError."""
    array = vector(what, values)
    if array.size == 0:
        return np.empty(0, np.float64)
    if array.dtype == object and all(isinstance(value, (int, float)) for value in array):
        array = np.array([_as_float(value) for value in array])  # integers beyond every integer dtype
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{what} must be real numbers, not {array.dtype}")
    return array


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def priority_batch(values: ArrayLike, batch: int, dtype: np.dtype[Any], highest: float) -> Reals:
    """Priorities ``[B]`` float64, each exactly as a leaf of ``dtype`` stores it, in [0, highest].

    TypeError, ValueError.
    """
    array = real_batch("priority", values)
    scalar = is_scalar(values)
    if array.size != batch and not scalar:
        raise ValueError(f"priorities must be one scalar or [{batch}] like the indices, not [{array.size}]")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        stored = array.astype(dtype).astype(np.float64)
    stored += 0.0  # of -0.0 it makes 0.0
    # The sign is the caller's: a negative value must not slip through by rounding to -0.0.
    is_bad = ~((array >= 0) & (stored <= highest))  # also where it is NaN, as below
    _refuse(ValueError, "priority", array, is_bad, f"[0, {highest:.8g}]")
    return np.full(batch, stored[0]) if scalar else stored


def uniform_batch(values: ArrayLike) -> Reals:
    """Uniforms ``[B]`` float64 in [0, 1), judged before rounding. TypeError, ValueError."""
    array = real_batch("uniform", values)
    if is_scalar(values) and array[0] >= 1 and array[0] == np.floor(array[0]) < np.inf:
        raise ValueError(
            f"uniform {array[0]} at position 0 is outside [0, 1): sample wants the uniforms themselves, not their "
            f"number, as in sample(impls.uniforms(rng, {int(array[0])}))"
        )
    _refuse(ValueError, "uniform", array, ~((array >= 0) & (array < 1)), "[0, 1)")
    rounded: Reals = array.astype(np.float64, copy=False)
    return np.minimum(rounded, BELOW_ONE)


def mass_batch(array: NDArray[Any], total: float, *, closed: bool = False) -> Reals:
    """Prefix values ``[B]`` float64 in [0, total), ``closed``: in [0, total], judged before rounding.

    ValueError; RuntimeError at total 0, ``closed``: for a value above 0.
    """
    if total <= 0.0 and (not closed or (array > 0).any()):
        raise RuntimeError(nothing_to_sample(total))
    total, is_float = max(total, 0.0), array.dtype.kind == "f"
    # Compared exactly: floats as the wider of the two, integers as integers.
    if closed:
        below = array <= (np.float64(total) if is_float else math.floor(total))
    else:
        below = array < (np.float64(total) if is_float else math.ceil(total))
    _refuse(ValueError, "mass", array, ~((array >= 0) & below), f"[0, {total!r}{']' if closed else ')'}")
    rounded: Reals = array.astype(np.float64, copy=False)
    return np.minimum(rounded, total if closed else math.nextafter(total, 0.0))


def nothing_to_sample(total: float) -> str:
    """Message of the RuntimeError for a tree of zeros, whose root delta updates may have left off the truth."""
    return f"nothing to sample: the total is {total!r}" + (", call rebuild() to sum the leaves anew" if total else "")


_MOST_GATHERED = 1 << 20  # nodes of groups at once


def uniforms(rng: np.random.Generator, batch: int) -> Reals:
    """``[B]`` independent float64 in [0, 1)."""
    return rng.random(batch)


def stratified_uniforms(rng: np.random.Generator, batch: int) -> Reals:
    """``[B]`` float64 in [0, 1), one in each of B equal intervals, in order."""
    return stratified(rng.random(batch))


def stratified(uniforms: Reals) -> Reals:
    """Uniforms ``[B]``, each moved into one of B equal intervals, in order."""
    batch = uniforms.size
    return np.minimum((np.arange(batch) + uniforms) / max(batch, 1), BELOW_ONE)


@np.errstate(under="ignore")
def prefix_values(uniforms: Reals, total: float) -> Reals:
    """u * total ``[B]``, kept in [0, total); 0 where delta updates have left a total below 0."""
    return np.maximum(np.minimum(uniforms * total, math.nextafter(total, -math.inf)), 0.0)


def in_parts(answer: Callable[[Any], NDArray[Any]], values: NDArray[Any], width: int) -> NDArray[Any]:
    """Answers ``[B]`` for values ``[B]``, in parts that gather at most 2**20 nodes of groups at once."""
    rows = max(1, _MOST_GATHERED // width)
    return np.concatenate([answer(values[first : first + rows]) for first in range(0, values.size, rows)])


def sums_of_ranges(levels: Sequence[Any], fanout: int, left: Any, right: Any, dtype: DTypeLike = np.float64) -> Any:
    """Sums ``[B]`` of the leaves from ``left [B]`` to before ``right [B]``, from the fewest nodes that cover them.

    ``levels``: every level as its sibling groups ``[G, width]``, leaves first.
    """
    head, tail = np.zeros(left.size, dtype), np.zeros(left.size, dtype)
    for groups in levels:
        # Invariant: each answer is head, the nodes of this level from left to before right, and tail.
        first, last, open_ = left // fanout, right // fanout, left < right
        together, whole = first == last, left == first * fanout  # a whole group is a node of the next level
        end = np.where(together, right, np.where(whole, left, (first + 1) * fanout))
        start = np.where(together, right, last * fanout)
        head = head + _sums_of_slices(groups, fanout, left, np.where(open_, end, left), dtype)
        tail = _sums_of_slices(groups, fanout, np.where(open_, start, right), right, dtype) + tail
        left, right = np.where(whole, first, first + 1), last
        left = np.where(together | ~open_, right, left)
    return head + tail


def _sums_of_slices(groups: Any, fanout: int, start: Any, end: Any, dtype: DTypeLike) -> Any:
    """Sums ``[B]`` of nodes from ``start [B]`` to before ``end [B]``, each within one group, from left to right."""
    group = start // fanout
    rows = groups[np.minimum(group, len(groups) - 1)]  # behind the last one there is nothing to add
    column = np.arange(rows.shape[1])
    inside = (column >= (start - group * fanout)[:, None]) & (column < (end - group * fanout)[:, None])
    return np.where(inside, rows, rows.dtype.type(0)).cumsum(axis=1, dtype=dtype)[:, -1]


def nearest_positive(leaves: Priorities, indices: Indices) -> Indices:
    """The leaves ``[B]`` with priority > 0 nearest to ``indices [B]``, to the left (itself included) if there is one.

    ``leaves [N]`` are all priorities. RuntimeError if none is above 0.
    """
    positive = np.flatnonzero(leaves > 0)
    if positive.size == 0:
        raise RuntimeError("nothing to sample: no leaf has a priority above 0")
    return positive[np.maximum(np.searchsorted(positive, indices, side="right") - 1, 0)]
