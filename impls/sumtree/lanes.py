"""Vector lanes for numba kernels: loads, prefix scans and counts over a few neighbors in memory, as LLVM IR.

Numba's auto-vectorizer does not turn a loop over siblings into vector code; written as IR, LLVM lowers the same text to
AVX-512, AVX2, SSE2 or NEON. Addresses are int64; ``lanes`` is a literal power of two; ``mass`` is a prefix value.

The scan adds in the order of [Sklansky1960]: at step d every lane with bit d set adds the last lane of the d-block to
its left. Each prefix is then its predecessor plus something >= 0 rounded monotonically, so prefixes never decrease, and
equal their predecessor where a lane is 0: a child of sum 0 is never the first whose prefix exceeds the prefix value.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_I8, _I32, _I64, _F32, _F64 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_LINE = 64  # bytes
_WORD, _REAL = types.int64, types.float64


def instruction(kind: Any, *literals: str) -> Callable[[Callable[..., Any]], Any]:
    """An intrinsic from a function of a builder and the arguments that gives its value, or none.

    ``kind`` is its signature, or makes it of the arguments' types. Arguments named as ``literals`` must be literal
    integers, which the function gets as they are: what depends on them is decided as the kernel is compiled.
    """

    def decorate(made: Callable[..., Any]) -> Any:
        _, *names = inspect.signature(made).parameters

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pairs = zip(names, signature.args, arguments, strict=True)
            value = made(builder, *(of.literal_value if name in literals else given for name, of, given in pairs))
            return context.get_dummy_value() if value is None else value

        def call(typingctx: Any, *arguments: Any) -> Any:
            given = dict(zip(names, arguments, strict=True))
            if not all(isinstance(given[name], types.IntegerLiteral) for name in literals):
                return None
            return kind(*arguments) if callable(kind) else kind, emit

        call.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
        call.__name__, call.__qualname__, call.__doc__ = made.__name__, made.__qualname__, made.__doc__
        return intrinsic(call)

    return decorate


def pointer_to(builder: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to a type."""
    return builder.inttoptr(address, kind.as_pointer())


def _load_lanes(builder: Any, address: Any, kind: Any, lanes: int) -> Any:
    """``lanes`` numbers, aligned no better than one of them, as float64."""
    size = 4 if kind is _F32 else 8
    loaded = builder.load(pointer_to(builder, address, ir.VectorType(kind, lanes)), align=size)
    return builder.fpext(loaded, ir.VectorType(_F64, lanes)) if kind is _F32 else loaded


def _store_lanes(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, pointer_to(builder, address, value.type), align=8)


def _lane_numbers(numbers: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_I32, len(numbers)), numbers)


