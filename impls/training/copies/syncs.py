"""How the weights of copies meet, and the memory that copies have in common.

    lock       every k gradient steps a copy adds what its weights moved by to the shared ones, under a mutex
    hogwild    the same without a mutex, so that of two additions at one moment one is lost
    server     every gradient goes to shards, processes that take steps with the shared weights

A new one is a class of this file with a ``name``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch
from ...replay.block import Memory
from ...replay.sync import make_mutex
from ...sumtree.compiling import kept_njit
from .. import algorithms
from ..arrangement import Arrangement, named_classes
from ..learner import Learner, Stepped, Vectors, rates
from ..parallel import counter
from ..parallel.board import Board, Counter, Row, SharedArrays
from ..parallel.children import Start
from ..parallel.syncs import Sync
from ..weights import spans
from ..workload import Workload

BEGUN, MUTEX, MET, TAKEN, _LINES = range(5)
"""Lines of ``SharedWeights``: processes that have begun; a mutex; how often weights have met, or gradients were sent;
how many of these were taken."""
_SAVED = MET, TAKEN
OWN_STEPS, OWN_UPDATES, OWN_SINCE, OWN_DUE = range(4)
"""Of each copy: environment steps and gradient steps that it has taken; gradient steps since its weights last met, and
those that are due by its environment steps, but not taken."""


class SharedWeights(SharedArrays):
    """The memory of the copies of an arrangement; without ``memory`` it is made, and has the learner's own numbers.

    By name: ``steps [P, 8]``, each copy's own counts; ``weights [W]``, which copies share; each of ``Vectors``, with a
    row for each copy and model worker, so that the parent can save them whatever becomes of a process; what the sync
    has besides, and the algorithm, as a ``seed`` begins it.
    """

    def __init__(self, learner: Learner, arrangement: Arrangement, memory: Memory | None = None, seed: int = 0) -> None:
        own, copies, kind = learner.vectors(), arrangement.members, sync_class(arrangement.sync)
        first: dict[str, NDArray[Any]] = {"steps": np.zeros((copies, counter.LINE_WORDS), np.int64)}
        first["weights"] = own.parameters
        first |= {name: np.tile(numbers, (copies, 1)) for name, numbers in own._asdict().items()}
        first |= kind.make_arrays(arrangement, own)
        if arrangement.model_workers:
            first |= algorithms.hook(learner.workload, "make_arrays")(learner.workload, arrangement, seed)
        super().__init__(_LINES, {name: (array.shape, array.dtype) for name, array in first.items()}, memory)
        if memory is None:
            make_mutex(self.address(MUTEX))
            for name, array in first.items():
                self[name][:] = array

    def vectors(self, copy: int) -> Vectors:
        """The numbers that a copy computes with."""
        return Vectors(*(self[name][copy] for name in Vectors._fields))

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """All that is kept while the copies rest, as copies."""
        met = np.array([counter.value_of(self.address(line)) for line in _SAVED], np.int64)
        return {"met": met} | {name: array.copy() for name, array in self.arrays.items()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take the state of as many copies, before any of them has begun."""
        for line, value in zip(_SAVED, state["met"], strict=True):
            counter.add(self.address(line), int(value) - counter.value_of(self.address(line)))
        for name, array in self.arrays.items():
            array[:] = state.get(name, array)  # an older state lacks a part


