"""The process of a node, without a cluster: real actors, and orders and requests as a learner sends them."""

import dataclasses
import os
import signal
import time

import numpy as np
import pytest

from impls.cluster.calls import Reply, Request
from impls.replay import Batch
from impls.training import learners
from impls.training.arrangement import Arrangement
from impls.training.nodes.actor_node import ActorShard, News, Orders, RemoteNode, join, split
from impls.training.nodes.learners import Averaged
from impls.training.parallel.board import Counter
from impls.training.settings import load
from impls.training.weights import layout_of

WITHIN = Arrangement(name="apart", ratio="free")
NOTHING = Request(0, None, None, None, 0.0)


class Learner:
    """The learner's end of one node."""

    def __init__(self, epoch=0, **changed):
        self.epoch = epoch
        workload = dataclasses.replace(load("cartpole_dqn"), **changed)
        self.weights = learners.make(workload, seed=0).weights()
        made = learners.default(workload)
        self.shard = ActorShard(
            lambda: RemoteNode(workload, WITHIN, self.weights.size, learner=made, policy=made, seed=3), place=1
        )
        self.node, self.run, self.known, self.episodes = self.shard.node, 0, 0, []
        self.run = self.ask().run

    def orders(self, allowed=0, elsewhere=0, run=None):
        return Orders(self.run if run is None else run, allowed, elsewhere, 0, self.known, self.epoch)

    def ask(self, allowed=0, weights=None, request=NOTHING, **more):
        message = join(self.orders(allowed, **more).pack(), request.pack())
        news, reply = map(bytes, split(self.shard.obey_and_answer(message, weights)))
        self.reply = Reply.unpack(reply)
        return self.hear(news)

    def watch(self, allowed, steps):
        return self.hear(self.shard.watch(self.orders(allowed).pack(), steps))

    def hear(self, packed):
        news = News.unpack(packed)
        self.episodes += list(news.episodes[self.known - news.first :])
        self.known = news.first + len(news.episodes)
        return news

    def wait(self, allowed, steps):
        end = time.monotonic() + 90
        while (news := self.watch(allowed, steps)).steps < steps:
            assert time.monotonic() < end and not news.failure, news
        return news


@pytest.fixture
def learner():
    made = Learner()
    yield made
    made.node.close()


def test_a_node_takes_the_steps_that_it_may(learner):
    assert learner.ask(50).steps == 0 and not learner.node.pids  # no weights yet
    learner.ask(120, learner.weights)
    learner.wait(120, 120)
    acting = np.empty_like(learner.weights)
    assert learner.node.board.fetch(acting, 0) and np.array_equal(acting, learner.weights)
    time.sleep(0.2)
    news = learner.ask(60)  # steps that were allowed stay so
    assert (news.place, news.steps, news.failure) == (1, 120, "") and learner.reply.records == 120
    learner.ask(500, request=Request(0, None, None, np.linspace(0, 0.99, 8), 0.0))
    assert learner.reply.drawn is not None
    learner.wait(500, 500)
    assert learner.ask(500).cpu > 0 and len(learner.episodes) == learner.known > 0
    assert 500 - max(length for _, length in learner.episodes) < sum(length for _, length in learner.episodes) <= 500


def test_actors_explore_by_the_steps_of_all_nodes(learner):
    learner.ask(150, learner.weights, elsewhere=1000)
    board, end = learner.node.board, time.monotonic() + 60
    while not board.look(Counter.STEPS, 150, 0):
        assert time.monotonic() < end
        board.check(0)
    ended = [step for step, _ in board.episodes()]
    assert ended and all(1000 < step <= 1150 for step in ended)


def test_orders_for_another_process_change_nothing(learner):
    learner.ask(100, learner.weights, run=learner.run + 1)
    time.sleep(0.1)
    assert learner.ask(0, run=0).steps == 0 and not learner.node.pids


def test_a_killed_actor_begins_anew(learner):
    learner.ask(200, learner.weights)
    learner.wait(200, 200)
    os.kill(next(iter(learner.node.pids.values())), signal.SIGKILL)
    assert learner.wait(300, 300).restarts == 1


def test_a_paused_node_takes_no_step(learner):
    learner.ask(100_000, learner.weights)
    learner.wait(100_000, 50)
    paused = learner.hear(learner.shard.pause())
    time.sleep(0.2)
    assert learner.ask(100_000).steps == paused.steps
    learner.shard.resume()
    learner.wait(100_000, paused.steps + 50)


def test_records_are_saved_and_loaded(learner):
    learner.ask(80, learner.weights)
    learner.wait(80, 80)
    state = learner.shard.save_records()
    assert len(state["leaves"]) == 80
    learner.shard.load_records(state)
    learner.ask(80)
    assert learner.reply.records == 80


def test_each_epoch_has_random_numbers_of_its_own():
    first = []
    for epoch in (0, 0, 1):
        learner = Learner(epoch)
        try:
            learner.ask(30, learner.weights)
            learner.wait(30, 30)
            first.append(learner.shard.save_records()["arrays"]["observation"][:30])
        finally:
            learner.node.close()
    assert np.array_equal(first[0], first[1]) and not np.array_equal(first[0], first[2])


def test_a_fault_of_an_environment_is_said():
    learner = Learner(environment="tests.fake_environments:Raises-v0")
    try:
        learner.ask(100, learner.weights)
        end = time.monotonic() + 60
        while not (news := learner.watch(100, 100)).failure:
            assert time.monotonic() < end
        assert "Raises-v0" in news.failure
    finally:
        learner.node.close()


class Pair:
    """Means with one other learner, whose weights are known."""

    def __init__(self, other):
        self.other, self.given = other, []

    def mean(self, weights):
        self.given.append(weights.copy())
        return np.mean([weights, self.other], 0)


def test_averaged_weights_are_the_mean_bit_for_bit():
    workload, rng = load("cartpole_dqn"), np.random.default_rng(0)
    learner = learners.make(workload, seed=0)
    pair = Pair(rng.standard_normal(learner.parameters.size).astype(np.float32))
    sync = Averaged(learner, Arrangement(name="nodes", learners=2, sync="local", period=3), pair)
    rows = {name: rng.random((32, *shape)) for name, (shape, _) in layout_of(workload).fields.items()}
    rows |= {"action": rng.integers(0, 2, 32), "terminated": np.zeros(32, np.bool_)}
    rows = {name: part.astype(layout_of(workload).fields[name][1]) for name, part in rows.items()}
    for number in range(7):
        sync.step(Batch(rows, np.ones(32, np.float32), np.arange(32)), number)
        if number == 5:
            kept = learner.parameters.copy()
    assert len(pair.given) == 2 and not np.array_equal(*pair.given)
    expected = [np.float32((a + b) / np.float32(2)) for a, b in zip(pair.given[1], pair.other, strict=True)]
    assert np.array_equal(kept, expected) and np.array_equal(learner.weights(), expected)
    assert not np.array_equal(learner.parameters, expected)  # the seventh step is the learner's own so far
