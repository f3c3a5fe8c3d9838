"""Many samplers or one writer at a time: a readers-writer lock around every operation.

The C library has no such lock that survives the death of its owner, hence it is for threads alone.
"""

from typing import ClassVar

from numba import types

from ...sumtree.kernels.header import kernel
from ...sumtree.lanes import load_i64, store_i64, word_of
from ..block import BANK, READ_WRITE
from ..replay import Replay
from ..steps import DONE
from .global_strategy import READERS_WRITER, kernels_of, leave_lock, write_alone

_HOLDER = READ_WRITE + 56  # bytes of the lock itself
_this_thread = types.ExternalFunction("pthread_self", types.int64())


@kernel()
def hold(trial: int, view: int) -> int:
    """Lock out readers and writers, and note who does."""
    write_alone(view)
    store_i64(word_of(view, BANK) + _HOLDER, _this_thread())
    return DONE


@kernel()
def let_go(trial: int, view: int) -> int:
    """Let readers and writers in again, if it is this thread that keeps them out."""
    holder = word_of(view, BANK) + _HOLDER
    if load_i64(holder) == _this_thread():
        store_i64(holder, 0)
        leave_lock(view)
    return DONE


class RwlockReplay(Replay):
    """Samples run side by side; inserts and updates run alone."""

    processes = False
    kernels: ClassVar = kernels_of(*READERS_WRITER, hold=hold, let_go=let_go)
