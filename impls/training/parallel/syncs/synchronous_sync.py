"""A parameter server [Zhang2021]: each learner derives the gradient of its part of the batch, the first takes the step.

All learners compute with the same weights in shared memory. Of each phase they hand in their gradients; the first waits
for all, takes the step along their mean, and lets the others continue. Losses are means over rows, so L parts of B/L
records give the gradient of B records, up to rounding.
"""

import numpy as np

from ....replay import Batch
from ...learner import Phase, Stepped
from ...weights import spans
from .. import board as words
from .. import counter
from ..pace import Pace
from .common import APPLIED, ARRIVED
from .sync import Joint


class Synchronous(Joint):
    """Learners that take each step together."""

    _done = 0  # phases of all steps so far

    def claim(self, pace: Pace) -> int | None:
        """Claim the next step in the first learner; the others take part in it as soon as it is due."""
        if self.number == 0:
            return super().claim(pace)
        before = self.learner.steps
        return before if self.board.look(words.STEPS, pace.due(before + 1), self.number) else None

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step together; the losses are those of all learners in the first, its own in another."""
        learner, priorities, losses = self.learner, np.empty(0, np.float32), dict[str, float]()
        rows, phases = learner.rows(batch.rows, batch.weights), learner.phases()
        for at, phase in enumerate(phases):
            # Invariant: all learners are in the same phase, and no weight changes until all gradients have arrived.
            derived, span = learner.gradient(phase, rows), spans(learner.workload)[phase.network]
            self.common.gradients[self.number, span] = derived.gradient
            self.common.losses[self.number, at] = derived.loss
            priorities = priorities if derived.priorities is None else derived.priorities
            self._done += 1
            if self.number:
                losses[phase.network] = derived.loss
                counter.add(self.common.at(ARRIVED), 1)
                self.reach(APPLIED, self._done)
            else:
                losses[phase.network] = self._apply(phase, at, span, at == len(phases) - 1)
        if self.number:
            learner.steps += 1
        else:
            self.board.publish(learner.parameters)
            self.board.add(words.UPDATES)
        return Stepped(priorities, losses)

    def _apply(self, phase: Phase, at: int, span: slice, is_last: bool) -> float:
        """Wait for the others' gradients, take the step along the mean, let them continue; returns the mean loss."""
        self.reach(ARRIVED, (self.common.learners - 1) * self._done)
        self.learner.apply(phase, self.common.gradients[:, span].mean(0))
        loss = float(self.common.losses[:, at].mean())
        if is_last:
            self.learner.finish()
        counter.add(self.common.at(APPLIED), 1)
        return loss
