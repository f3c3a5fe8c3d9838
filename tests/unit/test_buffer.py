"""The prioritized buffer: closed forms, first in first out, frames, and a walk beside a naive twin."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

import impls
from impls.replay import Layout, LocalStorage, PrioritizedBuffer, importance_weights

PLAIN = Layout((2,), "float32", choices=2)
FRAMES = Layout((2, 2), "uint8", frames=3, choices=2)


def buffer(capacity, layout=PLAIN, alpha=0.6, epsilon=1e-3, contestant="numpy", fanout=4):
    tree = impls.make(contestant, capacity, fanout=fanout, dtype="float64")
    return PrioritizedBuffer(tree, layout, alpha=alpha, epsilon=epsilon)


def records(start, count):
    number = np.arange(start, start + count)
    both = np.stack((number, number), 1).astype(np.float32)
    return {
        "observation": both,
        "next_observation": both + 1,
        "action": (number % 2).astype(np.uint8),
        "reward": number.astype(np.float32),
        "terminated": number % 5 == 0,
    }


def test_a_leaf_is_error_plus_epsilon_to_the_alpha_and_alpha_acts_once():
    found = buffer(8, alpha=0.5, epsilon=0.25)
    found.insert(records(0, 3), [0.0, 2.0, -15.75])
    assert_allclose(found.tree.get([0, 1, 2]), [0.5, 1.5, 4.0])
    found.update_priorities(np.array([1]), [8.75])
    assert_allclose(found.tree.get([0, 1, 2]), [0.5, 3.0, 4.0])


def test_errors_may_be_tensors_of_a_graph():
    torch = pytest.importorskip("torch")
    found = buffer(8, alpha=0.5, epsilon=0.25)
    found.insert(records(0, 2), torch.tensor([0.0, 2.0], requires_grad=True) * 1)
    found.update_priorities(np.array([1]), torch.tensor([8.75], dtype=torch.bfloat16, requires_grad=True))
    assert_allclose(found.tree.get([0, 1]), [0.5, 3.0])


def test_a_record_without_an_error_gets_the_largest_priority_ever_given():
    found = buffer(8, alpha=1.0, epsilon=1.0)
    found.insert(records(0, 1))
    assert found.tree.get([0]) == 1.0
    found.update_priorities(np.array([0]), [6.0])
    found.update_priorities(np.array([0]), [1.0])
    found.insert(records(1, 1))
    assert_array_equal(found.tree.get([0, 1]), [2.0, 7.0])


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_weights_have_their_closed_form(beta):
    priorities = np.array([1.0, 2.0, 5.0])
    weights = importance_weights(priorities, 8.0, 3, beta)
    assert_allclose(weights, (1 / 3 * 8.0 / priorities) ** beta)
    if beta == 0:
        assert_array_equal(weights, 1.0)


def test_sampled_weights_are_the_closed_form_over_the_largest_of_the_batch():
    found, rng = buffer(8, alpha=1.0, epsilon=1e-9), default_rng(0)
    found.insert(records(0, 3), [1.0, 2.0, 5.0])
    batch = found.sample(64, 0.5, rng)
    each = (1 / 3 * 8.0 / np.array([1.0, 2.0, 5.0])) ** 0.5
    drawn = batch.sequence
    assert set(drawn) == {0, 1, 2}
    assert_allclose(batch.weights, each[drawn] / each[0], rtol=1e-6)
    assert_array_equal(batch.rows["reward"], drawn)
    assert_array_equal(found.sample(64, 0.0, rng).weights, 1.0)


def test_alpha_0_draws_uniformly_whatever_the_errors():
    found = buffer(100, alpha=0.0)
    found.insert(records(0, 100), np.logspace(-6, 6, 100))
    batch = found.sample(100, 1.0, default_rng(0))  # stratified: one in each hundredth
    assert_array_equal(batch.sequence, np.arange(100))
    assert_array_equal(batch.weights, 1.0)


def test_draws_are_in_proportion_to_priorities():
    found = buffer(4, alpha=1.0, epsilon=1e-12)
    found.insert(records(0, 4), [1.0, 2.0, 3.0, 4.0])
    drawn = found.sample(10_000, 0.4, default_rng(0)).sequence
    assert_allclose(np.bincount(drawn) / 10_000, [0.1, 0.2, 0.3, 0.4], atol=2e-4)


def test_errors_too_small_or_large_for_the_trees_format_stay_drawable():
    tree = impls.make("fpga", 4, fanout=4, leaf_bits=8, fraction_bits=4)
    found = PrioritizedBuffer(tree, PLAIN, alpha=1.0, epsilon=1e-9)
    found.insert(records(0, 3), [1e-9, 2.0, 1e6])
    assert_array_equal(tree.get([0, 1, 2]), [1 / 16, 2.0, 255 / 16])  # a leaf counts sixteenths
    found.update_priorities(np.array([1, 2]), [0.0, 1e9])
    assert_array_equal(tree.get([0, 1, 2]), [1 / 16, 1 / 16, 255 / 16])
    assert set(found.sample(1_000, 0.4, default_rng(0)).sequence) == {0, 1, 2}


def test_slots_are_given_first_in_first_out_and_a_stale_update_is_refused():
    found, rng = buffer(4), default_rng(0)
    found.insert(records(0, 3), [1.0, 1.0, 1.0])
    before = found.sample(3, 0.4, rng)
    assert_array_equal(before.sequence, [0, 1, 2])
    found.insert(records(3, 3), [7.0, 7.0, 7.0])  # over records 0 and 1
    assert set(found.sample(400, 0.4, rng).sequence) <= {2, 3, 4, 5}
    leaves = found.tree.get(np.arange(4)).copy()
    assert_array_equal(found.update_priorities(before.sequence, [9.0, 9.0, 1.0]), [False, False, True])
    assert_array_equal(found.tree.get([0, 1]), leaves[:2])
    assert len(found) == 4
    assert found.written == 6


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
    with pytest.raises(ValueError, match="training has diverged"):
        found.insert(records(2, 2), [1.0, bad])
    with pytest.raises(ValueError, match="training has diverged"):
        found.update_priorities(np.array([0, 1]), [bad, 1.0])
    assert_array_equal(found.tree.get(np.arange(4)), leaves)
    assert (len(found), found.written) == (2, 2)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="5 records at once, the capacity is 4"):
        buffer(4).insert(records(0, 5))
    with pytest.raises(ValueError, match="alpha must be at least 0 and epsilon above 0"):
        buffer(4, epsilon=0.0)
    with pytest.raises(RuntimeError, match="nothing to sample"):
        buffer(4).sample(2, 0.4, default_rng(0))


def frame(number):
    return np.full((2, 2), number % 256, np.uint8)


def stack(*numbers):
    return np.stack([frame(number) for number in numbers])


def episode_chunks(first, length, size, end=True):
    """What an actor's local storage hands over in an episode whose frames are first, first + 1, .."""
    local, seen = LocalStorage(FRAMES, size), [first, first, first]
    for step in range(1, length + 1):
        following = [*seen[1:], first + step]
        local.append(stack(*seen), step % 2, first + step, stack(*following), step == length)
        seen = following
        if local.is_full or step == length:
            expected = local.transitions()
            taken, drawable = local.take()
            yield {name: part.copy() for name, part in taken.items()}, drawable, expected


