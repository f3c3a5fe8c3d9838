"""The GPU tree: CUDA kernels launched by CuPy; batches, results and sums stay on the device.

The kernels (``cuda/kernels.cu``) are the whole tree; this module gives them memory and launches them. Every level is
one array of sums, groups on 128-byte lines where their size allows. A search is one launch: ``lanes`` threads of a warp
share a sample, each holding some of the children. An update is two launches, one for a small batch, and one more to
inspect a large one that is to be checked; it touches only groups above changed leaves. A launch passes two blocks of
numbers, the tree and the call, that lie in host memory from the start: a call writes a dozen words and launches.

``emulate=True`` compiles the same text for this processor and runs it there: for tests, never to be timed.
"""

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from ..checks import integer_at_least, one_of
from ..levels import check_lines, group_size, line_starts
from .arguments import Indices, Priorities, Reals, nothing_to_sample, to_numpy
from .contract import SumTree
from .cuda import device, emulation, program
from .cuda.arrays import INDEX, Arrays, Batch, Device, Libraries
from .cuda.program import BLOCK_THREADS, CALL, FUSED_THREADS, SCALAR, TREE, Constants, Launch
from .turns import Result

LINE_BYTES = 128
LANES = (1, 2, 4, 8, 16, 32)
_HELD_BY_LANE = 4  # children, where lanes are not given
_MOST_FUSED = 512  # elements up to which one block does a whole update, where fused is not given
_LEAST_ROOM = 1024  # elements of an update that there is room for at first
_FIELD = {name: place for place, name in enumerate(CALL.names or ())}  # words of a call
_INDICES, _REALS, _FOUND, _PRIORITIES = (_FIELD[name] for name in ("indices", "reals", "found", "priorities"))
_INDEX_TYPE, _REAL_TYPE, _BATCH = (_FIELD[name] for name in ("index_type", "real_type", "batch"))
_UNIFORM, _BLOCKS, _LEVEL, _REPAIR = (_FIELD[name] for name in ("uniform", "blocks", "level", "repair"))
_WORST, _SCALAR = _FIELD["worst"], _FIELD["scalar"]
Answer: TypeAlias = tuple[Any, Any]


