"""Training over three nodes of this machine: the whole command, every kind of loss in the middle, and the end.

`.ci/run` and `make test-all` run this file, by itself.
"""

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from impls.cluster.connection import import_ray
from impls.training import learners
from impls.training.arrangement import Arrangement
from impls.training.errors import TrainingError
from impls.training.nodes.learners import LARGE, Central, Group
from impls.training.nodes.loop import PATIENCE, NodesLoop
from impls.training.settings import load
from tests.committed import ROOT
from tests.fake_cluster import add_node, list_processes, start_cluster  # noqa: F401  # a fixture
from tests.parallel_runs import read_rows, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timing,  # beside other work, a node that is slow is taken for one that is lost
    pytest.mark.filterwarnings("ignore::Warning"),  # Ray's own
]
STEPS, STARTS = 6_000, 1_000
LEFT_SECONDS = 10.0
NODES = Arrangement(name="nodes", actor_nodes=2)
AVERAGING = dataclasses.replace(NODES, learners=2, sync="local", period=10)
SERVED = dataclasses.replace(AVERAGING, weights="server")
each_trial = pytest.mark.parametrize("trial", range(int(os.environ.get("FANOUT_TRIALS", "1"))))


def list_actors():
    """The processes of nodes, and those of their actors."""
    processes = list_processes()
    nodes = {number for number, (_, command) in processes.items() if command.startswith("ray::Node")}
    return nodes | {number for number, (parent, _) in processes.items() if parent in nodes}


def wait_for_no_actors():
    end = time.monotonic() + LEFT_SECONDS
    while left := list_actors():
        assert time.monotonic() < end, [list_processes().get(number) for number in left]
        time.sleep(0.1)


def find_process(name):
    return next(number for number, (_, line) in list_processes().items() if line.startswith(f"ray::{name}"))


@contextlib.contextmanager
def running(arrangement=NODES, workload="cartpole_dqn", seed=0, **changes):
    """A loop over nodes, which leaves no process; a "wide" workload has weights that torch.distributed averages."""
    made = load("cartpole_dqn" if workload == "wide" else workload)
    if workload == "wide":
        made = dataclasses.replace(made, network=dataclasses.replace(made.network, hidden=(256, 512)))
    loop = NodesLoop(dataclasses.replace(made, **changes), arrangement, seed=seed)
    try:
        yield loop
    finally:
        loop.close()
    wait_for_no_actors()


def train_to(loop, updates, strike=None, at=0):
    """Train to a gradient step; after another, something strikes once."""
    while loop.updates < updates:
        loop.advance()
        if strike and loop.updates > at:
            strike()
            strike = None


def strike_node(weather, cluster, loop, place):
    """Let something happen to a node in the middle of a run; returns what undoes it after a while."""
    shard = import_ray().get(loop._actors[place].describe.remote(), timeout=60)
    process = shard["process"][0]
    match weather:
        case "node leaves, another joins":
            node = next(node for node in cluster.nodes if node.node_id == shard["node"])
            cluster.remove_node(node, allow_graceful=False)
            cluster.nodes[cluster.nodes.index(node)] = add_node(cluster)
        case "shard dies":
            os.kill(process, signal.SIGKILL)
        case "actor dies":
            spawned = (number for number, found in list_processes().items() if found[0] == process)
            os.kill(next(number for number in spawned if "spawn_main" in list_processes()[number][1]), signal.SIGKILL)
        case "shard stops":
            os.kill(process, signal.SIGSTOP)
            return lambda: os.kill(process, signal.SIGCONT)
    return lambda: None


@each_trial
@pytest.mark.parametrize("weather", ["node leaves, another joins", "shard dies", "actor dies", "shard stops"])
def test_training_goes_on_through_every_loss(cluster, weather, trial):
    episodes, events, undo, undone = [], [], None, 0.0
    with running(seed=trial, steps=STEPS) as loop:
        while not loop.done(STEPS):
            episodes += loop.advance()
            events += loop.take_events()
            if undo is None and loop.updates > 1000:
                undo, undone = strike_node(weather, cluster, loop, trial % 2), time.monotonic() + 7.0
            if undo and time.monotonic() > undone:
                undo()
                undo, undone = (lambda: None), float("inf")
        undo()
        report = loop.report()
    replay, taken = report["replay"], [node["steps"] for node in report["nodes"]]
    beyond = loop._lead * (weather == "shard stops")  # what a node that comes back was allowed before
    assert STEPS <= loop.step <= STEPS + beyond
    assert loop.updates == loop.step - STARTS + 1  # one gradient step a step, from the first that is due
    assert loop.step <= sum(taken) <= STEPS + beyond and all(taken)
    assert sum(episode.length for episode in episodes) <= sum(taken)
    assert replay["sent"] == sum(replay[name] for name in ("applied", "overwritten", "late", "waiting"))
    assert report["restarts"] == (weather == "actor dies")
    assert "2 nodes" in events.pop(0) and bool(events) == (weather != "actor dies"), events


