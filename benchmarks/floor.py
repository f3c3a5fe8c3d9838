"""What memory itself costs on this machine: the floor under every tree."""

import time
from typing import Any

import numpy as np

_LINE = 64


def memory_floor(megabytes: float, reads: int = 1 << 18, repeats: int = 7, seed: int = 0) -> dict[str, float]:
    """Best-of-``repeats`` nanoseconds of one random 64-byte read from a buffer of the given size.

    ``gather``: addresses known beforehand, so that misses overlap. ``chase``: each address is read from the last line.
    """
    gather, chase = _kernels()
    rng = np.random.default_rng(seed)
    lines = max(2, int(megabytes * 2**20) // _LINE)
    words = _LINE // 8
    cycle = rng.permutation(lines)
    memory = np.zeros(lines * words, np.int64)
    memory[cycle * words] = np.roll(cycle, -1) * words
    where = rng.integers(0, lines, reads) * words
    result = {}
    for name, work in (("gather", lambda: gather(memory, where)), ("chase", lambda: chase(memory, reads // 4))):
        count = reads if name == "gather" else reads // 4
        work()
        result[name] = min(_seconds(work) for _ in range(repeats)) / count * 1e9
    return result


def _seconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _kernels() -> tuple[Any, Any]:
    from numba import njit  # noqa: PLC0415  # heavy, and optional

    @njit(nogil=True)
    def gather(memory, where):
        total = 0
        for index in where:
            total += memory[index]
        return total

    @njit(nogil=True)
    def chase(memory, steps):
        index = 0
        for _ in range(steps):
            index = memory[index]
        return index

    return gather, chase
