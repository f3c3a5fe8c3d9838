"""No lock at all: the most that any strategy could reach, and wrong as soon as two callers meet."""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.kernels.header import kernel
from ..compiled import Kernels
from ..insertion import commit, first_of, rank, reserve, write_rows
from ..replay import Replay
from ..sampling import DRAWN, begin, gather, search, weigh
from ..steps import DONE, NOT_FINITE
from ..trials import RESERVE, SEARCH, UPDATE, point
from ..updating import are_finite, leaves_of, read_priorities, update


@kernel()
def insert(trial: int, view: int, source: int, count: int, errors: Any, keep: Any, exponent: Any) -> int:
    values = np.empty(count)
    if rank(view, errors, errors.size, keep, keep.size, exponent, values, count) != DONE:
        return NOT_FINITE
    point(trial, view, RESERVE)
    entry = reserve(view, 0, count)
    if entry < 0:
        return entry
    write_rows(view, source, first_of(view, entry), count)
    commit(view, 0, entry, values, count)
    return DONE


@kernel()
def sample(trial: int, view: int, uniforms: Any, stratified: bool, beta: float, out: int) -> int:
    batch = uniforms.size
    drawn = np.empty(DRAWN * batch, np.int64)
    begin(view, drawn, batch, uniforms, stratified)
    point(trial, view, SEARCH)
    status = search(view, drawn, batch, 0, batch)
    if status == DONE:
        gather(view, drawn, batch, 0, batch, out)
        weigh(view, drawn, batch, beta, out)
    return status


@kernel()
def update_priorities(trial: int, view: int, sequence: Any, errors: Any, exponent: Any, present: Any) -> int:
    batch = errors.size
    if not are_finite(view, errors, batch, exponent):
        return NOT_FINITE
    leaves, scratch = np.empty(batch), np.empty(2 * batch, np.int64)
    leaves_of(view, errors, 0, batch, exponent, leaves)
    point(trial, view, UPDATE)
    update(view, 0, sequence, leaves, present, 0, batch, scratch)
    return DONE


@kernel()
def retrieve_priorities(trial: int, view: int, sequence: Any, priorities: Any) -> int:
    read_priorities(view, 0, 0, sequence, 0, sequence.size, priorities)
    return DONE


class NoneReplay(Replay):
    """Callers that meet tear records and lose sums; only one caller at a time gets right answers."""

    valid = False
    kernels: ClassVar = Kernels(insert, sample, update_priorities, retrieve_priorities)
