"""Probe the nodes of a Ray cluster: which machines they are, and what training over them takes.

Batches are drawn from a shard and updated, small ones, large ones and many a call; CartPole trains over all nodes with
one batch a call and with many. From the differences follow the times of a batch, of a record, of a byte and of a call.
"""

import contextlib
import dataclasses
import time
from collections import Counter
from pathlib import Path
from typing import Any

from impls.cluster import ShardedReplay
from impls.cluster.__main__ import ALPHA, EPSILON, LAYOUT, fill_shards, measure
from impls.cluster.connection import connect
from impls.training import load as load_workload
from impls.training.arrangement import NODES, Arrangement
from impls.training.nodes.loop import NodesLoop

from .files import FILE, HERE, RESULTS
from .fingerprint import fingerprint
from .platform import Network, Node, Platform
from .quantities import Quantity

RECORDS, BATCH, LARGE = 30_000, 64, 2_048
MANY = 16  # batches a call
WORKLOAD, WARM = "cartpole_dqn", 200  # gradient steps before they are timed
STEPS = 1 << 40  # of a run that only its seconds end
SECONDS = 4.0  # of each of five measurements
LEAST_SECONDS = 1e-9  # of a difference
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 1e6, 1e11  # where calls of large batches take no longer, or hardly any time


def probe_cluster(platform: Platform, cluster: str, results: Path = RESULTS, seconds: float = SECONDS) -> Platform:
    """Return a platform with the nodes of a cluster, in about a minute; five measurements take ``seconds`` each.

    ClusterError where there is no cluster, or a node has other code.
    """
    ray = connect(cluster)
    nodes = _list_nodes(ray, results)
    small, many, large = (_measure(cluster, *sizes, seconds) for sizes in ((BATCH, 1), (BATCH, MANY), (LARGE, 1)))
    slow, fast = (_time_step(cluster, batches, seconds) for batches in (1, MANY))
    count = int(sum(node.count.value for node in nodes))
    note = f"by batches of {BATCH} and {LARGE:,} records from a shard, and by training over {count} nodes"

    def measured(value: float) -> Quantity:
        return Quantity(value=float(f"{max(value, LEAST_SECONDS):.4g}"), origin="measured", note=note)

    small_cpu, many_cpu, large_cpu = (found["cpu_us_per_batch"] / 1e6 for found in (small, many, large))
    batch = many_cpu - (small_cpu - many_cpu) / (MANY - 1)  # without its part of a call
    longer = 1 / large["batches_per_second"] - 1 / small["batches_per_second"] - (large_cpu - small_cpu)
    rate = (LARGE - BATCH) * LAYOUT.record_bytes / max(longer, LEAST_SECONDS)
    network = Network(
        call_seconds=measured((slow - fast) / (count * (1 - 1 / MANY))),
        batch_seconds=measured(batch),
        record_seconds=measured((large_cpu - small_cpu) / (LARGE - BATCH)),
        answer_seconds=measured(1 / small["batches_per_second"]),
        rate_bytes_per_s=measured(min(max(rate, LEAST_BYTES_PER_S), MOST_BYTES_PER_S)),
    )
    return dataclasses.replace(platform, nodes=nodes, network=network)


def _measure(cluster: str, batch: int, batches_a_call: int, seconds: float) -> dict[str, Any]:
    """Draw and update batches from a shard: batches/s, and the processor's time of each."""
    options: dict[str, Any] = {"cluster": cluster, "shards": 1, "cpus": 0.5, "batches_a_call": batches_a_call}
    with ShardedReplay(RECORDS, LAYOUT, alpha=ALPHA, epsilon=EPSILON, **options) as sharded:
        fill_shards(sharded, RECORDS)
        return measure(sharded, batch, seconds)


def _time_step(cluster: str, batches_a_call: int, seconds: float) -> float:
    """Train over all nodes, whose actors are faster than the learner; return the seconds of a gradient step."""
    workload = dataclasses.replace(load_workload(WORKLOAD), steps=STEPS)
    made = NodesLoop(workload, Arrangement(name=NODES, batches_a_call=batches_a_call), cluster=cluster)
    with contextlib.closing(made) as loop:
        while loop.updates < WARM:
            loop.advance()
        begun, before = time.perf_counter(), loop.updates
        while (spent := time.perf_counter() - begun) < seconds:
            loop.advance()
        return spent / max(1, loop.updates - before)


def _list_nodes(ray: Any, results: Path) -> tuple[Node, ...]:
    """The kinds of nodes that have a processor to give, this machine's kind first."""
    key_of = ray.remote(num_cpus=0)(_read_key)
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    living = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    strategies = [at(node_id=node["NodeID"], soft=False) for node in living]
    keys = ray.get([key_of.options(scheduling_strategy=strategy).remote() for strategy in strategies])
    own = fingerprint()["key"]
    kinds = Counter((key != own, key, int(node["Resources"]["CPU"])) for key, node in zip(keys, living, strict=True))

    def quote_ray(value: float) -> Quantity:
        return Quantity(value=value, origin="measured", note="as Ray tells")

    return tuple(
        Node(
            name=f"{HERE if key == own else key}-{cores}",
            platform=HERE if key == own else str(results / key / FILE),
            count=quote_ray(count),
            cores=quote_ray(cores),
        )
        for (_, key, cores), count in sorted(kinds.items())
    )


def _read_key() -> str:
    return str(fingerprint()["key"])
