"""Where everything of a replay lies in its block of memory, and the views through which a process's kernels reach it.

A block is a header and, one after the other, its banks (most strategies have one). Nothing in it is an address, because
every process maps it elsewhere:

    block    signature, words of trials | bank 0 | bank 1 | ..
    bank     mutexes, counters, ranges under way | word of each slot | records, a packed row each | levels of the tree |
             bounds of blocks of leaves | leaves lent

The word of a slot says what it holds: 0 nothing yet; else 4 (ticket + 1) + state, where a record's *ticket* is the
number of records that took a slot before it, and the state one of ``WRITING``, ``READY`` (may be sampled), ``CLOSED``
(a filler, a record whose stack of frames is cut, or one that was lost). A record may be sampled just where its word is
even.

The bound of a block is at least each of its leaves: through them the largest leaf is found. Leaves that are 0 for the
length of a call are listed as lent, so that a repair gives them back.

The block is one of zeroed memory, a process's own or one that other processes map by a small handle. Shared memory is a
memfd: it has no name that could be left behind or removed by a stranger, and its bytes are freed with its last user. A
child gets the descriptor with the handle; others open it through a process that has it. Arrays over the block keep it
mapped, so that closing it never pulls memory away from under a call.

A *view* is a process's own array of addresses into a bank. It begins with the header that the kernels of
``impls.sumtree.kernels`` take, so these work on the bank's tree as on any other.
"""

import contextlib
import errno
import math
import mmap
import os
import weakref
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import context, reduction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import levels
from ..cores import check_free
from ..levels import CACHE_LINE, group_size, level_sizes, line_starts
from .layout import Layout

_GONE = errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENXIO  # of a number that is another's, or a socket's


class ClosedError(ValueError):
    """The memory is closed, or the processes that had it have ended."""


