"""The FPGA's twin: its format, bit for bit; what its hardware takes is told by laws, which have tests of their own."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impls
from impls.fpga.design import Design
from impls.fpga.model import OPS, Link
from impls.sumtree.oracle import Oracle

LINK = Link(lambda nbytes: 1e-9 * nbytes, lambda nbytes: 2e-9 * nbytes)


def leaves_of(tree):
    """Leaves as whole quanta, in Python integers."""
    return [int(p / tree.rounded(tree.smallest_priority)[()]) for p in tree.get(np.arange(tree.capacity))]


@given(data=st.data())
def test_sums_and_draws_are_those_of_integers(data):
    capacity, fanout = data.draw(st.integers(1, 60)), data.draw(st.sampled_from([2, 3, 16]))
    leaf_bits = data.draw(st.integers(1, 53))
    fraction_bits = data.draw(st.integers(0, leaf_bits))
    tree = impls.make(
        "fpga", capacity, fanout=fanout, dtype="float64", leaf_bits=leaf_bits, fraction_bits=fraction_bits
    )
    quanta = data.draw(st.lists(st.integers(0, 2**leaf_bits - 1), min_size=capacity, max_size=capacity))
    tree.update(np.arange(capacity), np.array(quanta, float) / 2**fraction_bits)
    assert leaves_of(tree) == quanta
    assert tree.total() == sum(quanta) / 2**fraction_bits
    assert tree.check() == 0.0
    ends = np.cumsum(np.array(quanta, object))
    for end in ends[:-1]:
        mass = int(end) / 2**fraction_bits
        if mass < tree.total() and int(mass * 2**fraction_bits) == end:
            assert tree.prefix_sum_index(mass)[0] == next(i for i, e in enumerate(ends) if e > end)


def test_indices_equal_the_oracles_for_priorities_that_fit():
    rng = np.random.default_rng(0)
    tree, oracle = impls.make("fpga", 5000, fanout=8, leaf_bits=18, fraction_bits=6), Oracle(5000)
    values = rng.integers(0, 2**18, 5000) / 2**6
    tree.update(np.arange(5000), values)
    oracle.update(np.arange(5000), values)
    mass = np.concatenate([rng.random(20_000) * oracle.total(), oracle.leaves.cumsum()[:-1]])
    assert np.array_equal(tree.prefix_sum_index(mass), oracle.prefix_sum_index(mass))


@pytest.mark.parametrize(
    ("rounding", "stored", "smallest"),
    [
        ("nearest", [0.0, 0.25, 0.25, 0.5], np.nextafter(np.float32(0.125), np.float32(1))),
        ("down", [0.0, 0.0, 0.25, 0.25], 0.25),
        ("up", [0.25, 0.25, 0.5, 0.5], np.finfo(np.float32).smallest_subnormal),
    ],
)
def test_rounding_and_the_smallest_priority_that_can_be_drawn(rounding, stored, smallest):
    tree = impls.make("fpga", 4, leaf_bits=6, fraction_bits=2, rounding=rounding)
    tree.update(np.arange(4), [0.125, 0.126, 0.3, 0.375])
    assert tree.get(np.arange(4)).tolist() == stored
    assert tree.smallest_priority == smallest
    tree.update(np.arange(4), 0.0)
    tree.update(2, smallest)
    assert tree.sample([0.0, 0.99])[0].tolist() == [2, 2]
    below = np.nextafter(np.float32(smallest), np.float32(0))
    tree.update(2, below)
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.sample(0.5)


def test_what_exceeds_the_format_is_refused_with_its_bound():
    tree = impls.make("fpga", 10, leaf_bits=8, fraction_bits=4)
    assert tree.largest_priority == 255 / 16
    tree.update(3, 255 / 16)
    with pytest.raises(ValueError, match=r"priority 16\.0 at position 1 is outside \[0, 15\.9375\]"):
        tree.update([3, 4], [1.0, 16.0])
    assert tree.get([3, 4]).tolist() == [255 / 16, 0.0]
    assert impls.make("fpga", 10, leaf_bits=53, fraction_bits=0).largest_priority == 2.0**53 - 2**29  # a float32
    assert impls.make("fpga", 10, leaf_bits=53, fraction_bits=0, dtype="float64").largest_priority == 2.0**53 - 1


@pytest.mark.parametrize("capacity", [1, 2, 1000, 1_000_000, 10_000_000])
def test_by_default_a_leaf_holds_a_million(capacity):
    tree = impls.make("fpga", capacity)
    tree.update(capacity - 1, 1_000_000)
    assert tree.total() == 1_000_000
    assert tree.rounded(tree.smallest_priority) <= 2.0**-20
    assert tree.design.leaf_bits + (capacity - 1).bit_length() <= 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaf_bits": 0}, "leaf_bits must be at least 1"),
        ({"leaf_bits": 54}, "leaf_bits must be at most 53 at 1000 leaves, not 54"),
        ({"fraction_bits": -1}, "fraction_bits must be at least 0"),
        ({"fraction_bits": 127}, "fraction_bits must be at most 126, not 127"),
        ({"rounding": "near"}, "did you mean 'nearest'"),
        ({"micro": "wode"}, "did you mean 'wide'"),
        ({"ports": "dul"}, "did you mean 'dual'"),
        ({"banks": 0}, "banks must be at least 1"),
        ({"banks": 1001}, "1001 banks cannot share 1000 leaves"),
        ({"banking": "striped"}, "banking must be one of 'contiguous', 'interleaved'"),
        ({"clock_hz": 0}, "clock_hz must be above 0"),
        ({"law": "printed"}, "law must be one of 'rtl', 'published', 'pearl'"),
    ],
)
def test_options_that_make_no_hardware_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        impls.make("fpga", 1000, **options)


@pytest.mark.parametrize("law", ["rtl", "published", "pearl"])
@pytest.mark.parametrize("op", OPS)
def test_every_operation_has_a_time_and_it_grows_with_the_batch(op, law):
    tree = impls.make("fpga", 5000, law=law, link=LINK)
    tree.update(np.arange(5000), 1.0)
    short, long = tree.modeled_seconds(op, 32), tree.modeled_seconds(op, 4096)
    assert 0 < short <= long < 1e-3
    assert tree.ledger(op, 32).seconds == short
    assert tree.modeled_seconds(op, 0) in (0.0, 5e-9)
    flat = op == "total" or (law == "pearl" and op in ("update", "insert", "get"))
    assert (short == long) == flat


def test_unknown_operations_and_batches_are_refused():
    tree = impls.make("fpga", 10)
    with pytest.raises(ValueError, match=r"op must be one of .* did you mean 'sample'"):
        tree.modeled_seconds("smaple", 4)
    with pytest.raises(ValueError, match="batch must be at least 0"):
        tree.modeled_seconds("sample", -4)


def test_times_follow_the_leaves_there_are():
    """A buffer a tenth full keeps one contiguous bank in ten busy, interleaved ones all."""
    seconds = {}
    for banking in ("contiguous", "interleaved"):
        tree = impls.make("fpga", 32_000, banking=banking)
        tree.update(np.arange(3200), 1.0)
        seconds[banking] = tree.modeled_seconds("sample", 1024)
        tree.update(np.arange(32_000), 1.0)
        assert tree.ledger("sample", 1024).busiest == pytest.approx(44, abs=2)
    assert seconds["contiguous"] > 5 * seconds["interleaved"]


def test_transfers_take_what_the_link_takes_of_a_copy_too():
    tree = impls.make("fpga", 100, link=LINK)
    for one in (tree, copy.deepcopy(tree)):
        assert (one.modeled_seconds("upload", 4), one.modeled_seconds("download", 4)) == (32e-9, 64e-9)
    with pytest.raises(ValueError, match="give link="):
        impls.make("fpga", 100).modeled_seconds("upload", 4)


def test_a_copy_is_the_same_hardware():
    tree = impls.make(
        "fpga", 100, fanout=4, leaf_bits=20, rounding="up", micro="scan", banks=4, law="pearl", ports="dual"
    )
    tree.update(np.arange(100), np.linspace(0, 9, 100))
    other = copy.deepcopy(tree)
    assert other.design == tree.design == Design(100, 4, 20, "scan", 4, "interleaved", ports="dual")
    assert np.array_equal(other.get(np.arange(100)), tree.get(np.arange(100)))
    assert other.modeled_seconds("step", 64) == tree.modeled_seconds("step", 64)
    assert other.smallest_priority == tree.smallest_priority
