"""The twelve rules of the contract, for every implementation in the registry with each of its options."""

import copy
import itertools
import pickle
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import impls
from impls import to_numpy
from impls.levels import level_sizes
from impls.sumtree.oracle import Oracle
from tests.contestants import NAMES, capacities, contents, every_implementation, every_variant, requires, variants_of
from tests.matrix import slow

DTYPES = ("float32", "float64")
EPSILON = 2.0**-52
INF, NAN = float("inf"), float("nan")


def filled(name, options, capacity=10, **settings):
    """Leaf i has priority i."""
    tree = impls.make(name, capacity, **settings, **options)
    tree.update(np.arange(capacity), np.arange(capacity, dtype=float))
    return tree


# Rule 1 and equality: integer priorities, every integer prefix value, every listed capacity


@pytest.mark.parametrize("fanouts", [(2, 3, 16, 64), slow((4, 7, 8, 32))], ids=["brief", "more"])
@every_implementation
def test_integer_priorities_give_the_oracles_bits(name, options, fanouts):
    for fanout, capacity in [(each, capacity) for each in fanouts for capacity in capacities(each)]:
        rng = np.random.default_rng(fanout)
        tree, oracle = impls.make(name, capacity, fanout=fanout, **options), Oracle(capacity)
        for _ in range(3):
            where = rng.integers(0, capacity, min(capacity, 500))
            values = rng.integers(0, 4, where.size)
            tree.update(where, values)
            oracle.update(where, values)
            assert (tree.total(), tree.check()) == (oracle.total(), 0.0), (fanout, capacity)
            if oracle.total() == 0:
                continue
            ends = np.unique(oracle.leaves.cumsum())
            # Both sides of every boundary, and between.
            mass = np.concatenate([[0.0], ends, ends - 1, ends - 0.5, np.nextafter(ends, 0)])
            mass = mass[(mass >= 0) & (mass < oracle.total())]
            found = tree.prefix_sum_index(mass)
            assert np.array_equal(found, oracle.prefix_sum_index(mass)), (fanout, capacity)


@every_implementation
def test_a_million_leaves(name, options):
    capacity = 100_000 if name == "python" else 1_000_000  # which has as many levels
    rng = np.random.default_rng(6)
    values = rng.integers(0, 8, capacity)
    tree, oracle = impls.make(name, capacity, **options), Oracle(capacity)
    tree.update(np.arange(capacity), values)
    oracle.leaves[:] = values
    mass = rng.integers(0, int(oracle.total()), 2_000).astype(float)
    assert tree.total() == oracle.total()
    assert np.array_equal(tree.prefix_sum_index(mass), oracle.prefix_sum_index(mass))


@every_variant
def test_mass_zero_skips_a_zero_leaf(name, options):
    tree = filled(name, options)
    assert tree.prefix_sum_index(0.0).tolist() == [1]
    assert tree.sample(0.0)[0].tolist() == [1]
    assert tree.prefix_sum_index([0.0, 0.999, 1.0, 2.999, 3.0, 44.999]).tolist() == [1, 1, 2, 2, 3, 9]


# Rule 2: the fall-off guard


@every_variant
def test_rounding_past_the_last_child(name, options):
    tree = impls.make(name, 4, fanout=4, dtype="float64", **options)
    requires(tree, EPSILON)
    tree.update([0, 1], [1.5 * EPSILON, 1 + 2 * EPSILON])
    assert tree.prefix_sum_index(np.nextafter(tree.total(), 0)).tolist() == [1]
    assert tree.sample(np.nextafter(1.0, 0))[0].tolist() == [1]


@every_variant
def test_an_emptied_tree_has_nothing_to_sample(name, options):
    tree = impls.make(name, 20, fanout=4, dtype="float64", **options)
    for leaf, priority in ((3, 0.1), (4, 0.2), (5, 0.3), (3, 0.0), (4, 0.0), (5, 0.0)):
        tree.update(leaf, priority)  # one at a time: a device may add the deltas of a batch in any order
    assert (tree.total() != 0.0) == (options.get("propagate") == "delta")
    for call in (lambda: tree.sample(0.5), lambda: tree.prefix_sum_index(0.0)):
        with pytest.raises(RuntimeError, match="nothing to sample"):
            call()


