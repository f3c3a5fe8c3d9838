"""Steps: what every strategy's kernels are composed of, each compiled once and called by its address.

A step is a function ``(view, form, ...)``: ``view`` is the address of a bank's view (see ``block.py``), and ``form`` is
what the step is compiled for, all literals: ``like`` (a number of the leaf's type), ``fanout``, ``lanes``, ``chunks``
and ``prefix`` as in ``impls.sumtree.kernels``, or for most steps ``trial`` alone. A kernel or another step calls
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
from ..sumtree.lanes import load_acquire, load_i64, store_i64, store_release, word_of
from .block import ACTOR, ACTORS, ARRIVED, BLOCK, GRANTED, MODE, MOST_STEPS, STEPS
from .sync import sleep_microseconds

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

DONE, NOT_FINITE, NOTHING = range(3)  # results of a kernel; below 0: an insert that waits, see ``updating.blocked``
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


_WORD = 8

# Points, each just before what it names; ``tests/oracles/atomic_steps.py`` has the same numbers.
RESERVE, ODD, ZERO, RESERVED, FIRST_HALF, SECOND_HALF, COMMIT, EVEN, RAISE, COMMITTED = range(1, 11)
SEARCH, DESCEND, SEARCHED, READ_FIRST, READ_SECOND, RECHECK, UPDATE, SET_LEAVES, SUM_UP, UPDATED = range(11, 21)
LEAF_LOCK, LEAF_UNLOCK, RETRIEVE, LOOK, READ_LEAF, RETRIEVED = range(21, 27)
FREE, SCRIPTED, RANDOM = range(3)  # what points do


# Trials: points where a test stops a kernel


@step
def stop(view: int, form: Any, number: int) -> int:
    """Do what the test wants at a point: continue, sleep at random, or wait until it grants a step."""
    block, actor = word_of(view, BLOCK), word_of(view, ACTOR)
    mode = load_acquire(block + _WORD * MODE)
    if actor < 0 or actor >= ACTORS or mode == FREE:
        return 0
    arrived, granted = block + _WORD * (ARRIVED + actor), block + _WORD * (GRANTED + actor)
    if mode == RANDOM:  # the granted word is the state of a generator of random numbers
        state = load_i64(granted) * 6364136223846793005 + 1442695040888963407
        store_i64(granted, state)
        store_release(arrived, number)
        if (state >> 33) & 3 == 0:
            sleep_microseconds((state >> 40) & 127)
        return 0
    # Invariant: the test grants an actor one step only after it has seen it arrive.
    store_release(arrived, number)
    while load_acquire(granted) == 0:
        if load_acquire(block + _WORD * MODE) == FREE:
            break
        sleep_microseconds(20)
    store_release(granted, 0)
    store_release(arrived, 0)
    return 0


@intrinsic
def point(typingctx: Any, trial: Any, view: Any, number: Any) -> Any:
    """A place where a test may stop this kernel, which is otherwise nothing, and no function for each number."""
    if not isinstance(trial, types.IntegerLiteral):
        return None
    called, emit_stop = stop._defn(typingctx, types.int64, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if trial.literal_value & 1:
            emit_stop(context, builder, called, arguments[1:])
        return context.get_dummy_value()

    return types.none(trial, types.int64, types.int64), emit
