"""Banks of a replay: their weights against Eq. 5.4 worked by hand, their kernels against the replay of one tree."""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest
from numba import njit
from numpy.random import default_rng

pytest.importorskip("numba")

from impls.replay import Layout, LocalStorage, attach, make, sampling, steps
from impls.replay.block import ACTOR, ARRIVED, GRANTED, MODE
from impls.replay.steps import function_of
from tests.parallel_runs import PATIENCE_SECONDS, until

FLAT = Layout((4,), "float64", choices=2)
STACKED = Layout((2, 2), "uint8", frames=4, choices=2)
ACTOR_ROWS = 3  # records that an actor inserts at once


def records(values):
    """Records [n] whose every field shows the same value."""
    values = np.asarray(values, np.float64)
    seen = np.repeat(values[:, None], 4, axis=1)
    plain = {"action": np.zeros(values.size, np.uint8), "terminated": np.zeros(values.size, np.bool_)}
    return {"observation": seen, "next_observation": seen, "reward": values.astype(np.float32), **plain}


def is_whole(batch):
    rows = batch.rows
    same = (rows["observation"] == rows["next_observation"]).all() and (
        rows["observation"] == rows["reward"][:, None]
    ).all()
    return bool(same and np.isfinite(batch.weights).all() and (batch.weights > 0).all())


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


def steps_of_an_episode(number, length, layout=STACKED):
    """An episode as it is inserted; frame t shows 20 number + t."""
    local = LocalStorage(layout, length)
    frames = [np.full((2, 2), 20 * number + t, np.uint8) for t in range(length + 1)]
    stack = np.repeat(frames[0][None], 4, axis=0)
    for t in range(length):
        following = np.concatenate((stack[1:], frames[t + 1][None]))
        local.append(stack, 0, 20 * number + t, following, t == length - 1)
        stack = following
    return local.take()


@pytest.mark.parametrize("layout", [FLAT, STACKED])
def test_one_bank_is_two_lock_checked(layout):
    rng = default_rng(7)
    replays = [make(40, layout, strategy=name, alpha=0.6, epsilon=0.01) for name in ("banked", "two_lock_checked")]
    for number in range(30):
        rows, drawable = steps_of_an_episode(number % 12, int(rng.integers(1, 9)))
        if layout is FLAT:
            rows, drawable = records(rng.random(int(rng.integers(1, 9)))), None
        count = len(rows["reward"]) if drawable is None else int(drawable.sum())
        errors = rng.random(count) if number % 3 else None
        sampled, fresh = [], rng.random(70)
        for replay in replays:
            replay.insert(rows, errors, drawable)
            sampled.append(replay.sample(70, 0.4, default_rng(number)))
            replay.update_priorities(sampled[-1].sequence, fresh)
        one, other = sampled
        assert one.rows.keys() == other.rows.keys()
        assert all((one.rows[name] == other.rows[name]).all() for name in one.rows)
        assert (one.sequence == other.sequence).all() and (one.weights == other.weights).all()
        one, other = (replay.state_dict() for replay in replays)
        assert (one["leaves"] == other["leaves"]).all() and one["largest"] == other["largest"]