class CopySync(Sync, ABC):
    """The gradient steps of copy ``number``, of which 0 is the parent; its learner is placed on the shared memory."""

    program: ClassVar[Any] = None
    """What each of ``count_helpers`` further processes runs, from its ``Start`` on."""

    def __init__(
        self, learner: Learner, arrangement: Arrangement, board: Board, number: int, shared: SharedWeights
    ) -> None:
        super().__init__(learner, board, number)
        self.arrangement, self.shared, self._own = arrangement, shared, shared["steps"][number]
        learner.place(shared.vectors(number))
        learner.count(int(self._own[OWN_UPDATES]))

    @staticmethod
    def make_arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
        """Arrays that are shared besides, by name, as they are at first; ``own`` are a learner's numbers."""
        return {}

    @staticmethod
    def count_helpers(arrangement: Arrangement) -> int:
        """Processes besides the copies."""
        return 0

    def step(self, batch: Batch) -> Stepped:
        """Take a gradient step on a batch, and meet if it is the k-th."""
        stepped = self.move(batch)
        self._own[OWN_UPDATES] += 1
        self._own[OWN_DUE] = max(0, self._own[OWN_DUE] - 1)
        if self.number < self.arrangement.processes:  # those of model workers have a count of their own
            self.board.add(Counter.UPDATES)
        self._own[OWN_SINCE] += 1
        if 0 < self.arrangement.every <= self._own[OWN_SINCE]:
            self.meet()
        return stepped

    def move(self, batch: Batch) -> Stepped:
        """Take a step with this copy's own weights."""
        return self.learner.step(batch.rows, batch.weights)

    def meet(self) -> None:
        """Give the shared weights what this copy has for them, and take them."""
        self.exchange()
        self._own[OWN_SINCE] = 0

    def hold_mutex(self) -> AbstractContextManager[None]:
        """A context in which no other copy or worker is, if each asks for it; one that died in it is out of it."""
        return self.locked(self.shared.address(MUTEX))

    @abstractmethod
    def exchange(self) -> None:
        """Exchange weights, or what they moved by, with the shared ones."""

    def end_episode(self) -> None:  # most do nothing
        """Know that an episode of this copy has ended, and another begins."""

    @staticmethod
    def report(shared: SharedWeights) -> dict[str, Any]:
        """Counts of how weights have met so far, by name."""
        return {}


class Adding(CopySync):
    """Copies that add what their weights have moved by, and take the sum.

    ``begun [P, W]`` are the weights that each copy took last. In ``additions [W]`` the same loop adds 1 to each number:
    what their sum lacks of W for each time that weights met was lost between two copies.
    """

    @staticmethod
    def make_arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
        """Weights that each copy began with, and the number of additions to each weight."""
        begun = np.tile(own.parameters, (arrangement.members, 1))
        return {"begun": begun, "additions": np.zeros(len(own.parameters), np.int64)}

    def add(self, is_alone: bool = False) -> int:
        """Add what the weights moved by, and take the sum; returns how often weights had met before.

        ``is_alone``: nobody else has changed the shared weights, so this copy's are the sum, without rounding.
        """
        shared = self.shared
        begun = shared["begun"][self.number]
        _add(shared["weights"], shared["additions"], self.learner.parameters, begun, is_alone)
        return int(counter.add(shared.address(MET), 1))

    @staticmethod
    def report(shared: SharedWeights) -> dict[str, Any]:
        """How often weights have met, additions to single weights, and how many of these were lost."""
        met = int(counter.value_of(shared.address(MET)))
        additions = met * len(shared["weights"])
        return {"met": met, "additions": additions, "lost_additions": additions - int(shared["additions"].sum())}


@kept_njit(nogil=True)
def _add(weights: Any, additions: Any, own: Any, begun: Any, is_alone: bool) -> None:
    """Add own - begun to shared weights, 1 to their additions, and set own and begun to the sum; nothing is locked."""
    for i in range(len(weights)):
        weights[i] = own[i] if is_alone else weights[i] + (own[i] - begun[i])
        additions[i] += 1
        own[i] = begun[i] = weights[i]


class Hogwild(Adding):
    """Copies that add to the shared weights without a lock [StoneSachdev]: of two additions at once one is lost."""

    name = "hogwild"

    def exchange(self) -> None:
        """Add at once, whatever others do meanwhile, and take what is there then."""
        self.add()


class Lock(Adding):
    """Copies that add to the shared weights one at a time, under a robust mutex: no addition is lost.

    Where no other copy has added meanwhile, a copy's weights are the sum, bit for bit.
    """

    name = "lock"
    _known = 0  # how often weights had met when this copy last took them

    def exchange(self) -> None:
        """Wait for the mutex, which is taken over from an owner that died, add, and take the sum."""
        with self.hold_mutex():
            is_alone = counter.value_of(self.shared.address(MET)) == self._known
            self._known = self.add(is_alone) + 1


