"""One mutex around every operation, copies of rows included: what [Zhang2021, Fig. 10] compares with."""

from typing import Any, ClassVar

import numpy as np

from ...sumtree.numba_kernels import _kernel
from .. import steps
from ..compiled import Kernels
from ..replay import Replay


@_kernel()
def insert(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    source: int,
    count: int,
    errors: Any,
    keep: Any,
    exponent: Any,
) -> int:
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    values = steps.priorities_of(errors, keep, count, exponent)
    steps.point(view, trial, steps.RESERVE)
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    entry, first = steps.reserve(view, like, fanout, lanes, chunks, prefix, trial, 0, count)
    if entry >= 0:
        steps.write_rows(view, trial, source, first, count)
        steps.commit(view, like, fanout, lanes, chunks, prefix, trial, 0, entry, first, values)
    steps.point(view, trial, steps.COMMITTED)
    steps.leave(view)
    return steps.DONE if entry >= 0 else entry


@_kernel()
def sample(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    uniforms: Any,
    stratified: bool,
    beta: float,
    out: int,
) -> int:
    drawn = steps.drawing(uniforms, stratified, like, uniforms.size)
    steps.point(view, trial, steps.SEARCH)
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    status = steps.search(view, like, fanout, lanes, chunks, prefix, trial, drawn, 0, uniforms.size)
    if status == steps.DONE:
        steps.gather(view, trial, drawn, 0, uniforms.size, out)
    steps.point(view, trial, steps.SEARCHED)
    steps.leave(view)
    if status == steps.DONE:
        steps.weigh(drawn, beta, out)
    return status


@_kernel()
def update(
    view: int,
    like: Any,
    fanout: int,
    lanes: int,
    chunks: int,
    prefix: int,
    trial: int,
    edition: int,
    sequence: Any,
    errors: Any,
    exponent: Any,
    present: Any,
) -> int:
    if not steps.are_finite(errors, exponent[1]):
        return steps.NOT_FINITE
    leaves = np.empty(errors.size)
    steps.leaves_of(errors, exponent, leaves)
    steps.point(view, trial, steps.UPDATE)
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    steps.update(view, like, fanout, lanes, chunks, prefix, trial, 0, sequence, leaves, present)
    steps.point(view, trial, steps.UPDATED)
    steps.leave(view)
    return steps.DONE


class GlobalReplay(Replay):
    """Every operation has the whole replay to itself, from its first step to its last."""

    kernels: ClassVar = Kernels(insert, sample, update)