def test_inserts_take_turns_and_a_sequence_is_ticket_times_banks_plus_bank():
    with banked(64, 4) as replay:
        for number in range(10):
            replay.insert(records([2 * number, 2 * number + 1]))
        assert len(replay) == replay.written == 20
        batch = replay.sample(400, 0.0, default_rng(0))
        insert, row = np.divmod(batch.rows["reward"].astype(int), 2)
        assert (batch.sequence % 4 == insert % 4).all()
        assert (batch.sequence // 4 == insert // 4 * 2 + row).all()


def test_weights_are_those_of_eq_5_4_by_hand():
    # S_1 = 4 and S_2 = 12, so S = 16; N = 4, m = 2. Uniforms fall on priorities 1, 3 and 2, 10.
    uniforms = np.array([0.05, 0.45, 0.51, 0.95])
    with with_priorities([1, 3], [2, 10]) as replay:

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
        own = {"uniforms": np.array([0.1, 0.9])}
        assert replay.sample(2, 1.0, bank=0, **own).weights == pytest.approx([0.5 * 4, 0.5 * 4 / 3])
        assert replay.sample(2, 1.0, bank=1, **own).weights == pytest.approx([1.5 * 2, 1.5 * 0.4])
        assert replay.sample(2, 0.5, bank=1, **own).weights == pytest.approx([1.5 * 2**0.5, 1.5 * 0.4**0.5])
        assert replay.sample(2, 1.0, bank=1, weights="printed", **own).weights == pytest.approx([2, 0.4])


def shares(batch, records):
    """What each record contributes to a weighted mean over a batch, ``[records]``, normalized."""
    sums = np.bincount(batch.rows["reward"].astype(int), batch.weights.astype(np.float64), records)
    return sums / sums.sum()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_exact_weights_expect_what_one_tree_does_and_printed_ones_do_not(beta):
    priorities = np.array([1.0, 3.0, 2.0, 10.0])
    one_tree = priorities ** (1 - beta) / (priorities ** (1 - beta)).sum()
    # 24 evenly spaced uniforms hit every record just as often as is expected: 3, 9, 2 and 10 times.
    uniforms = (np.arange(24) + 0.5) / 24
    with with_priorities([1, 3], [2, 10]) as replay:
        exact = replay.sample(24, beta, uniforms=uniforms)
        assert np.bincount(exact.rows["reward"].astype(int)).tolist() == [3, 9, 2, 10]
        assert shares(exact, 4) == pytest.approx(one_tree, rel=1e-6)
        printed = shares(replay.sample(24, beta, uniforms=uniforms, weights="printed"), 4)
        # The first bank, of a quarter of all priorities, gets three times the share that the second one gets.
        assert printed[:2] / printed[2:] == pytest.approx(3 * one_tree[:2] / one_tree[2:], rel=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_learners_with_a_bank_each_expect_together_what_one_tree_does(beta):
    priorities = np.array([1.0, 3.0, 2.0, 10.0])
    expected = priorities / 16 * (16 / (4 * priorities)) ** beta
    with with_priorities([1, 3], [2, 10]) as replay:
        mean = np.zeros(4)
        for bank in range(2):
            batch = replay.sample(12, beta, bank=bank, uniforms=(np.arange(12) + 0.5) / 12)
            assert (batch.sequence % 2 == bank).all()
            mean += np.bincount(batch.rows["reward"].astype(int), batch.weights.astype(np.float64), 4) / 12 / 2
    assert mean == pytest.approx(expected, rel=1e-6)


def test_printed_weights_are_right_where_the_sums_are_equal():
    with with_priorities([1, 5], [3, 3], [2, 2, 2]) as replay:
        for bank in (None, 0, 1, 2):
            exact, printed = (
                replay.sample(30, 0.4, default_rng(1), bank, weights=weights) for weights in ("exact", "printed")
            )
            assert (exact.sequence == printed.sequence).all()
            assert exact.weights == pytest.approx(printed.weights, rel=1e-6)


@pytest.mark.parametrize("batch", [8, 10, 3])
def test_banks_have_equal_shares_of_a_batch_whatever_its_size(batch):
    rng, counts = default_rng(3), np.zeros(4)
    with with_priorities([1], [2, 2], [30], [4, 4, 4]) as replay:
        for _ in range(500):
            sampled = np.bincount(replay.sample(batch, 0.0, rng).sequence % 4, minlength=4)
            assert (abs(sampled - batch / 4) < (2 if batch % 4 else 1e-9)).all()
            counts += sampled
    assert counts / counts.sum() == pytest.approx(np.full(4, 0.25), abs=0.02)


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
        states = replay.state_dict()["banks"]
        assert [state["leaves"].tolist() for state in states] == [[10, 1, 1, 40], [20, 50, 1, 30]]
        assert replay.retrieve_priorities(sequence).tolist() == [10, 20, 30, 40, 50]
        replay.insert(records([8, 9]))  # over tickets 0 and 1 of bank 0
        assert replay.retrieve_priorities(np.array([0, 1, 2, 3, -1])).tolist() == [0, 20, 0, 50, 0]
        present = replay.update_priorities(np.array([0, 1, 2, 3, 8, 9, -1, -2]), np.full(8, 0.5))
        assert present.tolist() == [False, True, False, True, True, False, False, False]
        assert replay.check() == 0.0


def test_records_without_an_error_get_the_largest_priority_of_any_bank():
    with banked(8, 2) as replay:
        replay.insert(records([0]), np.array([3.5]))
        replay.insert(records([1]))
        replay.update_priorities(np.array([1]), np.array([6.5]))
        replay.insert(records([2]))
        states = replay.state_dict()["banks"]
    assert [state["leaves"].tolist() for state in states] == [[4, 7], [7]]


def test_the_largest_current_priority_is_that_of_the_bank():
    with banked(8, 2, max_priority="current") as replay:
        for error in (3.5, 1.5, None, None):
            replay.insert(records([0]), None if error is None else np.array([error]))
        states = replay.state_dict()["banks"]
    assert [state["leaves"].tolist() for state in states] == [[4, 4], [2, 2]]


def test_one_bank_samples_distinct_records():
    with banked(8, 1) as replay:
        replay.insert(records(np.arange(5)), np.arange(5.0))
        assert sorted(replay.sample(5, 0.4, distinct=True).rows["reward"]) == [0, 1, 2, 3, 4]


def test_an_update_of_no_number_changes_nothing_in_any_bank():
    with banked(8, 2) as replay:
        for number in range(2):
            replay.insert(records([number]))
        with pytest.raises(ValueError, match="TD error is nan"):
            replay.update_priorities(np.array([0, 1]), np.array([5.0, np.nan]))
        assert [state["leaves"].tolist() for state in replay.state_dict()["banks"]] == [[1], [1]]
        with pytest.raises(ValueError, match="TD error is inf"):
            replay.insert(records([5]), np.array([np.inf]))
        assert replay.written == 2


def test_state_is_that_of_every_bank_and_loads_into_as_many():
    rng = default_rng(5)
    with banked(32, 4) as replay, banked(32, 4) as again, banked(32, 2) as two, banked(32, 1) as one:
        for number in range(13):
            replay.insert(records(3 * number + np.arange(3)), rng.random(3))
        state = replay.state_dict()
        again.load_state_dict(state)
        assert (len(again), again.written, again.check()) == (len(replay), replay.written, 0.0)
        first, second = (kept.sample(16, 0.4, default_rng(2)) for kept in (replay, again))
        assert (first.sequence == second.sequence).all() and (first.weights == second.weights).all()
        for other in (two, one):
            with pytest.raises(ValueError, match=r"state is of a replay with banks=4, and this one has banks=[12]"):
                other.load_state_dict(state)
        with pytest.raises(ValueError, match="state is of a replay with banks=1, and this one has banks=2"):
            two.load_state_dict(one.state_dict())
        state["banks"][3]["arrays"].pop("reward")
        state["banks"][0]["leaves"][:] = 1
        with pytest.raises(ValueError, match="another layout: it differs in reward"):
            again.load_state_dict(state)
        assert (again.state_dict()["banks"][0]["leaves"] == replay.state_dict()["banks"][0]["leaves"]).all()


def test_a_state_of_one_bank_is_that_of_any_replay():
    with banked(8, 1) as replay, make(8, FLAT, alpha=1.0, epsilon=0.5) as other:
        replay.insert(records(np.arange(3)), np.arange(3))
        other.load_state_dict(replay.state_dict())
        replay.load_state_dict(other.state_dict())
        assert replay.state_dict()["leaves"].tolist() == [0.5, 1.5, 2.5]


def test_bad_input_is_one_sentence():
    with banked(8, 2) as replay:
        replay.insert(records([0]))
        with pytest.raises(ValueError, match="5 records at once, a bank holds 4"):
            replay.insert(records(np.arange(5)))
        with pytest.raises(ValueError, match="bank must be below 2, the number of banks, not 2"):
            replay.sample(1, 0.4, bank=2)
        with pytest.raises(ValueError, match="bank"):
            replay.sample(1, 0.4, bank=-1)
        with pytest.raises(ValueError, match="weights"):
            replay.sample(1, 0.4, weights="equal")
        with pytest.raises(ValueError, match="distinct records are sampled from a replay of one bank, not of 2"):
            replay.sample(1, 0.4, distinct=True)
    with pytest.raises(ValueError, match="multiple of banks"):
        banked(9, 2)


def test_stacks_of_frames_are_whole_in_every_bank():
    rng = default_rng(11)
    with banked(120, 3, STACKED) as replay:
        for number in range(60):
            rows, drawable = steps_of_an_episode(number % 12, int(rng.integers(1, 12)))
            replay.insert(rows, rng.random(int(drawable.sum())), drawable)
            batch = replay.sample(32, 0.4, rng)
            episode, t = np.divmod(batch.rows["reward"].astype(int), 20)
            for shift, name in enumerate(("observation", "next_observation")):
                seen = np.maximum(t[:, None] + np.arange(-3, 1) + shift, 0) + 20 * episode[:, None]
                assert (batch.rows[name] == seen[:, :, None, None]).all()
        assert replay.check() == 0.0


def threads(*calls):
    """Run each call in a thread of its own; raises what any of them raised."""
    wrong = []

    def run(call):
        try:
            call()
        except Exception as error:
            wrong.append(error)

    workers = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_SECONDS)
        assert not worker.is_alive(), "a call hangs"
    for error in wrong:
        raise error


def learn(replay, bank, rounds, seed):
    rng = default_rng(seed)
    for _ in range(rounds):
        batch = replay.sample(16, 0.4, rng, bank)
        assert is_whole(batch), batch
        assert bank is None or (batch.sequence % replay.settings.banks == bank).all()
        replay.update_priorities(batch.sequence, rng.random(16))


def act(replay, rounds, first):
    for number in range(rounds):
        replay.insert(records(first + ACTOR_ROWS * number + np.arange(ACTOR_ROWS)))


def of_an_actor(handle, number):
    with attach(handle) as replay:
        for bank in replay._banks:
            bank.view[ACTOR] = number
        while True:
            act(replay, 4, 1000 * number)
            learn(replay, None, 1, number)


def test_a_killed_process_loses_at_most_what_it_was_writing():
    context, rng = multiprocessing.get_context("spawn"), default_rng(0)
    with banked(64, 2, shared=True, fanout=4, trial=True) as replay:
        act(replay, 8, 0)
        memory = replay._banks[0].memory
        memory.view(8 * MODE, (1,), np.int64)[0] = steps.RANDOM
        arrived = memory.view(8 * ARRIVED, (3,), np.int64)
        memory.view(8 * GRANTED, (3,), np.int64)[:] = rng.integers(1 << 62, size=3)
        children = [context.Process(target=of_an_actor, args=(replay.handle(), number)) for number in range(3)]
        try:
            for child in children:
                child.start()
            until(arrived.all)
            for child in children:
                time.sleep(rng.random() / 20)
                os.kill(child.pid, signal.SIGKILL)
                threads(lambda: act(replay, 30, 5000), lambda: learn(replay, None, 30, 9))
        finally:
            for child in children:
                child.kill()
                child.join()
        assert [child.exitcode for child in children] == [-signal.SIGKILL] * 3
        assert replay.recover() <= 3 * ACTOR_ROWS
        assert replay.check() == 0.0
        assert len(replay) == sum(int((bank.leaves > 0).sum()) for bank in replay._banks)
        threads(lambda: act(replay, 30, 0))  # over everything that was lost
        assert len(replay) == replay.capacity
        assert all((bank.ranges()[:, 1] == 0).all() for bank in replay._banks)
