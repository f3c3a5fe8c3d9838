"""A node's part of a training run: actors, the shard of the replay that they fill, and its answers to the learner.

Within the node all is as in a run of one machine: shared memory, actors in processes of their own. The learner says
with each call how many environment steps the node may take, and now and then by which weights.
"""

import contextlib
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...cluster.calls import Reply, Request, Shard
from .. import clock, learners
from ..actor import Episode
from ..arrangement import Arrangement
from ..errors import TrainingError
from ..parallel.board import Counter
from ..parallel.node import ActorNode
from ..workload import Workload

_WATCH_SECONDS = 0.2  # that a watch waits for environment steps
_CPU_SECONDS = 1.0  # between two looks at the CPU time of a node's processes
_HEAD = struct.Struct("<q")


class Orders(NamedTuple):
    """Orders of a learner to the process ``run`` of a node.

    The process may take ``allowed`` environment steps in all; other nodes have taken ``elsewhere``; the learner has
    taken ``updates`` gradient steps, and knows the first ``episodes`` that ended here. ``epoch`` and the seed decide
    the random numbers of this process.
    """

    run: int
    allowed: int
    elsewhere: int
    updates: int
    episodes: int
    epoch: int

    def pack(self) -> bytes:
        """Return the orders as bytes."""
        return _ORDERS.pack(*self)

    @classmethod
    def unpack(cls, message: bytes) -> "Orders":
        """Return the orders at the beginning of a message."""
        return cls._make(_ORDERS.unpack_from(message))


class News(NamedTuple):
    """News of the process ``run`` of node ``place``.

    ``steps`` are its environment steps; ``restarts`` of its actors; ``cpu`` nanoseconds of all its processes;
    ``episodes [n, 2]`` those that ended from number ``first`` on, score and length;
    ``name`` is the node's; ``failure`` says why it cannot continue, "" while it can.
    """

    place: int
    run: int
    steps: int
    restarts: int
    cpu: int
    first: int
    episodes: NDArray[np.float64]
    name: str
    failure: str

    def pack(self) -> bytes:
        """Return the news as bytes."""
        *counts, episodes, name, failure = self
        text = f"{name}\n{failure}".encode()
        return _NEWS.pack(*counts, len(episodes), len(text)) + episodes.tobytes() + text

    @classmethod
    def unpack(cls, message: bytes) -> "News":
        """Return the news that were packed."""
        *counts, rows, length = _NEWS.unpack_from(message)
        episodes = np.frombuffer(message, np.float64, 2 * rows, _NEWS.size).reshape(rows, 2)
        text = message[_NEWS.size + episodes.nbytes :][:length].decode()
        name, _, failure = text.partition("\n")
        return cls._make([*counts, episodes, name, failure])


_ORDERS, _NEWS = struct.Struct("<6q"), struct.Struct("<8q")


def join(first: bytes, second: bytes) -> bytes:
    """Return one message of two."""
    return _HEAD.pack(len(first)) + first + second


def split(message: bytes) -> tuple[bytes, bytes]:
    """Return the two messages that were joined."""
    end = _HEAD.size + _HEAD.unpack_from(message)[0]
    return message[_HEAD.size : end], message[end:]


class RemoteNode(ActorNode):
    """The actors and the replay of a node; its learner is elsewhere, and lets it take steps little by little.

    ``weights`` are P numbers. No process is pinned to a core, for others may be on the node too.
    """

    def __init__(self, workload: Workload, arrangement: Arrangement, weights: int, **options: Any) -> None:
        super().__init__(workload, arrangement, weights, **options)
        self._cores = [() for _ in self._cores]
        self.board.looks = 1  # actors wait for a call from another machine, which no looking hastens
        self.until(0)
        learners.prepare(workload, self.policy_name)

    def begin(self, weights: NDArray[np.float32], updates: int, epoch: int) -> None:
        """Start the actors by weights ``[P]`` of a number of gradient steps."""
        self._is_begun, self._began, self._epoch = True, clock.seconds(), epoch
        self.board.begin_at(weights, 0, updates)
        self.begin_actors()

    def find_failure(self) -> str:
        """Begin killed actors anew; say why this node cannot continue, "" while it can."""
        with contextlib.suppress(TrainingError):
            self._children.watch()
        return self.failure


