"""The two units of a replay: what they draw, what is overwritten on the way, and their queues."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

from impls.replay.steps import PATIENCE
from impls.training.arrangement import DATA_QUEUE, Arrangement
from impls.training.parallel.batches import FILLED, SentBatches, slots_of
from impls.training.parallel.board import Board, Counter
from impls.training.parallel.children import Start
from impls.training.parallel.node import replay_of
from impls.training.parallel.transports import Shared
from impls.training.parallel.units import StorageUnit, TreeUnit
from tests.parallel_runs import small
from tests.replays import LAYOUTS, chunk, made

TWO = Arrangement(name="pipelined", units="two")


class Pair:
    """Both units in this process, and a learner; each record's reward is its number."""

    def __init__(self, capacity=512, **changes):
        workload, board = small(learning_starts=1, capacity=capacity, **changes), Board(4, 1, 5)
        board.set(Counter.STEPS, 10**6)
        self.replay, self.slots = replay_of(workload, TWO), slots_of(workload, TWO)
        names = (None, None, 1, (), "dense", "dense", "cpu", Shared(), self.slots.handle())
        start = Start(workload, TWO, 0, 0, 0, 2, *names)
        self.tree = TreeUnit(start, board, self.replay)
        self.storage = StorageUnit(dataclasses.replace(start, row=3), board, self.replay)
        self.learner = SentBatches(self.slots, board, 0)
        self.insert(capacity)

    def insert(self, count):
        rows = np.zeros(count, self.replay.row)
        rows["reward"] = np.arange(self.replay.written, self.replay.written + count)
        self.replay.insert(rows)

    def take(self):
        """The next batch, of records that are there, each the one that was drawn; at most one attempt fails."""
        for unit in (self.tree, self.storage) * 2:
            unit.turn()
        batch, _ = self.learner.take(1.0, 0)
        assert_array_equal(batch.rows["reward"], batch.sequence)
        assert batch.sequence.min() >= self.replay.written - self.replay.capacity
        return batch


@pytest.mark.parametrize("strategy", ["two_lock_checked", "global"])
@pytest.mark.parametrize("name", ["flat", "four frames"])
def test_two_units_draw_what_one_draws(name, strategy):
    replay, rng = made(strategy, 64, LAYOUTS[name]), np.random.default_rng(0)
    for _ in range(12):
        replay.insert(**dict(zip(("records", "drawable"), chunk(LAYOUTS[name], rng, 9), strict=True)))
    wanted = replay.sample(33, 0.7, np.random.default_rng(1))
    drawn, out = np.empty(5 * 33, np.int64), replay.outputs(33)
    assert replay.draw_places(drawn, np.random.default_rng(1).random(33), 0.7, out, 33, 0) is out.sequence
    assert replay.gather_places(drawn, out, 33) == 0
    for mine, theirs in ((out.sequence, wanted.sequence), (out.weights, wanted.weights)):
        assert_array_equal(mine, theirs)
    assert all((out.rows[field] == wanted.rows[field]).all() for field in wanted.rows)


def test_records_are_drawn_alike_whatever_is_overwritten_on_the_way():
    pair, seen = Pair(64, batch=8, alpha=0.0), np.zeros(64)
    for number in range(3000):
        pair.tree.turn()
        pair.insert(5 * (number % 3 == 0))  # between a draw and its copies, at other slots each time
        batch = pair.take()
        seen += np.bincount(batch.sequence % 64, minlength=64)
        pair.learner.learned(batch, np.ones(8, np.float32))
    assert pair.slots.ever_lost.sum() > 100
    assert chisquare(seen).pvalue > 1e-3


def test_what_is_lost_again_and_again_is_sampled_at_once():
    pair = Pair(16, batch=4)
    for attempt in range(PATIENCE + 1):
        pair.tree.turn()
        pair.insert(16 if attempt else 8)  # the first time half of the batch is lost, and then the same half
        pair.storage.turn()
        assert pair.slots.ever_lost.sum() == 2 * (attempt + 1)
    pair.tree.turn()
    assert pair.slots.state(0) == FILLED
    for _ in range(3 * pair.slots.count):
        pair.learner.learned(pair.take(), np.ones(4, np.float32))


def test_no_more_batches_lie_ready_than_the_queue_takes():
    pair = Pair(presampled=300)
    for _ in range(400):
        pair.tree.turn()
        pair.storage.turn()
    states = [pair.slots.state(ticket) for ticket in range(301)]
    assert states == [2] * DATA_QUEUE + [1] * (300 - DATA_QUEUE) + [0]
    pair.learner.learned(pair.take(), np.full(4, 3.0, np.float32))
    pair.storage.turn()
    pair.tree.turn()
    assert [pair.slots.state(ticket) for ticket in (DATA_QUEUE, 300)] == [2, 1]


def test_arrays_of_another_batch_are_refused_before_anything_is_copied():
    replay = Pair().replay
    out = replay.outputs(4)
    for words, count in ((19, 4), (20, 5), (20, -1)):
        with pytest.raises(ValueError, match="5 x 4 words"):
            replay.gather_places(np.zeros(words, np.int64), out, count)
