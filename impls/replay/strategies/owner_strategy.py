"""One owner applies what producers post to rings of their own, so that an insert takes no lock.

Each thread that inserts has a ring in the block, of which it alone moves the head and the owner alone the tail: it
copies its rows behind the head and then publishes them all at once. The owner is whoever has the tree's mutex:
learners, and a producer whose ring is full. It first applies what has been posted, ring by ring and in order, with one
update of the tree for many inserts, and then does its own work.

An owner may die at any instruction. Before it applies anything it notes what: the tickets, the tail that each ring will
have, the largest priority so far. The next owner does that over again, to the same slots, unless it was all applied; so
whatever was published is applied once. What a producer had not published when it died was not inserted.
"""

import os
import threading
import weakref
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...sumtree.lanes import load_i64, load_real, store_i64, store_real
from ...sumtree.numba_kernels import CAPACITY, _kernel
from .. import steps
from ..block import (
    BANK,
    BOUNDS,
    CLOSED,
    COUNT,
    FIRST_RING,
    FRAMES,
    HEAD,
    LARGEST,
    READY,
    RING_BEGAN,
    RING_BYTES,
    RING_COUNT,
    RING_HEADER,
    RING_PID,
    RING_ROWS,
    RINGS,
    STATE,
    STRIDE,
    TAIL,
    TAKE,
    TAKEN_COUNT,
    TAKEN_FIRST,
    TAKEN_LARGEST,
    TICKET,
    WORDS,
    WRITING,
    WRITTEN,
    Bank,
    is_alive,
    process,
)
from ..replay import Kernels, Replay
from ..sync import copy_bytes, fence, inner, load_acquire, store_release

_WORD = 8
_IDLE, _APPLYING, _APPLIED = 0, 1, 2
_DRAWABLE, _SIZED, _ROWS = 1, 2, 4  # of a row: may be sampled, has its own priority; rows of the insert it begins
_MOST = 4096  # rows applied at once, unless one insert has more


@inner
def _at(view: int, field: int) -> int:
    return load_i64(view + _WORD * field)


@inner
def _ring(view: int, number: int) -> int:
    return _at(view, RINGS) + FIRST_RING + _at(view, RING_BYTES) * number


@inner
def _row_of(view: int, ring: int, place: int) -> int:
    """The address of a row of a ring."""
    return ring + RING_HEADER + 2 * _WORD * _at(view, RING_ROWS) + _at(view, STRIDE) * (place % _at(view, RING_ROWS))


@inner
def _kind_of(view: int, ring: int, place: int) -> int:
    """The address of the word that says what a row is; its priority is as many words on as the ring has rows."""
    return ring + RING_HEADER + _WORD * (place % _at(view, RING_ROWS))


# Producers


@inner
def _post(
    view: int, trial: int, ring: int, source: int, count: int, leaves: Any, keep: Any, done: int, used: int
) -> int:
    """Publish ``count`` rows that fit into the ring: rows ``done`` on of an insert, and its priorities ``used`` on.

    Returns how many priorities of the insert are used by then.
    """
    head, stride, room = load_i64(ring + HEAD), _at(view, STRIDE), _at(view, RING_ROWS)
    if steps.fault(view, trial, steps.HEAD_EARLY):
        store_release(ring + HEAD, head + count)
    steps.point(view, trial, steps.POST)
    before = min(count, room - head % room)
    copy_bytes(_row_of(view, ring, head), source + stride * done, stride * before)
    copy_bytes(_row_of(view, ring, 0), source + stride * (done + before), stride * (count - before))
    at, end = _kind_of(view, ring, head), _kind_of(view, ring, 0) + _WORD * room
    for j in range(count):
        # Invariant: ``at`` is the kind of row head + j.
        kind = _ROWS * count if j == 0 else 0
        if keep.size == 0 or keep[done + j]:
            kind += _DRAWABLE
            if leaves.size > 0:
                kind += _SIZED
                store_real(at + _WORD * room, leaves[used])
                used += 1
        store_i64(at, kind)
        at += _WORD if at + _WORD < end else _WORD - _WORD * room
    fence()
    steps.point(view, trial, steps.PUBLISH)
    store_release(ring + HEAD, head + count)
    return used


