"""The default strategy's operations cut off after a step, so that the differences tell where the time goes.

A whole replay and its cut ones lie in the same memory. What a cut sample returns is unfinished, and never looked at.
"""

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from .buffers import kind_of

UNTIL = {
    "sample": ("call", "tree", "gather", "whole"),
    "update": ("call", "priorities", "whole"),
    "insert": ("call", "whole"),
}
"""The steps of each operation, in order; "whole" ends with the last: weights, the tree, or the row and the tree."""


def cut(buffer: Any, op: str, until: str) -> Any:
    """Return the buffer, or one in its memory whose operation ends after the step ``until``."""
    if until == "whole":
        return buffer
    whole = buffer.compiled
    kind = type(whole)
    kernels = dataclasses.replace(kind.kernels, **{op: _kernels()[op, until]})
    some = type("CutReplay", (kind,), {"kernels": kernels})
    made: Any = kind_of(buffer.name).__new__(kind_of(buffer.name))
    made.take(some(whole.settings, whole._memory), buffer.capacity, seed=0)
    return made


@cache
def _kernels() -> dict[tuple[str, str], Any]:
    """Return the kernel of each operation and last step. They are made here, once the compiler is needed."""

    from impls.replay import sampling, tree_lock, updating  # noqa: PLC0415
    from impls.sumtree.kernels import header  # noqa: PLC0415

    kernel = header.kernel()
    begin = [_sampling(kernel, sampling, tree_lock, gathers) for gathers in (False, True)]

    @kernel
    def nothing(trial, view, first, second, third, fourth):
        return 0

    @kernel
    def inserted(trial, view, source, count, errors, keep, exponent):
        return 0

    @kernel
    def raised(trial, view, sequence, errors, exponent, present):
        leaves = np.empty(errors.size)
        updating.leaves_of(view, errors, 0, errors.size, exponent, leaves)
        return 0 if leaves[-1] >= 0 else 1

    return {
        ("sample", "call"): nothing,
        ("sample", "tree"): begin[0],
        ("sample", "gather"): begin[1],
        ("update", "call"): nothing,
        ("update", "priorities"): raised,
        ("insert", "call"): inserted,
    }


def _sampling(kernel: Any, sampling: Any, tree_lock: Any, gathers: bool) -> Any:
    """Return the kernel that draws a batch as the default strategy does, with or without its records."""
    from impls.replay.steps import PORTION  # noqa: PLC0415

    words = sampling.DRAWN

    @kernel
    def sampled(trial, view, uniforms, stratified, beta, out):
        count = uniforms.size
        drawn = np.empty(words * count, np.int64)
        sampling.begin(view, drawn, count, uniforms, stratified)
        for low in range(0, count, PORTION):
            # Invariant: the places before ``low`` are drawn.
            high = min(low + PORTION, count)
            tree_lock.enter(view)
            status = sampling.search(view, drawn, count, low, high)
            tree_lock.leave(view)
            if status != 0:
                return status
            if gathers:
                sampling.gather(view, drawn, count, low, high, out)
        if gathers:
            sampling.changed(view, drawn, count, count)
        return 0

    return sampled
