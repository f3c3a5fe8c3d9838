"""Banks of a replay: their weights against Eq. 5.4 worked by hand, and what only several banks have."""

import numpy as np
import pytest
from numba import njit
from numpy.random import default_rng

pytest.importorskip("numba")

from impls.replay import Layout, make, sampling
from impls.replay.steps import function_of

FLAT = Layout((4,), "float64", choices=2)
BY_HAND = np.array([1.0, 3.0, 2.0, 10.0])  # priorities of two banks: S_1 = 4 and S_2 = 12, so S = 16; N = 4, m = 2


def records(values):
    """Records [n] whose every field shows the same value."""
    values = np.asarray(values, np.float64)
    seen = np.repeat(values[:, None], 4, axis=1)
    plain = {"action": np.zeros(values.size, np.uint8), "terminated": np.zeros(values.size, np.bool_)}
    return {"observation": seen, "next_observation": seen, "reward": values.astype(np.float32), **plain}


def banked(capacity=64, banks=4, layout=FLAT, alpha=1.0, **options):
    return make(capacity, layout, strategy="banked", banks=banks, alpha=alpha, epsilon=0.5, **options)


def with_priorities(*banks):
    """A replay whose banks hold records 0, 1, .. of these priorities, the first bank's first."""
    replay = banked(len(banks) * 8, len(banks))
    start = 0
    for priorities in banks:
        replay.insert(records(start + np.arange(len(priorities))), np.array(priorities) - 0.5)
        start += len(priorities)
    return replay


def leaves(replay):
    return [state["leaves"].tolist() for state in replay.state_dict()["banks"]]