def splat(builder: Any, value: Any, lanes: int) -> Any:
    """A vector that has the value in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    single = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(single, undefined, _lane_numbers([0] * lanes))


def _zeros(lanes: int) -> Any:
    return ir.Constant(ir.VectorType(_F64, lanes), [0.0] * lanes)


def _scan(builder: Any, values: Any, lanes: int) -> Any:
    """Inclusive prefix sums of the lanes."""
    step = 1
    while step < lanes:
        # Invariant: each lane is the sum of the lanes from the start of its block of ``step`` up to itself.
        sources = [lane // step * step - 1 if lane & step else lanes for lane in range(lanes)]  # lanes means 0.0
        values = builder.fadd(values, builder.shuffle_vector(values, _zeros(lanes), _lane_numbers(sources)))
        step *= 2
    return values


def _count_at_most(builder: Any, values: Any, bound: Any, lanes: int) -> tuple[Any, Any]:
    """(how many lanes are <= bound, the mask of those lanes)"""
    mask = builder.fcmp_ordered("<=", values, splat(builder, bound, lanes))
    bits = builder.bitcast(mask, ir.IntType(lanes))
    return builder.ctpop(builder.zext(bits, _I64)), mask


def _patched(builder: Any, values: Any, lane: Any, value: Any, lanes: int) -> Any:
    """The lanes with another value in one of them; in none where there is no lane of that number."""
    numbers, wanted = _lane_numbers(list(range(lanes))), splat(builder, builder.trunc(lane, _I32), lanes)
    return builder.select(builder.icmp_signed("==", numbers, wanted), splat(builder, value, lanes), values)


def _last_lane(builder: Any, values: Any, lanes: int) -> Any:
    return builder.extract_element(values, ir.Constant(_I32, lanes - 1))


@instruction(lambda address, mass, lanes: _WORD(_WORD, _REAL, lanes), "lanes")
def count_at_most(builder: Any, address: Any, mass: Any, lanes: int) -> Any:
    """Count the float64 lanes that are <= mass."""
    return _count_at_most(builder, _load_lanes(builder, address, _F64, lanes), mass, lanes)[0]


@instruction(lambda address, mass, lanes: _WORD(_WORD, _REAL, lanes), "lanes")
def count_after_first(builder: Any, address: Any, mass: Any, lanes: int) -> Any:
    """Count the float64 lanes that are <= mass, lane 0 never."""
    mask = _count_at_most(builder, _load_lanes(builder, address, _F64, lanes), mass, lanes)[1]
    rest = ir.Constant(mask.type, [lane > 0 for lane in range(lanes)])
    bits = builder.bitcast(builder.and_(mask, rest), ir.IntType(lanes))
    return builder.ctpop(builder.zext(bits, _I64))


_SCANNED = types.Tuple((_WORD, _REAL, _REAL))


@instruction(
    lambda at, carry, mass, like, lanes: _SCANNED(types.int64, types.float64, types.float64, like, lanes), "lanes"
)
def scan_group(builder: Any, address: Any, carry: Any, mass: Any, like: Any, lanes: int) -> Any:
    """(how many prefix sums ``carry + x_0 + .. + x_i`` are <= mass, the largest of those or 0, the last prefix sum).

    ``like`` is any number of the type the lanes are stored in, float32 or float64.
    """
    prefixes = _scan(builder, _load_lanes(builder, address, like.type, lanes), lanes)
    prefixes = builder.fadd(prefixes, splat(builder, carry, lanes))
    count, mask = _count_at_most(builder, prefixes, mass, lanes)
    kept = builder.select(mask, prefixes, _zeros(lanes))
    return cgutils.pack_struct(builder, [count, _reduce(builder, "fmax", kept), _last_lane(builder, prefixes, lanes)])


def _reduce(builder: Any, operation: str, values: Any) -> Any:
    """The largest (``fmax``) or smallest (``fmin``) of float64 lanes, none of which is NaN."""
    kind, name = ir.FunctionType(_F64, [values.type]), f"llvm.vector.reduce.{operation}.v{values.type.count}f64"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [values], fastmath=("nnan", "nsz"))


@instruction(
    lambda at, lane, value, like, lanes: types.float64(types.int64, types.int64, types.float64, like, lanes), "lanes"
)
def sum_group(builder: Any, address: Any, lane: Any, value: Any, like: Any, lanes: int) -> Any:
    """The last prefix sum of a group, by the very additions of :func:`scan_group`, without those of other lanes.

    It is that with ``value`` in a lane, if there is one of that number, whatever is in memory.
    """
    width = lanes
    values = _patched(builder, _load_lanes(builder, address, like.type, width), lane, value, width)
    step, left = 1, [lane + half for lane in range(0, width // 2, 2) for half in (0, width // 2)]
    while width > 2:
        right = [lane + step for lane in left]
        parts = [builder.shuffle_vector(values, values, _lane_numbers(each)) for each in (right, left)]
        values, width = builder.fadd(*parts), width // 2
        # Invariant: lane 2 i is the sum of a block of the lower half, lane 2 i + 1 of the same block of the upper.
        step, left = 2, [lane for lane in range(width) if lane & 2 == 0]
    return builder.fadd(_last_lane(builder, values, 2), _last_lane(builder, values, 1))


@instruction(lambda address, like, lanes: _REAL(_WORD, like, lanes), "lanes")
def least_positive(builder: Any, address: Any, like: Any, lanes: int) -> Any:
    """The smallest lane above 0 as float64, infinity where there is none; ``like`` is a number of the lanes' type."""
    values = _load_lanes(builder, address, like.type, lanes)
    positive = builder.fcmp_ordered(">", values, _zeros(lanes))
    infinities = ir.Constant(ir.VectorType(_F64, lanes), [math.inf] * lanes)
    return _reduce(builder, "fmin", builder.select(positive, values, infinities))


@instruction(
    lambda at, to, carry, lane, value, lanes: types.float64(
        types.int64, types.int64, types.float64, types.int64, types.float64, lanes
    ),
    "lanes",
)
def store_prefixes(builder: Any, source: Any, target: Any, carry: Any, lane: Any, value: Any, lanes: int) -> Any:
    """Write the sum left of each float64 lane of ``source``: carry, carry + x_0, ..; returns carry + all of them.

    They are those with ``value`` in a lane, if there is one of that number, whatever is in memory.
    """
    carried = splat(builder, carry, lanes)
    values = _patched(builder, _load_lanes(builder, source, _F64, lanes), lane, value, lanes)
    prefixes = builder.fadd(_scan(builder, values, lanes), carried)
    shifted = builder.shuffle_vector(prefixes, carried, _lane_numbers([lanes, *range(lanes - 1)]))
    _store_lanes(builder, shifted, target)
    return _last_lane(builder, prefixes, lanes)


