"""Try a sharded replay on a Ray cluster: fill every shard from its own node, then draw and update batches.

  python -m impls.cluster --cluster local                 this machine alone, as a cluster of one node
  python -m impls.cluster --cluster auto --shards 3       three nodes of the cluster that this machine belongs to
  ray job submit -- python -m impls.cluster               the same as a job

It prints how many batches per second the sampler gets, and how much CPU time each costs it, compared with a replay in
the sampler's own process. Drawing from other machines pays only for records that one machine cannot hold, or for
environments whose steps keep more cores busy than one machine has.
"""

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from .. import replay
from ..terminal import Parser, aligned, amount, answering, count, plural
from . import ClusterError, ReplayHandle, ShardedReplay
from .connection import CLUSTER_HELP, import_ray

LAYOUT = replay.Layout((4,), "float32", choices=2)
ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-2
_NO_CLUSTER = 2


def main(arguments: list[str] | None = None) -> int:
    """Run the trial and print what it measured; returns the exit code."""
    given = _parser().parse_args(arguments)
    try:
        options = {"cluster": given.cluster, "shards": given.shards, "cpus": 0.5}
        with ShardedReplay(
            given.records, LAYOUT, alpha=ALPHA, epsilon=EPSILON, batches_a_call=given.batches_a_call, **options
        ) as sharded:
            fill_shards(sharded, given.records)
            result = measure(sharded, given.batch, given.seconds)
            result["stats"] = sharded.stats()
        with replay.make(given.records, LAYOUT, alpha=ALPHA, epsilon=EPSILON) as local:
            local.insert(make_records(given.records), np.random.default_rng(0).gamma(0.5, 1.0, given.records))
            result["local"] = measure(local, given.batch, given.seconds / 4)
    except (ClusterError, ValueError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _NO_CLUSTER
    if given.json:
        print(json.dumps(result))
    else:
        print_result(result, given.batch)
    return 0


def print_result(result: dict[str, Any], batch: int) -> None:
    """Print what was measured as text."""
    stats = result["stats"]
    shards = plural(stats["shards"], "shard")
    print(
        f"{result['batches_per_second']:,.0f} batches of {batch} per second from {shards} with "
        f"{stats['records']:,} records (measured)."
    )
    rows = [["", "batches/s", "CPU time of the sampler per batch"]]
    for name, row in ((shards, result), ("in one process", result["local"])):
        rows.append([name, f"{row['batches_per_second']:,.0f}", f"{row['cpu_us_per_batch']:.0f} us"])
    print(*aligned(rows, indent="  "), sep="\n")
    print(f"Totals were out of date by {100 * stats['skew']:.2g} % on average; the weights correct for it.")


def fill_shards(sharded: ShardedReplay, records: int) -> None:
    """Insert records on every node that has a shard, each in a process of its node."""
    ray = import_ray()
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    fill = ray.remote(num_cpus=0)(_fill)
    begun = []
    for seed, node in enumerate(sharded.nodes):
        on_node = fill.options(scheduling_strategy=strategy(node_id=node, soft=False))
        begun.append(on_node.remote(sharded.handle(), records // len(sharded.nodes), seed))
    ray.get(begun)


def _fill(handle: ReplayHandle, records: int, seed: int) -> None:
    handle.attach().insert(make_records(records), np.random.default_rng(seed).gamma(0.5, 1.0, records))


def make_records(records: int) -> dict[str, Any]:
    """Return ``records`` records of zeros."""
    return {name: np.zeros((records, *shape), dtype) for name, (shape, dtype) in LAYOUT.fields.items()}


def measure(memory: Any, batch: int, seconds: float) -> dict[str, Any]:
    """Sample and update batches for ``seconds``; return batches per second, and CPU microseconds of this process."""
    rng = np.random.default_rng(0)
    take_steps(memory, batch, rng, seconds / 10)
    wall, cpu = time.perf_counter(), time.process_time()
    batches = take_steps(memory, batch, rng, seconds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"batches": batches, "batches_per_second": batches / wall, "cpu_us_per_batch": 1e6 * cpu / batches}


def take_steps(memory: Any, batch: int, rng: np.random.Generator, seconds: float) -> int:
    """Sample and update for ``seconds``, once at least; return the number of batches."""
    batches, end = 0, time.monotonic() + seconds
    while not batches or time.monotonic() < end:
        drawn = memory.sample(batch, BETA, rng)
        memory.update_priorities(drawn.sequence, drawn.weights)
        batches += 1
    return batches


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m impls.cluster", description=__doc__, formatter_class=raw)
    parser.add_argument("--cluster", default="auto", metavar="WHERE", help=CLUSTER_HELP)
    parser.add_argument("--shards", type=count, help="nodes that hold a shard each (default: all)")
    parser.add_argument(
        "--records", type=count, default=100_000, help="records in all shards together (default: 100,000)"
    )
    parser.add_argument("--batch", type=count, default=64, help="records a batch (default: 64)")
    parser.add_argument("--batches-a-call", type=count, default=16, help="batches a request (default: 16)")
    parser.add_argument("--seconds", type=amount, default=5.0, help="seconds of drawing (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    return parser


if __name__ == "__main__":
    sys.exit(answering(main))
