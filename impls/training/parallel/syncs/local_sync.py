"""Learners with weights of their own, averaged every H gradient steps: local SGD [Zhang2022, Algorithms 5, 7 and 8].

A gradient step is a step of each learner on its B/L records. Targets stay fixed between averages, and then move as far
as H steps would move them: a share 1 - (1 - tau)^n, where target_interval has n of its multiples among the H. DQN
chooses the next action by the averaged network. Where an algorithm has a policy, critics learn first; once they are
averaged the policy learns from the same H batches, by one critic for all, and is averaged too (and then SAC's
temperature).

With plain gradient descent and H = 1 this is what ``synchronous`` learners do, up to rounding. With Adam it is not:
each learner's moments are its own, and a mean of Adam's steps is not Adam's step along a mean.

A period that a resume breaks goes on: who had taken n of its H steps takes H - n. No state has the batches of those n;
the first batch since stands for each of them when the policy learns.
"""

from typing import Any

import numpy as np

from ....replay import Batch
from ...learner import Learner, Phase, Stepped
from ...weights import spans
from .. import board as words
from .. import counter
from ..board import Board
from ..pace import Pace
from .common import ARRIVED, Common
from .sync import Joint


class Local(Joint):
    """Learners that meet every ``period`` gradient steps."""

    def __init__(self, learner: Learner, board: Board, number: int, common: Common) -> None:
        super().__init__(learner, board, number, common)
        if number:
            kept = int(common.kept[number])
            learner.count(board.value(words.UPDATES) - int(common.kept[0]) + kept, kept)
        learner.act_by(common.averaged)
        self._arrivals = 0
        self._kept = list[tuple[Any, tuple[Phase, ...]]]()  # of each step of this period what its policy learns from

    def settle(self) -> None:
        """Do nothing: this learner's numbers and steps are its own."""

    def claim(self, pace: Pace) -> int | None:
        """Claim the next step in the first learner; the others take theirs as soon as it is due."""
        if self._arrivals == 0:
            self._meet()  # before any step is counted, from which the others count on
        if self.number == 0:
            return super().claim(pace)
        before = self.learner.steps
        return before if self.board.look(words.STEPS, pace.due(before + 1), self.number) else None

    def step(self, batch: Batch, before: int) -> Stepped:
        """Take a step of one's own, and average if it is the last of the period."""
        learner = self.learner
        rows = learner.rows(batch.rows, batch.weights)
        self._take_up(rows, before)
        first, *later = learner.phases()
        derived = learner.gradient(first, rows)
        learner.apply(first, derived.gradient)
        learner.steps = before + 1
        self._kept.append((rows if later else None, tuple(later)))
        self.common.kept[self.number] = len(self._kept)
        losses = {first.network: derived.loss}
        if len(self._kept) == self.common.period:
            losses |= self._finish()
        if self.number == 0:
            self.board.add(words.UPDATES)
        assert derived.priorities is not None  # the first phase has them
        return Stepped(derived.priorities, losses)

    def _take_up(self, rows: Any, before: int) -> None:
        """Where steps of this period were taken before a resume, let ``rows`` stand for each of theirs."""
        for step in range(before - int(self.common.kept[self.number]) + len(self._kept), before):
            self.learner.steps = step
            self._kept.append((rows, self.learner.phases()[1:]))
        self.learner.steps = before
        if len(self._kept) == self.common.period:
            self._finish()

    def _finish(self) -> dict[str, float]:
        """Average, train and average what else there is, then move the targets; returns the losses of the latter."""
        learner, losses = self.learner, dict[str, float]()
        for network, span in spans(learner.workload).items():
            # Invariant: the networks before this one are the same in all learners.
            for rows, phase in [(rows, phase) for rows, later in self._kept for phase in later]:
                if phase.network == network:
                    derived = learner.gradient(phase, rows)
                    learner.apply(phase, derived.gradient)
                    losses[network] = derived.loss
            if span.start == 0 or network in losses:  # the first has learned in each step
                self._average(span)
        settings, period = learner.workload.learner, len(self._kept)
        self._kept.clear()
        self.common.kept[self.number] = 0
        moves = learner.steps // settings.target_interval - (learner.steps - period) // settings.target_interval
        learner.move_targets(1 - (1 - settings.tau) ** moves)
        if self.number == 0:
            self.board.publish(self.common.averaged)
        return losses

    def _average(self, span: slice) -> None:
        """Set a network's weights of all learners to their mean, of which each computes a part."""
        self._meet()
        edges = np.linspace(span.start, span.stop, self.common.learners + 1).astype(int)
        part = slice(edges[self.number], edges[self.number + 1])
        weights, averaged = self.common.weights[:, part], self.common.averaged[part]
        np.mean(weights, 0, out=averaged)
        weights[:] = averaged
        self._meet()

    def _meet(self) -> None:
        """Wait until all learners have come as far as this one."""
        self._arrivals += 1
        counter.add(self.common.at(ARRIVED), 1)
        self.reach(ARRIVED, self.common.learners * self._arrivals)
