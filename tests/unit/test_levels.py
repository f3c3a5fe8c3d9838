"""Levels of a tree against their definition, in integers: sizes, lines of memory, the descent of the papers' proofs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import impls
from impls.levels import CACHE_LINE, allocate, check_lines, full_level_sizes, level_sizes


@given(capacity=st.integers(1, 10**9), fanout=st.integers(2, 300))
def test_each_level_holds_the_parents_of_the_one_below(capacity, fanout):
    sizes = level_sizes(capacity, fanout)
    assert (sizes[0], sizes[-1]) == (capacity, 1)
    for below, above in itertools.pairwise(sizes):
        assert (above - 1) * fanout < below <= above * fanout
    height = len(sizes) - 1
    assert fanout**height >= capacity
    assert height == 1 or fanout ** (height - 1) < capacity


def test_heights_and_full_levels_are_counted_in_integers():
    assert len(level_sizes(125, 5)) - 1 == 3  # in floats log_5 125 is 3.0000000000000004
    assert len(level_sizes(126, 5)) - 1 == 4
    capacity, fanout = 16**4, 16
    assert sum(level_sizes(capacity, fanout)) == capacity + (capacity - 1) // (fanout - 1)  # the papers' formula
    assert level_sizes(capacity, fanout) == full_level_sizes(capacity, fanout)
    assert full_level_sizes(1_000_000, 64)[0] == 64**4  # 16.8 times the leaves needed


@pytest.mark.parametrize("aligned", [True, False])
def test_arrays_share_one_buffer_without_overlap(aligned):
    arrays = allocate([(3, "float32"), (16, "float64"), (1, "float64")], aligned=aligned)
    for array in arrays:
        assert array.ctypes.data % CACHE_LINE == (0 if aligned else array.itemsize)
        assert not array.any()
    pairs = itertools.pairwise(arrays)
    assert all(array.ctypes.data + array.nbytes <= following.ctypes.data for array, following in pairs)


def test_groups_of_numpys_tree_lie_on_lines_where_they_can():
    for fanout, dtype, aligned in itertools.product((2, 4, 8, 16, 32, 64), ("float32", "float64"), (None, True)):
        for level in impls.make("numpy", 10_000, fanout=fanout, dtype=dtype, aligned=aligned)._groups:
            group_bytes = level.strides[0]
            assert level.ctypes.data % 64 == 0
            assert 64 % group_bytes == 0 or group_bytes % 64 == 0
    twin = impls.make("numpy", 10_000, aligned=False)
    assert [level.ctypes.data % 64 for level in twin._groups] == [4, *[8] * twin.height]
    assert impls.make("numpy", 100, fanout=7).fanout == 7
    with pytest.raises(ValueError, match="28 bytes"):
        impls.make("numpy", 100, fanout=7, aligned=True)
    for size in (12, 96):
        with pytest.raises(ValueError, match=f"{size} bytes"):
            [check_lines(True, group) for group in (4, 32, 64, 128, size)]


def test_padding_to_full_levels_costs_what_the_paper_pays():
    ragged = impls.make("numpy", 5_000, fanout=64)
    full = impls.make("numpy", 5_000, fanout=64, padding="full")
    assert ragged.num_nodes == full.num_nodes == 5_000 + 79 + 2 + 1
    assert full.nbytes > 64**3 * 4 > 10 * ragged.nbytes
    assert [level.shape[0] for level in full._groups] == [64**2, 64, 1, 1]
    assert impls.make("numpy", 100)._groups[-1].shape == (1, 16)  # the root is padded to a group


# The reference tree


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
        assert node == int(np.argmax(np.cumsum(sums) > mass))


@pytest.mark.parametrize("propagate", ["recompute", "delta"])
def test_the_root_is_updated_too(propagate):
    tree = impls.make("python", 9, fanout=3, propagate=propagate)
    tree.update([0, 8, 8], [1.0, 2.0, 4.0])  # Algorithm 2 as printed leaves the root at 0
    assert tree.total() == 5.0
    tree.update(0, 0.5)  # [Zhang2023, Alg. 2] as printed would make this 5.5
    assert tree.total() == 4.5
