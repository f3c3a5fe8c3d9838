"""What libraries ask a tree beside the draw: ranges, minima, the rule >=, draws beside excluded leaves; every tree."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest

import impls
from impls import to_numpy
from impls.sumtree.oracle import Oracle
from tests.contestants import NAMES, capacities, every_implementation, every_variant, make, requires
from tests.matrix import slow
from tests.system.test_contract import filled, held

every_fanout = pytest.mark.parametrize("fanouts", [(16,), slow((2, 7))], ids=["16", "2-7"])
MINIMA = ("numpy", "numba")  # trees that keep a minimum


# Sums of ranges


@every_fanout
@every_variant
def test_sums_of_every_range_are_the_oracles(name, options, fanouts):
    for fanout, capacity in [(each, capacity) for each in fanouts for capacity in capacities(each)]:
        rng = np.random.default_rng(fanout)
        tree, oracle = impls.make(name, capacity, fanout=fanout, **options), Oracle(capacity)
        values = rng.integers(0, 4, capacity) * rng.integers(0, 2, capacity).astype(float)
        tree.update(np.arange(capacity), values)
        oracle.update(np.arange(capacity), values)
        marks = np.unique([0, 1, fanout, fanout**2, capacity // 2, capacity - 1, capacity])
        marks = marks[marks <= capacity]
        left, right = np.array(list(itertools.combinations_with_replacement(marks.tolist(), 2))).T
        assert to_numpy(tree.range_sum(left, right)).tolist() == oracle.range_sum(left, right).tolist()
        ends = np.arange(capacity + 1)
        assert to_numpy(tree.prefix_sum(ends)).tolist() == [0.0, *oracle.leaves.cumsum().tolist()]


@every_variant
def test_a_tiny_range_behind_huge_leaves_keeps_its_digits(name, options):
    tree = impls.make(name, 300, fanout=4, dtype="float64", **options)
    requires(tree, 1e-9, 1e12)
    if options.get("propagate") == "delta":
        tree.update(np.arange(297, 300), 1e-9)
        tree.update(np.arange(200), 1e12)
    else:
        tree.update(np.arange(300), [*[1e12] * 200, *[0.0] * 97, *[1e-9] * 3])
    assert to_numpy(tree.range_sum([297, 298, 200, 299], 300)) == pytest.approx([3e-9, 2e-9, 3e-9, 1e-9], rel=1e-12)
    assert to_numpy(tree.range_sum(200, [297, 298])) == pytest.approx([0.0, 1e-9], rel=1e-12)


@every_implementation
def test_the_whole_range_is_the_total_bit_for_bit(name, options):
    rng = np.random.default_rng(5)
    for capacity in (1, 17, 300, 1000):
        tree = impls.make(name, capacity, fanout=3, dtype="float64", **options)
        tree.update(np.arange(capacity), rng.random(capacity))
        assert to_numpy(tree.range_sum(0, capacity)).tolist() == [tree.total()]
        assert to_numpy(tree.prefix_sum(capacity)).tolist() == [tree.total()]


# The minimum


@every_fanout
@every_variant
def test_the_minimum_follows_every_update(name, options, fanouts):
    for minimum, fanout in itertools.product((False, True), fanouts):
        rng = np.random.default_rng(fanout)
        for capacity in capacities(fanout):
            tree = impls.make(name, capacity, fanout=fanout, minimum=minimum, **options)
            oracle = Oracle(capacity, rounded=tree.rounded)
            assert tree.min() == math.inf
            for _ in range(8):
                where = rng.integers(0, capacity, rng.integers(1, 40))
                values = rng.choice([0.0, 0.25, 1.0, 3.0, 70.0], where.size)
                tree.update(where, values)
                oracle.update(where, values)
                assert tree.min() == oracle.min(), (minimum, fanout, capacity)
            tree.update(np.arange(capacity), 0.0)
            assert tree.min() == math.inf


@every_variant
def test_the_minimum_survives_draws_states_and_copies(name, options):
    for minimum in (False, True):
        tree = impls.make(name, 300, minimum=minimum, **options)
        values = np.random.default_rng(7).integers(1, 9, 300).astype(float)
        values[[17, 40]] = 0.5, 0.75
        tree.update(np.arange(300), values)
        tree.sample_distinct(np.linspace(0, 0.99, 200))
        assert tree.min() == 0.5
        tree.sample([0.5], exclude=[17])
        assert tree.min() == 0.5
        tree.rebuild()
        assert tree.min() == 0.5
        for twin in (copy.copy(tree), pickle.loads(pickle.dumps(tree))):
            assert twin.min() == 0.5
            assert ("minimum=True" in repr(twin)) == minimum
            twin.update(17, 0.0)
            assert (twin.min(), tree.min()) == (0.75, 0.5)
        other = impls.make("numpy", 300, minimum=not minimum)
        other.load_state_dict(tree.state_dict())
        other.update(17, 2.0)
        tree.load_state_dict(other.state_dict())
        assert (tree.min(), other.min()) == (0.75, 0.75)


@every_implementation
def test_a_minimum_of_groups_wider_than_a_vector(name, options):
    tree = impls.make(name, 1000, fanout=40, minimum=True, **options)
    for leaf in (999, 39, 0, 500):
        tree.update(np.arange(1000), 3.0)
        tree.update(leaf, 0.5)
        assert (tree.min(), tree.check()) == (0.5, 0.0)


@pytest.mark.parametrize("name", [name for name in NAMES if name in MINIMA])
def test_a_kept_minimum_is_audited_and_read_without_leaves(name, monkeypatch):
    tree = make(name, 100, minimum=True)
    tree.update(np.arange(100), np.arange(100.0))
    for minima in tree._minima:
        minima[0] += 2.0
        assert tree.check() > 0.0
        tree.rebuild()
        assert (tree.check(), tree.min()) == (0.0, 1.0)
    monkeypatch.setattr(tree, "_all_leaves", None)
    assert tree.min() == 1.0


# The rule >=


@every_variant
def test_the_left_side_is_what_libraries_ask(name, options):
    tree = impls.make(name, 3, dtype="float64", **options)
    assert to_numpy(tree.prefix_sum_index([0.0, 0], side="left")).tolist() == [0, 0]  # of a tree of zeros
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.prefix_sum_index([0.0, 0.5], side="left")
    with pytest.raises(ValueError, match=r"-0.5 at position 0 is outside \[0, 0.0\]"):
        tree.prefix_sum_index(-0.5, side="left")
    tree.synchronize()
    requires(tree, 0.1)
    tree.update([0, 2], 0.1)
    masses = [0.0, 5e-324, 0.1, np.nextafter(0.1, 1), 0.2]
    assert to_numpy(tree.prefix_sum_index(masses, side="left")).tolist() == [0, 0, 0, 2, 2]
    tree.update(0, 0.0)
    assert to_numpy(tree.prefix_sum_index([0.0, 5e-324, 0.1], side="left")).tolist() == [0, 2, 2]
    assert to_numpy(tree.prefix_sum_index([0.0], "right")).tolist() == [2]


# Draws beside excluded leaves


@every_variant
def test_nothing_is_drawn_where_every_positive_leaf_is_excluded(name, options):
    tree = filled(name, options)
    before = held(tree, name)
    for exclude in (np.arange(1, 10), np.arange(10)):
        with pytest.raises(RuntimeError, match="nothing to sample"):
            tree.sample([0.5, 0.25], exclude)
        assert held(tree, name) == before
        tree.synchronize()
    assert to_numpy(tree.sample(0.5)[0]).tolist() == [7]
