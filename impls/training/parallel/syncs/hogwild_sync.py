"""Learners that take whole gradient steps on the same weights without a lock [StoneSachdev].

Steps overlap: a gradient may rest on weights that others are changing, and of two additions to one weight at the same
moment one is lost. Only handing weights out to actors takes turns.
"""

from ....replay import Batch
from ...learner import Stepped
from .. import board as words
from .common import PUBLISHING
from .sync import Joint


class Hogwild(Joint):
    """Learners that take steps at once."""

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step at once, and note how many steps of others ended during it."""
        began = self.board.value(words.UPDATES)
        self.learner.count(before)
        stepped = self.learner.step(batch.rows, batch.weights)
        overlap = self.board.value(words.UPDATES) - began
        mine = self.common.overlaps[self.number]
        mine[0] += overlap
        mine[1] = max(mine[1], overlap)
        with self.locked(PUBLISHING):
            self.board.publish(self.learner.parameters)
            self.board.add(words.UPDATES)
        return stepped
