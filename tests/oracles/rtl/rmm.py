"""Hardware twin of the RMM, in Amaranth: it takes the cycles of the cycle laws, and its synthesis gives the resources.

A bank is L memories, one a level below the root, and two pipelines that share them. A sample goes down, an update up,
and a retrieval turns at the leaves; a ``mass`` is a prefix value in quanta:

    masses  ->  level L-1  ->  ..  ->  level 1  ->  level 0  ->  (leaf, priority)
    total   <-  level L-1  <-  ..  <-  level 1  <-  level 0  <-  (leaf, value)
                                        priority  <-  level 0  <-  leaf

``nodes`` numbers nodes, ``sampler`` and ``updater`` are the pipelines, ``bank`` joins them, ``dispatch`` leads lanes to
banks, ``rmm`` is all of it (one bank alone needs no dispatcher), ``simulate`` runs it, ``synthesis`` counts the cells
of ``points``, to which ``fit`` fits the coefficients of ``resources.py``.

A batch begins in cycle 0, when its first elements are on the inputs. It has taken T cycles when T is the first cycle in
which all its results (of an update: all its sums) are in registers.
"""

from functools import reduce
from operator import add
from typing import Any

from amaranth import Const, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from impls.fpga.design import Design

from .bank import Bank
from .dispatch import Dispatcher, Kind, mass_bits, request_layout
from .nodes import divide, times
from .updater import got_layout


def drawn_layout(design: Design, tag_bits: int) -> data.StructLayout:
    """Answer to a sample: its leaf, the priority of that and the tag the sample came with."""
    leaf = {"leaf": ceil_log2(design.capacity), "priority": design.leaf_bits}
    return data.StructLayout({"valid": 1, **leaf, "tag": tag_bits})


class Rmm(wiring.Component):
    """Takes S requests a cycle, in the order of the lanes, and answers up to S, each as soon as it is done.

    A batch is of samples, of updates or of retrievals: the next may come in the cycle after the one in which the last
    ``drawn``, ``done`` or ``got`` was seen, as both pipelines share the memories. ``queue_depth`` is the largest
    batch, given S a cycle. Where there is one bank there is no queue, and a request is taken only with ``ready``.
    """

    def __init__(self, design: Design, tag_bits: int, queue_depth: int, forwarding: bool = True) -> None:
        super().__init__(
            {
                "valid": In(design.banks),
                "lanes": In(request_layout(design, tag_bits)).array(design.banks),
                "ready": Out(1),
                "drawn": Out(drawn_layout(design, tag_bits)).array(design.banks),
                "got": Out(got_layout(design, tag_bits)).array(design.banks),
                "done": Out(design.banks),
                "total": Out(mass_bits(design)),
            }
        )
        self.design = design
        self.banks = [Bank(design, tag_bits, forwarding) for _ in range(design.banks)]
        self.dispatcher = Dispatcher(design, tag_bits, queue_depth) if design.banks > 1 else None

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid, requests, starts = self.valid, self.lanes, [Const(0)]
        if self.dispatcher is None:
            m.d.comb += self.ready.eq(self.banks[0].ready)
        else:
            m.submodules.dispatcher = self.dispatcher
            valid, requests, starts = self.dispatcher.filled, self.dispatcher.heads, self.dispatcher.starts
            m.d.comb += [self.ready.eq(1), self.dispatcher.valid.eq(self.valid)]
            m.d.comb += [into.eq(lane) for into, lane in zip(self.dispatcher.lanes, self.lanes, strict=True)]
            for index, bank in enumerate(self.banks):
                m.d.comb += self.dispatcher.totals[index].eq(bank.total)
                m.d.comb += self.dispatcher.ready[index].eq(bank.ready)
        m.d.comb += self.total.eq(reduce(add, [bank.total for bank in self.banks]))
        for index, bank in enumerate(self.banks):
            m.submodules[f"bank_{index}"] = bank
            m.d.comb += self._join(index, bank, valid[index], requests[index], starts[index])
        return m

    def _join(self, index: int, bank: Bank, valid: Value, request: data.View, start: Value) -> list[Any]:
        """Connect a bank, which counts prefix values and leaves from its own start."""
        access, drawn, sampling = request.asked.access, self.drawn[index], request.kind == Kind.SAMPLE
        interleaved = self.design.banking == "interleaved"
        first = index * self.design.bank_capacity
        node = divide(access.leaf, self.design.banks)[0] if interleaved else access.leaf - first
        leaf = times(bank.drawn.node, self.design.banks) + index if interleaved else bank.drawn.node + first
        return [
            bank.sample.valid.eq(valid & sampling),
            bank.sample.mass.eq(request.asked.mass - start),
            bank.sample.tag.eq(request.tag),
            bank.access.valid.eq(valid & ~sampling),
            bank.access.writing.eq(request.kind == Kind.UPDATE),
            bank.access.node.eq(node),
            bank.access.value.eq(access.value),
            bank.access.tag.eq(request.tag),
            drawn.valid.eq(bank.drawn.valid),
            drawn.leaf.eq(leaf),
            drawn.priority.eq(bank.drawn.priority),
            drawn.tag.eq(bank.drawn.tag),
            self.got[index].eq(bank.got),
            self.done[index].eq(bank.done),
        ]