def test_local_storage_hands_over_what_was_appended():
    (taken, drawable, expected), *_ = episode_chunks(10, 4, 4)
    assert_array_equal(taken["frame"][:, 0, 0], [10, 10, 10, 11, 12, 13, 14])
    assert_array_equal(drawable, [False, False, True, True, True, True, False])
    assert_array_equal(expected["observation"][:, :, 0, 0], [[10, 10, 10], [10, 10, 11], [10, 11, 12], [11, 12, 13]])
    assert_array_equal(expected["next_observation"][-1, :, 0, 0], [12, 13, 14])
    assert_array_equal(expected["terminated"], [False, False, False, True])


@pytest.mark.parametrize("capacity", [16, 17, 29, 64])
def test_stacks_are_read_back_from_single_frames_whoever_inserts_between(capacity):
    found, rng = buffer(capacity, FRAMES, alpha=1.0), default_rng(0)
    truth = {}
    for turn in range(60):
        for taken, drawable, expected in episode_chunks(int(rng.integers(200)), int(rng.integers(1, 9)), 4):
            start = found.written
            found.insert(taken, drawable=drawable)
            for at, number in enumerate(np.flatnonzero(drawable)):
                truth[start + number] = {name: part[at] for name, part in expected.items()}
        batch = found.sample(32, 0.4, rng)
        for at, sequence in enumerate(batch.sequence):
            for name, part in batch.rows.items():
                assert_array_equal(part[at], truth[int(sequence)][name], err_msg=f"{turn} {name}")
        # A stale update must not bring a filler, or a record with a cut stack, to life.
        assert len(found) == np.count_nonzero(found.tree.get(np.arange(capacity)))
        found.update_priorities(batch.sequence, rng.random(32))
        if turn % 7 == 3:
            stale = batch
        elif turn % 7 == 5:
            found.update_priorities(stale.sequence, rng.random(32))
        assert len(found) == np.count_nonzero(found.tree.get(np.arange(capacity)))


@pytest.mark.parametrize("layout", [PLAIN, FRAMES])
def test_a_state_goes_into_any_tree_and_draws_the_same(layout):
    one = buffer(32, layout, contestant="numpy", fanout=4)
    if layout is PLAIN:
        one.insert(records(0, 20), np.linspace(0.1, 3, 20))
    else:
        for taken, drawable, _ in episode_chunks(7, 9, 4):
            one.insert(taken, drawable=drawable)
    other = buffer(32, layout, contestant="python", fanout=3)
    other.load_state_dict(one.state_dict())
    for found in (one, other):
        assert (len(found), found.written) == (len(one), one.written)
    first, second = (found.sample(16, 0.4, default_rng(5)) for found in (one, other))
    assert_array_equal(first.sequence, second.sequence)
    for name, part in first.rows.items():
        assert_array_equal(part, second.rows[name])
    with pytest.raises(ValueError, match="which a buffer of 8 does not"):
        buffer(8, layout).load_state_dict(one.state_dict())
