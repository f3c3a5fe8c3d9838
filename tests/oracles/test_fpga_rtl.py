"""The simulated RMM against a plain tree and against the cycle laws: indices, priorities, sums, cycles, all equal."""

import json
import random
from collections import Counter
from dataclasses import replace
from itertools import accumulate, product

import pytest

from impls.fpga import cycles, resources
from impls.fpga.design import BANKINGS, MICROS, PORTS, Design
from impls.levels import level_sizes

pytest.importorskip("amaranth", reason="amaranth is not installed; it comes with the extra rtl")

from tests.matrix import slow
from tests.oracles.fpga_overlap import Overlapped
from tests.oracles.rtl import placed
from tests.oracles.rtl.simulate import simulate

FANOUTS = (2, 3, 4, 8, 16)
BATCHES = (1, 2, 32, 256)
BANKS = (1, 2, 4)


def tree_of(design, leaves):
    """Every bank's levels of sums, leaves first, of leaves in the order of their indices."""
    banks = [[0] * design.bank_capacity for _ in range(design.banks)]
    for leaf, value in enumerate(leaves):
        bank, place = design.bank_of(leaf)
        banks[bank][place] = value
    return tuple(tuple(map(tuple, _levels(design, values))) for values in banks)


def _levels(design, values):
    levels = [values]
    for size in design.sizes[1:]:
        levels.append([sum(levels[-1][node * design.fanout :][: design.fanout]) for node in range(size)])
    return levels


def drawn(design, leaves, masses):
    """The first leaf, by banks and within them, whose inclusive prefix sum is above the prefix value."""
    order = sorted(range(design.capacity), key=design.bank_of)
    sums = list(accumulate(leaves[leaf] for leaf in order))
    return tuple(order[next(place for place, total in enumerate(sums) if total > mass)] for mass in masses)


def check(design, leaves, updates, gets, masses):
    """AssertionError unless the hardware, with these leaves, does with each batch what the laws say."""
    batches = {"updates": updates, "gets": gets, "masses": masses}
    run = simulate(design, tree=tree_of(design, leaves), **batches)
    after = dict(enumerate(leaves)) | dict(updates)
    assert run.tree == tree_of(design, after.values()), "the sums are others"
    assert run.tree_left == run.tree, "what only reads has written"
    assert run.leaves == drawn(design, after, masses), "the leaves drawn are others"
    assert run.priorities == tuple(after[leaf] for leaf in run.leaves), "the priorities drawn are others"
    assert all(priority > 0 for priority in run.priorities)
    assert run.got == tuple(after[leaf] for leaf in gets), "the priorities retrieved are others"
    for taken, op, banks in cycles_of(design, run, updates, gets):
        assert taken == cycles.count_queued_cycles(design, op, banks), "the cycles are others"
        busiest = cycles.count_cycles(design, op, max(Counter(banks).values(), default=0))
        assert taken == busiest if len(set(banks)) <= 1 else taken >= busiest, "the busiest bank's law is off"


def cycles_of(design, run, updates, gets=()):
    """(cycles that a batch took, its operation, the banks of its elements)."""
    taken = run.update_cycles, run.get_cycles, run.sample_cycles
    for spent, op, leaves in zip(
        taken, ("update", "get", "sample"), ([leaf for leaf, _ in updates], gets, run.leaves), strict=True
    ):
        yield spent, op, [design.bank_of(leaf)[0] for leaf in leaves]


def random_batches(design, batch, seed=0):
    """Leaves, every other one 0 or so; updates and retrievals that repeat some; masses, those at the ends included."""
    rng = random.Random(seed)
    leaves = [rng.randrange(2) * rng.randrange(1 << design.leaf_bits) for _ in range(design.capacity)]
    updates = [
        (rng.randrange(design.capacity), rng.randrange(2) * rng.randrange(1 << design.leaf_bits)) for _ in range(batch)
    ]
    updates[-1] = (updates[0][0], 1)
    gets = [rng.choice((updates[0][0], rng.randrange(design.capacity))) for _ in range(batch)]
    total = sum((dict(enumerate(leaves)) | dict(updates)).values())
    masses = [*[0, total - 1][:batch], *(rng.randrange(total) for _ in range(batch - 2))]
    return leaves, updates, gets, masses


def shapes():
    """Every fanout of both micros at eight capacities; banks, bankings and batches take turns."""
    turns = list(product(BANKS, BATCHES, BANKINGS))
    for number, (micro, fanout, size) in enumerate(product(MICROS, FANOUTS, range(8))):
        banks, batch, banking = turns[number * 7 % len(turns)]
        capacity = (banks, fanout, fanout + 1, fanout**2 - 1, 97, 300, 1000, 4096 if fanout > 2 else 600)[size]
        leaf_bits = (12, 18, 33)[number % 3]
        yield Design(max(capacity, banks), fanout, leaf_bits, micro, banks, banking), batch


