"""A Ray cluster of three nodes of this machine: a sharded replay, training over nodes, sweeps; losses of every kind.

Each node has a raylet, an object store and workers of its own. `.ci/run` and `make test-all` run this file, by itself.
"""

import contextlib
import dataclasses
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from dse.platforms import fingerprint
from dse.platforms import load as load_platform
from dse.platforms.cluster_probe import probe_cluster
from dse.platforms.files import to_toml
from dse.records import LOAD, SENTINEL, read_file
from impls.cluster import ClusterError, ShardedReplay
from impls.cluster.__main__ import take_steps
from impls.cluster.calls import Request
from impls.cluster.connection import connect, import_ray
from impls.cluster.sharded import RayCalls
from impls.training import learners
from impls.training.arrangement import Arrangement
from impls.training.errors import TrainingError
from impls.training.nodes.learners import LARGE, Central, Group
from impls.training.nodes.loop import PATIENCE as NODE_PATIENCE
from impls.training.nodes.loop import NodesLoop
from impls.training.settings import load
from tests.committed import ROOT
from tests.fake_cluster import LAYOUT, Independent, add_node, list_processes, numbered_records, start_cluster  # noqa: F401  # a fixture
from tests.nursery import run_python
from tests.oracles.simulated_cluster import Costs, simulate
from tests.parallel_runs import read_rows, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timing,  # beside other work, a node that is slow is taken for one that is lost
    pytest.mark.filterwarnings("ignore::Warning"),  # Ray's own
]
each_trial = pytest.mark.parametrize("trial", range(int(os.environ.get("FANOUT_TRIALS", "1"))))
without_address = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}

# A sharded replay

PATIENCE = 1.0
MARGIN = 2.0  # seconds beyond the patience within which batches come from what is left


class Actor:
    """Who inserts on a node."""

    def __init__(self, handle):
        self._replay = handle.attach()

    def fill(self, first, count):
        errors = np.random.default_rng(first).gamma(0.5, 1.0 + first / 1000, count)
        self._replay.insert(numbered_records(first, count), errors)
        return errors

    def describe(self):
        return import_ray().get_runtime_context().get_node_id(), self._replay.lost


def fill_nodes(replay, nodes, count=1000):
    """(actors by node, errors of the numbered records ``[n * count]``)"""
    ray = import_ray()
    actor, strategy = ray.remote(num_cpus=0)(Actor), ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    actors = [
        actor.options(scheduling_strategy=strategy(node.node_id, soft=False)).remote(replay.handle()) for node in nodes
    ]
    errors = ray.get([actor.fill.remote(count * place, count) for place, actor in enumerate(actors)], timeout=120)
    places = ray.get([actor.describe.remote() for actor in actors], timeout=60)
    assert [node for node, _ in places] == [node.node_id for node in nodes]
    return dict(zip([node for node, _ in places], actors, strict=True)), np.concatenate(errors)


def numbers_of(batch):
    return batch.rows["observation"][:, 0].astype(int)


@pytest.fixture
def filled(cluster):
    with ShardedReplay(30_000, LAYOUT, alpha=0.6, epsilon=1e-2, shards=3, patience=PATIENCE) as replay:
        actors, errors = fill_nodes(replay, cluster.nodes)
        yield replay, actors, errors


def describe_shards(replay):
    return import_ray().get([actor.describe.remote() for actor in replay._actors], timeout=60)


def draw_for(replay, seconds, batch=64):
    """(records drawn, the longest that a batch took) while updates run."""
    drawn, longest, end = [], 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        got = replay.sample(batch, 0.4)
        longest = max(longest, time.monotonic() - began)
        assert got.sequence.size == batch and np.isfinite(got.weights).all()
        replay.update_priorities(got.sequence, np.ones(batch))
        drawn.append(numbers_of(got))
        time.sleep(0.002)
    return np.concatenate(drawn), longest


def wait_for_all(replay):
    until(lambda: not replay.stats()["shards_gone"] or time.sleep(0.1) or replay.flush())


def test_draws_over_three_nodes_are_those_of_one_tree(filled):
    from scipy.stats import power_divergence  # noqa: PLC0415

    replay, _, errors = filled
    priorities, counts, rng = (errors + 1e-2) ** 0.6, np.zeros(errors.size), Independent(11)
    for _ in range(200):
        batch = replay.sample(1000, 0.4, rng)
        numbers = numbers_of(batch)
        counts += np.bincount(numbers, minlength=counts.size)
        replay.update_priorities(batch.sequence, errors[numbers])
    wanted = counts.sum() * priorities / priorities.sum()
    assert 0.001 < power_divergence(counts, wanted, lambda_="log-likelihood").pvalue < 0.999
    replay.flush()
    stats = replay.stats()
    assert stats["sent"] == stats["applied"] == 200_000 and stats["shards_lost"] == 0


