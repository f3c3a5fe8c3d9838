"""The fastest CPU tree: kernels compiled by numba, vector instructions over each sibling group, misses overlapped.

Memory. Leaves are plain numbers, a group of them one row of ``width`` lanes (K rounded up to whole vectors, the rest
zeros). Each inner level holds its float64 node sums in such rows and, under ``layout="prefix"``, a second row for each
group with prefix sums ready for the search:

    sums of 4 children      1    0    2    5
    prefix row              8    1    1    3        lane 0: the group's total; lane i > 0: what lies left of child i

One level of the descent is then: load the row, compare every lane with the prefix value, count. Lane 0 is above any
value within the group, so the count is the child; the sum left of the child is in its lane.

A batch of 64 descends level by level together, each element prefetching its next row, so that cache misses overlap.
An update sets leaves and sums the group of each 32 elements later, then each touched group above once, level by level:
exact, and duplicates share the work; a level most of which is touched is summed whole. The kernels check their
arguments themselves, before they write.
"""

import functools
import math
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..checks import one_of
from ..levels import allocate, group_size, level_bytes, level_sizes
from .arguments import EXACT, Indices, Priorities, Reals, nothing_to_sample, to_numpy, uniform_batch
from .compiling import AtFirstUse, import_numba
from .contract import READS, SumTree
from .turns import Result

if TYPE_CHECKING:
    import numba

    from . import direct_calls, numba_turns
    from .kernels import adding, auditing, header, lending, searching, updating

_empty = np.empty  # looking such names up takes a third of the time of a call with B = 1
_FLOAT64, _INT64 = np.dtype(np.float64), np.dtype(np.int64)
_THREADS_A_PROCESSOR = 4  # that may be asked for
_CHUNK = 512  # elements that a thread searches at a time: the kernels', which take a compiler to import
_MOST_LANES = 16  # numbers of a vector
_LOADS_IN_ORDER = platform.machine() in ("x86_64", "AMD64")  # those of the interpreter, which fences nothing


def _load() -> None:
    """Import the compiler and the kernels at the first tree, because traits are read without a compiler, too."""
    global numba, direct_calls, numba_turns  # noqa: PLW0603  # as if imported above
    global adding, auditing, header, lending, searching, updating  # noqa: PLW0603
    numba = import_numba()

    from . import direct_calls, numba_turns  # noqa: PLC0415
    from .kernels import adding, auditing, header, lending, searching, updating  # noqa: PLC0415