@every_variant
def test_a_root_below_zero_still_has_its_positive_leaf(name, options):
    tree = impls.make(name, 4, dtype="float64", **options)
    requires(tree, 1e17)
    for leaf, priority in ((0, 1.0), (1, 1e17), (1, 0.0), (0, 0.5)):
        tree.update(leaf, priority)
    assert tree.sample([0.0, 0.7])[0].tolist() == [0, 0]
    if tree.total() <= 0.0:
        with pytest.raises(RuntimeError, match=r"rebuild\(\)"):
            tree.prefix_sum_index(0.0)
    tree.rebuild()
    assert tree.prefix_sum_index(0.25).tolist() == [0]


@every_variant
def test_a_rest_that_equals_a_prefix_sum_falls_on_its_leaf(name, options):
    """In a group of leaves, in one above, and where rows are wider than groups: amid nodes 3 to 5."""
    for leaf, beside, fanout in ((6, 8, 4), (26, 32, 4), (13, 18, 3)):
        tree = impls.make(name, 64, fanout=fanout, dtype="float64", **options)
        requires(tree, EPSILON)
        for index, priority in ((0, 1.5 * EPSILON), (leaf, 1 + 2 * EPSILON), (beside, 5.0)):
            tree.update(index, priority)
        # Leaf 0 and the next one sum to 1 + 4 epsilon, rounded; less leaf 0, the value is rounded to the next leaf's.
        mass = 1 + 3 * EPSILON
        assert mass - 1.5 * EPSILON == 1 + 2 * EPSILON
        assert tree.prefix_sum_index(mass).tolist() == [leaf]


DELTAS = {
    name: variants
    for name in NAMES
    if (variants := [options for options in variants_of(name) if options.get("propagate") == "delta"])
}  # a group that is summed anew keeps no rest


@pytest.mark.parametrize("name", DELTAS)
def test_an_emptied_group_answers_by_the_nearest_leaf_left_first(name):
    cases = (((1, 12), 1), ((12, 20), 12), ((1, 2, 12, 13), 2))
    for options, (positive, nearest) in itertools.product(DELTAS[name], cases):
        tree = impls.make(name, 64, fanout=4, dtype="float64", **options)
        for leaf in (8, 9, 10):  # their deltas leave 1e-16 above a group of zeros
            tree.update(leaf, (leaf - 7) / 10)
        tree.update([8, 9, 10], 0.0)
        residue = tree.total()
        assert residue > 1e-17
        for leaf in positive:
            tree.update(leaf, 1e-20)
        assert tree.prefix_sum_index(residue / 2).tolist() == tree.sample(0.5)[0].tolist() == [nearest]
        assert tree.get(nearest)[0] > 0


# What check and rebuild see: sums are put wrong where each implementation keeps them

INNER = {
    "python": lambda tree: tree._levels[1:],
    "numpy": lambda tree: tree._nodes[1:],
    "numba": lambda tree: tree._arrays[1:],
    "cupy": lambda tree: [_cupy_level(tree, level) for level in range(1, tree.height + 1)],
    "fpga": lambda tree: tree._levels[1:],
}


def _cupy_level(tree, level):
    sums = tree._memory[int(tree._tree["sums"][0]) - tree._memory.ctypes.data :].view(np.float64)
    return sums[int(tree._tree["start"][0, level]) :]


@pytest.mark.parametrize("name", [name for name in NAMES if name in INNER])
def test_check_sees_a_sum_that_is_off_and_rebuild_mends_it(name):
    tree = filled(name, variants_of(name)[0], capacity=300)
    unit = 1 / tree.rounded(tree.smallest_priority) if name == "fpga" else 1.0  # sums there are whole quanta
    for level in INNER[name](tree):
        level[0] += type(level[0])(2 * unit)
        assert tree.check() == 2.0
        tree.rebuild()
        assert tree.check() == 0.0
    assert tree.total() == 44850.0


# Sampling without replacement


def held(tree, name):
    """Leaves and sums, without the words that say who has its turn at them."""
    sums = [np.asarray(level).tobytes() for level in INNER.get(name, lambda tree: [])(tree)]
    return to_numpy(tree.get(np.arange(tree.capacity))).tobytes(), *sums, tree.total(), tree.check()


