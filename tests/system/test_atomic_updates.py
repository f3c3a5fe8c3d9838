"""Updates that several threads share: leaves in order, sums by additions at once for every thread."""

import time

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal

import impls

pytest.importorskip("numba", reason="the numba tree needs numba")
from impls.sumtree import numba_turns
from impls.sumtree.kernels import header, searching  # with numba

KINDS = [{"minimum": True}, {"fanout": 7, "layout": "plain", "dtype": "float64"}, {"fanout": 64, "dtype": "float64"}]


def make(capacity, threads=2, **options):
    """A tree whose large updates are shared whenever a helper comes."""
    tree = impls.make("numba", capacity, propagate="atomic", threads=threads, **options)
    tree._update_sharing.is_worth_it = lambda: True
    return tree


def bits(tree):
    return [array.tobytes() for array in (*tree._arrays, *tree._minima)]


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("capacity", [1, 300, 70_000])
def test_sums_of_integers_are_those_of_recompute_and_sums_of_reals_drift_by_rounding(options, capacity):
    rng, leaves = default_rng(0), np.zeros(capacity)
    twin, trees = impls.make("numba", capacity, **options), [make(capacity, count, **options) for count in (1, 2, 4)]
    for batch in (1, 8_191, 8_192, 8_193, 70_000, 8_192):
        indices, values = rng.integers(0, capacity, batch), rng.integers(0, 1_000, batch).astype(float)
        indices[batch // 2 :: 3] = indices[0]
        leaves[indices] = values  # the last of equal indices wins
        for tree in (twin, *trees):
            tree.update(indices, values)
            assert_array_equal(tree.get(np.arange(capacity)), leaves)
            assert bits(tree) == bits(twin)
    for tree in (twin, *trees):
        tree.update(indices, 10.0 ** -default_rng(1).uniform(0, 6, indices.size))
        assert_array_equal(tree._leaves, twin._leaves)
        assert tree.check() < 1e-12 * leaves.sum()
        assert tree.check() > 0 or tree is twin or capacity < 70_000 or tree.dtype == "float32"
        tree.rebuild()
        assert bits(tree) == bits(twin)
    for tree in trees:
        tree.update(np.arange(capacity), 0.0)
        with pytest.raises(RuntimeError, match="nothing to sample"):
            tree.sample(0.5)


def test_threads_that_add_to_the_same_sums_lose_nothing():
    """Each of a million changes meets those of other threads, at the root at the latest."""
    tree, rng, helpers = make(1 << 20, layout="plain"), default_rng(0), numba_turns.Helpers()
    kernels, room = (tree._atomic_kernel, tree._help_update_kernel), np.empty(3 << 20, np.int64)
    for _ in range(15):
        values = rng.integers(0, 1_000, 1 << 20).astype(float)
        assert helpers.update(3, tree, *kernels, np.arange(1 << 20), values, room) == header.DONE
        assert (tree.total(), tree.check()) == (values.sum(), 0.0)
        while helpers._room[searching.ENDED] < 3:
            time.sleep(1e-3)


def test_helpers_that_come_late_change_nothing_and_wait_for_no_batch_that_was_refused():
    tree, helpers, asked = make(1_000), numba_turns.Helpers(), []
    helpers._all = [type("Late", (), {"ask": lambda self, *job: asked.append(job)})()]
    kernels = tree._atomic_kernel, tree._help_update_kernel
    indices, room = np.arange(10_000) % 1_000, np.empty(30_000, np.int64)
    for value, status, total in ((1.0, header.DONE, 1e3), (2.0, header.DONE, 2e3), (-1.0, header.REFUSED, 2e3)):
        for expected in (status, header.BUSY):  # the helper has yet to end
            assert helpers.update(1, tree, *kernels, indices, np.full(10_000, value), room) == expected
        assert helpers._room[0] > 0
        (_, kernel, *arguments) = asked.pop()
        kernel(*arguments)
        assert (tree.total(), tree.check()) == (total, 0.0)
