"""Numbers of nodes, the rows they lie in, and the choice of a child, for the stages of both pipelines.

Nodes of a level are numbered as in ``levels.py``; the children of node n are n K .. n K + K-1. The memory of a level
has a *row* of K *words* for each sibling group (``wide``) or a row of one word for each node (``scan``), and is filled
up with zeros to whole groups, so that a child that does not exist is never chosen.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add

from amaranth import Cat, Const, Mux, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from impls.fpga.design import Design


def words(design: Design) -> int:
    """Words of one row of a memory."""
    return design.fanout if design.micro == "wide" else 1


def rows(design: Design, level: int) -> int:
    """Rows of the memory of a level below the root."""
    return design.sizes[level + 1] * design.fanout // words(design)


def node_bits(design: Design, level: int) -> int:
    """Bits of a node's number on a level: none for the root."""
    return ceil_log2(design.sizes[level])


def row_layout(design: Design, level: int) -> data.ArrayLayout:
    """Layout of one row of the memory of a level."""
    return data.ArrayLayout(unsigned(design.widths[level]), words(design))


def read_signature(design: Design, level: int) -> wiring.Signature:
    """A read of the memory of a level: one cycle later ``row`` is the row at ``address``, if ``enable`` was set."""
    return wiring.Signature(
        {"enable": Out(1), "address": Out(ceil_log2(rows(design, level))), "row": In(row_layout(design, level))}
    )


def times(node: Value, factor: int) -> Value:
    """node * factor, of shifts and adders: a multiplier would be built of DSP blocks."""
    return reduce(add, [node << bit for bit in range(factor.bit_length()) if factor >> bit & 1])


def child(fanout: int, node: Value, digit: Value) -> Value:
    """node K + digit, for a digit below K: wires alone where K is a power of two."""
    if fanout & (fanout - 1):
        return times(node, fanout) + digit
    return Cat(digit[: ceil_log2(fanout)], node)


def divide(node: Value, divisor: int) -> tuple[Value, Value]:
    """(node // divisor, node % divisor): wires alone where the divisor is a power of two."""
    if divisor & (divisor - 1):
        return node // divisor, node % divisor
    bits = ceil_log2(divisor)
    return node[bits:], node[:bits]


def prefix_sums(values: Sequence[Value]) -> list[Value]:
    """Inclusive prefix sums v_0, v_0 + v_1, .., as deep as log2 of their number in adders.

    >>> prefix_sums([5, 1, 0, 7])
    [5, 6, 6, 13]
    """
    if len(values) <= 1:
        return list(values)
    half = (len(values) + 1) // 2
    left, right = prefix_sums(values[:half]), prefix_sums(values[half:])
    return left + [left[-1] + value for value in right]


def narrow(open_: Sequence[Value], kept: Sequence[Value], nested: bool) -> tuple[Value, Value]:
    """(index of the last of ``open_`` that is set, or 0, the entry of ``kept`` at that index).

    ``nested``: of those but the first, the ones before a set one are set too.
    """
    if len(open_) == 1:
        return Const(0, 0), kept[0]
    half = 1 << ceil_log2(len(open_)) - 1
    upper = open_[half] if nested else Cat(open_[half:]).any()
    (low, low_kept), (high, high_kept) = (
        narrow(open_[part], kept[part], nested) for part in (slice(half), slice(half, None))
    )
    return Cat(Mux(upper, high, low), upper), Mux(upper, high_kept, low_kept)


def saturate(value: Value, bits: int) -> Value:
    """The value, which is not negative, or the largest of as many ``bits``."""
    return Mux(value[bits:].any(), Const((1 << bits) - 1, bits), value[:bits]) if len(value) > bits else value
