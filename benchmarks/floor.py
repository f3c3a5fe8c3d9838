"""What memory itself costs on this machine: the floor under every tree."""

from collections.abc import Callable
from typing import Any

import numpy as np

_LINE = 64  # bytes
_WORDS = _LINE // 8


_ORDERS = 8  # gathers in different random orders, so that no cache learns one


def memory_reads(megabytes: float, reads: int, seed: int = 0) -> dict[str, Callable[[int], object]]:
    """Calls that read ``reads`` random 64-byte lines of a buffer of that size; each takes the number of its turn.

    ``gather``: addresses known beforehand, so that misses overlap. ``chase``: each address is read from the line
    before, so that none do.
    """
    gather, chase = _kernels()
    rng = np.random.default_rng(seed)
    lines = max(2, int(megabytes * 2**20) // _LINE)
    cycle = rng.permutation(lines)
    memory = np.zeros(lines * _WORDS, np.int64)
    memory[cycle * _WORDS] = np.roll(cycle, -1) * _WORDS
    orders = rng.integers(0, lines, (_ORDERS, reads)) * _WORDS
    return {
        "gather": lambda turn: gather(memory, orders[turn % _ORDERS]),
        "chase": lambda turn: chase(memory, cycle[turn * reads % lines] * _WORDS, reads),
    }


def _kernels() -> tuple[Any, Any]:
    from numba import njit  # noqa: PLC0415  # heavy, and optional

    @njit(nogil=True)
    def gather(memory, where):
        total = 0
        for index in where:
            total += memory[index]
        return total

    @njit(nogil=True)
    def chase(memory, index, steps):
        for _ in range(steps):
            index = memory[index]
        return index

    return gather, chase
