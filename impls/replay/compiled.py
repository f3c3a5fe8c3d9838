"""Kernels of a replay, compiled for its shape, and called without the compiler's dispatch."""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..sumtree.compiling import compiler
from .block import Shape


@dataclass(frozen=True)
class Kernels:
    """The compiled operations of a strategy, and its own way to have a bank alone, if it has one."""

    insert: Any
    sample: Any
    update: Any
    hold: Any = None
    let_go: Any = None


def entry(kernel: Any, shape: Shape, trial: bool, *arguments: Any) -> Callable[..., int]:
    """The compiled entry of a kernel, which takes a view's address and then its own arguments, of these types."""
    from numba import types  # noqa: PLC0415  # with the compiler

    leaf = types.float32 if np.dtype(shape.dtype).itemsize == 4 else types.float64
    constants = (shape.group, shape.lanes, shape.chunks, 1, int(trial), _edition())
    signature = (types.int64, leaf, *map(types.literal, constants), *arguments)
    compiler.run(kernel.compile, signature)
    compiled = kernel.overloads[signature].entry_point
    return lambda view, *rest: compiled(view, 0.0, *constants, *rest)


@functools.cache
def _edition() -> int:
    """A number that changes with the text of any file a kernel is compiled from, because numba looks at one alone."""
    here = Path(__file__).parent
    files = [here / f"{name}.py" for name in ("block", "steps", "sync", "rings", "locking/two_lock_checked_strategy")]
    files += [here.parent / "sumtree" / f"{name}.py" for name in ("lanes", "numba_kernels")]
    return functools.reduce(lambda crc, path: zlib.crc32(path.read_bytes(), crc), files, 0)