FIRST = {
    (design.micro, design.banks, batch, design.banking): (design, batch) for design, batch in reversed(list(shapes()))
}  # of each kind; the others are for `make test-all`


@pytest.mark.parametrize(("design", "batch"), [one if one in FIRST.values() else slow(*one) for one in shapes()])
def test_hardware_does_what_the_laws_say(design, batch):
    check(design, *random_batches(design, batch))


def test_the_shapes_meet_every_banking_batch_and_number_of_banks():
    assert FIRST.keys() == set(product(MICROS, BANKS, BATCHES, BANKINGS))
    assert len(list(shapes())) >= 60


@pytest.mark.parametrize(
    ("design", "batch"), [slow(*one) if place % 2 else one for place, one in enumerate(FIRST.values())]
)
def test_designs_that_overlap_do_too(design, batch):
    check(replace(design, ports=PORTS[1 + batch % 2]), *random_batches(design, batch))
    check(replace(design, ports=PORTS[2 - batch % 2]), *random_batches(design, min(batch, 40), seed=1))


def program(seed):
    """A design that overlaps, its leaves, updates, masses, and the cycles by which the samples come later."""
    rng = random.Random(seed)
    banks, leaf_bits = rng.choice((1, 1, 2, 3, 4)), rng.choice((2, 6, 12))
    capacity, ports = max(banks, rng.choice((1, 2, 5, 9, 17, 40, 64))), rng.choice(PORTS[1:])
    design = Design(
        capacity, rng.choice((2, 3, 4, 8)), leaf_bits, rng.choice(MICROS), banks, rng.choice(BANKINGS), ports=ports
    )
    most, few = 1 << leaf_bits, rng.random() / 2
    leaves = [rng.randrange(1, most) * (rng.random() > few) for _ in range(capacity)]
    leaves[rng.randrange(capacity)], zeros = 1, rng.random()
    places = (rng.randrange(capacity) for _ in range(rng.choice((0, 1, 5, 30, 80))))
    updates = [(leaf, rng.randrange(most) * (rng.random() > zeros)) for leaf in places]
    total = sum(leaves)
    masses = [rng.choice((rng.randrange(total), total - 1, 0, total)) for _ in range(rng.choice((1, 5, 30, 80)))]
    return design, leaves, updates, masses, rng.randrange(-30, 40)


def overlap(design, leaves, updates, masses, lead):
    """Run a program beside its plain model; the samples by that, once both are equal."""
    tree, after = tree_of(design, leaves), dict(enumerate(leaves)) | dict(updates)
    run = simulate(design, tree=tree, updates=updates, masses=masses, lead=lead)
    expected = Overlapped(design, tree, updates, max(0, -lead)).sample(masses, max(0, lead))
    drawn = zip(run.leaves, run.priorities, run.drawn_after, strict=True)
    assert list(drawn) == [(sample.leaf, sample.priority, sample.after) for sample in expected], (
        "the samples are others"
    )
    assert run.tree == run.tree_left == tree_of(design, after.values()), "the sums are others"
    for taken, op, banks in cycles_of(design, run, updates):
        assert taken == cycles.count_queued_cycles(design, op, banks), "a batch slows the other down"
    return expected


PROGRAMS = 200


@pytest.mark.parametrize("first", [0, *(slow(first) for first in range(20, PROGRAMS, 20))])
def test_samples_beside_updates_are_those_of_the_plain_model(first):
    """They end at a priority of 0 only for want of another in its group."""
    for seed in range(first, first + 20):
        design, *rest = program(seed)
        for sample in overlap(design, *rest):
            assert 0 <= sample.leaf < design.capacity
            assert sample.priority or sample.overtaken, "a leaf of 0 beside another above 0"


class TestOverlap:
    """A sample next to an update, cycle by cycle."""

    @pytest.mark.parametrize(("micro", "ports"), list(product(MICROS, PORTS[1:])))
    def test_a_word_read_while_it_is_written_is_the_old_one(self, micro, ports):
        """An update writes the leaf in cycle 1; the sample, taken in cycle 0, 1 or 2, reads it then."""
        design = Design(2, 2, 4, micro, ports=ports)
        priorities = {lead: overlap(design, [3, 0], [(0, 9)], [0], lead)[0].priority for lead in range(3)}
        assert priorities == {0: 3, 1: 3, 2: 9}

    @pytest.mark.parametrize("micro", MICROS)
    def test_a_sample_of_a_group_that_is_now_0_has_its_first_leaf(self, micro):
        design = Design(4, 2, 4, micro, ports="copied")
        sampled = overlap(design, [0, 0, 0, 5], [(3, 0)], [4], 1)
        assert [(sample.leaf, sample.priority) for sample in sampled] == [(2, 0)]

    @pytest.mark.parametrize("micro", MICROS)
    @pytest.mark.parametrize("banks", [1, 2, 4])
    def test_a_mass_at_or_above_the_total_has_the_last_leaf_above_0(self, micro, banks):
        design = Design(10, 2, 4, micro, banks, ports="dual")
        assert {sample.leaf for sample in overlap(design, [1, 2, 3, *[0] * 7], [], [6, 7, 30], 0)} == {2}


