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
from tests.contestants import DEFAULTS, NAMES, VARIANTS, capacities, contents, make, requires, with_settings
from tests.system.test_contract import filled, held
from tests.walk import walk

every_implementation = pytest.mark.parametrize(("name", "options"), DEFAULTS)
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS)
every_minimum = pytest.mark.parametrize("minimum", [False, True], ids=["", "minimum"])
every_shape = pytest.mark.parametrize(
    ("name", "options", "fanout"), with_settings(VARIANTS, [(k,) for k in (2, 7, 16)], {(16,)})
)
MINIMA = ("numpy", "numba")  # trees that keep a minimum
NAN = float("nan")


def some(rng, capacity):
    """Whole priorities ``[N]``, many of them 0."""
    return rng.integers(0, 4, capacity) * rng.integers(0, 2, capacity).astype(float)


@every_implementation
def test_a_tree_is_as_long_as_its_capacity_and_true(name, options):
    assert len(impls.make(name, 17, **options)) == 17
    assert impls.make(name, 1, **options)


# Sums of ranges


@every_shape
def test_sums_of_every_range_are_the_oracles(name, options, fanout):
    rng = np.random.default_rng(fanout)
    for capacity in capacities(fanout):
        tree, oracle = impls.make(name, capacity, fanout=fanout, **options), Oracle(capacity)
        values = some(rng, capacity)
        tree.update(np.arange(capacity), values)
        oracle.update(np.arange(capacity), values)
        marks = np.unique([0, 1, fanout, fanout**2, capacity // 2, capacity - 1, capacity])
        marks = marks[marks <= capacity]
        left, right = np.array(list(itertools.combinations_with_replacement(marks.tolist(), 2))).T
        assert to_numpy(tree.range_sum(left, right)).tolist() == oracle.range_sum(left, right).tolist()
        ends = np.arange(capacity + 1)
        assert to_numpy(tree.prefix_sum(ends)).tolist() == [0.0, *oracle.leaves.cumsum().tolist()]
        assert to_numpy(tree.prefix_sum(capacity)).tolist() == [tree.total()]


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


@every_minimum
@every_shape
def test_the_minimum_follows_every_update(name, options, fanout, minimum):
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
            assert tree.min() == oracle.min()
        tree.update(np.arange(capacity), 0.0)
        assert tree.min() == math.inf


@every_minimum
@every_variant
def test_the_minimum_survives_draws_states_copies_and_rebuilding(name, options, minimum):
    rng = np.random.default_rng(7)
    tree = impls.make(name, 300, minimum=minimum, **options)
    values = rng.integers(1, 9, 300).astype(float)
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


@pytest.mark.parametrize(("capacity", "fanout"), [(257, 16), (100, 3)])
@every_variant
def test_a_walk_with_a_minimum_kept(name, options, capacity, fanout):
    tree = impls.make(name, capacity, fanout=fanout, minimum=True, **options)
    walk(tree, seed=capacity, steps=80, integers=False, exact=options.get("propagate") != "delta")


@every_implementation
def test_a_minimum_of_groups_wider_than_a_vector(name, options):
    tree = impls.make(name, 1000, fanout=40, minimum=True, **options)
    for leaf in (999, 39, 0, 500):
        tree.update(np.arange(1000), 3.0)
        tree.update(leaf, 0.5)
        assert (tree.min(), tree.check()) == (0.5, 0.0)


@pytest.mark.parametrize("name", [name for name in NAMES if name in MINIMA])
def test_check_tells_a_minimum_that_is_off_and_rebuild_mends_it(name):
    tree = make(name, 100, minimum=True)
    tree.update(np.arange(100), np.arange(100.0))
    for minima in tree._minima:
        minima[0] += 2.0
        assert tree.check() > 0.0
        tree.rebuild()
        assert (tree.check(), tree.min()) == (0.0, 1.0)


@pytest.mark.parametrize("name", [name for name in NAMES if name in MINIMA])
def test_a_minimum_that_is_kept_is_read_without_the_leaves(name, monkeypatch):
    tree = make(name, 100, minimum=True)
    tree.update(np.arange(100), np.arange(100.0))
    monkeypatch.setattr(tree, "_all_leaves", None)
    assert tree.min() == 1.0


@every_variant
def test_a_refused_update_leaves_the_minimum(name, options):
    tree = filled(name, options, minimum=True)
    before = contents(tree)
    with pytest.raises(ValueError, match=r"-1\.0 at position 1"):
        tree.update([0, 1], [0.5, -1.0])
    assert contents(tree) == before
    assert tree.min() == 1.0


# The rule >=


@every_variant
def test_the_left_side_of_what_libraries_ask(name, options):
    tree = impls.make(name, 3, dtype="float64", **options)
    requires(tree, 0.1)
    tree.update([0, 2], 0.1)
    assert to_numpy(tree.prefix_sum_index([0.0, 5e-324, 0.1, np.nextafter(0.1, 1), 0.2], side="left")).tolist() == [
        *[0, 0, 0, 2, 2]
    ]
    tree.update(0, 0.0)
    assert to_numpy(tree.prefix_sum_index([0.0, 5e-324, 0.1], side="left")).tolist() == [0, 2, 2]
    assert to_numpy(tree.prefix_sum_index([0.0], "right")).tolist() == [2]


@every_variant
def test_the_left_side_of_a_tree_of_zeros_is_leaf_0_at_mass_0_and_nothing_else(name, options):
    tree = impls.make(name, 10, **options)
    assert to_numpy(tree.prefix_sum_index([0.0, 0], side="left")).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="nothing to sample"):
        tree.prefix_sum_index([0.0, 0.5], side="left")
    with pytest.raises(ValueError, match=r"-0.5 at position 0 is outside \[0, 0.0\]"):
        tree.prefix_sum_index(-0.5, side="left")


# Draws beside excluded leaves


@every_variant
def test_where_every_positive_leaf_is_excluded_there_is_nothing_to_sample(name, options):
    tree = filled(name, options)
    before = held(tree, name)
    for exclude in (np.arange(1, 10), np.arange(10)):
        with pytest.raises(RuntimeError, match="nothing to sample: no leaf but the excluded ones"):
            tree.sample([0.5, 0.25], exclude)
        assert held(tree, name) == before
        tree.synchronize()
    assert to_numpy(tree.sample(0.5)[0]).tolist() == [7]


# Arguments


@every_variant
def test_unchecked_questions_have_the_same_answers(name, options):
    trees = [filled(name, options, capacity=100, validate=validate) for validate in (True, False)]
    left, right = np.array([0, 3, 50]), np.array([100, 3, 99])
    for ask in (
        lambda tree: tree.prefix_sum(right),
        lambda tree: tree.range_sum(left, right),
        lambda tree: tree.prefix_sum_index(np.array([0.0, 1.0, 1.5, 4950.0]), "left"),
        lambda tree: tree.sample(np.array([0.0, 0.5]), np.array([1, 99, 99]))[0],
        lambda tree: tree.min(),
    ):
        checked, unchecked = (to_numpy(ask(tree)).tolist() for tree in trees)
        assert checked == unchecked


@every_implementation
def test_torchs_tensors_ask_as_arrays_do(name, options):
    torch = pytest.importorskip("torch")
    tree = filled(name, options)
    assert to_numpy(tree.prefix_sum(torch.tensor([0, 3, 10]))).tolist() == [0.0, 3.0, 45.0]
    assert to_numpy(tree.range_sum(torch.tensor(2), torch.tensor([4, 10], dtype=torch.int32))).tolist() == [5.0, 44.0]
    masses = torch.tensor([0.0, 1.0, 45.0], requires_grad=True)
    assert to_numpy(tree.prefix_sum_index(masses, side="left")).tolist() == [0, 1, 9]
    assert to_numpy(tree.sample(torch.tensor([0.0]), exclude=torch.tensor([1, 2]))[0]).tolist() == [3]


def test_a_compiled_tree_takes_torchs_memory_as_it_is():
    torch, numba_tree = pytest.importorskip("torch"), pytest.importorskip("impls.sumtree.numba_tree")
    indices, values = torch.arange(3), torch.rand(3, dtype=torch.float64, requires_grad=True)
    for tensor, dtype in ((indices, np.dtype(np.int64)), (values, np.dtype(np.float64))):
        assert numba_tree._as_batch(tensor, dtype).ctypes.data == tensor.data_ptr()
    tree = make("numba", 10)
    tree.update(indices, values)
    assert tree.get(indices).tolist() == values.detach().float().tolist()
    assert tree.get(torch.arange(6)[::2]).tolist() == tree.get([0, 2, 4]).tolist()
    assert tree.prefix_sum(torch.tensor(3)).tolist() == [tree.total()]
