"""The replay of a Ray cluster: a shard on each node, in an actor of its own."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import replay
from ..checks import integer_at_least
from ..replay import Layout
from ..replay.block import is_alive, process
from .calls import ClusterError, LostError, Reply, Request, Shard
from .connection import connect, import_ray
from .sampler import Sampler

_START_SECONDS = 300.0  # for nodes to start a process each, import Fanout and compile its kernels
_FETCH_SECONDS = 0.5  # for an answer that is there to come from its node
_ATTACH_SECONDS = 25.0  # for a shard to answer on the node of a process that inserts
_NAP_SECONDS = 0.2  # between looks for a shard, or for memory
_LOOK_SECONDS = 0.2  # between looks whether the shard that a process inserts into still lives
_CODE = ("cluster", "replay", "sumtree", "training")  # packages of impls that all nodes need alike, and its modules


class NodeShard(Shard):
    """A shard that says where it is.

    Where Ray starts one in the place of another, its memory may still be mapped by processes that insert: it waits.
    """

    def __init__(self, make: Callable[[], Any], *more: Any) -> None:
        is_first = not import_ray().get_runtime_context().was_current_actor_reconstructed
        deadline = time.monotonic() + _START_SECONDS / 5
        while True:
            try:
                super().__init__(make, *more)
                return
            except MemoryError:
                if is_first:
                    raise
                if time.monotonic() > deadline:
                    os._exit(1)  # Ray starts a process that ended again, and one whose constructor raised never
                time.sleep(_NAP_SECONDS)

    def answer_message(self, message: bytes) -> bytes:
        """Answer a packed request by a packed reply."""
        return self.answer(Request.unpack(message)).pack()

    def describe(self) -> dict[str, Any]:
        """Return what all nodes need alike, the node's id, and how processes of the node reach the replay."""
        node = import_ray().get_runtime_context().get_node_id()
        return {"versions": list_versions(), "node": node, "process": process(), "handle": self.handle()}


class RayCalls:
    """Requests to the actors of a Ray cluster."""

    def __init__(self, actors: Sequence[Any]) -> None:
        self._ray, self._actors = import_ray(), list(actors)
        self._timeout = self._ray.exceptions.GetTimeoutError
        self.count = len(self._actors)

    def ask(self, shard: int, request: Request) -> Any:
        """Send a request, and return at once a reference to its answer."""
        return self._actors[shard].answer_message.remote(request.pack())

    def answer(self, reference: Any, seconds: float) -> Reply:
        """Return the answer. TimeoutError where there is none within ``seconds``, LostError where none will be."""
        return Reply.unpack(self.get(reference, seconds))

    def get(self, reference: Any, seconds: float) -> Any:
        """Return an answer as it was packed; raises as ``answer``."""
        try:
            # The time is over for others' sake: an answer that is there may yet have to come from another node.
            if seconds < _FETCH_SECONDS and self._ray.wait([reference], timeout=seconds, fetch_local=False)[0]:
                seconds = _FETCH_SECONDS
            message = self._ray.get(reference, timeout=seconds)
        except self._timeout:
            raise TimeoutError from None
        except self._ray.exceptions.RayTaskError as error:  # a fault of what was asked: no other shard would do better
            raise error.as_instanceof_cause() from None
        except self._ray.exceptions.RayError as error:
            raise LostError(str(error)) from None
        return message

    def list_ready(self, references: Sequence[Any]) -> Sequence[Any]:
        """Return those references whose answer, or loss, is known by now."""
        ready: Sequence[Any] = self._ray.wait(references, num_returns=len(references), timeout=0)[0]
        return ready