@instruction(lambda at, first, child, delta, lanes: types.none(*[_WORD] * 3, _REAL, lanes), "lanes")
def add_delta(builder: Any, address: Any, first: Any, child: Any, delta: Any, lanes: int) -> None:
    """Add delta to the float64 lanes, numbered from ``first``, that lie right of ``child``, and to lane 0."""
    before_first = builder.sub(builder.trunc(first, _I32), ir.Constant(_I32, 1))
    # Unsigned, lane 0 less 1 is the largest number of all.
    ranks = builder.add(_lane_numbers(list(range(lanes))), splat(builder, before_first, lanes))
    chosen = builder.icmp_unsigned(">=", ranks, splat(builder, builder.trunc(child, _I32), lanes))
    added = builder.select(chosen, splat(builder, delta, lanes), _zeros(lanes))
    _store_lanes(builder, builder.fadd(_load_lanes(builder, address, _F64, lanes), added), address)


@intrinsic
def array_at(typingctx: Any, address: Any, count: Any, like: Any) -> Any:
    """The ``count`` numbers such as ``like`` from an address on, as an array."""
    like = types.unliteral(like)
    kind = types.Array(like, 1, "C")

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(kind)(context, builder)
        width = ir.Constant(_I64, context.get_abi_sizeof(context.get_data_type(like)))
        data = builder.inttoptr(arguments[0], array.data.type)
        populate_array(array, data=data, shape=arguments[1:2], strides=(width,), itemsize=width, meminfo=None)
        return array._getvalue()

    return kind(types.int64, types.int64, like), emit


@instruction(types.int64(types.int64))
def load_i64(builder: Any, address: Any) -> Any:
    """The int64 at an address."""
    return builder.load(pointer_to(builder, address, _I64))


@instruction(types.int64(types.int64, types.int64))
def word_of(builder: Any, address: Any, number: Any) -> Any:
    """The int64 word of that number, counted from an address on."""
    return builder.load(builder.gep(pointer_to(builder, address, _I64), [number]))


@instruction(types.none(types.int64, types.int64))
def store_i64(builder: Any, address: Any, value: Any) -> Any:
    """Write an int64 to an address."""
    builder.store(value, pointer_to(builder, address, _I64))


@instruction(types.int64(types.int64))
def load_acquire(builder: Any, address: Any) -> Any:
    """The int64 at an address; what is read after it is at least as new as what was written before it was."""
    return builder.load_atomic(pointer_to(builder, address, _I64), "acquire", 8)


@instruction(types.none(types.int64, types.int64))
def store_release(builder: Any, address: Any, value: Any) -> Any:
    """Write an int64 to an address, after all that was written before."""
    builder.store_atomic(value, pointer_to(builder, address, _I64), "release", 8)


@instruction(types.none())
def acquire_fence(builder: Any) -> None:
    """Keep what is read before from being read after what is read after."""
    builder.fence("acquire")


@instruction(types.none())
def release_fence(builder: Any) -> None:
    """Keep what is written after from being written before what is written before."""
    builder.fence("release")


