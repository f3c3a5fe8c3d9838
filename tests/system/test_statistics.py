"""Sampling frequencies follow the priorities: chi-square at level 1e-4 a case, fixed seeds."""

import numpy as np
import pytest
from scipy import stats

import impls
from tests.contestants import DEFAULTS
from tests.matrix import slow

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


@pytest.mark.parametrize("priorities", [uniform, rank_based, mostly_zero, one_huge])
@pytest.mark.parametrize("capacity", [10, 1_000, slow(100_000), slow(1_000_000)])
@pytest.mark.parametrize(("name", "options"), DEFAULTS)
def test_frequencies_follow_priorities(name, options, capacity, priorities):
    draws = DRAWS // 10 if name in ("python", "cupy") else DRAWS  # interpreted, emulated
    rng = np.random.default_rng([capacity, len(priorities.__name__)])
    values = priorities(capacity, rng).astype(np.float32).astype(np.float64)
    tree = impls.make(name, capacity, **options)
    tree.update(np.arange(capacity), values)
    indices, drawn = tree.sample(impls.uniforms(rng, draws))
    assert drawn.min() > 0
    observed, expected = in_bins(np.bincount(indices, minlength=capacity), values * (draws / values.sum()))
    if expected.size > 1:
        assert stats.chisquare(observed, expected).pvalue > LEVEL


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


def test_the_test_can_fail():
    """A tree that is 2 % off on half its leaves is caught."""
    rng = np.random.default_rng(0)
    values = np.ones(1_000)
    biased = values * np.where(np.arange(1_000) % 2, 1.02, 0.98)
    tree = impls.make("cumsum", 1_000)
    tree.update(np.arange(1_000), biased)
    counts = np.bincount(tree.sample(rng.random(DRAWS * 10))[0], minlength=1_000)
    observed, expected = in_bins(counts, values * (DRAWS * 10 / values.sum()))
    assert stats.chisquare(observed, expected).pvalue < LEVEL


@pytest.mark.parametrize(("name", "options"), DEFAULTS)
def test_stratified_draws_take_one_leaf_of_each_interval(name, options):
    tree = impls.make(name, 64, **options)
    tree.update(np.arange(64), 1.0)
    indices, _ = tree.sample(impls.stratified_uniforms(np.random.default_rng(0), 64))
    assert indices.tolist() == list(range(64))