def test_inserts_take_turns_and_a_sequence_counts_banks():
    with banked(64, 4) as replay:
        for number in range(10):
            replay.insert(records([2 * number, 2 * number + 1]))
        assert len(replay) == replay.written == 20
        batch = replay.sample(400, 0.0, default_rng(0))
        insert, row = np.divmod(batch.rows["reward"].astype(int), 2)
        assert (batch.sequence % 4 == insert % 4).all()
        assert (batch.sequence // 4 == insert // 4 * 2 + row).all()


def test_weights_are_those_of_eq_5_4_by_hand():
    uniforms = np.array([0.05, 0.45, 0.51, 0.95])  # on priorities 1, 3 and 2, 10
    with with_priorities(BY_HAND[:2], BY_HAND[2:]) as replay:

        def weights(beta, **options):
            batch = replay.sample(4, beta, uniforms=uniforms, **options)
            assert batch.rows["reward"].tolist() == [0, 1, 2, 3]
            return batch.weights

        assert weights(1.0) == pytest.approx(np.array([4 / 1, 4 / 3, 12 / 2, 12 / 10]) / 6)
        assert weights(0.0) == pytest.approx([1 / 3, 1 / 3, 1, 1])
        assert weights(0.5) == pytest.approx(np.array([4, 4 / 3**0.5, 12 / 2**0.5, 12 / 10**0.5]) / 72**0.5)
        assert weights(1.0, weights="printed") == pytest.approx([1, 1 / 3, 1 / 2, 1 / 10])
        assert weights(0.0, weights="printed") == pytest.approx([1, 1, 1, 1])
        # A learner's own: m S_j / S * 16 / (4 p), not divided by the largest.
        for beta, bank, expected, options in (
            (1.0, 0, [0.5 * 4, 0.5 * 4 / 3], {}),
            (1.0, 1, [1.5 * 2, 1.5 * 0.4], {}),
            (0.5, 1, [1.5 * 2**0.5, 1.5 * 0.4**0.5], {}),
            (1.0, 1, [2, 0.4], {"weights": "printed"}),
        ):
            batch = replay.sample(2, beta, bank=bank, uniforms=np.array([0.1, 0.9]), **options)
            assert batch.weights == pytest.approx(expected)


def test_empty_banks_leave_their_share_to_the_others():
    with banked(64, 4) as replay:
        with pytest.raises(RuntimeError, match="nothing to sample: no record"):
            replay.sample(4, 0.4)
        for number in range(3):
            replay.insert(records([number]), drawable=[number != 1])
        batch = replay.sample(6, 1.0)
        assert batch.rows["reward"].tolist() == [0, 0, 0, 2, 2, 2]
        assert batch.weights == pytest.approx(1.0)
        with pytest.raises(RuntimeError, match="nothing to sample in bank 1"):
            replay.sample(4, 0.4, bank=1)


def test_a_fresh_value_stays_in_the_places_interval_and_bank():
    uniforms, redraw = np.linspace(0.1, 0.9, 5), njit(function_of("redraw"))
    for parts, part, place, low, high in [
        (1, 0, 3, 0.6, 0.8),
        (2, 0, 1, 0.4, 0.8),
        (2, 0, 2, 0.8, 1.0),
        (2, 1, 2, 0.0, 0.2),
        (2, 1, 4, 0.6, 1.0),
    ]:
        drawn = np.zeros(sampling.DRAWN * 5)
        values, places = drawn[:5], drawn[20:].view(np.int64)
        at, given = drawn.ctypes.data, uniforms.ctypes.data
        places[0] = place
        seen = []
        for attempt in range(1, 200):
            redraw(0, None, at, 5, given, 1, attempt, True, parts, part)
            seen.append(values[place])
        assert len(set(seen)) == len(seen)  # none is cut off at an end
        assert low <= min(seen) < low + 0.02 and high - 0.02 < max(seen) < high


def test_updates_find_their_bank_and_late_ones_are_refused():
    with banked(8, 2) as replay:
        for number in range(4):
            replay.insert(records([2 * number, 2 * number + 1]), np.full(2, 0.5))  # slots 0 to 3 of both banks
        sequence = np.array([0, 1, 7, 6, 3])
        assert replay.update_priorities(sequence, np.array([9.5, 19.5, 29.5, 39.5, 49.5])).all()
        assert leaves(replay) == [[10, 1, 1, 40], [20, 50, 1, 30]]
        assert replay.retrieve_priorities(sequence).tolist() == [10, 20, 30, 40, 50]
        replay.insert(records([8, 9]))  # over tickets 0 and 1 of bank 0
        assert replay.retrieve_priorities(np.array([0, 1, 2, 3, -1])).tolist() == [0, 20, 0, 50, 0]
        present = replay.update_priorities(np.array([0, 1, 2, 3, 8, 9, -1, -2]), np.full(8, 0.5))
        assert present.tolist() == [False, True, False, True, True, False, False, False]
        assert replay.check() == 0.0


def test_a_record_without_an_error_gets_the_largest_of_any_bank():
    with banked(8, 2) as replay, banked(8, 2, max_priority="current") as current:
        replay.insert(records([0]), np.array([3.5]))
        replay.insert(records([1]))
        replay.update_priorities(np.array([1]), np.array([6.5]))
        replay.insert(records([2]))
        assert leaves(replay) == [[4, 7], [7]]
        for error in (3.5, 1.5, None, None):
            current.insert(records([0]), None if error is None else np.array([error]))
        assert leaves(current) == [[4, 4], [2, 2]]  # the largest current one is the bank's


def test_a_state_is_of_every_bank_and_loads_into_as_many():
    rng = default_rng(5)
    with banked(32, 4) as replay, banked(32, 4) as again, banked(32, 2) as two, banked(32, 1) as single:
        for number in range(13):
            replay.insert(records(3 * number + np.arange(3)), rng.random(3))
        state = replay.state_dict()
        again.load_state_dict(state)
        assert (len(again), again.written, again.check()) == (len(replay), replay.written, 0.0)
        first, second = (kept.sample(16, 0.4, default_rng(2)) for kept in (replay, again))
        assert (first.sequence == second.sequence).all() and (first.weights == second.weights).all()
        for other, of, words in (
            (two, state, "banks=4, .* banks=2"),
            (single, state, "banks=4, .* banks=1"),
            (two, single.state_dict(), "banks=1, .* banks=2"),
        ):
            with pytest.raises(ValueError, match=words):
                other.load_state_dict(of)
        state["banks"][3]["arrays"].pop("reward")
        state["banks"][0]["leaves"][:] = 1
        with pytest.raises(ValueError, match="reward"):
            again.load_state_dict(state)
        assert leaves(again) == leaves(replay)
        with make(32, FLAT, alpha=1.0, epsilon=0.5) as plain:
            single.insert(records(np.arange(3)), np.arange(3))
            plain.load_state_dict(single.state_dict())  # a state of one bank is that of any replay
            single.load_state_dict(plain.state_dict())
            assert single.state_dict()["leaves"].tolist() == [0.5, 1.5, 2.5]


def test_bad_input_changes_nothing_in_any_bank():
    with banked(8, 2) as replay:
        for number in range(2):
            replay.insert(records([number]))
        for call, words in (
            (lambda: replay.update_priorities(np.array([0, 1]), np.array([5.0, np.nan])), "nan"),
            (lambda: replay.insert(records([5]), np.array([np.inf])), "inf"),
            (lambda: replay.insert(records(np.arange(5))), "5 records at once, a bank holds 4"),
            (lambda: replay.sample(1, 0.4, bank=2), "bank must be below 2, .*, not 2"),
            (lambda: replay.sample(1, 0.4, bank=-1), "bank"),
            (lambda: replay.sample(1, 0.4, weights="equal"), "weights"),
            (lambda: replay.sample(1, 0.4, distinct=True), "distinct .* of 2"),
            (lambda: banked(9, 2), "multiple of banks"),
        ):
            with pytest.raises(ValueError, match=words):
                call()
        assert (leaves(replay), replay.written) == ([[1], [1]], 2)