def test_actors_of_a_node_lost_in_a_pause_act_once_it_is_back(cluster):
    with running(steps=500_000) as loop:
        train_to(loop, 300)
        with loop.paused():
            strike_node("shard dies", cluster, loop, 0)
            saved, events = loop.state_dict()["buffers"], loop.take_events()
            assert len(saved) == 2 or any("not saved" in event for event in events)
        node = loop.nodes.each[0]
        until(lambda: loop.advance() is not None and node.lives >= 2 and node.steps >= 100)


@pytest.mark.parametrize("workload", ["cartpole_dqn", "pendulum_sac", "wide"])
def test_learners_on_nodes_average_their_weights(cluster, workload):
    with running(AVERAGING, workload, seed=2) as loop:
        train_to(loop, 200)
        saved = loop.state_dict()  # after the period under way
        own, (other,) = saved["learner"], saved["learners"]
        assert saved["updates"] % 10 == 0
        for name in ("weights", "targets"):
            assert np.array_equal(own[name], other[name])
        assert not np.array_equal(own["mean"], other["mean"])  # each has learned from batches of its own
        assert np.array_equal(loop.learner.weights(), own["weights"])
        assert bool(loop._group._connected) == (own["weights"].size >= LARGE)
        assert loop._group.cpu_seconds() > 0.0


def test_a_weight_server_has_the_mean_of_what_learners_pushed(cluster, monkeypatch):
    mean, means = Group.mean, []

    def record(self, weights):
        means.append((weights.copy(), mean(self, weights)))
        return means[-1][1]

    monkeypatch.setattr(Group, "mean", record)
    with running(SERVED, "cartpole_spo_dqn", seed=2, steps=STEPS) as loop:
        train_to(loop, 195)
        own, (other,) = loop.state_dict()["learner"], loop.state_dict()["learners"]  # after the period under way
        pull = loop._server.process.pull.remote
        pushed, kept = import_ray().get([pull(name, 1) for name in (0, "mean")], timeout=60)
        mine, averaged = means[-1]
        assert len(means) == 20 and not np.array_equal(mine, pushed)
        for weights in (own["weights"], other["weights"], loop.learner.weights(), kept, np.mean([mine, pushed], 0)):
            assert np.array_equal(weights, averaged)
        train_to(loop, 500)
        acting = import_ray().get(pull("acting", 400), timeout=60)
        assert any(np.array_equal(acting, averaged) for _, averaged in means[-12:])


@pytest.mark.parametrize(("loss", "count"), [(signal.SIGKILL, 2), (signal.SIGSTOP, 2), (signal.SIGKILL, 1)])
def test_training_goes_on_without_a_lost_weight_server(cluster, loss, count):
    """It says so and takes every step; another learner, which waited for the server, begins anew."""
    arrangement = SERVED if count == 2 else dataclasses.replace(SERVED, learners=1, sync="")
    with running(arrangement, "cartpole_spo_dqn", steps=STEPS) as loop:
        train_to(loop, 300, lambda: os.kill(find_process("WeightServer"), loss), at=205)
        until(lambda: loop.advance() is not None and loop.done(STEPS))
        assert loop.step == STEPS and loop.updates == STEPS - STARTS + 1
        assert any("weight server is lost" in event for event in loop.take_events())
        assert loop.report()["learners_lost"] == count - 1
        assert loop.report()["stale_weights"]["most"] < 200  # nodes get weights by calls


@each_trial
@pytest.mark.parametrize(("loss", "workload"), [(signal.SIGKILL, "cartpole_dqn"), (signal.SIGSTOP, "wide")])
def test_a_lost_learner_leaves_the_mean_and_joins_again(cluster, loss, workload, trial):
    events = []
    with running(AVERAGING, workload, seed=trial, steps=50_000) as loop:
        train_to(loop, 310, lambda: os.kill(find_process("NodeLearner"), loss), at=300)
        until(lambda: (loop.advance() is not None and events.extend(loop.take_events())) or len(events) >= 4)
        train_to(loop, loop.updates + 50)
        saved = loop.state_dict()  # after the period under way
        own, (other,) = saved["learner"], saved["learners"]
        assert saved["updates"] % 10 == 0
        assert np.array_equal(own["weights"], other["weights"]) and not np.array_equal(own["mean"], other["mean"])
        assert "leaves the mean" in events[2] and "joins" in events[3] and loop.report()["learners_lost"] == 1


