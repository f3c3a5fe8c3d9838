"""A prioritized replay that threads and processes share, each operation one compiled call.

It does what ``PrioritizedBuffer`` does and is tested against it. Who may do what at once is decided by its *strategy*,
a subclass in ``locking/`` with four kernels; ``block.py`` describes the memory.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least
from ..sumtree.turns import waits
from .batches import Outputs, check_beta, check_pairs, mask_of, not_finite, reals, tickets_of, uniforms_of
from .block import COUNT, LARGEST, LOADS, LOST, MOST_LENT, MOST_RANGES, WRITTEN, Bank, ClosedError
from .blocks import BlockOfBanks, ReplayHandle
from .buffer import Batch
from .values import check_count, checked, load, saved, states_of

_NOTHING: NDArray[np.float64] = np.empty(0)
_ALL = np.empty(0, np.bool_)


class Replay(BlockOfBanks):
    """Records with priorities in a block of memory; made by :func:`impls.replay.make`.

    Traits of a strategy: ``valid``, whether its answers are right when several callers share it; ``processes``, whether
    processes may share it, or threads alone; ``banked``, whether it may have more than one bank.

    Any number of threads may call one replay, and processes one that was made with ``shared=True``.
    """

    valid: ClassVar[bool] = True
    processes: ClassVar[bool] = True
    banked: ClassVar[bool] = False

    def __len__(self) -> int:
        """Number of records that may be sampled."""
        return sum(int(bank.word(COUNT)[0]) for bank in self._open())

    @property
    def written(self) -> int:
        """Number of records ever inserted, fillers and lost ones included."""
        return sum(int(bank.word(WRITTEN)[0]) for bank in self._open())

    @property
    def lost(self) -> int:
        """Number of records lost because a process died while it wrote them.

        It is too low where another was killed within the few microseconds in which it counted them; none is sampled.
        """
        return sum(int(bank.word(LOST)[0]) for bank in self._open())

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return sum(bank.total for bank in self._open())

    @property
    def largest(self) -> float:
        """The priority that the next record without an error gets, for ``max_priority="ever"``."""
        return max(float(bank.word(LARGEST, np.float64)[0]) for bank in self._open())

    def raise_largest(self, priority: float) -> None:
        """Make :attr:`largest` at least a priority, such as the largest of other replays that one sampler draws from.

        ValueError for a number below 0, infinity or NaN.
        """
        if not 0 <= priority < np.inf:
            raise ValueError(f"priority must be a finite number of at least 0, not {priority}")
        for bank in self._open():
            with self._alone(bank):
                largest = bank.word(LARGEST, np.float64)
                largest[0] = max(largest[0], min(priority, self._exponent[3]))

    @property
    def nbytes(self) -> int:
        """Bytes of the block of memory."""
        return self._shape.nbytes

    @property
    def row(self) -> np.dtype[Any]:
        """The packed record: an array ``[n]`` of this dtype is inserted without packing it again."""
        return self._shape.row

    def insert(
        self,
        records: Mapping[str, NDArray[Any]] | NDArray[Any],
        errors: ArrayLike | None = None,
        drawable: ArrayLike | None = None,
    ) -> None:
        """Store records over the oldest ones: ``[n, ...]`` of each field, or packed rows ``[n]`` of dtype :attr:`row`.

        Their priorities come from ``errors``, the |TD error| of each that is drawable, or are the largest so far.
        ``drawable [n]`` is False for fillers, and required for stacked frames: insert them as ``LocalStorage.take``
        returns them, records and ``drawable``. A discrete action is an integer in [0, choices), rewards and continuous
        actions are finite; observations and packed rows are stored unseen. Raises ValueError or TypeError, before
        anything is written, for other values, errors that are no priorities, shapes that do not match, or more records
        than the capacity.
        """
        banks = self._open()
        _rows, address, count = self._packer.packed(records)
        mask = mask_of(drawable, count, self.layout)  # a copy: it is read twice
        keep = _ALL if mask is None else mask
        sizes = _NOTHING if errors is None else reals(errors)
        self._check_insert(count, keep, None if errors is None else sizes.size)
        if count and self._put(banks[self._next_bank()], address, count, sizes, keep):
            raise not_finite(sizes)

    def _put(self, bank: Bank, address: int, count: int, sizes: NDArray[Any], keep: NDArray[Any]) -> int:
        """Insert ``count`` packed rows at an address, waiting for records still being written; the kernel's status."""
        status = self._insert(bank.address, address, count, sizes, keep, self._exponent)
        for seconds in waits() if status < 0 else ():
            # Invariant: of the rows from the address on the kernel inserted ``done``, then one entry was in its way.
            done, blocking = divmod(-1 - status, MOST_RANGES + 1)
            used = int(keep[:done].sum()) if keep.size else done
            address, count, sizes, keep = address + done * self.row.itemsize, count - done, sizes[used:], keep[done:]
            for number in range(MOST_RANGES) if blocking == MOST_RANGES else (blocking,):
                self._give_up(bank, number)
            time.sleep(seconds)
            status = self._insert(bank.address, address, count, sizes, keep, self._exponent)
            if status >= 0:
                break
        return status

    def sample(
        self,
        batch: int,
        beta: float,
        rng: np.random.Generator | None = None,
        *,
        uniforms: NDArray[np.float64] | None = None,
        out: Outputs | None = None,
        distinct: bool = False,
    ) -> Batch:
        """B = ``batch`` records sampled in proportion to their priorities, one in each of B equal intervals.

        ``uniforms [B]`` in [0, 1) replace those drawn from ``rng``, and are not spread over intervals. ``out`` takes
        the result in place of new arrays. RuntimeError when there are no records; where all are being overwritten at
        this moment it waits for the first of the new ones.

        ``distinct`` samples without replacement, over no intervals: each next record in proportion to its priority
        among those left (successive sampling). Weights are those of the same records sampled with replacement, as the
        probability that a record is in the batch has no closed form. RuntimeError when there are fewer than B records.
        """
        (bank,) = self._open()
        check_beta(beta)
        result = self._plan.outputs(batch, out)
        values = uniforms_of(batch, rng, uniforms)
        if distinct:
            self._fill_distinct(bank, values, beta, result)
        else:
            while batch and self._sample(bank.address, values, uniforms is None, beta, result.address):
                self._await_records()
        return Batch(result.rows, result.weights, result.sequence)

    def draw(self, uniforms: NDArray[np.float64]) -> NDArray[np.void]:
        """Records drawn by ``uniforms [B]`` in [0, 1), each with the probability by which it was drawn.

        Returns one NumPy record ``[]`` with fields ``[B, ...]``: ``priority`` and ``total``, the sum of all priorities
        at the moment of the draw (record i had the probability priority / total), ``sequence``, and the fields of a
        transition. It is for samplers who weigh records of several replays. RuntimeError when there are no records,
        ValueError for a replay of the strategy "banked".
        """
        banks = self._open()
        if self.banked:
            raise ValueError("a replay of one tree is drawn from by uniforms; use a strategy without banks")
        values = uniforms_of(np.size(uniforms), None, uniforms)
        drawn = np.empty((), self._plan_by_total.dtype(values.size))
        while values.size and self._sample(banks[0].address, values, False, -1.0, drawn["sequence"].ctypes.data):
            self._await_records()
        return drawn

    def draw_places(
        self, drawn: NDArray[np.int64], uniforms: NDArray[np.float64], beta: float, out: Outputs, count: int, again: int
    ) -> NDArray[np.int64]:
        """Draw records for a batch of B without copying them: the first half of :meth:`sample`, for one process.

        ``drawn [5 B]`` keeps the slots between the halves. ``again`` is 0 for a new batch, whose ``count`` is B; it is
        the number of the attempt for the ``count`` places that :meth:`gather_places` found lost, which get other
        records of the same B intervals. ``out`` gets weights and sequence numbers ``[B]``, which are also
        returned. RuntimeError without records, ValueError for arrays of another batch.
        """
        (bank,) = self._open_places(drawn, out, count)
        while count and self._units[0](bank.address, drawn, uniforms, count, again, beta, out.address):
            self._await_records()
        return out.sequence

    def _open_places(self, drawn: NDArray[np.int64], out: Outputs, count: int) -> Sequence[Bank]:
        """The banks, once it is checked that kernels find room for ``count`` places in ``drawn`` and ``out``."""
        from .sampling import DRAWN  # noqa: PLC0415  # numba

        if drawn.size != DRAWN * out.batch or not 0 <= count <= out.batch:
            raise ValueError(f"drawn must have {DRAWN} x {out.batch} words, and count at most {out.batch}, not {count}")
        return self._open()

    def gather_places(self, drawn: NDArray[np.int64], out: Outputs, count: int) -> int:
        """Copy the records of the first ``count`` places of ``drawn [5 B]``: the second half, for another process.

        Returns how many places were lost: their records were overwritten since they were drawn. Load no state between
        the halves.
        """
        (bank,) = self._open_places(drawn, out, count)
        return self._units[1](bank.address, drawn, count, out.address)

    def _fill_distinct(self, bank: Bank, uniforms: NDArray[np.float64], beta: float, result: Outputs) -> None:
        batch = uniforms.size
        if batch > MOST_LENT:
            raise ValueError(f"at most {MOST_LENT} distinct records are sampled at once, not {batch}")
        for has_bank in (self._alone, self._at_rest):  # at rest, records that are being written can be sampled, too
            with has_bank(bank):
                count = self._sample_distinct(bank.address, uniforms, beta, result.address)
            if count == batch:
                return
        raise RuntimeError(f"{batch} distinct records were asked for, and {count} can be sampled")

    def _await_records(self, banks: Sequence[Bank] | None = None, where: str = "") -> None:
        """Wait for the inserts under way in banks, by default all, until one holds a record; RuntimeError if none does.

        While several inserts, or one of everything, write over all slots, no record has a priority.
        """
        for bank in self._open() if banks is None else banks:
            with self._at_rest(bank):
                if bank.leaves.any():
                    return
        raise RuntimeError(f"there is nothing to sample{where}: no record has a priority above 0")

    def update_priorities(self, sequence: NDArray[np.int64], errors: ArrayLike) -> NDArray[np.bool_]:
        """Set the priorities of sampled records ``sequence [B]`` from their new |TD errors| ``[B]``.

        Returns ``[B]`` which of them were still there; those overwritten since stay as they are. ValueError for errors
        that are no priorities, TypeError for numbers that are no integers, with nothing written.
        """
        banks = self._open()
        tickets, sizes = tickets_of(sequence), reals(errors)
        check_pairs(tickets, sizes)
        present = np.empty(sizes.size, np.bool_)
        if sizes.size and self._update(banks[0].address, tickets, sizes, self._exponent, present):
            raise not_finite(sizes)
        return present

    def retrieve_priorities(self, sequence: NDArray[np.int64]) -> NDArray[np.float64]:
        """Priorities ``[B]`` that sampled records ``sequence [B]`` have at this moment, 0 of those overwritten since.

        TypeError for numbers that are no integers, ValueError for another shape.
        """
        banks, tickets = self._open(), tickets_of(sequence)
        priorities = np.empty(tickets.size)
        self._retrieve(banks, tickets, priorities)
        return priorities

    def _compile_operations(self) -> None:
        super()._compile_operations()
        if not self.settings.trial:
            from . import direct_calls  # noqa: PLC0415  # with the compiler

            direct_calls.open_to(self, Replay)

    def _next_bank(self) -> int:
        """The bank of the next insert."""
        return 0

    def outputs(self, batch: int) -> Outputs:
        """Arrays for ``sample(batch, ..., out=...)``, which spares making new ones each time."""
        return Outputs(self._plan, integer_at_least("batch", batch, 1))

    # Sharing

    def handle(self) -> ReplayHandle:
        """A small picklable reference, with which another process attaches. ValueError if the replay is not shared."""
        memory = self._open()[0].memory
        return ReplayHandle(_name(type(self)), self.settings, memory.handle())

    def __reduce__(self) -> Any:
        raise TypeError("a replay cannot be pickled or copied: send its handle(), and attach() to that")

    def __repr__(self) -> str:
        try:
            count = sum(int(bank.word(COUNT)[0]) for bank in self._open())
        except ClosedError as error:
            return f"<{_name(type(self))} replay of {self.capacity:,} records: {error}>"
        users = "shared with processes" if self._open()[0].memory.shared else "private to its process"
        banks = f" in {self.settings.banks} banks" if self.settings.banks > 1 else ""
        return f"<{_name(type(self))} replay: {count:,} of {self.capacity:,} records{banks}, {self.layout}, {users}>"

    # Care and state

    def check(self) -> float:
        """The largest abs(node - sum of its children) of any tree; 0.0 for exact ones."""
        largest = np.zeros(1)
        worst = 0.0
        for bank in self._open():
            with self._alone(bank):
                self._audit(bank.address, False, largest)
            worst = max(worst, float(largest[0]))
        return worst

    def recover(self) -> int:
        """Give up records that ended processes left half written, without waiting for their slots; returns ``lost``."""
        for bank in self._open():
            for number in range(MOST_RANGES):
                self._give_up(bank, number)
        return self.lost

    def state_dict(self) -> dict[str, Any]:
        """Records, leaves and counters, as copies; slots that were never written are omitted.

        Of several banks it is {"banks": a state of each}, all taken at one moment. It waits for the inserts under way,
        and those that begin meanwhile wait for it, so that it ends however many write.
        """
        banks = self._open()
        with contextlib.ExitStack() as stack:
            for bank in banks:  # in this order, as everybody who holds several: no two callers wait for each other
                stack.enter_context(self._at_rest(bank))
            states = [saved(bank) for bank in banks]
        return states[0] if len(states) == 1 else {"banks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of any replay or ``PrioritizedBuffer`` of the same layout and number of banks, no larger one.

        Others may use the replay meanwhile: each batch is of the old state or of the new one. A sequence number stands
        for the record of that number in the new one, also in updates of batches that were sampled before. ValueError
        for another state, TypeError for what is none, with nothing changed.
        """
        banks, states = self._open(), states_of(state)
        if len(states) != len(banks):
            raise ValueError(f"the state is of a replay with banks={len(states)}, and this one has banks={len(banks)}")
        least, most = map(float, self._exponent[2:4])
        new = [checked(part, self.settings.layout, self._shape.slots, least, most) for part in states]
        with contextlib.ExitStack() as stack:
            for bank in banks:
                stack.enter_context(self._at_rest(bank))
            banks[0].memory.view(8 * LOADS, (1,), np.int64)[0] += 1
            for bank, part in zip(banks, new, strict=True):
                load(bank, part, self._audit)

    # Arguments

    def _check_insert(self, count: int, keep: NDArray[np.bool_], errors: int | None) -> None:
        check_count(count, self._shape.slots, keep, errors)


def _name(kind: type[Replay]) -> str:
    """A strategy's name: that of its file."""
    return kind.__module__.rpartition(".")[2].removesuffix("_strategy")
