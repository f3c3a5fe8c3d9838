"""What a way in which copies meet does; each is a file of this folder."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...replay import Batch
from ...sumtree.compiling import kept_njit
from .. import clock
from ..errors import TrainingError
from ..learner import Learner, Stepped, Vectors
from ..parallel import board as words
from ..parallel import counter
from ..parallel.arrangement import Arrangement
from ..parallel.board import Board
from .numbers import MET, OWN_DUE, OWN_SINCE, OWN_UPDATES, Numbers

PATIENCE_SECONDS = 180.0  # that the parent waits for another process


class CopySync(ABC):
    """The gradient steps of copy ``number``, of which 0 is the parent; its learner is placed on the shared memory."""

    program: ClassVar[Any] = None
    """What each of ``helpers`` further processes runs, from its ``Start`` on."""

    def __init__(self, learner: Learner, arrangement: Arrangement, board: Board, number: int, numbers: Numbers) -> None:
        self.learner, self.arrangement, self.board, self.number = learner, arrangement, board, number
        self.numbers, self._own = numbers, numbers["steps"][number]
        learner.place(numbers.vectors(number))
        learner.count(int(self._own[OWN_UPDATES]))

    @staticmethod
    def arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
        """What is shared besides, by name, as it is at first; ``own`` are a learner's numbers."""
        return {}

    @staticmethod
    def helpers(arrangement: Arrangement) -> int:
        """How many processes there are besides the copies."""
        return 0

    def step(self, batch: Batch) -> Stepped:
        """Take a gradient step on a batch, and meet if it is the k-th."""
        stepped = self.move(batch)
        self._own[OWN_UPDATES] += 1
        self._own[OWN_DUE] = max(0, self._own[OWN_DUE] - 1)
        if self.number < self.arrangement.processes:  # those of model workers have a count of their own
            self.board.add(words.UPDATES)
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

    @abstractmethod
    def exchange(self) -> None:
        """What ``meet`` does each time."""

    def ended(self) -> None:  # noqa: B027  # most do nothing
        """Know that an episode of this copy has ended, and another begins."""

    @staticmethod
    def report(numbers: Numbers) -> dict[str, Any]:
        """What has met so far, by name."""
        return {}

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Call until it returns True, which takes 20 ms at most, and rest in pauses meanwhile.

        Stopped when the run ends; in the parent, TrainingError for a child that failed or keeps it waiting for 3
        minutes.
        """
        began, end = clock.nanoseconds(), clock.seconds() + PATIENCE_SECONDS
        while not is_so():
            self.board.check(self.number)
            if self.number == 0 and clock.seconds() > end:
                raise TrainingError(f"a process of this run has done nothing for {PATIENCE_SECONDS:.0f} s")
        self.board.rows[self.number, words.WAITED] += clock.nanoseconds() - began


class Adding(CopySync):
    """Copies that add what their weights have moved by, and take the sum.

    ``begun [P, W]`` are the weights that each took last. In ``additions [W]`` the same loop adds 1 to each number: what
    their sum lacks of W for each time that weights met was lost between two copies.
    """

    @staticmethod
    def arrays(arrangement: Arrangement, own: Vectors) -> dict[str, NDArray[Any]]:
        """What each began with, and the additions to each weight."""
        begun = np.tile(own.parameters, (arrangement.members, 1))
        return {"begun": begun, "additions": np.zeros(len(own.parameters), np.int64)}

    def add(self, is_alone: bool = False) -> int:
        """Add what the weights moved by, and take the sum; returns how often weights had met before.

        ``is_alone``: nobody else has changed the shared weights, so this copy's are the sum, without rounding.
        """
        numbers = self.numbers
        begun = numbers["begun"][self.number]
        _add(numbers["weights"], numbers["additions"], self.learner.parameters, begun, is_alone)
        return int(counter.add(numbers.at(MET), 1))

    @staticmethod
    def report(numbers: Numbers) -> dict[str, Any]:
        """How often weights have met, additions to single weights, and how many of these were lost."""
        met = int(counter.value_of(numbers.at(MET)))
        additions = met * len(numbers["weights"])
        return {"met": met, "additions": additions, "lost_additions": additions - int(numbers["additions"].sum())}


@kept_njit(nogil=True)
def _add(weights: Any, additions: Any, own: Any, begun: Any, is_alone: bool) -> None:
    """Add own - begun to shared weights, 1 to their additions, and set own and begun to the sum; nothing is locked."""
    for i in range(len(weights)):
        weights[i] = own[i] if is_alone else weights[i] + (own[i] - begun[i])
        additions[i] += 1
        own[i] = begun[i] = weights[i]