def drawn_by_hand(priorities, uniforms):
    """Distinct leaves for uniforms, by adding fractions."""
    left, drawn = dict(enumerate(map(Fraction, priorities))), []
    for uniform in map(Fraction, uniforms):
        mass, ends = uniform * sum(left.values()), itertools.accumulate(left.values())
        drawn.append(next(leaf for leaf, end in zip(left, ends, strict=True) if mass < end))
        del left[drawn[-1]]
    return drawn


@every_variant
def test_distinct_leaves_are_those_drawn_by_hand(name, options):
    rng = np.random.default_rng(2)
    for (dtype, fanout), capacity in itertools.product((("float64", 3), ("float32", 16)), (1, 17, 150)):
        tree = impls.make(name, capacity, fanout=fanout, dtype=dtype, **options)
        values = rng.integers(0, 6, capacity).astype(float)
        values[rng.integers(capacity)] = 5.0
        tree.update(np.arange(capacity), values)
        before = held(tree, name)
        for batch in {1, min(30, np.count_nonzero(values))}:
            uniforms = rng.integers(0, 1024, batch) / 1024  # whose product with a sum is exact
            indices, priorities = map(to_numpy, tree.sample_distinct(uniforms))
            assert indices.tolist() == drawn_by_hand(values.tolist(), uniforms.tolist())
            assert np.array_equal(priorities, values[indices])
            assert (indices.dtype, priorities.dtype) == (np.int64, np.dtype(dtype))
            assert held(tree, name) == before
    assert [answer.shape for answer in tree.sample_distinct([])] == [(0,), (0,)]


@every_variant
def test_vanishing_priorities_are_drawn_once_others_are_gone(name, options):
    tree = impls.make(name, 40, fanout=4, dtype="float64", **options)
    requires(tree, 1e-30)
    tree.update([3, 4, 8, 9, 30], [1e-30, 1.0, 1e-30, 1e30, 1e-30])
    indices, _ = map(to_numpy, tree.sample_distinct(np.full(5, 0.5)))
    assert sorted(indices.tolist()) == [3, 4, 8, 9, 30]
    if options.get("propagate") != "delta" or name == "numba":
        assert indices.tolist() == [9, 4, 8, 30, 3]
        assert tree.check() == 0.0


# Rule 3: duplicates


