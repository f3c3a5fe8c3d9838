"""What each sample of an RMM reads while updates are under way, cycle by cycle, in plain Python; see ``rtl/``.

An update that a bank takes in cycle t changes level l at the end of cycle t + 1 + l, the root (level L) included: a
read in that cycle has the old value. A sample that a bank takes in cycle t reads level l in cycle t + 2 (L - 1 - l),
where all siblings are in a row, else sibling j in cycle t + (K + 1) (L - 1 - l) + j.

In a group, a sample goes to the last child whose sum is above 0 and that begins at or below the rest of its prefix
value, or to the first child where all are 0; a rest above what a node's register holds is the largest that it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from impls.fpga import cycles
from impls.fpga.design import Design


@dataclass(frozen=True)
class Sampled:
    """A sample's leaf, the priority read with it, the cycle from its batch's start in which both are there."""

    leaf: int
    priority: int
    after: int
    overtaken: bool
    """Whether some group it read summed to no more than the rest of its prefix value."""


def take(design: Design, op: str, start: int, banks: Sequence[int]) -> list[int]:
    """Cycles in which banks take elements that come S a cycle from ``start`` on, each given by its bank."""
    free, taken = [0] * design.banks, []
    for place, bank in enumerate(banks):
        at = max(start + place // design.banks + cycles.dispatch(design), free[bank])
        # Invariant: a bank is free from the cycle on in which it could take another element.
        free[bank] = at + cycles.interval(design, op)
        taken.append(at)
    return taken


class Overlapped:
    """A tree, all of whose nodes are known in every cycle from the updates ``(leaf, value)`` that come from ``start``.

    ``tree`` has every bank's levels, leaves first, before the first update.
    """

    def __init__(
        self, design: Design, tree: Sequence[Sequence[Sequence[int]]], updates: Sequence[tuple[int, int]], start: int
    ) -> None:
        self.design, self.tree = design, tree
        places = [design.bank_of(leaf) for leaf, _ in updates]
        self.update_cycles = take(design, "update", start, [bank for bank, _ in places])
        leaves = {place: tree[place[0]][0][place[1]] for place in places}
        self.changes = []
        for at, place, (_, value) in zip(self.update_cycles, places, updates, strict=True):
            self.changes.append((at, *place, value - leaves[place]))
            leaves[place] = value

    def node(self, bank: int, level: int, node: int, now: int) -> int:
        """Value that a read of a node in a cycle gets: every update that has changed it by then."""
        spread = self.design.fanout**level
        held = self.tree[bank][level]
        return (held[node] if node < len(held) else 0) + sum(
            change
            for at, other, leaf, change in self.changes
            if other == bank and leaf // spread == node and at + 1 + level < now
        )

    def totals(self, now: int) -> list[int]:
        """Banks' totals as the dispatcher has them in a cycle, one cycle late."""
        return [self.node(bank, self.design.levels, 0, now - 1) for bank in range(self.design.banks)]

    def sample(self, masses: Sequence[int], start: int) -> list[Sampled]:
        """Samples of prefix values that come from ``start`` on, S a cycle."""
        banks = [self.bank_of(mass, start + place // self.design.banks) for place, mass in enumerate(masses)]
        taken = take(self.design, "sample", start, banks)
        drawn = zip(masses, banks, taken, strict=True)
        return [self.descend(mass, bank, at, start) for mass, bank, at in drawn]

    def bank_of(self, mass: int, now: int) -> int:
        """The last bank that begins at or before the prefix value, up to the last whose total is above 0."""
        totals = self.totals(now)
        last = max((bank for bank, total in enumerate(totals) if total), default=0)
        return max(bank for bank in range(last + 1) if not bank or sum(totals[:bank]) <= mass)

    def descend(self, mass: int, bank: int, taken: int, start: int) -> Sampled:
        """Take a sample from the root of its bank, which takes it in a cycle, down to a leaf."""
        design, node, overtaken = self.design, 0, False
        fanout, wide = design.fanout, design.micro == "wide"
        before = sum(self.totals(taken)[:bank]) if design.banks > 1 else 0
        rest, priority = min(max(mass - before, 0), (1 << design.widths[-1]) - 1), 0
        for level in reversed(range(design.levels)):
            read = taken + (2 if wide else fanout + 1) * (design.levels - 1 - level)
            children = range(node * fanout, (node + 1) * fanout)
            sums = [
                self.node(bank, level, child, read + (0 if wide else digit)) for digit, child in enumerate(children)
            ]
            overtaken |= rest >= sum(sums)
            opens = [digit for digit in range(fanout) if sums[digit] and sum(sums[:digit]) <= rest]
            digit = max(opens, default=0)
            rest = min(rest - sum(sums[:digit]), (1 << design.widths[level]) - 1)
            node, priority = node * fanout + digit, sums[digit]
        contiguous = design.banking == "contiguous"
        leaf = bank * design.bank_capacity + node if contiguous else node * design.banks + bank
        return Sampled(leaf, priority, taken - start + cycles.fill(design, "sample"), overtaken)
