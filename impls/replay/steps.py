"""The steps that every strategy's kernels are composed of, on one bank of a replay; see ``block.py`` for its memory.

``view`` is the address of the bank's view, and ``like, fanout, lanes, chunks, prefix`` are those of the kernels of
``impls.sumtree.numba_kernels``. ``trial`` is a literal: 0 leaves out the points where a test stops a kernel and the
faults that it switches on. ``leaf_lock`` is another: whether the leaves have a mutex of their own [Zhang2021, Alg. 3].
"""

import math
from typing import Any

import numpy as np
from numba import carray

from ..sumtree.lanes import (
    bytes_of,
    load_i64,
    load_real,
    prefetch,
    prefetch_row,
    rounded,
    stack_words,
    store_i64,
    store_real,
    unsigned_divide,
)
from ..sumtree.numba_kernels import (
    CAPACITY,
    HEIGHT,
    LEAVES,
    SUMS,
    _audit,
    _offset,
    _recompute,
    _search,
    _set_leaves,
    _sum_up,
)
from .block import (
    ACTOR,
    ACTORS,
    ARRIVED,
    BANK,
    BEGAN,
    BLOCK,
    BLOCK_SHIFT,
    BOUNDS,
    CLOSED,
    COUNT,
    DAMAGED,
    FAULT,
    FIELD,
    FIELDS,
    FRAME_BYTES,
    FRAMES,
    GRANTED,
    LARGEST,
    LEAF_MUTEX,
    LENT,
    LENT_LEAVES,
    LOST,
    MODE,
    MOST_RANGES,
    PID,
    RANGE_BYTES,
    RANGES,
    READY,
    ROWS,
    STRIDE,
    TICKET,
    TREE_MUTEX,
    WORDS,
    WRITING,
    WRITTEN,
)
from .sync import (
    BUSY,
    MONOTONIC,
    OWNER_DIED,
    TIMED_OUT,
    copy_bytes,
    fence,
    inner,
    is_on,
    load_acquire,
    mutex_consistent,
    mutex_lock_until,
    mutex_try,
    mutex_unlock,
    pause,
    pointer_to,
    read_clock,
    sleep_microseconds,
    store_release,
)

_WORD = 8
PORTION = 48  # elements that a lock is kept for, where it need not be kept for the whole batch: about a microsecond
NEIGHBORS = 256  # the same for records that lie side by side
_AHEAD = 64  # rows that a gather asks memory for ahead
_TRIES, _PAUSES = 8, 4  # before a caller sleeps: about a microsecond
_SECOND = 1_000_000_000
_NAP = _SECOND // 50  # nanoseconds between looks at a mutex that others have
_LINE = 64
PATIENCE = 8  # draws in vain, because rows were overwritten meanwhile, before the rest is read under the lock

DONE, NOT_FINITE, NOTHING = range(3)  # results of a kernel; below 0: an insert that waits, see ``blocked``

# Points, each just before what it names; ``tests/atomic_steps.py`` has the same numbers.
RESERVE, ODD, ZERO, RESERVED, FIRST_HALF, SECOND_HALF, COMMIT, EVEN, RAISE, COMMITTED = range(1, 11)
SEARCH, DESCEND, SEARCHED, READ_FIRST, READ_SECOND, RECHECK, UPDATE, SET_LEAVES, SUM_UP, UPDATED = range(11, 21)
LEAF_LOCK, LEAF_UNLOCK, POST, PUBLISH, DRAIN, TAKEN = range(21, 27)
FREE, SCRIPTED, RANDOM = range(3)  # what points do

# Faults that a test switches on; 0 is none.
(
    NO_FAULT,
    NO_ZERO,
    NO_RECHECK,
    STAYS_EVEN,
    EVEN_EARLY,
    NO_WORD_CHECK,
    NO_LOCK_IN_SEARCH,
    NO_LOCK_IN_UPDATE,
    NO_LOCK_IN_COMMIT,
    NO_REPAIR,
    NO_OVERLAP_CHECK,
    TICKET_OUTSIDE,
    NO_CUT,
    NO_SUMS,
) = range(14)
HEAD_EARLY, TAIL_EARLY, NO_JOURNAL = range(32, 35)


