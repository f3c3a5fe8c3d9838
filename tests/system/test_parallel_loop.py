"""Training by several processes, or by those of a node: its end, pauses, processes that die, changes, whole records."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from impls.cluster import ClusterError
from impls.cluster.__main__ import main
from impls.cluster.calls import Reply, Request
from impls.cluster.sharded import check_versions, list_versions
from impls.replay import Batch, strategies
from impls.replay.registry import strategy_class
from impls.training import TrainingError, learners, load
from impls.training.arrangement import COPIES, SHARING, SYNCS, Arrangement
from impls.training.copies.syncs import ROOM
from impls.training.nodes.actor_node import ActorShard, News, Orders, RemoteNode, join, split
from impls.training.nodes.learners import Averaged
from impls.training.parallel.board import Counter, Row
from impls.training.parallel.changing import ChangingLoop
from tests import numbered
from tests.committed import ROOT
from tests.learning import batch_of
from tests.matrix import slow
from tests.nursery import UNCOVERED
from tests.parallel_runs import PATIENCE_SECONDS, advance, check_counts, kill, lives, lose, running, small, until

KILLS = int(os.environ.get("KILLS", "20"))
NUMBERED = {"environment": "tests.numbered:Numbered-v0", "shape": (numbered.SIZE,), "choices": 3}
FRAMES = {"environment": "tests.fake_environments:UnevenFrames-v0", "shape": (84, 84), "dtype": "uint8", "frames": 4}
FRAMES |= {"kind": "mlp", "local_storage": 8, "initial_priority": "td_error", "presampled": 2, "capacity": 256}
FRAMES |= {"update_interval": 4, "steps": 90, "choices": 2}


def ended(loop, end):
    """Take every gradient step of a run up to environment step ``end``, and no more; returns the report."""
    loop.until(end)
    advance(loop, lambda: loop.done(end))
    report, workload = loop.report(), loop.workload
    interval, starts = workload.learner.update_interval, workload.learner.learning_starts
    base = (starts - 1) // interval * interval
    assert report["updates"] == (report["steps"] - base) // interval == loop.updates
    assert end <= report["steps"] < end + workload.actors.environments
    assert report["lead"] > report["lag"] == 0
    return report


def check_lead(report, workload):
    """Environment steps were never further ahead of the ratio than an update interval and a turn of every actor."""
    assert report["lead"] <= workload.learner.update_interval + workload.actors.count * workload.actors.environments


PIPE, QUEUE, FILL = ({"transport": kind, "queue_size": 6} for kind in ("pipe", "queue", "fill"))
FEW = {"count": 3, "update_interval": 8, "presampled": 2}
STORED = {"environments": 4, "update_interval": 5, "local_storage": 1, "sync_interval": 2}
SEVERAL = {"presampled": 3, "count": 2, "environments": 2}
MANY = {"count": 2, "environments": 16, "update_interval": 64, "batch": 32, "capacity": 4096, "steps": 10_000}
MOST = MANY | {"environments": 256, "update_interval": 1024, "steps": 10**7}
CHECKED, GLOBAL = {"strategy": "two_lock_checked"}, {"strategy": "global"}
RUNS = [
    pytest.param("two units", {}, SEVERAL, id="two units"),
    pytest.param("pipelined", CHECKED, MANY, id="pipelined, many"),
    slow("two units", CHECKED, MANY, id="two units, many"),
    slow("apart", GLOBAL, MANY, id="apart, many"),
    slow("apart", CHECKED, MOST, id="apart, most"),
    slow("pipelined", GLOBAL, MOST, id="pipelined, most"),
    slow("pipelined", {}, SEVERAL | {"sync_interval": 3}, id="pipelined"),
    slow("apart", {}, {}, id="apart"),
    slow("apart", PIPE | {"strategy": "global", "weights": "file"}, FEW, id="apart, pipe, file"),
    slow("pipelined", QUEUE | {"strategy": "global", "weights": "torch"}, STORED, id="pipelined, queue, torch"),
    slow("two units", FILL, FEW, id="two units, fill"),
    slow("pipelined", {}, FRAMES, id="pipelined, frames"),
    slow("two units", GLOBAL, FRAMES, id="two units, frames"),
]


@pytest.mark.parametrize(("name", "options", "changes"), RUNS)
def test_a_run_takes_every_step_due_and_tears_no_record(name, options, changes):
    workload = small(**(NUMBERED | changes))
    with running(workload, name, **options) as loop:
        learn = loop.learner.step

        def step(rows, weights):
            numbered.check(rows)
            return learn(rows, weights)

        if changes is not FRAMES:
            loop.learner.step = step
        for end in (workload.steps, workload.steps + 100):
            report = ended(loop, end)
            check_lead(report, workload)
            if changes is not FRAMES:  # of which actors hold some back
                check_counts(loop)
        if workload.actors.local_storage == 1:
            assert (loop.buffer.written, loop.buffer.lost) == (report["steps"], 0)
        if changes is not FRAMES:
            numbered.check_replay(loop.buffer.state_dict(), min(workload.replay.capacity, loop.buffer.written))
        assert set(report["cores"]) == {*loop.pids, "learner-0"}
        assert report["stale_batches"]["most"] <= workload.replay.presampled + (name != "apart")
        assert len(loop.buffer) > 0 < loop.cpu_seconds()


def test_who_samples_waits_for_the_first_record():
    # A killed actor takes its local storage with it, so that learning may be due before anything is stored.
    with running(small("tests.fake_environments:Endless-v0", environments=1, local_storage=50)) as loop:
        assert ended(loop, 120)["lead"] > 2  # as far as the first record is away


def test_infinite_losses_end_a_run_of_finite_td_errors():
    workload = small("tests.fake_environments:VastReward-v0")
    with running(workload) as loop, pytest.raises(TrainingError, match=r"losses are \{.*inf"):
        ended(loop, 300)


@pytest.mark.parametrize(
    ("name", "strategy", "kills"),
    [
        ("pipelined", "two_lock_checked", 2),
        slow("apart", "two_lock_checked", KILLS),
        slow("apart", "global", 2),
        slow("pipelined", "global", KILLS),
    ],
)
def test_killed_actors_begin_anew_and_no_step_is_lost(name, strategy, kills):
    rng, workload = np.random.default_rng(0), small(steps=10**9, count=2)
    with running(workload, name, strategy=strategy) as loop:
        turns = loop.board.rows[1:3, Row.TURNS]
        for number in range(kills):
            actor, moment = number % 2, loop.step + int(rng.integers(1, 300))
            if number % 6 < 2:  # a run bears so many lives without a turn only
                advance(loop, lambda actor=actor, before=turns[actor]: turns[actor] > before)
            advance(loop, lambda moment=moment: loop.step >= moment)
            kill(loop, f"actor-{actor}")
            advance(loop, lambda number=number: loop.restarts > number)
        report = ended(loop, loop.step + 200)
        check_lead(report, workload)
        assert report["restarts"] == kills
        assert 0 <= loop.buffer.written + loop.buffer.lost - report["steps"] <= 2 * kills


COPIED = {"lock": {"replay": "shared", "every": 3}, "hogwild": {"replay": "cached:4"}}
COPIED |= {"server": {"shards": 2, "average": 3, "every": 0}}


def several_of(sync, name="apart"):
    """Two learners of a sync, which are copies if they are said to be."""
    own = {"processes": 2} | COPIED.get(sync, {}) if name == COPIES else {"learners": 2}
    return {"name": name, "sync": sync} | own


BANKS = several_of("local") | {"banks": 2, "period": 7, "strategy": "banked"}
UNITS, SERVER = {"name": "two units"}, several_of("server", COPIES)
BRIEF = {
    "synchronous, then hogwild": ("learner-1", several_of("synchronous"), several_of("hogwild", "pipelined"), 1),
    "banks": ("learner-1", BANKS, BANKS, 1),
    "shard": ("shard-0", SERVER, SERVER, 1),
    "lock copies": ("copy-1", *[several_of("lock", COPIES)] * 2, 1),
    "tree unit": ("tree-0", UNITS, UNITS, 1),
}
LONG = {f"{sync} learners": ("learner-1", *[several_of(sync)] * 2, 1) for sync in SYNCS}
LONG |= {"server copies": ("copy-1", SERVER, SERVER, 1), "storage unit": ("storage-0", UNITS, UNITS, 3)}
LONG["hogwild copies"] = ("copy-1", *[several_of("hogwild", COPIES)] * 2, 1)
for strategy in ("two_lock_checked", "global"):
    LONG[f"keeper, {strategy}"] = ("keeper-0", *[{"name": "pipelined", "strategy": strategy}] * 2, KILLS)
STORIES = [pytest.param(*row, id=name) for name, row in BRIEF.items()]
STORIES += [slow(*row, id=name) for name, row in LONG.items()]


@pytest.mark.parametrize(("killed", "options", "then", "kills"), STORIES)
def test_a_killed_process_is_named_and_the_run_goes_on(killed, options, then, kills):
    rng, workload, saved = np.random.default_rng(0), small(steps=10**9, hidden=(8,)), None
    for number in range(kills + 1):
        with running(workload, saved=saved, **(then if number else options)) as loop:
            state = trained(loop, int(rng.integers(20, 200)), lost=4 * number if loop.arrangement.name == COPIES else 0)
            if number < kills:
                lose(loop, killed)
                saved = loop.state_dict()
                assert saved["updates"] >= state["updates"]
                assert np.isfinite(saved["learner"]["weights"]).all()


def trained(loop, updates, lost):
    """Train by at least so many gradient steps; returns the state, in which no more than so many steps were lost."""
    before, weights, members = loop.updates, loop.learner.weights(), loop.board.rows[:2, Row.TURNS]
    advance(loop, lambda: loop.updates >= before + updates and members.min() >= 5)
    with loop.paused():
        state, arrangement, report = check_counts(loop, lost), loop.arrangement, loop.report()
        assert (loop.learner.parameters != weights).any()
        if arrangement.name != COPIES:
            counted = 1 if arrangement.sync in SHARING else arrangement.learners  # who counts a step for all
            assert loop.updates - before == loop.board.rows[:counted, Row.TURNS].sum()
            if arrangement.sync in ("synchronous", "local", "lock"):
                assert report["stale_gradients"] == {"mean": 0.0, "most": 0}
        elif not lost:
            check_meetings(report["copies"], arrangement.sync, loop.updates, len(weights))
    return state


def check_meetings(met, sync, updates, weights):
    """Counts of meetings fit the gradient steps of copies, and no more was lost than a sync may lose."""
    if sync == "server":
        assert met["sent"] == met["applied"] == updates
        assert met["under_way"] == 0 < met["backlog"] <= 2 * ROOM
    elif "additions" in met:
        assert met["additions"] == met["met"] * weights
        assert sync != "lock" or met["lost_additions"] == 0


PARENT = """
import signal, time
from impls.training.parallel.testing import TestProcess
from tests.parallel_runs import advance, running, small

