"""Pipeline that takes updates from the leaves to the root: a level a cycle, an update a cycle.

An update reads the node of its level in one cycle; in the next it adds the change of its leaf and writes the sum, and
the level above reads. So stage l reads in cycle l and writes in cycle l + 1. A *retrieval* goes no further than the
leaves: it reads as an update does, and is answered instead of writing.
"""

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from impls.fpga.design import Design

from .nodes import divide, node_bits, read_signature, rows, words


def access_layout(design: Design, tag_bits: int) -> data.StructLayout:
    """An update of a leaf, where ``writing``, or else a retrieval of it, whose answer has its ``tag``."""
    leaf = {"node": node_bits(design, 0), "value": design.leaf_bits}
    return data.StructLayout({"valid": 1, "writing": 1, **leaf, "tag": tag_bits})


def got_layout(design: Design, tag_bits: int) -> data.StructLayout:
    """Answer to a retrieval: the priority, and the tag it came with."""
    return data.StructLayout({"valid": 1, "priority": design.leaf_bits, "tag": tag_bits})


def update_layout(design: Design, level: int) -> data.StructLayout:
    """An update at a node above the leaves, to which ``change`` is added."""
    return data.StructLayout({"valid": 1, "node": node_bits(design, level), "change": signed(design.leaf_bits + 1)})


def write_signature(design: Design, level: int) -> wiring.Signature:
    """A write to the memory of a level: ``word`` goes to the row's words that have a bit in ``enable``."""
    return wiring.Signature(
        {
            "enable": Out(words(design)),
            "address": Out(ceil_log2(rows(design, level))),
            "word": Out(design.widths[level]),
        }
    )


class Stage(wiring.Component):
    """Stage that writes a node of ``level`` and passes the change to its parent, in the cycle after it took the update.

    The row was read before the write of the update just ahead. If that wrote the same node, its sum, kept in
    ``written``, is the one to add to: *forwarding*, without which a repeated node loses a change. Where a port reads
    and writes in turn, nothing is just ahead.
    """

    def __init__(self, design: Design, level: int, ports: dict[str, wiring.Member]) -> None:
        super().__init__(
            {
                "given": Out(update_layout(design, level + 1)),
                "read": Out(read_signature(design, level)),
                "write": Out(write_signature(design, level)),
            }
            | ports
        )
        self.design, self.forwarding = design, design.ports != "dual"

    def _access(self, m: Module, held: data.View, writes: Value) -> Value:
        """The word of the node whose update or retrieval ``held`` has; ``write.word`` replaces it if it ``writes``."""
        # Invariant: the row that was read lacks at most the write of the update just ahead, which ``written`` has.
        written = Signal(data.StructLayout({"valid": 1, "node": held.node.shape(), "word": self.write.word.shape()}))
        row, word = divide(held.node, words(self.design))
        m.d.sync += [held.eq(self.taken), written.valid.eq(writes), written.node.eq(held.node)]
        m.d.sync += written.word.eq(self.write.word)
        m.d.comb += [
            self.read.enable.eq(self.taken.valid),
            self.read.address.eq(divide(self.taken.node, words(self.design))[0]),
            self.write.enable.eq(writes << word),
            self.write.address.eq(row),
            self.given.valid.eq(writes),
            self.given.node.eq(divide(held.node, self.design.fanout)[0]),
        ]
        old = self.read.row[word] if words(self.design) > 1 else self.read.row[0]
        return Mux(written.valid & (written.node == held.node), written.word, old) if self.forwarding else old


class LeafStage(Stage):
    """The stage of the leaves, whose values are replaced, and the only one that retrievals come to."""

    def __init__(self, design: Design, tag_bits: int) -> None:
        ports = {"taken": In(access_layout(design, tag_bits)), "got": Out(got_layout(design, tag_bits))}
        super().__init__(design, 0, ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(self.taken.shape())
        old = self._access(m, held, held.valid & held.writing)
        m.d.comb += [self.write.word.eq(held.value), self.given.change.eq(held.value - old)]
        m.d.sync += [
            self.got.valid.eq(held.valid & ~held.writing),
            self.got.priority.eq(old),
            self.got.tag.eq(held.tag),
        ]
        return m


class SumStage(Stage):
    """The stage of a level between the leaves and the root."""

    def __init__(self, design: Design, level: int) -> None:
        super().__init__(design, level, {"taken": In(update_layout(design, level))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(self.taken.shape())
        old = self._access(m, held, held.valid)
        m.d.comb += [self.write.word.eq(old + held.change), self.given.change.eq(held.change)]
        return m


class Updater(wiring.Component):
    """A stage a level and the register of the root, ``total``, without the memories, which they read and write through
    ``read_l`` and ``write_l``. ``done`` is set in the cycle in which ``total`` first has the change of an update,
    ``got`` two cycles after a retrieval was taken."""

    def __init__(self, design: Design, tag_bits: int) -> None:
        self.leaves = LeafStage(design, tag_bits)
        self.stages = [self.leaves, *(SumStage(design, level) for level in range(1, design.levels))]
        super().__init__(
            {
                "taken": In(access_layout(design, tag_bits)),
                "got": Out(got_layout(design, tag_bits)),
                "done": Out(1),
                "total": Out(design.widths[-1]),
            }
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
        m.d.comb += self.got.eq(self.leaves.got)
        m.d.sync += [held.eq(update), self.done.eq(held.valid)]
        with m.If(held.valid):
            m.d.sync += self.total.eq(self.total + held.change)
        return m
