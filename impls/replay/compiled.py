"""Kernels of a replay, which call steps that are compiled for its shape, without the compiler's dispatch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..sumtree.compiling import compiler
from .block import Bank, Shape

LAZY = ("search_distinct", "read_priorities")  # steps that few calls need


@dataclass(frozen=True)
class Kernels:
    """The compiled operations of a strategy, and its own way to have a bank alone, if it has one."""

    insert: Any
    sample: Any
    update: Any
    retrieve: Any
    hold: Any = None
    let_go: Any = None


def entry(kernel: Any, trial: bool, *arguments: Any) -> Callable[..., int]:
    """The compiled entry of a kernel, which takes a view's address and then its own arguments, of these types."""
    from numba import types  # noqa: PLC0415  # with the compiler

    signature = (types.literal(int(trial)), types.int64, *arguments)
    compiler.run(kernel.compile, signature)
    return functools.partial(kernel.overloads[signature].entry_point, int(trial))


def install_steps(bank: Bank, shape: Shape, trial: bool, *lazy: str) -> None:
    """Compile the steps for a shape, if no process has yet, and let a bank's view have their addresses.

    ``lazy`` are those wanted of :data:`LAZY`, by default none and all others.
    """
    from numba import types  # noqa: PLC0415  # with the compiler

    from ..sumtree.kernels.header import Form  # noqa: PLC0415
    from . import insertion, sampling, steps  # noqa: F401, PLC0415  # with the compiler; they define the steps

    leaf = types.float32 if np.dtype(shape.dtype).itemsize == 4 else types.float64
    numbers = {"fanout": shape.group, "lanes": shape.lanes, "chunks": shape.chunks, "prefix": 1}
    form = Form(leaf, **numbers, trial=int(trial))
    usual = tuple(name for name in steps.NAMES if name not in LAZY and (trial or name != "stop"))
    steps.install(bank.view, form, lazy or usual)