class NodeReplay:
    """The shard of this process's node, into which it inserts through shared memory, without Ray.

    Made by :meth:`ReplayHandle.attach`. Where the shard's process has ended, the one that Ray starts in its place is
    found once it answers, for which an insert waits; ``lost`` counts the records that this process had inserted into
    shards that ended.
    """

    def __init__(self, actors: Sequence[Any], seconds: float) -> None:
        self._actors, self._seconds = actors, seconds
        self.lost, self._inserted, self._next_look = 0, 0, 0.0
        self._attach()

    def insert(
        self,
        records: Mapping[str, NDArray[Any]] | NDArray[Any],
        errors: ArrayLike | None = None,
        drawable: ArrayLike | None = None,
    ) -> None:
        """Store records in the node's shard: see :meth:`impls.replay.Replay.insert`.

        ClusterError where the shard has ended and none has taken its place in time.
        """
        if time.monotonic() >= self._next_look:
            if not is_alive(*self._process):
                self.lost, self._inserted = self.lost + self._inserted, 0
                self._attach()
            self._next_look = time.monotonic() + _LOOK_SECONDS
        self.replay.insert(records, errors, drawable)
        self._inserted += len(records) if isinstance(records, np.ndarray) else np.asarray(records["reward"]).size

    def _attach(self) -> None:
        """Attach to the shard whose process is on this node; ClusterError where there is none in time."""
        ray = import_ray()
        node, deadline = ray.get_runtime_context().get_node_id(), time.monotonic() + self._seconds
        while True:
            answers = [actor.describe.remote() for actor in self._actors]
            ready, _ = ray.wait(answers, num_returns=len(answers), timeout=min(1.0, self._seconds))
            answered = 0
            for answer in ready:
                try:
                    found = ray.get(answer, timeout=0)
                    if found["node"] == node:
                        self.replay = replay.attach(found["handle"])
                        self._process, self._inserted = found["process"], 0
                        return
                    answered += 1
                except (ray.exceptions.RayError, replay.ClosedError):
                    continue  # it ends at this moment, or has not begun again
            if answered == len(self._actors) or time.monotonic() >= deadline:
                raise ClusterError(
                    f"no shard answers on this node within {self._seconds:g} s: insert from a process on a node that "
                    "has a shard, or give ShardedReplay as many shards as there are nodes"
                )
            time.sleep(_NAP_SECONDS)


class ReplayHandle:
    """A small picklable reference to a sharded replay, for processes that insert: Ray's actors and tasks."""

    def __init__(self, actors: Sequence[Any], seconds: float) -> None:
        self._actors, self._seconds = list(actors), seconds

    def attach(self) -> NodeReplay:
        """Return the shard of this process's node. ClusterError where the node has none."""
        return NodeReplay(self._actors, self._seconds)


