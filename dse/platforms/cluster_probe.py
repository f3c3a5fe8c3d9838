"""Probe the nodes of a Ray cluster: which machines they are, and what calls to them take.

A sharded replay has a shard on every node; batches are drawn from it and updated with one batch a call, with many, and
with large ones. From the differences follow the times of a batch, of a call and of a byte.
"""

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

from impls.cluster import ShardedReplay
from impls.cluster.__main__ import ALPHA, EPSILON, LAYOUT, fill_shards, measure
from impls.cluster.connection import connect

from .files import FILE, HERE, RESULTS
from .fingerprint import fingerprint
from .platform import Network, Node, Platform
from .quantities import Quantity

RECORDS, BATCH, LARGE = 30_000, 64, 4_096
MANY = 16  # batches a call
SECONDS = 4.0  # of each of three measurements
LEAST_SECONDS = 1e-6
LEAST_BYTES_PER_S, MOST_BYTES_PER_S = 1e6, 1e11  # where calls of large batches take no longer, or hardly any time


def probe_cluster(platform: Platform, cluster: str, results: Path = RESULTS, seconds: float = SECONDS) -> Platform:
    """Return a platform with the nodes of a cluster, in about half a minute; three measurements take ``seconds`` each.

    ClusterError where there is no cluster, or a node has other code.
    """
    ray = connect(cluster)
    nodes = _list_nodes(ray, results)
    one, many, large = (_measure(cluster, *each, seconds) for each in ((BATCH, 1), (BATCH, MANY), (LARGE, 1)))
    shards = one["stats"]["shards"]
    note = f"by batches of {BATCH} and {LARGE:,} records from {shards} shards"

    def measured(value: float) -> Quantity:
        return Quantity(value=float(f"{value:.4g}"), origin="measured", note=note)

    calls, more = shards * (1 - 1 / MANY), (one["cpu_us_per_batch"] - many["cpu_us_per_batch"]) / 1e6
    call = max(more / calls, LEAST_SECONDS)
    batch = max(one["cpu_us_per_batch"] / 1e6 - shards * call, LEAST_SECONDS)
    record = (large["cpu_us_per_batch"] - one["cpu_us_per_batch"]) / 1e6 / (LARGE - BATCH)
    longer = 1 / large["batches_per_second"] - 1 / one["batches_per_second"]
    rate = (LARGE - BATCH) * LAYOUT.record_bytes / max(longer, LEAST_SECONDS)
    network = Network(
        call_seconds=measured(call),
        batch_seconds=measured(batch),
        record_seconds=measured(max(record, LEAST_SECONDS / BATCH)),
        answer_seconds=measured(1 / one["batches_per_second"]),
        rate_bytes_per_s=measured(min(max(rate, LEAST_BYTES_PER_S), MOST_BYTES_PER_S)),
    )
    return dataclasses.replace(platform, nodes=nodes, network=network)


def _measure(cluster: str, batch: int, batches_a_call: int, seconds: float) -> dict[str, Any]:
    """Draw and update batches from a shard on every node: batches/s, and the processor's time of each."""
    options: dict[str, Any] = {"cluster": cluster, "cpus": 0.5, "batches_a_call": batches_a_call}
    with ShardedReplay(RECORDS, LAYOUT, alpha=ALPHA, epsilon=EPSILON, **options) as sharded:
        fill_shards(sharded, RECORDS)
        return measure(sharded, batch, seconds) | {"stats": sharded.stats()}


def _list_nodes(ray: Any, results: Path) -> tuple[Node, ...]:
    """The kinds of nodes that have a processor to give, this machine's kind first."""
    key_of = ray.remote(num_cpus=0)(_read_key)
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    living = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    strategies = [at(node_id=node["NodeID"], soft=False) for node in living]
    keys = ray.get([key_of.options(scheduling_strategy=strategy).remote() for strategy in strategies])
    own = fingerprint()["key"]
    kinds = Counter((key != own, key, int(node["Resources"]["CPU"])) for key, node in zip(keys, living, strict=True))

    def told(value: float) -> Quantity:
        return Quantity(value=value, origin="measured", note="as Ray tells")

    return tuple(
        Node(
            name=f"{HERE if key == own else key}-{cores}",
            platform=HERE if key == own else str(results / key / FILE),
            count=told(count),
            cores=told(cores),
        )
        for (_, key, cores), count in sorted(kinds.items())
    )


def _read_key() -> str:
    return str(fingerprint()["key"])