@instruction(types.int64(types.int64, types.int64))
def atomic_add(builder: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address, at once for every thread; returns the previous value."""
    return builder.atomic_rmw("add", pointer_to(builder, address, _I64), value, "seq_cst")


@instruction(types.none(types.int64, types.float64))
def atomic_add_real(builder: Any, address: Any, value: Any) -> None:
    """Add to the float64 at an address, at once for every thread; it orders no other reads and writes."""
    builder.atomic_rmw("fadd", pointer_to(builder, address, _F64), value, "monotonic")


@instruction(types.int64(types.int64, types.int64))
def atomic_or(builder: Any, address: Any, value: Any) -> Any:
    """Set bits of the int64 at an address, at once for every thread; returns the previous value."""
    return builder.atomic_rmw("or", pointer_to(builder, address, _I64), value, "seq_cst")


@instruction(types.int64(types.int64, types.int64))
def atomic_and(builder: Any, address: Any, value: Any) -> Any:
    """Keep bits of the int64 at an address, at once for every thread; returns the previous value."""
    return builder.atomic_rmw("and", pointer_to(builder, address, _I64), value, "seq_cst")


@instruction(types.boolean(types.int64, types.int64, types.int64))
def atomic_swap_if(builder: Any, address: Any, expected: Any, value: Any) -> Any:
    """Write an int64 to an address if ``expected`` is there, at once for every thread; returns whether it was."""
    word = pointer_to(builder, address, _I64)
    return builder.extract_value(builder.cmpxchg(word, expected, value, "seq_cst", "seq_cst"), 1)


@instruction(lambda address, like: like(types.int64, like))
def load_real(builder: Any, address: Any, like: Any) -> Any:
    """The number at an address, of the type of ``like``: float32 or float64."""
    return builder.load(pointer_to(builder, address, like.type))


@instruction(lambda address, value: types.none(types.int64, value))
def store_real(builder: Any, address: Any, value: Any) -> None:
    """Write a float32 or float64, whichever ``value`` is, to an address."""
    builder.store(value, pointer_to(builder, address, value.type))


@instruction(lambda value, like: like(types.float64, like))
def rounded(builder: Any, value: Any, like: Any) -> Any:
    """A float64 rounded to the type of ``like``."""
    return builder.fptrunc(value, _F32) if like.type == _F32 else value


@instruction(types.int64)
def bytes_of(builder: Any, like: Any) -> Any:
    """Bytes of a number of the type of ``like``."""
    return ir.Constant(_I64, 4 if like.type == _F32 else 8)


@instruction(types.int64(types.int64))
def take_mark(builder: Any, address: Any) -> Any:
    """Set the mark (a byte) at an address; returns 1 if it was clear, else 0."""
    mark = pointer_to(builder, address, _I8)
    before = builder.load(mark)
    builder.store(ir.Constant(_I8, 1), mark)
    return builder.zext(builder.sub(ir.Constant(_I8, 1), before), _I64)


@instruction(types.none(types.int64))
def clear_mark(builder: Any, address: Any) -> Any:
    """Clear the mark at an address."""
    builder.store(ir.Constant(_I8, 0), pointer_to(builder, address, _I8))


@instruction(types.none(types.int64))
def prefetch(builder: Any, address: Any) -> Any:
    """Ask for the cache line at an address; any address is allowed."""
    _prefetch(builder, address, 0)


@instruction(lambda address, like, lanes, chunks: types.none(_WORD, like, lanes, chunks), "lanes", "chunks")
def prefetch_row(builder: Any, address: Any, like: Any, lanes: int, chunks: int) -> None:
    """Ask for the lines of a row of ``lanes * chunks`` numbers; the hardware follows rows of more than four itself."""
    row_bytes = lanes * chunks * (4 if like.type == _F32 else 8)
    for offset in range(0, min(row_bytes, 4 * _LINE), _LINE):
        _prefetch(builder, address, offset)


def _prefetch(builder: Any, address: Any, offset: int) -> None:
    pointer = pointer_to(builder, builder.add(address, ir.Constant(_I64, offset)), _I8)
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    read, keep, data = (ir.Constant(_I32, value) for value in (0, 3, 1))
    builder.call(function, [pointer, read, keep, data])


@instruction(types.float64(types.float64))
def just_below(builder: Any, number: Any) -> Any:
    """The next float64 towards minus infinity, without a call that would spill every vector register."""
    zero, one = ir.Constant(_F64, 0.0), ir.Constant(_I64, 1)
    bits = builder.bitcast(number, _I64)
    stepped = builder.select(builder.fcmp_ordered(">", number, zero), builder.sub(bits, one), builder.add(bits, one))
    least_negative = ir.Constant(_I64, (1 << 63) + 1)
    is_zero = builder.fcmp_ordered("==", number, zero)
    return builder.bitcast(builder.select(is_zero, least_negative, stepped), _F64)


@instruction(types.int64(types.int64, types.int64))
def at_most(builder: Any, number: Any, bound: Any) -> Any:
    """The number, or the bound if that is smaller, by a branch that is hardly ever taken: cheaper here than ``min``."""
    result = cgutils.alloca_once_value(builder, number)
    after, above = builder.append_basic_block("after"), builder.append_basic_block("above")
    builder.cbranch(builder.icmp_signed(">", number, bound), above, after).set_weights([1, 1 << 20])
    builder.position_at_end(above)
    builder.store(bound, result)
    builder.branch(after)
    builder.position_at_end(after)
    return builder.load(result)


@instruction(lambda number, divisor: _WORD(_WORD, divisor), "divisor")
def unsigned_divide(builder: Any, number: Any, divisor: int) -> Any:
    """number // divisor for a number >= 0 and a literal divisor: a shift or a multiplication."""
    return builder.udiv(number, ir.Constant(_I64, divisor))


@instruction(types.int64, "count")
def stack_words(builder: Any, count: int) -> Any:
    """Address of ``count`` 8-byte words of the kernel's own stack frame."""
    return builder.ptrtoint(cgutils.alloca_once(builder, _I64, size=count), _I64)
