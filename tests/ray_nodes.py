"""A Ray cluster of several nodes of this machine, each with a raylet, an object store and workers of its own."""

import contextlib
import importlib
from pathlib import Path

import pytest

from impls.cluster.connection import import_ray

STORE = 80 << 20  # bytes: the least that an object store may have


def add_node(cluster):
    """Start a node of a cluster, with two CPUs."""
    return cluster.add_node(num_cpus=2, object_store_memory=STORE)


@pytest.fixture(scope="module", name="cluster")
def start_cluster():
    """A cluster of three nodes, to which this process is connected."""
    ray, head = import_ray(), {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    made = importlib.import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
    made.nodes = [add_node(made) for _ in range(3)]
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def list_processes():
    """{number of a process: (its parent's, its command line)} of all that run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = parent, (path / "cmdline").read_text(errors="replace").replace("\0", " ")
    return found
