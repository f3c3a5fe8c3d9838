"""What a replay stands on: its block of memory and its banks, the kernels compiled for them, and their upkeep."""

import contextlib
import ctypes
import functools
import os
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..sumtree.compiling import compiler
from ..sumtree.turns import waits
from . import block
from .batches import Packer, Plan
from .block import Bank, ClosedError, Handle, Memory, Shape, allocate, is_alive, process
from .layout import Layout

LAZY = ("search_distinct", "read_priorities")  # steps that few calls need


@dataclass(frozen=True)
class Kernels:
    """The compiled operations of a strategy, and its own way to have a bank alone, if it has one."""

    insert: Any
    sample: Any
    update: Any
    retrieve: Any
    hold: Any = None
    let_go: Any = None


def entry(kernel: Any, trial: bool, *arguments: Any) -> Callable[..., int]:
    """The compiled entry of a kernel, which takes a view's address and then its own arguments, of these types."""
    from numba import types  # noqa: PLC0415  # with the compiler

    signature = (types.literal(int(trial)), types.int64, *arguments)
    compiler.run(kernel.compile, signature)
    return functools.partial(kernel.overloads[signature].entry_point, int(trial))


def install_steps(bank: Bank, shape: Shape, trial: bool, *lazy: str) -> None:
    """Compile the steps for a shape, if no process has yet, and let a bank's view have their addresses.

    ``lazy`` are those wanted of :data:`LAZY`, by default none and all others.
    """
    from numba import types  # noqa: PLC0415  # with the compiler

    from ..sumtree.kernels.header import Form  # noqa: PLC0415
    from . import sampling, steps, updating  # noqa: F401, PLC0415  # with the compiler; they define the steps

    leaf = types.float32 if np.dtype(shape.dtype).itemsize == 4 else types.float64
    numbers = {"fanout": shape.group, "lanes": shape.lanes, "chunks": shape.chunks, "prefix": 1}
    form = Form(leaf, **numbers, trial=int(trial))
    usual = tuple(name for name in steps.NAMES if name not in LAZY and (trial or name != "stop"))
    steps.install(bank.view, form, lazy or usual)


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


@dataclass(frozen=True)
class ReplayHandle:
    """A small picklable reference to a shared replay: give it to :func:`impls.replay.attach` in any process."""

    strategy: str
    settings: Settings
    memory: Handle


