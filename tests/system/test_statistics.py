"""Trees under random operations: in lock-step with the oracle, drawn in proportion, and without drift of their sums."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import impls
from tests.contestants import DEFAULTS, VARIANTS
from tests.matrix import slow
from tests.walk import walk

LEVEL = 1e-4
DRAWS = 400_000
LEAST_EXPECTED = 20.0  # draws in a bin, well inside the chi-square approximation


def uniform(capacity, rng):
    return np.ones(capacity)


def rank_based(capacity, rng):
    return rng.permutation(np.arange(1, capacity + 1) ** -0.6)


def mostly_zero(capacity, rng):
    values = np.where(rng.random(capacity) < 0.9, 0.0, rng.random(capacity))
    values[capacity // 2] = 1.0
    return values


def one_huge(capacity, rng):
    values = np.full(capacity, 1.0 / capacity)
    values[capacity // 3] = 1.0
    return values


@pytest.mark.parametrize("capacities", [(10, 1_000), slow((100_000, 1_000_000))], ids=["small", "large"])
@pytest.mark.parametrize(("name", "options"), DEFAULTS)
def test_frequencies_follow_priorities(name, options, capacities):
    draws = DRAWS // 10 if name in ("python", "cupy") else DRAWS  # interpreted, emulated
    for capacity, priorities in itertools.product(capacities, (uniform, rank_based, mostly_zero, one_huge)):
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


@pytest.mark.parametrize(("name", "options"), DEFAULTS)
def test_stratified_draws_take_one_leaf_of_each_interval(name, options):
    tree = impls.make(name, 64, **options)
    tree.update(np.arange(64), 1.0)
    indices, _ = tree.sample(impls.stratified_uniforms(np.random.default_rng(0), 64))
    assert indices.tolist() == list(range(64))


SHAPES = [(1, 2), (2, 16), (17, 16), (100, 3), (257, 16), (1000, 7), (5000, 64)]
BRIEF = [((1, 2), False), ((100, 3), True), ((257, 16), False), ((5000, 64), True)]
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
    walk(_Unconverted(tree), seed=9, steps=80, integers=False, exact=exact)


class _Unconverted:
    """Hands over what validate=False asks for: arrays of the right types."""

    def __init__(self, tree):
        self._tree = tree

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def __repr__(self):
        return repr(self._tree)

    def update(self, indices, priorities):
        if isinstance(priorities, float):
            priorities = np.full(indices.size, priorities)
        self._tree.update(indices, priorities)


CAPACITY, BATCH, BATCHES = 10_000, 1_000, 1_000  # a million updates
EPSILON = 2.0**-52

CASES = [
    ("numpy", {}),
    ("numpy", {"propagate": "delta"}),
    ("numba", {}),
    ("numba", {"propagate": "delta"}),
    ("numba", {"layout": "plain", "propagate": "delta"}),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "options"), CASES)
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
