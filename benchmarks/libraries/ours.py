"""Ours, as other libraries are: buffers, compiled or in Python or on several machines, and the serial training loop."""

import dataclasses
from typing import Any, ClassVar

import numpy as np

import impls
from impls import replay
from impls.cluster import ReplayHandle, ShardedReplay
from impls.cluster.connection import import_ray
from impls.replay.registry import strategy_class
from impls.training.loop import SerialLoop

from . import base, rows

BANKS = 2  # of a strategy that has banks


class _Buffer(base.Buffer):
    """A buffer of ours: a batch has rows, weights and a sequence."""

    needs_install = False
    fanout = 16
    dtype = "float32"
    retrieves = True
    _buffer: Any
    _rng: np.random.Generator

    def insert(self, placed: Any) -> None:
        self._buffer.insert(placed)

    def sample(self, batch: int) -> Any:
        return self._buffer.sample(batch, base.BETA, self._rng)

    def update(self, sampled: Any, errors: Any) -> None:
        self._buffer.update_priorities(sampled.sequence, errors)

    def retrieve(self, sampled: Any) -> Any:
        return self._buffer.retrieve_priorities(sampled.sequence)

    def records(self, sampled: Any) -> rows.Rows:
        return dict(sampled.rows)

    def weights(self, sampled: Any) -> Any:
        return sampled.weights


class Buffer(_Buffer):
    """``impls.replay.make``, one compiled call an operation; ``shared`` lies in memory that other processes map."""

    name = "replay"

    def _allocate(self, seed: int, strategy: str, shared: bool = False) -> None:
        settings: dict[str, Any] = {"alpha": base.ALPHA, "epsilon": base.EPSILON, "shared": shared}
        if strategy_class(strategy).banked:
            settings["banks"] = BANKS
        self.take(replay.make(self.capacity, rows.LAYOUT, strategy=strategy, **settings), self.capacity, seed)

    def take(self, made: Any, capacity: int, seed: int) -> None:
        """Use a replay that is there."""
        self.compiled = self._buffer = made
        self.capacity, self._rng = capacity, np.random.default_rng(seed)
        self._empty: Any = None

    @classmethod
    def attached(cls, handle: Any, capacity: int, seed: int) -> "Buffer":
        """Return the buffer of another process, by its handle."""
        self = cls.__new__(cls)
        self.take(replay.attach(handle), capacity, seed)
        return self

    def handle(self) -> Any:
        """Return what other processes attach to it by."""
        return self._buffer.handle()

    def clear(self) -> None:
        """Remove every record; the first call must come while there is none."""
        if self._empty is None:
            self._empty = self._buffer.state_dict()
        self._buffer.load_state_dict(self._empty)


class PythonBuffer(_Buffer):
    """``PrioritizedBuffer`` on the numba tree: a tree call, a gather and NumPy between them."""

    name = "prioritized_buffer"

    def _allocate(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        tree = impls.make("numba", self.capacity, fanout=self.fanout)
        self._buffer = replay.PrioritizedBuffer(tree, rows.LAYOUT, alpha=base.ALPHA, epsilon=base.EPSILON)


class ReusedBuffer(Buffer):
    """The compiled replay for callers that pack their rows themselves and sample into the same arrays."""

    name = "replay_reused"

    def _allocate(self, seed: int, strategy: str, shared: bool = False) -> None:
        super()._allocate(seed, strategy, shared)
        self._outputs: dict[int, Any] = {}

    def place(self, records: rows.Rows) -> Any:
        packed = np.zeros(len(records["reward"]), self.compiled.row)
        for name, array in records.items():
            packed[name] = array
        return packed

    def sample(self, batch: int) -> Any:
        if batch not in self._outputs:
            self._outputs[batch] = self.compiled.outputs(batch)
        return self.compiled.sample(batch, base.BETA, self._rng, out=self._outputs[batch])

    def keep(self, sampled: Any) -> Any:
        return replay.Batch({}, sampled.weights[:0], sampled.sequence.copy())


class ShardedBuffer(_Buffer):
    """``impls.cluster.ShardedReplay``: a shard on every node, 8 batches a request, 2 requests ahead."""

    name = "sharded"
    package = "ray"
    needs_install = True
    needs = ("ray",)
    clustered = True
    retrieves = False

    def _allocate(self, seed: int) -> None:
        options: dict[str, Any] = {
            "alpha": base.ALPHA,
            "epsilon": base.EPSILON,
            "batches_a_call": 8,
            "ahead": 2,
            "cpus": 0.1,
        }
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


class Loop(base.Loop):
    """``SerialLoop`` of ``impls.training``, on the default learner and policy."""

    name = "fanout"
    package = "numba"
    beside = ("numpy", "torch", "gymnasium")
    needs_install = False
    environments = (1, 8)
    is_ours = True
    fanout = 16
    implementation: ClassVar[str | None] = None

    def _prepare(self) -> None:
        workload, name = self.workload, self.implementation
        if self.count > 1:
            workload = dataclasses.replace(
                workload, actors=dataclasses.replace(workload.actors, environments=self.count)
            )
        self._loop = SerialLoop(workload, learner=name, policy=name, seed=self.seed)

    def turn(self) -> None:
        self._loop.advance()
        self.steps = self._loop.step

    @property
    def updates(self) -> int:
        return self._loop.updates

    @property
    def weights(self) -> int:
        return int(self._loop.learner.state_dict()["weights"].size)

    @property
    def remark(self) -> str:
        return f"learner {self._loop.learner.implementation}, policy {self._loop.policy.implementation}"

    def close(self) -> None:
        self._loop.close()


class TorchLoop(Loop):
    """``SerialLoop`` on torch, on one thread."""

    name = "fanout_torch"
    environments = (1,)
    implementation: ClassVar[str | None] = "torch"