def count_cpu_seconds(number):
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_simulated_cluster_is_as_fast_as_three_nodes(filled):
    replay, batch, seconds = filled[0], 64, 3.0
    processes = [shard["process"][0] for shard in describe_shards(replay)]
    take_steps(replay, batch, np.random.default_rng(0), 0.5)
    before, busy, cpu = replay.stats(), sum(map(count_cpu_seconds, processes)), time.process_time()
    take_steps(replay, batch, np.random.default_rng(1), seconds)
    after, busy, cpu = replay.stats(), sum(map(count_cpu_seconds, processes)) - busy, time.process_time() - cpu
    requests, calls = (after[name] - before[name] for name in ("requests", "calls"))
    costs = Costs(call=cpu / calls, serve=busy / calls, record=0.0)
    found = simulate(3, 8 * batch, costs, cores=len(os.sched_getaffinity(0)))
    assert 0.5 < found.requests / (requests / seconds) < 2.0, (found, requests / seconds, costs)


@each_trial
@pytest.mark.parametrize("weather", ["killed", "stopped"])
def test_a_shard_that_stops_or_dies_leaves_the_others(filled, weather, trial):
    (replay, actors, _), ray = filled, import_ray()
    replay.sample(64, 0.4)
    shard = describe_shards(replay)[1]
    number = shard["process"][0]
    os.kill(number, signal.SIGKILL if weather == "killed" else signal.SIGSTOP)
    _, longest = draw_for(replay, PATIENCE + MARGIN)
    assert longest < PATIENCE + MARGIN and replay.stats()["shards_lost"] >= 1
    if weather == "stopped":
        assert replay.stats()["shards_gone"] == 1
        os.kill(number, signal.SIGCONT)
    wait_for_all(replay)
    if weather == "killed":  # what the process of its node inserts next goes to the shard that took its place
        ray.get(actors[shard["node"]].fill.remote(9000, 500), timeout=60)
        assert ray.get(actors[shard["node"]].describe.remote(), timeout=60) == (shard["node"], 1000)
    replay.flush()
    replay.flush()
    stats = replay.stats()
    assert stats["records"] == (3000 if weather == "stopped" else 2500) and stats["waiting"] == 0, stats


@each_trial
def test_a_node_that_joins_takes_the_place_of_a_lost_one(cluster, trial):
    with ShardedReplay(30_000, LAYOUT, alpha=0.6, epsilon=1e-2, shards=3, patience=PATIENCE) as replay:
        fill_nodes(replay, cluster.nodes)
        draw_for(replay, 0.2)
        cluster.remove_node(cluster.nodes.pop(trial % 3), allow_graceful=False)
        # A raylet that is killed takes its workers along within seconds; until then its shard answers.
        numbers, longest = draw_for(replay, 6.0)
        assert longest < PATIENCE + MARGIN and replay.stats()["shards_gone"] == 1
        assert len(np.unique(numbers[-6400:] // 1000)) == 2
        cluster.nodes.append(add_node(cluster))
        wait_for_all(replay)
        fill_nodes(replay, cluster.nodes[-1:])
        numbers, _ = draw_for(replay, 1.0)
        assert replay.stats()["records"] == 3000


def test_what_a_shard_or_a_cluster_refuses_is_raised(filled):
    calls = RayCalls(filled[0]._actors)
    run = calls.answer(calls.ask(0, Request(0, None, None, None, 0.0)), 10.0).run
    with pytest.raises(ValueError, match="nan"):  # which is no loss
        calls.answer(calls.ask(0, Request(run, np.array([0]), np.array([np.nan]), None, 0.0)), 10.0)
    before = list_groups()
    with pytest.raises(ClusterError, match="4 shards"):
        ShardedReplay(100, LAYOUT, alpha=0.6, epsilon=1e-2, shards=4)
    with pytest.raises(ValueError, match="alpha"):
        ShardedReplay(100, LAYOUT, alpha=-1.0, epsilon=1e-2)
    assert list_groups() == before  # no shard was started
    assert connect("nowhere:1").is_initialized()  # a runtime that is there is used, whatever address is named


def list_groups():
    groups = import_ray().util.placement_group_table()
    return {name for name, group in groups.items() if group["state"] == "CREATED"}


# By themselves


def run(*words, folder=ROOT):
    """Return what Python prints in a process of its own, which knows of no cluster."""
    return run_python(*words, folder=folder, RAY_ADDRESS="").stdout


NOWHERE = ("127.0.0.1:9", "nonsense", "1.2.3.4", "ray://127.0.0.1:10001", "127.0.0.1:99999", "127.0.0.1:0")
CONNECT = """
import time
from impls.cluster import ClusterError
from impls.cluster.connection import connect
for address in {addresses}:
    began = time.monotonic()
    try:
        connect(address)
    except ClusterError as error:
        print(address in str(error) and time.monotonic() - began < 40)
"""


def test_an_address_without_a_head_is_said_in_a_sentence():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        other = f"127.0.0.1:{server.server_port}"  # a port of another service is given up in time
        for address in (*NOWHERE, other):
            assert run("-c", CONNECT.format(addresses=[address])) == "True\n", address
        server.shutdown()


def test_a_local_cluster_leaves_no_process():
    code = """
import json
from impls.cluster import ShardedReplay
from tests.fake_cluster import LAYOUT, numbered_records
import ray
with ShardedReplay(1000, LAYOUT, alpha=0.6, epsilon=1e-2, cluster="local", cpus=0.5) as replay:
    node = replay.handle().attach()
    node.insert(numbered_records(0, 100))
    batch = replay.sample(32, 0.4)
    session = ray.get_runtime_context().get_session_name()
    print(json.dumps([int(batch.sequence.size), replay.stats()["records"], session]))
"""
    size, records, session = json.loads(run("-c", code).splitlines()[-1])
    assert (size, records) == (32, 100)
    until(lambda: not any(session in command for _, command in list_processes().values()))


def test_the_command_the_readme_and_the_timed_buffer_are_right(tmp_path):
    words = ["-m", "impls.cluster", "--cluster", "local", "--seconds", "0.5", "--records", "3e3", "--json"]
    result = json.loads(run(*words))
    assert result["stats"]["records"] == 3000 and result["batches"] > 20 and result["batches_per_second"] > 0
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "impls/cluster/README.md").read_text(), re.DOTALL)
    assert len(example.splitlines()) < 40
    (tmp_path / "example.py").write_text(example)
    assert "'records': 100," in run("example.py", folder=tmp_path)
    assert run("-c", "from benchmarks.topics import replay; print(replay.fault('sharded'))") == "None\n"


