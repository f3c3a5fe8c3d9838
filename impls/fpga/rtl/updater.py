"""Pipeline that takes updates from the leaves to the root: a level a cycle, an update a cycle.

An update reads the node of its level in one cycle; in the next it adds the change of its leaf and writes the sum, and
the level above reads. So stage l reads in cycle l and writes in cycle l + 1.
"""

from amaranth import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ..design import Design
from .nodes import divide, node_bits, read_signature, rows, words


def update_layout(design: Design, level: int) -> data.StructLayout:
    """An update at a node of a level. ``change``: what is added to it; at a leaf, what takes its place."""
    change = signed(design.leaf_bits + 1) if level else unsigned(design.leaf_bits)
    return data.StructLayout({"valid": 1, "node": node_bits(design, level), "change": change})


def write_signature(design: Design, level: int) -> wiring.Signature:
    """``word`` is written, at the cycle's end, to every word of the row whose bit of ``enable`` is set."""
    return wiring.Signature(
        {
            "enable": Out(words(design)),
            "address": Out(ceil_log2(rows(design, level))),
            "word": Out(design.widths[level]),
        }
    )


class UpdateStage(wiring.Component):
    """Writes a node of ``level`` and hands its parent the change, in the cycle after it took the update.

    The row comes from before the write of the update just ahead. If that wrote the same node, its sum, kept in
    ``written``, is the one to add to: *forwarding*, without which a repeated node loses a change.
    """

    def __init__(self, design: Design, level: int, forwarding: bool = True) -> None:
        super().__init__(
            {
                "taken": In(update_layout(design, level)),
                "given": Out(update_layout(design, level + 1)),
                "read": Out(read_signature(design, level)),
                "write": Out(write_signature(design, level)),
            }
        )
        self.design, self.level, self.forwarding = design, level, forwarding

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(self.taken.shape())
        written = Signal(data.StructLayout({"valid": 1, "node": held.node.shape(), "word": self.write.word.shape()}))
        row, place = divide(held.node, words(self.design))
        old = self.read.row[place] if words(self.design) > 1 else self.read.row[0]
        if self.forwarding:
            old = Mux(written.valid & (written.node == held.node), written.word, old)
        m.d.sync += [held.eq(self.taken), written.valid.eq(held.valid), written.node.eq(held.node)]
        m.d.sync += written.word.eq(self.write.word)
        m.d.comb += [
            self.read.enable.eq(self.taken.valid),
            self.read.address.eq(divide(self.taken.node, words(self.design))[0]),
            self.write.enable.eq(held.valid << place),
            self.write.address.eq(row),
            self.write.word.eq(held.change if self.level == 0 else old + held.change),
            self.given.valid.eq(held.valid),
            self.given.node.eq(divide(held.node, self.design.fanout)[0]),
            self.given.change.eq(held.change - old if self.level == 0 else held.change),
        ]
        return m


class Updater(wiring.Component):
    """A stage a level and the register of the root, ``total``, without the memories, which ``read_l`` and ``write_l``
    look at and change. ``done`` is set in the cycle in which ``total`` first has the change of an update."""

    def __init__(self, design: Design, forwarding: bool = True) -> None:
        self.design = design
        self.stages = [UpdateStage(design, level, forwarding) for level in range(design.levels)]
        super().__init__(
            {"taken": In(update_layout(design, 0)), "done": Out(1), "total": Out(design.widths[-1])}
            | {f"read_{level}": Out(read_signature(design, level)) for level in range(design.levels)}
            | {f"write_{level}": Out(write_signature(design, level)) for level in range(design.levels)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        update = self.taken
        for level, stage in enumerate(self.stages):
            m.submodules[f"stage_{level}"] = stage
            connect(m, stage.read, flipped(getattr(self, f"read_{level}")))
            connect(m, stage.write, flipped(getattr(self, f"write_{level}")))
            m.d.comb += stage.taken.eq(update)
            update = stage.given
        held = Signal(update.shape())
        m.d.sync += [held.eq(update), self.done.eq(held.valid)]
        with m.If(held.valid):
            m.d.sync += self.total.eq(self.total + held.change)
        return m
