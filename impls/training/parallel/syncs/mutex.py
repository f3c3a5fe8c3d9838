"""Robust mutexes as learners use them: locked for a while at most, so that a waiting process can look around."""

import numpy as np

from ....replay.sync import (
    MONOTONIC,
    OWNER_DIED,
    mutex_consistent,
    mutex_lock_until,
    mutex_unlock,
    read_clock,
)
from ....sumtree.compiling import kept_njit
from ....sumtree.lanes import load_i64, stack_words, store_i64

_SECOND = 1_000_000_000
_NAP = _SECOND // 50


@kept_njit(nogil=True)
def lock(mutex: int) -> bool:
    """Lock the mutex at an address within 20 ms; returns whether it is. An owner that died has given it back."""
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