@every_variant
def test_the_last_duplicate_wins_and_no_other_is_summed(name, options):
    tree = impls.make(name, 300, **options)
    tree.update([7, 7, 3, 7, 3], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert tree.get([7, 3]).tolist() == [4.0, 5.0]
    assert tree.total() == 9.0
    tree.update(np.full(1000, 7), np.arange(1000.0))
    assert (tree.total(), tree.check()) == (999.0 + 5.0, 0.0)
    wide = impls.make(name, 4, dtype="float64", **options)
    wide.update([1, 0, 0], [2.0, min(1e17, wide.largest_priority), -0.0])
    wide.update(3, -0.0)
    assert not np.signbit(to_numpy(wide.get(range(4)))).any()
    assert (wide.get([0, 1]).tolist(), wide.total(), wide.check()) == ([0.0, 2.0], 2.0, 0.0)


# Rule 5 and 6: sums are float64, priorities are rounded first


@every_variant
def test_priorities_are_rounded_and_summed_as_stored(name, options):
    values = np.array([0.1, 1e-50, 1 / 3, 123456.789, 5e-324])
    for dtype in DTYPES:
        tree = impls.make(name, 5, dtype=dtype, **options)
        tree.update(np.arange(5), values)
        stored = tree.rounded(values).astype(dtype)
        assert np.abs(stored - values.astype(dtype)).max() <= tree.rounded(tree.smallest_priority)
        assert tree.get(np.arange(5)).dtype == tree.dtype == np.dtype(dtype)
        assert np.array_equal(tree.get(np.arange(5)), stored)
        assert tree.total() == pytest.approx(stored.astype(np.float64).sum(), rel=1e-15)


@every_variant
def test_sums_of_the_highest_priorities_stay_finite(name, options):
    for capacity in (1, 7, 150, 1000):
        tree = impls.make(name, capacity, dtype="float64", **options)
        highest = tree.largest_priority
        tree.update(np.arange(capacity), highest)
        assert np.isfinite(tree.total())
        middle = capacity // 2
        uniforms = [0.0, (middle + 0.5) / capacity, np.nextafter(1, 0)]
        assert tree.sample(uniforms)[0].tolist() == [0, middle, capacity - 1]
        with pytest.raises(ValueError, match="is outside"):
            tree.update(0, np.nextafter(highest, np.inf))
    narrow = impls.make(name, 3, **options)
    narrow.update(0, narrow.largest_priority)
    assert narrow.total() == narrow.largest_priority
    with pytest.raises(ValueError, match=r"1e\+39 at position 1") as refusal:
        narrow.update([0, 1], [1.0, 1e39])
    assert f"[0, {narrow.largest_priority:.8g}]" in str(refusal.value)


# Rule 7: any capacity, any fanout


@every_implementation
def test_odd_shapes(name, options):
    for capacity, fanout in ((1, 2), (5, 2), (301, 300), (100, 2**62)):
        tree = filled(name, options, capacity=capacity, fanout=fanout)
        total = capacity * (capacity - 1) / 2
        assert tree.total() == total
        assert (tree.capacity, tree.fanout) == (capacity, fanout)
        assert tree.height == len(level_sizes(capacity, fanout)) - 1
        if total:
            assert tree.prefix_sum_index(total - 1).tolist() == [capacity - 1]


@every_variant
def test_facts_and_memory(name, options):
    tree = filled(name, options, capacity=1000)
    assert tree.device == "cpu"
    assert (len(tree), bool(impls.make(name, 1, **options))) == (1000, True)
    modeled = tree.modeled_seconds("sample", 64)
    assert modeled is None or 0 < modeled < 1e-3
    assert tree.synchronize() is None
    assert tree.nbytes >= 4 * tree.num_nodes >= 4000
    at, beyond = (impls.make(name, capacity, **options).nbytes for capacity in (2**16, 2**16 + 1))
    assert beyond < 1.01 * at or "full" in options.values()


# Rule 9: types


@every_implementation
def test_any_integer_is_an_index_and_any_real_a_number(name, options):
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", ">i4"):
        tree = filled(name, options)
        assert tree.get(np.array([3, 9], dtype)).tolist() == [3.0, 9.0], dtype
        tree.update(np.array([3], dtype), 30.0)
        assert tree.get(3).tolist() == [30.0], dtype
    for dtype in ("float16", "float32", "float64", "longdouble", ">f8", "int32", "uint8"):
        tree = filled(name, options)
        assert tree.prefix_sum_index(np.array([0, 1, 3], dtype)).tolist() == [1, 2, 3], dtype
        assert tree.sample(np.array([0, 0], dtype))[0].tolist() == [1, 1], dtype
        tree.update([0], np.array([2], dtype))
        assert tree.total() == 47.0, dtype


@every_variant
def test_scalars_lists_slices_and_read_only_arrays(name, options):
    tree = filled(name, options)
    for batch in (3, np.int32(3), [3], (3,), np.array(3), np.arange(4)[3:], np.arange(10)[::-1][6:7]):
        assert tree.get(batch).tolist() == [3.0]
    strided = np.arange(20.0)[::5] / 20
    strided.setflags(write=False)
    assert tree.sample(strided)[0].tolist() == tree.sample(strided.tolist())[0].tolist()
    frozen = np.array([1, 2])
    frozen.setflags(write=False)
    tree.update(frozen, strided[:2])
    assert np.array_equal(tree.get(frozen), strided[:2].astype("float32"))


@every_variant
def test_empty_batches_do_nothing(name, options):
    tree = impls.make(name, 5, **options)
    for empty in ([], np.empty(0), np.empty(0, np.int32), np.empty(0, bool), ()):
        assert tree.update(empty, empty) is None
        assert tree.update(empty, 1.0) is None
        assert tree.get(empty).shape == (0,)
        assert tree.prefix_sum_index(empty).dtype == np.int64
        indices, priorities = tree.sample(empty)
        assert (indices.dtype, priorities.dtype) == (np.int64, tree.dtype)
        assert indices.shape == priorities.shape == (0,)
    assert tree.total() == 0.0


@every_variant
def test_inputs_are_never_modified_and_results_never_reused(name, options):
    tree = filled(name, options)
    uniforms, mass = np.array([0.1, 0.9]), np.array([3.0, 40.0])
    indices, priorities = np.array([1, 2]), np.array([1.5, 2.5])
    before = [array.copy() for array in (uniforms, mass, indices, priorities)]
    first = tree.sample(uniforms)
    kept = [array.copy() for array in first]
    tree.prefix_sum_index(mass)
    tree.sample(uniforms[::-1])
    tree.update(indices, priorities)
    tree.get(indices)
    assert all(np.array_equal(a, b) for a, b in zip((uniforms, mass, indices, priorities), before, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))
    got = tree.get([1])
    got[0] = 99
    assert tree.get(1).tolist() == [1.5]


TORCH = {
    "a leaf of a graph": lambda torch: torch.tensor([2.0, 3.0], requires_grad=True),
    "a result of a graph": lambda torch: torch.tensor([1.0, 1.5], requires_grad=True) * 2,
    "bfloat16": lambda torch: torch.tensor([2.0, 3.0], dtype=torch.bfloat16, requires_grad=True),
    "float16": lambda torch: torch.tensor([2.0, 3.0], dtype=torch.float16),
    "a list of results": lambda torch: list(torch.tensor([2.0, 3.0], requires_grad=True)),
}


@every_implementation
def test_torchs_tensors_are_arrays(name, options):
    torch = pytest.importorskip("torch")
    for kind, make_values in TORCH.items():
        tree, values = filled(name, options), make_values(torch)
        tree.update(torch.tensor([4, 6]), values)
        assert tree.get(torch.tensor([4, 6], dtype=torch.int32)).tolist() == [2.0, 3.0], kind
        assert tree.total() == 40.0, kind
        assert tree.prefix_sum_index(values).tolist() == [2, 3], kind
        halves = [value / 8 for value in values] if isinstance(values, list) else values / 8
        assert tree.sample(halves)[0].tolist() == tree.sample([0.25, 0.375])[0].tolist(), kind
    tree.update([4, 6], torch.tensor(1.0, requires_grad=True))
    tree.update(5, torch.tensor(1.0, dtype=torch.bfloat16))
    assert tree.get([4, 5, 6]).tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"nan at position 1"):
        tree.update(torch.tensor([1, 2]), torch.tensor([1.0, float("nan")], requires_grad=True))
    tree = filled(name, options)
    assert to_numpy(tree.prefix_sum(torch.tensor([0, 3, 10]))).tolist() == [0.0, 3.0, 45.0]
    assert to_numpy(tree.range_sum(torch.tensor(2), torch.tensor([4, 10], dtype=torch.int32))).tolist() == [5.0, 44.0]
    masses = torch.tensor([0.0, 1.0, 45.0], requires_grad=True)
    assert to_numpy(tree.prefix_sum_index(masses, side="left")).tolist() == [0, 1, 9]
    assert to_numpy(tree.sample(torch.tensor([0.0]), exclude=torch.tensor([1, 2]))[0]).tolist() == [3]


