"""Prioritized replay of torchrl on our trees: a sampler for its buffers, and trees in the place of its own.

:class:`FanoutSampler` goes where torchrl's ``PrioritizedSampler`` goes::

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(N), sampler=FanoutSampler(N, alpha=0.7, beta=0.5),
                                    priority_key="td_error", batch_size=256)

and :func:`install` puts it into ``TensorDictPrioritizedReplayBuffer`` and ``PrioritizedReplayBuffer``, and our trees
into every other prioritized sampler of torchrl's (slices of trajectories). None of it needs torchrl's compiled
extension, which loads on one version of torch only.

Locks are the buffer's: it holds its own round every call of a sampler, prefetching threads included.
"""

from .hosts import Replacement, require

require("torchrl", "0.14", "0.15")

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.data.replay_buffers.samplers.prioritized import PrioritizedSampler

import impls

from ..checks import integer_at_least
from ..replay.batches import check_beta
from .priorities import Priorities, kept


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
                implementation, _leaves_of(size), fanout=fanout, dtype=_dtype_name(dtype), minimum=self._minimum
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
        return _like(index, self._tree.get(_flat(index)))

    def update(self, index: Any, value: Any) -> None:
        """Set the leaves at an index to as many values, or all to one: ``tree[index] = value``.

        Raises IndexError, TypeError and, for NaN, negative or infinite values, ValueError.
        """
        where, values = _flat(index), _flat(value)
        self._tree.update(where, values if values.size == where.size else values.item() if values.size == 1 else values)

    def query(self, left: Any, right: Any) -> Any:
        """The sum, or the minimum, over leaves left .. right-1; ends beyond the tree count as its ends."""
        starts, ends = np.clip(_flat(left), 0, self.capacity), np.clip(_flat(right), 0, self.capacity)
        answers = [
            self._over(start, end) if start < end else self.identity_element
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return _like(left, np.array(answers))

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
        values, total = _flat(value), self._tree.total()
        found = self._tree.prefix_sum_index(np.minimum(values, total), side="left")
        return _like(value, np.where(values > total, self.size, found))


class MinSegmentTree(_SegmentTree):
    """Our tree behind the methods of torchrl's ``MinSegmentTreeFp32`` and ``Fp64``: the minimum over leaves above 0.

    A leaf that was never set reads as ``identity_element``, the largest number of the dtype, and one that is set to 0
    counts as never set: it cannot be drawn either.
    """

    _minimum = True

    def at(self, index: Any) -> Any:
        values = self._tree.get(_flat(index))
        return _like(index, np.where(values > 0, values, np.array(self.identity_element, values.dtype)))

    def update(self, index: Any, value: Any) -> None:
        values = _flat(value).astype(np.float64)
        super().update(index, np.where(values >= self.identity_element, 0.0, values))

    def _over(self, start: int, end: int) -> float:
        if self._covers(start, end):
            least = self._tree.min()
        else:
            leaves = self._tree.get(np.arange(start, end))
            least = float(leaves.min(where=leaves > 0, initial=math.inf))
        return min(least, self.identity_element)


class FanoutSampler(PrioritizedSampler):
    """torchrl's ``PrioritizedSampler`` [Schaul2016] with sums and minimum in one tree of ours.

    Row i is drawn with probability P(i) = p_i / (p_0 + .. + p_(N-1)), p_i = (its priority + eps) ** alpha, and weighs
    ``priority_weight`` = (p_i / min p) ** -beta, the minimum over the buffer.

    Parameters are the host's: ``max_capacity`` N; ``alpha``, ``beta`` >= 0 (beta may be a tensor); ``eps``; ``dtype``
    of the leaves, torch.float32 or torch.float64; ``reduction`` and ``max_priority_within_buffer`` as there. In
    addition ``implementation`` and ``fanout`` of the tree. ``device`` must be the CPU: that of the storage may be
    another.

    What differs from the host: sums are float64 for either dtype; a wrong index, priority or type is an error before
    anything is written; uniforms of a generator have 53 random bits, not 24; state can be exchanged with the host's
    sampler (:meth:`state_dict`, :meth:`dumps`) and is written and read at once, not leaf by leaf.
    """

    _max_priority: Any  # the largest priority so far and its row: a property of the host's, (None, None) at first

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
        *,
        implementation: str = "numba",
        fanout: int = 16,
    ) -> None:
        # The host's own __init__ would warn of the extension that this class does without.
        check_beta(beta)
        if device is not None and torch.device(device).type != "cpu":
            raise ValueError(
                f"{type(self).__name__} keeps its tree in host memory: device must be 'cpu', not '{device}'"
            )
        self._max_capacity = integer_at_least("max_capacity", max_capacity, 1)
        self._beta, self.reduction, self.dtype = beta, reduction, dtype
        self._max_priority_within_buffer = max_priority_within_buffer
        self._device = None
        self._implementation, self._fanout = implementation, fanout
        self._begin(alpha, eps)

    _alpha, _eps, _tree = kept("alpha"), kept("epsilon"), kept("tree")

    def _init(self) -> None:
        """Forget every priority, as if nothing had been written."""
        self._begin(self._alpha, self._eps)

    def _begin(self, alpha: float, eps: float) -> None:
        leaves, dtype = _leaves_of(self._max_capacity), _dtype_name(self.dtype)
        tree = impls.make(self._implementation, leaves, fanout=self._fanout, dtype=dtype, minimum=True)
        self.priorities = Priorities(tree, alpha, eps)
        self._end = 0  # no leaf from here on is above 0
        self._max_priority = None

    # The names by which the host's own methods reach the trees, both over the one that there is.

    @property
    def _sum_tree(self) -> SumSegmentTree:
        return SumSegmentTree(self._max_capacity, tree=self._tree)

    @property
    def _min_tree(self) -> MinSegmentTree:
        return MinSegmentTree(self._max_capacity, tree=self._tree)

    @property
    def device(self) -> torch.device:
        """That of the tree, indices and weights: the CPU."""
        return torch.device("cpu")

    @property
    def default_priority(self) -> float:
        """Priority of a new row, before ``eps`` and ``alpha``: the largest so far, 1 where there is none."""
        largest = self._max_priority[0]
        return 1.0 if largest is None else largest

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Rows ``[batch_size]`` of a storage (a tuple, an element a dimension, if it has several) and their weights.

        Uniforms are the host's: NumPy's global generator, or the buffer's own where it has one. RuntimeError where the
        storage is empty or no row has a priority above 0.
        """
        length = len(storage)
        if length == 0:
            raise RuntimeError("Cannot sample from an empty storage.")
        if self._rng is None:
            uniforms = np.random.random_sample(batch_size)  # noqa: NPY002 - the host's, which users seed
        else:
            uniforms = torch.rand(batch_size, generator=self._rng, dtype=torch.float64).numpy()
        if self._end <= length:
            rows, priorities = self._tree.sample(uniforms)
            least = self._tree.min()
        else:  # rows beyond those in storage have priorities, too
            rows, priorities = self._tree.sample(uniforms, exclude=np.arange(length, self._end))
            least = self._min_tree.query(0, length)
        weights = torch.pow(torch.from_numpy(priorities) / least, -float(self._beta))  # by torch, as the host
        index = torch.from_numpy(rows)
        return torch.unravel_index(index, storage.shape) if storage.ndim > 1 else index, {"priority_weight": weights}

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        """Set the priorities of rows ``index``, to as many of ``priority`` or all to one.

        ``index [B]``, -1 for an element to leave out; ``[B, D]`` for a ``storage`` of D dimensions. Of equal rows the
        last one counts. Raises, before anything is written: IndexError (a row beyond ``max_capacity``), TypeError (not
        integers, not real numbers), ValueError (a priority that is NaN, negative or infinite) and RuntimeError, as the
        host, for shapes that do not match.
        """
        rows, values = _array_of(index), _array_of(priority)
        if rows.size == 0:
            return
        if rows.dtype.kind not in "iu":
            raise TypeError(f"index must hold integers, not {rows.dtype}")
        if rows.ndim > 1:
            rows = _raveled(rows, storage)
        if values.size not in (1, rows.size):
            wanted = f"one number or as many as the index has rows, {rows.size}"
            raise RuntimeError(f"priority must be {wanted}, not of shape {list(np.shape(priority))}")
        rows, values = rows.reshape(-1), values.reshape(-1)
        if values.size != rows.size:
            values = np.repeat(values, rows.size)
        if rows.min() < 0:
            kept_rows = rows != -1
            rows, values = rows[kept_rows], values[kept_rows]
            if rows.size == 0:
                return
        try:
            self.priorities.update(rows, values)
        except IndexError as error:
            raise IndexError(f"{error}: give the sampler a max_capacity as large as the storage") from None
        self._end = max(self._end, int(rows.max()) + 1)
        at = int(values.argmax())
        largest = float(values[at])
        known = self._max_priority[0]
        if known is None or largest > known:
            self._max_priority = largest, int(rows[at])
        # The host's rule: once the row of the largest priority is written, only the leaves tell which one is largest.
        if self._max_priority_within_buffer and self._alpha != 0 and (rows == self._max_priority[1]).any():
            self._recompute_max_priority_from_tree()

    def _recompute_max_priority_from_tree(self) -> None:
        super()._recompute_max_priority_from_tree()
        self._max_priority = _plain(*self._max_priority)

    # State, in the host's terms, so that each can read the other's

    def state_dict(self) -> dict[str, Any]:
        """Settings and trees (copies) under the host's names; its sampler can load them as well."""
        total = deepcopy(self._sum_tree)
        return {
            "_schema_version": self._STATE_SCHEMA_VERSION,
            "_alpha": self._alpha,
            "_beta": deepcopy(self._beta),
            "_eps": self._eps,
            "_max_priority": self._max_priority,
            "_sum_tree": total,
            "_min_tree": MinSegmentTree(self._max_capacity, tree=total._tree),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the state of this class or of the host's. IndexError where it has rows beyond ``max_capacity``."""
        tree = state_dict["_sum_tree"]
        self._load(tree[np.arange(tree.capacity)], state_dict)

    def dumps(self, path: Path | str) -> None:
        """Write the state into a folder, in the files and formats of the host's sampler."""
        folder = Path(path)
        folder.mkdir(exist_ok=True)
        for name, tree in (("sumtree", self._sum_tree), ("mintree", self._min_tree)):
            tree[np.arange(self._max_capacity)].astype(np.float64).tofile(folder / f"{name}.memmap")
        metadata = {
            "_alpha": float(self._alpha),
            "_beta": float(self._beta),
            "_eps": self._eps,
            "_max_priority": self._max_priority,
            "_max_capacity": self._max_capacity,
            "_schema_version": self._STATE_SCHEMA_VERSION,
        }
        (folder / "sampler_metadata.json").write_text(json.dumps(metadata))

    def loads(self, path: Path | str) -> None:
        """Take the state from a folder that this class or the host's wrote. RuntimeError for another capacity."""
        metadata = json.loads((Path(path) / "sampler_metadata.json").read_text())
        if metadata["_max_capacity"] != self._max_capacity:
            raise RuntimeError(
                f"the folder holds the priorities of {metadata['_max_capacity']:.0f} rows, and this sampler has "
                f"{self._max_capacity}: give it that max_capacity"
            )
        leaves = np.fromfile(Path(path) / "sumtree.memmap")
        if leaves.size < self._max_capacity:
            raise RuntimeError(f"{path}: sumtree.memmap was cut short, to {leaves.size} priorities; take another copy")
        self._load(leaves, metadata)

    def _load(self, leaves: NDArray[Any], state: Mapping[str, Any]) -> None:
        capacity = self._tree.capacity
        if leaves[capacity:].any():
            raise IndexError(
                f"the state has a priority for row {np.flatnonzero(leaves)[-1]}, which is outside [0, {capacity}): "
                "give the sampler the max_capacity of the one that it is from"
            )
        fitted = np.zeros(capacity)
        fitted[: leaves.size] = leaves[:capacity]
        self._tree.load_state_dict({"leaves": fitted, "capacity": capacity, "dtype": self._tree.dtype.name})
        self._end = int(np.flatnonzero(fitted).max(initial=-1)) + 1
        self._alpha, self._beta, self._eps = state["_alpha"], deepcopy(state["_beta"]), state["_eps"]
        self._max_priority = _plain(*(state["_max_priority"] or (None, None)))
        if (
            self._max_priority_within_buffer
            and self._max_priority[0] is not None
            and state.get("_schema_version", 0) < 1
        ):
            self._recompute_max_priority_from_tree()  # which was written after alpha then


def _plain(largest: Any, row: Any) -> tuple[float, int] | None:
    """The largest priority and its row without torch's types; None where there is none."""
    return None if largest is None else (float(largest), int(row))


def _raveled(rows: NDArray[np.integer[Any]], storage: Any) -> NDArray[np.int64]:
    """Places ``[..]`` in the flattened storage of coordinates ``[.., D]``; -1 stays -1."""
    if storage is None:
        raise RuntimeError(f"an index of shape {list(rows.shape)} needs the storage that it is for: pass storage=")
    shape = tuple(storage.shape)
    if rows.shape[-1] != len(shape):
        raise RuntimeError(f"an index of shape {list(rows.shape)} does not fit a storage of shape {list(shape)}")
    left_out = (rows == -1).all(-1)
    inside = ((rows >= 0) & (rows < shape)).all(-1) | left_out
    if not inside.all():
        raise IndexError(f"index {rows[~inside][0].tolist()} is outside the storage, whose shape is {list(shape)}")
    flat = np.ravel_multi_index(tuple(np.moveaxis(rows.clip(0), -1, 0)), shape)
    return np.where(left_out, -1, flat)


def _leaves_of(size: int) -> int:
    """Leaves of a tree for ``size`` rows: the least power of two that is not below."""
    return 1 << (size - 1).bit_length()


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _array_of(values: Any) -> NDArray[Any]:
    """The values as an array in host memory; those of a tensor that is there are not copied."""
    try:
        return values.numpy() if isinstance(values, torch.Tensor) else impls.to_numpy(values)
    except (RuntimeError, TypeError):  # a tensor with a gradient, of another device, of a dtype that NumPy lacks
        return impls.to_numpy(values)


def _flat(values: Any) -> NDArray[Any]:
    """The values ``[B]``, without a copy where there need be none."""
    return _array_of(values).reshape(-1)


def _like(question: Any, answers: NDArray[Any]) -> Any:
    """The answers ``[B]`` as what was asked for: a tensor, an array or a number, in its shape."""
    if isinstance(question, torch.Tensor):
        return torch.from_numpy(answers).reshape(question.shape).to(question.device)
    shape = np.shape(question)
    return answers.reshape(shape) if shape or isinstance(question, np.ndarray) else answers.item()


_TREES = tuple(f"{kind}SegmentTree{bits}" for kind in ("Sum", "Min") for bits in ("Fp32", "Fp64"))
_BUFFERS = "torchrl.data.replay_buffers"
_replacement = Replacement(
    *((f"{_BUFFERS}.{module}", name) for module in ("samplers", "samplers.prioritized") for name in _TREES),
    *(
        (f"{_BUFFERS}.replay_buffers.{module}", "PrioritizedSampler")
        for module in ("prioritized", "prioritized_tensordict")
    ),
)


def install(implementation: str = "numba", fanout: int = 16) -> None:
    """Let samplers and buffers that torchrl makes from here on use our trees, until :func:`uninstall`.

    ``TensorDictPrioritizedReplayBuffer`` and ``PrioritizedReplayBuffer`` get a :class:`FanoutSampler`;
    ``PrioritizedSampler``, ``PrioritizedSliceSampler`` and their subclasses a :class:`SumSegmentTree` and a
    :class:`MinSegmentTree`. Trees on a GPU stay torchrl's. Raises what making a tree raises.
    """
    ours: dict[str, Any] = {
        f"{kind.__name__}{bits}": partial(kind, dtype=dtype, implementation=implementation, fanout=fanout)
        for kind in (SumSegmentTree, MinSegmentTree)
        for bits, dtype in (("Fp32", torch.float32), ("Fp64", torch.float64))
    }
    for tree in ours.values():
        tree(1)
    ours["PrioritizedSampler"] = partial(FanoutSampler, implementation=implementation, fanout=fanout)
    _replacement.put(ours)


def uninstall() -> None:
    """Put torchrl's own trees and samplers back; what was made meanwhile keeps ours."""
    _replacement.undo()