class CupyTree(SumTree):
    """Tree on CuPy's current device. Batches on the device (CuPy's, torch's and others') are used where they lie, on
    the current stream of their library, and results are CuPy's, or torch's where the batch is. Other input is checked
    on the host, where it raises at once, and copied. Uniforms of float32 tell 2^24 places of the total apart.

    No call waits for the device, to learn whether it refused a batch that lies there. A batch that it refuses changes
    nothing, and its error (with the value and the bound) is raised by a later call, or by :meth:`synchronize`;
    elements of a sample that are refused, and all of an empty tree, are -1 with priority 0.

    Options:

    * ``propagate="recompute"`` (default: exact, and the root takes at most 2 K atomic operations) sums each touched
      group once a batch; ``"delta"``, the method of [Zhang2021] and [Zhang2023], adds each leaf's change to its
      ancestors by atomics, every one of them to the root, and drifts by rounding.
    * ``lanes``: threads that share one sample, 1 (a warp serves 32 samples) to 32 (a warp serves one); by default a
      lane holds four children.
    * ``fused``: whether one block does an update in one launch (True, False, or None: up to 512 elements).
    * ``aligned=None`` puts groups on 128-byte lines where K * itemsize divides or is a multiple of 64, ``True``
      insists, ``False`` shifts every level by one element, so that groups straddle lines.
    * ``raise_errors="now"`` (default: "later") waits in every call, and raises its own error at once.
    * ``emulate=True`` runs the kernels on the host, over NumPy arrays and torch's tensors there.

    The defaults of ``lanes`` and ``fused`` are calculated, not measured. With ``validate=False`` nothing is checked,
    but that sampling an empty tree makes :meth:`synchronize` raise.

    ``minimum`` is ignored: :meth:`min`, and sums of ranges, read every leaf, in host memory.

    Calls from several threads take turns, on the device as well if the threads have streams of their own.
    """

    runs_on = "gpu"
    compiled = True
    variants = ({"validate": False},)

    def __init__(
        self,
        capacity: int,
        *,
        propagate: str = "recompute",
        lanes: int | None = None,
        fused: bool | None = None,
        aligned: bool | None = None,
        raise_errors: str = "later",
        emulate: bool = False,
        **common: Any,
    ) -> None:
        if not emulate and (reason := self.unavailable()):
            raise RuntimeError(reason)
        self._propagate = one_of("propagate", propagate, ("recompute", "delta"))
        self._fused = one_of("fused", fused, (None, True, False))
        self._aligned = one_of("aligned", aligned, (None, True, False))
        self._raise_errors = one_of("raise_errors", raise_errors, ("later", "now"))
        if lanes is not None and integer_at_least("lanes", lanes, 1) not in LANES:
            raise ValueError(f"lanes must be one of {', '.join(map(str, LANES))}, not {lanes}")
        self._lanes = lanes or 0  # by default as many as the groups need
        self._emulate = bool(emulate)
        self._device: Device = emulation.HostDevice() if emulate else device.CudaDevice()
        super().__init__(capacity, **common)

    @classmethod
    def unavailable(cls) -> str | None:
        return device.why_not()

    def _allocate(self) -> None:
        width = group_size(self._capacity, self._fanout)
        check_lines(self._aligned, width * self._dtype.itemsize)
        self._lanes = self._lanes or max(lanes for lanes in LANES if lanes == 1 or lanes * _HELD_BY_LANE <= width)
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
        self._status = zeros(program.STATUS_WORDS, np.int32)
        self._report = self._device.shared_words(program.REPORT_WORDS)
        self._why: Any = memoryview(self._report)  # type: ignore[arg-type]  # which is read faster
        tree = np.zeros(1, TREE)
        tree["leaves"], tree["sums"] = address(self._leaves), address(self._memory) + first
        for name, array in (("claims", self._claims), ("pending", self._pending), ("status", self._status)):
            tree[name] = address(array)
        tree["report"] = self._report.ctypes.data
        tree["checked"], tree["capacity"], tree["width"] = self._validate, self._capacity, width
        tree["height"], tree["highest"] = self.height, self._max_priority
        tree["start"][0, 1 : len(starts)] = [(start - starts[1]) // 8 for start in starts[1:]]
        call = np.zeros(1, CALL)
        self._tree = tree
        self._words: Any = memoryview(call.view(np.int64))  # type: ignore[arg-type]
        self._reals: Any = memoryview(call.view(np.float64))  # type: ignore[arg-type]
        self._both = np.array([tree.ctypes.data, call.ctypes.data], np.uint64)
        self._parameters = self._both.ctypes.data
        # Room for the copy of a batch, by its size: launches that are under way, or captured, may use what was there.
        self._rooms: dict[int, list[Any]] = {}
        self._room = 0
        self._libraries = Libraries(self._device)
        self._native: Arrays = self._libraries.native
        self._stream = self._device.current_stream()
        self._device.follow(self._stream)
        # The device may still work when the tree is gone: its memory goes after.
        held = [self._memory, self._claims, self._pending, self._status, self._report, self._rooms]
        weakref.finalize(self, _outlive, self._device, held).atexit = False

    # Launches

    def _whole(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        self._begin(self._native)
        return super()._whole(hook, *arguments)

    def _changed(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        self._begin(self._native)
        return super()._changed(hook, *arguments)

    def _begin(self, library: Arrays) -> None:
        """Raise what the device has refused, and go to the current stream of a library, after all that was enqueued."""
        self._device.enter()
        if self._why[0] and self._validate:
            self._settle()
        self._go_to(library)

    def _go_to(self, library: Arrays) -> None:
        stream = library.stream()
        if stream != self._stream:
            self._device.follow(stream)
            self._stream = stream

    @functools.cached_property
    def _kernels(self) -> dict[str, Launch]:
        return self._device.load(self._constants)

    def _launch(self, kernel: str, batch: int, lanes: int = 1) -> None:
        blocks = self._words[_BLOCKS] = -(-batch * lanes // BLOCK_THREADS)
        self._kernels[kernel](blocks, BLOCK_THREADS, self._stream, self._parameters)

    def _search(self, library: Arrays, values: Batch, uniform: bool) -> Answer:
        """Leaves ``[B]`` of uniforms with their priorities, or of prefix values with None."""
        words, batch = self._words, values[2]
        words[_REALS], words[_REAL_TYPE], words[_BATCH], words[_UNIFORM] = values[0], values[1], batch, uniform
        indices, words[_FOUND] = library.make(batch, INDEX)
        priorities, words[_PRIORITIES] = library.make(batch, self._dtype) if uniform else (None, 0)
        self._launch("search", batch, self._lanes)
        return indices, priorities

    def _gather(self, library: Arrays, where: Batch) -> Any:
        """Priorities ``[B]`` of indices."""
        words = self._words
        words[_INDICES], words[_INDEX_TYPE], words[_BATCH] = where[:3]
        priorities, words[_PRIORITIES] = library.make(where[2], self._dtype)
        self._launch("gather", where[2])
        return priorities

    def _write(self, library: Arrays, where: Batch, values: Batch) -> None:
        words, batch = self._words, where[2]
        if batch > self._room:
            self._make_room(batch)
            self._go_to(library)
        words[_INDICES], words[_INDEX_TYPE], words[_BATCH] = where[0], where[1], batch
        words[_REALS], words[_REAL_TYPE] = values[0], values[1]
        if values[1] == SCALAR:
            self._reals[_SCALAR] = values[3]
        if self._fused or (self._fused is None and batch <= _MOST_FUSED):
            threads = min(FUSED_THREADS, -(-batch * self._lanes // 32) * 32)
            self._kernels["update_fused"](1, threads, self._stream, self._parameters)
            return
        if self._validate:
            self._launch("inspect", batch)
        self._launch("claim_leaves", batch)
        self._launch("settle_leaves", batch, self._lanes if self._propagate == "recompute" else 1)

    def _make_room(self, batch: int) -> None:
        """Have room for the copy of a batch of that size, on the stream that its memory is of."""
        self._go_to(self._native)
        room = max(_LEAST_ROOM, 2 * self._room, batch)
        made = [self._native.make(room, dtype) for dtype in (INDEX, self._dtype)]
        self._rooms[room] = [array for array, _ in made]
        (_, self._tree["batch_indices"][0]), (_, self._tree["batch_values"][0]) = made
        self._room = room

    def _settle(self) -> None:
        """Wait for the device, and raise the error of the first element that it has refused since the last error."""
        self._device.synchronize()
        why, position, index = self._report[: program.VALUE].tolist()
        if not why:
            return
        value, bound, total = self._report[program.VALUE :].view(np.float64).tolist()
        self._go_to(self._native)
        self._report[:] = 0  # first, so that no report is erased for which the device holds its word
        self._status[program.TOLD] = 0
        if why == program.EMPTY:
            raise RuntimeError(nothing_to_sample(total))
        what, bounds = {
            program.BAD_INDEX: (f"index {index}", f"[0, {self._capacity})"),
            program.BAD_PRIORITY: (f"priority {value}", f"[0, {bound:.8g}]"),
            program.BAD_UNIFORM: (f"uniform {value}", "[0, 1)"),
            program.BAD_MASS: (f"mass {value}", f"[0, {bound!r})"),
        }[why]
        kind = IndexError if why == program.BAD_INDEX else ValueError
        wrote = "; an update with it has written nothing" if why in (program.BAD_INDEX, program.BAD_PRIORITY) else ""
        raise kind(f"{what} at position {position} is outside {bounds}{wrote}")

    # The contract. Batches that are on the device go straight to a kernel, which checks them; what is elsewhere or of
    # another type goes to the base class, whose checks name the value and the bound.

    def _enqueue(self, library: Arrays, hook: Callable[..., Result], *arguments: Any) -> Result:
        """Run a hook that launches kernels; in a turn of its own."""
        self._begin(library)
        if self._torn:
            self._go_to(self._native)
            self._recover()
            self._torn = False
            self._go_to(library)
        result = hook(library, *arguments)
        if self._raise_errors == "now":
            self._settle()
        return result

    def _change_leaves(self, library: Arrays, where: Batch, values: Batch) -> None:
        self._torn = True
        self._write(library, where, values)
        self._torn = False

    def _take(self, values: Any, is_index: bool) -> tuple[Arrays, Batch] | None:
        """The library and the batch, if it is on the device and not empty."""
        library = self._libraries.find(values)
        batch = library.take(values, is_index) if library else None
        return (library, batch) if library and batch and batch[2] else None

    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        if taken := self._take(indices, True):
            library, where = taken
            other: tuple[Arrays, Batch] | None
            if _is_float(priorities):
                other = library, (0, SCALAR, where[2], float(priorities))  # type: ignore[arg-type]
            else:
                other = self._take(priorities, False)
            if other and other[0].stream == library.stream and other[1][2] == where[2]:
                self._turns.run(False, self._enqueue, library, self._change_leaves, where, other[1])
                return
        super().update(self._libraries.copy_to_host(indices), self._libraries.copy_to_host(priorities))

    def get(self, indices: ArrayLike) -> Any:
        if taken := self._take(indices, True):
            return self._turns.run(False, self._enqueue, taken[0], self._gather, taken[1])
        return self._libraries.convert(indices, super().get(self._libraries.copy_to_host(indices)))[0]

    def prefix_sum_index(self, mass: ArrayLike, side: str = "right") -> Any:
        if side == "right" and (taken := self._take(mass, False)):
            return self._turns.run(False, self._enqueue, taken[0], self._search, taken[1], False)[0]
        return self._libraries.convert(mass, super().prefix_sum_index(self._libraries.copy_to_host(mass), side))[0]

    def sample(self, uniforms: ArrayLike, exclude: ArrayLike | None = None) -> tuple[Any, Any]:
        if exclude is None and (taken := self._take(uniforms, False)):
            return cast(Answer, self._turns.run(False, self._enqueue, taken[0], self._search, taken[1], True))
        if exclude is not None and self._validate:
            self.synchronize()  # an error of before is none of this call's, which sets leaves to 0 and back
        found = super().sample(self._libraries.copy_to_host(uniforms), self._libraries.copy_to_host(exclude))
        indices, priorities = self._libraries.convert(uniforms, *found)
        return indices, priorities

    def sample_distinct(self, uniforms: ArrayLike) -> tuple[Any, Any]:
        if self._validate:
            self.synchronize()  # as above
        indices, priorities = super().sample_distinct(self._libraries.copy_to_host(uniforms))
        converted = self._libraries.convert(uniforms, indices, priorities)
        return converted[0], converted[1]

    # Hooks of the base class: what they are given was checked, and they wait

    def _set(self, indices: Indices, priorities: Reals) -> None:
        where = self._placed(indices, np.int64)
        scalar = np.ndim(priorities) == 0  # of an unchecked call
        values = (0, SCALAR, 1, float(priorities)) if scalar else self._placed(priorities, np.float64)
        self._write(self._native, where, values)

    def _placed(self, values: Any, dtype: DTypeLike) -> Batch:
        """The batch on the device, whatever an unchecked call gives."""
        if not isinstance(values, self._device.arrays.ndarray):
            values = self.place(np.asarray(values, dtype).reshape(-1))
        taken = self._native.take(values, dtype is np.int64)
        if taken is None:
            raise TypeError(f"a batch must be [B] of integers, or of floats, not {values.dtype} {list(values.shape)}")
        return taken

    def _get(self, indices: Indices) -> Priorities:
        return cast(Priorities, self._gather(self._native, self._placed(indices, np.int64)))

    def _find(self, mass: Reals) -> Indices:
        return cast(Indices, self._answer(mass, False)[0])

    def _sample(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        return self._answer(uniforms, True)

    def _sample_distinct(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        status, report = to_numpy(self._status).copy(), self._report.copy()
        try:
            return super()._sample_distinct(uniforms)
        finally:  # where nothing was left, that is no error of an unchecked call
            self._device.synchronize()
            self._status[:], self._report[:] = self.place(status), report

    def _answer(self, values: Reals, uniform: bool) -> Answer:
        answer = self._search(self._native, self._placed(values, np.float64), uniform)
        if self._validate or self._raise_errors == "now":
            self._settle()
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
        # An update that was interrupted leaves some behind, and may have been refused.
        self._claims[:] = self._pending[:] = self._status[program.TOLD + 1 :] = 0
        self._audit(repair=True)

    def _audit(self, repair: bool) -> float:
        """Largest abs(node - sum of its children), level by level from the leaves; ``repair`` puts the sums there."""
        worst = self._device.arrays.zeros(1, np.uint64)
        self._words[_WORST] = self._device.address(worst)
        for level in range(1, self.height + 1):
            self._words[_LEVEL], self._words[_REPAIR], self._words[_BATCH] = level, repair, self._sizes[level]
            self._launch("audit", self._sizes[level], self._lanes)
        return float(to_numpy(worst).view(np.float64)[0])

    def synchronize(self) -> None:
        """Wait for the device. IndexError, ValueError, RuntimeError: what it has refused and no call has raised."""
        self._read("synchronize", self._settle)

    @property
    def device(self) -> str:
        return self._device.name

    @property
    def nbytes(self) -> int:
        """Bytes on the device: levels, claims and counters of an update, copies of batches."""
        arrays = [self._memory, self._claims, self._pending, self._status, *itertools.chain(*self._rooms.values())]
        return int(sum(array.nbytes for array in arrays))


def _outlive(device: Device, held: list[Any]) -> None:
    """Wait for the device while the memory is held; one that has died needs none."""
    with contextlib.suppress(Exception):
        device.synchronize()


def _is_float(value: Any) -> bool:
    """Whether the value is one number that float64 holds exactly."""
    return isinstance(value, (float, np.float32)) or (type(value) is int and abs(value) <= 1 << 53)
