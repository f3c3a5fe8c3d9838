"""Trials: points where a test stops a kernel."""

from typing import Any

from numba import types
from numba.extending import intrinsic

from ..sumtree.lanes import load_acquire, load_i64, store_i64, store_release, word_of
from .block import ACTOR, ACTORS, ARRIVED, BLOCK, GRANTED, MODE
from .steps import step
from .sync import sleep_microseconds

_WORD = 8

# Points, each just before what it names; ``tests/oracles/atomic_steps.py`` has the same numbers.
RESERVE, ODD, ZERO, RESERVED, FIRST_HALF, SECOND_HALF, COMMIT, EVEN, RAISE, COMMITTED = range(1, 11)
SEARCH, DESCEND, SEARCHED, READ_FIRST, READ_SECOND, RECHECK, UPDATE, SET_LEAVES, SUM_UP, UPDATED = range(11, 21)
LEAF_LOCK, LEAF_UNLOCK, RETRIEVE, LOOK, READ_LEAF, RETRIEVED = range(21, 27)
FREE, SCRIPTED, RANDOM = range(3)  # what points do


@step
def stop(view: int, form: Any, number: int) -> int:
    """Do what the test wants at a point: continue, sleep at random, or wait until it grants a step."""
    block, actor = word_of(view, BLOCK), word_of(view, ACTOR)
    mode = load_acquire(block + _WORD * MODE)
    if actor < 0 or actor >= ACTORS or mode == FREE:
        return 0
    arrived, granted = block + _WORD * (ARRIVED + actor), block + _WORD * (GRANTED + actor)
    if mode == RANDOM:  # the granted word is the state of a generator of random numbers
        state = load_i64(granted) * 6364136223846793005 + 1442695040888963407
        store_i64(granted, state)
        store_release(arrived, number)
        if (state >> 33) & 3 == 0:
            sleep_microseconds((state >> 40) & 127)
        return 0
    # Invariant: the test grants an actor one step only after it has seen it arrive.
    store_release(arrived, number)
    while load_acquire(granted) == 0:
        if load_acquire(block + _WORD * MODE) == FREE:
            break
        sleep_microseconds(20)
    store_release(granted, 0)
    store_release(arrived, 0)
    return 0


@intrinsic
def point(typingctx: Any, trial: Any, view: Any, number: Any) -> Any:
    """A place where a test may stop this kernel, which is otherwise nothing, and no function for each number."""
    if not isinstance(trial, types.IntegerLiteral):
        return None
    called, emit_stop = stop._defn(typingctx, types.int64, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if trial.literal_value & 1:
            emit_stop(context, builder, called, arguments[1:])
        return context.get_dummy_value()

    return types.none(trial, types.int64, types.int64), emit
