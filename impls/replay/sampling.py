"""Steps of a sample: searching the tree, copying records, drawing anew those taken away meanwhile, and weights.

A batch under way is ``DRAWN`` words for each of its B places, at the address ``drawn``: values to search for (once a
place is drawn, the tree's total at that moment), slots, the words of the slots, their priorities, and the list of the
places yet to draw, ``[B]`` each.
"""

from typing import Any

import numpy as np

from ..sumtree.kernels.header import CAPACITY, HEIGHT, SUMS
from ..sumtree.kernels.searching import descend
from ..sumtree.kernels.updating import recompute
from ..sumtree.lanes import (
    array_at,
    load_acquire,
    load_real,
    prefetch,
    stack_words,
    store_i64,
    store_real,
    store_release,
    word_of,
)
from .block import BANK, FIELD, FIELDS, FRAME_BYTES, FRAMES, LENT, LENT_LEAVES, ROWS, STRIDE, TICKET, WORDS
from .steps import DESCEND, DONE, NOTHING, READ_FIRST, READ_SECOND, point, step
from .sync import copy_bytes, fence, inner, is_on

DRAWN = 5
_WORD = 8
_BLOCK = 64  # places searched for at once
_AHEAD = 12
_LINE = 64
_NORMAL = float(np.finfo(np.float32).tiny)  # below it a float32 loses digits


@inner
def values_of(drawn: int, batch: int) -> Any:
    """The values to search for, or the totals of the tree when the places were drawn ``[B]``."""
    return array_at(drawn, batch, 0.0)


@inner
def slots_of(drawn: int, batch: int) -> Any:
    """The slots drawn ``[B]``."""
    return array_at(drawn + _WORD * batch, batch, drawn)


@inner
def words_of(drawn: int, batch: int) -> Any:
    """The words that the slots had when they were drawn ``[B]``."""
    return array_at(drawn + 2 * _WORD * batch, batch, drawn)


@inner
def priorities_of(drawn: int, batch: int) -> Any:
    """The priority of each record ``[B]``."""
    return array_at(drawn + 3 * _WORD * batch, batch, 0.0)


@inner
def places_of(drawn: int, batch: int) -> Any:
    """The list ``[B]`` that begins with the places yet to draw."""
    return array_at(drawn + 4 * _WORD * batch, batch, drawn)


@step
def begin(view: int, form: Any, drawn: int, batch: int, uniforms: int, stratified: int) -> int:
    """Begin a batch of ``uniforms [B]``, one in each of B equal intervals if ``stratified``."""
    values, places, given = values_of(drawn, batch), places_of(drawn, batch), array_at(uniforms, batch, 0.0)
    for j in range(batch):
        values[j] = min((j + given[j]) / batch, 1.0 - 2.0**-53) if stratified else given[j]
        places[j] = j
    return 0


@step
def search(view: int, form: Any, drawn: int, batch: int, low: int, high: int) -> int:
    """Draw the slots for ``places[low:high]``, with their words and the priority of each; a status."""
    point(form.trial, view, DESCEND)
    values, slots, words = values_of(drawn, batch), slots_of(drawn, batch), words_of(drawn, batch)
    theirs, places, at = priorities_of(drawn, batch), places_of(drawn, batch), word_of(view, WORDS)
    total = load_real(word_of(view, SUMS + word_of(view, HEIGHT)), 0.0)
    some, found = array_at(stack_words(_BLOCK), _BLOCK, 0.0), array_at(stack_words(_BLOCK), _BLOCK, low)
    priorities = array_at(stack_words(_BLOCK), _BLOCK, form.like)
    for start in range(low, high, _BLOCK):
        # Invariant: ``places[low:start]`` are drawn.
        count = min(_BLOCK, high - start)
        for j in range(count):
            some[j] = values[places[start + j]]
        if _descend(view, form, some[:count], found[:count], priorities[:count]) != DONE:
            return NOTHING
        for j in range(count):
            prefetch(at + _WORD * found[j])
        for j in range(count):
            place = places[start + j]
            slots[place], values[place] = found[j], total
            words[place] = load_acquire(at + _WORD * found[j])
            theirs[place] = np.float64(priorities[j])
    return DONE


@inner
def _descend(view: int, form: Any, values: Any, slots: Any, priorities: Any) -> int:
    """Search the tree for uniforms ``[B]``; the tree's status."""
    return descend(view, form, values, True, slots, priorities)


