"""Matrix products and transposes for numba kernels, as LLVM IR: tiles stay in vector registers.

A network's batch is the contiguous axis of its activations, so all operands are read where they lie: nothing is packed
or copied, as general libraries must. LLVM lowers the same text to AVX-512, AVX2, SSE2 or NEON.
"""

import functools
from typing import Any

from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ....sumtree.lanes import instruction, pointer_to, splat

inside = functools.partial(njit, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # which kernels alone call
WIDE = bool(binding.get_host_cpu_features().get("avx512f"))
LANES = 16 if WIDE else 8  # float32 numbers of a vector
ROWS = 8 if WIDE else 6  # of a tile, two vectors wide: as many as the registers hold
COLUMNS = 2 * LANES

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, LANES)
_LANE_NUMBERS = ir.VectorType(_I32, LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)
_ALIGN = ir.Constant(_I32, 4)


class _Memory:
    """Loads and stores of vectors: whole ones, or of their first ``count`` lanes."""

    def __init__(self, builder: Any, count: Any) -> None:
        self.builder, self.mask, pointer = builder, None, _VECTOR.as_pointer()
        if count is None:
            return
        numbers = ir.Constant(ir.VectorType(_I64, LANES), list(range(LANES)))
        self.mask = builder.icmp_signed("<", numbers, splat(builder, count, LANES))
        load = ir.FunctionType(_VECTOR, (pointer, _I32, _MASK, _VECTOR))
        store = ir.FunctionType(ir.VoidType(), (_VECTOR, pointer, _I32, _MASK))
        self._load, self._store = (
            cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.{name}.v{LANES}f32.p0")
            for name, kind in (("load", load), ("store", store))
        )

    def load(self, address: Any) -> Any:
        pointer = pointer_to(self.builder, address, _VECTOR)
        if self.mask is None:
            return self.builder.load(pointer, align=4)
        return self.builder.call(self._load, (pointer, _ALIGN, self.mask, ir.Constant(_VECTOR, [0.0] * LANES)))

    def store(self, value: Any, address: Any) -> None:
        pointer = pointer_to(self.builder, address, _VECTOR)
        if self.mask is None:
            self.builder.store(value, pointer, align=4)
        else:
            self.builder.call(self._store, (value, pointer, _ALIGN, self.mask))


