"""A sharded replay on a Ray cluster of several nodes of this machine: draws, and losses of every kind.

Each node has a raylet, an object store and workers of its own. `.ci/run` and `make test-all` run this file, by itself.
"""

import http.server
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from impls.cluster import ClusterError, ShardedReplay
from impls.cluster.__main__ import take_steps
from impls.cluster.calls import Request
from impls.cluster.connection import connect, import_ray
from impls.cluster.sharded import RayCalls
from tests.committed import ROOT
from tests.fake_cluster import LAYOUT, Independent, add_node, list_processes, numbered_records, start_cluster  # noqa: F401  # a fixture
from tests.nursery import run_python
from tests.oracles.simulated_cluster import Costs, simulate
from tests.parallel_runs import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timing,  # beside other work, a node that is slow is taken for one that is lost
    pytest.mark.filterwarnings("ignore::Warning"),  # Ray's own
]
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


@pytest.mark.parametrize("trial", range(int(os.environ.get("FANOUT_TRIALS", "1"))))
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


@pytest.mark.parametrize("trial", range(int(os.environ.get("FANOUT_TRIALS", "1"))))
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