# Rule 10: errors come before any write, and name the value and the bound

TOTAL, CLOSED, LEAF = "[0, 45.0)", "[0, 45.0]", "[0, 10)"
REFUSALS = [  # (method, its arguments, the error, what its message names) of a tree of 10 leaves
    ("update", ([1, 2], [1.0, NAN]), ValueError, ["nan", "position 1", "[0, "]),
    ("update", ([1, 2], [INF, 1.0]), ValueError, ["inf", "position 0", "[0, "]),
    ("update", ([1, 2], -2.0), ValueError, ["-2.0", "[0, "]),
    ("update", ([1], [-1e-300]), ValueError, ["-1e-300", "[0, "]),
    ("update", ([1], [-(2**70)]), ValueError, ["-1.18", "[0, "]),
    ("update", ([1], ["high"]), TypeError, ["real numbers", "<U4"]),
    ("update", ([1], [1j]), TypeError, ["real numbers", "complex128"]),
    ("update", ([1, 2], [1.0]), ValueError, ["[2]", "[1]"]),
    ("update", ([], [1.0, 2.0]), ValueError, ["[0]", "[2]"]),
    ("update", ([[1, 2]], 1.0), ValueError, ["[B]", "[1, 2]"]),
    ("update", ([1, 2], [[1.0], [1.0, 2.0]]), ValueError, ["priority", "[B]"]),
    ("update", ([1, 10], [1.0, 1.0]), IndexError, ["10", "position 1", LEAF]),
    ("update", ([-1], [1.0]), IndexError, ["-1", LEAF]),
    ("update", (np.array([2**63], np.uint64), [1.0]), IndexError, [str(2**63), LEAF]),
    ("update", ([True], [1.0]), TypeError, ["integers", "bool"]),
    ("get", ([2**70],), IndexError, [str(2**70), LEAF]),
    ("get", ([0, 3, 12],), IndexError, ["12", "position 2", LEAF]),
    ("get", ([1.0],), TypeError, ["integers", "float64"]),
    ("sample", (np.zeros((2, 0)),), ValueError, ["[B]", "[2, 0]"]),
    ("sample", ([0.5, 1.0],), ValueError, ["1.0", "position 1", "[0, 1)"]),
    ("sample", ([-1e-9],), ValueError, ["-1e-09", "[0, 1)"]),
    ("sample", ([NAN],), ValueError, ["nan", "[0, 1)"]),
    ("sample", (np.where(np.arange(300) == 250, 2.0, 0.5),), ValueError, ["2.0", "position 250", "[0, 1)"]),
    ("sample", (64.0,), ValueError, ["uniforms(rng, 64)"]),  # a number of draws
    ("sample", (np.int64(32),), ValueError, ["uniforms(rng, 32)"]),
    ("sample", (np.array(8),), ValueError, ["uniforms(rng, 8)"]),
    ("sample", ([0.5], [3, 10]), IndexError, ["10", "position 1", LEAF]),
    ("sample", ([0.5], [3.0]), TypeError, ["integers", "float64"]),
    ("sample", ([0.5, 1.0], [3]), ValueError, ["1.0", "position 1", "[0, 1)"]),
    ("sample_distinct", ([0.5, 1.0],), ValueError, ["1.0", "position 1", "[0, 1)"]),
    ("sample_distinct", (np.full(10, 0.5),), RuntimeError, ["10 distinct leaves", "9 have"]),
    ("prefix_sum_index", ([[1.0], [1.0, 2.0]],), ValueError, ["mass", "[B]"]),
    ("prefix_sum_index", ([45.0],), ValueError, ["45.0", TOTAL]),
    ("prefix_sum_index", ([45],), ValueError, ["45", TOTAL]),
    ("prefix_sum_index", ([1.0, -1.0],), ValueError, ["-1.0", "position 1", TOTAL]),
    ("prefix_sum_index", ([NAN],), ValueError, ["nan", TOTAL]),
    ("prefix_sum_index", ([45.5], "left"), ValueError, ["45.5", CLOSED]),
    ("prefix_sum_index", ([46], "left"), ValueError, ["46", CLOSED]),
    ("prefix_sum_index", ([1.0, NAN], "left"), ValueError, ["nan", "position 1", CLOSED]),
    ("prefix_sum_index", ([-1e-300], "left"), ValueError, ["-1e-300", CLOSED]),
    ("prefix_sum_index", ([1.0], "lef"), ValueError, ["'right'", "'left'", "'lef'"]),
    ("prefix_sum", ([0, 11],), IndexError, ["11", "position 1", "[0, 10]"]),
    ("prefix_sum", (-1,), IndexError, ["-1", "[0, 10]"]),
    ("prefix_sum", ([1.0],), TypeError, ["integers", "float64"]),
    ("range_sum", ([11], [11]), IndexError, ["11", "[0, 10]"]),
    ("range_sum", ([1, 2], [3, 12]), IndexError, ["12", "position 1", "[0, 10]"]),
    ("range_sum", ([1, 3], [3, 2]), ValueError, ["left 3", "position 1", "above right 2"]),
    ("range_sum", (3, [3, 4, 2]), ValueError, ["left 3", "position 2", "right 2"]),
    ("range_sum", ([1, 2], [3, 4, 5]), ValueError, ["[2]", "[3]"]),
    ("range_sum", ([[1, 2]], 5), ValueError, ["[B]", "[1, 2]"]),
]


