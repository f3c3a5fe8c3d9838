"""Steps: what every strategy's kernels are composed of, each compiled once and called by its address.

A step is a function ``(view, form, ...)``: ``view`` is the address of a bank's view (see ``block.py``), and ``form`` is
what the step is compiled for, all literals: ``like`` (a number of the leaf's type), ``fanout``, ``lanes``, ``chunks``
and ``prefix`` as in ``impls.sumtree.numba_kernels``, or for most steps ``trial`` alone. A kernel or another step calls
``commit(view, ...)`` without the form, through the address in the view, and gives arrays for what the step takes as
addresses. So a kernel is the same machine code for trees of every form, and all strategies share the steps.

``trial`` is a literal: 1 where a test may stop the kernels, else 0.

An exception cannot leave a step: a step allocates nothing, and its kernel allocates before it takes a lock.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..sumtree.compiling import compiler, file_of, kept_cfunc, text_of
from ..sumtree.kernels.header import Form
from .block import MOST_STEPS, STEPS

_I8, _I64 = ir.IntType(8), ir.IntType(64)
FORMED = (
    *("repair", "audit", "set_priorities", "set_range", "largest_now", "read_priorities"),
    *("search", "search_distinct", "ask_for"),
)
PLAIN = (  # compiled for any tree
    *("stop", "enter", "rank", "reserve", "write_rows", "commit", "are_finite", "leaves_of", "update"),
    *("begin", "gather", "changed", "redraw", "weigh"),
)
NAMES = FORMED + PLAIN  # in the order of their addresses in a view
assert len(NAMES) <= MOST_STEPS

DONE, NOT_FINITE, NOTHING = range(3)  # results of a kernel; below 0: an insert that waits, see ``insertion.blocked``
PORTION = 48  # elements that a lock is kept for, where it need not be kept for the whole batch: about a microsecond
NEIGHBORS = 256  # the same for records that lie side by side
PATIENCE = 8  # draws in vain, because rows were overwritten meanwhile, before the rest is read under the lock


_functions: dict[str, Callable[..., Any]] = {}


def step(function: Callable[..., Any]) -> Any:
    """A step, as kernels and other steps call it: ``(view, form, ...)`` becomes ``(view, ...)``.

    Its arguments and what it returns are int, addresses included, or float.
    """
    _functions[function.__name__] = function
    text_of(file_of(function))  # as it is imported, for a step may be compiled much later
    at = 8 * (STEPS + NAMES.index(function.__name__))
    result, *kinds = _signature(function)

    def call(typingctx: Any, *arguments: Any) -> Any:
        taken = [
            given if isinstance(given, types.Array) else kind for given, kind in zip(arguments, kinds, strict=True)
        ]

        def emit(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            given = [_word_of(context, builder, *pair) for pair in zip(taken, values, strict=True)]
            given.insert(1, ir.Constant(_I8.as_pointer(), None))
            kind = ir.FunctionType(context.get_value_type(result), [value.type for value in given])
            address = builder.load(builder.inttoptr(builder.add(values[0], ir.Constant(_I64, at)), _I64.as_pointer()))
            return builder.call(builder.inttoptr(address, kind.as_pointer()), given)

        return result(*taken), emit

    names = [name for name in inspect.signature(function).parameters if name != "form"]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in ("typingctx", *names)])  # type: ignore[attr-defined]
    call.__name__ = function.__name__
    return intrinsic(call)


def install(view: Any, form: Form, names: tuple[str, ...]) -> None:
    """Put the addresses of steps, compiled for a form, into a view."""
    plain = Form(trial=form.fields["trial"].literal_value)
    for name in names:
        compiled = compiler.run(_compiled, name, form if name in FORMED else plain)
        view[STEPS + NAMES.index(name)] = compiled.address


def function_of(name: str) -> Callable[..., Any]:
    """The function that a step is compiled from."""
    return _functions[name]


@functools.cache
def _compiled(name: str, form: Form) -> Any:
    function = _functions[name]
    result, view, *rest = _signature(function)
    return kept_cfunc(result(view, form, *rest), function, error_model="numpy")


def _signature(function: Callable[..., Any]) -> list[Any]:
    """The types of what a step returns and takes, the form left out."""
    kinds = {int: types.int64, float: types.float64}
    signature = inspect.signature(function)
    taken = [kinds[one.annotation] for one in signature.parameters.values() if one.name != "form"]
    return [kinds[signature.return_annotation], *taken]


def _word_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An argument of a step: of an array its address."""
    if isinstance(kind, types.Array):
        return builder.ptrtoint(context.make_array(kind)(context, builder, value).data, _I64)
    return value
