"""Our replay over the nodes of a Ray cluster, filled on every node and inserted into from the node of this process."""

from typing import Any

import numpy as np

from impls.cluster import ReplayHandle, ShardedReplay
from impls.cluster.connection import import_ray

from . import rows
from .buffers import ALPHA, EPSILON
from .ours_buffer import _Ours


class Sharded(_Ours):
    """``impls.cluster.ShardedReplay``: a shard on every node, 8 batches a request, 2 requests ahead."""

    name = "sharded"
    package = "ray"
    needs = ("ray",)
    clustered = True
    retrieves = False

    def _allocate(self, seed: int) -> None:
        options: dict[str, Any] = {"alpha": ALPHA, "epsilon": EPSILON, "batches_a_call": 8, "ahead": 2, "cpus": 0.1}
        self._buffer = ShardedReplay(self.capacity, rows.LAYOUT, cluster="local", **options)
        self._rng = np.random.default_rng(seed)
        self._shard = self._buffer.handle().attach()

    def insert(self, placed: Any) -> None:
        self._shard.insert(placed)

    def wait(self) -> None:
        self._buffer.flush()

    def fill(self) -> None:
        ray, nodes = import_ray(), self._buffer.nodes
        fill_shard = ray.remote(num_cpus=0)(_fill_shard)
        place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        tasks = []
        for first, node in enumerate(nodes):
            numbers = np.arange(first, self.capacity, len(nodes))
            on_node = fill_shard.options(scheduling_strategy=place(node_id=node, soft=False))
            tasks.append(on_node.remote(self._buffer.handle(), numbers))
        ray.get(tasks)


def _fill_shard(handle: ReplayHandle, numbers: Any) -> None:
    handle.attach().insert(rows.made(numbers))