class Memory:
    """``nbytes`` zeroed bytes, mapped into this process at ``address``."""

    def __init__(self, mapped: mmap.mmap, descriptor: "_Descriptor | None") -> None:
        self._descriptor = descriptor
        # np.frombuffer keeps the map alive; an array made over a pointer would not.
        self.bytes: NDArray[np.uint8] = np.frombuffer(mapped, np.uint8)
        self.address = int(self.bytes.ctypes.data)

    @property
    def nbytes(self) -> int:
        """Size of the block."""
        return self.bytes.size

    @property
    def shared(self) -> bool:
        """Whether other processes can map it."""
        return self._descriptor is not None

    def handle(self) -> "Handle":
        """What another process needs to map it. ValueError for private memory."""
        if self._descriptor is None:
            raise ValueError("private memory cannot be attached to: make the replay with shared=True")
        return Handle(self._descriptor, os.getpid(), self._descriptor.number, _identity(self._descriptor.number))

    def view(self, start: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array over the bytes from ``start`` on."""
        count = int(np.prod(shape, dtype=np.int64))
        part: NDArray[Any] = self.bytes[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)
        return part


def allocate(nbytes: int, shared: bool) -> Memory:
    """Zeroed memory. MemoryError, before anything is taken, for more than the machine has free."""
    check_free(nbytes)
    if not shared:
        mapped = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # fewer misses of the address cache when rows are gathered
            mapped.madvise(mmap.MADV_HUGEPAGE)
        return Memory(mapped, None)
    import fcntl  # noqa: PLC0415  # not on every system

    descriptor = _Descriptor(os.memfd_create("fanout-replay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    try:
        os.ftruncate(descriptor.number, nbytes)
        # Nobody may cut off what others have mapped: that would end them by SIGBUS.
        fcntl.fcntl(descriptor.number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except OSError as error:  # such as a limit on the size of files
        raise MemoryError(f"{nbytes / 1e9:,.3g} GB of shared memory cannot be had ({error.strerror})") from None
    return Memory(mmap.mmap(descriptor.number, nbytes), descriptor)


class _Descriptor:
    """An open file descriptor, closed with the last reference to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        weakref.finalize(self, _close, number, os.getpid())


def _identity(number: int) -> tuple[int, int, int]:
    """(device, inode, bytes) of a descriptor's file: no other memory has them, whatever its process and number."""
    status = os.fstat(number)
    return status.st_dev, status.st_ino, status.st_size


def _close(number: int, pid: int) -> None:
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.close(number)


@dataclass
class Handle:
    """A picklable reference to shared memory; a child that is started with it gets the descriptor itself."""

    _descriptor: _Descriptor | None
    _pid: int
    _number: int
    _identity: tuple[int, int, int]

    def attach(self) -> Memory:
        """Map the memory. ClosedError if no process that the handle knows has it any more."""
        descriptor = self._descriptor
        if descriptor is None:
            try:
                descriptor = _Descriptor(os.open(f"/proc/{self._pid}/fd/{self._number}", os.O_RDWR | os.O_CLOEXEC))
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                raise self._closed("has ended or closed the replay, or is another user's") from None
        if _identity(descriptor.number) != self._identity:
            raise self._closed("has closed the replay that it stands for")
        return Memory(mmap.mmap(descriptor.number, self._identity[-1]), descriptor)

    def _closed(self, why: str) -> ClosedError:
        return ClosedError(
            f"process {self._pid}, which made this handle, {why}: ask a process that is still attached for a new handle"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        mine = self._descriptor if context.get_spawning_popen() is not None else None
        sent = None if mine is None else reduction.DupFd(mine.number)  # the creator's may be another file here
        return _received, (sent, self._pid, self._number, self._identity)


def _received(sent: Any, *parts: Any) -> Handle:
    return Handle(None if sent is None else _Descriptor(sent.detach()), *parts)


WRITING, READY, CLOSED = 1, 2, 3
TICKET = 4  # words differ by so much from one ticket to the next

# Words of the block's header.
SIGNATURE, LOADS = 0, 1  # of the shape; states ever loaded
MODE = 9  # of a trial: what points do
ARRIVED, GRANTED, ACTORS = 64, 128, 64  # of a trial: a word for each actor
BLOCK_BYTES = 4096

# Bytes of a bank's header: mutexes on lines of their own, then words.
TREE_MUTEX, LEAF_MUTEX, READ_WRITE = 0, 64, 128
WRITTEN, COUNT, LARGEST, LOST, DAMAGED, CUT, LENT = 192, 200, 208, 216, 224, 232, 248
RANGES = 256  # records being written: first ticket, count (0: free), process, when that began
RANGE_BYTES, MOST_RANGES = 32, 56
BANK_BYTES = RANGES + RANGE_BYTES * MOST_RANGES

# Words of a view, after those of the tree's header.
BLOCK, BANK, WORDS, ROWS, STRIDE = 256, 257, 258, 259, 260
FRAMES, FRAME_BYTES, FIELDS, PID, BEGAN, ACTOR = 261, 262, 263, 264, 265, 266
BOUNDS, BLOCK_SHIFT, LENT_LEAVES = 269, 270, 271  # bounds: 0 if nobody asks for the largest leaf
FIELD = 272  # + 2 field: its first byte in a row, its bytes
MOST_FIELDS = 8
MOST_LENT = 1 << 16
SCRATCH_ROW = FIELD + 2 * MOST_FIELDS  # of this process, for whoever has the tree's mutex
STEPS, MOST_STEPS = SCRATCH_ROW + 1, 32  # addresses of the steps that kernels call: see ``steps.py``
VIEW_WORDS = STEPS + MOST_STEPS


@dataclass(frozen=True)
class Shape:
    """What decides where things lie: the record, slots of a bank, banks, fanout and format of the tree."""

    layout: Layout
    slots: int
    banks: int = 1
    fanout: int = 16
    dtype: str = "float32"

    @cached_property
    def row(self) -> np.dtype[Any]:
        """A packed record; rows begin on cache lines where that adds at most a quarter to them."""
        names, formats, offsets, end = [], [], [], 0
        for name, (shape, dtype) in self.layout.fields.items():
            names.append(name)
            formats.append((dtype, shape))
            offsets.append(end)
            end += int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        lines = -(-end // CACHE_LINE) * CACHE_LINE
        stride = lines if 4 * lines <= 5 * end else -(-end // 8) * 8
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": stride})

    @cached_property
    def group(self) -> int:
        """Children that a group of the tree has room for."""
        return group_size(self.slots, self.fanout)

    @cached_property
    def lanes(self) -> int:
        """Numbers of one vector: the fewest that hold a group, at most 16."""
        return min(16, 1 << (self.group - 1).bit_length())

    @cached_property
    def chunks(self) -> int:
        """Vectors that hold a group."""
        return -(-self.group // self.lanes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level of a bank's tree, leaves first."""
        return level_sizes(self.slots, self.fanout)

    @cached_property
    def block_shift(self) -> int:
        """Base-2 logarithm of the groups in a block of leaves: about as many leaves as there are blocks."""
        return max(0, (math.isqrt(self.slots) // self.group).bit_length() - 1)

    @cached_property
    def parts(self) -> list[tuple[int, Any]]:
        """(length, dtype) of what follows a bank's header: words, rows, leaves, sums, their prefixes, bounds, lent."""
        width, height = self.lanes * self.chunks, len(self.sizes) - 1
        groups = [-(-size // self.group) for size in self.sizes]
        sums = [(groups[level] * width, np.float64) for level in range(1, height + 1)]
        rows = self.slots * self.row.itemsize
        rest = [(-(-groups[0] >> self.block_shift), np.float64), (2 * min(self.slots, MOST_LENT), np.int64)]
        return [(self.slots, np.int64), (rows, np.uint8), (groups[0] * width, self.dtype), *sums, *sums[:-1], *rest]

    @cached_property
    def starts(self) -> tuple[list[int], int]:
        """(first byte of each part, counted from the bank's, bytes of a bank)."""
        starts, end = line_starts(self.parts)
        return [BANK_BYTES + start for start in starts], BANK_BYTES + end

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return BLOCK_BYTES + self.banks * self.starts[1]

    @property
    def signature(self) -> int:
        """A number that blocks of the same shape share, and hardly any other."""
        parts = (self.layout, self.slots, self.banks, self.fanout, self.dtype)
        return zlib.crc32(repr(parts).encode()) + (1 << 40)


@dataclass(eq=False)
class Bank:
    """A bank's parts as arrays over the block, and its view.

    Marks of the update under way, and scratch, are the process's own: the marks are clear whenever no update is.
    """

    shape: Shape
    memory: Memory
    number: int
    start: int = field(init=False)
    parts: list[NDArray[Any]] = field(init=False)
    view: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        starts, size = self.shape.starts
        self.start = BLOCK_BYTES + self.number * size
        self.parts = [
            self.memory.view(self.start + start, (length,), dtype)
            for start, (length, dtype) in zip(starts, self.shape.parts, strict=True)
        ]
        self.view = self._view()
        self.address = int(self.view.ctypes.data)

    @property
    def words(self) -> NDArray[np.int64]:
        """The word of each slot."""
        return self.parts[0]

    @property
    def rows(self) -> NDArray[Any]:
        """The records ``[slots]``, packed."""
        return self.parts[1].view(self.shape.row)

    @property
    def leaves(self) -> NDArray[Any]:
        """The tree's leaves ``[slots]``, as copies."""
        width = self.shape.lanes * self.shape.chunks
        kept: NDArray[Any] = self.parts[2].reshape(-1, width)[:, : self.shape.group].reshape(-1)[: self.shape.slots]
        return kept.copy()

    @property
    def total(self) -> float:
        """The sum of all priorities: the tree's root."""
        return float(self.parts[2 + len(self.shape.sizes) - 1][0])

    def word(self, at: int, dtype: Any = np.int64) -> NDArray[Any]:
        """The 8-byte word ``[1]`` at a byte of the bank's header."""
        return self.memory.view(self.start + at, (1,), dtype)

    def ranges(self) -> NDArray[np.int64]:
        """The table ``[MOST_RANGES, 4]`` of records being written: first ticket, count, process, when that began."""
        return self.memory.view(self.start + RANGES, (MOST_RANGES, RANGE_BYTES // 8), np.int64)

    def _view(self) -> NDArray[np.int64]:
        from ..sumtree.kernels import header  # noqa: PLC0415  # with the compiler

        shape, height = self.shape, len(self.shape.sizes) - 1
        (view,) = levels.allocate([(VIEW_WORDS, np.int64)])
        addresses = [int(part.ctypes.data) for part in self.parts]
        view[[header.CAPACITY, header.HEIGHT, header.LEAVES]] = shape.slots, height, addresses[2]
        view[header.SUMS + 1 : header.SUMS + 1 + height] = addresses[3 : 3 + height]
        view[header.PREFIX + 1 : header.PREFIX + height] = addresses[3 + height : -2]
        view[[BOUNDS, BLOCK_SHIFT, LENT_LEAVES]] = addresses[-2], shape.block_shift, addresses[-1]
        self._marks = [np.zeros(-(-size // shape.group), np.uint8) for size in shape.sizes[1:-1]]
        view[header.MARKS + 1 : header.MARKS + height] = [int(marks.ctypes.data) for marks in self._marks]
        view[[BLOCK, BANK, WORDS, ROWS]] = self.memory.address, self.memory.address + self.start, *addresses[:2]
        view[[STRIDE, FRAMES, PID, BEGAN, ACTOR]] = shape.row.itemsize, shape.layout.frames, *process(), -1
        self._scratch = np.empty(shape.lanes * shape.chunks)
        view[SCRATCH_ROW] = int(self._scratch.ctypes.data)
        plain = [name for name in shape.layout.fields if name != "frame"]
        if shape.layout.frames > 1:
            view[FRAME_BYTES] = shape.row["frame"].itemsize
        view[FIELDS] = len(plain)
        for number, name in enumerate(plain):
            dtype, offset = shape.row.fields[name][:2]  # type: ignore[index]
            view[[FIELD + 2 * number, FIELD + 2 * number + 1]] = offset, dtype.itemsize
        return view  # type: ignore[return-value]


def process(pid: int | None = None) -> tuple[int, int]:
    """(a process's number, clock ticks from the start of the system to its own), by default this one's.

    ProcessLookupError if it has ended, another OSError if that cannot be told.
    """
    number = os.getpid() if pid is None else pid
    try:
        state, *rest = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        if pid is None:
            raise OSError("a replay needs /proc, to know which of its processes still run") from None
        raise ProcessLookupError(number) from None
    if state in "ZX":  # killed, and its parent has not asked yet
        raise ProcessLookupError(number)
    return number, int(rest[18])


def is_alive(pid: int, began: int) -> bool:
    """Whether that very process still runs; its number may be another's by now."""
    try:
        return process(pid)[1] == began
    except ProcessLookupError:
        return False
    except OSError:  # such as too many open files: nothing of a process that may be alive is given up
        return True
