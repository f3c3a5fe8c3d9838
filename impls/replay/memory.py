"""One block of zeroed memory, a process's own or one that other processes map by a small handle.

Shared memory is a memfd: it has no name that could be left behind or removed by a stranger, and its bytes are freed
with its last user. A child gets the descriptor with the handle; others open it through a process that has it.
Arrays over the block keep it mapped, so that closing it never pulls memory away from under a call.
"""

import contextlib
import errno
import mmap
import os
import weakref
from dataclasses import dataclass
from multiprocessing import context, reduction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cores import free_bytes

_MARGIN = 0.97  # of the memory that is free, which one block may take


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


def check_free(nbytes: int) -> None:
    """MemoryError for more bytes than the machine has free."""
    free = free_bytes()
    if nbytes > _MARGIN * free:
        raise MemoryError(f"{nbytes / 1e9:,.1f} GB are needed and {free / 1e9:,.1f} GB are free: lower the capacity")


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
                if error.errno not in (
                    errno.ENOENT,
                    errno.EACCES,
                    errno.EPERM,
                    errno.ENXIO,
                ):  # gone, or a socket by now
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