def test_a_central_learner_takes_the_steps_of_one_learner(cluster, monkeypatch):
    """Gradients of parts average to that of the batch; the part of a lost learner is the central one's to derive."""
    batches, step = [], Central.step

    def record(self, batch, before):
        batches.append(batch)
        return step(self, batch, before)

    monkeypatch.setattr(Central, "step", record)
    with running(dataclasses.replace(NODES, learners=4), seed=2, steps=STEPS) as loop:
        alone = learners.make(loop.workload, seed=2)
        train_to(loop, 200, lambda: os.kill(find_process("NodeLearner"), signal.SIGKILL), at=99)
        assert loop.report()["learners_lost"] == 1
        for batch in batches:
            alone.step(batch.rows, batch.weights)
        assert len(batches) == alone.steps == loop.learner.steps == 200
        np.testing.assert_allclose(loop.learner.parameters, alone.parameters, atol=2e-4)
        np.testing.assert_allclose(loop.learner.target_parameters, alone.target_parameters, atol=2e-4)


def test_averaging_learners_go_on_from_their_state(cluster):
    """Actors go by the last average, nodes take no more steps than they may, and the end is reached."""
    with running(AVERAGING, seed=3, steps=3_003) as loop:
        train_to(loop, 95)
        state = loop.state_dict()
        assert state["updates"] == 100 and sum(len(part["leaves"]) for part in state["buffers"]) == state["step"]
    with running(AVERAGING, seed=3, steps=3_003) as loop:
        loop.state_dict()  # as a run does, to know its form
        loop.load_state_dict(state)
        assert loop.step == state["step"] and loop.updates == 100
        assert np.array_equal(loop.learner.weights(), state["learner"]["weights"])
        (before,), (after,) = state["learners"], loop.state_dict()["learners"]
        assert np.array_equal(before["mean"], after["mean"])
        loop.until(3_003)
        while not loop.done(3_003):
            loop.advance()
            assert loop._pace.lead(loop.step, loop.updates) <= loop._lead
        assert loop.step == 3_003 and loop.updates == 3_003 - STARTS + 1


def test_nodes_are_not_lost_while_the_learner_is_busy(cluster):
    with running(dataclasses.replace(NODES, actor_nodes=3)) as loop:
        for updates in (300, 600):
            train_to(loop, updates)
            time.sleep(PATIENCE + 1)  # as for a long evaluation
        loop.advance()
        loop.allow_steps()
        environments, hidden = 3, 2 * 8 * 3
        assert sum(node.allowed for node in loop.nodes.each) == STARTS + loop.updates + hidden + environments
        assert loop.report()["replay"]["shards_lost"] == 0 and loop.status == " on 3 of 3 nodes"


# The command


def train(cluster, folder, *options):
    """Begin the command, with CartPole over two nodes."""
    command = [sys.executable, "-m", "impls.training", "train", "cartpole_dqn", "--arrangement", "nodes"]
    command += ["--actor-nodes", "2", "--cluster", cluster.address, "--out", str(folder), *options]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stderr=subprocess.PIPE)


def wait_for(begun, condition):
    until(lambda: begun.poll() is not None or time.sleep(0.2) or condition())
    assert begun.poll() is None, begun.communicate()


def test_a_run_is_interrupted_and_continued(cluster, tmp_path):
    folder = tmp_path / "run"
    begun, log = train(cluster, folder, "--steps", "200000"), folder / "episodes.csv"
    wait_for(begun, lambda: log.exists() and len(read_rows(folder, log.name)) >= 60)
    begun.send_signal(signal.SIGINT)
    _, said = begun.communicate(timeout=60)
    assert begun.returncode == 130 and "--resume" in said
    wait_for_no_actors()
    saved = log.read_text()
    taken = int(re.search(r"as of step ([\d,]+)", said)[1].replace(",", ""))
    more = train(cluster, folder, "--resume", "--steps", str(taken + 3_000))
    _, said = more.communicate(timeout=180)
    assert more.returncode == 0, said
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], summary["ratio"]) == (taken + 3_000, 1.0) and log.read_text().startswith(saved)
    assert summary["processes"]["replay"]["records"] == summary["steps"]  # with those of the checkpoint
    assert len({node["node"] for node in summary["processes"]["nodes"]}) == 2


def test_no_process_outlives_a_killed_learner(cluster, tmp_path):
    begun = train(cluster, tmp_path / "run")
    wait_for(begun, lambda: len(list_actors()) >= 4)
    begun.kill()
    begun.communicate()
    wait_for_no_actors()


def test_more_nodes_than_there_are_is_an_error(cluster, tmp_path):
    refused = train(cluster, tmp_path / "run", "--actor-nodes", "9")
    _, said = refused.communicate(timeout=60)
    assert refused.returncode == 2 and "9" in said and "3" in said and "Traceback" not in said
    with pytest.raises(TrainingError, match="7"), running(dataclasses.replace(AVERAGING, learners=8)):
        pass
    wait_for_no_actors()
