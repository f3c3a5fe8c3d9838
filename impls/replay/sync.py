"""What kernels need to share memory with other threads and processes: mutexes, fences, copies, and points of a trial.

Addresses are int64. Mutexes are those of the C library, robust and shared by processes: when its owner dies, the next
caller gets the mutex and the news. Blocked callers sleep in the operating system. A readers-writer lock has no robust
form there, so it is for threads alone.
"""

import ctypes
import platform
import sys
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils

from ..sumtree.lanes import array_at, instruction, load_i64, stack_words, store_i64

_I8, _I64 = ir.IntType(8), ir.IntType(64)
BUSY, TIMED_OUT, OWNER_DIED = 16, 110, 130  # EBUSY, ETIMEDOUT, EOWNERDEAD
MONOTONIC = 1  # the clock that nobody sets
_ROBUST, _SHARED = 1, 1
_WORD = 8
_TRIES, _PAUSES = 8, 4  # before a caller sleeps: about a microsecond
_SECOND = 1_000_000_000
_NAP = _SECOND // 50  # nanoseconds between looks at a mutex that others have

mutex_lock_until = types.ExternalFunction("pthread_mutex_clocklock", types.int32(types.intp, types.int32, types.intp))
read_clock = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
mutex_try = types.ExternalFunction("pthread_mutex_trylock", types.int32(types.intp))
mutex_unlock = types.ExternalFunction("pthread_mutex_unlock", types.int32(types.intp))
mutex_consistent = types.ExternalFunction("pthread_mutex_consistent", types.int32(types.intp))
read_lock = types.ExternalFunction("pthread_rwlock_rdlock", types.int32(types.intp))
write_lock = types.ExternalFunction("pthread_rwlock_wrlock", types.int32(types.intp))
read_write_unlock = types.ExternalFunction("pthread_rwlock_unlock", types.int32(types.intp))
sleep_microseconds = types.ExternalFunction("usleep", types.int32(types.uint32))

inner = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)  # kernels alone call it


def unavailable() -> str | None:
    """None if kernels and such mutexes can be had here, else one sentence saying why not."""
    if config.DISABLE_JIT:
        return "a replay's kernels are compiled, and NUMBA_DISABLE_JIT is set"
    if sys.platform != "linux":
        return f"robust mutexes need Linux, this is {sys.platform}"
    if not hasattr(ctypes.CDLL(None), "pthread_mutex_clocklock"):  # numba would end the process as it compiles
        return "a replay's mutexes need glibc 2.30 or later"
    return None


def make_mutex(address: int) -> None:
    """Initialize a robust mutex, shared by processes, in 40 zeroed bytes."""
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(64)
    library.pthread_mutexattr_init(attributes)
    library.pthread_mutexattr_setpshared(attributes, _SHARED)
    library.pthread_mutexattr_setrobust(attributes, _ROBUST)
    if library.pthread_mutex_init(ctypes.c_void_p(address), attributes):
        raise RuntimeError("the system refuses a robust mutex")


def make_read_write_lock(address: int) -> None:
    """Initialize a lock of many readers or one writer, for threads of one process, in 56 zeroed bytes."""
    if ctypes.CDLL(None).pthread_rwlock_init(ctypes.c_void_p(address), None):
        raise RuntimeError("the system refuses a readers-writer lock")


@instruction(types.none(types.int64, types.int64, types.int64))
def copy_bytes(builder: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy a given number of bytes between addresses that do not overlap."""
    target, source = (builder.inttoptr(address, _I8.as_pointer()) for address in (target, source))
    cgutils.raw_memcpy(builder, target, source, count, 1)


@instruction(types.none())
def pause(builder: Any) -> Any:
    """Let a processor that waits for another do less."""
    if platform.machine() in ("x86_64", "AMD64"):
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])


@instruction(types.none())
def fence(builder: Any) -> Any:
    """Order loads and stores before it against stores after it, and loads against loads: no instruction on x86."""
    builder.fence("acq_rel")


@instruction(types.boolean, "trial")
def is_on(builder: Any, trial: int) -> Any:
    """Whether a literal is odd, known when the kernel is compiled: what depends on it is omitted otherwise."""
    return ir.Constant(ir.IntType(1), trial & 1)


@inner
def byte_at(address: int) -> int:
    """The byte at an address."""
    return array_at(address, 1, np.uint8(0))[0]


@inner
def set_byte(address: int, value: int) -> None:
    """Write a byte to an address."""
    array_at(address, 1, np.uint8(0))[0] = value


@inner
def acquire(mutex: int) -> int:
    """Lock a mutex: try for about a microsecond, then sleep until it is free.

    A sleeper that is killed just as it is woken may take the wake-up with it, and other sleepers would not
    be woken again. This was never seen; against it, nobody sleeps for long without a look.
    """
    for _ in range(_TRIES):
        status = mutex_try(mutex)
        if status != BUSY:
            return status
        for _ in range(_PAUSES):
            pause()
    until, status = stack_words(2), TIMED_OUT
    while status == TIMED_OUT:
        read_clock(MONOTONIC, until)
        nanoseconds = load_i64(until + _WORD) + _NAP
        store_i64(until, load_i64(until) + nanoseconds // _SECOND)
        store_i64(until + _WORD, nanoseconds % _SECOND)
        status = mutex_lock_until(mutex, MONOTONIC, until)
    return status