class ActorShard(Shard):
    """The process of node ``place`` that answers the learner; ``make`` makes the node's actors and replay."""

    name = "of this process"

    def __init__(self, make: Callable[[], RemoteNode], place: int) -> None:
        self.node, self._place = self._make(make), place
        self._paused = contextlib.ExitStack()
        super().__init__(lambda: self.node.buffer)
        self._is_begun = False
        self._known, self._episodes = 0, list[Episode]()
        self._cpu, self._next_look = 0, 0.0
        self._lock = threading.RLock()  # orders come by calls and by watches, each in a thread

    def obey_and_answer(self, message: bytes, weights: NDArray[np.float32] | None = None) -> bytes:
        """Obey packed orders, with the newest weights ``[P]`` if any, and answer the packed request after them."""
        orders, request = split(message)
        self._obey(Orders.unpack(orders), weights)
        reply: Reply = self.answer(Request.unpack(request))
        return join(self._tell(), reply.pack())

    def watch(self, message: bytes, steps: int) -> bytes:
        """Obey packed orders, and wait until ``steps`` environment steps are taken here, for 0.2 s at most."""
        self._obey(Orders.unpack(message), None)
        end, board = clock.seconds() + _WATCH_SECONDS, self.node.board
        while not board.look(Counter.STEPS, steps, 0) and clock.seconds() < end and not self.node.failure:
            pass
        return self._tell()

    def _obey(self, orders: Orders, weights: NDArray[np.float32] | None) -> None:
        if orders.run != self._run:  # they are for a process that has ended, or from a learner that knows none
            return
        with self._lock:
            board = self.node.board
            if weights is not None and not self._is_begun:
                self.node.begin(weights, orders.updates, orders.epoch)
                self._is_begun = True
            elif weights is not None:
                board.publish(weights)
            board.set(Counter.UPDATES, max(orders.updates, board.value(Counter.UPDATES)))
            board.set(Counter.ELSEWHERE, orders.elsewhere)
            if orders.allowed > board.value(Counter.LAST_STEP):
                self.node.until(orders.allowed)
            del self._episodes[: max(0, orders.episodes - self._known)]
            self._known = max(self._known, orders.episodes)

    def _tell(self) -> bytes:
        with self._lock:
            board, now = self.node.board, clock.seconds()
            self._episodes += self.node.ended()
            failure = self.node.find_failure()
            if now >= self._next_look:
                self._cpu, self._next_look = int(1e9 * self.node.cpu_seconds()), now + _CPU_SECONDS
            steps, episodes = board.value(Counter.STEPS), np.array(self._episodes, np.float64).reshape(-1, 2)
            counts = self._place, self._run, steps, self.node.restarts, self._cpu, self._known
            return News(*counts, episodes, self.name, failure).pack()

    def pause(self) -> bytes:
        """Let the actors rest until ``resume``; returns the news of that moment."""
        with self._lock:
            self._paused.enter_context(self.node.paused())
            return self._tell()

    def resume(self) -> None:
        """Let the actors continue."""
        with self._lock:
            self._paused.close()

    def save_records(self) -> dict[str, Any]:
        """Return the state of the node's replay, taken while its actors rest."""
        with self._lock, self.node.paused():
            return self.node.buffer.state_dict()

    def load_records(self, state: dict[str, Any]) -> None:
        """Take the state of a replay. ValueError for one that does not fit."""
        with self._lock:
            self.node.buffer.load_state_dict(state)

    @staticmethod
    def _make(make: Callable[[], RemoteNode]) -> RemoteNode:
        """Make the node. MemoryError where there is no memory for its part of the replay."""
        try:
            return make()
        except TrainingError as error:
            if isinstance(error.__context__, MemoryError):
                raise error.__context__ from None
            raise
