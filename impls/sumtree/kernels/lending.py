"""Draws from a tree some of whose leaves are 0 for the while: those drawn before, or those that a call leaves out."""

from typing import Any

import numpy as np

from ..arguments import Indices, Priorities, Reals
from ..lanes import bytes_of, load_i64, load_real, release_fence, rounded, store_i64, store_real, store_release, word_of
from .header import (
    BUSY,
    CAPACITY,
    DONE,
    LEAVES,
    LENT,
    LENT_AT,
    REFUSED,
    WORD,
    begin_change,
    begin_writing,
    end_change,
    end_writing,
    inlined,
    inner,
    kernel,
    offset_of,
)
from .searching import descend
from .updating import recompute


@inner
def return_lent(tree: int, like: Any, fanout: int, width: int) -> None:
    """Set the leaves that a kernel had set to 0, and that never ended, to what they were; their sums stay wrong."""
    leaves, lent = word_of(tree, LEAVES), word_of(tree, LENT_AT)
    for j in range(word_of(tree, LENT)):
        leaf, priority = load_i64(lent + 2 * WORD * j), load_real(lent + 2 * WORD * j + WORD, 0.0)
        store_real(leaves + bytes_of(like) * offset_of(leaf, fanout, width), rounded(priority, like))
    store_i64(tree + WORD * LENT, 0)


@inner
def _set(tree: int, form: Any, slots: Indices, values: Reals) -> None:
    recompute(tree, form, slots, values)  # once for all that call it


@inlined
def _search_distinct(
    tree: int, form: Any, uniforms: Reals, indices: Indices, priorities: Priorities, room: Indices, drawn: Indices
) -> int:
    """Put leaves and their priorities, drawn one after the other, into ``[B]``, and their number into ``drawn [1]``."""
    batch = uniforms.size
    lent, slots, values = room.ctypes.data, room[2 * batch : 3 * batch], room.view(np.float64)[3 * batch : 4 * batch]
    store_i64(tree + WORD * LENT_AT, lent)
    status, count = DONE, 0
    while count < batch:
        # Invariant: the leaves drawn so far, indices[:count], are 0, and listed as lent since before they were.
        end = count + 1
        status = descend(tree, form, uniforms[count:end], True, indices[count:end], priorities[count:end])
        if status != DONE:
            break
        store_i64(lent + 2 * WORD * count, indices[count])
        store_real(lent + 2 * WORD * count + WORD, np.float64(priorities[count]))
        store_release(tree + WORD * LENT, end)
        release_fence()
        slots[0], values[0] = indices[count], 0.0
        _set(tree, form, slots[:1], values[:1])
        count = end
    for j in range(count):
        slots[j], values[j] = indices[j], priorities[j]
    _set(tree, form, slots[:count], values[:count])
    store_release(tree + WORD * LENT, 0)
    drawn[0] = count
    return status


@kernel()
def search_distinct(
    tree: int,
    head: bool,
    form: Any,
    uniforms: Reals,
    indices: Indices,
    priorities: Priorities,
    room: Indices,
    drawn: Indices,
) -> int:
    """Distinct leaves ``[B]`` and priorities for ``uniforms [B]``, each among those left; EMPTY if there are fewer.

    ``room`` has ``LENDING_SCRATCH * B`` words; ``drawn [1]`` becomes the number of leaves drawn.
    """
    if not begin_writing(tree, head):
        return BUSY
    begin_change(tree)
    status = _search_distinct(tree, form, uniforms, indices, priorities, room, drawn)
    end_change(tree)
    end_writing(tree)
    return status


@inner
def _list_excluded(
    tree: int, like: Any, fanout: int, width: int, uniforms: Reals, excluded: Indices, room: Indices
) -> bool:
    """List leaves and their priorities, two words for each of ``excluded [E]``; False if one is outside [0, N).

    False as well if one of ``uniforms [B]`` is outside [0, 1), before the search that would find it changes sums.
    """
    capacity, leaves, lent = word_of(tree, CAPACITY), word_of(tree, LEAVES), room.ctypes.data
    for j in range(uniforms.size):
        if not 0.0 <= uniforms[j] < 1.0:
            return False
    for j in range(excluded.size):
        leaf = excluded[j]
        if not (leaf >= 0 and leaf < capacity):
            return False
        priority = load_real(leaves + bytes_of(like) * offset_of(leaf, fanout, width), like)
        store_i64(lent + 2 * WORD * j, leaf)
        store_real(lent + 2 * WORD * j + WORD, np.float64(priority))
    return True


@kernel()
def search_without(
    tree: int,
    head: bool,
    form: Any,
    uniforms: Reals,
    excluded: Indices,
    indices: Indices,
    priorities: Priorities,
    room: Indices,
) -> int:
    """Leaves ``[B]`` and priorities for ``uniforms [B]`` in a tree whose leaves ``excluded [E]`` are 0 for the while.

    ``room`` has ``LENDING_SCRATCH * E`` words. EMPTY where no other leaf is positive.
    """
    if not begin_writing(tree, head):
        return BUSY
    status = REFUSED
    if _list_excluded(tree, form.like, form.fanout, form.width, uniforms, excluded, room):
        count = excluded.size
        lent, slots = room.ctypes.data, room[2 * count : 3 * count]
        values = room.view(np.float64)[3 * count : 4 * count]
        begin_change(tree)
        store_i64(tree + WORD * LENT_AT, lent)
        store_release(tree + WORD * LENT, count)
        release_fence()
        for j in range(count):
            # Invariant: whatever of these is 0 by now is listed as lent.
            slots[j], values[j] = load_i64(lent + 2 * WORD * j), 0.0
        _set(tree, form, slots, values)
        status = descend(tree, form, uniforms, True, indices, priorities)
        for j in range(count):
            slots[j], values[j] = load_i64(lent + 2 * WORD * j), load_real(lent + 2 * WORD * j + WORD, 0.0)
        _set(tree, form, slots, values)
        store_release(tree + WORD * LENT, 0)
        end_change(tree)
    end_writing(tree)
    return status
