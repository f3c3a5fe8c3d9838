"""Lemma 1 and Theorem 2 on the recorded descent of the reference tree."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impls
from impls.levels import level_sizes


@given(
    leaves=st.lists(st.integers(0, 20), min_size=1, max_size=150).filter(any),
    fanout=st.integers(2, 9),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_cutoff_nodes_form_a_parent_chain(leaves, fanout, fraction):
    tree = impls.make("python", len(leaves), fanout=fanout)
    tree.update(np.arange(len(leaves)), leaves)
    mass = float(int(fraction * tree.total()))
    path = tree.cutoff_path(mass)
    sizes = level_sizes(len(leaves), fanout)[::-1]  # root first, as the path
    assert len(path) == tree.height + 1 == len(sizes)
    for parent, child in itertools.pairwise(path):
        assert child // fanout == parent  # Theorem 2
    for depth, node in enumerate(path):
        # [Zhang2021, Lemma 1] and the definition: the level's first node whose prefix sum exceeds the prefix value.
        span = fanout ** (len(sizes) - 1 - depth)
        sums = [sum(leaves[first : first + span]) for first in range(0, len(leaves), span)]
        assert len(sums) == sizes[depth]
        ends = np.cumsum(sums)
        assert node == int(np.argmax(ends > mass))


@pytest.mark.parametrize("propagate", ["recompute", "delta"])
def test_the_root_is_updated_too(propagate):
    tree = impls.make("python", 9, fanout=3, propagate=propagate)
    tree.update([0, 8, 8], [1.0, 2.0, 4.0])  # Algorithm 2 as printed leaves the root at 0
    assert tree.total() == 5.0
    tree.update(0, 0.5)  # [Zhang2023, Alg. 2] as printed would make this 5.5
    assert tree.total() == 4.5