# Training over nodes


STEPS, STARTS = 6_000, 1_000
LEFT_SECONDS = 10.0
NODES = Arrangement(name="nodes", actor_nodes=2)
AVERAGING = dataclasses.replace(NODES, learners=2, sync="local", period=10)
SERVED = dataclasses.replace(AVERAGING, weights="server")


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


def check_average(loop):
    """Learners have the same weights after the period under way, each by batches of its own; returns the state."""
    saved = loop.state_dict()
    own, (other,) = saved["learner"], saved["learners"]
    assert saved["updates"] % 10 == 0
    for name in ("weights", "targets"):
        assert np.array_equal(own[name], other[name])
    assert not np.array_equal(own["mean"], other["mean"])
    assert np.array_equal(loop.learner.weights(), own["weights"])
    assert bool(loop._group._connected) == (own["weights"].size >= LARGE)
    return saved


AVERAGED = [(signal.SIGKILL, "cartpole_dqn"), (signal.SIGKILL, "pendulum_sac"), (signal.SIGSTOP, "wide")]


@each_trial
@pytest.mark.parametrize(("loss", "workload"), AVERAGED)
def test_learners_average_and_go_on_when_lost_or_resumed(cluster, loss, workload, trial):
    """Actors go by the last average, nodes take no more steps than they may, and the end is reached."""
    events = []
    with running(AVERAGING, workload, seed=trial, steps=50_000) as loop:
        train_to(loop, 95)
        state = check_average(loop)
        assert state["updates"] == 100 and sum(len(part["leaves"]) for part in state["buffers"]) == state["step"]
        assert loop._group.cpu_seconds() > 0.0
        train_to(loop, 310, lambda: os.kill(find_process("NodeLearner"), loss), at=300)
        until(lambda: (loop.advance() is not None and events.extend(loop.take_events())) or len(events) >= 4)
        train_to(loop, loop.updates + 50)
        check_average(loop)
        assert "leaves the mean" in events[2] and "joins" in events[3] and loop.report()["learners_lost"] == 1
    end = state["step"] + 1_003
    with running(AVERAGING, workload, seed=trial, steps=end) as loop:
        loop.state_dict()  # as a run does, to know its form
        loop.load_state_dict(state)
        assert loop.step == state["step"] and loop.updates == 100
        assert np.array_equal(loop.learner.weights(), state["learner"]["weights"])
        (before,), (after,) = state["learners"], loop.state_dict()["learners"]
        assert np.array_equal(before["mean"], after["mean"])
        loop.until(end)
        while not loop.done(end):
            loop.advance()
            assert loop._pace.lead(loop.step, loop.updates) <= loop._lead
        assert loop.step == end and loop.updates == end - loop.workload.learner.learning_starts + 1


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


