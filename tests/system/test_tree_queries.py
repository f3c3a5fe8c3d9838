"""What a tree answers: ranges, minima, the rule >=, excluded leaves, frequencies; the oracle by its definition."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from scipy import stats

import impls
from impls import to_numpy
from impls.sumtree.oracle import Oracle
from tests.contestants import (
    DEFAULTS,
    NAMES,
    VARIANTS,
    Handing,
    capacities,
    every_implementation,
    every_variant,
    make,
    requires,
    walk,
)
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
        uniforms = np.linspace(0, 0.99, 200)
        for op, *given in (("sample_distinct", uniforms), ("sample", [0.5], [17]), ("rebuild",)):
            getattr(tree, op)(*given)
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


# The oracle against the definition, one leaf at a time


def test_the_oracle_is_its_definition():
    oracle, narrow = Oracle(6), Oracle(1, "float32")
    assert oracle.min() == np.inf
    oracle.update([0, 1, 3, 4, 4], [0, 2, 1, 9, 3])
    assert (oracle.get([4, 0]).tolist(), oracle.total(), oracle.min()) == ([3, 0], 6, 1)
    ends = list(itertools.accumulate(oracle.leaves.tolist()))
    for mass in np.arange(0, 6, 0.25):
        above, from_it = (next(i for i, end in enumerate(ends) if rule(end)) for rule in (mass.__lt__, mass.__le__))
        assert oracle.prefix_sum_index(mass).tolist() == [above]
        assert oracle.prefix_sum_index(mass, side="left").tolist() == [from_it]
    assert oracle.prefix_sum_index(6, side="left").tolist() == [4]
    assert oracle.range_sum([0, 1, 3, 6], [6, 4, 3, 6]).tolist() == [6, 3, 0, 0]
    oracle.update([0, 1, 2], [2.0**60, 1, 1])
    assert oracle.range_sum(1, 3).tolist() == [2]
    narrow.update(0, 0.1)
    assert narrow.total() == float(np.float32(0.1))


def test_misses_finds_each_kind_of_wrong_answer():
    oracle = Oracle(4)
    oracle.update([0, 1, 2, 3], [0, 2, 0, 2])
    right = [(1, 0), (3, 2), (1, 1.5), (1, 2 + 1e-12), (3, 2 - 1e-12)]
    wrong = [(3, 1), (0, 0), (2, 2), (4, 3), (-1, 0), (1, 2 + 1e-6)]
    for pairs, expected in ((right, []), (wrong, list(range(len(wrong))))):
        answers, masses = zip(*pairs, strict=True)
        assert oracle.misses(answers, masses).tolist() == expected


def test_distinct_leaves_are_drawn_from_what_is_left():
    oracle = Oracle(5)
    oracle.update([0, 1, 3, 4], [2, 1, 9, 3])
    uniforms = [0.9, 0.1, 0.99, 0.999]
    drawn = oracle.sample_distinct(uniforms).tolist()
    for uniform, leaf in zip(uniforms, drawn, strict=True):
        assert oracle.prefix_sum_index(uniform * oracle.total()).tolist() == [leaf]
        oracle.update(leaf, 0)
    assert sorted(drawn) == [0, 1, 3, 4]
    assert oracle.sample_distinct([0.5]).tolist() == [5]


# Walks beside the oracle, frequencies of draws, drift of sums


LEVEL = 1e-4
DRAWS = 400_000
LEAST_EXPECTED = 20.0  # draws in a bin, well inside the chi-square approximation


def rank_based(capacity, rng):
    return rng.permutation(np.arange(1, capacity + 1) ** -0.6)


def mostly_zero(capacity, rng):
    values = np.where(rng.random(capacity) < 0.9, 0.0, rng.random(capacity))
    values[capacity // 2] = 1.0
    return values


@pytest.mark.parametrize("capacities", [(10, 1_000), slow((100_000, 1_000_000))], ids=["small", "large"])
@pytest.mark.parametrize(("name", "options"), DEFAULTS)
def test_frequencies_follow_priorities(name, options, capacities):
    draws = DRAWS // 10 if name in ("python", "cupy") else DRAWS  # interpreted, emulated
    for capacity, priorities in itertools.product(capacities, (rank_based, mostly_zero)):
        rng = np.random.default_rng([capacity, len(priorities.__name__)])
        values = priorities(capacity, rng).astype(np.float32).astype(np.float64)
        tree = impls.make(name, capacity, **options)
        tree.update(np.arange(capacity), values)
        indices, drawn = tree.sample(impls.uniforms(rng, draws))
        assert drawn.min() > 0
        observed, expected = in_bins(np.bincount(indices, minlength=capacity), values * (draws / values.sum()))
        if expected.size > 1:
            assert stats.chisquare(observed, expected).pvalue > LEVEL, (capacity, priorities)


def in_bins(observed, expected):
    """Neighboring leaves merged until each bin expects enough draws; what is left over joins the last bin."""
    edges, waiting = [0], 0.0
    for leaf, value in enumerate(expected.tolist()):
        waiting += value
        if waiting >= LEAST_EXPECTED:
            edges.append(leaf + 1)
            waiting = 0.0
    starts = edges[:-1]
    return np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)


SHAPES = [(1, 2), (2, 16), (17, 16), (100, 3), (257, 16), (1000, 7), (5000, 64)]
BRIEF = [((1, 3), False), ((100, 3), True), ((5000, 64), True)]
REST = [one for one in itertools.product(SHAPES, (True, False)) if one not in BRIEF]


@pytest.mark.parametrize("shapes", [BRIEF, slow(REST)], ids=["brief", "rest"])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_walks_are_in_lock_step_with_the_oracle(name, options, shapes):
    """Walk float32 leaves, float64 leaves, and arrays that nothing validates; ``check()`` after every step."""
    exact = options.get("propagate") != "delta"
    for (capacity, fanout), integers in shapes:
        tree = impls.make(name, capacity, fanout=fanout, **options)
        walk(tree, seed=capacity * fanout, steps=60, integers=integers, exact=exact)
    tree = impls.make(name, 300, fanout=4, dtype="float64", **options)
    walk(tree, seed=8, steps=80, integers=False, exact=exact)
    tree = impls.make(name, 300, fanout=16, validate=False, **options)
    arrays = Handing(tree, lambda part, first: np.full(first.size, part) if isinstance(part, float) else part)
    walk(arrays, seed=9, steps=80, integers=False, exact=exact)


CAPACITY, BATCH, BATCHES = 10_000, 1_000, 1_000  # a million updates
EPSILON = 2.0**-52

CASES = [(name, options, "float64") for name in ("numpy", "numba") for options in ({}, {"propagate": "delta"})]
CASES += [("numba", {"layout": "plain", "propagate": "delta"}, "float32")]


@pytest.mark.parametrize(("name", "options", "dtype"), CASES)
def test_drift_after_a_million_updates_over_six_decades(name, options, dtype):
    if reason := impls.why_not(name):
        pytest.skip(reason)
    rng, largest_total = np.random.default_rng(2), 0.0
    tree = impls.make(name, CAPACITY, dtype=dtype, **options)
    for _ in range(BATCHES):
        tree.update(rng.integers(0, CAPACITY, BATCH), 10.0 ** rng.uniform(-6, 0, BATCH))
        largest_total = max(largest_total, tree.total())
    exact = math.fsum(tree.get(np.arange(CAPACITY)).tolist())
    if options.get("propagate") == "delta":
        # Each update adds at most half an ulp of the total, either way: a random walk of that step. Sums of float32
        # leaves that span few decades fit float64 exactly, so that only float64 leaves are sure to show it.
        bound = 10 * math.sqrt(BATCH * BATCHES) * EPSILON * largest_total
        assert abs(tree.total() - exact) <= bound
        assert tree.check() <= bound
        assert dtype == "float32" or tree.check() > 0
        tree.rebuild()
    assert tree.check() == 0.0
    assert abs(tree.total() - exact) <= tree.height * 16 * EPSILON * exact
    tree.update(np.arange(CAPACITY), 0.0)
    tree.rebuild()
    assert tree.total() == 0.0