class Slow:
    __reduce__ = lambda self: (time.sleep, (600,))  # as long as an import may take

def train(*name, **options):
    with running(small(steps=10**9), *name, **options) as loop:
        advance(loop, lambda: loop.updates > 5)
        print(*loop.pids.values(), flush=True)
        while True:
            loop.advance()

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job has not
"""
TESTER = "child = TestProcess(Slow(), 'dense', 0, 4); print(child.pid, flush=True); signal.pause()"
PARENTS = [
    pytest.param("train('pipelined', ratio='free')", signal.SIGKILL, id="pipelined"),
    pytest.param("train()", signal.SIGINT, id="apart"),
    pytest.param(TESTER, signal.SIGKILL, id="a test process that imports"),
]


@pytest.mark.parametrize(("code", "number"), PARENTS)
def test_children_end_with_their_parent(tmp_path, code, number):
    program = tmp_path / "parent.py"
    program.write_text(f"{PARENT}    {code}\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    variables = os.environ | UNCOVERED | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True, **pipes) as parent:
        try:
            pids = parent.stdout.readline().split()
            tasks = [Path(f"/proc/{pid}/task") for pid in pids]
            until(lambda: all(len([*task.iterdir()]) > 1 for task in tasks))  # each watches its parent
            os.killpg(parent.pid, number) if number == signal.SIGINT else parent.send_signal(number)
            _, said = parent.communicate(timeout=PATIENCE_SECONDS)
        finally:
            parent.kill()
    assert pids
    until(lambda: not any(map(lives, pids)))
    assert said.count("Traceback") == (number == signal.SIGINT)  # the parent's own


def test_this_process_has_its_cores_again():
    before = os.sched_getaffinity(0)
    with running(small(), cores=(min(before),)) as loop:
        assert loop.report()["cores"] == {"learner-0": [min(before)], "actor-0": [min(before)]}
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


LATE = {"steps": 100, "learning_starts": 10, "update_interval": 4}  # 23 gradient steps, after steps 12, 16, .. 100
FILLED = {"count": 2, "local_storage": 2, "steps": 509}
A3C = {"algorithm": "a3c", "capacity": 0} | dict.fromkeys(("batch", "update_interval", "learning_starts"), 4)
SWEPT = {"name": COPIES, "model_workers": 1, "replay": "shared", "priorities": "swept"}
DYNA = {"algorithm": "dyna_q"}


def find_refusal(options, changes):
    """The sentence by which an arrangement refuses a small workload, "" where none does."""
    try:
        Arrangement(**{"name": "apart"} | options).check(small(**{"hidden": (8,)} | changes))
    except TrainingError as error:
        return str(error)
    return ""


LIMITS = [
    ({"learners": 3}, {}, "4 3 --sync"),
    (several_of("local") | {"learners": 3}, {}, "4 3 --sync"),
    (several_of("local", "pipelined"), {}, "2 pipelined apart --sync"),
    (several_of("local") | {"period": 23}, LATE, ""),
    (several_of("local") | {"period": 24}, LATE, "24 100 23 --period --steps"),
    (BANKS, {"local_storage": 30, "learning_starts": 60}, ""),
    (BANKS, {"local_storage": 30, "learning_starts": 50}, "50 2 30 60 learning_starts"),
    (BANKS, {"local_storage": 300, "learning_starts": 600}, "512 2 300"),
    (BANKS, {"capacity": 511}, "511 2"),
    (BANKS | {"banks": 3}, {}, "3 2 apart --banks"),
    (BANKS | {"strategy": "two_lock_lazy"}, {}, "two_lock_lazy 2 banked"),
    ({"transport": "queue", "queue_size": 0}, {}, "queue_size 1 0"),
    ({"transport": "fill", "queue_size": 505}, FILLED, ""),
    ({"transport": "fill", "queue_size": 506}, FILLED, "509 506 --transport queue --steps 510"),
    ({"processes": 2}, {}, "--processes copies"),
    ({"name": COPIES, "sync": "server", "shards": 1000}, {}, "1,000 --shards"),
    ({"name": COPIES, "shards": 2}, {}, "--shards --sync server"),
    ({"name": COPIES, "sync": "hogwild", "average": 2}, {}, "--average --sync server"),
    ({"name": COPIES, "sync": "hogwild", "every": 0}, {}, "episode hogwild"),
    ({"name": COPIES, "replay": "cached:0"}, {}, "cached:n cached:0"),
    ({"name": COPIES, "replay": "cached:21"}, {}, "21 20 learning_starts"),
    ({"name": COPIES, "processes": 600}, {}, "512 600 --processes"),
    ({"name": COPIES, "learners": 2}, {}, "--learners"),
    ({"name": COPIES, "sync": "synchronous"}, {}, "lock hogwild server synchronous"),
    ({"name": COPIES, "processes": 2, "every": 24}, A3C | {"steps": 191}, "24 23 --every"),
    ({"name": COPIES, "processes": 2, "every": 24}, A3C | {"steps": 192}, ""),
    ({"name": COPIES, "model_workers": 1, "replay": "shared"}, {}, "dqn"),
    (SWEPT, DYNA | {"environments": 2}, "local_storage"),
    (SWEPT, DYNA | {"environments": 2, "local_storage": 4}, ""),
]
"""An arrangement, the keys of a workload, and the facts of the sentence by which it is refused, if it is."""


def test_an_arrangement_is_refused_beyond_its_limits():
    for options, changes, facts in LIMITS:
        said = find_refusal(options, changes)
        words = {word.strip(",:;.'") for word in said.split()}
        assert bool(said) == bool(facts), (options, changes, said)
        assert set(facts.split()) <= words, (options, changes, said)


def test_processes_train_by_the_strategies_made_for_them():
    for name in strategies():
        kind, (said, _, remedy) = strategy_class(name), find_refusal({"strategy": name}, {}).partition(";")
        is_refused = kind.banked or not kind.processes
        assert (name in said, "global" in remedy, name in remedy) == (is_refused, is_refused, False)


# A loop whose actors and batch change


FREE = Arrangement(name="apart", ratio="free")


@pytest.fixture(scope="module")
def loop():
    """A loop with at most 3 actors, of which at first 2 act."""
    made = ChangingLoop(small(steps=1 << 40, count=3), FREE, 2)
    yield made
    left = list(made.pids.values())
    made.close()
    assert not [pid for pid in left if lives(pid)]


def list_turns(loop):
    """Turns of each actor so far, while all rest."""
    with loop.paused():
        return [int(loop.board.rows[row, Row.TURNS]) for row in loop._every]


def test_actors_rest_and_continue_while_the_loop_trains(loop):
    rates = loop.measure(0.1)
    assert (rates.actors, rates.batch, list(loop.pids)) == (2, 4, ["actor-0", "actor-1"])
    assert rates.sampling_hz > 0 < rates.update_hz
    assert len(rates.seconds) == 3
    assert min(rates.seconds) > 0
    assert 0 <= rates.cpu_percent <= 100
    assert rates.memory_bytes == rates.learner_bytes + 2 * rates.actor_bytes > 10e6
    pids = loop.pids
    loop.set_actors(1)
    loop.measure(0.05)
    before, steps, updates = list_turns(loop), loop.step, loop.updates
    advance(loop, lambda: loop.step > steps + 50 and loop.updates > updates + 5)
    after = list_turns(loop)
    assert after[0] > before[0]
    assert after[1:] == before[1:]
    loop.set_actors(3)
    assert loop.measure(0.05).actors == 3  # once all have taken turns
    assert pids.items() < loop.pids.items()
    with loop.paused():
        assert loop.board.value(Counter.CLAIMED_STEPS) == loop.board.value(Counter.STEPS)
        assert loop.restarts == 0
        assert sum(list_turns(loop)) == check_counts(loop)["step"]


def test_the_batch_changes_between_gradient_steps(loop, monkeypatch):
    loop.set_actors(1)
    sampled, step = set(), loop.learner.step
    monkeypatch.setattr(loop.learner, "step", lambda rows, weights: sampled.add(len(weights)) or step(rows, weights))
    loop.measure(0.02)
    for batch in (4, 16, 2):
        losses = loop._learning.losses
        loop.set_batch(batch)
        assert losses == loop._learning.losses != {}
        sampled.clear()
        rates = loop.measure(0.02)
        assert sampled == {rates.batch} == {loop.workload.learner.batch} == {batch}
        assert rates.frames_hz == pytest.approx(rates.update_hz * batch)


def test_what_cannot_be_changed_is_refused(loop):
    before = loop.actors, loop.workload.learner.batch
    for name, value, bound in (("actors", 0, 1), ("actors", 4, 3), ("batch", 0, 1)):
        with pytest.raises(ValueError, match=rf"{name}.* {bound}"):
            getattr(loop, f"set_{name}")(value)
    assert (loop.actors, loop.workload.learner.batch) == before
    for other in ({"name": "pipelined"}, {"learners": 2}):
        with pytest.raises(TrainingError, match="apart"):
            ChangingLoop(small(), dataclasses.replace(FREE, **other))


# The process of a node, without a cluster: real actors, orders and requests as a learner sends


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
