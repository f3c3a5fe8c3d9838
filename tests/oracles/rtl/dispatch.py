"""Leads S lanes to S banks, each through a queue that keeps the order in which its elements came."""

from collections.abc import Sequence
from enum import IntEnum
from functools import reduce
from itertools import pairwise
from operator import or_

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from impls.fpga.design import Design

from .nodes import divide, prefix_sums


def mass_bits(design: Design) -> int:
    """Bits of a prefix value over all banks."""
    return design.widths[-1] + ceil_log2(design.banks)


class Kind(IntEnum):
    """Kinds of requests to an RMM."""

    SAMPLE = 0
    UPDATE = 1
    RETRIEVAL = 2


def request_layout(design: Design, tag_bits: int, asks: Sequence[Kind]) -> data.StructLayout:
    """A lane's request: the prefix value of a sample, or the leaf of an update or a retrieval and its new value.

    The ``tag`` comes back with the answer.
    """
    mass = {"mass": mass_bits(design)} if Kind.SAMPLE in asks else {}
    access = {"access": data.StructLayout({"leaf": ceil_log2(design.capacity), "value": design.leaf_bits})}
    asked = data.UnionLayout(mass | (access if Kind.UPDATE in asks else {}))
    return data.StructLayout(({"kind": Kind} if Kind.UPDATE in asks else {}) | {"tag": tag_bits, "asked": asked})


def kinds(design: Design) -> tuple[tuple[Kind, ...], ...]:
    """Kinds of requests that each input takes: all of them, or samples by one and accesses by another."""
    accesses = (Kind.UPDATE, Kind.RETRIEVAL)
    return ((Kind.SAMPLE,), accesses) if design.overlaps else ((Kind.SAMPLE, *accesses),)


class Queue(wiring.Component):
    """The queue of one bank. Those of the S ``lanes`` that ``chosen`` names come in at once, and one leaves a cycle.

    A row has the lanes as they were in one cycle, with a bit for each that is meant; those of the first row leave lane
    by lane. So no lane is moved on its way in, and a batch of B, S a cycle, needs at most B / S rows, whatever its
    banks. Where the queue is ``filled``, ``head`` leaves in any cycle with ``ready``.
    """

    def __init__(self, shape: data.StructLayout, lanes: int, depth: int) -> None:
        super().__init__(
            {
                "lanes": In(data.ArrayLayout(shape, lanes)),
                "chosen": In(lanes),
                "filled": Out(1),
                "head": Out(shape),
                "ready": In(1),
            }
        )
        row = data.StructLayout({"meant": lanes, "lanes": self.lanes.shape()})
        self.rows = memory.Memory(shape=row, depth=1 << ceil_log2(-(-depth // lanes)), init=[])

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.rows = self.rows
        write, read = self.rows.write_port(), self.rows.read_port(domain="comb")
        count = Signal(range(self.rows.depth + 1))
        gone, waiting, first = Signal.like(self.chosen), Signal.like(self.chosen), Signal.like(self.chosen)
        leaves, emptied = Signal(), Signal()
        # Invariant: ``count`` rows from read.addr on are in the queue, each meant for this bank in a lane at least; of
        # the first, the lanes in ``gone`` have left, and one more is waiting.
        m.d.comb += [
            write.en.eq(self.chosen.any()),
            write.data.meant.eq(self.chosen),
            write.data.lanes.eq(self.lanes),
            waiting.eq(read.data.meant & ~gone),
            first.eq(Cat(bit & ~waiting[:lane].any() for lane, bit in enumerate(waiting))),
            self.filled.eq(count.any()),
            self.head.eq(reduce(or_, [Mux(bit, read.data.lanes[lane], 0) for lane, bit in enumerate(first)])),
            leaves.eq(self.filled & self.ready),
            emptied.eq(leaves & (waiting == first)),
        ]
        m.d.sync += [
            write.addr.eq(write.addr + write.en),
            read.addr.eq(read.addr + emptied),
            count.eq(count + write.en - emptied),
        ]
        with m.If(leaves):
            m.d.sync += gone.eq((gone | first) & ~emptied.replicate(len(gone)))
        return m


class Dispatcher(wiring.Component):
    """Lanes to banks in a cycle: a request that is ``valid`` in one is in its bank's queue in the next.

    ``starts`` are the prefix values at which the banks begin: the prefix sums of their ``totals``, one cycle late. The
    bank of a prefix value or of a leaf is the last that begins at or before it. Where updates overlap, a prefix value
    may be above all sums: its bank is then the last whose total was above 0, or the first.
    """

    def __init__(self, design: Design, tag_bits: int, queue_depth: int, asks: Sequence[Kind]) -> None:
        request = request_layout(design, tag_bits, asks)
        super().__init__(
            {
                "valid": In(design.banks),
                "lanes": In(request).array(design.banks),
                "totals": In(design.widths[-1]).array(design.banks),
                "starts": Out(mass_bits(design)).array(design.banks),
                "filled": Out(design.banks),
                "heads": Out(request).array(design.banks),
                "ready": In(design.banks),
            }
        )
        self.design, self.asks = design, asks
        self.queues = [Queue(request, design.banks, queue_depth) for _ in range(design.banks)]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if Kind.SAMPLE in self.asks:
            for start, total in zip(self.starts[1:], prefix_sums(self.totals[:-1]), strict=True):
                m.d.sync += start.eq(total)
        choices, follow = [], Signal(self.design.banks, reset_less=True)
        if self.design.overlaps:  # Invariant: bit j: a total from bank j on was above 0 when ``starts`` were summed
            m.d.sync += follow.eq(Cat(Cat(self.totals[bank:]).any() for bank in range(self.design.banks)))
        else:
            m.d.comb += follow.eq(-1)
        for index, lane in enumerate(self.lanes):
            chosen = Signal(self.design.banks, name=f"chosen_{index}")
            bank = self._bank_of_leaf(lane.asked.access.leaf) if Kind.UPDATE in self.asks else None
            if Kind.SAMPLE in self.asks:
                of_mass = _last_begun(lane.asked.mass, self.starts, follow)
                bank = of_mass if bank is None else Mux(lane.kind == Kind.SAMPLE, of_mass, bank)
            m.d.comb += chosen.eq(Mux(self.valid[index], bank, 0))
            choices.append(chosen)
        for index, queue in enumerate(self.queues):
            m.submodules[f"queue_{index}"] = queue
            m.d.comb += [
                queue.chosen.eq(Cat(chosen[index] for chosen in choices)),
                *(queue.lanes[position].eq(lane) for position, lane in enumerate(self.lanes)),
                self.filled[index].eq(queue.filled),
                self.heads[index].eq(queue.head),
                queue.ready.eq(self.ready[index]),
            ]
        return m

    def _bank_of_leaf(self, leaf: Value) -> Value:
        if self.design.banking == "interleaved":
            return Cat(divide(leaf, self.design.banks)[1] == bank for bank in range(self.design.banks))
        banks = range(self.design.banks)
        return _last_begun(leaf, [bank * self.design.bank_capacity for bank in banks], Const(-1, len(banks)))


def _last_begun(value: Value, starts: Sequence[Value | int], follow: Value) -> Value:
    """A bit for each bank, set only for the last in ``follow`` whose start is not above the value; the first is 0."""
    after = ((value >= start) & bit for start, bit in zip(starts[1:], follow[1:], strict=True))
    begun = [Const(1, 1), *after, Const(0, 1)]
    return Cat(this & ~following for this, following in pairwise(begun))