@inner
def _at(view: int, field: int) -> int:
    return load_i64(view + _WORD * field)


# Trials


@inner
def point(view: int, trial: int, number: int) -> None:
    """A place where a test may stop this kernel."""
    if is_on(trial):
        _stop(view, number)


@inner
def _stop(view: int, number: int) -> None:
    block, actor = _at(view, BLOCK), _at(view, ACTOR)
    mode = load_acquire(block + _WORD * MODE)
    if actor < 0 or actor >= ACTORS or mode == FREE:
        return
    arrived, granted = block + _WORD * (ARRIVED + actor), block + _WORD * (GRANTED + actor)
    if mode == RANDOM:  # the granted word is the state of a generator of random numbers
        state = load_i64(granted) * 6364136223846793005 + 1442695040888963407
        store_i64(granted, state)
        store_release(arrived, number)
        if (state >> 33) & 3 == 0:
            sleep_microseconds((state >> 40) & 127)
        return
    # Invariant: the test grants an actor one step only after it has seen it arrive.
    store_release(arrived, number)
    while load_acquire(granted) == 0:
        if load_acquire(block + _WORD * MODE) == FREE:
            break
        sleep_microseconds(20)
    store_release(granted, 0)
    store_release(arrived, 0)


@inner
def fault(view: int, trial: int, number: int) -> bool:
    """Whether a test has switched this fault on."""
    return is_on(trial) and load_i64(_at(view, BLOCK) + _WORD * FAULT) == number


# The tree's mutex


@inner
def acquire(mutex: int) -> int:
    """Lock a mutex: try for about a microsecond, then sleep until it is free.

    A sleeper that is killed just as it is woken may take the wake-up with it, and those that sleep beside it would not
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


@inner
def enter(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int) -> None:
    """Lock the bank's tree. If the last owner died with it, everything is repaired before this returns."""
    bank = _at(view, BANK)
    if acquire(bank + TREE_MUTEX) == OWNER_DIED:
        mutex_consistent(bank + TREE_MUTEX)
        store_release(bank + DAMAGED, 1)
    if load_i64(bank + DAMAGED) != 0:
        if not fault(view, trial, NO_REPAIR):
            repair(view, like, fanout, lanes, chunks, prefix)
        store_release(bank + DAMAGED, 0)


@inner
def leave(view: int) -> None:
    """Unlock the bank's tree."""
    mutex_unlock(_at(view, BANK) + TREE_MUTEX)


@inner
def repair(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int) -> None:
    """Make the bank consistent after its owner died anywhere: records that are not whole are lost, and counted."""
    bank, words, slots = _at(view, BANK), _at(view, WORDS), _at(view, CAPACITY)
    leaves, size, width = _at(view, LEAVES), bytes_of(like), lanes * chunks
    for number in range(MOST_RANGES):
        entry = bank + RANGES + RANGE_BYTES * number
        first, held = load_i64(entry), load_i64(entry + _WORD)
        if held > 0 and load_i64(bank + WRITTEN) < first + held:
            store_i64(bank + WRITTEN, first + held)
        for ticket in range(first, first + held):  # older records there would lose their last frame to a later insert
            word = words + _WORD * (ticket % slots)
            if load_i64(word) < TICKET * (ticket + 1):
                store_i64(word, TICKET * (ticket + 1) + WRITING)
    lent = _at(view, LENT_LEAVES)
    for j in range(load_i64(bank + LENT)):
        slot, priority = load_i64(lent + 2 * _WORD * j), load_real(lent + 2 * _WORD * j + _WORD, 0.0)
        store_real(leaves + size * _offset(slot, fanout, width), rounded(priority, like))
    store_i64(bank + LENT, 0)
    count, lost = 0, 0
    for slot in range(slots):
        word = load_i64(words + _WORD * slot)
        leaf = leaves + size * _offset(slot, fanout, width)
        if word & 3 == READY and load_real(leaf, like) > 0:
            count += 1
            raise_bound(view, fanout, slot, np.float64(load_real(leaf, like)))
            continue
        store_real(leaf, rounded(0.0, like))
        if word & 3 == READY:
            lost += 1
            store_i64(words + _WORD * slot, word - READY + CLOSED)
    store_i64(bank + COUNT, count)
    store_i64(bank + LOST, load_i64(bank + LOST) + lost)
    _audit(view, like, fanout, lanes, chunks, prefix, True, np.empty(lanes * chunks))