class BlockOfBanks:
    """A block of memory made or attached to, with a view of each bank, compiled kernels, and locks to hold a bank."""

    __slots__ = ("__dict__", "__weakref__", "_direct")  # the last one is that of direct_calls

    kernels: ClassVar[Kernels]

    def __init__(self, settings: Settings, memory: Memory | None = None, *, shared: bool = False) -> None:
        self.settings = settings
        self.layout, self.capacity = settings.layout, settings.capacity
        slots = settings.capacity // settings.banks
        self._shape = Shape(settings.layout, slots, settings.banks, settings.fanout, settings.dtype)
        is_new = memory is None
        memory = allocate(self._shape.nbytes, shared) if memory is None else memory
        self._memory: Memory | None = memory
        self._why_closed = ""
        signature = memory.view(8 * block.SIGNATURE, (1,), np.int64)
        if not is_new and signature[0] != self._shape.signature:
            raise ValueError("the memory is a replay of another layout, capacity, fanout or dtype than the handle's")
        self._banks = [Bank(self._shape, memory, number) for number in range(settings.banks)]
        for bank in self._banks if settings.max_priority == "ever" else ():
            bank.view[block.BOUNDS] = 0
        if is_new:
            self._begin()
            signature[0] = self._shape.signature
        limits = np.finfo(settings.dtype)
        most = min(float(limits.max), float(np.finfo(np.float64).max) / 2 / self.capacity)
        self._exponent = np.array([settings.alpha, settings.epsilon, float(limits.tiny), most])
        self._packer, self._plan = Packer(self._shape.row, settings.layout), Plan(settings.layout)
        self._plan_by_total = Plan(settings.layout, by_total=True)
        self._compile()
        _all.add(self)

    def _begin(self) -> None:
        """Initialize the mutexes and counters of a fresh block."""
        from . import sync  # noqa: PLC0415  # with the compiler

        for bank in self._banks:
            address = bank.memory.address + bank.start
            sync.make_mutex(address + block.TREE_MUTEX)
            sync.make_mutex(address + block.LEAF_MUTEX)
            sync.make_read_write_lock(address + block.READ_WRITE)
            bank.word(block.LARGEST, np.float64)[0] = 1.0

    # Kernels

    def _compile(self) -> None:
        from numba import types  # noqa: PLC0415  # with the compiler

        from . import tree_lock  # noqa: PLC0415  # with the compiler

        reals, number = types.float64[::1], types.int64
        self._install_steps()
        self._compile_operations()
        self._sample: Callable[..., int] = self._of_one_state(self._sample)
        self._hold = self._entry(self.kernels.hold or tree_lock.hold)
        self._let_go = self._entry(self.kernels.let_go or tree_lock.let_go)
        self._audit = self._entry(tree_lock.audit_bank, types.boolean, reals)
        self._reclaim = self._entry(tree_lock.reclaim, number, number, number)

    @functools.cached_property
    def _sample_distinct(self) -> Callable[..., int]:
        from numba import types  # noqa: PLC0415  # with the compiler

        from . import tree_lock  # noqa: PLC0415  # with the compiler

        self._install_steps("search_distinct")
        return self._entry(tree_lock.sample_distinct, types.float64[::1], types.float64, types.int64)

    @functools.cached_property
    def _units(self) -> tuple[Callable[..., int], Callable[..., int]]:
        from numba import types  # noqa: PLC0415  # with the compiler

        from . import tree_lock  # noqa: PLC0415  # with the compiler

        words, number = types.int64[::1], types.int64
        draw = self._entry(tree_lock.draw, words, types.float64[::1], number, number, types.float64, number)
        return draw, self._entry(tree_lock.gather, words, number, number)

    @functools.cached_property
    def _retrieve(self) -> Callable[..., int]:
        from numba import types  # noqa: PLC0415  # with the compiler

        self._install_steps("read_priorities")
        kernel = self._entry(self.kernels.retrieve, types.int64[::1], types.float64[::1])

        def run(banks: list[Bank], sequence: NDArray[np.int64], priorities: NDArray[np.float64]) -> int:
            for number, bank in enumerate(banks):
                mine: Any = slice(None) if len(banks) == 1 else sequence % len(banks) == number
                tickets = sequence[mine] // len(banks)
                theirs = np.empty(tickets.size)
                kernel(bank.address, tickets, theirs)
                priorities[mine] = theirs
            return 0

        return self._of_one_state(run)

    def _compile_operations(self) -> None:
        from numba import types  # noqa: PLC0415  # with the compiler

        reals, bools, number = types.float64[::1], types.boolean[::1], types.int64
        self._insert = self._entry(self.kernels.insert, number, number, reals, bools, reals)
        self._sample = self._entry(self.kernels.sample, reals, types.boolean, types.float64, number)
        self._update = self._entry(self.kernels.update, types.int64[::1], reals, reals, bools)

    def _of_one_state(self, read: Callable[..., int]) -> Callable[..., int]:
        """The kernel, run again if a state was loaded meanwhile: in it the words that a reader checks may come again.

        A load counts itself before it writes, with every lock taken, so that whoever reads the new count waits for it.
        """
        memory = self._banks[0].memory
        loads = ctypes.c_int64.from_address(memory.address + 8 * block.LOADS)  # whoever reads keeps the memory mapped

        def run(*arguments: Any) -> int:
            while True:
                before = loads.value
                status = read(*arguments)
                if loads.value == before:
                    return status

        return run

    def _entry(self, kernel: Any, *arguments: Any) -> Callable[..., int]:
        return entry(kernel, self.settings.trial, *arguments)

    def _install_steps(self, *lazy: str) -> None:
        for bank in self._banks:
            install_steps(bank, self._shape, self.settings.trial, *lazy)

    # The end

    def close(self) -> None:
        """Let go of the memory, which is freed with its last user; calls under way in other threads end first."""
        self._shut("this replay is closed")

    def _shut(self, why: str) -> None:
        self._why_closed, self._memory, self._banks, self._direct = why, None, [], None

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

    # Sole use of a bank

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
        ranges, mine = bank.ranges(), np.zeros(block.MOST_RANGES, np.bool_)
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


_all: weakref.WeakSet[BlockOfBanks] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for replay in list(_all):
        replay._shut(
            "a fork cannot share a replay: start the process by 'spawn' or 'forkserver' and attach to its handle"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
