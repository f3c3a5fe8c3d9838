"""A prioritized replay that threads and processes share, each operation one compiled call.

It does what ``PrioritizedBuffer`` does and is tested against it. Who may do what at once is decided by its *strategy*,
a subclass in ``locking/`` with three kernels; ``block.py`` describes the memory.
"""

import contextlib
import ctypes
import functools
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import integer_at_least
from ..sumtree.turns import waits
from ..terminal import said_after
from .batches import Outputs, Packer, Plan, check_beta, check_pairs, mask_of, not_finite, reals, tickets_of, uniforms_of
from .block import (
    BOUNDS,
    CLOSED,
    COUNT,
    DAMAGED,
    LARGEST,
    LEAF_MUTEX,
    LOST,
    MOST_LENT,
    MOST_RANGES,
    READ_WRITE,
    READY,
    SIGNATURE,
    TICKET,
    TREE_MUTEX,
    WRITTEN,
    Bank,
    Shape,
    is_alive,
    process,
)
from .buffer import Batch
from .compiled import Kernels, entry, install_steps
from .layout import Layout
from .memory import ClosedError, Handle, Memory, allocate
from .state import State, checked, states_of
from .values import check_count, without_drawable

_NOTHING: NDArray[np.float64] = np.empty(0)
_ALL = np.empty(0, np.bool_)
LOADS = 1  # word of the block's header: states ever loaded
COMPILING = "Compiling the replay's kernels once; later starts take them from the cache (up to a minute)"
_LONG_SECONDS = 3.0
_PATIENCE = 100  # looks at a bank in which records are being written, before no others may begin
_NO_TICKET = 1 << 60  # beyond all, so that no insert meets it


@dataclass(frozen=True)
class Settings:
    """What a replay was made with."""

    layout: Layout
    capacity: int
    alpha: float
    epsilon: float
    fanout: int = 16
    dtype: str = "float32"
    banks: int = 1
    max_priority: str = "ever"
    trial: bool = False
    rings: int = 0
    ring_rows: int = 0


@dataclass(frozen=True)
class ReplayHandle:
    """A small picklable reference to a shared replay: give it to :func:`impls.replay.attach` in any process."""

    strategy: str
    settings: Settings
    memory: Handle


