"""The two locks and the lazy writing of [Zhang2021, Alg. 3], as printed.

One mutex guards the tree, a second one its leaves, and a record is copied under neither: its priority is 0 meanwhile,
so that no search finds it. Two holes remain, which ``two_lock_checked`` closes: a sampler that found the slot just
before reads the record while it is overwritten, and a late update of the old record makes the priority positive in the
middle of the copy.
"""

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
    entry, first = steps.reserve(view, like, fanout, lanes, chunks, prefix, trial, 1, count)
    steps.point(view, trial, steps.RESERVED)
    steps.leave(view)
    if entry < 0:
        return entry
    steps.write_rows(view, trial, source, first, count)
    steps.point(view, trial, steps.COMMIT)
    steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
    steps.commit(view, like, fanout, lanes, chunks, prefix, trial, 1, entry, first, values)
    steps.point(view, trial, steps.COMMITTED)
    steps.leave(view)
    return steps.DONE


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
    steps.point(view, trial, steps.SEARCHED)
    steps.leave(view)
    if status == steps.DONE:
        steps.gather(view, trial, drawn, 0, uniforms.size, out)
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
    steps.update_by_slot(view, like, fanout, lanes, chunks, prefix, trial, 1, sequence, leaves, present)
    steps.point(view, trial, steps.UPDATED)
    steps.leave(view)
    return steps.DONE


class TwoLockLazyReplay(Replay):
    """Copies of records run beside everything; records can be torn, as its two holes allow."""

    valid = False
    kernels: ClassVar = Kernels(insert, sample, update)