@intrinsic
def _tile(
    typingctx: Any, out: Any, left: Any, right: Any, out_row: Any, row: Any, depth: Any, right_row: Any, inner: Any,
    count: Any, rows: Any, vectors: Any,
) -> Any:  # fmt: skip
    """Compute out[r, :] = sum over k < inner of left[r, k] * right[k, :] for ``rows`` rows of ``vectors`` vectors.

    ``out``, ``left`` and ``right`` are addresses; ``out_row``, ``row`` (of left), ``depth`` (from k to k + 1 in left)
    and ``right_row`` are strides in bytes. A single vector has ``count`` lanes, or all.
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(vectors, types.IntegerLiteral):
        return None

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        out, left, right, out_row, row, depth, right_row, inner, count = arguments[:9]
        high, wide, entry = rows.literal_value, vectors.literal_value, builder.block
        memory = _Memory(builder, count if wide == 1 else None)
        offsets = [ir.Constant(_I64, 4 * LANES * vector) for vector in range(wide)]
        lefts = [builder.add(left, builder.mul(row, ir.Constant(_I64, r))) for r in range(high)]
        loop, end = builder.append_basic_block("inner"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        # Invariant: each sum is that of the terms before k; ``across`` and ``down`` are k's place in left and right.
        k, across, down = (builder.phi(_I64) for _ in range(3))
        sums = [builder.phi(_VECTOR) for _ in range(high * wide)]
        terms = [memory.load(builder.add(down, offset)) for offset in offsets]
        after = [builder.add(k, ir.Constant(_I64, 1)), builder.add(across, depth), builder.add(down, right_row)]
        for r in range(high):
            address = pointer_to(builder, builder.add(lefts[r], across), _F32)
            factor = splat(builder, builder.load(address, align=4), LANES)
            for vector, term in enumerate(terms):
                added = builder.fmul(factor, term, flags=("contract",))
                after.append(builder.fadd(sums[r * wide + vector], added, flags=("contract",)))
        starts = [ir.Constant(_I64, 0), ir.Constant(_I64, 0), right, *[ir.Constant(_VECTOR, [0.0] * LANES)] * len(sums)]
        for variable, start, value in zip((k, across, down, *sums), starts, after, strict=True):
            variable.add_incoming(start, entry)
            variable.add_incoming(value, loop)
        builder.cbranch(builder.icmp_signed("<", after[0], inner), loop, end)
        builder.position_at_end(end)
        for r in range(high):
            start = builder.add(out, builder.mul(out_row, ir.Constant(_I64, r)))
            for vector, offset in enumerate(offsets):
                memory.store(after[3 + r * wide + vector], builder.add(start, offset))
        return context.get_dummy_value()

    return types.none(*[types.int64] * 9, rows, vectors), emit


@njit(nogil=True)  # which benchmarks call, too
def multiply(left: Any, right: Any, out: Any, columns: int) -> None:
    """out[:, :columns] = left @ right[:, :columns], float32; the columns of ``right`` and ``out`` are contiguous."""
    height, inner = left.shape
    strides = out.strides[0], left.strides[0], left.strides[1], right.strides[0]
    _multiply(out.ctypes.data, left.ctypes.data, right.ctypes.data, strides, height, inner, columns)


@inside()
def _multiply(out: int, left: int, right: int, strides: Any, height: int, inner: int, columns: int) -> None:
    """Multiply by addresses and strides in bytes: one compiled function for operands of every layout."""
    (out_row, row, depth, right_row), high, wide = strides, height - height % ROWS, columns - columns % COLUMNS
    # Invariant: all columns before ``column`` are done; a panel of ``right`` stays in the cache while rows go by.
    for column in range(0, wide, COLUMNS):
        to, panel = out + 4 * column, right + 4 * column
        for i in range(0, high, ROWS):
            _tile(to + i * out_row, left + i * row, panel, out_row, row, depth, right_row, inner, 0, ROWS, 2)
        for i in range(high, height):
            _tile(to + i * out_row, left + i * row, panel, out_row, row, depth, right_row, inner, 0, 1, 2)
    for column in range(wide, columns, LANES):
        to, panel, rest = out + 4 * column, right + 4 * column, columns - column
        for i in range(0, high, ROWS):
            _tile(to + i * out_row, left + i * row, panel, out_row, row, depth, right_row, inner, rest, ROWS, 1)
        for i in range(high, height):
            _tile(to + i * out_row, left + i * row, panel, out_row, row, depth, right_row, inner, rest, 1, 1)


@instruction(types.none(types.int64, types.int64, types.int64, types.int64))
def _turn_block(builder: Any, source: Any, source_row: Any, out: Any, out_row: Any) -> Any:
    """Transpose a block of ``LANES`` by ``LANES``, by addresses and strides in bytes."""
    memory, step = _Memory(builder, None), 1
    at = [builder.mul(source_row, ir.Constant(_I64, r)) for r in range(LANES)]
    rows = [memory.load(builder.add(source, offset)) for offset in at]
    while step < LANES:
        # Invariant: rows and lanes have exchanged those bits of their numbers that lie below ``step``.
        for r in (r for r in range(LANES) if not r & step):
            first, second = rows[r], rows[r + step]
            for row, low in ((r, 0), (r + step, step)):
                lanes = [LANES + lane - step + low if lane & step else lane + low for lane in range(LANES)]
                rows[row] = builder.shuffle_vector(first, second, ir.Constant(_LANE_NUMBERS, lanes))
        step *= 2
    for r, row in enumerate(rows):
        memory.store(row, builder.add(out, builder.mul(out_row, ir.Constant(_I64, r))))


@inside()
def turn(source: Any, columns: int, out: Any) -> None:
    """out[:columns, :height] = source[:, :columns] transposed, float32; the columns of both are contiguous."""
    height = len(source)
    high, wide = height - height % LANES, columns - columns % LANES
    source_row, out_row = source.strides[0], out.strides[0]
    for column in range(0, wide, LANES):
        for row in range(0, high, LANES):
            start, to = row * source_row + 4 * column, column * out_row + 4 * row
            _turn_block(source.ctypes.data + start, source_row, out.ctypes.data + to, out_row)
    for row in range(height):
        for column in range(wide if row < high else 0, columns):
            out[column, row] = source[row, column]