class Replay:
    """Records with priorities in a block of memory; made by :func:`impls.replay.make`.

    Traits of a strategy: ``valid``, whether its answers are right when several callers share it; ``processes``, whether
    processes may share it, or threads alone; ``banked``, whether it may have more than one bank; ``rings``, how many
    threads may insert by default where each needs a ring, else 0.

    Any number of threads may call one replay, and processes one that was made with ``shared=True``.
    """

    valid: ClassVar[bool] = True
    processes: ClassVar[bool] = True
    banked: ClassVar[bool] = False
    rings: ClassVar[int] = 0
    _insert_numbers: ClassVar[int] = 2  # that the kernel takes: address of the rows, how many
    kernels: ClassVar[Kernels]

    def __init__(self, settings: Settings, memory: Memory | None = None, *, shared: bool = False) -> None:
        self.settings = settings
        self.layout, self.capacity = settings.layout, settings.capacity
        slots = settings.capacity // settings.banks
        self._shape = Shape(
            settings.layout,
            slots,
            settings.banks,
            settings.fanout,
            settings.dtype,
            settings.rings,
            settings.ring_rows,
        )
        is_new = memory is None
        memory = allocate(self._shape.nbytes, shared) if memory is None else memory
        self._memory: Memory | None = memory
        self._why_closed = ""
        signature = memory.view(8 * SIGNATURE, (1,), np.int64)
        if not is_new and signature[0] != self._shape.signature:
            raise ValueError("the memory is a replay of another layout, capacity, fanout or dtype than the handle's")
        self._banks = [Bank(self._shape, memory, number) for number in range(settings.banks)]
        for bank in self._banks if settings.max_priority == "ever" else ():
            bank.view[BOUNDS] = 0
        if is_new:
            self._begin()
            signature[0] = self._shape.signature
        limits = np.finfo(settings.dtype)
        most = min(float(limits.max), float(np.finfo(np.float64).max) / 2 / self.capacity)
        self._exponent = np.array([settings.alpha, settings.epsilon, float(limits.smallest_subnormal), most])
        self._packer, self._plan = Packer(self._shape.row, settings.layout), Plan(settings.layout)
        with said_after(_LONG_SECONDS, COMPILING):
            self._compile()
        _all.add(self)

    def _begin(self) -> None:
        """Initialize the mutexes and counters of a fresh block."""
        from . import sync  # noqa: PLC0415  # with the compiler

        for bank in self._banks:
            address = bank.memory.address + bank.start
            sync.make_mutex(address + TREE_MUTEX)
            sync.make_mutex(address + LEAF_MUTEX)
            sync.make_read_write_lock(address + READ_WRITE)
            bank.word(LARGEST, np.float64)[0] = 1.0

    # Kernels

    def _compile(self) -> None:
        from numba import types  # noqa: PLC0415  # with the compiler

        from . import maintenance  # noqa: PLC0415  # with the compiler

        reals, number = types.float64[::1], types.int64
        self._install_steps()
        self._compile_operations()
        self._sample: Callable[..., int] = self._of_one_state(self._sample)
        self._hold = self._entry(self.kernels.hold or maintenance.hold)
        self._let_go = self._entry(self.kernels.let_go or maintenance.let_go)
        self._audit = self._entry(maintenance.audit, types.boolean, reals)
        self._reclaim = self._entry(maintenance.reclaim, number, number, number)

    @functools.cached_property
    def _sample_distinct(self) -> Callable[..., int]:
        from numba import types  # noqa: PLC0415  # with the compiler

        from . import maintenance  # noqa: PLC0415  # with the compiler

        self._install_steps("search_distinct")
        return self._entry(maintenance.sample_distinct, types.float64[::1], types.float64, types.int64)

    def _compile_operations(self) -> None:
        from numba import types  # noqa: PLC0415  # with the compiler

        reals, bools, number = types.float64[::1], types.boolean[::1], types.int64
        self._insert = self._entry(self.kernels.insert, *[number] * self._insert_numbers, reals, bools, reals)
        self._sample = self._entry(self.kernels.sample, reals, types.boolean, types.float64, number)
        self._update = self._entry(self.kernels.update, types.int64[::1], reals, reals, bools)

    def _of_one_state(self, sample: Callable[..., int]) -> Callable[..., int]:
        """The kernel, run again if a state was loaded meanwhile: in it the words that a sampler checks may come again.

        A load counts itself before it writes, with every lock taken, so that whoever reads the new count waits for it.
        """
        memory = self._banks[0].memory
        loads = ctypes.c_int64.from_address(memory.address + 8 * LOADS)  # whoever samples keeps the memory mapped

        def run(*arguments: Any) -> int:
            while True:
                before = loads.value
                status = sample(*arguments)
                if loads.value == before:
                    return status

        return run

    def _entry(self, kernel: Any, *arguments: Any) -> Callable[..., int]:
        return entry(kernel, self.settings.trial, *arguments)

    def _install_steps(self, *lazy: str) -> None:
        for bank in self._banks:
            install_steps(bank, self._shape, self.settings.trial, *lazy)

    # What a caller uses

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
        if drawable is None and count and self.layout.frames > 1:
            raise ValueError(without_drawable(self.layout))
        keep = _ALL if drawable is None else mask_of(drawable, count)  # a copy: it is read twice
        sizes = _NOTHING if errors is None else reals(errors)
        if getattr(errors, "dtype", None) == np.bool_:
            raise ValueError("errors are bool: which records may be sampled is given as drawable=...")
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
        the result in place of new arrays. RuntimeError when there are no records.

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
        elif batch and self._sample(bank.address, values, uniforms is None, beta, result.address):
            raise RuntimeError("there is nothing to sample: no record has a priority above 0")
        return Batch(result.rows, result.weights, result.sequence)

    def _fill_distinct(self, bank: Bank, uniforms: NDArray[np.float64], beta: float, result: Outputs) -> None:
        batch = uniforms.size
        if batch > MOST_LENT:
            raise ValueError(f"at most {MOST_LENT} distinct records are sampled at once, not {batch}")
        with self._alone(bank):
            count = self._sample_distinct(bank.address, uniforms, beta, result.address)
        if count < batch:
            raise RuntimeError(f"{batch} distinct records were asked for, and {count} can be sampled")

    def update_priorities(self, sequence: NDArray[np.int64], errors: ArrayLike) -> NDArray[np.bool_]:
        """Set the priorities of sampled records ``sequence [B]`` from their new |TD errors| ``[B]``.

        Returns ``[B]`` which of them were still there; those overwritten since are left alone. ValueError for errors
        that are no priorities, TypeError for numbers that are no integers, with nothing written.
        """
        banks = self._open()
        tickets, sizes = tickets_of(sequence), reals(errors)
        check_pairs(tickets, sizes)
        present = np.empty(sizes.size, np.bool_)
        if sizes.size and self._update(banks[0].address, tickets, sizes, self._exponent, present):
            raise not_finite(sizes)
        return present

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

    def close(self) -> None:
        """Let go of the memory, which is freed with its last user; calls under way in other threads end first."""
        self._shut("this replay is closed")

    def _shut(self, why: str) -> None:
        self._why_closed, self._memory, self._banks = why, None, []

    def _open(self) -> list[Bank]:
        """The banks, which keep the memory mapped for as long as the caller has them. ClosedError without any."""
        banks = self._banks
        if not banks:
            raise ClosedError(self._why_closed)
        return banks

    def __repr__(self) -> str:
        try:
            count = sum(int(bank.word(COUNT)[0]) for bank in self._open())
        except ClosedError as error:
            return f"<{_name(type(self))} replay of {self.capacity:,} records: {error}>"
        users = "shared with processes" if self._open()[0].memory.shared else "private to its process"
        banks = f" in {self.settings.banks} banks" if self.settings.banks > 1 else ""
        return f"<{_name(type(self))} replay: {count:,} of {self.capacity:,} records{banks}, {self.layout}, {users}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Care

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

    @contextlib.contextmanager
    def _alone(self, bank: Bank) -> Iterator[None]:
        """Sole use of a bank's tree."""
        try:
            self._hold(bank.address)  # in here, for Ctrl-C raises once it has the lock; who has none unlocks nothing
            yield
        finally:
            self._let_go(bank.address)

    @contextlib.contextmanager
    def _at_rest(self, bank: Bank) -> Iterator[None]:
        """Sole use of a bank in which no record is being written; inserts that begin meanwhile wait."""
        ranges, mine = bank.ranges(), np.zeros(MOST_RANGES, np.bool_)
        try:
            for looks, seconds in enumerate(waits()):
                with self._alone(bank):
                    if not (ranges[:, 1] > 0).any():
                        yield
                        return
                    if looks >= _PATIENCE:  # others always write: take the table's free entries, so that none begins
                        self._take_free(ranges, mine)
                for number in np.flatnonzero(~mine):
                    self._give_up(bank, int(number))
                time.sleep(seconds)
        finally:
            ranges[mine, 1] = 0

    def _take_free(self, ranges: NDArray[np.int64], mine: NDArray[np.bool_]) -> None:
        """Mark the free entries of the table of ranges as taken, by a count that stands for no record."""
        free = ranges[:, 1] == 0
        ranges[free, 0], ranges[free, 2:] = _NO_TICKET, process()
        ranges[free, 1] = -1
        mine |= free

    def _give_up(self, bank: Bank, number: int) -> None:
        """Free an entry of the table of ranges if its process has ended."""
        _, count, pid, began = map(int, bank.ranges()[number])
        if count and not is_alive(pid, began):
            with self._alone(bank):
                self._reclaim(bank.address, number, pid, began)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Records, leaves and counters, as copies; slots that were never written are left out.

        Of several banks it is {"banks": a state of each}, all taken at one moment. It waits for the inserts under way,
        and those that begin meanwhile wait for it, so that it ends however many write.
        """
        banks = self._open()
        with contextlib.ExitStack() as stack:
            for bank in banks:  # in this order, as everybody who holds several: no two callers wait for each other
                stack.enter_context(self._at_rest(bank))
            states = [self._state_of(bank) for bank in banks]
        return states[0] if len(states) == 1 else {"banks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of any replay or ``PrioritizedBuffer`` of the same capacity, layout and number of banks.

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
                self._load(bank, part)

    def _state_of(self, bank: Bank) -> dict[str, Any]:
        written = int(bank.word(WRITTEN)[0])
        filled = min(written, self._shape.slots)
        rows = bank.rows[:filled]
        return {
            "arrays": {name: rows[name].copy() for name in self._shape.row.names or ()},
            "leaves": bank.leaves[:filled],
            "drawable": (bank.words[:filled] & 3) == READY,
            "written": written,
            "largest": float(bank.word(LARGEST, np.float64)[0]),
        }

    def _load(self, bank: Bank, new: State) -> None:
        slots, settings = self._shape.slots, self.settings
        filled, newest = len(new.leaves), new.written - 1
        bank.word(DAMAGED)[0] = 1  # until the end: whoever comes after a kill or an exception repairs it
        bank.words[:] = 0
        for name, array in new.arrays.items():
            bank.rows[name][:filled] = array
        tickets = newest - (newest - np.arange(filled)) % slots
        bank.words[:filled] = TICKET * (tickets + 1) + np.where(new.drawable, READY, CLOSED)
        bank.words[filled:] = 0
        width = self._shape.lanes * self._shape.chunks
        leaves = np.zeros(-(-slots // self._shape.group) * self._shape.group, settings.dtype)
        leaves[:filled] = new.leaves
        bank.parts[2].reshape(-1, width)[:, : self._shape.group] = leaves.reshape(-1, self._shape.group)
        bank.word(WRITTEN)[0] = new.written
        bank.word(LARGEST, np.float64)[0] = new.largest
        self._audit(bank.address, True, np.zeros(1))  # sums and the count of records
        bank.word(DAMAGED)[0] = 0

    # Arguments

    def _check_insert(self, count: int, keep: NDArray[np.bool_], errors: int | None) -> None:
        check_count(count, self._shape.slots, keep, errors)


_all: weakref.WeakSet[Replay] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for replay in list(_all):
        replay._shut(
            "a fork cannot share a replay: start the process by 'spawn' or 'forkserver' and attach to its handle"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _name(kind: type[Replay]) -> str:
    """A strategy's name: that of its file."""
    return kind.__module__.rpartition(".")[2].removesuffix("_strategy")
