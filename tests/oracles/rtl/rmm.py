"""Hardware twin of the RMM, in Amaranth: it takes the cycles of the cycle laws, and its synthesis gives the resources.

A bank is L memories, one a level below the root, and two pipelines that share them. A sample goes down, an update up,
and a retrieval turns at the leaves; a ``mass`` is a prefix value in quanta:

    masses  ->  level L-1  ->  ..  ->  level 1  ->  level 0  ->  (leaf, priority)
    total   <-  level L-1  <-  ..  <-  level 1  <-  level 0  <-  (leaf, value)
                                        priority  <-  level 0  <-  leaf

``nodes`` numbers nodes, ``sampler`` and ``updater`` are the pipelines, ``bank`` joins them, ``dispatch`` leads lanes to
banks, ``rmm`` is all of it (one bank alone needs no dispatcher), ``simulate`` runs it, ``synthesis`` counts the cells
of some, to which ``fit`` fits the coefficients of ``resources.py``.

A batch begins in cycle 0, when its first elements are on the inputs. It has taken T cycles when T is the first cycle in
which all its results (of an update: all its sums) are in registers.
"""

from functools import reduce
from operator import add
from typing import Any

from amaranth import Const, Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from impls.fpga.design import Design

from .bank import Bank
from .dispatch import Dispatcher, Kind, kinds, mass_bits, request_layout
from .nodes import divide, saturate, times
from .updater import got_layout


def drawn_layout(design: Design, tag_bits: int) -> data.StructLayout:
    """Answer to a sample: its leaf, the priority of that and the tag the sample came with."""
    leaf = {"leaf": ceil_log2(design.capacity), "priority": design.leaf_bits}
    return data.StructLayout({"valid": 1, **leaf, "tag": tag_bits})


class Rmm(wiring.Component):
    """Takes S requests a cycle, in the order of the lanes, and answers up to S, each as soon as it is done.

    A batch is of samples, of updates or of retrievals: the next may come in the cycle after the one in which the last
    ``drawn``, ``done`` or ``got`` was seen, as both pipelines share the memories. Where they do not, updates and
    retrievals come by lanes of their own, ``inputs[1]``, at any time. ``queue_depth`` is the largest batch, given S a
    cycle. Where there is one bank there is no queue, and a request is taken only with ``ready``.
    """

    def __init__(self, design: Design, tag_bits: int, queue_depth: int) -> None:
        asked = list(enumerate(kinds(design)))
        super().__init__(
            {f"valid_{index}": In(design.banks) for index, _ in asked}
            | {f"ready_{index}": Out(1) for index, _ in asked}
            | {
                f"lanes_{index}": In(request_layout(design, tag_bits, asks)).array(design.banks)
                for index, asks in asked
            }
            | {
                "drawn": Out(drawn_layout(design, tag_bits)).array(design.banks),
                "got": Out(got_layout(design, tag_bits)).array(design.banks),
                "done": Out(design.banks),
                "total": Out(mass_bits(design)),
            }
        )
        self.design = design
        self.banks = [Bank(design, tag_bits) for _ in range(design.banks)]
        self.dispatchers = [Dispatcher(design, tag_bits, queue_depth, asks) for _, asks in asked if design.banks > 1]
        self.inputs = [
            tuple(getattr(self, f"{name}_{index}") for name in ("valid", "lanes", "ready")) for index, _ in asked
        ]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        ready_of = [[bank.ready, bank.access_ready] if self.design.overlaps else [bank.ready] for bank in self.banks]
        if not self.dispatchers:
            m.d.comb += [ready.eq(mine) for (_, _, ready), mine in zip(self.inputs, ready_of[0], strict=False)]
        for position, (dispatcher, (valid, lanes, ready)) in enumerate(
            zip(self.dispatchers, self.inputs, strict=False)
        ):
            m.submodules[f"dispatcher_{position}"] = dispatcher
            m.d.comb += [ready.eq(1), dispatcher.valid.eq(valid)]
            m.d.comb += [into.eq(lane) for into, lane in zip(dispatcher.lanes, lanes, strict=True)]
            for index, bank in enumerate(self.banks):
                m.d.comb += dispatcher.totals[index].eq(bank.total)
                m.d.comb += dispatcher.ready[index].eq(ready_of[index][position])
        m.d.comb += self.total.eq(reduce(add, [bank.total for bank in self.banks]))
        for index, bank in enumerate(self.banks):
            m.submodules[f"bank_{index}"] = bank
            m.d.comb += self._join(index, bank)
        return m

    def _join(self, index: int, bank: Bank) -> list[Any]:
        """Connect a bank, which counts prefix values and leaves from its own start."""
        heads = [(queues.filled, queues.heads) for queues in self.dispatchers] or [lanes[:2] for lanes in self.inputs]
        (valid, request), (accessed, second) = ((valid[index], lanes[index]) for valid, lanes in (heads[0], heads[-1]))
        start = self.dispatchers[0].starts[index] if self.dispatchers else Const(0)
        access, drawn, mass = second.asked.access, self.drawn[index], request.asked.mass - start
        if self.design.overlaps:  # the start may be another than when the sample came to the bank
            sampling, accessing = Const(1), Const(1)
            mass = Mux(mass[-1], 0, saturate(mass[:-1], self.design.widths[-1]))
        else:
            sampling, accessing = request.kind == Kind.SAMPLE, second.kind != Kind.SAMPLE
        interleaved = self.design.banking == "interleaved"
        first = index * self.design.bank_capacity
        node = divide(access.leaf, self.design.banks)[0] if interleaved else access.leaf - first
        leaf = times(bank.drawn.node, self.design.banks) + index if interleaved else bank.drawn.node + first
        return [
            bank.sample.valid.eq(valid & sampling),
            bank.sample.mass.eq(mass),
            bank.sample.tag.eq(request.tag),
            bank.access.valid.eq(accessed & accessing),
            bank.access.writing.eq(second.kind == Kind.UPDATE),
            bank.access.node.eq(node),
            bank.access.value.eq(access.value),
            bank.access.tag.eq(second.tag),
            drawn.valid.eq(bank.drawn.valid),
            drawn.leaf.eq(leaf),
            drawn.priority.eq(bank.drawn.priority),
            drawn.tag.eq(bank.drawn.tag),
            self.got[index].eq(bank.got),
            self.done[index].eq(bank.done),
        ]
