"""Segments of a replay: what is sampled, which segment is replaced, and weights that hold in a segment alone."""

import numpy as np
import pytest

from impls.replay import Layout, SegmentedReplay

LAYOUT = Layout((2,), "float32", choices=2)


def records(values):
    """Records [n] whose every field shows the same value."""
    values = np.asarray(values, np.float32)
    seen = np.repeat(values[:, None], 2, axis=1)
    plain = {"action": np.zeros(values.size, np.uint8), "terminated": np.zeros(values.size, np.bool_)}
    return {"observation": seen, "next_observation": seen + 1, "reward": values, **plain}


def filled(segments, rows, groups, weights=lambda values: 1 + values):
    """A replay into which groups of records 0, 1, .. were inserted, a segment each."""
    replay = SegmentedReplay(segments, rows, LAYOUT)
    for group in range(groups):
        values = group * rows + np.arange(rows)
        replay.insert(records(values), weights(values))
    return replay


def sampled(replay, batches, batch, seed=0):
    """Values and weights ``[batches, batch]`` of batches."""
    rng = np.random.default_rng(seed)
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


def test_segments_and_rows_are_sampled_uniformly():
    values, _ = sampled(filled(4, 5, 4), 4000, 1)
    counts = np.bincount(values[:, 0], minlength=20)
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-square of 19 degrees of freedom, level 0.001


def test_rows_of_a_batch_are_sampled_independently():
    values, _ = sampled(filled(2, 4, 2), 2000, 2)
    pairs = np.bincount(values[:, 0] % 4 * 4 + values[:, 1] % 4, minlength=16)
    assert ((pairs - 125) ** 2 / 125).sum() < 37.7  # 15 degrees of freedom, level 0.001


def test_the_oldest_segment_is_replaced_as_a_whole():
    replay = filled(3, 4, 3)
    assert (len(replay), replay.written, replay.room) == (12, 12, 4)
    replay.insert(records([12.0]), [1.0])
    assert (len(replay), replay.room) == (8, 3)  # segment 0 is emptied by the first record of the next group
    assert set(sampled(replay, 200, 8)[0].ravel()) == set(range(4, 12))
    replay.insert(records([13.0, 14.0, 15.0]), [1.0, 4.0, 2.0])
    assert (len(replay), replay.room) == (12, 4)
    values, weights = sampled(replay, 300, 8)
    assert set(values.ravel()) == set(range(4, 16))
    assert all((weights[values == value] == weight).all() for value, weight in ((12, 0.25), (13, 0.25), (14, 1.0)))


def test_only_full_segments_are_sampled():
    replay = SegmentedReplay(2, 3, LAYOUT)
    for count in range(3):
        assert len(replay) == 0
        with pytest.raises(RuntimeError, match="no segment of 3 records is full"):
            replay.sample(1, np.random.default_rng(0))
        replay.insert(records([count]), [1.0])
    replay.insert(records([3, 4]), [1.0, 1.0])
    assert len(replay) == 3
    assert set(sampled(replay, 50, 4)[0].ravel()) == {0, 1, 2}


def test_a_lone_segment_is_empty_while_it_is_replaced():
    replay = filled(1, 2, 5)
    assert len(replay) == 2
    replay.insert(records([10]), [1.0])
    assert len(replay) == 0


@pytest.mark.parametrize("weights", [[1.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0], [1.0], 1.0])
def test_weights_that_are_none_are_refused_and_change_nothing(weights):
    replay = filled(2, 4, 1)
    with pytest.raises(ValueError, match=r"weights must be \[2\], positive and finite"):
        replay.insert(records([4, 5]), weights)
    assert replay.written == 4


def test_records_that_do_not_fit_are_refused():
    replay = filled(2, 4, 1)
    replay.insert(records([4]), [1.0])
    with pytest.raises(ValueError, match="4 records do not fit into the 3 rows left of a segment of 4"):
        replay.insert(records(np.arange(4)), np.ones(4))
    rows = records([5])
    with pytest.raises(ValueError, match=r"observation must be \[1, 2\], not \[1, 3\]"):
        replay.insert(rows | {"observation": np.zeros((1, 3))}, [1.0])
    rows.pop("action")
    with pytest.raises(ValueError, match=r"must have .*, action, .*, not observation, next_observation, reward"):
        replay.insert(rows, [1.0])
    assert replay.written == 5
    with pytest.raises(ValueError, match="frames must be 1, not 4"):
        SegmentedReplay(2, 4, Layout((2, 2), "uint8", frames=4, choices=2))
    with pytest.raises(ValueError, match="segments"):
        SegmentedReplay(0, 4, LAYOUT)


@pytest.mark.parametrize("more", [0, 1, 3])
def test_state_continues_where_it_was_saved(more):
    replay, again = filled(3, 4, 4), SegmentedReplay(3, 4, LAYOUT)
    replay.insert(records(16 + np.arange(more)), np.ones(more))
    again.load_state_dict(replay.state_dict())
    for each in (replay, again):
        each.insert(records(16 + np.arange(more, 4)), 2 + np.arange(more, 4))
    assert (again.written, again.room, len(again)) == (20, 4, 12)
    first, second = (sampled(each, 50, 8) for each in (replay, again))
    assert (first[0] == second[0]).all() and (first[1] == second[1]).all()


def test_state_of_other_segments_is_refused():
    state = filled(3, 4, 4).state_dict()
    for segments, rows in ((2, 4), (2, 6), (4, 3)):
        replay = SegmentedReplay(segments, rows, LAYOUT)
        with pytest.raises(ValueError, match="the state holds 12 records in segments of 4"):
            replay.load_state_dict(state)
        assert replay.written == 0
    state["arrays"].pop("reward")
    with pytest.raises(ValueError, match="another layout: it differs in reward"):
        SegmentedReplay(3, 4, LAYOUT).load_state_dict(state)


def test_weights_far_apart_fit_where_underflows_are_raised():
    with np.errstate(all="raise"):
        replay = filled(1, 2, 1, lambda values: np.array([1e-300, 1e300]))
    values, weights = sampled(replay, 8, 4)
    assert (weights == values).all()  # 0 and 1
