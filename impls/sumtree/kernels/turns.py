"""Turns of kernels on a tree: its lock word, and its sequence word for those that read without a turn."""

from ..lanes import (
    acquire_fence,
    atomic_add,
    atomic_and,
    atomic_or,
    atomic_swap_if,
    load_acquire,
    load_i64,
    release_fence,
    store_release,
)
from .header import CLOSED, HELD, LOCK, SEQUENCE, WORD, WRITES, inner, kernel


@inner
def begin_reading(tree: int, head: bool) -> bool:
    word = tree + WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    # Invariant: the count has every reader that is inside, and beside them only some that have yet to see they must go.
    if atomic_add(word, 1) < (WRITES if head else CLOSED):
        if head:
            atomic_and(word, ~CLOSED)
        return True
    atomic_add(word, -1)
    return False


@inner
def end_reading(tree: int) -> None:
    atomic_add(tree + WORD * LOCK, -1)


@inner
def begin_writing(tree: int, head: bool) -> bool:
    word = tree + WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    return atomic_swap_if(word, CLOSED if head else 0, WRITES)


@inner
def end_writing(tree: int) -> None:
    # Subtracted, because a reader may have counted itself and not yet seen that it must leave.
    atomic_add(tree + WORD * LOCK, -WRITES)


@inner
def begin_change(tree: int) -> None:
    """Make the sequence odd, before anything is written by the kernel whose turn it is."""
    word = tree + WORD * SEQUENCE
    store_release(word, load_i64(word) | 1)  # it is odd already where an update never ended, in a forked child
    release_fence()


@inner
def end_change(tree: int) -> None:
    """Make the sequence even, after everything that was written."""
    word = tree + WORD * SEQUENCE
    store_release(word, load_i64(word) + 1)


_WITHOUT_TURN = 2  # attempts to read
HAS_TURN, KEPT_OUT = -1, -2


@inner
def begin_attempt(tree: int, head: bool, attempt: int) -> int:
    """The sequence to read beside, if it is even; else HAS_TURN, or KEPT_OUT where that could not be had."""
    if attempt <= _WITHOUT_TURN:
        sequence = load_acquire(tree + WORD * SEQUENCE)
        if sequence & 1 == 0:
            return sequence
    return HAS_TURN if begin_reading(tree, head) else KEPT_OUT


@inner
def end_attempt(tree: int, sequence: int) -> bool:
    """Whether all that was read since :func:`begin_attempt`, which returned ``sequence``, is one state of the tree."""
    if sequence == HAS_TURN:
        end_reading(tree)
        return True
    acquire_fence()
    return load_i64(tree + WORD * SEQUENCE) == sequence


OPEN, HOLD, LET_GO = range(3)


@kernel()
def turn(tree: int, action: int) -> bool:
    """Change the lock. OPEN: the head of the line has left it. HOLD: keep calls out, and hold the tree if none is
    inside. LET_GO: end that hold. Returns whether HOLD succeeded.
    """
    word = tree + WORD * LOCK
    if action == HOLD:
        atomic_or(word, CLOSED)
        return atomic_swap_if(word, CLOSED, WRITES | HELD)
    if action == OPEN:
        atomic_and(word, ~CLOSED)
    elif load_i64(word) & HELD:
        atomic_and(word, ~(WRITES | HELD))
    return False