@_kernel()
def insert(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    number: int,
    source: int,
    count: int,
    errors: Any,
    keep: Any,
    exponent: Any,
) -> int:
    """Post rows to the caller's ring, in parts where they are more than it takes; while it is full, be the owner."""
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    leaves = np.empty(errors.size)
    steps.leaves_of(errors, exponent, leaves)
    ring, room = _ring(view, number), _at(view, RING_ROWS)
    done, used = 0, 0
    while done < count:
        part = min(room, count - done)
        if load_i64(ring + HEAD) + part - load_acquire(ring + TAIL) > room:
            steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
            drain(view, like, fanout, lanes, chunks, prefix, trial)
            steps.leave(view)
        used = _post(view, trial, ring, source, part, leaves, keep, done, used)
        done += part
    return steps.DONE


# The owner


@inner
def resume(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int) -> None:
    """Apply what an owner was applying when it died."""
    state = load_i64(_at(view, RINGS) + STATE)
    if state == _APPLYING:
        _apply(view, like, fanout, lanes, chunks, prefix, trial)
    if state != _IDLE:
        _settle(view)


@inner
def drain(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int) -> None:
    """Apply what was posted before this call, and first of all what an owner was applying when it died."""
    bank, rings = _at(view, BANK), _at(view, RINGS)
    resume(view, like, fanout, lanes, chunks, prefix, trial)
    heads, waiting = np.empty(_at(view, RING_COUNT), np.int64), 0
    for number in range(heads.size):
        heads[number] = load_acquire(_ring(view, number) + HEAD)
        waiting += heads[number] - load_i64(_ring(view, number) + TAIL)
    while waiting > 0:
        # Invariant: nothing is being applied, and ``waiting`` rows are between the tails and ``heads``.
        steps.point(view, trial, steps.DRAIN)
        waiting -= _choose(view, heads)
        store_i64(rings + TAKEN_FIRST, load_i64(bank + WRITTEN))
        store_real(rings + TAKEN_LARGEST, load_real(bank + LARGEST, 0.0))
        if not steps.fault(view, trial, steps.NO_JOURNAL):
            store_release(rings + STATE, _APPLYING)
        _apply(view, like, fanout, lanes, chunks, prefix, trial)
        steps.point(view, trial, steps.TAKEN)
        store_release(rings + STATE, _APPLIED)
        steps.point(view, trial, steps.COMMITTED)
        _settle(view)


@inner
def _choose(view: int, heads: Any) -> int:
    """Note the tails that the rings will have once whole inserts, up to ``heads``, are applied; returns their rows."""
    # Records whose stacks reach into the newest are never among these, unless one insert fills the replay. Where the
    # largest current priority matters, which each insert may change, it is one insert at a time.
    count, most = 0, min(_MOST, _at(view, CAPACITY) - _at(view, FRAMES) + 1) if _at(view, BOUNDS) == 0 else 0
    for number in range(heads.size):
        ring = _ring(view, number)
        take = load_i64(ring + TAIL)
        while take < heads[number]:
            rows = load_i64(_kind_of(view, ring, take)) // _ROWS
            rows = min(max(rows, 1), heads[number] - take)
            if count > 0 and count + rows > most:
                break
            count += rows
            take += rows
        store_i64(ring + TAKE, take)
    store_i64(_at(view, RINGS) + TAKEN_COUNT, count)
    return count


@inner
def _settle(view: int) -> None:
    """Give the rows that were applied back to their producers."""
    for number in range(_at(view, RING_COUNT)):
        ring = _ring(view, number)
        store_release(ring + TAIL, load_i64(ring + TAKE))
    store_release(_at(view, RINGS) + STATE, _IDLE)


