"""The process of a node, without a cluster: real actors, orders and requests as a learner sends; a replay's command."""

import dataclasses
import os
import signal
import sys
import time

import numpy as np
import pytest

from impls.cluster import ClusterError
from impls.cluster.__main__ import main
from impls.cluster.calls import Reply, Request
from impls.cluster.sharded import check_versions, list_versions
from impls.replay import Batch
from impls.training import learners
from impls.training.arrangement import Arrangement
from impls.training.nodes.actor_node import ActorShard, News, Orders, RemoteNode, join, split
from impls.training.nodes.learners import Averaged
from impls.training.parallel.board import Counter
from impls.training.settings import load
from tests.learning import batch_of
from tests.parallel_runs import until

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

    def order(self, allowed=0, elsewhere=0, run=None):
        return Orders(self.run if run is None else run, allowed, elsewhere, 0, self.known, self.epoch).pack()

    def ask(self, allowed=0, weights=None, request=NOTHING, **more):
        message = join(self.order(allowed, **more), request.pack())
        news, reply = map(bytes, split(self.shard.obey_and_answer(message, weights)))
        self.reply = Reply.unpack(reply)
        return self.hear(news)

    def hear(self, packed):
        self.news = News.unpack(packed)
        self.episodes += list(self.news.episodes[self.known - self.news.first :])
        self.known = self.news.first + len(self.news.episodes)
        return self.news

    def wait(self, allowed, steps):
        """Wait until the node has taken so many steps, or has failed."""

        def is_there():
            news = self.hear(self.shard.watch(self.order(allowed), steps))
            return news.steps >= steps or news.failure

        until(is_there)
        return self.news


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
    board = learner.node.board
    until(lambda: board.check(0) or board.look(Counter.STEPS, 150, 0))
    ended = [step for step, _ in board.episodes()]
    assert ended and all(1000 < step <= 1150 for step in ended)


def test_orders_for_another_process_change_nothing(learner):
    learner.ask(100, learner.weights, run=learner.run + 1)
    time.sleep(0.1)
    assert learner.ask(0, run=0).steps == 0 and not learner.node.pids


def test_a_node_pauses_saves_and_replaces_a_killed_actor(learner):
    learner.ask(100_000, learner.weights)
    learner.wait(100_000, 50)
    paused = learner.hear(learner.shard.pause())
    time.sleep(0.2)
    assert learner.ask(100_000).steps == paused.steps  # it takes none
    state = learner.shard.save_records()
    assert len(state["leaves"]) == paused.steps
    learner.shard.load_records(state)
    learner.ask(100_000)
    assert learner.reply.records == paused.steps
    learner.shard.resume()
    learner.wait(100_000, paused.steps + 50)
    os.kill(next(iter(learner.node.pids.values())), signal.SIGKILL)
    until(lambda: learner.wait(100_000, learner.news.steps + 100).restarts == 1)


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
        assert "Raises-v0" in learner.wait(100, 100).failure
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
    rows = batch_of(workload, 32)
    rows["action"] %= 2
    for number in range(7):
        sync.step(Batch(rows, np.ones(32, np.float32), np.arange(32)), number)
        if number == 5:
            kept = learner.parameters.copy()
    assert len(pair.given) == 2 and not np.array_equal(*pair.given)
    expected = [np.float32((a + b) / np.float32(2)) for a, b in zip(pair.given[1], pair.other, strict=True)]
    assert np.array_equal(kept, expected) and np.array_equal(learner.weights(), expected)
    assert not np.array_equal(learner.parameters, expected)  # the seventh step is the learner's own so far


# The command that tries a sharded replay


def test_a_replay_that_cannot_be_tried_is_refused(monkeypatch, capsys):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for words in ("--shards 0", "--records 0", "--records 1 --shards 2", "--cluster nowhere", ""):
        if not words:
            monkeypatch.setitem(sys.modules, "ray", None)
        assert main(words.split()) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        assert (words.split() or ["fanout[ray]"])[-1] in said


def test_a_node_with_other_versions_is_refused_by_name():
    assert list_versions()["Python"] == "{}.{}".format(*sys.version_info)
    check_versions("0123456789", list_versions())
    for name in list_versions():
        with pytest.raises(ClusterError, match=rf"01234567 .*{name} 0\.0"):
            check_versions("0123456789", list_versions() | {name: "0.0"})
        with pytest.raises(ClusterError, match=name):
            check_versions("0123456789", {key: value for key, value in list_versions().items() if key != name})
