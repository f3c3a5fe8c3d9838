"""A bank: the memories of a sub-tree's levels, and both pipelines on them."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from impls.fpga.design import Design

from .nodes import row_layout, rows, words
from .sampler import Sampler, sample_layout
from .updater import Updater, access_layout, got_layout


class Bank(wiring.Component):
    """One bank. ``sample`` is taken in any cycle with ``ready`` and comes out as ``drawn``; ``access`` is taken in any
    cycle with ``access_ready`` and ends with ``done`` if it is an update, else as ``got``.

    Where a memory's ports are shared, the pipelines take turns: no access may be under way while a sample is, or it
    takes the read port from that. Else both run at once. A word that is read in the cycle in which it is written is the
    old one, as in a block RAM that reads first, and in an UltraRAM whose port B writes.
    """

    def __init__(self, design: Design, tag_bits: int = 0) -> None:
        super().__init__(
            {
                "sample": In(sample_layout(design, design.levels, tag_bits)),
                "ready": Out(1),
                "drawn": Out(sample_layout(design, 0, tag_bits)),
                "access": In(access_layout(design, tag_bits)),
                **({"access_ready": Out(1)} if design.overlaps else {}),
                "got": Out(got_layout(design, tag_bits)),
                "done": Out(1),
                "total": Out(design.widths[-1]),
            }
        )
        self.sampler = Sampler(design, tag_bits)
        self.updater = Updater(design, tag_bits)
        self.words, self.ports = words(design), design.ports
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
            *([self.access_ready.eq(1)] if self.ports != "shared" else []),
            self.got.eq(self.updater.got),
            self.done.eq(self.updater.done),
            self.total.eq(self.updater.total),
        ]
        for level, store in enumerate(self.memories):
            m.submodules[f"level_{level}"] = store
            if self.ports == "shared":
                m.d.comb += self._share(level, store.read_port(), store.write_port(granularity=1))
            else:
                m.d.comb += self._separate(level, store)
        if self.ports == "dual":
            # Invariant: of two cycles, an access is taken in one at most, so that a stage writes when none reads.
            busy = Signal()
            m.d.comb += [self.access_ready.eq(~busy), self.updater.taken.valid.eq(self.access.valid & ~busy)]
            m.d.sync += busy.eq(self.updater.taken.valid)
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

    def _separate(self, level: int, store: memory.Memory) -> list[Any]:
        read, write = store.read_port(), store.write_port(granularity=1)
        sampling, updating = getattr(self.sampler, f"read_{level}"), getattr(self.updater, f"read_{level}")
        written = getattr(self.updater, f"write_{level}")
        wires = [write.en.eq(written.enable), write.data.eq(Cat([written.word] * self.words))]
        own, writes = store.read_port(), written.enable.any()
        wires += [read.en.eq(sampling.enable), read.addr.eq(sampling.address), sampling.row.eq(read.data)]
        if self.ports == "copied":
            wires += [own.en.eq(updating.enable), own.addr.eq(updating.address), write.addr.eq(written.address)]
        else:
            address = Mux(writes, written.address, updating.address)
            wires += [own.en.eq(updating.enable & ~writes), own.addr.eq(address), write.addr.eq(own.addr)]
        return [*wires, updating.row.eq(own.data)]