class ShardedReplay(Sampler):
    """One prioritized replay of ``capacity`` records over the nodes of a Ray cluster, a shard on each.

    ``cluster`` says which, as :func:`impls.cluster.connection.connect` does. ``shards`` are at most as many as there
    are nodes, which is the default; each takes ``cpus`` of its node. Shards that end are started again, empty, on their
    node or on one that joined. ``alpha``, ``epsilon``, ``fanout`` and ``dtype`` are those of :func:`impls.replay.make`;
    the other options those of :class:`Sampler`.

    A process on each of the ``nodes`` inserts by ``handle().attach().insert(..)``, one process samples. Raises
    ClusterError for a cluster that cannot do it, with what to do, and ValueError as the others do.
    """

    def __init__(
        self,
        capacity: int,
        layout: Layout,
        *,
        alpha: float,
        epsilon: float,
        cluster: str = "auto",
        shards: int | None = None,
        cpus: float = 1,
        fanout: int = 16,
        dtype: str = "float32",
        **options: Any,
    ) -> None:
        wanted = 0 if shards is None else integer_at_least("shards", shards, 1)
        integer_at_least("capacity", capacity, max(1, wanted))
        ray = connect(cluster)
        count = count_nodes(ray, wanted, cpus, "shards")
        slots = -(-integer_at_least("capacity", capacity, count) // count)
        make = functools.partial(
            replay.make, layout=layout, alpha=alpha, epsilon=epsilon, fanout=fanout, dtype=dtype, shared=True
        )
        make(1).close()  # raises here what it would raise on every node
        Sampler(RayCalls([]), layout, **options)  # raises here what it would raise once they run
        make = functools.partial(make, slots)
        self._actors, self.nodes, self._group = start_shards(ray, NodeShard, [(make,)] * count, cpus)
        super().__init__(RayCalls(self._actors), layout, **options)

    def handle(self) -> ReplayHandle:
        """A small picklable reference, by which processes on each node attach to its shard and insert."""
        return ReplayHandle(self._actors, _ATTACH_SECONDS)

    def close(self) -> None:
        """End the shards; their records are gone."""
        ray = import_ray()
        if ray.is_initialized():
            for actor in self._actors:
                ray.kill(actor)
            ray.util.remove_placement_group(self._group)

    def __enter__(self) -> "ShardedReplay":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def count_nodes(ray: Any, wanted: int, cpus: float, parts: str) -> int:
    """The number of nodes to take: ``wanted``, or all with enough CPUs. ClusterError where there are not as many."""
    nodes = sum(1 for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= cpus)
    if not 0 < (count := wanted or nodes) <= nodes:
        raise ClusterError(
            f"{max(1, count)} {parts} need as many nodes of {cpus:g} CPUs, and the cluster has {nodes}: "
            f"add nodes by `ray start --address=HOST:PORT`, or take fewer {parts}"
        )
    return count


def start_shards(
    ray: Any, kind: type[Any], arguments: Sequence[tuple[Any, ...]], cpus: float, **options: Any
) -> tuple[list[Any], list[str], Any]:
    """(an actor of a ``kind`` on each of as many nodes as there are ``arguments``, the nodes' ids, their placement).

    ``options`` are those of ``ray.remote``. ClusterError where they do not start, or have other versions than this
    process.
    """
    count = len(arguments)
    strategy = importlib.import_module("ray.util.scheduling_strategies").PlacementGroupSchedulingStrategy
    group = ray.util.placement_group([{"CPU": cpus}] * count, strategy="STRICT_SPREAD")
    try:
        if not group.wait(timeout_seconds=_START_SECONDS / 10):
            raise ClusterError(
                f"{count} nodes with {cpus:g} free CPUs each are wanted; `ray status` shows who has them"
            )
        remote_shard = ray.remote(num_cpus=cpus, max_restarts=-1, max_task_retries=0, **options)(kind)
        places = (strategy(placement_group=group, placement_group_bundle_index=place) for place in range(count))
        actors = [
            remote_shard.options(scheduling_strategy=place).remote(*given)
            for place, given in zip(places, arguments, strict=True)
        ]
        answers = ray.get([actor.describe.remote() for actor in actors], timeout=_START_SECONDS)
        for answer in answers:
            check_versions(answer["node"], answer["versions"])
    except BaseException as error:
        ray.util.remove_placement_group(group)
        if not isinstance(error, ray.exceptions.RayError):
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise ClusterError(
            f"a node cannot start its shard within {_START_SECONDS:g} s ({reason}): each needs memory for its part of "
            "the records and the same Fanout, installed, or from a checkout that is the working_dir of a runtime_env"
        ) from None
    return actors, [answer["node"] for answer in answers], group


def check_versions(node: str, versions: Mapping[str, str]) -> None:
    """Raise ClusterError where a node's versions are not those of this process."""
    for name, version in list_versions().items():
        if versions.get(name) != version:
            raise ClusterError(
                f"node {node[:8]} has {name} {versions.get(name)}, and this process {version}: "
                "install the same on every node"
            )


@functools.cache
def list_versions() -> dict[str, str]:
    """Return the versions that all nodes need alike: of Python, NumPy, and of the text of our own modules."""
    texts = hashlib.sha256()
    ours = Path(__file__).parent.parent
    for path in sorted([*ours.glob("*.py"), *(path for name in _CODE for path in (ours / name).rglob("*.py"))]):
        texts.update(path.read_bytes())
    numpy = importlib.metadata.version("numpy")
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "NumPy": numpy, "Fanout's code": texts.hexdigest()[:12]}
