"""Pipeline that takes samples from the root to the leaves: a stage a level, so L samples are under way at once.

A stage finds the child whose interval has the sample's prefix value (``mass``): the first whose prefix sum is above it,
so that a child of 0 is never sampled. The last stage, which has read the leaf's word, passes that on in place of a
prefix value, so that a sample comes with its priority.

Where updates overlap, a group may have changed since its parent was read, and sum to no more than the rest: a sample
then goes to the last child whose sum is above 0, or to the first child if all are 0. So it ends at a leaf that exists.
"""
# Invariant: a sample at a node carries the rest of its prefix value within that node, 0 <= mass, and mass < sum of the
# node where no update overlaps; a rest too large for the register is the largest that it holds.

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from impls.fpga.design import Design

from .nodes import child, narrow, node_bits, prefix_sums, read_signature, saturate


def sample_layout(design: Design, level: int, tag_bits: int) -> data.StructLayout:
    """A sample at a node of a level: with the rest of its prefix value, and at a leaf with that leaf's priority."""
    carried = {"mass": design.widths[level]} if level else {"priority": design.leaf_bits}
    return data.StructLayout({"valid": 1, "node": node_bits(design, level), **carried, "tag": tag_bits})


class Stage(wiring.Component):
    """A step from a node of ``level + 1`` to one of its children. ``taken`` is taken in any cycle with ``ready``."""

    def __init__(self, design: Design, level: int, tag_bits: int) -> None:
        super().__init__(
            {
                "taken": In(sample_layout(design, level + 1, tag_bits)),
                "ready": Out(1),
                "given": Out(sample_layout(design, level, tag_bits)),
                "read": Out(read_signature(design, level)),
            }
        )
        self.fanout, self.at_leaves, self.overlaps = design.fanout, level == 0, design.overlaps
        self.bits = design.widths[level]


class WideStage(Stage):
    """Stage that compares all K siblings at once: a sample a cycle, 2 cycles each.

    Cycle 0 reads the row; cycle 1 subtracts every prefix sum from the prefix value and keeps the last rest that is not
    negative, or the word it belongs to.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(self.taken.shape())
        words = [self.read.row[word] for word in range(self.fanout)]
        rests = [held.mass]
        for index, total in enumerate(prefix_sums(words[:-1]), 1):
            rest = Signal((held.mass - total).shape(), name=f"rest_{index}")
            m.d.comb += rest.eq(held.mass - total)
            rests.append(rest)
        open_ = [
            ~rest[-1] & word.any() if self.overlaps else ~rest[-1] for rest, word in zip(rests, words, strict=True)
        ]
        digit, kept = narrow(open_, words if self.at_leaves else rests, nested=not self.overlaps)
        if self.overlaps and not self.at_leaves:
            kept = saturate(kept, self.bits)
        m.d.comb += [self.ready.eq(1), self.read.enable.eq(self.taken.valid), self.read.address.eq(self.taken.node)]
        m.d.sync += [
            held.eq(self.taken),
            self.given.valid.eq(held.valid),
            self.given.node.eq(child(self.fanout, held.node, digit)),
            (self.given.priority if self.at_leaves else self.given.mass).eq(kept),
            self.given.tag.eq(held.tag),
        ]
        return m


class ScanStage(Stage):
    """Stage that looks at one sibling a cycle: a sample every K cycles, K + 1 cycles each.

    Cycle 0 reads sibling 0; cycle 1 + j has sibling j and reads the next one, which after the last is sibling 0 of the
    next sample. The scan goes on past the child that was found, so that every sample takes equally long.
    """

    def elaborate(self, platform: object) -> Module:
        m = Module()
        held = Signal(self.taken.shape())
        sibling = Signal(range(self.fanout))
        chosen = Signal(range(self.fanout))
        seeking = Signal()
        last = Signal()
        passed = Signal()
        rest = Signal.like(held.mass)
        word = self.read.row[0]
        m.d.comb += [
            last.eq(sibling == self.fanout - 1),
            self.ready.eq(~held.valid | last),
            # Invariant: held.mass is the prefix value less the siblings passed, ``chosen`` of them so far.
            # Once the child is found, nothing more is passed.
            passed.eq(seeking & (held.mass >= word)),
            rest.eq(Mux(passed, held.mass - word, held.mass)),
            self.read.enable.eq(Mux(self.ready, self.taken.valid, 1)),
            self.read.address.eq(
                Mux(
                    self.ready,
                    child(self.fanout, self.taken.node, Const(0, sibling.shape())),
                    child(self.fanout, held.node, sibling + 1),
                )
            ),
        ]
        found = [] if self.overlaps else [self.given.node.eq(child(self.fanout, held.node, chosen + passed))]
        m.d.sync += [self.given.valid.eq(held.valid & last), *found, self.given.tag.eq(held.tag)]
        if self.overlaps:
            # The last word above 0 read while seeking is the child's; the first is taken for the case that none is.
            with m.If(seeking & (word.any() | (sibling == 0))):
                carried = (
                    self.given.priority.eq(word)
                    if self.at_leaves
                    else self.given.mass.eq(saturate(held.mass, self.bits))
                )
                m.d.sync += [self.given.node.eq(child(self.fanout, held.node, sibling)), carried]
        if not self.overlaps and not self.at_leaves:
            m.d.sync += self.given.mass.eq(rest)
        elif not self.overlaps:
            # The last word read while seeking is the child's, and it stays until the sample is passed on.
            with m.If(seeking):
                m.d.sync += self.given.priority.eq(word)
        with m.If(self.ready):
            m.d.sync += [held.eq(self.taken), sibling.eq(0), chosen.eq(0), seeking.eq(1)]
        with m.Else():
            m.d.sync += [held.mass.eq(rest), sibling.eq(sibling + 1), chosen.eq(chosen + passed), seeking.eq(passed)]
        return m


STAGES = {"scan": ScanStage, "wide": WideStage}


class Sampler(wiring.Component):
    """L stages in a row, without the memories, which they read through ``read_l``.

    Only the first stage can be busy when a sample comes: samples leave a stage no closer together than the next one
    takes them. The sampled leaf is ``given.node``, its priority ``given.priority``.
    """

    def __init__(self, design: Design, tag_bits: int) -> None:
        self.stages = [STAGES[design.micro](design, level, tag_bits) for level in range(design.levels)]
        super().__init__(
            {
                "taken": In(sample_layout(design, design.levels, tag_bits)),
                "ready": Out(1),
                "given": Out(sample_layout(design, 0, tag_bits)),
            }
            | {f"read_{level}": Out(read_signature(design, level)) for level in range(design.levels)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        sample = self.taken
        for level, stage in reversed(list(enumerate(self.stages))):
            m.submodules[f"stage_{level}"] = stage
            connect(m, stage.read, flipped(getattr(self, f"read_{level}")))
            m.d.comb += stage.taken.eq(sample)
            sample = stage.given
        m.d.comb += [self.ready.eq(self.stages[-1].ready), self.given.eq(sample)]
        return m
