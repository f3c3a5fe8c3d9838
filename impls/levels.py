"""Level arithmetic of a ragged K-ary tree, in integers, and where its levels lie in memory.

Levels are counted from the leaves: level 0 holds the N leaves, the last level the root. Node n of level l + 1 is the
parent of nodes n*K .. n*K + K-1 of level l: its *sibling group* n. The last group of a level may be short.

Five leaves at K = 2, node numbers per level:

    level 3            0
    level 2        0       1
    level 1      0   1   2
    level 0     0 1 2 3 4
"""

import contextlib
import mmap
from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike, NDArray

CACHE_LINE = 64
"""Bytes of one cache line."""
HUGE_PAGE, LEAST_HUGE = 2 << 20, 1 << 18


def level_sizes(capacity: int, fanout: int) -> tuple[int, ...]:
    """Nodes per level, leaves first and root last; there is always a root above the leaves.

    >>> level_sizes(5, 2)
    (5, 3, 2, 1)
    >>> level_sizes(1, 16)
    (1, 1)
    """
    sizes = [capacity]
    while len(sizes) == 1 or sizes[-1] > 1:
        # Invariant: sizes[l] = ceil(N / K**l).
        sizes.append(-(-sizes[-1] // fanout))
    return tuple(sizes)


def full_level_sizes(capacity: int, fanout: int) -> tuple[int, ...]:
    """Nodes per level when every group is filled up: K**h leaves, the layout of [Zhang2021].

    >>> full_level_sizes(5, 2)
    (8, 4, 2, 1)
    """
    height = len(level_sizes(capacity, fanout)) - 1
    return tuple(fanout**level for level in range(height, -1, -1))


def group_size(capacity: int, fanout: int) -> int:
    """Children a sibling group needs room for: K, but where K exceeds N by far no more than the leaves there are.

    >>> group_size(1000, 16), group_size(10, 16), group_size(10, 10**9), group_size(1000, 10**9)
    (16, 16, 64, 1024)
    """
    return min(fanout, max(64, 1 << (capacity - 1).bit_length()))


def level_bytes(sizes: Sequence[int], fanout: int, dtype: DTypeLike, width: int | None = None, copies: int = 1) -> int:
    """Bytes of levels with ``sizes`` nodes, leaves of ``dtype`` first, then float64 sums, each in whole groups.

    ``width``: elements that a group occupies (default: K); ``copies`` of every inner level but the root.

    >>> level_bytes(level_sizes(5, 2), 2, "float32")
    88
    """
    leaves, *inner, root = (-(-size // fanout) * (width or fanout) for size in sizes)
    return np.dtype(dtype).itemsize * leaves + 8 * (copies * sum(inner) + root)


def check_lines(aligned: bool | None, group_bytes: int) -> None:
    """ValueError where groups laid end to end from a line's start straddle lines needlessly, if ``aligned`` insists."""
    if aligned and CACHE_LINE % group_bytes and group_bytes % CACHE_LINE:
        raise ValueError(f"aligned=True cannot be done: a group's {group_bytes} bytes neither divide 64 nor fill lines")


def line_starts(
    shapes: Sequence[tuple[int, DTypeLike]], *, aligned: bool = True, line_bytes: int = CACHE_LINE
) -> tuple[list[int], int]:
    """(first byte of each array, laid one after the other; first byte after the last line), for (length, dtype) pairs.

    Each begins on a line; with ``aligned=False`` each begins one element past one, so that groups straddle lines.

    >>> line_starts([(3, "float32"), (20, "float64"), (1, "float64")])
    ([0, 64, 256], 320)
    >>> line_starts([(3, "float32"), (20, "float64"), (1, "float64")], aligned=False)
    ([4, 72, 264], 320)
    """
    starts, end = [], 0
    for length, dtype in shapes:
        # Invariant: end is a multiple of line_bytes, and no array so far reaches beyond it.
        start = end if aligned else end + np.dtype(dtype).itemsize
        starts.append(start)
        end = -(-(start + length * np.dtype(dtype).itemsize) // line_bytes) * line_bytes
    return starts, end


def allocate(shapes: Sequence[tuple[int, DTypeLike]], *, aligned: bool = True) -> list[NDArray[np.generic]]:
    """Zeroed arrays, one for each (length, dtype), in a single buffer, where :func:`line_starts` puts them.

    >>> [array.ctypes.data % 64 for array in allocate([(3, "float32"), (5, "float64")])]
    [0, 0]
    >>> [array.ctypes.data % 64 for array in allocate([(3, "float32"), (5, "float64")], aligned=False)]
    [4, 8]
    """
    starts, end = line_starts(shapes, aligned=aligned)
    raw = _zeroed(end + CACHE_LINE)
    base = -raw.ctypes.data % CACHE_LINE
    return [
        raw[base + start : base + start + length * np.dtype(dtype).itemsize].view(dtype)
        for start, (length, dtype) in zip(starts, shapes, strict=True)
    ]


def _zeroed(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed bytes; many of them begin a huge page: without a miss of the address cache for every node in cold caches.

    NumPy asks for huge pages from 4 MiB on, and begins anywhere, so that how many there are is luck.
    """
    if nbytes >= LEAST_HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # NumPy tells what cannot be had
            mapped = mmap.mmap(-1, nbytes + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            mapped.madvise(mmap.MADV_HUGEPAGE)
            raw = np.frombuffer(mapped, np.uint8)
            return raw[-raw.ctypes.data % HUGE_PAGE :][:nbytes]
    return np.zeros(nbytes, np.uint8)