@every_implementation
def test_refused_calls_say_why_and_change_nothing(name, options):
    for method, arguments, error, words in REFUSALS:
        tree = filled(name, options)
        tree.sample(0.5)
        before = held(tree, name) if method == "sample_distinct" else contents(tree)
        with pytest.raises(error) as refusal:
            getattr(tree, method)(*arguments)
        assert [word for word in words if word not in str(refusal.value)] == [], refusal.value
        assert before == (held(tree, name) if method == "sample_distinct" else contents(tree)), (method, arguments)
        tree.update([0], [5.0])
        assert tree.total() == 50.0


@every_implementation
def test_values_are_judged_before_rounding(name, options):
    tree = filled(name, options)
    almost_one = np.nextafter(np.longdouble(1), np.longdouble(0))
    if almost_one.astype(np.float64) == 1.0:  # long double is wider than float64 here
        assert tree.sample(np.array([almost_one]))[0].tolist() == [9]
        assert tree.prefix_sum_index(np.array([45 * almost_one])).tolist() == [9]
        with pytest.raises(ValueError, match="outside"):
            tree.sample(np.array([-np.longdouble("1e-4000")]))
    with pytest.raises(ValueError, match="position 100"):  # although there is nothing to sample
        impls.make(name, 10, **options).sample(np.where(np.arange(200) == 100, 2.0, 0.5))
    for dtype, leaves in (("float32", [2.0**24, 1.0]), ("float16", [2048.0, 1.0])):
        tree = impls.make(name, 4, **options)
        if leaves[0] <= tree.largest_priority:
            tree.update([0, 1], leaves)
            assert tree.prefix_sum_index(np.array(leaves[:1], dtype)).tolist() == [1]  # below the total itself