@inner
def _apply(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int) -> None:
    """Move the rows that were chosen into the bank; done over again, it comes to the same.

    A record's word is odd from before its slot is written until its priority is set, so that a repair in between leaves
    its priority 0.
    """
    bank, first = _at(view, BANK), load_i64(_at(view, RINGS) + TAKEN_FIRST)
    count, slots = load_i64(_at(view, RINGS) + TAKEN_COUNT), _at(view, CAPACITY)
    tails = np.empty(_at(view, RING_COUNT), np.int64)
    for number in range(tails.size):
        tails[number] = load_i64(_ring(view, number) + TAIL)
    if steps.fault(view, trial, steps.TAIL_EARLY):
        for number in range(tails.size):
            store_release(_ring(view, number) + TAIL, load_i64(_ring(view, number) + TAKE))
    store_release(bank + WRITTEN, first + count)
    cut = min(_at(view, FRAMES) - 1, slots - count) if first + count >= slots else 0
    scratch = np.empty(2 * (count + cut), np.int64)
    steps.point(view, trial, steps.ODD)
    listed, removed = _close(view, first, count, cut, scratch)
    _copy(view, trial, tails, first)
    current = 0.0
    if _at(view, BOUNDS) != 0:
        gone = np.zeros(2 * listed, np.int64)  # slots, and the bits of 0.0
        gone[:listed] = scratch[:listed]
        steps.set_priorities(view, like, fanout, lanes, chunks, prefix, trial, 0, gone, listed)
        current = steps.largest_now(view, like, fanout, lanes, chunks)
    drawable = _rank(view, tails, scratch, listed, current)
    steps.set_priorities(view, like, fanout, lanes, chunks, prefix, trial, 0, scratch, listed)
    steps.point(view, trial, steps.EVEN)
    store_i64(bank + COUNT, load_i64(bank + COUNT) + drawable - removed)
    _reopen(view, tails, first)


@inner
def _close(view: int, first: int, count: int, cut: int, scratch: Any) -> tuple[int, int]:
    """Close the slots of the tickets from ``first`` on, and the ``cut`` records after them, whose stacks reach there.

    Puts the slots whose priority changes into ``scratch``, the new records' first; returns (slots, records closed).
    """
    words, slots = _at(view, WORDS), _at(view, CAPACITY)
    listed, removed, slot = count, 0, first % slots
    for j in range(count + cut):
        # Invariant: slot = (first + j) % slots.
        word = load_i64(words + _WORD * slot)
        removed += word & 3 == READY
        if j < count:
            store_i64(words + _WORD * slot, TICKET * (first + j + 1) + WRITING)
            scratch[j] = slot
        elif word & 3 == READY:
            store_i64(words + _WORD * slot, word - READY + CLOSED)
            scratch[listed] = slot
            listed += 1
        slot = slot + 1 if slot + 1 < slots else 0
    fence()
    return listed, removed


@inner
def _copy(view: int, trial: int, tails: Any, first: int) -> None:
    """Copy the rows from each ring's tail to where it will be to the slots of the tickets from ``first`` on."""
    room = _at(view, RING_ROWS)
    for number in range(tails.size):
        ring, tail = _ring(view, number), tails[number]
        count = load_i64(ring + TAKE) - tail
        before = min(count, room - tail % room)
        if count > 0:
            steps.write_rows(view, trial, _row_of(view, ring, tail), first, before)
        if count > before:
            steps.write_rows(view, trial, _row_of(view, ring, 0), first + before, count - before)
        first += count


@inner
def _rank(view: int, tails: Any, scratch: Any, listed: int, current: float) -> int:
    """Put the priorities of the ``listed`` slots behind them; returns how many of the new records may be sampled.

    ``current`` is the priority of rows without an own one, or 0 for the largest ever.
    """
    bank, room = _at(view, BANK), _at(view, RING_ROWS)
    largest = load_real(_at(view, RINGS) + TAKEN_LARGEST, 0.0)
    values = scratch.ctypes.data + _WORD * listed
    scratch[listed : 2 * listed] = 0  # the bits of 0.0
    drawable = 0
    for number in range(tails.size):
        ring = _ring(view, number)
        at, end = _kind_of(view, ring, tails[number]), _kind_of(view, ring, 0) + _WORD * room
        for _ in range(tails[number], load_i64(ring + TAKE)):
            # Invariant: ``largest`` is what it would be for this row, were each insert applied alone.
            kind = load_i64(at)
            if kind & _SIZED:
                largest = max(largest, load_real(at + _WORD * room, 0.0))
            if kind & _DRAWABLE:
                usual = current if current > 0.0 else largest
                store_real(values, load_real(at + _WORD * room, 0.0) if kind & _SIZED else usual)
                drawable += 1
            values += _WORD
            at += _WORD if at + _WORD < end else _WORD - _WORD * room
    store_real(bank + LARGEST, largest)
    return drawable


