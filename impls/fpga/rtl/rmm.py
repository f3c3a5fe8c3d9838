"""The whole replay management module: S banks behind a dispatcher, or one bank alone."""

from functools import reduce
from operator import add
from typing import Any

from amaranth import Const, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..design import Design
from .bank import Bank
from .dispatch import Dispatcher, mass_bits, request_layout
from .nodes import divide, times


def drawn_layout(design: Design, tag_bits: int) -> data.StructLayout:
    """The leaf of a sample and the tag it came with."""
    return data.StructLayout({"valid": 1, "leaf": ceil_log2(design.capacity), "tag": tag_bits})


class Rmm(wiring.Component):
    """Takes S requests a cycle, in the order of the lanes, and answers up to S, each as soon as it is done.

    A batch is of samples or of updates: the next may come in the cycle after the one in which the last ``drawn`` or
    ``done`` was seen, for both pipelines share the memories. ``queue_depth`` is the largest batch, given S a cycle.
    Where there is one bank there is no queue, and a request is taken only with ``ready``.
    """

    def __init__(self, design: Design, tag_bits: int, queue_depth: int, forwarding: bool = True) -> None:
        super().__init__(
            {
                "valid": In(design.banks),
                "lanes": In(request_layout(design, tag_bits)).array(design.banks),
                "ready": Out(1),
                "drawn": Out(drawn_layout(design, tag_bits)).array(design.banks),
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
            m.d.comb += [lane.eq(given) for lane, given in zip(self.dispatcher.lanes, self.lanes, strict=True)]
            for number, bank in enumerate(self.banks):
                m.d.comb += self.dispatcher.totals[number].eq(bank.total)
                m.d.comb += self.dispatcher.ready[number].eq(bank.ready | requests[number].updating)
        m.d.comb += self.total.eq(reduce(add, [bank.total for bank in self.banks]))
        for number, bank in enumerate(self.banks):
            m.submodules[f"bank_{number}"] = bank
            m.d.comb += self._join(number, bank, valid[number], requests[number], starts[number])
        return m

    def _join(self, number: int, bank: Bank, valid: Value, request: data.View, start: Value) -> list[Any]:
        """A bank counts masses and leaves from its own start."""
        sample, update, drawn = request.asked.sample, request.asked.update, self.drawn[number]
        interleaved = self.design.banking == "interleaved"
        first = number * self.design.bank_capacity
        place = divide(update.leaf, self.design.banks)[0] if interleaved else update.leaf - first
        leaf = times(bank.drawn.node, self.design.banks) + number if interleaved else bank.drawn.node + first
        return [
            bank.sample.valid.eq(valid & ~request.updating),
            bank.sample.mass.eq(sample.mass - start),
            bank.sample.tag.eq(sample.tag),
            bank.update.valid.eq(valid & request.updating),
            bank.update.node.eq(place),
            bank.update.change.eq(update.value),
            drawn.valid.eq(bank.drawn.valid),
            drawn.leaf.eq(leaf),
            drawn.tag.eq(bank.drawn.tag),
            self.done[number].eq(bank.done),
        ]