BAD_SETTINGS = [
    (ValueError, {"capacity": 0}, ["capacity", "at least 1", "0"]),
    (TypeError, {"capacity": 2.5}, ["capacity", "integer", "2.5"]),
    (TypeError, {"capacity": True}, ["capacity", "integer", "True"]),
    (ValueError, {"fanout": 1}, ["fanout", "at least 2", "1"]),
    (ValueError, {"threads": 0}, ["threads", "at least 1", "0"]),
    (ValueError, {"dtype": "float16"}, ["float32, float64", "float16"]),
    (ValueError, {"dtype": None}, ["float32, float64", "None"]),
    (ValueError, {"fanuot": 4}, ["no option 'fanuot'"]),
]


@every_implementation
def test_bad_settings_are_refused(name, options):
    for error, settings, words in BAD_SETTINGS:
        with pytest.raises(error) as refusal:
            impls.make(name, **({"capacity": 10} | settings), **options)
        assert [word for word in words if word not in str(refusal.value)] == [], refusal.value
    if impls.traits(name).threaded:
        assert impls.make(name, 10, threads=2, **options).threads == 2
    else:
        with pytest.raises(ValueError, match="threads must be 1, not 2"):
            impls.make(name, 10, threads=2, **options)


@hypothesis.settings(max_examples=20)
@hypothesis.given(data=st.data())
@every_implementation
def test_any_refused_update_changes_nothing(name, options, data):
    tree = filled(name, options, capacity=20, minimum=data.draw(st.booleans()))
    batch = data.draw(st.integers(1, 30))
    indices = np.array(data.draw(st.lists(st.integers(0, 19), min_size=batch, max_size=batch)))
    priority = st.floats(0, min(1e30, tree.largest_priority))
    values = np.array(data.draw(st.lists(priority, min_size=batch, max_size=batch)))
    at = data.draw(st.integers(0, batch - 1))
    if data.draw(st.booleans()):
        indices[at] = data.draw(st.sampled_from([-1, 20, -(2**62), 2**62]))
    else:
        values[at] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf, -1e-9, 1e39]))
    before = contents(tree)
    with pytest.raises((ValueError, IndexError), match=f"at position {at}"):
        tree.update(indices, values)
    assert contents(tree) == before