def test_nodes_are_not_lost_while_the_learner_is_busy(cluster):
    with running(dataclasses.replace(NODES, actor_nodes=3)) as loop:
        for updates in (300, 600):
            train_to(loop, updates)
            time.sleep(NODE_PATIENCE + 1)  # as for a long evaluation
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
    return subprocess.Popen(command, cwd=ROOT, env=without_address, text=True, stderr=subprocess.PIPE)


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


# A sweep over nodes: whole, with a node killed, and with its driver killed


SWEEP = [
    *("sweep", "--preset", "smoke", "--contestants", "numpy,cumsum", "--capacities", "100,1000,10000"),
    *("--batches", "32,64,128", "--no-floor", "--anyway", "--budget", "0.2", "--json"),
]
CELLS = 2 * 3 * 9
"""Of each tree, operation, N and B."""


def read_records(results):
    """The records of cells, without the A/A twins and the sentinels."""
    path = results / str(fingerprint()["key"]) / "smoke-custom.jsonl"
    found = read_file(path) if path.exists() else []
    return [record for record in found if record.primitive not in (SENTINEL, "sum_tree_again")]


def count_cells(results):
    """How often each cell has a record."""
    return Counter(record.cell for record in read_records(results))


def list_cells(found, is_loaded):
    """The cells measured while others did, or did not, keep the machine busy: only the former may be measured again."""
    return {record.cell for record in found if (LOAD in record.machine) == is_loaded}


def run_sweep(results, cluster, capsys):
    assert main([*SWEEP, "--results", str(results), "--cluster", cluster]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_each_cell_is_measured_once_by_one_of_three_nodes(cluster, tmp_path, capsys):
    tally = run_sweep(tmp_path, "auto", capsys)
    assert (tally["cells"], tally["left"], sum(tally["measured_by_status"].values())) == (CELLS, 0, CELLS)
    assert set(count_cells(tmp_path).values()) == {1}
    found = read_records(tmp_path)
    nodes = {node.node_id[:8] for node in cluster.nodes}
    assert {record.facts["node"] for record in found} <= nodes
    again = run_sweep(tmp_path, "auto", capsys)
    assert again["found_done"] + sum(again["measured_by_status"].values()) == CELLS
    assert again["found_done"] in (CELLS, len(list_cells(found, is_loaded=False)))
    counts = count_cells(tmp_path)
    assert {cell for cell in counts if counts[cell] > 1} <= list_cells(found, is_loaded=True)


def test_a_probe_finds_the_nodes_and_what_calls_to_them_take(cluster, tmp_path):
    path = tmp_path / "lab.toml"
    path.write_text((ROOT / "dse" / "platforms" / "edge.toml").read_text())
    found = probe_cluster(load_platform(path), "auto", tmp_path, seconds=0.5)
    (node,) = found.nodes
    assert (node.platform, node.count.value, node.cores.value) == ("this", len(cluster.nodes), 2)
    network = found.network
    assert 1e-5 < network.call_seconds.value < 0.1 and network.call_seconds.origin == "measured"
    assert network.call_seconds.value < network.answer_seconds.value * len(cluster.nodes)
    path.write_text(to_toml(found))
    assert load_platform(path) == found
    ends, ray = time.monotonic() + 60, import_ray()
    while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:  # what it started has ended
        assert time.monotonic() < ends
        time.sleep(0.2)


def test_a_node_that_is_killed_loses_no_cell(cluster, tmp_path, capsys):
    def strike():
        while sum(count_cells(tmp_path).values()) < 4:
            time.sleep(0.05)
        cluster.remove_node(cluster.nodes[0], allow_graceful=False)
        cluster.nodes[0] = add_node(cluster)

    striker = threading.Thread(target=strike)
    striker.start()
    tally = run_sweep(tmp_path, "auto", capsys)
    striker.join()
    assert tally["left"] == 0
    assert (len(count_cells(tmp_path)), set(count_cells(tmp_path).values())) == (CELLS, {1})


def test_a_driver_that_is_killed_continues(cluster, tmp_path):
    words = [sys.executable, "-m", "benchmarks", *SWEEP, "--results", str(tmp_path), "--cluster", cluster.address]
    how = {"cwd": ROOT, "env": without_address, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **how) as driver:
        while sum(count_cells(tmp_path).values()) < 6:
            assert driver.poll() is None, driver.communicate()
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    found, before = read_records(tmp_path), count_cells(tmp_path)
    assert len(before) < CELLS
    done = subprocess.run(words, check=True, timeout=300, **how)
    tally = json.loads(done.stdout.splitlines()[-1])
    assert tally["left"] == 0
    assert tally["found_done"] in (len(before), len(list_cells(found, is_loaded=False)))
    counts = count_cells(tmp_path)
    assert len(counts) == CELLS and {cell for cell in counts if counts[cell] > 1} <= list_cells(found, is_loaded=True)
