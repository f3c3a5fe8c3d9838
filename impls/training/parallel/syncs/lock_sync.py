"""Learners that take whole gradient steps on the same weights, one at a time under a mutex [StoneSachdev].

The mutex is robust: where its owner dies in the middle of a step, the next learner continues from what that left.
"""

from ....replay import Batch
from ...learner import Stepped
from .. import board as words
from .common import LEARNING
from .sync import Joint


class Lock(Joint):
    """Learners that take steps in alternation; each step sees the weights that the one before it left."""

    def step(self, batch: Batch, before: int) -> Stepped:
        """Wait for the mutex, then take a step as one learner alone would."""
        with self.locked(LEARNING):
            self.learner.count(self.board.value(words.UPDATES))
            stepped = self.learner.step(batch.rows, batch.weights)
            self.board.publish(self.learner.parameters)
            self.board.add(words.UPDATES)
        return stepped
