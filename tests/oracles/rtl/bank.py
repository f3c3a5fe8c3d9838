"""A bank: the memories of a sub-tree's levels, and both pipelines on them."""

from typing import Any

from amaranth import Cat, Module, Mux
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from impls.fpga.design import Design

from .nodes import row_layout, rows, words
from .sampler import Sampler, sample_layout
from .updater import Updater, access_layout, got_layout


class Bank(wiring.Component):
    """One bank. ``sample`` is taken in any cycle with ``ready`` and comes out as ``drawn``; ``access`` is taken in
    every cycle and ends with ``done`` if it is an update, else as ``got``.

    A memory has one port to read and one to write, so the pipelines take turns: no access may be under way while a
    sample is, or the sample sees half of an update, and the access takes the read port from it.
    """

    def __init__(self, design: Design, tag_bits: int = 0, forwarding: bool = True) -> None:
        super().__init__(
            {
                "sample": In(sample_layout(design, design.levels, tag_bits)),
                "ready": Out(1),
                "drawn": Out(sample_layout(design, 0, tag_bits)),
                "access": In(access_layout(design, tag_bits)),
                "got": Out(got_layout(design, tag_bits)),
                "done": Out(1),
                "total": Out(design.widths[-1]),
            }
        )
        self.sampler = Sampler(design, tag_bits)
        self.updater = Updater(design, tag_bits, forwarding)
        self.words = words(design)
        self.memories = [
            memory.Memory(shape=row_layout(design, level), depth=rows(design, level), init=[])
            for level in range(design.levels)
        ]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.sampler, m.submodules.updater = self.sampler, self.updater
        m.d.comb += [
            self.sampler.taken.eq(self.sample),
            self.ready.eq(self.sampler.ready),
            self.drawn.eq(self.sampler.given),
            self.updater.taken.eq(self.access),
            self.got.eq(self.updater.got),
            self.done.eq(self.updater.done),
            self.total.eq(self.updater.total),
        ]
        for level, store in enumerate(self.memories):
            m.submodules[f"level_{level}"] = store
            m.d.comb += self._share(level, store.read_port(), store.write_port(granularity=1))
        return m

    def _share(self, level: int, read: memory.ReadPort, write: memory.WritePort) -> list[Any]:
        sampling, updating = getattr(self.sampler, f"read_{level}"), getattr(self.updater, f"read_{level}")
        written = getattr(self.updater, f"write_{level}")
        return [
            read.en.eq(sampling.enable | updating.enable),
            read.addr.eq(Mux(updating.enable, updating.address, sampling.address)),
            sampling.row.eq(read.data),
            updating.row.eq(read.data),
            write.en.eq(written.enable),
            write.addr.eq(written.address),
            write.data.eq(Cat([written.word] * self.words)),
        ]
