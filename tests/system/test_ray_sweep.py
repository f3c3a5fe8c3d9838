"""A sweep over three nodes of a Ray cluster on this machine: whole, with a node killed, and with its driver killed.

`.ci/run` and `make test-all` run this file, by itself.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from benchmarks.__main__ import main
from dse.platforms import fingerprint, load
from dse.platforms.cluster_probe import probe_cluster
from dse.platforms.files import to_toml
from dse.records import LOAD, SENTINEL, read_file
from impls.cluster.connection import import_ray
from tests.committed import ROOT
from tests.fake_cluster import add_node, start_cluster  # noqa: F401  # a fixture

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timing,
    pytest.mark.filterwarnings("ignore::Warning"),  # Ray's own
]
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
    found = probe_cluster(load(path), "auto", tmp_path, seconds=0.5)
    (node,) = found.nodes
    assert (node.platform, node.count.value, node.cores.value) == ("this", len(cluster.nodes), 2)
    network = found.network
    assert 1e-5 < network.call_seconds.value < 0.1 and network.call_seconds.origin == "measured"
    assert network.call_seconds.value < network.answer_seconds.value * len(cluster.nodes)
    path.write_text(to_toml(found))
    assert load(path) == found
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
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    how = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
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
