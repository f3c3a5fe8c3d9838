"""Shards in threads of this process, in place of a cluster; and a Ray cluster of several nodes of this machine."""

import contextlib
import importlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from impls.cluster.calls import LostError, Reply, Request, Shard
from impls.cluster.connection import import_ray
from impls.replay import Layout, Replay, make

LAYOUT = Layout((3,), "float32", choices=2)


class ThreadCalls:
    """Requests to shards ``make`` makes, each answered by a thread of its own in the order in which they came.

    ``scale``: how many times too large a shard says that its total is.
    """

    def __init__(self, makers: Sequence[Callable[[], Replay]], scale: Sequence[float] | None = None) -> None:
        self._makers, self.count = list(makers), len(makers)
        self.scale = list(scale) if scale is not None else [1.0] * self.count
        self.shards = [Shard(make) for make in self._makers]
        self.waited = 0.0  # seconds, in vain
        self._running = [threading.Event() for _ in makers]
        self._threads = [ThreadPoolExecutor(1) for _ in makers]
        for event in self._running:
            event.set()

    def replay(self, shard: int) -> Replay:
        """The replay of a shard, as its node's processes have it."""
        return self.shards[shard]._replay

    def ask(self, shard: int, request: Request) -> Future[Reply]:
        """Let the shard's thread answer."""
        try:
            return self._threads[shard].submit(self._answer, shard, self.shards[shard], request)
        except RuntimeError:  # it was killed
            failure: Future[Reply] = Future()
            failure.set_exception(LostError("the shard has ended"))
            return failure

    def _answer(self, place: int, shard: Shard, request: Request) -> Reply:
        self._running[place].wait()
        if shard is not self.shards[place]:
            raise LostError("the shard ended meanwhile")
        reply = Reply.unpack(shard.answer(Request.unpack(request.pack())).pack())
        return reply._replace(total=reply.total * self.scale[place])

    def answer(self, reference: Future[Reply], seconds: float) -> Reply:
        """Return the answer; LostError where the shard has ended, TimeoutError where it takes longer."""
        try:
            return reference.result(seconds)
        except TimeoutError:
            self.waited += seconds
            raise
        except CancelledError:
            raise LostError("the shard has ended") from None

    def list_ready(self, references: Sequence[Any]) -> list[Any]:
        """Return the references that have an answer or an error."""
        return [reference for reference in references if reference.done()]

    def wait(self) -> None:
        """Wait until every shard has answered all that it was asked."""
        for thread in self._threads:
            thread.submit(int).result()

    # Weather

    def kill(self, shard: int) -> None:
        """End a shard; what it was asked and did not answer is lost."""
        self.shards[shard] = None  # type: ignore[call-overload]
        self._running[shard].set()
        self._threads[shard].shutdown(cancel_futures=True)

    def restart(self, shard: int) -> None:
        """Start a shard anew, empty."""
        self.shards[shard] = Shard(self._makers[shard])
        self._threads[shard] = ThreadPoolExecutor(1)

    def stop(self, shard: int) -> None:
        """Let a shard answer nothing."""
        self._running[shard].clear()

    def resume(self, shard: int) -> None:
        """Let a stopped shard go on, with what it was asked meanwhile."""
        self._running[shard].set()


def make_replay(slots: int = 2048) -> Replay:
    """An empty replay of records that carry their number."""
    return make(slots, LAYOUT, alpha=0.6, epsilon=1e-2)


def numbered_records(first: int, count: int) -> dict[str, Any]:
    """Records that carry their number in the first place of their observation."""
    records = {name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in LAYOUT.fields.items()}
    records["observation"][:, 0] = np.arange(first, first + count)
    return records


def filled_shards(sizes: Sequence[int], scale: Sequence[float] | None = None) -> tuple[ThreadCalls, Any]:
    """(shards with so many records each, the priority of every record)"""
    calls, first, priorities = ThreadCalls([make_replay] * len(sizes), scale), 0, []
    for shard, size in enumerate(sizes):
        errors = np.random.default_rng([shard, size]).gamma(0.5, shard + 1.0, size)
        if size:
            calls.replay(shard).insert(numbered_records(first, size), errors)
        priorities.append(((errors + 1e-2) ** 0.6).astype(np.float32).astype(np.float64))
        first += size
    return calls, np.concatenate(priorities)


class Independent(np.random.Generator):
    """A generator whose uniforms, one to each of n equal intervals, come out as n independent ones in order."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))

    def random(self, size: Any = None, *rest: Any, **options: Any) -> Any:
        """Return uniforms, as a number or in the places of stratified draws."""
        drawn = super().random(size, *rest, **options)
        return drawn if size is None else np.sort(drawn) * size - np.arange(size)


# Ray, with a raylet, an object store and workers a node


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
