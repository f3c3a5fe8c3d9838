"""Copies: serial loops whose weights meet by a lock, without one, or at a server."""

import contextlib
import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("numba")

from impls.replay import make as make_replay
from impls.training.arrangement import COPIES, Arrangement
from impls.training.copies.loop import Cached, CopiesLoop
from impls.training.copies.syncs import ROOM, Shard, SharedWeights, clipped, sync_class
from impls.training.learners import make as make_learner
from impls.training.loop import SerialLoop
from impls.training.parallel.board import Board
from impls.training.weights import layout_of
from tests import parallel_runs
from tests.learning import batch_of, tiny
from tests.parallel_runs import small


def of(**options):
    return Arrangement(name=COPIES, **options)


running = functools.partial(parallel_runs.running, name=COPIES)


@pytest.mark.parametrize("options", [{}, {"local_storage": 8, "presampled": 2, "environments": 2}])
@pytest.mark.parametrize("algorithm", ["dqn", "dyna_q"])  # dyna_q without model workers
def test_one_copy_is_the_serial_loop_bit_for_bit(algorithm, options):
    workload = small(steps=400, **options)
    serial = SerialLoop(workload, seed=3)
    copies = CopiesLoop(dataclasses.replace(workload, algorithm=algorithm), of(), seed=3)
    with contextlib.closing(serial), contextlib.closing(copies):
        ended = [[episode for _ in range(200) for episode in loop.advance()] for loop in (serial, copies)]
        assert serial.updates > 50
        assert (copies.step, copies.updates) == (serial.step, serial.updates)
        assert ended[0] == ended[1] != []
        assert_array_equal(copies.learner.parameters, serial.learner.parameters)
        assert_array_equal(copies.learner.vectors().square, serial.learner.vectors().square)


def two(workload, **options):
    """Two syncs on the same memory, in this process, with their learners, and the memory."""
    arrangement = of(processes=2, **options)
    own = [make_learner(workload, seed=0) for _ in range(2)]
    numbers = SharedWeights(own[0], arrangement)
    board = Board(4, 2, 1)
    made = [sync_class(arrangement.sync)(each, arrangement, board, at, numbers) for at, each in enumerate(own)]
    return made, numbers, board


def batch_for(workload, seed):
    """A batch for a sync."""
    return SimpleNamespace(rows=batch_of(workload, seed=seed), weights=np.ones(4, np.float32))


@pytest.mark.parametrize("sync", ["lock", "hogwild"])
def test_the_sum_of_what_copies_moved_by_is_added_every_k_steps(sync):
    workload = tiny()
    (first, second), numbers, _ = two(workload, sync=sync, every=2)
    begun = numbers["weights"].astype(float)
    first.step(batch_for(workload, 1))
    assert_array_equal(numbers["weights"], begun)  # one of two
    second.step(batch_for(workload, 2))
    second.step(batch_for(workload, 3))
    moved_alone = numbers["weights"].astype(float) - begun
    before = first.learner.parameters.astype(float)
    first.step(batch_for(workload, 4))
    alone = make_learner(workload, seed=0)
    for seed in (1, 4):
        alone.step(batch_for(workload, seed).rows, np.ones(4, np.float32))
    expected = begun + moved_alone + (alone.parameters - begun)
    assert_allclose(numbers["weights"], expected, atol=1e-6)
    assert np.abs(moved_alone).max() > 1e-5
    assert not np.allclose(before, expected, atol=1e-6)
    assert_array_equal(first.learner.parameters, numbers["weights"])
    assert first.report(numbers) == {"met": 2, "additions": 2 * len(begun), "lost_additions": 0}
    numbers["additions"][:3] -= 1  # as if another had written what it had read before
    assert first.report(numbers)["lost_additions"] == 3


def test_weights_meet_every_k_steps_over_a_resume_too():
    workload, met = tiny(), []
    (first, _), numbers, _ = two(workload, every=3)
    for at in range(1, 10):
        first.exchange = lambda at=at: met.append(at)
        first.step(batch_for(workload, at))
        saved = numbers.state_dict()
        (first, _), numbers, _ = two(workload, every=3)  # as a process that begins
        numbers.load_state_dict(saved)
    assert met == [3, 6, 9]


def test_a_gradient_step_that_is_due_when_a_copy_rests_is_taken_after_a_resume():
    workload, taken = small(update_interval=50), []
    loop = CopiesLoop(workload, of())
    loop._copy._stepped = lambda batch: taken.append(loop.step) or 1 / 0  # in the middle of a turn
    with pytest.raises(ZeroDivisionError):
        while loop.step < 50:
            loop.advance()
    again = CopiesLoop(workload, of())
    again.load_state_dict(loop.state_dict())
    again.advance()
    assert (taken, again.step, again.updates) == ([50], 51, 1)
    for each in (loop, again):
        each.close()


