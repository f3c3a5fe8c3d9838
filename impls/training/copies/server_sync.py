"""An asynchronous parameter server: gradients go to shards, processes that take steps with the shared weights.

A copy takes each step with weights of its own too, until it pulls the shared ones: every k gradient steps, or when an
episode begins. Each shard has a part of the weights. It takes gradients in the order in which they come, and for each
n of them a step along their mean. A copy has room for 4 gradients under way, and waits while all are: so no backlog
grows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch
from ..learner import Stepped, Vectors, rates
from ..parallel import board as words
from ..parallel import counter
from ..parallel.arrangement import Arrangement
from ..parallel.board import Board
from ..parallel.programs import Start
from ..weights import spans
from ..workload import Workload
from .numbers import MET, TAKEN, Numbers
from .sync import CopySync

ROOM = 4
"""Gradients of a copy that may be under way."""
_NETWORKS = 3


def serve(start: Start) -> None:
    """Take steps along gradients until the run is over, which raises Stopped."""
    _, numbers = start.extra.numbers(start)
    board, _ = start.attached()
    shard = Shard(start.workload, start.arrangement, numbers, start.number)
    copies = range(1, start.arrangement.members)
    while True:
        board.go_on()
        if shard.turn(board, start.row):
            continue
        if board.is_paused and all(map(board.rests, copies)):
            if not shard.turn(board, start.row):  # once more, for a copy may have sent until it rested
                shard.step()
                board.check(start.row)
        else:
            board.look_at(numbers.at(MET), shard.taken + 1, start.row)


class Shard:
    """Part ``number`` of the shared weights, and of the optimizer's moments ``mean`` and ``square`` ``[W]``."""

    def __init__(self, workload: Workload, arrangement: Arrangement, numbers: Numbers, number: int) -> None:
        self._numbers, self._number, self._most = numbers, number, arrangement.average
        edges = np.linspace(0, len(numbers["weights"]), arrangement.shards + 1).astype(int)
        self._part, self._is_sgd = slice(edges[number], edges[number + 1]), workload.learner.optimizer == "sgd"
        self._spans = [_within(span, self._part) for span in spans(workload).values()]
        self._rates = list(rates(workload).values())
        # Invariant: the sum has the gradients that were taken since the last step, of each network so many.
        self._sum = np.zeros(len(numbers["weights"]), np.float32)
        self._count, self._each = 0, [0] * len(self._spans)

    @property
    def taken(self) -> int:
        """Gradients taken so far, of all copies."""
        return int(self._numbers["taken"][self._number].sum())

    def turn(self, board: Board, row: int) -> bool:
        """Take the gradients that have come, and the steps that are due; returns whether there were any."""
        sent, taken = self._numbers["sent"], self._numbers["taken"][self._number]
        counter.value_of(self._numbers.at(MET))  # whatever was written before these were sent
        waiting = sent - taken
        backlog = self._numbers["backlog"]
        backlog[self._number] = max(backlog[self._number], waiting.sum())
        for copy in np.flatnonzero(waiting):
            at = taken[copy] % ROOM
            for network, span in enumerate(self._spans):
                if self._numbers["trained"][copy, at] >> network & 1:
                    self._sum[span] += self._numbers["gradients"][copy, at, span]
                    self._each[network] += 1
            taken[copy] += 1
            counter.add(self._numbers.at(TAKEN), 1)
            self._count += 1
            if self._count == self._most:
                self.step()
            board.lines[row][words.TURNS] += 1
        return bool(waiting.any())

    def step(self) -> None:
        """Take a step along the mean of the gradients taken since the last one, if there are any."""
        updates = self._numbers["updates"][self._number]
        for network, count in enumerate(self._each):
            if count:
                updates[network] += 1
                span = self._spans[network]
                self._descend(span, self._sum[span] / np.float32(count), int(updates[network]), self._rates[network])
        self._numbers["applied"][self._number] += self._count
        self._sum[:], self._count, self._each = 0, 0, [0] * len(self._spans)

    def _descend(self, span: slice, slope: NDArray[np.float32], count: int, rate: float) -> None:
        """Plain descent, or Adam's step number ``count`` with its usual constants."""
        weights, (mean, square) = self._numbers["weights"][span], self._numbers["moments"][:, span]
        if self._is_sgd:
            weights -= np.float32(rate) * slope
            return
        mean += np.float32(0.1) * (slope - mean)
        square += np.float32(0.001) * (slope * slope - square)
        root = np.sqrt(square / np.float32(1 - 0.999**count)) + np.float32(1e-8)
        weights -= np.float32(rate / (1 - 0.9**count)) * mean / root


class Server(CopySync):
    """A copy that sends its gradients."""

    program = staticmethod(serve)

    @staticmethod
    def arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
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
    def helpers(arrangement: Arrangement) -> int:
        """A process for each shard."""
        return arrangement.shards

    def move(self, batch: Batch) -> Stepped:
        """Send the gradients of a step, and take it with this copy's weights."""
        learner, every = self.learner, spans(self.learner.workload)
        sent, losses, trained = self.numbers["sent"], dict[str, float](), 0
        self.wait(self._has_room)
        at = sent[self.number] % ROOM
        rows, priorities = learner.rows(batch.rows, batch.weights), np.empty(0, np.float32)
        for phase in learner.phases():
            derived = learner.gradient(phase, rows)
            gradient = clipped(derived.gradient, learner.workload.learner.gradient_clip)
            self.numbers["gradients"][self.number, at, every[phase.network]] = gradient
            trained |= 1 << list(every).index(phase.network)
            learner.apply(phase, derived.gradient)
            priorities = priorities if derived.priorities is None else derived.priorities
            losses[phase.network] = derived.loss
        learner.finish()
        self.numbers["trained"][self.number, at] = trained
        sent[self.number] += 1
        counter.add(self.numbers.at(MET), 1)
        return Stepped(priorities, losses)

    def exchange(self) -> None:
        """Take the shared weights, as they are while shards change them."""
        self.learner.parameters[:] = self.numbers["weights"]

    def ended(self) -> None:
        """Pull if copies do when an episode begins."""
        if self.arrangement.every == 0:
            self.meet()

    @staticmethod
    def report(numbers: Numbers) -> dict[str, Any]:
        """Gradients sent, applied by the slowest shard and under way to it, and the largest backlog of a shard."""
        sent, applied = int(numbers["sent"].sum()), int(numbers["applied"].min())
        return {"sent": sent, "applied": applied, "under_way": sent - applied, "backlog": int(numbers["backlog"].max())}

    def _has_room(self) -> bool:
        """Wait for 20 ms until fewer of this copy's gradients than there is room for are under way."""
        moved = int(counter.value_of(self.numbers.at(TAKEN)))
        if self.numbers["sent"][self.number] - self.numbers["taken"][:, self.number].min() < ROOM:
            return True
        self.board.look_at(self.numbers.at(TAKEN), moved + 1, self.number)
        return False


def clipped(gradient: NDArray[np.float32], norm: float) -> NDArray[np.float32]:
    """The gradient of a network, of at most this norm; 0 leaves it."""
    scale = norm / (float(np.sqrt(gradient @ gradient)) + 1e-6) if norm > 0 else 1.0
    return gradient if scale >= 1 else gradient * np.float32(scale)


def _within(span: slice, part: slice) -> slice:
    return slice(max(span.start, part.start), max(span.start, part.start, min(span.stop, part.stop)))
