"""The header that a kernel gets the address of, how kernels are compiled, and their turns on a tree.

Turns are those of the header's lock word, and of its sequence word for kernels that read without a turn.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox

from ..compiling import kept_njit
from ..lanes import (
    acquire_fence,
    atomic_add,
    atomic_and,
    atomic_or,
    atomic_swap_if,
    load_acquire,
    load_i64,
    release_fence,
    store_release,
    unsigned_divide,
)

WORD = 8  # bytes of an address, an index, a float64
MOST_LEVELS = 64

# The header a kernel gets the address of: int64 words.
CAPACITY, HEIGHT, LEAVES = 0, 1, 2
SUMS = 8  # + level 1..height: address of the level's node sums
PREFIX = 72  # + level 1..height-1: address of its prefix rows
MARKS = 136  # + level 1..height-1: address of a byte for each of its groups
LOCK = 200  # on a cache line of their own, these two
SEQUENCE = 201  # odd while a kernel changes the tree, and 2 more after it
LENT, LENT_AT = 202, 203  # leaves that a kernel has set to 0 and sets again: how many, and the address of their list
MINIMA = 208  # + level 1..height: address of the smallest positive leaf below each node, infinity where there is none
HEADER_WORDS = 272

HAS_PREFIXES, HAS_MINIMA = 1, 2  # bits of a kernel's ``prefix``

CLOSED, WRITES, HELD = 1 << 40, 1 << 41, 1 << 42  # bits of the lock word above the number of readers

DONE, REFUSED, EMPTY, BUSY, CRAMPED = range(5)  # results of a kernel; CRAMPED: the scratch is too small
SCRATCH = 3  # words an update needs for each element of its batch
LENDING_SCRATCH = 4  # those that a draw needs for each leaf it sets to 0 and gives back

_INSIDE = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**_INSIDE)  # which kernels alone call
inlined_late = njit(**_INSIDE, forceinline=True)  # as machine code: for many calls it costs less to compile
inlined = njit(**_INSIDE, inline="always")  # a call with these many arguments would take 60 ns


class Form(types.Type):  # type: ignore[misc]
    """The type of ``form``: a value without bytes, whose attributes are what a kernel or a step is compiled for.

    ``like``: a number of the leaf's type; ``fanout`` K; ``lanes`` of one vector; ``chunks`` vectors to a row of
    ``width`` numbers; ``prefix``: whether there are prefix rows, and in a second bit whether minima are kept.
    """

    def __init__(self, like: Any = None, **numbers: int) -> None:
        wide = {"width": numbers["lanes"] * numbers["chunks"]} if "lanes" in numbers else {}
        self.fields = {name: types.literal(number) for name, number in (numbers | wide).items()}
        if like is not None:
            self.fields["like"] = like
        super().__init__(name=f"Form({', '.join(f'{name}={kind}' for name, kind in self.fields.items())})")


register_model(Form)(models.OpaqueModel)


@infer_getattr
class _FormAttributes(AttributeTemplate):  # type: ignore[misc]
    key = Form

    def generic_resolve(self, form: Form, name: str) -> Any:
        return form.fields.get(name)


@lower_getattr_generic(Form)
def _field(context: Any, builder: Any, form: Form, value: Any, name: str) -> Any:
    kind = form.fields[name]
    return ir.Constant(context.get_value_type(kind), getattr(kind, "literal_value", 0))


@unbox(Form)
def _without_bytes(form: Form, value: Any, python: Any) -> Any:
    return NativeValue(python.context.get_dummy_value())


def kernel() -> Callable[[Callable[..., Any]], Any]:
    """Compile a kernel, once a machine; what it calls is compiled into it."""
    return kept_njit(nogil=True, error_model="numpy")


@inner
def offset_of(node: int, fanout: int, width: int) -> int:
    """Number of a node's element in its level's rows."""
    group = unsigned_divide(node, fanout)
    return group * width + (node - group * fanout)


# Turns


@inner
def begin_reading(tree: int, head: bool) -> bool:
    word = tree + WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    # Invariant: the count has every reader that is inside, and beside them only some that have yet to see they must go.
    if atomic_add(word, 1) < (WRITES if head else CLOSED):
        if head:
            atomic_and(word, ~CLOSED)
        return True
    atomic_add(word, -1)
    return False


@inner
def end_reading(tree: int) -> None:
    atomic_add(tree + WORD * LOCK, -1)


@inner
def begin_writing(tree: int, head: bool) -> bool:
    word = tree + WORD * LOCK
    if head:
        atomic_or(word, CLOSED)
    return atomic_swap_if(word, CLOSED if head else 0, WRITES)


@inner
def end_writing(tree: int) -> None:
    # Subtracted, because a reader may have counted itself and not yet seen that it must leave.
    atomic_add(tree + WORD * LOCK, -WRITES)


@inner
def begin_change(tree: int) -> None:
    """Make the sequence odd, before anything is written by the kernel whose turn it is."""
    word = tree + WORD * SEQUENCE
    store_release(word, load_i64(word) | 1)  # it is odd already where an update never ended, in a forked child
    release_fence()


@inner
def end_change(tree: int) -> None:
    """Make the sequence even, after everything that was written."""
    word = tree + WORD * SEQUENCE
    store_release(word, load_i64(word) + 1)


_WITHOUT_TURN = 2  # attempts to read
HAS_TURN, KEPT_OUT = -1, -2


@inner
def begin_attempt(tree: int, head: bool, attempt: int) -> int:
    """The sequence to read beside, if it is even; else HAS_TURN, or KEPT_OUT where that could not be had."""
    if attempt <= _WITHOUT_TURN:
        sequence = load_acquire(tree + WORD * SEQUENCE)
        if sequence & 1 == 0:
            return sequence
    return HAS_TURN if begin_reading(tree, head) else KEPT_OUT


@inner
def end_attempt(tree: int, sequence: int) -> bool:
    """Whether all that was read since :func:`begin_attempt`, which returned ``sequence``, is one state of the tree."""
    if sequence == HAS_TURN:
        end_reading(tree)
        return True
    acquire_fence()
    return load_i64(tree + WORD * SEQUENCE) == sequence


OPEN, HOLD, LET_GO = range(3)


@kernel()
def turn(tree: int, action: int) -> bool:
    """Change the lock. OPEN: the head of the line has left it. HOLD: keep calls out, and hold the tree if none is
    inside. LET_GO: end that hold. Returns whether HOLD succeeded.
    """
    word = tree + WORD * LOCK
    if action == HOLD:
        atomic_or(word, CLOSED)
        return atomic_swap_if(word, CLOSED, WRITES | HELD)
    if action == OPEN:
        atomic_and(word, ~CLOSED)
    elif load_i64(word) & HELD:
        atomic_and(word, ~(WRITES | HELD))
    return False
