"""A prioritized replay that threads and processes share, each operation one compiled call.

It does what ``PrioritizedBuffer`` does and is tested against it. Who may do what at once is decided by its *strategy*,
a subclass in ``locking/`` with three kernels; ``block.py`` describes the memory.
"""

import contextlib
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
from .batches import Outputs, Packer, Plan, check_beta, not_finite, reals, uniforms_of
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
)
from .buffer import Batch
from .compiled import Kernels, entry, install_steps
from .layout import Layout
from .memory import ClosedError, Handle, Memory, allocate
from .state import State, checked

_NOTHING: NDArray[np.float64] = np.empty(0)
_ALL = np.empty(0, np.bool_)


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
        self._packer, self._plan = Packer(self._shape.row), Plan(settings.layout)
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
        """Number of records lost because a process died while it wrote them."""
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
        ``drawable [n]`` is False for fillers: insert stacked frames as ``LocalStorage.take`` returns them, records and
        ``drawable``. Values are converted as NumPy assigns them, unchecked: an action of 300 becomes 44. Raises
        ValueError, before anything is written, for errors that are no priorities, shapes that do not match, or more
        records than the capacity.
        """
        banks = self._open()
        _rows, address, count = self._packer.packed(records)
        keep = _ALL if drawable is None else np.array(drawable, np.bool_, ndmin=1)  # a copy: it is read twice
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
        that are no priorities, with nothing written.
        """
        banks = self._open()
        tickets, sizes = np.ascontiguousarray(sequence, np.int64), reals(errors)
        if tickets.shape != sizes.shape:
            raise ValueError(f"sequence is {list(tickets.shape)} and errors are {list(sizes.shape)}: one each")
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
        """Sole use of a bank in which no record is being written."""
        for seconds in waits():
            with self._alone(bank):
                if not (bank.ranges()[:, 1] > 0).any():
                    yield
                    return
            for number in range(MOST_RANGES):
                self._give_up(bank, number)
            time.sleep(seconds)

    def _give_up(self, bank: Bank, number: int) -> None:
        """Free an entry of the table of ranges if its process has ended."""
        _, count, pid, began = map(int, bank.ranges()[number])
        if count and not is_alive(pid, began):
            with self._alone(bank):
                self._reclaim(bank.address, number, pid, began)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Records, leaves and counters, as copies; slots that were never written are left out.

        Of several banks it is {"banks": a state of each}, all taken at one moment.
        """
        banks = self._open()
        with contextlib.ExitStack() as stack:
            for bank in banks:  # in this order, as everybody who holds several: no two callers wait for each other
                stack.enter_context(self._at_rest(bank))
            states = [self._state_of(bank) for bank in banks]
        return states[0] if len(states) == 1 else {"banks": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the state of any replay or ``PrioritizedBuffer`` of the same capacity, layout and number of banks.

        ValueError for another, with nothing changed.
        """
        banks, states = self._open(), state.get("banks", [state])
        if len(states) != len(banks):
            raise ValueError(f"the state is of a replay with banks={len(states)}, and this one has banks={len(banks)}")
        least, most = map(float, self._exponent[2:4])
        new = [checked(part, self.settings.layout, self._shape.slots, least, most) for part in states]
        with contextlib.ExitStack() as stack:
            for bank in banks:
                stack.enter_context(self._at_rest(bank))
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
        if count > self._shape.slots:
            raise ValueError(f"{count} records at once, the capacity is {self._shape.slots}")
        if keep.size not in (0, count):
            raise ValueError(f"drawable must be [{count}], not {list(keep.shape)}")
        wanted = int(keep.sum()) if keep.size else count
        if errors is not None and errors != wanted:
            raise ValueError(f"errors must be [{wanted}], one for each drawable record, not [{errors}]")


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
