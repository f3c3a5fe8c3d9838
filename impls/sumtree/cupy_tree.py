"""The GPU tree: CUDA kernels launched by CuPy; batches, results and sums stay on the device.

The kernels (``cuda/kernels.cu``) are the whole tree; this module gives them memory and launches them. Every level is
one array of sums, groups on 128-byte lines where their size allows. A search is one launch: ``lanes`` threads of a warp
share a sample, each holding some of the children. An update is two launches, one for a small batch, and one more to
inspect a large one that is to be checked; it touches only groups above changed leaves.

``emulate=True`` compiles the same text for this processor and runs it there: for tests, never to be timed.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..checks import integer_at_least, one_of
from ..levels import fits_lines, group_size, line_starts
from .arguments import EXACT, Indices, Priorities, Reals, nothing_to_sample, to_numpy
from .contract import SumTree
from .cuda import device, emulation
from .cuda.program import BLOCK_THREADS, EMPTY, FUSED_THREADS, REFUSED, TREE, Constants, Device, Launch
from .turns import Result

LINE_BYTES = 128
LANES = (1, 2, 4, 8, 16, 32)
_HELD_BY_LANE = 4  # children, where lanes are not given
_MOST_FUSED = 512  # elements up to which one block does a whole update, where fused is not given
_FLOAT64, _INT64 = np.dtype(np.float64), np.dtype(np.int64)


class CupyTree(SumTree):
    """Tree on CuPy's current device; results are CuPy arrays. NumPy input is checked on the host and copied.

    Options:

    * ``propagate="recompute"`` (default: exact, and the root takes at most 2 K atomic operations) sums each touched
      group once a batch; ``"delta"``, the method of [Zhang2021] and [Zhang2023], adds each leaf's change to its
      ancestors by atomics, every one of them to the root, and drifts by rounding.
    * ``lanes``: threads that share one sample, 1 (a warp serves 32 samples) to 32 (a warp serves one); by default a
      lane holds four children.
    * ``fused``: whether one block does an update in one launch (True, False, or None: up to 512 elements).
    * ``aligned=None`` puts groups on 128-byte lines where K * itemsize divides or is a multiple of 64, ``True``
      insists, ``False`` shifts every level by one element, so that groups straddle lines.
    * ``emulate=True`` runs the kernels on the host, over NumPy arrays.

    The defaults of ``lanes`` and ``fused`` are calculated, not measured. With ``validate=True`` every call waits for
    the device, to learn whether it refused a value. With ``validate=False`` calls only enqueue: sampling an empty tree
    then returns -1, and :meth:`synchronize` raises its RuntimeError.

    ``minimum`` is ignored: :meth:`min`, and sums of ranges, read every leaf, in host memory.

    Calls from several threads take turns, on the device as well if the threads have streams of their own.
    """

    runs_on = "gpu"
    compiled = True
    variants = ({"validate": False},)  # then a device need not be waited for

    def __init__(
        self,
        capacity: int,
        *,
        propagate: str = "recompute",
        lanes: int | None = None,
        fused: bool | None = None,
        aligned: bool | None = None,
        emulate: bool = False,
        **common: Any,
    ) -> None:
        if not emulate and (reason := self.unavailable()):
            raise RuntimeError(reason)
        self._propagate = one_of("propagate", propagate, ("recompute", "delta"))
        self._fused = one_of("fused", fused, (None, True, False))
        self._aligned = one_of("aligned", aligned, (None, True, False))
        if lanes is not None and integer_at_least("lanes", lanes, 1) not in LANES:
            raise ValueError(f"lanes must be one of {', '.join(map(str, LANES))}, not {lanes}")
        self._lanes_given = lanes
        self._emulate = bool(emulate)
        self._device: Device = emulation.HostDevice() if emulate else device.CudaDevice()
        super().__init__(capacity, **common)

    @classmethod
    def unavailable(cls) -> str | None:
        return device.why_not()

    def _allocate(self) -> None:
        width = group_size(self._capacity, self._fanout)
        if self._aligned and not fits_lines(width * self._dtype.itemsize):
            raise ValueError(
                f"aligned=True cannot be done: a group's {width * self._dtype.itemsize} bytes neither divide 64 nor "
                "fill lines"
            )
        self._lanes = self._lanes_given or max(lanes for lanes in LANES if lanes == 1 or lanes * _HELD_BY_LANE <= width)
        aligned = self._aligned is not False
        self._constants = Constants.of(self._dtype, width, self._lanes, self._propagate == "delta", aligned)
        rows = [-(-size // width) for size in self._sizes]
        shapes: list[tuple[int, DTypeLike]] = [(rows[0] * width, self._dtype)]
        shapes += [(row * width, np.float64) for row in rows[1:]]
        starts, end = line_starts(shapes, aligned=aligned, line_bytes=LINE_BYTES)
        zeros, address = self._device.arrays.zeros, self._device.address
        self._memory = zeros(end + LINE_BYTES, np.uint8)
        base = -address(self._memory) % LINE_BYTES
        first, last = base + starts[1], base + starts[-1]
        self._leaves = self._memory[base + starts[0] :][: self._capacity * self._dtype.itemsize].view(self._dtype)
        self._root = self._memory[last : last + 8].view(np.float64)
        self._claims = zeros(self._capacity, np.int32)
        self._pending = zeros((end - starts[1]) // 8, np.int32)
        self._status = zeros(2, np.int32)
        tree = np.zeros(1, TREE)
        tree["leaves"], tree["sums"] = address(self._leaves), address(self._memory) + first
        for name, array in (("claims", self._claims), ("pending", self._pending), ("status", self._status)):
            tree[name] = address(array)
        tree["checked"], tree["capacity"], tree["width"] = self._validate, self._capacity, width
        tree["height"] = self.height
        tree["start"][0, 1 : len(starts)] = [(start - starts[1]) // 8 for start in starts[1:]]
        self._tree = tree

    def _options(self) -> dict[str, Any]:
        return {
            "propagate": self._propagate,
            "lanes": self._lanes_given,
            "fused": self._fused,
            "aligned": self._aligned,
            "emulate": self._emulate,
        }

    # Launches

    def _read(self, op: str, hook: Callable[..., Result], *arguments: Any) -> Result:
        result: Result = super()._read(op, self._in_order, hook, *arguments)
        return result

    def _change(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        result: Result = super()._change(self._in_order, hook, *arguments)
        return result

    def _in_order(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        self._device.follow()
        return hook(*arguments)

    @functools.cached_property
    def _kernels(self) -> dict[str, Launch]:
        return self._device.load(self._constants)

    def _launch(self, kernel: str, batch: int, *arguments: Any, lanes: int = 1) -> None:
        blocks = -(-batch * lanes // BLOCK_THREADS)
        self._kernels[kernel](blocks, BLOCK_THREADS, self._tree, *arguments)

    def _search(self, values: Any, uniform: bool) -> tuple[Any, Any] | None:
        """Leaves ``[B]`` of uniforms with their priorities, or of prefix values without; None if one was refused."""
        batch, empty = values.size, self._device.arrays.empty
        indices, priorities = empty(batch, _INT64), empty(batch, self._dtype) if uniform else np.uint64(0)
        if batch:
            arguments = values, np.int64(batch), np.int64(uniform), indices, priorities
            self._launch("search", batch, *arguments, lanes=self._lanes)
        status = self._take_status() if self._validate or self._emulate else (0, 0)
        if status[REFUSED]:
            return None
        if status[EMPTY]:
            raise RuntimeError(nothing_to_sample(self._total()))
        return indices, priorities

    def _gather(self, indices: Any) -> Any:
        """Priorities ``[B]`` on the device; None if an index was refused."""
        priorities = self._device.arrays.empty(indices.size, self._dtype)
        if indices.size:
            self._launch("gather", indices.size, indices, np.int64(indices.size), priorities)
        return None if self._validate and self._take_status()[REFUSED] else priorities

    def _write(self, indices: Any, priorities: Any) -> bool:
        """Whether the batch was written; False, with nothing written, if an element was refused."""
        batch = indices.size
        if batch == 0:
            return True
        count, highest = np.int64(batch), np.float64(self._max_priority)
        if self._fused or (self._fused is None and batch <= _MOST_FUSED):
            threads = min(FUSED_THREADS, -(-batch * self._lanes // 32) * 32)
            self._kernels["update_fused"](1, threads, self._tree, indices, priorities, count, highest)
        else:
            if self._validate:
                self._launch("inspect", batch, indices, priorities, count, highest)
            self._launch("claim_leaves", batch, indices, count)
            lanes = self._lanes if self._propagate == "recompute" else 1
            self._launch("settle_leaves", batch, indices, priorities, count, lanes=lanes)
        return not (self._validate and self._take_status()[REFUSED])

    def _take_status(self) -> tuple[int, int]:
        """Wait for the device; the status words that kernels have set since the last call. They are cleared."""
        words = to_numpy(self._status)
        status = int(words[REFUSED]), int(words[EMPTY])
        if any(status):
            self._status[:] = 0
        return status

    # The contract. Batches that are on the device go straight to a kernel, which checks them; what it refuses, and what
    # is elsewhere or of another type, goes to the base class, whose checks name the value and the bound.

    def _as_batch(self, values: Any, dtype: np.dtype[Any]) -> Any:
        """The values as contiguous ``[B]`` of a dtype that holds each of them exactly, on the device; else None."""
        if not isinstance(values, self._device.arrays.ndarray):
            if self._validate:
                return None
            values = self.place(values)
        if values.ndim != 1 or values.dtype not in EXACT[dtype]:
            return None
        if not self._validate:
            return self._device.arrays.ascontiguousarray(values, dtype)
        return self._device.arrays.array(values, dtype)  # a copy: kernels read again what they have checked

    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        where = self._as_batch(indices, _INT64)
        if where is not None and _is_float(priorities):
            values = self._device.arrays.full(where.size, float(priorities))  # type: ignore[arg-type]
        else:
            values = self._as_batch(priorities, _FLOAT64)
        taken = where is not None and values is not None and where.size == values.size > 0
        if not (taken and self._change(self._write, where, values)):
            super().update(_on_host(indices), _on_host(priorities))

    def get(self, indices: ArrayLike) -> Any:
        where = self._as_batch(indices, _INT64)
        answer = None if where is None else self._read("get", self._gather, where)
        return super().get(_on_host(indices)) if answer is None else answer

    def prefix_sum_index(self, mass: ArrayLike, side: str = "right") -> Any:
        batch = self._as_batch(mass, _FLOAT64) if side == "right" else None
        answer = None if batch is None else self._read("prefix_sum_index", self._search, batch, False)
        return super().prefix_sum_index(_on_host(mass), side) if answer is None else answer[0]

    def sample(self, uniforms: ArrayLike, exclude: ArrayLike | None = None) -> tuple[Any, Any]:
        batch = self._as_batch(uniforms, _FLOAT64) if exclude is None else None
        answer = None if batch is None else self._read("sample", self._search, batch, True)
        return super().sample(_on_host(uniforms), _on_host(exclude)) if answer is None else answer

    def _set(self, indices: Indices, priorities: Reals) -> None:
        if not self._write(self.place(indices), self.place(priorities)):
            raise ValueError(
                f"an index is outside [0, {self._capacity}) or a priority outside [0, {self._max_priority}]"
            )

    def _get(self, indices: Indices) -> Priorities:
        priorities: Priorities = self._gather(self.place(indices))
        return priorities

    def _find(self, mass: Reals) -> Indices:
        return self._answer(mass, False)[0]

    def _sample(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        return self._answer(uniforms, True)

    def _sample_distinct(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        status = to_numpy(self._status).copy()
        try:
            return super()._sample_distinct(uniforms)
        finally:  # where nothing was left, that is no error of an unchecked call
            self._status[:] = self.place(status)

    def _answer(self, values: Reals, uniform: bool) -> tuple[Indices, Priorities]:
        answer = self._search(self.place(values), uniform)
        if answer is None:
            raise ValueError(f"a {'uniform is outside [0, 1)' if uniform else 'mass is outside [0, total)'}")
        return answer

    def _load(self, leaves: Reals) -> None:
        self._leaves[:] = self.place(leaves.astype(self._dtype))
        self._rebuild()

    def place(self, array: Any) -> Any:
        return self._device.arrays.asarray(array)

    def _total(self) -> float:
        return float(to_numpy(self._root)[0])

    def _check(self) -> float:
        return self._audit(repair=False)

    def _rebuild(self) -> None:
        self._claims[:] = self._pending[:] = 0  # an update that was interrupted leaves some behind
        self._audit(repair=True)

    def _audit(self, repair: bool) -> float:
        """Largest abs(node - sum of its children), level by level from the leaves; ``repair`` puts the sums there."""
        worst = self._device.arrays.zeros(1, np.uint64)
        for level in range(1, self.height + 1):
            nodes = self._sizes[level]
            numbers = np.int64(level), np.int64(nodes), np.int64(repair)
            self._launch("audit", nodes, *numbers, worst, lanes=self._lanes)
        return float(to_numpy(worst).view(np.float64)[0])

    def synchronize(self) -> None:
        """Wait for the device. RuntimeError if an unchecked call sampled an empty tree since the last wait."""
        self._read("synchronize", self._synchronize)

    def _synchronize(self) -> None:
        self._device.synchronize()
        if self._take_status()[EMPTY]:
            raise RuntimeError(nothing_to_sample(self._total()))

    @property
    def device(self) -> str:
        return self._device.name

    @property
    def nbytes(self) -> int:
        """Bytes on the device: levels, claims and counters of an update."""
        return int(sum(array.nbytes for array in (self._memory, self._claims, self._pending, self._status)))


def _is_float(value: Any) -> bool:
    """Whether the value is one number that float64 holds exactly."""
    return isinstance(value, (float, np.float32)) or (type(value) is int and abs(value) <= 1 << 53)


def _on_host(values: Any) -> Any:
    """Device arrays as NumPy's, for the checks of the base class; other values unchanged."""
    return to_numpy(values) if hasattr(type(values), "__cuda_array_interface__") else values
