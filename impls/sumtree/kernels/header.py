"""The header that a kernel gets the address of, and how kernels are compiled."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, unbox

from ..compiling import kept_njit
from ..lanes import unsigned_divide

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
