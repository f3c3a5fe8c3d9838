"""What a way to combine learners does; each is a file of this folder."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from ....replay import Batch
from ... import clock
from ...errors import TrainingError
from ...learner import Learner, Stepped
from .. import board as words
from ..board import Board
from ..pace import Pace
from .common import Common

PATIENCE_SECONDS = 180.0  # that the parent waits for another learner, which may still compile its kernels


class Sync(ABC):
    """The gradient steps of learner ``number`` of L, of which number 0 is the parent."""

    def __init__(self, learner: Learner, board: Board, number: int) -> None:
        self.learner, self.board, self.number = learner, board, number

    def claim(self, pace: Pace) -> int | None:
        """Claim the next gradient step once it is due; returns the number of those before it.

        None if none is due within 20 ms, or another learner was faster.
        """
        claimed = self.board.value(words.CLAIMED_UPDATES)
        if not self.board.look(words.STEPS, pace.due(claimed + 1), self.number):
            return None
        before = self.board.claim(words.CLAIMED_UPDATES, 1, claimed + 1)
        return None if before < 0 else before

    @abstractmethod
    def step(self, batch: Batch, before: int) -> Stepped:
        """Take the step that was claimed with a batch: compute, combine, count it, hand out weights."""

    def settle(self) -> None:
        """Count, before the parent's learner is saved, the steps that others have taken."""
        self.learner.count(self.board.value(words.UPDATES))


class Alone(Sync):
    """One learner, which shares its steps with nobody."""

    def step(self, batch: Batch, before: int) -> Stepped:
        """A gradient step, then the weights are handed out."""
        stepped = self.learner.step(batch.rows, batch.weights)
        self.board.publish(self.learner.latest())
        self.board.add(words.UPDATES)
        return stepped


class Joint(Sync):
    """One of several learners, on memory that they have in common."""

    def __init__(self, learner: Learner, board: Board, number: int, common: Common) -> None:
        super().__init__(learner, board, number)
        self.common = common
        self.settle()

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Call until it returns True, which takes 20 ms at most, and rest in pauses meanwhile.

        Stopped when the run ends; in the parent, TrainingError for a child that failed or keeps it waiting for 3
        minutes.
        """
        end = clock.seconds() + PATIENCE_SECONDS
        while not is_so():
            self.board.check(self.number)
            if self.number == 0 and clock.seconds() > end:
                raise TrainingError(f"a learner of this run has done nothing for {PATIENCE_SECONDS:.0f} s")

    def reach(self, counter: int, least: int) -> None:
        """Wait until a counter of ``common`` is at least ``least``."""
        address = self.common.at(counter)
        self.wait(lambda: self.board.look_at(address, least, self.number))

    @contextlib.contextmanager
    def locked(self, mutex: int) -> Iterator[None]:
        """Hold a mutex of ``common``; one whose owner died is taken over."""
        from .mutex import lock, unlock  # noqa: PLC0415  # with numba

        address, began = self.common.at(mutex), clock.nanoseconds()
        self.wait(lambda: bool(lock(address)))
        self.board.rows[self.number, words.WAITED] += clock.nanoseconds() - began
        try:
            yield
        finally:
            unlock(address)
