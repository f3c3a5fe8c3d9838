"""What a million updates do to the sums, in numbers."""

import math

import numpy as np
import pytest

import impls

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
def test_drift_after_a_million_updates_over_six_decades(name, options, dtype, record_property):
    if reason := impls.why_not(name):
        pytest.skip(reason)
    rng = np.random.default_rng(2)
    tree = impls.make(name, CAPACITY, dtype=dtype, **options)
    largest_total = 0.0
    for _ in range(BATCHES):
        tree.update(rng.integers(0, CAPACITY, BATCH), 10.0 ** rng.uniform(-6, 0, BATCH))
        largest_total = max(largest_total, tree.total())
    exact = math.fsum(tree.get(np.arange(CAPACITY)).tolist())
    drift = abs(tree.total() - exact)
    record_property("drift of the root", drift)
    record_property("worst node", tree.check())
    updates = BATCH * BATCHES
    if options.get("propagate") == "delta":
        # Each update adds at most half an ulp of the total, either way: a random walk of that step. Sums of float32
        # leaves that span few decades fit float64 exactly, so that only float64 leaves are sure to show it.
        bound = 10 * math.sqrt(updates) * EPSILON * largest_total
        assert drift <= bound
        assert tree.check() <= bound
        assert dtype == "float32" or tree.check() > 0
        tree.rebuild()
    assert tree.check() == 0.0
    assert abs(tree.total() - exact) <= tree.height * 16 * EPSILON * exact
    tree.update(np.arange(CAPACITY), 0.0)
    tree.rebuild()
    assert tree.total() == 0.0


@pytest.mark.parametrize("name", ["python", "numpy", "numba"])
def test_an_exact_tree_returns_to_zero(name):
    if reason := impls.why_not(name):
        pytest.skip(reason)
    tree = impls.make(name, 1_000)
    tree.update(np.arange(1_000), np.random.default_rng(0).random(1_000))
    tree.update(np.arange(1_000), 0.0)
    assert tree.total() == 0.0