class NumbaTree(SumTree):
    """Compiled tree; the GIL is released while a kernel runs.

    Options:

    * ``layout="prefix"`` (default: fastest to sample) keeps in-group prefix sums next to the sums; ``"plain"`` keeps
      sums only and scans them in registers: faster to update, slower to sample.
    * ``propagate="recompute"`` (default: exact, and for batches also the faster one) sums each touched group once a
      batch; ``"delta"``, the method of [Zhang2021], adds each leaf's change to its ancestors and drifts by rounding;
      ``"atomic"`` does so by ``threads`` at once, the method of [Zhang2023, Alg. 2], and smaller batches as "delta".
    * ``aligned=False`` shifts every level by one element, so that groups straddle cache lines; None and True align
      them.

    ``threads`` share the search of a batch of at least 8,192, a chunk of 512 at a time: the calling thread, and threads
    of this process that sleep between two calls. Who is late, because its core is busy, has its chunk taken back; where
    sharing was slower in the last calls, the calling thread is alone but for one call in 50. An update runs on the
    calling thread, because its bottleneck is the same cache lines on every thread; by ``propagate="atomic"`` it is
    shared as a search is, but that the calling thread sets all leaves, renews minima and prefix sums, and waits for the
    chunks that others have begun.

    Python threads: calls that only read run side by side, and an update waits for none of them but ``check``; updates
    take turns. Of batches that ``threads`` share one at a time is shared, and the others run on their calling threads.
    """

    # That of direct_calls, and others: a tree's methods are found faster where its dict has fewer than 30 attributes.
    __slots__ = ("_direct", "_group", "_kernel_turns", "_lanes", "_layout", "_propagate", "_sharing", "_words")

    threaded = True
    least_shared = 8192  # for less it does not pay to wake another thread
    most_shared = 1 << 22  # elements of a batch, whose arrays the helpers keep
    compiled = True
    concurrent = READS
    optimistic = READS - {"check"}

    def __init__(
        self,
        capacity: int,
        *,
        propagate: str = "recompute",
        layout: str = "prefix",
        aligned: bool | None = None,
        **common: Any,
    ) -> None:
        if reason := self.unavailable():
            raise RuntimeError(reason)
        vars(self).clear()  # of a tree made anew: entries of kernels with the addresses of its memory before
        if hasattr(self, "_direct"):
            del self._direct
        self._propagate = one_of("propagate", propagate, ("recompute", "delta", "atomic"))
        self._layout = one_of("layout", layout, ("prefix", "plain"))
        self._aligned = one_of("aligned", aligned, (None, True, False))
        super().__init__(capacity, **common)

    def _allocate(self) -> None:
        self._group = group_size(self._capacity, self._fanout)
        self._lanes = _lanes(self._group)
        self._chunks = -(-self._group // self._lanes)
        width, height = self._lanes * self._chunks, self.height
        rows = [-(-size // self._group) for size in self._sizes]
        shapes: list[tuple[int, DTypeLike]] = [(rows[0] * width, self._dtype)]
        shapes += [(rows[level] * width, _FLOAT64) for level in range(1, height + 1)]
        shapes += [(rows[level] * width, _FLOAT64) for level in range(1, height) if self._layout == "prefix"]
        self._arrays: list[NDArray[Any]] = list(allocate(shapes, aligned=self._aligned is not False))
        self._minima: list[NDArray[Any]] = []
        if self._minimum:
            self._minima = list(allocate(shapes[1 : height + 1], aligned=self._aligned is not False))
            for minima in self._minima:
                minima[:] = math.inf  # of padding, too
        self._marks = [np.zeros(rows[level], np.uint8) for level in range(1, height)]
        self._leaves, self._root = self._arrays[0], self._arrays[height]
        self._scratch = np.empty(1024 * header.SCRATCH, np.int64)  # of the update that is inside
        (words,) = allocate([(header.HEADER_WORDS, _INT64)])
        words[[header.CAPACITY, header.HEIGHT, header.LEAVES]] = self._capacity, height, self._leaves.ctypes.data
        sums, prefixes = self._arrays[1 : height + 1], self._arrays[height + 1 :]
        of_levels = (header.SUMS, sums), (header.PREFIX, prefixes), (header.MARKS, self._marks)
        for first, arrays in (*of_levels, (header.MINIMA, self._minima)):
            words[first + 1 : first + 1 + len(arrays)] = [array.ctypes.data for array in arrays]
        self._header = words
        self._address = int(words.ctypes.data)
        self._words, self._root_word = words.data, self._root.data  # read faster than arrays
        self._minimum_word = self._minima[-1].data if self._minima else None
        self._kernel_turns = numba_turns.KernelTurns(words)
        self._sharing, self._update_sharing = numba_turns.Sharing(), numba_turns.Sharing()
        direct_calls.open_class(type(self))

    @classmethod
    def _most_threads(cls) -> int:
        """Four a processor: more would be a mistake, up to four may be a measurement of oversubscription."""
        return _THREADS_A_PROCESSOR * (os.cpu_count() or 1)

    @classmethod
    def threads_used(cls, batch: int, threads: int) -> int:
        """Each searches a chunk at least, or adds its changes by atomics; a batch above ``most_shared`` is the calling
        thread's, as a small one is."""
        return min(threads, batch // _CHUNK) if cls.least_shared <= batch <= cls.most_shared else 1

    @classmethod
    def runs_as(
        cls, capacity: int, batch: int, fanout: int, threads: int, options: Mapping[str, Any]
    ) -> tuple[int, int, dict[str, Any]]:
        fanout, threads, own = super().runs_as(capacity, batch, fanout, threads, options)
        idle = {"aligned"} if own.get("aligned") else set()  # None aligns wherever True does
        if capacity <= fanout:
            idle.add("layout")  # which is of levels between the leaves and the root
        if own.get("propagate") == "atomic" and batch < cls.least_shared:
            own["propagate"] = "delta"
        return fanout, threads, {name: value for name, value in own.items() if name not in idle}

    @classmethod
    def unavailable(cls) -> str | None:
        _load()
        if numba.config.DISABLE_JIT:
            return "Implementation 'numba' is compiled, and NUMBA_DISABLE_JIT is set."
        return None

    @classmethod
    def nbytes_of(cls, capacity: int, fanout: int, dtype: DTypeLike, options: Mapping[str, Any]) -> int:
        """Bytes of the levels; an update's marks, a byte a group, are not counted."""
        width = -(-fanout // _lanes(fanout)) * _lanes(fanout)
        copies = 2 if options.get("layout", "prefix") == "prefix" else 1
        return level_bytes(level_sizes(capacity, fanout), fanout, dtype, width, copies)

    # Kernels are compiled, or loaded from disk, at their first use; calling the entry itself spares numba's dispatch.

    def _compiled(self, kernel: Any, kinds: str, *, minima: bool = False) -> Callable[..., Any]:
        """The kernel's entry for this tree; ``minima``: it renews them, where the tree has any.

        ``kinds`` are its arguments': b a bool, n an int, f a float, and arrays ``[B]``: i of indices, r of float64,
        p of priorities.
        """
        types = numba.types
        leaf = types.float32 if self._dtype.itemsize == 4 else types.float64
        keeps = header.HAS_PREFIXES * (self._layout == "prefix") + header.HAS_MINIMA * (minima and self._minimum)
        form = header.Form(leaf, fanout=self._group, lanes=self._lanes, chunks=self._chunks, prefix=keeps)
        known = {"b": types.boolean, "n": types.int64, "f": types.float64}
        known |= {"i": types.int64[::1], "r": types.float64[::1], "p": leaf[::1]}
        signature = (types.int64, types.boolean, form, *(known[kind] for kind in kinds))
        kernel.compile(signature)
        direct_calls.open_to(self, kernel, signature)
        return functools.partial(kernel.overloads[signature].entry_point, self._address, False, None)

    def step_kernels(self, batch: int) -> set[tuple[Any, ...]]:
        """What tells apart the kernels that fill this tree and take steps of a batch."""
        shared = ("shared", "help") if self.threads_used(batch, self._threads) > 1 else ()
        atomic = ("delta", *(["help update"] if shared else [])) if self._propagate == "atomic" else ()
        names = ("audit", "search", self._propagate, *(atomic if batch >= self.least_shared else ()), *shared)
        return {(name, self._dtype, self._group, self._layout) for name in names}

    _search_kernel = AtFirstUse(lambda tree: tree._compiled(searching.search, "rbip"))
    _shared_search_kernel = AtFirstUse(lambda tree: tree._compiled(searching.search_with_help, "nrbipip"))
    _help_kernel = AtFirstUse(lambda tree: tree._compiled(searching.help_search, "nrbip"))
    _distinct_kernel = AtFirstUse(lambda tree: tree._compiled(lending.search_distinct, "ripii", minima=True))
    _without_kernel = AtFirstUse(lambda tree: tree._compiled(lending.search_without, "riipi", minima=True))
    _left_kernel = AtFirstUse(lambda tree: tree._compiled(searching.search_left, "rrip"))
    _ranges_kernel = AtFirstUse(lambda tree: tree._compiled(searching.sum_ranges, "iir"))
    _gather_kernel = AtFirstUse(lambda tree: tree._compiled(searching.gather, "ip"))
    _audit_kernel = AtFirstUse(lambda tree: tree._compiled(auditing.audit, "br", minima=True))
    _root_kernel = AtFirstUse(lambda tree: tree._compiled(searching.root, "nr"))

    @AtFirstUse
    def _update_kernel(self) -> Callable[..., int]:
        kernel = updating.update if self._propagate == "recompute" else adding.update
        return functools.partial(self._compiled(kernel, "firi", minima=True), self._max_priority)

    @AtFirstUse
    def _atomic_kernel(self) -> Callable[..., int]:
        kernel = self._compiled(adding.update_with_help, "fniri", minima=True)
        return functools.partial(kernel, self._max_priority)

    _help_update_kernel = AtFirstUse(lambda tree: tree._compiled(adding.help_update, "nni"))

    # Kernels take turns by themselves, one turn for the whole of a call, so that no other turn is needed here.

    def _read(self, op: str, hook: Callable[..., Result], *arguments: Any) -> Result:
        return hook(*arguments)

    def _change(self, hook: Callable[..., Result], *arguments: Any) -> Result:
        return hook(*arguments)

    def _run(self, kernel: Callable[..., int], *arguments: Any) -> int:
        status = kernel(*arguments)
        return self._wait(kernel, *arguments) if status == header.BUSY else status

    def _wait(self, kernel: Callable[..., int], *arguments: Any) -> int:
        """Call the kernel once it has its turn; returns its status."""
        if self._kernel_turns.orphaned:
            self._kernel_turns.adopt(self._mend, self._rebuild)
        return self._kernel_turns.wait(kernel, *arguments)

    def _mend(self) -> None:
        """Clear signs of leaves and marks of groups, which an update that never ended leaves with wrong sums."""
        np.abs(self._leaves, out=self._leaves)
        for marks in self._marks:
            marks[:] = 0

    # The contract. Batches that need no conversion go straight to a kernel, which checks them; what it refuses, and all
    # other batches, go to the base class, whose checks name the value and the bound.

    def update(self, indices: ArrayLike, priorities: ArrayLike) -> None:
        where: Any = _as_batch(indices, _INT64) if self._validate else indices
        values: Any = _as_batch(priorities, _FLOAT64) if self._validate else priorities
        if where is not None and isinstance(priorities, (float, np.float32)):
            values = np.full(where.size, priorities, _FLOAT64)
        if where is None or values is None or not self._write(where, values):
            super().update(indices, priorities)

    def get(self, indices: ArrayLike) -> Priorities:
        where: Any = _as_batch(indices, _INT64) if self._validate else indices
        if where is not None:
            priorities = np.empty(where.size, self._dtype)
            status = self._gather_kernel(where, priorities)
            if status == header.BUSY:
                status = self._wait(self._gather_kernel, where, priorities)
            if status == header.DONE:
                return priorities
        return super().get(indices)

    def prefix_sum_index(self, mass: ArrayLike, side: str = "right") -> Indices:
        batch: Any = _as_batch(mass, _FLOAT64) if self._validate else mass
        if side == "left":
            leaves = None if batch is None else self._search_left(batch)
            return super().prefix_sum_index(mass, side) if leaves is None else leaves
        answer = None if batch is None or side != "right" else self._search(batch, False)
        return super().prefix_sum_index(mass, side) if answer is None else answer[0]

    def prefix_sum(self, indices: ArrayLike) -> Reals:
        where: Any = _as_batch(indices, _INT64) if self._validate else indices
        summed = None if where is None else self._sum_ranges(np.zeros(where.size, _INT64), where)
        return super().prefix_sum(indices) if summed is None else summed

    def range_sum(self, left: ArrayLike, right: ArrayLike) -> Reals:
        starts: Any = _as_batch(left, _INT64) if self._validate else left
        ends: Any = _as_batch(right, _INT64) if self._validate else right
        summed = None if starts is None or ends is None else self._sum_ranges(starts, ends)
        return super().range_sum(left, right) if summed is None else summed

    def sample(self, uniforms: ArrayLike, exclude: ArrayLike | None = None) -> tuple[Indices, Priorities]:
        if exclude is not None:
            return super().sample(uniforms, exclude)
        batch: Any = _as_batch(uniforms, _FLOAT64) if self._validate else uniforms
        answer = None if batch is None else self._search(batch, True)
        return super().sample(uniforms) if answer is None else answer

    def _set(self, indices: Indices, priorities: Reals) -> None:
        if not self._write(indices, priorities):
            raise ValueError(
                f"an index is outside [0, {self._capacity}) or a priority outside [0, {self._max_priority}]"
            )

    def _find(self, mass: Reals) -> Indices:
        return self._answer(mass, False)[0]

    def _find_left(self, mass: Reals) -> Indices:
        return _taken(self._search_left(mass), "a mass is outside [0, total]")

    def _range_sum(self, left: Indices, right: Indices) -> Reals:
        return _taken(self._sum_ranges(left, right), f"a range is outside [0, {self._capacity}]")

    def _sample(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        return self._answer(uniforms, True)

    def _sample_distinct(self, uniforms: Reals) -> tuple[Indices, Priorities]:
        batch = uniforms.size
        answer = _empty(batch, _INT64), _empty(batch, self._dtype)
        room, drawn = _empty(header.LENDING_SCRATCH * batch, _INT64), _empty(1, _INT64)
        if self._run(self._distinct_kernel, uniforms, *answer, room, drawn) == header.REFUSED:
            raise ValueError("a uniform is outside [0, 1)")
        return answer[0][: drawn[0]], answer[1][: drawn[0]]

    def _sample_without(self, uniforms: Reals, exclude: Indices) -> tuple[Indices, Priorities] | None:
        answer = _empty(uniforms.size, _INT64), _empty(uniforms.size, self._dtype)
        room = _empty(header.LENDING_SCRATCH * exclude.size, _INT64)
        status = self._run(self._without_kernel, uniforms, exclude, *answer, room)
        if status == header.REFUSED:
            raise ValueError(f"a uniform is outside [0, 1) or an excluded leaf outside [0, {self._capacity})")
        return answer if status == header.DONE else None

    def _answer(self, values: Reals, uniform: bool) -> tuple[Indices, Priorities]:
        why = f"a {'uniform is outside [0, 1)' if uniform else 'mass is outside [0, total)'}"
        return _taken(self._search(values, uniform), why)

    def _search(self, values: Reals, uniform: bool) -> tuple[Indices, Priorities] | None:
        """Leaves ``[B]`` and their priorities for uniforms or prefix values; None if the kernel refused one of them."""
        batch = values.size
        indices, priorities = _empty(batch, _INT64), _empty(batch, self._dtype)
        kernel, arguments = self._search_kernel, (values, uniform, indices, priorities)
        if self._threads > 1 and batch >= self.least_shared:
            kernels = self._shared_search_kernel, self._help_kernel
            status = self._share(batch, self._sharing, numba_turns.helpers.search, kernels, kernel, arguments)
        else:
            status = kernel(*arguments)
        if status == header.BUSY:
            status = self._wait(kernel, *arguments)
        if status == header.DONE:
            return indices, priorities
        if status == header.EMPTY:
            if uniform and self._validate:
                uniform_batch(values)  # a bad value anywhere in the batch comes first
            # Under "recompute" the sums were 0; their present values are of no interest.
            raise RuntimeError(nothing_to_sample(0.0 if self._propagate == "recompute" else self._total()))
        return None

    def _share(
        self, batch: int, sharing: Any, share: Any, kernels: Any, alone: Callable[..., int], arguments: Any
    ) -> int:
        """The status of a call that helpers take part in, where the last such calls say that it pays."""
        began, status = time.perf_counter(), header.BUSY
        if shared := sharing.is_worth_it():
            status = share(self.threads_used(batch, self._threads) - 1, self, *kernels, *arguments)
        if status == header.BUSY:
            status = alone(*arguments)
        sharing.add(shared, (time.perf_counter() - began) / batch)
        return status

    def _search_left(self, values: Reals) -> Indices | None:
        """Leaves ``[B]`` by the rule >=; None if the kernel refused a value."""
        batch = values.size
        indices = _empty(batch, _INT64)
        status = self._run(self._left_kernel, values, _empty(2 * batch), indices, _empty(batch, self._dtype))
        if status == header.EMPTY:  # deltas left a total above leaves that are all 0
            raise RuntimeError(nothing_to_sample(self._total()))
        return indices if status == header.DONE else None

    def _sum_ranges(self, left: Indices, right: Indices) -> Reals | None:
        """Sums ``[B]`` of leaves from ``left [B]`` to before ``right [B]``; None if the kernel refused a range."""
        sums = _empty(left.size)
        return sums if self._run(self._ranges_kernel, left, right, sums) == header.DONE else None

    def _write(self, indices: Indices, priorities: Reals) -> bool:
        """Whether the batch was written; False, with nothing written, if the kernel refused a value."""
        batch, scratch = indices.size, self._scratch
        if scratch.size < header.SCRATCH * batch:
            scratch = self._scratch = _empty(2 * header.SCRATCH * batch, _INT64)
        arguments = indices, priorities, scratch
        if self._propagate == "atomic" and batch >= self.least_shared:
            room = np.zeros(searching.room_of(1), _INT64)
            kernel: Callable[..., int] = functools.partial(self._atomic_kernel, int(room.ctypes.data))
            kernels = self._atomic_kernel, self._threads > 1 and self._help_update_kernel
            status = self._share(batch, self._update_sharing, numba_turns.helpers.update, kernels, kernel, arguments)
        else:
            kernel = self._update_kernel
            status = kernel(*arguments)
        if status == header.BUSY:
            status = self._wait(kernel, *arguments)
        return status == header.DONE

    def _get(self, indices: Indices) -> Priorities:
        priorities = np.empty(indices.size, self._dtype)
        if self._run(self._gather_kernel, indices, priorities) != header.DONE:
            raise ValueError(f"an index is outside [0, {self._capacity})")
        return priorities

    def total(self) -> float:
        return self._total()

    def _total(self) -> float:
        sequence, root = self._words[header.SEQUENCE], self._root_word[0]
        if sequence & 1 == 0 and self._words[header.SEQUENCE] == sequence and _LOADS_IN_ORDER:
            return root
        return self._root_of(header.SUMS)

    def _min(self) -> float:
        if self._minimum_word is None:
            return super()._min()
        sequence, smallest = self._words[header.SEQUENCE], self._minimum_word[0]
        if sequence & 1 == 0 and self._words[header.SEQUENCE] == sequence and _LOADS_IN_ORDER:
            return smallest
        return self._root_of(header.MINIMA)

    def _root_of(self, levels: int) -> float:
        number = _empty(1, _FLOAT64)
        self._run(self._root_kernel, levels, number)
        return float(number[0])

    def _check(self) -> float:
        return self._audit(False)

    def _rebuild(self) -> None:
        self._audit(True)

    def _audit(self, repair: bool) -> float:
        largest = _empty(1, _FLOAT64)
        self._run(self._audit_kernel, repair, largest)
        return float(largest[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the levels and their marks; an update's scratch, which grows with the batch, is not counted."""
        return sum(array.nbytes for array in (*self._arrays, *self._minima, *self._marks))


def _lanes(fanout: int) -> int:
    """Lanes of a vector: the fewest that hold a group, at most 16."""
    return min(_MOST_LANES, 1 << (fanout - 1).bit_length())


def _taken(answer: Result | None, why: str) -> Result:
    """The answer of a kernel; ValueError, saying why, where it refused the batch."""
    if answer is None:
        raise ValueError(why)
    return answer


def _as_batch(values: ArrayLike, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The values as C-contiguous ``[B]`` of a dtype that holds each of them exactly; None where that cannot be."""
    if type(values) is np.ndarray and values.ndim == 1:
        if values.dtype is dtype and values.flags.carray:  # the usual case, hence first: a call of B = 1 is mostly this
            return values
        if values.dtype in EXACT[dtype]:
            return values.astype(dtype)
        if values.dtype.kind in "iu" and dtype is _FLOAT64 and (np.abs(reals := values.astype(dtype)) < 2.0**53).all():
            return reals
    elif hasattr(values, "detach"):
        view = _view_of(values)
        return None if view is None else _as_batch(view, dtype)
    return None


def _view_of(tensor: Any) -> NDArray[Any] | None:
    """torch's tensor as an array: the same memory if that is the host's; None for one that NumPy cannot have."""
    try:
        return to_numpy(tensor)
    except (RuntimeError, TypeError, NotImplementedError):
        return None
