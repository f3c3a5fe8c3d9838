"""The default strategy's operations cut off after a step, so that the differences tell where the time goes.

A whole replay and its cut ones lie in the same memory. What a cut sample returns is unfinished, and never looked at.
"""

from functools import cache
from typing import Any

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
    kernels = {name: getattr(kind.kernels, name) for name in ("insert", "sample", "update")}
    kernels[op] = _kernels()[op, until]
    some = type("CutReplay", (kind,), {"kernels": type(kind.kernels)(**kernels)})
    made: Any = kind_of(buffer.name).__new__(kind_of(buffer.name))
    made.take(some(whole.settings, whole._memory), buffer.capacity, seed=0)
    return made


@cache
def _kernels() -> dict[tuple[str, str], Any]:
    """Return the kernel of each operation and last step. They are made here, for asv imports this module beside older
    commits, which have no such steps."""
    import numpy as np  # noqa: PLC0415
    from numba import njit  # noqa: PLC0415  # heavy

    from impls.replay import steps  # noqa: PLC0415

    kernel = njit(nogil=True, cache=True, error_model="numpy")
    begin = [_sampling(kernel, steps, gathers) for gathers in (False, True)]

    @kernel
    def nothing(view, like, fanout, lanes, chunks, prefix, trial, edition, first, second, third, fourth):
        return steps.DONE

    @kernel
    def inserted(view, like, fanout, lanes, chunks, prefix, trial, edition, source, count, errors, keep, exponent):
        return steps.DONE

    @kernel
    def raised(view, like, fanout, lanes, chunks, prefix, trial, edition, sequence, errors, exponent, present):
        leaves = np.empty(errors.size)
        steps.leaves_of(errors, exponent, leaves)
        return steps.DONE if leaves[-1] >= 0 else steps.NOT_FINITE

    return {
        ("sample", "call"): nothing,
        ("sample", "tree"): begin[0],
        ("sample", "gather"): begin[1],
        ("update", "call"): nothing,
        ("update", "priorities"): raised,
        ("insert", "call"): inserted,
    }


def _sampling(kernel: Any, steps: Any, gathers: bool) -> Any:
    """Return the kernel that draws a batch as the default strategy does, with or without its records."""

    @kernel
    def sampled(view, like, fanout, lanes, chunks, prefix, trial, edition, uniforms, stratified, beta, out):
        drawn = steps.drawing(uniforms, stratified, like, steps.PORTION)
        count = uniforms.size
        for low in range(0, count, steps.PORTION):
            # Invariant: the places before ``low`` are drawn.
            high = min(low + steps.PORTION, count)
            steps.enter(view, like, fanout, lanes, chunks, prefix, trial)
            status = steps.search(view, like, fanout, lanes, chunks, prefix, trial, drawn, low, high)
            steps.leave(view)
            if status != steps.DONE:
                return status
            if gathers:
                steps.gather(view, trial, drawn, low, high, out)
        if gathers:
            steps.changed(view, drawn, count)
        return steps.DONE

    return sampled
