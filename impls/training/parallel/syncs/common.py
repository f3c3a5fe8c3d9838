"""What the learners of a run have in common, in shared memory: the numbers that gradient steps change, and gradients.

    header       the counters ARRIVED and APPLIED, then the mutexes LEARNING and PUBLISHING, each in its own line
    learners     of each a line: its losses by phase, how its steps overlapped with those of others, sum and most, and
                 its steps since all averaged
    vectors      weights, targets, Adam's mean and mean square; of each learner its own where it has a copy
    gradients    of each learner a vector; or one alone, the weights as they were last averaged

The parent makes it; children attach by its handle.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ....replay.block import Handle, Memory, allocate
from ....replay.sync import make_mutex
from ...learner import Learner, Vectors, Weights
from ...sizes import layout_of
from ..arrangement import Arrangement
from ..board import LINE, TURNS, Board

ARRIVED, APPLIED, LEARNING, PUBLISHING, _HEADER = range(5)
_PHASES = 3


class Common:
    """Memory that the L learners of an arrangement compute with; this one, of a ``number``, is placed on it.

    ``losses`` ``[L, 3]`` by phase, ``overlaps`` ``[L, 2]`` (gradient steps of others that ended during an own one: sum
    and most), ``gradients`` ``[L, P]`` where learners hand them in; ``weights`` ``[L, P]`` and ``averaged`` ``[P]``
    where each has a copy, for ``period`` steps, of which ``kept`` ``[L]`` are taken. Without ``memory`` it is made, and
    has the learner's own numbers. TrainingError for a learner that is not on the CPU.
    """

    def __init__(
        self, learner: Learner, arrangement: Arrangement, memory: Memory | None = None, number: int = 0
    ) -> None:
        own, learners, is_local = learner.vectors(), arrangement.learners, arrangement.sync == "local"
        copies = learners if is_local else 1
        sizes = [_HEADER * LINE, learners * LINE, *(_lines(4 * copies * len(each)) for each in own)]
        starts = [0, *(int(stop) for stop in np.cumsum(sizes))]
        shape = {"synchronous": learners, "local": 1}.get(arrangement.sync, 0), len(own.parameters)
        self.learners, self.period, is_new = learners, arrangement.period, memory is None
        self._memory = allocate(starts[-1] + 4 * shape[0] * shape[1], True) if memory is None else memory
        view = self._memory.view
        lines: NDArray[np.float64] = view(starts[1], (learners, LINE // 8), np.float64)
        self.losses, self.overlaps = lines[:, :_PHASES], lines.view(np.int64)[:, _PHASES : _PHASES + 2]
        self.kept: NDArray[np.int64] = lines.view(np.int64)[:, _PHASES + 2]
        every = Vectors(*(view(at, (copies, len(each)), np.float32) for at, each in zip(starts[2:], own, strict=False)))
        self.gradients: NDArray[np.float32] = view(starts[-1], shape, np.float32)
        self._every, self.weights = every, every.parameters
        if is_new:
            for mutex in (LEARNING, PUBLISHING):
                make_mutex(self.at(mutex))
            for numbers, each in zip(every, own, strict=True):
                numbers[:] = each
            if is_local:
                self.averaged[:] = own.parameters
        learner.place(Vectors(*(numbers[number if is_local else 0] for numbers in every)))
        _prepare(learner, arrangement.rows(learner.workload))

    @property
    def averaged(self) -> Weights:
        """The weights ``[P]`` as they were last averaged."""
        averaged: Weights = self.gradients[0]
        return averaged

    def state_dict(self) -> dict[str, Weights]:
        """The numbers of learners with copies of their own, as copies; nothing where they share them."""
        kept = {**self._every._asdict(), "averaged": self.gradients} if len(self.weights) > 1 else {}
        return {name: numbers.copy() for name, numbers in kept.items()}

    def load_state_dict(self, state: Mapping[str, Weights]) -> None:
        """Take a state of as many learners; of an empty one, the numbers of the first for all."""
        if not state and len(self.weights) > 1:
            for numbers in self._every:
                numbers[:] = numbers[0]
            self.averaged[:] = self.weights[0]
        for name, numbers in state.items():
            (self.gradients if name == "averaged" else getattr(self._every, name))[:] = numbers

    def at(self, line: int) -> int:
        """The address of a counter or a mutex, one of the constants of this module."""
        return self._memory.address + line * LINE

    def handle(self) -> Handle:
        """A small picklable reference for children."""
        return self._memory.handle()

    @classmethod
    def attach(cls, handle: Handle, learner: Learner, arrangement: Arrangement, number: int) -> "Common":
        """Place learner ``number`` of the same workload and arrangement on the memory of a handle."""
        return cls(learner, arrangement, handle.attach(), number)

    def stale_gradients(self, board: Board) -> dict[str, float]:
        """Gradient steps of other learners that ended during a step: the mean over steps, and the most."""
        steps = max(1, int(board.rows[: self.learners, TURNS].sum()))
        return {"mean": float(self.overlaps[:, 0].sum()) / steps, "most": int(self.overlaps[:, 1].max())}


def _prepare(learner: Learner, rows: int) -> None:
    """Derive gradients of zeros once, so that compiling and loading code delays no step."""
    fields = layout_of(learner.workload).fields
    zeros = {name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in fields.items()}
    batch = learner.rows(zeros, np.ones(rows, np.float32))
    for phase in learner.phases():
        learner.gradient(phase, batch)


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE
