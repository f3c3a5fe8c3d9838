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

from ...sumtree.kernels.header import kernel
from ...sumtree.lanes import load_i64, word_of
from ..block import FIRST_RING, HEAD, RING_CLAIM, RING_ROWS, TAIL, Bank, is_alive, process
from ..compiled import Kernels
from ..replay import Replay
from ..rings import drain, post, ring_at
from ..sampling import DRAWN, begin, changed, gather, redraw, search, weigh
from ..steps import DONE, NOT_FINITE, PATIENCE, PORTION
from ..sync import load_acquire
from ..tree_lock import enter, leave
from ..trials import RECHECK, SEARCH, SEARCHED, UPDATE, UPDATED, point
from ..updating import are_finite, leaves_of, update

_WORD = 8


@kernel()
def insert(trial: int, view: int, number: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    """Post rows to the caller's ring, in parts, each an insert, if it takes fewer; where it is full, be the owner."""
    if not are_finite(view, errors, errors.size, exponent):
        return NOT_FINITE
    leaves = np.empty(errors.size)
    leaves_of(view, errors, 0, errors.size, exponent, leaves)
    ring, room = ring_at(view, number), word_of(view, RING_ROWS)
    done, used = 0, 0
    while done < count:
        part = min(room, count - done)
        if load_i64(ring + HEAD) + part - load_acquire(ring + TAIL) > room:
            enter(view)
            drain(view, 1)
            leave(view)
        used = post(trial, view, ring, source, part, leaves, keep, done, used)
        done += part
    return DONE


@kernel()
def hold(trial: int, view: int) -> int:
    """Become the owner, with everything applied that was posted."""
    enter(view)
    drain(view, 1)
    return DONE


@kernel()
def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
    batch = uniforms.size
    drawn = np.empty(DRAWN * batch, np.int64)
    begin(view, drawn, batch, uniforms, stratified)
    count, attempt = batch, 0
    while count > 0:
        # Invariant: every place but the first ``count`` listed has a whole record, that of its word.
        for low in range(0, count, PORTION):
            high = min(low + PORTION, count)
            point(trial, view, SEARCH)
            enter(view)
            drain(view, low == 0 and attempt == 0)
            status = search(view, drawn, batch, low, high)
            is_patient = attempt < PATIENCE or status != DONE
            point(trial, view, SEARCHED)
            if is_patient:
                leave(view)
            if status != DONE:
                return status
            gather(view, drawn, batch, low, high, out)
            if not is_patient:
                leave(view)
        point(trial, view, RECHECK)
        count = changed(view, drawn, batch, count) if attempt < PATIENCE else 0
        attempt += 1
        redraw(view, drawn, batch, uniforms, count, attempt, stratified, 1, 0)
    weigh(view, drawn, batch, beta, out)
    return DONE


@kernel()
def update_priorities(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> int:
    batch = errors.size
    if not are_finite(view, errors, batch, exponent):
        return NOT_FINITE
    leaves, scratch = np.empty(batch), np.empty(2 * PORTION, np.int64)
    for low in range(0, batch, PORTION):
        high = min(low + PORTION, batch)
        leaves_of(view, errors, low, high, exponent, leaves)
        point(trial, view, UPDATE)
        enter(view)
        drain(view, low == 0)
        update(view, 0, sequence, leaves, present, low, high, scratch)
        point(trial, view, UPDATED)
        leave(view)
    return DONE


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
    kernels: ClassVar = Kernels(insert, sample, update_priorities, hold)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._mine = threading.local()
        self._claims: list[weakref.ref[_Claim]] = []
        super().__init__(*arguments, **options)

    def _compile_operations(self) -> None:
        self._install_steps("drain")
        super()._compile_operations()

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
                    words = self._claim_words(bank, number)
                    claim = _Claim(number, words)
                    words[1], words[0] = process()[::-1]  # the process last: it makes the ring taken
                    self._claims = [*(known for known in self._claims if known()), weakref.ref(claim)]
                    self._mine.claim = claim
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
        return bank.memory.view(start + RING_CLAIM, (2,), np.int64)

    def _ring_words(self, bank: Bank, at: int) -> NDArray[np.int64]:
        """A word of each ring ``[rings]``."""
        start = self._shape.rings_start + FIRST_RING
        every = bank.memory.view(start, (self.settings.rings, self._shape.ring_bytes // _WORD), np.int64)
        words: NDArray[np.int64] = every[:, at // _WORD]
        return words
