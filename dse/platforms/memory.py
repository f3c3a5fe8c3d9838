"""Make kernels that read, gather, chase and copy, for whoever times what memory itself costs on this machine.

Compiled by numba where there is one. NumPy alone can gather and copy, at the price of a call each time, but it can
neither chase nor fuse a triad: those are missing without numba.
"""

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

LINE = 64  # bytes
_WORDS = LINE // 8
_ORDERS = 8  # gathers in different random orders, so that no cache learns one
_SCALE = 1.5

Call = Callable[[int, int], object]


class Work(NamedTuple):
    """``call(turn, times)`` does its work ``times`` times, each time on ``amount`` reads or bytes."""

    call: Call
    amount: int


def compiled() -> bool:
    """Tell whether numba is there."""
    return importlib.util.find_spec("numba") is not None


def memory_reads(nbytes: int, reads: int, seed: int = 0) -> dict[str, Work]:
    """Make random reads of 64-byte lines of a buffer of ``nbytes``, ``reads`` a time.

    ``gather``: addresses known beforehand, so that misses overlap. ``chase``: each address is read from the line
    before, so that none do.
    """
    rng = np.random.default_rng(seed)
    lines = max(2, nbytes // LINE)
    cycle = rng.permutation(lines)
    memory = _aligned(lines * _WORDS, np.int64)
    memory[cycle * _WORDS] = np.roll(cycle, -1) * _WORDS
    orders = rng.integers(0, lines, (_ORDERS, reads)) * _WORDS
    if not compiled():
        return {"gather": Work(_each(lambda turn: memory.take(orders[turn % _ORDERS])), reads)}
    kernels = _kernels()
    return {
        "gather": Work(lambda turn, times: kernels["gather"](memory, orders, turn, times), reads),
        "chase": Work(
            lambda turn, times: kernels["chase"](memory, cycle[turn * reads % lines] * _WORDS, reads * times), reads
        ),
    }


def memory_streams(nbytes: int) -> dict[str, Work]:
    """Make ``copy`` (a = b) and ``triad`` (a = b + s c) of float64 arrays that take ``nbytes`` together."""
    length = max(_WORDS, nbytes // 16)
    target, source = (_aligned(length, np.float64) for _ in range(2))
    if not compiled():
        return {"copy": Work(_each(lambda turn: np.copyto(target, source)), 16 * length)}
    kernels = _kernels()
    third = max(_WORDS, nbytes // 24)
    first, second, other = (_aligned(third, np.float64) for _ in range(3))
    return {
        "copy": Work(lambda turn, times: kernels["copy"](target, source, times), 16 * length),
        "triad": Work(lambda turn, times: kernels["triad"](first, second, other, _SCALE, times), 24 * third),
    }


def _each(once: Callable[[int], object]) -> Call:
    def call(turn: int, times: int) -> None:
        for current in range(turn, turn + times):
            once(current)

    return call


def _aligned(length: int, dtype: type) -> Any:
    """Make zeros that begin a cache line, every page in memory: what is not aligned is copied at half speed."""
    raw = np.zeros(8 * length + LINE, np.uint8)
    raw.fill(0)
    begin = -raw.ctypes.data % LINE
    return raw[begin : begin + 8 * length].view(dtype)


@cache
def _kernels() -> dict[str, Any]:
    from numba import njit  # noqa: PLC0415  # heavy, and optional

    def gather(memory: Any, orders: Any, turn: int, times: int) -> Any:
        total = 0
        for current in range(turn, turn + times):
            for index in orders[current % len(orders)]:
                total += memory[index]
        return total

    def chase(memory: Any, index: int, steps: int) -> Any:
        for _ in range(steps):
            index = memory[index]
        return index

    def copy(target: Any, source: Any, times: int) -> None:
        for _ in range(times):
            for i in range(len(target)):
                target[i] = source[i]

    def triad(target: Any, first: Any, second: Any, scale: float, times: int) -> None:
        for _ in range(times):
            for i in range(len(target)):
                target[i] = first[i] + scale * second[i]

    return {kernel.__name__: njit(nogil=True)(kernel) for kernel in (gather, chase, copy, triad)}