@inner
def _reopen(view: int, tails: Any, first: int) -> None:
    """Let the records of the tickets from ``first`` on be sampled, but for fillers."""
    words, slots, room = _at(view, WORDS), _at(view, CAPACITY), _at(view, RING_ROWS)
    slot = first % slots
    for number in range(tails.size):
        ring = _ring(view, number)
        at, end = _kind_of(view, ring, tails[number]), _kind_of(view, ring, 0) + _WORD * room
        for _ in range(tails[number], load_i64(ring + TAKE)):
            # Invariant: slot = first % slots, and ``at`` is the kind of the row of the ticket ``first``.
            state = READY if load_i64(at) & _DRAWABLE else CLOSED
            store_release(words + _WORD * slot, TICKET * (first + 1) + state)
            first += 1
            slot = slot + 1 if slot + 1 < slots else 0
            at += _WORD if at + _WORD < end else _WORD - _WORD * room


@_kernel()
def hold(view: int, like: Any, fanout: int, lanes: int, chunks: int, prefix: int, trial: int, edition: int) -> int:
    """Become the owner, with everything applied that was posted."""
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    drain(view, like, fanout, lanes, chunks, prefix, trial)
    return steps.DONE


@_kernel()
def sample(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    uniforms: Any,
    stratified: bool,
    beta: float,
    out: int,
) -> int:
    drawn = steps.drawing(uniforms, stratified, like, steps.PORTION)
    count, attempt = uniforms.size, 0
    while count > 0:
        # Invariant: every place but the first ``count`` listed has a whole record, that of its word.
        for low in range(0, count, steps.PORTION):
            high = min(low + steps.PORTION, count)
            steps.point(view, trial, steps.SEARCH)
            steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
            if low == 0 and attempt == 0:
                drain(view, like, fanout, lanes, chunks, prefix, trial)
            else:
                resume(view, like, fanout, lanes, chunks, prefix, trial)
            status = steps.search(view, like, fanout, lanes, chunks, prefix, trial, drawn, low, high)
            is_patient = attempt < steps.PATIENCE or status != steps.DONE
            steps.point(view, trial, steps.SEARCHED)
            if is_patient:
                steps.leave(view)
            if status != steps.DONE:
                return status
            steps.gather(view, trial, drawn, low, high, out)
            if not is_patient:
                steps.leave(view)
        steps.point(view, trial, steps.RECHECK)
        is_checked = attempt < steps.PATIENCE and not steps.fault(view, trial, steps.NO_RECHECK)
        count = steps.changed(view, drawn, count) if is_checked else 0
        attempt += 1
        steps.redraw(drawn, uniforms, count, attempt, stratified)
    steps.weigh(drawn, beta, out)
    return steps.DONE


@_kernel()
def update(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    sequence: Any,
    errors: Any,
    exponent: Any,
    present: Any,
) -> int:
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    leaves = np.empty(errors.size)
    for low in range(0, sequence.size, steps.PORTION):
        part = slice(low, min(low + steps.PORTION, sequence.size))
        steps.leaves_of(errors[part], exponent, leaves[part])
        steps.point(view, trial, steps.UPDATE)
        steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
        if low == 0:
            drain(view, like, fanout, lanes, chunks, prefix, trial)
        else:
            resume(view, like, fanout, lanes, chunks, prefix, trial)
        steps.update(view, like, fanout, lanes, chunks, prefix, trial, 0, sequence[part], leaves[part], present[part])
        steps.point(view, trial, steps.UPDATED)
        steps.leave(view)
    return steps.DONE


class _Claim:
    """A thread's ring: given back with the thread, or with the replay it was claimed for."""

    def __init__(self, number: int, claim: NDArray[np.int64]) -> None:
        self.number, self.is_posting = number, False
        self._pid, self._left = os.getpid(), [claim]  # whoever takes it off the list gives the ring back

    def give_back(self) -> None:
        """Let another thread have the ring; what was posted to it stays there."""
        if self._left and os.getpid() == self._pid:
            try:
                self._left.pop()[0] = 0
            except IndexError:
                return

    __del__ = give_back


