"""The prioritized buffer and segments: closed forms, first in first out, what is sampled and replaced."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

import impls
from impls.replay import Layout, PrioritizedBuffer, SegmentedReplay, importance_weights

PLAIN = Layout((2,), "float32", choices=2)


def buffer(capacity, alpha=0.6, epsilon=1e-3):
    tree = impls.make("numpy", capacity, fanout=4, dtype="float64")
    return PrioritizedBuffer(tree, PLAIN, alpha=alpha, epsilon=epsilon)


def records(start, count):
    """Records whose every field shows their number."""
    number = np.arange(start, start + count)
    seen = np.stack((number, number), 1).astype(np.float32)
    return {
        "observation": seen,
        "next_observation": seen + 1,
        "action": (number % 2).astype(np.uint8),
        "reward": number.astype(np.float32),
        "terminated": number % 5 == 0,
    }


def test_a_leaf_is_error_plus_epsilon_to_the_alpha():
    found = buffer(8, alpha=0.5, epsilon=0.25)
    found.insert(records(0, 3), [0.0, 2.0, -15.75])
    assert_allclose(found.tree.get([0, 1, 2]), [0.5, 1.5, 4.0])
    found.update_priorities(np.array([1]), [8.75])
    assert_allclose(found.tree.get([0, 1, 2]), [0.5, 3.0, 4.0])


def test_a_record_without_an_error_gets_the_largest_ever_given():
    found = buffer(8, alpha=1.0, epsilon=1.0)
    found.insert(records(0, 1))
    assert found.tree.get([0]) == 1.0
    found.update_priorities(np.array([0]), [6.0])
    found.update_priorities(np.array([0]), [1.0])
    found.insert(records(1, 1))
    assert_array_equal(found.tree.get([0, 1]), [2.0, 7.0])


def test_importance_weights_have_their_closed_form():
    priorities, rng = np.array([1.0, 2.0, 5.0]), default_rng(0)
    for beta in (0.0, 0.4, 1.0):
        assert_allclose(importance_weights(priorities, 8.0, 3, beta), (1 / 3 * 8.0 / priorities) ** beta)
    found = buffer(8, alpha=1.0, epsilon=1e-9)
    found.insert(records(0, 3), priorities)
    batch = found.sample(64, 0.5, rng)
    each = (1 / 3 * 8.0 / priorities) ** 0.5
    assert set(batch.sequence) == {0, 1, 2}
    assert_allclose(batch.weights, each[batch.sequence] / each[0], rtol=1e-6)
    assert_array_equal(batch.rows["reward"], batch.sequence)
    assert_array_equal(found.sample(64, 0.0, rng).weights, 1.0)


def test_alpha_0_draws_uniformly_whatever_the_errors():
    found = buffer(100, alpha=0.0)
    found.insert(records(0, 100), np.logspace(-6, 6, 100))
    batch = found.sample(100, 1.0, default_rng(0))  # stratified: one in each hundredth
    assert_array_equal(batch.sequence, np.arange(100))
    assert_array_equal(batch.weights, 1.0)


def test_errors_beyond_the_trees_format_stay_drawable():
    tree = impls.make("fpga", 4, fanout=4, leaf_bits=8, fraction_bits=4)
    found = PrioritizedBuffer(tree, PLAIN, alpha=1.0, epsilon=1e-9)
    found.insert(records(0, 3), [1e-9, 2.0, 1e6])
    assert_array_equal(tree.get([0, 1, 2]), [1 / 16, 2.0, 255 / 16])  # a leaf counts sixteenths
    found.update_priorities(np.array([1, 2]), [0.0, 1e9])
    assert_array_equal(tree.get([0, 1, 2]), [1 / 16, 1 / 16, 255 / 16])
    assert set(found.sample(1_000, 0.4, default_rng(0)).sequence) == {0, 1, 2}


def test_slots_are_first_in_first_out_and_stale_updates_refused():
    found, rng = buffer(4), default_rng(0)
    found.insert(records(0, 3), [1.0, 1.0, 1.0])
    before = found.sample(3, 0.4, rng)
    assert_array_equal(before.sequence, [0, 1, 2])
    found.insert(records(3, 3), [7.0, 7.0, 7.0])  # over records 0 and 1
    assert set(found.sample(400, 0.4, rng).sequence) <= {2, 3, 4, 5}
    leaves = found.tree.get(np.arange(4)).copy()
    assert_array_equal(found.update_priorities(before.sequence, [9.0, 9.0, 1.0]), [False, False, True])
    assert_array_equal(found.tree.get([0, 1]), leaves[:2])
    assert (len(found), found.written) == (4, 6)


@np.errstate(all="raise")
@pytest.mark.parametrize("name", ["python", "numpy", "flat", "cumsum"])
def test_tiny_numbers_are_right_where_underflows_are_raised(name):
    tree = impls.make(name, 4, dtype="float64")
    tree.update([1, 2], [1e-3, 1.0])
    assert tree.sample([1e-320, 0.5])[0].tolist() == [1, 2]
    extreme = PrioritizedBuffer(impls.make(name, 4, dtype="float64"), PLAIN, alpha=8.0, epsilon=1e-3)
    extreme.insert(records(0, 2), [1e-3, 1e200])
    extreme.update_priorities([0, 1], [1.0, 1.3])
    assert extreme.sample(512, 60.0, default_rng(0)).weights.min() == 0.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_error_that_is_no_priority_changes_nothing(bad):
    found = buffer(4)
    found.insert(records(0, 2), [1.0, 2.0])
    leaves = found.tree.get(np.arange(4)).copy()
    for change, first in ((found.insert, records(2, 2)), (found.update_priorities, np.array([0, 1]))):
        with pytest.raises(ValueError, match="diverged"):
            change(first, [1.0, bad])
    assert_array_equal(found.tree.get(np.arange(4)), leaves)
    assert (len(found), found.written) == (2, 2)


# Segments


def filled(segments, rows, groups, weights=lambda values: 1 + values):
    """A replay into which groups of records 0, 1, .. were inserted, a segment each."""
    replay = SegmentedReplay(segments, rows, PLAIN)
    for group in range(groups):
        values = group * rows + np.arange(rows)
        replay.insert(records(values[0], rows), weights(values))
    return replay


def sampled(replay, batches, batch, seed=0):
    """Values and weights ``[batches, batch]`` of batches."""
    rng = default_rng(seed)
    every = [replay.sample(batch, rng) for _ in range(batches)]
    for each in every:
        assert (each.rows["observation"] == each.rows["reward"][:, None]).all()
        assert (each.sequence == each.rows["reward"]).all()
    return np.array([each.rows["reward"].astype(int) for each in every]), np.array([each.weights for each in every])


def test_a_batch_and_its_weights_are_of_one_segment():
    scales = np.array([1e6, 1.0, 1e-6])  # of three distributions, which could not be compared
    replay = filled(3, 8, 3, lambda values: scales[values[0] // 8] * (1 + values % 8))
    values, weights = sampled(replay, 300, 16)
    assert (values // 8 == values[:, :1] // 8).all()
    assert set(values[:, 0] // 8) == {0, 1, 2}
    assert weights == pytest.approx((1 + values % 8) / 8)


def test_segments_and_rows_are_sampled_uniformly_and_alone():
    values, _ = sampled(filled(4, 5, 4), 4000, 1)
    counts = np.bincount(values[:, 0], minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-square of 19 degrees of freedom, level 0.001
    values, _ = sampled(filled(2, 4, 2), 2000, 2)
    pairs = np.bincount(values[:, 0] % 4 * 4 + values[:, 1] % 4, minlength=16)
    assert ((pairs - 125) ** 2 / 125).sum() < 37.7  # 15 degrees of freedom, level 0.001


def test_the_oldest_segment_is_replaced_as_a_whole():
    replay = SegmentedReplay(2, 3, PLAIN)
    for count in range(3):
        assert len(replay) == 0
        with pytest.raises(RuntimeError, match="no segment of 3 records is full"):
            replay.sample(1, default_rng(0))
        replay.insert(records(count, 1), [1.0])
    assert set(sampled(replay, 50, 4)[0].ravel()) == {0, 1, 2}
    replay = filled(3, 4, 3)
    assert (len(replay), replay.written, replay.room) == (12, 12, 4)
    replay.insert(records(12, 1), [1.0])
    assert (len(replay), replay.room) == (8, 3)  # segment 0 is emptied by the first record of the next group
    assert set(sampled(replay, 200, 8)[0].ravel()) == set(range(4, 12))
    replay.insert(records(13, 3), [1.0, 4.0, 2.0])
    assert (len(replay), replay.room) == (12, 4)
    values, weights = sampled(replay, 300, 8)
    assert set(values.ravel()) == set(range(4, 16))
    assert all((weights[values == value] == weight).all() for value, weight in ((12, 0.25), (13, 0.25), (14, 1.0)))


def test_what_fits_no_segment_is_refused_and_changes_nothing():
    replay = filled(2, 4, 1)
    for weights in ([1.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0], [1.0], 1.0):
        with pytest.raises(ValueError, match=r"weights must be \[2\]"):
            replay.insert(records(4, 2), weights)
    replay.insert(records(4, 1), [1.0])
    rows = records(5, 1)
    less = {name: part for name, part in rows.items() if name != "action"}
    for bad, words in ((rows | {"observation": np.zeros((1, 3))}, r"\[1, 2\], not \[1, 3\]"), (less, "action")):
        with pytest.raises(ValueError, match=words):
            replay.insert(bad, [1.0])
    with pytest.raises(ValueError, match=r"4 records .* 3 rows"):
        replay.insert(records(5, 4), np.ones(4))
    assert replay.written == 5
    for segments, layout in ((2, Layout((2, 2), "uint8", frames=4, choices=2)), (0, PLAIN)):
        with pytest.raises(ValueError, match=r"frames|segments"):
            SegmentedReplay(segments, 4, layout)


def test_a_state_of_segments_continues_where_it_was_saved():
    for more in (0, 1, 3):
        replay, again = filled(3, 4, 4), SegmentedReplay(3, 4, PLAIN)
        replay.insert(records(16, more), np.ones(more))
        again.load_state_dict(replay.state_dict())
        for each in (replay, again):
            each.insert(records(16 + more, 4 - more), 2 + np.arange(more, 4))
        assert (again.written, again.room, len(again)) == (20, 4, 12)
        first, second = (sampled(each, 50, 8) for each in (replay, again))
        assert (first[0] == second[0]).all() and (first[1] == second[1]).all()
    state = filled(3, 4, 4).state_dict()
    for segments, rows in ((2, 4), (2, 6), (4, 3)):
        other = SegmentedReplay(segments, rows, PLAIN)
        with pytest.raises(ValueError, match="12 records in segments of 4"):
            other.load_state_dict(state)
        assert other.written == 0
    state["arrays"].pop("reward")
    with pytest.raises(ValueError, match="reward"):
        SegmentedReplay(3, 4, PLAIN).load_state_dict(state)


def test_weights_far_apart_fit_where_underflows_are_raised():
    with np.errstate(all="raise"):
        replay = filled(1, 2, 1, lambda values: np.array([1e-300, 1e300]))
    values, weights = sampled(replay, 8, 4)
    assert (weights == values).all()  # 0 and 1