def test_the_weights_of_a_copy_that_nobody_has_overtaken_are_the_sum_without_rounding():
    (first, second), numbers, _ = two(tiny(), sync="lock")
    numbers["weights"][:] = numbers["begun"][:] = 1.0
    first.learner.parameters[:] = 1e-9  # 1 + (1e-9 - 1) is 0 in float32
    first.meet()
    assert set(numbers["weights"].tolist()) == {float(np.float32(1e-9))}
    second.learner.parameters[:] = 1.5
    second.meet()
    assert set(numbers["weights"].tolist()) == {0.5}


def adam(weights, slopes, rate):
    """Float64 steps of Adam along each of these slopes."""
    weights, mean, square = weights.astype(float), 0.0, 0.0
    for count, slope in enumerate(np.asarray(slopes, float), 1):
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        weights = weights - rate * (mean / (1 - 0.9**count)) / (np.sqrt(square / (1 - 0.999**count)) + 1e-8)
    return weights


@pytest.mark.parametrize(("optimizer", "shards"), [("adam", 1), ("adam", 3), ("sgd", 2)])
def test_shards_step_along_the_mean_of_n_gradients_in_the_order_in_which_they_came(optimizer, shards):
    workload = tiny(optimizer=optimizer, learning_rate=0.1)
    (first, second), numbers, board = two(workload, sync="server", shards=shards, average=2, every=3)
    begun, sent = numbers["weights"].copy(), []
    for sync, seed in ((first, 1), (second, 2), (first, 3), (second, 4)):
        sync.step(batch_for(workload, seed))
        sent.append(numbers["gradients"][sync.number, (numbers["sent"][sync.number] - 1) % ROOM].copy())
    assert_array_equal(numbers["weights"], begun)  # no shard has run
    every = [Shard(workload, first.arrangement, numbers, number) for number in range(shards)]
    for shard in every:
        while shard.turn(board, 2):
            pass
    means = [(sent[0] + sent[1]) / 2, (sent[2] + sent[3]) / 2]  # of each copy the oldest, in turns
    expected = adam(begun, means, 0.1) if optimizer == "adam" else begun - 0.1 * (means[0].astype(float) + means[1])
    assert_allclose(numbers["weights"], expected, atol=2e-6)
    assert first.report(numbers) == {"sent": 4, "applied": 4, "under_way": 0, "backlog": 4}
    first.step(batch_for(workload, 5))  # its third: it pulls
    assert_array_equal(first.learner.parameters, numbers["weights"])
    assert not np.array_equal(second.learner.parameters, numbers["weights"])
    for shard in every:
        shard.turn(board, 2)
        assert first.report(numbers)["under_way"] in (0, 1)
        shard.step()
    assert first.report(numbers)["applied"] == 5


def test_a_copy_waits_while_its_gradients_are_under_way(monkeypatch):
    workload = tiny()
    (first, _), numbers, board = two(workload, sync="server")
    shard, looks = Shard(workload, first.arrangement, numbers, 0), []

    def look():
        looks.append(int(numbers["sent"][0] - numbers["taken"][0, 0]))
        shard.turn(board, 2)

    board.watch = look
    for seed in range(ROOM + 1):
        first.step(batch_for(workload, seed))
    assert looks == [ROOM]


def test_gradients_are_sent_clipped():
    assert clipped(np.array([3.0, 4.0], np.float32), 0.0).tolist() == [3, 4]
    assert clipped(np.array([3.0, 4.0], np.float32), 6.0).tolist() == [3, 4]
    assert_allclose(clipped(np.array([3.0, 4.0], np.float32), 1.0), [0.6, 0.8], rtol=1e-5)


def test_a_cache_hands_n_records_over_at_once():
    workload = small(local_storage=1)
    replay = make_replay(64, layout_of(workload), alpha=0.6, epsilon=0.01)
    cache, fields = Cached(replay, 3), layout_of(workload).fields
    for number in range(4):
        records = {name: np.full((1, *shape), number, dtype) for name, (shape, dtype) in fields.items()}
        cache.insert(records | {"action": records["action"] % 2})
    assert replay.written == 3
    cache.flush()
    cache.flush()
    assert replay.written == 4
    assert sorted(set(cache.sample(64, 0.4, np.random.default_rng(0)).rows["reward"].tolist())) == [0, 1, 2, 3]


def test_what_is_cached_is_handed_over_before_a_copy_rests():
    with contextlib.closing(CopiesLoop(small(), of(replay="cached:5"))) as loop:
        for _ in range(8):
            loop.advance()
        (replay,) = loop.buffers
        assert (loop.step, replay.written) == (8, 5)
        loop.board.before_rest()
        assert replay.written == 8