@step
def search_distinct(view: int, form: Any, drawn: int, batch: int, uniforms: int, scratch: int) -> int:
    """:func:`search` for as many places as there are records for, no two the same; returns how many these are.

    Each next record is drawn among those left, in proportion to its priority. The tree is afterwards as it was.
    ``scratch`` has 2 B words.
    """
    slots, words, theirs = slots_of(drawn, batch), words_of(drawn, batch), priorities_of(drawn, batch)
    given, leaves = array_at(uniforms, batch, 0.0), array_at(scratch, batch, batch)
    values = array_at(scratch + _WORD * batch, batch, 0.0)
    priorities = array_at(stack_words(1), 1, form.like)
    bank, lent, at = word_of(view, BANK), word_of(view, LENT_LEAVES), word_of(view, WORDS)
    count = 0
    while count < batch:
        # Invariant: the leaves of slots[:count] are 0, and listed as lent since before they were.
        place = slice(count, count + 1)
        point(form.trial, view, DESCEND)
        if _descend(view, form, given[place], slots[place], priorities) != DONE:
            break
        words[count] = load_acquire(at + _WORD * slots[count])
        theirs[count] = np.float64(priorities[0])
        store_i64(lent + 2 * _WORD * count, slots[count])
        store_real(lent + 2 * _WORD * count + _WORD, np.float64(priorities[0]))
        leaves[0], values[0] = slots[count], 0.0
        count += 1
        store_release(bank + LENT, count)
        fence()
        _set(view, form, leaves[:1], values[:1])
    for j in range(count):
        leaves[j], values[j] = slots[j], load_real(lent + 2 * _WORD * j + _WORD, 0.0)
    _set(view, form, leaves[:count], values[:count])
    store_release(bank + LENT, 0)
    return count


@inner
def _set(view: int, form: Any, leaves: Any, values: Any) -> None:
    recompute(view, form, leaves, values)


@step
def changed(view: int, form: Any, drawn: int, batch: int, count: int) -> int:
    """Keep those of the first ``count`` places whose record was taken away since it was drawn; returns how many."""
    slots, words, places = slots_of(drawn, batch), words_of(drawn, batch), places_of(drawn, batch)
    fence()
    at = word_of(view, WORDS)
    kept = 0
    for j in range(count):
        # Invariant: kept <= j, so that no place is overwritten before it is read.
        place = places[j]
        places[kept] = place
        kept += load_acquire(at + _WORD * slots[place]) != words[place]
    return kept


@step
def gather(view: int, form: Any, drawn: int, batch: int, low: int, high: int, out: int) -> int:
    """Copy the records of ``places[low:high]`` to those rows of the batch's arrays at ``out``."""
    slots, places = slots_of(drawn, batch), places_of(drawn, batch)
    rows, stride = word_of(view, ROWS), word_of(view, STRIDE)
    point(form.trial, view, READ_FIRST)
    for j in range(low, min(low + _AHEAD, high)):
        _prefetch_row(rows + stride * slots[places[j]], stride)
    for j in range(low, high):
        if j + _AHEAD < high:
            _prefetch_row(rows + stride * slots[places[j + _AHEAD]], stride)
        if is_on(form.trial):
            _gather_halves(view, form, slots[places[j]], out, batch, places[j])
        else:
            _gather_one(view, slots[places[j]], out, batch, places[j])
    return 0


@inner
def _prefetch_row(row: int, stride: int) -> None:
    for line in range(0, min(stride, 4 * _LINE), _LINE):
        prefetch(row + line)


@inner
def _gather_halves(view: int, form: Any, slot: int, out: int, batch: int, place: int) -> None:
    """Copy a record in two parts, with a point between them: its first half from before it, the rest from after."""
    row, half = word_of(view, ROWS) + word_of(view, STRIDE) * slot, word_of(view, STRIDE) // 16 * 8
    is_single = word_of(view, FRAMES) == 1
    to = out + _head(batch)
    if is_single:
        _scatter(view, row, to, batch, place, np.int64(0), half)
    point(form.trial, view, READ_SECOND)
    if is_single:
        _scatter(view, row, to, batch, place, half, word_of(view, STRIDE))
    else:
        _gather_one(view, slot, out, batch, place)