@inner
def set_priorities(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    scratch: Any,
    batch: int,
) -> None:
    """Store ``batch`` leaves, slots in ``scratch[:batch]`` and float64 priorities behind them, and renew the sums."""
    values = scratch.ctypes.data + _WORD * batch
    if is_on(leaf_lock):
        point(view, trial, LEAF_LOCK)
        if acquire(_at(view, BANK) + LEAF_MUTEX) == OWNER_DIED:
            mutex_consistent(_at(view, BANK) + LEAF_MUTEX)
    if _at(view, BOUNDS) != 0:
        for j in range(batch):
            raise_bound(view, fanout, scratch[j], np.float64(rounded(load_real(values + _WORD * j, 0.0), like)))
    point(view, trial, SET_LEAVES)
    count = _set_leaves(view, like, fanout, lanes, chunks, prefix, batch, scratch, values)
    if is_on(leaf_lock):
        point(view, trial, LEAF_UNLOCK)
        mutex_unlock(_at(view, BANK) + LEAF_MUTEX)
    point(view, trial, SUM_UP)
    if not fault(view, trial, NO_SUMS):
        _sum_up(view, like, fanout, lanes, chunks, prefix, scratch, count)


@inner
def set_range(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    slot: int,
    count: int,
    values: Any,
    priority: float,
) -> None:
    """Store ``values [count]`` as the leaves from a slot on, around the ring, and renew the sums.

    ``priority`` stands for values below 0; without values all are 0. The slots are neighbors, so that their groups need
    no marks, and no leaf costs more than its store.
    """
    slots, leaves, size, width = _at(view, CAPACITY), _at(view, LEAVES), bytes_of(like), lanes * chunks
    groups = np.empty(count // fanout + 4, np.int64)
    listed = 0
    if is_on(leaf_lock):
        point(view, trial, LEAF_LOCK)
        if acquire(_at(view, BANK) + LEAF_MUTEX) == OWNER_DIED:
            mutex_consistent(_at(view, BANK) + LEAF_MUTEX)
    point(view, trial, SET_LEAVES)
    low = 0
    while low < count:
        # Invariant: ``low`` leaves are stored, up to ``slot``; groups[:listed] are those they lie in.
        high = min(count, low + slots - slot)
        if fanout == width and _at(view, BOUNDS) == 0:
            theirs = carray(pointer_to(leaves + size * slot, like), (high - low,))
            _store_leaves(theirs, values[low:high] if values.size > 0 else values, priority, like)
        else:
            for j in range(low, high):
                value = 0.0
                if values.size > 0:
                    value = values[j] if values[j] >= 0.0 else priority
                at = slot + j - low
                raise_bound(view, fanout, at, np.float64(rounded(value, like)))
                store_real(leaves + size * _offset(at, fanout, width), rounded(value, like))
        for group in range(unsigned_divide(slot, fanout), unsigned_divide(slot + high - low - 1, fanout) + 1):
            groups[listed] = group
            listed += 1
        low, slot = high, 0
    if is_on(leaf_lock):
        point(view, trial, LEAF_UNLOCK)
        mutex_unlock(_at(view, BANK) + LEAF_MUTEX)
    point(view, trial, SUM_UP)
    if not fault(view, trial, NO_SUMS):
        _sum_up(view, like, fanout, lanes, chunks, prefix, groups, listed)


@inner
def _store_leaves(leaves: Any, values: Any, priority: float, like: Any) -> None:
    for j in range(values.size):
        leaves[j] = rounded(values[j] if values[j] >= 0.0 else priority, like)
    for j in range(values.size, leaves.size):
        leaves[j] = rounded(0.0, like)


# The largest priority


@inner
def raise_bound(view: int, fanout: int, slot: int, priority: float) -> None:
    """Make the bound of a slot's block at least a priority, before the slot gets it."""
    bounds = _at(view, BOUNDS)
    if bounds != 0:
        bound = bounds + _WORD * (unsigned_divide(slot, fanout) >> _at(view, BLOCK_SHIFT))
        if load_real(bound, 0.0) < priority:
            store_real(bound, priority)


@inner
def largest_now(view: int, like: Any, fanout: int, lanes: int, chunks: int) -> float:
    """The largest priority that a record has; 1.0 if there is none.

    Reads about 2 sqrt(N) numbers, and as many again for each block whose largest has fallen since the last call.
    """
    bounds, shift, leaves, size = _at(view, BOUNDS), _at(view, BLOCK_SHIFT), _at(view, LEAVES), bytes_of(like)
    groups = unsigned_divide(_at(view, CAPACITY) + fanout - 1, fanout)
    while True:
        # Invariant: no leaf is above the bound of its block; hence the largest bound is the answer if a leaf has it.
        block, bound = 0, 0.0
        for other in range((groups + (1 << shift) - 1) >> shift):
            theirs = load_real(bounds + _WORD * other, 0.0)
            block = other if theirs > bound else block
            bound = max(bound, theirs)
        if bound == 0.0:
            return 1.0
        first = block << shift
        largest = 0.0
        for leaf in range(first * lanes * chunks, min(first + (1 << shift), groups) * lanes * chunks):
            largest = max(largest, np.float64(load_real(leaves + size * leaf, like)))
        if largest >= bound:
            return bound
        store_real(bounds + _WORD * block, largest)


# Insert


@inner
def priorities_of(errors: Any, keep: Any, count: int, exponent: Any) -> Any:
    """What the leaves of ``count`` records will be ``[count]``: 0 for fillers, below 0 for the largest priority.

    ``errors`` has one for each record that may be sampled, or is empty; ``keep [count]`` is 0 for fillers, or empty.
    """
    leaves, values = np.empty(errors.size), np.empty(count)
    leaves_of(errors, exponent, leaves)
    used = 0
    for j in range(count):
        # Invariant: the first ``used`` errors are of the records before j.
        is_kept = keep.size == 0 or keep[j] != 0
        values[j] = (leaves[used] if errors.size > 0 else -1.0) if is_kept else 0.0
        used += is_kept and errors.size > 0
    return values


@inner
def blocked(entry: int, done: int) -> int:
    """The status of an insert that :func:`reserve` refused by ``entry``, with ``done`` rows inserted before."""
    return entry - (MOST_RANGES + 1) * done


@inner
def reserve(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    count: int,
) -> tuple[int, int]:
    """Take ``count`` tickets and make their slots' records unavailable, and those whose stacks reach into them.

    Returns (entry of the table of ranges, first ticket). The entry is below 0 if records that are still being written
    are in the way: those of entry -1 - it, or the whole table.
    """
    bank, words, slots = _at(view, BANK), _at(view, WORDS), _at(view, CAPACITY)
    first = load_i64(bank + WRITTEN)
    end = first + count
    cut = min(_at(view, FRAMES) - 1, slots - count) if end >= slots else 0
    if fault(view, trial, TICKET_OUTSIDE):
        leave(view)
        point(view, trial, RESERVE)
        enter(view, like, fanout, lanes, chunks, prefix, trial)
    entry = -1 - MOST_RANGES
    for number in range(MOST_RANGES):
        at = bank + RANGES + RANGE_BYTES * number
        if load_i64(at + _WORD) == 0:
            entry = number if entry < 0 else entry
        elif end + cut > load_i64(at) + slots and not fault(view, trial, NO_OVERLAP_CHECK):
            return -1 - number, first
    if entry < 0:
        return entry, first
    at = bank + RANGES + RANGE_BYTES * entry
    store_i64(at, first)
    store_i64(at + 2 * _WORD, _at(view, PID))
    store_i64(at + 3 * _WORD, _at(view, BEGAN))
    store_release(at + _WORD, count)
    fence()
    store_release(bank + WRITTEN, end)
    point(view, trial, ODD)
    taken, low, slot = 0, 0, first % slots
    while low < count:
        # Invariant: ``low`` words are written, up to ``slot``; ``taken`` of their records could be sampled before.
        high = min(count, low + slots - slot)
        theirs = carray(pointer_to(words + _WORD * slot, first), (high - low,))
        for j in range(theirs.size):
            taken += theirs[j] & 3 == READY
        if not fault(view, trial, STAYS_EVEN):
            _write_words(theirs, first + low, WRITING)
        low, slot = high, (slot + high - low) % slots
    for j in range(cut):
        at = words + _WORD * ((end + j) % slots)
        word = load_i64(at)
        if word & 3 == READY and not fault(view, trial, NO_CUT):
            taken += 1
            store_i64(at, word - READY + CLOSED)
    store_i64(bank + COUNT, load_i64(bank + COUNT) - taken)
    fence()
    point(view, trial, ZERO)
    if taken > 0 and not fault(view, trial, NO_ZERO):
        slot = first % slots
        set_range(view, like, fanout, lanes, chunks, prefix, trial, leaf_lock, slot, count + cut, np.empty(0), 0.0)
    return entry, first


@inner
def _write_words(words: Any, ticket: int, state: int) -> None:
    """Write the words of as many tickets, from one on."""
    for j in range(words.size):
        words[j] = TICKET * (ticket + j + 1) + state


@inner
def write_rows(view: int, trial: int, source: int, first: int, count: int) -> None:
    """Copy ``count`` packed rows from an address to the slots of the tickets from ``first`` on."""
    rows, stride, slots = _at(view, ROWS), _at(view, STRIDE), _at(view, CAPACITY)
    slot = first % slots
    if is_on(trial):
        half = stride // 16 * 8
        point(view, trial, FIRST_HALF)
        for j in range(count):
            copy_bytes(rows + stride * ((first + j) % slots), source + stride * j, half)
        point(view, trial, SECOND_HALF)
        for j in range(count):
            at = rows + stride * ((first + j) % slots) + half
            copy_bytes(at, source + stride * j + half, stride - half)
    else:
        before = min(count, slots - slot)
        copy_bytes(rows + stride * slot, source, stride * before)
        copy_bytes(rows, source + stride * before, stride * (count - before))
    fence()


@inner
def commit(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    entry: int,
    first: int,
    values: Any,
) -> None:
    """Make the records of an entry available, with the priorities ``values`` of :func:`priorities_of`."""
    bank, words, slots, count = _at(view, BANK), _at(view, WORDS), _at(view, CAPACITY), values.size
    largest = load_real(bank + LARGEST, 0.0)
    priority = largest
    if _at(view, BOUNDS) != 0 and values.min() < 0.0:
        priority = largest_now(view, like, fanout, lanes, chunks)
    point(view, trial, EVEN)
    drawable, low, slot = 0, 0, first % slots
    for j in range(count):
        drawable += values[j] != 0.0
        largest = max(largest, values[j])
    while low < count:
        # Invariant: ``low`` words are written, up to ``slot``.
        high = min(count, low + slots - slot)
        theirs = carray(pointer_to(words + _WORD * slot, first), (high - low,))
        _write_words(theirs, first + low, READY)
        for j in range(theirs.size if drawable < count else 0):
            theirs[j] += CLOSED - READY if values[low + j] == 0.0 else 0
        low, slot = high, (slot + high - low) % slots
    fence()
    store_real(bank + LARGEST, largest)
    store_i64(bank + COUNT, load_i64(bank + COUNT) + drawable)
    point(view, trial, RAISE)
    if drawable > 0:
        slot = first % slots
        set_range(view, like, fanout, lanes, chunks, prefix, trial, leaf_lock, slot, count, values, priority)
    if entry >= 0:
        fence()
        store_release(bank + RANGES + RANGE_BYTES * entry + _WORD, 0)


# Sample


@inner
def drawing(uniforms: Any, stratified: bool, like: Any, block: int) -> Any:
    """Arrays of a batch under way, of which up to ``block`` places are drawn at a time.

    ``[B]`` each: values to search for, slots, words, P(i), places yet to draw; ``[block]`` each: values, slots and
    priorities of a search.
    """
    batch = uniforms.size
    block = min(block, batch)
    values, slots, words, shares = (
        np.empty(batch),
        np.empty(batch, np.int64),
        np.empty(batch, np.int64),
        np.empty(batch),
    )
    places = np.empty(batch, np.int64)
    for j in range(batch):
        values[j] = min((j + uniforms[j]) / batch, 1.0 - 2.0**-53) if stratified else uniforms[j]
        places[j] = j
    return values, slots, words, shares, places, np.empty(block), np.empty(block, np.int64), np.full(block, like)


@inner
def search(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    drawn: Any,
    low: int,
    high: int,
) -> int:
    """Draw the slots for ``places[low:high]``, at most a block, with their words and P(i) of each; a status."""
    values, slots, words, shares, places, some, found, priorities = drawn
    point(view, trial, DESCEND)
    count = high - low
    for j in range(count):
        some[j] = values[places[low + j]]
    if (
        _search(view, like, fanout, lanes, chunks, prefix, some[:count], True, found[:count], priorities[:count])
        != DONE
    ):
        return NOTHING
    total = load_real(_at(view, SUMS + _at(view, HEIGHT)), 0.0)
    scale = 1.0 / total
    at = _at(view, WORDS)
    for j in range(count):
        prefetch(at + _WORD * found[j])
    for j in range(count):
        place = places[low + j]
        slots[place] = found[j]
        words[place] = load_acquire(at + _WORD * found[j])
        shares[place] = scale * priorities[j]
    return DONE


@inner
def search_distinct(
    view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, uniforms: Any, drawn: Any
) -> int:
    """:func:`search` for as many places as there are records for, no two the same; returns how many these are.

    Each next record is drawn among those left, in proportion to its priority. The tree is afterwards as it was.
    """
    _, slots, words, shares, _, _, _, priorities = drawn
    bank, lent, at = _at(view, BANK), _at(view, LENT_LEAVES), _at(view, WORDS)
    total = load_real(_at(view, SUMS + _at(view, HEIGHT)), 0.0)
    scale = load_i64(bank + COUNT) / total
    count, scratch = 0, np.empty(2 * uniforms.size, np.int64)
    while count < uniforms.size:
        # Invariant: the leaves of slots[:count] are 0, and listed as lent since before they were.
        one = slice(count, count + 1)
        point(view, trial, DESCEND)
        status = _search(view, like, fanout, lanes, chunks, prefix, uniforms[one], True, slots[one], priorities[one])
        if status != DONE:
            break
        words[count] = load_acquire(at + _WORD * slots[count])
        shares[count] = scale * priorities[count]
        store_i64(lent + 2 * _WORD * count, slots[count])
        store_real(lent + 2 * _WORD * count + _WORD, np.float64(priorities[count]))
        scratch[0], scratch[1] = slots[count], 0  # the bits of 0.0
        count += 1
        store_release(bank + LENT, count)
        fence()
        _recompute(view, like, fanout, lanes, chunks, prefix, 1, scratch, scratch.ctypes.data + _WORD)
    for j in range(count):
        scratch[j] = slots[j]
        store_real(scratch.ctypes.data + _WORD * (count + j), np.float64(priorities[j]))
    _recompute(view, like, fanout, lanes, chunks, prefix, count, scratch, scratch.ctypes.data + _WORD * count)
    store_release(bank + LENT, 0)
    return count


@inner
def changed(view: int, drawn: Any, count: int) -> int:
    """Keep those of the first ``count`` places whose record was taken away since it was drawn; returns how many."""
    _, slots, words, _, places, _, _, _ = drawn
    fence()
    at = _at(view, WORDS)
    kept = 0
    for j in range(count):
        # Invariant: kept <= j, so that no place is overwritten before it is read.
        place = places[j]
        places[kept] = place
        kept += load_acquire(at + _WORD * slots[place]) != words[place]
    return kept


@inner
def gather(view: int, trial: int, drawn: Any, low: int, high: int, out: int) -> None:
    """Copy the records of ``places[low:high]`` to those rows of the batch's arrays at ``out``."""
    values, slots, _, _, places, _, _, _ = drawn
    rows, stride, batch = _at(view, ROWS), _at(view, STRIDE), values.size
    point(view, trial, READ_FIRST)
    for j in range(low, min(low + _AHEAD, high)):
        _prefetch_row(rows + stride * slots[places[j]], stride)
    for j in range(low, high):
        if j + _AHEAD < high:
            _prefetch_row(rows + stride * slots[places[j + _AHEAD]], stride)
        if is_on(trial):
            _gather_halves(view, slots[places[j]], out, batch, places[j], trial)
        else:
            _gather_one(view, slots[places[j]], out, batch, places[j])


@inner
def _prefetch_row(row: int, stride: int) -> None:
    for line in range(0, min(stride, 4 * _LINE), _LINE):
        prefetch(row + line)


@inner
def _gather_halves(view: int, slot: int, out: int, batch: int, place: int, trial: int) -> None:
    """Copy a record in two parts, with a point between them: its first half from before it, the rest from after."""
    rows, stride = _at(view, ROWS), _at(view, STRIDE)
    before = np.empty(stride, np.uint8)
    copy_bytes(before.ctypes.data, rows + stride * slot, stride)
    point(view, trial, READ_SECOND)
    _gather_one(view, slot, out, batch, place)
    if _at(view, FRAMES) == 1:
        _scatter(view, before.ctypes.data, out + _head(batch), batch, place, stride // 16 * 8)


@inner
def _gather_one(view: int, slot: int, out: int, batch: int, place: int) -> None:
    """Copy a record's fields to their arrays, each of which begins on a cache line: see ``Outputs`` in replay.py."""
    rows, stride, frames = _at(view, ROWS), _at(view, STRIDE), _at(view, FRAMES)
    to = out + _head(batch)
    if frames > 1:
        size, slots = _at(view, FRAME_BYTES), _at(view, CAPACITY)
        following = to + _lines(batch * frames * size)
        for k in range(frames + 1):
            # Invariant: a record that may be sampled has its frames in the slots before, the next in that after.
            source = rows + stride * ((slot + slots + k + 1 - frames) % slots)
            if k < frames:
                copy_bytes(to + size * (place * frames + k), source, size)
            if k > 0:
                copy_bytes(following + size * (place * frames + k - 1), source, size)
        to = following + _lines(batch * frames * size)
    _scatter(view, rows + stride * slot, to, batch, place, stride)


@inner
def _scatter(view: int, row: int, to: int, batch: int, place: int, end: int) -> None:
    """Copy those bytes of a row's fields that lie before ``end`` to the fields' arrays."""
    for number in range(_at(view, FIELDS)):
        start, size = _at(view, FIELD + 2 * number), _at(view, FIELD + 2 * number + 1)
        if start < end:
            copy_bytes(to + size * place, row + start, min(size, end - start))
        to += _lines(batch * size)


@inner
def _lines(size: int) -> int:
    """Bytes of whole cache lines."""
    return (size + _LINE - 1) // _LINE * _LINE


@inner
def _head(batch: int) -> int:
    """Bytes of a batch's tickets and weights, which come before its fields."""
    return _lines(_WORD * batch) + _lines(4 * batch)


@inner
def redraw(
    drawn: Any, uniforms: Any, count: int, attempt: int, stratified: bool, parts: int = 1, part: int = 0
) -> None:
    """Fresh values for the first ``count`` places, in the same intervals, decided by the uniforms it began with.

    The intervals are those of a whole of which the bank is one of ``parts`` equal ones.
    """
    values, _, _, _, places, _, _, _ = drawn
    batch = values.size
    for j in range(count):
        place = places[j]
        state = np.uint64(uniforms[place] * 2.0**53) + np.uint64(attempt) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        fresh = np.float64((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
        if stratified:  # the part of the place's interval that lies in the bank's
            low, high = max(place * parts, part * batch), min((place + 1) * parts, (part + 1) * batch)
            fresh = min(max((low + fresh * (high - low)) / batch - part, 0.0), 1.0 - 2.0**-53)
        values[place] = fresh


@inner
def weigh(drawn: Any, beta: float, out: int) -> None:
    """Write tickets and importance weights (1 / N P(i))^beta, the largest 1, to the batch's arrays at ``out``.

    N cancels in the division by the largest.
    """
    _, _, words, shares, _, _, _, _ = drawn
    least = np.inf
    for j in range(shares.size):
        least = min(least, shares[j])
    power, weights = np.float32(beta), out + _lines(_WORD * shares.size)
    for j in range(shares.size):
        store_i64(out + _WORD * j, words[j] // TICKET - 1)
        store_real(weights + 4 * j, np.float32(least / shares[j]) ** power)


# Update


@inner
def are_finite(errors: Any, epsilon: float) -> bool:
    """Whether every |TD error| + epsilon is a number below infinity."""
    bad = 0
    for j in range(errors.size):
        bad += not abs(errors[j]) + epsilon < math.inf
    return bad == 0


@inner
def leaves_of(errors: Any, exponent: Any, leaves: Any) -> None:
    """(|TD error| + epsilon)^alpha ``[B]``.

    ``exponent``: alpha, epsilon, and the smallest and the largest priority that the tree can sample.
    """
    alpha, epsilon, smallest, largest = exponent[0], exponent[1], exponent[2], exponent[3]
    for j in range(errors.size):
        leaves[j] = min(max((abs(errors[j]) + epsilon) ** alpha, smallest), largest)


@inner
def update_by_slot(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    sequence: Any,
    leaves: Any,
    present: Any,
) -> None:
    """:func:`update` as [Zhang2021, Alg. 3] has it: whatever record is in the slot by now."""
    bank, slots, batch = _at(view, BANK), _at(view, CAPACITY), sequence.size
    scratch = np.empty(2 * batch, np.int64)
    largest = load_real(bank + LARGEST, 0.0)
    for j in range(batch):
        scratch[j] = abs(sequence[j]) % slots
        store_real(scratch.ctypes.data + _WORD * (batch + j), leaves[j])
        present[j] = True
        largest = max(largest, leaves[j])
    store_real(bank + LARGEST, largest)
    set_priorities(view, like, fanout, lanes, chunks, prefix, trial, leaf_lock, scratch, batch)


@inner
def ask_for(view: int, like: Any, fanout: int, lanes: int, chunks: int, sequence: Any) -> None:
    """Ask memory for the words and leaves of the tickets ``sequence [B]``, before the lock is taken."""
    words, slots, leaves = _at(view, WORDS), _at(view, CAPACITY), _at(view, LEAVES)
    size = bytes_of(like)
    for j in range(sequence.size):
        slot = abs(sequence[j]) % slots
        prefetch(words + _WORD * slot)
        prefetch_row(leaves + size * lanes * chunks * unsigned_divide(slot, fanout), like, lanes, chunks)


@inner
def update(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    leaf_lock: int,
    sequence: Any,
    leaves: Any,
    present: Any,
) -> None:
    """Set the leaves of the tickets ``sequence [B]`` whose records are still there, which ``present [B]`` tells."""
    bank, words, slots = _at(view, BANK), _at(view, WORDS), _at(view, CAPACITY)
    batch = sequence.size
    scratch = np.empty(2 * batch, np.int64)
    listed = 0
    largest = load_real(bank + LARGEST, 0.0)
    for j in range(batch):
        # Invariant: scratch[:listed] are the slots so far of records that are there.
        ticket = sequence[j]
        slot = abs(ticket) % slots
        word = load_i64(words + _WORD * slot)
        there = word & 3 == READY and word // TICKET - 1 == ticket  # no product, which a huge ticket would overflow
        if fault(view, trial, NO_WORD_CHECK):
            there = True
        present[j] = there
        scratch[listed] = slot
        listed += there
        largest = max(largest, leaves[j])
    store_real(bank + LARGEST, largest)
    if listed == 0:
        return
    at = listed
    for j in range(batch):
        if present[j]:
            store_real(scratch.ctypes.data + _WORD * at, leaves[j])
            at += 1
    set_priorities(view, like, fanout, lanes, chunks, prefix, trial, leaf_lock, scratch, listed)