ROOM = 4
"""Gradients of a copy that may be under way."""
_NETWORKS = 3


def serve(start: Start) -> None:
    """Take steps along gradients until the run is over, which raises Stopped."""
    _, shared = start.extra.attach(start)
    board, _ = start.attached()
    shard = Shard(start.workload, start.arrangement, shared, start.number)
    copies = range(1, start.arrangement.members)
    while True:
        board.raise_if_stopped()
        if shard.turn(board, start.row):
            continue
        if board.is_paused and all(map(board.rests, copies)):
            if not shard.turn(board, start.row):  # once more, for a copy may have sent until it rested
                shard.step()
                board.check(start.row)
        else:
            board.look_at(shared.address(MET), shard.taken + 1, start.row)


class Shard:
    """Part ``number`` of the shared weights, and of the optimizer's moments ``mean`` and ``square`` ``[W]``."""

    def __init__(self, workload: Workload, arrangement: Arrangement, shared: SharedWeights, number: int) -> None:
        self._shared, self._number, self._most = shared, number, arrangement.average
        edges = np.linspace(0, len(shared["weights"]), arrangement.shards + 1).astype(int)
        self._part, self._is_sgd = slice(edges[number], edges[number + 1]), workload.learner.optimizer == "sgd"
        starts = [(max(span.start, self._part.start), span.stop) for span in spans(workload).values()]
        self._spans = [slice(start, max(start, min(stop, self._part.stop))) for start, stop in starts]
        self._rates = list(rates(workload).values())
        # Invariant: the sum has the gradients that were taken since the last step, of each network so many.
        self._sum = np.zeros(len(shared["weights"]), np.float32)
        self._count, self._each = 0, [0] * len(self._spans)

    @property
    def taken(self) -> int:
        """Gradients taken so far, of all copies."""
        return int(self._shared["taken"][self._number].sum())

    def turn(self, board: Board, row: int) -> bool:
        """Take the gradients that have come, and the steps that are due; returns whether there were any."""
        sent, taken = self._shared["sent"], self._shared["taken"][self._number]
        counter.value_of(self._shared.address(MET))  # whatever was written before these were sent
        waiting = sent - taken
        backlog = self._shared["backlog"]
        backlog[self._number] = max(backlog[self._number], waiting.sum())
        for copy in np.flatnonzero(waiting):
            at = taken[copy] % ROOM
            for network, span in enumerate(self._spans):
                if self._shared["trained"][copy, at] >> network & 1:
                    self._sum[span] += self._shared["gradients"][copy, at, span]
                    self._each[network] += 1
            taken[copy] += 1
            counter.add(self._shared.address(TAKEN), 1)
            self._count += 1
            if self._count == self._most:
                self.step()
            board.lines[row][Row.TURNS] += 1
        return bool(waiting.any())

    def step(self) -> None:
        """Take a step along the mean of the gradients taken since the last one, if there are any."""
        updates = self._shared["updates"][self._number]
        for network, count in enumerate(self._each):
            if count:
                updates[network] += 1
                span = self._spans[network]
                self._descend(span, self._sum[span] / np.float32(count), int(updates[network]), self._rates[network])
        self._shared["applied"][self._number] += self._count
        self._sum[:], self._count, self._each = 0, 0, [0] * len(self._spans)

    def _descend(self, span: slice, slope: NDArray[np.float32], count: int, rate: float) -> None:
        """Plain descent, or Adam's step number ``count`` with its usual constants."""
        weights, (mean, square) = self._shared["weights"][span], self._shared["moments"][:, span]
        if self._is_sgd:
            weights -= np.float32(rate) * slope
            return
        mean += np.float32(0.1) * (slope - mean)
        square += np.float32(0.001) * (slope * slope - square)
        root = np.sqrt(square / np.float32(1 - 0.999**count)) + np.float32(1e-8)
        weights -= np.float32(rate / (1 - 0.9**count)) * mean / root