@inner
def _gather_one(view: int, slot: int, out: int, batch: int, place: int) -> None:
    """Copy a record's fields to their arrays, each of which begins on a cache line: see ``Outputs`` in batches.py."""
    rows, stride, frames = word_of(view, ROWS), word_of(view, STRIDE), word_of(view, FRAMES)
    to = out + _head(batch)
    if frames > 1:
        size, slots = word_of(view, FRAME_BYTES), word_of(view, CAPACITY)
        following = to + lines_of(batch * frames * size)
        for k in range(frames + 1):
            # Invariant: a record that may be sampled has its frames in the slots before, the next in that after.
            source = rows + stride * ((slot + slots + k + 1 - frames) % slots)
            if k < frames:
                copy_bytes(to + size * (place * frames + k), source, size)
            if k > 0:
                copy_bytes(following + size * (place * frames + k - 1), source, size)
        to = following + lines_of(batch * frames * size)
    _scatter(view, rows + stride * slot, to, batch, place, np.int64(0), stride)


@inner
def _scatter(view: int, row: int, to: int, batch: int, place: int, low: int, high: int) -> None:
    """Copy those bytes of a row's fields that lie in [low, high) to the fields' arrays."""
    for number in range(word_of(view, FIELDS)):
        start, size = word_of(view, FIELD + 2 * number), word_of(view, FIELD + 2 * number + 1)
        first, end = max(start, low), min(start + size, high)
        if first < end:
            copy_bytes(to + size * place + first - start, row + first, end - first)
        to += lines_of(batch * size)


@inner
def lines_of(size: int) -> int:
    """Bytes of whole cache lines."""
    return (size + _LINE - 1) // _LINE * _LINE


@inner
def _head(batch: int) -> int:
    """Bytes of a batch's tickets and weights, which come before its fields."""
    return lines_of(_WORD * batch) + lines_of(4 * batch)


@step
def redraw(
    view: int,
    form: Any,
    drawn: int,
    batch: int,
    uniforms: int,
    count: int,
    attempt: int,
    stratified: int,
    parts: int,
    part: int,
) -> int:
    """Fresh values for the first ``count`` places, in the same intervals, decided by the uniforms it began with.

    The intervals are those of a whole of which the bank is one of ``parts`` equal ones.
    """
    values, places, given = values_of(drawn, batch), places_of(drawn, batch), array_at(uniforms, batch, 0.0)
    for j in range(count):
        place = places[j]
        state = np.uint64(given[place] * 2.0**53) + np.uint64(attempt) * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        fresh = np.float64((state ^ (state >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
        if stratified:  # the part of the place's interval that lies in the bank's
            low, high = max(place * parts, part * batch), min((place + 1) * parts, (part + 1) * batch)
            fresh = min(max((low + fresh * (high - low)) / batch - part, 0.0), 1.0 - 2.0**-53)
        values[place] = fresh
    return 0


@step
def weigh(view: int, form: Any, drawn: int, batch: int, beta: float, out: int) -> int:
    """Write tickets and importance weights (1 / N P(i))^beta, the largest 1, to the batch's arrays at ``out``.

    That is (min p / p)^beta: N and the total cancel, and at the ends of float64's range p over the total is 0. With
    beta < 0 there are no weights, and ``Plan(layout, by_total=True)`` says where totals and priorities go.
    """
    words, priorities, tickets = words_of(drawn, batch), priorities_of(drawn, batch), array_at(out, batch, out)
    if beta < 0.0:
        size, totals = lines_of(_WORD * batch), values_of(drawn, batch)
        for j in range(batch):
            tickets[j] = words[j] // TICKET - 1
            store_real(out - 2 * size + _WORD * j, totals[j])
            store_real(out - size + _WORD * j, priorities[j])
        return 0
    least = np.inf
    for j in range(batch):
        least = min(least, priorities[j])
    weights = array_at(out + lines_of(_WORD * batch), batch, np.float32(0.0))
    for j in range(batch):
        tickets[j] = words[j] // TICKET - 1
        weights[j] = power_of_ratio(least / priorities[j], beta)
    return 0


@inner
def power_of_ratio(ratio: float, beta: float) -> Any:
    """The ratio of two priorities to the power of beta, as float32."""
    return np.float32(ratio) ** np.float32(beta) if ratio >= _NORMAL else np.float32(ratio**beta)