# State: rule of state_dict / load_state_dict, copies


@every_variant
def test_state_goes_into_any_tree_and_back(name, options):
    rng = np.random.default_rng(4)
    values, uniforms = rng.integers(0, 9, 333), rng.random(500)
    source = impls.make(name, 333, **options)
    source.update(np.arange(333), rng.integers(0, 9, 333))
    source.update(np.arange(333), values)
    others = NAMES if options == variants_of(name)[0] else []
    targets = [(name, options), *((other, variants_of(other)[0]) for other in others)]
    for target in (impls.make(other, 333, fanout=3, dtype="float64", **more) for other, more in targets):
        target.update(np.arange(0, 333, 3), 5.0)
        state = source.state_dict()
        target.load_state_dict(state)
        state["leaves"][:] = 0  # a copy: neither tree sees this
        assert target.state_dict()["dtype"] == "float64"
        back = impls.make(name, 333, **options)
        back.load_state_dict(target.state_dict())
        for tree in (target, back):
            assert np.array_equal(tree.state_dict()["leaves"], values)
            assert (tree.total(), tree.check()) == (source.total(), 0.0) == (values.sum(), 0.0)
            assert np.array_equal(tree.sample(uniforms)[0], source.sample(uniforms)[0])
            tree.update(7, 100.0)
            assert tree.total() == values.sum() + 100 - values[7]


@every_variant
def test_state_survives_a_file_and_another_dtype_rounds(name, options, tmp_path):
    tree = impls.make(name, 4, dtype="float64", **options)
    tree.update(np.arange(4), [0.1, 0.2, 0.3, 0.4])
    np.savez(tmp_path / "tree.npz", **tree.state_dict())
    with np.load(tmp_path / "tree.npz") as state:
        narrow = impls.make(name, 4, dtype="float32", **options)
        narrow.load_state_dict(state)
    stored = narrow.rounded(tree.rounded([0.1, 0.2, 0.3, 0.4])).astype("float32")
    assert np.array_equal(narrow.get(np.arange(4)), stored)
    assert narrow.check() == 0.0


@every_variant
def test_bad_states_are_refused_and_nothing_is_written(name, options):
    tree = filled(name, options)
    before, state = contents(tree), tree.state_dict()
    for broken, words in (
        ({**state, "capacity": 9}, "9 leaves, this tree 10"),
        ({**state, "leaves": -state["leaves"]}, "-1.0 at position 1"),
        ({**state, "leaves": state["leaves"][:5]}, r"\[10\].*\[5\]"),
        ({**state, "leaves": 0.5}, r"\[10\].*\[\]"),
        ({**state, "dtype": "nonsense"}, "nonsense"),
        ({"leaves": state["leaves"]}, "capacity, dtype"),
    ):
        with pytest.raises(ValueError, match=words):
            tree.load_state_dict(broken)
    assert contents(tree) == before


@every_variant
def test_pickles_and_copies_stand_alone(name, options):
    tree = filled(name, options, fanout=3)
    for twin in (copy.copy(tree), copy.deepcopy(tree), pickle.loads(pickle.dumps(tree))):
        twin.update(0, 100.0)
        assert (twin.total(), tree.total()) == (145.0, 45.0)
        assert twin.fanout == 3
        assert twin.__reduce__()[1][2] == tree.__reduce__()[1][2]  # every option of the constructor


# Helpers of the contract


class _AlwaysHighest:
    @staticmethod
    def random(size):
        return np.full(size, np.nextafter(1.0, 0.0))


def test_uniforms_are_in_range_and_stratified():
    rng = np.random.default_rng(0)
    plain, strata = impls.uniforms(rng, 1000), impls.stratified_uniforms(rng, 1000)
    for draws in (plain, strata):
        assert (draws.dtype, draws.shape) == (np.float64, (1000,))
        assert (draws >= 0).all() and (draws < 1).all()
    assert np.array_equal((strata * 1000).astype(int), np.arange(1000))
    assert impls.stratified_uniforms(rng, 0).shape == (0,)
    for batch in (1, 3, 7, 1000, 65537):
        assert impls.stratified_uniforms(_AlwaysHighest(), batch).max() < 1.0