class Server(CopySync):
    """A copy that sends its gradients to an asynchronous parameter server.

    A copy takes each step with weights of its own too, until it pulls the shared ones: every k gradient steps, or when
    an episode begins. Each shard has a part of the weights. It takes gradients in the order in which they come, and for
    each n of them a step along their mean. A copy has room for 4 gradients under way, and waits while all are: so no
    backlog grows.
    """

    name = "server"

    program = staticmethod(serve)

    @staticmethod
    def make_arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
        """Room for gradients, what was sent, taken and applied, and the shards' moments."""
        copies, shards, weights = arrangement.members, arrangement.shards, len(own.parameters)
        return {
            "gradients": np.zeros((copies, ROOM, weights), np.float32),
            "trained": np.zeros((copies, ROOM), np.int64),  # a bit for each network
            "sent": np.zeros(copies, np.int64),
            "taken": np.zeros((shards, copies), np.int64),
            "applied": np.zeros(shards, np.int64),
            "backlog": np.zeros(shards, np.int64),
            "updates": np.zeros((shards, _NETWORKS), np.int64),
            "moments": np.zeros((2, weights), np.float32),
        }

    @staticmethod
    def count_helpers(arrangement: Arrangement) -> int:
        """A process for each shard."""
        return arrangement.shards

    def move(self, batch: Batch) -> Stepped:
        """Send the gradients of a step, and take it with this copy's weights."""
        learner, every = self.learner, spans(self.learner.workload)
        sent, losses, trained = self.shared["sent"], dict[str, float](), 0
        with self.counting_wait():
            self.wait(self._has_room)
        at = sent[self.number] % ROOM
        rows, priorities = learner.rows(batch.rows, batch.weights), np.empty(0, np.float32)
        for phase in learner.phases():
            derived = learner.gradient(phase, rows)
            gradient = clipped(derived.gradient, learner.workload.learner.gradient_clip)
            self.shared["gradients"][self.number, at, every[phase.network]] = gradient
            trained |= 1 << list(every).index(phase.network)
            learner.apply(phase, derived.gradient)
            priorities = priorities if derived.priorities is None else derived.priorities
            losses[phase.network] = derived.loss
        learner.finish()
        self.shared["trained"][self.number, at] = trained
        sent[self.number] += 1
        counter.add(self.shared.address(MET), 1)
        return Stepped(priorities, losses)

    def exchange(self) -> None:
        """Take the shared weights, as they are while shards change them."""
        self.learner.parameters[:] = self.shared["weights"]

    def end_episode(self) -> None:
        """Pull if copies do when an episode begins."""
        if self.arrangement.every == 0:
            self.meet()

    @staticmethod
    def report(shared: SharedWeights) -> dict[str, Any]:
        """Gradients sent, applied by the slowest shard and under way to it, and the largest backlog of a shard."""
        sent, applied = int(shared["sent"].sum()), int(shared["applied"].min())
        return {"sent": sent, "applied": applied, "under_way": sent - applied, "backlog": int(shared["backlog"].max())}

    def _has_room(self) -> bool:
        """Wait for 20 ms until fewer of this copy's gradients than there is room for are under way."""
        moved = int(counter.value_of(self.shared.address(TAKEN)))
        if self.shared["sent"][self.number] - self.shared["taken"][:, self.number].min() < ROOM:
            return True
        self.board.look_at(self.shared.address(TAKEN), moved + 1, self.number)
        return False


def clipped(gradient: NDArray[np.float32], norm: float) -> NDArray[np.float32]:
    """The gradient of a network, of at most this norm; 0 leaves it."""
    scale = norm / (float(np.sqrt(gradient @ gradient)) + 1e-6) if norm > 0 else 1.0
    return gradient if scale >= 1 else gradient * np.float32(scale)


_SYNCS: dict[str, type[CopySync]] = named_classes(CopySync)


def sync_class(name: str) -> type[CopySync]:
    """The way in which copies meet, by its name."""
    return _SYNCS[name]
