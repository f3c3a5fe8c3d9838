"""Comparing every sum with its children, and summing the tree anew."""

from typing import Any

import numpy as np

from ..arguments import Reals
from ..lanes import bytes_of, load_real, scan_group, store_prefixes, store_real, unsigned_divide, word_of
from .header import (
    BUSY,
    CAPACITY,
    DONE,
    HAS_MINIMA,
    HAS_PREFIXES,
    HEIGHT,
    LEAVES,
    PREFIX,
    SUMS,
    WORD,
    begin_change,
    begin_reading,
    begin_writing,
    end_change,
    end_reading,
    end_writing,
    inner,
    kernel,
    offset_of,
)
from .lending import return_lent
from .updating import renew_minimum


@inner
def largest_error(tree: int, form: Any, repair: bool, fresh_row: Reals) -> float:
    """Largest difference between a stored sum and its children's, or between minima, from the leaves up.

    ``repair`` stores the right ones.
    """
    width, size = form.width, bytes_of(form.like)
    nodes = word_of(tree, CAPACITY)
    fresh = fresh_row.ctypes.data
    largest = 0.0
    for level in range(word_of(tree, HEIGHT)):
        groups = unsigned_divide(nodes + form.fanout - 1, form.fanout)
        for group in range(groups):
            total = 0.0
            if level == 0:
                row = word_of(tree, LEAVES) + size * width * group
                for chunk in range(form.chunks):
                    _, _, total = scan_group(row + size * form.lanes * chunk, total, 0.0, form.like, form.lanes)
            else:
                row = word_of(tree, SUMS + level) + WORD * width * group
                for chunk in range(form.chunks):
                    first = WORD * form.lanes * chunk
                    total = store_prefixes(row + first, fresh + first, total, -1, 0.0, form.lanes)
                if form.prefix & HAS_PREFIXES:
                    fresh_row[0] = total
                    stored_row = word_of(tree, PREFIX + level) + WORD * width * group
                    for lane in range(width):
                        largest = max(largest, abs(load_real(stored_row + WORD * lane, 0.0) - fresh_row[lane]))
                        if repair:
                            store_real(stored_row + WORD * lane, fresh_row[lane])
            stored = word_of(tree, SUMS + level + 1) + WORD * offset_of(group, form.fanout, width)
            largest = max(largest, abs(load_real(stored, 0.0) - total))
            if repair:
                store_real(stored, total)
            if form.prefix & HAS_MINIMA:
                largest = max(largest, renew_minimum(tree, form, level, group, repair))
        nodes = groups
    return largest


@kernel()
def audit(tree: int, head: bool, form: Any, repair: bool, largest: Reals) -> int:
    """Put into ``largest [1]`` the largest error of a stored sum; ``repair`` stores the right sums."""
    fresh_row = np.empty(form.width)  # before the turn, which a failure must not keep
    if not (begin_writing(tree, head) if repair else begin_reading(tree, head)):
        return BUSY
    if repair:
        begin_change(tree)
        return_lent(tree, form.like, form.fanout, form.width)
    largest[0] = largest_error(tree, form, repair, fresh_row)
    if repair:
        end_change(tree)
        end_writing(tree)
    else:
        end_reading(tree)
    return DONE
