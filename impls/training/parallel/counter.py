"""Counters that processes share: they add to one, claim from one, and wait until one has come far enough.

A counter is a cache line of shared memory: its value, then how many callers sleep until it changes. A caller first
looks for a few microseconds, then sleeps in the operating system (a futex over the lower half of the value), and looks
again after 20 ms at the latest, so that a lost wake-up delays it and stops nobody. All kernels let go of the GIL.
"""

import platform
from typing import Any

import numpy as np
from numba import njit, types

from ...replay.sync import MONOTONIC, OWNER_DIED, mutex_consistent, mutex_lock_until, mutex_unlock, pause, read_clock
from ...sumtree.compiling import kept_njit
from ...sumtree.lanes import (
    acquire_fence,
    atomic_add,
    atomic_swap_if,
    load_acquire,
    load_i64,
    release_fence,
    stack_words,
    store_i64,
    store_release,
)

LINE_WORDS = 8
"""Words of a counter."""
_SLEEPERS = 8  # byte of a counter's second word
_FUTEX = 98 if platform.machine() in ("aarch64", "arm64", "riscv64") else 202
_WAIT, _WAKE, _ALL = 0, 1, 0x7FFFFFFF
_NAP_NANOSECONDS = 20_000_000
_system_call = types.ExternalFunction(
    "syscall",
    types.int64(types.int64, types.int64, types.int64, types.int64, types.int64, types.int64, types.int64),
)


@kept_njit(nogil=True)
def value_of(counter: int) -> int:
    """The counter at an address, with all that was written before it was set."""
    return load_acquire(counter)


@njit(nogil=True)
def _wake(counter: int) -> None:
    if load_acquire(counter + _SLEEPERS) > 0:
        _system_call(_FUTEX, counter, _WAKE, _ALL, 0, 0, 0)


@kept_njit(nogil=True)
def add(counter: int, amount: int) -> int:
    """Add to the counter; returns its value before."""
    before = atomic_add(counter, amount)
    _wake(counter)
    return before


@kept_njit(nogil=True)
def claim(counter: int, amount: int, limit: int) -> int:
    """Add ``amount`` unless that would go beyond ``limit``; returns the value before, or -1 if nothing was added."""
    before = load_acquire(counter)
    while before + amount <= limit:
        if atomic_swap_if(counter, before, before + amount):
            _wake(counter)
            return before
        before = load_acquire(counter)
    return -1


@njit(nogil=True)
def _seen(counter: int, least: int, looks: int) -> bool:
    for _ in range(looks):
        if load_acquire(counter) >= least:
            return True
        pause()
    return False


@kept_njit(nogil=True)
def seen(counter: int, least: int, looks: int) -> bool:
    """Look so often whether the counter is at least ``least``, without sleep; returns whether it is."""
    return _seen(counter, least, looks)


@kept_njit(nogil=True)
def reached(counter: int, least: int, looks: int) -> bool:
    """Wait until the counter is at least ``least``: look so often, then sleep once until it changes, or for 20 ms.

    Returns whether it is; where not, the caller sees whether to continue waiting, and calls again.
    """
    if _seen(counter, least, looks):
        return True
    atomic_add(counter + _SLEEPERS, 1)  # before the look that follows, so that whoever adds after it wakes this one
    seen = load_acquire(counter)
    if seen < least:
        until = stack_words(2)
        store_i64(until, 0)
        store_i64(until + 8, _NAP_NANOSECONDS)
        _system_call(_FUTEX, counter, _WAIT, seen & 0xFFFFFFFF, until, 0, 0)
    atomic_add(counter + _SLEEPERS, -1)
    return load_acquire(counter) >= least


@kept_njit(nogil=True)
def forget(counter: int) -> None:
    """Let nobody count as asleep, while nobody waits: those who were killed in their sleep would for ever."""
    store_release(counter + _SLEEPERS, 0)


@kept_njit(nogil=True)
def publish(sequence: int, numbers: Any, source: Any) -> None:
    """Write ``source`` over shared ``numbers``; the sequence word is odd meanwhile. One process publishes."""
    odd = load_acquire(sequence) | 1  # which it is already where a publisher was killed
    store_i64(sequence, odd)
    release_fence()
    for index in range(len(source)):
        numbers[index] = source[index]
    store_release(sequence, odd + 1)


@kept_njit(nogil=True)
def fetch(sequence: int, numbers: Any, target: Any, known: int) -> int:
    """Copy shared ``numbers`` to ``target`` unless the sequence word is still ``known``; returns the word then.

    It tries until none were published meanwhile, and gives up after 1,000 tries: -1, with ``target`` of no use.
    """
    for _ in range(1000):
        before = load_acquire(sequence)
        if before == known:
            return before
        if before & 1 == 0:
            for index in range(len(target)):
                target[index] = numbers[index]
            acquire_fence()
            if load_acquire(sequence) == before:
                return before
        pause()
    return -1


def prepare() -> None:
    """Call every kernel once, so that processes that are started later find all of them in the cache."""
    words, numbers = np.zeros(2 * LINE_WORDS, np.int64), np.zeros(1, np.float32)
    counter, sequence = address_of(words), address_of(words[LINE_WORDS:])
    add(counter, claim(counter, 1, 1))
    reached(counter, value_of(counter), int(seen(counter, 0, 1)))
    forget(counter)
    publish(sequence, numbers, numbers)
    fetch(sequence, numbers, numbers, 0)


def looks_of(microseconds: float) -> int:
    """How often a waiting caller looks in about a given number of microseconds."""
    return max(1, int(microseconds * 20))  # a look and a pause take some 50 ns


def address_of(words: Any) -> int:
    """The address of an array of words."""
    return int(np.asarray(words).ctypes.data)


_SECOND = 1_000_000_000
_NAP = _SECOND // 50


@kept_njit(nogil=True)
def lock(mutex: int) -> bool:
    """Lock the robust mutex at an address within 20 ms; returns whether it is. An owner that died has given it back."""
    until = stack_words(2)
    read_clock(np.int32(MONOTONIC), until)
    nanoseconds = load_i64(until + 8) + _NAP
    store_i64(until, load_i64(until) + nanoseconds // _SECOND)
    store_i64(until + 8, nanoseconds % _SECOND)
    status = mutex_lock_until(mutex, np.int32(MONOTONIC), until)
    if status == OWNER_DIED:
        mutex_consistent(mutex)
    return status in (0, OWNER_DIED)


@kept_njit(nogil=True)
def unlock(mutex: int) -> None:
    """Unlock the mutex, which this thread has locked."""
    mutex_unlock(mutex)
