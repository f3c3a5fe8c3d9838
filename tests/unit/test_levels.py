"""Level arithmetic against its definition, in integers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.levels import CACHE_LINE, allocate, check_lines, full_level_sizes, level_sizes


@given(capacity=st.integers(1, 10**9), fanout=st.integers(2, 300))
def test_each_level_holds_the_parents_of_the_one_below(capacity, fanout):
    sizes = level_sizes(capacity, fanout)
    assert sizes[0] == capacity
    assert sizes[-1] == 1
    for below, above in itertools.pairwise(sizes):
        assert (above - 1) * fanout < below <= above * fanout
    height = len(sizes) - 1
    assert fanout**height >= capacity
    assert height == 1 or fanout ** (height - 1) < capacity


def test_height_is_counted_in_integers():
    assert len(level_sizes(125, 5)) - 1 == 3  # in floats log_5 125 is 3.0000000000000004
    assert len(level_sizes(126, 5)) - 1 == 4


def test_nodes_of_a_full_tree_follow_the_papers_formula():
    capacity, fanout = 16**4, 16
    assert sum(level_sizes(capacity, fanout)) == capacity + (capacity - 1) // (fanout - 1)
    assert level_sizes(capacity, fanout) == full_level_sizes(capacity, fanout)


def test_the_papers_padding_at_a_million_leaves():
    assert full_level_sizes(1_000_000, 64)[0] == 64**4  # 16.8 times the leaves needed


@pytest.mark.parametrize("aligned", [True, False])
def test_arrays_share_one_buffer_without_overlap(aligned):
    arrays = allocate([(3, "float32"), (16, "float64"), (1, "float64")], aligned=aligned)
    for array in arrays:
        assert array.ctypes.data % CACHE_LINE == (0 if aligned else array.itemsize)
        assert not array.any()
    pairs = itertools.pairwise(arrays)
    assert all(array.ctypes.data + array.nbytes <= following.ctypes.data for array, following in pairs)


def test_groups_that_straddle_lines_are_refused_where_lines_are_insisted_on():
    for size in (12, 28, 96):
        with pytest.raises(ValueError, match=f"{size} bytes"):
            [check_lines(True, group) for group in (4, 32, 64, 128, size)]