class OwnerReplay(Replay):
    """Inserts cost their callers a copy and no lock; learners pay, once for many of them.

    ``len`` and ``written``, too, first apply what was posted.
    """

    rings: ClassVar = 16
    _insert_numbers: ClassVar = 3
    kernels: ClassVar = Kernels(insert, sample, update, hold)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._mine = threading.local()
        self._claims: list[weakref.ref[_Claim]] = []
        super().__init__(*arguments, **options)

    @property
    def posted(self) -> int:
        """Number of records that were inserted and not applied yet."""
        bank, *_ = self._open()
        tails = self._ring_words(bank, TAIL).copy()  # first, so that none is beyond its head
        return int((self._ring_words(bank, HEAD) - tails).sum())

    def __len__(self) -> int:
        self._apply_posted()
        return super().__len__()

    @property
    def written(self) -> int:
        """Number of records ever inserted, fillers and lost ones included."""
        self._apply_posted()
        return super().written

    def recover(self) -> int:
        """Apply what was posted and free the rings of ended processes; returns ``lost``."""
        (bank,) = self._open()
        with self._alone(bank):
            for number in range(self.settings.rings):
                self._is_free(bank, number)
        return super().recover()

    def _shut(self, why: str) -> None:
        super()._shut(why)
        for claim in [reference() for reference in self._claims]:
            if claim is not None and not claim.is_posting:
                claim.give_back()

    def _put(self, bank: Bank, address: int, count: int, sizes: NDArray[Any], keep: NDArray[Any]) -> int:
        rows = self.settings.ring_rows
        if count > rows and self.layout.frames > 1:
            raise ValueError(
                f"{count} records of stacked frames at once, a ring takes {rows}: insert fewer or make the replay with "
                f"ring_rows={count}"
            )
        claim = getattr(self._mine, "claim", None) or self._claim(bank)
        claim.is_posting = True
        try:
            # Invariant: whoever closes the replay sees that this thread posts, or this thread sees that it is closed.
            self._open()
            return self._insert(bank.address, claim.number, address, count, sizes, keep, self._exponent)
        finally:
            claim.is_posting = False
            if not self._banks:
                claim.give_back()

    def _claim(self, bank: Bank) -> _Claim:
        """Take a ring that no thread has, or that of a process that has ended, for this thread."""
        with self._alone(bank):
            for number in range(self.settings.rings):
                if self._is_free(bank, number):
                    claim = self._mine.claim = _Claim(number, self._claim_words(bank, number))
                    self._claims = [*(known for known in self._claims if known()), weakref.ref(claim)]
                    pid, self._claim_words(bank, number)[1] = process()
                    self._claim_words(bank, number)[0] = pid
                    return claim
        raise RuntimeError(
            f"all {self.settings.rings} rings are taken, one by each thread that inserts: make the replay with "
            f"rings={self.settings.rings + 1} or more"
        )

    def _is_free(self, bank: Bank, number: int) -> bool:
        """Whether no living process has the ring; that of an ended one is free from here on."""
        pid, began = map(int, words := self._claim_words(bank, number))
        if pid and not is_alive(pid, began):
            words[0] = pid = 0
        return pid == 0

    def _apply_posted(self) -> None:
        for bank in self._open():
            if self.posted:
                with self._alone(bank):
                    pass  # whoever has the bank alone has applied what was posted

    def _claim_words(self, bank: Bank, number: int) -> NDArray[np.int64]:
        """The words ``[2]`` that say which process has a ring: its number, 0 for none, and when it began."""
        start = self._shape.rings_start + FIRST_RING + number * self._shape.ring_bytes
        assert RING_BEGAN == RING_PID + _WORD
        return bank.memory.view(start + RING_PID, (2,), np.int64)

    def _ring_words(self, bank: Bank, at: int) -> NDArray[np.int64]:
        """A word of each ring ``[rings]``."""
        start = self._shape.rings_start + FIRST_RING
        every = bank.memory.view(start, (self.settings.rings, self._shape.ring_bytes // _WORD), np.int64)
        words: NDArray[np.int64] = every[:, at // _WORD]
        return words