@pytest.mark.parametrize(("micro", "banks", "banking"), list(product(MICROS, BANKS, BANKINGS)))
class TestBatches:
    """Batches that are not random."""

    def design(self, micro, banks, banking):
        return Design(30, 4, 8, micro, banks, banking)

    def test_of_one_leaf(self, micro, banks, banking):
        design = self.design(micro, banks, banking)
        check(design, [0] * 30, [(7, value) for value in range(20, 0, -1)], [7] * 20, [0] * 20)

    def test_of_one_bank(self, micro, banks, banking):
        design = self.design(micro, banks, banking)
        there = [leaf for leaf in range(30) if design.bank_of(leaf)[0] == banks - 1]
        check(design, [0] * 30, [(leaf, leaf + 1) for leaf in there], there, range(0, sum(there) + len(there), 7))

    def test_of_every_boundary_with_all_leaves_as_large_as_can_be(self, micro, banks, banking):
        design = self.design(micro, banks, banking)
        ends = [leaf * 255 for leaf in range(31)]
        check(design, [255] * 30, [(29, 0), (29, 255)], range(30), [*ends[:-1], *(end - 1 for end in ends[1:])])

    def test_of_nothing(self, micro, banks, banking):
        design = self.design(micro, banks, banking)
        check(design, [1] * 30, [], [29], [3])
        check(design, [0] * 30, [(29, 1)], [], [0])
        check(design, [0] * 30, [(29, 1)], [29], [])

    def test_in_which_banks_take_turns(self, micro, banks, banking):
        """So that a bank starves between two elements, and the busiest bank's law is a bound only."""
        design = self.design(micro, banks, banking)
        order = sorted(range(30), key=lambda leaf: (design.bank_of(leaf)[0] + leaf // 10) % banks)
        check(design, [1] * 30, [(leaf, 2) for leaf in order], order, [59, *range(0, 60, 3), 59])


@pytest.mark.slow
@pytest.mark.parametrize("micro", MICROS)
@pytest.mark.parametrize(
    ("capacity", "fanout", "banks"), [(65536, 2, 1), (65536, 16, 8), (50000, 3, 4), (40000, 5, 3), (4096, 2, 2)]
)
def test_larger_hardware_does_what_the_laws_say(micro, capacity, fanout, banks):
    for number, banking in enumerate(BANKINGS[: 2 if banks > 1 else 1]):
        design = Design(capacity, fanout, 18, micro, banks, banking)
        check(design, *random_batches(design, 256, seed=number))


def test_levels_are_those_of_the_other_trees():
    assert Design(300, 4, banks=4).sizes == level_sizes(75, 4)


# Trees placed on an ECP5

RECORDS = json.loads(placed.OUT.read_text())


def check_placed(record):
    """AssertionError unless the law foretells the block RAMs of a record, and cells and clocks are there."""
    design = Design(**record["design"])
    assert record["used"]["DP16KD"] == placed.count_blocks(design)
    cells, law = record["used"]["TRELLIS_COMB"], resources.rmm(design, record["batch"], uram=False)
    assert law.fitted_luts() / 2 < cells < 4 * law.fitted_luts(), "tables of 4 inputs for those of 6"
    assert record["used"]["TRELLIS_FF"] == pytest.approx(law.ff, rel=0.5)
    assert record["fmax_mhz"] == max(record["mhz_by_seed"].values()) > 10


def test_every_design_was_placed_with_the_block_rams_of_the_law():
    for record in RECORDS:
        check_placed(record)
    assert [record["design"] for record in RECORDS] == [placed.describe(design) for design in placed.DESIGNS]
    assert {design.micro for design in placed.DESIGNS} == set(MICROS)
    assert {design.ports for design in placed.DESIGNS} == set(PORTS)
    assert all(len(record["mhz_by_seed"]) >= 2 and record["tools"]["nextpnr"] for record in RECORDS)


def test_a_missing_tool_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert placed.main() == 1
    assert "extra place" in capsys.readouterr().err


@pytest.mark.skipif(placed.find_tool() is None, reason="nextpnr-ecp5 is not installed; it comes with the extra place")
def test_a_small_tree_is_placed_as_the_law_says():
    check_placed(placed.place(Design(512, 8, 8, "scan"), placed.find_tool()))
